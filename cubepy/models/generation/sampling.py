"""Choosing the next token by its score: penalties, temperature, and which tokens are left.

The order is that of transformers: repetition, presence and frequency penalties; temperature; then
top-k (Fan et al., 2018), top-p (Holtzman et al., 2019), min-p (Nguyen et al., 2024) and typical-p
(Meister et al., 2022). Random numbers are a function of the seed and the position alone (Philox;
Salmon et al., 2011), so that a prompt is continued in the same way in any batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, LaunchError
from cubepy.kernels.entry.options import shown

RUN = 64
"""Scores side by side of which the largest one says whether to look at them."""
WORD = 2**64 - 1
_BOUNDS = {
    "temperature": (0.0, None),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "repetition_penalty": (1e-6, None),
}


ELSEWHERE = {
    "do_sample": "temperature, which is 0 for the likeliest tokens",
    "num_beams": "model.beams(prompt, beams=...)",
    "max_length": "max_new_tokens, which counts new tokens only",
    "max_tokens": "max_new_tokens",
    "num_predict": "max_new_tokens",
    "stop_strings": "stop",
    "eos_token_id": "model.ends",
    "streamer": "model.stream(prompt)",
    "repeat_penalty": "repetition_penalty",
    "attention_mask": "not needed: prompts of a list may have any lengths",
    "pad_token_id": "not needed: prompts of a list may have any lengths",
    "assistant_model": "drafts=DraftModel(model)",
    "num_return_sequences": "a list of prompts with a list of seeds",
    "n": "a list of prompts with a list of seeds",
    "input_ids": "the prompt, which comes first",
    "use_cache": "not needed: keys and values are always kept",
    "generation_config": "options by their names",
    "return_dict_in_generate": "Decoding(model).add(prompt, log_probabilities=True)",
    "output_scores": "Decoding(model).add(prompt, log_probabilities=True)",
    "logprobs": "Decoding(model).add(prompt, log_probabilities=True)",
    "return_full_text": "not needed: the new text comes back without its prompt",
    "echo": "not needed: the new text comes back without its prompt",
    "stopping_criteria": "model.stream(prompt), whose loop may end at any piece",
    "max_time": "model.stream(prompt), whose loop may end at any piece",
    "stream": "model.stream(prompt)",
    "suppress_tokens": "logit_bias={token: -math.inf}",
    "bad_words_ids": "logit_bias={token: -math.inf}, of words that are one token",
    "length_penalty": "an option of model.beams",
    "early_stopping": "an option of model.beams",
}
"""What options of other libraries are here."""


def _check_bias(given: Any) -> None:
    """Raise unless it maps tokens to numbers.

    Raises:
        ArgumentError: it is no mapping, or maps something else.
        LaunchError: a bias that is NaN, or infinity, so that nothing can be chosen beside it.
    """
    kinds = isinstance(given, Mapping) and all(
        isinstance(token, Integral) and isinstance(bias, Real) for token, bias in given.items()
    )
    if not kinds:
        raise ArgumentError(
            f"logit_bias maps tokens to numbers, unlike {shown(given)}",
            hint="for example logit_bias={token: -100.0}",
        )
    for token, bias in given.items():
        value = _as_float(bias)
        if math.isnan(value) or value == math.inf:
            raise LaunchError(f"logit_bias must be below infinity, not {value} for token {token}")


def _as_float(given: Any) -> float:
    """A real number; infinity where it is too large for a float."""
    try:
        return float(given)
    except OverflowError:
        return math.inf if given > 0 else -math.inf


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    Attributes:
        temperature: scores are divided by it; 0: the likeliest token is taken.
        top_k: only so many of the likeliest tokens are left; 0: all.
        top_p: the likeliest tokens that together have this probability are left.
        min_p: tokens with less than this part of the likeliest one's probability are out.
        typical_p: tokens whose information is nearest to the expected one, and that together have
            this probability, are left (Meister et al., 2022).
        repetition_penalty: scores of tokens that came are divided (if negative multiplied) by it.
        presence_penalty: taken from the scores of tokens that were written.
        frequency_penalty: the same, times how often.
        logit_bias: added to the scores of tokens by number.

    Raises:
        ArgumentError: an option of a wrong kind.
        LaunchError: a number outside of what it can be.

    Example:
        >>> Sampling(temperature=0.8, top_k=2).distribution(np.array([1.0, 3.0, 2.0])).round(2)
        array([0.  , 0.78, 0.22])
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name == "logit_bias":
                _check_bias(value)
                biases = {int(token): _as_float(bias) for token, bias in value.items()}
                object.__setattr__(self, name, biases)
                continue
            if isinstance(value, bool) or not isinstance(value, Real):
                raise ArgumentError(f"{name} must be a number, not {shown(value)}")
            low, high = _BOUNDS.get(name, (None, None))
            value = _as_float(value)
            if not math.isfinite(value):
                raise LaunchError(f"{name} must be finite, not {value}")
            if (low is not None and value < low) or (high and value > high):
                bounds = f"at least {low}" if high is None else f"from {low} to {high}"
                raise LaunchError(f"{name} must be {bounds}, not {value}")
            if name != "top_k":  # integers may be larger than those of NumPy
                object.__setattr__(self, name, value)
        if not isinstance(self.top_k, Integral) or self.top_k < 0:
            raise LaunchError(f"top_k must be an integer of at least 0, not {self.top_k!r}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Sampling:
        """Of options by name.

        Raises:
            ArgumentError: one that is unknown.
        """
        try:
            return cls(**options)
        except TypeError as error:
            if isinstance(error, ArgumentError):
                raise
            known = [one.name for one in fields(cls)]
            unknown = ", ".join(sorted(map(repr, set(options) - set(known)))) or str(error)
            meant = [f"{n} is {ELSEWHERE[n]}" for n in sorted(options) if n in ELSEWHERE]
            hint = "; ".join(meant) or f"of choosing tokens: {', '.join(known)}"
            raise ArgumentError(f"there is no option {unknown}", hint=hint) from None

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken as it is."""
        return not (self.temperature or self.penalizes)

    @property
    def penalizes(self) -> bool:
        """Whether scores depend on what came, or are biased."""
        other = self.repetition_penalty != 1 or bool(self.logit_bias)
        return other or bool(self.presence_penalty or self.frequency_penalty)

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn, or some are out because they are less likely."""
        likely = self.top_p < 1 or self.typical_p < 1 or self.min_p > 0
        return likely or self.temperature > 0 or self.top_k > 0

    def penalized(
        self, scores: np.ndarray, prompt: Sequence[int], written: Sequence[int]
    ) -> np.ndarray:
        """Scores (vocabulary,) with penalties for what came, as float64."""
        out = scores.astype(np.float64)
        for token, bias in self.logit_bias.items():
            if not 0 <= token < len(out):
                raise LaunchError(f"logit_bias names token {token} of {len(out)}")
            out[token] += bias
        if self.repetition_penalty != 1:
            seen = np.unique(np.asarray([*prompt, *written], np.int64))
            came = out[seen]
            factor = self.repetition_penalty
            with np.errstate(over="ignore"):
                out[seen] = np.where(came > 0, came / factor, came * factor)
        if (self.presence_penalty or self.frequency_penalty) and len(written):
            seen, counts = np.unique(np.asarray(written, np.int64), return_counts=True)
            with np.errstate(over="ignore"):  # infinity is refused where tokens are chosen
                out[seen] -= self.presence_penalty + self.frequency_penalty * counts
        return out

    def distribution(self, scores: np.ndarray) -> np.ndarray:
        """The probability of each token, of scores (vocabulary,); 0 where a token is out."""
        scores = np.asarray(scores)
        tokens, chances = self.left(scores)
        if tokens is None:
            return chances
        found = np.zeros(len(scores))
        found[tokens] = chances
        return found

    def left(self, scores: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        """Tokens that are left, in their order, with the probability of each, of scores
        (vocabulary,); None in place of all tokens. Few are sorted, however many there are.
        """
        tokens: np.ndarray | None = None
        if 0 < self.top_k < len(scores):
            tokens = _largest(scores, self.top_k)
            scores = scores[tokens]
        by = self.temperature or 1.0
        if scores.dtype == np.float32 and by > 1e-200:
            scores = scores.astype(np.float64)
            weights = np.exp((scores - scores.max()) / by)
        else:
            scores = np.asarray(scores, np.float64)
            with np.errstate(over="ignore"):  # far below the largest one there is nothing
                weights = np.exp((scores - scores.max()) / by)
        found: np.ndarray = weights / weights.sum()
        if self.top_p < 1:
            # what is less likely than this comes, all together, behind what is left
            least = (1 - self.top_p) / (2 * len(found))
            if len(found) > RUN and self.top_p > 0:
                near = np.flatnonzero(found >= least)
                found, tokens = found[near], near if tokens is None else tokens[near]
            order = np.argsort(-found, kind="stable")
            before = np.cumsum(found[order]) - found[order]
            out = order[before > self.top_p] if self.top_p > 0 else order[1:]
            found[out] = 0
            found /= found.sum()
        if self.min_p > 0:
            found[found < self.min_p * found.max()] = 0
            found /= found.sum()
        return tokens, _typical(found, self.typical_p) if self.typical_p < 1 else found

    def choose(
        self, scores: np.ndarray, prompt: Sequence[int], written: Sequence[int], seed: int
    ) -> int:
        """The next token after a prompt and what was written.

        Raises:
            LaunchError: scores that are not numbers.
        """
        check_scores(scores)
        if self.penalizes:
            scores = self.penalized(scores, prompt, written)
            if not np.isfinite(scores.max()):
                raise LaunchError("penalties and biases leave no token with a finite score")
        if self.temperature == 0:
            return int(scores.argmax())
        tokens, left = self.left(scores)
        chances = np.cumsum(left)
        found = int(np.searchsorted(chances, uniform(seed, len(written)) * chances[-1], "right"))
        found = min(found, len(left) - 1)
        return found if tokens is None else int(tokens[found])


def check_scores(scores: np.ndarray) -> None:
    """Raise unless a model gave scores.

    Raises:
        LaunchError: NaN or infinity is among them.
    """
    if not np.isfinite(scores.max()):
        raise LaunchError(
            "the model gave NaN or infinity instead of scores of tokens",
            hint="are its weights those of its config? 16-bit floats may have overflowed",
        )


def _largest(scores: np.ndarray, count: int) -> np.ndarray:
    """The numbers of the largest scores, and of those that are equal to the least of them.

    Example:
        >>> _largest(np.array([1.0, 3.0, 2.0, 2.0]), 2)
        array([1, 2, 3])
    """
    near: np.ndarray | None = None
    runs = len(scores) // RUN
    if 4 * count <= runs:  # of so many runs the largest one is not below the least that is wanted
        tops = scores[: runs * RUN].reshape(runs, RUN).max(axis=1)
        near = np.flatnonzero(scores >= np.partition(tops, -count)[-count])
        scores = scores[near]
    found = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    return found if near is None else near[found]


def _typical(chances: np.ndarray, mass: float) -> np.ndarray:
    """Probabilities (vocabulary,) of the tokens that are nearest to the expected information."""
    with np.errstate(divide="ignore"):
        information = -np.log(chances)
    expected = float((chances * np.where(chances > 0, information, 0)).sum())
    away = np.abs(information - expected)
    order = np.argsort(away, kind="stable")
    last = min(int((np.cumsum(chances[order]) < mass).sum()), len(order) - 1)
    found = np.where(away > away[order[last]], 0, chances)
    return found / found.sum()  # type: ignore[no-any-return]


def log_probability(scores: np.ndarray, token: int) -> float:
    """The logarithm of the probability of a token, of scores (vocabulary,).

    Example:
        >>> round(log_probability(np.array([0.0, 0.0]), 1), 4)
        -0.6931
    """
    wide = scores.astype(np.float64)
    top = float(wide.max())
    return float(wide[token] - top - np.log(np.exp(wide - top).sum()))


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on the seed and the position alone: the first one of NumPy's
    Philox (4 words of 64 bits, ten rounds) with the seed as its key and the position in its
    counter. A generator of NumPy asks the system for entropy, which it then does not use.

    Example:
        >>> uniform(7, 0) == uniform(7, 0) != uniform(7, 1)
        True
    """
    a, b, c, d = 1, 0, 0, position
    key, other = seed, 0
    for _ in range(10):
        p, q = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        a, b, c, d = (q >> 64) ^ b ^ key, q & WORD, (p >> 64) ^ d ^ other, p & WORD
        key, other = (key + 0x9E3779B97F4A7C15) & WORD, (other + 0xBB67AE8584CAA73B) & WORD
    return (a >> 11) * 2.0**-53
