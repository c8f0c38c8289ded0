"""Convolutions of f32 that is not to be rounded, where a copy engine loads the tiles: plain
arithmetic.

What is loaded is what convolution/sm90/implicit_gemm.py loads, boxes of pixels with 32 channels;
how it is multiplied is the matmul's (matmul/sm90/tma_simt.py). A cube makes a tile, and several
cubes share a core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.sm90.implicit_gemm import (
    box_of,
    box_start,
    corner_in,
    load_residual,
    load_tap,
    range_of,
    step_pixel,
    store_part,
    view_of,
)
from cubepy.kernels.matmul.sm90.persistent import tile_position
from cubepy.kernels.matmul.sm90.tma_simt import DEPTH, WIDE, Fma, seat, stage_sums
from cubepy.kernels.primitives.epilogue import ended
from cubepy.kernels.primitives.pipeline import Stage


@dataclass(frozen=True)
class FmaWindow(Fma):
    """What changes the code, beside what changes the matmul's.

    Attributes:
        phases: strides along height and width, 1 or 2; so many maps of the input there are, their
            product.
        parts: convolutions of the same input in one launch, at most 4, each with a map and a window
            of its own.
    """

    phases: tuple[int, ...] = (1, 1)
    parts: int = 1


@cb.struct
class WindowOperands:
    """The operands of a tile: maps, the box of the input, the first filter and channel, and the
    view of its part.
    """

    xs: Any
    weight: Any
    start: Any
    column: Any
    near: Any
    view: Any
    channels: Any
    plan: cb.Comptime[FmaWindow]

    def load(self, tiles, stage, step):
        """Start bringing a step of the sum into a stage of the ring `tiles`: what a tap sees of
        some channels, and the filters' values for them.
        """
        rows, columns = self.plan.rows, self.plan.columns
        window, dilation, pad, walk = self.view
        at = stage.slot * (rows + columns) * DEPTH
        (t, u, v), channel = step_pixel(step, window, self.channels, DEPTH)
        seen = (t * dilation[0] - pad[0], u * dilation[1] - pad[1], v * dilation[2] - pad[2])
        tap = walk[0] + t * walk[1] + u * walk[2] + v * walk[3]
        stage.expect(self.xs[0].nbytes + self.weight.nbytes)
        near = self.near + channel
        load_tap(tiles, at, self.xs, self.start, seen, near, stage, self.plan.phases)
        start = (self.column, tap, channel)
        cb.tma_load(tiles, at + rows * DEPTH, self.weight, start, stage.full, stage.slot)


@cb.func
def swizzled_at(rows, r, c):
    """Where row r, column c of a tile stands in boxes of `DEPTH` columns, as they are swizzled."""
    return (c // DEPTH * rows + r) * DEPTH + (c % DEPTH // 4 ^ (r % 8)) * 4 + c % 4


@cb.kernel(fast_math=("contract", "nsz"))
def fma_convolution(
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
    """As `hopper_convolution`; a launch has a cube for every tile."""
    cb.resident(blueprint.cubes)
    rows, columns, stages, high = (
        blueprint.rows,
        blueprint.columns,
        blueprint.stages,
        blueprint.high,
    )
    channels, group = block
    full = cb.barrier(stages, 1)
    arrived = cb.barrier(1, columns // DEPTH)
    buffer = cb.shared(stages * (rows + columns) * DEPTH, cb.f32)
    row_tiles = counts[0] * counts[1] * counts[2] * counts[3]
    part, row, column = tile_position(cb.CUBE_POS, row_tiles, counts[4], blueprint.band)
    column = column * columns
    start = box_start(row, counts, box_of(xs[0]))
    near = column // group * channels
    view = view_of(views, part, blueprint)
    first, count = range_of(part, ranges[1], view[0], channels, DEPTH, blueprint)
    operands = WindowOperands(xs, weight, start, column, near, view, channels, blueprint)
    if cb.UNIT_POS == 0:
        for s in range(cb.min(count, stages)):
            operands.load(buffer, Stage(full, None, s, 0, stages), first + s)
    top, left = seat(columns, high)
    acc = cb.local(high, cb.f32, lanes=WIDE)
    for i in cb.unroll(range(high)):
        acc[i] = cb.splat(0.0, WIDE)
    stage = Stage(full, None, cb.i32(0), cb.i32(0), stages)
    for step in range(count):
        stage.wait()
        at = stage.slot * (rows + columns) * DEPTH
        stage_sums(
            acc, buffer, at + top * DEPTH, at + (rows + left) * DEPTH, top % 8, left % 8, high
        )
        cb.sync_cube()
        if cb.UNIT_POS == 0 and step + stages < count:
            operands.load(buffer, stage, first + step + stages)
        stage = stage.advance()
    shift = cb.local(WIDE, cb.f32)
    for j in cb.unroll(range(WIDE)):
        shift[j] = 0.0
        if blueprint.bias:
            if column + left + 8 * j < bias.shape[0]:
                shift[j] = cb.cast(bias[column + left + 8 * j], cb.f32)
    corner = corner_in(outs, part, row, counts, blueprint)
    # the sums go where the stages were, 32 columns beside each other
    if blueprint.residual:
        if cb.UNIT_POS == 0:
            for n in cb.unroll(range(columns // DEPTH)):
                to = n * rows * DEPTH
                load_residual(residual, corner, column + n * DEPTH, buffer, to, arrived, 0)
        cb.barrier_wait(arrived, 0, 0)
    other = cb.local(WIDE, cb.f32)
    for i in cb.unroll(range(high)):
        r = top + 8 * i
        value = acc[i] + shift.load(0, WIDE)
        if blueprint.residual:
            for j in cb.unroll(range(WIDE)):
                other[j] = buffer[swizzled_at(rows, r, left + 8 * j)]
            value = ended(value, other.load(0, WIDE), blueprint.activation, blueprint.joined)
        else:
            value = ended(value, None, blueprint.activation, blueprint.joined)
        for j in cb.unroll(range(WIDE)):
            buffer[swizzled_at(rows, r, left + 8 * j)] = value[j]
    cb.fence_async()
    cb.sync_cube()
    if cb.UNIT_POS == 0:
        for n in cb.unroll(range(columns // DEPTH)):
            store_part(outs, part, corner, column + n * DEPTH, buffer, n * rows * DEPTH, blueprint)
        cb.tma_commit()
        cb.tma_wait(0)
