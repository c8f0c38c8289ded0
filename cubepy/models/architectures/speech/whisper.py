"""Whisper (Radford et al., 2022): an encoder of sound and a decoder that writes what was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.models.architectures.tokens import as_tokens
from cubepy.nn import Conv1d, Embedding, LayerNorm, Linear, Module, ModuleList, Parameter, init
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, apply, as_tensor

Pair = tuple[Tensor, Tensor]
"""Keys and values, (B, heads, positions, depth)."""


@dataclass(frozen=True)
class WhisperConfig:
    """What the model is made of.

    Attributes:
        vocabulary, width: of the model.
        bands: of the mel scale.
        layers, heads, inner: of the encoder.
        decoder_layers, decoder_heads, decoder_inner: of the decoder.
        frames: vectors that the encoder gives for a window of sound; it reads twice as many frames.
        context: tokens that the decoder sees.
        activation: a name of `nn.functional.ACTIVATIONS`.
    """

    vocabulary: int
    width: int
    bands: int
    layers: int
    heads: int
    inner: int
    decoder_layers: int
    decoder_heads: int
    decoder_inner: int
    frames: int = 1500
    context: int = 448
    activation: str = "gelu"


class SpeechAttention(Module):
    """Attention; keys have no bias."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.q, self.v, self.o = (Linear(width, width) for _ in range(3))
        self.k = Linear(width, width, bias=False)

    def split(self, x: Tensor) -> Tensor:
        """(B, L, width) -> (B, heads, L, depth)."""
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def pair(self, x: Tensor) -> Pair:
        """Keys and values of vectors (B, L, width)."""
        return self.split(self.k(x)), self.split(self.v(x))

    def joined(self, seen: Tensor, x: Tensor) -> Tensor:
        """x plus what its positions saw, (B, heads, L, depth)."""
        return self.o(seen.transpose(1, 2).reshape(x.shape), residual=x)

    def forward(self, x: Tensor, normed: Tensor, pair: Pair, causal: bool = False) -> Tensor:
        """x plus what its positions see of keys and values; where those are one row's, rows of x
        are positions, so that nothing is read twice.
        """
        if pair[0].shape[0] == 1 < x.shape[0] and not causal:
            one = (1, -1, x.shape[2])
            return self(x.reshape(one), normed.reshape(one), pair).reshape(x.shape)  # type: ignore[no-any-return]
        q = self.split(self.q(normed))
        return self.joined(F.scaled_dot_product_attention(q, *pair, is_causal=causal), x)

    def cached(self, x: Tensor, normed: Tensor, cache: Pair, starts: Tensor) -> Tensor:
        """The same, to all that caches hold and to these positions, which join them."""
        given = (self.split(self.q(normed)), *self.pair(normed), *cache, starts, None, None)
        options = {"scale": self.scale, "window": 0, "cap": 0.0}
        return self.joined(apply("cached_attention", *given, **options), x)


class SpeechLayer(Module):
    """Attention, in a decoder attention to the encoder's vectors, then a network."""

    def __init__(self, c: WhisperConfig, crosses: bool) -> None:
        super().__init__()
        heads, inner = (c.decoder_heads, c.decoder_inner) if crosses else (c.heads, c.inner)
        self.activation = c.activation
        self.attention, self.attention_norm = SpeechAttention(c.width, heads), LayerNorm(c.width)
        self.cross = SpeechAttention(c.width, heads) if crosses else None
        self.cross_norm = LayerNorm(c.width) if crosses else None
        self.network_norm = LayerNorm(c.width)
        self.up, self.down = Linear(c.width, inner), Linear(inner, c.width)

    def network(self, x: Tensor) -> Tensor:
        """The network at each position, added to what came in."""
        return self.down(self.up(self.network_norm(x), activation=self.activation), residual=x)

    def forward(
        self,
        x: Tensor,
        crossed: Pair | None = None,
        cache: Pair | None = None,
        starts: Tensor | None = None,
    ) -> Tensor:
        """(B, L, width) -> the same."""
        normed = self.attention_norm(x)
        if cache is not None:
            assert starts is not None
            x = self.attention.cached(x, normed, cache, starts)
        else:
            pair = self.attention.pair(normed)
            x = self.attention(x, normed, pair, causal=crossed is not None)
        if crossed is not None:
            assert self.cross is not None and self.cross_norm is not None
            x = self.cross(x, self.cross_norm(x), crossed)
        return self.network(x)


