"""Reductions over any axes: rows (neighbours in memory) and columns (strided), in one or two
passes.

How the work is cut depends on shapes only, never on the number of threads, so results do not
either. Sums run in f32 (f64 for f64) over several lines of partial sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of, axes_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.entry.shapes import view_as
from cubepy.kernels.movement.copy import convert_into, copy, fill
from cubepy.kernels.reduce.problem import Reduce
from cubepy.kernels.reduce.reduction import MEAN, PRODUCT, SCALED_SUM, SUM, Reduction, extreme
from cubepy.kernels.reduce.routines import REDUCE
from cubepy.lang.dtypes import DType, as_dtype, f32, float_for, i64, u8, u64
from cubepy.runtime.memory.pool import host_pool

LONG_STEP = 64
"""Elements from which on a part of neighbouring axes is a step of its own, so that nothing is
copied."""


def arranged(x: Any, axes: tuple[int, ...]) -> Any:
    """The array as (kept, reduced) with unit stride along `reduced`, or as (batch, reduced,
    columns).

    Copies only when no arrangement of strides will do.
    """
    found = as_it_lies(x, axes)
    if found is not None:
        return found
    kept = [d for d in range(x.ndim) if d not in axes]
    n = math.prod([x.shape[d] for d in axes])
    return copy(x.transpose(kept + list(axes))).reshape(math.prod([x.shape[d] for d in kept]), n)


def as_it_lies(x: Any, axes: tuple[int, ...]) -> Any:
    """What `arranged` gives without a copy; None where there is none."""
    kept = [d for d in range(x.ndim) if d not in axes]
    shape_k = [x.shape[d] for d in kept]
    n = math.prod([x.shape[d] for d in axes])
    moved = x.transpose(kept + list(axes))
    m = math.prod(shape_k)
    rows = _without_copy(moved, (m, n))
    if rows is not None and (rows.strides[1] == x.itemsize or n == 1):
        return rows
    for ahead in range(len(kept) if axes else 0):  # what is kept lies before it, and behind
        behind = shape_k[ahead:]
        if behind[-1] > 1 and x.strides[kept[-1]] != x.itemsize:
            continue
        seen = x.transpose([*kept[:ahead], *axes, *kept[ahead:]])
        columns = _without_copy(seen, (math.prod(shape_k[:ahead]), n, math.prod(behind)))
        if columns is not None and columns.strides[2] == x.itemsize:
            return columns
    return None


def _without_copy(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    try:
        return view_as(x, shape)  # type: ignore[no-any-return]
    except AttributeError:
        return None


def over_axes(
    x: Any,
    array: Any,
    axis: Any,
    keepdims: bool,
    out: Any,
    dtype: Any,
    empty: Any,
    run: Any,
    number: bool = True,
) -> Any:
    """What `run(array, axes, result)` makes of some axes; `empty` where they have no elements. A
    result of rank 0 is given as a `number`.
    """
    axes = axes_of(axis, array.ndim)
    final = tuple(
        1 if d in axes else n for d, n in enumerate(array.shape) if keepdims or d not in axes
    )
    result = output(out, final, dtype)
    if result.size:
        if math.prod(array.shape[d] for d in axes) == 0:
            result[...] = empty
        else:
            fill(result, lambda flat: run(array, axes, flat))
    return finish(result if final or out is not None or not number else result[()], out, wrapper(x))


def reduce_into(
    array: Any, axes: tuple[int, ...], flat: Any, reduction: Reduction, acc: DType, number: float
) -> None:
    """A reduction over some axes into the contiguous `flat`."""
    if not axes:
        convert_into(flat, array)
        return
    if type(array) is np.ndarray:
        array = _in_memory_order(array, axes)
    data = as_it_lies(array, axes)
    if data is None and reduction.in_steps and type(array) is np.ndarray:
        first = _first_step(array, axes)
        if first:
            left = [d for d in range(array.ndim) if d not in first]
            part = host_pool.empty(tuple(array.shape[d] for d in left), acc.numpy)
            reduce_into(array, first, part.reshape(-1), reduction.unfinished, acc, 1.0)
            rest = tuple(left.index(d) for d in axes if d in left)
            reduce_into(part, rest, flat, reduction.of_parts, acc, number)
            return
    REDUCE.run(
        Reduce(arranged(array, axes) if data is None else data, flat, reduction, acc, number)
    )


def _in_memory_order(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """A view whose axes that are reduced lie as in memory: what becomes one has no order."""
    standing = sorted(axes)
    found = sorted(standing, key=lambda d: -(abs(x.strides[d]) or math.inf))
    if found == standing:
        return x
    order = list(range(x.ndim))
    for to, d in zip(standing, found, strict=True):
        order[to] = d
    return x.transpose(order)


def _first_step(x: np.ndarray, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The neighbouring axes that make most of a reduction, and need no copy; () for none."""
    groups: list[list[int]] = []
    for d in sorted(axes):
        if groups and groups[-1][-1] == d - 1:
            groups[-1].append(d)
        else:
            groups.append([d])
    sizes = {tuple(g): math.prod([x.shape[d] for d in g]) for g in groups}
    for g in groups:  # the last of some, where that is a long step
        parts = {tuple(g[k:]): math.prod([x.shape[d] for d in g[k:]]) for k in range(1, len(g))}
        sizes |= {part: n for part, n in parts.items() if n >= LONG_STEP}
    found = sorted(sizes, key=lambda part: -sizes[part])
    return next((g for g in found if len(g) < len(axes) and as_it_lies(x, g) is not None), ())


