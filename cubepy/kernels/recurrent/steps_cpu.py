"""A recurrence on a CPU: all steps in one launch, whose cubes meet after each of them.

The states of a direction are cut into slices. A cube that begins a step takes the slice that is
its own; if others are late, it takes theirs, too. So a launch ends with any number of threads, one
after the other as well, and a slice of the matrix stays in the caches of one core. A thread that is
held up in the middle of a slice holds up the others only where the states of all steps are too many
to be kept; else another does its slice again, and both write the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import cubepy as cb
from cubepy.kernels.recurrent.cells import (
    activated,
    gru_cell,
    lstm_cell,
    odd_gru,
    odd_lstm,
    plain_cell,
)
from cubepy.kernels.recurrent.codes_cpu import as_numbers, round_row, sum_codes
from cubepy.kernels.recurrent.halves_cpu import gates_of_half, length_of, renew, weigh
from cubepy.kernels.recurrent.panels_cpu import panel_of
from cubepy.kernels.recurrent.problem import GATES, Cell, Recurrence, cell_of
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine

LINE = 16  # words of a line of the caches; each counter has one to itself
PATIENCE = 256  # looks at a slice that nobody has begun, before one does it
LONG = 4096  # looks at a slice that somebody has begun, before one does it, too
KEPT = 1 << 23  # bytes of the states of all steps that are kept, so that a slice may be done twice
BYTES_US = 100_000  # of a matrix in its own cache that a core multiplies by a row in a microsecond
MEMORY_BYTES_US = 25_000  # the same of a matrix that is not there
PRODUCTS_US = 32_000  # of numbers that a core adds up in a microsecond
WORTH_US = 2  # of a step's work for each cube: to meet takes them .8
NEAR = 1 << 19  # bytes of a matrix that each core may read for itself
FEW = 3  # sequences for which there is code of their own
REGISTERS = {16: 12, 32: 24}
"""Lines of sums at most, by the registers of a device."""


@dataclass(frozen=True)
class StepPlan:
    """What changes the code of a recurrence.

    Attributes:
        cell: see `problem.GATES`.
        lanes, blocks: of a panel.
        rows: sequences that are done together.
        integer: whether states are rounded and matrices are codes.
        joint: whether sequences have one range.
        odd: a cell that is not the usual one.
    """

    cell: str
    lanes: int
    blocks: int
    rows: int
    integer: bool = False
    joint: bool = False
    odd: Cell | None = None

    @property
    def halves(self) -> int:
        """Times that cubes meet in a step: what a GRU weighs states with is known before these meet
        the matrix.
        """
        return 2 if self.odd is not None and self.odd.before else 1


@cb.kernel
def begin(first, states, meetings: cb.Array):
    """states[n][0] = first[n], in the dtype of sums, and zeros behind; a cube does a row.

    No step is done yet.
    """
    batch, width = first[0].shape[1], first[0].shape[2]
    d, row = cb.CUBE_POS // batch, cb.CUBE_POS % batch
    hidden = states[0]
    for k in range(hidden.shape[3]):
        h = cb.cast(first[0][d, row, cb.min(k, width - 1)], hidden.dtype)
        hidden[0, d, row, k] = h if k < width else cb.cast(0, hidden.dtype)
    if len(first) > 1:
        cells, wide = states[1], first[1].shape[2]
        for k in range(cells.shape[3]):
            c = cb.cast(first[1][d, row, cb.min(k, wide - 1)], cells.dtype)
            cells[0, d, row, k] = c if k < wide else cb.cast(0, cells.dtype)
    if cb.CUBE_POS == 0:
        for k in range(meetings.size):
            meetings[k] = cb.i32(0)


@cb.kernel
def run_steps(
    given,
    weights,
    states,
    written,
    held,
    meetings: cb.Array,
    cut,
    back,
    plan: cb.Comptime[StepPlan],
):
    """All steps of a slice of states for some sequences of a direction.

    given: gates (T, B, D * G * H), lengths. weights: panels, bias, peepholes; of codes also sums of
    columns and scales. states: h and c, (n, D, B, padded), of all steps or two in turns. written: y
    and the last states. held: what each cube rounds its states to, (cubes, rows, padded), their
    scales and zero points; or None. cut: parts of the batch, slices of the states.
    """
    parts, slices = cut
    home = cb.CUBE_POS % slices
    group = cb.CUBE_POS // slices
    d, part = group // parts, group % parts
    batch, steps = states[0].shape[2], given[0].shape[0]
    rows = (part * batch // parts, (part + 1) * batch // parts)
    reverse = back or d == 1
    base = group * slices * (2 * LINE)
    again = states[0].shape[0] > steps
    for s in range(steps):
        if plan.integer:
            for row in range(rows[0], rows[1]):
                among = rows if plan.joint else (row, row + 1)
                at = (s % states[0].shape[0], d, row)
                width = written[1].shape[2]
                round_row(states[0], at, among, held, row - rows[0], width, plan.lanes)
        for half in cb.unroll(range(plan.halves)):
            meeting = s * plan.halves + half
            for n in range(slices):
                mine = (home + n) % slices
                claim = base + mine * (2 * LINE)
                free = True
                if slices > 1:
                    free = claim_slice(meetings, claim, meeting, n == 0, again)
                if free:
                    when = (d, s, reverse)
                    which = (mine, slices)
                    step_of_slice(
                        *(given, weights, states, written, held, when, which, rows, plan),
                        half + plan.halves - 1,
                    )
                    if slices > 1:
                        cb.atomic_max(meetings, claim + LINE, meeting + 1)
            if slices > 1:
                for other in range(slices):
                    await_slice(meetings, base + other * (2 * LINE) + LINE, meeting, 0)


@cb.func
def await_slice(meetings, at, s, patience: cb.Comptime[int]):
    """Look until a slice has done step s, or so often (0: however long it takes); whether it has
    not.
    """
    looks = 0
    late = cb.atomic_or(meetings, at, 0) <= s
    while late and (patience == 0 or looks < patience):
        late = cb.atomic_or(meetings, at, 0) <= s
        looks += 1
    return late


@cb.func
def claim_slice(meetings, claim, s, own, again):
    """Whether step s of a slice is this unit's to do: its `own` at once, another's when nobody has
    begun it for long, and where a step may be done twice (`again`) also when it is not finished.
    """
    late = own
    if not own:
        late = await_slice(meetings, claim + LINE, s, PATIENCE)
    free = late and cb.atomic_compare_exchange(meetings, claim, s, s + 1) == s
    if late and not free and again:
        free = await_slice(meetings, claim + LINE, s, LONG)
    return free


@cb.func
def step_of_slice(
    given,
    weights,
    states,
    written,
    held,
    when,
    which,
    rows,
    plan: cb.Comptime,
    half: cb.Comptime[int],
):
    """One step of a slice: panel after panel, for `plan.rows` sequences at a time; of two halves
    the first one (1: reset and update) or the other (2: new).
    """
    d, s, _ = when
    panels, hidden = weights[0], states[1] if half == 2 else states[0]
    gates = gates_of_half(plan.cell, half)
    before = 2 * plan.blocks if half == 2 else 0
    wide = plan.lanes * plan.blocks
    count, width = panels.shape[1], written[1].shape[2]
    acc = cb.i32 if plan.integer else hidden.dtype
    sums = cb.local((plan.rows, gates * plan.blocks), acc, lanes=plan.lanes)
    done = cb.local((plan.rows, gates * plan.blocks), acc, lanes=plan.lanes)
    for panel in range(which[0] * count // which[1], (which[0] + 1) * count // which[1]):
        for row in range(rows[0], rows[1], plan.rows):
            sources = tuple(cb.min(row + r, rows[1] - 1) for r in cb.unroll(range(plan.rows)))
            lines = gates * plan.blocks
            if plan.integer:
                own = tuple(sources[r] - rows[0] for r in cb.unroll(range(plan.rows)))
                sum_codes(sums, panels, d, panel, held[0], own, lines, plan.rows, plan.lanes)
            else:
                sum_states(
                    sums,
                    panels,
                    (d, panel),
                    hidden,
                    s % hidden.shape[0],
                    sources,
                    lines,
                    plan.rows,
                    plan.lanes,
                    before,
                )
            for r in range(plan.rows):
                for j in range(gates * plan.blocks):
                    done[r, j] = sums[r, j]
            for r in range(cb.min(plan.rows, rows[1] - row)):
                for block in range(plan.blocks):
                    state = panel * wide + block * plan.lanes
                    if state < width:
                        totals = tuple(
                            done[r, g * plan.blocks + block] for g in cb.unroll(range(gates))
                        )
                        at = (row + r, state)
                        if half == 1:
                            weigh(given, weights, states, when, at, totals, plan)
                        elif half == 2:
                            renew(given, weights, states, written, when, at, totals[0], plan)
                        elif plan.integer:
                            own_row = (d, row + r - rows[0], width, state)
                            numbers = as_numbers(
                                totals, weights[3:], held[1], own_row, plan.lanes, gates
                            )
                            finish(given, weights, states, written, when, at, numbers, plan)
                        else:
                            finish(given, weights, states, written, when, at, totals, plan)


@cb.func
def sum_states(
    sums, panels, at, hidden, now, sources, lines: cb.Comptime[int], rows, lanes, before
):
    """sums[r, j] = the products of a panel's lines, behind some, with the states of sequences."""
    d, panel = at
    for r in range(rows):
        for j in range(lines):
            sums[r, j] = cb.splat(cb.cast(0, hidden.dtype), lanes)
    for k in range(panels.shape[2]):
        for j in cb.unroll(range(lines)):
            read = panels.load((d, panel, k, (before + j) * lanes), lanes)
            line = cb.cast(read, hidden.dtype)
            for r in cb.unroll(range(rows)):
                h = cb.splat(hidden[now, d, sources[r], k], lanes)
                sums[r, j] = cb.fma(h, line, sums[r, j])


