"""Kernels of linear layers with quantized weights; their meaning is that of
`cubepy.quant.linear.reference`.

Activations become bytes first, four neighbours to an i32, so that one broadcast feeds 16 channels;
the products then read packed weights as they lie (`cubepy.quant.weights.packing`) and never write a
float weight anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.epilogue import LineEpilogue

PANEL = 16


@dataclass(frozen=True)
class Blueprint:
    """What changes the code of a product.

    Attributes:
        rows: rows of activations of a register tile.
        lines: panels of 16 channels of a register tile.
        group: inputs that share a scale (int4), or 0.
        symmetric: whether the minimum is -8 times the scale (int4).
        activation: a func of the result, or None.
        lanes: channels of a panel.
    """

    rows: int
    lines: int
    group: int = 0
    symmetric: bool = True
    activation: Any = None
    lanes: int = PANEL


@cb.func
def scaled_line(x, factors, row, k, depth, lanes):
    """x[row] * factors from k on, zero beyond the end."""
    factor = cb.cast(factors.load((k,), lanes, valid=depth - k), cb.f32)
    return cb.cast(x.load((row, k), lanes, valid=depth - k), cb.f32) * factor


@cb.kernel
def quantize_rows(
    x: cb.Array,
    factors: cb.Array,
    codes: cb.Array,
    facts: cb.Array,
    gain,
    signed: cb.Comptime[bool],
    group: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """One row a cube: codes[m] = bytes of x[m] * factors; facts[m] = scale * gain, zero, the sum of
    each group.

    Bytes are unsigned around zero, or 128 less and signed. Where a row holds NaN or infinity its
    scale is NaN, and so are its results.
    """
    row = cb.CUBE_POS
    depth = x.shape[1]
    low, high, spoilt = (
        cb.splat(cb.f32(0.0), lanes),
        cb.splat(cb.f32(0.0), lanes),
        cb.splat(cb.f32(0.0), lanes),
    )
    for k in range(0, depth, lanes):
        value = scaled_line(x, factors, row, k, depth, lanes)
        low, high = cb.min(low, value), cb.max(high, value)
        spoilt = cb.fma(value, cb.splat(cb.f32(0.0), lanes), spoilt)
    bottom = low.min()
    scale = (high.max() - bottom) * cb.f32(1 / 255)
    inverse = cb.f32(0.0)
    if scale > 0.0:
        inverse = cb.f32(1.0) / scale
    zero = cb.round(-bottom * inverse)
    shift = cb.f32(128.0) if signed else cb.f32(0.0)
    dtype = cb.i8 if signed else cb.u8
    facts[row, 0] = scale * gain + spoilt.sum()
    facts[row, 1] = zero - shift
    total = cb.splat(cb.f32(0.0), lanes)
    for k in range(0, depth, lanes):
        value = scaled_line(x, factors, row, k, depth, lanes)
        code = cb.clamp(cb.round(value * inverse) + zero, cb.f32(0.0), cb.f32(255.0)) - shift
        codes.store((row, k), cb.cast(code, dtype), valid=codes.shape[1] - k)
        if group > 0:
            total = total + code
            if (k + lanes) % group == 0:
                facts[row, 2 + k // group] = total.sum()
                total = cb.splat(cb.f32(0.0), lanes)


@cb.func
def finish_tile(values, epilogue, row, panel, panels, skip, plan):
    """The epilogue of a tile of floats; its first `skip` rows belong to the tile before."""
    for i in range(plan.rows):
        if i >= skip:
            for j in cb.unroll(range(plan.lines)):
                if panel + j < panels:
                    column = (panel + j) * plan.lanes
                    valid = epilogue.out.shape[2] - column
                    epilogue.finish(values[i, j], (0, row + i, column), valid)


@cb.kernel
def int8_product(
    words: cb.Array,
    facts: cb.Array,
    codes: cb.Array,
    scales: cb.Array,
    sums: cb.Array,
    bias,
    residual,
    out: cb.Array,
    block_rows,
    plan: cb.Comptime,
):
    """out[0] = words (M, K/4 of four u8) times codes (panels, K/4 * 64 of i8), in exact integers,
    then scaled.
    """
    epilogue = LineEpilogue(out, plan.activation, bias, residual)
    rows, lines, lanes = plan.rows, plan.lines, plan.lanes
    m, fours, panels = words.shape[0], words.shape[1], codes.shape[0]
    panel_groups = (panels + lines - 1) // lines
    panel = (cb.CUBE_POS % panel_groups) * lines
    start = (cb.CUBE_POS // panel_groups) * block_rows
    panel_indices = tuple(cb.min(panel + j, panels - 1) for j in cb.unroll(range(lines)))
    acc = cb.local((rows, lines), cb.i32, lanes=lanes)
    b_lines = cb.local(lines, cb.i8, lanes=4 * lanes)
    done = cb.local((rows, lines), cb.f32, lanes=lanes)
    for tile in range(start, cb.min(start + block_rows, m), rows):
        row = cb.min(tile, m - rows)
        for i in range(rows):
            for j in range(lines):
                acc[i, j] = cb.splat(cb.i32(0), lanes)
        for k in range(fours):
            for j in cb.unroll(range(lines)):
                b_lines[j] = codes.load((panel_indices[j], k * (4 * lanes)), 4 * lanes)
            for i in range(rows):
                four = cb.bitcast(cb.splat(words[row + i, k], lanes), cb.u8)
                for j in range(lines):
                    acc[i, j] = cb.dot_i8(acc[i, j], four, b_lines[j])
        for i in range(rows):
            zero = cb.splat(cb.cast(facts[row + i, 1], cb.i32), lanes)
            scale = cb.splat(facts[row + i, 0], lanes)
            for j in cb.unroll(range(lines)):
                exact = acc[i, j] - zero * sums.load((panel_indices[j], 0), lanes)
                done[i, j] = cb.cast(exact, cb.f32) * (
                    scale * scales.load((panel_indices[j], 0), lanes)
                )
        finish_tile(done, epilogue, row, panel, panels, tile - row, plan)


@cb.kernel
def int4_product(
    words: cb.Array,
    facts: cb.Array,
    codes: cb.Array,
    scales: cb.Array,
    minimums,
    sums: cb.Array,
    bias,
    residual,
    out: cb.Array,
    block_rows,
    plan: cb.Comptime,
):
    """out[0] = words (M, K/4 of four i8) times codes (panels, K/8 * 64 of two u4), scaled group by
    group.

    The codes of a group are summed in exact integers and turned to floats once for each group.
    """
    epilogue = LineEpilogue(out, plan.activation, bias, residual)
    rows, lines, lanes, group = plan.rows, plan.lines, plan.lanes, plan.group
    m, panels = words.shape[0], codes.shape[0]
    groups = facts.shape[1] - 2
    panel_groups = (panels + lines - 1) // lines
    panel = (cb.CUBE_POS % panel_groups) * lines
    start = (cb.CUBE_POS // panel_groups) * block_rows
    panel_indices = tuple(cb.min(panel + j, panels - 1) for j in cb.unroll(range(lines)))
    acc = cb.local((rows, lines), cb.i32, lanes=lanes)
    low = cb.local(lines, cb.u8, lanes=4 * lanes)
    high = cb.local(lines, cb.u8, lanes=4 * lanes)
    total = cb.local((rows, lines), cb.f32, lanes=lanes)
    done = cb.local((rows, lines), cb.f32, lanes=lanes)
    for tile in range(start, cb.min(start + block_rows, m), rows):
        row = cb.min(tile, m - rows)
        for i in range(rows):
            for j in range(lines):
                total[i, j] = cb.splat(cb.f32(0.0), lanes)
        for g in range(groups):
            for i in range(rows):
                offset = cb.i32(0)
                if plan.symmetric:
                    offset = cb.cast(facts[row + i, 2 + g], cb.i32) * -8
                for j in range(lines):
                    acc[i, j] = cb.splat(offset, lanes)
            for e in range(g * (group // 8), (g + 1) * (group // 8)):
                for j in cb.unroll(range(lines)):
                    both = codes.load((panel_indices[j], e * (4 * lanes)), 4 * lanes)
                    low[j] = both & 15
                    high[j] = both >> 4
                for i in range(rows):
                    first = cb.bitcast(cb.splat(words[row + i, 2 * e], lanes), cb.i8)
                    second = cb.bitcast(cb.splat(words[row + i, 2 * e + 1], lanes), cb.i8)
                    for j in range(lines):
                        acc[i, j] = cb.dot_i8(
                            cb.dot_i8(acc[i, j], low[j], first, most=15), high[j], second, most=15
                        )
            for j in cb.unroll(range(lines)):
                scale = cb.cast(scales.load((panel_indices[j], g * lanes), lanes), cb.f32)
                for i in range(rows):
                    total[i, j] = cb.fma(cb.cast(acc[i, j], cb.f32), scale, total[i, j])
                if not plan.symmetric:
                    least = cb.cast(minimums.load((panel_indices[j], g * lanes), lanes), cb.f32)
                    for i in range(rows):
                        total[i, j] = cb.fma(
                            cb.splat(facts[row + i, 2 + g], lanes), least, total[i, j]
                        )
        for i in range(rows):
            zero = cb.splat(facts[row + i, 1], lanes)
            scale = cb.splat(facts[row + i, 0], lanes)
            for j in cb.unroll(range(lines)):
                done[i, j] = (total[i, j] - zero * sums.load((panel_indices[j], 0), lanes)) * scale
        finish_tile(done, epilogue, row, panel, panels, tile - row, plan)
