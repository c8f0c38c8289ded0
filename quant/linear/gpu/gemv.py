"""Linear layers with packed weights and one to four rows of float activations, for planes with
matrix units.

Activations become integers: 15 bits (f32: 22) of the largest of a column's inputs, which is an
exponent and a sum more for each 32 inputs, and digits of eight bits. Then codes are operands of
`mma` as they lie packed: whole bytes, which are 16 * the second channel's code + the first's, and
bytes without their higher half. So eight codes cost one logical instruction, for floats they cost
seven; and the sums of the first channel are taken from those of the second.

Columns that rows and digits leave free take inputs of their own: with one row, two columns have the
digits of 32 inputs, the next two those of the next 32, and zeros elsewhere. So sums of four groups
are one chain of products without an instruction between them, and scales meet them once for 128
inputs (a step), a group in each lane of four.

Every plane rounds the activations of its own blocks, so that nothing waits for the cube before the
end. Codes and scales come through a pipeline as in `cubepy.quant.linear.gpu.gemm_mma`.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.quant.linear.gpu.blueprint import CHUNK, PANEL, Room
from cubepy.quant.linear.gpu.epilogue import write
from cubepy.quant.linear.gpu.fetch import fetch_weights
from cubepy.quant.linear.gpu.gemm_mma import line4
from cubepy.quant.linear.gpu.gemm_mma_int8 import MAGIC, byte_fragment, packed_bytes
from cubepy.quant.linear.gpu.gemv_blueprint import PASS, FewBlueprint, plan_few
from cubepy.quant.linear.gpu.layout import planes_of
from cubepy.quant.linear.problem import QuantizedLinear
from cubepy.tune import GpuRoutine

MAGIC_FLOAT = 12582912.0
"""1.5 * 2^23: integers below 2^22 that are added to it are its low bits."""


@cb.func
def line2(a, b):
    """A line of two numbers."""
    return cb.concat(cb.splat(a, 1), cb.splat(b, 1))


@cb.func
def input_of(part: cb.Comptime[int], plane, lane, plan):
    """The first of the eight inputs of a row that a lane rounds."""
    index = part * PASS + lane * 8
    block = index >> plan.block.bit_length() - 1
    return (plane + block * plan.planes) * plan.block + (index & plan.block - 1)


@cb.func
def load_eight(x, row, k, plan):
    """Eight inputs of a row, or some others beyond its end."""
    if plan.whole:
        return x.load((row, cb.min(k, x.shape[1] - 8)), 8)
    return x.load((row, k), 8, valid=x.shape[1] - k)


@cb.func
def load_factors(factors, depth, k, plan):
    """Their factors."""
    if plan.whole:
        return factors.load((cb.min(k, depth - 8),), 8)
    return factors.load((k,), 8, valid=depth - k)


@cb.func
def round_eight(digits, home, value, part: cb.Comptime[int], row: cb.Comptime[int], lane, plan):
    """Round eight inputs of a row to digits, with what a unit of them is worth and the sum of each
    group.
    """
    bits = cb.bitcast(value, cb.u32) & cb.splat(cb.u32(0x7FFFFFFF), 8)
    top = bits.max()
    for step in cb.unroll(range(plan.reach.bit_length() - 4)):
        top = cb.max(top, cb.plane_shuffle_xor(top, 1 << step))
    # Bits of the largest: an exponent. Smaller than 2^-95, columns lose some of theirs.
    exponent = cb.max(top >> 23, cb.u32(32))
    above = 13 if plan.digits == 2 else 21
    scale = cb.bitcast((cb.u32(254 + above) - exponent) << 23, cb.f32)
    worth = cb.bitcast((exponent - cb.u32(above)) << 23, cb.f32)
    if exponent == cb.u32(255):
        worth = cb.f32(float("nan"))
    # Digits but the last are -128 to 127: 128 more is their byte with the highest bit turned over.
    # Four digits need it added to the integer, because 22 bits and more are beyond the floats that
    # are a unit apart.
    before, after = (128, 0) if plan.digits == 2 else (0, 32896)
    moved = cb.fma(value, cb.splat(scale, 8), cb.splat(cb.f32(MAGIC_FLOAT + before), 8))
    code = cb.bitcast(moved, cb.i32) - cb.splat(cb.i32(MAGIC - after), 8)
    total = code.sum()
    for step in cb.unroll(range((plan.reach // plan.spans).bit_length() - 4)):
        total = total + cb.plane_shuffle_xor(total, 1 << step)
    exact = cb.cast(total - plan.reach // plan.spans * (before + after), cb.f32)
    copies = plan.ranks // plan.digits
    index = home + (((part * 8 + (lane >> 2)) * copies + row) * plan.digits) * 8 + (lane & 3) * 2
    for d in cb.unroll(range(plan.digits)):
        two = line2(cb.u32(0), cb.u32(0))
        if d < 3:
            byte = code >> (8 * d)
            two = line2(packed_bytes(byte, 0), packed_bytes(byte, 4))
            if d + 1 < min(plan.digits, 3):
                two = two ^ cb.splat(cb.u32(0x80808080), 2)
        digits.store(index + d * 8, two)
    each = plan.reach // plan.spans
    if lane & each // 8 - 1 == 0:
        at = (
            home
            + plan.digit_words
            + ((part * PASS + lane * 8 >> each.bit_length() - 1) * copies + row) * 2
        )
        digits.store(at, line2(cb.bitcast(worth, cb.u32), cb.bitcast(exact * worth, cb.u32)))


@cb.func
def round_pass(
    digits, home, lines, gains, x, part: cb.Comptime[int], plane, lane, plan: cb.Comptime
):
    """Turn every row's inputs of a pass to digits."""
    for row in cb.unroll(range(plan.rows)):
        value = cb.cast(lines[part * plan.rows + row], cb.f32) * cb.cast(gains[part], cb.f32)
        last = plan.crowded or (part + 1) * (PASS // plan.block) >= plan.each
        if last and input_of(part, plane, lane, plan) >= x.shape[1]:
            value = cb.splat(cb.f32(0.0), 8)
        round_eight(digits, home, value, part, row, lane, plan)


@cb.kernel
def few_product(
    x: cb.Array,
    factors: cb.Array,
    words: cb.Array,
    facts: cb.Array,
    scales: cb.Array,
    bias,
    residual,
    out: cb.Array,
    gain: cb.f32,
    blocks,
    panels,
    plan: cb.Comptime,
):
    """out = epilogue(gain * (x * factors) @ W.T) for x of (M, K); W is words with facts or, in
    int8, scales.
    """
    lane = cb.UNIT_POS_PLANE
    plane = cb.PLANE_POS
    first = cb.CUBE_POS_X * plan.panels
    buffer = cb.shared(plan.planes * plan.span * 4, cb.u32)
    digits = cb.shared(plan.planes * plan.room, cb.u32)
    home = plane * plan.room
    mine = plane * plan.span
    weights = words, facts, blocks, panels, first
    if plan.early and not plan.once:
        cb.start_next()
    gains = cb.local((plan.passes,), factors.dtype, lanes=8)
    lines = cb.local((plan.passes * plan.rows,), x.dtype, lanes=8)
    for part in cb.unroll(range(plan.passes)):
        gains[part] = load_factors(factors, x.shape[1], input_of(part, plane, lane, plan), plan)
    for d in cb.unroll(range(plan.ahead)):
        fetch_block(buffer, mine + d * plan.slot, weights, plane + d * plan.planes, lane, plan)
    if plan.early:
        cb.wait_previous()
    for part in cb.unroll(range(plan.passes)):
        for row in cb.unroll(range(plan.rows)):
            lines[part * plan.rows + row] = load_eight(
                x, row, input_of(part, plane, lane, plan), plan
            )
    if plan.soon:
        for d in cb.unroll(range(plan.ahead, plan.depth)):
            fetch_block(buffer, mine + d * plan.slot, weights, plane + d * plan.planes, lane, plan)
    total = cb.local((plan.panels,), cb.f32, lanes=2)
    held = cb.local((plan.panels,), cb.u32, lanes=plan.kinds * plan.spans)
    for p in cb.unroll(range(plan.panels)):
        total[p] = cb.splat(cb.f32(0.0), 2)
        held[p] = cb.splat(cb.u32(0), plan.kinds * plan.spans)
    acc = cb.local((plan.panels, plan.spans), cb.i32, lanes=4)
    b = cb.local((plan.reach // 32,), cb.u32, lanes=2)
    if plan.once:
        for part in cb.unroll(range(plan.passes)):
            round_pass(digits, home, lines, gains, x, part, plane, lane, plan)
        cb.sync_plane()
        if plan.early:
            # The next launch may fetch weights when this one has its own and its activations.
            cb.start_next()
        for d in cb.unroll(range(0, plan.depth, plan.step_blocks)):
            begin(acc, b, digits, home, d // plan.step_blocks, lane, plan)
            for i in cb.unroll(range(min(plan.step_blocks, plan.depth - d))):
                if d + i < plan.each - 1 or plane + (d + i) * plan.planes < blocks:
                    cb.copy_async_wait(plan.depth - 1 - d - i)
                    cb.sync_plane()
                    multiply(acc, held, b, buffer, mine + (d + i) * plan.slot, i, lane, plan)
            conclude(total, acc, held, digits, home, d // plan.step_blocks, lane, plan)
    else:
        slot = 0
        step = 0
        for part in cb.unroll(range(plan.passes)):
            round_pass(digits, home, lines, gains, x, part, plane, lane, plan)
            cb.sync_plane()
            if part == 0 and not plan.soon:
                # Not before: rows would queue behind these codes.
                for d in cb.unroll(range(plan.ahead, plan.depth)):
                    at, block = mine + d * plan.slot, plane + d * plan.planes
                    fetch_block(buffer, at, weights, block, lane, plan)
            begun = plane + part * (PASS // plan.block) * plan.planes
            ended = cb.min(blocks, begun + PASS // plan.block * plan.planes)
            for block in range(begun, ended, plan.planes * plan.step_blocks):
                begin(acc, b, digits, home, step, lane, plan)
                for i in cb.unroll(range(plan.step_blocks)):
                    here = block + i * plan.planes
                    if i == 0 or here < blocks:
                        cb.copy_async_wait(plan.depth - 1)
                        cb.sync_plane()
                        at = mine + slot * plan.slot
                        multiply(acc, held, b, buffer, at, i, lane, plan)
                        cb.sync_plane()
                        later = here + plan.depth * plan.planes
                        fetch_block(buffer, at, weights, later, lane, plan)
                        slot = slot + 1
                        if slot == plan.depth:
                            slot = 0
                conclude(total, acc, held, digits, home, step, lane, plan)
                step = step + 1
    cb.sync_plane()
    finish(buffer, total, scales, bias, residual, out, gain, lane, plane, plan)


@cb.func
def fetch_block(buffer, at, weights, block, lane, plan):
    """Start copying a block, if there is one, to piece `at` of the pipeline."""
    fetch_weights(buffer, at, weights, block, lane, plan)
    cb.copy_async_commit()


@cb.func
def begin(acc, b, digits, home, step, lane, plan):
    """A lane's digits of a step, and sums whose bits are those of a float."""
    steps = plan.reach // 32
    column = lane >> 2
    chunk = (step * (8 // plan.ranks) + (column >> plan.ranks.bit_length() - 1)) * steps
    for q in cb.unroll(range(steps)):
        index = home + ((chunk + q) * plan.ranks + (column & plan.ranks - 1)) * 8 + (lane & 3) * 2
        b[q] = digits.load(index, 2)
    for p in cb.unroll(range(plan.panels)):
        for a in cb.unroll(range(plan.spans)):
            acc[p, a] = cb.splat(cb.i32(MAGIC), 4)


@cb.func
def fragment_of(buffer, at, p: cb.Comptime[int], k32: cb.Comptime[int], lane, plan):
    """The codes of 32 inputs of a panel as a fragment of bytes; unshifted, the second channel's are
    whole bytes.
    """
    half = k32 % 2 * 2
    if plan.group > 0:
        four = buffer.load((at + lane + (p * plan.loads + k32 // 2) * 32) * 4, 4)
        if plan.unshifted:
            low = cb.slice_line(four, half, 2) & cb.splat(cb.u32(0x0F0F0F0F), 2)
            return line4(low[0], four[half], low[1], four[half + 1])
        return byte_fragment(four[half], four[half + 1])
    high = buffer.load((at + lane + p * plan.loads * 32) * 4, 4)
    low = buffer.load((at + lane + (p * plan.loads + 1) * 32) * 4, 4)
    above = line4(high[half] << 4, high[half], high[half + 1] << 4, high[half + 1]) & cb.splat(
        cb.u32(0xF0F0F0F0), 4
    )
    return (byte_fragment(low[half], low[half + 1]) | above) ^ cb.splat(cb.u32(0x80808080), 4)


@cb.func
def multiply(acc, held, b, buffer, at, i: cb.Comptime[int], lane, plan):
    """Add block i of a step to its sums, and keep its scales and minimums where a lane's sums are
    of it.
    """
    if plan.group > 0:
        index = ((lane & 3) * 2 >> plan.ranks.bit_length() - 1) * plan.reach
        group = (index & plan.block - 1) >> plan.group.bit_length() - 1
        here = (
            at * 4
            + 128 * plan.panels * plan.loads
            + (lane >> 2) * plan.fact_words
            + group * plan.kinds
        )
        if plan.step_blocks == 1 or index >> plan.block.bit_length() - 1 == i:
            for p in cb.unroll(range(plan.panels)):
                held[p] = buffer.load(here + p * 8 * plan.fact_words, plan.kinds * plan.spans)
    column = lane >> 2 + plan.ranks.bit_length() - 1
    steps = plan.reach // 32
    now = line2(cb.u32(0), cb.u32(0))
    for k32 in cb.unroll(range(plan.block // 32)):
        now = line2(cb.u32(0), cb.u32(0))
        if column == (i * plan.block // 32 + k32) // steps:
            now = b[k32 % steps]
        for p in cb.unroll(range(plan.panels)):
            a = k32 % steps * 32 // (plan.reach // plan.spans)
            codes = fragment_of(buffer, at, p, k32, lane, plan)
            acc[p, a] = cb.mma(codes, now, acc[p, a], cb.u8 if plan.unshifted else cb.i8, cb.i8)


@cb.func
def conclude(total, acc, held, digits, home, step, lane, plan):
    """Add the sums of a step, scaled, to those of the plane."""
    half, pairs, copies = plan.ranks // 2, plan.digits // 2, plan.ranks // plan.digits
    column = (lane & 3) >> half.bit_length() - 1
    row = (lane & half - 1) >> pairs.bit_length() - 1
    for a in cb.unroll(range(plan.spans)):
        index = ((step * (4 // half) + column) * plan.spans + a) * copies + row
        two = cb.bitcast(digits.load(home + plan.digit_words + index * 2, 2), cb.f32)
        worth, plain = two[0], two[1]
        if plan.digits == 4 and lane & 1 == 1:
            worth, plain = worth * cb.f32(65536.0), cb.f32(0.0)
        for p in cb.unroll(range(plan.panels)):
            exact = cb.bitcast(acc[p, a], cb.f32)
            away = cb.splat(cb.f32(MAGIC_FLOAT), 2)
            worths = cb.splat(worth, 2)
            if plan.unshifted:
                # The second channel's sums are of 16 * its codes + the codes of the first.
                exact = exact - cb.concat(away, cb.slice_line(exact, 0, 2))
                worths = line2(worth, worth * cb.f32(1 / 16))
            else:
                exact = exact - cb.concat(away, away)
            both = (
                cb.fma(
                    line2(exact[1], exact[3]), cb.splat(cb.f32(256.0), 2), line2(exact[0], exact[2])
                )
                * worths
            )
            if plan.group == 0:
                total[p] = total[p] + both
            else:
                scale = cb.unpack(cb.slice_line(held[p], a * plan.kinds, 1), cb.f16)
                if plan.symmetric:
                    both = both - cb.f32(8.0) * plain
                total[p] = cb.fma(scale, both, total[p])
                if not plan.symmetric:
                    least = cb.unpack(cb.slice_line(held[p], a * plan.kinds + 1, 1), cb.f16)
                    total[p] = cb.fma(least, cb.splat(plain, 2), total[p])


@cb.func
def finish(buffer, total, scales, bias, residual, out, gain, lane, plane, plan):
    """Add the sums of columns, then of planes in their order, and write the results; sums go where
    blocks were.
    """
    mine = plane * plan.span * 4
    half, pairs = plan.ranks // 2, plan.digits // 2
    row = (lane & half - 1) >> pairs.bit_length() - 1
    for p in cb.unroll(range(plan.panels)):
        value = total[p]
        for step in cb.unroll(range(2)):
            if not pairs <= 1 << step < half:
                other = line2(
                    cb.plane_shuffle_xor(value[0], 1 << step),
                    cb.plane_shuffle_xor(value[1], 1 << step),
                )
                value = value + other
        if lane & 3 == row * pairs and row < plan.rows:
            index = mine + (p * plan.rows + row) * PANEL + (lane >> 2)
            buffer[index] = cb.bitcast(value[0], cb.u32)
            buffer[index + 8] = cb.bitcast(value[1], cb.u32)
    cb.sync_cube()
    write(buffer, 0, plan.rows, None, None, scales, bias, residual, out, gain, plan)


class Few(GpuRoutine):
    """One to four rows of float activations, as digits of integers."""

    name = "gemv"

    def unfit(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> str | None:
        """Rows whose digits a cube keeps."""
        if not p.floats:
            return "activations are bytes"
        if not p.arranges(properties):
            return "the kernels of planes do not take its groups, or the device has no matrix units"
        return None if planned(p, properties) else "a cube has no room for the digits of its rows"

    def launch(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> Any:
        """A cube does some panels for all rows."""
        found = planned(p, properties)
        assert found is not None, "the routine does not support it"
        plan, cubes = found
        out = p.result()
        (x, bias, residual, flat), weight = p.operands(out), planes_of(p.weight)
        few_product[cubes, plan.units](
            x,
            weight.input_scale,
            weight.words,
            weight.facts,
            weight.scales,
            bias,
            residual,
            flat,
            weight.gain,
            weight.blocks,
            weight.panels,
            plan,
            mode="unchecked",
            device=out.device,
        )
        return out


def planned(p: QuantizedLinear, properties: cb.DeviceProperties) -> tuple[FewBlueprint, int] | None:
    """The blueprint and the cubes of a problem, None where there is no room."""
    (n, k), group = p.weight.shape, p.group
    shape = (-(-n // PANEL), -(-k // max(CHUNK, group)), p.m, group, p.weight.scheme.symmetric)
    whole = k % 8 == 0
    return plan_few(*shape, cb.as_dtype(p.x.dtype), Room.of(properties), *p.epilogue, whole)
