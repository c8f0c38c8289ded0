"""A language model of LSTMs."""

from __future__ import annotations

from cubepy import nn
from cubepy.tensor import Tensor


class LstmModel(nn.Module):
    """Tokens -> a number for each token that may come next."""

    def __init__(self, tokens: int = 30, width: int = 8, hidden: int = 12) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, tokens)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(ids))[0])  # type: ignore[no-any-return]