class SpeechEncoder(Module):
    """Features of a window of sound -> vectors."""

    def __init__(self, c: WhisperConfig) -> None:
        super().__init__()
        self.config = c
        self.first = Conv1d(c.bands, c.width, 3, padding=1)
        self.second = Conv1d(c.width, c.width, 3, stride=2, padding=1)
        self.positions = Parameter(init.normal((c.frames, c.width), 0.02))
        self.layers = ModuleList(SpeechLayer(c, crosses=False) for _ in range(c.layers))
        self.norm = LayerNorm(c.width)

    def forward(self, features: Any) -> Tensor:
        """(B, bands, 2 * frames) -> (B, frames, width).

        Raises:
            ShapeError: features of another shape.
        """
        c = self.config
        x = as_tensor(features).to(self.positions.device)
        if x.ndim != 3 or x.shape[1:] != (c.bands, 2 * c.frames):
            raise ShapeError(
                f"features are (batch, {c.bands}, {2 * c.frames}), not {x.shape}",
                hint="model.transcribe takes sound as it is",
            )
        x = self.second(self.first(x).gelu()).gelu().transpose(1, 2) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)  # type: ignore[no-any-return]


class Whisper(Module):
    """Features of sound, and tokens before -> a number for each token that may come next.

    Example:
        >>> c = WhisperConfig(vocabulary=9, width=8, bands=4, layers=1, heads=2, inner=16,
        ...     decoder_layers=1, decoder_heads=2, decoder_inner=16, frames=10, context=12)
        >>> Whisper(c)(np.zeros((1, 4, 20), np.float32), [[1, 2, 3]]).shape
        (1, 3, 9)
    """

    def __init__(self, c: WhisperConfig) -> None:
        super().__init__()
        self.config = c
        self.encoder = SpeechEncoder(c)
        self.words = Embedding(c.vocabulary, c.width)
        self.positions = Embedding(c.context, c.width)
        self.layers = ModuleList(SpeechLayer(c, crosses=True) for _ in range(c.decoder_layers))
        self.norm = LayerNorm(c.width)

    def forward(self, features: Any, tokens: Any) -> Tensor:
        """Scores (B, T, vocabulary) of what comes behind each token.

        Args:
            features: (B, bands, 2 * frames), of `Mel`.
            tokens: integers (B, T).

        Raises:
            ShapeError: features of another shape.
        """
        tokens = as_tokens(tokens, self.words.weight.device)
        return self.logits(self.hidden(tokens, self.crossed(self.encoder(features))))

    def crossed(self, hidden: Tensor) -> list[Pair]:
        """Of each layer of the decoder: keys and values of what the encoder gave."""
        return [layer.cross.pair(hidden) for layer in self.layers]

    def hidden(
        self,
        tokens: Tensor,
        crossed: Sequence[Pair],
        caches: Sequence[Pair] | None = None,
        starts: Tensor | None = None,
    ) -> Tensor:
        """What the decoder gives after its last norm, (B, T, width).

        Args:
            tokens: (B, T).
            crossed: of each layer, keys and values of the encoder.
            caches: of each layer, keys and values (B, heads, capacity, depth), written in place.
            starts: (B,) how many positions the caches hold.
        """
        at = as_tensor(np.arange(tokens.shape[1])).to(tokens.device).unsqueeze(0)
        at = at if starts is None else at + starts.unsqueeze(1)
        x = self.words(tokens).astype(cb.f32) + self.positions(at)
        for n, layer in enumerate(self.layers):
            x = layer(x, crossed[n], None if caches is None else caches[n], starts)
        return self.norm(x)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) -> (..., vocabulary): the last layer is the table of words."""
        return F.linear(hidden, self.words.weight)
