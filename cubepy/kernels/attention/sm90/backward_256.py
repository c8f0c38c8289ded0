"""The gradients of attention 256 wide for Hopper: groups of a cube own different sums, not
different keys.

As in attention/sm90/backward.py keys stay in a cube and queries pass by, but the sums of 64 keys
are all that two groups' registers hold. So one group has the scores, their weights and the sums for
values, one the slopes and the sums for keys, and a third, which has few registers left, the
products for queries. Each waits only for what the one before it leaves in shared memory, and the
one that needs a block last has the next one copied. Measured in
docs/benchmarks/log/attention-sm90.md.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.attention.online_softmax import LOG2E
from cubepy.kernels.attention.sm90.backward_steps import (
    add_query_grads,
    bring_keys,
    bring_rows,
    hide_turned,
    keys_of_cube,
    shifts_of_keys,
    store_slopes,
    weigh_turned,
)
from cubepy.kernels.attention.sm90.fragments import (
    fragments,
    start_products,
    start_sums,
    write_rows,
)
from cubepy.kernels.attention.sm90.plan import BLOCK, GROUP


@cb.func
def following(slot, phase):
    """The next of two places, and its phase."""
    return 1 - slot, phase ^ slot


@cb.func
def bring_step(ring, n, walk, plan):
    """Start copying the n-th step's rows; steps of the query heads that share keys come one after
    another.
    """
    tiles, numbers, source, vector, full, _ = ring
    heads, base, first, steps, _ = walk
    other = n // (steps - first)
    step = first + n - other * (steps - first)
    row = (
        base + other
    )  # batch and head come from it again: kept from the beginning on they cost registers
    bring_rows(
        tiles, numbers, source, vector, row // heads, row % heads, row, step, full, n % 2, plan
    )


@cb.func
def first_products(s, own, ring, loaded, walk, plan):
    """s = own @ the first step's rows.T, as soon as both are there."""
    cb.barrier_wait(loaded, 0, 0)
    if walk[4] > 0:
        cb.barrier_wait(ring[4], 0, 0)
        start_products(s, own, plan.keys, 0, ring[0], plan.queries, 0, plan.depth)
        cb.wgmma_wait(0, s)


@cb.func
def sums_and_products(sums, p, ring, s, own, next_ring, done, slot, phase, walk, plan):
    """sums += p @ this step's rows of a ring, then s = own @ the next step's rows of the other
    ring.T.

    Of the former rows nothing is needed any more, so the next step but one is copied there. Gives
    the next place and its phase.
    """
    tiles, _, _, _, full, free = ring
    total = walk[4]
    cb.barrier_wait(full, slot, phase)
    start_sums(sums, p, tiles, plan.queries, slot, plan.depth)
    next_slot, next_phase = slot, phase
    if done + 1 < total:
        next_slot, next_phase = following(slot, phase)
    cb.barrier_wait(next_ring[4], next_slot, next_phase)
    start_products(s, own, plan.keys, 0, next_ring[0], plan.queries, next_slot, plan.depth)
    cb.wgmma_wait(1, sums)
    if cb.UNIT_POS_PLANE == 0:
        cb.barrier_arrive(free, slot)
        if cb.UNIT_POS % GROUP == 0 and done + 2 < total:
            cb.barrier_wait(free, slot, phase)
            bring_step(ring, done + 2, walk, plan)
    cb.wgmma_wait(0, s)
    return next_slot, next_phase


