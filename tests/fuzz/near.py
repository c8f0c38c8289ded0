"""Numbers that know how far off they may be: what a chain of rounded operations allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz.check import Want, depth
from tests.fuzz.draws import BF16, F16, F32, F64, sums, unit

TINY = {F16: 2.0**-25, BF16: 2.0**-126, F32: 2.0**-126, F64: 2.0**-1022}
"""How far off small numbers may be: of f16 subnormal ones are kept."""


@dataclass
class Near:
    """Float64 numbers, and for each how far the computed one may be from it.

    Attributes:
        value, error: arrays of one shape.
        dtype: what every operation rounds to.
    """

    value: np.ndarray
    error: np.ndarray
    dtype: np.dtype

    @classmethod
    def of(cls, x: np.ndarray) -> Near:
        """Numbers as they are."""
        return cls(x.astype(np.float64), np.zeros(x.shape), x.dtype)

    def rounded(self, value: Any, error: Any, more: float = 1.0) -> Near:
        """An operation's result: what its operands bring, and `more` roundings of its own."""
        own = more * (unit(self.dtype) * np.abs(value) + TINY[self.dtype])
        return Near(value, error + own, self.dtype)

    def smooth(self, function: Any, slope: float, roundings: float) -> Near:
        """A function of one number whose slope is at most `slope`."""
        made = function(self.value)
        units = sums(self.dtype) + unit(self.dtype)
        own = roundings * (units * np.abs(made) + TINY[self.dtype])
        return Near(made, slope * self.error + own, self.dtype)

    def __add__(self, other: Near) -> Near:
        return self.rounded(self.value + other.value, self.error + other.error)

    def __sub__(self, other: Near) -> Near:
        return self.rounded(self.value - other.value, self.error + other.error)

    def __mul__(self, other: Near) -> Near:
        a, b = np.abs(self.value), np.abs(other.value)
        error = a * other.error + b * self.error + self.error * other.error
        return self.rounded(self.value * other.value, error)

    def scaled(self, number: float) -> Near:
        """Times a number of Python, which is rounded too."""
        return self.rounded(self.value * number, abs(number) * self.error, 2)

    def larger(self, other: Near) -> Near:
        """The larger of two."""
        error = np.maximum(*np.broadcast_arrays(self.error, other.error))
        return Near(np.maximum(self.value, other.value), error, self.dtype)

    def total(self) -> Near:
        """The sum along the last axis, which stays."""
        n = self.value.shape[-1]
        error = self.error.sum(-1, keepdims=True)
        size = (np.abs(self.value) + self.error).sum(-1, keepdims=True)
        return self.rounded(
            self.value.sum(-1, keepdims=True), error + depth(n) * sums(self.dtype) * size
        )

    def highest(self) -> Near:
        """The maximum along the last axis, which stays."""
        error = self.error.max(-1, keepdims=True)
        return Near(self.value.max(-1, keepdims=True), error, self.dtype)

    def product(self, other: Near) -> Near:
        """The matrix product."""
        a, b = np.abs(self.value) + self.error, np.abs(other.value) + other.error
        error = a @ other.error + self.error @ b
        n = self.value.shape[-1]
        error = error + (depth(n) + 2) * sums(self.dtype) * (a @ b)
        return self.rounded(self.value @ other.value, error)

    def moved(self, function: Any) -> Near:
        """What a function does that moves elements."""
        return Near(function(self.value), function(self.error), self.dtype)

    @property
    def want(self) -> Want:
        """What a result has to be."""
        return Want(self.value, self.dtype, 2 * self.error)
