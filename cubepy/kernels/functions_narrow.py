"""Activations for results that are rounded to 16 bits: within 2e-4 of their value, for a third of the instructions.

All of them are x times a logistic function, written with base-2 exponentials and logarithms alone, for which a GPU
has instructions (a kernel takes them with the liberty "afn"); there is no division and no branch.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels import functions

LOG2_E = 1.4426950408889634


@cb.func
def logistic(power):
    """1 / (1 + 2**power)"""
    return cb.exp2(-cb.log2(1.0 + cb.exp2(power)))


@cb.func
def gelu_narrow(x):
    """x * Phi(x): the logit of the normal distribution function is nearly a polynomial (odd, fitted up to 6)."""
    s = cb.min(x * x, 36.0)
    p = cb.fma(s, 2.2306932342952557e-11, -3.3948170941044964e-09)
    p = cb.fma(s, p, 2.1091668145346466e-07)
    p = cb.fma(s, p, -6.70217013976071e-06)
    p = cb.fma(s, p, 0.00010055678285425529)
    p = cb.fma(s, p, 0.0004437844909261912)
    p = cb.fma(s, p, -0.105716273188591)
    p = cb.fma(s, p, -2.301577091217041)
    return x * logistic(x * p)


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
    functions.gelu_erf: gelu_narrow, functions.gelu_tanh: gelu_tanh_narrow, functions.silu: silu_narrow,
    functions.sigmoid: sigmoid_narrow,
}  # fmt: skip
"""What stands for an activation where the result has 16 bits."""
