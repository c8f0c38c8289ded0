"""Rounding: scales, minima and codes that represent float weights with the least squared error.

A grid of ranges is tried for every group; for each the best scale (and minimum) for the codes that
it gives is found by least squares, and the best of all is kept. Scales are rounded to their stored
dtype before the codes are made, so that the codes fit what the kernels will read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Half a megabyte of floats: a few of them stay in the second-level cache, which makes the search 3x
# faster.
_CHUNK = 1 << 17
_SHRINK_ASYMMETRIC = np.linspace(0.6, 1.05, 12)
_SHRINK_SYMMETRIC = np.linspace(0.6, 1.25, 16)
INT8_LIMIT = 127
INT4_LEVELS = 15


@dataclass(frozen=True)
class Grid:
    """The values that weights may take: `scale * code + minimum` for codes 0 to 15.

    Args:
        scale: float32, (N, groups), representable in float16.
        minimum: float32, (N, groups), representable in float16; `-8 * scale` where the scheme is
            symmetric.
    """

    scale: np.ndarray
    minimum: np.ndarray

    def codes(self, weight: np.ndarray) -> np.ndarray:
        """The nearest codes, uint8 (N, K), of a float weight (N, K)."""
        rows, groups = self.scale.shape
        values = weight.reshape(rows, groups, -1)
        return (
            _nearest(values, self.scale[..., None], self.minimum[..., None])
            .astype(np.uint8)
            .reshape(weight.shape)
        )

    def values(self, codes: np.ndarray) -> np.ndarray:
        """The floats, (N, K), that codes stand for."""
        rows, groups = self.scale.shape
        spread = codes.reshape(rows, groups, -1).astype(np.float32)
        return (spread * self.scale[..., None] + self.minimum[..., None]).reshape(codes.shape)


def fit_int8(weight: np.ndarray) -> np.ndarray:
    """The scale of every row, float32 (N,), that takes the largest magnitude to 127; 0 for a row of
    zeros.
    """
    return (np.abs(weight).max(axis=1, initial=0.0) / INT8_LIMIT).astype(np.float32)


def round_int8(weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The nearest int8 codes of -127 to 127, (N, K)."""
    divisor = np.where(scale == 0, np.float32(1), scale)[:, None]
    return np.clip(np.rint(weight / divisor), -INT8_LIMIT, INT8_LIMIT).astype(np.int8)


def fit_int4(
    weight: np.ndarray, group: int, symmetric: bool, importance: np.ndarray | None = None
) -> Grid:
    """Search the scale and minimum of every group of a weight.

    Args:
        weight: float32, (N, K); K a multiple of `group`.
        group: neighbours along K that share a scale.
        symmetric: the minimum is -8 times the scale, which may be negative.
        importance: float32, (K,): weights of the squared errors of the inputs; None: all equal.
    """
    rows, columns = weight.shape
    groups = columns // group
    cost = np.ones(columns, np.float32) if importance is None else importance.astype(np.float32)
    cost = cost.reshape(1, groups, group)
    scale = np.empty((rows, groups), np.float32)
    minimum = np.empty((rows, groups), np.float32)
    step = max(1, _CHUNK // max(columns, 1))
    search = _search_symmetric if symmetric else _search_asymmetric
    for at in range(0, rows, step):
        values = weight[at : at + step].reshape(-1, groups, group)
        scale[at : at + step], minimum[at : at + step] = search(values, cost)
    return Grid(scale, minimum)


def _nearest(values: np.ndarray, scale: np.ndarray, minimum: np.ndarray) -> np.ndarray:
    """Codes as floats; a group with scale 0 gets the code 8 (any would do: what it stands for is
    the minimum).
    """
    safe = np.where(scale == 0, np.float32(1), scale)
    return np.where(
        scale == 0, np.float32(8), np.clip(np.rint((values - minimum) / safe), 0, INT4_LEVELS)
    )


def _half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float32)


class _Best:
    """The best scale and minimum found so far for each group."""

    def __init__(self, values: np.ndarray, cost: np.ndarray, symmetric: bool) -> None:
        self.values, self.cost, self.symmetric = values, cost, symmetric
        shape = (*values.shape[:2], 1)
        self.scale, self.minimum = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.error = np.full(shape, np.inf, np.float32)

    def offer(self, scale: np.ndarray, minimum: np.ndarray) -> np.ndarray:
        """Take these where they are better; return the codes that they give."""
        scale = _half(scale)
        minimum = -8 * scale if self.symmetric else _half(minimum)
        codes = _nearest(self.values, scale, minimum)
        error = (self.cost * (self.values - codes * scale - minimum) ** 2).sum(
            axis=-1, keepdims=True
        )
        better = error < self.error
        self.scale = np.where(better, scale, self.scale)
        self.minimum = np.where(better, minimum, self.minimum)
        self.error = np.where(better, error, self.error)
        return codes


def _search_symmetric(values: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    best = _Best(values, cost, symmetric=True)
    where = np.abs(values).argmax(axis=-1)[..., None]
    # The largest magnitude gets the code -8, which has no positive twin: one more level for the
    # same range.
    start = np.take_along_axis(values, where, axis=-1) / np.float32(-8)
    for shrink in _SHRINK_SYMMETRIC:
        codes = best.offer(start * np.float32(shrink), start) - 8
        square = (cost * codes * codes).sum(axis=-1, keepdims=True)
        product = (cost * codes * values).sum(axis=-1, keepdims=True)
        best.offer(product / np.where(square == 0, np.float32(1), square), start)
    return best.scale[..., 0], best.minimum[..., 0]


def _search_asymmetric(values: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    best = _Best(values, cost, symmetric=False)
    low, high = values.min(axis=-1, keepdims=True), values.max(axis=-1, keepdims=True)
    middle, span = (low + high) / 2, high - low
    total = np.broadcast_to(cost, values.shape).sum(axis=-1, keepdims=True)
    mean = (cost * values).sum(axis=-1, keepdims=True) / total
    for shrink in _SHRINK_ASYMMETRIC:
        width = span * np.float32(shrink)
        codes = best.offer(width / INT4_LEVELS, middle - width / 2)
        for _ in range(2):
            code_mean = (cost * codes).sum(axis=-1, keepdims=True) / total
            away = codes - code_mean
            spread = (cost * away * away).sum(axis=-1, keepdims=True)
            slope = (cost * away * values).sum(axis=-1, keepdims=True) / np.where(
                spread == 0, np.float32(1), spread
            )
            codes = best.offer(slope, mean - slope * code_mean)
    return best.scale[..., 0], best.minimum[..., 0]
