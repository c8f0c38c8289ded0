"""What the library's functions accept and give back: NumPy arrays in, NumPy arrays out; tensors likewise."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime import memory


def array_of(value: Any, name: str = "x") -> np.ndarray:
    """The NumPy array behind an argument, without a copy where there is one already."""
    if isinstance(value, np.ndarray):
        return value
    inner = getattr(value, "__cubepy_array__", None)
    if inner is not None:
        return inner()  # type: ignore[no-any-return]
    array = np.asarray(value)
    if array.dtype == object:
        raise DTypeError(f"{name} must be an array of numbers, not {type(value).__name__}")
    if isinstance(value, float) or (isinstance(value, (list, tuple)) and array.dtype == np.float64):
        array = array.astype(np.float32)
    return array


def wrapper(*values: Any) -> Callable[[Any], Any]:
    """What makes a result of the kind that came in: tensors give tensors, arrays give arrays."""
    for v in values:
        wrap = getattr(v, "__cubepy_wrap__", None)
        if wrap is not None:
            return wrap  # type: ignore[no-any-return]
    return lambda result: result


def output(out: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """The array to write: `out`, checked, or a new one.

    Raises:
        ShapeError: `out` has another shape.
        DTypeError: `out` has another dtype.
    """
    if out is None:
        return memory.empty(shape, dtype)
    array = array_of(out, "out")
    if array.shape != shape:
        raise ShapeError(f"out has shape {array.shape}, but the result has shape {shape}")
    if array.dtype != np.dtype(dtype):
        raise DTypeError(f"out has dtype {array.dtype}, but the result has dtype {np.dtype(dtype)}")
    return array


def finish(result: np.ndarray, out: Any, wrap: Callable[[Any], Any]) -> Any:
    """What a function returns: `out` itself when it was given."""
    return out if out is not None else wrap(result)


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Normalised axes; None means all.

    Raises:
        ShapeError: an axis out of range or named twice.
    """
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    out = []
    for a in given:
        a = operator.index(a)
        if not -ndim <= a < ndim:
            raise ShapeError(f"axis {a} is out of range for an array of rank {ndim}")
        out.append(a % ndim)
    if len(set(out)) != len(out):
        raise ShapeError(f"the axes {tuple(given)} name one axis twice")
    return tuple(sorted(out))


def float_array(value: Any, name: str) -> np.ndarray:
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
