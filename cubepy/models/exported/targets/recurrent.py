"""Recurrent layers, whose weights come as a list."""

from __future__ import annotations

from typing import Any

from cubepy import nn
from cubepy import tensor as T
from cubepy.errors import ModelError
from cubepy.models.exported.records import target
from cubepy.nn import functional as F
from cubepy.nn.modules import cells
from cubepy.tensor import Tensor

KINDS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN, "rnn_relu": nn.RNN}


def _layer(kind: str, x: Tensor, weights: list[Tensor], said: tuple[Any, ...]) -> Any:
    """A layer of ours around the weights; said: has_biases, layers, dropout, train, both ways,
    batch first.
    """
    biases, layers, dropout, train, both, batch_first = said
    if train and dropout:
        raise ModelError("dropout of a module that learns: call module.eval() before the export")
    each = 4 if biases else 2
    made = KINDS[kind].__new__(KINDS[kind])
    nn.Module.__init__(made)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[:each]
    ways = ("", "_reverse") if both else ("",)
    order = [f"{n}_l{layer}{way}" for layer in range(layers) for way in ways for n in names]
    made.__dict__.update(
        input_size=weights[0].shape[1],
        hidden_size=weights[1].shape[1],
        num_layers=layers,
        bias=biases,
        batch_first=batch_first,
        dropout=0.0,
        bidirectional=both,
        nonlinearity=kind.removeprefix("rnn_"),
        **dict(zip(order, weights, strict=True)),
    )
    return made


@target("lstm.input")
def lstm(x: Tensor, states: list[Tensor], weights: list[Tensor], *said: Any) -> list[Tensor]:
    each = 5 if said[0] else 3
    if len(weights) == each * said[1] * (2 if said[4] else 1):
        return _projected(x, states, weights, said)
    y, (h, c) = _layer("lstm", x, weights, said)(x, tuple(states))
    return [y, h, c]


def _plain(kind: str) -> Any:
    def run(x: Tensor, state: Tensor, weights: list[Tensor], *said: Any) -> list[Tensor]:
        return list(_layer(kind, x, weights, said)(x, state))

    return run


for _kind in ("gru", "rnn_tanh", "rnn_relu"):
    target(f"{_kind}.input")(_plain(_kind))


# One step


@target("lstm_cell")
def lstm_cell(
    x: Tensor,
    states: list[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> list[Tensor]:
    h, c = states
    return list(cells.lstm(F.linear(x, w_ih, b_ih), h, c, w_hh, b_hh))


@target("gru_cell")
def gru_cell(
    x: Tensor,
    h: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    return cells.gru(F.linear(x, w_ih, b_ih), h, w_hh, b_hh)


def _plain_cell(activation: str) -> Any:
    def run(
        x: Tensor,
        h: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor:
        return cells.plain(F.linear(x, w_ih, b_ih), h, w_hh, b_hh, activation)

    return run


target("rnn_tanh_cell")(_plain_cell("tanh"))
target("rnn_relu_cell")(_plain_cell("relu"))


# Projections


def _projected(x: Tensor, states: list[Tensor], weights: list[Tensor], said: Any) -> list[Tensor]:
    """An LSTM whose h is multiplied by a matrix after each step (Sak et al., 2014)."""
    biases, layers, dropout, train, both, batch_first = said
    if train and dropout:
        raise ModelError("dropout of a module that learns: call module.eval() before the export")
    each, ways = (5 if biases else 3), (2 if both else 1)
    alone = x.ndim == 2
    x = x.unsqueeze(1) if alone else x.transpose(0, 1) if batch_first else x
    first = [s.unsqueeze(1) if alone else s for s in states]
    last: list[list[Tensor]] = [[], []]
    for layer in range(layers):
        outputs = []
        for way in range(ways):
            n = layer * ways + way
            w_ih, w_hh, *rest, w_hr = weights[n * each : (n + 1) * each]

            def step(
                carry: Any, part: Tensor, w: Any = (w_ih, w_hh, *rest), r: Tensor = w_hr
            ) -> Any:
                h, c = lstm_cell(part, carry, *w)
                h = F.linear(h, r)
                return [h, c], h

            ends, y = T.scan(step, [s[n] for s in first], x, reverse=bool(way))
            outputs.append(y)
            for kept, end in zip(last, ends, strict=True):
                kept.append(end)
        x = outputs[0] if ways == 1 else T.concat(outputs, axis=-1)
    found = [T.stack(kept, axis=0) for kept in last]
    if alone:
        return [x.squeeze(1), *(s.squeeze(1) for s in found)]
    return [x.transpose(0, 1) if batch_first else x, *found]
