"""Blocks of a product with packed weights on their way into shared memory: codes, scales,
activations and their sums. Every lane copies what it reads.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.quant.linear.gpu.blueprint import COLUMNS


@cb.func
def fetch(buffer, at, weights, rows, block, lane, plan):
    """Start copying a block, if there is one, to piece `at` of the ring: codes, scales,
    activations, sums.

    `weights`: words, facts, blocks, panels and a cube's first panel. `rows`: x, factors and sums.
    """
    fetch_weights(buffer, at, weights, block, lane, plan)
    fetch_rows(buffer, at, rows, block, weights[2], lane, plan)


@cb.func
def fetch_weights(buffer, at, weights, block, lane, plan):
    """The codes and scales of a block."""
    words, facts, blocks, panels, first = weights
    if block < blocks:
        index = block * panels + first
        lines = plan.panels * plan.loads
        for c in cb.unroll(range(lines)):
            cb.copy_async(
                buffer,
                (at + lane) * 4 + c * 128,
                words,
                (index * (plan.loads * 32) + lane) * 4 + c * 128,
                16,
            )
        pieces = 2 * plan.panels * plan.fact_words
        target = (at + (lines + plan.lines) * 32 + plan.factor_lines + lane) * 4
        source = index * 8 * plan.fact_words + lane * 4
        for c in cb.unroll(range(0, pieces, 32)):
            if c + 32 <= pieces or lane < pieces - c:
                cb.copy_async(buffer, target + c * 4, facts, source + c * 4, 16)


@cb.func
def fetch_rows(buffer, at, rows, block, blocks, lane, plan):
    """The activations of a block and their sums; ends the group of copies."""
    x, factors, sums = rows
    if block < blocks:
        at = at + plan.panels * plan.loads * 32
        if plan.raw:
            # Rows beyond the last one are the last one again: their results are not stored.
            for q in cb.unroll(range(plan.block // 32)):
                k = block * (plan.block // 2) + q * 16 + (lane & 3) * 4
                for j in range(plan.tiles):
                    row = cb.min(
                        (cb.CUBE_POS_Y * plan.tiles + j) * COLUMNS + lane // 4, x.shape[0] - 1
                    )
                    cb.copy_async(
                        buffer, (at + lane) * 4 + (q * plan.tiles + j) * 128, x, (row, k), 16
                    )
            fetch_factors(buffer, at + plan.lines * 32, factors, block, lane, plan)
        else:
            per = plan.lines // plan.tiles
            for q in cb.unroll(range(per)):
                for j in range(plan.tiles):
                    source = (block * per + q, ((cb.CUBE_POS_Y * plan.tiles + j) * 32 + lane) * 4)
                    cb.copy_async(
                        buffer, (at + lane) * 4 + (q * plan.tiles + j) * 128, x, source, 16
                    )
        if plan.starts > 0 and lane < 8:
            starts = (at + plan.lines * 32) * 4 + 8 * plan.panels * plan.fact_words
            copy_starts(buffer, starts, sums, block, lane, plan)
    cb.copy_async_commit()


@cb.func
def fetch_factors(buffer, at, factors, block, lane, plan):
    """The factors of a block."""
    for c in cb.unroll(range(0, plan.factor_lines, 32)):
        if c + 32 <= plan.factor_lines or lane < plan.factor_lines - c:
            cb.copy_async(
                buffer, (at + c + lane) * 4, factors, block * (plan.block // 2) + (c + lane) * 4, 16
            )


@cb.func
def copy_starts(buffer, at, sums, block, lane, plan):
    """Sums of activations, one for each lane; a ring of words takes them as they are."""
    groups = plan.block // plan.width
    for g in cb.unroll(range(groups)):
        for j in range(plan.tiles):
            source = (block * groups + g, (cb.CUBE_POS_Y * plan.tiles + j) * 8 + lane)
            cb.copy_async(buffer, at + (g * plan.tiles + j) * 8 + lane, sums, source, 4)
