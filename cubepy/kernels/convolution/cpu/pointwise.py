"""The CPU's convolution with windows of one pixel and channels first: lines lie along the pixels.

It is a product of matrices, filters times channels, channels times pixels, and the result needs no
turning. A cube copies a block of pixels of all channels into memory of its own, where it stays
while all filters meet it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.cpu.implicit_gemm_plan import LIGHT, STREAM
from cubepy.kernels.convolution.cpu.register_tile import add_column
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.runtime.memory.address import address

LARGEST = 8192  # elements of a cube's block of the input, which stays in a first-level cache
LEAST = 8  # cubes that share the work


@dataclass(frozen=True)
class Points:
    """What changes the code.

    Attributes:
        rows, lines, lanes: a tile is `rows` filters times `lines` lines of pixels.
        width: filters of a panel, a multiple of `rows`.
        room: elements of the block of the input.
        activation: a func of the result, or None.
        light: whether it is so short that it may be written out for every line.
        streaming: whether results are stored past the caches.
    """

    rows: int
    lines: int
    lanes: int
    width: int
    room: int
    activation: Any
    light: bool
    streaming: bool


@cb.struct
class Pixels:
    """`lines` lines of pixels of an image from `pixel` on: of all channels of a group, `depth`, in
    `block`, and of the result.
    """

    block: Any
    epilogue: LineEpilogue
    n: Any
    pixel: Any
    depth: Any
    lines: cb.Comptime[int]
    plan: cb.Comptime[Any]

    def copy(self, x, channel):
        """All channels of a group, of which `channel` is the first, to the block."""
        lanes = self.plan.lanes
        for c in range(self.depth):
            for j in cb.unroll(range(self.lines)):
                at = self.pixel + j * lanes
                line = x.load((self.n, channel + c, at), lanes, valid=x.shape[2] - at)
                self.block.store((c * self.lines + j) * lanes, cb.cast(line, cb.f32))

    def tile(self, panels, at, f, here):
        """`rows` filters from f on, of which `here` are there, and whose panel begins at `at`; one
        line may be cut.
        """
        plan, lines, epilogue = self.plan, self.lines, self.epilogue
        rows, lanes = plan.rows, plan.lanes
        acc = cb.local((rows, lines), cb.f32, lanes=lanes)
        seen = cb.local(lines, cb.f32, lanes=lanes)
        for i in cb.unroll(range(rows)):
            for j in cb.unroll(range(lines)):
                acc[i, j] = cb.splat(0.0, lanes)
        k = 0
        stop = self.depth * lines * lanes
        step = self.depth * 0 + lines * lanes
        while k < stop:  # of unknown step, so that LLVM does not unroll it and run out of registers
            add_column(acc, seen, self.block, k, panels, range(rows), at)
            at = at + plan.width
            k = k + step
        if plan.light and lines > 1:
            for i in cb.unroll(range(rows)):
                if i < here:
                    for j in cb.unroll(range(lines)):
                        to = (self.n, f + i, self.pixel + j * lanes)
                        epilogue.finish(acc[i, j], to, None, plan.streaming)
        else:
            done = cb.local((rows, lines), cb.f32, lanes=lanes)
            for i in cb.unroll(range(rows)):
                for j in cb.unroll(range(lines)):
                    done[i, j] = acc[i, j]
            for i in range(cb.min(rows, here)):
                for j in range(lines):
                    pixel = self.pixel + j * lanes
                    epilogue.finish(
                        done[i, j], (self.n, f + i, pixel), epilogue.out.shape[2] - pixel
                    )


@cb.func
def all_filters(pixels, x, panels, group, groups, n_panels):
    """Copy some pixels of all channels, and make all filters of a group for them."""
    plan, depth, filters = pixels.plan, pixels.depth, pixels.epilogue.out.shape[1] // groups
    pixels.copy(x, group * depth)
    for f in range(0, filters, plan.rows):
        at = ((group * n_panels + f // plan.width) * depth) * plan.width + f % plan.width
        pixels.tile(panels, at, group * filters + f, filters - f)


@cb.kernel
def convolve_points(
    x: cb.Array, panels: cb.Array, bias, add, out: cb.Array, groups, n_panels, plan: cb.Comptime
):
    """out[n, f, p] = activation(sum over c of panels[f, c] * x[n, c, p] + bias[f] + add[n, f, p]).

    The filters of a group see its channels. x (N, C, pixels), out and add (N, filters, pixels);
    panels are flat. A cube does a block of pixels, the last one of an image what is left, line by
    line.
    """
    block_pixels = plan.lines * plan.lanes
    epilogue = LineEpilogue(out, plan.activation, bias, add, axis=1, joined="add")
    depth = x.shape[1] // groups
    blocks = out.shape[2] // block_pixels
    left = (out.shape[2] - blocks * block_pixels + plan.lanes - 1) // plan.lanes
    pos = cb.CUBE_POS
    cut = pos % (blocks + left)
    pos = pos // (blocks + left)
    group = pos % groups
    n = pos // groups
    block = cb.shared(plan.room, cb.f32)
    if cut < blocks:
        pixels = Pixels(block, epilogue, n, cut * block_pixels, depth, plan.lines, plan)
        all_filters(pixels, x, panels, group, groups, n_panels)
    else:
        pixel = blocks * block_pixels + (cut - blocks) * plan.lanes
        all_filters(
            Pixels(block, epilogue, n, pixel, depth, 1, plan), x, panels, group, groups, n_panels
        )


def shapes(properties: cb.DeviceProperties) -> tuple[tuple[int, int], ...]:
    """Filters and lines of the tiles that registers hold, the usual one first."""
    return (
        ((8, 3), (4, 6), (4, 3)) if properties.vector_registers >= 32 else ((4, 2), (4, 3), (8, 1))
    )


def fits(
    depth: int, width: int, properties: cb.DeviceProperties, shape: tuple[int, int] | None = None
) -> bool:
    """Whether a cube has the memory for a block of so many channels, and panels of such a width
    whole tiles.
    """
    rows, lines = shape or shapes(properties)[0]
    lanes = properties.register_bytes // 4
    return depth * lines * lanes <= LARGEST and width % rows == 0


def blocks_of(pixels: int, lines: int, lanes: int) -> tuple[int, int]:
    """Blocks of an image's pixels, and lines that are left."""
    blocks, rest = divmod(pixels, lines * lanes)
    return blocks, -(-rest // lanes)


def suits(images: int, pixels: int, properties: cb.DeviceProperties) -> bool:
    """Whether so many images (of each group) and pixels make enough cubes, and few lines that are
    half empty.
    """
    lanes, lines = properties.register_bytes // 4, shapes(properties)[0][1]
    blocks, left = blocks_of(pixels, lines, lanes)
    return images * (blocks + left) >= LEAST and 16 * pixels >= 15 * lanes * (blocks * lines + left)


def by_points(
    x: Any,
    panels: Any,
    bias: Any,
    add: Any,
    out: Any,
    function: Any,
    properties: cb.DeviceProperties,
    shape: tuple[int, int] | None = None,
) -> None:
    """out (N, filters, pixels) of x (N, C, pixels), both contiguous; panels (groups, panels,
    channels, width).

    `shape`: filters and lines of a tile, of which `fits` is true.
    """
    groups, n_panels, _, width = panels.shape
    lanes = properties.register_bytes // 4
    rows, lines = shape or shapes(properties)[0]
    cubes = out.shape[0] * groups * sum(blocks_of(out.shape[2], lines, lanes))
    even = lanes * out.itemsize == 64 and out.shape[2] % lanes == 0 and address(out) % 64 == 0
    streaming = even and out.nbytes >= STREAM
    plan = Points(rows, lines, lanes, width, LARGEST, function, function in LIGHT, streaming)
    convolve_points[cubes, 1](
        x, panels.reshape(-1), bias, add, out, groups, n_panels, plan, mode="unchecked"
    )
