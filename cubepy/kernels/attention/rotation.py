"""Rotary embeddings (Su et al., 2021) of a number at a time, for kernels that rotate on the way."""

from __future__ import annotations

import cubepy as cb


@cb.func
def rotated_number(x, rotation, at, row, d, plan):
    """Number d of x[at] after rotation."""
    b, h, i = at
    cos, sin = rotation
    half = plan.rotated // 2
    value = cb.cast(x[b, h, i, d], cb.f32)
    if plan.rotated == plan.depth or d < plan.rotated:
        low = d < half
        pair = cb.select(low, d, d - half)
        other = cb.cast(x[b, h, i, cb.select(low, d + half, d - half)], cb.f32)
        sine = sin[row[0], row[1], pair]
        value = value * cos[row[0], row[1], pair] + other * cb.select(low, -sine, sine)
    return value
