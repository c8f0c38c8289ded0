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
from cubepy.kernels.attention.problem import AttentionGradients
from cubepy.kernels.attention.sm90 import masks as masking
from cubepy.kernels.attention.sm90.backward_256 import hopper_wide_gradients
from cubepy.kernels.attention.sm90.backward_passes import (
    PASS_UNITS,
    prepare_gradients,
    round_query_grads,
)
from cubepy.kernels.attention.sm90.backward_steps import (
    HopperGradients,
    KeyBlock,
    Passing,
    add_query_grads,
    hide_turned,
    keys_of_cube,
    load_keys,
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
from cubepy.kernels.primitives.pipeline import Stage
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory
from cubepy.runtime.device import DeviceProperties

CACHE = 24 << 20
"""Bytes of queries, gradients and sums of heads that are done together: half of the second-level
cache.
"""


@cb.func
def start_key_grads(dk, ds, at, queries, slot, plan):
    """dk += ds @ queries, started; the group's own part of ds lies in shared memory."""
    cb.wgmma_fence(dk)
    for j in cb.unroll(range(plan.queries // 16)):
        cb.wgmma(
            dk,
            ds,
            at + j // 4 * plan.keys * BLOCK + j % 4 * 16,
            queries,
            slot * plan.queries * plan.depth + j * 16 * BLOCK,
            plan.depth,
            queries.dtype,
            transpose_b=True,
            b_lead=plan.queries * BLOCK,
        )
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
            dq,
            ds,
            at + row + j * 16 * BLOCK,
            keys,
            column + j * 16 * BLOCK,
            columns,
            keys.dtype,
            accumulate=j > 0,
            transpose_a=True,
            transpose_b=True,
        )
    cb.wgmma_commit()


@cb.struct
class Gradients:
    """Operands and memory of a cube: keys and values that stay, queries and the result's gradients
    that pass by, and the slopes ds of two steps.
    """

    k: cb.TensorMap
    v: cb.TensorMap
    dq: cb.Array
    keys: Any
    values: Any
    queries: Passing
    grads: Passing
    ds: Any
    loaded: Any
    cube: KeyBlock
    scale: Any
    plan: cb.Comptime[HopperGradients]


@cb.struct
class Sums:
    """What a unit holds: scores and weights s, slopes t, weights p as operands, its part of a
    step's query gradients, and the sums for keys and for values.
    """

    s: Any
    t: Any
    p: Any
    part: Any
    sum_k: Any
    sum_v: Any


@cb.struct
class Seat:
    """Where a unit's numbers stand: its group, its key `row` (and row + 8) and first query `column`
    of a step, its row of slopes, and what is added to the exponents of its keys.
    """

    group: Any
    row: Any
    column: Any
    own: Any
    upper: Any
    lower: Any


@cb.func
def produce(job):
    """The copying unit: the keys and values, then every step's queries and gradients."""
    cube = job.cube
    load_keys(job.keys, job.values, job.k, job.v, cube, job.loaded, job.plan)
    query, grad = job.queries.first, job.grads.first
    for other in range(cube.shared_heads):
        h = cube.g * cube.shared_heads + other
        for step in range(cube.first, cube.steps):
            query.acquire()
            job.queries.load(query, cube.b, h, cube.b * cube.heads + h, step)
            grad.acquire()
            job.grads.load(grad, cube.b, h, cube.b * cube.heads + h, step)
            query = query.advance()
            grad = grad.advance()


@cb.func
def slopes_of(job, sums, seat, query, grad, last, step, done, at):
    """A step's weights and slopes t = s * (values @ grads.T - delta), which go to ds[at]; and
    sum_v += p @ grads, started. Gives back the `last` stage of queries.
    """
    plan, s, t = job.plan, sums.s, sums.t
    rows, depth = plan.queries, plan.depth
    deltas, dtype = job.grads.numbers, job.ds.dtype
    grad.wait()
    start_products(t, job.values, plan.keys, seat.group, job.grads.tiles, rows, grad.slot, depth)
    if plan.causal:
        if (job.cube.block + 1) * plan.keys > step * rows:
            hide_turned(s, seat.row - step * rows - seat.column, plan)
    first = query.slot * rows + seat.column
    weigh_turned(s, job.queries.numbers, first, job.scale, seat.upper, seat.lower, plan)
    if not plan.by_rows:
        fragments(sums.p, s, dtype, rows // 16)
    # As in the forward kernel: a branch, so that the wait stays behind the exponentials.
    grad.wait()
    cb.wgmma_wait(0, sums.sum_k, t)
    if done > 0:
        last.release(cb.UNIT_POS_PLANE == 0)
    for j in range(rows // 8):
        for e in range(2):
            less = deltas[grad.slot * rows + 8 * j + seat.column + e]
            t[4 * j + e] = s[4 * j + e] * (t[4 * j + e] - less)
            t[4 * j + 2 + e] = s[4 * j + 2 + e] * (t[4 * j + 2 + e] - less)
    if not plan.by_rows:
        start_sums(sums.sum_v, sums.p, job.grads.tiles, rows, grad.slot, depth)
    for j in range(rows // 16):
        to = at + j // 4 * plan.keys * BLOCK + seat.own
        store_slopes(job.ds, to, fragment(t, 8 * j, dtype), j, cb.UNIT_POS_PLANE)
    if plan.by_rows:  # with 128 queries the weights as operands fit only where t was
        fragments(sums.p, s, dtype, rows // 16)
        start_sums(sums.sum_v, sums.p, job.grads.tiles, rows, grad.slot, depth)
    cb.fence_async()


@cb.func
def gradients_of(job, sums, seat, query, following, grad, at, to):
    """The next step's scores, started; then this step's query gradients, to dq[to], and sum_k +=
    ds @ queries, started. Gives back the stage of gradients.
    """
    plan, group = job.plan, seat.group
    following.wait()
    start_products(
        sums.s,
        job.keys,
        plan.keys,
        group,
        job.queries.tiles,
        plan.queries,
        following.slot,
        plan.depth,
    )
    cb.sync_group(1, 2 * GROUP)
    start_query_grads(sums.part, job.ds, at, job.keys, group, plan)
    start_key_grads(
        sums.sum_k, job.ds, at + group * BLOCK * BLOCK, job.queries.tiles, query.slot, plan
    )
    cb.wgmma_wait(1, sums.s, sums.sum_v, sums.part)
    grad.release(cb.UNIT_POS_PLANE == 0)
    add_query_grads(job.dq, sums.part, to)


@cb.func
def consume(job, sums, seat):
    """A group of units: the steps of all query heads that share the cube's keys."""
    plan, cube = job.plan, job.cube
    rows, size = plan.queries, plan.queries * plan.depth // 2
    query, grad = job.queries.first, job.grads.first
    buffer = 0
    last = query
    done = 0
    step = cube.first
    other = 0
    total = cube.total()
    cb.barrier_wait(job.loaded, 0, 0)
    if total > 0:
        query.wait()
        start_products(
            sums.s, job.keys, plan.keys, seat.group, job.queries.tiles, rows, 0, plan.depth
        )
        cb.wgmma_wait(0, sums.s)
    while done < total:
        at = buffer * plan.keys * rows
        slopes_of(job, sums, seat, query, grad, last, step, done, at)
        done = done + 1
        last = query
        following = query
        if done < total:
            following = query.advance()
        head = ((cube.head + other) * cube.steps + step) * 2 + seat.group
        to = head * size + cb.UNIT_POS % GROUP * 4
        gradients_of(job, sums, seat, query, following, grad, at, to)
        step = step + 1
        if step == cube.steps:
            step = cube.first
            other = other + 1
        query = following
        grad = grad.advance()
        buffer = 1 - buffer
    cb.wgmma_wait(0, sums.sum_k, sums.sum_v, sums.s)


@cb.kernel(fast_math=("contract", "afn", "nsz", "arcp"))
def hopper_gradients(
    maps,
    dq: cb.Array,
    dk: cb.Array,
    dv: cb.Array,
    sizes,
    scale: cb.f32,
    plan: cb.Comptime,
    padding=None,
):
    """dk and dv of one block of keys, and its part of dq.

    `maps` are of q (B, H, L, D), k, v (B, G, S, D), grad (B, H, L, D) of 16-bit floats; lse and
    delta (B * H, steps * queries) f32: log-sum-exp in units of log 2 (infinite beyond L) and the
    sums of grad * out. dq f32 in the order of accumulators (B * H, steps, 2, part / 4, 128, 4), dk
    and dv (B, G, S, D // 2) words. `sizes` are H, G, B, L, S, and the key heads that are done
    together where causal, with the keys that most queries see first. padding: numbers of keys and
    what is known of blocks, as `masks.survey_keys` gives them, and the step from batch to batch.
    """
    q, k, v, grad, lse, delta = maps
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
    cube = keys_of_cube(sizes, padding, plan)
    query = Stage(query_full, query_free, 0, 0, query_stages)
    passed = Stage(grad_full, grad_free, 0, 0, grad_stages)
    job = Gradients(
        k,
        v,
        dq,
        keys,
        values,
        Passing(queries, tops, q, lse, query, plan),
        Passing(grads, deltas, grad, delta, passed, plan),
        ds,
        loaded,
        cube,
        scale,
        plan,
    )
    if cb.UNIT_POS < GROUP:
        cb.set_registers(24, False)
        if cb.UNIT_POS == 0:
            produce(job)
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
        row = cube.block * plan.keys + cb.PLANE_POS % 4 * 16 + group * BLOCK + lane // 4
        own = group * BLOCK * BLOCK + cb.PLANE_POS % 4 * 16 * BLOCK + lane % 16 * BLOCK
        upper, lower = shifts_of_keys(row, cube.b, sizes[4], scale, padding, plan)
        seat = Seat(group, row, lane % 4 * 2, own, upper, lower)
        consume(job, Sums(s, t, p, part, sum_k, sum_v), seat)
        start, one, factor = (cube.b, cube.g, row), cb.f32(1.0), scale / LOG2E
        write_rows(sum_v, dv, q.dtype, start, (one, one), 0, depth)
        write_rows(sum_k, dk, q.dtype, start, (factor, factor), 0, depth)


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
    """The blueprint for a problem, or None where this routine cannot do it; widths are
    rounded up.
    """
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


def launch(p: AttentionGradients, found: tuple[Any, Any, Any], plan: HopperGradients) -> None:
    """Write the gradients of queries, keys and values (all (B, H or G, L or S, D)) to `found` in
    three passes.
    """
    q, k, v, (dq, dk, dv) = p.query, p.key, p.value, found
    batches, heads, length = q.shape[:3]
    depth, queries = plan.depth, plan.queries
    key_heads, seen = k.shape[1:3]
    steps = -(-length // queries)
    f32 = np.dtype(np.float32)
    tops, delta = (memory.empty((batches * heads, steps * queries), f32) for _ in range(2))
    planes = PASS_UNITS // 32
    cubes = -(-delta.size // planes)
    lanes = 8 if plan.wide else depth // 32
    prepare_gradients[cubes, PASS_UNITS](
        p.result, p.grad, p.lse, tops, delta, lanes=lanes, mode="unchecked"
    )
    sums = memory.empty((batches * heads * steps * queries * depth,), f32)
    sums[...] = 0
    box = (1, queries)
    cubes = batches * key_heads * -(-seen // plan.keys)
    padding = None
    if plan.mask != "none":
        counter = memory.empty((1,), np.dtype(np.int32))
        numbers, known, (each, _) = masking.numbers_of_keys(
            p.mask, seen, p.scale * LOG2E, plan.keys, counter, 0
        )
        padding = (numbers, known, 1 if each > 1 else 0)
    band = max(1, CACHE // (8 * length * depth * (heads // key_heads)))
    kernel = hopper_wide_gradients if plan.wide else hopper_gradients
    kernel[cubes, plan.units](
        (
            tiles_of(q, queries),
            tiles_of(k, plan.keys),
            tiles_of(v, plan.keys),
            tiles_of(p.grad, queries),
            cb.tensor_map(tops, box, swizzle=0),
            cb.tensor_map(delta, box, swizzle=0),
        ),
        sums,
        dk.view(np.uint32),
        dv.view(np.uint32),
        (heads, key_heads, batches, length, seen, band),
        p.scale * LOG2E,
        plan,
        padding,
        mode="unchecked",
    )
    round_query_grads[2 * batches * heads * steps, GROUP](
        sums,
        dq.view(np.uint32),
        p.scale,
        heads,
        steps,
        dtype=as_dtype(q.dtype),
        plan=plan,
        mode="unchecked",
    )
