"""A language model of LSTMs."""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy import nn
from cubepy.tensor import Tensor, concat


class LstmModel(nn.Module):
    """Tokens -> a number for each token that may come next."""

    def __init__(self, tokens: int = 30, width: int = 8, hidden: int = 12) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, tokens)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(ids))[0])  # type: ignore[no-any-return]


class ScannedLstm(LstmModel):
    """The same by `cb.scan`, with the equations of the cell written out."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids).transpose(0, 1)
        for layer in range(2):
            ways = [self._along(x, f"_l{layer}{way}") for way in ("", "_reverse")]
            x = concat(ways, axis=-1)
        return self.head(x.transpose(0, 1))  # type: ignore[no-any-return]

    def _along(self, x: Tensor, name: str) -> Tensor:
        """One layer in one direction."""
        w, u, b, c = (
            getattr(self.lstm, f"{part}{name}")
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )

        def cell(state: tuple[Tensor, Tensor], x: Tensor) -> Any:
            hidden, memory = state
            gates = x @ w.T + b + hidden @ u.T + c
            i, f, g, o = (gates[:, n * 12 : n * 12 + 12] for n in range(4))
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * memory.tanh()
            return (hidden, memory), hidden

        zero = cb.tensor.zeros((x.shape[1], 12), dtype=x.dtype)
        found: Tensor = cb.scan(cell, (zero, zero), x, reverse=name.endswith("_reverse"))[1]
        return found
