"""Images at the positions of a grid (Jaderberg et al., 2015), and the gradients of that."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import cubepy as cb
from cubepy.config import config
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import wrapper
from cubepy.kernels.interpolate.grid_kernels import (
    Sampling,
    sample,
    sample_by_grid,
    sample_by_image,
    sample_by_image_atomic,
)
from cubepy.kernels.movement.copy import contiguous
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine, Op, Routine

UNITS = 128  # of a cube of a GPU
EACH = 8  # channels of a unit, for which positions are found once
CUBES = 8  # that a gradient by an image is for, where there are so many channels


class Sampled(NamedTuple):
    """Images (n, c, pixels) of a size, a grid (n, positions * axes) and a result (n, c, positions),
    all contiguous. What is sought is written: the result, or the gradient by grid or images.

    Attributes:
        x: the images; None where their gradient is sought.
        grid: positions, each the last axis first.
        grad: of the result; None where the result is sought.
        out: what is written.
        size: of an image.
        nearest, padding, align: see `Sampling`.
    """

    x: Any
    grid: Any
    grad: Any
    out: Any
    size: tuple[int, ...]
    nearest: bool
    padding: str
    align: bool

    @property
    def acc(self) -> Any:
        """The dtype of sums."""
        image = self.out if self.x is None else self.x
        return cb.f64 if image.itemsize == 8 else cb.f32

    def how(self, lanes: int) -> Sampling:
        """With so many positions a line."""
        exact = cb.f64 if self.grid.itemsize == 8 else cb.f32
        index = cb.i32 if math.prod(self.size) < 1 << 31 else cb.i64
        given = len(self.size), self.nearest, self.padding, self.align
        return Sampling(*given, self.acc, exact, index, lanes)

    def lines(self, properties: cb.DeviceProperties) -> tuple[int, int]:
        """Units of a cube, and positions of a unit."""
        return (UNITS, 1) if properties.plane_size > 1 else (1, properties.lanes(self.acc))


class Read(Routine):
    """A unit reads a line of positions, of one where units work in planes."""

    name = "lines"

    def launch(self, p: Sampled, properties: cb.DeviceProperties) -> None:
        """Positions are found once for all channels of a unit."""
        (images, channels, count), (units, lanes) = p.out.shape, p.lines(properties)
        each = channels if units == 1 else EACH
        total = images * -(-channels // each) * -(-count // lanes)
        sample[-(-total // units), units](
            p.x, p.grid, p.out, p.size, each, total, p.how(lanes), mode="unchecked"
        )


class ByGrid(Routine):
    """A unit does a line of positions, and sums up all channels."""

    name = "lines"

    def launch(self, p: Sampled, properties: cb.DeviceProperties) -> None:
        """The positions of an image are independent."""
        (images, _, count), (units, lanes) = p.grad.shape, p.lines(properties)
        total = images * -(-count // lanes)
        sample_by_grid[-(-total // units), units](
            p.x, p.grid, p.grad, p.out, p.size, total, p.how(lanes), mode="unchecked"
        )


class Atomic(GpuRoutine):
    """A unit adds a position's parts to its corners, in any order."""

    name = "atomic"

    def unfit(self, p: Sampled, properties: cb.DeviceProperties) -> str | None:
        """Where their order must be fixed."""
        return "its order is not fixed" if config.deterministic else None

    def launch(self, p: Sampled, properties: cb.DeviceProperties) -> None:
        """Narrow floats are summed up in f32."""
        sums = _sums_of(p)
        to = p.out if sums is None else sums
        to[...] = 0
        images, channels, count = p.grad.shape
        total = images * -(-channels // EACH) * count
        sample_by_image_atomic[-(-total // UNITS), UNITS](
            p.grad, p.grid, to, p.size, EACH, total, p.how(1), mode="unchecked"
        )
        if sums is not None:
            p.out[...] = sums


class InOrder(Routine):
    """A unit owns some channels of an image, and does all positions in order."""

    name = "in_order"

    def launch(self, p: Sampled, properties: cb.DeviceProperties) -> None:
        """On any device."""
        (images, channels, _), (units, lanes) = p.grad.shape, p.lines(properties)
        each = 1 if units > 1 else min(EACH, max(1, images * channels // CUBES))
        sample_by_image[images * -(-channels // each), 1](
            p.grad, p.grid, _sums_of(p), p.out, p.size, each, p.how(lanes), mode="unchecked"
        )


def _sums_of(p: Sampled) -> Any:
    """Where sums of narrow floats are made."""
    return memory.empty(p.out.shape, p.acc.numpy) if p.out.itemsize < 4 else None


GRID_SAMPLE = Op("grid_sample", [Read()])
GRID_SAMPLE_GRID = Op("grid_sample_grid", [ByGrid()])
GRID_SAMPLE_IMAGE = Op("grid_sample_image", [Atomic(), InOrder()])


def _flat(x: Any, kept: int) -> Any:
    """A contiguous array whose axes behind the first ones are one."""
    return contiguous(x).reshape(*x.shape[:kept], math.prod(x.shape[kept:]))


@repeated
def grid_sample(input: Any, grid: Any, mode: str, padding: str, align: bool) -> Any:
    """Images (N, C, *size) at a grid (N, *out, axes), its positions from -1 to 1 with the last axis
    first; NaN is -1. (N, C, *out)

    Args:
        input: floats.
        grid: floats.
        mode: "linear" or "nearest".
        padding: "zeros", "border" or "reflection".
        align: -1 and 1 are the middles of the outermost pixels.

    Example:
        >>> import numpy as np
        >>> x, grid = np.array([[[[1.0, 3.0]]]]), np.array([[[[0.0, 0.0]]]])
        >>> grid_sample(x, grid, "linear", "zeros", False)
        array([[[[2.]]]])
    """
    wrap, x, at = wrapper(input), array_of(input, "input"), array_of(grid, "grid")
    out = memory.empty((*x.shape[:2], *at.shape[1:-1]), x.dtype)
    if out.size:
        how = x.shape[2:], mode == "nearest", padding, align
        GRID_SAMPLE.run(Sampled(_flat(x, 2), _flat(at, 1), None, _flat(out, 2), *how))
    return wrap(out)


@repeated
def grid_sample_grid(input: Any, grid: Any, grad: Any, mode: str, padding: str, align: bool) -> Any:
    """The gradient of `grid_sample` by its grid, from that by its result.

    Example:
        >>> import numpy as np
        >>> x, grid = np.array([[[[1.0, 3.0]]]]), np.array([[[[0.0, 0.0]]]])
        >>> grid_sample_grid(x, grid, np.ones((1, 1, 1, 1)), "linear", "border", False)[..., 0]
        array([[[2.]]])
    """
    wrap, x, at = wrapper(input), array_of(input, "input"), array_of(grid, "grid")
    g, out = array_of(grad, "grad"), memory.empty(at.shape, at.dtype)
    if out.size:
        how = x.shape[2:], mode == "nearest", padding, align
        arrays = _flat(x, 2), _flat(at, 1), _flat(g, 2), _flat(out, 1)
        GRID_SAMPLE_GRID.run(Sampled(*arrays, *how))
    return wrap(out)


@repeated
def grid_sample_image(
    grad: Any, grid: Any, size: tuple[int, ...], mode: str, padding: str, align: bool
) -> Any:
    """The gradient of `grid_sample` by its images of a size, from that by its result.

    Example:
        >>> import numpy as np
        >>> grad, grid = np.ones((1, 1, 1, 1)), np.array([[[[0.0, 0.0]]]])
        >>> grid_sample_image(grad, grid, (1, 2), "linear", "zeros", False)
        array([[[[0.5, 0.5]]]])
    """
    wrap, g, at = wrapper(grad), array_of(grad, "grad"), array_of(grid, "grid")
    out = memory.empty((*g.shape[:2], *size), g.dtype)
    if out.size:
        how = tuple(size), mode == "nearest", padding, align
        GRID_SAMPLE_IMAGE.run(Sampled(None, _flat(at, 1), _flat(g, 2), _flat(out, 2), *how))
    return wrap(out)
