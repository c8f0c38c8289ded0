"""The depthwise convolution on Hopper, channels last: the copy engine loads boxes of the input to
shared memory.

A box is what a tile of the output sees, with zeros beyond the edges, so nobody asks where the edges
are; several cubes of a core have theirs under way. A unit does a part of a tile for a line of
channels: it walks down the rows of the box, reads a row once for all rows of its part that see it,
and writes a row when it is done. Which pixels see which is worked out when the kernel is compiled.
That serves the gradient by the input too: pixel i sees tap k of the gradient's pixel (i + pad - k
dilation) / stride, if that is whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.gpu.depthwise_strip import (
    FETCHED,
    LONG,
    MADE,
    TAPS,
    WRITTEN_OUT,
    Settings,
    UnitTile,
    begin_at,
    instructions,
    walk,
)
from cubepy.kernels.convolution.problem import Problem, in_three
from cubepy.kernels.convolution.sm90.operand_layout import in_boxes
from cubepy.kernels.matmul.gpu.operands import ALIGNMENT
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.lines import multiple
from cubepy.runtime.symbolic.cached import cached

SIDES = (1, 2, 4, 7, 8, 14, 16, 28, 32)
"""Sides of tiles, in places of the output."""
ALIGNED = 1024
"""Bytes of shared memory that start as the copy engine wants."""
ROOM = 80 * 1024
"""Bytes of a box, at most: two cubes of a core then have theirs at once."""


@cb.kernel(fast_math=("contract", "nsz"))
def channelwise_boxes(
    x: cb.TensorMap, w: cb.Array, bias, out: cb.Array, sizes, counts, plan: cb.Comptime[UnitTile]
):
    """out[n, h, w, c] = activation(sum over the window of x[pixel seen by tap] * w[c, tap] +
    bias[c]).

    x (N, H, W, C) has boxes as `Strip.box`; w (C, taps) and out (N * H * W * C) are contiguous.
    `sizes` are the four of out, `counts` the tiles along its height and width and its blocks of
    channels, the fastest of a launch's cubes.
    """
    cb.resident(plan.cubes)
    lanes, channels = plan.lanes, plan.channels
    taps = plan.window[0] * plan.window[1]
    images, high, wide = plan.tile
    full = cb.barrier(1, 1)
    tile = cb.shared(max(x.nbytes, ALIGNED) // x.dtype.itemsize, x.dtype)
    scale = cb.shared(taps * channels, cb.f32)
    c = cb.CUBE_POS % counts[2] * channels
    at = cb.CUBE_POS // counts[2]
    left = at % counts[1] * wide
    at = at // counts[1]
    top = at % counts[0] * high
    first = at // counts[0] * images
    if cb.UNIT_POS == 0:
        cb.barrier_expect(full, 0, x.nbytes)
        origin = (
            first,
            begin_at(top, 0, plan) + plan.low(0),
            begin_at(left, 1, plan) + plan.low(1),
            c,
        )
        cb.tma_load(tile, 0, x, origin, full, 0)
    for k in range(cb.UNIT_POS, taps * channels, cb.CUBE_DIM):
        if c + k // taps < sizes[3]:
            scale[k % taps * channels + k // taps] = cb.cast(w[c + k // taps, k % taps], cb.f32)
    cb.sync_cube()
    line = cb.UNIT_POS % plan.lines * lanes
    start = cb.splat(cb.cast(0.0, cb.f32), lanes)
    if bias is not None:
        start = cb.cast(bias.load(c + line, lanes, valid=sizes[3] - c - line), cb.f32)
    _, down, across = plan.unit_tiles
    cb.barrier_wait(full, 0, 0)
    for unit_tile in range(
        cb.UNIT_POS // plan.lines, images * down * across, cb.CUBE_DIM // plan.lines
    ):
        column = unit_tile % across * plan.pixels
        row = unit_tile // across % down * plan.rows
        image = unit_tile // (across * down)
        n, h, v = first + image, top + row, left + column
        if n < sizes[0] and c + line < sizes[3]:
            begin = (image * plan.box[1] + begin_at(row, 0, plan)) * plan.box[2] + begin_at(
                column, 1, plan
            )
            corner = multiple(((n * sizes[1] + h) * sizes[2] + v) * sizes[3] + c + line, lanes)
            step = multiple(sizes[2] * sizes[3], lanes), multiple(sizes[3], lanes)
            walk(
                tile,
                scale,
                line,
                start,
                out,
                begin * channels + line,
                (sizes[1] - h, sizes[2] - v),
                step,
                corner,
                plan,
            )


def tiles_of(
    n: int,
    out_size: tuple[int, int],
    block: int,
    itemsize: int,
    settings: Settings,
    back: bool,
    function: Any,
) -> Iterator[UnitTile]:
    """Blueprints whose boxes suit the copy engine and shared memory."""
    window, stride, _, _ = settings
    rolled = math.prod(window) > WRITTEN_OUT and not (back and max(stride) > 1)
    skip = stride if back else (1, 1)
    for high, wide in itertools.product(*([s for s in SIDES if s < 2 * k] for k in out_size)):
        for rows, unit_columns in itertools.product(LONG, LONG):
            if (
                high % rows
                or wide % unit_columns
                or rows % skip[0]
                or unit_columns % skip[1]
                or rows * unit_columns > MADE
            ):
                continue
            if high >= out_size[0] and wide >= out_size[1]:
                images = [s for s in SIDES if s < 2 * n]
            else:
                images = [1]
            for many in images:
                plan = UnitTile(  # type: ignore[call-arg]
                    (many, high, wide),
                    block,
                    2,
                    rows,
                    unit_columns,
                    *settings,  # type: ignore[arg-type]
                    back,
                    function,
                    1,
                    rolled,  # type: ignore[arg-type]
                )
                if max(plan.box) <= 256 and math.prod(plan.box) * itemsize <= ROOM:
                    yield plan


def cost_of(
    plan: UnitTile, itemsize: int, moved: int, each: float, cores: int, tiles: int
) -> float:
    """Cycles of all tiles, about: the bytes that a core moves, the instructions that it starts, or
    how long a cube waits for its bytes and works alone, whichever takes longest (as on an H200).
    """
    unit_tiles = math.prod(plan.unit_tiles) * plan.lines * plan.parts / plan.units
    planes = plan.units / 32
    rate = 2.6 * min(1.0, FETCHED * (plan.window[0] if plan.rolled else 1) / each)
    rate *= (
        min(1.0, plan.cubes * planes / 14) ** 0.5
    )  # with fewer planes of units a core waits for results
    bounds = (
        moved / 18,
        each * unit_tiles * planes / rate,
        (1500 + each * unit_tiles / 0.45) / plan.cubes,
    )
    return max(1.0, tiles / cores) * (max(bounds) + 0.15 * sum(bounds))


def block_of(channels: int, itemsize: int) -> int:
    """Channels of a cube: 128 bytes of them at most, in blocks that are alike."""
    measure = ALIGNMENT // itemsize
    blocks = -(-channels * itemsize // 128)
    return -(-channels // (blocks * measure)) * measure


def settings_of(view: Any, problem: Problem, properties: cb.DeviceProperties) -> Any:
    """Window, stride, dilation and padding along height and width, where the copy engine takes view
    (N, *size, C) and its pixels in 32 bits; else None.
    """
    flat = problem.window[0] == problem.stride[0] == 1 and problem.pad[0] == 0 and view.ndim <= 4
    if not flat or "tma" not in properties.features or view.itemsize not in (2, 4):
        return None
    if view.shape[-1] * view.itemsize % ALIGNMENT:
        return None
    return tuple(
        tuple(a[1:]) for a in (problem.window, problem.stride, problem.dilation, problem.pad)
    )


@cached
def plan_for(
    n: int,
    out_size: tuple[int, int],
    channels: int,
    itemsize: int,
    settings: Settings,
    back: bool,
    function: Any,
    cores: int,
) -> UnitTile | None:
    """The blueprint that takes least by an estimate, or None; `settings` are window, stride,
    dilation and padding.
    """
    block = block_of(channels, itemsize)
    best: tuple[float, UnitTile] | None = None
    for plan in tiles_of(n, out_size, block, itemsize, settings, back, function):
        size, taps = math.prod(plan.box) * itemsize, math.prod(plan.window)
        rows = plan.rows if plan.rolled else min(plan.rows, plan.window[0])
        held = (
            plan.lanes
            * ((plan.window[1] if plan.rolled else taps) + rows * plan.pixels + plan.columns_seen)
            + 56
        )
        cubes = min(
            8, (224 << 10) // (size + 4 * taps * block + 2048), (1 << 16) // (plan.units * held)
        )
        if cubes:
            exact = out_size[0] % plan.tile[1] == out_size[1] % plan.tile[2] == 0
            plan = replace(plan, cubes=cubes, exact=exact)
            moved = size + math.prod(plan.tile) * block * itemsize
            tiles = math.prod(plan.counts(n, out_size, channels))
            cost = cost_of(plan, itemsize, moved, instructions(plan, itemsize), cores, tiles)
            if best is None or cost < best[0]:
                best = cost, plan
    return best and best[1]


def by_boxes_of_channels(
    view: Any,
    w: Any,
    bias: Any,
    out: Any,
    problem: Problem,
    function: Any,
    properties: cb.DeviceProperties,
    back: bool = False,
) -> bool:
    """out = function(convolution + bias) where every channel has one filter, if the kernel takes
    it.

    view is (N, *size, C), w (C, 1, *window), out (N, *out, C), contiguous. With `back`, out is the
    gradient by the input of a convolution as `problem` has it, and view the gradient of its result.
    """
    settings, c = settings_of(view, problem, properties), view.shape[-1]
    if settings is None or w.shape[:2] != (c, 1) or view.dtype != w.dtype:
        return False
    if math.prod(problem.window) > TAPS or out.size >= 1 << 31:
        return False
    x, result = in_boxes(view), in_three(out)[:, 0]
    sizes = (*result.shape[:3], c)
    plan = plan_for(
        sizes[0], sizes[1:3], c, view.itemsize, settings, back, function, properties.cores
    )  # type: ignore[arg-type]
    if plan is None:
        return False
    counts = plan.counts(sizes[0], sizes[1:3], c)
    channelwise_boxes[math.prod(counts), plan.units](
        cb.tensor_map(x, plan.box, swizzle=0),
        contiguous(w).reshape(c, -1),
        bias,
        out.reshape(-1),
        sizes,
        counts[1:],
        plan,
        mode="unchecked",
    )
    return True


def takes_back(view: Any, w: Any, problem: Problem, properties: cb.DeviceProperties) -> bool:
    """Whether there is a plan for the gradient by the input, of `problem`."""
    settings, n, c = settings_of(view, problem, properties), view.shape[0], view.shape[-1]
    fits = settings is not None and view.dtype == w.dtype and math.prod(problem.window) <= TAPS
    if not fits or n * c * math.prod(problem.out) >= 1 << 31:
        return False
    how = (c, view.itemsize, settings, True, None, properties.cores)
    return plan_for(n, problem.out[1:], *how) is not None  # type: ignore[arg-type]
