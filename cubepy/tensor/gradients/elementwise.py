"""Gradients of ops that work element by element. Formulas are those of any table of derivatives."""

from __future__ import annotations

import math
from typing import Any

from cubepy.tensor.array import apply, constant
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.namespace import where

_ROOT_PI = math.sqrt(math.pi)


def zero_like(x: Any) -> Any:
    """The number 0 of a tensor's dtype."""
    return constant(0, x.dtype)


@vjp("add")
def _add(b: Backward, g: Any) -> Any:
    return g, g


@vjp("sub")
def _sub(b: Backward, g: Any) -> Any:
    return g, -g if b.needs[1] else None


@vjp("mul")
def _mul(b: Backward, g: Any) -> Any:
    x, y = b.inputs
    return g * y if b.needs[0] else None, g * x if b.needs[1] else None


@vjp("div")
def _div(b: Backward, g: Any) -> Any:
    x, y = b.inputs
    along = g / y
    return along, -along * (x / y) if b.needs[1] else None


@vjp("pow")
def _pow(b: Backward, g: Any) -> Any:
    """x ** y by x: y x ** (y - 1), and 0 where y is 0; by y: x ** y log(x), and 0 where x is 0."""
    x, y = b.inputs
    by_x = by_y = None
    if b.needs[0]:
        by_x = g * where(y == 0, zero_like(x), y * x ** (y - 1))
    if b.needs[1]:
        log = where(x > 0, x, constant(1, x.dtype)).log()
        by_y = g * where((x == 0) & (y >= 0), zero_like(y), b.result * where(x < 0, x.log(), log))
    return by_x, by_y


@vjp("floordiv")
def _floordiv(b: Backward, g: Any) -> Any:
    return None, None


@vjp("mod")
def _mod(b: Backward, g: Any) -> Any:
    x, y = b.inputs
    return g, -g * (x // y) if b.needs[1] else None


@vjp("maximum", "minimum")
def _extreme(b: Backward, g: Any) -> Any:
    """Equal sides share the gradient, as in NumPy's and PyTorch's conventions for max and min."""
    x, y = b.inputs
    half = g * 0.5
    by_x = where(x == y, half, where(x == b.result, g, zero_like(g)))
    by_y = where(x == y, half, where(y == b.result, g, zero_like(g)))
    return by_x, by_y


@vjp("where")
def _where(b: Backward, g: Any) -> Any:
    mask = b.inputs[0]
    zero = zero_like(g)
    return (
        None,
        where(mask, g, zero) if b.needs[1] else None,
        where(mask, zero, g) if b.needs[2] else None,
    )


@vjp("neg")
def _neg(b: Backward, g: Any) -> Any:
    return -g


@vjp("abs")
def _abs(b: Backward, g: Any) -> Any:
    return g * apply("sign", b.inputs[0])


@vjp("relu", follows=True)
def _relu(b: Backward, g: Any) -> Any:
    return where(b.result > 0, g, zero_like(g))  # so that a product before may end in it


@vjp("cast")
def _cast(b: Backward, g: Any) -> Any:
    return g.astype(b.inputs[0].dtype)


@vjp("exp")
def _exp(b: Backward, g: Any) -> Any:
    return g * b.result


@vjp("expm1")
def _expm1(b: Backward, g: Any) -> Any:
    return g * (b.result + 1)


@vjp("log")
def _log(b: Backward, g: Any) -> Any:
    return g / b.inputs[0]


@vjp("log1p")
def _log1p(b: Backward, g: Any) -> Any:
    return g / (b.inputs[0] + 1)


@vjp("sqrt")
def _sqrt(b: Backward, g: Any) -> Any:
    return g * 0.5 / b.result


@vjp("rsqrt")
def _rsqrt(b: Backward, g: Any) -> Any:
    r = b.result
    return g * -0.5 * (r * r * r)


@vjp("sin")
def _sin(b: Backward, g: Any) -> Any:
    return g * b.inputs[0].cos()


@vjp("cos")
def _cos(b: Backward, g: Any) -> Any:
    return -g * b.inputs[0].sin()


@vjp("tanh")
def _tanh(b: Backward, g: Any) -> Any:
    return g * (1 - b.result * b.result)


@vjp("sigmoid")
def _sigmoid(b: Backward, g: Any) -> Any:
    return g * (b.result * (1 - b.result))


@vjp("silu", follows=True)
def _silu(b: Backward, g: Any) -> Any:
    x = b.inputs[0]
    s = x.sigmoid()
    return g * (s * (1 + x * (1 - s)))


@vjp("erf")
def _erf(b: Backward, g: Any) -> Any:
    x = b.inputs[0]
    return g * ((-(x * x)).exp() * (2 / _ROOT_PI))


@vjp("gelu", follows=True)
def _gelu(b: Backward, g: Any) -> Any:
    """x Phi(x), or its form with tanh(c (x + a x^3))."""
    x = b.inputs[0]
    if b.attrs["approximate"] == "none":
        inner = (x * math.sqrt(0.5)).erf() * 0.5 + 0.5
        return g * (inner + x * (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi)))
    c, a = math.sqrt(2 / math.pi), 0.044715
    t = ((x + x * x * x * a) * c).tanh()
    slope = (1 - t * t) * ((x * x * (3 * a) + 1) * c)
    return g * ((t + 1) * 0.5 + x * slope * 0.5)


@vjp("dropout")
def _dropout(b: Backward, g: Any) -> Any:
    """The same state drops the same elements, so no mask is kept."""
    return apply("dropout", g, b.inputs[1], p=b.attrs["p"]), None
