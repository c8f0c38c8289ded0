"""Bands whose results follow each other in steps: what is the same in all of them is comptime."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.kernels.windows.banded import NOISE, steady_weight
from cubepy.kernels.windows.rows_gpu import TAPS, Steps

NEAR = 3  # results from an end on that may have weights of their own


@dataclass(frozen=True)
class Weights:
    """Of an axis: `steady[r][v]` for tap v of result r of a block where they are the same in all
    blocks, else None and they come from a table. `holes`: some are 0 inside, and must not spread
    NaN. `ends`: what the first and the last results have more than steady weights: (result, tap,
    weight), where the last result has number -1.
    """

    steady: tuple[tuple[float, ...], ...] | None
    holes: bool
    ends: tuple[tuple[int, int, float], ...] = ()

    def by_unit(
        self, results: int, each: int
    ) -> tuple[tuple[int, tuple[tuple[int, int, float], ...]], ...]:
        """The ends of so many results for units that make `each`: a unit (the last is -1), and
        (result of it, tap, weight).
        """
        found: dict[int, list[tuple[int, int, float]]] = {}
        units = -(-results // each)
        for r, v, weight in self.ends:
            unit, at = divmod(r % results, each)
            found.setdefault(unit if r >= 0 else unit - units, []).append((at, v, weight))
        return tuple((unit, tuple(terms)) for unit, terms in found.items())


@dataclass(frozen=True)
class Regular:
    """A band as steps, or as a table of starts: with weights to fill a table of rows by taps."""

    steps: Steps
    weights: Weights
    table: np.ndarray
    starts: np.ndarray | None


@lru_cache(maxsize=256)
def regular(band: Any) -> Regular | None:
    """How the results of a band go; None if they have too many taps."""
    m, n = band.rows, band.columns
    used = band.weights != 0
    some = used.any(1)
    if not some.any():
        return None
    first = band.starts + used.argmax(1)
    behind = band.starts + band.weights.shape[1] - used[:, ::-1].argmax(1)
    own = int((behind - first)[some].max())
    up, by = (
        ((round(m / n), m // n, -(-m // n)), (1,))
        if m > n
        else ((1,), (round(n / m), n // m, -(-n // m)))
    )
    best: Steps | None = None
    for outs in sorted(set(up)):
        for ins in sorted(set(by)):
            found = _steps(first, behind, some, outs, ins)
            if found.taps <= own + (outs == 1 and own > 1) and (
                best is None or found.taps < best.taps
            ):
                best = found
    starts = None
    if best is None or best.taps > TAPS or best.outs > TAPS:
        if own > TAPS:
            return None
        best, starts = Steps(1, 1, (0,), own), np.where(some, first, 0).astype(np.int32)
    block = np.arange(m) // best.outs
    low = (
        np.array(best.lows)[np.arange(m) % best.outs] + block * best.ins
        if starts is None
        else starts
    )
    at = low[:, None] + np.arange(best.taps)
    column = at - band.starts[:, None]
    known = (column >= 0) & (column < band.weights.shape[1])
    filled = np.where(
        known, np.take_along_axis(band.weights, column.clip(0, band.weights.shape[1] - 1), 1), 0
    )
    inside = (at >= 0) & (at < n)
    return Regular(best, _weights(filled, inside, best, starts is None), filled, starts)


def _steps(first: np.ndarray, behind: np.ndarray, some: np.ndarray, outs: int, ins: int) -> Steps:
    """The steps of so many results and positions a block."""
    m = len(first)
    base, phase = np.arange(m) // outs * ins, np.arange(m) % outs
    lows, highs = [], []
    for r in range(outs):
        mine = some & (phase == r)
        lows.append(int((first - base)[mine].min()) if mine.any() else 0)
        highs.append(int((behind - base)[mine].max()) if mine.any() else 1)
    taps = max(h - low for h, low in zip(highs, lows, strict=True))
    return Steps(outs, ins, tuple(lows), taps)


def _weights(filled: np.ndarray, inside: np.ndarray, steps: Steps, even: bool) -> Weights:
    """Whether weights are the same in all blocks, wherever they count, but for the results next to
    the ends.
    """
    holes = Weights(None, bool((inside & (filled == 0)).any()))
    if not even:
        return holes
    outs, taps = steps.outs, steps.taps
    steady = np.zeros((outs, taps))
    for r, v in np.ndindex(outs, taps):
        values = filled[r::outs, v][inside[r::outs, v]]
        steady[r, v] = steady_weight(float(values[len(values) // 2])) if values.size else 0.0
    usual = np.resize(steady, filled.shape)
    other = inside & (np.abs(filled - usual) > NOISE)
    if (other & (filled == 0)).any():  # a sum of steady weights and others would spread NaN
        return holes
    positive = (filled >= 0).all()  # sums of infinities are one, unless a part is taken off
    if positive and (other & (filled < usual)).any():
        return holes
    rows = np.flatnonzero(other.any(1))
    m = len(filled)
    if rows.size and np.minimum(rows, m - 1 - rows).max() >= NEAR:
        return holes
    ends = tuple(
        (int(j if 2 * j < m else j - m), int(v), float(filled[j, v] - usual[j, v]))
        for j in rows
        for v in np.flatnonzero(other[j])
    )
    return Weights(tuple(map(tuple, steady.tolist())), False, ends)


IDENTITY = Regular(Steps(1, 1, (0,), 1), Weights(((1.0,),), False), np.ones((1, 1)), None)
