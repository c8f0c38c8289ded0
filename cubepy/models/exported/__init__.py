"""Modules of PyTorch as modules of ours: the graph that `torch.export` finds, run as a program."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cubepy.models.exported.model import TorchModel
    from cubepy.models.exported.reading import from_torch, load

_HOMES = {"TorchModel": "model", "from_torch": "reading", "load": "reading"}

__all__ = ["TorchModel", "from_torch", "load"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"cubepy.models.exported.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'cubepy.models.exported' has no attribute {name!r}")
