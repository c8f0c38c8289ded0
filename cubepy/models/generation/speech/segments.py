"""What was said when: segments of a window of sound, and the transcript of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cubepy.models.generation.speech.tokens import STEP, SpeechTokens


@dataclass(frozen=True)
class Segment:
    """A piece of a transcript.

    Attributes:
        start, end: seconds from the beginning.
        text: what was said; empty where the model has no tokenizer.
        tokens: the same as tokens, without timestamps.

    Example:
        >>> print(Segment(1.0, 62.5, " Hello.", (5,)))
        [00:01.000 --> 01:02.500] Hello.
    """

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]

    def __str__(self) -> str:
        return f"[{_clock(self.start)} --> {_clock(self.end)}] {self.text.strip()}"


@dataclass(frozen=True)
class Transcript:
    """What was said.

    Attributes:
        text: all of it.
        language: its code, None of models of English alone.
        segments: with times; one for each window where none were wanted.
        seconds: of sound.
    """

    text: str
    language: str | None
    segments: tuple[Segment, ...]
    seconds: float

    def __str__(self) -> str:
        return self.text


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds * 1000), 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{minutes:02}:{rest // 1000:02}.{rest % 1000:03}"
    return f"{hours}:{text}" if hours else text


Piece = tuple[float, float, tuple[int, ...]]
"""Seconds from the window's beginning, and tokens without timestamps."""


def pieces_of(
    written: Sequence[int], tokens: SpeechTokens, frames: int, timestamps: bool, per_frame: float
) -> tuple[list[Piece], int]:
    """The segments of a window, and where the next window begins.

    Args:
        written: tokens, without the one that ends them.
        tokens: of the model.
        frames: of sound that the window has.
        timestamps: whether they were wanted.
        per_frame: seconds from a frame to the next.

    Returns:
        Segments; frames from this window's beginning to the next one's. Two timestamps beside each
        other end a segment; what is behind the last such pair is heard again.
    """
    seconds = frames * per_frame
    if not timestamps:
        return [(0.0, seconds, tuple(written))] if written else [], frames
    first = tokens.first_time
    is_time = [token >= first for token in written]
    cuts = [n + 1 for n in range(len(written) - 1) if is_time[n] and is_time[n + 1]]
    found: list[Piece] = []
    if not cuts:
        times = [token - first for token in written if token >= first]
        end = times[-1] * STEP if times and times[-1] else seconds
        pieces, following = [(0.0, end, list(written))], frames
    else:
        done = is_time[-2:] == [False, True]
        ends = [*cuts, len(written)] if done else cuts
        pieces = [
            ((written[a] - first) * STEP, (written[b - 1] - first) * STEP, list(written[a:b]))
            for a, b in zip([0, *ends], ends, strict=False)
        ]
        following = frames if done else round((written[cuts[-1] - 1] - first) * STEP / per_frame)
    for begin, end, some in pieces:
        words = tuple(token for token in some if token < tokens.end)
        if words:
            found.append((begin, end, words))
    return found, min(max(following, 1), frames)


def spoken_of(written: Sequence[int], tokens: SpeechTokens) -> list[int]:
    """What the next window may read of a window with timestamps: all, or up to the pair from which
    on it is heard again.

    Example:
        >>> spoken_of([60, 1, 65, 65, 2], SpeechTokens(start=51, end=50, no_timestamps=59))
        [60, 1, 65]
    """
    first = tokens.first_time
    is_time = [token >= first for token in written]
    cuts = [n + 1 for n in range(len(written) - 1) if is_time[n] and is_time[n + 1]]
    return list(written[: cuts[-1]] if cuts and is_time[-2:] != [False, True] else written)