@cb.func
def gates_of(cell: cb.Comptime[str]):
    """Gates of a cell."""
    return cb.comptime(GATES[cell])


@cb.func
def finish(given, weights, states, written, when, at, sums, plan: cb.Comptime):
    """The next states of a line of them, from what it sums up."""
    d, s, reverse = when
    row, k = at
    products, lengths = given
    bias, peepholes = weights[1], weights[2]
    hidden, y = states[0], written[0]
    lanes, acc = plan.lanes, hidden.dtype
    gates = gates_of(plan.cell)
    width = written[1].shape[2]
    valid = cb.min(width - k, lanes)
    steps = products.shape[0]
    length = length_of(lengths, row, steps)
    now, then = s % hidden.shape[0], (s + 1) % hidden.shape[0]
    h = hidden.load((now, d, row, k), lanes)
    if s < length:
        t = length - 1 - s if reverse else s
        column = d * (gates * width) + k
        found = tuple(
            cb.cast(products.load((t, row, column + g * width), lanes, valid=valid), acc)
            for g in cb.unroll(range(gates))
        )
        if bias is not None:
            sums = tuple(
                sums[g] + cb.cast(bias.load((d, g * width + k), lanes, valid=valid), acc)
                for g in cb.unroll(range(gates))
            )
        if plan.cell == "lstm":
            total = tuple(found[g] + sums[g] for g in cb.unroll(range(4)))
            holes = None
            if peepholes is not None:
                holes = tuple(
                    cb.cast(peepholes.load((d, g * width + k), lanes, valid=valid), acc)
                    for g in cb.unroll(range(3))
                )
            c = states[1].load((now, d, row, k), lanes)
            if plan.odd is None:
                c, h = lstm_cell(total, c, holes)
            else:
                c, h = odd_lstm(total, c, holes, plan.odd)
            states[1].store((then, d, row, k), c)
        elif plan.cell == "gru":
            h = gru_cell(found, sums, h) if plan.odd is None else odd_gru(found, sums, h, plan.odd)
        elif plan.odd is not None:
            h = activated(found[0] + sums[0], plan.odd.functions[0], plan.odd.clip)
        else:
            h = plain_cell(found[0] + sums[0], plan.cell)
        y.store((t, row, d * width + k), cb.cast(h, y.dtype), valid=valid)
    else:
        if plan.cell == "lstm":
            states[1].store((then, d, row, k), states[1].load((now, d, row, k), lanes))
        y.store((s, row, d * width + k), cb.splat(cb.cast(0, y.dtype), lanes), valid=valid)
    hidden.store((then, d, row, k), h)
    if s == steps - 1:
        written[1].store((d, row, k), cb.cast(h, written[1].dtype), valid=valid)
        if len(written) > 2:
            c = states[1].load((then, d, row, k), lanes)
            written[2].store((d, row, k), cb.cast(c, written[2].dtype), valid=valid)


