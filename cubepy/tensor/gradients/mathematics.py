"""Gradients of functions of mathematics beside those of every pocket calculator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cubepy.lang.dtypes import bool_
from cubepy.tensor.array import apply, constant
from cubepy.tensor.gradients.elementwise import zero_like
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.namespace import where

DERIVATIVES: dict[str, Callable[[Any, Any], Any]] = {
    "tan": lambda x, y: y * y + 1,
    "asin": lambda x, y: (1 - x * x).rsqrt(),
    "acos": lambda x, y: -(1 - x * x).rsqrt(),
    "atan": lambda x, y: 1 / (x * x + 1),
    "sinh": lambda x, y: x.cosh(),
    "cosh": lambda x, y: x.sinh(),
    "asinh": lambda x, y: (x * x + 1).rsqrt(),
    "acosh": lambda x, y: ((x - 1) * (x + 1)).rsqrt(),
    "atanh": lambda x, y: 1 / (1 - x * x),
    "log2": lambda x, y: 1 / (x * math.log(2)),
    "log10": lambda x, y: 1 / (x * math.log(10)),
    "exp2": lambda x, y: y * math.log(2),
    "cbrt": lambda x, y: y / (x * 3),
    "erfc": lambda x, y: (-(x * x)).exp() * (-2 / math.sqrt(math.pi)),
    "erfinv": lambda x, y: (y * y).exp() * (math.sqrt(math.pi) / 2),
    "lgamma": lambda x, y: x.digamma(),
    "digamma": lambda x, y: apply("trigamma", x),
    "square": lambda x, y: x * 2,
    "cube": lambda x, y: x * x * 3,
    "reciprocal": lambda x, y: -(y * y),
}
"""Of an op: its derivative from what it was given and what it gave."""


def _by(derivative: Callable[[Any, Any], Any]) -> Callable[[Backward, Any], Any]:
    return lambda b, g: g * derivative(b.inputs[0], b.result)


for _name, _derivative in DERIVATIVES.items():
    vjp(_name)(_by(_derivative))


@vjp("atan2")
def _atan2(b: Backward, g: Any) -> Any:
    y, x = b.inputs
    along = g / (x * x + y * y)
    return along * x, -along * y


@vjp("hypot")
def _hypot(b: Backward, g: Any) -> Any:
    x, y = b.inputs
    along = g / b.result
    return along * x, along * y


@vjp("fmod")
def _fmod(b: Backward, g: Any) -> Any:
    x, y = b.inputs
    return g, -g * apply("trunc", x / y) if b.needs[1] else None


@vjp("copysign")
def _copysign(b: Backward, g: Any) -> Any:
    x, y = b.inputs
    same = apply("signbit", x) == apply("signbit", y)
    return where(same, g, -g), None


@vjp("logaddexp")
def _logaddexp(b: Backward, g: Any) -> Any:
    x, y = b.inputs
    return g * (x - y).sigmoid(), g * (y - x).sigmoid()


@vjp("clip")
def _clip(b: Backward, g: Any) -> Any:
    """Where an end limits, it has the gradient."""
    x, low, high = b.inputs
    zero = zero_like(g)
    never = constant(False, bool_)
    above = never if high is None else x > high
    below = never if low is None else x < low
    if low is not None and high is not None:
        above, below = above | (low > high), below & (low <= high)
    return (
        where(above | below, zero, g),
        None if low is None else where(below, g, zero),
        None if high is None else where(above, g, zero),
    )
