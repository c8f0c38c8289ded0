"""An LSTM whose states a matrix makes of what its cells give (Sak et al., 2014), on a CPU: all
steps in one launch, as `recurrent.steps_cpu` has them, whose cubes meet twice in each, since all
that cells give is multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.recurrent.back_cpu import position
from cubepy.kernels.recurrent.cells import lstm_cell
from cubepy.kernels.recurrent.halves_cpu import length_of
from cubepy.kernels.recurrent.panels_cpu import narrow_panel_of, panel_of
from cubepy.kernels.recurrent.steps_cpu import (
    KEPT,
    LINE,
    await_slice,
    begin,
    claim_slice,
    cut_of,
    sum_states,
)
from cubepy.lang.dtypes import DType, as_dtype, f32
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine


class ProjectedRecurrence(NamedTuple):
    """States of P numbers along a sequence, in D directions, of cells of H.

    Attributes:
        gates: the inputs' products with their matrices, and biases, (T, B, D * 4 * H).
        panels: what the states are multiplied by, (D, 4 * H, P), as `panels_cpu.pack` lays it out.
        narrow: what makes them, (D, P, H), in the same way.
        lengths: how many steps each sequence has, (B,) i32; None: all.
        first: the first states, (D, B, P), and cells, (D, B, H).
        reverse: whether a single direction begins at the end; the second of two does.
        y: the states of all steps, (T, B, D * P); zeros behind a sequence's end.
        last: the last states and cells.
        made: what cells give in all steps, (T, B, D * H); zeros behind a sequence's end.
    """

    gates: Any
    panels: Any
    narrow: Any
    lengths: Any
    first: tuple[Any, Any]
    reverse: bool
    y: Any
    last: tuple[Any, Any]
    made: Any

    @property
    def acc(self) -> DType:
        """What sums are made in."""
        dtype = as_dtype(self.gates.dtype)
        return dtype if dtype.bits >= 32 else f32

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Steps, sequences, directions, width of a cell."""
        directions, batch, width = self.first[1].shape
        return self.gates.shape[0], batch, directions, width


@dataclass(frozen=True)
class ProjectedPlan:
    """What changes the code: lines of a panel of either matrix, and sequences done together."""

    lanes: int
    blocks: int
    narrow: int
    rows: int


