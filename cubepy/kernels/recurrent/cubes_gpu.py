"""A recurrence where units work in planes: a cube does all steps of a sequence in one direction.

Units first make the sums of all gates, neighbouring units of neighbouring columns, then the states.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives.units import has_scalars
from cubepy.kernels.recurrent.cells import gru_cell, lstm_cell, plain_cell
from cubepy.kernels.recurrent.problem import GATES, Recurrence
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine

MOST_UNITS = 512


@cb.kernel
def run_sequence(
    given, weights, first, states, written, back, cell: cb.Comptime[str], units: cb.Comptime[int]
):
    """All steps of a sequence.

    given: gates (T, B, D * G * H), lengths. weights: matrix (D, H, G * H), bias, peepholes. first:
    h (and c). states: h (2, D, B, H), sums (D, B, G * H), and c (D, B, H). written: y and the last
    states.
    """
    products, lengths = given
    hidden, sums = states[0], states[1]
    batch, width = hidden.shape[2], hidden.shape[3]
    columns, steps = sums.shape[2], products.shape[0]
    d, row = cb.CUBE_POS // batch, cb.CUBE_POS % batch
    reverse = back or d == 1
    length = steps
    if lengths is not None:
        length = cb.clamp(cb.cast(lengths[row], cb.i32), 0, steps)
    if has_scalars(cb.device_properties()):  # places in their registers would not fit there
        d, row = cb.plane_shuffle(d, cb.UNIT_POS_PLANE), cb.plane_shuffle(row, cb.UNIT_POS_PLANE)
    for k in range(cb.UNIT_POS, width, units):
        hidden[0, d, row, k] = cb.cast(first[0][d, row, k], hidden.dtype)
        if len(first) > 1:
            states[2][d, row, k] = cb.cast(first[1][d, row, k], hidden.dtype)
    cb.sync_cube()
    for s in range(length):
        now = s % 2
        for n in range(cb.UNIT_POS, columns, units):
            total = cb.cast(0, hidden.dtype)
            for k in range(width):
                weight = cb.cast(weights[0][d, k, n], hidden.dtype)
                total = cb.fma(hidden[now, d, row, k], weight, total)
            if weights[1] is not None:
                total += cb.cast(weights[1][d, n], hidden.dtype)
            sums[d, row, n] = total
        cb.sync_cube()
        t = length - 1 - s if reverse else s
        if has_scalars(cb.device_properties()):
            t = cb.plane_shuffle(t, cb.UNIT_POS_PLANE)
        for k in range(cb.UNIT_POS, width, units):
            next_state(products, weights[2], states, written[0], (d, row, t, now), k, cell)
        cb.sync_cube()
    for k in range(cb.UNIT_POS, width, units):
        written[1][d, row, k] = cb.cast(hidden[length % 2, d, row, k], written[1].dtype)
        if len(written) > 2:
            written[2][d, row, k] = cb.cast(states[2][d, row, k], written[2].dtype)
        for t in range(length, steps):
            written[0][t, row, d * width + k] = cb.cast(0, written[0].dtype)


@cb.func
def next_state(products, peepholes, states, y, when, k, cell: cb.Comptime[str]):
    """State k after a step."""
    d, row, t, now = when
    hidden, totals = states[0], states[1]
    width, acc = hidden.shape[3], hidden.dtype
    gates = cb.comptime(GATES[cell])
    found = tuple(
        cb.cast(products[t, row, (d * gates + g) * width + k], acc) for g in cb.unroll(range(gates))
    )
    sums = tuple(totals[d, row, g * width + k] for g in cb.unroll(range(gates)))
    if cell == "lstm":
        both = tuple(found[g] + sums[g] for g in cb.unroll(range(4)))
        holes = None
        if peepholes is not None:
            holes = tuple(cb.cast(peepholes[d, g * width + k], acc) for g in cb.unroll(range(3)))
        c, h = lstm_cell(both, states[2][d, row, k], holes)
        states[2][d, row, k] = c
    elif cell == "gru":
        h = gru_cell(found, sums, hidden[now, d, row, k])
    else:
        h = plain_cell(found[0] + sums[0], cell)
    hidden[1 - now, d, row, k] = h
    y[t, row, d * width + k] = cb.cast(h, y.dtype)


class Cubes(GpuRoutine):
    """A cube for each sequence and direction."""

    name = "cubes"

    def unfit(self, p: Recurrence, properties: cb.DeviceProperties) -> str | None:
        """Floats, and usual cells."""
        return None if p.codes is None and p.cell in GATES else "for usual cells of floats"

    def launch(self, p: Recurrence, properties: cb.DeviceProperties) -> None:
        """Units for the columns of all gates."""
        _, batch, directions, width = p.sizes
        columns = GATES[p.cell] * width
        units = min(MOST_UNITS, -(-columns // properties.plane_size) * properties.plane_size)
        units = 1 << (units - 1).bit_length()
        hidden = memory.empty((2, directions, batch, width), p.acc.numpy)
        sums = memory.empty((directions, batch, columns), p.acc.numpy)
        cells = [memory.empty((directions, batch, width), p.acc.numpy) for _ in p.first[1:]]
        run_sequence[directions * batch, units](
            (p.gates, p.lengths),
            (p.panels, p.bias, p.peepholes),
            p.first,
            (hidden, sums, *cells),
            (p.y, *p.last),
            p.reverse,
            p.cell,
            units,
            mode="unchecked",
        )
