"""The convolution for Hopper: the matmul of matmul/sm90/persistent.py whose left matrix is never
built.

A row of that matrix is an output place, a column a tap of the window and a channel. What a step of
the sum needs of it is a box of the input, shifted by the tap: places of a tile are a box of the
output, and the copy engine brings such a box with 64 channels (32 of f32, as tf32) in one copy,
with zeros beyond the edges, which is the padding. With a stride of 2 the input is taken as its even
and its odd rows (and columns), each an array of its own: a tap's places all lie in one of them.

Cubes, rings of stages, turns and the order of tiles are the matmul's; results go to the array box
by box too.
"""

from __future__ import annotations

from dataclasses import dataclass

import cubepy as cb
from cubepy.kernels.matmul.sm90.persistent import (
    PLANE_ROWS,
    UNITS,
    Hopper,
    bring_bias,
    stage_fragment,
    tile_place,
)
from cubepy.kernels.primitives.pipeline import (
    BLOCK,
    GROUP,
    ROW_BYTES,
    multiply_tile,
    next_slot,
    ring_of,
    skip_slots,
)


@dataclass(frozen=True)
class HopperWindow(Hopper):
    """What changes the code of the Hopper convolution, beside what changes the matmul's.

    Attributes: phases: strides along height and width, 1 or 2; so many maps of the input there are,
        their product. parts: convolutions of the same input in one launch, at most 4, each with a
        map and a window of its own.
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
    """The first place of a tile: image, depth, height and width, which run fastest."""
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
def bring_box(tiles, at, x, place, channel, full, slot):
    """Start bringing the box of the input that starts at a place."""
    if x.ndim == 4:
        cb.tma_load(tiles, at, x, (place[0], place[2], place[3], channel), full, slot)
    else:
        cb.tma_load(tiles, at, x, (place[0], place[1], place[2], place[3], channel), full, slot)


@cb.func
def bring_tap(tiles, at, xs, place, shift, channel, full, slot, phases):
    """Start bringing what a tap sees: the box at `place`, shifted, of the phase in which the tap
    lies.
    """
    tall, wide = phases
    seen = (
        place[0],
        place[1] + shift[0],
        place[2] + (shift[1] >> (tall - 1)),
        place[3] + (shift[2] >> (wide - 1)),
    )
    if tall * wide == 1:
        bring_box(tiles, at, xs[0], seen, channel, full, slot)
    else:
        phase = (shift[1] & (tall - 1)) * wide + (shift[2] & (wide - 1))
        for k in cb.unroll(range(tall * wide)):
            if phase == k:
                bring_box(tiles, at, xs[k], seen, channel, full, slot)


@cb.func
def bring_filters(tiles, at, weight, column, tap, channel, full, slot, blueprint):
    """Start bringing a tap of a tile's filters, from a channel on."""
    if blueprint.transpose_b:
        for j in cb.unroll(range(0, blueprint.columns, BLOCK)):
            cb.tma_load(tiles, at + j * BLOCK, weight, (channel, tap, column + j), full, slot)
    else:
        cb.tma_load(tiles, at, weight, (column, tap, channel), full, slot)


@cb.func
def step_place(step, window, channels, depth: cb.Comptime[int]):
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
def place_in(outs, part, row, counts, blueprint):
    """Where a tile's box begins in the output: ranges have images of their own."""
    image, d, h, w = box_start(row, counts, box_of(outs[0]))
    if blueprint.parts == 1:
        image = image + part * counts[0] * box_of(outs[0])[0]
    return image, d, h, w


@cb.func
def store_part(outs, part, place, column, staging, first, blueprint):
    """Start writing the box of a part's output that starts at a place."""
    for k in cb.unroll(range(blueprint.parts)):
        if blueprint.parts == 1 or part == k:
            store_box(outs[k], place, column, staging, first)


@cb.func
def store_box(out, place, column, staging, first):
    """Start writing the box of the output that starts at a place."""
    if out.ndim == 4:
        cb.tma_store(out, (place[0], place[2], place[3], column), staging, first)
    else:
        cb.tma_store(out, (place[0], place[1], place[2], place[3], column), staging, first)


