"""Texts to vectors: encoders with their tokenizers, and what decoders share with them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.models.architectures.encoder import Encoder, EncoderConfig
from cubepy.models.architectures.modern_encoder import ModernConfig, ModernEncoder
from cubepy.models.architectures.t5 import T5Encoder
from cubepy.models.repeated_calls import RepeatedCalls
from cubepy.models.tokenized import Tokenized
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import where

BATCH = 32
"""Texts that are read at once."""


POOLINGS = {"mean": "mean", "first": "first", "cls": "first", "last": "last", "max": "max"}
"""How vectors of tokens become one: ours by what they are called."""


class TextVectors(Tokenized):
    """What a model needs to make vectors of texts.

    Attributes:
        pooling: how vectors of tokens become one: "mean", "first" (that of the first token), "last"
            or "max" (of each number).
        normalized: whether vectors of texts have length 1.
        longest: tokens of a text; what is longer is cut.
    """

    config: Any
    pooling = "mean"
    normalized = False
    longest: int

    def embed(
        self, texts: Any, *, pooling: str | None = None, normalize: bool | None = None
    ) -> np.ndarray:
        """A vector for each text.

        Args:
            texts: a list of texts, or of lists of tokens; one text gives one vector.
            pooling: "mean", "first" (also "cls"), "last" or "max"; by default what the model's
                files say.
            normalize: whether vectors have length 1; by default what the model's files say.

        Returns:
            (texts, width) f32, in their order.

        Raises:
            ArgumentError: what is neither, texts without a tokenizer, or another pooling.
        """
        way = POOLINGS.get(self.pooling if pooling is None else pooling)
        if way is None:
            raise ArgumentError(
                f"there is no pooling {shown(pooling)}", hint=f"use one of {', '.join(POOLINGS)}"
            )
        if isinstance(texts, str):
            texts, single = [texts], True
        else:
            single = False
        if not isinstance(texts, Sequence):
            raise ArgumentError(f"texts are a list of texts or of tokens, not {shown(texts)}")
        rows = [self._tokens(text) for text in texts]
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))  # little is filled up
        out = np.empty((len(rows), self.config.width), np.float32)
        with cb.no_grad():
            for first in range(0, len(order), BATCH):
                some = order[first : first + BATCH]
                found = self._pooled([rows[n] for n in some], way)
                if self.normalized if normalize is None else normalize:
                    found = F.normalize(found)
                out[some] = found.astype(cb.f32).numpy()
        return out[0] if single else out

    def vectors(self, tokens: np.ndarray, mask: np.ndarray) -> Tensor:
        """A vector of each token, (B, L, width); the mask is 1 where there are any."""
        return self(tokens, mask)  # type: ignore[operator,no-any-return]

    def _tokens(self, text: Any) -> list[int]:
        if isinstance(text, str):
            found: list[int] = self.needed_tokenizer().encode(text)
            if len(found) > self.longest:  # the token that ends a text stays
                found = [*found[: self.longest - 1], found[-1]]
        elif isinstance(text, (Sequence, np.ndarray)) and all(
            isinstance(t, numbers.Integral) for t in text
        ):
            found = [int(t) for t in text][: self.longest]
        else:
            raise ArgumentError(f"expected a text or tokens, got {shown(text)}")
        if not found:
            raise ArgumentError("a text needs at least one token")
        return found

    def _pooled(self, rows: list[list[int]], way: str) -> Tensor:
        filler = getattr(self.config, "padding", 0)
        tokens = np.full((len(rows), max(map(len, rows))), filler, np.int64)
        mask = np.zeros(tokens.shape, np.float32)
        for n, row in enumerate(rows):
            tokens[n, : len(row)], mask[n, : len(row)] = row, 1
        x = self.vectors(tokens, mask)
        if way == "first":
            return x[:, 0]
        if way == "last":
            at = (np.arange(len(rows)), np.array([len(row) - 1 for row in rows]))
            return x[tuple(as_tensor(n).to(x.device) for n in at)]
        if way == "max":
            there = as_tensor(mask[..., None] > 0).to(x.device)
            return where(there, x, -math.inf).max(axis=1)  # type: ignore[no-any-return]
        shares = mask / mask.sum(axis=1, keepdims=True)
        return (as_tensor(shares[:, None]).to(x.device) @ x.astype(cb.f32))[:, 0]


class TextEncoder(RepeatedCalls, Encoder, TextVectors):
    """An encoder of BERT's kind with what it needs to read texts.

    Example:
        >>> c = EncoderConfig(vocabulary=9, width=8, layers=1, heads=2, inner=16, context=32)
        >>> TextEncoder(c).embed([[1, 2, 3], [4]]).shape
        (2, 8)
    """

    def __init__(self, c: EncoderConfig) -> None:
        super().__init__(c)
        self.longest = c.context - c.first


class ModernTextEncoder(RepeatedCalls, ModernEncoder, TextVectors):
    """ModernBERT with what it needs to read texts.

    Example:
        >>> c = ModernConfig(vocabulary=9, width=8, layers=2, heads=2, inner=16, context=32)
        >>> ModernTextEncoder(c).embed([[1, 2, 3], [4]]).shape
        (2, 8)
    """

    def __init__(self, c: ModernConfig) -> None:
        super().__init__(c)
        self.longest = c.context


class T5TextEncoder(RepeatedCalls, T5Encoder, TextVectors):
    """The encoder of T5 with what it needs to read texts.

    Example:
        >>> from cubepy.models.architectures.t5 import T5Config
        >>> c = T5Config(9, width=8, depth=4, heads=2, inner=16, layers=1, decoder_layers=0)
        >>> T5TextEncoder(c).embed([[1, 2, 3], [4]]).shape
        (2, 8)
    """

    longest = 512
