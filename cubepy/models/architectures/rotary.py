"""Rotary embeddings: by which angle each pair of numbers rounds at each position (Su et al., 2021),
with the scalings that let models see further than they were trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.errors import FileFormatError

KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "factors")


MOST = 1 << 16
"""Numbers of a head that are rotated, at most: a config that says more is damaged."""


@dataclass(frozen=True)
class Rotary:
    """The angles of one kind of layer.

    Attributes:
        frequencies: (pairs,) f32: angle for each position.
        factor: cos and sin are multiplied by it.
        long: frequencies beyond `original` positions, or None.
        original: positions that the model was trained on, where that matters.
        growing: base and factor of frequencies that fall with the length of a text beyond
            `original` positions ("dynamic"), or None.

    Example:
        >>> rotary(4, 10000.0).frequencies
        array([1.  , 0.01], dtype=float32)
    """

    frequencies: np.ndarray
    factor: float = 1.0
    long: np.ndarray | None = None
    original: int = 0
    growing: tuple[float, float] | None = None

    def at_length(self, length: int) -> np.ndarray | None:
        """The frequencies of a text of so many positions, where they are others than `frequencies`.

        The base grows so that the slowest pair comes as far as in a trained text (NTK-aware
        scaling; transformers' "dynamic").

        Example:
            >>> found = rotary(4, 10000.0, {"rope_type": "dynamic", "factor": 2.0}, 8)
            >>> found.at_length(8), found.at_length(12).round(4)
            (None, array([1.   , 0.005], dtype=float32))
        """
        if self.growing is None or length <= self.original:
            return None
        (base, factor), pairs = self.growing, len(self.frequencies)
        grown = factor * length / self.original - (factor - 1)
        base = base * grown ** (pairs / max(pairs - 1, 1))
        return _powers(2 * pairs, base)


def _powers(rotated: int, base: float) -> np.ndarray:
    """A frequency for each pair."""
    exponents = np.arange(0, rotated, 2, dtype=np.float32) / np.float32(rotated)
    return (1.0 / base**exponents).astype(np.float32)


def rotary(
    rotated: int, base: float, scaling: Mapping[str, Any] | None = None, positions: int = 0
) -> Rotary:
    """The frequencies of a config.

    Args:
        rotated: numbers of a head that are rotated: two for each frequency.
        base: of the powers, `rope_theta`.
        scaling: `rope_scaling` or `rope_parameters` of a config, or None.
        positions: `max_position_embeddings`.

    Raises:
        FileFormatError: a kind of scaling that is not known, or lacks a number; too wide heads.

    Example:
        >>> rotary(4, 10000.0, {"rope_type": "linear", "factor": 2.0}).frequencies
        array([0.5  , 0.005], dtype=float32)
    """
    if rotated > MOST:
        raise FileFormatError(f"heads of which {rotated} numbers are rotated; {MOST} may be")
    plain = _powers(rotated, base)
    scaling = scaling or {}
    with np.errstate(all="ignore"):
        found = _scaled(rotated, base, plain, scaling, positions)
    parts = (found.frequencies, found.long if found.long is not None else found.frequencies)
    if any(len(p) != len(plain) or not np.isfinite(p).all() for p in parts):
        raise FileFormatError(
            f"rotary scaling {dict(scaling)} does not give {len(plain)} frequencies"
        )
    return found


def _scaled(
    rotated: int, base: float, plain: np.ndarray, scaling: Mapping[str, Any], positions: int
) -> Rotary:
    """The frequencies as a kind of scaling has them."""
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    if kind not in KINDS:
        raise FileFormatError(
            f"rotary embeddings are scaled by {kind!r}; known are {', '.join(KINDS)}"
        )
    try:
        if kind == "linear":
            return Rotary(plain / np.float32(scaling["factor"]))
        if kind == "factors":  # of GGUF files: a divisor for each frequency
            return Rotary(plain / np.asarray(scaling["factors"], np.float32))
        if kind == "llama3":
            return Rotary(_llama3(plain, scaling))
        if kind == "yarn":
            return _yarn(rotated, base, plain, scaling, positions)
        if kind == "longrope":
            return _longrope(plain, scaling, positions)
        if kind == "dynamic":
            return Rotary(plain, 1.0, None, positions, (base, float(scaling["factor"])))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise FileFormatError(f"the rotary scaling {kind!r} is damaged: {error}") from error
    return Rotary(plain)


def _llama3(plain: np.ndarray, scaling: Mapping[str, Any]) -> np.ndarray:
    """Slow frequencies are divided, fast ones stay, those between are mixed."""
    factor, original = float(scaling["factor"]), float(scaling["original_max_position_embeddings"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    length = 2 * math.pi / plain
    smooth = (original / length - low) / (high - low)
    mixed = (1 - smooth) * plain / factor + smooth * plain
    out = np.where(length > original / low, plain / factor, plain)
    between = (length <= original / low) & (length >= original / high)
    return np.where(between, mixed, out).astype(np.float32)


def _yarn(
    rotated: int, base: float, plain: np.ndarray, scaling: Mapping[str, Any], positions: int
) -> Rotary:
    """YaRN (Peng et al., 2023): a ramp between divided and plain frequencies."""
    factor = float(scaling["factor"])
    original = float(scaling.get("original_max_position_embeddings") or positions)
    fast, slow = float(scaling.get("beta_fast") or 32), float(scaling.get("beta_slow") or 1)

    def pair(rounds: float) -> float:
        return rotated * math.log(original / (rounds * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(fast), pair(slow)
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotated - 1)
    ramp = np.clip((np.arange(rotated // 2) - low) / (max(high - low, 0.001)), 0, 1)
    kept = 1 - ramp
    frequencies = plain / factor * (1 - kept) + plain * kept
    attention = scaling.get("attention_factor")
    if attention is None:
        attention = _yarn_factor(scaling, factor)
    return Rotary(frequencies.astype(np.float32), float(attention))


def _yarn_factor(scaling: Mapping[str, Any], factor: float) -> float:
    def magnitude(by: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0

    one, all_dims = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if one and all_dims:
        return magnitude(float(one)) / magnitude(float(all_dims))
    return magnitude(1.0)


def _longrope(plain: np.ndarray, scaling: Mapping[str, Any], positions: int) -> Rotary:
    """LongRoPE (Ding et al., 2024): a divisor for each frequency, others for long texts."""
    original = int(scaling.get("original_max_position_embeddings") or positions)
    short, long = (
        plain / np.asarray(scaling[name], np.float32) for name in ("short_factor", "long_factor")
    )
    factor = float(scaling.get("factor") or positions / original)
    attention = scaling.get("attention_factor")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return Rotary(short, float(attention), long, original)
