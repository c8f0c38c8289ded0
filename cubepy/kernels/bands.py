"""Banded matrices: averages of windows and of equal parts, and values between places, along one axis."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.runtime import tracing


def noted(*tables: np.ndarray) -> tuple[np.ndarray, ...]:
    """Arrays that never change, which calls that are repeated read again where they are."""
    if tracing.recording and (recorder := tracing.current()) is not None:
        for table in tables:
            recorder.number(table)
    return tables


class Band:
    """A banded matrix: row j has `weights[j]` from column `starts[j]` on."""

    def __init__(self, dense: np.ndarray) -> None:
        m, n = dense.shape
        used = dense != 0
        some = used.any(1)
        self.columns = n
        first = np.where(some, used.argmax(1), n - 1)
        self.starts = np.minimum.accumulate(first[::-1])[::-1].astype(np.int32)  # they never go back
        ends = np.where(some, n - used[:, ::-1].argmax(1), self.starts + 1)
        taps = int((ends - self.starts).max(initial=1))
        at = np.minimum(self.starts[:, None] + np.arange(taps), n - 1)
        inside = self.starts[:, None] + np.arange(taps) < n
        self.weights = np.where(inside, np.take_along_axis(dense, at, 1), 0)
        self.rows = m
        self.made: dict[Any, Any] = {}

    def tables(self, acc: Any, least: int = 0) -> tuple[np.ndarray, ...]:
        """The starts, and the weights in the dtype that sums have, zeros behind them up to `least` in a row."""
        if (acc, least) not in self.made:
            more = max(0, least - self.weights.shape[1])
            self.made[acc, least] = np.pad(self.weights, ((0, 0), (0, more))).astype(acc.numpy)
        return noted(self.starts, self.made[acc, least])

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
            even = self.weights.shape == (1, self.columns) and bool((self.weights == self.weights[0, 0]).all())
            self.made["whole"] = float(self.weights[0, 0]) if even else None
        return self.made["whole"]  # type: ignore[no-any-return]

    def chunk(self, most: int) -> int:
        """How many neighbouring rows look at `most` columns or fewer; 0 if even one may look at more."""
        if ("chunk", most) not in self.made:
            ends = np.minimum(self.starts + self.weights.shape[1], self.columns)
            count = self.rows
            while count and (ends[np.minimum(np.arange(0, self.rows, count) + count, self.rows) - 1]
                             - self.starts[::count]).max() > most:  # fmt: skip
                count //= 2
            self.made["chunk", most] = count
        return int(self.made["chunk", most])


@lru_cache(maxsize=256)
def window_band(n: int, m: int, k: int, s: int, p: int, include: bool, divisor: float | None, back: bool) -> Band:
    """Averages of windows, or their sums divided by a number."""
    start = np.arange(m) * s - p
    end = np.minimum(start + k, n + p)
    low, high = np.maximum(start, 0), np.minimum(end, n)
    by = np.full(m, divisor) if divisor is not None else np.maximum(end - start if include else high - low, 1)
    return _band(_between(n, low, high) / by[:, None], back)


@lru_cache(maxsize=256)
def part_band(n: int, m: int, back: bool) -> Band:
    """Averages of m parts of equal size."""
    j = np.arange(m)
    low, high = j * n // m, -(-(j + 1) * n // m)
    return _band(_between(n, low, high) / (high - low)[:, None], back)


@lru_cache(maxsize=256)
def point_band(n: int, m: int, scale: float, mode: str, corners: bool, back: bool) -> Band:
    """Values between places: nearest, linear or cubic (Keys, 1981, with a = -0.75)."""
    j = np.arange(m)
    dense = np.zeros((m, n))
    if mode == "nearest":
        np.add.at(dense, (j, np.minimum(np.floor(j * scale).astype(np.int64), n - 1)), 1)
        return _band(dense, back)
    at = j * ((n - 1) / max(m - 1, 1)) if corners else (j + 0.5) * scale - 0.5
    if mode == "linear":
        at = np.maximum(at, 0)
        low = np.minimum(np.floor(at).astype(np.int64), n - 1)
        part = at - low
        np.add.at(dense, (j, low), 1 - part)
        np.add.at(dense, (j, np.minimum(low + 1, n - 1)), part)
        return _band(dense, back)
    low = np.floor(at).astype(np.int64)
    t, a = at - low, -0.75
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (t + 1, 2 - t)]
    for offset, weight in ((-1, far[0]), (0, near[0]), (1, near[1]), (2, far[1])):
        np.add.at(dense, (j, np.clip(low + offset, 0, n - 1)), weight)
    return _band(dense, back)


def _between(n: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    k = np.arange(n)
    return ((k >= low[:, None]) & (k < high[:, None])).astype(np.float64)


def _band(dense: np.ndarray, back: bool) -> Band:
    return Band(dense.T if back else dense)


SAME = Band(np.ones((1, 1)))
"""An axis of one place, left as it is."""
