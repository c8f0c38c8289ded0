"""Whisper with what it needs to transcribe: sound of any length, window by window."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError, LaunchError
from cubepy.models.architectures.speech.mel import Mel, resampled
from cubepy.models.architectures.speech.whisper import Pair, Whisper, WhisperConfig
from cubepy.models.formats.wav import read_wav
from cubepy.models.generation.speech.segments import Segment, Transcript, pieces_of
from cubepy.models.generation.speech.tokens import SpeechTokens
from cubepy.models.tokenized import Tokenized
from cubepy.tensor import Tensor, as_tensor


@dataclass(frozen=True)
class Written:
    """What the decoder wrote for a window.

    Attributes:
        tokens: without the one that ends them.
        likelihood: the mean of their logarithms.
        silence: the probability that nobody spoke.
    """

    tokens: list[int]
    likelihood: float
    silence: float


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
        >>> model.transcribe(np.zeros(16000, np.float32)).seconds
        1.0
    """

    def __init__(self, c: WhisperConfig, tokens: SpeechTokens, mel: Mel | None = None) -> None:
        super().__init__(c)
        self.tokens, self.mel = tokens, mel or Mel(c.bands)

    @property
    def programs(self) -> tuple[Any, Any]:
        """The encoder with what layers of the decoder make of it, and a step."""
        found = self.__dict__.get("_programs")
        if found is None or found[0] is not self:

            def heard(features: Tensor) -> list[Pair]:
                return self.crossed(self.encoder(features))

            def step(tokens: Tensor, starts: Tensor, caches: Any, crossed: Any) -> Tensor:
                hidden = self.hidden(tokens.unsqueeze(1), crossed, caches, starts)
                return self.logits(hidden[:, 0])

            found = self.__dict__["_programs"] = (self, cb.jit(heard), cb.jit(step))
        return found[1], found[2]

    def transcribe(
        self,
        source: Any,
        rate: int | None = None,
        *,
        language: str | None = None,
        task: str = "transcribe",
        timestamps: bool = True,
        silence: float = 0.6,
        likelihood: float = -1.0,
    ) -> Transcript:
        """What was said, by the likeliest token at each step.

        Args:
            source: the path of a WAV file, or samples: floats between -1 and 1, (n,) or
                (n, channels).
            rate: samples of a second where these are given, by default those of the model (16,000).
            language: its code ("en"); by default the model says which it is.
            task: "transcribe", or "translate" to English.
            timestamps: whether the model says when something was said; else windows stand side by
                side, and may cut words.
            silence: a window is skipped where the model says with this probability that nobody
                spoke, unless its text is likely; 1: never.
            likelihood: the mean logarithm from which on a text is likely.

        Raises:
            FileFormatError: a file that is no WAV file of integers.
            ArgumentError: a language or task that the model does not know, samples of another kind.
            LaunchError: samples that are NaN or infinite.
        """
        segments = list(self._heard(source, rate, language, task, timestamps, silence, likelihood))
        *found, (code, seconds) = segments
        text = self._text([t for s in found for t in s.tokens])
        return Transcript(text, code, tuple(found), seconds)

    def segments(self, source: Any, rate: int | None = None, **options: Any) -> Iterator[Segment]:
        """The same as `transcribe`, segment by segment, as they come."""
        names = {"language": None, "task": "transcribe", "timestamps": True}
        given = names | {"silence": 0.6, "likelihood": -1.0}
        if wrong := options.keys() - given.keys():
            raise ArgumentError(f"segments: there is no option {wrong.pop()!r}")
        for found in self._heard(source, rate, *(given | options).values()):
            if isinstance(found, Segment):
                yield found

    def _heard(
        self,
        source: Any,
        rate: int | None,
        language: str | None,
        task: str,
        timestamps: bool,
        silence: float,
        likelihood: float,
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
        at = 0
        while at < content:
            frames = min(window, content - at)
            written = self._written(features[:, at : at + frames], prompt, timestamps)
            if written.silence > silence and written.likelihood < likelihood:
                at += frames
                continue
            pieces, step = pieces_of(written.tokens, self.tokens, frames, timestamps, per_frame)
            start = at * per_frame
            for begin, end, tokens in pieces:
                yield Segment(start + begin, start + end, self._text(tokens), tokens)
            at += step
        yield code, len(samples) / self.mel.rate

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
    def _written(self, features: np.ndarray, prompt: list[int], timestamps: bool) -> Written:
        """What the decoder writes for a window."""
        c = self.config
        crossed = self._crossed(features)
        device = self.words.weight.device
        shape = (1, c.decoder_heads, c.context, c.width // c.decoder_heads)

        def number(value: int) -> Tensor:
            return as_tensor(np.array([value])).to(device)

        def empty() -> Tensor:
            return as_tensor(np.zeros(shape, np.float32)).to(device)

        caches = [(empty(), empty()) for _ in range(c.decoder_layers)]
        given = as_tensor(np.array([prompt])).to(device)
        every = self.logits(self.hidden(given, crossed, caches, number(0))).numpy()[0]
        quiet = self.tokens.no_speech
        silence = (
            0.0 if quiet is None else float(_shares(every[prompt.index(self.tokens.start)])[quiet])
        )
        scores, tokens, total = every[-1], list[int](), 0.0
        for at in range(len(prompt), c.context + 1):
            if not np.isfinite(scores).all():
                raise LaunchError(
                    "the model gave NaN or infinity instead of scores of tokens",
                    hint="are its weights those of its config?",
                )
            scores = self.tokens.allowed(scores, tokens, timestamps)
            chosen = int(scores.argmax())
            total += float(np.log(max(_shares(scores)[chosen], 1e-30)))
            if chosen == self.tokens.end:
                break
            tokens.append(chosen)
            if at < c.context:
                scores = self.programs[1](number(chosen), number(at), caches, crossed).numpy()[0]
        return Written(tokens, total / (len(tokens) + 1), silence)

    def _text(self, tokens: Any) -> str:
        if self.tokenizer is None:
            return ""
        found: str = self.tokenizer.decode([t for t in tokens if t < self.tokens.end])
        return found


def _shares(scores: np.ndarray) -> np.ndarray:
    """The softmax of scores."""
    raised = np.exp(scores - scores.max())
    found: np.ndarray = raised / raised.sum()
    return found
