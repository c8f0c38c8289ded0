"""What a step of a cell makes of its sums."""

from __future__ import annotations

from typing import Any

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


@cb.func
def activated(x, how: cb.Comptime[Any], clip: cb.Comptime[float]):
    """An activation of x, which is clipped before; NaN stays NaN."""
    if clip > 0:
        x = cb.nan_min(cb.nan_max(x, -clip), clip)
    name, a, b = how
    if name == "sigmoid":
        return sigmoid(x)
    if name == "tanh":
        return cb.tanh(x)
    if name == "relu":
        return relu(x)
    if name == "affine":
        return x * a + b
    if name == "leakyrelu":
        return cb.select(x < 0, x * a, x)
    if name == "thresholdedrelu":
        return cb.select(x > a, x, x * 0)
    if name == "scaledtanh":
        return cb.tanh(x * b) * a
    if name == "hardsigmoid":
        return cb.nan_min(cb.nan_max(x * a + b, 0), 1)
    if name == "elu":
        return cb.select(x < 0, cb.expm1(cb.nan_min(x, 0)) * a, x)
    if name == "softsign":
        return x / (cb.abs(x) + 1)
    return cb.nan_max(x, 0) + cb.log1p(cb.exp(-cb.abs(x)))  # softplus


@cb.func
def odd_lstm(gates, c, peepholes, cell: cb.Comptime[Any]):
    """`lstm_cell` of a `Cell` that is not the usual one."""
    gate, new, given = cell.functions
    i, f, n, o = gates
    if peepholes is not None:
        i = cb.fma(peepholes[0], c, i)
        f = cb.fma(peepholes[1], c, f)
    i = activated(i, gate, cell.clip)
    f = 1 - i if cell.coupled else activated(f, gate, cell.clip)
    c = f * c + i * activated(n, new, cell.clip)
    if peepholes is not None:
        o = cb.fma(peepholes[2], c, o)
    return c, activated(o, gate, cell.clip) * activated(c, given, 0.0)


@cb.func
def odd_gru(given, sums, h, cell: cb.Comptime[Any]):
    """`gru_cell` of a `Cell` that is not the usual one."""
    gate, last = cell.functions
    reset = activated(given[0] + sums[0], gate, cell.clip)
    update = activated(given[1] + sums[1], gate, cell.clip)
    new = activated(cb.fma(reset, sums[2], given[2]), last, cell.clip)
    return cb.fma(update, h - new, new)
