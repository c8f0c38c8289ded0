"""Attention for Hopper: one pass over keys and values by `wgmma`, the copy engine and groups with
different tasks.

The structure is that of FlashAttention-3 (Shah et al., 2024). One group of 128 units brings tiles
of keys and values into a ring; two or three other groups each own 64 query rows. Such a group
starts the products of the next scores before it adds the previous values, so that its matrix units
work while it computes exponentials. Cubes stay for the whole launch. What was measured, and what
did not help, is in docs/benchmarks/log/attention-sm90.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.attention.online_softmax import HIDDEN, LN2, LOG2E, LOWEST
from cubepy.kernels.attention.sm90 import masks as masking
from cubepy.kernels.attention.sm90.plan import BLOCK, GROUP, HopperAttention
from cubepy.runtime.device import DeviceProperties


@cb.func
def place_of(tile, tiles, row_tiles, heads, longest_first: cb.Comptime[bool]):
    """Batch, head and first tile row: the heads of a row together, longest rows first, where rows
    differ in work.
    """
    if longest_first:
        every = tiles // row_tiles
        row = row_tiles - 1 - tile // every
        which = tile % every
    else:
        row = tile % row_tiles
        which = tile // row_tiles
    return which // heads, which % heads, row


@cb.func
def blocks_of(row, keys, plan):
    """Blocks of keys that a tile of rows sees."""
    blocks = (keys + plan.keys - 1) // plan.keys
    if plan.causal:
        blocks = cb.min(blocks, ((row + 1) * plan.rows + plan.keys - 1) // plan.keys)
    return blocks


@cb.func
def next_queries(held, turn, plan):
    """The place of the next tile's queries and the parity of its barriers."""
    if plan.queries == 1:
        return 0, 1 - turn
    return 1 - held, cb.select(held == 1, 1 - turn, turn)