@cb.func
def start_columns(part, p, keys, c, plan):
    """part = p @ keys, started: the c-th 32 columns of the queries' gradients; the slopes p are in
    registers.
    """
    cb.wgmma_fence()
    for j in cb.unroll(range(plan.keys // 16)):
        at = (c // 2 * plan.keys + j * 16) * BLOCK + c % 2 * 32
        cb.wgmma(part, p[j], 0, keys, at, 32, keys.dtype, accumulate=j > 0, transpose_b=True)
    cb.wgmma_commit()


@cb.kernel(fast_math=("contract", "afn", "nsz", "arcp"))
def hopper_wide_gradients(
    q: cb.TensorMap, k: cb.TensorMap, v: cb.TensorMap, grad: cb.TensorMap, lse: cb.TensorMap, delta: cb.TensorMap,
    dq: cb.Array, dk: cb.Array, dv: cb.Array, heads, key_heads, batches, length, seen, band, scale: cb.f32,
    plan: cb.Comptime, padding=None,
):  # fmt: skip
    """dk and dv of one block of 64 keys, and its part of dq; arguments as `hopper_gradients` has
    them.
    """
    depth, rows = plan.depth, plan.queries
    size = plan.keys * rows
    loaded = cb.barrier(1, 1)
    query_full, query_free = cb.barrier(2, 1), cb.barrier(2, 8)
    grad_full, grad_free = cb.barrier(2, 1), cb.barrier(2, 8)
    weights_full, weights_free = cb.barrier(1, 4), cb.barrier(1, 4)
    ds_full, ds_free = cb.barrier(2, 4), cb.barrier(2, 4)
    keys = cb.shared(plan.keys * depth, k.dtype)
    values = cb.shared(plan.keys * depth, v.dtype)
    queries = cb.shared(2 * rows * depth, q.dtype)
    grads = cb.shared(2 * rows * depth, grad.dtype)
    ds = cb.shared(2 * size, q.dtype)
    weights = cb.shared(size, cb.f32)
    tops = cb.shared(2 * rows, cb.f32)
    deltas = cb.shared(2 * rows, cb.f32)
    block, b, g, first, steps = keys_of_cube(
        key_heads, batches * key_heads, length, seen, band, padding, plan
    )
    shared_heads = heads // key_heads
    base = b * heads + g * shared_heads
    total = (steps - first) * shared_heads
    walk = (heads, base, first, steps, total)
    query_ring = (queries, tops, q, lse, query_full, query_free)
    grad_ring = (grads, deltas, grad, delta, grad_full, grad_free)
    role = cb.PLANE_POS // 4
    lane = cb.UNIT_POS_PLANE
    leader = lane == 0
    unit = cb.UNIT_POS % GROUP
    slot = 0
    phase = 0
    step = first
    if role == 0:  # the first copies, products for queries
        cb.set_registers(88, False)
        if cb.UNIT_POS == 0:
            bring_keys(keys, values, k, v, b, g, block, loaded, plan)
            for n in range(cb.min(total, 2)):
                bring_step(query_ring, n, walk, plan)
                bring_step(grad_ring, n, walk, plan)
        even, odd = cb.local(16, cb.f32), cb.local(16, cb.f32)
        p = cb.local(plan.keys // 16, cb.u32, lanes=4)
        cell = (
            lane % 8 * BLOCK
            + lane // 16 * 8 * BLOCK
            + (2 * cb.PLANE_POS + lane // 8 % 2 ^ lane % 8) * 8
        )
        other = 0
        cb.barrier_wait(loaded, 0, 0)
        for _done in range(total):
            cb.barrier_wait(ds_full, slot, phase)
            for j in range(plan.keys // 16):
                p[j] = cb.load_matrix(ds, slot * size + cell + j * 16 * BLOCK, transpose=True)
            cb.sync_plane()
            if leader:
                cb.barrier_arrive(ds_free, slot)
            at = ((base + other) * steps + step) * (rows * depth) + unit * 4
            start_columns(even, p, keys, 0, plan)
            for c in cb.unroll(range(0, depth // 32, 2)):
                start_columns(odd, p, keys, c + 1, plan)
                cb.wgmma_wait(1, even)
                add_query_grads(dq, even, at + c * (rows * 32))
                if c + 2 < depth // 32:
                    start_columns(even, p, keys, c + 2, plan)
                    cb.wgmma_wait(1, odd)
                else:
                    cb.wgmma_wait(0, odd)
                add_query_grads(dq, odd, at + (c + 1) * (rows * 32))
            slot, phase = following(slot, phase)
            step = step + 1
            if step == steps:
                step = first
                other = other + 1
    elif role == 1:  # scores, weights, sums for values
        cb.set_registers(208, True)
        s = cb.local(rows // 2, cb.f32)
        p = cb.local(rows // 16, cb.u32, lanes=4)
        sum_v = cb.local(depth // 2, cb.f32)
        for i in range(depth // 2):
            sum_v[i] = 0.0
        row = block * plan.keys + cb.PLANE_POS % 4 * 16 + lane // 4
        column = lane % 4 * 2
        upper, lower = shifts_of_keys(row, b, seen, scale, padding, plan)
        first_products(s, keys, query_ring, loaded, walk, plan)
        for done in range(total):
            if plan.causal:
                if step == block:
                    hide_turned(s, row - step * plan.queries - column, plan)
            weigh_turned(s, tops, slot * rows + column, scale, upper, lower, plan)
            cb.barrier_wait(weights_free, 0, 1 - slot)
            for j in range(rows // 8):
                line = cb.concat(
                    line_of(s[4 * j], s[4 * j + 1]), line_of(s[4 * j + 2], s[4 * j + 3])
                )
                weights.store((j * GROUP + unit) * 4, line)
            cb.sync_plane()
            if leader:
                cb.barrier_arrive(query_free, slot)
                cb.barrier_arrive(weights_full, 0)
            fragments(p, s, q.dtype, rows // 16)
            slot, phase = sums_and_products(
                sum_v, p, grad_ring, s, keys, query_ring, done, slot, phase, walk, plan
            )  # fmt: skip
            step = step + 1
            if step == steps:
                step = first
        write_rows(sum_v, dv, q.dtype, b, g, row, lane, cb.f32(1.0), cb.f32(1.0), 0, depth)
    else:  # slopes, sums for keys
        cb.set_registers(208, True)
        t = cb.local(rows // 2, cb.f32)
        p = cb.local(rows // 16, cb.u32, lanes=4)
        sum_k = cb.local(depth // 2, cb.f32)
        for i in range(depth // 2):
            sum_k[i] = 0.0
        row = block * plan.keys + cb.PLANE_POS % 4 * 16 + lane // 4
        column = lane % 4 * 2
        own_row = cb.PLANE_POS % 4 * 16 * BLOCK + lane % 16 * BLOCK
        first_products(t, values, grad_ring, loaded, walk, plan)
        for done in range(total):
            cb.barrier_wait(weights_full, 0, slot)
            for j in range(rows // 8):
                known = weights.load((j * GROUP + unit) * 4, 4)
                for e in cb.unroll(range(4)):
                    t[4 * j + e] = known[e] * (
                        t[4 * j + e] - deltas[slot * rows + 8 * j + column + e % 2]
                    )
            fragments(p, t, q.dtype, rows // 16)
            cb.barrier_wait(ds_free, slot, 1 - phase)
            for j in range(rows // 16):
                store_slopes(ds, slot * size + own_row, p[j], j, lane)
            cb.sync_plane()
            if leader:
                cb.barrier_arrive(ds_full, slot)
                cb.barrier_arrive(weights_free, 0)
                cb.barrier_arrive(grad_free, slot)
            slot, phase = sums_and_products(
                sum_k, p, query_ring, t, values, grad_ring, done, slot, phase, walk, plan
            )  # fmt: skip
        write_rows(sum_k, dk, q.dtype, b, g, row, lane, scale / LOG2E, scale / LOG2E, 0, depth)
