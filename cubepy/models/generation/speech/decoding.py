"""How the text of a window is chosen: the likeliest tokens, beams, or draws of rising temperature
until a text is likely and does not repeat itself (Radford et al., 2022, section 4.5).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cubepy.errors import ArgumentError, LaunchError
from cubepy.kernels.entry.options import shown
from cubepy.models.generation.speech.tokens import SpeechTokens

Step = Callable[[Sequence[int], Sequence[int]], np.ndarray]
"""Scores (rows, vocabulary) of what follows, of the rows that go on and each one's next token."""


@dataclass(frozen=True)
class Decoding:
    """How a text is chosen.

    Attributes:
        beam_size: texts that are followed at temperature 0; 1: the likeliest token at each step.
        best_of: texts that are drawn at other temperatures, of which the likeliest one counts.
        temperatures: those that are tried, one after the other.
        compression: a text that zlib makes smaller than by this factor repeats itself.
        likelihood: the mean logarithm from which on a text is likely.
        silence: the probability of silence from which on an unlikely text is none.
        previous: whether the text of the window before is read.
        seed: of what is drawn.

    Raises:
        ArgumentError: numbers that are none of these.

    Example:
        >>> Decoding(temperatures=())
        Traceback (most recent call last):
            ...
        cubepy.errors.ArgumentError: temperatures are numbers of at least 0, not ()
    """

    beam_size: int = 1
    best_of: int = 5
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    compression: float = 2.4
    likelihood: float = -1.0
    silence: float = 0.6
    previous: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        given = self.temperatures
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            object.__setattr__(self, "temperatures", (float(given),))
        for name in ("beam_size", "best_of"):
            value = getattr(self, name)
            if type(value) is not int or not 0 < value <= 64:
                raise ArgumentError(f"{name} must be an integer from 1 to 64, not {shown(value)}")
        temperatures = self.temperatures
        if (
            not isinstance(temperatures, (tuple, list))
            or not temperatures
            or not all(type(t) in (int, float) and 0 <= t < float("inf") for t in temperatures)
        ):
            raise ArgumentError(f"temperatures are numbers of at least 0, not {shown(given)}")
        object.__setattr__(self, "temperatures", tuple(map(float, temperatures)))
        if type(self.seed) is not int or self.seed < 0:
            raise ArgumentError(f"seed must be an integer of at least 0, not {shown(self.seed)}")


class Written(NamedTuple):
    """What the decoder wrote for a window.

    Attributes:
        tokens: without the one that ends them.
        likelihood: the mean of their logarithms, and that of the end.
        silence: the probability that nobody spoke.
        temperature: at which it was drawn; 0: not drawn.
    """

    tokens: list[int]
    likelihood: float
    silence: float = 0.0
    temperature: float = 0.0


class Chosen(NamedTuple):
    """A text while it is written, and the sum of its tokens' logarithms."""

    tokens: list[int]
    total: float


def logarithms(scores: np.ndarray) -> np.ndarray:
    """The logarithms of the softmax of scores, in f64.

    Example:
        >>> logarithms(np.array([0.0, 0.0, -np.inf])).round(4).tolist()
        [-0.6931, -0.6931, -inf]
    """
    wide = scores.astype(np.float64)
    most = wide.max()
    return wide - most - np.log(np.exp(wide - most).sum())  # type: ignore[no-any-return]


def repetition(text: bytes) -> float:
    """How many times smaller zlib makes a text.

    Example:
        >>> repetition(b"one and two") < 1 < repetition(b"the same words, " * 20)
        True
    """
    return len(text) / len(zlib.compress(text)) if text else 0.0


