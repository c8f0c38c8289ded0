"""An encoder with its tokenizer: texts to vectors."""

from __future__ import annotations

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
from cubepy.models.tokenized import Tokenized
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, as_tensor

BATCH = 32
"""Texts that are read at once."""


class TextVectors(Tokenized):
    """What an encoder needs to read texts.

    Attributes:
        pooling: how vectors of tokens become one: "mean", or "first" (that of the first token).
        normalized: whether vectors of texts have length 1.
        longest: tokens of a text; what is longer is cut.
    """

    config: Any
    pooling = "mean"
    normalized = False
    longest: int

    def embed(self, texts: Any) -> np.ndarray:
        """A vector for each text.

        Args:
            texts: a list of texts, or of lists of tokens; one text gives one vector.

        Returns:
            (texts, width) f32, in their order.

        Raises:
            ArgumentError: what is neither, or texts without a tokenizer.
        """
        if isinstance(texts, str):
            found: np.ndarray = self.embed([texts])[0]
            return found
        if not isinstance(texts, Sequence):
            raise ArgumentError(f"texts are a list of texts or of tokens, not {shown(texts)}")
        rows = [self._tokens(text) for text in texts]
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))  # little is filled up
        out = np.empty((len(rows), self.config.width), np.float32)
        with cb.no_grad():
            for first in range(0, len(order), BATCH):
                some = order[first : first + BATCH]
                out[some] = self._pooled([rows[n] for n in some]).numpy()
        return out

    def _tokens(self, text: Any) -> list[int]:
        if isinstance(text, str):
            found: list[int] = self.needed_tokenizer().encode(text)
            if len(found) > self.longest:  # the token that ends a text stays
                found = [*found[: self.longest - 1], found[-1]]
        elif isinstance(text, Sequence) and all(isinstance(t, numbers.Integral) for t in text):
            found = list(text)[: self.longest]
        else:
            raise ArgumentError(f"expected a text or tokens, got {shown(text)}")
        if not found:
            raise ArgumentError("a text needs at least one token")
        return found

    def _pooled(self, rows: list[list[int]]) -> Tensor:
        tokens = np.full((len(rows), max(map(len, rows))), self.config.padding, np.int64)
        mask = np.zeros(tokens.shape, np.float32)
        for n, row in enumerate(rows):
            tokens[n, : len(row)], mask[n, : len(row)] = row, 1
        x = self(tokens, mask)  # type: ignore[operator]
        if self.pooling == "first":
            found = x[:, 0]
        else:
            shares = mask / mask.sum(axis=1, keepdims=True)
            found = (as_tensor(shares[:, None]).to(x.device) @ x)[:, 0]
        return F.normalize(found) if self.normalized else found


class TextEncoder(Encoder, TextVectors):
    """An encoder of BERT's kind with what it needs to read texts.

    Example:
        >>> c = EncoderConfig(vocabulary=9, width=8, layers=1, heads=2, inner=16, context=32)
        >>> TextEncoder(c).embed([[1, 2, 3], [4]]).shape
        (2, 8)
    """

    def __init__(self, c: EncoderConfig) -> None:
        super().__init__(c)
        self.longest = c.context - c.first


class ModernTextEncoder(ModernEncoder, TextVectors):
    """ModernBERT with what it needs to read texts.

    Example:
        >>> c = ModernConfig(vocabulary=9, width=8, layers=2, heads=2, inner=16, context=32)
        >>> ModernTextEncoder(c).embed([[1, 2, 3], [4]]).shape
        (2, 8)
    """

    def __init__(self, c: ModernConfig) -> None:
        super().__init__(c)
        self.longest = c.context


class T5TextEncoder(T5Encoder, TextVectors):
    """The encoder of T5 with what it needs to read texts.

    Example:
        >>> from cubepy.models.architectures.t5 import T5Config
        >>> c = T5Config(9, width=8, depth=4, heads=2, inner=16, layers=1, decoder_layers=0)
        >>> T5TextEncoder(c).embed([[1, 2, 3], [4]]).shape
        (2, 8)
    """

    longest = 512
