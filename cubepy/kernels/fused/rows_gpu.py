"""Whole rows at a time by the units of a cube, which share a row, or several short ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.elementwise.map_gpu import widened
from cubepy.kernels.fused.problem import put
from cubepy.kernels.fused.row_plan import RowPlan, Rows, across, put_number
from cubepy.kernels.primitives.units import over_units
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.tune import GpuRoutine

UNITS = 256  # of a cube


@dataclass(frozen=True)
class Sharing:
    """Elements of a line, units that share a row, and rows of a cube."""

    lanes: int
    units: int
    rows: int


@cb.kernel
def fused_rows_wide(
    results, wides, narrows, plan: cb.Comptime[RowPlan], n, sharing: cb.Comptime[Sharing]
):
    """A cube does some rows: the phases of the plan, one after the other."""
    out = results[0]
    last = out.ndim - 1
    count = 1
    for d in cb.unroll(range(last)):
        count = count * out.shape[d]
    scratch = cb.shared((cb.CUBE_DIM,), plan.sums)
    unit = cb.UNIT_POS % sharing.units
    row = cb.CUBE_POS * sharing.rows + cb.UNIT_POS // sharing.units
    live = row < count
    lead = cb.unravel(cb.min(row, count - 1), out.shape[:last]) if last > 0 else ()
    known: Any = ()
    for k in cb.unroll(range(len(narrows))):
        known = known + (widened(narrows[k][lead + (0,)]),)
    if plan.before is not None:
        known = known + plan.before(*known)
    for p in cb.unroll(range(len(plan.phases))):
        phase = plan.phases[p]
        totals = shared_walk(results, wides, lead, live, unit, known, phase, plan.sums, n, sharing)
        numbers: Any = ()
        for j in cb.unroll(range(len(totals))):
            one = across(totals[j], phase.steps[j], sharing.lanes)
            numbers = numbers + (over_units(one, phase.steps[j], sharing.units, scratch),)
        if phase.after is not None:
            known = known + phase.after(n, *numbers, *known)
    for m in cb.unroll(range(len(plan.numbers))):
        number = plan.numbers[m]
        if live and unit == 0:
            put_number(results[number[0]], lead, known[number[1]])


@cb.func
def shared_walk(
    results,
    wides,
    lead,
    live,
    unit,
    known,
    phase: cb.Comptime,
    sums: cb.Comptime,
    n,
    sharing: cb.Comptime,
):
    """A unit's part of a walk over a row; gives lines of what it reduced."""
    lanes = sharing.lanes
    many = len(phase.steps)
    totals: Any = ()
    for j in cb.unroll(range(many)):
        totals = totals + (cb.cast(cb.splat(phase.starts[j], lanes), sums),)
    for k in range(unit * lanes, n, sharing.units * lanes):
        given: Any = ()
        for w in cb.unroll(range(len(wides))):
            given = given + (widened(wides[w].load(lead + (k,), lanes, valid=n - k)),)
        found = phase.lines(*given, *known)
        new: Any = ()
        for j in cb.unroll(range(many)):
            part = cb.keep_first(cb.splat(cb.cast(found[j], sums), lanes), n - k, phase.starts[j])
            new = new + (phase.steps[j](totals[j], part),)
        totals = new
        if live:
            for j in cb.unroll(range(len(phase.stores))):
                put(results[phase.stores[j]], lead + (k,), found[many + j], lanes, n - k)
    return totals


class Shared(GpuRoutine):
    """Units of a cube share a row."""

    name = "shared"

    def unfit(self, p: Rows, properties: cb.DeviceProperties) -> str | None:
        """Plans that keep nothing: a walk computes again what an earlier one computed."""
        return "the plan has buffers" if p.plan.buffers else None

    def launch(self, p: Rows, properties: cb.DeviceProperties) -> None:
        """As many units as a row has lines, at most a cube."""
        count = p.results[0].size // p.results[0].shape[-1]
        wide = [x for x in (*p.results, *p.wides) if x.shape[-1] == p.n and p.n > 1]
        lanes = line_of(*wide) if wide else 1
        units = min(UNITS, power_of_two(-(-p.n // lanes)))
        sharing = Sharing(lanes, units, UNITS // units)
        given = tuple(p.results), tuple(p.wides), tuple(p.narrows), p.plan, p.n, sharing
        fused_rows_wide[-(-count // sharing.rows), UNITS](*given, mode="unchecked")
