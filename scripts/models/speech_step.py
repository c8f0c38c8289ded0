"""Whisper beside faster-whisper: words and times of recordings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import speech_files
from rows import Options, Row, at_least, in_turns, ratio

import cubepy as cb
from cubepy import quant


def words(text: str) -> list[str]:
    """Of a text, without marks."""
    return re.findall(r"[a-z0-9']+", text.lower())


def theirs_of(model: Any, sound: Path) -> str:
    """What faster-whisper writes, greedily."""
    segments, _ = model.transcribe(
        str(sound), language="en", beam_size=1, temperature=0.0, condition_on_previous_text=False
    )
    return " ".join(s.text for s in segments)


def run(options: Options) -> Iterator[Row]:
    """Every model and recording."""
    from faster_whisper import WhisperModel

    sounds = sorted(options.folder.rglob("*.wav"))
    for folder in sorted(p.parent for p in options.folder.glob("whisper-*/model.bin")):
        name = folder.name
        exact = cb.load(speech_files.convert(folder))
        small = quant.quantize(exact, "int8", measure_speed=False).model
        peers = {
            kind: WhisperModel(
                str(folder), device="cpu", compute_type=kind, cpu_threads=options.threads
            )
            for kind in ("float32", "int8")
        }
        given = {"temperatures": (0.0,)} | ({} if name.endswith(".en") else {"language": "en"})
        for sound in sounds:
            found = words(exact.transcribe(sound, **given).text)
            wanted = words(theirs_of(peers["float32"], sound))
            told = f"{len(found)} words, {len(wanted)} of faster-whisper"
            yield Row(f"{name}, {sound.stem}: words, f32", "equal", told, found == wanted)
            ours = partial(small.transcribe, sound, **given)
            theirs = partial(theirs_of, peers["int8"], sound)
            times = in_turns(ours, theirs, rounds=5, seconds=30)
            yield at_least(f"{name}, {sound.stem}: time, int8 both", 1, *ratio(times))
