"""Products of many rows of activations in bytes, as a prompt has, with weights in blocks.

Blocks become panels once for a product: codes as words of four neighbours along K, for as many rows
of the weight as a line has lanes, and what goes with each group of them. A tile of activations and
panels has its sums in registers: exact integers of a group, then one float each.
"""

from __future__ import annotations

from dataclasses import dataclass

import cubepy as cb
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.models.packed.codes import GROUP, ZERO, large_codes, large_scales, most_of, small_codes
from cubepy.models.packed.kernels import Blueprint, ask_ahead, half_at

HALVES = ("Q2_K", "Q3_K", "Q6_K")
"""Types with a scale for 16 codes; others have one for 32."""


@dataclass(frozen=True)
class Tile:
    """What a step has in registers.

    Attributes:
        blocks: of the weight.
        group: codes with a scale of their own.
        rows: of activations.
        panels: of the weight.
        deep: tiles of rows that a cube does.
    """

    blocks: Blueprint
    group: int
    rows: int
    panels: int
    deep: int


def tile_of(blocks: Blueprint) -> Tile:
    """What fits the registers: 32 of them, or 16 where a line has 8 lanes."""
    group = 16 if blocks.kind in HALVES else GROUP
    return Tile(blocks, group, 3 if blocks.lanes == 8 else 6, 2, 8)


@cb.kernel
def lay_panels(
    raw: cb.Array,
    halves: cb.Array,
    words: cb.Array,
    facts: cb.Array,
    plan: cb.Comptime,
    group: cb.Comptime[int],
):
    """words[panel, k, r] = codes 4 * k to 4 * k + 3 of row panel * lanes + r, and facts[panel, g, 0
    or 1, r] the scale of its group g and what is added to each number; a cube does a row.
    """
    row, lanes = cb.CUBE_POS, plan.lanes
    panel, r = row // lanes, row % lanes
    n = cb.min(row, raw.shape[0] - 1)
    for block in range(words.shape[1] * 4 // plan.elements):
        base, half = block * plan.nbytes, block * (plan.nbytes // 2)
        ask_ahead(raw, n, base, plan)
        if plan.elements == GROUP:
            four = cb.bitcast(small_codes(raw, n, base, plan), cb.u32)
            for k in cb.unroll(range(8)):
                words[panel, block * 8 + k, r] = four[k]
            scale = half_at(halves, n, half)
            facts[panel, block, 0, r] = scale
            if plan.kind in ZERO:
                facts[panel, block, 1, r] = scale * -ZERO[plan.kind]
            else:
                facts[panel, block, 1, r] = half_at(halves, n, half + 1)
        else:
            scales, least = large_scales(raw, halves, n, base, half, plan)
            for part in cb.unroll(range(8)):
                four = cb.bitcast(large_codes(raw, n, base, part, plan), cb.u32)
                for k in cb.unroll(range(8)):
                    words[panel, block * 64 + part * 8 + k, r] = four[k]
            for part in cb.unroll(range(256 // group)):
                at = part * (group // 16)
                g = block * (256 // group) + part
                facts[panel, g, 0, r] = scales[at]
                if plan.kind in ZERO:
                    facts[panel, g, 1, r] = scales[at] * -ZERO[plan.kind]
                else:
                    facts[panel, g, 1, r] = -least[at]


@cb.func
def row_facts(facts, m, g, plan, group):
    """The scale of group g of row m of activations, and the sum of what was rounded."""
    if plan.elements == GROUP:
        return facts[m, 2 * g], facts[m, 2 * g + 1]
    block, part = g // (256 // group), g % (256 // group)
    scale = facts[m, block * 24 + part * group // GROUP]
    if group == 16:
        return scale, facts[m, block * 24 + 8 + part]
    first = block * 24 + 8 + 2 * part
    return scale, facts[m, first] + facts[m, first + 1]


@cb.kernel
def panel_product(
    rows: cb.Array,
    given: cb.Array,
    words: cb.Array,
    facts: cb.Array,
    bias,
    residual,
    out: cb.Array,
    tile: cb.Comptime,
):
    """out[0, m] = activation(x[m] @ weight.T + bias) + residual[0, m]; a cube does some panels of
    the weight and `deep` tiles of rows.

    rows (M, K / 4) u32 are bytes and given their facts, as `round_rows` gives them; words and facts
    are those of `lay_panels`.
    """
    plan, group, lanes = tile.blocks, tile.group, tile.blocks.lanes
    epilogue = LineEpilogue(out, plan.activation, bias, residual)
    count, length, groups = out.shape[2], rows.shape[0], facts.shape[1]
    most = most_of(plan.kind)
    across = (words.shape[0] + tile.panels - 1) // tile.panels
    chunk, side = cb.CUBE_POS // across, cb.CUBE_POS % across
    acc = cb.local((tile.rows, tile.panels), cb.f32, lanes=lanes)
    sums = cb.local((tile.rows, tile.panels), cb.i32, lanes=lanes)
    p = tuple(
        cb.min(side * tile.panels + i, words.shape[0] - 1) for i in cb.unroll(range(tile.panels))
    )
    for step in range(tile.deep):
        begin = (chunk * tile.deep + step) * tile.rows
        if begin < length:
            m = cb.min(begin, length - tile.rows)
            for r in cb.unroll(range(tile.rows)):
                for i in cb.unroll(range(tile.panels)):
                    acc[r, i] = cb.splat(cb.f32(0.0), lanes)
            for g in range(groups):
                for r in cb.unroll(range(tile.rows)):
                    for i in cb.unroll(range(tile.panels)):
                        sums[r, i] = cb.splat(cb.i32(0), lanes)
                for k in cb.unroll(range(group // 4)):
                    at = g * (group // 4) + k
                    codes = tuple(
                        cb.bitcast(words.load((p[i], at, 0), lanes), cb.u8)
                        for i in cb.unroll(range(tile.panels))
                    )
                    for r in cb.unroll(range(tile.rows)):
                        x = cb.bitcast(cb.splat(rows[m + r, at], lanes), cb.i8)
                        for i in cb.unroll(range(tile.panels)):
                            sums[r, i] = cb.dot_i8(sums[r, i], codes[i], x, most)
                for i in cb.unroll(range(tile.panels)):
                    scales = facts.load((p[i], g, 0, 0), lanes)
                    least = facts.load((p[i], g, 1, 0), lanes)
                    for r in cb.unroll(range(tile.rows)):
                        scale, total = row_facts(given, m + r, g, plan, group)
                        whole = cb.cast(sums[r, i], cb.f32)
                        acc[r, i] = cb.fma(whole, scales * scale, acc[r, i])
                        acc[r, i] = cb.fma(least, cb.splat(total, lanes), acc[r, i])
            for i in cb.unroll(range(tile.panels)):
                first = p[i] * lanes
                for r in cb.unroll(range(tile.rows)):
                    epilogue.finish(acc[r, i], (0, m + r, first), count - first)
