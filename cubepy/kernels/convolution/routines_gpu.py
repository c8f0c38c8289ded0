"""The routine of convolutions on GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.problem import Convolution, shape_of
from cubepy.kernels.convolution.routes_gpu import convolve_on_gpu
from cubepy.kernels.convolution.sm90.implicit_gemm_plan import Boxes, boxes_for
from cubepy.tune import TunedRoutine


class BoxesOnGpu(TunedRoutine):
    """What a GPU does: a matrix product, a kernel for channels with filters of their own, or boxes
    of pixels.
    """

    name = "boxes"

    def supports(self, p: Convolution, properties: cb.DeviceProperties) -> str | None:
        """On a GPU."""
        return None if p.on_gpu else "for GPUs"

    def blueprints(self, p: Convolution, properties: cb.DeviceProperties) -> Iterator[Boxes]:
        """By the rules; then boxes of other tiles, and other ranges of the sum."""
        yield Boxes()
        yield from boxes_for(
            shape_of(p), p.dtype, p.weight, p.groups, p.channels, p.filters, properties
        )

    def launch(self, blueprint: Boxes, p: Convolution, args: tuple[Any, ...]) -> None:
        """Images are laid out where the copy engine cannot bring them."""
        view, w, bias, add, out, function = args
        convolve_on_gpu(p, view, w, bias, add, out, function, blueprint)


ROUTINES = {"convolution": (BoxesOnGpu(),)}
