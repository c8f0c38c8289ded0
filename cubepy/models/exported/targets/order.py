"""Operators that put elements in order, or look for their place in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.lang.dtypes import i32, i64
from cubepy.models.exported.lifting import lifted
from cubepy.models.exported.records import target
from cubepy.tensor import Tensor, apply, as_tensor

NAN, LEAST = float("nan"), float("-inf")


@target("topk")
@lifted
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Any]:
    return list(x.topk(k, dim, largest))


@target("sort.default")
@lifted
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> list[Tensor]:
    return list(x.sort(dim, descending))


@target("sort.stable")
def stable_sort(
    x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> list[Tensor]:
    return sort(x, dim, descending)  # type: ignore[no-any-return]


target("msort")(lambda x: sort(x, 0)[0])


@target("argsort")
def argsort(x: Tensor, *args: Any, **said: Any) -> Tensor:
    given = {**dict(zip(("dim", "descending"), args, strict=False)), **said}
    return sort(x, given.get("dim", -1), given.get("descending", False))[1]  # type: ignore[no-any-return]


@target("searchsorted.Tensor searchsorted.Scalar")
def searchsorted(
    sequence: Tensor,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Of several sequences each has its own row of x: how many of it stand before."""
    side, given = side or ("right" if right else "left"), as_tensor(x)
    if sequence.ndim == 1:
        found = T.searchsorted(sequence, given.reshape(-1), side=side, sorter=sorter)
        found = found.reshape(given.shape)
    else:
        if sorter is not None:
            sequence = sequence.gather(-1, sorter)
        a, b = sequence.unsqueeze(-2), given.unsqueeze(-1)
        found = ((a <= b) if side == "right" else (a < b)).astype(i64).sum(-1)
    return found.astype(i32 if out_int32 else i64)


