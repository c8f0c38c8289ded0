"""NumPy's functions on device arrays: those that only look differently at memory, and those that
join arrays.

They are put into the table that `DeviceArray.__array_function__` looks into.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import DeviceError, ShapeError
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.memory.device_array import FUNCTIONS, DeviceArray, assign, broadcast_to, empty


def _viewed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function of one array that gives a view."""

    def run(array: DeviceArray, *args: Any, **kwargs: Any) -> DeviceArray:
        key = (name, _frozen(args), _frozen(sorted(kwargs.items())))
        return array._view(key, lambda a: function(a, *args, **kwargs))

    return run


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _reshape(
    array: DeviceArray, /, *args: Any, copy: bool | None = None, **kwargs: Any
) -> DeviceArray:
    shape: Any = args[0] if args else kwargs.get("shape", kwargs.get("newshape"))
    wanted = (operator.index(shape),) if not isinstance(shape, (tuple, list)) else tuple(shape)
    if copy is False:
        try:
            return array.reshape_view(wanted)
        except AttributeError as error:
            raise ValueError(str(error)) from None
    return array.reshape(wanted)


def concatenate(
    arrays: Sequence[Any],
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
) -> DeviceArray:
    """Arrays of one device joined along an axis."""
    found = list(arrays)
    device = next(a.device for a in found if isinstance(a, DeviceArray))
    for a in found:
        if not isinstance(a, DeviceArray) or a.device != device:
            where = a.device if isinstance(a, DeviceArray) else "the host"
            raise DeviceError(
                f"arrays on {device} and {where} cannot be joined",
                hint="move them to one device first",
            )
    if axis is None:
        found, axis = [a.reshape(-1) for a in found], 0
    shapes = [list(a.shape) for a in found]
    axis = operator.index(axis)  # type: ignore[arg-type]
    if not -len(shapes[0]) <= axis < len(shapes[0]):
        raise ShapeError(f"axis {axis} is out of range for an array of rank {len(shapes[0])}")
    axis %= len(shapes[0])
    rest = {tuple(s[:axis] + s[axis + 1 :]) for s in shapes}
    if len(rest) != 1 or len({len(s) for s in shapes}) != 1:
        raise ShapeError(
            f"arrays of the shapes {[a.shape for a in found]} cannot be joined along axis {axis}"
        )
    total = sum(s[axis] for s in shapes)
    if out is None:
        if dtype is None:
            dtype = (
                np.result_type(*(a.dtype for a in found))
                if len({a.dtype for a in found}) > 1
                else found[0].dtype
            )
        out = empty(
            (*shapes[0][:axis], total, *shapes[0][axis + 1 :]), as_dtype(dtype).numpy, device
        )
    at = 0
    for a in found:
        n = a.shape[axis]
        assign(out[(*[slice(None)] * axis, slice(at, at + n))], a)
        at += n
    return out


def stack(arrays: Sequence[Any], axis: int = 0, out: Any = None, **options: Any) -> DeviceArray:
    """Arrays of one shape joined along a new axis."""
    return concatenate([expand_dims(a, axis) for a in arrays], axis, out, **options)


def _empty_like(
    array: DeviceArray,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    **_: Any,
) -> DeviceArray:
    wanted = array.shape if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    return empty(wanted, array.dtype if dtype is None else dtype, array.device)


def _filled_like(number: Any) -> Callable[..., Any]:
    def run(array: DeviceArray, *args: Any, **kwargs: Any) -> DeviceArray:
        value = number
        if value is None:
            value, args = (
                (kwargs.pop("fill_value") if "fill_value" in kwargs else args[0]),
                args[1:],
            )
        out = _empty_like(array, *args, **kwargs)
        assign(out, value)
        return out

    return run


def _shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether the spans of two arrays meet (as `numpy.may_share_memory`)."""
    if not isinstance(a, DeviceArray) or not isinstance(b, DeviceArray) or a.device != b.device:
        return False
    (low, high), (first, last) = a.layout.extent, b.layout.extent
    return a.address + low < b.address + last and b.address + first < a.address + high


expand_dims = _viewed("expand_dims", np.expand_dims)

FUNCTIONS |= {
    np.broadcast_to: broadcast_to,
    np.reshape: _reshape,
    np.transpose: lambda a, axes=None: a.transpose(axes),
    np.expand_dims: expand_dims,
    np.squeeze: lambda a, axis=None: a.squeeze(axis),
    np.moveaxis: _viewed("moveaxis", np.moveaxis),
    np.swapaxes: _viewed("swapaxes", np.swapaxes),
    np.rollaxis: _viewed("rollaxis", np.rollaxis),
    np.flip: _viewed("flip", np.flip),
    np.atleast_1d: _viewed("atleast_1d", np.atleast_1d),
    np.atleast_2d: _viewed("atleast_2d", np.atleast_2d),
    np.ravel: lambda a, order="C": a.reshape(-1),
    np.copy: lambda a, *_, **__: a.copy(),
    np.concatenate: concatenate,
    np.stack: stack,
    np.empty_like: _empty_like,
    np.zeros_like: _filled_like(0),
    np.ones_like: _filled_like(1),
    np.full_like: _filled_like(None),
    np.shares_memory: _shares_memory,
    np.may_share_memory: _shares_memory,
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
}
