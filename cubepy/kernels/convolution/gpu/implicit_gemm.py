"""Convolutions for matrix units that a plane drives (`cb.mma`, from sm_80 on), in one launch: what
a tile of the product wants of the image is gathered on its way to shared memory.

A row of the left matrix is an output pixel; along it lie the taps of the window, and the channels
of each. 16 bytes of it are copied asynchronously where channels come in whole pieces, and else are
put together from channels side by side. Images and filters lie as they lie: nothing is laid out
anew, so a small convolution is one launch, and a large one has no columns in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.problem import Problem, in_three
from cubepy.kernels.entry.shapes import strided
from cubepy.kernels.matmul.gpu.mma_multistage import (
    DEPTH_BYTES,
    PIECE,
    UNITS,
    Mma,
    end_loading,
    finish_tile,
    pitch_of,
    room_for,
    stage_product,
    stages_for,
    start_loading,
)
from cubepy.kernels.matmul.gpu.operands import activation_for, aligned, copies
from cubepy.kernels.matmul.gpu.simt import tile_start
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.epilogue import epilogue_of
from cubepy.kernels.primitives.vector_width import lanes_within, power_of_two
from cubepy.lang.dtypes import as_dtype

PIECES = DEPTH_BYTES // PIECE
"""Pieces of a row of a stage."""
OUTSIDE = -(1 << 30)
"""The column of a pixel that is none of the result's: no tap of it lies in the image."""


@dataclass(frozen=True)
class ImplicitGemm(Mma):
    """What changes the code, beside the tile and the epilogue of `Mma`: `a_async` says that pieces
    of 16 bytes are of one tap, `b_async` that rows of the filters are copied.

    Attributes:
        lanes: channels of the image that are read at once.
        volume: there is a depth.
        hops: taps that a stage's depth goes over, at most.
    """

    lanes: int = 1
    volume: bool = False
    hops: int = 1


@cb.struct
class Form:
    """The shape of a convolution, along depth, height and width.

    Attributes:
        window, stride, pad, dilation, out: as of a `Problem`.
        size: of an image.
        steps: elements from an image to the next, and from a depth, row, column and channel.
        channels: of the image.
        length: of K: channels of all taps.
    """

    window: Any
    stride: Any
    pad: Any
    dilation: Any
    out: Any
    size: Any
    steps: Any
    channels: Any
    length: Any


@cb.func
def pixel_of(pixel, batch, form, volume):
    """Where in memory the first tap of a pixel of the result would be, and its depth, row and
    column; the batch is an image where the result has one for each.
    """
    stride, pad, size, steps = form.stride, form.pad, form.out, form.steps
    column, rest = pixel % size[2], pixel // size[2]
    row, rest = rest % size[1], rest // size[1]
    depth = rest * 0
    if volume:
        depth, rest = rest % size[0] * stride[0] - pad[0], rest // size[0]
    row, column = row * stride[1] - pad[1], column * stride[2] - pad[2]
    start = cb.cast(batch + rest, cb.i64) * steps[0] + cb.cast(depth, cb.i64) * steps[1]
    start = start + cb.cast(row, cb.i64) * steps[2] + cb.cast(column, cb.i64) * steps[3]
    return start, depth, row, column


@cb.func
def tap_of(k, channels, form, volume):
    """Depth, row, column and channel of an element of K."""
    window = form.window
    tap = k // channels
    row = tap // window[2]
    depth = row * 0
    if volume:
        depth, row = row // window[1], row % window[1]
    return depth, row, tap % window[2], k % channels


@cb.func
def moved(tap, by, hops, channels, form, volume):
    """The tap so many channels on, which are at most those of so many taps."""
    window = form.window
    depth, row, column, channel = tap
    channel = channel + by
    for _ in cb.unroll(range(hops)):
        over = channel >= channels
        channel = cb.select(over, channel - channels, channel)
        column = cb.select(over, column + 1, column)
        over = column >= window[2]
        column, row = cb.select(over, 0, column), cb.select(over, row + 1, row)
        if volume:
            over = row >= window[1]
            row, depth = cb.select(over, 0, row), cb.select(over, depth + 1, depth)
    return depth, row, column, channel


@cb.func
def reach_of(tap, form, volume):
    """How far a tap is from the first one: in memory, and along depth, height and width."""
    dilation, steps = form.dilation, form.steps
    row, column = tap[1] * dilation[1], tap[2] * dilation[2]
    offset = cb.cast(row, cb.i64) * steps[2] + cb.cast(column, cb.i64) * steps[3]
    offset = offset + cb.cast(tap[3], cb.i64) * steps[4]
    depth = tap[0] * dilation[0]
    if volume:
        offset = offset + cb.cast(depth, cb.i64) * steps[1]
    return offset, depth, row, column


