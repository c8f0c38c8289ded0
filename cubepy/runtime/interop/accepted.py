"""Which values are taken as arrays, by kernels, the library, tensors and layers alike, and how
their memory is found.

One order of protocols for all of them: an array of NumPy or of a device, a tensor, memory of a GPU,
then what a host library shows of its memory (`__array_interface__`, DLPack, the buffer protocol)
and at last `__array__`, which may copy. What may be a copy is read-only: a kernel that wrote into
it would write where nobody looks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import DTypeError, LaunchError
from cubepy.runtime.interop.foreign import host_array
from cubepy.runtime.masked import refuse_masked, refuse_masked_parts

_BUFFERS: dict[type, bool] = {}
"""Whether objects of a type show their memory by the buffer protocol."""


def has_buffer(value: Any) -> bool:
    """Whether a value shows its memory by the buffer protocol."""
    kind = type(value)
    known = _BUFFERS.get(kind)
    if known is None:
        try:
            memoryview(value).release()
            known = True
        except (TypeError, ValueError, BufferError):
            known = False
        _BUFFERS[kind] = known
    return known


def host_memory(value: Any, name: str = "x") -> np.ndarray | None:
    """The array of a value that another library or Python keeps in the memory of the host, or None
    if it is none.

    Raises:
        LaunchError: its library does not give it away, or its memory is no array.
        DTypeError: it holds objects or missing values.
    """
    kind = type(value)
    if isinstance(value, (np.generic, bytes, str, type)) or kind in (int, float, bool, list, tuple):
        return None
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return host_array(value)
    if has_buffer(value):
        return _plain(np.asarray(_buffer(value, name)), value, name)
    if not hasattr(kind, "__array__"):
        return None
    array = _plain(np.asarray(value), value, name)
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def host_data(value: Any, name: str) -> np.ndarray | None:
    """The array of data that may also be lists and numbers, of which there is None.

    Raises:
        ArgumentError: a masked array, or a list of such.
        LaunchError, DTypeError: see `host_memory`.
    """
    if isinstance(value, np.ndarray):
        refuse_masked(value, name)
        return value
    if isinstance(value, (list, tuple)):
        refuse_masked_parts(value, name)
    return host_memory(value, name)


def _buffer(value: Any, name: str) -> memoryview:
    try:
        return memoryview(value)
    except (BufferError, ValueError) as error:
        raise LaunchError(
            f"{name} is a {type(value).__name__} whose memory cannot be used: {error}",
            hint="pass a NumPy array",
        ) from error


def _plain(array: np.ndarray, value: Any, name: str) -> np.ndarray:
    if array.dtype == object:
        raise DTypeError(
            f"{name} is a {type(value).__name__} of objects, not of numbers alone",
            hint="fill what is missing, e.g. x.fillna(0).astype('float32')",
        )
    return array


_ARROW = ("__arrow_c_array__", "__arrow_c_stream__", "__arrow_c_device_array__")


def hint_for(value: Any, otherwise: str) -> str:
    """What to do about a value that is no array to cubepy."""
    if any(hasattr(type(value), name) for name in _ARROW):
        return "it speaks Arrow alone: pass pyarrow.chunked_array(x).to_numpy()"
    if isinstance(value, (list, tuple)):
        return "pass numpy.asarray(x, numpy.float32): a kernel takes memory, which a list has not"
    return otherwise
