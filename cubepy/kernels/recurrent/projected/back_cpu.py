"""Gradients of an LSTM that projects its states, on a CPU: all steps backwards in one launch, as
`back_cpu` has them, whose cubes meet twice in each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.recurrent.back_cpu import (
    begin_back,
    length_of,
    lstm_back,
    open_gates,
    pack_rows,
    position,
)
from cubepy.kernels.recurrent.panels_cpu import narrow_panel_of, panel_of
from cubepy.kernels.recurrent.projected.steps_cpu import ProjectedPlan
from cubepy.kernels.recurrent.steps_cpu import KEPT, LINE, await_slice, claim_slice, cut_of
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine


class ProjectedBack(NamedTuple):
    """Gradients of a `ProjectedRecurrence`, of f32 or f64.

    Attributes:
        gates, lengths, reverse: see there.
        matrix: of states, (D, 4 * H, P).
        projection: what makes them, (D, P, H).
        cells: the first cells.
        opened: products of states before each step and the matrix, (D, T, B, 4 * H), in whose place
            the opened gates come.
        more: room for cells, (D, T, B, H).
        gradient: the gradient by all states, or None.
        ends: those by the last states and cells, or None.
        written: gradients by gates, by all states with what comes from later steps (T, B, D * P),
            by the first states, and by the first cells.
    """

    gates: Any
    matrix: Any
    projection: Any
    lengths: Any
    cells: Any
    reverse: bool
    opened: Any
    more: Any
    gradient: Any
    ends: tuple[Any, Any]
    written: tuple[Any, ...]


@cb.kernel
def run_back_projected(
    given,
    weights,
    carried,
    written,
    meetings: cb.Array,
    cut,
    back,
    plan: cb.Comptime[ProjectedPlan],
):
    """All steps of a slice of states and of a slice of cells for some sequences of a direction, the
    last one first.

    given: opened gates, cells, the first cells, lengths, the gradient by all states. weights: both
    matrices, in panels of rows. carried: gradients by h and c, (n, D, B, padded). written: see
    `ProjectedBack`. cut: parts of the batch, slices.
    """
    parts, slices = cut
    home, group = cb.CUBE_POS % slices, cb.CUBE_POS // slices
    d, part = group // parts, group % parts
    batch, steps = carried[0].shape[2], written[0].shape[0]
    rows = (part * batch // parts, (part + 1) * batch // parts)
    reverse = back or d == 1
    base = group * slices * (2 * LINE)
    again = carried[0].shape[0] > steps
    for s in range(steps + 1):
        for half in cb.unroll(range(2)):
            meeting = 2 * s + half
            for n in range(slices):
                mine = (home + n) % slices
                claim = base + mine * (2 * LINE)
                free = True
                if slices > 1:
                    free = claim_slice(meetings, claim, meeting, n == 0, again)
                if free:
                    when, which = (d, s, reverse), (mine, slices)
                    if half == 0:
                        states_back(given, weights, carried, written, when, which, rows, plan)
                    else:
                        cells_back(given, weights, carried, written, when, which, rows, plan)
                    if slices > 1:
                        cb.atomic_max(meetings, claim + LINE, meeting + 1)
            if slices > 1:
                for other in range(slices):
                    await_slice(meetings, base + other * (2 * LINE) + LINE, meeting, 0)


@cb.func
def sum_rows(
    sums, panels, at, read, positions, sources, blocks: cb.Comptime[int], plan: cb.Comptime
):
    """sums[r, j] = the products of a panel's lines with lines of gradients."""
    d, panel = at
    for r in range(plan.rows):
        for j in range(blocks):
            sums[r, j] = cb.splat(cb.cast(0, read.dtype), plan.lanes)
    depth = panels.shape[2]
    for k in range(depth):
        for j in cb.unroll(range(blocks)):
            line = panels.load((d, panel, k, j * plan.lanes), plan.lanes)
            for r in cb.unroll(range(plan.rows)):
                g = cb.splat(read[positions[r], sources[r], d * depth + k], plan.lanes)
                sums[r, j] = cb.fma(g, line, sums[r, j])


