"""The tokens of Whisper that are no words, and which of them may come next."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, FileFormatError
from cubepy.models.formats.shards import read_json

STEP = 0.02
"""Seconds from a timestamp to the next."""
MULTILINGUAL = 51865
"""Tokens of the least vocabulary of many languages."""
_LANGUAGE = re.compile(r"^<\|([a-z]{2,3})\|>$")


@dataclass(frozen=True)
class SpeechTokens:
    """Tokens that say what is to be done, and when something was said.

    Attributes:
        start, end: of a text.
        no_timestamps: the token that wants none; timestamps are those behind it. None: unknown.
        languages: tokens by codes ("en"); empty: English alone.
        tasks: tokens of "transcribe" and "translate".
        previous: the token before what was said before, or None.
        suppressed: tokens that never come.
        suppressed_first: tokens that do not come first.
        latest_first: the first timestamp is at most this one, counted from 0; None: any.
    """

    start: int
    end: int
    no_timestamps: int | None = None
    languages: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    previous: int | None = None
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    latest_first: int | None = None

    @property
    def first_time(self) -> int:
        """The timestamp of 0 seconds."""
        assert self.no_timestamps is not None
        return self.no_timestamps + 1

    @property
    def no_speech(self) -> int | None:
        """The token that says that nobody spoke."""
        return None if self.no_timestamps is None else self.no_timestamps - 1

    def prompt(self, language: int | None, task: str, timestamps: bool) -> list[int]:
        """What decoding begins with.

        Raises:
            ArgumentError: a task that the model does not know.
        """
        found = [self.start]
        if language is not None:
            if task not in self.tasks:
                raise ArgumentError(
                    f"the task must be one of {', '.join(self.tasks)}, not {task!r}"
                )
            found += [language, self.tasks[task]]
        elif task != "transcribe":
            raise ArgumentError(f"a model of English alone can transcribe, not {task!r}")
        if not timestamps and self.no_timestamps is not None:
            found.append(self.no_timestamps)
        return found

    def allowed(self, scores: np.ndarray, written: Sequence[int], timestamps: bool) -> np.ndarray:
        """Scores (vocabulary,) f32 with -inf where a token cannot come: timestamps come in pairs
        between texts, never fall, and come where together they are likelier than any word
        (Radford et al., 2022).
        """
        out = scores.copy()
        out[list(self.suppressed)] = -np.inf
        if not written:
            out[list(self.suppressed_first)] = -np.inf
        if not timestamps:
            if self.no_timestamps is not None:
                out[self.no_timestamps :] = -np.inf
            return out
        first = self.first_time
        out[self.no_timestamps] = -np.inf
        last = bool(written) and written[-1] >= first
        before = len(written) < 2 or written[-2] >= first
        if last and before:
            out[first:] = -np.inf  # a text begins
        elif last:
            out[: self.end] = -np.inf  # another text's begin, or the end
        times = [token for token in written if token >= first]
        if times:
            out[first : times[-1] + (0 if last and not before else 1)] = -np.inf
        if not written:
            out[:first] = -np.inf
            if self.latest_first is not None:
                out[first + self.latest_first + 1 :] = -np.inf
        words = out[:first].max()
        peak = out[first:].max(initial=-np.inf)
        if np.isfinite(peak) and peak + np.log(np.exp(out[first:] - peak).sum()) > words:
            out[:first] = -np.inf
        return out


def speech_tokens(folder: Path, config: Mapping[str, Any], vocabulary: int) -> SpeechTokens:
    """The tokens of a folder: of `generation_config.json`, else of the config and the tokenizer.

    Raises:
        FileFormatError: tokens that are missing, or not in the vocabulary.
    """
    path = folder / "generation_config.json"
    given = dict(config) | (read_json(path) if path.is_file() else {})
    source = str(path if path.is_file() else folder / "config.json")

    def token(value: Any, name: str) -> int:
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocabulary:
            raise FileFormatError(f"{source}: {name} is no token of {vocabulary}: {value!r}")
        return value

    def tokens(name: str) -> tuple[int, ...]:
        listed = given.get(name) or []
        if not isinstance(listed, list):
            raise FileFormatError(f"{source}: {name} must be a list of tokens")
        return tuple(t for t in listed if isinstance(t, int) and 0 <= t < vocabulary)

    def table(name: str) -> dict[str, Any]:
        found = given.get(name) or {}
        if not isinstance(found, dict):
            raise FileFormatError(f"{source}: {name} must be a table of tokens")
        return found

    named = _added(folder)
    languages = table("lang_to_id")
    if not languages and "is_multilingual" not in given and vocabulary >= MULTILINGUAL:
        languages = {name: n for name, n in named.items() if _LANGUAGE.match(name)}
    tasks = table("task_to_id") or {
        name: named[f"<|{name}|>"] for name in ("transcribe", "translate") if f"<|{name}|>" in named
    }
    silent = given.get("no_timestamps_token_id", named.get("<|notimestamps|>"))
    latest = given.get("max_initial_timestamp_index")
    previous = given.get("prev_sot_token_id", named.get("<|startofprev|>"))
    return SpeechTokens(
        start=token(given.get("decoder_start_token_id"), "decoder_start_token_id"),
        end=token(given.get("eos_token_id"), "eos_token_id"),
        no_timestamps=None if silent is None else token(silent, "no_timestamps_token_id"),
        languages={name.strip("<|>"): token(n, name) for name, n in languages.items()},
        tasks={name: token(n, name) for name, n in tasks.items()},
        previous=None if previous is None else token(previous, "prev_sot_token_id"),
        suppressed=tokens("suppress_tokens"),
        suppressed_first=tokens("begin_suppress_tokens"),
        latest_first=latest if isinstance(latest, int) and latest >= 0 else None,
    )


def _added(folder: Path) -> dict[str, int]:
    """Tokens that the tokenizer's file names besides its pieces."""
    path = folder / "tokenizer.json"
    listed = read_json(path).get("added_tokens") if path.is_file() else None
    return {
        one["content"]: one["id"]
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict) and isinstance(one.get("content"), str)
        if isinstance(one.get("id"), int)
    }
