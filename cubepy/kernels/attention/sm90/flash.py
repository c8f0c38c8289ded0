"""Attention for Hopper: one pass over keys and values by `wgmma`, the copy engine and groups with
different tasks.

The structure is that of FlashAttention-3 (Shah et al., 2024). One group of 128 units loads tiles
of keys and values into a pipeline; two or three other groups each own 64 query rows. Such a group
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
from cubepy.kernels.attention.sm90.flash_memory import Attention, first_step, memory_of
from cubepy.kernels.attention.sm90.flash_producer import produce
from cubepy.kernels.attention.sm90.fragments import (
    fragments,
    start_products,
    start_sums,
    write_rows,
)
from cubepy.kernels.attention.sm90.plan import BLOCK, GROUP, HopperAttention
from cubepy.kernels.primitives.pipeline import Stage
from cubepy.runtime.device import DeviceProperties


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


@cb.struct
class Softmax:
    """The running softmax of a unit's two rows: the largest scores, and the sums of weights."""

    top0: Any
    top1: Any
    sum0: Any
    sum1: Any


@cb.struct
class Rows:
    """A unit's two rows of a tile, `row` and `row + 8`, and what it keeps of them in registers:
    scores s, weights p as operands, and sums o.

    `group` has 64 rows of the tile, the unit's plane those from `plane` on; the unit's first column
    in a block of keys is `column`. `query` is the stage of the tile's queries, and scores times
    the scale are in units of log 2: `inverse` turns natural ones into them.
    """

    s: Any
    p: Any
    o: Any
    group: Any
    plane: Any
    column: Any
    row_tile: Any
    row: Any
    inverse: Any
    query: Stage


@cb.func
def add_mask(job, memory, rows, slot, plain):
    """What the mask says of a block, unless it says nothing."""
    if job.plan.mask != "none":
        if plain == 0:
            masking.mask_scores(rows.s, memory.masks, slot, rows.plane, rows.inverse, job.plan)


@cb.func
def start_scores(job, memory, rows, slot):
    """s = q @ k.T, started, for the block of keys in a slot."""
    plan = job.plan
    start_products(
        rows.s,
        memory.queries,
        plan.rows,
        rows.group,
        memory.keys,
        plan.keys,
        slot,
        plan.depth,
        rows.query.slot,
    )


