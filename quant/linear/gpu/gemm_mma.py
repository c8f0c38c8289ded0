"""Kernels of linear layers with packed weights and float activations, for planes with matrix units.

The product is y = W x' with x' = x * input_scale, and W is the operand with sixteen rows, so that a
panel of sixteen channels is one fragment and eight columns of activations are the smallest piece. A
code n becomes the float 128 + n by placing its four bits into the mantissa of 128 (bf16), with one
logical operation for a pair of codes. What the 128 adds is taken away where sums start: not at 0
but at -128 times the sum of the group's activations (-136 where codes stand for n - 8). So nothing
is rounded but activations, and sums as float32.

Activations become bf16 in one, two or three parts that add up to the value: one for bf16, two for
f16, three for f32 where columns are free. Weights lie as `cubepy.quant.linear.gpu.layout` says.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.quant.linear.gpu.blueprint import COLUMNS
from cubepy.quant.linear.gpu.epilogue import exchange, finish
from cubepy.quant.linear.gpu.fetch import fetch, fetch_factors, fetch_rows, fetch_weights


@cb.func
def line4(a, b, c, d):
    """A line of four numbers."""
    return cb.concat(
        cb.concat(cb.splat(a, 1), cb.splat(b, 1)), cb.concat(cb.splat(c, 1), cb.splat(d, 1))
    )


@cb.func
def code_fragment(word, magic):
    """Eight codes as a fragment of 128 + n; `magic` is 0x43004300, in a register so that
    `(w & m) | magic` is one.
    """
    parts = line4(word, word >> 4, word >> 8, word >> 12)
    return (parts & cb.splat(cb.u32(0x000F000F), 4)) | cb.splat(magic, 4)


@cb.func
def split(value, parts: cb.Comptime[int]):
    """Floats as `parts` lines of packed bf16 that add up to them."""
    out = ()
    for part in cb.unroll(range(parts)):
        words = cb.pack(value, cb.bf16)
        out = out + (words,)
        if part + 1 < parts:
            value = value - cb.unpack(words, cb.bf16)
    return out


@cb.func
def scaled(x, factors, row, k):
    """Eight activations times their factors, zero beyond the end."""
    depth = x.shape[1]
    factor = cb.cast(factors.load((k,), 8, valid=depth - k), cb.f32)
    return cb.cast(x.load((row, k), 8, valid=depth - k), cb.f32) * factor


@cb.kernel
def arrange_rows(
    x: cb.Array,
    factors: cb.Array,
    out: cb.Array,
    sums: cb.Array,
    offset: cb.f32,
    width: cb.Comptime[int],
    parts: cb.Comptime[int],
    early: cb.Comptime[bool] = False,
):
    """Activations as the fragments of a product, a plane for `width` inputs of eight columns.

    out[k / 32, tile, lane, 4 words]; sums[k / width, tile, column] = the bits of offset times the
    sum. Columns beyond the rows are zero.
    """
    if early:
        cb.start_next()
        cb.wait_previous()
    lane = cb.UNIT_POS_PLANE
    tiles = out.shape[1] // 128
    job = cb.ABSOLUTE_POS // 32
    group, tile = job // tiles, job % tiles
    if group < sums.shape[0]:
        column = tile * 8 + lane // 4
        row = column // parts
        total = cb.f32(0.0)
        for q in cb.unroll(range(width // 32)):
            k32 = group * (width // 32) + q
            words = cb.splat(cb.u32(0), 4)
            if row < x.shape[0]:
                pieces = split(scaled(x, factors, row, k32 * 32 + (lane & 3) * 8), parts)
                for part in cb.unroll(range(parts)):
                    if column % parts == part:
                        words = pieces[part]
            out.store((k32, tile * 128 + lane * 4), words)
            total = total + cb.unpack(words, cb.bf16).sum()
        total = total + cb.plane_shuffle_xor(total, 1)
        total = total + cb.plane_shuffle_xor(total, 2)
        if lane & 3 == 0:
            sums[group, tile * 8 + lane // 4] = cb.bitcast(total * offset, cb.u32)


@cb.kernel
def plane_product(
    x: cb.Array,
    factors: cb.Array,
    sums: cb.Array,
    words: cb.Array,
    facts: cb.Array,
    scales: cb.Array,
    bias,
    residual,
    out: cb.Array,
    gain: cb.f32,
    magic: cb.u32,
    blocks,
    panels,
    plan: cb.Comptime,
):
    """out = epilogue(gain * (x * factors) @ W.T); W is words with facts or, in int8, scales.

    Raw, x and factors are the words of (M, K) and (K,), and sums is not read; else x and sums are
    what `arrange_rows` makes. Everything comes through a pipeline of blocks in shared memory, of
    which every lane copies what it reads; with `plan.ahead` rows do not.
    """
    lane = cb.UNIT_POS_PLANE
    plane = cb.PLANE_POS
    tiles, count = plan.tiles, plan.panels
    first = cb.CUBE_POS_X * count
    origin = 0
    if plan.splits > 1:
        cb.cluster(plan.splits)
        first = cb.CUBE_POS_X // plan.splits * count
        each = (blocks + plan.splits - 1) // plan.splits
        origin = cb.CLUSTER_POS * each
        blocks = cb.min(blocks, origin + each)
    buffer = cb.shared(plan.shared_bytes // 4, cb.u32)
    mine = plane * plan.span + plan.pairs
    weights, rows = (words, facts, blocks, panels, first), (x, factors, sums)
    # The first block, then the rows, so that these do not queue behind a whole pipeline.
    fetch_weights(buffer, mine, weights, origin + plane, lane, plan)
    if plan.ahead:
        cb.resident(2)
        fetch_ahead(buffer, mine, weights, factors, origin + plane, lane, plan)
    if plan.separate:
        # The other cube has begun: it may be written to at the end.
        cb.sync_cluster()
    if plan.early:
        cb.wait_previous()
    if not plan.ahead:
        fetch_rows(buffer, mine, rows, origin + plane, blocks, lane, plan)
        for d in cb.unroll(range(1, plan.depth)):
            block, at = origin + plane + d * plan.planes, mine + d * plan.slot
            fetch(buffer, at, weights, rows, block, lane, plan)
    total = cb.local((count, tiles), cb.f32, lanes=4)
    excess = cb.local((tiles,), cb.f32, lanes=4)
    for j in range(tiles):
        excess[j] = cb.splat(cb.f32(0.0), 4)
        for p in range(count):
            total[p, j] = cb.splat(cb.f32(0.0), 4)
    if plan.ahead:
        multiply_ahead(total, buffer, mine, x, origin + plane, blocks, lane, plan)
    elif plan.once:
        # The next launch may fetch weights when this one has asked for its own.
        if plan.early:
            cb.start_next()
        for d in cb.unroll(range(plan.depth)):
            if origin + plane + d * plan.planes < blocks:
                cb.copy_async_wait(plan.depth - 1 - d)
                cb.sync_plane()
                multiply_block(total, excess, buffer, mine, mine + d * plan.slot, lane, magic, plan)
                cb.sync_plane()
    else:
        slot = 0
        for block in range(origin + plane, blocks, plan.planes):
            cb.copy_async_wait(plan.depth - 1)
            cb.sync_plane()
            at = mine + slot * plan.slot
            multiply_block(total, excess, buffer, mine, at, lane, magic, plan)
            cb.sync_plane()
            later = block + plan.depth * plan.planes
            fetch(buffer, at, weights, rows, later, lane, plan)
            slot = slot + 1
            if slot == plan.depth:
                slot = 0
        if plan.early:
            cb.start_next()
    if plan.group == 0:
        for j in range(tiles):
            for p in range(count):
                total[p, j] = total[p, j] + excess[j]
    if plan.splits > 1:
        exchange(buffer, total, scales, bias, residual, out, gain, lane, plane, plan)
    else:
        finish(buffer, total, None, None, scales, bias, residual, out, gain, lane, plane, plan)


@cb.func
def fetch_ahead(buffer, mine, weights, factors, block, lane, plan):
    """All that no launch writes: the codes of the plane's other blocks, and the factors of all."""
    blocks = weights[2]
    for d in cb.unroll(range(plan.depth)):
        at, here = mine + d * plan.slot, block + d * plan.planes
        if d > 0:
            fetch_weights(buffer, at, weights, here, lane, plan)
        if here < blocks:
            fetch_factors(buffer, at + plan.panels * plan.loads * 32, factors, here, lane, plan)
        cb.copy_async_commit()


