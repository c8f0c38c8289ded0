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

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cubepy.models.exported.reading import from_torch
    from cubepy.models.loading import load
    from cubepy.models.looking import look
    from cubepy.models.onnx.writing.saving import save
    from cubepy.models.report import Look, TensorInfo

_HOMES = {
    "Look": "report",
    "TensorInfo": "report",
    "from_torch": "exported.reading",
    "load": "loading",
    "look": "looking",
    "save": "onnx.writing.saving",
}

__all__ = ["Look", "TensorInfo", "from_torch", "load", "look", "save"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"cubepy.models.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'cubepy.models' has no attribute {name!r}")
