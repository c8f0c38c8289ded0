"""The programs of a step, and how prompts are read into caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError, LaunchError
from cubepy.kernels.entry.options import shown
from cubepy.models.architectures.decoder import Decoder
from cubepy.models.generation.cache import KeyValueCache
from cubepy.nn.derived import derived
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import where
from cubepy.tensor.storage import HOST, Dense

MOST = 8
"""Tokens that one program writes in each row at most."""
PIECE_OF_GPU = 1 << 16
"""Tokens of prompts that are read at once on a GPU: what comes first sees itself alone."""


class Steps:
    """The programs of a model: of a few tokens of every row, what comes behind each.

    Lengths and positions are numbers in tensors, so that a second step is traced and all others run
    what it made.

    Attributes:
        scores: (rows, width, vocabulary).
        likeliest: the best ones, (rows, width).
        greedy: the same of one token for each row, and starts of the step behind it.
        several: the likeliest tokens one after the other, (MOST, rows), of `request_of` and caches:
            as many as are asked for, or up to one that ends a text of a row that is written.
    """

    def __init__(self, model: Decoder) -> None:
        def scores(tokens: Tensor, starts: Tensor, caches: Any) -> Tensor:
            return model.logits(model.hidden(tokens, starts, caches))

        def likeliest(tokens: Tensor, starts: Tensor, caches: Any) -> Tensor:
            return scores(tokens, starts, caches).argmax(-1)

        def greedy(tokens: Tensor, starts: Tensor, caches: Any) -> tuple[Tensor, Tensor]:
            hidden = model.hidden(tokens, starts, caches)
            return model.logits(hidden[:, 0]).argmax(-1).unsqueeze(1), starts + 1

        def several(given: Tensor, caches: Any) -> Tensor:
            rows = caches[0][0].shape[0]
            left, ends, rest = given[:1], given[1 : -3 * rows], given[-3 * rows :]
            tokens, starts, written = (rest[n * rows : (n + 1) * rows] for n in range(3))

            def step(carry: Any, _: None) -> Any:
                tokens, starts, left = carry
                hidden = model.hidden(tokens.unsqueeze(1), starts, caches)
                best = model.logits(hidden[:, 0]).argmax(-1)
                ended = ((best.unsqueeze(1) == ends) & (written.unsqueeze(1) != 0)).any()
                return (best, starts + written, where(ended, 0, left - 1)), best

            until = lambda carry: carry[2] <= 0
            found: Tensor = cb.scan(step, (tokens, starts, left), None, MOST, until=until)[1]
            return found

        self.model = model
        self.scores, self.likeliest = cb.jit(scores), cb.jit(likeliest)
        self.greedy, self.several = cb.jit(greedy), cb.jit(several)


class Given:
    """What a step reads, as arrays to be written and as tensors of the same memory.

    Args:
        rows: of the caches.
        width: tokens of each.

    Attributes:
        tokens: (rows, width).
        starts: how many positions each row holds.
        tensors: of both.
    """

    def __init__(self, rows: int, width: int) -> None:
        self.width = width
        self.tokens, self.starts = np.zeros((rows, width), np.int64), np.zeros(rows, np.int64)
        self.tensors = Tensor(Dense(self.tokens, HOST)), Tensor(Dense(self.starts, HOST))

    def fill(
        self,
        held: Sequence[Sequence[int]],
        writing: Mapping[int, Any],
        guessed: Mapping[int, Sequence[int]],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Write the last token of each request, and guesses behind it; gives tokens and starts."""
        self.starts[:] = [len(h) for h in held]
        if guessed:
            self.tokens[:] = 0
        for row, request in writing.items():
            self.tokens[row, 0] = request.tokens[-1]
        for row, guess in guessed.items():
            self.tokens[row, 1 : 1 + len(guess)] = guess
        return self.tokens, self.starts


def steps_of(model: Decoder) -> Steps:
    """The programs of a model, which it keeps; a clone has its own."""
    return derived(model, "_steps", lambda: Steps(model))  # type: ignore[no-any-return]


def read_first(
    model: Decoder, cache: KeyValueCache, texts: dict[int, list[int]], long: bool
) -> dict[int, Tensor]:
    """Read the first tokens of texts into empty rows of a cache, all at once.

    Args:
        model: of the cache.
        cache: with room for them.
        texts: tokens by numbers of rows, at least one each.
        long: whether angles are those of long texts.

    Returns:
        What the last layer gave for the last token of each, (width,), by numbers of rows.
    """
    longest = max(map(len, texts.values()))
    padded = np.zeros((len(texts), longest), np.int64)
    for line, text in zip(padded, texts.values(), strict=True):
        line[: len(text)] = text
    device = model.words.weight.device
    new = [cache.empty(n, longest, len(texts)) for n in range(len(cache.layers))]
    starts = as_tensor(np.zeros(len(texts), np.int64)).to(device)
    hidden = model.hidden(as_tensor(padded).to(device), starts, new, long, True)
    found = {}
    for at, (row, text) in enumerate(texts.items()):
        cache.forget(row)
        cache.store(row, new, at, len(text))
        found[row] = hidden[at, len(text) - 1]
    return found


def read_on(
    model: Decoder, cache: KeyValueCache, row: int, tokens: list[int], first: int, long: bool
) -> Tensor:
    """Read tokens of a row behind its first ones, at most the cache's chunk.

    Returns:
        What the last layer gave for the last one, (width,).
    """
    device = model.words.weight.device
    given = as_tensor(np.array([tokens], np.int64)).to(device)
    starts = as_tensor(np.array([first], np.int64)).to(device)
    hidden = model.hidden(given, starts, cache.row(row), long)
    cache.wrote(row, first + len(tokens), len(tokens))
    return hidden[0, -1]


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
    for prompt in prompts:
        if not hasattr(prompt, "__len__") or isinstance(prompt, (str, bytes, set, Mapping)):
            raise ArgumentError(f"a prompt is a list of integers, not {shown(prompt)}")
    if not prompts or not all(len(p) for p in prompts):
        raise ArgumentError(
            "a prompt needs at least one token", hint="begin with the model's first"
        )
    for prompt in prompts:
        try:
            tokens = np.asarray(prompt)
        except ValueError:  # lists of different lengths
            raise ArgumentError(f"a prompt is a list of integers, not {shown(prompt)}") from None
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
