"""Recurrent layers, whose weights come as a list."""

from __future__ import annotations

from typing import Any

from cubepy import nn
from cubepy.errors import ModelError
from cubepy.models.exported.records import target
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
    if len(weights) != each * layers * (2 if both else 1):
        raise ModelError(f"{kind} with projections")
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
    y, (h, c) = _layer("lstm", x, weights, said)(x, tuple(states))
    return [y, h, c]


def _plain(kind: str) -> Any:
    def run(x: Tensor, state: Tensor, weights: list[Tensor], *said: Any) -> list[Tensor]:
        return list(_layer(kind, x, weights, said)(x, state))

    return run


for _kind in ("gru", "rnn_tanh", "rnn_relu"):
    target(f"{_kind}.input")(_plain(_kind))
