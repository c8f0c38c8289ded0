"""Recurrent layers of tensors."""

from __future__ import annotations

from typing import Any

from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.calls.table import call_of
from cubepy.tensor.control.recurrence import recur
from cubepy.tensor.namespace.creation import zeros


@call_of("lstm")
def lstm(
    x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, h: Any, c: Any, lengths: Any, reverse: bool
) -> tuple[Tensor, ...]:
    """`lstm`."""
    return _layer("lstm", (x, w_ih, w_hh, b_ih, b_hh), (h, c), lengths, reverse)


@call_of("gru")
def gru(
    x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, h: Any, lengths: Any, reverse: bool
) -> tuple[Tensor, ...]:
    """`gru`."""
    return _layer("gru", (x, w_ih, w_hh, b_ih, b_hh), (h,), lengths, reverse)


@call_of("rnn")
def rnn(
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    h: Any,
    nonlinearity: str,
    lengths: Any,
    reverse: bool,
) -> tuple[Tensor, ...]:
    """`rnn`."""
    return _layer(nonlinearity, (x, w_ih, w_hh, b_ih, b_hh), (h,), lengths, reverse)


def _layer(
    cell: str, given: tuple[Any, ...], states: tuple[Any, ...], lengths: Any, reverse: bool
) -> tuple[Tensor, ...]:
    x, w, v, b, c = (None if t is None else as_tensor(t) for t in given)
    assert x is not None and w is not None and v is not None
    if b is not None and c is not None and cell != "gru":
        b, c = b + c, None
    bias = None if b is None else b.reshape(-1)
    flat = w.reshape(-1, w.shape[-1])
    gates = apply("linear", x, flat, bias, None, activation=None)
    shape = (v.shape[0], x.shape[1], v.shape[2])
    zero = zeros(shape, dtype=x.dtype, device=x.device)
    first = tuple(zero if s is None else as_tensor(s) for s in states)
    ends = None if lengths is None else as_tensor(lengths)
    return tuple(recur(cell, gates, v, first, c, None, ends, reverse))
