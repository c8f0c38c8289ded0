"""Reductions over any axes: rows (neighbours in memory) and columns (strided), in one or two
passes.

How the work is cut depends on shapes only, never on the number of threads, so results do not
either. Sums run in f32 (f64 for f64) over several lines of partial sums.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of, axes_of
from cubepy.kernels.entry.dispatch import has_planes, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.entry.shapes import view_as
from cubepy.kernels.movement.copy import convert_into, copy
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.primitives.vector_width import lanes_for
from cubepy.kernels.reduce import reduce_gpu
from cubepy.kernels.reduce.reduce_cpu import greater, lesser, reduce_columns, reduce_rows
from cubepy.lang.dtypes import DType, as_dtype, f32, float_for, i64, u8, u64
from cubepy.runtime import memory
from cubepy.tune import bucket

PIECE = 32768  # elements of a row that one cube reduces
SHORT = 1024  # elements of a row, at most, whose place is carried along with the largest
TOGETHER = 4096  # elements of short rows that one cube takes
WIDTH = 1024  # columns that one cube reduces
WIDE = (
    256  # lines that one cube reduces of long columns: what it reads lies in one stretch of memory
)
NARROW = 512  # columns that few are folded to
FEW = 16  # lines of columns that are held in registers (half as many where NaN is looked for, too)
FOLDS = (2, 4, 8, 16, 32, 64, 128)  # rows that become one
CUBES = 32  # as many as columns are cut for, so that threads finish together


def arranged(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, bool]:
    """The array as (kept, reduced) with unit stride along `reduced`, or as (batch, reduced,
    columns).

    Copies only when no arrangement of strides will do. The flag says which of the two it is.
    """
    kept = [d for d in range(x.ndim) if d not in axes]
    shape_k = [x.shape[d] for d in kept]
    n = int(np.prod([x.shape[d] for d in axes], dtype=np.int64))
    moved = x.transpose(kept + list(axes))
    m = int(np.prod(shape_k, dtype=np.int64))
    rows = _without_copy(moved, (m, n))
    if rows is not None and (rows.strides[1] == x.itemsize or n == 1):
        return rows, True
    if kept and axes and axes == tuple(range(axes[0], axes[0] + len(axes))):
        before, after = x.shape[: axes[0]], x.shape[axes[-1] + 1 :]
        b, c = int(np.prod(before, dtype=np.int64)), int(np.prod(after, dtype=np.int64))
        columns = _without_copy(x, (b, n, c))
        if columns is not None and columns.strides[2] == x.itemsize:
            return columns, False
    return copy(moved).reshape(m, n), True


def _without_copy(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    try:
        return view_as(x, shape)  # type: ignore[no-any-return]
    except AttributeError:
        return None


def _reduce(
    x: Any,
    axis: Any,
    keepdims: bool,
    out: Any,
    step: Any,
    start: Any,
    acc: DType,
    result: DType,
    mean: bool = False,
) -> Any:
    wrap, array = wrapper(x), array_of(x)
    axes = axes_of(axis, array.ndim)
    shape = tuple(1 if d in axes else n for d, n in enumerate(array.shape))
    final = shape if keepdims else tuple(n for d, n in enumerate(array.shape) if d not in axes)
    target = output(out, final, result.numpy)
    count = int(np.prod([array.shape[d] for d in axes], dtype=np.int64))
    if target.size:
        if count == 0:
            target[...] = np.nan if mean else start
        elif not axes:
            convert_into(target, array)
        else:
            data, by_rows = arranged(array, axes)
            _run(data, by_rows, target, step, start, acc, result, 1.0 / count if mean else 1.0)
    return finish(target if final or out is not None else target[()], out, wrap)


def wide_mean(x: Any, axes: tuple[int, ...]) -> Any:
    """The mean of floats over some axes, of narrow floats in f32: for what is computed from it."""
    acc = _sum_dtypes(x)[0]
    return _reduce(x, axes, False, None, f.add, 0, acc, acc, mean=True)


def scaled_sum(x: Any, axes: tuple[int, ...], out: Any, scale: float) -> None:
    """scale * the sum over some axes into `out`, which has the shape of the others, and floats as x
    has.
    """
    acc, result = _sum_dtypes(x)
    data, by_rows = arranged(x, axes)
    _run(data, by_rows, out, f.add, 0, acc, result, scale)


def _run(
    data: np.ndarray,
    by_rows: bool,
    target: np.ndarray,
    step: Any,
    start: Any,
    acc: DType,
    result: DType,
    scale: float,
) -> None:
    flat = target if target.flags.c_contiguous else memory.empty(target.shape, target.dtype)
    if has_planes():
        (reduce_gpu.rows if by_rows else reduce_gpu.columns)(data, flat, step, start, acc, scale)
    else:
        quick = {f.larger: greater, f.smaller: lesser}.get(step, step)
        wide = f32 if acc.is_float and acc.bits < 32 else acc
        (_rows if by_rows else _columns)(
            data, flat, quick, step if acc.is_float else quick, start, wide, scale
        )
    if flat is not target:
        convert_into(target, flat)


def _rows(
    data: np.ndarray,
    target: np.ndarray,
    step: Any,
    right: Any,
    start: Any,
    acc: DType,
    scale: float,
) -> None:
    """Reduce (rows, n) into the contiguous `target`; `right` is the step that is right for NaN too."""
    m, n = data.shape
    lanes = lanes_for(data, np.empty(0, acc.numpy))
    pieces = -(-n // PIECE)
    last = pieces == 1
    part = target.reshape(m, 1) if last else memory.empty((m, pieces), acc.numpy)
    both = step is f.add or cb.device_properties_of().register_bytes < 64  # measured
    runs, factor = (2 if both else 1), (scale if last else 1.0)
    careful = step is not right
    reduce_rows[m * pieces, 1](
        data, part, step, start, acc, lanes, PIECE, runs, last, careful, factor, mode="unchecked"
    )
    if not last:  # pieces are reduced in a second pass
        _rows(part, target, step, right, start, acc, scale)


def _columns(
    data: np.ndarray,
    target: np.ndarray,
    step: Any,
    right: Any,
    start: Any,
    acc: DType,
    scale: float,
) -> None:
    """The same of (batch, n, columns). Some rows of few columns count as one, so that memory is
    read in long runs.
    """
    b, n, c = data.shape
    solid = data.strides[1] == c * data.itemsize
    lanes = lanes_for(data, np.empty(0, acc.numpy))
    folds = [g for g in (1, *FOLDS) if n % g == 0 and n >= 64 * g and solid]
    held = (
        FEW if step is right else FEW // 2 if cb.device_properties_of().register_bytes < 64 else 0
    )
    few = held if any(g * c == held * lanes for g in folds) else 0
    fold = (
        few * lanes // c if few else builtins.max((g for g in folds if g * c <= NARROW), default=1)
    )
    if fold > 1:
        data = data.reshape(b, n // fold, fold * c)
    width, blocks, pieces, piece = column_cuts(data, lanes)
    last = pieces == fold == 1
    part = target.reshape(b, 1, c) if last else memory.empty((b, pieces, fold * c), acc.numpy)
    side = (
        not solid or fold * c > NARROW
    )  # short rows that follow each other are read in this order
    reduce_columns[blocks * pieces, 1](
        data, part, step, right, start, acc, lanes, bucket(width // lanes), width, piece, scale if last else 1.0, side,
        few, mode="unchecked",
    )  # fmt: skip
    if not last:
        _columns(part.reshape(b, pieces * fold, c), target, step, right, start, acc, scale)


def column_cuts(data: np.ndarray, lanes: int) -> tuple[int, int, int, int]:
    """Columns of a cube, blocks of them in all, pieces of a column, and their length, for (batch,
    n, columns).
    """
    b, n, c = data.shape
    most = WIDE * lanes if b * -(-c // (WIDE * lanes)) * (n // 64) >= CUBES else WIDTH
    width = builtins.min(most, -(-c // lanes) * lanes)
    blocks = b * -(-c // width)
    pieces = builtins.max(1, builtins.min(-(-n // 64), CUBES // blocks))
    piece = -(-n // pieces)
    return width, blocks, -(-n // piece), piece


def _sum_dtypes(x: Any) -> tuple[DType, DType]:
    dtype = as_dtype(array_of(x).dtype).compute
    if dtype.is_float:
        return (dtype if dtype.bits >= 32 else f32), dtype
    wide = u64 if dtype.kind == "u" else i64
    return wide, wide


@repeated
def sum(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Sum over axes (all by default), as `numpy.sum`; small integers sum in 64 bits.

    Args:
        x: array of any shape, strides and dtype.
        axis: int, tuple of ints, or None for all axes.
        keepdims: keep reduced axes with length 1.
        out: array to write.

    Example:
        >>> import numpy as np
        >>> float(sum(np.ones((3, 4), np.float32)))
        12.0
    """
    acc, result = _sum_dtypes(x)
    return _reduce(x, axis, keepdims, out, f.add, 0, acc, result)


