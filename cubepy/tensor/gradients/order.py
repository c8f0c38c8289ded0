"""Gradients of sorts and scans."""

from __future__ import annotations

from typing import Any

from cubepy.tensor.array import apply, constant, filled
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.modes import mode
from cubepy.tensor.namespace import where


@vjp("sort")
def _sort(b: Backward, g: Any) -> Any:
    x = b.inputs[0]
    order = apply("argsort", x, **b.attrs)
    return _back(x, order, g, b.attrs["axis"])


@vjp("topk")
def _topk(b: Backward, g: Any, _: Any) -> Any:
    if g is None:
        return None
    x, order = b.inputs[0], b.results[1]
    if order is None:  # nobody kept them
        attrs = {name: b.attrs[name] for name in ("k", "axis", "largest")}
        order = apply("topk", x.detach(), **attrs)[1]
    return _back(x, order, g, b.attrs["axis"])


def _running(op: str) -> Any:
    def gradient(b: Backward, g: Any, _: Any) -> Any:
        if g is None:
            return None
        x, at = b.inputs[0], b.results[1]
        if at is None:  # nobody kept them
            at = apply(op, x.detach(), **b.attrs)[1]
        return _back(x, at, g, b.attrs["axis"])

    return gradient


for _name in ("cummax", "cummin"):
    vjp(_name)(_running(_name))


def _back(x: Any, order: Any, g: Any, axis: int) -> Any:
    """A gradient of elements that were read in an order, to where they were."""
    start = filled(0, g, x.shape)
    return apply("scatter", start, order, g, axis=axis, update="add")


def _turned(t: Any, axis: int) -> Any:
    """Backwards along an axis."""
    index: list[Any] = [(None, None, None)] * t.ndim
    index[axis % t.ndim] = (None, None, -1)
    return apply("slice", t, index=tuple(index))


def _sum_of_later(t: Any, axis: int, exclusive: bool) -> Any:
    """The sum of an element and those behind it, or of the latter alone."""
    return _turned(apply("cumsum", _turned(t, axis), axis=axis, exclusive=exclusive), axis)


@vjp("cumsum")
def _cumsum(b: Backward, g: Any) -> Any:
    return _sum_of_later(g, b.attrs["axis"], b.attrs["exclusive"])


@vjp("cumprod")
def _cumprod(b: Backward, g: Any) -> Any:
    """Element k is in all products behind it: their sum over x[k].

    Up to the first zero that is so. Behind it all products are zero; the gradient by the zero is
    the sum of what the products would be with a one in its place, up to the next zero. These
    formulas are not differentiable at zeros: where gradients of this one are wanted, there is no
    division.
    """
    x, axis, exclusive = b.inputs[0], b.attrs["axis"], b.attrs["exclusive"]
    if mode.enabled:
        return _of_products(x, g, axis, exclusive)
    one, zero = constant(1, x.dtype), constant(0, g.dtype)
    is_zero = x == 0
    before = apply("cumsum", is_zero.astype("i64"), axis=axis, exclusive=False)
    first = is_zero & (before == 1)
    ahead = _sum_of_later(g * b.result, axis, exclusive) / where(is_zero, one, x)
    others = apply("cumprod", where(first, one, x), axis=axis, exclusive=exclusive)
    through = before == 1
    if exclusive:
        through = apply("cumsum", is_zero.astype("i64"), axis=axis, exclusive=True) == 1
    # the products from the first zero on, with a one in its place
    summed = where(through, g * others, zero).sum(axis=axis, keepdims=True)
    return where(before == 0, ahead, where(first, summed, zero))


def _of_products(x: Any, g: Any, axis: int, exclusive: bool) -> Any:
    """p[i] s[i], with p the product of those before i, and s[i] = g[i] + x[i + 1] s[i + 1]: sums
    over the later products, each without x[i].

    The recurrence is solved by doubling: s[i] as a function a[i] s[i + d] + s[i] of the one at a
    distance.
    """
    at, n = axis % x.ndim, x.shape[axis]
    ahead = apply("cumprod", x, axis=axis, exclusive=True)
    a, s, distance = _moved(x, at, 1), _moved(g, at, 1) if exclusive else g, 1
    while distance < n:
        s = s + a * _moved(s, at, distance)
        a, distance = a * _moved(a, at, distance), 2 * distance
    return ahead * s


def _moved(t: Any, axis: int, distance: int) -> Any:
    """t[i + distance] for i along an axis, and zeros behind the end."""
    distance = min(distance, t.shape[axis])
    widths = (*(0, 0) * (t.ndim - 1 - axis), -distance, distance)
    return apply("pad", t, widths=widths, mode="constant", value=0.0)
