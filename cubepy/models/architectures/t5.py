"""T5 (Raffel et al., 2020): an encoder and a decoder whose positions are biases of distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.models.architectures.decoder import RootNorm
from cubepy.models.architectures.encoder import buckets
from cubepy.models.architectures.tokens import as_tokens, seen_of
from cubepy.nn import Embedding, Linear, Module, ModuleList
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import where

Pair = tuple[Tensor, Tensor]
"""Keys and values, (B, heads, positions, depth)."""


@dataclass(frozen=True)
class T5Config:
    """What the model is made of.

    Attributes:
        vocabulary, width, depth, heads, inner: of the model; depth is that of a head.
        layers, decoder_layers: of both stacks; no decoder layers: an encoder alone.
        buckets, farthest: of distances.
        eps: of norms.
        activation: a name of `nn.functional.ACTIVATIONS`.
        gated: networks multiply by a gate.
        scaled: vectors are divided by the root of the width before the last layer.
        tied: the last layer is the table of words.
        padding: the token that fills texts up.
        start: the token that decoding begins with.
    """

    vocabulary: int
    width: int
    depth: int
    heads: int
    inner: int
    layers: int
    decoder_layers: int
    buckets: int = 32
    farthest: int = 128
    eps: float = 1e-6
    activation: str = "relu"
    gated: bool = False
    scaled: bool = True
    tied: bool = True
    padding: int = 0
    start: int = 0


def buckets_back(length: int, count: int, farthest: int) -> np.ndarray:
    """The bucket of a key that is 0, 1, ... positions before its query: exact for near ones,
    logarithmic for others.

    Example:
        >>> buckets_back(6, 4, 8)
        array([0, 1, 2, 2, 3, 3])
    """
    distance, exact = np.arange(length), count // 2
    grown = np.log(np.maximum(distance, 1).astype(np.float32) / exact) / math.log(farthest / exact)
    large = np.minimum(exact + (grown * (count - exact)).astype(np.int64), count - 1)
    found: np.ndarray = np.where(distance < exact, distance, large)
    return found


class T5Attention(Module):
    """Attention whose scores are not scaled; biases come as masks."""

    def __init__(self, c: T5Config) -> None:
        super().__init__()
        self.heads = c.heads
        self.norm = RootNorm(c.width, c.eps)
        wide = c.heads * c.depth
        self.q, self.k, self.v = (Linear(c.width, wide, bias=False) for _ in range(3))
        self.o = Linear(wide, c.width, bias=False)

    def split(self, x: Tensor) -> Tensor:
        """(B, L, heads * depth) -> (B, heads, L, depth)."""
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def pair(self, x: Tensor) -> Pair:
        """Keys and values of vectors (B, L, width)."""
        return self.split(self.k(x)), self.split(self.v(x))

    def attend(self, x: Tensor, normed: Tensor, pair: Pair, mask: Tensor) -> Tensor:
        """x plus what its positions see of keys and values."""
        seen = F.scaled_dot_product_attention(self.split(self.q(normed)), *pair, mask, scale=1.0)
        return self.o(seen.transpose(1, 2).reshape(*x.shape[:2], -1), residual=x)


class T5Network(Module):
    """The network at each position, of what was normalised, added to what came in."""

    def __init__(self, c: T5Config) -> None:
        super().__init__()
        self.activation, self.norm = c.activation, RootNorm(c.width, c.eps)
        self.gate = Linear(c.width, c.inner, bias=False) if c.gated else None
        self.up = Linear(c.width, c.inner, bias=False)
        self.down = Linear(c.inner, c.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, width) -> the same."""
        y = self.norm(x)
        if self.gate is None:
            return self.down(self.up(y, activation=self.activation), residual=x)
        return self.down(self.gate(y, activation=self.activation) * self.up(y), residual=x)


class T5Layer(Module):
    """Attention to its own positions, in a decoder attention to the encoder's, the network."""

    def __init__(self, c: T5Config, crosses: bool) -> None:
        super().__init__()
        self.attention = T5Attention(c)
        self.cross = T5Attention(c) if crosses else None
        self.network = T5Network(c)


class T5Stack(Module):
    """The layers of the encoder or the decoder."""

    def __init__(self, c: T5Config, crosses: bool) -> None:
        super().__init__()
        self.layers = ModuleList(
            T5Layer(c, crosses) for _ in range(c.decoder_layers if crosses else c.layers)
        )
        self.distances = Embedding(c.buckets, c.heads)
        self.norm = RootNorm(c.width, c.eps)

    def bias(self, rows: np.ndarray | Tensor) -> Tensor:
        """What is added to scores, (1, heads, L, S), for buckets (L, S)."""
        rows = as_tensor(rows).to(self.distances.weight.device)
        return self.distances(rows).astype(cb.f32).permute(2, 0, 1).unsqueeze(0)


