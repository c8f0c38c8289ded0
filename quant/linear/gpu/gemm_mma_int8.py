"""Kernels of linear layers with packed weights and activations in eight bits, for planes with
matrix units.

They compute what `cubepy.quant.weights.weight` says, in exact integers: four bits of a code are one
operand, bytes of activations the other. Sums of int4 groups start at 1.5 * 2^23, so that their bits
are those of a float.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.quant.linear.gpu.epilogue import finish
from cubepy.quant.linear.gpu.fetch import fetch, fetch_rows, fetch_weights
from cubepy.quant.linear.gpu.gemm_mma import fact, line4, scaled

MAGIC = 0x4B400000
"""The bits of 1.5 * 2^23 as a float: integers below 2^22 may be added to them."""
ROW_UNITS = 256
"""Units that quantize a row."""


@cb.func
def of_the_cube(value, largest: cb.Comptime[bool]):
    """The largest or smallest value of all units of a cube."""
    planes = cb.CUBE_DIM // cb.PLANE_DIM
    shared = cb.shared(planes, cb.f32)
    mine = cb.plane_max(value) if largest else cb.plane_min(value)
    if cb.UNIT_POS_PLANE == 0:
        shared[cb.PLANE_POS] = mine
    cb.sync_cube()
    result = shared[0]
    for k in range(1, planes):
        result = cb.max(result, shared[k]) if largest else cb.min(result, shared[k])
    return result


@cb.func
def packed_bytes(code, first: cb.Comptime[int]):
    """Four neighbours as the bytes 0, 2, 1, 3 of a word."""
    one, two = code[first] & cb.i32(255), code[first + 1] & cb.i32(255)
    three, four = code[first + 2] & cb.i32(255), code[first + 3] & cb.i32(255)
    return cb.cast(one | (three << 8) | (two << 16) | (four << 24), cb.u32)


@cb.func
def row_facts(x, factors, row, depth):
    """Scale, its inverse, and zero point of a row's bytes, found by a whole cube; NaN as scale if
    it is not finite.
    """
    low, high, spoilt = cb.f32(0.0), cb.f32(0.0), cb.f32(0.0)
    for k in range(cb.UNIT_POS * 8, depth, ROW_UNITS * 8):
        value = scaled(x, factors, row, k)
        low, high = cb.min(low, value.min()), cb.max(high, value.max())
        spoilt = spoilt + (value * cb.f32(0.0)).sum()
    bad = of_the_cube(cb.select(spoilt == cb.f32(0.0), cb.f32(0.0), cb.f32(1.0)), True)
    bottom = of_the_cube(low, False)
    scale = (of_the_cube(high, True) - bottom) * cb.f32(1 / 255)
    inverse = cb.f32(0.0)
    if scale > 0.0:
        inverse = cb.f32(1.0) / scale
    return cb.select(bad > 0.0, cb.f32(float("nan")), scale), inverse, cb.round(-bottom * inverse)


@cb.func
def row_codes(value, inverse, zero, shift):
    """Bytes as floats, `shift` less."""
    return cb.clamp(cb.round(value * inverse) + zero, cb.f32(0.0), cb.f32(255.0)) - shift


@cb.kernel
def quantize_rows_for_planes(
    x: cb.Array,
    factors: cb.Array,
    codes: cb.Array,
    facts: cb.Array,
    gain: cb.f32,
    signed: cb.Comptime[bool],
    early: cb.Comptime[bool] = False,
):
    """One row a cube: codes[k / 64, tile, lane, 4 words] = bytes of x[m] * factors; facts[m] =
    scale * gain, zero.

    The bytes are those of `cubepy.quant.linear.cpu_kernels.quantize_rows`, and zero beyond the end
    of a row.
    """
    if early:
        cb.start_next()
        cb.wait_previous()
    row = cb.CUBE_POS
    depth = x.shape[1]
    scale, inverse, zero = row_facts(x, factors, row, depth)
    shift = cb.f32(128.0) if signed else cb.f32(0.0)
    if cb.UNIT_POS == 0:
        facts[row, 0] = scale * gain
        facts[row, 1] = zero - shift
    for k in range(cb.UNIT_POS * 8, codes.shape[0] * 64, ROW_UNITS * 8):
        value = scaled(x, factors, row, k)
        code = cb.cast(row_codes(value, inverse, zero, shift), cb.i32)
        if k + 8 > depth:
            for i in cb.unroll(range(8)):
                code = cb.select(
                    lane_is(i) & cb.splat(k + i >= depth, 8), cb.splat(cb.i32(0), 8), code
                )
        lane = (row & 7) * 4 + (k >> 3 & 3)
        index = ((row >> 3) * 32 + lane) * 4 + (k >> 5 & 1) * 2
        words = cb.concat(cb.splat(packed_bytes(code, 0), 1), cb.splat(packed_bytes(code, 4), 1))
        codes.store((k >> 6, index), words)


@cb.kernel
def round_rows(x: cb.Array, factors: cb.Array, out: cb.Array, gain: cb.f32):
    """One row a cube: what the bytes of x[m] * factors stand for, times gain."""
    row = cb.CUBE_POS
    depth = x.shape[1]
    scale, inverse, zero = row_facts(x, factors, row, depth)
    for k in range(cb.UNIT_POS * 8, depth, ROW_UNITS * 8):
        code = row_codes(scaled(x, factors, row, k), inverse, zero, cb.f32(0.0))
        out.store((row, k), cb.cast((code - zero) * (scale * gain), out.dtype), valid=depth - k)


@cb.func
def lane_is(i: cb.Comptime[int]):
    """A mask of eight lanes of which only number i is set."""
    line = cb.splat(cb.i32(i), 8)
    low = line4(cb.i32(0), cb.i32(1), cb.i32(2), cb.i32(3))
    return line == cb.concat(low, low + cb.i32(4))


@cb.kernel
def plane_product_bytes(
    x: cb.Array,
    row_facts: cb.Array,
    words: cb.Array,
    facts: cb.Array,
    scales: cb.Array,
    weight_sums: cb.Array,
    bias,
    residual,
    out: cb.Array,
    blocks,
    panels,
    plan: cb.Comptime,
):
    """out = epilogue of bytes x (as `quantize_rows_for_planes` makes them) times packed weights.

    int8: sums of 16 * high + low - 128 are exact to the end; int4: exact within a group.
    """
    lane = cb.UNIT_POS_PLANE
    plane = cb.PLANE_POS
    tiles, count, halves = plan.tiles, plan.panels, plan.halves
    first = cb.CUBE_POS_X * count
    buffer = cb.shared(plan.planes * plan.span * 4, cb.u32)
    mine = plane * plan.span
    weights, rows = (words, facts, blocks, panels, first), (x, x, x)
    if plan.early:
        cb.start_next()
    fetch_weights(buffer, mine, weights, plane, lane, plan)
    if plan.early:
        cb.wait_previous()
    fetch_rows(buffer, mine, rows, plane, blocks, lane, plan)
    for d in cb.unroll(range(1, plan.depth)):
        fetch(buffer, mine + d * plan.slot, weights, rows, plane + d * plan.planes, lane, plan)
    exact = cb.local((count * halves, tiles), cb.i32, lanes=4)
    base = cb.local((tiles,), cb.i32, lanes=4)
    total = cb.local((count, tiles), cb.f32, lanes=4)
    for j in range(tiles):
        base[j] = cb.splat(cb.i32(0), 4)
        for p in range(count):
            total[p, j] = cb.splat(cb.f32(0.0), 4)
        for p in range(count * halves):
            exact[p, j] = cb.splat(cb.i32(0), 4)
    slot = 0
    for block in range(plane, blocks, plan.planes):
        cb.copy_async_wait(plan.depth - 1)
        cb.sync_plane()
        at = mine + slot * plan.slot
        if plan.group > 0:
            add_groups(total, buffer, at, lane, plan)
        else:
            add_bytes(exact, base, buffer, at, lane, plan)
        cb.sync_plane()
        fetch(buffer, at, weights, rows, block + plan.depth * plan.planes, lane, plan)
        slot = slot + 1
        if slot == plan.depth:
            slot = 0
    if plan.group == 0:
        for j in range(tiles):
            for p in range(count):
                exact[p, j] = exact[2 * p, j] * 16 + exact[2 * p + 1, j] - base[j] * 128
    sums = total if plan.group > 0 else exact
    ends = row_facts, weight_sums, scales, bias, residual, out
    finish(buffer, sums, *ends, cb.f32(1.0), lane, plane, plan)


@cb.func
def byte_fragment(first, second):
    """Sixteen codes of two words as a fragment."""
    return line4(first, first >> 4, second, second >> 4) & cb.splat(cb.u32(0x0F0F0F0F), 4)


@cb.func
def byte_columns(buffer, at, chunk, j, lane, plan):
    """The activations of a chunk: two fragments."""
    return buffer.load(
        (at + lane + (plan.panels * plan.loads + chunk * plan.tiles + j) * 32) * 4, 4
    )


@cb.func
def add_bytes(exact, base, buffer, at, lane, plan):
    """int8: a chunk of unsigned bytes times both halves, and the sums of the bytes."""
    ones = cb.splat(cb.u32(0x01010101), 4)
    b = cb.local((plan.tiles,), cb.u32, lanes=4)
    for j in range(plan.tiles):
        b[j] = byte_columns(buffer, at, 0, j, lane, plan)
        for s in cb.unroll(range(2)):
            base[j] = cb.mma(ones, cb.slice_line(b[j], 2 * s, 2), base[j], cb.u8)
    for p in range(plan.panels * plan.halves):
        four = buffer.load((at + lane + p * 32) * 4, 4)
        for s in cb.unroll(range(2)):
            a = byte_fragment(four[2 * s], four[2 * s + 1])
            for j in range(plan.tiles):
                exact[p, j] = cb.mma(a, cb.slice_line(b[j], 2 * s, 2), exact[p, j], cb.u8)


@cb.func
def add_groups(total, buffer, at, lane, plan):
    """int4: the exact sums of each group, then scaled."""
    constant = cb.splat(cb.u32(0xF8F8F8F8 if plan.symmetric else 0x01010101), 4)
    magic = cb.splat(cb.i32(MAGIC), 4)
    away = cb.splat(cb.f32(-12582912.0), 4)
    steps = plan.group // 32
    base = cb.local((plan.tiles,), cb.i32, lanes=4)
    part = cb.local((plan.tiles,), cb.i32, lanes=4)
    b = cb.local((steps, plan.tiles), cb.u32, lanes=2)
    for g in cb.unroll(range(plan.block // plan.group)):
        for j in range(plan.tiles):
            base[j] = magic
        for q in cb.unroll(range(g * steps, (g + 1) * steps)):
            for j in range(plan.tiles):
                b[q - g * steps, j] = cb.slice_line(
                    byte_columns(buffer, at, q // 2, j, lane, plan), q % 2 * 2, 2
                )
                base[j] = cb.mma(constant, b[q - g * steps, j], base[j], cb.i8)
        for p in cb.unroll(range(plan.panels)):
            for j in range(plan.tiles):
                part[j] = base[j] if plan.symmetric else magic
            for q in cb.unroll(range(g * steps, (g + 1) * steps)):
                four = buffer.load((at + lane + (p * plan.loads + q // 2) * 32) * 4, 4)
                a = byte_fragment(four[q % 2 * 2], four[q % 2 * 2 + 1])
                for j in range(plan.tiles):
                    part[j] = cb.mma(a, b[q - g * steps, j], part[j], cb.i8)
            for j in range(plan.tiles):
                value = cb.bitcast(part[j], cb.f32) + away
                total[p, j] = cb.fma(value, fact(buffer, at, p, g, 0, lane, plan), total[p, j])
                if not plan.symmetric:
                    sums = cb.bitcast(base[j], cb.f32) + away
                    total[p, j] = cb.fma(sums, fact(buffer, at, p, g, 1, lane, plan), total[p, j])