@cb.kernel
def run_projected(
    given, weights, states, written, meetings: cb.Array, cut, back, plan: cb.Comptime[ProjectedPlan]
):
    """All steps of a slice of cells and of a slice of states for some sequences of a direction.

    given: gates (T, B, D * 4 * H), lengths. weights: both matrices in panels. states: h and c, (n,
    D, B, padded), of all steps or two in turns. written: y, the last states and cells, and what
    cells give. cut: parts of the batch, slices.
    """
    parts, slices = cut
    home, group = cb.CUBE_POS % slices, cb.CUBE_POS // slices
    d, part = group // parts, group % parts
    batch, steps = states[0].shape[2], given[0].shape[0]
    rows = (part * batch // parts, (part + 1) * batch // parts)
    base = group * slices * (2 * LINE)
    again = states[0].shape[0] > steps
    when_reversed = back or d == 1
    for s in range(steps):
        for half in cb.unroll(range(2)):
            meeting = 2 * s + half
            for n in range(slices):
                mine = (home + n) % slices
                claim = base + mine * (2 * LINE)
                free = True
                if slices > 1:
                    free = claim_slice(meetings, claim, meeting, n == 0, again)
                if free:
                    when, which = (d, s, when_reversed), (mine, slices)
                    if half == 0:
                        cells_of_slice(given, weights, states, written, when, which, rows, plan)
                    else:
                        states_of_slice(given, weights, states, written, when, which, rows, plan)
                    if slices > 1:
                        cb.atomic_max(meetings, claim + LINE, meeting + 1)
            if slices > 1:
                for other in range(slices):
                    await_slice(meetings, base + other * (2 * LINE) + LINE, meeting, 0)


@cb.func
def cells_of_slice(given, weights, states, written, when, which, rows, plan: cb.Comptime):
    """What a slice of the cells gives in a step."""
    d, s, _ = when
    hidden, panels = states[0], weights[0]
    wide, lines = plan.lanes * plan.blocks, 4 * plan.blocks
    count, width = panels.shape[1], written[2].shape[2]
    sums = cb.local((plan.rows, lines), hidden.dtype, lanes=plan.lanes)
    done = cb.local((plan.rows, lines), hidden.dtype, lanes=plan.lanes)
    for panel in range(which[0] * count // which[1], (which[0] + 1) * count // which[1]):
        for row in range(rows[0], rows[1], plan.rows):
            sources = tuple(cb.min(row + r, rows[1] - 1) for r in cb.unroll(range(plan.rows)))
            now = s % hidden.shape[0]
            sum_states(
                *(sums, panels, (d, panel), hidden, now, sources, lines, plan.rows, plan.lanes), 0
            )
            for r in range(plan.rows):
                for j in range(lines):
                    done[r, j] = sums[r, j]
            for r in range(cb.min(plan.rows, rows[1] - row)):
                for block in range(plan.blocks):
                    k = panel * wide + block * plan.lanes
                    if k < width:
                        totals = tuple(
                            done[r, g * plan.blocks + block] for g in cb.unroll(range(4))
                        )
                        give(given, states, written, when, (row + r, k), totals, plan)


@cb.func
def give(given, states, written, when, at, sums, plan: cb.Comptime):
    """The next line of cells, and what they give, from what it sums up."""
    d, s, reverse = when
    row, k = at
    products, lengths = given
    cells, made, lanes = states[1], written[3], plan.lanes
    steps, width = products.shape[0], written[2].shape[2]
    valid = cb.min(width - k, lanes)
    length = length_of(lengths, row, steps)
    now, then = s % cells.shape[0], (s + 1) % cells.shape[0]
    c = cells.load((now, d, row, k), lanes)
    if s < length:
        t = length - 1 - s if reverse else s
        column = d * (4 * width) + k
        total = tuple(
            sums[g]
            + cb.cast(products.load((t, row, column + g * width), lanes, valid=valid), cells.dtype)
            for g in cb.unroll(range(4))
        )
        c, m = lstm_cell(total, c, None)
        made.store((t, row, d * width + k), cb.cast(m, made.dtype), valid=valid)
    else:
        zero = cb.splat(cb.cast(0, made.dtype), lanes)
        made.store((s, row, d * width + k), zero, valid=valid)
    cells.store((then, d, row, k), c)
    if s == steps - 1:
        written[2].store((d, row, k), cb.cast(c, written[2].dtype), valid=valid)


@cb.func
def states_of_slice(given, weights, states, written, when, which, rows, plan: cb.Comptime):
    """A slice of the next states, of all that cells have given."""
    d, s, reverse = when
    hidden, panels = states[0], weights[1]
    made, lengths = written[3], given[1]
    wide, steps = plan.lanes * plan.narrow, given[0].shape[0]
    count, width, depth = panels.shape[1], written[1].shape[2], panels.shape[2]
    sums = cb.local((plan.rows, plan.narrow), hidden.dtype, lanes=plan.lanes)
    done = cb.local((plan.rows, plan.narrow), hidden.dtype, lanes=plan.lanes)
    for panel in range(which[0] * count // which[1], (which[0] + 1) * count // which[1]):
        for row in range(rows[0], rows[1], plan.rows):
            sources = tuple(cb.min(row + r, rows[1] - 1) for r in cb.unroll(range(plan.rows)))
            positions = tuple(
                position(s, length_of(lengths, sources[r], steps), reverse)
                for r in cb.unroll(range(plan.rows))
            )
            for r in range(plan.rows):
                for j in range(plan.narrow):
                    sums[r, j] = cb.splat(cb.cast(0, hidden.dtype), plan.lanes)
            for k in range(depth):
                for j in cb.unroll(range(plan.narrow)):
                    read = panels.load((d, panel, k, j * plan.lanes), plan.lanes)
                    line = cb.cast(read, hidden.dtype)
                    for r in cb.unroll(range(plan.rows)):
                        m = cb.cast(made[positions[r], sources[r], d * depth + k], hidden.dtype)
                        sums[r, j] = cb.fma(cb.splat(m, plan.lanes), line, sums[r, j])
            for r in range(plan.rows):
                for j in range(plan.narrow):
                    done[r, j] = sums[r, j]
            for r in range(cb.min(plan.rows, rows[1] - row)):
                for block in range(plan.narrow):
                    k = panel * wide + block * plan.lanes
                    if k < width:
                        go_on(lengths, states, written, when, (row + r, k), done[r, block], plan)


@cb.func
def go_on(lengths, states, written, when, at, found, plan: cb.Comptime):
    """A line of the next states; those of sequences that have ended stay."""
    d, s, reverse = when
    row, k = at
    hidden, y, lanes = states[0], written[0], plan.lanes
    steps, width = y.shape[0], written[1].shape[2]
    valid = cb.min(width - k, lanes)
    length = length_of(lengths, row, steps)
    h = hidden.load((s % hidden.shape[0], d, row, k), lanes)
    new = cb.splat(cb.cast(0, y.dtype), lanes)
    if s < length:
        h = found
        new = cb.cast(found, y.dtype)
    y.store((position(s, length, reverse), row, d * width + k), new, valid=valid)
    hidden.store(((s + 1) % hidden.shape[0], d, row, k), h)
    if s == steps - 1:
        written[1].store((d, row, k), cb.cast(h, written[1].dtype), valid=valid)


class MeetingsProjected(CpuRoutine):
    """Cubes that share a step, and meet twice in it."""

    name = "meetings"

    def launch(self, p: ProjectedRecurrence, properties: cb.DeviceProperties) -> None:
        """As many cubes as a step is worth."""
        steps, batch, directions, _ = p.sizes
        narrow, bits = p.first[0].shape[2], as_dtype(p.panels.dtype).bits
        rows, parts, slices = cut_of("lstm", p.sizes, p.panels.itemsize, properties, False, narrow)
        blocks, lanes = panel_of(4, bits, properties)
        plan = ProjectedPlan(lanes, blocks, narrow_panel_of(narrow, bits, properties)[0], rows)
        padded = p.narrow.shape[1] * plan.narrow * lanes, p.panels.shape[1] * blocks * lanes
        kept = (steps + 1) * directions * batch * sum(padded) * p.acc.itemsize <= KEPT
        held = steps + 1 if kept and slices > 1 else 2
        states = tuple(memory.empty((held, directions, batch, n), p.acc.numpy) for n in padded)
        meetings = memory.empty((2 * directions * parts * slices * LINE,), "int32")
        begin[directions * batch, 1](p.first, states, meetings, mode="unchecked")
        run_projected[directions * parts * slices, 1](
            (p.gates, p.lengths),
            (p.panels, p.narrow),
            states,
            (p.y, *p.last, p.made),
            meetings,
            (parts, slices),
            p.reverse,
            plan,
            mode="unchecked",
        )
