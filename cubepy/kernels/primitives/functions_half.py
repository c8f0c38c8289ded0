"""Activations for results that are rounded to 16 bits: within 2e-4 of their value, for a third of
the instructions.

They are written with base-2 exponentials and logarithms alone, for which a GPU has instructions (a
kernel takes them with the liberty "afn"); there is no division and no branch.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.primitives import functions

LOG2_E = 1.4426950408889634


@cb.func
def logistic(power):
    """1 / (1 + 2**power)"""
    return cb.exp2(-cb.log2(1.0 + cb.exp2(power)))


@cb.func
def gelu_narrow(x):
    """x * Phi(x) as max(x, 0) - |x| * 2**(|x| * P(|x|) - 1), with one function of the special unit.

    P is our own fit of (1 + log2(Phi(-a))) / a on [0, 14]: Phi is within 8e-5 of its value up to 5,
    2e-3 up to 14. From 15 on the power is 0. Minus infinity times that 0 gives NaN, as the
    definition does.
    """
    a = cb.min(cb.abs(x), 15.0)
    p = cb.fma(a, 3.251365315474867e-08, -2.0139491878979398e-06)
    p = cb.fma(a, p, 5.35365187659537e-05)
    p = cb.fma(a, p, -0.0008086075969618296)
    p = cb.fma(a, p, 0.007803764239252688)
    p = cb.fma(a, p, -0.05203652204371662)
    p = cb.fma(a, p, -0.46082525581586237)
    p = cb.fma(a, p, -1.1502851416498394)
    return cb.fma(cb.min(x, -a), cb.exp2(cb.fma(a, p, -1.0)), cb.nan_max(x, 0.0))


@cb.func
def gelu_tanh_narrow(x):
    """The tanh approximation of gelu: 0.5 * (1 + tanh(u)) is the logistic function of 2 * u."""
    return x * logistic(x * cb.fma(x * x, -0.10294324, -2.3022082))


@cb.func
def silu_narrow(x):
    """x / (1 + exp(-x))"""
    return x * logistic(x * -LOG2_E)


@cb.func
def sigmoid_narrow(x):
    """1 / (1 + exp(-x))"""
    return logistic(x * -LOG2_E)


NARROW: dict[Any, Any] = {
    functions.gelu_erf: gelu_narrow,
    functions.gelu_tanh: gelu_tanh_narrow,
    functions.silu: silu_narrow,
    functions.sigmoid: sigmoid_narrow,
}
"""What stands for an activation where the result has 16 bits."""
