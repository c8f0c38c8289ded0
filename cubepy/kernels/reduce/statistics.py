"""Reductions of several walks, or with a function at the end; any and all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.elementwise.map import map
from cubepy.kernels.entry.arguments import array_of, float_array, number_of
from cubepy.kernels.entry.dispatch import placed, repeated
from cubepy.kernels.reduce.problem import Reduce, Truth
from cubepy.kernels.reduce.reduce import arranged, over_axes
from cubepy.kernels.reduce.reduction import (
    DEVIATION,
    LOG_SUM_EXP,
    NORM,
    NORMS,
    VARIANCE,
    Reduction,
    extreme,
)
from cubepy.kernels.reduce.routines import REDUCE
from cubepy.kernels.reduce.truth_cpu import TruthOfRows
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import Op, Routine


def _statistic(
    x: Any,
    axis: Any,
    keepdims: bool,
    out: Any,
    reduction: Reduction,
    number: float = 0.0,
    empty: float = 0.0,
    dtype: Any = None,
) -> Any:
    array = float_array(x, "x")

    def run(array: Any, axes: tuple[int, ...], flat: Any) -> None:
        data = arranged(array, axes)
        REDUCE.run(Reduce(data, flat, reduction, sums_of(array), float(number)))

    kind = array.dtype if dtype is None else dtype
    return over_axes(x, array, axis, keepdims, out, kind, empty, run)


def wide_var(x: Any, axes: tuple[int, ...]) -> Any:
    """The variance of floats over some axes, of narrow floats in f32."""
    return _statistic(x, axes, False, None, VARIANCE, 0.0, math.nan, sums_of(x).numpy)


def sums_of(array: Any) -> Any:
    """The dtype to compute in."""
    return cb.f64 if as_dtype(array.dtype) == cb.f64 else cb.f32


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
    return _statistic(x, axis, keepdims, out, VARIANCE, number_of(ddof, "ddof"), math.nan)


@repeated
def std(x: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False, *, out: Any = None) -> Any:
    """Standard deviation over axes, as `numpy.std`.

    Example:
        >>> import numpy as np
        >>> std(np.array([[1, 3], [2, 2]], np.float32), axis=1)
        array([1., 0.], dtype=float32)
    """
    return _statistic(x, axis, keepdims, out, DEVIATION, number_of(ddof, "ddof"), math.nan)


@repeated
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """log(sum(exp(x))) over axes, from the maximum down, as `torch.logsumexp`.

    Example:
        >>> import numpy as np
        >>> float(logsumexp(np.array([1000.0, -np.inf])))
        1000.0
    """
    return _statistic(x, axis, keepdims, out, LOG_SUM_EXP, 0.0, -math.inf)


@repeated
def wide_logsumexp(x: Any, axis: int, keepdims: bool = False) -> Any:
    """`logsumexp` along an axis, of narrow floats in f32."""
    kind = sums_of(x).numpy
    return _statistic(x, axis, keepdims, None, LOG_SUM_EXP, 0.0, -math.inf, kind)


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
    return _statistic(x, axis, keepdims, out, NORMS.get(ord, NORM), 0.0 if math.isinf(ord) else ord)


@cb.func
def nonzero(v):
    """1 where v is not 0; NaN is not."""
    return cb.select(v != 0, 1, 0)


@repeated
def _truth(x: Any, axis: Any, keepdims: bool, every: bool, *, out: Any = None) -> Any:
    """Whether all, or some, elements are not 0, as an array in any case."""
    array = array_of(x)

    def run(data: Any, axes: tuple[int, ...], flat: Any) -> None:
        truth = Truth(arranged(data, axes), flat.view(np.uint8), every, array.dtype == np.bool_)
        TRUTH.run(truth)

    bits = array.view(np.uint8) if array.dtype == np.bool_ else array
    return over_axes(x, bits, axis, keepdims, out, np.bool_, every, run, number=False)


class TruthOfMask(Routine):
    """The largest, or the smallest, of a mask."""

    name = "mask"

    def launch(self, p: Truth, properties: cb.DeviceProperties) -> None:
        """The mask is made first, unless the elements are one."""
        mask = p.data if p.mask else map(nonzero, p.data, dtype=cb.u8)
        REDUCE.run(Reduce(mask, p.out, extreme(cb.u8, not p.every), cb.u8))


TRUTH = Op("truth", [TruthOfRows(), TruthOfMask()])


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