class T5Reader(Module):
    """The table of words and the encoder, which all models of the kind have."""

    def __init__(self, c: T5Config) -> None:
        super().__init__()
        self.config = c
        self.words = Embedding(c.vocabulary, c.width)
        self.encoder = T5Stack(c, crosses=False)

    def embedded(self, tokens: Tensor) -> Tensor:
        """Vectors of words, f32."""
        x = self.words(tokens)
        return x if x.dtype in (cb.f32, cb.f64) else x.astype(cb.f32)

    def shown(self, tokens: Any, mask: Any) -> Pair:
        """Tokens on the model's device, and (B, 1, 1, L): which of them are seen."""
        tokens = as_tokens(tokens, self.words.weight.device)
        looks = seen_of(tokens, mask, self.config.padding)
        return tokens, looks.reshape(tokens.shape[0], 1, 1, tokens.shape[1])

    def encode(self, tokens: Tensor, looks: Tensor) -> Tensor:
        """The encoder's vectors, (B, L, width), after the last norm."""
        c = self.config
        x = self.embedded(tokens)
        rows = buckets(tokens.shape[1], c.buckets, c.farthest)
        mask = where(looks, self.encoder.bias(rows), -math.inf)
        for layer in self.encoder.layers:
            normed = layer.attention.norm(x)
            x = layer.attention.attend(x, normed, layer.attention.pair(normed), mask)
            x = layer.network(x)
        return self.encoder.norm(x)  # type: ignore[no-any-return]


class T5Encoder(T5Reader):
    """Tokens -> a vector for each.

    Example:
        >>> c = T5Config(vocabulary=9, width=8, depth=4, heads=2, inner=16, layers=1,
        ...     decoder_layers=0)
        >>> T5Encoder(c)([[1, 2, 3]]).shape
        (1, 3, 8)
    """

    def forward(self, tokens: Any, mask: Any = None) -> Tensor:
        """A vector of each token, (B, L, width).

        Args:
            tokens: integers (B, L).
            mask: (B, L), 1 where a token is; by default where it is not the padding.
        """
        return self.encode(*self.shown(tokens, mask))


class T5(T5Reader):
    """Tokens, and tokens written before -> a number for each token that may come next.

    Example:
        >>> c = T5Config(vocabulary=9, width=8, depth=4, heads=2, inner=16, layers=1,
        ...     decoder_layers=1)
        >>> T5(c)([[1, 2, 3]], [[0, 5]]).shape
        (1, 2, 9)
    """

    def __init__(self, c: T5Config) -> None:
        super().__init__(c)
        self.decoder = T5Stack(c, crosses=True)
        self.head = Linear(c.width, c.vocabulary, bias=False)
        if c.tied:
            self.head.weight = self.words.weight

    def forward(self, tokens: Any, written: Any = None, mask: Any = None) -> Tensor:
        """Scores (B, T, vocabulary) of what comes behind each token that was written.

        Args:
            tokens: integers (B, L), which the encoder reads.
            written: integers (B, T), from the token that decoding begins with on; None: that alone.
            mask: (B, L), 1 where a token is; by default where it is not the padding.
        """
        given, looks = self.shown(tokens, mask)
        crossed = self.crossed(self.encode(given, looks))
        if written is None:
            written = np.full((given.shape[0], 1), self.config.start)
        later = as_tensor(written).to(given.device)
        length = later.shape[1]
        back = np.arange(length)[:, None] - np.arange(length)
        rows = buckets_back(length, self.config.buckets, self.config.farthest)
        bias = self.decoder.bias(rows[np.maximum(back, 0)])
        mask = where(as_tensor(back >= 0).to(given.device), bias, -math.inf)
        x = self.embedded(later)
        for layer, pair in zip(self.decoder.layers, crossed, strict=True):
            normed = layer.attention.norm(x)
            x = layer.attention.attend(x, normed, layer.attention.pair(normed), mask)
            x = self._crossing(layer, x, pair, looks)
        return self.logits(self.decoder.norm(x))

    def crossed(self, hidden: Tensor) -> list[Pair]:
        """Of each layer of the decoder: keys and values of what the encoder gave."""
        return [layer.cross.pair(hidden) for layer in self.decoder.layers]

    def step(
        self,
        tokens: Tensor,
        at: Tensor,
        caches: Sequence[Pair],
        crossed: Sequence[Pair],
        looks: Tensor,
    ) -> tuple[Tensor, list[Pair]]:
        """Scores behind one token of each row, and the caches with it.

        Args:
            tokens: (B,).
            at: () the position of these tokens.
            caches: of each layer, keys and values (B, heads, capacity, depth).
            crossed: of each layer, keys and values of the encoder.
            looks: (B, 1, 1, L): which of the encoder's positions are seen.
        """
        c = self.config
        capacity = caches[0][0].shape[2]
        positions = as_tensor(np.arange(capacity)).to(tokens.device)
        rows = as_tensor(buckets_back(capacity, c.buckets, c.farthest)).to(tokens.device)
        bias = self.decoder.bias(rows[(at - positions).clip(0, None)].unsqueeze(0))
        mask = where(positions <= at, bias, -math.inf)
        here = (positions == at).reshape(1, 1, capacity, 1)
        x, grown = self.embedded(tokens).unsqueeze(1), []
        for layer, cache, pair in zip(self.decoder.layers, caches, crossed, strict=True):
            normed = layer.attention.norm(x)
            news = layer.attention.pair(normed)
            keys, values = (where(here, new, old) for new, old in zip(news, cache, strict=True))
            grown.append((keys, values))
            x = layer.attention.attend(x, normed, (keys, values), mask)
            x = self._crossing(layer, x, pair, looks)
        return self.logits(self.decoder.norm(x))[:, 0], grown

    def _crossing(self, layer: Any, x: Tensor, pair: Pair, looks: Tensor) -> Tensor:
        """Attention to the encoder's positions, then the network."""
        x = layer.cross.attend(x, layer.cross.norm(x), pair, looks)
        return layer.network(x)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) -> (..., vocabulary)."""
        scale = self.config.width**-0.5 if self.config.scaled else 1.0
        return self.head(hidden if scale == 1 else hidden * scale)
