"""Gradients of a recurrence on GPUs with clusters: all steps backwards in one launch, as
`clusters_gpu` goes ahead.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives.functions import sigmoid
from cubepy.kernels.recurrent.back_cpu import gru_back, length_of, lstm_back, position
from cubepy.kernels.recurrent.clusters_gpu import (
    ClusterPlan,
    broadcast,
    cluster_plan,
    hold,
    meet,
    sum_products,
    summed,
    unfit,
)
from cubepy.kernels.recurrent.problem import GATES, RecurrenceBack
from cubepy.lang.dtypes import as_dtype, f32
from cubepy.tune import GpuRoutine

OPENERS = 128
"""Units of a cube that opens gates."""


@cb.kernel
def states_before(y, first, lengths, out, back):
    """out[d, t, row] = the state that step t begins with, zeros behind a sequence's end; a unit
    does an element.
    """
    steps, batch, width = out.shape[1], out.shape[2], out.shape[3]
    at = cb.ABSOLUTE_POS
    if at < out.size:
        k, row = at % width, at // width % batch
        t, d = at // (width * batch) % steps, at // (width * batch * steps)
        reverse = back or d == 1
        length = length_of(lengths, row, steps)
        other = cb.max(cb.min(t + 1 if reverse else t - 1, steps - 1), 0)
        found = cb.cast(0, out.dtype)
        if t < length:
            if t == (length - 1 if reverse else 0):
                found = first[d, row, k]
            else:
                found = y[other, row, d * width + k]
        out[d, t, row, k] = found


@cb.kernel
def opened_of(gates, sums, bias, lengths, cells, more, back, cell: cb.Comptime[str]):
    """What `open_gates` of `back_cpu` does; a unit does a state of a sequence."""
    steps, batch, width = more.shape[1], more.shape[2], more.shape[3]
    acc = sums.dtype
    cubes = (width + cb.CUBE_DIM - 1) // cb.CUBE_DIM
    k, which = cb.CUBE_POS % cubes * cb.CUBE_DIM + cb.UNIT_POS, cb.CUBE_POS // cubes
    d, row = which // batch, which % batch
    count = cb.comptime(GATES[cell])
    reverse = back or d == 1
    length = length_of(lengths, row, steps)
    if k < width:
        biases = tuple(
            cb.cast(0, acc) if bias is None else cb.cast(bias[d, g * width + k], acc)
            for g in cb.unroll(range(count))
        )
        c = cb.cast(0, acc)
        if cell == "lstm":
            c = cb.cast(cells[d, row, k], acc)
        for s in range(length):
            t = position(s, length, reverse)
            given = tuple(
                cb.cast(gates[t, row, (d * count + g) * width + k], acc)
                for g in cb.unroll(range(count))
            )
            products = tuple(
                sums[d, t, row, g * width + k] + biases[g] for g in cb.unroll(range(count))
            )
            first, second = sigmoid(given[0] + products[0]), sigmoid(given[1] + products[1])
            sums[d, t, row, k] = first
            sums[d, t, row, width + k] = second
            if cell == "lstm":
                n, o = cb.tanh(given[2] + products[2]), sigmoid(given[3] + products[3])
                sums[d, t, row, 2 * width + k] = n
                sums[d, t, row, 3 * width + k] = o
                c = cb.fma(second, c, first * n)
                more[d, t, row, k] = c
            else:
                sums[d, t, row, 2 * width + k] = products[2]
                more[d, t, row, k] = cb.tanh(cb.fma(first, products[2], given[2]))


@cb.func
def read_step(given, when, at, acc: cb.Comptime, cell: cb.Comptime[str]):
    """What a step back needs of a state: the gradient, opened gates, the cell or state before, and
    the cell, new state or state behind.
    """
    opened, more, before, first, y, gradient = given
    d, u, length, reverse = when
    row, k = at
    width = before.shape[3]
    t = position(u, length, reverse)
    dy = cb.cast(0, acc)
    if gradient is not None:
        dy = cb.cast(gradient[t, row, d * width + k], acc)
    if cell == "tanh" or cell == "relu":
        return dy, (), dy, cb.cast(y[t, row, d * width + k], acc)
    count = cb.comptime(GATES[cell])
    gates = tuple(opened[d, t, row, g * width + k] for g in cb.unroll(range(count)))
    if cell == "lstm":
        c = cb.cast(first[d, row, k], acc)
        if u > 0:
            c = more[d, position(u - 1, length, reverse), row, k]
        return dy, gates, c, more[d, t, row, k]
    return dy, gates, cb.cast(before[d, t, row, k], acc), more[d, t, row, k]


@cb.func
def step_behind(read, carried, cell: cb.Comptime[str]):
    """The gradients by gates and by sums of states' products, and what goes on to the step before:
    by h without what comes through products, and by c.
    """
    dy, gates, old, new = read
    dh, dc = carried[0] + dy, carried[1]
    zero = cb.cast(0, dh.dtype)
    if cell == "lstm":
        by, dc = lstm_back(gates, old, cb.tanh(new), dh, dc)
        return by, by, zero, dc
    if cell == "gru":
        by, sums, stays = gru_back(gates, new, old, dh)
        return by, sums, stays, dc
    by = (cb.select(new > 0, dh, zero),)
    if cell == "tanh":
        by = (dh * cb.fma(-new, new, cb.cast(1, dh.dtype)),)
    return by, by, zero, dc


@cb.kernel
def run_clusters_back(given, matrix, ends, written, back, plan: cb.Comptime[ClusterPlan]):
    """All steps of some sequences in a direction, the last one first.

    given: opened gates, cells or new states, the states before each step, the first cells, the
    states behind each step, the gradient by these, lengths. matrix: (D, G * H, H). ends: gradients
    by the last h and c, or None. written: gradients by gates, by sums (None where they are the
    same), by the first states.
    """
    if plan.cubes > 1:
        cb.cluster(plan.cubes)
    count = cb.comptime(GATES[plan.cell])
    before, lengths = given[2], given[6]
    steps, batch, width = before.shape[1], before.shape[2], before.shape[3]
    cluster, cube = cb.CUBE_POS // plan.cubes, cb.CUBE_POS % plan.cubes
    parts = (batch + plan.rows - 1) // plan.rows
    d, base = cluster // parts, cluster % parts * plan.rows
    reverse = back or d == 1
    acc = plan.acc
    share = (width + plan.cubes - 1) // plan.cubes
    begin = cube * share
    mine = cb.clamp(width - begin, 0, share)
    values = cb.shared(2 * plan.depth * plan.rows, acc)
    sums = cb.shared(plan.units * plan.rows, acc)
    panel = cb.shared(plan.depth * plan.columns if plan.held else 1, acc)
    source = cb.min(begin + cb.UNIT_POS % plan.columns, width - 1)
    hold(panel, matrix, d, count * width, source, plan)
    j, r = cb.UNIT_POS // plan.rows, cb.UNIT_POS % plan.rows
    k, row = cb.min(begin + j, width - 1), cb.min(base + r, batch - 1)
    sends = j < mine
    active = sends and base + r < batch
    dh, dc = cb.cast(0, acc), cb.cast(0, acc)
    if ends[0] is not None:
        dh = cb.cast(ends[0][d, row, k], acc)
    if ends[1] is not None:
        dc = cb.cast(ends[1][d, row, k], acc)
    length = cb.max(length_of(lengths, row, steps), 0)
    meet(plan)
    zero = cb.cast(0, acc)
    by_gates = tuple(zero for g in cb.unroll(range(count)))
    by_sums = by_gates
    read = read_step(given[:6], (d, steps - 1, length, reverse), (row, k), acc, plan.cell)
    for s in range(steps):
        now = s % 2 * (plan.depth * plan.rows)
        u = steps - 1 - s
        if sends:
            by_gates = tuple(zero for g in cb.unroll(range(count)))
            by_sums = by_gates
            if u < length:
                by_gates, by_sums, dh, dc = step_behind(read, (dh, dc), plan.cell)
            for g in cb.unroll(range(count)):
                broadcast(values, now + (g * width + begin + j) * plan.rows + r, by_sums[g], plan)
        meet(plan)
        if active:  # while nobody waits: a meeting would wait for what is stored before it
            t = position(u, length, reverse)
            for g in cb.unroll(range(count)):
                column = (d * count + g) * width + k
                written[0][t, row, column] = cb.cast(by_gates[g], written[0].dtype)
                if written[1] is not None:
                    written[1][t, row, column] = cb.cast(by_sums[g], written[1].dtype)
        ahead = (d, cb.max(u - 1, 0), length, reverse)
        read = read_step(given[:6], ahead, (row, k), acc, plan.cell)
        sum_products(values, now, panel, matrix, sums, (d, count * width, source), plan)
        cb.sync_cube()
        if sends:
            dh += summed(sums, j, r, plan)
    if active:
        written[2][d, row, k] = cb.cast(dh, written[2].dtype)
        if plan.cell == "lstm":
            written[3][d, row, k] = cb.cast(dc, written[3].dtype)


def open_all(p: RecurrenceBack) -> None:
    """Open the gates of all steps."""
    if p.opened is None:
        return
    _, batch, directions, width = p.sizes
    opened_of[directions * batch * -(-width // OPENERS), OPENERS](
        p.gates, p.opened, p.bias, p.lengths, p.cells, p.more, p.reverse, p.cell, mode="unchecked"
    )


class ClustersBack(GpuRoutine):
    """Cubes that share the gradients of a step, and broadcast them to each other."""

    name = "clusters"

    def unfit(self, p: RecurrenceBack, properties: cb.DeviceProperties) -> str | None:
        """See `clusters_gpu.unfit`."""
        return unfit(p, sums_of(p.y.dtype), properties, True)

    def launch(self, p: RecurrenceBack, properties: cb.DeviceProperties) -> None:
        """A cluster for some sequences."""
        _, batch, directions, _ = p.sizes
        plan = cluster_plan(p.cell, p.sizes, sums_of(p.y.dtype), properties, True)
        assert plan is not None
        open_all(p)
        run_clusters_back[directions * -(-batch // plan.rows) * plan.cubes, plan.units](
            (p.opened, p.more, p.before, p.cells, p.y, p.gradient, p.lengths),
            p.matrix,
            p.ends,
            p.written,
            p.reverse,
            plan,
            mode="unchecked",
        )


def sums_of(dtype: object) -> cb.DType:
    """What sums of products of a dtype are made in."""
    found = as_dtype(dtype)
    return found if found.bits >= 32 else f32
