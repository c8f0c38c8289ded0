"""Neural networks: modules and functions with the names and weight layouts of PyTorch, and model
files.

Example:
    >>> from cubepy import nn
    >>> model = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2))
    >>> model([[1.0, 2.0, 3.0]]).shape
    (1, 2)
"""

from __future__ import annotations

if not __name__.startswith("cubepy."):
    raise ImportError("import cubepy.nn: the bare folder name would load every class a second time")

from cubepy.nn import functional, init, modules, optim, utils
from cubepy.nn.module import Module
from cubepy.nn.modules import *
from cubepy.nn.parameter import Buffer, Parameter
from cubepy.nn.safetensors import load_safetensors, safetensors_metadata, save_safetensors

__all__ = [
    "Buffer",
    "Module",
    "Parameter",
    "functional",
    "init",
    "load_safetensors",
    "optim",
    "safetensors_metadata",
    "save_safetensors",
    "utils",
]
__all__ += modules.__all__
