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

from typing import Any

import cubepy as cb
from cubepy.kernels.attention.online_softmax import LOG2E
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
from cubepy.kernels.attention.sm90.fragments import (
    fragments,
    start_products,
    start_sums,
    write_rows,
)
from cubepy.kernels.attention.sm90.plan import BLOCK, GROUP
from cubepy.kernels.primitives.pipeline import Stage


@cb.struct
class WideGradients:
    """Operands and memory of a cube: keys and values that stay, queries and the result's gradients
    that pass by, and what one group leaves for the next: `weights` of a step, and slopes `ds` of
    two.
    """

    k: cb.TensorMap
    v: cb.TensorMap
    dq: cb.Array
    dk: cb.Array
    dv: cb.Array
    keys: Any
    values: Any
    queries: Passing
    grads: Passing
    weights: Any
    weights_full: Any
    weights_empty: Any
    ds: Any
    ds_full: Any
    ds_empty: Any
    loaded: Any
    cube: KeyBlock
    scale: Any
    plan: cb.Comptime[HopperGradients]

    def row(self):
        """The unit's first key."""
        inside = cb.PLANE_POS % 4 * 16 + cb.UNIT_POS_PLANE // 4
        return self.cube.block * self.plan.keys + inside

    def weighed(self, stage):
        """The stage of a step's weights: rounds of their one slot alternate as slots of two do."""
        return Stage(self.weights_full, self.weights_empty, 0, stage.slot, 1)

    def sloped(self, stage):
        """The stage of a step's slopes."""
        return stage.beside(self.ds_full, self.ds_empty)


@cb.func
def following(stage):
    """The next of two stages, without a branch."""
    return Stage(stage.full, stage.empty, 1 - stage.slot, stage.phase ^ stage.slot, 2)


