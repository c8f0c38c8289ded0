"""An encoder and a decoder that write: texts in, texts out."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError, LaunchError
from cubepy.kernels.entry.options import shown
from cubepy.models.architectures.t5 import T5, Pair, T5Config
from cubepy.models.generation.request import at_least, seeds_of
from cubepy.models.generation.sampling import Sampling
from cubepy.models.tokenized import Tokenized
from cubepy.nn.derived import derived
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import concat

LEAST = 32
"""Positions of a first cache."""


class TextToText(T5, Tokenized):
    """T5 with what it needs to write texts.

    Attributes:
        config: what the model is made of.
        ends: tokens after which a text is done.

    Example:
        >>> c = T5Config(9, width=8, depth=4, heads=2, inner=16, layers=1, decoder_layers=1)
        >>> len(TextToText(c).generate([1, 2, 3], max_new_tokens=4))
        4
    """

    def __init__(self, c: T5Config) -> None:
        super().__init__(c)
        self.ends: frozenset[int] = frozenset()

    @property
    def programs(self) -> tuple[Any, Any]:
        """A step that gives scores, and one of greedy choice; a clone has its own."""

        def scores(*given: Any) -> tuple[Tensor, list[Pair]]:
            return self.step(*given)

        def greedy(tokens: Tensor, at: Tensor, *rest: Any) -> tuple[Tensor, Tensor, list[Pair]]:
            found, caches = self.step(tokens, at, *rest)
            return found.argmax(-1), at + 1, caches

        made = derived(self, "_programs", lambda: (cb.jit(scores), cb.jit(greedy)))
        return made[0], made[1]

    def generate(
        self,
        prompt: Any,
        max_new_tokens: int = 128,
        *,
        seed: int | Sequence[int] = 0,
        **options: Any,
    ) -> Any:
        """What the decoder writes for a text.

        Args:
            prompt: a text, or tokens with the one that ends them; or a list of one of these.
            max_new_tokens: where it ends at the latest.
            seed: of the random choice; for a list of prompts one for all, or one each.
            options: of `Sampling`: `temperature`, `top_k`, `top_p`, `min_p`, penalties.

        Returns:
            The new text (of tokens: the new tokens, with that which ends it); a list for a list.

        Raises:
            ArgumentError: prompts, seeds or options of a wrong kind.
            LaunchError: tokens beyond the vocabulary.
        """
        limit = at_least("max_new_tokens", max_new_tokens, 0)
        if isinstance(prompt, (np.ndarray, Tensor)):
            prompt = (prompt if isinstance(prompt, np.ndarray) else prompt.numpy()).tolist()
        single = isinstance(prompt, str) or (
            isinstance(prompt, Sequence)
            and bool(prompt)
            and isinstance(prompt[0], numbers.Integral)
        )
        prompts = [prompt] if single else prompt
        if not isinstance(prompts, Sequence) or not prompts:
            raise ArgumentError(f"a prompt is a text or tokens, not {shown(prompt)}")
        texts = {isinstance(p, str) for p in prompts}
        if len(texts) > 1:
            raise ArgumentError("prompts must be all texts, or all tokens")
        seeds, sampling = seeds_of(seed, len(prompts)), Sampling.of(options)
        rows = [self._tokens(p) for p in prompts]
        with cb.no_grad():
            written = self._written(rows, limit, sampling, seeds)
        found = written if True not in texts else [self._text(tokens) for tokens in written]
        return found[0] if single else found

    def _tokens(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            prompt = self.needed_tokenizer().encode(prompt)
        if not isinstance(prompt, Sequence) or not prompt:
            raise ArgumentError(f"a prompt is a text or tokens, not {shown(prompt)}")
        if not all(isinstance(t, numbers.Integral) for t in prompt):
            raise ArgumentError(f"tokens are integers, unlike those of {shown(prompt)}")
        if wrong := [t for t in prompt if not 0 <= t < self.config.vocabulary]:
            raise LaunchError(
                f"token {wrong[0]} is not in the vocabulary of {self.config.vocabulary}"
            )
        return list(prompt)

    def _text(self, tokens: Sequence[int]) -> str:
        found: str = self.needed_tokenizer().decode([t for t in tokens if t not in self.ends])
        return found

    def _written(
        self, rows: list[list[int]], limit: int, sampling: Sampling, seeds: Sequence[int]
    ) -> list[list[int]]:
        """The tokens of each row, until it is done or there are `limit`."""
        c = self.config
        padded = np.full((len(rows), max(map(len, rows))), c.padding, np.int64)
        mask = np.zeros(padded.shape, np.int64)
        for n, row in enumerate(rows):
            padded[n, : len(row)], mask[n, : len(row)] = row, 1
        tokens, looks = self.shown(padded, mask)
        device = tokens.device
        crossed = self.crossed(self.encode(tokens, looks))
        caches = self._caches(len(rows), LEAST, device)
        following = as_tensor(np.full(len(rows), c.start, np.int64)).to(device)
        at = as_tensor(np.array(0, np.int64)).to(device)
        written: list[list[int]] = [[] for _ in rows]
        done = [False] * len(rows)
        scores, greedy = self.programs
        for step in range(limit):
            if step == caches[0][0].shape[2]:
                caches = [
                    (concat([old, new], axis=2), concat([also, more], axis=2))
                    for (old, also), (new, more) in zip(
                        caches, self._caches(len(rows), step, device), strict=True
                    )
                ]
            if sampling.greedy:
                following, at, caches = greedy(following, at, caches, crossed, looks)
                chosen = following.numpy().tolist()
            else:
                found, caches = scores(following, at, caches, crossed, looks)
                numbers_of = found.numpy()
                chosen = [
                    sampling.choose(numbers_of[b], [c.start], written[b], seeds[b])
                    for b in range(len(rows))
                ]
                following, at = as_tensor(np.array(chosen)).to(device), at + 1
            for b, token in enumerate(chosen):
                if not done[b]:
                    written[b].append(token)
                    done[b] = token in self.ends
            if all(done):
                break
        return written

    def _caches(self, batch: int, capacity: int, device: Any) -> list[Pair]:
        """Empty keys and values of each layer of the decoder."""
        c = self.config
        shape = (batch, c.heads, capacity, c.depth)

        def empty() -> Tensor:
            return as_tensor(np.zeros(shape, np.float32)).to(device)

        return [(empty(), empty()) for _ in range(c.decoder_layers)]
