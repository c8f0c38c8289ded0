"""Gradients of a recurrence on a CPU: all steps backwards in one launch, as `steps_cpu` goes ahead.

What a step made of its sums is computed again first: the products of all states are one matrix
product, and what the cells hold follows from them without a product. Then a step backwards needs
one product, of the gradients by the sums of the step behind it and the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import cubepy as cb
from cubepy.kernels.primitives.functions import sigmoid
from cubepy.kernels.recurrent.panels_cpu import panel_of
from cubepy.kernels.recurrent.problem import RecurrenceBack
from cubepy.kernels.recurrent.steps_cpu import (
    KEPT,
    LINE,
    await_slice,
    claim_slice,
    cut_of,
    gates_of,
)
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine


@dataclass(frozen=True)
class BackPlan:
    """What changes the code of the gradients: the cell, panels, sequences done together."""

    cell: str
    lanes: int
    blocks: int
    rows: int


@cb.func
def length_of(lengths, row, steps):
    """How many steps a sequence has."""
    if lengths is None:
        return steps
    return cb.min(cb.cast(lengths[row], cb.i32), steps)


@cb.func
def position(step, length, reverse):
    """Where a step of a sequence is along it; behind its end, where that is."""
    return length - 1 - step if reverse and step < length else step


@cb.kernel
def put_before(y: cb.Array, first: cb.Array, lengths, out: cb.Array, back, lanes: cb.Comptime[int]):
    """out[d, t, row] = the state that step t begins with, zeros behind a sequence's end; a cube
    does a step of a direction.
    """
    steps, batch, width = out.shape[1], out.shape[2], out.shape[3]
    d, t = cb.CUBE_POS // steps, cb.CUBE_POS % steps
    reverse = back or d == 1
    for row in range(batch):
        length = length_of(lengths, row, steps)
        begins = t == (length - 1 if reverse else 0)
        other = cb.max(cb.min(t + 1 if reverse else t - 1, steps - 1), 0)
        for k in range(0, width, lanes):
            valid = cb.min(width - k, lanes)
            found = cb.splat(cb.cast(0, out.dtype), lanes)
            if t < length:
                if begins:
                    found = first.load((d, row, k), lanes, valid=valid)
                else:
                    found = y.load((other, row, d * width + k), lanes, valid=valid)
            out.store((d, t, row, k), found, valid=valid)


@cb.kernel
def open_gates(
    gates: cb.Array,
    sums: cb.Array,
    bias,
    lengths,
    cells,
    more: cb.Array,
    back,
    cell: cb.Comptime[str],
    lanes: cb.Comptime[int],
):
    """What opened gates were, in place of the products of states; a cube does a sequence.

    sums: (D, T, B, G * H). more (D, T, B, H): of an LSTM the cells, which begin as `cells`; of a
    GRU the new states, while their products stay.
    """
    steps, batch, width = more.shape[1], more.shape[2], more.shape[3]
    d, row = cb.CUBE_POS // batch, cb.CUBE_POS % batch
    count = gates_of(cell)
    reverse = back or d == 1
    length = length_of(lengths, row, steps)
    for s in range(length):
        t = position(s, length, reverse)
        before = position(cb.max(s - 1, 0), length, reverse)
        for k in range(0, width, lanes):
            valid = cb.min(width - k, lanes)
            given = tuple(
                gates.load((t, row, (d * count + g) * width + k), lanes, valid=valid)
                for g in cb.unroll(range(count))
            )
            products = tuple(
                sums.load((d, t, row, g * width + k), lanes, valid=valid)
                for g in cb.unroll(range(count))
            )
            if bias is not None:
                products = tuple(
                    products[g] + bias.load((d, g * width + k), lanes, valid=valid)
                    for g in cb.unroll(range(count))
                )
            first, second = sigmoid(given[0] + products[0]), sigmoid(given[1] + products[1])
            sums.store((d, t, row, k), first, valid=valid)
            sums.store((d, t, row, width + k), second, valid=valid)
            if cell == "lstm":
                n, o = cb.tanh(given[2] + products[2]), sigmoid(given[3] + products[3])
                sums.store((d, t, row, 2 * width + k), n, valid=valid)
                sums.store((d, t, row, 3 * width + k), o, valid=valid)
                c = cells.load((d, row, k), lanes, valid=valid)
                if s > 0:
                    c = more.load((d, before, row, k), lanes, valid=valid)
                more.store((d, t, row, k), second * c + first * n, valid=valid)
            else:
                sums.store((d, t, row, 2 * width + k), products[2], valid=valid)
                n = cb.tanh(cb.fma(first, products[2], given[2]))
                more.store((d, t, row, k), n, valid=valid)


@cb.kernel
def pack_rows(matrix: cb.Array, out: cb.Array, lanes: cb.Comptime[int]):
    """out[d, p, r, j] = matrix[d, r, p * wide + j], zero behind the last state; a cube does a
    panel.
    """
    panels, rows, wide = out.shape[1], out.shape[2], out.shape[3]
    d, p = cb.CUBE_POS // panels, cb.CUBE_POS % panels
    width = matrix.shape[2]
    for r in range(rows):
        for j in range(0, wide, lanes):
            k = p * wide + j
            valid = cb.max(cb.min(width - k, lanes), 0)
            line = matrix.load((d, r, cb.min(k, width - 1)), lanes, valid=valid)
            out.store((d, p, r, j), line)


@cb.kernel
def begin_back(ends, carried, meetings: cb.Array):
    """carried[n][0] = ends[n], or zeros; a cube does a row. No step is done yet."""
    batch = carried[0].shape[2]
    d, row = cb.CUBE_POS // batch, cb.CUBE_POS % batch
    for n in cb.unroll(range(len(carried))):
        to = carried[n]
        for k in range(to.shape[3]):
            found = cb.cast(0, to.dtype)
            if ends[n] is not None:
                width = ends[n].shape[2]
                if k < width:
                    found = ends[n][d, row, cb.min(k, width - 1)]
            to[0, d, row, k] = found
    if cb.CUBE_POS == 0:
        for k in range(meetings.size):
            meetings[k] = cb.i32(0)


@cb.kernel
def run_back(
    given,
    panels: cb.Array,
    carried,
    written,
    meetings: cb.Array,
    cut,
    back,
    plan: cb.Comptime[BackPlan],
):
    """All steps of a slice of states for some sequences of a direction, the last one first.

    given: opened gates, cells or new states (see `open_gates`), the states before and behind each
    step, the first cells, lengths, the gradient by all states. carried: gradients by h and c, (n,
    D, B, padded). written: gradients by gates, by sums (None where they are the same), by first
    states. Cubes meet as those of `run_steps` do.
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
        for n in range(slices):
            mine = (home + n) % slices
            claim = base + mine * (2 * LINE)
            free = True
            if slices > 1:
                free = claim_slice(meetings, claim, s, n == 0, again)
            if free:
                slice_back(
                    given, panels, carried, written, (d, s, reverse), (mine, slices), rows, plan
                )
                if slices > 1:
                    cb.atomic_max(meetings, claim + LINE, s + 1)
        if slices > 1:
            for other in range(slices):
                await_slice(meetings, base + other * (2 * LINE) + LINE, s, 0)


