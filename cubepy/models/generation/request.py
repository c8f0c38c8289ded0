"""A text that is asked for, and what guesses its next tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.models.generation.sampling import Sampling, log_probability
from cubepy.models.generation.steps import MOST


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

    Raises:
        ArgumentError: a limit or a seed that is none.

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
        self.prompt, self.sampling = prompt, sampling
        self.limit, (self.seed,) = at_least("max_new_tokens", limit, 0), seeds_of(seed, 1)
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

    def forked(self, seed: int) -> Request:
        """Another one that goes on from here."""
        asked = list(self.prompt), self.sampling, self.limit, seed, self.wants_log_probabilities
        return Request(*asked).goes_on(self.written, self.log_probabilities)

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
        if self.wants_log_probabilities and scores is not None:
            self.log_probabilities.append(log_probability(scores, token))
        self.took_all([token], ends, context)

    def took_all(self, tokens: list[int], ends: frozenset[int], context: int) -> None:
        """Write tokens, of which only the last one may end it."""
        self.written += tokens
        self.tokens += tokens
        if tokens[-1] in ends:
            self.ended = "end"
        elif len(self.written) >= self.limit:
            self.ended = "length"
        elif len(self.tokens) >= context:
            self.ended = "context"


def at_least_one(name: str, value: Any) -> int:
    """An integer that must not be less than 1.

    Raises:
        ArgumentError: it is, or is none.
    """
    return at_least(name, value, 1)


def at_least(name: str, value: Any, least: int) -> int:
    """An integer that must not be less than another.

    Raises:
        ArgumentError: it is, or is none.

    Example:
        >>> at_least("max_new_tokens", np.int64(3), 0)
        3
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ArgumentError(f"{name} must be an integer of at least {least}, not {shown(value)}")
    return int(value)


def seeds_of(seed: Any, count: int) -> list[int]:
    """A seed for each of some prompts.

    Args:
        seed: one for all, or one each.
        count: of prompts.

    Raises:
        ArgumentError: no integer from 0 to 2^64, or not so many of them.

    Example:
        >>> seeds_of(7, 2), seeds_of([1, 2], 2)
        ([7, 7], [1, 2])
    """
    given = seed.tolist() if isinstance(seed, np.ndarray) else seed
    several = isinstance(given, Sequence) and not isinstance(given, str)
    found = list(given) if several else [given] * count
    if len(found) != count or not all(_is_seed(one) for one in found):
        raise ArgumentError(
            f"expected a seed from 0 to 2^64 for each of {count} prompts, not {shown(seed)}",
            hint="one integer, or a list of one for each prompt",
        )
    return [int(one) for one in found]


def ends_of(given: Any) -> frozenset[int]:
    """Tokens that end a text.

    Raises:
        ArgumentError: something else than tokens.

    Example:
        >>> sorted(ends_of([2, np.int64(1)]))
        [1, 2]
    """
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    found = list(given) if several else [given]
    if not all(isinstance(t, Integral) and not isinstance(t, bool) for t in found):
        raise ArgumentError(
            f"ends are numbers of tokens, not {shown(given)}", hint="for example ends={2}"
        )
    return frozenset(map(int, found))


def _is_seed(value: Any) -> bool:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and 0 <= int(value) < 2**64


def drafts_of(given: Any) -> Drafts | None:
    """What guesses tokens, or None.

    Raises:
        ArgumentError: it cannot guess.
    """
    if given is None or (isinstance(getattr(given, "count", None), int) and _can_guess(given)):
        return given  # type: ignore[no-any-return]
    raise ArgumentError(
        f"drafts has a number `count` and a method `propose`, unlike {shown(given)}",
        hint="drafts=PromptLookup(), or DraftModel(small)",
    )


def checked(given: Any) -> Request:
    """A request.

    Raises:
        ArgumentError: it is none.
    """
    if not isinstance(given, Request):
        raise ArgumentError(f"expected a request, which add() gives, not {shown(given)}")
    return given


def _can_guess(given: Any) -> bool:
    return not isinstance(given, type) and callable(getattr(given, "propose", None))


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts begin with together.

    Example:
        >>> shared([1, 2, 3], [1, 2, 4, 5])
        2
    """
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def stepwise(decoding: Any, requests: list[Request]) -> Iterator[list[int | None]]:
    """The tokens of requests one after the other: of each its next one, None where none came."""
    given = [0] * len(requests)
    goes_on = True
    while goes_on:
        if decoding.active:
            decoding.step(MOST)
        goes_on = any(not r.ended for r in requests)
        counts = [len(r.written) for r in requests]
        for _ in range(max([a - b for a, b in zip(counts, given, strict=True)])):
            row: list[int | None] = []
            for n, request in enumerate(requests):
                here = given[n] < counts[n]
                row.append(request.written[given[n]] if here else None)
                given[n] += here
            yield row
