"""Kernels that do nothing but find a device's limits."""

from __future__ import annotations

import cubepy as cb


@cb.kernel
def read_all(x: cb.Array, out: cb.Array, part, streams: cb.Comptime[int], lanes: cb.Comptime[int]):
    """Each cube sums `streams` parts of x, which it reads at the same time, its units side
    by side.
    """
    acc = cb.local((streams,), cb.f32, lanes=lanes)
    for j in range(streams):
        acc[j] = cb.splat(0.0, lanes)
    first = cb.CUBE_POS * part * streams
    for i in range(cb.UNIT_POS * lanes, part, cb.CUBE_DIM * lanes):
        for j in cb.unroll(range(streams)):
            acc[j] = acc[j] + x.load(first + j * part + i, lanes)
    total = cb.splat(0.0, lanes)
    for j in cb.unroll(range(streams)):
        total = total + acc[j]
    out[cb.ABSOLUTE_POS] = total.sum()


@cb.kernel
def multiply_add(out: cb.Array, factor, steps, lines: cb.Comptime[int], lanes: cb.Comptime[int]):
    """Chains of fused multiply-adds, `lines` of them independent; nothing is read."""
    acc = cb.local((lines,), cb.f32, lanes=lanes)
    for j in range(lines):
        acc[j] = cb.splat(cb.cast(cb.ABSOLUTE_POS + j, cb.f32), lanes)
    f = cb.splat(cb.cast(factor, cb.f32), lanes)
    for _ in range(steps):
        for j in cb.unroll(range(lines)):
            acc[j] = cb.fma(acc[j], f, f)
    total = cb.splat(0.0, lanes)
    for j in cb.unroll(range(lines)):
        total = total + acc[j]
    out[cb.ABSOLUTE_POS] = total.sum()