@cb.func
def write_box(acc, staging, shift, consumer, outs, part, place, column, blueprint):
    """The epilogue, 64 columns after the other: all planes of a tile put theirs into shared memory,
    as the copy engine swizzles, and one unit has the engine write the box. Where there are several,
    two buffers take turns.
    """
    width = ROW_BYTES // staging.dtype.itemsize
    pieces = blueprint.columns // width
    team = GROUP if blueprint.turns else 2 * GROUP
    seat = consumer if blueprint.turns else 0
    own = 0 if blueprint.turns else consumer * blueprint.share
    leader = cb.UNIT_POS == (seat + 1) * GROUP
    row = own + cb.PLANE_POS % 4 * PLANE_ROWS
    for n in cb.unroll(range(pieces)):
        first = (seat * min(2, pieces) + n % 2) * blueprint.rows * width
        if leader:
            cb.tma_wait(
                1 - pieces % 2
            )  # an odd number of pieces gives the last and the next first one the same buffer
        cb.sync_group(3 + seat, team)
        for m in cb.unroll(range(blueprint.share // BLOCK)):
            for j in cb.unroll(range(width // 16)):
                left = n * width + j * 16
                stage_fragment(
                    acc, (m * blueprint.columns + left) // 2, staging, first + (row + m * BLOCK) * width, j,
                    cb.UNIT_POS_PLANE, shift, consumer * blueprint.columns + left, 1.0, blueprint, width,
                )  # fmt: skip
        cb.fence_async()
        cb.sync_group(3 + seat, team)
        if leader:
            store_part(outs, part, place, column + n * width, staging, first, blueprint)
            cb.tma_commit()


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def hopper_convolution(
    x: cb.TensorMap, x1, x2, x3, weight: cb.TensorMap, out: cb.TensorMap, out1, out2, out3, bias, counts, column_tiles,
    views, channels, group, ranges, per, blueprint: cb.Comptime,
):  # fmt: skip
    """out[n, d, h, w, f] = function(sum of taps and channels of x * weight[f, tap, channel] +
    bias[f]).

    x and its further phases (N, D, H, W, C), or without the depth; boxes have `ROW_BYTES` of
    channels. weight is (filters, taps, channels), or (channels, taps, filters) of 16 bits with
    `transpose_b`. `counts` are the boxes of the output along images, depth, height and width.
    `views` are of each part the window, its dilation, the padding, and the walk: the window's first
    tap and the steps to the next ones along its axes. `group` filters see the same `channels`, the
    next ones the next. The sum's steps (a tap and a box's channels) are cut into `ranges` of `per`,
    each with images of its own in out, whole boxes; or there are as many parts, each with an
    output. A launch has at most one cube for each core of the device.
    """
    rows, columns, stages, share = (
        blueprint.rows,
        blueprint.columns,
        blueprint.stages,
        blueprint.share,
    )
    width = ROW_BYTES // out.dtype.itemsize
    depth = ROW_BYTES // x.dtype.itemsize
    ring = ring_of(blueprint, x.dtype, weight.dtype)
    full, empty, _order, tiles_a, tiles_b = ring
    staging = cb.shared(
        (2 if blueprint.turns else 1) * min(2, columns // width) * rows * width, out.dtype
    )
    shift = cb.shared(2 * columns if blueprint.bias else 1, cb.f32)
    row_tiles = counts[0] * counts[1] * counts[2] * counts[3]
    tiles = row_tiles * column_tiles * ranges
    outs = (out, out1, out2, out3)
    slot = 0
    phase = 0
    tile = cb.CUBE_POS
    if cb.UNIT_POS < GROUP:
        cb.set_registers(40, False)
        if cb.UNIT_POS == 0:
            while tile < tiles:
                part, row, column = tile_place(tile, row_tiles, column_tiles, blueprint.band)
                place = box_start(row, counts, box_of(x))
                near = column * columns // group * channels
                window, dilation, pad, walk = view_of(views, part, blueprint)
                begin, count = range_of(part, per, window, channels, depth, blueprint)
                (t, u, v), channel = step_place(begin, window, channels, depth)
                for _step in range(count):
                    seen = (
                        t * dilation[0] - pad[0],
                        u * dilation[1] - pad[1],
                        v * dilation[2] - pad[2],
                    )
                    tap = walk[0] + t * walk[1] + u * walk[2] + v * walk[3]
                    cb.barrier_wait(empty, slot, 1 - phase)
                    cb.barrier_expect(
                        full,
                        slot,
                        x.nbytes
                        + weight.nbytes * (columns // BLOCK if blueprint.transpose_b else 1),
                    )
                    bring_tap(
                        tiles_a, slot * rows * depth, (x, x1, x2, x3), place, seen, near + channel, full, slot,
                        blueprint.phases,
                    )  # fmt: skip
                    bring_filters(
                        tiles_b,
                        slot * columns * depth,
                        weight,
                        column * columns,
                        tap,
                        channel,
                        full,
                        slot,
                        blueprint,
                    )
                    slot, phase = next_slot(slot, phase, stages)
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
                tile = tile + cb.CUBE_COUNT
    else:
        cb.set_registers(232, True)
        acc = cb.local(share * columns // GROUP, cb.f32)
        consumer = cb.UNIT_POS // GROUP - 1
        mine = consumer
        turn = 1 - consumer
        leader = cb.UNIT_POS % GROUP == 0
        while tile < tiles:
            part, row, column = tile_place(tile, row_tiles, column_tiles, blueprint.band)
            _, count = range_of(
                part, per, view_of(views, part, blueprint)[0], channels, depth, blueprint
            )
            if blueprint.turns and mine != 0:  # the other's tile: its stages go by
                slot, phase = skip_slots(slot, phase, count, stages)
            else:
                if blueprint.bias:
                    bring_bias(shift, bias, consumer, column * columns, columns)
                slot, phase = multiply_tile(
                    acc, ring, slot, phase, turn, count, blueprint, blueprint.turns
                )
                turn = 1 - turn
                place = place_in(outs, part, row, counts, blueprint)
                write_box(
                    acc, staging, shift, consumer, outs, part, place, column * columns, blueprint
                )
            mine = 1 - mine
            tile = tile + cb.CUBE_COUNT
        if leader:
            cb.tma_wait(0)