@cb.func
def is_inside(origin, reach, bounds, volume):
    """Whether a tap of a pixel lies in the image."""
    row, column = origin[2] + reach[2], origin[3] + reach[3]
    inside = row >= 0 and row < bounds[1] and column >= 0 and column < bounds[2]
    if volume:
        depth = origin[1] + reach[1]
        inside = inside and depth >= 0 and depth < bounds[0]
    return inside


@cb.func
def gather(shared, at, x, pixels, tap, left, form, blueprint):
    """Start filling a stage of the left matrix, 64 bytes of K of every row from this unit's tap on,
    `left` of K from there; what no copy brings is given, for `put`.
    """
    per, depth = PIECE // shared.dtype.itemsize, DEPTH_BYTES // shared.dtype.itemsize
    pitch = pitch_of(blueprint.rows, depth, True, shared.dtype.itemsize)
    volume, lanes = blueprint.volume, blueprint.lanes
    channels, bounds = form.channels, form.size
    lines: Any = ()
    if blueprint.a_async:
        reach = reach_of(tap, form, volume)
        for step in cb.unroll(range(len(pixels))):
            inside = is_inside(pixels[step], reach, bounds, volume) and left > 0
            to = at + (step * UNITS + cb.UNIT_POS) // PIECES * pitch + cb.UNIT_POS % PIECES * per
            cb.copy_async(shared, to, x, pixels[step][0] + reach[0], PIECE, inside)
    else:
        for e in cb.unroll(range(0, per, lanes)):
            reach = reach_of(tap, form, volume)
            for step in cb.unroll(range(len(pixels))):
                inside = is_inside(pixels[step], reach, bounds, volume) and left > e
                line = x.load(cb.select(inside, pixels[step][0] + reach[0], 0), lanes)
                lines = lines + (cb.select(inside, line, cb.splat(x.dtype(0), lanes)),)
            tap = moved(tap, lanes, 1, channels, form, volume)
    return lines


