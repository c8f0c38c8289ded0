"""Recurrent layers, whose weights come as a list."""

from __future__ import annotations

from typing import Any

from cubepy import nn
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
    ways = ("", "_reverse") if both else ("",)
    names = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if biases else [])]
    if len(weights) > len(names) * layers * len(ways):
        names.append("weight_hr")
    made = KINDS[kind].__new__(KINDS[kind])
    nn.Module.__init__(made)
    order = [f"{n}_l{layer}{way}" for layer in range(layers) for way in ways for n in names]
    states = weights[len(names) - 1 if "weight_hr" in names else 1].shape
    made.__dict__.update(
        input_size=weights[0].shape[1],
        hidden_size=states[1],
        proj_size=states[0] if "weight_hr" in names else 0,
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
