"""The convolution for Hopper: the matmul of matmul/sm90/persistent.py whose left matrix is never
built.

A row of that matrix is an output pixel, a column a tap of the window and a channel. What a step of
the sum needs of it is a box of the input, shifted by the tap: pixels of a tile are a box of the
output, and the copy engine loads such a box with 64 channels (32 of f32, as tf32) in one copy,
with zeros beyond the edges, which is the padding. With a stride of 2 the input is taken as its even
and its odd rows (and columns), each an array of its own: a tap's pixels all lie in one of them.

Cubes, pipelines, the order of consumers and the order of tiles are the matmul's; results go to the
array box by box too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.sm90.epilogue import PLANE_ROWS, TileEpilogue
from cubepy.kernels.matmul.sm90.persistent import UNITS, Hopper, tile_position
from cubepy.kernels.primitives.pipeline import (
    BLOCK,
    GROUP,
    ROW_BYTES,
    consume,
    pipeline_of,
    produce,
)


@dataclass(frozen=True)
class HopperWindow(Hopper):
    """What changes the code of the Hopper convolution, beside what changes the matmul's.

    Attributes:
        phases: strides along height and width, 1 or 2; so many maps of the input there are, their
            product.
        parts: convolutions of the same input in one launch, at most 4, each with a map and a window
            of its own.
    """

    phases: tuple[int, ...] = (1, 1)
    parts: int = 1
    cubes = 1
    """Of a core."""

    @property
    def units(self) -> int:
        """Units of a cube."""
        return UNITS


@cb.func
def box_start(tile, counts, box):
    """The first pixel of a tile: image, depth, height and width, which run fastest."""
    w = tile % counts[3]
    tile = tile // counts[3]
    h = tile % counts[2]
    tile = tile // counts[2]
    d = tile % counts[1]
    return tile // counts[1] * box[0], d * box[1], h * box[2], w * box[3]


@cb.func
def box_of(m):
    """The sides of a map's box in four axes; those of images and lines have no depth."""
    if m.ndim == 4:
        return (m.box[0], 1, m.box[1], m.box[2])
    return (m.box[0], m.box[1], m.box[2], m.box[3])


@cb.func
def load_box(tiles, at, x, start, channel, stage):
    """Start loading the box of the input that begins at a position."""
    n, d, h, w = start
    if x.ndim == 4:
        cb.tma_load(tiles, at, x, (n, h, w, channel), stage.full, stage.slot)
    else:
        cb.tma_load(tiles, at, x, (n, d, h, w, channel), stage.full, stage.slot)


@cb.func
def load_tap(tiles, at, xs, start, shift, channel, stage, phases):
    """Start loading what a tap sees: the box at `start`, shifted, of the phase in which the tap
    lies.
    """
    down, right = phases
    seen = (
        start[0],
        start[1] + shift[0],
        start[2] + (shift[1] >> (down - 1)),
        start[3] + (shift[2] >> (right - 1)),
    )
    if down * right == 1:
        load_box(tiles, at, xs[0], seen, channel, stage)
    else:
        phase = (shift[1] & (down - 1)) * right + (shift[2] & (right - 1))
        for k in cb.unroll(range(down * right)):
            if phase == k:
                load_box(tiles, at, xs[k], seen, channel, stage)


@cb.func
def load_filters(tiles, at, weight, column, tap, channel, stage, blueprint):
    """Start loading a tap of a tile's filters, from a channel on."""
    if blueprint.transpose_b:
        for j in cb.unroll(range(0, blueprint.columns, BLOCK)):
            start = (channel, tap, column + j)
            cb.tma_load(tiles, at + j * BLOCK, weight, start, stage.full, stage.slot)
    else:
        cb.tma_load(tiles, at, weight, (column, tap, channel), stage.full, stage.slot)


