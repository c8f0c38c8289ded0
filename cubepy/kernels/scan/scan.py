"""Scans: running sums and products along an axis.

A long row is cut into pieces: totals of the pieces, a scan of the totals, then a scan of each piece
from where the ones before it end. How it is cut depends on the shape and the kind of device only,
so results never change from run to run or with the number of threads. Scans run in f32 (f64 for
f64, 64 bits for integers).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.elementwise.map import map
from cubepy.kernels.elementwise.sequence import steps
from cubepy.kernels.entry.arguments import array_of, axis_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import contiguous, copy, fill
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.scan.problem import Scan
from cubepy.kernels.scan.routines import SCAN
from cubepy.lang.dtypes import DType, as_dtype, f32, i32, i64, u32, u64
from cubepy.runtime import memory


@cb.func
def later_of_largest(a, b):
    """The second of two numbers unless the first is larger; NaN is larger than all."""
    return cb.select((b >= a) | (b != b), b, a)


@cb.func
def later_of_smallest(a, b):
    """The second of two numbers unless the first is smaller; NaN is smaller than all."""
    return cb.select((b <= a) | (b != b), b, a)


@cb.func
def index_taken(x, found, index):
    """An index whose element was taken, else 0."""
    return cb.select((x == found) | (x != x), index, 0 * index)


def running(x: Any, axis: int, largest: bool) -> tuple[Any, Any]:
    """The largest or smallest element so far along an axis, the last one of equal ones, and its
    index (i64); NaN and its index from there on.

    Example:
        >>> import numpy as np
        >>> running(np.array([1.0, 3.0, 2.0, 3.0]), 0, True)
        (array([1., 3., 3., 3.]), array([0, 1, 1, 3]))
    """
    dtype = as_dtype(x.dtype).compute
    acc = (
        dtype if dtype.bits >= 32 else f32 if dtype.is_float else u32 if dtype.kind == "u" else i32
    )
    step = later_of_largest if largest else later_of_smallest
    values = memory.empty(x.shape, dtype.numpy)
    _scanned(x, axis, values, (step, _end(acc, largest), acc, False))
    short = i32 if x.shape[axis] < 1 << 31 else i64
    indices = steps(0, 1, x.shape[axis], short).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    marks = map(index_taken, x, values, indices, dtype=short.numpy)
    at = memory.empty(x.shape, np.dtype(np.int64))
    _scanned(marks, axis, at, (later_of_largest, 0, short, False))
    return values, at


def _end(dtype: DType, largest: bool) -> float:
    """What is no larger, or no smaller, than any number."""
    if dtype.is_float:
        return -math.inf if largest else math.inf
    ends = np.iinfo(dtype.numpy)
    return int(ends.min if largest else ends.max)


def _scan(x: Any, axis: Any, exclusive: bool, out: Any, step: Any, start: int) -> Any:
    wrap, array = wrapper(x), array_of(x)
    if axis is None:
        array, axis = contiguous(array).reshape(-1), 0
    elif array.ndim == 0:
        array = array.reshape(1)
    dtype = as_dtype(array.dtype).compute
    if dtype.is_float:
        acc, result = (dtype if dtype.bits >= 32 else f32), dtype
    else:
        acc = result = u64 if dtype.kind == "u" else i64
    target = output(out, array.shape, result.numpy)
    _scanned(array, axis_of(axis, array.ndim), target, (step, start, acc, exclusive))
    return finish(target, out, wrap)


def _scanned(array: Any, d: int, target: Any, how: tuple[Any, Any, DType, bool]) -> None:
    """Write the running results along an axis."""
    if not target.size:
        return
    n = array.shape[d]
    columns = math.prod(array.shape[d + 1 :])
    if 1 < columns < 32:
        moved = tuple(k for k in range(array.ndim) if k != d) + (d,)
        rows = contiguous(array.transpose(moved))
        done = memory.empty(rows.shape, target.dtype)
        SCAN.run(Scan(rows.reshape(-1, n), done.reshape(-1, n), *how))
        copy(done.transpose(tuple(moved.index(k) for k in range(array.ndim))), out=target)
        return
    shape = (-1, n) if columns == 1 else (-1, n, columns)
    source = contiguous(array).reshape(shape)
    fill(target, lambda to: SCAN.run(Scan(source, to.reshape(shape), *how)))


@repeated
def cumsum(x: Any, axis: Any = None, *, exclusive: bool = False, out: Any = None) -> Any:
    """Running sums along an axis, as `numpy.cumsum`; small integers sum in 64 bits.

    Args:
        x: array of any shape, strides and dtype.
        axis: int; None scans the flattened array.
        exclusive: element k is the sum of those before it, without itself; the first is 0.
        out: array to write.

    Example:
        >>> import numpy as np
        >>> cumsum(np.array([1, 2, 3])), cumsum(np.array([1, 2, 3]), exclusive=True)
        (array([1, 3, 6]), array([0, 1, 3]))
    """
    return _scan(x, axis, exclusive, out, f.add, 0)


@repeated
def cumprod(x: Any, axis: Any = None, *, exclusive: bool = False, out: Any = None) -> Any:
    """Running products along an axis, as `numpy.cumprod`; `exclusive` starts with 1.

    Example:
        >>> import numpy as np
        >>> cumprod(np.array([1.0, 2.0, 4.0]), 0)
        array([1., 2., 8.])
    """
    return _scan(x, axis, exclusive, out, f.mul, 1)
