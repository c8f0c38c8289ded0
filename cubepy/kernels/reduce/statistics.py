"""Reductions that need more than one step: var, std, norm, logsumexp; and any and all.

The units of a cube visit a row together, the second time while it is in the cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.elementwise.map import map
from cubepy.kernels.entry.arguments import array_of, axes_of, float_array, number_of
from cubepy.kernels.entry.dispatch import has_planes, placed, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import contiguous, copy
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.primitives.lines import over_lanes
from cubepy.kernels.primitives.units import over_units
from cubepy.kernels.primitives.vector_width import lanes_for
from cubepy.kernels.reduce import statistics_cpu as lines
from cubepy.kernels.reduce.reduce import arranged
from cubepy.kernels.reduce.reduce import max as largest
from cubepy.kernels.reduce.reduce import min as smallest
from cubepy.kernels.reduce.statistics_cpu import (
    exponential,
    itself,
    lowest_finite,
    magnitude,
    power,
    squared,
)
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory

UNITS = 256
PIECE = 16384  # elements of a row that one cube looks at
TRUTHS = 1 << 17  # the same, where an element is only compared
CUBES = 32  # as many as columns are cut for, so that threads finish together


@cb.func
def over_row(
    x, row, n, value, step, start, acc: cb.Comptime, lanes: cb.Comptime[int], board, shift
):
    """`step` over value(x[row, k], shift) for all k of a row, given to all units."""
    total = cb.splat(cb.cast(start, acc), lanes)
    for k in range(cb.UNIT_POS * lanes, n, cb.CUBE_DIM * lanes):
        v = value(cb.cast(x.load((row, k), lanes), acc), shift)
        if k + lanes > n:
            v = cb.keep_first(v, n - k, cb.cast(start, acc))
        total = step(total, v)
    return over_units(over_lanes(total, step, lanes), step, cb.CUBE_DIM, board)


@cb.kernel
def row_statistic(
    x: cb.Array,
    out: cb.Array,
    kind: cb.Comptime[str],
    number,
    acc: cb.Comptime,
    lanes: cb.Comptime[int],
):
    """out[r] = the statistic `kind` of row r; a cube does a row."""
    row, n = cb.CUBE_POS, x.shape[1]
    board = cb.shared(cb.CUBE_DIM // cb.PLANE_DIM, acc)
    zero = cb.cast(0, acc)
    p = cb.cast(number, acc)
    if kind == "var" or kind == "std":
        mean = over_row(x, row, n, itself, f.add, 0, acc, lanes, board, zero) / cb.cast(n, acc)
        value = over_row(x, row, n, squared, f.add, 0, acc, lanes, board, mean) / cb.max(
            cb.cast(n, acc) - p, zero
        )
        if kind == "std":
            value = cb.sqrt(value)
    elif kind == "logsumexp":
        top = over_row(x, row, n, itself, f.larger, -float("inf"), acc, lanes, board, zero)
        shift = lowest_finite(top)
        value = cb.log(over_row(x, row, n, exponential, f.add, 0, acc, lanes, board, shift)) + shift
    elif kind == "norm1":
        value = over_row(x, row, n, magnitude, f.add, 0, acc, lanes, board, zero)
    elif kind == "norm2":
        value = cb.sqrt(over_row(x, row, n, squared, f.add, 0, acc, lanes, board, zero))
    elif kind == "largest":
        value = over_row(x, row, n, magnitude, f.larger, 0, acc, lanes, board, zero)
    else:
        value = cb.pow(over_row(x, row, n, power, f.add, 0, acc, lanes, board, p), 1 / p)
    if cb.UNIT_POS == 0:
        out[row] = cb.cast(value, out.dtype)


def _statistic(
    x: Any,
    axis: Any,
    keepdims: bool,
    out: Any,
    kind: str,
    number: float = 0.0,
    empty: float = 0.0,
    dtype: Any = None,
) -> Any:
    wrap, array = wrapper(x), float_array(x, "x")
    axes = axes_of(axis, array.ndim)
    final = tuple(
        1 if d in axes else n for d, n in enumerate(array.shape) if keepdims or d not in axes
    )
    result = output(out, final, array.dtype if dtype is None else dtype)
    if result.size:
        n = math.prod(array.shape[d] for d in axes)
        if n == 0:
            result[...] = empty
        else:
            flat = result if result.flags.c_contiguous else memory.empty(result.shape, result.dtype)
            (_by_cubes if has_planes() else _by_lines)(array, axes, flat, kind, float(number))
            if flat is not result:
                copy(flat, out=result)
    return finish(result if final or out is not None else result[()], out, wrap)


def wide_var(x: Any, axes: tuple[int, ...]) -> Any:
    """The variance of floats over some axes, of narrow floats in f32: for what is computed from it."""
    return _statistic(x, axes, False, None, "var", 0.0, math.nan, _sums(x).numpy)


def _by_cubes(array: Any, axes: tuple[int, ...], result: Any, kind: str, number: float) -> None:
    """The statistic over some axes into the contiguous `result`, where units work in planes."""
    kept = tuple(d for d in range(array.ndim) if d not in axes)
    rows = contiguous(array.transpose((*kept, *axes))).reshape(result.size, -1)
    lanes = 16 // max(4, array.itemsize)
    row_statistic[result.size, UNITS](
        rows,
        result.reshape(-1),
        "norm" if kind == "norm3" else kind,
        number,
        _sums(array),
        lanes,
        mode="checked",
    )


def _sums(array: Any) -> Any:
    return cb.f64 if as_dtype(array.dtype) == cb.f64 else cb.f32


def _by_lines(array: Any, axes: tuple[int, ...], result: Any, kind: str, number: float) -> None:
    """The same on a CPU."""
    acc, lanes = _sums(array), lanes_for(array)
    data, by_rows = arranged(array, axes)
    n, size = data.shape[1], result.size
    if by_rows:
        pieces, piece, b, c = -(-n // PIECE), PIECE, size, 1
        if pieces == 1:
            how = (kind, number, acc, lanes, PIECE, True)
            lines.statistic_of_rows[size, 1](data, result.reshape(size, 1), *how, mode="unchecked")
            return
        parts = memory.empty((size, pieces, 2, 1), acc.numpy)
        lines.statistic_of_rows[size * pieces, 1](
            data, parts, kind, number, acc, lanes, PIECE, False, mode="unchecked"
        )
    else:
        b, c = data.shape[0], data.shape[2]
        blocks = b * -(-c // (lines.LINES * lanes))
        pieces = max(1, min(-(-n // (2 * lines.ROWS)), CUBES // blocks))
        piece = -(-n // pieces)
        pieces = -(-n // piece)
        parts = memory.empty((b, pieces, 2, c), acc.numpy)
        lines.statistic_of_columns[blocks * pieces, 1](
            data, parts, kind, number, acc, lanes, piece, pieces, mode="unchecked"
        )
    along = 1 if c == 1 else lanes
    lines.join_pieces[b * -(-c // along), 1](
        parts, result.reshape(b, c), kind, number, n, piece, along, mode="unchecked"
    )


@repeated
def var(x: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None) -> Any:
    """Variance over axes (all by default), as `numpy.var`, from the differences to the mean.

    Args:
        x: array of numbers, any strides; integers are taken as f32.
        axis: int, tuple of ints, or None for all axes.
        ddof: what is subtracted from the count that divides.
        keepdims: keep reduced axes with length 1.
        out: array to write.

    Example:
        >>> import numpy as np
        >>> float(var(np.array([1.0, 3.0])))
        1.0
    """
    return _statistic(x, axis, keepdims, out, "var", number_of(ddof, "ddof"), math.nan)


@repeated
def std(x: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None) -> Any:
    """Standard deviation over axes, as `numpy.std`.

    Example:
        >>> import numpy as np
        >>> std(np.array([[1, 3], [2, 2]], np.float32), axis=1)
        array([1., 0.], dtype=float32)
    """
    return _statistic(x, axis, keepdims, out, "std", number_of(ddof, "ddof"), math.nan)


@repeated
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """log(sum(exp(x))) over axes, from the maximum down, as `torch.logsumexp`.

    Example:
        >>> import numpy as np
        >>> float(logsumexp(np.array([1000.0, -np.inf])))
        1000.0
    """
    return _statistic(x, axis, keepdims, out, "logsumexp", 0.0, -math.inf)


@repeated
def norm(
    x: Any, ord: float = 2, axis: Any = None, keepdims: bool = False, *, out: Any = None
) -> Any:
    """The vector norm (sum |x|^ord)^(1/ord) over axes, as `numpy.linalg.vector_norm`.

    Args:
        x: array of numbers.
        ord: positive; infinity gives the largest magnitude.
        axis, keepdims, out: as for `var`.

    Raises:
        ShapeError: an order that is not positive.

    Example:
        >>> import numpy as np
        >>> float(norm(np.array([3.0, 4.0]))), float(norm(np.array([3.0, -4.0]), np.inf))
        (5.0, 4.0)
    """
    ord = number_of(ord, "ord")
    if not ord > 0:
        raise ShapeError(f"the order of a norm is positive, not {ord}")
    kind = {1: "norm1", 2: "norm2", 3: "norm3", math.inf: "largest"}.get(ord, "norm")
    return _statistic(x, axis, keepdims, out, kind, 0.0 if math.isinf(ord) else ord)


@cb.func
def nonzero(v):
    """1 where v is not 0; NaN is not."""
    return cb.select(v != 0, 1, 0)


@repeated
def _truth(x: Any, axis: Any, keepdims: bool, every: bool, *, out: Any = None) -> Any:
    """Whether all, or some, elements are not 0, as an array in any case."""
    wrap, array = wrapper(x), array_of(x)
    axes = axes_of(axis, array.ndim)
    final = tuple(
        1 if d in axes else n for d, n in enumerate(array.shape) if keepdims or d not in axes
    )
    result = output(out, final, np.bool_)
    if result.size and array.size == 0:
        result[...] = every
    elif result.size:
        flat = result if result.flags.c_contiguous else memory.empty(final, np.bool_)
        data = array.view(np.uint8) if array.dtype == np.bool_ else array
        rows, by_rows = (data, False) if has_planes() else arranged(data, axes)
        if by_rows:
            _truth_of_rows(rows, flat.view(np.uint8), every)
        else:
            mask = data if array.dtype == np.bool_ else map(nonzero, array, dtype=cb.u8)
            (smallest if every else largest)(mask, axes, keepdims, out=flat.view(np.uint8))
        if flat is not result:
            copy(flat, out=result)
    return finish(result, out, wrap)


def _truth_of_rows(rows: Any, result: Any, every: bool) -> None:
    """The same of (rows, n), unit stride along n, into contiguous bytes."""
    while True:
        m, n = rows.shape
        pieces = -(-n // TRUTHS)
        found = result.reshape(m, 1) if pieces == 1 else memory.empty((m, pieces), np.uint8)
        lanes = cb.device_properties_of().register_bytes // rows.itemsize
        lines.truth_of_rows[m * pieces, 1](rows, found, every, lanes, TRUTHS, mode="unchecked")
        if pieces == 1:
            return
        rows = found


def _number(found: Any, out: Any) -> Any:
    """An array of rank 0 as a number, as NumPy gives it."""
    return found[()] if out is None and type(found) is np.ndarray and not found.ndim else found


@placed
def any(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Whether some element is not zero, as `numpy.any`: NaN is not zero, of no elements none is.

    Example:
        >>> import numpy as np
        >>> any(np.array([[0, 1], [0, 0]]), axis=1)
        array([ True, False])
    """
    return _number(_truth(x, axis, keepdims, False, out=out), out)


@placed
def all(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Whether no element is zero, as `numpy.all`.

    Example:
        >>> import numpy as np
        >>> all(np.array([[1, 0], [2, 3]]), axis=1)
        array([False,  True])
    """
    return _number(_truth(x, axis, keepdims, True, out=out), out)
