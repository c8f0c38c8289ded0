"""One query that meets keys block by block: weights by the greatest score so far, sums of values
that are scaled when a greater one comes (Milakov and Gimelshein, 2018).
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives.exponentials import power_of_two

KEYS = 128
"""Keys of a block."""


@cb.func
def weigh(weights, sums, total, top, best, count, plan):
    """Turn the scores of a block, logarithms to the base of 2, into weights; the sums so far are
    scaled to the greatest score. Gives the lanes' sums of weights and that score.

    Args:
        weights: shared memory with the scores of `count` keys, -inf behind them.
        sums: lines of sums of weighted values.
        total: sums of weights, one for each lane.
        top: the greatest score before.
        best: the greatest one of each lane, with this block.
    """
    newest = best.max()
    base = newest if newest != -float("inf") else 0.0
    shrink = power_of_two(top - base)
    total = total * shrink
    for r in range(0, count, plan.lanes):
        line = power_of_two(weights.load(r, plan.lanes) - base)
        weights.store(r, line)
        total = total + line
    for d in cb.unroll(range(-(-plan.width // plan.lanes))):
        sums[d] = sums[d] * shrink
    return total, newest


@cb.func
def add_values(weights, sums, values, at, first, count, plan):
    """Add `count` weighted values of values[at], from the first on."""
    b, g = at
    lanes = plan.lanes
    for r in range(count):
        for d in cb.unroll(range(0, plan.width, lanes)):
            line = values.load((b, g, first + r, d), lanes, valid=plan.width - d)
            sums[d // lanes] = cb.fma(
                cb.splat(weights[r], lanes), cb.cast(line, cb.f32), sums[d // lanes]
            )


@cb.func
def finish(out, sums, whole, at, plan):
    """out[at] = the sums of values over that of weights; 0 where there is no weight."""
    b, h, i = at
    lanes = plan.lanes
    inverse = 1.0 / whole if whole != 0.0 else 0.0
    for d in cb.unroll(range(0, plan.width, lanes)):
        out.store(
            (b, h, i, d), cb.cast(sums[d // lanes] * inverse, out.dtype), valid=plan.width - d
        )
