"""Where the largest and the smallest elements are."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of, axes_of
from cubepy.kernels.entry.dispatch import has_planes, repeated
from cubepy.kernels.primitives.vector_width import lanes_for
from cubepy.kernels.reduce import arg_cpu, arg_gpu
from cubepy.kernels.reduce.columns_cpu import column_cuts
from cubepy.kernels.reduce.reduce import arranged, over_axes
from cubepy.kernels.reduce.reduction import extreme, worst_of
from cubepy.kernels.reduce.rows_cpu import PIECE, RowPlan, reduce_pieces
from cubepy.lang.dtypes import as_dtype, f32
from cubepy.runtime import memory
from cubepy.tune import bucket

SHORT = 1024  # elements of a row, at most, whose place is carried along with the largest
TOGETHER = 4096  # elements of short rows that one cube takes


def _arg(x: Any, axis: Any, keepdims: bool, out: Any, largest: bool) -> Any:
    array = array_of(x)
    axes = axes_of(axis, array.ndim)
    if axis is not None and array.ndim and len(axes) != 1:
        raise ShapeError(f"argmax and argmin take one axis or None, not {axis!r}")
    if 0 in (array.shape[d] for d in axes):
        raise ShapeError(f"the argmax of an empty axis is not defined (shape {array.shape})")

    def run(array: Any, axes: tuple[int, ...], flat: Any) -> None:
        data, by_rows = arranged(array, axes)
        if has_planes():
            (arg_gpu.arg_rows if by_rows else arg_gpu.arg_columns)(data, flat, largest)
        else:
            (_arg_rows if by_rows else _arg_columns)(data, flat, largest)

    bits = array.view(np.uint8) if array.dtype == np.bool_ else array
    return over_axes(x, bits, axis, keepdims, out, np.int64, 0, run)


def _arg_rows(data: np.ndarray, target: np.ndarray, largest: bool) -> None:
    """Indices of the best elements of the rows of (rows, n), to the contiguous `target`."""
    m, n = data.shape
    dtype = as_dtype(data.dtype).compute
    acc = f32 if dtype.is_float and dtype.bits < 32 else dtype
    lanes, flat = lanes_for(data, np.empty(0, acc.numpy)), target.reshape(m)
    reduction = extreme(dtype, largest)
    short = SHORT if acc.bits <= 32 else SHORT // 4
    if n <= short and cb.device_properties_of().register_bytes < 64:  # measured
        rows, start = TOGETHER // n, worst_of(dtype, largest)
        arg_cpu.arg_short_rows[-(-m // rows), 1](
            data, flat, rows, largest, start, acc, lanes, mode="unchecked"
        )
    elif n <= PIECE:
        plan = RowPlan(acc, lanes)
        arg_cpu.arg_rows[m, 1](data, flat, largest, reduction.walks[0], plan, mode="unchecked")
    else:
        pieces = -(-n // PIECE)
        values = memory.empty((m, pieces), acc.numpy)
        reduce_pieces(data, values.reshape(m, pieces, 1), reduction, RowPlan(acc, lanes), PIECE, 0)
        arg_cpu.arg_pieces[m, 1](data, values, flat, largest, lanes, PIECE, mode="unchecked")


def _arg_columns(data: np.ndarray, target: np.ndarray, largest: bool) -> None:
    """The same along the middle axis of (batch, n, columns)."""
    b, _, c = data.shape
    dtype = as_dtype(data.dtype).compute
    acc = f32 if dtype.is_float and dtype.bits < 32 else dtype
    lanes, final = lanes_for(data, np.empty(0, acc.numpy)), target.reshape(b, 1, c)
    width, blocks, pieces, piece = column_cuts(data, lanes)
    room = bucket(width // lanes)
    if pieces == 1:
        arg_cpu.arg_columns[blocks, 1](
            data, None, final, largest, acc, lanes, room, width, piece, mode="unchecked"
        )
        return
    values, where = memory.empty((b, pieces, c), acc.numpy), memory.empty((b, pieces, c), np.int64)
    arg_cpu.arg_columns[blocks * pieces, 1](
        data, values, where, largest, acc, lanes, room, width, piece, mode="unchecked"
    )
    arg_cpu.arg_columns_join[b * -(-c // lanes), 1](
        values, where, final, largest, lanes, mode="unchecked"
    )


@repeated
def argmax(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Index of the largest element (i64): the first of equals, the first NaN if any, as
    `numpy.argmax`.

    Example:
        >>> import numpy as np
        >>> argmax(np.array([[1, 5, 2], [7, 0, 7]]), axis=1)
        array([1, 0])
    """
    return _arg(x, axis, keepdims, out, largest=True)


@repeated
def argmin(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Index of the smallest element (i64), as `numpy.argmin`.

    Example:
        >>> import numpy as np
        >>> argmin(np.array([[1, 5, 2], [7, 0, 7]]), axis=1)
        array([0, 1])
    """
    return _arg(x, axis, keepdims, out, largest=False)
