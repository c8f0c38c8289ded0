"""Scans: running sums and products along an axis.

A long row is cut into pieces: totals of the pieces, a scan of the totals, then a scan of each piece
from where the ones before it end. How it is cut depends on the shape and the kind of device only,
so results never change from run to run or with the number of threads. Scans run in f32 (f64 for
f64, 64 bits for integers).
"""

from __future__ import annotations

import math
from typing import Any

import cubepy as cb
from cubepy.kernels.entry.arguments import array_of, axis_of
from cubepy.kernels.entry.dispatch import has_planes, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import contiguous, copy
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.scan.columns_gpu import along_columns
from cubepy.kernels.scan.scan_cpu import scan_along_rows
from cubepy.lang.dtypes import DType, as_dtype, f32, i64, u64
from cubepy.runtime import memory


@cb.kernel
def scan_columns(
    x: cb.Array, out: cb.Array, carry, step: cb.Comptime, start: cb.Comptime, acc: cb.Comptime,
    exclusive: cb.Comptime[bool], totals: cb.Comptime[bool], lanes: cb.Comptime[int], piece,
):  # fmt: skip
    """out[b, k, c] = x[b, 0, c] ... x[b, k, c] for one piece of k; a unit does `lanes` columns."""
    n, columns = x.shape[1], x.shape[2]
    pieces = (n + piece - 1) // piece
    width = cb.CUBE_DIM * lanes
    blocks = (columns + width - 1) // width
    c = (cb.CUBE_POS % blocks) * width + cb.UNIT_POS * lanes
    p = (cb.CUBE_POS // blocks) % pieces
    b = cb.CUBE_POS // (blocks * pieces)
    running = cb.splat(cb.cast(start, acc), lanes)
    if carry is not None:
        running = carry.load((b, p, c), lanes)
    if c < columns:
        for k in range(p * piece, cb.min((p + 1) * piece, n)):
            v = cb.cast(x.load((b, k, c), lanes), acc)
            if exclusive:
                if not totals:
                    out.store((b, k, c), cb.cast(running, out.dtype))
            running = step(running, v)
            if not exclusive:
                if not totals:
                    out.store((b, k, c), cb.cast(running, out.dtype))
        if totals:
            out.store((b, p, c), running)


def _columns(x: Any, out: Any, step: Any, start: int, acc: DType, exclusive: bool) -> None:
    """Scan (batch, n, columns) along n."""
    b, n, c = x.shape
    wide = has_planes()
    if wide and along_columns(x, out, step, start, acc, exclusive):
        return
    lanes, units = (
        (1, 128)
        if wide
        else (
            4 * max(1, cb.device_properties_of().register_bytes // max(x.itemsize, acc.itemsize)),
            1,
        )
    )
    blocks = -(-c // (lanes * units))
    wanted = 4096 if wide else 8
    pieces = max(1, min(wanted // (b * blocks), n // 64))
    piece = -(-n // pieces)
    pieces = -(-n // piece)
    before = None
    if pieces > 1:
        ends = memory.empty((b, pieces, c), acc.numpy)
        before = memory.empty((b, pieces, c), acc.numpy)
        scan_columns[b * blocks * pieces, units](
            x, ends, None, step, start, acc, exclusive, True, lanes, piece, mode="checked"
        )
        scan_columns[b * blocks, units](
            ends, before, None, step, start, acc, True, False, lanes, pieces, mode="checked"
        )
    scan_columns[b * blocks * pieces, units](
        x, out, before, step, start, acc, exclusive, False, lanes, piece, mode="checked"
    )


def _scan(x: Any, axis: Any, exclusive: bool, out: Any, step: Any, start: int) -> Any:
    wrap, array = wrapper(x), array_of(x)
    if axis is None:
        array, axis = contiguous(array).reshape(-1), 0
    elif array.ndim == 0:
        array = array.reshape(1)
    d = axis_of(axis, array.ndim)
    dtype = as_dtype(array.dtype).compute
    if dtype.is_float:
        acc, result = (dtype if dtype.bits >= 32 else f32), dtype
    else:
        acc = result = u64 if dtype.kind == "u" else i64
    target = output(out, array.shape, result.numpy)
    if target.size:
        n = array.shape[d]
        columns = math.prod(array.shape[d + 1 :])
        if 1 < columns < 32:
            moved = tuple(k for k in range(array.ndim) if k != d) + (d,)
            rows = contiguous(array.transpose(moved))
            done = memory.empty(rows.shape, target.dtype)
            scan_along_rows(rows.reshape(-1, n), done.reshape(-1, n), step, start, acc, exclusive)
            copy(done.transpose(tuple(moved.index(k) for k in range(array.ndim))), out=target)
            return finish(target, out, wrap)
        source = contiguous(array)
        flat = target if target.flags.c_contiguous else memory.empty(target.shape, target.dtype)
        if columns == 1:
            scan_along_rows(source.reshape(-1, n), flat.reshape(-1, n), step, start, acc, exclusive)
        else:
            shape = (-1, n, columns)
            _columns(source.reshape(shape), flat.reshape(shape), step, start, acc, exclusive)
        if flat is not target:
            copy(flat, out=target)
    return finish(target, out, wrap)


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
