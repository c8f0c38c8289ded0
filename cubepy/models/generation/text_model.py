"""A decoder that writes: `generate`, `stream`, `chat` on top of tokens and scores; `embed`."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.models.architectures.decoder import Decoder, DecoderConfig
from cubepy.models.generation.beams import beam_search
from cubepy.models.generation.cache import PIECE
from cubepy.models.generation.request import at_least, at_least_one, ends_of, seeds_of, stepwise
from cubepy.models.generation.requests import Decoding
from cubepy.models.generation.sampling import Sampling
from cubepy.models.generation.steps import Steps, check_prompts, steps_of
from cubepy.models.generation.text_encoder import TextVectors
from cubepy.models.generation.tokenizer import Growing
from cubepy.tensor import Tensor, as_tensor

ENGINE = ("drafts", "cache_dtype", "chunk")
"""Options that are not those of choosing tokens."""


class TextModel(Decoder, TextVectors):
    """A decoder with what it needs to write texts, and to make vectors of them.

    Attributes:
        config: what the decoder is made of.
        ends: tokens after which a text is done.
        pooling: of `embed`: the last token's, which has seen all others, if no file says otherwise.

    Example:
        >>> c = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, groups=1, depth=4, inner=16,
        ...     context=32)
        >>> model = TextModel(c)
        >>> len(model.generate([1, 2, 3], max_new_tokens=4))
        4
    """

    pooling = "last"

    def __init__(self, c: DecoderConfig) -> None:
        super().__init__(c)
        self.ends: frozenset[int] = frozenset()
        self.longest = c.context

    def vectors(self, tokens: np.ndarray, mask: np.ndarray) -> Tensor:
        """What the last layer gives for each token, (B, L, width), after the last norm."""
        check_prompts(tokens.tolist(), self.config.vocabulary, self.config.context)
        return self.hidden(as_tensor(tokens).to(self.words.weight.device), None, None)

    @property
    def steps(self) -> Steps:
        """The programs of the model; a clone has its own."""
        return steps_of(self)

    def logits(self, hidden: Any) -> Tensor:
        """Scores of what comes behind each token.

        Args:
            hidden: tokens, (B, L) or a list of them; or what `hidden` gave for some, (..., width).

        Returns:
            (B, L, vocabulary), of a list (L, vocabulary).

        Example:
            >>> c = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, groups=1, depth=4,
            ...     inner=16, context=32)
            >>> TextModel(c).logits([1, 2, 3]).shape
            (3, 9)
        """
        given = as_tensor(hidden)
        if not given.dtype.is_int:
            return super().logits(given)
        return self(given.unsqueeze(0))[0] if given.ndim == 1 else self(given)  # type: ignore[no-any-return]

    def generate(
        self,
        prompt: Any,
        max_new_tokens: int = 128,
        *,
        stop: str | Sequence[str] | None = (),
        seed: int | Sequence[int] = 0,
        **options: Any,
    ) -> Any:
        """What comes after a prompt.

        Args:
            prompt: a text; messages (dicts with role and content), which the chat template joins;
                tokens; or a list of one of these.
            max_new_tokens: where it ends at the latest.
            stop: texts before which it ends; None for none.
            seed: of the random choice; for a list of prompts one for all, or one each.
            options: of `Sampling`: `temperature`, `top_k`, `top_p`, `min_p`, penalties; and of
                `Decoding`: `drafts`, which do not change the text, `cache_dtype`, `chunk`.

        Returns:
            The new text (of tokens: the new tokens, with that which ends it); a list for a list.

        Raises:
            ArgumentError: prompts, stops or seeds of a wrong kind.
            LaunchError: tokens beyond the vocabulary, a prompt longer than the context.
        """
        prompts, texts, single = self._given(prompt)
        stops = _stops(stop)
        if stops and not texts:
            raise ArgumentError("stop texts need prompts that are texts")
        written: list[list[int]] = [[] for _ in prompts]
        ended = [False] * len(prompts)
        cut: list[str | None] = [None] * len(prompts)
        grows = [Growing(self.needed_tokenizer().decode) for _ in prompts] if stops else []
        for step in self._decoded(prompts, max_new_tokens, seed, options):
            for b, token in enumerate(step):
                if token is None or ended[b]:
                    continue
                written[b].append(token)
                if stops and token not in self.ends:
                    cut[b] = _before(grows[b].add(token), stops)
                    ended[b] = cut[b] is not None
            if all(ended):
                break
        if not texts:
            return written[0] if single else written
        found = [
            self._text(tokens) if end is None else end
            for tokens, end in zip(written, cut, strict=True)
        ]
        return found[0] if single else found

    def stream(
        self,
        prompt: Any,
        max_new_tokens: int = 128,
        *,
        stop: str | Sequence[str] | None = (),
        seed: int = 0,
        **options: Any,
    ) -> Iterator[Any]:
        """The same as `generate` for one prompt, piece by piece: texts, or tokens of tokens.

        Raises:
            ArgumentError: several prompts.
        """
        prompts, texts, single = self._given(prompt)
        if not single:
            raise ArgumentError("stream takes one prompt", hint="generate takes a list")
        return self._streamed(prompts, texts, max_new_tokens, _stops(stop), seed, options)

    def _streamed(
        self,
        prompts: list[list[int]],
        texts: bool,
        limit: int,
        stops: tuple[str, ...],
        seed: int,
        options: dict[str, Any],
    ) -> Iterator[Any]:
        written: list[int] = []
        said = 0
        grows = Growing(self.needed_tokenizer().decode) if texts else None
        held = max(map(len, stops), default=1) - 1  # a stop may have begun
        for (token,) in self._decoded(prompts, limit, seed, options):
            if token is None:
                continue
            written.append(token)
            if grows is None:
                yield token
                continue
            if token in self.ends:
                continue
            text = grows.add(token)
            if (end := _before(text, stops)) is not None:
                if end[said:]:
                    yield end[said:]
                return
            safe = len(text.rstrip("\ufffd")) - held  # bytes of a letter may be missing
            if safe > said:
                yield text[said:safe]
                said = safe
        if texts and (rest := self._text(written)[said:]):
            yield rest

    def _decoded(
        self, prompts: list[list[int]], limit: int, seed: Any, options: dict[str, Any]
    ) -> Iterator[list[int | None]]:
        limit, seeds = at_least("max_new_tokens", limit, 0), seeds_of(seed, len(prompts))
        engine = {name: options.pop(name) for name in ENGINE if name in options}
        Sampling.of(options)
        longest = max((len(p) for p in prompts), default=0)
        room = min(longest + min(limit, PIECE), self.config.context)
        check_prompts(prompts, self.config.vocabulary, self.config.context)
        decoding = Decoding(self, len(prompts), positions=room, **engine)
        requests = [
            decoding.add(p, limit, seed=s, **options) for p, s in zip(prompts, seeds, strict=True)
        ]
        return stepwise(decoding, requests)

    def beams(
        self,
        prompt: Any,
        max_new_tokens: int = 128,
        beams: int = 4,
        *,
        length_penalty: float = 1.0,
        early_stopping: bool = False,
        **options: Any,
    ) -> Any:
        """The likeliest texts behind a prompt by beam search, with their scores, best first.

        Args:
            prompt: a text, messages or tokens; or a list of one of these.
            max_new_tokens: where they end at the latest.
            beams: how many texts are followed, and given.
            length_penalty: a score is the log-probability over the length to this power.
            early_stopping: whether the search ends as soon as so many texts have ended.
            options: penalties of `Sampling`.

        Returns:
            Pairs of a score and a text (of tokens: tokens); of a list of prompts, a list for each,
            which are searched one after the other.

        Raises:
            ArgumentError: fewer than one beam; options of drawing tokens.
            LaunchError: scores that are not numbers, or none that is left.

        Example:
            >>> c = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, groups=1, depth=4,
            ...     inner=16, context=32)
            >>> [len(tokens) for _, tokens in TextModel(c).beams([1, 2], 5, beams=3)]
            [5, 5, 5]
        """
        prompts, texts, single = self._given(prompt)
        sampling = Sampling.of(options)
        if sampling.draws:
            raise ArgumentError(
                "beams follow the likeliest tokens: temperature, top_k, top_p, min_p and typical_p "
                "are for generate",
                hint="penalties and logit_bias are options of both",
            )
        beams, limit = at_least_one("beams", beams), at_least("max_new_tokens", max_new_tokens, 0)
        check_prompts(prompts, self.config.vocabulary, self.config.context)
        ends, how = ends_of(self.ends), (sampling, length_penalty, early_stopping)
        found = []
        for tokens in prompts:
            rows = beam_search(self, tokens, beams, limit, ends, *how)
            found.append([(score, self._text(row) if texts else row) for score, row in rows])
        return found[0] if single else found

    def log_probabilities(self, tokens: Sequence[int]) -> np.ndarray:
        """The logarithm of the probability of each token behind those before it, but the first.

        Args:
            tokens: at least one.

        Returns:
            (length - 1,), f64.

        Raises:
            ArgumentError, LaunchError: no tokens, tokens beyond the vocabulary, too many.

        Example:
            >>> c = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, groups=1, depth=4,
            ...     inner=16, context=32)
            >>> TextModel(c).log_probabilities([1, 2, 3]).shape
            (2,)
        """
        check_prompts([tokens], self.config.vocabulary, self.config.context)
        with cb.no_grad():
            scores = self(np.asarray([tokens]))[0, :-1].numpy().astype(np.float64)
        top = scores.max(axis=1, keepdims=True)
        total = top[:, 0] + np.log(np.exp(scores - top).sum(axis=1))
        found: np.ndarray = scores[np.arange(len(total)), np.asarray(tokens[1:], np.int64)] - total
        return found

    def _text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that end it."""
        found: str = self.needed_tokenizer().decode([t for t in tokens if t not in self.ends])
        return found

    def _given(self, prompt: Any) -> tuple[list[list[int]], bool, bool]:
        """Prompts as tokens, whether they are texts, and whether there is one."""
        if isinstance(prompt, (np.ndarray,)) or hasattr(prompt, "numpy"):
            prompt = np.asarray(
                prompt if isinstance(prompt, np.ndarray) else prompt.numpy()
            ).tolist()
        if isinstance(prompt, str):
            return [self.needed_tokenizer().encode(prompt)], True, True
        if isinstance(prompt, (bytes, bytearray, memoryview)):
            raise ArgumentError(
                f"a prompt is a text, messages or tokens, not {shown(prompt)}",
                hint='prompt.decode("utf-8") is a text; with errors="replace" bytes that are no '
                "UTF-8 are U+FFFD",
            )
        if not isinstance(prompt, Sequence) or not prompt:
            raise ArgumentError(f"a prompt is a text, messages or tokens, not {shown(prompt)}")
        first = prompt[0]
        if isinstance(first, Mapping):
            return [self.needed_tokenizer().chat(prompt)], True, True
        if isinstance(first, numbers.Integral):
            if not all(type(t) is int or _is_token(t) for t in prompt):
                raise ArgumentError(f"tokens are integers, unlike those of {shown(prompt)}")
            return [[int(t) for t in prompt]], False, True
        found = [self._given(one) for one in prompt]
        if any(not single for _, _, single in found) or len({texts for _, texts, _ in found}) > 1:
            raise ArgumentError("prompts must be all texts, or all tokens")
        return [rows[0] for rows, _, _ in found], found[0][1], False


def _is_token(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    given = () if stop is None else (stop,) if isinstance(stop, str) else stop
    stops = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(s, str) and s for s in stops):
        raise ArgumentError(
            f"stop must be texts that are not empty, not {shown(stop)}",
            hint='a text, or a list such as ["\\n\\n", "User:"]',
        )
    return stops


def _before(text: str, stops: tuple[str, ...]) -> str | None:
    """The text before the first stop in it; None without one."""
    found = [at for s in stops if (at := text.find(s)) >= 0]
    return text[: min(found)] if found else None
