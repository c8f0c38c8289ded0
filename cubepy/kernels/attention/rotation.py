"""Rotary embeddings (Su et al., 2021) of a number at a time, for kernels that rotate on the way:
one here, which appends keys and values to a cache.
"""

from __future__ import annotations

import cubepy as cb


@cb.func
def rotated_number(x, cos, sin, at, row, d, plan):
    """Number d of x[at] after rotation."""
    b, h, i = at
    half = plan.rotated // 2
    value = cb.cast(x[b, h, i, d], cb.f32)
    if plan.rotated == plan.depth or d < plan.rotated:
        low = d < half
        pair = cb.select(low, d, d - half)
        other = cb.cast(x[b, h, i, cb.select(low, d + half, d - half)], cb.f32)
        sine = sin[row[0], row[1], pair]
        value = value * cos[row[0], row[1], pair] + other * cb.select(low, -sine, sine)
    return value


@cb.kernel
def append(
    k: cb.Array,
    v: cb.Array,
    cos,
    sin,
    keys: cb.Array,
    values: cb.Array,
    starts: cb.Array,
    plan: cb.Comptime,
):
    """keys[b, g, starts[b] + i] = rotated k[b, g, i], and values as they are; a cube does one
    position of one head. Positions beyond the cache are dropped.

    k (B, G, L, D), v (B, G, L, E), keys (B, G, C, D), values (B, G, C, E), cos and sin (1 or B, L,
    rotated / 2).
    """
    length, heads = k.shape[2], k.shape[1]
    i = cb.CUBE_POS % length
    g = cb.CUBE_POS // length % heads
    b = cb.CUBE_POS // (length * heads)
    position = cb.cast(starts[b], cb.i64) + i
    if position >= 0 and position < keys.shape[2]:
        for d in range(cb.UNIT_POS, plan.depth, cb.CUBE_DIM):
            value = cb.cast(k[b, g, i, d], cb.f32)
            if plan.rotated > 0:
                value = rotated_number(k, cos, sin, (b, g, i), (b, i), d, plan)
            keys[b, g, position, d] = cb.cast(value, keys.dtype)
        for d in range(cb.UNIT_POS, plan.width, cb.CUBE_DIM):
            values[b, g, position, d] = cb.cast(v[b, g, i, d], values.dtype)
