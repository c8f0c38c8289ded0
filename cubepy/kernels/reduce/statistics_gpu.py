"""Reductions of several walks over rows that units of a GPU hold in their registers."""

from __future__ import annotations

import cubepy as cb
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
from cubepy.kernels.reduce.reduction import Reduction
from cubepy.tune import GpuRoutine

MOST_PARTS, MANY_ROWS = 8, 256
"""Cubes of a cluster, and rows, from which on rows are read once for each walk instead: 1,024 rows
of 50,265 narrow floats take 113 us so, 190 held (H200).
"""


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
