"""Trained models: files in, modules out (`cb.load`), and what a file holds (`cb.look`).

Example:
    >>> import numpy as np, tempfile
    >>> from cubepy import models, nn
    >>> path = tempfile.mkdtemp() + "/w.safetensors"
    >>> nn.save_safetensors({"w": np.zeros(2, np.float32)}, path)
    >>> models.look(path).tensors[0].describe()
    'w: f32 (2)'
"""

from __future__ import annotations

from cubepy.models.loading import load
from cubepy.models.looking import look
from cubepy.models.report import Look, TensorInfo

__all__ = ["Look", "TensorInfo", "load", "look"]
