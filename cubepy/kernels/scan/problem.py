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
