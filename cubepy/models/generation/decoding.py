"""Writing token by token: a prompt is read in pieces, then every step is one program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError, LaunchError
from cubepy.models.architectures.decoder import Decoder
from cubepy.models.generation.cache import KeyValueCache, dtype_of
from cubepy.models.generation.sampling import Sampling
from cubepy.runtime.device import gpu_of
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import stack

PIECE = 512
"""Tokens of a prompt that are read at once."""
PIECE_OF_GPU = 1 << 16
"""The same on a GPU, of all prompts together: what comes first sees itself alone."""


class Stepper:
    """The programs of a model: a step of greedy choice, and one that gives scores.

    Lengths and positions are numbers in tensors, so that a second step is traced and all others run
    what it made.
    """

    def __init__(self, model: Decoder) -> None:
        def scores(tokens: Tensor, starts: Tensor, caches: Any) -> Tensor:
            return model.logits(model.hidden(tokens.unsqueeze(1), starts, caches)[:, 0])

        def greedy(tokens: Tensor, starts: Tensor, caches: Any) -> tuple[Tensor, Tensor]:
            found = scores(tokens, starts, caches)
            return found.argmax(-1), starts + 1

        self.model = model
        self.scores, self.greedy = cb.jit(scores), cb.jit(greedy)

    def read(self, tokens: Sequence[Sequence[int]], cache: KeyValueCache) -> np.ndarray:
        """Read prompts into an empty cache; the scores of what comes next, (B, vocabulary)."""
        lengths = np.array([len(row) for row in tokens])
        padded = np.zeros((len(tokens), int(lengths.max())), np.int64)
        for row, given in zip(padded, tokens, strict=True):
            row[: len(given)] = given
        last: list[Any] = [None] * len(tokens)
        device = self.model.embed.weight.device
        limit = trained_on(self.model)
        long = bool(limit) and padded.shape[1] > limit
        most = PIECE if gpu_of(device) is None else max(PIECE, PIECE_OF_GPU // len(tokens))
        for first in range(0, padded.shape[1], most):
            piece = padded[:, first : first + most]
            here = as_tensor(piece).to(device)
            starts = as_tensor(np.full(len(tokens), first, np.int64)).to(device)
            hidden = self.model.hidden(here, starts, cache.layers, long, first == 0)
            for b, length in enumerate(lengths):
                if first < length <= first + piece.shape[1]:
                    last[b] = hidden[b, int(length) - 1 - first]
        cache.lengths[:] = lengths
        return self.model.logits(stack(last)).numpy()


def decode(
    stepper: Stepper,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    limit: int,
    ends: frozenset[int],
    seeds: Sequence[int],
) -> Iterator[list[int | None]]:
    """The next token of each prompt, again and again; None for those that are done.

    Args:
        stepper: of the model.
        prompts: tokens, at least one each.
        sampling: how tokens are chosen.
        limit: how many are written at most.
        ends: tokens after which a text is done; they are given too.
        seeds: of each prompt.
    """
    model = stepper.model
    c = model.config
    check_prompts(prompts, c.vocabulary, c.context)
    longest = max(map(len, prompts))
    limit = min(limit, c.context - longest)
    if limit <= 0:
        return
    with cb.no_grad():
        device = model.embed.weight.device
        dtype = dtype_of(model.embed.weight.dtype, device)
        cache = KeyValueCache(c, len(prompts), longest + min(limit, PIECE), device, dtype)
        scores = stepper.read(prompts, cache)
    written: list[list[int]] = [[] for _ in prompts]
    done = [False] * len(prompts)
    following: Any = None
    trained = trained_on(model)
    for step in range(limit):
        if following is None:
            chosen = [
                sampling.choose(scores[b], prompts[b], written[b], seeds[b])
                for b in range(len(prompts))
            ]
        else:
            chosen = following.numpy().tolist()
        given: list[int | None] = []
        for b, token in enumerate(chosen):
            given.append(None if done[b] else token)
            if not done[b]:
                written[b].append(token)
                done[b] = token in ends
        yield given
        if all(done) or step + 1 == limit:
            return
        with cb.no_grad():
            cache.grow(longest + step + 1)
            if trained and longest + step == trained:  # other angles from here on: all anew
                both = [[*p, *w] for p, w in zip(prompts, written, strict=True)]
                scores, following = stepper.read(both, cache), None
                continue
            if following is None:
                tokens = as_tensor(np.array(chosen, np.int64)).to(device)
                starts = as_tensor(cache.lengths.copy()).to(device)
            else:
                tokens = following
            cache.lengths += 1
            if sampling.greedy:
                following, starts = stepper.greedy(tokens, starts, cache.layers)
            else:
                scores = stepper.scores(tokens, starts, cache.layers).numpy()


def trained_on(model: Decoder) -> int:
    """The positions from which on angles are those of long texts; 0: they stay."""
    angles = model.config.rotary
    return 0 if angles is None or angles.long is None else angles.original


def check_prompts(prompts: Sequence[Sequence[int]], vocabulary: int, context: int) -> None:
    """Raise unless prompts are tokens of the vocabulary that fit the context.

    Raises:
        ArgumentError: there is no prompt, or an empty one, or one that holds no integers.
        LaunchError: tokens that are not in the vocabulary, or more than the model can see.
    """
    if not prompts or not all(len(p) for p in prompts):
        raise ArgumentError(
            "a prompt needs at least one token", hint="begin with the model's first"
        )
    for prompt in prompts:
        tokens = np.asarray(prompt)
        if tokens.dtype.kind not in "iu" or tokens.ndim != 1:
            raise ArgumentError(f"a prompt is a list of integers, not {tokens.dtype}{tokens.shape}")
        if tokens.min() < 0 or tokens.max() >= vocabulary:
            wrong = tokens[(tokens < 0) | (tokens >= vocabulary)][0]
            raise LaunchError(f"token {wrong} is not in the vocabulary of {vocabulary}")
        if len(prompt) > context:
            raise LaunchError(
                f"a prompt of {len(prompt)} tokens is longer than the context of {context}",
                hint="shorten it",
            )
