"""Small kernels that the GPU's tests launch."""

from __future__ import annotations

import cubepy as cb


@cb.kernel
def add_one(x: cb.Array):
    """x += 1"""
    i = cb.ABSOLUTE_POS
    if i < x.size:
        x[i] = x[i] + 1


@cb.kernel
def axpy(alpha, x: cb.Array, y: cb.Array, out: cb.Array):
    """out = alpha * x + y"""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = alpha * x[i] + y[i]


@cb.kernel
def slow_add(x: cb.Array, out: cb.Array, turns):
    """out[0] = x[0] + 1, after a long time."""
    v = x[0]
    for _ in range(turns):
        v = cb.sin(v) + 1.0
    out[0] = x[0] + 1.0 + cb.select(v > 100.0, 1.0, 0.0)


@cb.kernel
def beyond(x: cb.Array, out: cb.Array):
    """Reads one element too far."""
    i = cb.ABSOLUTE_POS
    out[i] = x[i + 1]


@cb.kernel
def positive(x: cb.Array, out: cb.Array):
    """out = x, which must be positive."""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        cb.debug_assert(x[i] > 0, "x must be positive")
        out[i] = x[i]
