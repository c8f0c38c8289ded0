"""What ops run on: the kernel library, and functions of elements by name."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

from cubepy.runtime import recording
from cubepy.runtime.memory.device_array import empty


@cache
def kernels() -> Any:
    """The kernel library, loaded when the first op runs."""
    return importlib.import_module("cubepy.kernels")


_MODULES = {
    "f": "cubepy.kernels.primitives.functions",
    "t": "cubepy.tensor.functions",
    "b": "cubepy",
}


@cache
def function(text: str) -> Any:
    """A function of elements: "f:name" of the kernel library, "t:name" of this package, "b:name" a
    builtin.
    """
    where, name = text.split(":")
    return getattr(importlib.import_module(_MODULES[where]), name)


def zeros(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A new array of zeros where another array is, written by work that can be repeated."""
    if not isinstance(like, np.ndarray):
        out = empty(shape, dtype, like.device)
        out[...] = 0
        return out
    return kernels().copy(np.broadcast_to(number(0, dtype), shape))


def number(value: Any, dtype: Any) -> np.ndarray:
    """A number as an array of rank 0, which whatever is repeated may read."""
    made = np.asarray(value, dtype)
    if recording.active and (recorder := recording.current()) is not None:
        recorder.constant(made)
    return made
