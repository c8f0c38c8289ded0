"""What is to be reduced: rows (m, n) with unit stride along n, or (batch, n, columns) with unit
stride along the columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cubepy.kernels.reduce.reduction import Reduction
from cubepy.lang.dtypes import DType, f32


class Reduce(NamedTuple):
    """A reduction of `data` to the contiguous `out`, computed in `acc`."""

    data: Any
    out: Any
    reduction: Reduction
    acc: DType
    number: float = 1.0

    @property
    def by_rows(self) -> bool:
        """Whether neighbours in memory are reduced to one."""
        return bool(self.data.ndim == 2)

    @property
    def wide(self) -> DType:
        """What a CPU computes in."""
        return f32 if self.acc.is_float and self.acc.bits < 32 else self.acc


class Arg(NamedTuple):
    """Where the largest, or the smallest, elements are, to the contiguous `out`."""

    data: Any
    out: Any
    largest: bool

    @property
    def by_rows(self) -> bool:
        """Whether one of neighbours in memory is looked for."""
        return bool(self.data.ndim == 2)


class Truth(NamedTuple):
    """Whether `every` element along an axis, or one of them, is not 0, to the contiguous `out` of
    bytes; `mask`: elements are bytes that are 0 or 1.
    """

    data: Any
    out: Any
    every: bool
    mask: bool

    @property
    def by_rows(self) -> bool:
        """Whether neighbours in memory are looked at together."""
        return bool(self.data.ndim == 2)
