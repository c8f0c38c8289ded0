"""Gradients of reductions: what was summed up gets the gradient of the sum."""

from __future__ import annotations

import math
from typing import Any

from cubepy.tensor.array import apply, constant
from cubepy.tensor.gradients.elementwise import zero_like
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.modes import mode
from cubepy.tensor.namespace import where
from cubepy.tensor.ops.op import axes_in


def with_axes(b: Backward, t: Any) -> Any:
    """A reduced tensor with the reduced axes as 1."""
    x = b.inputs[0]
    if b.attrs["axis"] is None and not t.ndim:
        return t  # a number broadcasts as it is
    axes = axes_in(b.attrs["axis"], x.ndim, "sum")
    return t.reshape(tuple(1 if d in axes else n for d, n in enumerate(x.shape)))


def count(b: Backward) -> int:
    """How many elements became one."""
    x = b.inputs[0]
    return math.prod(x.shape[a] for a in axes_in(b.attrs["axis"], x.ndim, "sum"))


@vjp("sum")
def _sum(b: Backward, g: Any) -> Any:
    return with_axes(b, g).expand(b.inputs[0].shape)


@vjp("mean")
def _mean(b: Backward, g: Any) -> Any:
    return (with_axes(b, g) / max(count(b), 1)).expand(b.inputs[0].shape)


@vjp("max", "min")
def _extreme(b: Backward, g: Any) -> Any:
    """Elements that are the extreme share the gradient."""
    x = b.inputs[0]
    found = x == with_axes(b, b.result)
    several = found.astype(g.dtype).sum(axis=b.attrs["axis"], keepdims=True)
    share = with_axes(b, g) / with_axes(b, several)
    return where(found, share, zero_like(share))


@vjp("prod")
def _prod(b: Backward, g: Any) -> Any:
    """The product of the others; where there is a zero, only the only one has a gradient. Where
    gradients of this one are wanted, it is those before times those behind: a smooth function.
    """
    x = b.inputs[0]
    axis = b.attrs["axis"]
    if mode.enabled:
        return with_axes(b, g) * _product_of_others(x, axes_in(axis, x.ndim, "prod"))
    zero = x == 0
    zeros = with_axes(b, zero.astype(x.dtype).sum(axis=axis, keepdims=True))
    others = where(zero, zero_like(x) + 1, x)
    product = with_axes(b, others.prod(axis=axis, keepdims=True))
    g = with_axes(b, g)
    some = where((zeros == 1) & zero, product, zero_like(x))
    return g * where(zeros == 0, product / others, some)


def _product_of_others(x: Any, axes: tuple[int, ...]) -> Any:
    order = (*(d for d in range(x.ndim) if d not in axes), *axes)
    moved = x.permute(order)
    rows = moved.reshape(*moved.shape[: x.ndim - len(axes)], math.prod(x.shape[a] for a in axes))
    before = apply("cumprod", rows, axis=-1, exclusive=True)
    behind = apply("cumprod", rows.flip(-1), axis=-1, exclusive=True).flip(-1)
    back = sorted(range(x.ndim), key=lambda k: order[k])
    return (before * behind).reshape(moved.shape).permute(back)


def _from_mean(b: Backward) -> Any:
    """Differences to the mean, over the count that divides."""
    x, axis = b.inputs[0], b.attrs["axis"]
    divisor = max(count(b) - b.attrs["correction"], 0)
    return (x - x.mean(axis=axis, keepdims=True)) * (1 / divisor if divisor else math.inf)


@vjp("var")
def _var(b: Backward, g: Any) -> Any:
    return with_axes(b, g) * _from_mean(b) * 2


@vjp("std")
def _std(b: Backward, g: Any) -> Any:
    """0 where all elements are the same, as in torch."""
    none = b.result == 0
    scale = where(none, zero_like(g), g / where(none, 1, b.result))
    return with_axes(b, scale) * _from_mean(b)


@vjp("logsumexp")
def _logsumexp(b: Backward, g: Any) -> Any:
    x, top = b.inputs[0], with_axes(b, b.result)
    finite = where(apply("isfinite", top), top, zero_like(top))
    return (with_axes(b, g) * (x - finite).exp()).astype(x.dtype)


@vjp("norm")
def _norm(b: Backward, g: Any) -> Any:
    """sign(x) (|x| / norm)^(ord - 1); of the largest magnitude the share of those that have it."""
    x, order = b.inputs[0], b.attrs["ord"]
    norm, g = with_axes(b, b.result), with_axes(b, g)
    sign = apply("sign", x)
    if math.isinf(order):
        found = x.abs() == norm
        several = found.astype(g.dtype).sum(axis=b.attrs["axis"], keepdims=True)
        return where(found, g * sign / with_axes(b, several), zero_like(g))
    if order == 1:
        return g * sign
    safe = where(norm == 0, constant(1, norm.dtype), norm)
    if order == 2:
        return g * (x / safe)
    size = x.abs()
    if order < 1:  # infinite at 0, where the sign is 0
        size = where(size == 0, constant(1, size.dtype), size)
    return g * sign * (size / safe) ** (order - 1)
