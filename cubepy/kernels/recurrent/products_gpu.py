"""A recurrence on GPUs, a matrix product and a launch of cells for each step: for wide states of
many sequences, whose products fill the device; and its gradient.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.recurrent.back_cpu import length_of, position
from cubepy.kernels.recurrent.clusters_back_gpu import open_all, read_step, step_behind, sums_of
from cubepy.kernels.recurrent.clusters_gpu import step_of
from cubepy.kernels.recurrent.problem import GATES, Recurrence, RecurrenceBack
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine

UNITS = 128


@cb.func
def indices_of(states, width):
    """Direction, sequence and state of a unit; whether there are such ones."""
    at = cb.ABSOLUTE_POS
    batch = states.shape[1]
    return at // width // batch, at // width % batch, at % width, at < states.size


@cb.kernel
def begin_states(first, states, hidden):
    """states[n] = first[n], and `hidden` what products read of the first; None is zero."""
    width = hidden.shape[2]
    d, row, k, there = indices_of(hidden, width)
    if there:
        for n in cb.unroll(range(len(states))):
            value = cb.cast(0, states[n].dtype)
            if first[n] is not None:
                value = cb.cast(first[n][d, row, k], states[n].dtype)
            states[n][d, row, k] = value
        hidden[d, row, k] = cb.cast(states[0][d, row, k], hidden.dtype)


@cb.kernel
def make_step(given, weights, states, hidden, written, s, back, cell: cb.Comptime[str]):
    """The states after step s, of the products of those before.

    given: gates (T, B, D * G * H), lengths, products (D, B, G * H). weights: bias, peepholes.
    states: h (and c) (D, B, H), and `hidden`, what the next product reads. written: y, and after
    the last step the last states.
    """
    gates, lengths, products = given
    steps, width = gates.shape[0], hidden.shape[2]
    count, acc = cb.comptime(GATES[cell]), states[0].dtype
    d, row, k, there = indices_of(hidden, width)
    if there:
        length = cb.max(length_of(lengths, row, steps), 0)
        t = position(s, length, back or d == 1)
        result = cb.cast(0, acc)
        if s < length:
            found = tuple(
                cb.cast(gates[t, row, (d * count + g) * width + k], acc)
                for g in cb.unroll(range(count))
            )
            totals = tuple(products[d, row, g * width + k] for g in cb.unroll(range(count)))
            if weights[0] is not None:
                totals = tuple(
                    totals[g] + cb.cast(weights[0][d, g * width + k], acc)
                    for g in cb.unroll(range(count))
                )
            holes = None
            if weights[1] is not None:
                holes = tuple(
                    cb.cast(weights[1][d, g * width + k], acc) for g in cb.unroll(range(3))
                )
            c = states[0][d, row, k]
            if cell == "lstm":
                c = states[1][d, row, k]
            c, result = step_of(found, totals, c, states[0][d, row, k], holes, cell)
            states[0][d, row, k] = result
            hidden[d, row, k] = cb.cast(result, hidden.dtype)
            if cell == "lstm":
                states[1][d, row, k] = c
        written[0][t, row, d * width + k] = cb.cast(result, written[0].dtype)
        if s == steps - 1:
            for n in cb.unroll(range(len(states))):
                written[1 + n][d, row, k] = cb.cast(states[n][d, row, k], written[1 + n].dtype)


@cb.kernel
def make_step_back(given, states, products, hidden, written, u, back, cell: cb.Comptime[str]):
    """The gradients by the sums of step u, of those that went through the step behind it.

    given: see `run_clusters_back`. states: gradients by h and c, without what came through
    products, (D, B, H). products: that (D, B, H), None at first. hidden: the gradients by sums (D,
    B, G * H), as the next product reads them. written: gradients by gates, and by sums.
    """
    width = states[0].shape[2]
    lengths, steps = given[6], written[0].shape[0]
    count, acc = cb.comptime(GATES[cell]), states[0].dtype
    d, row, k, there = indices_of(states[0], width)
    if there:
        length = cb.max(length_of(lengths, row, steps), 0)
        reverse = back or d == 1
        dh, dc = states[0][d, row, k], cb.cast(0, acc)
        if cell == "lstm":
            dc = states[1][d, row, k]
        if products is not None:
            dh += products[d, row, k]
        by_gates = tuple(cb.cast(0, acc) for g in cb.unroll(range(count)))
        by_sums = by_gates
        if u < length:
            read = read_step(given[:6], (d, u, length, reverse), (row, k), acc, cell)
            by_gates, by_sums, dh, dc = step_behind(read, (dh, dc), cell)
        states[0][d, row, k] = dh
        if cell == "lstm":
            states[1][d, row, k] = dc
        t = position(u, length, reverse)
        for g in cb.unroll(range(count)):
            column = (d * count + g) * width + k
            hidden[d, row, g * width + k] = cb.cast(by_sums[g], hidden.dtype)
            written[0][t, row, column] = cb.cast(by_gates[g], written[0].dtype)
            if written[1] is not None:
                written[1][t, row, column] = cb.cast(by_sums[g], written[1].dtype)


@cb.kernel
def end_back(states, products, written):
    """The gradients by the first states."""
    width = products.shape[2]
    d, row, k, there = indices_of(products, width)
    if there:
        dh = states[0][d, row, k] + products[d, row, k]
        written[0][d, row, k] = cb.cast(dh, written[0].dtype)
        if len(states) > 1:
            written[1][d, row, k] = cb.cast(states[1][d, row, k], written[1].dtype)


class Products(GpuRoutine):
    """A product and a launch of cells for each step."""

    name = "products"

    def unfit(self, p: Recurrence, properties: cb.DeviceProperties) -> str | None:
        """Usual cells of floats."""
        return None if p.codes is None and p.cell in GATES else "for usual cells of floats"

    def launch(self, p: Recurrence, properties: cb.DeviceProperties) -> None:
        """Two launches for a step."""
        steps, batch, directions, width = p.sizes
        shape = directions, batch, width
        states = tuple(memory.empty(shape, p.acc.numpy) for _ in p.first)
        hidden = memory.empty(shape, p.gates.dtype)
        products = memory.empty((directions, batch, GATES[p.cell] * width), p.acc.numpy)
        cubes = -(-hidden.size // UNITS)
        begin_states[cubes, UNITS](p.first, states, hidden, mode="unchecked")
        for s in range(steps):
            matmul(hidden, p.panels, dtype=p.acc, out=products)
            make_step[cubes, UNITS](
                (p.gates, p.lengths, products),
                (p.bias, p.peepholes),
                states,
                hidden,
                (p.y, *p.last),
                s,
                p.reverse,
                p.cell,
                mode="unchecked",
            )


class ProductsBack(GpuRoutine):
    """The same for gradients."""

    name = "products"

    def launch(self, p: RecurrenceBack, properties: cb.DeviceProperties) -> None:
        """Two launches for a step."""
        steps, batch, directions, width = p.sizes
        acc = sums_of(p.y.dtype)
        open_all(p)
        shape = directions, batch, width
        count = 2 if p.cell == "lstm" else 1
        states = tuple(memory.empty(shape, acc.numpy) for _ in range(count))
        products = memory.empty(shape, acc.numpy)
        hidden = memory.empty((directions, batch, GATES[p.cell] * width), p.y.dtype)
        cubes = -(-products.size // UNITS)
        begin_states[cubes, UNITS](p.ends[:count], states, products, mode="unchecked")
        for u in reversed(range(steps)):
            make_step_back[cubes, UNITS](
                (p.opened, p.more, p.before, p.cells, p.y, p.gradient, p.lengths),
                states,
                None if u == steps - 1 else products,
                hidden,
                p.written[:2],
                u,
                p.reverse,
                p.cell,
                mode="unchecked",
            )
            matmul(hidden, p.matrix, dtype=acc, out=products)
        end_back[cubes, UNITS](states, products, p.written[2 : 2 + count], mode="unchecked")
