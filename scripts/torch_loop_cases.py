"""Steps of recurrent layers, branches and loops of torch as functions; see `torch_cases.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from scripts.torch_cases import Case, X, Y


def cells() -> Iterator[Case]:
    yield "cells", Cells(), (X,)
    yield "lstm with projections", nn.LSTM(4, 5, 2, proj_size=3, bidirectional=True), (X[:, None],)


class Cells(nn.Module):
    """A step of each recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.plain, self.gru, self.lstm = nn.RNNCell(4, 3), nn.GRUCell(4, 3), nn.LSTMCell(4, 3)
        self.relu = nn.RNNCell(4, 3, bias=False, nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> Any:
        return self.plain(x), self.relu(x), self.gru(x), self.lstm(x)


def control() -> Iterator[Case]:
    for name, sign in (("a branch", 1), ("the other branch", -1)):
        yield name, branched, (X.abs() * sign, Y)
    for rounds in (0, 5):
        yield f"a loop of {rounds}", looped, (X, torch.tensor(rounds))
    yield "a scan", scanned, (X, Y)
    yield "a map", lambda x, y: mapped(lambda a, b: (a * b).sum(), x, y[0]), (X, Y)


def branched(x: torch.Tensor, y: torch.Tensor) -> Any:
    def yes(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x @ y.t(), x.sum()

    def no(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x - 1) @ y.t(), y.cos().mean()

    return torch.cond(x.sum() > 0, yes, no, (x, y))


def looped(x: torch.Tensor, n: torch.Tensor) -> Any:
    return while_loop(lambda k, y: k < n, lambda k, y: (k + 1, y * 2 + x), (n * 0, x))


def scanned(x: torch.Tensor, y: torch.Tensor) -> Any:
    return scan(lambda total, row: (total + row * y[0], total.sin()), y[1], x)
