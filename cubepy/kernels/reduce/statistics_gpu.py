"""Reductions of several walks over rows that a GPU reads once: units hold a row in their registers,
or go along a long one and keep the sum of exponentials under the largest element so far (online
normalizer: Milakov and Gimelshein, 2018, https://arxiv.org/abs/1805.02867).
"""

from __future__ import annotations

from dataclasses import dataclass

import cubepy as cb
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.kernels.reduce.held_rows_gpu import (
    HeldPlan,
    fill_core,
    known_of_held,
    position_of_unit,
    row_of_lines,
    row_plan,
    scratch_of,
)
from cubepy.kernels.reduce.problem import Reduce
from cubepy.kernels.reduce.reduction import (
    LOG_SUM_EXP,
    Reduction,
    Walk,
    exponentials_joined,
    lowest_finite,
)
from cubepy.kernels.reduce.walk_gpu import AHEAD, units_joined
from cubepy.tune import GpuRoutine

MOST_PARTS, MANY_ROWS = 8, 256
"""Cubes of a cluster, and rows, from which on rows are read once for each walk instead: 1,024 rows
of 50,265 narrow floats take 113 us so, 190 held (H200).
"""
LEAST_ROWS, WAVES = 64, 4
"""Rows of more than a cube holds that are walked along once, and of a core so many that cubes are
small.
"""
SMALL, LARGE = 256, 512
"""Units of such cubes."""


@cb.kernel
def reduce_rows_held(
    x: cb.Array,
    out: cb.Array,
    reduction: cb.Comptime[Reduction],
    number,
    acc: cb.Comptime,
    plan: cb.Comptime[HeldPlan],
):
    """out[r] = the reduction of row r; x is (rows, n)."""
    fill_core(acc, plan)
    scratch = scratch_of(acc, plan)
    n, number = x.shape[1], cb.cast(number, acc)
    row, mine, at = position_of_unit(x.shape[0], plan)
    behind = cb.cast(reduction.walks[0].start, acc)
    values = row_of_lines(x, row, at, n, acc, behind, plan)
    known = known_of_held(values, at, n, reduction.walks, number, plan, scratch)
    if mine and at == 0:
        out[row] = cb.cast(reduction.finish(known, cb.cast(n, acc), number), out.dtype)


class ReduceHeld(GpuRoutine):
    """Units hold a row in their registers, which is read once."""

    name = "held_rows"

    def unfit(self, p: Reduce, properties: cb.DeviceProperties) -> str | None:
        """Rows that would be read several times, as long as units can hold."""
        if not p.by_rows or len(p.reduction.walks) == 1:
            return "for rows that are walked over several times"
        plan = row_plan(properties, p.data.shape[1], p.data)
        if along_once(p, plan):
            return "long rows are walked along once"
        if plan.parts == MOST_PARTS and p.data.shape[0] >= MANY_ROWS:
            return "eight cubes wait for each other at each of many rows"
        return None if plan.held else "rows are longer than units hold"

    def launch(self, p: Reduce, properties: cb.DeviceProperties) -> None:
        """As many units a row as hold it."""
        m, n = p.data.shape
        plan = row_plan(properties, n, p.data)
        reduce_rows_held[-(-m // plan.rows) * plan.parts, plan.units * plan.rows](
            p.data, p.out.reshape(-1), p.reduction, p.number, p.acc, plan, mode="unchecked"
        )


@dataclass(frozen=True)
class OnlinePlan:
    """Elements of a line, and units of a cube."""

    lanes: int
    units: int


@cb.func
def exponentials_of_parts(a, b):
    """What is known of two parts: the largest element, and the sum of exponentials under it."""
    return exponentials_joined(a, b, 0, 0)


PARTS_JOINED = Walk(None, exponentials_of_parts, 0, positions=True)


@cb.func
def seen_along(top, total, values, lanes: cb.Comptime[int]):
    """The largest element and the sums of exponentials under it, once some lines more were seen."""
    highest = values[0]
    for j in cb.unroll(range(1, len(values))):
        highest = f.larger(highest, values[j])
    new = top
    for j in cb.unroll(range(lanes)):
        new = f.larger(new, highest[j])
    shift = lowest_finite(new)
    total = total * cb.splat(cb.exp(top - shift), lanes)
    for j in cb.unroll(range(len(values))):
        total = total + cb.exp(values[j] - cb.splat(shift, lanes))
    return new, total


@cb.kernel
def log_sum_exp_online(x: cb.Array, out: cb.Array, acc: cb.Comptime, plan: cb.Comptime[OnlinePlan]):
    """out[r] = log(sum(exp(x[r]))) by a cube; x is (rows, n)."""
    lanes, hop = plan.lanes, plan.units * plan.lanes
    n, row = x.shape[1], cb.CUBE_POS
    planes = max(1, plan.units // cb.PLANE_DIM)
    scratch = cb.shared(planes, acc), cb.shared(planes, acc)
    none = cb.cast(LOG_SUM_EXP.walks[0].start, acc)
    top, total = none, cb.splat(cb.cast(0, acc), lanes)
    k = multiple(cb.UNIT_POS * lanes, lanes)
    while k + (AHEAD - 1) * hop + lanes <= n:
        values = tuple(
            cb.cast(x.load((row, k + j * hop), lanes), acc) for j in cb.unroll(range(AHEAD))
        )
        top, total = seen_along(top, total, values, lanes)
        k += AHEAD * hop
    while k < n:
        value = cb.keep_first(cb.cast(x.load((row, k), lanes, valid=n - k), acc), n - k, none)
        top, total = seen_along(top, total, (value,), lanes)
        k += hop
    of_unit = total[0]
    for j in cb.unroll(range(1, lanes)):
        of_unit = of_unit + total[j]
    known = units_joined((top, of_unit), PARTS_JOINED, plan.units, scratch)
    if cb.UNIT_POS == 0:
        result = LOG_SUM_EXP.finish(known, cb.cast(n, acc), cb.cast(0, acc))
        out[row] = cb.cast(result, out.dtype)


def along_once(p: Reduce, plan: HeldPlan) -> bool:
    """Whether rows are so many, and so long, that a cube walks along each."""
    many = p.data.shape[0] >= LEAST_ROWS and (plan.parts > 1 or not plan.held)
    return p.by_rows and p.reduction == LOG_SUM_EXP and many


class LogSumExpOnline(GpuRoutine):
    """A cube walks along a row of more elements than its units hold."""

    name = "online_rows"

    def unfit(self, p: Reduce, properties: cb.DeviceProperties) -> str | None:
        """Many long rows whose logarithms of sums of exponentials are asked for."""
        if not p.by_rows or p.reduction != LOG_SUM_EXP:
            return "for log_sum_exp along rows"
        if not along_once(p, row_plan(properties, p.data.shape[1], p.data)):
            return "rows are few, or units hold them"
        return None

    def launch(self, p: Reduce, properties: cb.DeviceProperties) -> None:
        """A cube a row."""
        m = p.data.shape[0]
        units = SMALL if m >= WAVES * properties.cores else LARGE
        plan = OnlinePlan(line_of(p.data), units)
        log_sum_exp_online[m, units](p.data, p.out.reshape(-1), p.acc, plan, mode="unchecked")
