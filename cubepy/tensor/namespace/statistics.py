"""Reductions and scans, as the array API names them."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.namespace.choice import concat
from cubepy.tensor.namespace.creation import full


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether no element is zero."""
    return as_tensor(x).all(axis, keepdims)


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether some element is not zero."""
    return as_tensor(x).any(axis, keepdims)


def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Largest elements."""
    return as_tensor(x).max(axis, keepdims)


def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Smallest elements."""
    return as_tensor(x).min(axis, keepdims)


def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Arithmetic means."""
    return as_tensor(x).mean(axis, keepdims)


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sums; integers sum in 64 bits unless `dtype` says another type."""
    return as_tensor(x).sum(axis, keepdims, dtype=dtype)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Products; integers multiply in 64 bits unless `dtype` says another type."""
    return as_tensor(x).prod(axis, keepdims, dtype=dtype)


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Variances; `correction` is subtracted from the count that divides."""
    return as_tensor(x).var(axis, keepdims, correction=correction)


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Standard deviations; `correction` is subtracted from the count that divides."""
    return as_tensor(x).std(axis, keepdims, correction=correction)


def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Running sums along an axis, with a 0 before them if `include_initial`."""
    return _cumulative(x, "cumsum", axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Running products along an axis, with a 1 before them if `include_initial`."""
    return _cumulative(x, "cumprod", axis, dtype, 1 if include_initial else None)


def _cumulative(x: Any, op: str, axis: int | None, dtype: Any, initial: int | None) -> Tensor:
    given = as_tensor(x)
    if axis is None:
        if given.ndim != 1:
            raise ShapeError(f"a scan of a tensor of shape {given.shape} needs an axis")
        axis = 0
    if dtype is not None:
        given = given.astype(dtype)
    found: Tensor = apply(op, given, axis=axis, exclusive=False)
    if dtype is not None:
        found = found.astype(dtype)
    if initial is None:
        return found
    shape = list(found.shape)
    shape[axis] = 1
    start = full(tuple(shape), initial, dtype=found.dtype, device=found.device)
    return concat([start, found], axis=axis)


def diff(
    x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Tensor:
    """Differences of neighbours along an axis, `n` times."""
    found = as_tensor(x)
    ends = [found]
    if prepend is not None:
        ends.insert(0, as_tensor(prepend))
    if append is not None:
        ends.append(as_tensor(append))
    found = concat(ends, axis=axis) if len(ends) > 1 else found
    if not -found.ndim <= axis < found.ndim:
        raise ShapeError(f"diff: axis {axis} is out of range for a tensor of rank {found.ndim}")
    lead = (slice(None),) * (axis % found.ndim)
    for _ in range(n):
        found = found[(*lead, slice(1, None))] - found[(*lead, slice(None, -1))]
    return found


__all__ = [
    "all",
    "any",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
]