def _reduce(
    x: Any, axis: Any, keepdims: bool, out: Any, reduction: Reduction, acc: DType, result: DType
) -> Any:
    def run(array: Any, axes: tuple[int, ...], flat: Any) -> None:
        reduce_into(array, axes, flat, reduction, acc, 1.0)

    start = reduction.walks[0].start
    return over_axes(x, array_of(x), axis, keepdims, out, result.numpy, start, run)


def _mean(x: Any, axis: Any, keepdims: bool, out: Any, acc: DType, result: DType) -> Any:
    def run(array: Any, axes: tuple[int, ...], flat: Any) -> None:
        reduce_into(array, axes, flat, MEAN, acc, array.size / flat.size)

    return over_axes(x, array_of(x), axis, keepdims, out, result.numpy, np.nan, run)


def wide_mean(x: Any, axes: tuple[int, ...]) -> Any:
    """The mean of floats over some axes, of narrow floats in f32: for what is computed from it."""
    acc = _sum_dtypes(x)[0]
    return _mean(x, axes, False, None, acc, acc)


def scaled_sum(x: Any, axes: tuple[int, ...], out: Any, scale: float) -> None:
    """scale * the sum over some axes into the contiguous `out`, which has the shape of the others,
    and floats as x has.
    """
    acc = _sum_dtypes(x)[0]
    fill(out, lambda flat: reduce_into(x, axes, flat, SCALED_SUM, acc, scale))


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
    return _reduce(x, axis, keepdims, out, SUM, acc, result)


@repeated
def prod(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Product over axes, as `numpy.prod`.

    Example:
        >>> import numpy as np
        >>> prod(np.array([[1, 5], [7, 2]]), axis=1)
        array([ 5, 14])
    """
    acc, result = _sum_dtypes(x)
    return _reduce(x, axis, keepdims, out, PRODUCT, acc, result)


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
    return _mean(x, axis, keepdims, out, acc, result)


def _extreme(x: Any, axis: Any, keepdims: bool, out: Any, largest: bool) -> Any:
    array = array_of(x)
    dtype = as_dtype(array.dtype).compute
    if array.size == 0 and int(np.prod([array.shape[d] for d in axes_of(axis, array.ndim)])) == 0:
        raise ShapeError(
            f"the {'max' if largest else 'min'} of an empty axis is not defined "
            f"(shape {array.shape})"
        )
    if dtype.kind == "b":
        bits = array.view(np.uint8)
        found = _reduce(bits, axis, keepdims, out, extreme(u8, largest), u8, dtype)
        return found if out is not None else wrapper(x)(found)
    return _reduce(x, axis, keepdims, out, extreme(dtype, largest), dtype, dtype)


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