@cb.func
def put(shared, at, lines, count, lanes):
    """Put what no copy brought into its stage of `count` rows: lines of so many elements, the first
    of every row first.
    """
    per, depth = PIECE // shared.dtype.itemsize, DEPTH_BYTES // shared.dtype.itemsize
    pitch = pitch_of(count, depth, True, shared.dtype.itemsize)
    steps = count * PIECES // UNITS
    if len(lines) > 0:
        for step in cb.unroll(range(steps)):
            to = at + (step * UNITS + cb.UNIT_POS) // PIECES * pitch + cb.UNIT_POS % PIECES * per
            for e in cb.unroll(range(0, per, lanes)):
                shared.store(to + e, lines[e // lanes * steps + step])


@cb.func
def start_stage(tiles, at, operands, pixels, column, k, tap, form, blueprint):
    """Start filling a stage of both matrices: `tiles` and where they begin `at`."""
    x, w = operands
    depth: Any = DEPTH_BYTES // w.dtype.itemsize
    left = form.length - k - cb.UNIT_POS % PIECES * (depth // PIECES)
    lines = gather(tiles[0], at[0], x, pixels, tap, left, form, blueprint)
    how = blueprint.columns, depth, True, blueprint.b_async
    return lines, start_loading(tiles[1], at[1], w, 0, column, k, *how)


@cb.func
def end_stage(tiles, at, lines, blueprint):
    """Put what `start_stage` gave where it belongs."""
    put(tiles[0], at[0], lines[0], blueprint.rows, blueprint.lanes)
    depth: Any = DEPTH_BYTES // tiles[1].dtype.itemsize
    end_loading(tiles[1], at[1], lines[1], blueprint.columns, depth, True)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def mma_convolution(
    x: cb.Array, w: cb.Array, out: cb.Array, bias, residual, form, blueprint: cb.Comptime
):
    """out (1 or N, pixels, F) = epilogue(convolution of x and w), one cube for each tile of 64 or
    128 pixels and filters.

    x are the elements of an image in a row, `form` is a `Form`; w is (1, F, K).
    """
    epilogue = epilogue_of(blueprint, out, bias, residual, 1.0)
    rows, columns, stages = blueprint.rows, blueprint.columns, blueprint.stages
    depth, volume = DEPTH_BYTES // x.dtype.itemsize, blueprint.volume
    span_a = rows * pitch_of(rows, depth, True, x.dtype.itemsize)
    span_b = columns * pitch_of(columns, depth, True, x.dtype.itemsize)
    tiles = (
        cb.shared(room_for(span_a, blueprint, x.dtype.itemsize), x.dtype),
        cb.shared(room_for(span_b, blueprint, x.dtype.itemsize), x.dtype),
    )
    batch, row, column = tile_start(out, rows, columns)
    pixels: Any = ()
    for step in cb.unroll(range(rows * PIECES // UNITS)):
        pixel = row + (step * UNITS + cb.UNIT_POS) // PIECES
        start, front, top, first = pixel_of(pixel, batch, form, volume)
        first = cb.select(pixel < out.shape[1], first, OUTSIDE)
        pixels = pixels + ((start, front, top, first),)
    high, wide = rows // 2, columns // 4
    acc = cb.local((high // 16, wide // 8), cb.f32, lanes=4)
    for i in cb.unroll(range(high // 16)):
        for j in cb.unroll(range(wide // 8)):
            acc[i, j] = cb.splat(cb.f32(0), 4)
    steps = (form.length + depth - 1) // depth
    channels, hops = form.channels, blueprint.hops
    tap = tap_of(cb.UNIT_POS % PIECES * (depth // PIECES), channels, form, volume)
    for step in cb.unroll(range(max(1, stages - 1))):
        at = step * span_a, step * span_b
        k = step * depth
        lines = start_stage(tiles, at, (x, w), pixels, column, k, tap, form, blueprint)
        end_stage(tiles, at, lines, blueprint)
        cb.copy_async_commit()
        tap = moved(tap, depth, hops, channels, form, volume)
    part = cb.PLANE_POS // 4 * high, cb.PLANE_POS % 4 * wide, high, wide
    if stages == 1:
        cb.copy_async_wait(0)
        cb.sync_cube()
        stage_product(acc, tiles[0], 0, tiles[1], 0, part[:2], (high, wide), depth, blueprint)
    filling = cb.max(steps - stages + 1, 0) if stages > 1 else 0
    for step in range(filling):
        cb.copy_async_wait(stages - 2)
        cb.sync_cube()
        ahead, now = step + stages - 1, step % stages
        at = ahead % stages * span_a, ahead % stages * span_b
        a, b, shape = now * span_a, now * span_b, (high, wide)
        lines = start_stage(tiles, at, (x, w), pixels, column, ahead * depth, tap, form, blueprint)
        cb.copy_async_commit()
        stage_product(acc, tiles[0], a, tiles[1], b, part[:2], shape, depth, blueprint)
        end_stage(tiles, at, lines, blueprint)
        tap = moved(tap, depth, hops, channels, form, volume)
    for step in range(filling, steps if stages > 1 else 0):
        cb.copy_async_commit()
        cb.copy_async_wait(stages - 2)
        cb.sync_cube()
        a, b, shape = step % stages * span_a, step % stages * span_b, (high, wide)
        stage_product(acc, tiles[0], a, tiles[1], b, part[:2], shape, depth, blueprint)
    finish_tile(acc, tiles[0], tiles[1], epilogue, (batch, row, column), part, blueprint)


def rows_of(target: Any, channels_last: bool) -> Any:
    """A result (N, *out, F) or (N, F, *out), contiguous, as (1 or N, pixels, F)."""
    if channels_last:
        return target.reshape(1, -1, target.shape[-1])
    return target.reshape(*target.shape[:2], -1).transpose(0, 2, 1)


def by_mma(
    plan: ImplicitGemm,
    view: Any,
    w: Any,
    bias: Any,
    add: Any,
    target: Any,
    problem: Problem,
    channels_last: bool,
    function: Any,
) -> None:
    """target = function(convolution + bias + add): view is (N, *size, C) in any layout, w (F, C,
    *window) too; target is contiguous, (N, *out, F) or channels first, and add lies as it does.
    """
    x, out = in_three(view), rows_of(target, channels_last)
    filters, length = w.shape[0], math.prod(w.shape[1:])
    rows = contiguous(w.transpose(0, *range(2, w.ndim), 1)).reshape(1, filters, length)
    pieces = PIECE // x.itemsize
    lanes = lanes_within(x, pieces)
    made = replace(
        plan,
        a_async=lanes == pieces,
        b_async=copies(rows),
        stages=stages_for(plan.stages, -(-length * x.itemsize // DEPTH_BYTES)),
        staged=x.itemsize == 2 and channels_last and not aligned(out),
        lanes=lanes,
        volume=x.shape[1] > 1 or problem.window[0] > 1,
        hops=power_of_two(-(-(DEPTH_BYTES // x.itemsize) // x.shape[4])),
        bias=bias is not None,
        residual=add is not None,
        joined="add" if add is not None else "residual",
        activation=activation_for(function, as_dtype(out.dtype)),
    )
    steps = tuple(s // x.itemsize for s in x.strides)
    reach = 1 + sum((n - 1) * s for n, s in zip(x.shape, steps, strict=True))
    flat = strided(x, (reach,), (x.itemsize,))
    form = Form(
        problem.window,
        problem.stride,
        problem.pad,
        problem.dilation,
        problem.out,
        tuple(x.shape[1:4]),
        steps,
        x.shape[4],
        length,
    )
    more = None if add is None else rows_of(add, channels_last)
    cubes = out.shape[0] * -(-out.shape[1] // plan.rows) * -(-filters // plan.columns)
    mma_convolution[cubes, UNITS](flat, rows, out, bias, more, form, made, mode="unchecked")
