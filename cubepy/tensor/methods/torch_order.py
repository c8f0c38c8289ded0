"""PyTorch's names of medians and quantiles without NaN, running extremes, distances, choices by
index, sets; and what changes a tensor in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from cubepy.errors import ArgumentError, ShapeError
from cubepy.lang.dtypes import bool_
from cubepy.tensor.methods.applied import Applied, sets_of, several
from cubepy.tensor.methods.indexing import SMALL

T = TypeVar("T")
DIRECT = 25
"""Rows up to which distances are those of differences, as in torch; of more, by a product."""
MODES = {
    "use_mm_for_euclid_dist_if_necessary": None,
    "use_mm_for_euclid_dist": True,
    "donot_use_mm_for_euclid_dist": False,
}
"""Whether `cdist` multiplies; None by the number of rows."""


class TorchOrder(Applied[T]):
    """What `Tensor` inherits: order and sets by PyTorch's names.

    Args:
        T: what the methods give, `Tensor`.
    """

    __slots__ = ()

    # Order

    def msort(self) -> T:
        """Sorted along the first axis."""
        x: Any = self
        return x.sort(0)[0]  # type: ignore[no-any-return]

    def nanmedian(self, dim: Any = None, keepdim: bool = False) -> Any:
        """The element in the middle of those that are not NaN, the lower one of two; of an axis
        with its index, of all elements alone.
        """
        x: Any = self
        if dim is None:
            return x.reshape(-1).nanmedian(0)[0]
        if not x.shape:
            return x.median(dim, keepdim)
        if not x.dtype.is_float:
            return x.median(dim, keepdim)
        axis = self._dim(dim, "nanmedian")
        if not x.shape[axis]:
            raise ShapeError(f"nanmedian: axis {dim} of the shape {x.shape} has no elements")
        there = (x == x).sum(axis, True)
        middle = (there - 1).clip(0) // 2  # in order NaN is last
        found = [one.gather(axis, middle) for one in x.sort(axis)]
        return tuple(one if keepdim else one.squeeze(axis) for one in found)

    def nanquantile(
        self, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
    ) -> T:
        """The elements below which shares q of those lie that are not NaN; arguments as of
        `quantile`.
        """
        if interpolation not in ("linear", "lower", "higher", "nearest", "midpoint"):
            raise ArgumentError(f"nanquantile has no interpolation {interpolation!r}")
        x: Any = self
        if dim is None:
            found = x.reshape(-1).nanquantile(q, 0, interpolation=interpolation)
            return found.reshape(*found.shape, *(1,) * x.ndim) if keepdim else found  # type: ignore[no-any-return]
        if not x.shape:
            self._dim(dim, "nanquantile", line=True)
            return x.reshape(1).nanquantile(q, 0, interpolation=interpolation)  # type: ignore[no-any-return]
        axis, share = self._dim(dim, "nanquantile"), x._operand(q)
        share = share.astype(x.dtype).to(x.device)
        if share.ndim > 1 or not x.dtype.is_float:
            raise ShapeError("nanquantile takes floats, and a number or a vector of shares")
        order = x.movedim(axis, 0).sort(0)[0]
        last = ((order == order).sum(0, True) - 1).clip(0).astype(x.dtype)
        at = share.reshape(-1, *(1,) * (x.ndim - 1)) * last
        at = at.round() if interpolation == "nearest" else at
        low, high = (order.take_along_dim(end.astype("i64"), 0) for end in (at.floor(), at.ceil()))
        if interpolation in ("lower", "higher"):
            made = high if interpolation == "higher" else low
        else:
            part = 0.5 if interpolation == "midpoint" else at - at.floor()
            made = low + (high - low) * part
        made = made.unsqueeze(axis + 1) if keepdim else made
        return made if share.ndim else made.squeeze(0)  # type: ignore[no-any-return]

    def cummax(self, dim: int) -> tuple[T, T]:
        """The largest element so far along an axis, and its index, the last one of equal ones."""
        return self._running(dim, "cummax")

    def cummin(self, dim: int) -> tuple[T, T]:
        """The smallest element so far along an axis, and its index, the last one of equal ones."""
        return self._running(dim, "cummin")

    def _running(self, dim: int, op: str) -> tuple[T, T]:
        x: Any = self if self.ndim else self.reshape(1)  # type: ignore[attr-defined]
        axis, truth = x._dim(dim, "cummax and cummin"), x.dtype.name == "bool_"
        values, at = self._apply(op, x.astype("u8") if truth else x, axis=axis)
        values = values.astype(x.dtype) if truth else values
        return values.reshape(self.shape), at.reshape(self.shape)

    @several
    def logcumsumexp(self, dim: int) -> T:
        """The logarithm of running sums of exponentials along an axis."""
        x: Any = self if self.ndim else self.reshape(1)  # type: ignore[attr-defined]
        axis = x._dim(dim, "logcumsumexp")
        (found,) = _scanned(x, (x,), axis, lambda a, b: (a[0].logaddexp(b[0]),))
        return found.reshape(self.shape)  # type: ignore[no-any-return]

    def aminmax(self, *, dim: Any = None, keepdim: bool = False) -> tuple[T, T]:
        """The smallest and the largest element, of all or along an axis."""
        x: Any = self
        return x.amin(dim, keepdim), x.amax(dim, keepdim)

    # Distances and moments

    @several
    def dist(self, other: Any, p: float = 2) -> T:
        """The p-norm of a difference."""
        x: Any = self
        return (x._of_floats() - x._operand(other)._of_floats()).norm(p)  # type: ignore[no-any-return]

    @several
    def cdist(
        self, x2: Any, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary"
    ) -> T:
        """Distances between all rows of two matrices, or of stacks of them: (..., P, M) and
        (..., R, M) -> (..., P, R). `compute_mode` says when those of p = 2 go by a product: of
        many rows, or as "use_mm_for_euclid_dist" and "donot_use_mm_for_euclid_dist" say.
        """
        if compute_mode not in MODES:
            raise ArgumentError(f"cdist: compute_mode is one of {', '.join(MODES)}")
        x, y = self, self._like(x2)
        a, b = x, y  # type: Any, Any
        if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
            raise ShapeError(
                f"cdist takes rows of one length, not the shapes {x.shape} and {y.shape}"  # type: ignore[attr-defined]
            )
        a, b = a._of_floats(), b._of_floats()
        many = MODES[compute_mode]
        if p == 2 and (max(a.shape[-2], b.shape[-2]) > DIRECT if many is None else many):
            squares = (a * a).sum(-1).unsqueeze(-1) + (b * b).sum(-1).unsqueeze(-2)
            return _root((squares - (a @ b.mT) * 2).clip(0))  # type: ignore[no-any-return]
        away = a.unsqueeze(-2) - b.unsqueeze(-3)
        if p == 2:
            return _root((away * away).sum(-1))  # type: ignore[no-any-return]
        size = away.abs()
        if p == 0:
            return (size != 0).astype(a.dtype).sum(-1)  # type: ignore[no-any-return]
        if p == 1 or p == math.inf:
            return size.sum(-1) if p == 1 else size.amax(-1)  # type: ignore[no-any-return]
        powers = (size**p).sum(-1)
        none = powers == 0
        return (powers.masked_fill(none, 1) ** (1 / p)).masked_fill(none, 0)  # type: ignore[no-any-return]

    @several
    def cov(self, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> T:
        """Covariances of the rows of a matrix, whose columns are observations; of one row its
        variance.

        Args:
            correction: what is taken from the number of observations.
            fweights: how often each observation came, integers.
            aweights: how much each observation counts.
        """
        x: Any = self
        if x.ndim > 2:
            raise ShapeError(f"cov takes a matrix or a vector, not the shape {x.shape}")
        rows = x.reshape(-1, x.shape[-1] if x.ndim else 1)
        given = [None if w is None else self._like(w) for w in (fweights, aweights)]  # type: Any
        for weights in given:
            if weights is not None and weights.shape != rows.shape[1:]:
                raise ShapeError(f"cov: weights {weights.shape} of {rows.shape[1]} observations")
        times, counts = (None if w is None else w.astype(rows.dtype) for w in given)
        if times is None and counts is None:
            away = rows - rows.mean(-1, True)
            found = away @ away.mT / max(rows.shape[1] - correction, 0)
        else:
            shares: Any = times if counts is None else counts if times is None else times * counts
            total = shares.sum()
            away = rows - (rows * shares).sum(-1, True) / total
            lost = correction if counts is None else (shares * counts).sum() / total * correction
            found = (away * shares) @ away.mT / (total - lost).clip(0)
        return found if found.shape[0] > 1 else found.reshape(())  # type: ignore[no-any-return]

    @several
    def corrcoef(self) -> T:
        """Correlations of the rows of a matrix, whose columns are observations."""
        found: Any = self.cov()
        if not found.ndim:
            return found / found  # type: ignore[no-any-return]
        spread = found.diagonal().sqrt()
        made = found / spread.unsqueeze(1) / spread.unsqueeze(0)
        return made.clip(-1, 1)  # type: ignore[no-any-return]

    @several
    def renorm(self, p: float, dim: int, maxnorm: float) -> T:
        """The slices along an axis, scaled so that the p-norm of none is above `maxnorm`."""
        x: Any = self
        axis = self._dim(dim, "renorm")
        rows = x.movedim(axis, 0).reshape(x.shape[axis], -1)
        norms = rows.norm(p, dim=1)
        above = norms > maxnorm
        scale = (maxnorm / (norms.masked_fill(~above, 1) + 1e-7)).masked_fill(~above, 1)
        return x * scale.reshape(-1, *(1,) * (x.ndim - 1 - axis))  # type: ignore[no-any-return]

    # By index

    def take(self, index: Any) -> T:
        """Elements at places of the flattened tensor, in the shape of the places."""
        x: Any = self
        return x.reshape(-1)[self._like(index)]  # type: ignore[no-any-return]

    def index_put(self, indices: Any, values: Any, accumulate: bool = False) -> T:
        """With values at indices, one array for each of the first axes; added up, if
        `accumulate`.
        """
        x: Any = self
        given: Any = x._operand(values).astype(x.dtype)
        if not accumulate:
            made = x.clone()
            made[tuple(indices)] = given
            return made  # type: ignore[no-any-return]
        where: list[Any] = [self._like(i) for i in indices]
        if any(i.dtype is bool_ for i in where):
            where = [p for i in where for p in (i.nonzero(True) if i.dtype is bool_ else (i,))]
        shape, rest = np.broadcast_shapes(*(i.shape for i in where)), x.shape[len(where) :]
        flat: Any = 0
        for n, i in zip(x.shape, where, strict=False):
            flat = flat * n + self._apply("flat_index", i, lengths=(n,))
        count = math.prod(x.shape[: len(where)])
        given = given.expand(*shape, *rest).reshape(math.prod(shape), *rest)
        sums = x.reshape(count, *rest).index_add(0, flat.expand(shape).reshape(-1), given)
        return sums.reshape(x.shape)  # type: ignore[no-any-return]

    def masked_scatter(self, mask: Any, source: Any) -> T:
        """With the elements of another tensor, in their order, where a mask holds."""
        x: Any = self
        where: Any = self._like(mask)
        shape = np.broadcast_shapes(x.shape, where.shape)
        x, where = x.expand(shape), where.expand(shape)
        spots = (where.reshape(-1).astype("i64").cumsum(0) - 1).clip(0)
        given: Any = self._like(source)
        taken = given.reshape(-1).index_select(0, spots.clip(max=max(0, given.size - 1)))
        return self._apply("where", where, taken.reshape(x.shape).astype(x.dtype), x)  # type: ignore[no-any-return]

    def scatter_reduce(
        self, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
    ) -> T:
        """With what goes to a place reduced there: "sum", "prod", "mean", "amax" or "amin", of
        what was there, too, if `include_self`.
        """
        updates = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}
        if reduce not in updates:
            raise ArgumentError(f"scatter_reduce knows {', '.join(updates)}, not {reduce!r}")
        x: Any = self
        where, given = self._like(index), self._like(src).astype(x.dtype)  # type: ignore[attr-defined]
        given = given[tuple(slice(n) for n in where.shape)]  # type: ignore[attr-defined]
        ones = x.new_ones(where.shape)  # type: ignore[attr-defined]
        counts = x.new_zeros(x.shape).scatter_add(dim, where, ones)
        base = x
        if not include_self:
            limits = x.__array_namespace__()
            info = limits.finfo(x.dtype) if x.dtype.is_float else limits.iinfo(x.dtype)
            most, least = (math.inf, -math.inf) if x.dtype.is_float else (info.max, info.min)
            first = {"sum": 0, "mean": 0, "prod": 1, "amax": least, "amin": most}[reduce]
            base = x.masked_fill(counts > 0, first)
        made = base.scatter(dim, where, given, updates[reduce])
        if reduce != "mean":
            return made  # type: ignore[no-any-return]
        divisors = counts + 1 if include_self else counts.clip(1)
        return made / divisors if x.dtype.is_float else made // divisors  # type: ignore[no-any-return]

    def argwhere(self) -> T:
        """The indices of the elements that are not 0, a row for each."""
        x: Any = self
        return x.nonzero()  # type: ignore[no-any-return]

    # Sets

    def unique(
        self,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
    ) -> Any:
        """The different elements, in order, or with `dim` the different slices along an axis; with
        where each one is among them, and how often each is there, if that is asked for.
        """
        x: Any = self
        few = sets_of(x, return_inverse, return_counts) if dim is None and x.size <= SMALL else None
        if few is not None:
            return tuple(few) if len(few) > 1 else few[0]
        values = at = counts = None
        if dim is not None:
            values, at, counts = _unique_slices(x, self._dim(dim, "unique"))
        elif return_inverse and return_counts:
            values, _, at, counts = x.__array_namespace__().unique_all(x)
        elif return_inverse:
            values, at = x.__array_namespace__().unique_inverse(x)
        elif return_counts:
            values, counts = x.__array_namespace__().unique_counts(x)
        else:
            values = x.__array_namespace__().unique_values(x)
        given = [values]
        given += [at] if return_inverse else []
        given += [counts] if return_counts else []
        return tuple(given) if len(given) > 1 else given[0]

    # Matrices

    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> T:
        """Matrices whose diagonals are the last axis, zeros elsewhere."""
        x: Any = self
        n, width = x.shape[-1], x.shape[-1] + abs(offset)
        before = max(0, -offset)
        rows = x.__array_namespace__().eye(width, width, k=offset, dtype="bool_", device=x.device)
        widths = (before, width - n - before)
        full = self._apply("pad", x, widths=widths, mode="constant", value=0)
        made = self._apply("where", rows, full.unsqueeze(-1), full._operand(0).astype(x.dtype))
        return made.movedim((-2, -1), (dim1, dim2))  # type: ignore[no-any-return]

    def diagflat(self, offset: int = 0) -> T:
        """A matrix whose diagonal is the flattened tensor."""
        x: Any = self
        return x.reshape(-1).diag(offset)  # type: ignore[no-any-return]

    @several
    def kron(self, other: Any) -> T:
        """The Kronecker product."""
        x, y = self, self._like(other)  # type: Any, Any
        rank = max(x.ndim, y.ndim)
        a = (*(1,) * (rank - x.ndim), *x.shape)
        b = (*(1,) * (rank - y.ndim), *y.shape)
        first = x.reshape([m for n in a for m in (n, 1)])
        second = y.reshape([m for n in b for m in (1, n)])
        return (first * second).reshape([n * m for n, m in zip(a, b, strict=True)])  # type: ignore[no-any-return]

    # Elements

    @several
    def fmax(self, other: Any) -> T:
        """The larger of two elements; the other one of NaN."""
        x, y = self, self._operand(other)  # type: Any, Any
        most = x.maximum(y)
        return self._apply("where", x != x, y, self._apply("where", y != y, x, most))  # type: ignore[no-any-return]

    @several
    def fmin(self, other: Any) -> T:
        """The smaller of two elements; the other one of NaN."""
        x, y = self, self._operand(other)  # type: Any, Any
        least = x.minimum(y)
        return self._apply("where", x != x, y, self._apply("where", y != y, x, least))  # type: ignore[no-any-return]

    @several
    def heaviside(self, values: Any) -> T:
        """0 below 0, 1 above, and given values at 0."""
        x: Any = self
        step = (x > 0).astype(x.dtype)
        step = self._apply("where", x == 0, self._operand(values), step)
        return step.masked_fill(x != x, math.nan) if x.dtype.is_float else step  # type: ignore[no-any-return]

    @several
    def sinc(self) -> T:
        """sin(pi x) / (pi x), and 1 at 0."""
        x: Any = self
        none = x == 0
        turned = x.masked_fill(none, 1) * math.pi
        return (turned.sin() / turned).masked_fill(none, 1)  # type: ignore[no-any-return]


def _root(squares: Any) -> Any:
    """Square roots, whose gradient at 0 is 0."""
    none = squares == 0
    return squares.masked_fill(none, 1).sqrt().masked_fill(none, 0)


def _unique_slices(x: Any, axis: int) -> tuple[Any, Any, Any]:
    """The different slices along an axis, in order of their elements, first ones first; where each
    is among them; how often they come.
    """
    count = x.shape[axis]
    rows = x.movedim(axis, 0).reshape(count, math.prod(x.shape[:axis] + x.shape[axis + 1 :]))
    order = x._like(np.arange(count)).to(x.device)
    for column in reversed(range(rows.shape[1])):
        order = order.index_select(0, rows[:, column].index_select(0, order).argsort())
    ordered = rows.index_select(0, order)
    begins = order.new_ones(count, dtype="bool_")
    begins[1:] = (ordered[1:] != ordered[:-1]).any(1)
    starts = begins.nonzero().reshape(-1)
    number = begins.astype("i64").cumsum(0) - 1
    at = number.new_zeros(count).index_copy(0, order, number)
    counts = number.new_zeros(starts.size).index_add(0, number, number.new_ones(count))
    return x.index_select(axis, order.index_select(0, starts)), at, counts


def _scanned(x: Any, parts: tuple[Any, ...], axis: int, join: Callable[..., Any]) -> Any:
    """Running results along an axis of what is joined pair by pair, in logarithmically many
    steps.
    """
    lead, step = (slice(None),) * axis, 1
    while step < x.shape[axis]:
        before = [t[(*lead, slice(None, -step))] for t in parts]
        joined = join(before, [t[(*lead, slice(step, None))] for t in parts])
        heads = [t[(*lead, slice(None, step))] for t in parts]
        parts = tuple(
            [x._apply("concat", h, j, axis=axis) for h, j in zip(heads, joined, strict=True)]
        )
        step *= 2
    return parts
