"""The depthwise convolution's gradient by its filters on Hopper, channels last, from boxes in
shared memory.

The copy engine loads a tile of the gradient and the box of the input that it sees
(convolution/sm90/depthwise_nhwc.py), with zeros beyond the edges. A unit walks down parts of the
tile for a line of channels and keeps the sums of all taps in registers. A cube does many tiles of
the same channels, one after the other (those of other cubes of the core come meanwhile), then adds
what its units have; a second kernel adds what the cubes have, in an order that never changes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.gpu.depthwise_strip import (
    COLUMNS,
    ROWS,
    TAPS,
    Settings,
    UnitTile,
    add_columns,
    add_unit_tile,
    instructions,
)
from cubepy.kernels.convolution.problem import WeightGradient
from cubepy.kernels.convolution.sm90.depthwise_nhwc import (
    ALIGNED,
    ROOM,
    block_of,
    cost_of,
    settings_of,
    tiles_of,
)
from cubepy.kernels.convolution.sm90.operand_layout import in_boxes
from cubepy.runtime import memory
from cubepy.runtime.symbolic.cached import cached
from cubepy.tune import GpuRoutine


@cb.func
def load_tile(tile, given, x, grad, at, counts, full, plan):
    """Start bringing a tile of the gradient, and what it sees."""
    left = at % counts[1] * plan.tile[2]
    at = at // counts[1]
    top = at % counts[0] * plan.tile[1]
    first = at // counts[0] * plan.tile[0]
    c = cb.CUBE_POS % counts[2] * plan.channels
    cb.barrier_expect(full, 0, x.nbytes + grad.nbytes)
    corner = (first, top * plan.stride[0] - plan.pad[0], left * plan.stride[1] - plan.pad[1], c)
    cb.tma_load(tile, 0, x, corner, full, 0)
    cb.tma_load(given, 0, grad, (first, top, left, c), full, 0)


@cb.kernel(fast_math=("contract", "nsz"))
def channelwise_tiles(
    x: cb.TensorMap, grad: cb.TensorMap, sums: cb.Array, counts, tiles, plan: cb.Comptime[UnitTile]
):
    """sums[range, c, tap] = sum over a range's pixels of grad[pixel, c] * x[pixel seen by tap, c].

    x and grad are (N, H, W, C). `counts` are the tiles along height and width, and blocks of
    channels; these are the fastest of a launch's cubes, and a range has every so many of all
    `tiles`.
    """
    cb.resident(plan.cubes)
    lanes, channels = plan.lanes, plan.channels
    high, wide = plan.window
    images, down, across = plan.unit_tiles
    full = cb.barrier(1, 1)
    tile, given = cb.shared(room_of(x), x.dtype), cb.shared(room_of(grad), x.dtype)
    scratch = cb.shared(plan.units // plan.lines * wide * channels, cb.f32)
    part, ranges = cb.CUBE_POS // counts[2], cb.CUBE_COUNT // counts[2]
    if cb.UNIT_POS == 0:
        load_tile(tile, given, x, grad, part, counts, full, plan)
    line, mine = cb.UNIT_POS % plan.lines * lanes, cb.UNIT_POS // plan.lines
    own = high // plan.parts  # rows of the window that a unit does, from its first on
    first = mine % plan.parts * own
    acc = cb.local(own * wide, cb.f32, lanes=lanes)
    for k in cb.unroll(range(own * wide)):
        acc[k] = cb.splat(0.0, lanes)
    phase = 0
    for at in range(part, tiles, ranges):
        cb.barrier_wait(full, 0, phase)
        for unit_tile in range(
            mine // plan.parts, images * down * across, cb.CUBE_DIM // (plan.lines * plan.parts)
        ):
            column = unit_tile % across * plan.pixels
            row = unit_tile // across % down * plan.rows
            image = unit_tile // (across * down)
            below = row * plan.stride[0] + first * plan.dilation[0]
            begin = (image * plan.box[1] + below) * plan.box[2] + column * plan.stride[1]
            beside = (image * plan.tile[1] + row) * plan.tile[2] + column
            add_unit_tile(acc, tile, begin * channels + line, given, beside * channels + line, plan)
        cb.sync_cube()
        if cb.UNIT_POS == 0 and at + ranges < tiles:
            load_tile(tile, given, x, grad, at + ranges, counts, full, plan)
        phase = 1 - phase
    c = cb.CUBE_POS % counts[2] * channels
    for u in cb.unroll(range(own)):
        for v in cb.unroll(range(wide)):
            scratch.store((mine * wide + v) * channels + line, acc[u * wide + v])
        cb.sync_cube()
        for k in range(cb.UNIT_POS, plan.parts * wide * channels, cb.CUBE_DIM):
            total = cb.cast(0.0, cb.f32)
            for n in cb.unroll(range(0, plan.units // plan.lines, plan.parts)):
                total = total + scratch[n * wide * channels + k]
            tap = k // channels
            if c + k % channels < sums.shape[1]:
                sums[part, c + k % channels, u * wide + tap] = total
        cb.sync_cube()


@cb.func
def room_of(x):
    """Elements of shared memory for a box: a multiple of what the copy engine wants."""
    return -(-x.nbytes // ALIGNED) * ALIGNED // x.dtype.itemsize


@cached
def plan_for(
    n: int, out_size: tuple[int, int], channels: int, itemsize: int, settings: Settings, cores: int
) -> UnitTile | None:
    """The blueprint that takes least by an estimate, or None; `settings` are window, stride,
    dilation and padding.
    """
    block = block_of(channels, itemsize)
    best: tuple[float, UnitTile] | None = None
    for plan in tiles_of(n, out_size, block, itemsize, settings, False, None):
        size = (math.prod(plan.box) + math.prod(plan.tile) * block) * itemsize
        if size > ROOM:
            continue
        taps, seen = plan.window[1] * (1 if plan.rolled else plan.window[0]), plan.columns_seen
        rows = 1 if plan.rolled else min(plan.rows, plan.window[0])
        held = plan.lanes * (taps + rows * plan.pixels + seen) + 40
        plan = replace(plan, parts=plan.window[0] if plan.rolled else 1)
        scratch = plan.units // plan.lines * plan.window[1] * block * 4
        cubes = min(
            8, (224 << 10) // (size + scratch + 3 * ALIGNED), (1 << 16) // (plan.units * held)
        )
        if cubes and plan.units // plan.lines % plan.parts == 0:
            plan = replace(plan, cubes=cubes)
            tiles = math.prod(plan.counts(n, out_size, channels))
            given = plan.parts * plan.rows * plan.pixels
            each = instructions(plan, itemsize, given) / plan.parts
            cost = cost_of(plan, itemsize, size, each, cores, tiles)
            if best is None or cost < best[0]:
                best = cost, plan
    return best and best[1]


class Boxes(GpuRoutine):
    """Every channel has its own filter, and boxes of channels come by the copy engine."""

    name = "boxes"

    def unfit(self, p: WeightGradient, properties: cb.DeviceProperties) -> str | None:
        """Depthwise, few taps, channels that the copy engine takes."""
        fits = p.depthwise and p.x.dtype == p.grad.dtype and math.prod(p.shape.window) <= TAPS
        return None if fits and self.plan(p, properties) else "depthwise, by the copy engine"

    def plan(self, p: WeightGradient, properties: cb.DeviceProperties) -> UnitTile | None:
        """The blueprint."""
        settings = settings_of(p.last[0], p.shape, properties)
        out: Any = p.shape.out[1:]
        channels, size = p.x.shape[1], p.x.itemsize
        return settings and plan_for(p.x.shape[0], out, channels, size, settings, properties.cores)

    def launch(self, p: WeightGradient, properties: cb.DeviceProperties) -> None:
        """Sums of ranges, which are added."""
        (x, seen), plan, size = map(in_boxes, p.last), self.plan(p, properties), p.out.size
        assert plan is not None
        *sides, blocks = plan.counts(x.shape[0], p.shape.out[1:], x.shape[3])
        tiles = math.prod(sides)
        ranges = max(1, min(tiles, plan.cubes * properties.cores // blocks))
        sums = memory.empty((ranges, x.shape[3], size // x.shape[3]), np.float32)
        channelwise_tiles[ranges * blocks, plan.units](
            cb.tensor_map(x, plan.box, swizzle=0),
            cb.tensor_map(seen, (*plan.tile, plan.channels), swizzle=0),
            sums,
            (*sides[1:], blocks),
            tiles,
            plan,
            mode="unchecked",
        )
        add_columns[-(-size // COLUMNS), COLUMNS * ROWS](
            sums.reshape(ranges, -1), p.out.reshape(-1), mode="unchecked"
        )
