"""Whole rows at a time by the units of a cube, which share a row, or several short ones.

Units hold their part of the inputs in registers while they walk over it, phase by phase; of rows
too long for that each phase reads the inputs again.
"""

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
PLANE = 32
LINES = 8  # of each input that a unit holds, at most
HELD = 32  # elements of each input, at most
ROOM = 384  # bytes of all inputs that it holds, at most


@dataclass(frozen=True)
class Sharing:
    """How rows are shared.

    Attributes:
        lanes: elements of a line.
        units: units that share a row.
        rows: rows of a cube.
        held: lines of each input that a unit holds; 0: each phase reads them again.
        even: rows are whole numbers of lines.
    """

    lanes: int
    units: int
    rows: int
    held: int = 0
    even: bool = False


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
    held: Any = ()
    for j in cb.unroll(range(sharing.held)):
        held = held + (
            lines_at(wides, lead, (unit + j * sharing.units) * sharing.lanes, n, sharing),
        )
    for p in cb.unroll(range(len(plan.phases))):
        phase = plan.phases[p]
        start = started(phase, plan.sums, sharing.lanes)
        job = results, lead, live, known, n
        totals = (
            held_walk(held, job, unit, start, phase, plan.sums, sharing)
            if sharing.held
            else walk(wides, job, unit, start, phase, plan.sums, sharing)
        )
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
def lines_at(wides, lead, k, n, sharing: cb.Comptime[Sharing]):
    """A line of every input, from element k of its row on."""
    given: Any = ()
    for w in cb.unroll(range(len(wides))):
        given = given + (line_at(wides[w], lead, k, n, sharing),)
    return given


@cb.func
def line_at(wide, lead, k, n, sharing: cb.Comptime[Sharing]):
    """A line of one input."""
    line = cb.splat(cb.cast(0, wide.dtype), sharing.lanes)
    if not sharing.even:
        line = wide.load(lead + (k,), sharing.lanes, valid=n - k)
    elif k < n:
        line = wide.load(lead + (k,), sharing.lanes)
    return line


@cb.func
def started(phase: cb.Comptime, sums: cb.Comptime, lanes: cb.Comptime[int]):
    """Lines of what each reduction of a phase begins with."""
    totals: Any = ()
    for j in cb.unroll(range(len(phase.steps))):
        totals = totals + (cb.cast(cb.splat(phase.starts[j], lanes), sums),)
    return totals


@cb.func
def held_walk(
    held, job, unit, totals, phase: cb.Comptime, sums: cb.Comptime, sharing: cb.Comptime[Sharing]
):
    """A phase over the lines that a unit holds; gives lines of what it reduced."""
    for j in cb.unroll(range(sharing.held)):
        k = (unit + j * sharing.units) * sharing.lanes
        totals = further(held[j], job, k, totals, phase, sums, sharing)
    return totals


@cb.func
def walk(
    wides, job, unit, totals, phase: cb.Comptime, sums: cb.Comptime, sharing: cb.Comptime[Sharing]
):
    """A phase over lines that are read for it; gives lines of what it reduced."""
    for k in range(unit * sharing.lanes, job[4], sharing.units * sharing.lanes):
        given = lines_at(wides, job[1], k, job[4], sharing)
        totals = further(given, job, k, totals, phase, sums, sharing)
    return totals


@cb.func
def further(
    given, job, k, totals, phase: cb.Comptime, sums: cb.Comptime, sharing: cb.Comptime[Sharing]
):
    """What is reduced with one line more, of which the results are stored."""
    results, lead, live, known, n = job
    lanes, many = sharing.lanes, len(phase.steps)
    found = phase.lines(*(widened(line) for line in given), *known)
    new: Any = ()
    for j in cb.unroll(range(many)):
        part = cb.keep_first(cb.splat(cb.cast(found[j], sums), lanes), n - k, phase.starts[j])
        new = new + (phase.steps[j](totals[j], part),)
    if live and k < n:
        for j in cb.unroll(range(len(phase.stores))):
            if sharing.even:
                put(results[phase.stores[j]], lead + (k,), found[many + j], lanes, None)
            else:
                put(results[phase.stores[j]], lead + (k,), found[many + j], lanes, n - k)
    return new


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
        sharing = sharing_of(p.n, lanes, sum(x.itemsize for x in p.wides) * lanes)
        given = tuple(p.results), tuple(p.wides), tuple(p.narrows), p.plan, p.n, sharing
        fused_rows_wide[-(-count // sharing.rows), UNITS](*given, mode="unchecked")


def sharing_of(n: int, lanes: int, size: int) -> Sharing:
    """How a row of n elements is shared: by the fewest units that hold it, a plane at least, else
    by a cube.

    Args:
        n: the length of a row.
        lanes: elements of a line.
        size: bytes of a line of all inputs, of which there may be none.

    Example:
        >>> sharing_of(768, 8, 48)
        Sharing(lanes=8, units=32, rows=8, held=3, even=True)
    """
    lines = -(-n // lanes)
    most, units = min(UNITS, power_of_two(lines)), min(PLANE, power_of_two(lines))
    room = min(LINES, HELD // lanes, ROOM // max(1, size))
    while units < most and -(-lines // units) > room:
        units *= 2
    held = -(-lines // units)
    if held > room:
        units, held = most, 0
    return Sharing(lanes, units, UNITS // units, held, n % lanes == 0)
