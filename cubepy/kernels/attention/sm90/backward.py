"""The gradients of attention for Hopper: keys stay in a cube, queries pass by.

The structure is that of FlashAttention-2 and -3 (Dao, 2023; Shah et al., 2024). A cube owns 128
keys and values; two groups of 128 units own 64 of them each and keep the gradients of these in
registers. For every block of queries the scores are computed again, turned over (keys by queries),
so that the weights already lie as operands of the next product. The gradients of queries are added
to an f32 array by all cubes; a last pass rounds them. Measured in
docs/benchmarks/log/attention-sm90.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.attention.online_softmax import LOG2E
from cubepy.kernels.attention.sm90 import masks as masking
from cubepy.kernels.attention.sm90.backward_256 import hopper_wide_gradients
from cubepy.kernels.attention.sm90.backward_steps import (
    HopperGradients,
    add_query_grads,
    bring_keys,
    bring_rows,
    hide_turned,
    keys_of_cube,
    shifts_of_keys,
    store_slopes,
    weigh_turned,
)
from cubepy.kernels.attention.sm90.flash import tiles_of
from cubepy.kernels.attention.sm90.fragments import (
    fragment,
    fragments,
    start_products,
    start_sums,
    write_rows,
)
from cubepy.kernels.attention.sm90.plan import BLOCK, GROUP
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory
from cubepy.runtime.device import DeviceProperties

CACHE = 24 << 20
"""Bytes of queries, gradients and sums of heads that are done together: half of the second-level
cache.
"""
PASS_UNITS = 256
"""Units of a cube of the pass before."""


@cb.func
def start_key_grads(dk, ds, at, queries, slot, plan):
    """dk += ds @ queries, started; the group's own part of ds lies in shared memory."""
    cb.wgmma_fence(dk)
    for j in cb.unroll(range(plan.queries // 16)):
        cb.wgmma(
            dk, ds, at + j // 4 * plan.keys * BLOCK + j % 4 * 16,
            queries, slot * plan.queries * plan.depth + j * 16 * BLOCK, plan.depth, queries.dtype,
            transpose_b=True, b_lead=plan.queries * BLOCK,
        )  # fmt: skip
    cb.wgmma_commit()


@cb.func
def start_query_grads(dq, ds, at, keys, group, plan):
    """dq = ds.T @ keys, started: all keys of the cube, half of the columns or of the rows."""
    half = plan.depth // 2
    column = group * half * plan.keys if half == BLOCK else group * half
    row, columns = 0, half
    if plan.by_rows:
        row, column, columns = group * plan.keys * BLOCK, 0, plan.depth
    cb.wgmma_fence()
    for j in cb.unroll(range(plan.keys // 16)):
        cb.wgmma(
            dq, ds, at + row + j * 16 * BLOCK, keys, column + j * 16 * BLOCK, columns, keys.dtype,
            accumulate=j > 0, transpose_a=True, transpose_b=True,
        )  # fmt: skip
    cb.wgmma_commit()


@cb.kernel(fast_math=("contract", "afn", "nsz", "arcp"))
def hopper_gradients(
    q: cb.TensorMap, k: cb.TensorMap, v: cb.TensorMap, grad: cb.TensorMap, lse: cb.TensorMap, delta: cb.TensorMap,
    dq: cb.Array, dk: cb.Array, dv: cb.Array, heads, key_heads, batches, length, seen, band, scale: cb.f32,
    plan: cb.Comptime, padding=None,
):  # fmt: skip
    """dk and dv of one block of keys, and its part of dq.

    q, grad (B, H, L, D), k, v (B, G, S, D) of 16-bit floats; lse and delta (B * H, steps * queries)
    f32: log-sum-exp in units of log 2 (infinite beyond L) and the sums of grad * out; dq f32 in the
    order of accumulators (B * H, steps, 2, part / 4, 128, 4), dk and dv (B, G, S, D // 2) words.
    Where causal, `band` key heads are done together, with the keys that most queries see first.
    padding: numbers of keys and what is known of blocks, as `attention_hopper_masks.survey_keys`
    gives them, and the step from batch to batch.
    """
    depth, query_stages, grad_stages, rows = (
        plan.depth,
        plan.query_stages,
        plan.grad_stages,
        plan.queries,
    )
    half = depth // 2
    loaded = cb.barrier(1, 1)
    query_full, query_free = cb.barrier(query_stages, 1), cb.barrier(query_stages, 8)
    grad_full, grad_free = cb.barrier(grad_stages, 1), cb.barrier(grad_stages, 8)
    keys = cb.shared(plan.keys * depth, k.dtype)
    values = cb.shared(plan.keys * depth, v.dtype)
    queries = cb.shared(query_stages * rows * depth, q.dtype)
    grads = cb.shared(grad_stages * rows * depth, grad.dtype)
    ds = cb.shared(2 * plan.keys * rows, q.dtype)
    tops = cb.shared(query_stages * rows, cb.f32)
    deltas = cb.shared(grad_stages * rows, cb.f32)
    block, b, g, first, steps = keys_of_cube(
        key_heads, batches * key_heads, length, seen, band, padding, plan
    )
    shared_heads = heads // key_heads
    slot = 0
    phase = 0
    grad_slot = 0
    grad_phase = 0
    if cb.UNIT_POS < GROUP:
        cb.set_registers(24, False)
        if cb.UNIT_POS == 0:
            bring_keys(keys, values, k, v, b, g, block, loaded, plan)
            for other in range(shared_heads):
                h = g * shared_heads + other
                for step in range(first, steps):
                    cb.barrier_wait(query_free, slot, 1 - phase)
                    bring_rows(
                        queries, tops, q, lse, b, h, b * heads + h, step, query_full, slot, plan
                    )
                    cb.barrier_wait(grad_free, grad_slot, 1 - grad_phase)
                    bring_rows(
                        grads,
                        deltas,
                        grad,
                        delta,
                        b,
                        h,
                        b * heads + h,
                        step,
                        grad_full,
                        grad_slot,
                        plan,
                    )
                    slot = slot + 1
                    if slot == query_stages:
                        slot = 0
                        phase = 1 - phase
                    grad_slot = grad_slot + 1
                    if grad_slot == grad_stages:
                        grad_slot = 0
                        grad_phase = 1 - grad_phase
    else:
        cb.set_registers(240, True)
        s = cb.local(rows // 2, cb.f32)
        t = cb.local(rows // 2, cb.f32)
        part = cb.local(plan.part, cb.f32)
        sum_k = cb.local(half, cb.f32)
        sum_v = cb.local(half, cb.f32)
        p = cb.local(rows // 16, cb.u32, lanes=4)
        for i in range(half):
            sum_k[i] = 0.0
            sum_v[i] = 0.0
        group = cb.PLANE_POS // 4 - 1
        lane = cb.UNIT_POS_PLANE
        leader = lane == 0
        row = block * plan.keys + cb.PLANE_POS % 4 * 16 + group * BLOCK + lane // 4
        column = lane % 4 * 2
        own_rows = group * BLOCK * BLOCK + cb.PLANE_POS % 4 * 16 * BLOCK + lane % 16 * BLOCK
        upper, lower = shifts_of_keys(row, b, seen, scale, padding, plan)
        turn = 0
        last = 0
        done = 0
        step = first
        other = 0
        total = (steps - first) * shared_heads
        base = b * heads + g * shared_heads
        cb.barrier_wait(loaded, 0, 0)
        if total > 0:
            cb.barrier_wait(query_full, 0, 0)
            start_products(s, keys, plan.keys, group, queries, rows, 0, depth)
            cb.wgmma_wait(0, s)
        while done < total:
            cb.barrier_wait(grad_full, grad_slot, grad_phase)
            start_products(t, values, plan.keys, group, grads, rows, grad_slot, depth)
            if plan.causal:
                if (block + 1) * plan.keys > step * rows:
                    hide_turned(s, row - step * plan.queries - column, plan)
            weigh_turned(s, tops, slot * rows + column, scale, upper, lower, plan)
            if not plan.by_rows:
                fragments(p, s, q.dtype, rows // 16)
            # As in the forward kernel: a branch, so that the wait stays behind the exponentials.
            cb.barrier_wait(grad_full, grad_slot, grad_phase)
            cb.wgmma_wait(0, sum_k, t)
            if done > 0:
                if leader:
                    cb.barrier_arrive(query_free, last)
            for j in range(rows // 8):
                for e in range(2):
                    less = deltas[grad_slot * rows + 8 * j + column + e]
                    t[4 * j + e] = s[4 * j + e] * (t[4 * j + e] - less)
                    t[4 * j + 2 + e] = s[4 * j + 2 + e] * (t[4 * j + 2 + e] - less)
            if not plan.by_rows:
                start_sums(sum_v, p, grads, rows, grad_slot, depth)
            place = turn * plan.keys * rows
            for j in range(rows // 16):
                store_slopes(
                    ds,
                    place + j // 4 * plan.keys * BLOCK + own_rows,
                    fragment(t, 8 * j, q.dtype),
                    j,
                    lane,
                )
            if plan.by_rows:  # with 128 queries the weights as operands fit only where t was
                fragments(p, s, q.dtype, rows // 16)
                start_sums(sum_v, p, grads, rows, grad_slot, depth)
            cb.fence_async()
            done = done + 1
            last = slot
            next_slot, next_phase = slot, phase
            if done < total:
                next_slot = slot + 1
                if next_slot == query_stages:
                    next_slot = 0
                    next_phase = 1 - phase
            cb.barrier_wait(query_full, next_slot, next_phase)
            start_products(s, keys, plan.keys, group, queries, rows, next_slot, depth)
            cb.sync_group(1, 2 * GROUP)
            start_query_grads(part, ds, place, keys, group, plan)
            start_key_grads(sum_k, ds, place + group * BLOCK * BLOCK, queries, slot, plan)
            cb.wgmma_wait(1, s, sum_v, part)
            if leader:
                cb.barrier_arrive(grad_free, grad_slot)
            at = (((base + other) * steps + step) * 2 + group) * (
                rows * half
            ) + cb.UNIT_POS % GROUP * 4
            add_query_grads(dq, part, at)
            step = step + 1
            if step == steps:
                step = first
                other = other + 1
            slot, phase = next_slot, next_phase
            grad_slot = grad_slot + 1
            if grad_slot == grad_stages:
                grad_slot = 0
                grad_phase = 1 - grad_phase
            turn = 1 - turn
        cb.wgmma_wait(0, sum_k, sum_v, s)
        write_rows(sum_v, dv, q.dtype, b, g, row, lane, cb.f32(1.0), cb.f32(1.0), 0, depth)
        write_rows(sum_k, dk, q.dtype, b, g, row, lane, scale / LOG2E, scale / LOG2E, 0, depth)


@cb.kernel
def prepare_gradients(
    out: cb.Array,
    grad: cb.Array,
    lse: cb.Array,
    tops: cb.Array,
    delta: cb.Array,
    *,
    lanes: cb.Comptime,
):
    """delta[b * h, i] = sum of grad * out, tops = lse in units of log 2; beyond the length 0 and
    infinity.

    A plane for each row; 32 times `lanes` is at least the width.
    """
    row = cb.CUBE_POS * (cb.CUBE_DIM // 32) + cb.PLANE_POS
    if row < delta.size:
        padded = delta.shape[1]
        i = row % padded
        b, h = row // padded // out.shape[1], row // padded % out.shape[1]
        total = cb.f32(0.0)
        if i < out.shape[2]:
            column = cb.UNIT_POS_PLANE * lanes
            x, y = cb.splat(cb.f32(0.0), lanes), cb.splat(cb.f32(0.0), lanes)
            if column < out.shape[3]:
                x = cb.cast(out.load((b, h, i, column), lanes), cb.f32)
                y = cb.cast(grad.load((b, h, i, column), lanes), cb.f32)
            total = cb.plane_sum((x * y).sum())
        if cb.UNIT_POS_PLANE == 0:
            delta[row // padded, i] = total
            top = lse[b, h, cb.min(i, out.shape[2] - 1)] * LOG2E
            sees = i < out.shape[2] and top != -float("inf")
            tops[row // padded, i] = top if sees else float("inf")


@cb.kernel
def round_query_grads(
    sums: cb.Array,
    dq: cb.Array,
    scale: cb.f32,
    heads,
    steps,
    *,
    dtype: cb.Comptime,
    plan: cb.Comptime,
):
    """dq (B, H, L, D // 2) words from the sums of `hopper_gradients`.

    A cube of 128 units for 64 rows of half the columns, or of all of them.
    """
    group = cb.CUBE_POS % 2
    step = cb.CUBE_POS // 2 % steps
    which = cb.CUBE_POS // 2 // steps
    lane = cb.UNIT_POS_PLANE
    o = cb.local(plan.part, cb.f32)
    for i in range(plan.part // 4):
        line = sums.load(cb.CUBE_POS * (plan.part * GROUP) + i * GROUP * 4 + cb.UNIT_POS * 4, 4)
        for e in cb.unroll(range(4)):
            o[4 * i + e] = line[e]
    row = step * plan.queries + cb.UNIT_POS // 32 * 16 + lane // 4
    first = group * (plan.depth // 4)
    if plan.by_rows:
        row, first = row + group * BLOCK, 0
    write_rows(
        o, dq, dtype, which // heads, which % heads, row, lane, scale, scale, first, 2 * plan.part
    )


def plan_for(
    q: Any,
    k: Any,
    v: Any,
    grad: Any,
    causal: bool,
    p: DeviceProperties,
    mask: Any = None,
    kind: str = "none",
) -> HopperGradients | None:
    """The blueprint for a problem, or None where this routine cannot do it; widths are rounded up."""
    if not {"wgmma", "tma"} <= p.features or q.dtype.itemsize != 2 or q.dtype.kind == "i":
        return None
    widths = (q.shape[3], v.shape[3])
    if (
        not q.dtype == k.dtype == v.dtype == grad.dtype
        or any(n % 8 for n in widths)
        or not 0 < max(widths) <= 256
    ):
        return None
    padding = masking.kind_of(mask, kind)
    if padding not in ("none", *masking.BY_KEY) or (
        padding != "none" and mask.shape[1] > 1 and mask.strides[1] != 0
    ):
        return None
    width = max(widths)
    depth, queries = (64, 128) if width <= 64 else (-(-width // BLOCK) * BLOCK, 64)
    stages = 3 if depth <= 128 else 2
    plan = HopperGradients(depth, stages, stages, causal, False, queries, padding)
    return replace(plan, ragged=k.shape[2] % plan.keys != 0)


def launch(
    grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, dq: Any, dk: Any, dv: Any, scale: float,
    plan: HopperGradients, mask: Any = None,
) -> None:  # fmt: skip
    """Write the gradients of queries, keys and values (all (B, H or G, L or S, D)) in three passes."""
    batches, heads, length = q.shape[:3]
    depth, queries = plan.depth, plan.queries
    key_heads, seen = k.shape[1:3]
    steps = -(-length // queries)
    f32 = np.dtype(np.float32)
    tops, delta = (memory.empty((batches * heads, steps * queries), f32) for _ in range(2))
    planes = PASS_UNITS // 32
    cubes = -(-delta.size // planes)
    lanes = 8 if plan.wide else depth // 32
    prepare_gradients[cubes, PASS_UNITS](out, grad, lse, tops, delta, lanes=lanes, mode="unchecked")
    sums = memory.empty((batches * heads * steps * queries * depth,), f32)
    sums[...] = 0
    box = (1, queries)
    cubes = batches * key_heads * -(-seen // plan.keys)
    padding = None
    if plan.mask != "none":
        counter = memory.empty((1,), np.dtype(np.int32))
        numbers, known, (each, _) = masking.numbers_of_keys(
            mask, seen, scale * LOG2E, plan.keys, counter, 0
        )
        padding = (numbers, known, 1 if each > 1 else 0)
    band = max(1, CACHE // (8 * length * depth * (heads // key_heads)))
    kernel = hopper_wide_gradients if plan.wide else hopper_gradients
    kernel[cubes, plan.units](
        tiles_of(q, queries), tiles_of(k, plan.keys), tiles_of(v, plan.keys), tiles_of(grad, queries),
        cb.tensor_map(tops, box, swizzle=0), cb.tensor_map(delta, box, swizzle=0), sums, dk.view(np.uint32),
        dv.view(np.uint32), heads, key_heads, batches, length, seen, band, scale * LOG2E, plan, padding,
        mode="unchecked",
    )  # fmt: skip
    round_query_grads[2 * batches * heads * steps, GROUP](
        sums,
        dq.view(np.uint32),
        scale,
        heads,
        steps,
        dtype=as_dtype(q.dtype),
        plan=plan,
        mode="unchecked",
    )
