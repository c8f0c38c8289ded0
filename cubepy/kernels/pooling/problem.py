"""What max pools and their gradients are to their routines."""

from __future__ import annotations

from typing import Any, NamedTuple

from cubepy.kernels.windows import disjoint_gpu
from cubepy.kernels.windows.rows_gpu import TAPS

Settings = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Kernel, stride, padding and dilation along depth, height and width."""


class MaxPool(NamedTuple):
    """The largest values of windows, or of equal parts, of x into `out`, and where they are into
    `index` (or None); all are (batch, depth, height, width, channels) and contiguous.

    Attributes:
        settings: of windows.
        least: what no value is below.
        parts: whether windows are equal parts.
        last: whether channels are last in memory; images are a batch with one channel otherwise.
        axes: of the images that were given.
    """

    x: Any
    out: Any
    index: Any
    settings: Any
    least: Any
    parts: bool = False
    last: bool = True
    axes: int = 2

    @property
    def windows(self) -> Settings:
        """Settings of windows, also of parts of equal size."""
        if not self.parts:
            return self.settings  # type: ignore[no-any-return]
        size, made = self.x.shape[1:4], self.out.shape[1:4]
        kernel = tuple(-(-n // m) for n, m in zip(size, made, strict=True))
        return kernel, kernel, (0, 0, 0), (1, 1, 1)

    @property
    def wide_parts(self) -> bool:
        """Whether windows are parts that are not equal, or too long to be written out."""
        size, made = self.x.shape[1:4], self.out.shape[1:4]
        even = disjoint_gpu.even(size, made, self.settings, self.parts)
        return (self.parts and not even) or (even and max(self.windows[0]) > TAPS)


class MaxPoolBack(NamedTuple):
    """The gradient of a max pool by its input: `grad` and `index` of the results, `out` of the
    input, as in `MaxPool`.
    """

    grad: Any
    index: Any
    out: Any
    settings: Any
    parts: bool = False
    last: bool = True
