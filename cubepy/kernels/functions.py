"""Functions of values that kernels share: activations and the steps of reductions."""

from __future__ import annotations

import cubepy as cb


@cb.func
def gelu_erf(x):
    """x * Phi(x), with the error function (Hendrycks and Gimpel, 2016)."""
    return 0.5 * x * (1.0 + cb.erf(x * 0.7071067811865476))


@cb.func
def gelu_tanh(x):
    """The tanh approximation of gelu, from the same paper."""
    return 0.5 * x * (1.0 + cb.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


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
