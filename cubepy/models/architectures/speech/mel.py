"""Sound as Whisper sees it: logarithms of energies in bands of the mel scale, of short windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from cubepy.errors import ArgumentError

BLOCK = 4096
"""Frames, or samples, that are computed at once."""
ZEROS = 24
"""Zeros of the filter to each side, for a new rate."""


@dataclass(frozen=True)
class Mel:
    """How features are computed.

    Attributes:
        bands: of the mel scale.
        rate: samples of a second.
        window: samples of a frame.
        hop: samples from a frame to the next.

    Example:
        >>> Mel(80).features(np.zeros(16000, np.float32)).shape
        (80, 100)
    """

    bands: int
    rate: int = 16000
    window: int = 400
    hop: int = 160

    def features(self, samples: np.ndarray) -> np.ndarray:
        """(bands, samples / hop) f32, as Whisper was trained: up to 8 powers of ten below the
        loudest, around zero.
        """
        half = self.window // 2
        frames = len(samples) // self.hop
        if not frames:
            return np.zeros((self.bands, 0), np.float32)
        padded = np.pad(samples.astype(np.float32), half, mode="reflect")
        shape = np.hanning(self.window + 1)[:-1]
        energies = np.empty((self.bands, frames), np.float32)
        filters = mel_filters(self.bands, self.window, self.rate)
        views = np.lib.stride_tricks.sliding_window_view(padded, self.window)[:: self.hop]
        for first in range(0, frames, BLOCK):
            spectrum = np.fft.rfft(views[first : min(first + BLOCK, frames)] * shape)
            power = (spectrum.real**2 + spectrum.imag**2) @ filters
            energies[:, first : first + BLOCK] = np.log10(np.maximum(power, 1e-10)).T
        found: np.ndarray = (np.maximum(energies, energies.max() - 8) + 4) / 4
        return found


@cache
def mel_filters(bands: int, window: int, rate: int) -> np.ndarray:
    """Triangles on the mel scale of Slaney's Auditory Toolbox (1998), each of the same area: linear
    up to 1,000 Hz, logarithmic above; (window / 2 + 1, bands) f64.

    Example:
        >>> mel_filters(80, 400, 16000).shape
        (201, 80)
    """
    step = math.log(6.4) / 27

    def hertz(mel: np.ndarray) -> np.ndarray:
        return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(step * (mel - 15)))

    top = 15 + math.log(rate / 2 / 1000) / step if rate > 2000 else rate / 2 * 3 / 200
    corners = hertz(np.linspace(0, top, bands + 2))
    slopes = corners - (np.arange(window // 2 + 1) * rate / window)[:, None]
    widths = np.diff(corners)
    rising, falling = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
    found: np.ndarray = (
        np.maximum(0, np.minimum(rising, falling)) * 2 / (corners[2:] - corners[:-2])
    )
    return found


def resampled(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Samples at another rate: a sinc with a Kaiser window, below both rates' halves.

    Args:
        samples: (n,) floats.
        rate, wanted: samples of a second, before and after.

    Returns:
        (ceil(n * wanted / rate),) f32.

    Raises:
        ArgumentError: a rate that is no positive integer.

    Example:
        >>> resampled(np.ones(800, np.float32), 8000, 16000)[400:403].round(3)
        array([1., 1., 1.], dtype=float32)
    """
    for number in (rate, wanted):
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 1 << 24:
            raise ArgumentError(f"a rate is a positive integer, not {number!r}")
    if rate == wanted or not len(samples):
        return np.asarray(samples, np.float32)
    common = math.gcd(rate, wanted)
    up, down = wanted // common, rate // common
    cutoff = min(1.0, wanted / rate) * 0.97
    reach = math.ceil(ZEROS / cutoff)
    taps = np.arange(-reach, reach + 1)
    distance = taps - np.arange(up)[:, None] / up
    inside = np.sqrt(np.clip(1 - (distance / (reach + 1)) ** 2, 0, None))
    filters = cutoff * np.sinc(cutoff * distance) * np.i0(9 * inside) / np.i0(9)
    filters = (filters / filters.sum(axis=1, keepdims=True)).astype(np.float32)
    padded = np.pad(np.asarray(samples, np.float32), reach)
    count = -(-len(samples) * up // down)
    out = np.empty(count, np.float32)
    for first in range(0, count, BLOCK):
        at = np.arange(first, min(first + BLOCK, count), dtype=np.int64) * down
        windows = padded[(at // up)[:, None] + taps + reach]
        out[first : first + len(at)] = np.einsum("nt,nt->n", windows, filters[at % up])
    return out
