"""The routines of convolutions on GPUs, in order of preference."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.gpu.implicit_gemm import ImplicitGemm, by_mma
from cubepy.kernels.convolution.problem import Convolution, shape_of
from cubepy.kernels.convolution.routes_gpu import convolve_on_gpu
from cubepy.kernels.convolution.sm90.implicit_gemm_plan import Boxes, boxes_for, suited
from cubepy.kernels.convolution.sm90.operand_layout import lies_well
from cubepy.kernels.matmul.gpu.mma_multistage import DEPTH_BYTES, PIECE
from cubepy.kernels.matmul.gpu.operands import NARROW_FLOATS
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import GpuRoutine, TunedRoutine

COSTS = {True: (3.4, 0.28), False: (4.2, 0.7)}
"""Microseconds of a launch, and of a step of a tile of 64 x 64, where pieces are copied and where
they are put together (measured on an H200 with 160 convolutions, as what follows).
"""
ASIDE, LAID = 4.9, {True: 9.0, False: 8.0}
"""Those up to which the kernels that the copy engine brings images to are slower, and the same
where they lay out image or filters first, or have few channels: a box has a row of 128 bytes.
"""
FEW = 16
"""Channels of a pixel that are few for a box."""


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


def cost_of(p: Convolution, properties: cb.DeviceProperties) -> float:
    """Microseconds of a convolution in tiles of 64 x 64, by what was measured."""
    shape = shape_of(p)
    tiles = -(-p.n * math.prod(shape.out) // 64) * -(-p.filters // 64)
    length = p.channels * math.prod(shape.window) * as_dtype(p.dtype).bits // 8
    start, step = COSTS[is_copied(p)]
    return start + step * -(-length // DEPTH_BYTES) * max(1.0, tiles / properties.cores)


def is_copied(p: Convolution) -> bool:
    """Whether a pixel's channels are whole pieces of 16 bytes."""
    whole = p.channels * as_dtype(p.dtype).bits // 8 % PIECE == 0
    return whole and p.layout in ("last", "both")


class MmaOnGpu(GpuRoutine, TunedRoutine):
    """Images of any layout, gathered by the tiles of one product."""

    name = "mma"

    def unfit(self, p: Convolution, properties: cb.DeviceProperties) -> str | None:
        """The device has mma, and image and filters one of its dtypes."""
        if not {"mma", "copy_async"} <= properties.features:
            return "the device has no matrix units"
        shape, size = shape_of(p), as_dtype(p.dtype).bits // 8
        if p.dtype != p.weight or not (p.dtype in NARROW_FLOATS or (p.dtype == "f32" and p.tf32)):
            return f"matrix units do not take {p.dtype} and {p.weight}"
        if p.groups > 1 or (shape.window == shape.stride == (1, 1, 1) and not any(shape.pad)):
            return "for one group, and windows of several pixels"
        boxes = suited(shape, p.dtype, p.weight, properties)
        if is_copied(p) and "wgmma" not in properties.features:
            return None
        last = p.layout in ("last", "both")
        lies = boxes and last and lies_well(p.n, p.channels, p.filters, shape, size)
        most = ASIDE if lies and p.channels > FEW else LAID[is_copied(p)]
        quick = cost_of(p, properties) <= most
        return None if quick else "other ways are quicker where there is more to do"

    def blueprints(self, p: Convolution, properties: cb.DeviceProperties) -> Iterator[ImplicitGemm]:
        """Large tiles where they fill the device."""
        pixels = p.n * math.prod(shape_of(p).out)
        tiles = -(-pixels // 128) * -(-p.filters // 128)
        sizes = [ImplicitGemm(128, 128, 3), ImplicitGemm(64, 64, 4)]
        yield from sizes if tiles >= properties.cores else sizes[::-1]

    def launch(self, blueprint: ImplicitGemm, p: Convolution, args: tuple[Any, ...]) -> None:
        """In one launch."""
        view, w, bias, add, out, function = args
        by_mma(blueprint, view, w, bias, add, out, shape_of(p), p.last, function)


ROUTINES = {"convolution": (MmaOnGpu(), BoxesOnGpu())}
