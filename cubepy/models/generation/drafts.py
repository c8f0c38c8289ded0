"""Guesses of the next tokens, which a model checks in one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.models.architectures.decoder import Decoder
from cubepy.models.generation.cache import PIECE, KeyValueCache, cache_for
from cubepy.models.generation.request import at_least_one, shared
from cubepy.models.generation.steps import steps_of
from cubepy.tensor import as_tensor

FEW = 2
"""Tokens that a program reads: the last one, and a guess that was right and is not read yet."""


class PromptLookup:
    """What came after the same words before (prompt look-up; Saxena, 2023).

    Args:
        count: how many tokens are guessed.
        longest, shortest: how many last tokens must have come before; the most that did count.

    Example:
        >>> PromptLookup(count=2).propose({0: [7, 1, 2, 3, 9, 1, 2]})
        {0: [3, 9]}
    """

    def __init__(self, count: int = 4, longest: int = 3, shortest: int = 2) -> None:
        self.count, self.longest = at_least_one("count", count), at_least_one("longest", longest)
        self.shortest = at_least_one("shortest", shortest)

    def propose(self, texts: dict[int, list[int]]) -> dict[int, list[int]]:
        """Guesses for texts, by numbers of rows."""
        return {row: self._after(tokens) for row, tokens in texts.items()}

    def _after(self, tokens: list[int]) -> list[int]:
        array = np.asarray(tokens)
        for n in range(min(self.longest, len(tokens) - 1), self.shortest - 1, -1):
            windows = np.lib.stride_tricks.sliding_window_view(array[:-1], n)
            found = np.flatnonzero((windows == array[-n:]).all(axis=1))
            if found.size:
                at = int(found[-1]) + n
                return tokens[at : at + self.count]
        return []


class DraftModel:
    """A smaller model of the same vocabulary that writes ahead.

    Args:
        model: the smaller one.
        count: how many tokens are guessed.
    """

    def __init__(self, model: Decoder, count: int = 4) -> None:
        if not isinstance(model, Decoder):
            raise ArgumentError(f"a DraftModel takes a decoder, not {shown(model)}")
        self.model, self.count = model, at_least_one("count", count)
        self.caches: dict[int, tuple[KeyValueCache, list[int]]] = {}

    def propose(self, texts: dict[int, list[int]]) -> dict[int, list[int]]:
        """Guesses for texts, by numbers of rows; tokens beyond its vocabulary end them."""
        return {row: self._after(row, tokens) for row, tokens in texts.items()}

    def _after(self, row: int, tokens: list[int]) -> list[int]:
        c = self.model.config
        count = min(self.count, c.context - len(tokens))
        if count <= 0 or max(tokens) >= c.vocabulary:
            return []
        device = self.model.words.weight.device
        if row not in self.caches:
            self.caches[row] = cache_for(self.model, 1, PIECE), []
        cache, held = self.caches[row]
        same = shared(held, tokens[:-1])
        if not cache.keeps(0, same):
            same = 0
        if not same:
            cache.forget(0)
        del held[same:]
        cache.grow(len(tokens) + count)
        guessed: list[int] = []
        with cb.no_grad():
            left = tokens[same:]
            while len(guessed) < count:
                piece = left[:PIECE]
                given = as_tensor(np.array([piece], np.int64)).to(device)
                starts = as_tensor(np.array([len(held)], np.int64)).to(device)
                cache.wrote(0, len(held) + len(piece), len(piece))
                if len(piece) <= FEW:
                    found = steps_of(self.model).likeliest(given, starts, cache.layers)
                    token = int(found.numpy()[0, -1])
                else:
                    hidden = self.model.hidden(given, starts, cache.layers)
                    token = int(self.model.logits(hidden[:, -1]).numpy()[0].argmax())
                held += piece
                left = left[PIECE:]
                if not left:
                    guessed.append(token)
                    left = [token]
        return guessed


def guesses(decoding: Any, writing: Mapping[int, Any]) -> dict[int, list[int]]:
    """The guesses of rows that have any: of the vocabulary, as far as their texts go.

    Args:
        decoding: a `Decoding` with drafts.
        writing: requests by their rows.
    """
    count, trained = decoding.drafts.count, decoding.trained
    for row in writing:  # a step that reads past them would take other angles
        if trained and not decoding.long[row] and len(decoding.held[row]) + 1 + count > trained:
            return {}
    found = {}
    most = decoding.model.config.vocabulary
    for row, guess in decoding.drafts.propose({n: r.tokens for n, r in writing.items()}).items():
        beyond = next((k for k, t in enumerate(guess) if not 0 <= t < most), len(guess))
        request = writing[row]
        usable = guess[: min(beyond, request.limit - len(request.written) - 1)]
        if usable:
            found[row] = usable
    return found
