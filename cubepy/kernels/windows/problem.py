"""What banded maps are to their routines."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels.windows.banded import SAME, Band
from cubepy.tune import CpuRoutine


class Banded(NamedTuple):
    """Bands along the last axes of x, but for the channels where those are `last`, into `out`; both
    are contiguous and not empty.
    """

    x: Any
    bands: list[Band]
    last: bool
    out: Any

    @property
    def acc(self) -> Any:
        """The dtype that sums have."""
        return cb.f64 if self.x.itemsize == 8 else cb.f32

    @property
    def first(self) -> int:
        """The axis of the first band."""
        return self.x.ndim - len(self.bands) - self.last  # type: ignore[no-any-return]

    @property
    def image(self) -> tuple[Any, Any, Band, Band]:
        """Both arrays as (b, height, width, channels) or (planes, height, width), and the bands
        down and across; a line is an image of one row.
        """
        down, across = self.bands if len(self.bands) == 2 else (SAME, *self.bands)
        tail = self.x.shape[-1:] if self.last else ()
        return (
            self.x.reshape(-1, down.columns, across.columns, *tail),
            self.out.reshape(-1, down.rows, across.rows, *tail),
            down,
            across,
        )


class ImageRoutine(CpuRoutine):
    """A routine of CPUs for lines and images in the memory of the host; `unfit_image` says what
    else is in the way.
    """

    def unfit(self, p: Banded, properties: cb.DeviceProperties) -> str | None:
        """What is wrong with the number of axes, or the image."""
        if len(p.bands) > 2 or not isinstance(p.x, np.ndarray):
            return "for images in the memory of the host"
        return self.unfit_image(p, properties)

    def unfit_image(self, p: Banded, properties: cb.DeviceProperties) -> str | None:
        """Why the routine is not for the image, or None when it is."""
        raise NotImplementedError
