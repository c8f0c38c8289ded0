"""Reductions over any axes: rows (neighbours in memory) and columns (strided), in one or two passes.

How the work is cut depends on shapes only, never on the number of threads, so results do not either. Sums run
in f32 (f64 for f64) over several lines of partial sums.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels import functions as f
from cubepy.kernels import reduce_cubes
from cubepy.kernels.arguments import array_of, axes_of, finish, output, placed, wrapper
from cubepy.kernels.cube_wide import has_planes
from cubepy.kernels.elementwise import copy, lanes_for
from cubepy.kernels.shapes import view_as
from cubepy.lang.dtypes import DType, as_dtype, f32, float_for, i32, i64, u64
from cubepy.runtime import memory

PIECE = 32768  # elements of a row that one cube reduces
WIDTH = 2048  # columns that one cube reduces
ARG_WIDTH = 512  # columns that one cube finds the largest of
STREAMS = 8  # lines of a row, or rows of a column, that are taken side by side


@cb.kernel
def reduce_rows(
    x: cb.Array, out: cb.Array, step: cb.Comptime, start: cb.Comptime, acc: cb.Comptime, lanes: cb.Comptime[int],
    piece: cb.Comptime[int], runs: cb.Comptime[int], scale,
):  # fmt: skip
    """out[r, p] = scale * reduction of the p-th piece of row r; x is (rows, n), unit stride along n.

    A piece is read along 1 or STREAMS runs at once, into STREAMS lines that do not wait for each other.
    """
    n = x.shape[1]
    pieces = out.shape[1]
    row = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    first = p * piece
    stop = cb.min(first + piece, n)
    a = cb.local((STREAMS,), acc, lanes=lanes)
    for j in cb.unroll(range(STREAMS)):
        a[j] = cb.cast(cb.splat(start, lanes), acc)
    per = STREAMS // runs
    part = (stop - first) // (STREAMS * lanes) * (per * lanes)
    for k in range(first, first + part, per * lanes):
        for j in cb.unroll(range(STREAMS)):
            a[j] = step(a[j], cb.cast(x.load((row, k + j // per * part + j % per * lanes), lanes), acc))
    rest = first + runs * part
    whole = rest + (stop - rest) // lanes * lanes
    for k in range(rest, whole, lanes):
        a[0] = step(a[0], cb.cast(x.load((row, k), lanes), acc))
    line = joined((a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]), step)
    total = line[0]
    for j in cb.unroll(range(1, lanes)):
        total = step(total, line[j])
    for k in range(whole, stop):
        total = step(total, cb.cast(x[row, k], acc))
    out[row, p] = cb.cast(total * cb.cast(scale, acc) if out.dtype.is_float else total, out.dtype)


@cb.kernel
def reduce_columns(
    x: cb.Array, out: cb.Array, step: cb.Comptime, start: cb.Comptime, acc: cb.Comptime, lanes: cb.Comptime[int],
    width: cb.Comptime[int], piece: cb.Comptime[int], scale,
):  # fmt: skip
    """out[b, p, c] = scale * reduction over the p-th piece of x[b, :, c]; x is (batch, n, columns).

    A cube does `width` columns; STREAMS rows are read side by side, the sums stay in the nearest cache.
    """
    n, columns = x.shape[1], x.shape[2]
    pieces = out.shape[1]
    blocks = (columns + width - 1) // width
    first = (cb.CUBE_POS % blocks) * width
    p = (cb.CUBE_POS // blocks) % pieces
    b = cb.CUBE_POS // (blocks * pieces)
    count = cb.min(width, columns - first)
    lines = count // lanes
    rest = count - lines * lanes
    sums = cb.local((width // lanes,), acc, lanes=lanes)
    for j in range(width // lanes):
        sums[j] = cb.cast(cb.splat(start, lanes), acc)
    begin = p * piece
    stop = cb.min(begin + piece, n)
    whole = begin + cb.max(stop - begin, 0) // STREAMS * STREAMS
    for k in range(begin, whole, STREAMS):
        for j in range(lines):
            v = ()
            for r in cb.unroll(range(STREAMS)):
                v = v + (cb.cast(x.load((b, k + r, first + j * lanes), lanes), acc),)
            sums[j] = step(sums[j], joined(v, step))
    for k in range(whole, stop):
        for j in range(lines):
            sums[j] = step(sums[j], cb.cast(x.load((b, k, first + j * lanes), lanes), acc))
    if rest > 0:
        for k in range(begin, stop):
            v = x.load((b, k, first + lines * lanes), lanes, valid=rest)
            sums[lines] = step(sums[lines], cb.cast(v, acc))
    for j in range((count + lanes - 1) // lanes):
        value = sums[j]
        if out.dtype.is_float:
            value = value * cb.cast(scale, acc)
        out.store((b, p, first + j * lanes), cb.cast(value, out.dtype), valid=count - j * lanes)


@cb.func
def joined(v, step):
    """Eight values as one."""
    return step(step(step(v[0], v[1]), step(v[2], v[3])), step(step(v[4], v[5]), step(v[6], v[7])))


@cb.func
def first_better(v, best, largest):
    """Whether v is to be taken over best: strictly better, or the first NaN."""
    if largest:
        return ~(v <= best) & (best == best) if v.dtype.is_float else v > best
    return ~(v >= best) & (best == best) if v.dtype.is_float else v < best


@cb.func
def better_pair(v, i, best, index, largest):
    """Whether v at place i goes before best at place `index`."""
    return first_better(v, best, largest) or (same(v, best) and i < index)


@cb.kernel
def arg_rows(x: cb.Array, out: cb.Array, largest: cb.Comptime[bool], lanes: cb.Comptime[int]):
    """out[r] = index of the largest (or smallest) element of row r, the first one of equals, NaN before all.

    A row is read at four places side by side.
    """
    row = cb.CUBE_POS
    n = x.shape[1]
    part = n // (4 * lanes) * lanes
    best = cb.local((4,), x.dtype, lanes=lanes)
    where = cb.local((4,), cb.i32, lanes=lanes)
    at = cb.splat(cb.cast(0, cb.i32), lanes)
    for j in cb.unroll(range(1, lanes)):
        one = cb.splat(cb.cast(j, cb.i32), lanes)
        at = cb.shuffle(at, one, tuple(range(j)) + tuple(range(lanes + j, 2 * lanes)))
    for j in cb.unroll(range(4)):
        best[j] = cb.splat(x[row, 0], lanes)
        where[j] = cb.splat(cb.cast(0, cb.i32), lanes)
    for k in range(0, part, lanes):
        for j in cb.unroll(range(4)):
            v = x.load((row, k + j * part), lanes)
            take = first_better(v, best[j], largest)
            best[j] = cb.select(take, v, best[j])
            where[j] = cb.select(take, at + cb.cast(k + j * part, cb.i32), where[j])
    whole = n // lanes * lanes
    for k in range(4 * part, whole, lanes):
        v = x.load((row, k), lanes)
        take = first_better(v, best[3], largest)
        best[3] = cb.select(take, v, best[3])
        where[3] = cb.select(take, at + cb.cast(k, cb.i32), where[3])
    top = x[row, 0]
    index = cb.cast(0, cb.i32)
    for s in range(4):
        values = best[s]
        places = where[s]
        for j in cb.unroll(range(lanes)):
            if better_pair(values[j], places[j], top, index, largest):
                top = values[j]
                index = places[j]
    for k in range(whole, n):
        if first_better(x[row, k], top, largest):
            top = x[row, k]
            index = cb.cast(k, cb.i32)
    out[row] = cb.cast(index, out.dtype)


@cb.kernel
def arg_columns(
    x: cb.Array, out: cb.Array, largest: cb.Comptime[bool], lanes: cb.Comptime[int], width: cb.Comptime[int]
):
    """out[b, c] = index of the largest (or smallest) of x[b, :, c], the first one of equals, NaN before all.

    A cube does `width` columns, row by row; the best ones and their places stay in the nearest cache.
    """
    n, columns = x.shape[1], x.shape[2]
    blocks = (columns + width - 1) // width
    first = (cb.CUBE_POS % blocks) * width
    b = cb.CUBE_POS // blocks
    count = cb.min(width, columns - first)
    best = cb.local((width // lanes,), x.dtype, lanes=lanes)
    where = cb.local((width // lanes,), cb.i32, lanes=lanes)
    lines = (count + lanes - 1) // lanes
    for j in range(lines):
        best[j] = x.load((b, 0, first + j * lanes), lanes, valid=count - j * lanes)
        where[j] = cb.splat(cb.cast(0, cb.i32), lanes)
    whole = 1 + (n - 1) // 4 * 4
    for k in range(1, whole, 4):
        for j in range(lines):
            top = best[j]
            place = where[j]
            for r in cb.unroll(range(4)):
                v = x.load((b, k + r, first + j * lanes), lanes, valid=count - j * lanes)
                take = first_better(v, top, largest)
                top = cb.select(take, v, top)
                place = cb.select(take, cb.splat(cb.cast(k + r, cb.i32), lanes), place)
            best[j] = top
            where[j] = place
    for k in range(whole, n):
        for j in range(lines):
            v = x.load((b, k, first + j * lanes), lanes, valid=count - j * lanes)
            take = first_better(v, best[j], largest)
            best[j] = cb.select(take, v, best[j])
            where[j] = cb.select(take, cb.splat(cb.cast(k, cb.i32), lanes), where[j])
    for j in range(lines):
        out.store((b, first + j * lanes), cb.cast(where[j], out.dtype), valid=count - j * lanes)


@cb.func
def same(a, b):
    """Equal, or both NaN."""
    if a.dtype.is_float:
        return (a == b) | ((a != a) & (b != b))
    return a == b


def _arranged(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, bool]:
    """The array as (kept, reduced) with unit stride along `reduced`, or as (batch, reduced, columns).

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
    if kept and axes == tuple(range(axes[0], axes[0] + len(axes))):
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
    x: Any, axis: Any, keepdims: bool, out: Any, step: Any, start: Any, acc: DType, result: DType, mean: bool = False
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
            target[...] = array
        else:
            data, by_rows = _arranged(array, axes)
            _run(data, by_rows, target, step, start, acc, result, 1.0 / count if mean else 1.0)
    return finish(target if final or out is not None else target[()], out, wrap)


