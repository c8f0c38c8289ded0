"""Whole rows at a time on a CPU: maps and reductions along the last axis, while a row is in the
cache.

A row is walked in phases. A phase computes lines of values, reduces some of them, stores some and
keeps some in a buffer; what it reduced is known to those after it. Softmax is three phases: the
maximum, the sum of exponentials (which are kept), the quotients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels.elementwise.map_cpu import following, lines_at
from cubepy.kernels.elementwise.map_gpu import widened
from cubepy.kernels.entry.shapes import merged, strided
from cubepy.kernels.fused.problem import put
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.primitives.vector_width import lanes_on
from cubepy.lang.dtypes import DType
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, Op

ROOM = 8192  # elements of a row that buffers have room for
STREAMS = 4  # registers of a line: sums go on in all of them at once
ELEMENTS = 16384  # of a cube, about
CUBES = 32


@cb.func
def added(a, b):
    """a + b"""
    return a + b


STEPS: dict[str, tuple[Any, float]] = {
    "sum": (added, 0.0),
    "max": (f.larger, -float("inf")),
    "min": (f.smaller, float("inf")),
}
"""What a reduction does with two values, and what it begins with."""


@dataclass(frozen=True)
class Phase:
    """A walk over a row.

    Attributes:
        lines: of the lines of the wide inputs, those of the buffers that are read, and the numbers
            known so far: a tuple of what is reduced, then stored, then kept.
        steps: how each is reduced (functions of two values), and what they begin with.
        stores: the results that are written.
        keeps: the buffers that are written.
        reads: the buffers that are read.
        after: of the length of a row, what was reduced, and the numbers known so far: a tuple of
            numbers that are known from here on; None where nothing was reduced.
    """

    lines: Any
    steps: tuple[Any, ...]
    starts: tuple[float, ...]
    stores: tuple[int, ...]
    keeps: tuple[int, ...]
    reads: tuple[int, ...]
    after: Any


@dataclass(frozen=True)
class RowPlan:
    """What is done with a row.

    Attributes:
        before: of the narrow inputs' numbers: a tuple of more numbers that are known; or None.
        phases: the walks.
        numbers: (result, which known number it is).
        sums: the dtype of sums and buffers.
        buffers: how many there are.
    """

    before: Any
    phases: tuple[Phase, ...]
    numbers: tuple[tuple[int, int], ...]
    sums: DType
    buffers: int


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
def put_number(out, lead, value):
    """Store the number of a row as the array's dtype."""
    out[lead + (0,)] = cb.cast(value, out.dtype)


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
            given = given + (buffers[phase.reads[b]].load(k, lanes, valid=valid),)
        found = phase.lines(*given, *known)
        new: Any = ()
        for j in cb.unroll(range(many)):
            part = cb.keep_first(cb.cast(found[j], sums), valid, phase.starts[j])
            new = new + (phase.steps[j](totals[j], part),)
        totals = new
        for j in cb.unroll(range(len(phase.stores))):
            put(results[phase.stores[j]], lead + (k,), found[many + j], lanes, valid)
        for j in cb.unroll(range(len(phase.keeps))):
            line = cb.cast(found[stored + j], sums)
            buffers[phase.keeps[j]].store(k, line, valid=valid)
    numbers: Any = ()
    for j in cb.unroll(range(many)):
        numbers = numbers + (across(totals[j], phase.steps[j], lanes),)
    return numbers


@cb.func
def across(line, step, lanes: cb.Comptime[int]):
    """`step` over the lanes of a line, halves first."""
    for half in cb.unroll(halves(lanes)):
        line = step(line, cb.shuffle(line, line, swapped(half, lanes)))
    return line[0]


def halves(lanes: int) -> tuple[int, ...]:
    """Half of the lanes, a quarter of them, ... 1."""
    return tuple(1 << k for k in reversed(range(lanes.bit_length() - 1)))


def swapped(half: int, lanes: int) -> tuple[int, ...]:
    """Lanes so that what is `half` further comes first."""
    return tuple(k ^ half for k in range(lanes))


class Rows(NamedTuple):
    """What a plan gives for all rows.

    Attributes:
        plan: the phases.
        results: arrays of shape (*lead, n) or (*lead, 1), to be written.
        wides: arrays of shape (*lead, n), whose neighbours are neighbours in memory.
        narrows: arrays of shape (*lead, 1).
        n: the length of a row.
    """

    plan: RowPlan
    results: list[Any]
    wides: list[Any]
    narrows: list[Any]
    n: int


class Walks(CpuRoutine):
    """A cube walks over some rows."""

    name = "walks"

    def launch(self, p: Rows, properties: cb.DeviceProperties) -> None:
        """Cubes enough for all threads."""
        count = p.results[0].size // p.results[0].shape[-1]
        lanes = lanes_on(properties, *p.results, *p.wides, *p.narrows) * STREAMS
        rows = max(1, min(ELEMENTS // p.n, count // CUBES))
        room = ROOM if p.plan.buffers else 0
        given = tuple(p.results), tuple(p.wides), tuple(p.narrows), p.plan, p.n, rows, lanes, room
        fused_rows[-(-count // rows), 1](*given, mode="unchecked")


FUSED_ROWS = Op("fused_rows", [Walks()])


def run_rows(
    plan: RowPlan,
    wides: Sequence[Any],
    narrows: Sequence[Any],
    lead: tuple[int, ...],
    n: int,
    kinds: Sequence[tuple[bool, Any]],
) -> list[Any]:
    """New arrays of what a plan gives for all rows.

    Args:
        plan: the phases.
        wides: arrays that broadcast to (*lead, n).
        narrows: arrays that broadcast to (*lead, 1).
        lead: the shape of the rows.
        n: the length of a row; not 0.
        kinds: for each result whether it is wide, and its dtype.
    """
    results = [memory.empty((*lead, n if wide else 1), np.dtype(d)) for wide, d in kinds]
    if results[0].size:
        FUSED_ROWS.run(Rows(plan, *_rows_of(results, wides, narrows, lead, n), n))
    return results


def _rows_of(
    results: list[Any], wides: Sequence[Any], narrows: Sequence[Any], lead: tuple[int, ...], n: int
) -> tuple[list[Any], list[Any], list[Any]]:
    """All arrays over the same axes of rows, which are merged where all of them allow it."""
    spread = [*results]
    spread += [x if x.shape == (*lead, n) else np.broadcast_to(x, (*lead, n)) for x in wides]
    spread += [np.broadcast_to(x, (*lead, 1)) for x in narrows]
    spread = [_packed(x) for x in spread]
    if lead:
        heads = merged([x[..., 0] for x in spread])
        spread = [
            strided(x, (*h.shape, x.shape[-1]), (*h.strides, x.strides[-1]))
            for x, h in zip(spread, heads, strict=True)
        ]
    a, b = len(results), len(results) + len(wides)
    return spread[:a], spread[a:b], spread[b:]


def _packed(x: Any) -> Any:
    """Rows whose neighbours are neighbours in memory."""
    if x.shape[-1] == 1 or x.strides[-1] == x.itemsize:
        return x
    from cubepy.kernels.movement.copy import copy

    return copy(x)
