"""What the library's functions accept and give back: NumPy arrays in, NumPy arrays out; tensors
likewise.

Arrays on a GPU (`DeviceArray`, or tensors of other libraries) give arrays on that GPU: `placed`
makes the device of the inputs the current one, and whatever a function allocates or asks of the
device follows.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.kernels.entry.options import shown
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime import recording
from cubepy.runtime.device import Device
from cubepy.runtime.interop.accepted import hint_for
from cubepy.runtime.interop.arrays import array_like
from cubepy.runtime.interop.foreign import device_array
from cubepy.runtime.masked import refuse_masked_parts
from cubepy.runtime.memory.device_array import DeviceArray

LONGEST = 2**31 - 1  # places of an axis of an image, and of a window


def home_of(value: Any) -> Device | None:
    """The device whose memory a value is in, or None when it is not known to be in any."""
    if type(value) is DeviceArray:
        return value.layout.device
    inner = getattr(value, "__cubepy_array__", None)
    if inner is not None:
        found = getattr(value, "device", None)
        return found if isinstance(found, Device) else None
    found = device_array(value)
    return None if found is None else found.device


def array_of(value: Any, name: str = "x") -> Any:
    """The array (of NumPy, or on a device) behind an argument, without a copy where there is one
    already.
    """
    found = array_like(value, name)
    if found is not None:
        return found
    if isinstance(value, (list, tuple)):
        refuse_masked_parts(value, name)
    try:
        array = np.asarray(value)
    except ValueError:
        raise ShapeError(f"{name} must be an array, but its parts differ in shape") from None
    if array.dtype == object:
        raise DTypeError(
            f"{name} must be an array of numbers, not {type(value).__name__}",
            hint=hint_for(value, "pass an array, or lists of numbers"),
        )
    if isinstance(value, float) or (isinstance(value, (list, tuple)) and array.dtype == np.float64):
        array = array.astype(np.float32)
    if recording.active and (recorder := recording.current()) is not None:
        recorder.constant(array)
    return array


def whole(value: Any, name: str, least: int | None = None) -> int:
    """An argument as an int.

    Raises:
        ArgumentError: it is no whole number.
        ShapeError: it is less than `least`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} must be an int, not {shown(value)}") from None
    if least is not None and number < least:
        raise ShapeError(f"{name} must be at least {least}, not {number}")
    return number


def wholes(value: Any, name: str) -> tuple[int, ...]:
    """An argument as a tuple of ints; one int is a tuple of one.

    Raises:
        ArgumentError: it is neither.
    """
    if hasattr(value, "__index__") and not getattr(value, "shape", ()):
        return (whole(value, name),)
    if not isinstance(value, (tuple, list)) and getattr(value, "ndim", 0) != 1:
        raise ArgumentError(f"{name} must be an int or a tuple of ints, not {shown(value)}")
    return tuple(whole(v, f"{name}[{k}]") for k, v in enumerate(value))


def per_axis(value: Any, axes: int, name: str, least: int) -> tuple[int, ...]:
    """An int for each of some axes; one int is for all of them.

    Raises:
        ArgumentError: it is neither an int nor a tuple of ints.
        ShapeError: another number of them, or one that is less than `least`, or 2**31 or more.
    """
    given = wholes(value, name)
    given = given * axes if len(given) == 1 else given
    if len(given) != axes or any(v < least for v in given):
        raise ShapeError(
            f"{name} must be an int of at least {least} or {axes} of them, not {value!r}"
        )
    if any(v > LONGEST for v in given):
        raise ShapeError(
            f"{name} must be below 2**31, not {value!r}", hint="no axis of an image is so long"
        )
    return given


def number_of(value: Any, name: str) -> float:
    """An argument as a float.

    Raises:
        ArgumentError: it is no real number.
    """
    if isinstance(value, (int, float)):
        return float(value)
    if getattr(value, "shape", None) == () and np.asarray(value).dtype.kind in "fiub":
        return float(value)
    raise ArgumentError(f"{name} must be a number, not {shown(value)}")


def rounds_to_tf32(precision: str | None) -> bool:
    """Whether f32 operands may be rounded for matrix units."""
    if precision not in (None, "tf32"):
        raise DTypeError(f"there is no precision {precision!r}", hint='precision="tf32", or none')
    return precision is not None


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Normalised axes; None means all. An array of rank 0 has none; it may be asked for 0 or -1, as
    NumPy's may.

    Raises:
        ShapeError: an axis out of range or named twice.
        ArgumentError: an axis that is no int.
    """
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    out = []
    for a in given:
        a = whole(a, "axis")
        if ndim == 0 and a in (0, -1):
            continue
        if not -ndim <= a < ndim:
            raise ShapeError(f"axis {a} is out of range for an array of rank {ndim}")
        out.append(a % ndim)
    if len(set(out)) != len(out):
        raise ShapeError(f"the axes {tuple(given)} name one axis twice")
    return tuple(sorted(out))


def axis_of(axis: Any, ndim: int) -> int:
    """One normalised axis.

    Raises:
        ShapeError: an axis out of range.
        ArgumentError: it is no int.
    """
    if ndim == 0:
        raise ShapeError(
            f"axis {axis} is out of range for an array of rank 0", hint="reshape it to (1,)"
        )
    return axes_of(whole(axis, "axis"), ndim)[0]


def float_array(value: Any, name: str) -> Any:
    """An array of floats; integers become f32.

    Raises:
        DTypeError: booleans or dtypes that kernels do not know.
    """
    array = array_of(value, name)
    dtype: DType = as_dtype(array.dtype)
    if dtype.is_float and not dtype.storage_only:
        return array
    if dtype.is_int or dtype.storage_only:
        return array.astype(np.float32)
    raise DTypeError(f"{name} must hold floats, not {array.dtype}")