@cb.func
def states_back(given, weights, carried, written, when, which, rows, plan: cb.Comptime):
    """The gradients by a slice of states: of the step behind them, and of what they are given."""
    d, s, reverse = when
    panels, lengths = weights[0], given[3]
    steps, count, width = written[0].shape[0], panels.shape[1], written[2].shape[2]
    wide, acc = plan.lanes * plan.narrow, carried[0].dtype
    sums = cb.local((plan.rows, plan.narrow), acc, lanes=plan.lanes)
    done = cb.local((plan.rows, plan.narrow), acc, lanes=plan.lanes)
    behind = cb.min(steps - s, steps - 1)
    for panel in range(which[0] * count // which[1], (which[0] + 1) * count // which[1]):
        for row in range(rows[0], rows[1], plan.rows):
            sources = tuple(cb.min(row + r, rows[1] - 1) for r in cb.unroll(range(plan.rows)))
            positions = tuple(
                position(behind, length_of(lengths, sources[r], steps), reverse)
                for r in cb.unroll(range(plan.rows))
            )
            if s > 0:
                sum_rows(
                    *(sums, panels, (d, panel), written[0], positions, sources, plan.narrow, plan)
                )
            for r in range(plan.rows):
                for j in range(plan.narrow):
                    done[r, j] = sums[r, j] if s > 0 else cb.splat(cb.cast(0, acc), plan.lanes)
            for r in range(cb.min(plan.rows, rows[1] - row)):
                for block in range(plan.narrow):
                    k = panel * wide + block * plan.lanes
                    if k < width:
                        at = (row + r, k)
                        finish_states(given, carried, written, when, at, done[r, block], plan)


@cb.func
def finish_states(given, carried, written, when, at, sums, plan: cb.Comptime):
    """The gradient by a line of states, and what goes on of sequences that have not ended yet."""
    d, s, reverse = when
    row, k = at
    lengths, gradient = given[3], given[4]
    lanes, steps, width = plan.lanes, written[0].shape[0], written[2].shape[2]
    valid = cb.min(width - k, lanes)
    now, then = s % carried[0].shape[0], (s + 1) % carried[0].shape[0]
    dh = carried[0].load((now, d, row, k), lanes) + sums
    if s == steps:
        written[2].store((d, row, k), dh, valid=valid)
    else:
        u = steps - 1 - s
        length = length_of(lengths, row, steps)
        t = position(u, length, reverse)
        stays, found = dh, cb.splat(cb.cast(0, carried[0].dtype), lanes)
        if u < length:
            stays, found = found, dh
            if gradient is not None:
                found += gradient.load((t, row, d * width + k), lanes, valid=valid)
        written[1].store((t, row, d * width + k), found, valid=valid)
        carried[0].store((then, d, row, k), stays)


@cb.func
def cells_back(given, weights, carried, written, when, which, rows, plan: cb.Comptime):
    """The gradients by the gates of a slice of cells."""
    d, s, reverse = when
    panels, lengths = weights[1], given[3]
    steps, count, width = written[0].shape[0], panels.shape[1], written[3].shape[2]
    wide, acc = plan.lanes * plan.blocks, carried[0].dtype
    sums = cb.local((plan.rows, plan.blocks), acc, lanes=plan.lanes)
    done = cb.local((plan.rows, plan.blocks), acc, lanes=plan.lanes)
    u = cb.max(steps - 1 - s, 0)
    for panel in range(which[0] * count // which[1], (which[0] + 1) * count // which[1]):
        for row in range(rows[0], rows[1], plan.rows):
            sources = tuple(cb.min(row + r, rows[1] - 1) for r in cb.unroll(range(plan.rows)))
            positions = tuple(
                position(u, length_of(lengths, sources[r], steps), reverse)
                for r in cb.unroll(range(plan.rows))
            )
            if s < steps:
                sum_rows(
                    *(sums, panels, (d, panel), written[1], positions, sources, plan.blocks, plan)
                )
                for r in range(plan.rows):
                    for j in range(plan.blocks):
                        done[r, j] = sums[r, j]
            for r in range(cb.min(plan.rows, rows[1] - row)):
                for block in range(plan.blocks):
                    k = panel * wide + block * plan.lanes
                    if k < width:
                        at = (row + r, k)
                        finish_cells(given, carried, written, when, at, done[r, block], plan)


@cb.func
def finish_cells(given, carried, written, when, at, by_made, plan: cb.Comptime):
    """The gradients by the gates of a line of cells, and by the cells before."""
    d, s, reverse = when
    row, k = at
    opened, more, first, lengths = given[0], given[1], given[2], given[3]
    lanes, steps, width = plan.lanes, written[0].shape[0], written[3].shape[2]
    valid = cb.min(width - k, lanes)
    now, then = s % carried[1].shape[0], (s + 1) % carried[1].shape[0]
    dc = carried[1].load((now, d, row, k), lanes)
    if s == steps:
        written[3].store((d, row, k), dc, valid=valid)
    else:
        u = steps - 1 - s
        length = length_of(lengths, row, steps)
        t = position(u, length, reverse)
        zero = cb.splat(cb.cast(0, carried[1].dtype), lanes)
        by_gates = tuple(zero for g in cb.unroll(range(4)))
        if u < length:
            gates = tuple(
                opened.load((d, t, row, g * width + k), lanes, valid=valid)
                for g in cb.unroll(range(4))
            )
            c = first.load((d, row, k), lanes, valid=valid)
            if u > 0:
                before = position(cb.max(u - 1, 0), length, reverse)
                c = more.load((d, before, row, k), lanes, valid=valid)
            held = cb.tanh(more.load((d, t, row, k), lanes, valid=valid))
            by_gates, dc = lstm_back(gates, c, held, by_made, dc)
        carried[1].store((then, d, row, k), dc)
        for g in cb.unroll(range(4)):
            written[0].store((t, row, (d * 4 + g) * width + k), by_gates[g], valid=valid)


class MeetingsProjectedBack(CpuRoutine):
    """Cubes that share a step, and meet twice in it."""

    name = "meetings"

    def launch(self, p: ProjectedBack, properties: cb.DeviceProperties) -> None:
        """As many cubes as a step is worth."""
        directions, narrow, width = p.projection.shape
        steps, batch = p.gates.shape[:2]
        dtype = as_dtype(p.matrix.dtype)
        sizes = steps, batch, directions, width
        rows, parts, slices = cut_of(
            "lstm", sizes, dtype.itemsize, properties, back=True, narrow=narrow
        )
        few, lanes = narrow_panel_of(narrow, dtype.bits, properties)
        plan = ProjectedPlan(lanes, panel_of(1, dtype.bits, properties)[0], few, rows)
        weights, padded = [], []
        for matrix, blocks in ((p.matrix, few), (p.projection, plan.blocks)):
            count = -(-matrix.shape[2] // (blocks * lanes))
            panels = memory.empty((directions, count, matrix.shape[1], blocks * lanes), dtype.numpy)
            pack_rows[directions * count, 1](matrix, panels, lanes, mode="unchecked")
            weights.append(panels)
            padded.append(count * blocks * lanes)
        open_gates[directions * batch, 1](
            *(p.gates, p.opened, None, p.lengths, p.cells, p.more, p.reverse, "lstm", lanes),
            mode="unchecked",
        )
        kept = (steps + 2) * directions * batch * sum(padded) * dtype.itemsize <= KEPT
        held = steps + 2 if kept and slices > 1 else 2
        carried = tuple(memory.empty((held, directions, batch, n), dtype.numpy) for n in padded)
        meetings = memory.empty((2 * directions * parts * slices * LINE,), "int32")
        begin_back[directions * batch, 1](p.ends, carried, meetings, mode="unchecked")
        run_back_projected[directions * parts * slices, 1](
            (p.opened, p.more, p.cells, p.lengths, p.gradient),
            tuple(weights),
            carried,
            p.written,
            meetings,
            (parts, slices),
            p.reverse,
            plan,
            mode="unchecked",
        )