@cb.func
def step_pixel(step, window, channels, depth: cb.Comptime[int]):
    """The tap, along depth, height and width, and the first channel of a step."""
    pieces = (channels + depth - 1) // depth
    tap = step // pieces
    t = tap // (window[1] * window[2])
    return (t, tap // window[2] % window[1], tap % window[2]), (step - tap * pieces) * depth


@cb.func
def view_of(views, part, blueprint):
    """Window, dilation, padding and walk of a part."""
    chosen = views[0]
    for k in cb.unroll(range(1, blueprint.parts)):
        if part == k:
            chosen = views[k]
    return chosen


@cb.func
def range_of(part, per, window, channels, depth: cb.Comptime[int], blueprint):
    """The first step of a sum, and how many: of a range of it, or of a part all."""
    steps = window[0] * window[1] * window[2] * ((channels + depth - 1) // depth)
    if blueprint.parts > 1:
        return 0, steps
    return part * per, cb.min(per, steps - part * per)


@cb.func
def corner_in(outs, part, row, counts, blueprint):
    """Where a tile's box begins in the output: ranges have images of their own."""
    image, d, h, w = box_start(row, counts, box_of(outs[0]))
    if blueprint.parts == 1:
        image = image + part * counts[0] * box_of(outs[0])[0]
    return image, d, h, w


@cb.func
def store_part(outs, part, corner, column, staging, first, blueprint):
    """Start writing the box of a part's output that starts at a corner."""
    for k in cb.unroll(range(blueprint.parts)):
        if blueprint.parts == 1 or part == k:
            store_box(outs[k], corner, column, staging, first)


@cb.func
def load_residual(residual, corner, column, staging, first, arrived, buffer):
    """Start bringing the residual's box that starts at a corner to where the output's will
    stand.
    """
    cb.barrier_expect(arrived, buffer, residual.nbytes)
    n, d, h, w = corner
    if residual.ndim == 4:
        cb.tma_load(staging, first, residual, (n, h, w, column), arrived, buffer)
    else:
        cb.tma_load(staging, first, residual, (n, d, h, w, column), arrived, buffer)


@cb.func
def store_box(out, corner, column, staging, first):
    """Start writing the box of the output that starts at a corner."""
    if out.ndim == 4:
        cb.tma_store(out, (corner[0], corner[2], corner[3], column), staging, first)
    else:
        cb.tma_store(out, (corner[0], corner[1], corner[2], corner[3], column), staging, first)


@cb.struct
class WindowProduct:
    """The tiles of a convolution, for the loops of the pipeline; fields as the kernel's arguments
    are, and the memory of the epilogue.
    """

    xs: Any
    weight: Any
    outs: Any
    epilogue: TileEpilogue
    counts: Any
    views: Any
    block: Any
    ranges: Any
    blueprint: cb.Comptime[HopperWindow]

    def position(self, tile):
        """The part or range of a tile, its box, and its first filter."""
        row_tiles = self.counts[0] * self.counts[1] * self.counts[2] * self.counts[3]
        part, row, column = tile_position(tile, row_tiles, self.counts[4], self.blueprint.band)
        return part, row, column * self.blueprint.columns

    def steps(self, position):
        """Stages of a tile."""
        part = position[0]
        window = view_of(self.views, part, self.blueprint)[0]
        depth = ROW_BYTES // self.xs[0].dtype.itemsize
        _, count = range_of(part, self.ranges[1], window, self.block[0], depth, self.blueprint)
        return count

    def load(self, pipeline, stage, position):
        """Bring a tile's stages, one of a tap and some channels each; gives the stage
        after them.
        """
        blueprint, xs, weight = self.blueprint, self.xs, self.weight
        channels, group = self.block
        depth = ROW_BYTES // xs[0].dtype.itemsize
        boxes = blueprint.columns // BLOCK if blueprint.transpose_b else 1
        part, row, column = position
        start = box_start(row, self.counts, box_of(xs[0]))
        near = column // group * channels
        window, dilation, pad, walk = view_of(self.views, part, blueprint)
        begin, count = range_of(part, self.ranges[1], window, channels, depth, blueprint)
        (t, u, v), channel = step_pixel(begin, window, channels, depth)
        for _step in range(count):
            seen = (t * dilation[0] - pad[0], u * dilation[1] - pad[1], v * dilation[2] - pad[2])
            tap = walk[0] + t * walk[1] + u * walk[2] + v * walk[3]
            stage.acquire()
            stage.expect(xs[0].nbytes + weight.nbytes * boxes)
            load_tap(
                pipeline.a,
                pipeline.at_a(stage),
                xs,
                start,
                seen,
                near + channel,
                stage,
                blueprint.phases,
            )
            load_filters(
                pipeline.b, pipeline.at_b(stage), weight, column, tap, channel, stage, blueprint
            )
            stage = stage.advance()
            channel = channel + depth
            if channel >= channels:
                channel = 0
                v = v + 1
                if v == window[2]:
                    v = 0
                    u = u + 1
                    if u == window[1]:
                        u = 0
                        t = t + 1
        return stage

    def begin(self, position):
        """The tile's bias, and the first boxes of the residual; the products hide their way."""
        blueprint = self.blueprint
        if blueprint.bias:
            self.epilogue.load_bias(cb.UNIT_POS // GROUP - 1, position[2])
        if blueprint.residual:
            seat = cb.UNIT_POS // GROUP - 1 if blueprint.pingpong else 0
            if cb.UNIT_POS == (seat + 1) * GROUP:
                width = ROW_BYTES // self.epilogue.staging.dtype.itemsize
                cb.tma_wait(0)
                for n in cb.unroll(range(min(2, blueprint.columns // width))):
                    self.load_residual(position, seat, n)

    def load_residual(self, position, seat, n):
        """Start bringing piece `n` of a tile's residual."""
        blueprint, staging = self.blueprint, self.epilogue.staging
        part, box, column = position
        start = corner_in(self.outs, part, box, self.counts, blueprint)
        width = ROW_BYTES // staging.dtype.itemsize
        buffer = seat * min(2, blueprint.columns // width) + n % 2
        load_residual(
            self.epilogue.residual,
            start,
            column + n * width,
            staging,
            buffer * blueprint.rows * width,
            self.epilogue.arrived,
            buffer,
        )

    def finish(self, acc, position, done):
        """The epilogue, 64 columns after the other: all planes of a tile put theirs into shared
        memory, as the copy engine swizzles, and one unit has the engine write the box. Where there
        are several, two buffers take turns.
        """
        blueprint, staging = self.blueprint, self.epilogue.staging
        part, box, column = position
        start = corner_in(self.outs, part, box, self.counts, blueprint)
        consumer = cb.UNIT_POS // GROUP - 1
        width = ROW_BYTES // staging.dtype.itemsize
        pieces = blueprint.columns // width
        team = GROUP if blueprint.pingpong else 2 * GROUP
        seat = consumer if blueprint.pingpong else 0
        own = 0 if blueprint.pingpong else consumer * blueprint.share
        leader = cb.UNIT_POS == (seat + 1) * GROUP
        row = own + cb.PLANE_POS % 4 * PLANE_ROWS
        for n in cb.unroll(range(pieces)):
            buffer = seat * min(2, pieces) + n % 2
            first = buffer * blueprint.rows * width
            if blueprint.residual:
                each = (pieces + 1 - n % 2) // 2
                cb.barrier_wait(self.epilogue.arrived, buffer, (done * each + n // 2) % 2)
            else:
                if leader:  # of an odd number, the last and the next first one share a buffer
                    cb.tma_wait(1 - pieces % 2)
                cb.sync_group(3 + seat, team)
            for m in cb.unroll(range(blueprint.share // BLOCK)):
                for j in cb.unroll(range(width // 16)):
                    left = n * width + j * 16
                    self.epilogue.stage(
                        acc,
                        (m * blueprint.columns + left) // 2,
                        first + (row + m * BLOCK) * width,
                        j,
                        consumer * blueprint.columns + left,
                    )
            cb.fence_async()
            cb.sync_group(3 + seat, team)
            if leader:
                store_part(self.outs, part, start, column + n * width, staging, first, blueprint)
                cb.tma_commit()
                if blueprint.residual and n + 2 < pieces:
                    cb.tma_wait(0)
                    self.load_residual(position, seat, n + 2)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def hopper_convolution(
    xs,
    weight: cb.TensorMap,
    outs,
    bias,
    residual,
    counts,
    views,
    block,
    ranges,
    blueprint: cb.Comptime,
):
    """out[n, d, h, w, f] = function(sum of taps and channels of x * weight[f, tap, channel] +
    bias[f] + residual[n, d, h, w, f]).

    `xs` are the maps of x and its further phases (N, D, H, W, C), or without the depth; boxes have
    `ROW_BYTES` of channels. weight is (filters, taps, channels), or (channels, taps, filters) of 16
    bits with `transpose_b`. `counts` are the boxes of the output along images, depth, height and
    width, and the columns of tiles. `views` are of each part the window, its dilation, the padding,
    and the walk: the window's first tap and the steps to the next ones along its axes. `block` are
    channels, and filters that see the same ones; the next filters see the next channels. The sum's
    steps (a tap and a box's channels) are cut into as many `ranges` of so many, each with images of
    its own in the output, whole boxes; or there are as many parts, each with one of the maps
    `outs`. A launch has at most one cube for each core of the device.
    """
    rows, columns, pingpong = blueprint.rows, blueprint.columns, blueprint.pingpong
    out = outs[0].dtype
    width = ROW_BYTES // out.itemsize
    pipeline = pipeline_of(blueprint, xs[0].dtype, weight.dtype)
    buffers = (2 if pingpong else 1) * min(2, columns // width)
    staging = cb.shared(buffers * rows * width, out)
    shift = cb.shared(2 * columns if blueprint.bias else 1, cb.f32)
    arrived = cb.barrier(4, 1)
    epilogue = TileEpilogue(outs, bias, residual, 1.0, staging, shift, arrived, blueprint)
    product = WindowProduct(xs, weight, outs, epilogue, counts, views, block, ranges, blueprint)
    tiles = counts[0] * counts[1] * counts[2] * counts[3] * counts[4] * ranges[0]
    if cb.UNIT_POS < GROUP:
        cb.set_registers(40, False)
        if cb.UNIT_POS == 0:
            produce(product, pipeline, tiles)
    else:
        cb.set_registers(232, True)
        acc = cb.local(blueprint.share * columns // GROUP, cb.f32)
        consume(product, acc, pipeline, tiles, pingpong)
        if cb.UNIT_POS % GROUP == 0:
            cb.tma_wait(0)