@cb.func
def first_block(job, memory, rows, key):
    """The weights of a tile's last block of keys, which may hang over the end.

    Gives the softmax, the block, and how many follow (0 where none does).
    """
    plan, scale, keys, s = job.plan, job.scale, job.plan.keys, rows.s
    block = job.blocks(rows.row_tile) - 1
    rows.query.wait()
    key.wait()
    block, follow, plain = masking.announced_block(memory.announced, key.slot, block, plan)
    start_scores(job, memory, rows, key.slot)
    cb.wgmma_wait(0, s)
    add_mask(job, memory, rows, key.slot, plain)
    key.release(cb.UNIT_POS_PLANE == 0)
    limit = job.sizes[4] - block * keys - rows.column
    if plan.causal:
        own = rows.row + 1 - block * keys - rows.column
        hide(s, 0, cb.min(limit, own), plan)
        hide(s, 2, cb.min(limit, own + 8), plan)
    elif limit < keys:
        hide(s, 0, limit, plan)
        hide(s, 2, limit, plan)
    top0, top1 = tops_of(s, cb.f32(LOWEST), cb.f32(LOWEST), plan)
    sum0, sum1 = weigh(s, scale, -top0 * scale, -top1 * scale, cb.f32(0.0), cb.f32(0.0), plan)
    fragments(rows.p, s, job.q.dtype, keys // 16)
    return Softmax(top0, top1, sum0, sum1), block, follow


@cb.func
def next_block(job, memory, rows, key, value, softmax, block):
    """o += p @ the block's values, while the next block's scores become the weights p.

    `value` is the stage of this block's values, `key` that of the next one's keys. Gives the
    softmax, the next block, and how many follow.
    """
    plan, scale, keys, s, o = job.plan, job.scale, job.plan.keys, rows.s, rows.o
    leader = cb.UNIT_POS_PLANE == 0
    key.wait()
    block, follow, plain = masking.announced_block(memory.announced, key.slot, block - 1, plan)
    start_scores(job, memory, rows, key.slot)
    value.wait()
    start_sums(o, rows.p, memory.values, keys, value.slot, plan.depth)
    cb.wgmma_wait(1, s)
    add_mask(job, memory, rows, key.slot, plain)
    key.release(leader)
    if plan.causal:
        if (block + 1) * keys > rows.row_tile * plan.rows:
            own = rows.row + 1 - block * keys - rows.column
            hide(s, 0, own, plan)
            hide(s, 2, own + 8, plan)
    top0, top1 = tops_of(s, softmax.top0, softmax.top1, plan)
    base0, base1 = -top0 * scale, -top1 * scale
    grown0, grown1 = (
        cb.exp2(cb.fma(softmax.top0, scale, base0)),
        cb.exp2(cb.fma(softmax.top1, scale, base1)),
    )
    sum0, sum1 = weigh(s, scale, base0, base1, softmax.sum0 * grown0, softmax.sum1 * grown1, plan)
    # Nothing to wait for here; but without a branch ptxas moves the wait for o before the
    # exponentials.
    value.wait()
    cb.wgmma_wait(0, o)
    value.release(leader)
    fragments(rows.p, s, job.q.dtype, keys // 16)
    for i in range(plan.depth // 8):
        o[4 * i] = o[4 * i] * grown0
        o[4 * i + 1] = o[4 * i + 1] * grown0
        o[4 * i + 2] = o[4 * i + 2] * grown1
        o[4 * i + 3] = o[4 * i + 3] * grown1
    return Softmax(top0, top1, sum0, sum1), block, follow


@cb.func
def finish(job, memory, rows, start, value, softmax):
    """o += p @ the first block's values; then the results and log-sum-exp of the rows that begin at
    (b, h, row).
    """
    plan, o = job.plan, rows.o
    b, h, row = start
    length = job.sizes[3]
    sum0, sum1 = softmax.sum0, softmax.sum1
    value.wait()
    start_sums(o, rows.p, memory.values, plan.keys, value.slot, plan.depth)
    sum0 = sum0 + cb.plane_shuffle_xor(sum0, 1)
    sum1 = sum1 + cb.plane_shuffle_xor(sum1, 1)
    sum0 = sum0 + cb.plane_shuffle_xor(sum0, 2)
    sum1 = sum1 + cb.plane_shuffle_xor(sum1, 2)
    if job.lse is not None:
        if rows.column == 0:
            if row < length:
                job.lse[b, h, row] = (softmax.top0 * job.scale + cb.log2(sum0)) * LN2
            if row + 8 < length:
                job.lse[b, h, row + 8] = (softmax.top1 * job.scale + cb.log2(sum1)) * LN2
    cb.wgmma_wait(0, o)
    value.release(cb.UNIT_POS_PLANE == 0)
    upper, lower = 1.0 / sum0, 1.0 / sum1
    if plan.mask != "none":
        upper, lower = (cb.select(sum0 == 0.0, 0.0, upper), cb.select(sum1 == 0.0, 0.0, lower))
    write_rows(o, job.out, job.q.dtype, start, (upper, lower), 0, plan.depth)


@cb.func
def consume(job, memory):
    """A group of units: of every tile its 64 rows."""
    plan = job.plan
    tiles = job.tiles()
    s = cb.local(plan.keys // 2, cb.f32)
    o = cb.local(plan.depth // 2, cb.f32)
    p = cb.local(plan.keys // 16, cb.u32, lanes=4)
    lane = cb.UNIT_POS_PLANE
    group = cb.PLANE_POS // 4 - 1
    plane = cb.PLANE_POS % 4 * 16 + group * BLOCK
    inverse = LOG2E / job.scale
    query, key = memory.query, memory.key
    tile = cb.CUBE_POS
    step = first_step(plan)
    while tile < tiles:
        if plan.chosen:
            query.wait()
            tile = memory.announced_tile[0]
            if tile >= tiles:
                break
        b, h, row_tile = job.position(tile)
        row = row_tile * plan.rows + plane + lane // 4
        rows = Rows(s, p, o, group, plane, lane % 4 * 2, row_tile, row, inverse, query)
        for i in range(plan.depth // 2):
            o[i] = 0.0
        softmax, block, follow = first_block(job, memory, rows, key)
        while follow > 0:
            value = memory.value(key)
            key = key.advance()
            softmax, block, follow = next_block(job, memory, rows, key, value, softmax, block)
        query.release(lane == 0)
        query = query.advance()
        value = memory.value(key)
        finish(job, memory, rows, (b, h, row), value, softmax)
        key = key.advance()
        if not plan.chosen:
            tile = tile + step
            if plan.causal:
                step = 2 * cb.CUBE_COUNT - step


@cb.kernel(fast_math=("contract", "afn", "nsz", "arcp"))
def hopper_attend(
    q: cb.TensorMap,
    k: cb.TensorMap,
    v: cb.TensorMap,
    out: cb.Array,
    lse,
    sizes,
    scale: cb.f32,
    plan: cb.Comptime,
    mask=None,
    known=None,
):
    """out[b, h] = softmax(scale * q[b, h] @ k[b, g].T) @ v[b, g] with g = h // shared_heads, and
    its log-sum-exp.

    q (B, H, L, D), k and v (B, G, S, D) of 16-bit floats; out (B, H, L, D // 2) words; lse (B, H,
    L) f32 or None. `sizes` are H, the heads that share keys, B, L and S. A launch has at most one
    cube for each core of the device. scale is in units of log 2. `mask` and `known` are what
    `masks.prepare` gives.
    """
    if plan.resident > 1:
        cb.resident(plan.resident)
    memory = memory_of(q.dtype, k.dtype, v.dtype, mask, plan)
    job = Attention(q, k, v, out, lse, mask, known, sizes, scale, plan)
    if cb.UNIT_POS < GROUP:
        cb.set_registers(plan.registers[0], False)
        if cb.UNIT_POS == 0:
            produce(job, memory)
    else:
        cb.set_registers(plan.registers[1], True)
        consume(job, memory)


def tiles_of(array: Any, rows: int) -> Any:
    """The tensor map of an array (B, H, L, D) in tiles of `rows` rows and 64 columns."""
    return cb.tensor_map(array, (1, 1, rows, BLOCK), swizzle=128)


def launch(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    scale: float,
    plan: HopperAttention,
    p: DeviceProperties,
    mask: Any = None,
) -> None:
    """Write the attention of (B, H, L, D) to `out`, and its log-sum-exp to `lse` if there
    is one.
    """
    batches, heads, length = q.shape[:3]
    cubes = min(batches * heads * -(-length // plan.rows), p.cores * plan.resident)
    given = masking.prepare(mask, length, k.shape[2], scale * LOG2E, cubes, plan)
    hopper_attend[cubes, plan.units](
        tiles_of(q, plan.rows),
        tiles_of(k, plan.keys),
        tiles_of(v, plan.keys),
        out.view(np.uint32),
        lse,
        (heads, heads // k.shape[1], batches, length, k.shape[2]),
        scale * LOG2E,
        plan,
        given.mask,
        given.known,
        mode="unchecked",
    )
