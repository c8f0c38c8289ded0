"""PyTorch's names of arithmetic, comparisons, and of what is done to NaN; products and order."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from cubepy.errors import ArgumentError, ShapeError
from cubepy.lang.dtypes import float_for
from cubepy.tensor.methods.applied import formulas, of_lines, several
from cubepy.tensor.methods.indexing import Indexing
from cubepy.tensor.methods.operators import Operators
from cubepy.tensor.methods.reducing import Reducing
from cubepy.tensor.methods.shaping import Shaping

T = TypeVar("T")
ROUNDINGS = (None, "floor", "trunc")
SHORT = 1024
"""Elements whose order is sooner found again for a gradient than kept."""


def _found_at(host: np.ndarray, k: int, spread: bool) -> int:
    """Where the element of a line is that comes after k others in order; with `spread` it is the
    first NaN, where one is.
    """
    ordered = np.partition(host, k)  # NaN is last
    value, missing = ordered[k], 0
    if host.dtype.kind == "f" and (spread or value != value):
        missing = int(np.isnan(ordered[k:]).sum())
    if missing and (spread or value != value):
        before = 0 if spread else k - host.size + missing
        return int(np.flatnonzero(np.isnan(host))[before])
    return int(np.flatnonzero(host == value)[k - np.count_nonzero(host < value)])


class TorchArithmetic(Operators[T], Reducing[T], Shaping[T], Indexing[T]):
    """What `Tensor` inherits: functions of elements, of matrices and of axes by PyTorch's names.

    Args:
        T: what the methods give, `Tensor`.
    """

    __slots__ = ()

    # Arithmetic

    def add(self, other: Any, *, alpha: Any = 1) -> T:
        """`self + alpha * other`"""
        return self + self._times(other, alpha)

    def sub(self, other: Any, *, alpha: Any = 1) -> T:
        """`self - alpha * other`"""
        return self - self._times(other, alpha)

    subtract = sub

    def mul(self, other: Any) -> T:
        """`self * other`"""
        return self * other

    multiply = mul

    def div(self, other: Any, *, rounding_mode: str | None = None) -> T:
        """`self / other`; rounded down with "floor", towards zero with "trunc"."""
        if rounding_mode not in ROUNDINGS:
            raise ArgumentError(f'rounding_mode is None, "floor" or "trunc", not {rounding_mode!r}')
        if rounding_mode == "floor":
            return self // other
        x, y = self, self._operand(other)
        if rounding_mode is None:
            return x / y
        if x.dtype.is_float or y.dtype.is_float:  # type: ignore[attr-defined]
            return (x / y).trunc()  # type: ignore[attr-defined, no-any-return]
        down: Any = x // y
        up: Any = (down * y != x) & (down < 0)
        return down + up.astype(down.dtype)  # type: ignore[no-any-return]

    divide = div

    def true_divide(self, other: Any) -> T:
        """`self / other`"""
        return self / other

    def floor_divide(self, other: Any) -> T:
        """`self // other`"""
        return self // other

    def positive(self) -> T:
        """`+self`"""
        return +self

    def clamp_min(self, min: Any) -> T:
        """Not below a number or a tensor."""
        return self.clip(min, None)

    def clamp_max(self, max: Any) -> T:
        """Not above a number or a tensor."""
        return self.clip(None, max)

    @several
    def frac(self) -> T:
        """What is behind the point, with the sign of x."""
        return self - self.trunc()

    def sgn(self) -> T:
        """-1, 0 or 1, as `sign`."""
        return self.sign()

    @several
    def logit(self, eps: float | None = None) -> T:
        """log(x / (1 - x)), the reverse of `sigmoid`; x is limited to [eps, 1 - eps] first."""
        x: Any = self._of_floats()
        p = x if eps is None else x.clip(eps, 1 - eps)
        return (p / (1 - p)).log()  # type: ignore[no-any-return]

    @several
    def xlogy(self, other: Any) -> T:
        """x log(other), which is 0 where x is, unless the other is NaN."""
        x: Any = self._of_floats()
        y: Any = x._operand(other)
        none = (x == 0) & (y == y)
        zero, one = x._operand(0.0), x._operand(1.0)
        inner = self._apply("where", none, one, y)
        return self._apply("where", none, zero, x * inner.log())  # type: ignore[no-any-return]

    def deg2rad(self) -> T:
        """Degrees as radians."""
        return self * (math.pi / 180)

    def rad2deg(self) -> T:
        """Radians as degrees."""
        return self * (180 / math.pi)

    # Comparisons

    def greater(self, other: Any) -> T:
        """`self > other`"""
        return self > other

    def greater_equal(self, other: Any) -> T:
        """`self >= other`"""
        return self >= other

    def less(self, other: Any) -> T:
        """`self < other`"""
        return self < other

    def less_equal(self, other: Any) -> T:
        """`self <= other`"""
        return self <= other

    def not_equal(self, other: Any) -> T:
        """`self != other`"""
        return self != other

    def logical_xor(self, other: Any) -> T:
        """Whether one of both is not zero."""
        mine: Any = self != 0
        return mine ^ (self._like(other) != 0)

    @several
    def isclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> T:
        """Whether |self - other| <= atol + rtol * |other|; infinities of one sign are close, NaN
        where `equal_nan`.
        """
        x: Any = self
        y: Any = self._operand(other)
        same = x == y
        if equal_nan:
            same = same | ((x != x) & (y != y))
        a, b = x._of_floats(), y._of_floats()
        away = (a - b).abs()
        return same | (away.isfinite() & (away <= b.abs() * rtol + atol))  # type: ignore[no-any-return]

    def allclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close; see `isclose`."""
        found: Any = self.isclose(other, rtol, atol, equal_nan)
        return bool(found.all())

    def where(self, condition: Any, other: Any) -> T:
        """The elements where a condition holds, else those of another tensor, or a number."""
        return self._apply("where", self._like(condition), self, self._operand(other))  # type: ignore[no-any-return]

    # NaN

    def nan_to_num(
        self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> T:
        """Numbers in place of NaN and infinities; None is the largest or smallest of the dtype."""
        x: Any = self
        if not self.dtype.is_float:
            return x  # type: ignore[no-any-return]
        most = float(self.__array_namespace__().finfo(self.dtype).max)
        high, low = most if posinf is None else posinf, -most if neginf is None else neginf
        return formulas().finite(x, nan, high, low)  # type: ignore[no-any-return]

    @several
    def nansum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> T:
        """Sums over axes of what is not NaN."""
        x: Any = self
        if not self.dtype.is_float:
            return x.sum(dim, keepdim, dtype=dtype)  # type: ignore[no-any-return]
        return formulas().sum_of_numbers(x, dim, keepdim, dtype)  # type: ignore[no-any-return]

    @several
    def nanmean(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> T:
        """Means over axes of what is not NaN; NaN where nothing is."""
        x: Any = self._of_floats() if dtype is None else self.astype(dtype)
        counts = (x == x).astype(x.dtype).sum(dim, keepdim)
        return x.nansum(dim, keepdim) / counts  # type: ignore[no-any-return]

    # Matrices

    def baddbmm(self, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> T:
        """`beta * self + alpha * (batch1 @ batch2)`, of stacks of matrices."""
        first, second = self._like(batch1), self._like(batch2)
        if first.ndim != 3 or second.ndim != 3:  # type: ignore[attr-defined]
            raise ShapeError("baddbmm takes two stacks of matrices, of three axes each")
        product: Any = first @ second  # type: ignore[operator]
        product = product if alpha == 1 else product * alpha
        return product + (self if beta == 1 else self * beta)  # type: ignore[no-any-return]

    @several
    def cross(self, other: Any, dim: Any = None) -> T:
        """The cross product of vectors of three elements along an axis; by default the first axis
        of length 3.
        """
        y: Any = self._like(other)
        if dim is None:
            try:
                shape = np.broadcast_shapes(self.shape, y.shape)
            except ValueError:
                shape = ()
            if 3 not in shape:
                raise ShapeError(
                    f"cross takes vectors of 3 elements, not the shapes {self.shape} and {y.shape}"
                )
            dim = shape.index(3) - len(shape)
        return self._linalg("cross", y, axis=dim)

    def det(self) -> T:
        """Determinants of square matrices."""
        return self._linalg("det")

    def inverse(self) -> T:
        """Inverses of square matrices."""
        return self._linalg("inv")

    def matrix_exp(self) -> T:
        """The exponential of square matrices."""
        return self._linalg("matrix_exp")

    def pinverse(self, rcond: float = 1e-15) -> T:
        """Pseudoinverses; singular values up to `rcond` of the largest count as 0."""
        if self.ndim > 1 and not self.size:
            return self.mT
        return self._linalg("pinv", rtol=rcond)

    # Order

    @of_lines
    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> tuple[T, T]:
        """The k-th smallest element along an axis, and its index."""
        axis = self._dim(dim, "kthvalue")
        if not 1 <= k <= self.shape[axis]:
            raise ShapeError(f"kthvalue: {k} is none of 1 to {self.shape[axis]}")
        return self._in_order(k - 1, axis, keepdim, formulas().kthvalue, k)

    def median(self, dim: Any = None, keepdim: bool = False) -> Any:
        """The element in the middle, the lower one of two; NaN where one is. Of an axis with its
        index, as in PyTorch; of all elements alone.
        """
        if dim is None:
            flat: Any = self.reshape(-1)
            return flat.median(0)[0]
        return self._median(dim, keepdim)

    @of_lines
    def _median(self, dim: int, keepdim: bool) -> tuple[T, T]:
        axis = self._dim(dim, "median")
        n = self.shape[axis]
        if not n:
            raise ShapeError(f"median: axis {dim} of the shape {self.shape} has no elements")
        if not self.dtype.is_float:
            return self.kthvalue((n + 1) // 2, axis, keepdim)
        return self._in_order((n - 1) // 2, axis, keepdim, formulas().median)

    def _in_order(
        self, number: int, axis: int, keepdim: bool, function: Any, *how: int
    ) -> tuple[T, T]:
        """The element of each line that a function finds, to which its gradient goes, and where it
        is; `number` is its own among all in order.
        """
        x: Any = self
        plain = x.detach() if x.requires_grad else x
        short = plain is x or x.size <= SHORT
        host = plain.__cubepy_hosted__() if x.ndim == 1 and (plain is x or not short) else None
        if host is None or host.dtype.kind not in "iuf":
            if short:
                return function(x, *how, axis, keepdim)  # type: ignore[no-any-return]
            return formulas().element(x, function(plain, *how, axis, True)[1], axis, keepdim)  # type: ignore[no-any-return]
        at = _found_at(host, number, not how)
        index = x.__cubepy_wrap__(np.array([at] if keepdim or plain is not x else at, np.int64))
        if plain is not x:
            return formulas().element(x, index, axis, keepdim)  # type: ignore[no-any-return]
        return x.__cubepy_wrap__(host[at : at + 1].copy() if keepdim else np.array(host[at])), index

    def quantile(
        self, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
    ) -> T:
        """The elements below which shares q lie; NaN where an element is.

        Args:
            q: a number from 0 to 1, or a vector of them, whose axis comes first in the result.
            dim: an axis; None for all elements.
            keepdim: whether the axis stays, of length 1.
            interpolation: "linear", "lower", "higher", "nearest" or "midpoint".
        """
        if interpolation not in ("linear", "lower", "higher", "nearest", "midpoint"):
            raise ArgumentError(f"quantile has no interpolation {interpolation!r}")
        x: Any = self
        if dim is None:
            found = x.reshape(-1).quantile(q, 0, interpolation=interpolation)
            return found.reshape(*found.shape, *(1,) * self.ndim) if keepdim else found  # type: ignore[no-any-return]
        if not self.shape:
            self._dim(dim, "quantile", line=True)
            return x.reshape(1).quantile(q, 0, interpolation=interpolation)  # type: ignore[no-any-return]
        axis, share = self._dim(dim, "quantile"), x._operand(q)
        share = share.astype(x.dtype).to(x.device)
        if share.ndim > 1 or not x.dtype.is_float:
            raise ShapeError("quantile takes floats, and a number or a vector of shares")
        order = x.movedim(axis, 0).sort(0)[0]
        at = share.reshape(-1) * (order.shape[0] - 1)
        at = at.round() if interpolation == "nearest" else at
        low, high = (order.index_select(0, end.astype("i64")) for end in (at.floor(), at.ceil()))
        part = (at - at.floor()).reshape(-1, *(1,) * (x.ndim - 1))
        if interpolation in ("lower", "higher"):
            made = high if interpolation == "higher" else low
        else:
            made = low + (high - low) * (0.5 if interpolation == "midpoint" else part)
        made = made.masked_fill(order[-1:].isnan(), math.nan)
        made = made.unsqueeze(axis + 1) if keepdim else made
        return made if share.ndim else made.squeeze(0)  # type: ignore[no-any-return]

    @several
    def diff(self, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> T:
        """Differences of neighbours along an axis, `n` times."""
        return self.__array_namespace__().diff(self, n=n, axis=dim, prepend=prepend, append=append)  # type: ignore[no-any-return]

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        raise NotImplementedError

    def _linalg(self, name: str, *args: Any, **how: Any) -> T:
        return getattr(self.__array_namespace__().linalg, name)(self, *args, **how)  # type: ignore[no-any-return]

    def _times(self, other: Any, alpha: Any) -> Any:
        return other if alpha == 1 else self._operand(other) * alpha  # type: ignore[operator]

    def _of_floats(self) -> T:
        """Integers and booleans as floats."""
        x: Any = self
        dtype = x.dtype
        return x if dtype.is_float else x.astype(float_for(dtype))  # type: ignore[no-any-return]
