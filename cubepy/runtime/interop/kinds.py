"""Results of the kind that came in: what another library's arrays in the memory of the host give is
made theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cubepy.runtime.interop.foreign import BITS

NUMPY = frozenset({np.ndarray, np.generic, int, float, bool, str, type(None)})
"""Types whose results are NumPy's."""


def kind_of(values: Iterable[Any]) -> Callable[[np.ndarray], Any] | None:
    """What makes an array that of the library of these arguments; None where results are NumPy's.

    PyTorch's tensors give tensors and JAX's arrays give arrays, also where arrays of NumPy stand
    beside them. Columns, frames, lists and buffers give arrays of NumPy.
    """
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is None and jax is None:
        return None
    for value in values:
        if type(value) in (list, tuple):
            value = next(iter(value), None)
        if type(value) in NUMPY:
            continue
        if torch is not None and isinstance(value, torch.Tensor):
            return None if value.is_cuda else to_torch
        if jax is not None and isinstance(value, jax.Array):
            return to_jax
    return None


def made(result: Any, make: Callable[[np.ndarray], Any]) -> Any:
    """A result, or each of several, made of another kind; what is no array of NumPy stays."""
    if isinstance(result, (np.ndarray, np.generic)):
        return make(np.asarray(result))
    if type(result) is tuple:
        return tuple([made(r, make) for r in result])
    return result


def to_torch(array: np.ndarray) -> Any:
    """A tensor of PyTorch that shares the memory of an array."""
    torch = sys.modules["torch"]
    if any(s < 0 for s in array.strides):
        array = array.copy()
    word = BITS.get(array.dtype.name)
    if word is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(word)).view(getattr(torch, array.dtype.name))


def to_jax(array: np.ndarray) -> Any:
    """An array of JAX with the elements of an array."""
    return sys.modules["jax"].numpy.asarray(array)
