"""A text that is asked for, and what guesses its next tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from cubepy.models.generation.sampling import Sampling, log_probability

ENDS = ("", "end", "length", "context", "memory", "finished")
"""Why a text is done; the first one while it goes on."""


class Drafts(Protocol):
    """What guesses the next tokens of texts.

    Attributes:
        count: how many it guesses at most.
    """

    count: int

    def propose(self, texts: dict[int, list[int]]) -> dict[int, list[int]]:
        """Guesses for texts, by numbers of rows."""
        ...


class Request:
    """A text that is asked for.

    Args:
        prompt: its tokens.
        sampling: how they are chosen.
        limit: how many are written at most.
        seed: of the random choice.
        wants_log_probabilities: whether they are kept.

    Attributes:
        written: tokens that came so far, with that which ends it.
        tokens: the prompt and what was written.
        log_probabilities: of what was written, where they are asked for.
        ended: why it is done: "end" (a token that ends it), "length", "context", "memory" (there
            was none for a larger cache), "finished" (by the caller); empty while it goes on.
    """

    __slots__ = (
        "ended",
        "limit",
        "log_probabilities",
        "prompt",
        "sampling",
        "seed",
        "tokens",
        "wants_log_probabilities",
        "written",
    )

    def __init__(
        self,
        prompt: list[int],
        sampling: Sampling,
        limit: int,
        seed: int,
        wants_log_probabilities: bool = False,
    ) -> None:
        self.prompt, self.sampling, self.limit, self.seed = prompt, sampling, limit, seed
        self.wants_log_probabilities = wants_log_probabilities
        self.written: list[int] = []
        self.tokens = list(prompt)
        self.log_probabilities: list[float] = []
        self.ended = ""

    def __repr__(self) -> str:
        state = self.ended or "goes on"
        return f"Request({len(self.prompt)} tokens, {len(self.written)} written, {state})"

    @property
    def plain(self) -> bool:
        """Whether the likeliest token is all that is asked for."""
        return self.sampling.greedy and not self.wants_log_probabilities

    def goes_on(self, written: Sequence[int], log_probabilities: Sequence[float]) -> Request:
        """The same, with what was written already."""
        self.written += written
        self.tokens += written
        self.log_probabilities += log_probabilities
        return self

    def choose(self, scores: np.ndarray) -> int:
        """The next token, of scores (vocabulary,).

        Raises:
            LaunchError: scores that are not numbers.
        """
        return self.sampling.choose(scores, self.prompt, self.written, self.seed)

    def took(
        self, token: int, scores: np.ndarray | None, ends: frozenset[int], context: int
    ) -> None:
        """Write a token."""
        self.written.append(token)
        self.tokens.append(token)
        if self.wants_log_probabilities and scores is not None:
            self.log_probabilities.append(log_probability(scores, token))
        if token in ends:
            self.ended = "end"
        elif len(self.written) >= self.limit:
            self.ended = "length"
        elif len(self.tokens) >= context:
            self.ended = "context"
