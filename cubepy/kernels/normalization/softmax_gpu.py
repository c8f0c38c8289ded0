"""softmax and log_softmax by whole cubes, for devices with planes: a row is read once and stays in
registers.

Rows too long for the registers of a cube, or of a cluster where there are such, are read twice.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.normalization.problem import Softmax
from cubepy.kernels.reduce.held_rows_gpu import (
    HELD,
    HeldPlan,
    fill_core,
    met,
    position_of_unit,
    row_of_lines,
    row_plan,
    scratch_of,
    store_line,
    walk_held,
)
from cubepy.kernels.reduce.reduction import SOFTMAX
from cubepy.kernels.reduce.walk_gpu import lanes_joined, units_joined
from cubepy.tune import GpuRoutine


@cb.func
def softmax_of_rows(x, out, acc: cb.Comptime, plan: cb.Comptime[HeldPlan], log: cb.Comptime[bool]):
    """What `softmax_held` does."""
    scratch = scratch_of(acc, plan)
    n = x.shape[1]
    row, mine, at = position_of_unit(x.shape[0], plan)
    values = row_of_lines(x, row, at, n, acc, cb.cast(-float("inf"), acc), plan)
    largest, sums = SOFTMAX.walks
    peak, _ = walk_held(values, at, n, 0, largest, None, plan, scratch)
    whole, powers = walk_held(values, at, n, 1, sums, peak, plan, scratch)
    met(plan)
    scale = cb.log(whole) if log else 1.0 / whole
    if mine:
        for j in cb.unroll(range(plan.held)):
            done = values[j] - peak - scale if log else powers[j] * scale
            store_line(out, row, at + j * plan.hop, n, j, done, plan)


@cb.kernel
def softmax_held(
    x: cb.Array,
    out: cb.Array,
    acc: cb.Comptime,
    plan: cb.Comptime[HeldPlan],
    log: cb.Comptime[bool] = False,
):
    """out[r] = exp(x[r] - max) / sum, or its logarithm; x and out are (rows, n)."""
    fill_core(acc, plan)
    softmax_of_rows(x, out, acc, plan, log)


@cb.kernel(fast_math=("afn", "contract"))
def softmax_narrow(
    x: cb.Array,
    out: cb.Array,
    acc: cb.Comptime,
    plan: cb.Comptime[HeldPlan],
    log: cb.Comptime[bool] = False,
):
    """The same for results of 16 bits: powers by the special function unit, whose error is far
    below theirs.
    """
    fill_core(acc, plan)
    softmax_of_rows(x, out, acc, plan, log)


@cb.kernel
def softmax_again(
    x: cb.Array,
    out: cb.Array,
    acc: cb.Comptime,
    plan: cb.Comptime[HeldPlan],
    log: cb.Comptime[bool] = False,
):
    """The same for rows of any length, a cube for each: first the maximum and the sum in one pass,
    then the values.
    """
    fill_core(acc, plan)
    scratch = (cb.shared(max(1, cb.CUBE_DIM // cb.PLANE_DIM), acc),)
    largest, sums = SOFTMAX.walks
    n = x.shape[1]
    row = cb.CUBE_POS
    hop = plan.units * plan.lanes
    at = cb.UNIT_POS * plan.lanes
    low = cb.cast(-float("inf"), acc)
    top = cb.splat(low, plan.lanes)
    total = cb.splat(cb.cast(0, acc), plan.lanes)
    k = at
    while k < n:
        v0 = x.load((row, k), plan.lanes, valid=n - k)
        v1 = x.load((row, k + hop), plan.lanes, valid=n - k - hop)
        v2 = x.load((row, k + 2 * hop), plan.lanes, valid=n - k - 2 * hop)
        v3 = x.load((row, k + 3 * hop), plan.lanes, valid=n - k - 3 * hop)
        a0 = cb.keep_first(cb.cast(v0, acc), n - k, low)
        a1 = cb.keep_first(cb.cast(v1, acc), n - k - hop, low)
        a2 = cb.keep_first(cb.cast(v2, acc), n - k - 2 * hop, low)
        a3 = cb.keep_first(cb.cast(v3, acc), n - k - 3 * hop, low)
        peak = cb.nan_max(cb.nan_max(top, cb.nan_max(a0, a1)), cb.nan_max(a2, a3))
        base = cb.select(peak == low, cb.splat(cb.cast(0, acc), plan.lanes), peak)
        total = total * cb.exp(top - base)
        total = total + (
            (cb.exp(a0 - base) + cb.exp(a1 - base)) + (cb.exp(a2 - base) + cb.exp(a3 - base))
        )
        top = peak
        k += 4 * hop
    most = units_joined(lanes_joined((top,), largest, plan.lanes), largest, plan.units, scratch)[0]
    lifted = cb.select(
        top == low, cb.splat(cb.cast(0, acc), plan.lanes), total * cb.exp(top - most)
    )
    whole = units_joined(lanes_joined((lifted,), sums, plan.lanes), sums, plan.units, scratch)[0]
    scale = cb.log(whole) if log else 1.0 / whole
    for k in range(at, n, hop):
        v = cb.cast(x.load((row, k), plan.lanes, valid=n - k), acc) - most
        done = v - scale if log else cb.exp(v) * scale
        out.store((row, k), cb.cast(done, out.dtype), valid=n - k)


class SoftmaxWide(GpuRoutine):
    """Units hold a row in their registers; rows too long for that are read twice."""

    name = "wide_rows"

    def launch(self, p: Softmax, properties: cb.DeviceProperties) -> None:
        """As many units a row as hold it."""
        m, n = p.x.shape
        plan = row_plan(properties, n, p.x, p.out, room=2 * HELD)
        kernel = softmax_again
        if plan.held:
            kernel = softmax_narrow if p.out.itemsize == 2 else softmax_held
        kernel[-(-m // plan.rows) * plan.parts, plan.units * plan.rows](
            p.x, p.out, p.acc, plan, p.log, mode="unchecked"
        )
