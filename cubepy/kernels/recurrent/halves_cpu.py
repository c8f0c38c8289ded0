"""The two halves of a step of a GRU that weighs states before they meet the matrix: cubes meet
between them, since all weighed states are multiplied.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.recurrent.cells import activated
from cubepy.kernels.recurrent.problem import GATES


@cb.func
def gates_of_half(cell: cb.Comptime[str], half: cb.Comptime[int]):
    """Gates of a cell, or of the first or second half of a step."""
    return cb.comptime((GATES[cell], 2, 1)[half])


@cb.func
def length_of(lengths, row, steps):
    """How many steps a sequence has."""
    return steps if lengths is None else cb.min(cb.cast(lengths[row], cb.i32), steps)


@cb.func
def weigh(given, weights, states, when, at, sums, plan: cb.Comptime):
    """What a GRU updates states with, and states weighed by what it resets."""
    d, s, reverse = when
    row, k = at
    products, lengths = given
    hidden, bias = states[0], weights[1]
    width, steps, now = weights[0].shape[2], products.shape[0], s % hidden.shape[0]
    length = length_of(lengths, row, steps)
    if s < length:
        valid = cb.min(width - k, plan.lanes)
        t = length - 1 - s if reverse else s
        for g in cb.unroll(range(2)):
            at_gate = d * (3 * width) + g * width + k
            x = cb.cast(products.load((t, row, at_gate), plan.lanes, valid=valid), hidden.dtype)
            total = x + sums[g]
            if bias is not None:
                b = bias.load((d, g * width + k), plan.lanes, valid=valid)
                total = total + cb.cast(b, hidden.dtype)
            found = activated(total, plan.odd.functions[0], plan.odd.clip)
            if g == 0:
                h = hidden.load((now, d, row, k), plan.lanes)
                states[1].store((now, d, row, k), found * h)
            else:
                states[2].store((now, d, row, k), found)


@cb.func
def renew(given, weights, states, written, when, at, total, plan: cb.Comptime):
    """The next states of a GRU that has weighed those before."""
    d, s, reverse = when
    row, k = at
    products, lengths = given
    hidden, y, bias, lanes = states[0], written[0], weights[1], plan.lanes
    width, steps = weights[0].shape[2], products.shape[0]
    now, then = s % hidden.shape[0], (s + 1) % hidden.shape[0]
    length, valid = length_of(lengths, row, steps), cb.min(width - k, lanes)
    h = hidden.load((now, d, row, k), lanes)
    if s < length:
        t = length - 1 - s if reverse else s
        x = products.load((t, row, d * (3 * width) + 2 * width + k), lanes, valid=valid)
        total = total + cb.cast(x, hidden.dtype)
        if bias is not None:
            b = bias.load((d, 2 * width + k), lanes, valid=valid)
            total = total + cb.cast(b, hidden.dtype)
        new = activated(total, plan.odd.functions[1], plan.odd.clip)
        h = cb.fma(states[2].load((now, d, row, k), lanes), h - new, new)
        y.store((t, row, d * width + k), cb.cast(h, y.dtype), valid=valid)
    else:
        y.store((s, row, d * width + k), cb.splat(cb.cast(0, y.dtype), lanes), valid=valid)
    hidden.store((then, d, row, k), h)
    if s == steps - 1:
        written[1].store((d, row, k), cb.cast(h, written[1].dtype), valid=valid)
