"""Which arguments are arrays, of whatever library, the array (of NumPy, or on a device) behind each,
and results of the kind that came in: what another library's arrays in the memory of the host give
is made theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cubepy.lang.annotations import TensorMap
from cubepy.lang.struct import Struct
from cubepy.runtime.interop.accepted import host_memory
from cubepy.runtime.interop.foreign import BITS, device_array, from_torch_or_none
from cubepy.runtime.masked import refuse_masked
from cubepy.runtime.memory.device_array import DeviceArray

NUMBERS = (bool, int, float, np.generic)
QUICK: dict[type, Any] = {}
"""How arrays of types that were seen are taken, without asking for every protocol."""
PLAIN = frozenset({np.ndarray, DeviceArray, int, float, bool, type(None), str})
"""Types of arguments that `lift` leaves alone; the binder asks it about no others."""
NUMPY = frozenset({np.ndarray, np.generic, int, float, bool, str, type(None)})
"""Types whose results are NumPy's."""


def lift(value: Any, name: str = "an argument") -> Any:
    """The array behind a tensor or an array of another library, also inside a tuple; anything else
    as it is.

    Raises:
        ArgumentError: a masked array.
        LaunchError, DTypeError: an array that its library does not give away, or that holds no
            numbers.
    """
    known = QUICK.get(type(value))
    if known is not None and (found := known(value)) is not None:
        return found
    if type(value) is tuple:
        return tuple([v if type(v) in PLAIN else lift(v, name) for v in value])
    if isinstance(value, (*NUMBERS, str, type, Struct, TensorMap)) or value is None:
        return value
    array = array_like(value, name)
    return value if array is None else array


def array_like(value: Any, name: str = "an argument") -> Any:
    """The array (of NumPy, or on a device) behind an argument, or None if it is no array (see
    `accepted`).

    Raises:
        ArgumentError: a masked array.
        LaunchError, DTypeError: an array that its library does not give away, or that holds no
            numbers.
    """
    if isinstance(value, (np.ndarray, DeviceArray)):
        if type(value) is not np.ndarray:
            refuse_masked(value, name)
        return value
    inner = getattr(value, "__cubepy_array__", None)
    if inner is not None:
        method = getattr(type(value), "__cubepy_array__", None)
        if method is not None:
            QUICK[type(value)] = method
        return inner()
    found = device_array(value)
    if found is not None:
        if type(value).__module__.partition(".")[0] == "torch":
            QUICK[type(value)] = from_torch_or_none
        return found
    return host_memory(value, name)


def launched_by(args: Iterable[Any]) -> Any:
    """What is asked to launch a kernel on such arguments (it says whether it did), if one of them
    names something (`__cubepy_launch__`); else None.
    """
    for value in args:
        if type(value) in PLAIN:
            continue
        if type(value) is tuple:
            found = launched_by(value)
        else:
            method = getattr(type(value), "__cubepy_launch__", None)
            found = None if method is None else method(value)
        if found is not None:
            return found
    return None


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