@repeated
def prod(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Product over axes, as `numpy.prod`.

    Example:
        >>> import numpy as np
        >>> prod(np.array([[1, 5], [7, 2]]), axis=1)
        array([ 5, 14])
    """
    acc, result = _sum_dtypes(x)
    return _reduce(x, axis, keepdims, out, f.mul, 1, acc, result)


@repeated
def mean(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Arithmetic mean over axes; integers give f32 (f64 for 64-bit ones).

    Example:
        >>> import numpy as np
        >>> mean(np.array([[1, 5], [7, 1]], np.float32), axis=1, keepdims=True)
        array([[3.],
               [4.]], dtype=float32)
    """
    dtype = as_dtype(array_of(x).dtype).compute
    result = dtype if dtype.is_float else float_for(dtype)
    acc = result if result.bits >= 32 else f32
    return _reduce(x, axis, keepdims, out, f.add, 0, acc, result, mean=True)


def _extreme(x: Any, axis: Any, keepdims: bool, out: Any, largest: bool) -> Any:
    array = array_of(x)
    dtype = as_dtype(array.dtype).compute
    if array.size == 0 and int(np.prod([array.shape[d] for d in axes_of(axis, array.ndim)])) == 0:
        raise ShapeError(
            f"the {'max' if largest else 'min'} of an empty axis is not defined (shape {array.shape})"
        )
    step = f.larger if largest else f.smaller
    if dtype.kind == "b":
        found = _reduce(
            array.view(np.uint8), axis, keepdims, out, step, worst_of(u8, largest), u8, dtype
        )
        return found if out is not None else wrapper(x)(found)
    return _reduce(x, axis, keepdims, out, step, worst_of(dtype, largest), dtype, dtype)


def worst_of(dtype: DType, largest: bool) -> float | int:
    """What no element is worse than."""
    if dtype.is_float:
        return float(-np.inf if largest else np.inf)
    info = np.iinfo(dtype.numpy)
    return int(info.min if largest else info.max)


@repeated
def max(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Largest element over axes; NaN where there is one, as `numpy.max`.

    Example:
        >>> import numpy as np
        >>> max(np.array([[1, 5], [7, 0]]), axis=0)
        array([7, 5])
    """
    return _extreme(x, axis, keepdims, out, largest=True)


@repeated
def min(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Smallest element over axes; NaN where there is one, as `numpy.min`.

    Example:
        >>> import numpy as np
        >>> min(np.array([[1, 5], [7, 0]]), axis=0)
        array([1, 0])
    """
    return _extreme(x, axis, keepdims, out, largest=False)
