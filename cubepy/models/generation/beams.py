"""Beam search: the text of the highest probability among those that several rows follow.

As transformers has it: for each beam one continuation more than tokens that end a text is looked at
(at least two), so that there are enough where some end; a text counts with its log-probability over
its length to the power of a penalty. Penalties of tokens change log-probabilities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError, LaunchError
from cubepy.kernels.entry.options import shown
from cubepy.models.architectures.decoder import Decoder
from cubepy.models.generation.cache import PIECE, cache_for
from cubepy.models.generation.sampling import Sampling, check_scores
from cubepy.models.generation.steps import check_prompts, read_first, read_on, steps_of, trained_on
from cubepy.tensor import as_tensor


@dataclass
class Ended:
    """The best texts that ended.

    Attributes:
        room: how many are kept.
        penalty: the power of lengths.
        early: whether as many as there is room for are enough.
        texts: (score, tokens), best first.
    """

    room: int
    penalty: float
    early: bool
    texts: list[tuple[float, list[int]]] = field(default_factory=list)

    def add(self, total: float, tokens: list[int]) -> None:
        """Keep a text, if it is among the best."""
        if total > -np.inf:  # else a token was forbidden
            self.texts.append((self.share(total, len(tokens)), tokens))
        self.texts.sort(key=lambda one: -one[0])
        del self.texts[self.room :]

    def share(self, total: float, length: int) -> float:
        """What a text counts with."""
        with np.errstate(over="ignore"):
            return float(total / np.power(float(length), self.penalty))

    def enough(self, best: float, length: int) -> bool:
        """Whether what goes on with a log-probability cannot be better."""
        if len(self.texts) < self.room:
            return False
        return self.early or self.texts[-1][0] >= self.share(best, length)


def beam_search(
    model: Decoder,
    prompt: list[int],
    beams: int,
    limit: int,
    ends: frozenset[int],
    sampling: Sampling,
    length_penalty: float = 1.0,
    early_stopping: bool = False,
) -> list[tuple[float, list[int]]]:
    """The best texts behind a prompt with their scores, best first.

    Args:
        model: a decoder.
        prompt: tokens.
        beams: rows that are followed.
        limit: how many tokens are written at most.
        ends: tokens that end a text; they are part of it.
        sampling: penalties of scores.
        length_penalty: above 0 long texts count more than by their log-probability.
        early_stopping: whether it ends as soon as there are `beams` texts.

    Raises:
        ArgumentError: a penalty that is no finite number, a switch that is none.
        LaunchError: scores that are not numbers, or none that is left.
    """
    c = model.config
    real = isinstance(length_penalty, Real) and not isinstance(length_penalty, bool)
    if not real or not math.isfinite(length_penalty):
        raise ArgumentError(f"length_penalty must be a finite number, not {shown(length_penalty)}")
    if not isinstance(early_stopping, bool):
        raise ArgumentError(f"early_stopping must be a bool, not {shown(early_stopping)}")
    beams = min(beams, max(1, c.vocabulary // 2))
    looked_at = max(2, 1 + len(ends)) * beams
    context = trained_on(model) or c.context
    check_prompts([prompt], c.vocabulary, context)
    limit = min(limit, context - len(prompt))
    if limit <= 0:
        return [(0.0, [])]
    device = model.words.weight.device
    steps = steps_of(model)
    ended = Ended(beams, length_penalty, early_stopping)
    totals = np.full(beams, -np.inf)
    totals[0] = 0
    texts: list[list[int]] = [[] for _ in range(beams)]
    with cb.no_grad():
        cache = cache_for(model, beams, len(prompt) + min(limit, PIECE))
        hidden = read_first(model, cache, {0: prompt[:PIECE]}, False)[0]
        for first in range(PIECE, len(prompt), PIECE):
            hidden = read_on(model, cache, 0, prompt[first : first + PIECE], first, False)
        cache.copy_rows([0] * beams, range(beams), len(prompt))
        scores = np.stack([model.logits(hidden.unsqueeze(0)).numpy()[0]] * beams)
        for step in range(1, limit + 1):
            check_scores(scores)
            rows_of = [
                sampling.penalized(_log_softmax(s), prompt, t)
                for s, t in zip(scores, texts, strict=True)
            ]
            together = np.stack(rows_of) + totals[:, None]
            order = np.argsort(-together.reshape(-1), kind="stable")[:looked_at]
            going: list[tuple[float, int, int]] = []
            for rank, at in enumerate(order.tolist()):
                row, token = divmod(at, c.vocabulary)
                total = float(together[row, token])
                if token in ends:
                    if rank < beams:
                        ended.add(total, [*texts[row], token])
                elif len(going) < beams and total > -np.inf:
                    going.append((total, row, token))
            if not going:
                texts = []
                break
            going += [(-np.inf, *going[0][1:])] * (beams - len(going))  # rows that nobody follows
            totals = np.array([total for total, _, _ in going])
            texts = [[*texts[row], token] for _, row, token in going]
            if step == limit or ended.enough(float(together.reshape(-1)[order[0]]), step):
                break
            rows, length = [row for _, row, _ in going], len(prompt) + step - 1
            cache.copy_rows(rows, range(beams), length)
            cache.grow(length + 1)
            tokens = as_tensor(np.array([[t] for _, _, t in going], np.int64)).to(device)
            starts = as_tensor(np.full(beams, length, np.int64)).to(device)
            scores = steps.scores(tokens, starts, cache.layers).numpy()[:, 0]
            cache.wrote(slice(None), np.full(beams, length + 1), 1)
    if not (len(ended.texts) == beams and ended.enough(float(totals.max()), step)):
        for total, text in zip(totals.tolist(), texts, strict=False):
            ended.add(total, text)
    if not ended.texts:
        raise LaunchError("penalties and biases leave no token with a finite score")
    return ended.texts


def _log_softmax(scores: np.ndarray) -> np.ndarray:
    """(vocabulary,) -> the same."""
    moved = scores.astype(np.float64) - scores.max()
    found: np.ndarray = moved - np.log(np.exp(moved).sum())
    return found
