"""Functions of values that kernels share: activations and the steps of reductions.

Example:
    >>> import numpy as np
    >>> from cubepy import kernels as K
    >>> K.map(K.functions.relu, np.array([-1.0, 2.0], np.float32))
    array([0., 2.], dtype=float32)
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.errors import ArgumentError
from cubepy.kernels.primitives import exponentials
from cubepy.kernels.primitives.exponentials import bounded_exp, bounded_power_of_two
from cubepy.lang.builtins import Builtin
from cubepy.lang.declare import Func

ROOT = (
    0.8408964276313782,
    -0.1677350550889969,
    -0.05018438771367073,
    0.0045914058573544025,
    0.003918007016181946,
    -0.0001774002448655665,
    -0.00020999803382437676,
    1.8313590771867894e-05,
    6.294790637184633e-06,
    -1.2628420336113777e-06,
    6.811782782278897e-08,
)
"""The fourth root of Phi(-a), lowest power first."""
ROOT_END = 5.625


@cb.func
def gelu_erf(x):
    """x * Phi(x), with the error function (Hendrycks and Gimpel, 2016)."""
    if cb.PLANE_DIM > 1 or x.dtype == cb.f64:
        return 0.5 * x * (1.0 + cb.erf(x * 0.7071067811865476))
    return cb.cast(gelu_by_root(cb.cast(x, cb.f32)), x.dtype)


@cb.func
def gelu_by_root(x):
    """The same for f32 on a CPU, without a division or an exponential: Phi(-a) is the fourth power
    of a polynomial.

    The fourth root of Phi(-a) is smooth enough for degree 10 on [0, 5.625], from where on x *
    Phi(x) is below 6e-8. Our own minimax fit, the error of Phi weighted by max(a, 1): 3e-8. Results
    are within 8e-8 below zero; above, two units of their last place come to that.
    """
    a = cb.abs(x)
    b = a * a
    even = cb.fma(b, cb.fma(b, cb.fma(b, cb.fma(b, ROOT[10], ROOT[8]), ROOT[6]), ROOT[4]), ROOT[2])
    odd = cb.fma(b, cb.fma(b, cb.fma(b, cb.fma(b, ROOT[9], ROOT[7]), ROOT[5]), ROOT[3]), ROOT[1])
    root = cb.fma(a, cb.fma(a, even, odd), ROOT[0])
    square = root * root
    tail = cb.select(a < ROOT_END, square * square, 0.0)
    return x * cb.select(cb.bitcast(x, cb.i32) < 0, tail, 1.0 - tail)


@cb.func
def gelu_tanh(x):
    """The tanh approximation of gelu, from the same paper: 0.5 * (1 + tanh(u)) is 1 / (1 + exp(-2 *
    u)).
    """
    if x.dtype == cb.f64:
        return x / (1.0 + cb.exp(x * (-1.5957691216057308 - 0.07135481627260025 * x * x)))
    v = cb.cast(x, cb.f32)
    if cb.PLANE_DIM > 1:
        return cb.cast(
            v / (1.0 + cb.exp(v * (-1.5957691216057308 - 0.07135481627260025 * v * v))), x.dtype
        )
    return cb.cast(
        v / (1.0 + bounded_power_of_two(v * cb.fma(v * v, -0.1029432396, -2.302208198))), x.dtype
    )


@cb.func
def relu(x):
    """max(x, 0); NaN stays NaN."""
    return cb.nan_max(x, 0)


@cb.func
def silu(x):
    """x / (1 + exp(-x))"""
    if not x.dtype.is_float:  # whose -x may wrap
        return x / (1.0 + power_of_e(x * -1.0))
    return x / (1.0 + power_of_e(-x))


@cb.func
def sigmoid(x):
    """1 / (1 + exp(-x))"""
    if not x.dtype.is_float:
        return 1.0 / (1.0 + power_of_e(x * -1.0))
    return 1.0 / (1.0 + power_of_e(-x))


@cb.func
def exp_below_one(x):
    """e ** x of what is not above 0: for f32 on a CPU in fewer steps."""
    return cb.exp(x) if cb.PLANE_DIM > 1 or x.dtype != cb.f32 else exponentials.exp_below_one(x)


@cb.func
def power_of_e(x):
    """e ** x to be added to one: for f32 on a CPU in half of the steps."""
    return cb.exp(x) if cb.PLANE_DIM > 1 or x.dtype != cb.f32 else bounded_exp(x)


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
    "gelu": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "relu": relu,
    "silu": silu,
    "sigmoid": sigmoid,
    "tanh": tanh,
}


def activation_of(value: Any) -> Any:
    """The function that an argument `activation` names; a `@cb.func` or a builtin is itself, None
    none.

    Raises:
        ArgumentError: it is none of these.
    """
    if value is None or isinstance(value, (Func, Builtin)):
        return value
    found = ACTIVATIONS.get(value) if isinstance(value, str) else None
    if found is None:
        raise ArgumentError(
            f"there is no activation {value!r}",
            hint=f"name one of {', '.join(ACTIVATIONS)}, or give a @cb.func",
        )
    return found
