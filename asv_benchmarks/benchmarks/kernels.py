"""Kernels that only the benchmarks need."""

from __future__ import annotations

import cubepy as cb


@cb.func
def axpy_of(x, y):
    """2 * x + y"""
    return 2.0 * x + y


@cb.kernel
def add_one(x: cb.Array, out: cb.Array):
    """out = x + 1, the smallest kernel there is."""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] + 1


@cb.kernel
def scaled(a: cb.f32, x: cb.Array, out: cb.Array):
    """out = a x"""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = a * x[i]


@cb.func
def chain_of(x):
    """tanh(exp(-x x) + x / 2)"""
    return cb.tanh(cb.exp(-x * x) + 0.5 * x)
