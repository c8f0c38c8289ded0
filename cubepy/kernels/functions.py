"""Functions of values that kernels share: activations and the steps of reductions."""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.errors import ArgumentError
from cubepy.lang.builtins import Builtin
from cubepy.lang.declare import Func


@cb.func
def gelu_erf(x):
    """x * Phi(x), with the error function (Hendrycks and Gimpel, 2016)."""
    if cb.PLANE_DIM > 1 or x.dtype == cb.f64:
        return 0.5 * x * (1.0 + cb.erf(x * 0.7071067811865476))
    return cb.cast(gelu_by_power(cb.cast(x, cb.f32)), x.dtype)


@cb.func
def gelu_by_power(x):
    """The same as max(x, 0) - |x| * 2**(|x| * P(|x|) - 1), for f32 on a CPU: half of the instructions.

    P is our own fit of (1 + log2(Phi(-a))) / a on [0, 6], of which 5e-8 of Phi come where that is above 0.1 (absolutely
    below), and falls from there on: the power is 0 from 15 on, where polynomials of larger numbers would overflow.
    """
    a = cb.abs(x)
    a = cb.select(a > 15.0, 15.0, a)
    b = a * a
    low = cb.fma(
        b, cb.fma(a, 0.0071369175028184835, -0.052545168599865764), cb.fma(a, -0.45919311076685865, -1.151106734238689)
    )
    high = cb.fma(
        b,
        cb.fma(a, -2.404265208703192e-06, 3.4250635942143196e-05),
        cb.fma(a, -0.00016203713497047218, -0.00019445647948349132),
    )
    power = cb.fma(a, cb.fma(b * b, high, low), -1.0)
    # Minus infinity times the 0 that the power is there gives NaN, as the definition does.
    return cb.fma(cb.select(x < 0.0, x, -a), cb.exp2(power), cb.select(x < 0.0, 0.0, x))


@cb.func
def gelu_tanh(x):
    """The tanh approximation of gelu, from the same paper: 0.5 * (1 + tanh(u)) is 1 / (1 + exp(-2 * u))."""
    v = cb.cast(x, cb.f64 if x.dtype == cb.f64 else cb.f32)
    return cb.cast(v / (1.0 + cb.exp(v * (-1.5957691216057308 - 0.07135481282553853 * v * v))), x.dtype)


@cb.func
def relu(x):
    """max(x, 0); NaN stays NaN."""
    return cb.nan_max(x, 0)


@cb.func
def silu(x):
    """x / (1 + exp(-x))"""
    return x / (1.0 + cb.exp(-x))


@cb.func
def sigmoid(x):
    """1 / (1 + exp(-x))"""
    return 1.0 / (1.0 + cb.exp(-x))


@cb.func
def tanh(x):
    """Hyperbolic tangent."""
    return cb.tanh(x)


@cb.func
def add(a, b):
    """a + b"""
    return a + b


@cb.func
def mul(a, b):
    """a * b"""
    return a * b


@cb.func
def sub(a, b):
    """a - b"""
    return a - b


@cb.func
def div(a, b):
    """a / b"""
    return a / b


@cb.func
def smaller(a, b):
    """The smaller; NaN if either is NaN."""
    return cb.nan_min(a, b)


@cb.func
def larger(a, b):
    """The larger; NaN if either is NaN."""
    return cb.nan_max(a, b)


ACTIVATIONS = {
    "gelu": gelu_erf, "gelu_tanh": gelu_tanh, "relu": relu, "silu": silu, "sigmoid": sigmoid, "tanh": tanh,
}  # fmt: skip


def activation_of(value: Any) -> Any:
    """The function that an argument `activation` names; a `@cb.func` or a builtin is itself, None none.

    Raises:
        ArgumentError: it is none of these.
    """
    if value is None or isinstance(value, (Func, Builtin)):
        return value
    found = ACTIVATIONS.get(value) if isinstance(value, str) else None
    if found is None:
        raise ArgumentError(
            f"there is no activation {value!r}", hint=f"name one of {', '.join(ACTIVATIONS)}, or give a @cb.func"
        )
    return found
