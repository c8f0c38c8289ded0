"""What a step of a cell makes of its sums."""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives.functions import relu, sigmoid


@cb.func
def lstm_cell(gates, c, peepholes):
    """The next c and h of gates (input, forget, cell, output); peepholes are for three of them, or
    None (Gers and Schmidhuber, 2000).
    """
    i, f, n, o = gates
    if peepholes is not None:
        i = cb.fma(peepholes[0], c, i)
        f = cb.fma(peepholes[1], c, f)
    c = sigmoid(f) * c + sigmoid(i) * cb.tanh(n)
    if peepholes is not None:
        o = cb.fma(peepholes[2], c, o)
    return c, sigmoid(o) * cb.tanh(c)


@cb.func
def gru_cell(given, sums, h):
    """The next h of gates (reset, update, new): products of inputs, and of states."""
    reset = sigmoid(given[0] + sums[0])
    update = sigmoid(given[1] + sums[1])
    new = cb.tanh(cb.fma(reset, sums[2], given[2]))
    return cb.fma(update, h - new, new)


@cb.func
def plain_cell(total, cell: cb.Comptime[str]):
    """The next h of an Elman network."""
    return cb.tanh(total) if cell == "tanh" else relu(total)