@target("bucketize")
def bucketize(
    x: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


@target("isin")
def isin(x: Any, tests: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    found = (as_tensor(x).unsqueeze(-1) == as_tensor(tests).reshape(-1)).any(-1)
    return ~found if invert else found


@target("histc")
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements are in each of equal parts; without bounds, from the least to the most."""
    flat = x.reshape(-1)
    if not flat.size:
        return T.zeros((bins,), dtype=x.dtype)
    low: Any = min if min != max else flat.min()
    high: Any = max if min != max else flat.max()
    same = as_tensor(low == high)
    low, high = T.where(same, low - 1.0, low), T.where(same, high + 1.0, high)
    at = ((flat - low) * bins / (high - low)).floor()
    inside = (flat >= low) & (flat <= high)
    part = T.where(inside, at.maximum(0).minimum(bins - 1), bins).astype(i64)
    counts = T.zeros((bins + 1,), dtype=x.dtype)
    return counts.index_add(0, part, T.ones(flat.shape, dtype=x.dtype))[:bins]


# Elements in the middle


def _at(values: Tensor, order: Tensor, dim: int, index: Any, keepdim: bool) -> list[Tensor]:
    """Values and indices at a place of the order, which may be another one in each row."""
    found = []
    for one in (values, order):
        if isinstance(index, Tensor):
            part = one.gather(dim, index)
        else:
            part = one.index_select(dim, as_tensor(np.array([index])).to(one.device))
        found.append(part if keepdim else part.squeeze(dim))
    return found


@target("kthvalue")
@lifted
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> list[Tensor]:
    return _at(*x.sort(dim), dim % x.ndim, k - 1, keepdim)


@target("median.dim")
@lifted
def median_along(x: Tensor, dim: int, keepdim: bool = False) -> list[Tensor]:
    """The lower one of two in the middle; NaN where one is."""
    axis, n = dim % x.ndim, x.shape[dim]
    order: tuple[Tensor, Tensor] = x.sort(axis)
    if not x.dtype.is_float:
        return _at(*order, axis, (n - 1) // 2, keepdim)
    missing = x.isnan().astype(i64).sum(axis, True)  # in order they are the last
    middle = T.where(missing > 0, n - missing, (n - 1) // 2)
    return _at(*order, axis, middle, keepdim)


@target("nanmedian.dim")
@lifted
def nanmedian_along(x: Tensor, dim: int, keepdim: bool = False) -> list[Tensor]:
    axis = dim % x.ndim
    if not x.dtype.is_float:
        return median_along(x, dim, keepdim)  # type: ignore[no-any-return]
    there = (~x.isnan()).astype(i64).sum(axis, True)
    return _at(*x.sort(axis), axis, ((there - 1) // 2).maximum(0), keepdim)


def _of_all(along: Callable[..., list[Tensor]]) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        """The one in the middle of all; of none NaN, or the least integer."""
        if not x.size:
            none = NAN if x.dtype.is_float else T.iinfo(x.dtype).min
            return T.full((), none, dtype=x.dtype)
        return along(x.reshape(-1), 0)[0]

    return run


target("median.default")(_of_all(median_along))
target("nanmedian.default")(_of_all(nanmedian_along))


@target("mode")
@lifted
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> list[Tensor]:
    """The least of the values that are there most often, and the last place of it."""
    axis = dim % x.ndim
    rows = x.movedim(axis, -1)
    values = rows.sort(-1)[0]
    counts = (values.unsqueeze(-1) == values.unsqueeze(-2)).astype(i64).sum(-1)
    value = values.gather(-1, counts.argmax(-1, True))
    spots = T.where(rows == value, T.arange(rows.shape[-1], dtype=i64), -1)
    found = [value, spots.max(-1, True).maximum(0)]
    return [(f.movedim(-1, axis) if keepdim else f.squeeze(-1)) for f in found]


def _quantile(skips: bool) -> Callable[..., Tensor]:
    def run(
        x: Tensor,
        q: Any,
        dim: int | None = None,
        keepdim: bool = False,
        *,
        interpolation: str = "linear",
    ) -> Tensor:
        """Between two neighbours in order; of several q along a new first axis."""
        parts = as_tensor(q).astype(x.dtype).to(x.device)
        rank, shape = x.ndim, (1,) * x.ndim
        axis = 0 if dim is None else dim % max(rank, 1)
        rows = (x.reshape(-1) if dim is None or not rank else x).movedim(axis, -1).sort(-1)[0]
        n = rows.shape[-1]
        missing = rows.isnan().astype(i64).sum(-1, True)
        there = (n - missing).astype(x.dtype) - 1 if skips else T.full((1,), n - 1, dtype=x.dtype)
        at = there.maximum(0) * parts.reshape(-1)
        low, high = at.floor(), at.ceil()
        if interpolation == "nearest":
            low = high = apply("round", at)
        elif interpolation in ("lower", "higher"):
            low = high = low if interpolation == "lower" else high
        full = (*rows.shape[:-1], parts.size)
        a, b = (rows.gather(-1, v.astype(i64).expand(full).contiguous()) for v in (low, high))
        weight: Any = 0.5 if interpolation == "midpoint" else at - low
        found = a
        if interpolation in ("linear", "midpoint"):  # from the nearer one, as infinities ask for
            gap = b - a
            found = T.where(as_tensor(weight) < 0.5, a + gap * weight, b - gap * (1 - weight))
        broken = missing == n if skips else missing > 0
        found = T.where(broken, NAN, found)
        if not keepdim or not rank:
            found = found.movedim(-1, 0)
        elif dim is None:
            found = found.reshape(parts.size, *shape)
        else:
            found = found.unsqueeze(-2).movedim(-1, 0).movedim(-1, axis + 1)
        return found if parts.ndim else found.squeeze(0)

    return run


target("quantile")(_quantile(False))
target("nanquantile")(_quantile(True))


# Running ones


@target("cummax")
@lifted
def cummax(x: Tensor, dim: int) -> list[Tensor]:
    return list(x.cummax(dim))


@target("cummin")
@lifted
def cummin(x: Tensor, dim: int) -> list[Tensor]:
    return list(x.cummin(dim))


@target("logcumsumexp")
@lifted
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return x.logcumsumexp(dim)