@cache
def cut_of(
    cell: str,
    sizes: tuple[int, int, int, int],
    itemsize: int,
    properties: cb.DeviceProperties,
    back: bool = False,
    narrow: int = 0,
) -> tuple[int, int, int]:
    """Sequences that are done together, parts of the batch, slices of the states; of the steps, or
    of their gradients; of states that are projected to so many (0: they are not).

    Parts of the batch read the whole matrix and need not meet; slices read their own part of it.
    """
    _, batch, directions, width = sizes
    gates = GATES[cell]
    together = 1 if back else gates
    blocks, lanes = panel_of(together, 8 * itemsize, properties)
    lines = REGISTERS[32 if properties.vector_registers >= 32 else 16]
    most = batch if batch < FEW else max(1, lines // (together * blocks))
    rows = -(-batch // -(-batch // most))  # as many in each turn: none is done twice to fill one
    cores = max(1, properties.cores // directions)
    matrix = (gates + 1) * width * narrow if narrow else gates * width * width
    parts = 1
    if matrix * itemsize <= NEAR:
        parts = max(1, min(cores, batch // rows))
    each = -(-batch // parts)
    speed = BYTES_US if 2 * matrix * itemsize <= properties.l2_bytes else MEMORY_BYTES_US
    step_us = max(matrix * itemsize / speed, each * matrix / PRODUCTS_US)
    panels = -(-width // (blocks * lanes))
    worth = 2 * WORTH_US if narrow else WORTH_US  # cubes meet twice
    slices = max(1, min(cores // parts, panels, int(step_us / worth)))
    return rows, parts, slices


class Meetings(CpuRoutine):
    """Cubes that share a step, and meet after it."""

    name = "meetings"

    def launch(self, p: Recurrence, properties: cb.DeviceProperties) -> None:
        """As many cubes as a step is worth."""
        steps, batch, directions, _ = p.sizes
        cell = cell_of(p.cell)
        rows, parts, slices = cut_of(cell.kind, p.sizes, p.panels.itemsize, properties)
        if p.joint:
            parts = 1
        integer = p.codes is not None
        bits = 32 if integer else as_dtype(p.panels.dtype).bits
        blocks, lanes = panel_of(GATES[cell.kind], bits, properties)
        odd = None if p.cell == cell.kind else cell
        plan = StepPlan(cell.kind, lanes, blocks, rows, integer, p.joint, odd)
        cubes = directions * parts * slices
        padded = p.panels.shape[1] * blocks * lanes
        kept = (steps + 1) * directions * batch * padded * p.acc.itemsize <= KEPT
        held_steps = steps + 1 if kept and slices > 1 else 2
        shape = (held_steps, directions, batch, padded)
        hidden = memory.empty(shape, p.acc.numpy)
        more = 2 * (plan.halves - 1) + len(p.first) - 1
        cells = [memory.empty(shape, p.acc.numpy) for _ in range(more)]
        meetings = memory.empty((2 * directions * parts * slices * LINE,), "int32")
        states = (hidden, *cells)
        held = None
        if p.codes is not None:
            most = -(-batch // parts)
            held = (
                memory.empty((cubes, most, padded), "uint8"),
                memory.empty((cubes, most, 2), "float32"),
            )
        begin[directions * batch, 1](p.first, states[: len(p.first)], meetings, mode="unchecked")
        run_steps[cubes, 1](
            (p.gates, p.lengths),
            (p.panels, p.bias, p.peepholes, *(p.codes or ())),
            states,
            (p.y, *p.last),
            held,
            meetings,
            (parts, slices),
            p.reverse,
            plan,
            mode="unchecked",
        )
