"""Whisper with what it needs to transcribe: sound of any length, window by window."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError, LaunchError
from cubepy.models.architectures.speech.mel import Mel, resampled
from cubepy.models.architectures.speech.whisper import Pair, Whisper, WhisperConfig
from cubepy.models.formats.wav import read_wav
from cubepy.models.generation.speech.decoding import (
    Decoding,
    Step,
    Writer,
    Written,
    chosen,
    logarithms,
)
from cubepy.models.generation.speech.segments import Segment, Transcript, pieces_of, spoken_of
from cubepy.models.generation.speech.tokens import SpeechTokens
from cubepy.models.tokenized import Tokenized
from cubepy.nn.derived import derived
from cubepy.tensor import Tensor, as_tensor

UNSURE = 0.5
"""A text drawn at a higher temperature is not read by the next window."""


class SpeechModel(Whisper, Tokenized):
    """Whisper, and what its tokens mean.

    Attributes:
        config: what the model is made of.
        tokens: those that are no words.
        mel: how features are computed.

    Example:
        >>> c = WhisperConfig(vocabulary=40, width=8, bands=4, layers=1, heads=2, inner=16,
        ...     decoder_layers=1, decoder_heads=2, decoder_inner=16, frames=10, context=12)
        >>> model = SpeechModel(c, SpeechTokens(start=21, end=20, no_timestamps=24))
        >>> model.transcribe(np.zeros(1600, np.float32)).seconds
        0.1
    """

    def __init__(self, c: WhisperConfig, tokens: SpeechTokens, mel: Mel | None = None) -> None:
        super().__init__(c)
        self.tokens, self.mel = tokens, mel or Mel(c.bands)

    @property
    def programs(self) -> tuple[Any, Any]:
        """The encoder with what layers of the decoder make of it, and a step."""

        def heard(features: Tensor) -> list[Pair]:
            return self.crossed(self.encoder(features))

        def step(tokens: Tensor, starts: Tensor, caches: Any, crossed: Any) -> Tensor:
            hidden = self.hidden(tokens.unsqueeze(1), crossed, caches, starts)
            return self.logits(hidden[:, 0])

        found = derived(self, "_programs", lambda: (cb.jit(heard), cb.jit(step)))
        return found[0], found[1]

    def transcribe(
        self,
        source: Any,
        rate: int | None = None,
        *,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: bool = True,
        **how: Any,
    ) -> Transcript:
        """What was said.

        Args:
            source: the path of a WAV file, or samples: floats between -1 and 1, (n,) or
                (n, channels).
            rate: samples of a second where these are given, by default those of the model (16,000).
            language: its code ("en"); by default the model says which it is.
            task: "transcribe", or "translate" to English.
            timestamps: whether the model says when something was said; else windows stand side by
                side, and may cut words.
            how: `beam_size`, `best_of`, `temperatures`, `compression`, `likelihood`, `silence`,
                `previous` and `seed`: see `Decoding`.

        Raises:
            FileFormatError: a file that is no WAV file of integers.
            ArgumentError: a language or task that the model does not know, samples of another kind,
                options that are none.
            LaunchError: samples that are NaN or infinite.
        """
        segments = list(self._heard(source, rate, language, task, timestamps, _decoding(how)))
        *found, (code, seconds) = segments
        text = self._text([t for s in found for t in s.tokens])
        return Transcript(text, code, tuple(found), seconds)

    def segments(
        self,
        source: Any,
        rate: int | None = None,
        *,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: bool = True,
        **how: Any,
    ) -> Iterator[Segment]:
        """The same as `transcribe`, segment by segment, as they come."""
        for found in self._heard(source, rate, language, task, timestamps, _decoding(how)):
            if isinstance(found, Segment):
                yield found

    def _heard(
        self,
        source: Any,
        rate: int | None,
        language: str | None,
        task: str,
        timestamps: bool,
        how: Decoding,
    ) -> Iterator[Any]:
        """Segments, then the language and the seconds of sound."""
        samples = self._samples(source, rate)
        if timestamps and self.tokens.no_timestamps is None:
            raise ArgumentError(
                "the model's files do not say which tokens are timestamps",
                hint="fetch generation_config.json, or give timestamps=False",
            )
        window, hop = 2 * self.config.frames, self.mel.hop
        content = len(samples) // hop
        quiet = np.zeros(self.mel.window, np.float32)  # behind the end, as the model was trained
        features = self.mel.features(np.concatenate([samples, quiet]))
        per_frame = hop / self.mel.rate
        code, prompt = self._prompt(features, content, language, task, timestamps)
        at, draws = 0, np.random.Generator(np.random.Philox(how.seed))
        before: list[int] = []
        while at < content:
            frames = min(window, content - at)
            whole = [*self._before(before if how.previous else []), *prompt]
            written = self._written(features[:, at : at + frames], whole, timestamps, how, draws)
            if written.silence > how.silence and written.likelihood < how.likelihood:
                at += frames
                continue
            pieces, step = pieces_of(written.tokens, self.tokens, frames, timestamps, per_frame)
            start = at * per_frame
            before += spoken_of(written.tokens, self.tokens) if timestamps else written.tokens
            before = before if written.temperature <= UNSURE else []
            for begin, end, tokens in pieces:
                yield Segment(start + begin, start + end, self._text(tokens), tokens)
            at += step
        yield code, len(samples) / self.mel.rate

    def _before(self, written: list[int]) -> list[int]:
        """What a prompt says of the text before: its last tokens, at most half of what fits."""
        most = self.config.context // 2 - 1
        if not written or self.tokens.previous is None or most < 1:
            return []
        return [self.tokens.previous, *written[-most:]]

    def _samples(self, source: Any, rate: int | None) -> np.ndarray:
        """Sound at the model's rate, one channel."""
        if isinstance(source, (str, os.PathLike)):
            if rate is not None:
                raise ArgumentError("a file says its rate itself")
            found, rate = read_wav(source)
        else:
            found = np.asarray(source.numpy() if isinstance(source, Tensor) else source)
            if found.dtype.kind != "f" or found.ndim not in (1, 2):
                raise ArgumentError(
                    f"samples are floats (n,) or (n, channels), not {found.dtype}{found.shape}",
                    hint="integers of 16 bits: divide by 32768",
                )
            found = found if found.ndim == 1 else found.mean(axis=1)
        if not np.isfinite(found).all():
            raise LaunchError("samples that are NaN or infinite")
        return resampled(found, self.mel.rate if rate is None else rate, self.mel.rate)

    @cb.no_grad()
    def _prompt(
        self, features: np.ndarray, content: int, language: str | None, task: str, timestamps: bool
    ) -> tuple[str | None, list[int]]:
        """The code of the language, and what decoding begins with."""
        known = self.tokens.languages
        if language is not None and language not in (known or ("en",)):
            raise ArgumentError(
                f"the model does not know the language {language!r}",
                hint=f"it knows {', '.join(known) or 'English alone'}",
            )
        if not known:
            return None, self.tokens.prompt(None, task, timestamps)
        if language is None:
            crossed = self._crossed(features[:, : min(content, 2 * self.config.frames)])
            start = as_tensor(np.array([[self.tokens.start]])).to(crossed[0][0].device)
            scores = self.logits(self.hidden(start, crossed)).numpy()[0, 0]
            language = max(known, key=lambda name: float(scores[known[name]]))
        return language, self.tokens.prompt(known[language], task, timestamps)

    def _crossed(self, features: np.ndarray) -> list[Pair]:
        """What the decoder's layers see of a window; what is missing is filled with zeros."""
        c = self.config
        whole = np.zeros((1, c.bands, 2 * c.frames), np.float32)
        whole[0, :, : features.shape[1]] = features
        found: list[Pair] = self.programs[0](as_tensor(whole).to(self.words.weight.device))
        return found

    @cb.no_grad()
    def _written(
        self,
        features: np.ndarray,
        prompt: list[int],
        timestamps: bool,
        how: Decoding,
        draws: np.random.Generator,
    ) -> Written:
        """What the decoder writes for a window."""
        c = self.config
        crossed = self._crossed(features)
        device = self.words.weight.device
        shape = (1, c.decoder_heads, c.context, c.width // c.decoder_heads)

        def numbers(values: Any) -> Tensor:
            return as_tensor(np.array(values, np.int64)).to(device)

        def empty() -> Tensor:
            return as_tensor(np.zeros(shape, np.float32)).to(device)

        began = [(empty(), empty()) for _ in range(c.decoder_layers)]
        every = self.logits(self.hidden(numbers([prompt]), crossed, began, numbers([0]))).numpy()[0]
        quiet = self.tokens.no_speech
        at_start = every[prompt.index(self.tokens.start)]
        silence = 0.0 if quiet is None else float(np.exp(logarithms(at_start)[quiet]))

        def steps(rows: int) -> Step:
            each = numbers([0] * rows)
            caches = [tuple(t.index_select(0, each) for t in pair) for pair in began]
            at = len(prompt)

            def step(kept: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
                nonlocal caches, at
                if list(kept) != list(range(rows)):
                    order = numbers(kept)
                    caches = [tuple(t.index_select(0, order) for t in pair) for pair in caches]
                starts = numbers([at] * rows)
                at += 1
                found: np.ndarray = self.programs[1](
                    numbers(tokens), starts, caches, crossed
                ).numpy()
                return found

            return step

        room = c.context + 1 - len(prompt)
        writer = Writer(self.tokens, timestamps, every[-1], room, steps)
        return chosen(writer, how, silence, self._said, draws)

    def _said(self, tokens: list[int]) -> bytes:
        """What repeats itself or not: the text; of a model without a tokenizer its tokens."""
        words = [t for t in tokens if t < self.tokens.end]
        if self.tokenizer is None:
            return np.array(words, "<u2").tobytes()
        return self._text(words).encode()

    def _text(self, tokens: Any) -> str:
        if self.tokenizer is None:
            return ""
        found: str = self.tokenizer.decode([t for t in tokens if t < self.tokens.end])
        return found


def _decoding(how: dict[str, Any]) -> Decoding:
    """Options as a `Decoding`.

    Raises:
        ArgumentError: an option that is none.
    """
    known = {f.name for f in fields(Decoding)}
    if wrong := how.keys() - known:
        raise ArgumentError(
            f"transcribe: there is no option {min(wrong)!r}", hint=f"there are {', '.join(known)}"
        )
    return Decoding(**how)
