"""What is to be scanned: rows (m, n), or (batch, n, columns) along n."""

from __future__ import annotations

from typing import Any, NamedTuple

from cubepy.lang.dtypes import DType


class Scan(NamedTuple):
    """The running `step` along n of contiguous arrays, in `acc`, which begins with `start`;
    `exclusive`: of what comes before an element, without it.
    """

    x: Any
    out: Any
    step: Any
    start: int
    acc: DType
    exclusive: bool

    @property
    def by_rows(self) -> bool:
        """Whether the scan goes along neighbours in memory."""
        return bool(self.x.ndim == 2)

    @property
    def how(self) -> tuple[Any, int, DType, bool]:
        """What kernels are told of the scan."""
        return self.step, self.start, self.acc, self.exclusive


class Mask(NamedTuple):
    """What a mask (bytes, rank 1) says of the elements of an array of a shape, and of how many, to
    `count`: their indices, to the first columns of `out`, which has a row for each axis; or where
    there is an x (rank 2) its rows, to the first ones of `out`.
    """

    mask: Any
    x: Any
    out: Any
    count: Any
    shape: tuple[int, ...]