@cb.func
def load_step(pipeline, n, job):
    """Start copying the n-th step's rows; steps of the query heads that share keys come one after
    another.
    """
    cube = job.cube
    other = n // (cube.steps - cube.first)
    step = cube.first + n - other * (cube.steps - cube.first)
    # Batch and head come from their sum again: kept from the beginning on they cost registers.
    row = cube.head + other
    pipeline.load(pipeline.first.at(n % 2), row // cube.heads, row % cube.heads, row, step)


@cb.func
def first_products(s, own, pipeline, job):
    """s = own @ the first step's rows.T, as soon as both are there."""
    plan = job.plan
    cb.barrier_wait(job.loaded, 0, 0)
    if job.cube.total() > 0:
        pipeline.first.wait()
        start_products(s, own, plan.keys, 0, pipeline.tiles, plan.queries, 0, plan.depth)
        cb.wgmma_wait(0, s)


@cb.func
def sums_and_products(sums, p, pipeline, s, own, next_pipeline, done, stage, job):
    """sums += p @ this step's rows of a pipeline, then s = own @ the next step's rows of the other
    pipeline.T; `stage` is this step's in `ring`.

    Of the former rows nothing is needed any more, so the next step but one is copied there. Gives
    the next step's stage.
    """
    plan, total = job.plan, job.cube.total()
    stage.wait()
    start_sums(sums, p, pipeline.tiles, plan.queries, stage.slot, plan.depth)
    later = stage
    if done + 1 < total:
        later = following(stage)
    later.beside(next_pipeline.first.full, next_pipeline.first.empty).wait()
    start_products(s, own, plan.keys, 0, next_pipeline.tiles, plan.queries, later.slot, plan.depth)
    cb.wgmma_wait(1, sums)
    if cb.UNIT_POS_PLANE == 0:
        stage.release(True)
        if cb.UNIT_POS % GROUP == 0 and done + 2 < total:
            cb.barrier_wait(stage.empty, stage.slot, stage.phase)
            load_step(pipeline, done + 2, job)
    cb.wgmma_wait(0, s)
    return later


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


@cb.func
def query_gradients(job):
    """The first group: the first copies, and the products for queries."""
    plan, cube, dq, keys = job.plan, job.cube, job.dq, job.keys
    depth, rows, total = plan.depth, plan.queries, cube.total()
    lane = cb.UNIT_POS_PLANE
    if cb.UNIT_POS == 0:
        load_keys(keys, job.values, job.k, job.v, cube, job.loaded, plan)
        for n in range(cb.min(total, 2)):
            load_step(job.queries, n, job)
            load_step(job.grads, n, job)
    even, odd = cb.local(16, cb.f32), cb.local(16, cb.f32)
    p = cb.local(plan.keys // 16, cb.u32, lanes=4)
    cell = (
        lane % 8 * BLOCK
        + lane // 16 * 8 * BLOCK
        + (2 * cb.PLANE_POS + lane // 8 % 2 ^ lane % 8) * 8
    )
    other = 0
    step = cube.first
    slopes = job.sloped(job.queries.first)
    cb.barrier_wait(job.loaded, 0, 0)
    for _done in range(total):
        slopes.wait()
        for j in range(plan.keys // 16):
            at = slopes.slot * plan.keys * rows + cell + j * 16 * BLOCK
            p[j] = cb.load_matrix(job.ds, at, transpose=True)
        cb.sync_plane()
        slopes.release(lane == 0)
        at = ((cube.head + other) * cube.steps + step) * (rows * depth) + cb.UNIT_POS % GROUP * 4
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
        slopes = following(slopes)
        step = step + 1
        if step == cube.steps:
            step = cube.first
            other = other + 1


@cb.func
def value_gradients(job, seen, padding):
    """The second group: scores, weights, and the sums for values."""
    plan, cube = job.plan, job.cube
    depth, rows = plan.depth, plan.queries
    dtype = job.ds.dtype
    s = cb.local(rows // 2, cb.f32)
    p = cb.local(rows // 16, cb.u32, lanes=4)
    sum_v = cb.local(depth // 2, cb.f32)
    for i in range(depth // 2):
        sum_v[i] = 0.0
    row = job.row()
    column = cb.UNIT_POS_PLANE % 4 * 2
    upper, lower = shifts_of_keys(row, cube.b, seen, job.scale, padding, plan)
    step = cube.first
    stage = job.grads.first
    first_products(s, job.keys, job.queries, job)
    for done in range(cube.total()):
        if plan.causal:
            if step == cube.block:
                hide_turned(s, row - step * plan.queries - column, plan)
        at = stage.slot * rows + column
        weigh_turned(s, job.queries.numbers, at, job.scale, upper, lower, plan)
        weighed = job.weighed(stage)
        weighed.acquire()
        for j in range(rows // 8):
            line = cb.line(s[4 * j], s[4 * j + 1], s[4 * j + 2], s[4 * j + 3])
            job.weights.store((j * GROUP + cb.UNIT_POS % GROUP) * 4, line)
        cb.sync_plane()
        leader = cb.UNIT_POS_PLANE == 0
        job.queries.first.at(stage.slot).release(leader)
        weighed.commit(leader)
        fragments(p, s, dtype, rows // 16)
        stage = sums_and_products(sum_v, p, job.grads, s, job.keys, job.queries, done, stage, job)
        step = step + 1
        if step == cube.steps:
            step = cube.first
    one = cb.f32(1.0)
    write_rows(sum_v, job.dv, dtype, (cube.b, cube.g, row), (one, one), 0, depth)


@cb.func
def key_gradients(job):
    """The third group: slopes, and the sums for keys."""
    plan, cube = job.plan, job.cube
    depth, rows = plan.depth, plan.queries
    dtype, deltas = job.ds.dtype, job.grads.numbers
    lane = cb.UNIT_POS_PLANE
    t = cb.local(rows // 2, cb.f32)
    p = cb.local(rows // 16, cb.u32, lanes=4)
    sum_k = cb.local(depth // 2, cb.f32)
    for i in range(depth // 2):
        sum_k[i] = 0.0
    column = lane % 4 * 2
    own = cb.PLANE_POS % 4 * 16 * BLOCK + lane % 16 * BLOCK
    stage = job.queries.first
    first_products(t, job.values, job.grads, job)
    for done in range(cube.total()):
        weighed, slopes = job.weighed(stage), job.sloped(stage)
        weighed.wait()
        for j in range(rows // 8):
            known = job.weights.load((j * GROUP + cb.UNIT_POS % GROUP) * 4, 4)
            for e in cb.unroll(range(4)):
                less = deltas[stage.slot * rows + 8 * j + column + e % 2]
                t[4 * j + e] = known[e] * (t[4 * j + e] - less)
        fragments(p, t, dtype, rows // 16)
        slopes.acquire()
        for j in range(rows // 16):
            store_slopes(job.ds, slopes.slot * plan.keys * rows + own, p[j], j, lane)
        cb.sync_plane()
        leader = lane == 0
        slopes.commit(leader)
        weighed.release(leader)
        job.grads.first.at(stage.slot).release(leader)
        stage = sums_and_products(sum_k, p, job.queries, t, job.values, job.grads, done, stage, job)
    factor = job.scale / LOG2E
    write_rows(sum_k, job.dk, dtype, (cube.b, cube.g, job.row()), (factor, factor), 0, depth)


@cb.kernel(fast_math=("contract", "afn", "nsz", "arcp"))
def hopper_wide_gradients(
    maps,
    dq: cb.Array,
    dk: cb.Array,
    dv: cb.Array,
    sizes,
    scale: cb.f32,
    plan: cb.Comptime,
    padding=None,
):
    """dk and dv of one block of 64 keys, and its part of dq; arguments as `hopper_gradients` has
    them.
    """
    q, k, v, grad, lse, delta = maps
    depth, rows = plan.depth, plan.queries
    loaded = cb.barrier(1, 1)
    query_full, query_free = cb.barrier(2, 1), cb.barrier(2, 8)
    grad_full, grad_free = cb.barrier(2, 1), cb.barrier(2, 8)
    weights_full, weights_free = cb.barrier(1, 4), cb.barrier(1, 4)
    ds_full, ds_free = cb.barrier(2, 4), cb.barrier(2, 4)
    keys = cb.shared(plan.keys * depth, k.dtype)
    values = cb.shared(plan.keys * depth, v.dtype)
    queries = cb.shared(2 * rows * depth, q.dtype)
    grads = cb.shared(2 * rows * depth, grad.dtype)
    ds = cb.shared(2 * plan.keys * rows, q.dtype)
    weights = cb.shared(plan.keys * rows, cb.f32)
    tops = cb.shared(2 * rows, cb.f32)
    deltas = cb.shared(2 * rows, cb.f32)
    query, passed = Stage(query_full, query_free, 0, 0, 2), Stage(grad_full, grad_free, 0, 0, 2)
    job = WideGradients(
        k,
        v,
        dq,
        dk,
        dv,
        keys,
        values,
        Passing(queries, tops, q, lse, query, plan),
        Passing(grads, deltas, grad, delta, passed, plan),
        weights,
        weights_full,
        weights_free,
        ds,
        ds_full,
        ds_free,
        loaded,
        keys_of_cube(sizes, padding, plan),
        scale,
        plan,
    )
    role = cb.PLANE_POS // 4
    if role == 0:
        cb.set_registers(88, False)
        query_gradients(job)
    elif role == 1:
        cb.set_registers(208, True)
        value_gradients(job, sizes[4], padding)
    else:
        cb.set_registers(208, True)
        key_gradients(job)
