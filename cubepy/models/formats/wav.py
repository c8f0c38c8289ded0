"""WAV files: integer samples of any width, as floats."""

from __future__ import annotations

import os
import wave
from pathlib import Path

import numpy as np

from cubepy.errors import FileFormatError

WIDTHS = (1, 2, 3, 4)
"""Bytes of a sample."""


def read_wav(path: str | os.PathLike[str]) -> tuple[np.ndarray, int]:
    """The mean of all channels, f32 between -1 and 1, and samples of a second.

    Raises:
        FileFormatError: no WAV file, a damaged one, or one whose samples are no integers.
        FileNotFoundError: there is none.

    Example:
        >>> import tempfile, wave
        >>> path = tempfile.mkdtemp() + "/x.wav"
        >>> with wave.open(path, "wb") as file:
        ...     file.setparams((1, 2, 8000, 2, "NONE", "NONE"))
        ...     file.writeframes(np.array([16384, -32768], "<i2").tobytes())
        >>> read_wav(path)
        (array([ 0.5, -1. ], dtype=float32), 8000)
    """
    source = Path(path)
    try:
        with source.open("rb") as stream, wave.open(stream) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            raw = file.readframes(min(file.getnframes(), source.stat().st_size))
    except (wave.Error, EOFError, ValueError, RuntimeError, OverflowError) as error:
        raise FileFormatError(
            f"{source}: no WAV file of integer samples: {error or 'it ends early'}",
            hint="convert it: ffmpeg -i FILE -ar 16000 -ac 1 -c:a pcm_s16le out.wav",
        ) from None
    if width not in WIDTHS or not channels or not rate:
        raise FileFormatError(
            f"{source}: {channels} channels of {width} bytes a sample, {rate} samples a second"
        )
    raw = raw[: len(raw) // (channels * width) * (channels * width)]
    if width == 1:  # bytes are unsigned
        samples = (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128
    elif width == 3:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        samples = wide.view("<i4")[:, 0].astype(np.float32) / 2**31
    else:
        samples = np.frombuffer(raw, f"<i{width}").astype(np.float32) / 2 ** (8 * width - 1)
    return samples.reshape(-1, channels).mean(axis=1, dtype=np.float32), rate
