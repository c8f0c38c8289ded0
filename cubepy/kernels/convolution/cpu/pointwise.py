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


@cb.func
def finished(value, bias, add, n, f, pixel, plan):
    """Bias, what is added, and activation."""
    if bias is not None:
        value = value + cb.cast(bias[f], cb.f32)
    if add is not None:
        value = value + cb.cast(
            add.load((n, f, pixel), plan.lanes, valid=add.shape[2] - pixel), cb.f32
        )
    if plan.activation is not None:
        value = plan.activation(value)
    return value


@cb.func
def tile_of(block, panels, bias, add, out, n, at, f, here, pixel, depth, lines, plan):
    """`rows` filters from f on, of which `here` are there, times `lines` lines of pixels; one line
    may be cut.
    """
    rows, lanes = plan.rows, plan.lanes
    acc = cb.local((rows, lines), cb.f32, lanes=lanes)
    seen = cb.local(lines, cb.f32, lanes=lanes)
    for i in cb.unroll(range(rows)):
        for j in cb.unroll(range(lines)):
            acc[i, j] = cb.splat(0.0, lanes)
    k = 0
    stop = depth * lines * lanes
    step = depth * 0 + lines * lanes
    while k < stop:  # of unknown step, so that LLVM does not unroll it and run out of registers
        for j in range(lines):
            seen[j] = block.load(k + j * lanes, lanes)
        for i in cb.unroll(range(rows)):
            scale = cb.splat(panels[at + i], lanes)
            for j in range(lines):
                acc[i, j] = cb.fma(scale, seen[j], acc[i, j])
        at = at + plan.width
        k = k + step
    if plan.light and lines > 1:
        for i in cb.unroll(range(rows)):
            if i < here:
                for j in cb.unroll(range(lines)):
                    value = cb.cast(
                        finished(acc[i, j], bias, add, n, f + i, pixel + j * lanes, plan), out.dtype
                    )
                    if plan.streaming:
                        out.store_stream((n, f + i, pixel + j * lanes), value)
                    else:
                        out.store((n, f + i, pixel + j * lanes), value)
    else:
        done = cb.local((rows, lines), cb.f32, lanes=lanes)
        for i in cb.unroll(range(rows)):
            for j in cb.unroll(range(lines)):
                done[i, j] = acc[i, j]
        for i in range(cb.min(rows, here)):
            for j in range(lines):
                value = cb.cast(
                    finished(done[i, j], bias, add, n, f + i, pixel + j * lanes, plan), out.dtype
                )
                out.store(
                    (n, f + i, pixel + j * lanes), value, valid=out.shape[2] - pixel - j * lanes
                )


@cb.func
def all_filters(block, x, panels, bias, add, out, n, group, groups, n_panels, pixel, lines, plan):
    """Copy `lines` lines of pixels of all channels, and make all filters of a group for them."""
    lanes = plan.lanes
    depth, filters = x.shape[1] // groups, out.shape[1] // groups
    for c in range(depth):
        for j in cb.unroll(range(lines)):
            valid = x.shape[2] - pixel - j * lanes
            line = x.load((n, group * depth + c, pixel + j * lanes), lanes, valid=valid)
            block.store((c * lines + j) * lanes, cb.cast(line, cb.f32))
    for f in range(0, filters, plan.rows):
        at = ((group * n_panels + f // plan.width) * depth) * plan.width + f % plan.width
        tile_of(
            block,
            panels,
            bias,
            add,
            out,
            n,
            at,
            group * filters + f,
            filters - f,
            pixel,
            depth,
            lines,
            plan,
        )


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
    pixels = out.shape[2]
    blocks = pixels // block_pixels
    left = (pixels - blocks * block_pixels + plan.lanes - 1) // plan.lanes
    pos = cb.CUBE_POS
    cut = pos % (blocks + left)
    pos = pos // (blocks + left)
    group = pos % groups
    n = pos // groups
    block = cb.shared(plan.room, cb.f32)
    if cut < blocks:
        all_filters(
            block,
            x,
            panels,
            bias,
            add,
            out,
            n,
            group,
            groups,
            n_panels,
            cut * block_pixels,
            plan.lines,
            plan,
        )
    else:
        pixel = blocks * block_pixels + (cut - blocks) * plan.lanes
        all_filters(block, x, panels, bias, add, out, n, group, groups, n_panels, pixel, 1, plan)


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