class Writer:
    """The text of a window, token by token.

    Args:
        tokens: of the model.
        timestamps: whether they are wanted.
        first: scores (vocabulary,) behind the prompt.
        room: how many tokens fit.
        steps: gives a `Step` for so many rows, all of which begin behind the prompt.
    """

    def __init__(
        self,
        tokens: SpeechTokens,
        timestamps: bool,
        first: np.ndarray,
        room: int,
        steps: Callable[[int], Step],
    ) -> None:
        self.tokens, self.timestamps = tokens, timestamps
        self.first, self.room, self.steps = first, room, steps

    def likely(self, scores: np.ndarray, written: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Scores of what may come next, and their logarithms.

        Raises:
            LaunchError: the model gave NaN or infinity.
        """
        if not np.isfinite(scores).all():
            raise LaunchError(
                "the model gave NaN or infinity instead of scores of tokens",
                hint="are its weights those of its config?",
            )
        allowed = self.tokens.allowed(scores, written, self.timestamps)
        return allowed, logarithms(allowed)

    def written(self, how: Decoding, temperature: float, draws: np.random.Generator) -> Written:
        """A text at one temperature."""
        if temperature == 0 and how.beam_size > 1:
            best = self.beams(how.beam_size)
        else:
            best = self.drawn(temperature, how.best_of if temperature else 1, draws)
        mean = best.total / (len(best.tokens) + 1)
        return Written(best.tokens, mean, 0.0, temperature)

    def drawn(self, temperature: float, rows: int, draws: np.random.Generator) -> Chosen:
        """The likeliest of so many texts; at temperature 0 of the likeliest tokens."""
        step, scores = self.steps(rows), np.repeat(self.first[None], rows, 0)
        texts: list[list[int]] = [[] for _ in range(rows)]
        totals, ended = [0.0] * rows, [False] * rows
        for at in range(self.room):
            nexts = [self.tokens.end] * rows
            for row in (r for r in range(rows) if not ended[r]):
                allowed, logs = self.likely(scores[row], texts[row])
                nexts[row] = token = _token(allowed, temperature, draws)
                totals[row] += float(logs[token])
                ended[row] = token == self.tokens.end
                texts[row] += [token] * (not ended[row])
            if all(ended):
                break
            if at + 1 < self.room:
                scores = step(range(rows), nexts)
        means = [t / max(len(x), 1) for t, x in zip(totals, texts, strict=True)]
        best = int(np.argmax(means))
        return Chosen(texts[best], totals[best])

    def beams(self, size: int) -> Chosen:
        """The likeliest text of a search that follows `size` of them; by the mean of logarithms."""
        step, scores = self.steps(size), self.first[None]
        live, ended = [Chosen([], 0.0)], list[Chosen]()
        for at in range(self.room):
            found = sorted(self._followers(live, scores, size), key=lambda f: -f[0])
            rows, nexts, kept = list[int](), list[int](), list[Chosen]()
            for total, row, token in found:
                if token == self.tokens.end:
                    ended.append(Chosen(live[row].tokens, total))
                    continue
                rows.append(row)
                nexts.append(token)
                kept.append(Chosen([*live[row].tokens, token], total))
                if len(kept) == size:
                    break
            live = kept
            if len(ended) >= size or not live:
                break
            if at + 1 < self.room:
                more = size - len(live)  # rows that nothing follows stand in for none
                scores = step([*rows, *rows[:1] * more], [*nexts, *nexts[:1] * more])
        if len(ended) < size:
            ended += live
        return max(ended, key=lambda c: c.total / max(len(c.tokens), 1))

    def _followers(
        self, live: Sequence[Chosen], scores: np.ndarray, size: int
    ) -> Iterator[tuple[float, int, int]]:
        """Sums of logarithms, texts by number and next tokens: the `size` + 1 best of each text."""
        for row, text in enumerate(live):
            _, logs = self.likely(scores[row], text.tokens)
            count = min(size + 1, len(logs))
            for token in np.argpartition(-logs, count - 1)[:count]:
                if logs[token] > -np.inf:
                    yield text.total + float(logs[token]), row, int(token)


def _token(allowed: np.ndarray, temperature: float, draws: np.random.Generator) -> int:
    if temperature == 0:
        return int(allowed.argmax())
    shares = np.exp(logarithms(allowed / temperature))
    return int(draws.choice(len(shares), p=shares / shares.sum()))


def chosen(
    writer: Writer, how: Decoding, silence: float, text_of: Callable[[list[int]], bytes], draws: Any
) -> Written:
    """The first text, of rising temperature, that is likely and does not repeat itself; where none
    is, the likeliest of those that do not, else of all.
    """
    tried: list[tuple[bool, Written]] = []
    for temperature in how.temperatures:
        found = writer.written(how, temperature, draws)._replace(silence=silence)
        repeats = repetition(text_of(found.tokens)) > how.compression
        unlikely = found.likelihood < how.likelihood
        if unlikely and silence > how.silence:
            return found  # nobody spoke
        if not repeats and not unlikely:
            return found
        tried.append((repeats, found))
    good = [found for repeats, found in tried if not repeats]
    return max(good or [found for _, found in tried], key=lambda w: w.likelihood)
