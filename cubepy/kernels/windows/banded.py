"""Banded matrices: averages of windows and of equal parts, and values between positions, along one
axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.runtime import recording

NOISE = 1e-11  # by which equal weights may differ, as j * scale rounds


def steady_weight(value: float) -> float:
    """A weight that is the same in all blocks, whatever the size: a fraction, as those of windows
    and of whole scales are, or rounded.
    """
    exact = float(Fraction(value).limit_denominator(1 << 16))
    return exact if abs(exact - value) <= NOISE else round(value, 12)


def noted(*tables: np.ndarray) -> tuple[np.ndarray, ...]:
    """Arrays that never change, which calls that are repeated read again where they are."""
    if recording.active and (recorder := recording.current()) is not None:
        for table in tables:
            recorder.constant(table)
    return tables


@dataclass(frozen=True)
class Means:
    """Averages of windows of `kernel` positions, or of equal parts if that is 0: divided by the
    number of positions, those outside too if `padded`, or by `divisor`.
    """

    kernel: int = 0
    stride: int = 1
    padding: int = 0
    padded: bool = False
    divisor: float | None = None


@cb.struct
class Table:
    """A banded matrix in a kernel: row j has `weights[j]` from column `starts[j]` on."""

    starts: cb.Array
    weights: cb.Array


Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows, columns and weights of a matrix; those of one position are added."""


class Band:
    """A banded matrix: row j has `weights[j]` from column `starts[j]` on. `means`: what averages
    they are, if any.
    """

    def __init__(
        self, shape: tuple[int, int], entries: Entries, means: Means | None = None
    ) -> None:
        self.rows, self.columns = m, n = shape
        self.means = means
        row, column, weight = (part[entries[2] != 0] for part in entries)
        first, ends = np.full(m, n - 1), np.zeros(m, np.int64)
        np.minimum.at(first, row, column)
        np.maximum.at(ends, row, column + 1)
        starts = np.minimum.accumulate(first[::-1])[::-1]  # they never go back
        self.starts = starts.astype(np.int32)
        self.weights = np.zeros((m, int((ends - starts).max(initial=1))))
        np.add.at(self.weights, (row, column - starts[row]), weight)
        self.made: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"Band({self.rows} from {self.columns})"

    def table(self, acc: Any, least: int = 0) -> Table:
        """The starts, and the weights in the dtype that sums have, zeros behind them up to `least`
        in a row.
        """
        if (acc, least) not in self.made:
            more = max(0, least - self.weights.shape[1])
            self.made[acc, least] = np.pad(self.weights, ((0, 0), (0, more))).astype(acc.numpy)
        return Table(*noted(self.starts, self.made[acc, least]))

    @property
    def picks(self) -> bool:
        """Whether every row is one column as it is."""
        if "picks" not in self.made:
            self.made["picks"] = self.weights.shape[1] == 1 and bool((self.weights == 1).all())
        return bool(self.made["picks"])

    @property
    def whole(self) -> float | None:
        """The one weight of all columns, if there is one row."""
        if "whole" not in self.made:
            even = self.weights.shape == (1, self.columns) and bool(
                (self.weights == self.weights[0, 0]).all()
            )
            self.made["whole"] = float(self.weights[0, 0]) if even else None
        return self.made["whole"]  # type: ignore[no-any-return]

    def chunk(self, most: int) -> int:
        """How many neighbouring rows look at `most` columns or fewer; 0 if even one may look at
        more.
        """
        if ("chunk", most) not in self.made:
            ends = np.minimum(self.starts + self.weights.shape[1], self.columns)
            count = self.rows
            while (
                count
                and (
                    ends[np.minimum(np.arange(0, self.rows, count) + count, self.rows) - 1]
                    - self.starts[::count]
                ).max()
                > most
            ):
                count //= 2
            self.made["chunk", most] = count
        return int(self.made["chunk", most])