@cb.func
def slice_back(given, panels, carried, written, when, which, rows, plan: cb.Comptime):
    """One step of a slice: panel after panel, for `plan.rows` sequences at a time."""
    d, s, reverse = when
    sums_of, lengths = written[0], given[5]
    if written[1] is not None:
        sums_of = written[1]
    steps = sums_of.shape[0]
    count, width = panels.shape[1], given[2].shape[3]
    wide = plan.lanes * plan.blocks
    acc = carried[0].dtype
    sums = cb.local((plan.rows, plan.blocks), acc, lanes=plan.lanes)
    done = cb.local((plan.rows, plan.blocks), acc, lanes=plan.lanes)
    behind = cb.min(steps - s, steps - 1)
    for panel in range(which[0] * count // which[1], (which[0] + 1) * count // which[1]):
        for row in range(rows[0], rows[1], plan.rows):
            sources = tuple(cb.min(row + r, rows[1] - 1) for r in cb.unroll(range(plan.rows)))
            positions = tuple(
                position(behind, length_of(lengths, sources[r], steps), reverse)
                for r in cb.unroll(range(plan.rows))
            )
            for r in range(plan.rows):
                for j in range(plan.blocks):
                    sums[r, j] = cb.splat(cb.cast(0, acc), plan.lanes)
            if s > 0:
                column = d * panels.shape[2]
                for k in range(panels.shape[2]):
                    for j in cb.unroll(range(plan.blocks)):
                        line = panels.load((d, panel, k, j * plan.lanes), plan.lanes)
                        for r in cb.unroll(range(plan.rows)):
                            g = cb.splat(sums_of[positions[r], sources[r], column + k], plan.lanes)
                            sums[r, j] = cb.fma(g, line, sums[r, j])
            for r in range(plan.rows):
                for j in range(plan.blocks):
                    done[r, j] = sums[r, j]
            for r in range(cb.min(plan.rows, rows[1] - row)):
                for block in range(plan.blocks):
                    state = panel * wide + block * plan.lanes
                    if state < width:
                        at = (row + r, state)
                        finish_back(given, carried, written, when, at, done[r, block], plan)


@cb.func
def finish_back(given, carried, written, when, at, sums, plan: cb.Comptime):
    """The gradients by the sums of a line of states, and what goes on to the step before."""
    d, s, reverse = when
    row, k = at
    opened, more, before, first, y, lengths, gradient = given
    lanes, count = plan.lanes, gates_of(plan.cell)
    steps, width = written[0].shape[0], before.shape[3]
    valid = cb.min(width - k, lanes)
    now, then = s % carried[0].shape[0], (s + 1) % carried[0].shape[0]
    dh = carried[0].load((now, d, row, k), lanes) + sums
    if s == steps:
        written[2].store((d, row, k), dh, valid=valid)
        if plan.cell == "lstm":
            written[3].store((d, row, k), carried[1].load((now, d, row, k), lanes), valid=valid)
    else:
        u = steps - 1 - s
        length = length_of(lengths, row, steps)
        t = position(u, length, reverse)
        zero = cb.splat(cb.cast(0, carried[0].dtype), lanes)
        stays = dh
        by_gates = tuple(zero for g in cb.unroll(range(count)))
        by_sums = by_gates
        if plan.cell == "lstm":
            dc = carried[1].load((now, d, row, k), lanes)
        if u < length:
            if gradient is not None:
                dh += gradient.load((t, row, d * width + k), lanes, valid=valid)
            if plan.cell == "tanh" or plan.cell == "relu":
                h = y.load((t, row, d * width + k), lanes, valid=valid)
                if plan.cell == "tanh":
                    by_gates = (dh * cb.fma(-h, h, cb.cast(1, h.dtype)),)
                else:
                    by_gates = (cb.select(h > 0, dh, zero),)
                stays = zero
                by_sums = by_gates
            else:
                gates = tuple(
                    opened.load((d, t, row, g * width + k), lanes, valid=valid)
                    for g in cb.unroll(range(count))
                )
                if plan.cell == "lstm":
                    t_before = position(cb.max(u - 1, 0), length, reverse)
                    c = first.load((d, row, k), lanes, valid=valid)
                    if u > 0:
                        c = more.load((d, t_before, row, k), lanes, valid=valid)
                    held = cb.tanh(more.load((d, t, row, k), lanes, valid=valid))
                    by_gates, dc = lstm_back(gates, c, held, dh, dc)
                    stays = zero
                    by_sums = by_gates
                else:
                    n = more.load((d, t, row, k), lanes, valid=valid)
                    h = before.load((d, t, row, k), lanes, valid=valid)
                    by_gates, by_sums, stays = gru_back(gates, n, h, dh)
        carried[0].store((then, d, row, k), stays)
        if plan.cell == "lstm":
            carried[1].store((then, d, row, k), dc)
        for g in cb.unroll(range(count)):
            column = (d * count + g) * width + k
            written[0].store((t, row, column), by_gates[g], valid=valid)
            if written[1] is not None:
                written[1].store((t, row, column), by_sums[g], valid=valid)


@cb.func
def lstm_back(gates, c, held, dh, dc):
    """The gradients by the sums of gates, and by the cells before, of those by h and the cells."""
    i, f, n, o = gates
    dc = cb.fma(dh * o, 1 - held * held, dc)
    by_i, by_f = dc * n * (i * (1 - i)), dc * c * (f * (1 - f))
    by_n, by_o = dc * i * (1 - n * n), dh * held * (o * (1 - o))
    return (by_i, by_f, by_n, by_o), dc * f


@cb.func
def gru_back(gates, n, h, dh):
    """The gradients by products of inputs, by those of states, and by the state before, without
    what comes through products.
    """
    r, u, product = gates
    by_n = dh * (1 - u) * (1 - n * n)
    by_r = by_n * product * (r * (1 - r))
    by_u = dh * (h - n) * (u * (1 - u))
    return (by_r, by_u, by_n), (by_r, by_u, by_n * r), dh * u


class MeetingsBack(CpuRoutine):
    """Cubes that share a step, and meet after it."""

    name = "meetings"

    def launch(self, p: RecurrenceBack, properties: cb.DeviceProperties) -> None:
        """As many cubes as a step is worth."""
        steps, batch, directions, width = p.sizes
        dtype = as_dtype(p.matrix.dtype)
        rows, parts, slices = cut_of(p.cell, p.sizes, dtype.itemsize, properties, True)
        blocks, lanes = panel_of(1, dtype.bits, properties)
        count = -(-width // (blocks * lanes))
        padded = count * blocks * lanes
        panels = memory.empty((directions, count, p.matrix.shape[1], blocks * lanes), dtype.numpy)
        pack_rows[directions * count, 1](p.matrix, panels, lanes, mode="unchecked")
        if p.opened is not None:
            open_gates[directions * batch, 1](
                p.gates,
                p.opened,
                p.bias,
                p.lengths,
                p.cells,
                p.more,
                p.reverse,
                p.cell,
                lanes,
                mode="unchecked",
            )
        kept = (steps + 2) * directions * batch * padded * dtype.itemsize <= KEPT
        held = steps + 2 if kept and slices > 1 else 2
        states = 2 if p.cell == "lstm" else 1
        shape = (held, directions, batch, padded)
        carried = tuple(memory.empty(shape, dtype.numpy) for _ in range(states))
        meetings = memory.empty((2 * directions * parts * slices * LINE,), "int32")
        begin_back[directions * batch, 1](p.ends[:states], carried, meetings, mode="unchecked")
        run_back[directions * parts * slices, 1](
            (p.opened, p.more, p.before, p.cells, p.y, p.lengths, p.gradient),
            panels,
            carried,
            p.written,
            meetings,
            (parts, slices),
            p.reverse,
            BackPlan(p.cell, lanes, blocks, rows),
            mode="unchecked",
        )
