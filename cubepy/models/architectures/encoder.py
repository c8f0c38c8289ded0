"""One encoder for the families of models that read text: BERT, RoBERTa, DistilBERT, MPNet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.models.architectures.tokens import as_tokens, seen_of
from cubepy.nn import Embedding, LayerNorm, Linear, Module, ModuleList
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import where


@dataclass(frozen=True)
class EncoderConfig:
    """What an encoder is made of.

    Attributes:
        vocabulary, width, layers, heads, inner: of the model.
        context: rows of the table of positions.
        types: rows of the table of segments, 0: there is none.
        eps: of norms.
        activation: a name of `nn.functional.ACTIVATIONS`.
        padding: the token that fills texts up.
        first: the position of the first token.
        buckets: of relative positions, whose bias all layers share (MPNet); 0: none.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int
    context: int
    types: int = 2
    eps: float = 1e-12
    activation: str = "gelu"
    padding: int = 0
    first: int = 0
    buckets: int = 0


class EncoderLayer(Module):
    """Attention, then a network, each added to what came in and normalised."""

    def __init__(self, c: EncoderConfig) -> None:
        super().__init__()
        self.heads, self.activation = c.heads, c.activation
        self.q, self.k, self.v, self.o = (Linear(c.width, c.width) for _ in range(4))
        self.up, self.down = Linear(c.width, c.inner), Linear(c.inner, c.width)
        self.after_attention, self.after_network = (LayerNorm(c.width, c.eps) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, L, width), mask that broadcasts to (B, heads, L, L) -> (B, L, width)."""
        batch, length, width = x.shape
        q, k, v = (
            part(x).reshape(batch, length, self.heads, -1).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        seen = F.scaled_dot_product_attention(q, k, v, mask)
        joined = seen.transpose(1, 2).reshape(batch, length, width)
        x = self.after_attention(self.o(joined, residual=x))
        return self.after_network(self.down(self.up(x, activation=self.activation), residual=x))  # type: ignore[no-any-return]


class Encoder(Module):
    """Tokens -> a vector for each.

    Example:
        >>> c = EncoderConfig(vocabulary=9, width=8, layers=1, heads=2, inner=16, context=32)
        >>> Encoder(c)([[1, 2, 3]]).shape
        (1, 3, 8)
    """

    def __init__(self, c: EncoderConfig) -> None:
        super().__init__()
        self.config = c
        self.words = Embedding(c.vocabulary, c.width)
        self.positions = Embedding(c.context, c.width)
        self.types = Embedding(c.types, c.width) if c.types else None
        self.norm = LayerNorm(c.width, c.eps)
        self.layers = ModuleList(EncoderLayer(c) for _ in range(c.layers))
        self.distances = Embedding(c.buckets, c.heads) if c.buckets else None

    def forward(self, tokens: Any, mask: Any = None, types: Any = None) -> Tensor:
        """A vector of each token, (B, L, width).

        Args:
            tokens: integers (B, L).
            mask: (B, L), 1 where a token is; by default where it is not the padding.
            types: integers (B, L): the segment of each token, 0 by default.

        Raises:
            OutOfBoundsError: more tokens than there are positions, or tokens that there are not.
        """
        tokens, looks, x = embedded(self.words, tokens, mask, self.config.padding)
        x = x + self.positions(self.position_rows(tokens))
        if self.types is not None:
            kinds = tokens * 0 if types is None else as_tensor(types).to(tokens.device)
            x = x + self.types(kinds)
        x = self.norm(x)
        shown = looks.reshape(tokens.shape[0], 1, 1, tokens.shape[1])
        if self.distances is not None:
            shown = where(shown, self.bias(tokens.shape[1]), -math.inf)
        for layer in self.layers:
            x = layer(x, shown)
        return x

    def position_rows(self, tokens: Tensor) -> Tensor:
        """The row of the table of positions of each token."""
        c = self.config
        if c.first == 0:
            rows = as_tensor(np.arange(tokens.shape[1])).to(tokens.device)
            return rows.unsqueeze(0).expand(*tokens.shape)
        there = (tokens != c.padding).astype(cb.i64)  # padding has the row of its own number
        return there.cumsum(1) * there + (c.first - 1)

    def bias(self, length: int) -> Tensor:
        """What is added to scores for the distance of two positions, (1, heads, L, L)."""
        assert self.distances is not None
        rows = as_tensor(buckets(length, self.config.buckets)).to(self.words.weight.device)
        return self.distances(rows).permute(2, 0, 1).unsqueeze(0)


def embedded(
    words: Embedding, tokens: Any, mask: Any, padding: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens where the table of words is, which of them are to be seen, and their rows as f32 (f64
    stays).

    Args:
        words: the table.
        tokens: integers (B, L).
        mask: (B, L), 1 where a token is; None: where it is not the padding.
        padding: the token that fills texts up.

    Raises:
        DTypeError: tokens that are no integers.
        OutOfBoundsError: tokens that there are not.
        ShapeError: other axes, or a mask of another shape.
    """
    tokens = as_tokens(tokens, words.weight.device)
    x = words(tokens)
    return (
        tokens,
        seen_of(tokens, mask, padding),
        x if x.dtype in (cb.f32, cb.f64) else x.astype(cb.f32),
    )


def buckets(length: int, count: int, farthest: int = 128) -> np.ndarray:
    """The bucket of the distance of each pair of positions (Raffel et al., 2020): exact for near
    ones, logarithmic for others, half of them for each direction.

    Example:
        >>> buckets(3, 32)
        array([[ 0, 17, 18],
               [ 1,  0, 17],
               [ 2,  1,  0]])
    """
    distance = np.arange(length) - np.arange(length)[:, None]
    half, exact = count // 2, count // 4
    size = np.abs(distance)
    grown = np.log(np.maximum(size, 1).astype(np.float32) / exact) / math.log(farthest / exact)
    large = np.minimum(exact + (grown * (half - exact)).astype(np.int64), half - 1)
    found: np.ndarray = np.where(distance > 0, half, 0) + np.where(size < exact, size, large)
    return found
