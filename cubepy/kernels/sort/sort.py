"""Sorting along an axis: values by networks of lines and buckets, indices by radix (stable); NaN
last.

Whole launches wait for the last thread, so a sort of values is few of them: rows that a cache holds
take one, longer ones one more for every doubling (`sort.mergesort_cpu`), the longest five
(`sort.bucketsort_cpu`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of, axis_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import contiguous, copy
from cubepy.kernels.sort.problem import Sort, keys_of
from cubepy.kernels.sort.routines import SORT
from cubepy.runtime import memory


def in_rows(x: Any, axis: Any, name: str) -> tuple[Any, int, tuple[int, ...]]:
    """The array with `axis` last and contiguous, the axis, and the permutation that made it so."""
    array = array_of(x)
    if axis is None:
        array, axis = contiguous(array).reshape(-1), 0
    if array.ndim == 0:
        raise ShapeError(f"{name} needs an array of rank 1 or more")
    d = axis_of(axis, array.ndim)
    moved = (*(k for k in range(array.ndim) if k != d), d)
    return contiguous(array.transpose(moved)), d, moved


def order_back(moved: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes one."""
    return tuple(moved.index(d) for d in range(len(moved)))


def _sort(x: Any, axis: Any, descending: bool, out: Any, by_index: bool) -> Any:
    wrap = wrapper(x)
    rows, d, moved = in_rows(x, axis, "argsort" if by_index else "sort")
    shape = list(rows.shape[:-1])
    shape.insert(d, rows.shape[-1])
    target = output(out, tuple(shape), np.int64 if by_index else rows.dtype)
    if target.size:
        straight = d == rows.ndim - 1 and target.flags.c_contiguous
        done = target if straight else memory.empty(rows.shape, target.dtype)
        n = rows.shape[-1]
        flat = done.reshape(-1, n)
        keys = keys_of(rows.dtype, descending, same_zeros=by_index)
        values, indices = (None, flat) if by_index else (flat, None)
        SORT.run(Sort(rows.reshape(-1, n), values, indices, keys))
        if not straight:
            copy(done.transpose(order_back(moved)), out=target)
    return finish(target, out, wrap)


@repeated
def sort(x: Any, axis: Any = -1, descending: bool = False, *, out: Any = None) -> Any:
    """The elements in order along an axis, as `numpy.sort`: NaN last (first when descending).

    Args:
        x: array of any shape, strides and dtype.
        axis: int; None sorts the flattened array.
        descending: largest first.
        out: array to write.

    Example:
        >>> import numpy as np
        >>> sort(np.array([3, 1, 2])), sort(np.array([3.0, np.nan, 2.0]), descending=True)
        (array([1, 2, 3]), array([nan,  3.,  2.]))
    """
    return _sort(x, axis, descending, out, by_index=False)


@repeated
def argsort(x: Any, axis: Any = -1, descending: bool = False, *, out: Any = None) -> Any:
    """The indices (i64) that sort an axis, as `numpy.argsort(x, axis, stable=True)`: equal elements
    keep their order.

    Args:
        x, axis, descending, out: as for `sort`.

    Example:
        >>> import numpy as np
        >>> argsort(np.array([3, 1, 3, 2]), descending=True)
        array([0, 2, 3, 1])
    """
    return _sort(x, axis, descending, out, by_index=True)
