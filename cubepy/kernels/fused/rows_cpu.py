"""Whole rows at a time on a CPU: a cube walks over some rows, each while it is in the cache."""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.elementwise.map_cpu import following, lines_at
from cubepy.kernels.elementwise.map_gpu import widened
from cubepy.kernels.fused.problem import lanes_for, put
from cubepy.kernels.fused.row_plan import RowPlan, Rows, across, put_number
from cubepy.kernels.primitives.vector_width import lanes_on
from cubepy.tune import CpuRoutine

ROOM = 8192  # elements of a row that buffers have room for
STREAMS = 4  # registers of a line: sums go on in all of them at once
LONG = (
    8  # registers of a row, at least, so that lines are so long: the ends of short ones are empty
)
ELEMENTS = 16384  # of a cube, about
CUBES = 32


@cb.kernel
def fused_rows(
    results,
    wides,
    narrows,
    plan: cb.Comptime[RowPlan],
    n,
    rows,
    lanes: cb.Comptime[int],
    room: cb.Comptime[int],
):
    """A cube does some rows: the phases of the plan, one after the other."""
    out = results[0]
    last = out.ndim - 1
    count = 1
    for d in cb.unroll(range(last)):
        count = count * out.shape[d]
    first = cb.CUBE_POS * rows
    buffers: Any = ()
    for _ in cb.unroll(range(plan.buffers)):
        buffers = buffers + (cb.local((room,), plan.sums),)
    lead = cb.unravel(first, out.shape[:last]) if last > 0 else ()
    for _ in range(cb.min(rows, count - first)):
        one_row(results, wides, narrows, buffers, lead, plan, n, lanes)
        lead = following(lead, out.shape)


@cb.func
def one_row(results, wides, narrows, buffers, lead, plan: cb.Comptime, n, lanes: cb.Comptime[int]):
    """The phases of a row, and the numbers that are results."""
    known: Any = ()
    for k in cb.unroll(range(len(narrows))):
        known = known + (widened(narrows[k][lead + (0,)]),)
    if plan.before is not None:
        known = known + plan.before(*known)
    for p in cb.unroll(range(len(plan.phases))):
        totals = walked(results, wides, buffers, lead, known, plan.phases[p], plan.sums, n, lanes)
        if plan.phases[p].after is not None:
            known = known + plan.phases[p].after(n, *totals, *known)
    for m in cb.unroll(range(len(plan.numbers))):
        number = plan.numbers[m]
        put_number(results[number[0]], lead, known[number[1]])


@cb.func
def walked(
    results,
    wides,
    buffers,
    lead,
    known,
    phase: cb.Comptime,
    sums: cb.Comptime,
    n,
    lanes: cb.Comptime[int],
):
    """One walk over a row; gives what it reduced."""
    many = len(phase.steps)
    stored = many + len(phase.stores)
    totals: Any = ()
    for j in cb.unroll(range(many)):
        totals = totals + (cb.cast(cb.splat(phase.starts[j], lanes), sums),)
    for k, valid in cb.lines(0, n, lanes):
        given = lines_at(wides, lead, (False,) * len(wides), k, valid, lanes)
        for b in cb.unroll(range(len(phase.reads))):
            if phase.reads[b] < 0:
                seen = (results[-1 - phase.reads[b]],)
                given = given + lines_at(seen, lead, (False,), k, valid, lanes)
            else:
                given = given + (buffers[phase.reads[b]].load(k, lanes, valid=valid),)
        found = phase.lines(*given, *known)
        new: Any = ()
        for j in cb.unroll(range(many)):
            part = cb.keep_first(cb.splat(cb.cast(found[j], sums), lanes), valid, phase.starts[j])
            new = new + (phase.steps[j](totals[j], part),)
        totals = new
        for j in cb.unroll(range(len(phase.stores))):
            put(results[phase.stores[j]], lead + (k,), found[many + j], lanes, valid)
        for j in cb.unroll(range(len(phase.keeps))):
            line = cb.splat(cb.cast(found[stored + j], sums), lanes)
            if phase.keeps[j] < 0:
                put(results[-1 - phase.keeps[j]], lead + (k,), line, lanes, valid)
            else:
                buffers[phase.keeps[j]].store(k, line, valid=valid)
    numbers: Any = ()
    for j in cb.unroll(range(many)):
        numbers = numbers + (across(totals[j], phase.steps[j], lanes),)
    return numbers


class Walks(CpuRoutine):
    """A cube walks over some rows."""

    name = "walks"

    def launch(self, p: Rows, properties: cb.DeviceProperties) -> None:
        """Cubes enough for all threads."""
        count = p.results[0].size // p.results[0].shape[-1]
        lanes = lanes_on(properties, *p.results, *p.wides, *p.narrows)
        lanes = STREAMS * lanes if p.n >= LONG * lanes else lanes_for(lanes, p.n)
        rows = max(1, min(ELEMENTS // p.n, count // CUBES))
        room = ROOM if p.plan.buffers else 0
        given = tuple(p.results), tuple(p.wides), tuple(p.narrows), p.plan, p.n, rows, lanes, room
        fused_rows[-(-count // rows), 1](*given, mode="unchecked")
