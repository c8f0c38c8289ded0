"""Products of weights in blocks with activations that are rounded to bytes by group of 32.

The codes of a group meet the bytes of activations in exact integers (`cb.dot_i8`), and what they
sum up to becomes a float once: eight sums of four products each, times the scales of both. Codes
are unsigned; where those of the file are signed, zero is a code, and what it takes away is the
same for all rows of the weight.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.models.packed.codes import (
    GROUP,
    ZERO,
    large_codes,
    large_scales,
    magnitudes,
    most_of,
    small_codes,
)
from cubepy.models.packed.kernels import Blueprint, ask_ahead, half_at

LEAST = 2.0**-118
"""Groups whose greatest is less are zeros: 127 over it would be infinite, or its scale no normal
number.
"""


def facts_of(rows: int, columns: int, plan: Blueprint) -> tuple[int, ...]:
    """The shape of the floats that `round_rows` gives for rows."""
    if plan.elements != GROUP:
        return rows, columns // plan.elements * 24
    return (columns // GROUP, 2, 8) if plan.signed else (rows, columns // GROUP * 2)


@cb.kernel
def round_rows(x: cb.Array, codes: cb.Array, facts: cb.Array, plan: cb.Comptime):
    """codes[m] = bytes of x[m]; a cube does a row.

    x (rows, K) f32, codes (rows, K) i8. facts, f32: for blocks of 32 (rows, K / 16), a scale and
    the sum of what was rounded, or (K / 32, 2, 8), those of all rows of a group beside each other;
    for blocks of 256 (rows, K * 24 / 256), eight scales and sixteen sums of 16. Where a group holds
    NaN or infinity its scale is NaN.
    """
    row = cb.CUBE_POS
    for group in range(x.shape[1] // GROUP):
        low = x.load((row, group * GROUP), GROUP // 2)
        high = x.load((row, group * GROUP + GROUP // 2), GROUP // 2)
        greatest = cb.max(cb.abs(low), cb.abs(high)).max()
        spoilt = ((low + high) * 0.0).sum()
        inverse = cb.f32(0.0)
        if greatest >= LEAST:
            inverse = 127.0 / greatest
        scale = greatest * cb.f32(1 / 127) + spoilt
        low, high = cb.round(low * inverse), cb.round(high * inverse)
        codes.store((row, group * GROUP), cb.cast(low, cb.i8))
        codes.store((row, group * GROUP + GROUP // 2), cb.cast(high, cb.i8))
        first, second = scale * low.sum(), scale * high.sum()
        if plan.signed:
            facts[group, 0, row] = scale
            facts[group, 1, row] = first + second
        elif plan.elements == GROUP:
            facts[row, 2 * group] = scale
            facts[row, 2 * group + 1] = first + second
        else:
            at = group // 8 * 24
            facts[row, at + group % 8] = scale
            facts[row, at + 8 + group % 8 * 2] = first
            facts[row, at + 9 + group % 8 * 2] = second


@cb.func
def zeros_of(line, plan):
    """Where sums of products begin, so that the code of zero counts as zero."""
    start = cb.splat(cb.i32(0), 8)
    if plan.kind in ZERO:
        zero = cb.splat(cb.u8(ZERO[plan.kind]), GROUP)
        start = start - cb.dot_i8(start, zero, line, most=128)
    return start


@cb.func
def add_small(acc, least, codes, facts, raw, halves, n, block, plan):
    """Add what block `block` of each weight row n[r] gives with each row of activations."""
    rows, together = plan.rows, plan.together
    base, half = block * plan.nbytes, block * (plan.nbytes // 2)
    most = most_of(plan.kind)
    line = cb.local(rows, cb.i8, lanes=GROUP)
    start = cb.local(rows, cb.i32, lanes=8)
    both = cb.local(rows, cb.f32, lanes=2)
    for m in cb.unroll(range(rows)):
        line[m] = codes.load((m, block * GROUP), GROUP)
        start[m] = zeros_of(line[m], plan)
        both[m] = facts.load((m, block * 2), 2)
    for r in cb.unroll(range(together)):
        ask_ahead(raw, n[r], base, plan)
        weights = small_codes(raw, n[r], base, plan)
        if plan.kind == "Q4_1" or plan.kind == "Q5_1":
            pair = cb.cast(halves.load((n[r], half), 2), cb.f32)
            for m in cb.unroll(range(rows)):
                scaled = pair * both[m]
                sums = cb.cast(cb.dot_i8(start[m], weights, line[m], most), cb.f32)
                acc[m, r] = cb.fma(sums, cb.splat(scaled[0], 8), acc[m, r])
                least[m, r] = least[m, r] + scaled
        else:
            scale = half_at(halves, n[r], half)
            for m in cb.unroll(range(rows)):
                sums = cb.cast(cb.dot_i8(start[m], weights, line[m], most), cb.f32)
                acc[m, r] = cb.fma(sums, cb.splat(scale * both[m][0], 8), acc[m, r])


@cb.func
def signed_dot(weights, below, line, plan):
    """Eight sums of products of codes, as `magnitudes` gives them, with bytes, f32."""
    if plan.kind in ZERO:
        line = (line ^ below) - below
    return cb.cast(cb.dot_i8(cb.splat(cb.i32(0), 8), weights, line, most=128), cb.f32)


@cb.func
def add_signed(acc, least, codes, facts, raw, halves, n, block, plan):
    """`add_small` where products of small codes are summed by pairs; least[r] has what minimums
    give with each row of activations.
    """
    base, half = block * plan.nbytes, block * (plan.nbytes // 2)
    for r in cb.unroll(range(plan.together)):
        ask_ahead(raw, n[r], base, plan)
        weights, below = magnitudes(small_codes(raw, n[r], base, plan), plan)
        scale = cb.splat(half_at(halves, n[r], half), 8)
        for m in cb.unroll(range(plan.rows)):
            sums = signed_dot(weights, below, codes.load((m, block * GROUP), GROUP), plan)
            acc[m, r] = cb.fma(sums, scale * cb.splat(facts[block, 0, m], 8), acc[m, r])
        if plan.kind not in ZERO:
            minimum = cb.splat(half_at(halves, n[r], half + 1), 8)
            least[r] = cb.fma(minimum, facts.load((block, 1, 0), 8), least[r])


@cb.func
def add_pairs(acc, least, codes, facts, raw, halves, n, block, plan):
    """`add_small` for several rows of activations and registers of 64 bytes: two rows of the weight
    lie side by side in one, and acc[m, r] has the sums of rows 2 * r and 2 * r + 1.
    """
    rows, pairs = plan.rows, plan.together // 2
    base, half = block * plan.nbytes, block * (plan.nbytes // 2)
    weights = cb.local(pairs, cb.u8, lanes=2 * GROUP)
    scales = cb.local(pairs, cb.f32, lanes=16)
    for p in cb.unroll(range(pairs)):
        upper, lower = n[2 * p], n[2 * p + 1]
        ask_ahead(raw, upper, base, plan)
        ask_ahead(raw, lower, base, plan)
        weights[p] = cb.concat(
            small_codes(raw, upper, base, plan), small_codes(raw, lower, base, plan)
        )
        scales[p] = cb.concat(
            cb.splat(half_at(halves, upper, half), 8), cb.splat(half_at(halves, lower, half), 8)
        )
    for m in cb.unroll(range(rows)):
        line = codes.load((m, block * GROUP), GROUP)
        twice = cb.concat(line, line)
        start = cb.splat(cb.i32(0), 16)
        if plan.kind in ZERO:
            zeros = zeros_of(line, plan)
            start = cb.concat(zeros, zeros)
        scale = cb.splat(facts[m, block * 2], 16)
        for p in cb.unroll(range(pairs)):
            sums = cb.cast(cb.dot_i8(start, weights[p], twice, most_of(plan.kind)), cb.f32)
            acc[m, p] = cb.fma(sums, scales[p] * scale, acc[m, p])
    if plan.kind == "Q4_1" or plan.kind == "Q5_1":
        minimums = cb.line(*(half_at(halves, r, half + 1) for r in n))
        for m in cb.unroll(range(rows)):
            total = cb.splat(facts[m, block * 2 + 1], plan.together)
            least[m] = cb.fma(minimums, total, least[m])


@cb.func
def pairs_of(sums, codes, facts, raw, halves, first, plan):
    """`rows_of` by pairs of rows."""
    rows, together = plan.rows, plan.together
    count, blocks = raw.shape[0], codes.shape[1] // plan.elements
    acc = cb.local((rows, together // 2), cb.f32, lanes=16)
    least = cb.local(rows, cb.f32, lanes=together)
    for start in range(0, plan.lanes, together):
        n = tuple(cb.min(first + start + r, count - 1) for r in cb.unroll(range(together)))
        for m in cb.unroll(range(rows)):
            least[m] = cb.splat(cb.f32(0.0), together)
            for p in cb.unroll(range(together // 2)):
                acc[m, p] = cb.splat(cb.f32(0.0), 16)
        for block in range(blocks):
            add_pairs(acc, least, codes, facts, raw, halves, n, block, plan)
        for m in cb.unroll(range(rows)):
            for r in cb.unroll(range(together)):
                half = cb.slice_line(acc[m, r // 2], r % 2 * 8, 8)
                sums[m, start + r] = half.sum() + least[m][r]


@cb.func
def add_large(acc, least, codes, facts, raw, halves, n, block, plan):
    """The same for blocks of 256; minimums are collected apart."""
    rows, together = plan.rows, plan.together
    base, half = block * plan.nbytes, block * (plan.nbytes // 2)
    most = most_of(plan.kind)
    twice = tuple(i // 2 for i in range(16))
    scales = cb.local((rows, together), cb.f32, lanes=16)
    for m in cb.unroll(range(rows)):
        eight = facts.load((m, block * 24), 8)
        scales[m, 0] = cb.shuffle(eight, eight, twice)
    for r in cb.unroll(range(together - 1, -1, -1)):
        ask_ahead(raw, n[r], base, plan)
        scale, minimum = large_scales(raw, halves, n[r], base, half, plan)
        for m in cb.unroll(range(rows)):
            if plan.kind not in ZERO:
                least[m, r] = cb.fma(minimum, facts.load((m, block * 24 + 8), 16), least[m, r])
            scales[m, r] = scales[m, 0] * scale
    for group in cb.unroll(range(8)):
        at = block * 256 + group * GROUP
        both = tuple(2 * group + i // 4 for i in range(8))
        for m in cb.unroll(range(rows)):
            line = codes.load((m, at), GROUP)
            start = zeros_of(line, plan)
            for r in cb.unroll(range(together)):
                weights = large_codes(raw, n[r], base, group, plan)
                sums = cb.cast(cb.dot_i8(start, weights, line, most), cb.f32)
                acc[m, r] = cb.fma(sums, cb.shuffle(scales[m, r], scales[m, r], both), acc[m, r])


@cb.func
def rows_of(sums, codes, facts, raw, halves, first, plan):
    """sums[m, r] = x[m] . row first + r of a weight, for `lanes` rows, `together` at a time."""
    if plan.signed:
        signed_rows_of(sums, codes, facts, raw, halves, first, plan)
    elif plan.elements == GROUP and plan.lanes == 16 and plan.together > 1 and plan.rows > 1:
        pairs_of(sums, codes, facts, raw, halves, first, plan)
    else:
        lines_of(sums, codes, facts, raw, halves, first, plan)


@cb.func
def signed_rows_of(sums, codes, facts, raw, halves, first, plan):
    """`rows_of` for blocks of 32 whose products are summed by pairs."""
    rows, together = plan.rows, plan.together
    count, blocks = raw.shape[0], codes.shape[1] // GROUP
    acc = cb.local((rows, together), cb.f32, lanes=8)
    least = cb.local(together, cb.f32, lanes=8)
    for start in range(0, plan.lanes, together):
        n = tuple(cb.min(first + start + r, count - 1) for r in cb.unroll(range(together)))
        for r in cb.unroll(range(together)):
            least[r] = cb.splat(cb.f32(0.0), 8)
            for m in cb.unroll(range(rows)):
                acc[m, r] = cb.splat(cb.f32(0.0), 8)
        for block in range(blocks):
            add_signed(acc, least, codes, facts, raw, halves, n, block, plan)
        for m in cb.unroll(range(rows)):
            for r in cb.unroll(range(together)):
                sums[m, start + r] = acc[m, r].sum() + least[r][m]


@cb.func
def lines_of(sums, codes, facts, raw, halves, first, plan):
    """`rows_of` by single rows."""
    lanes, rows, together = plan.lanes, plan.rows, plan.together
    count, blocks = raw.shape[0], codes.shape[1] // plan.elements
    acc = cb.local((rows, together), cb.f32, lanes=8)
    least = cb.local((rows, together), cb.f32, lanes=2 if plan.elements == GROUP else 16)
    for start in range(0, lanes, together):
        n = tuple(cb.min(first + start + r, count - 1) for r in cb.unroll(range(together)))
        for m in cb.unroll(range(rows)):
            for r in cb.unroll(range(together)):
                acc[m, r] = cb.splat(cb.f32(0.0), 8)
                least[m, r] = cb.splat(cb.f32(0.0), 2 if plan.elements == GROUP else 16)
        for block in range(blocks):
            if plan.elements == GROUP:
                add_small(acc, least, codes, facts, raw, halves, n, block, plan)
            else:
                add_large(acc, least, codes, facts, raw, halves, n, block, plan)
        for m in cb.unroll(range(rows)):
            for r in cb.unroll(range(together)):
                total = acc[m, r].sum()
                if plan.kind == "Q4_1" or plan.kind == "Q5_1":
                    total = total + least[m, r][1]
                elif plan.kind not in ZERO:
                    total = total - least[m, r].sum()
                sums[m, start + r] = total


@cb.kernel
def byte_product(
    codes: cb.Array,
    facts: cb.Array,
    raw: cb.Array,
    halves: cb.Array,
    bias,
    residual,
    out: cb.Array,
    plan: cb.Comptime,
):
    """out[0, m] = activation(x[m] @ weight.T + bias) + residual[0, m]; a cube does `lanes` rows of
    the weight.

    codes (rows, K) i8 and facts as `round_rows` gives them, raw (N, bytes), halves: the same as
    f16, out (1, rows, N).
    """
    epilogue = LineEpilogue(out, plan.activation, bias, residual)
    first = cb.CUBE_POS * plan.lanes
    sums = cb.shared((plan.rows, plan.lanes), cb.f32)
    rows_of(sums, codes, facts, raw, halves, first, plan)
    for m in cb.unroll(range(plan.rows)):
        epilogue.finish(sums.load((m, 0), plan.lanes), (0, m, first), raw.shape[0] - first)


@cb.func
def store_rows(sums, out, first, column, count, plan):
    """out[m, column + first:] = sums[m], as many as a weight of `count` rows has left."""
    for m in cb.unroll(range(plan.rows)):
        out.store((m, column + first), sums.load((m, 0), plan.lanes), valid=count - first)


@cb.kernel
def joined_products(
    codes: cb.Array,
    facts: cb.Array,
    raw: cb.Array,
    halves: cb.Array,
    raw_1: cb.Array,
    halves_1: cb.Array,
    raw_2: cb.Array,
    halves_2: cb.Array,
    out: cb.Array,
    plans: cb.Comptime,
):
    """out[m] = x[m] @ weight.T of three weights, side by side; a cube does `lanes` rows of one of
    them. `plans` are those of the weights.
    """
    lanes = plans[0].lanes
    sums = cb.shared((plans[0].rows, lanes), cb.f32)
    count, count_1, count_2 = raw.shape[0], raw_1.shape[0], raw_2.shape[0]
    cubes, cubes_1 = (count + lanes - 1) // lanes, (count_1 + lanes - 1) // lanes
    cube = cb.CUBE_POS
    if cube < cubes:
        rows_of(sums, codes, facts, raw, halves, cube * lanes, plans[0])
        store_rows(sums, out, cube * lanes, 0, count, plans[0])
    elif cube < cubes + cubes_1:
        first = (cube - cubes) * lanes
        rows_of(sums, codes, facts, raw_1, halves_1, first, plans[1])
        store_rows(sums, out, first, count, count_1, plans[1])
    else:
        last = (cube - cubes - cubes_1) * lanes
        rows_of(sums, codes, facts, raw_2, halves_2, last, plans[2])
        store_rows(sums, out, last, count + count_1, count_2, plans[2])


@cb.kernel
def gated_product(
    codes: cb.Array,
    facts: cb.Array,
    raw: cb.Array,
    halves: cb.Array,
    raw_1: cb.Array,
    halves_1: cb.Array,
    out: cb.Array,
    plans: cb.Comptime,
):
    """out[m] = activation(x[m] @ gate.T) * (x[m] @ up.T); a cube does `lanes` rows of both."""
    gate, lanes = plans[0], plans[0].lanes
    sums, others = cb.shared((gate.rows, lanes), cb.f32), cb.shared((gate.rows, lanes), cb.f32)
    first = cb.CUBE_POS * lanes
    rows_of(sums, codes, facts, raw, halves, first, gate)
    rows_of(others, codes, facts, raw_1, halves_1, first, plans[1])
    for m in cb.unroll(range(gate.rows)):
        line = sums.load((m, 0), lanes)
        if gate.activation is not None:
            line = gate.activation(line)
        line = line * others.load((m, 0), lanes)
        out.store((m, first), line, valid=raw.shape[0] - first)
