"""What is to be normalised: rows (m, n), to rows (m, n)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cubepy.lang.dtypes import DType, f32, f64


def accumulator_of(array: Any) -> DType:
    """The dtype to compute in."""
    return f64 if array.dtype == np.float64 else f32


class Softmax(NamedTuple):
    """exp(x) / sum(exp(x)) along n, or its logarithm; unit strides along n."""

    x: Any
    out: Any
    log: bool = False

    @property
    def acc(self) -> DType:
        """The dtype to compute in."""
        return accumulator_of(self.x)


class Norm(NamedTuple):
    """(x - mean) / sqrt(variance + eps) * weight + bias along n; unless `centred` the mean counts
    as 0. weight and bias are (n,) or None.
    """

    x: Any
    weight: Any
    bias: Any
    out: Any
    eps: float
    centred: bool = True

    @property
    def acc(self) -> DType:
        """The dtype to compute in."""
        return accumulator_of(self.x)


class GroupNorm(NamedTuple):
    """The same of rows that are groups of so many `channels`, each with its own weight and bias; an
    image has `groups` of them.
    """

    x: Any
    weight: Any
    bias: Any
    out: Any
    eps: float
    groups: int
    channels: int

    @property
    def acc(self) -> DType:
        """The dtype to compute in."""
        return accumulator_of(self.x)