def _run(
    data: np.ndarray, by_rows: bool, target: np.ndarray, step: Any, start: Any, acc: DType, result: DType, scale: float
) -> None:
    n = data.shape[1]
    lanes = lanes_for(data, np.empty(0, acc.numpy))
    if by_rows:
        pieces = -(-n // PIECE)
    else:
        width = builtins.min(WIDTH, -(-data.shape[2] // lanes) * lanes)
        blocks = data.shape[0] * -(-data.shape[2] // width)
        pieces = builtins.max(1, builtins.min(-(-n // 64), 32 // blocks))
    flat = target if target.flags.c_contiguous else memory.empty(target.shape, target.dtype)
    if has_planes():
        (reduce_cubes.rows if by_rows else reduce_cubes.columns)(data, flat, step, start, acc, scale)
    elif by_rows:
        m = data.shape[0]
        part = flat.reshape(m, 1) if pieces == 1 else memory.empty((m, pieces), acc.numpy)
        factor = scale if pieces == 1 else 1.0
        runs = STREAMS if step is f.add else 1  # measured: extremes are quicker along one run
        reduce_rows[m * pieces, 1](data, part, step, start, acc, lanes, PIECE, runs, factor, mode="unchecked")
        if pieces > 1:
            _run(part, True, flat, step, start, acc, result, scale)
    else:
        b, _, c = data.shape  # pieces of a column are reduced in a second pass
        piece = -(-n // pieces)
        part = flat.reshape(b, 1, c) if pieces == 1 else memory.empty((b, pieces, c), acc.numpy)
        factor = scale if pieces == 1 else 1.0
        reduce_columns[blocks * pieces, 1](data, part, step, start, acc, lanes, width, piece, factor, mode="unchecked")
        if pieces > 1:
            _run(part, False, flat, step, start, acc, result, scale)
    if flat is not target:
        target[...] = flat


def _sum_dtypes(x: Any) -> tuple[DType, DType]:
    dtype = as_dtype(array_of(x).dtype).compute
    if dtype.is_float:
        return (dtype if dtype.bits >= 32 else f32), dtype
    wide = u64 if dtype.kind == "u" else i64
    return wide, wide


@placed
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


@placed
def prod(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Product over axes, as `numpy.prod`."""
    acc, result = _sum_dtypes(x)
    return _reduce(x, axis, keepdims, out, f.mul, 1, acc, result)


@placed
def mean(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Arithmetic mean over axes; integers give f32 (f64 for 64-bit ones)."""
    dtype = as_dtype(array_of(x).dtype).compute
    result = dtype if dtype.is_float else float_for(dtype)
    acc = result if result.bits >= 32 else f32
    return _reduce(x, axis, keepdims, out, f.add, 0, acc, result, mean=True)


def _extreme(x: Any, axis: Any, keepdims: bool, out: Any, largest: bool) -> Any:
    array = array_of(x)
    dtype = as_dtype(array.dtype).compute
    if array.size == 0 and int(np.prod([array.shape[d] for d in axes_of(axis, array.ndim)])) == 0:
        raise ShapeError(f"the {'max' if largest else 'min'} of an empty axis is not defined (shape {array.shape})")
    if dtype.is_float:
        start = -np.inf if largest else np.inf
    elif dtype.kind == "b":
        start = not largest
    else:
        info = np.iinfo(dtype.numpy)
        start = int(info.min if largest else info.max)
    start = bool(start) if dtype.kind == "b" else (float(start) if dtype.is_float else np.int64(start).item())
    return _reduce(
        x if dtype.kind != "b" else array.view(np.uint8), axis, keepdims, out, f.larger if largest else f.smaller,
        start if dtype.kind != "b" else int(start), dtype if dtype.kind != "b" else as_dtype("u8"),
        dtype if dtype.kind != "b" else as_dtype("u8"),
    )  # fmt: skip


@placed
def max(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Largest element over axes; NaN where there is one, as `numpy.max`."""
    return _extreme(x, axis, keepdims, out, largest=True)


@placed
def min(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Smallest element over axes; NaN where there is one, as `numpy.min`."""
    return _extreme(x, axis, keepdims, out, largest=False)


def _arg(x: Any, axis: Any, keepdims: bool, out: Any, largest: bool) -> Any:
    wrap, array = wrapper(x), array_of(x)
    axes = axes_of(axis, array.ndim)
    if axis is not None and len(axes) != 1:
        raise ShapeError(f"argmax and argmin take one axis or None, not {axis!r}")
    n = int(np.prod([array.shape[d] for d in axes], dtype=np.int64))
    if n == 0:
        raise ShapeError(f"the argmax of an empty axis is not defined (shape {array.shape})")
    final = tuple(1 if d in axes else s for d, s in enumerate(array.shape) if keepdims or d not in axes)
    target = output(out, final, np.int64)
    if target.size:
        if has_planes():
            _arg_by_cubes(array.view(np.uint8) if array.dtype == np.bool_ else array, axes, target, largest)
            return finish(target if final or out is not None else target[()], out, wrap)
        data, by_rows = _arranged(array.view(np.uint8) if array.dtype == np.bool_ else array, axes)
        if not by_rows and data.shape[2] < ARG_WIDTH:  # too few columns for all cores
            data, by_rows = copy(data.transpose(0, 2, 1)).reshape(-1, n), True
        flat = memory.empty(target.shape, np.int64)
        lanes = lanes_for(data)
        if by_rows:
            arg_rows[data.shape[0], 1](data, flat.reshape(-1), largest, lanes, mode="unchecked")
        else:
            b, _, c = data.shape
            cubes = b * -(-c // ARG_WIDTH)
            arg_columns[cubes, 1](data, flat.reshape(b, c), largest, lanes, ARG_WIDTH, mode="unchecked")
        target[...] = flat
    return finish(target if final or out is not None else target[()], out, wrap)


def _arg_by_cubes(array: Any, axes: tuple[int, ...], target: Any, largest: bool) -> None:
    flat = target if target.flags.c_contiguous else memory.empty(target.shape, target.dtype)
    data, by_rows = _arranged(array, axes)
    (reduce_cubes.arg_rows if by_rows else reduce_cubes.arg_columns)(data, flat, largest)
    if flat is not target:
        target[...] = flat


@placed
def argmax(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Index of the largest element (i64): the first of equals, the first NaN if any, as `numpy.argmax`."""
    return _arg(x, axis, keepdims, out, largest=True)


@placed
def argmin(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Index of the smallest element (i64), as `numpy.argmin`."""
    return _arg(x, axis, keepdims, out, largest=False)


__all__ = ["argmax", "argmin", "i32", "max", "mean", "min", "prod", "sum"]