@cb.func
def bring(
    shared, at, source, b, h, row, count: cb.Comptime[int], depth: cb.Comptime[int], bar, slot, more
):
    """Start copying `count` rows, 64 columns after 64 columns; `more` bytes will arrive beside
    them.
    """
    cb.barrier_expect(bar, slot, count * depth * 2 + more)
    for c in cb.unroll(range(depth // BLOCK)):
        cb.tma_load(shared, at + c * count * BLOCK, source, (b, h, row, c * BLOCK), bar, slot)


@cb.func
def bring_keys(
    tiles, masks, told, k, mask, known, place, b, g, h, row, block, after, bar, slot, plan
):
    """Start copying a block of keys and its part of the mask, and say which block it is and whether
    one comes after.
    """
    plain = masking.is_plain(known, place, block, plan)
    if plan.chosen:
        told[slot] = block * 4 + cb.cast(after >= 0, cb.i32) * 2 + plain
    more = cb.select(plain != 0, 0, plan.mask_bytes)
    bring(
        tiles,
        slot * plan.keys * plan.depth,
        k,
        b,
        g,
        block * plan.keys,
        plan.keys,
        plan.depth,
        bar,
        slot,
        more,
    )
    if plan.mask != "none":
        if plain == 0:
            masking.bring_mask(masks, slot, mask, b, h, row, block, bar, plan)


@cb.func
def start_products(s, own, rows, group, others, columns, slot, depth, tile=0):
    """s = own @ others.T, started: 64 rows of a group, of the `rows` of a `tile`, by the `columns`
    rows of a stage.
    """
    cb.wgmma_fence()
    for d in cb.unroll(range(depth // 16)):
        inside = d % 4 * 16
        cb.wgmma(
            s, own, tile * rows * depth + group * BLOCK * BLOCK + d // 4 * rows * BLOCK + inside,
            others, slot * columns * depth + d // 4 * columns * BLOCK + inside, columns, own.dtype, accumulate=d > 0,
        )  # fmt: skip
    cb.wgmma_commit()


@cb.func
def start_sums(sums, p, values, rows, slot, depth):
    """sums += p @ values, started: the weights p (or slopes) are in registers, the `rows` rows of a
    stage in a ring.
    """
    cb.wgmma_fence(sums)
    for j in cb.unroll(range(rows // 16)):
        cb.wgmma(
            sums, p[j], 0, values, slot * rows * depth + j * 16 * BLOCK, depth, values.dtype,
            transpose_b=True, b_lead=rows * BLOCK,
        )  # fmt: skip
    cb.wgmma_commit()


@cb.func
def hide(s, start: cb.Comptime[int], limit, plan):
    """Hide the keys of a row from `limit` on, counted from the unit's first column."""
    for j in range(plan.keys // 8):
        for e in range(2):
            if 8 * j + e >= limit:
                s[4 * j + start + e] = HIDDEN


@cb.func
def tops_of(s, top0, top1, plan):
    """The largest of the scores of a unit's two rows, and of what was largest before; a row lies in
    four units.
    """
    for j in range(plan.keys // 8):
        top0 = cb.max(top0, cb.max(s[4 * j], s[4 * j + 1]))
        top1 = cb.max(top1, cb.max(s[4 * j + 2], s[4 * j + 3]))
    top0 = cb.max(top0, cb.plane_shuffle_xor(top0, 1))
    top1 = cb.max(top1, cb.plane_shuffle_xor(top1, 1))
    return cb.max(top0, cb.plane_shuffle_xor(top0, 2)), cb.max(top1, cb.plane_shuffle_xor(top1, 2))


@cb.func
def weigh(s, scale, base0, base1, sum0, sum1, plan):
    """Scores become 2 ** (scale * score + base), added to the sums of their rows."""
    for j in range(plan.keys // 8):
        for e in range(2):
            w0 = cb.exp2(cb.fma(s[4 * j + e], scale, base0))
            w1 = cb.exp2(cb.fma(s[4 * j + 2 + e], scale, base1))
            s[4 * j + e] = w0
            s[4 * j + 2 + e] = w1
            sum0 = sum0 + w0
            sum1 = sum1 + w1
    return sum0, sum1


@cb.func
def line_of(a, b):
    """A line of two numbers."""
    return cb.concat(cb.splat(a, 1), cb.splat(b, 1))


@cb.func
def fragment(s, at, dtype):
    """Eight accumulators as four words, an operand of the next product: they lie just as it takes
    them.
    """
    words = ()
    for j in cb.unroll(range(0, 8, 2)):
        words = words + (cb.pack(line_of(s[at + j], s[at + j + 1]), dtype),)
    return cb.concat(cb.concat(words[0], words[1]), cb.concat(words[2], words[3]))


@cb.func
def fragments(p, s, dtype, count: cb.Comptime[int]):
    """`count` fragments of neighbouring accumulators."""
    for j in range(count):
        p[j] = fragment(s, 8 * j, dtype)


@cb.func
def whole_words(q0, q1, q2, q3, lane):
    """Turn a 4x4 tile of words among four units: unit k gets word k of each, 16 bytes of one row."""
    odd, high = lane % 2 == 1, lane % 4 >= 2
    a = cb.plane_shuffle_xor(cb.select(odd, q0, q1), 1)
    b = cb.plane_shuffle_xor(cb.select(odd, q2, q3), 1)
    q0, q1, q2, q3 = (
        cb.select(odd, a, q0),
        cb.select(odd, q1, a),
        cb.select(odd, b, q2),
        cb.select(odd, q3, b),
    )
    a = cb.plane_shuffle_xor(cb.select(high, q0, q2), 2)
    b = cb.plane_shuffle_xor(cb.select(high, q1, q3), 2)
    q0, q2, q1, q3 = (
        cb.select(high, a, q0),
        cb.select(high, q2, a),
        cb.select(high, b, q1),
        cb.select(high, q3, b),
    )
    return cb.concat(line_of(q0, q1), line_of(q2, q3))


@cb.func
def write_rows(o, out, dtype, b, h, row, lane, upper, lower, first, columns: cb.Comptime[int]):
    """out[b, h, row and row + 8] = o times a factor a row; `out` holds words of two numbers, from
    `first` on.
    """
    for g in range(columns // 32):
        for e in cb.unroll(range(2)):
            factor = upper if e == 0 else lower
            words = ()
            for j in cb.unroll(range(4)):
                at = 16 * g + 4 * j + 2 * e
                words = words + (cb.pack(line_of(o[at] * factor, o[at + 1] * factor), dtype)[0],)
            line = whole_words(words[0], words[1], words[2], words[3], lane)
            column = first + 16 * g + lane % 4 * 4
            if row + 8 * e < out.shape[2] and column < out.shape[3]:
                out.store((b, h, row + 8 * e, column), line)


@cb.kernel(fast_math=("contract", "afn", "nsz", "arcp"))
def hopper_attend(
    q: cb.TensorMap, k: cb.TensorMap, v: cb.TensorMap, out: cb.Array, lse, heads, shared_heads, batches, length,
    seen, scale: cb.f32, plan: cb.Comptime, mask=None, known=None,
):  # fmt: skip
    """out[b, h] = softmax(scale * q[b, h] @ k[b, g].T) @ v[b, g] with g = h // shared_heads, and
    its log-sum-exp.

    q (B, H, L, D), k and v (B, G, S, D) of 16-bit floats; out (B, H, L, D // 2) words; lse (B, H,
    L) f32 or None. A launch has at most one cube for each core of the device. scale is in units of
    log 2. `mask` and `known` are what `attention_hopper_masks.prepare` gives.
    """
    rows, depth, keys, stages = plan.rows, plan.depth, plan.keys, plan.stages
    if plan.resident > 1:
        cb.resident(plan.resident)
    loaded = cb.barrier(plan.queries, 1)
    freed = cb.barrier(plan.queries, 4 * plan.groups)
    key_full, key_free = cb.barrier(stages, 1), cb.barrier(stages, 4 * plan.groups)
    value_full, value_free = cb.barrier(stages, 1), cb.barrier(stages, 4 * plan.groups)
    queries = cb.shared(plan.queries * rows * depth, q.dtype)
    key_tiles = cb.shared(stages * keys * depth, k.dtype)
    value_tiles = cb.shared(stages * keys * depth, v.dtype)
    masks, told, told_tile = queries, queries, queries
    if plan.mask != "none":
        masks = cb.shared(stages * plan.mask_stage // mask[0].dtype.itemsize, mask[0].dtype)
    if plan.chosen:
        told, told_tile = cb.shared(stages, cb.i32), cb.shared(1, cb.i32)
    row_tiles = (length + rows - 1) // rows
    tiles = row_tiles * heads * batches
    tile = cb.CUBE_POS
    # There and back over the cubes: with the longest tiles first, each cube gets the same work.
    step = 2 * (cb.CUBE_COUNT - tile) - 1 if plan.causal else cb.CUBE_COUNT
    slot = 0
    phase = 0
    turn = 0
    held = 0
    if cb.UNIT_POS < GROUP:
        cb.set_registers(plan.registers[0], False)
        if cb.UNIT_POS == 0:
            while tile < tiles:
                b, h, row = place_of(tile, tiles, row_tiles, heads, plan.longest_first)
                g = h // shared_heads
                cb.barrier_wait(freed, held, 1 - turn)
                if plan.chosen:
                    told_tile[0] = tile
                bring(
                    queries, held * rows * depth, q, b, h, row * rows, rows, depth, loaded, held, 0
                )
                held, turn = next_queries(held, turn, plan)
                place = masking.place_of_known(
                    mask, b, h, row, row_tiles, (seen + keys - 1) // keys, plan
                )
                block = masking.next_block(known, place, blocks_of(row, seen, plan), plan)
                if plan.chosen:
                    block = cb.max(block, 0)  # a row that sees nothing is computed, too
                after = masking.next_block(known, place, block, plan)
                cb.barrier_wait(key_free, slot, 1 - phase)
                bring_keys(
                    key_tiles,
                    masks,
                    told,
                    k,
                    mask,
                    known,
                    place,
                    b,
                    g,
                    h,
                    row,
                    block,
                    after,
                    key_full,
                    slot,
                    plan,
                )
                while block >= 0:
                    last, last_phase = slot, phase
                    slot = slot + 1
                    if slot == stages:
                        slot = 0
                        phase = 1 - phase
                    later = -1
                    if after >= 0:
                        later = masking.next_block(known, place, after, plan)
                        cb.barrier_wait(key_free, slot, 1 - phase)
                        bring_keys(
                            key_tiles, masks, told, k, mask, known, place, b, g, h, row, after, later, key_full, slot,
                            plan,
                        )  # fmt: skip
                    cb.barrier_wait(value_free, last, 1 - last_phase)
                    bring(
                        value_tiles,
                        last * keys * depth,
                        v,
                        b,
                        g,
                        block * keys,
                        keys,
                        depth,
                        value_full,
                        last,
                        0,
                    )
                    block = after
                    after = later
                if plan.chosen:
                    tile = cb.atomic_add(known[1], 0, 1)
                else:
                    tile = tile + step
                    if plan.causal:
                        step = 2 * cb.CUBE_COUNT - step
            if plan.chosen:
                cb.barrier_wait(freed, 0, 1 - turn)
                told_tile[0] = tile
                cb.barrier_arrive(loaded, 0)
    else:
        cb.set_registers(plan.registers[1], True)
        s = cb.local(keys // 2, cb.f32)
        o = cb.local(depth // 2, cb.f32)
        p = cb.local(keys // 16, cb.u32, lanes=4)
        group = cb.PLANE_POS // 4 - 1
        lane = cb.UNIT_POS_PLANE
        leader = lane == 0
        inside = cb.PLANE_POS % 4 * 16 + group * BLOCK + lane // 4
        column = lane % 4 * 2
        plane = cb.PLANE_POS % 4 * 16 + group * BLOCK
        inverse = LOG2E / scale
        while tile < tiles:
            if plan.chosen:
                cb.barrier_wait(loaded, 0, turn)
                tile = told_tile[0]
                if tile >= tiles:
                    break
            b, h, row_tile = place_of(tile, tiles, row_tiles, heads, plan.longest_first)
            row = row_tile * rows + inside
            block = blocks_of(row_tile, seen, plan) - 1
            for i in range(depth // 2):
                o[i] = 0.0
            cb.barrier_wait(loaded, held, turn)
            cb.barrier_wait(key_full, slot, phase)
            block, follow, plain = masking.told_block(told, slot, block, plan)
            start_products(
                s, queries, plan.rows, group, key_tiles, plan.keys, slot, plan.depth, held
            )
            cb.wgmma_wait(0, s)
            if plan.mask != "none":
                if plain == 0:
                    masking.mask_scores(s, masks, slot, plane, inverse, plan)
            if leader:
                cb.barrier_arrive(key_free, slot)
            limit = seen - block * keys - column
            if plan.causal:
                own = row + 1 - block * keys - column
                hide(s, 0, cb.min(limit, own), plan)
                hide(s, 2, cb.min(limit, own + 8), plan)
            elif limit < keys:
                hide(s, 0, limit, plan)
                hide(s, 2, limit, plan)
            top0, top1 = tops_of(s, cb.f32(LOWEST), cb.f32(LOWEST), plan)
            sum0, sum1 = weigh(
                s, scale, -top0 * scale, -top1 * scale, cb.f32(0.0), cb.f32(0.0), plan
            )
            fragments(p, s, q.dtype, keys // 16)
            while follow > 0:
                last, last_phase = slot, phase
                slot = slot + 1
                if slot == stages:
                    slot = 0
                    phase = 1 - phase
                cb.barrier_wait(key_full, slot, phase)
                block, follow, plain = masking.told_block(told, slot, block - 1, plan)
                start_products(
                    s, queries, plan.rows, group, key_tiles, plan.keys, slot, plan.depth, held
                )
                cb.barrier_wait(value_full, last, last_phase)
                start_sums(o, p, value_tiles, plan.keys, last, plan.depth)
                cb.wgmma_wait(1, s)
                if plan.mask != "none":
                    if plain == 0:
                        masking.mask_scores(s, masks, slot, plane, inverse, plan)
                if leader:
                    cb.barrier_arrive(key_free, slot)
                if plan.causal:
                    if (block + 1) * keys > row_tile * rows:
                        own = row + 1 - block * keys - column
                        hide(s, 0, own, plan)
                        hide(s, 2, own + 8, plan)
                new0, new1 = tops_of(s, top0, top1, plan)
                base0, base1 = -new0 * scale, -new1 * scale
                grown0, grown1 = (
                    cb.exp2(cb.fma(top0, scale, base0)),
                    cb.exp2(cb.fma(top1, scale, base1)),
                )
                top0, top1 = new0, new1
                sum0, sum1 = weigh(s, scale, base0, base1, sum0 * grown0, sum1 * grown1, plan)
                # Nothing to wait for here; but without a branch ptxas moves the wait for o before
                # the exponentials.
                cb.barrier_wait(value_full, last, last_phase)
                cb.wgmma_wait(0, o)
                if leader:
                    cb.barrier_arrive(value_free, last)
                fragments(p, s, q.dtype, keys // 16)
                for i in range(depth // 8):
                    o[4 * i] = o[4 * i] * grown0
                    o[4 * i + 1] = o[4 * i + 1] * grown0
                    o[4 * i + 2] = o[4 * i + 2] * grown1
                    o[4 * i + 3] = o[4 * i + 3] * grown1
            if leader:
                cb.barrier_arrive(freed, held)
            held, turn = next_queries(held, turn, plan)
            cb.barrier_wait(value_full, slot, phase)
            start_sums(o, p, value_tiles, plan.keys, slot, plan.depth)
            sum0 = sum0 + cb.plane_shuffle_xor(sum0, 1)
            sum1 = sum1 + cb.plane_shuffle_xor(sum1, 1)
            sum0 = sum0 + cb.plane_shuffle_xor(sum0, 2)
            sum1 = sum1 + cb.plane_shuffle_xor(sum1, 2)
            if lse is not None:
                if column == 0:
                    if row < length:
                        lse[b, h, row] = (top0 * scale + cb.log2(sum0)) * LN2
                    if row + 8 < length:
                        lse[b, h, row + 8] = (top1 * scale + cb.log2(sum1)) * LN2
            cb.wgmma_wait(0, o)
            if leader:
                cb.barrier_arrive(value_free, slot)
            slot = slot + 1
            if slot == stages:
                slot = 0
                phase = 1 - phase
            upper, lower = 1.0 / sum0, 1.0 / sum1
            if plan.mask != "none":
                upper, lower = (
                    cb.select(sum0 == 0.0, 0.0, upper),
                    cb.select(sum1 == 0.0, 0.0, lower),
                )
            write_rows(o, out, q.dtype, b, h, row, lane, upper, lower, 0, depth)
            if not plan.chosen:
                tile = tile + step
                if plan.causal:
                    step = 2 * cb.CUBE_COUNT - step


def tiles_of(array: Any, rows: int) -> Any:
    """The tensor map of an array (B, H, L, D) in tiles of `rows` rows and 64 columns."""
    return cb.tensor_map(array, (1, 1, rows, BLOCK), swizzle=128)


def launch(
    q: Any, k: Any, v: Any, out: Any, lse: Any, scale: float, plan: HopperAttention, p: DeviceProperties,
    mask: Any = None,
) -> None:  # fmt: skip
    """Write the attention of (B, H, L, D) to `out`, and its log-sum-exp to `lse` if there is one."""
    batches, heads, length = q.shape[:3]
    cubes = min(batches * heads * -(-length // plan.rows), p.cores * plan.resident)
    given = masking.prepare(mask, length, k.shape[2], scale * LOG2E, cubes, plan)
    hopper_attend[cubes, plan.units](
        tiles_of(q, plan.rows), tiles_of(k, plan.keys), tiles_of(v, plan.keys), out.view(np.uint32), lse, heads,
        heads // k.shape[1], batches, length, k.shape[2], scale * LOG2E, plan, given.mask, given.known,
        mode="unchecked",
    )  # fmt: skip