@cb.func
def load_rows(held, x, block, blocks, parity: cb.Comptime[int], lane, plan):
    """A block's activations, in registers of their own for each of two iterations."""
    if block < blocks:
        for q in cb.unroll(range(plan.block // 32)):
            for j in cb.unroll(range(plan.tiles)):
                row = cb.min((cb.CUBE_POS_Y * plan.tiles + j) * COLUMNS + lane // 4, x.shape[0] - 1)
                held[parity, q, j] = x.load(
                    (row, block * (plan.block // 2) + q * 16 + (lane & 3) * 4), 4
                )


@cb.func
def multiply_ahead(total, buffer, mine, x, block, blocks, lane, plan):
    """Add all blocks of a plane; rows come to registers, two blocks ahead.

    Codes are there when rows come, because two cubes share a core, of which one is of the next
    launch. That begins when the first rows of this one are there, so that they do not queue behind
    its codes.
    """
    held = cb.local((2, plan.block // 32, plan.tiles), cb.u32, lanes=4)
    b = cb.local((plan.block // 32, plan.tiles), cb.u32, lanes=4)
    for d in cb.unroll(range(2)):
        load_rows(held, x, block + d * plan.planes, blocks, d, lane, plan)
    for d in cb.unroll(range(plan.depth)):
        cb.copy_async_wait(plan.depth - 1 - d)
        cb.sync_plane()
        at, here = mine + d * plan.slot, block + d * plan.planes
        if here < blocks:
            for q in cb.unroll(range(plan.block // 32)):
                for j in cb.unroll(range(plan.tiles)):
                    b[q, j] = times_factors(held[d % 2, q, j], buffer, at, q, lane, plan)
        if d + 2 < plan.depth:
            load_rows(held, x, here + 2 * plan.planes, blocks, d % 2, lane, plan)
        if d == 0 and plan.early:
            cb.start_next()
        if here < blocks:
            multiply_rounded(total, b, buffer, mine - plan.pairs, at, lane, plan)
            cb.sync_plane()


@cb.func
def multiply_block(total, excess, buffer, mine, at, lane, magic, plan):
    """Add the block at piece `at` of the pipeline to the plane's sums."""
    if plan.rounded:
        b = cb.local((plan.block // 32, plan.tiles), cb.u32, lanes=4)
        for j in range(plan.tiles):
            for q in cb.unroll(range(plan.block // 32)):
                b[q, j] = activations(buffer, at, q, j, lane, plan)
        multiply_rounded(total, b, buffer, mine - plan.pairs, at, lane, plan)
    else:
        multiply(total, excess, buffer, at, lane, magic, plan)


@cb.func
def activations(buffer, at, q, j, lane, plan):
    """The fragments of 32 inputs of a tile of columns: the words of two products."""
    words = buffer.load((at + lane + (plan.panels * plan.loads + q * plan.tiles + j) * 32) * 4, 4)
    return times_factors(words, buffer, at, q, lane, plan) if plan.raw else words


@cb.func
def times_factors(words, buffer, at, q, lane, plan):
    """Eight neighbours of a row, rounded again."""
    index = at + (plan.panels * plan.loads + plan.lines) * 32 + q * 4 + (lane & 3)
    factor = cb.unpack(buffer.load(index * 4, 4), cb.f16)
    return cb.pack(cb.unpack(words, cb.bf16) * factor, cb.bf16)


@cb.func
def start_of(buffer, at, g, j, lane, plan):
    """Where the sums of a group start, for each of a lane's four."""
    here = (
        at * 4 + 128 * (plan.panels * plan.loads + plan.lines) + 8 * plan.panels * plan.fact_words
    )
    two = cb.bitcast(buffer.load(here + (g * plan.tiles + j) * 8 + (lane & 3) * 2, 2), cb.f32)
    return cb.concat(two, two)


@cb.func
def multiply(total, excess, buffer, at, lane, magic, plan):
    """Add a block of every panel to the plane's sums."""
    tiles, halves, groups = plan.tiles, plan.halves, plan.block // plan.width
    steps = plan.width // 32
    base = cb.local((tiles,), cb.f32, lanes=4)
    part = cb.local((halves, tiles), cb.f32, lanes=4)
    b = cb.local((steps, tiles), cb.u32, lanes=4)
    offsets = cb.pack(cb.splat(cb.f32(plan.offset), 8), cb.bf16)
    for g in cb.unroll(range(groups)):
        for j in range(tiles):
            for q in cb.unroll(range(steps)):
                b[q, j] = activations(buffer, at, g * steps + q, j, lane, plan)
            if plan.raw:
                base[j] = cb.splat(cb.f32(0.0), 4)
                for s in cb.unroll(range(2 * steps)):
                    base[j] = cb.mma(
                        offsets, cb.slice_line(b[s // 2, j], s % 2 * 2, 2), base[j], cb.bf16
                    )
            else:
                base[j] = start_of(buffer, at, g, j, lane, plan)
            if plan.group == 0:
                excess[j] = excess[j] + base[j]
        for p in cb.unroll(range(plan.panels)):
            for h in cb.unroll(range(halves)):
                for j in range(tiles):
                    part[h, j] = base[j]
                for q in cb.unroll(range(steps)):
                    chunk = p * plan.loads + (g * steps + q) // 2 * halves + h
                    four = buffer.load((at + lane + chunk * 32) * 4, 4)
                    for s in cb.unroll(range(2)):
                        a = code_fragment(four[(g * steps + q) % 2 * 2 + s], magic)
                        for j in range(tiles):
                            part[h, j] = cb.mma(
                                a, cb.slice_line(b[q, j], 2 * s, 2), part[h, j], cb.bf16
                            )
            for j in range(tiles):
                if plan.group > 0:
                    total[p, j] = cb.fma(
                        fact(buffer, at, p, g, 0, lane, plan), part[0, j], total[p, j]
                    )
                    if not plan.symmetric:
                        plain = base[j] * cb.f32(-1 / 128)
                        total[p, j] = cb.fma(
                            fact(buffer, at, p, g, 1, lane, plan), plain, total[p, j]
                        )
                else:
                    total[p, j] = (
                        cb.fma(cb.splat(cb.f32(16.0), 4), part[0, j], total[p, j]) + part[1, j]
                    )


@cb.func
def pair_up(buffer, pairs, at, lane, plan):
    """The scales and minimums of a block, each twice in a word, where `multiply_rounded` looks for
    them.

    Codes are read as the bits of bf16: n in the low four bits is n * 2**-133, and in the four above
    16 times that, as subnormal numbers (and those of the smallest exponent) are evenly spaced. So
    scales times 2**111 and 2**107, with minimums times 2**-22, give weights times 2**-22, of which
    the gain of the product takes care.
    """
    groups = plan.block // plan.group
    kinds = 1 if plan.symmetric else 2
    here = at * 4 + 128 * (plan.panels * plan.loads + plan.lines) + 4 * plan.factor_lines
    for start in cb.unroll(range(0, 8 * plan.panels, 32)):
        row = start + lane
        if start + 32 <= 8 * plan.panels or row < 8 * plan.panels:
            facts = buffer.load(here + row * plan.fact_words, plan.fact_words)
            for g in cb.unroll(range(groups)):
                scale = cb.unpack(cb.slice_line(facts, kinds * g, 1), cb.f16)
                least = scale * cb.f32(-8.0)
                if not plan.symmetric:
                    least = cb.unpack(cb.slice_line(facts, kinds * g + 1, 1), cb.f16)
                least = least * cb.f32(2.0**-22)
                low, high = scale[0] * cb.f32(2.0**111), scale[1] * cb.f32(2.0**107)
                four = cb.concat(
                    line4(low, low, high, high), line4(least[0], least[0], least[1], least[1])
                )
                buffer.store((pairs + g * 8 * plan.panels + row) * 4, cb.pack(four, cb.bf16))
    cb.sync_plane()


@cb.func
def multiply_rounded(total, b, buffer, pairs, at, lane, plan):
    """Add a block of every panel to the plane's sums, with weights as bf16; b are the fragments of
    the block.
    """
    pair_up(buffer, pairs, at, lane, plan)
    tiles, steps = plan.tiles, plan.group // 32
    low, high = cb.u32(0x000F000F), cb.u32(0x00F000F0)
    mask = line4(low, high, low, high)
    for g in cb.unroll(range(plan.block // plan.group)):
        for p in cb.unroll(range(plan.panels)):
            facts = buffer.load((pairs + (g * plan.panels + p) * 8 + lane // 4) * 4, 4)
            scale = cb.concat(cb.slice_line(facts, 0, 2), cb.slice_line(facts, 0, 2))
            least = cb.concat(cb.slice_line(facts, 2, 2), cb.slice_line(facts, 2, 2))
            for q in cb.unroll(range(g * steps, (g + 1) * steps)):
                four = buffer.load((at + lane + (p * plan.loads + q // 2) * 32) * 4, 4)
                for s in cb.unroll(range(2)):
                    word = four[q % 2 * 2 + s]
                    codes = line4(word, word, word >> 8, word >> 8) & mask
                    a = cb.packed_fma(codes, scale, least, cb.bf16)
                    for j in range(tiles):
                        total[p, j] = cb.mma(
                            a, cb.slice_line(b[q, j], 2 * s, 2), total[p, j], cb.bf16
                        )


@cb.func
def fact(buffer, at, p, g, which, lane, plan):
    """The scale (0) or minimum (1) of a group, for each of a lane's four sums."""
    here = at * 4 + 128 * (plan.panels * plan.loads + plan.lines) + 4 * plan.factor_lines
    here = here + (p * 8 + lane // 4) * plan.fact_words
    words = buffer.load(here, plan.fact_words)
    both = cb.unpack(cb.slice_line(words, g if plan.symmetric else 2 * g + which, 1), cb.f16)
    return line4(both[0], both[0], both[1], both[1])
