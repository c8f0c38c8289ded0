"""Linear layers on packed integers: the weights are widened in registers, inside the product.

Weights lie in blocks of 16 output channels, four neighbours along K side by side, which is what a dot product of
bytes (VNNI) consumes: int8 `[N/16][K/4][16*4]`; int4 `[N/16][K/8][16*4]`, where a byte holds k in its low half and
k + 4 in its high half. Activations are quantized to bytes row by row as they come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.attention import lane_numbers


@dataclass(frozen=True)
class Blueprint:
    """What changes the code of a quantized product.

    Attributes:
        rows: rows of a register tile.
        lines: blocks of 16 channels of a register tile.
        tiles: register tiles of a cube along M.
        group: neighbours along K that share a scale (int4), 0 for whole rows (int8).
        offset: whether groups have a minimum of their own (asymmetric int4).
        bias: whether a bias is added.
        activation: a func of the result, or None.
    """

    rows: int
    lines: int
    tiles: int
    group: int
    offset: bool
    bias: bool
    activation: Any = None


@cb.kernel
def quantize_rows(
    x: cb.Array, codes: cb.Array, scales: cb.Array, sums: cb.Array, group: cb.Comptime[int], top: cb.Comptime[int],
    shift: cb.Comptime[int], lanes: cb.Comptime[int],
):  # fmt: skip
    """codes[r, k] = round(x[r, k] / scales[r]) + shift, scales[r] = max|x[r]| / top, sums[r, g] = sums of codes.

    Sums are taken before the shift, over groups of `group` (a multiple of lanes); 0 means no sums.
    """
    row = cb.CUBE_POS
    n = x.shape[1]
    largest = cb.splat(0.0, lanes)
    for k in range(0, n, lanes):
        largest = cb.nan_max(largest, cb.abs(cb.cast(x.load((row, k), lanes), cb.f32)))
    peak = largest[0]
    for j in cb.unroll(range(1, lanes)):
        peak = cb.nan_max(peak, largest[j])
    inverse = top / peak if peak > 0 else 0.0
    scales[row] = peak / top
    if group == 0:
        for k in range(0, n, lanes):
            q = cb.round(cb.cast(x.load((row, k), lanes), cb.f32) * inverse)
            codes.store((row, k), cb.cast(q + shift, codes.dtype))
    else:
        for g in range(sums.shape[1]):
            total = cb.splat(0.0, lanes)
            for k in range(0, group, lanes):
                q = cb.round(cb.cast(x.load((row, g * group + k), lanes), cb.f32) * inverse)
                total = total + q
                codes.store((row, g * group + k), cb.cast(q + shift, codes.dtype))
            sums[row, g] = cb.cast(total.sum(), cb.i32)


@cb.kernel
def int8_product(
    words: cb.Array, scales: cb.Array, weights: cb.Array, weight_scales: cb.Array, weight_sums: cb.Array, bias,
    out: cb.Array, plan: cb.Comptime,
):  # fmt: skip
    """out = scales * weight_scales * (words . weights - 128 * weight_sums) + bias.

    words (M, K/4): four u8 activations (shifted by 128) in an i32. weights (N/16, K/4, 64) i8.
    """
    m, columns, blocks = out.shape[0], out.shape[1], weights.shape[0]
    across = (blocks + plan.lines - 1) // plan.lines
    block = (cb.CUBE_POS % across) * plan.lines
    first = (cb.CUBE_POS // across) * (plan.rows * plan.tiles)
    for row in range(first, cb.min(first + plan.rows * plan.tiles, m), plan.rows):
        done = cb.local((plan.rows, plan.lines), cb.i32, lanes=16)
        acc = cb.local((plan.rows, plan.lines), cb.i32, lanes=16)
        strip = cb.local(plan.lines, cb.i8, lanes=64)
        rows = ()
        for i in cb.unroll(range(plan.rows)):
            rows = rows + (cb.min(row + i, m - 1),)
        places = ()
        for j in cb.unroll(range(plan.lines)):
            places = places + (cb.min(block + j, blocks - 1),)
        for i in range(plan.rows):
            for j in range(plan.lines):
                acc[i, j] = cb.splat(0, 16)
        for k in range(weights.shape[1]):
            for j in cb.unroll(range(plan.lines)):
                strip[j] = weights.load((places[j], k, 0), 64)
            for i in cb.unroll(range(plan.rows)):
                x = cb.bitcast(cb.splat(words[rows[i], k], 16), cb.u8)
                for j in range(plan.lines):
                    acc[i, j] = cb.dot_i8(acc[i, j], x, strip[j])
        for i in range(plan.rows):
            for j in range(plan.lines):
                done[i, j] = acc[i, j]
        for i in range(cb.min(plan.rows, m - row)):
            for j in range(plan.lines):
                column = (block + j) * 16
                if column < columns:
                    whole = cb.cast(done[i, j] - 128 * weight_sums.load(column, 16), cb.f32)
                    value = whole * weight_scales.load(column, 16) * scales[row + i]
                    finish(value, bias, out, row + i, column, columns, plan)


@cb.func
def finish(value, bias, out, row, column, columns, plan):
    """Bias, activation, store."""
    if plan.bias:
        value = value + cb.cast(bias.load(column, 16, valid=columns - column), cb.f32)
    if plan.activation is not None:
        value = plan.activation(value)
    out.store((row, column), cb.cast(value, out.dtype), valid=columns - column)


@cb.kernel
def int4_product(
    words: cb.Array, scales: cb.Array, sums: cb.Array, weights: cb.Array, weight_scales: cb.Array, weight_offsets,
    bias, out: cb.Array, plan: cb.Comptime,
):  # fmt: skip
    """out[m, n] = scales[m] * sum over groups of (weight_scales * (words . codes) + offsets * sums) + bias.

    words (M, K/4): four i8 activations in an i32; sums (M, K/group) their sums. weights (N/16, K/8, 64) u8, two
    codes a byte; symmetric codes are stored with 8 added. weight_scales, weight_offsets (N/16, K/group, 16).
    """
    m, columns, blocks = out.shape[0], out.shape[1], weights.shape[0]
    across = (blocks + plan.lines - 1) // plan.lines
    block = (cb.CUBE_POS % across) * plan.lines
    first = (cb.CUBE_POS // across) * (plan.rows * plan.tiles)
    for row in range(first, cb.min(first + plan.rows * plan.tiles, m), plan.rows):
        done = cb.local((plan.rows, plan.lines), cb.f32, lanes=16)
        total = cb.local((plan.rows, plan.lines), cb.f32, lanes=16)
        acc = cb.local((plan.rows, plan.lines), cb.i32, lanes=16)
        rows = ()
        for i in cb.unroll(range(plan.rows)):
            rows = rows + (cb.min(row + i, m - 1),)
        places = ()
        for j in cb.unroll(range(plan.lines)):
            places = places + (cb.min(block + j, blocks - 1),)
        for i in range(plan.rows):
            for j in range(plan.lines):
                total[i, j] = cb.splat(0.0, 16)
        for g in range(weight_scales.shape[1]):
            for i in cb.unroll(range(plan.rows)):
                start = 0 if plan.offset else -8 * sums[rows[i], g]
                for j in range(plan.lines):
                    acc[i, j] = cb.splat(cb.cast(start, cb.i32), 16)
            for k in range(g * (plan.group // 8), (g + 1) * (plan.group // 8)):
                for j in cb.unroll(range(plan.lines)):
                    both = weights.load((places[j], k, 0), 64)
                    low = both & 15
                    high = both >> 4
                    for i in cb.unroll(range(plan.rows)):
                        x0 = cb.bitcast(cb.splat(words[rows[i], 2 * k], 16), cb.i8)
                        x1 = cb.bitcast(cb.splat(words[rows[i], 2 * k + 1], 16), cb.i8)
                        acc[i, j] = cb.dot_i8(cb.dot_i8(acc[i, j], low, x0), high, x1)
            for j in cb.unroll(range(plan.lines)):
                scale = cb.cast(weight_scales.load((places[j], g, 0), 16), cb.f32)
                for i in cb.unroll(range(plan.rows)):
                    total[i, j] = cb.fma(cb.cast(acc[i, j], cb.f32), scale, total[i, j])
                    if plan.offset:
                        offset = cb.cast(weight_offsets.load((places[j], g, 0), 16), cb.f32)
                        total[i, j] = cb.fma(offset, cb.splat(cb.cast(sums[rows[i], g], cb.f32), 16), total[i, j])
        for i in range(plan.rows):
            for j in range(plan.lines):
                done[i, j] = total[i, j]
        for i in range(cb.min(plan.rows, m - row)):
            for j in range(plan.lines):
                column = (block + j) * 16
                if column < columns:
                    finish(done[i, j] * scales[row + i], bias, out, row + i, column, columns, plan)


__all__ = ["Blueprint", "int4_product", "int8_product", "lane_numbers", "quantize_rows"]
