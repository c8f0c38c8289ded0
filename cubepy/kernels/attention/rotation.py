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
    if d < plan.rotated:
        if d < half:
            value = (
                value * cos[row[0], row[1], d]
                - cb.cast(x[b, h, i, d + half], cb.f32) * sin[row[0], row[1], d]
            )
        else:
            value = (
                value * cos[row[0], row[1], d - half]
                + cb.cast(x[b, h, i, d - half], cb.f32) * sin[row[0], row[1], d - half]
            )
    return value