@lru_cache(maxsize=256)
def window_band(
    n: int, m: int, k: int, s: int, p: int, include: bool, divisor: float | None, back: bool
) -> Band:
    """Averages of windows, or their sums divided by a number."""
    start = np.arange(m) * s - p
    end = np.minimum(start + k, n + p)
    low, high = np.maximum(start, 0), np.minimum(end, n)
    by = (
        np.full(m, divisor)
        if divisor is not None
        else np.maximum(end - start if include else high - low, 1)
    )
    return _band((m, n), _between(low, high, by), back, Means(k, s, p, include, divisor))


@lru_cache(maxsize=256)
def part_band(n: int, m: int, back: bool) -> Band:
    """Averages of m parts of equal size."""
    j = np.arange(m)
    low, high = j * n // m, -(-(j + 1) * n // m)
    return _band((m, n), _between(low, high, high - low), back, Means())


@lru_cache(maxsize=256)
def point_band(n: int, m: int, scale: float, mode: str, corners: bool, back: bool) -> Band:
    """Values between positions: nearest, linear or cubic (Keys, 1981, with a = -0.75)."""
    j = np.arange(m)
    if (
        mode == "nearest"
    ):  # whole numbers, where the scale is of such: 13 * (30 / 26) is less than 15
        at = j * n // m if scale == n / m else np.floor(j * scale).astype(np.int64)
        return _band((m, n), (j, np.minimum(at, n - 1), np.ones(m)), back)
    if mode == "nearest-exact":
        at = np.floor(((j + 0.5) * float(np.float32(scale))).astype(np.float32)).astype(np.int64)
        return _band((m, n), (j, np.minimum(at, n - 1), np.ones(m)), back)
    at = j * ((n - 1) / max(m - 1, 1)) if corners else (j + 0.5) * scale - 0.5
    if mode == "linear":
        at = np.maximum(at, 0)
        low = np.minimum(np.floor(at).astype(np.int64), n - 1)
        part = at - low
        parts = [(0, 1 - part), (1, part)]
    else:
        low = np.floor(at).astype(np.int64)
        t, a = at - low, -0.75
        near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
        outer = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (t + 1, 2 - t)]
        parts = [(-1, outer[0]), (0, near[0]), (1, near[1]), (2, outer[1])]
    columns = [np.clip(low + offset, 0, n - 1) for offset, _ in parts]
    weights = np.concatenate([weight for _, weight in parts])
    return _band((m, n), (np.tile(j, len(parts)), np.concatenate(columns), weights), back)


@lru_cache(maxsize=256)
def smooth_band(n: int, m: int, scale: float, mode: str, corners: bool, back: bool) -> Band:
    """Values between positions, of as many as a smaller image has for one (`antialias`): linear or
    cubic (Keys, 1981, with a = -0.5).
    """
    if n == m:  # as torch, whatever the scale
        return point_band(n, m, 1.0, "nearest", corners, back)
    if corners:
        scale = (n - 1) / (m - 1) if m > 1 else 0.0
    wide = max(scale, 1.0)
    reach = wide * (1 if mode == "linear" else 2)
    centre = scale * (np.arange(m) + 0.5)
    low = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    high = np.minimum((centre + reach + 0.5).astype(np.int64), n)
    rows, columns, _ = _between(low, high, np.ones(m))
    d = np.abs((columns - centre[rows] + 0.5) / wide)
    if mode == "linear":
        weights = np.maximum(1 - d, 0)
    else:
        a = -0.5
        near, outer = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weights = np.where(d < 1, near, np.where(d < 2, outer, 0))
    total = np.bincount(rows, weights, m)
    return _band((m, n), (rows, columns, weights / np.where(total == 0, 1, total)[rows]), back)


def _between(low: np.ndarray, high: np.ndarray, by: np.ndarray) -> Entries:
    """1 / by[j] in the columns of row j from low[j] to high[j]."""
    count = np.maximum(high - low, 0)
    columns = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - low, count)
    return np.repeat(np.arange(len(low)), count), columns, np.repeat(1 / by, count)


def _band(shape: tuple[int, int], entries: Entries, back: bool, means: Means | None = None) -> Band:
    if not back:
        return Band(shape, entries, means)
    row, column, weight = entries
    return Band(shape[::-1], (column, row, weight))


SAME = Band((1, 1), (np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1)))
"""An axis of one position, left as it is."""
