"""Gradients of statistics."""

from __future__ import annotations

import math
from typing import Any

from cubepy.tensor.array import apply, constant
from cubepy.tensor.gradients.elementwise import zero_like
from cubepy.tensor.gradients.reductions import count, with_axes
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.namespace import where


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
    return with_axes(b, g / b.result) * _from_mean(b)


@vjp("logsumexp")
def _logsumexp(b: Backward, g: Any) -> Any:
    x, top = b.inputs[0], with_axes(b, b.result)
    finite = where(apply("isfinite", top), top, zero_like(top))
    return with_axes(b, g) * (x - finite).exp()


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
    return g * sign * (x.abs() / safe) ** (order - 1)
