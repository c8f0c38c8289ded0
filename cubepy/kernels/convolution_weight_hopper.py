"""The gradient of a convolution by its filters on Hopper: a product of matrices whose sum runs over places.

A row of the result is a filter, a column a tap and a channel. A step of the sum is a box of 64 places: the copy engine
brings it from the gradient, 64 filters in one copy, and shifted by a tap from the input, 64 channels in one copy, with
zeros beyond the edges. There are few tiles and many places, so the sum is cut into ranges of boxes, which are added in
a second kernel, in an order that never changes. Rings of stages and turns are the matmul's (matmul_hopper.py).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution_gpu import Four, in_boxes, map_of, suits, without_places_between
from cubepy.kernels.convolution_hopper import HopperWindow, box_of, box_start, bring_box
from cubepy.kernels.convolution_layout import MEASURE
from cubepy.kernels.convolution_routes import Problem
from cubepy.kernels.matmul_hopper import BLOCK, GROUP, PLANE_ROWS, ROW_BYTES, UNITS, stage_product, write_tile
from cubepy.runtime import memory

PLACES = 64
"""Places of a step."""
FOLDERS, AHEAD = 128, 8  # units of a cube that adds sums, and sums that a unit reads before it adds them
TOGETHER, MANY = 16, 1 << 14  # taps that a unit adds, at most, and units that then keep a device busy


def tile(rows: int, columns: int, stages: int, turns: bool = True) -> HopperWindow:
    """A blueprint; both operands have places outermost."""
    return HopperWindow(rows, columns, stages, turns=turns, transpose_a=True, transpose_b=True)


TILES = (
    tile(128, 256, 4, False), tile(128, 192, 4, False), tile(128, 128, 5), tile(64, 256, 4), tile(64, 192, 5),
    tile(128, 64, 6), tile(64, 128, 6), tile(64, 64, 8),
)  # fmt: skip


@cb.func
def range_of(item, tiles, per, boxes):
    """The boxes of an item's range: the first, and how many."""
    first = item // tiles * per
    return first, cb.min(boxes, first + per) - first


@cb.func
def view_of(piece, pieces, window, dilation, pad, phases):
    """What 64 columns are of the input: a tap's shift along depth, height and width, its phase, the first channel."""
    tall, wide = phases
    tap = piece // pieces
    down = tap // window[2] % window[1] * dilation[1] - pad[1]
    right = tap % window[2] * dilation[2] - pad[2]
    phase = (down & (tall - 1)) * wide + (right & (wide - 1))
    deep = tap // (window[1] * window[2]) * dilation[0] - pad[0]
    return deep, down >> (tall - 1), right >> (wide - 1), phase, (piece - tap * pieces) * BLOCK


@cb.func
def bring_view(tiles, at, xs, place, view, full, slot, phases):
    """Start bringing 64 columns: a tap's view of a box, 64 channels of it."""
    seen = (place[0], place[1] + view[0], place[2] + view[1], place[3] + view[2])
    if phases[0] * phases[1] == 1:
        bring_box(tiles, at, xs[0], seen, view[4], full, slot)
    else:
        for k in cb.unroll(range(phases[0] * phases[1])):
            if view[3] == k:
                bring_box(tiles, at, xs[k], seen, view[4], full, slot)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def hopper_weight(
    x: cb.TensorMap, x1, x2, x3, grad: cb.TensorMap, sums: cb.TensorMap, counts, row_tiles, tiles, items, per, window,
    dilation, pad, pieces, blueprint: cb.Comptime,
):  # fmt: skip
    """sums[range, f, (tap, channel)] = sum over a range's places of grad[place, f] * x[place seen by tap, channel].

    x and its further phases (N, D, H, W, C), or without the depth; grad alike, places of the output; boxes have 64
    places and channels. `counts` are the boxes along images, depth, height and width, `per` of a range; a tap has
    `pieces` of 64 channels. Items are tiles of every range. A launch has at most one cube for each core of the device.
    """
    rows, columns, stages, share = blueprint.rows, blueprint.columns, blueprint.stages, blueprint.share
    full = cb.barrier(stages, 1)
    empty = cb.barrier(stages, 1 if blueprint.turns else 2)
    order = cb.barrier(2, 1)
    tiles_a = cb.shared(stages * rows * PLACES, grad.dtype)
    tiles_b = cb.shared(stages * columns * PLACES, x.dtype)
    staging = cb.shared(4 * BLOCK * ROW_BYTES // sums.dtype.itemsize, sums.dtype)
    arrived = cb.barrier(16, 1)
    shift = cb.shared(1, cb.f32)
    boxes = counts[0] * counts[1] * counts[2] * counts[3]
    box = box_of(grad)
    ends = (0, counts[1] * box[1], counts[2] * box[2], counts[3] * box[3])
    slot = 0
    phase = 0
    item = cb.CUBE_POS
    if cb.UNIT_POS < GROUP:
        cb.set_registers(56, False)
        if cb.UNIT_POS == 0:
            while item < items:
                first, steps = range_of(item, tiles, per, boxes)
                row = item % tiles % row_tiles
                column = item % tiles // row_tiles
                views = ()  # divisions take long, so none is left for the steps
                for j in cb.unroll(range(columns // BLOCK)):
                    piece = column * (columns // BLOCK) + j
                    views = views + (view_of(piece, pieces, window, dilation, pad, blueprint.phases),)
                i, d, h, w = box_start(first, counts, box)
                for _step in range(steps):
                    cb.barrier_wait(empty, slot, 1 - phase)
                    cb.barrier_expect(full, slot, grad.nbytes * (rows // BLOCK) + x.nbytes * (columns // BLOCK))
                    for j in cb.unroll(range(rows // BLOCK)):
                        at = (slot * rows + j * BLOCK) * PLACES
                        bring_box(tiles_a, at, grad, (i, d, h, w), row * rows + j * BLOCK, full, slot)
                    for j in cb.unroll(range(columns // BLOCK)):
                        at = (slot * columns + j * BLOCK) * PLACES
                        bring_view(tiles_b, at, (x, x1, x2, x3), (i, d, h, w), views[j], full, slot, blueprint.phases)
                    w = w + box[3]
                    if w >= ends[3]:
                        w = 0
                        h = h + box[2]
                        if h >= ends[2]:
                            h = 0
                            d = d + box[1]
                            if d >= ends[1]:
                                d = 0
                                i = i + box[0]
                    slot = slot + 1
                    if slot == stages:
                        slot = 0
                        phase = 1 - phase
                item = item + cb.CUBE_COUNT
    else:
        cb.set_registers(224, True)
        acc = cb.local(share * columns // GROUP, cb.f32)
        consumer = cb.UNIT_POS // GROUP - 1
        own = 0 if blueprint.turns else consumer * share  # its first row in a tile
        mine = consumer
        turn_phase = 1 - consumer
        done = 0
        leader = cb.UNIT_POS % GROUP == 0
        while item < items:
            _, steps = range_of(item, tiles, per, boxes)
            if blueprint.turns and mine != 0:  # the other's item: its stages go by
                ahead = slot + steps
                phase = (phase + ahead // stages) % 2
                slot = ahead % stages
            else:
                if blueprint.turns:
                    cb.barrier_wait(order, consumer, turn_phase)
                    turn_phase = 1 - turn_phase
                previous = 0
                for step in range(steps):
                    cb.barrier_wait(full, slot, phase)
                    cb.wgmma_fence()
                    stage_product(
                        acc, tiles_a, (slot * rows + own) * PLACES, tiles_b, slot * columns * PLACES, step > 0,
                        blueprint, PLACES,
                    )  # fmt: skip
                    cb.wgmma_commit()
                    cb.wgmma_wait(1)
                    if leader and step > 0:
                        cb.barrier_arrive(empty, previous)
                    previous = slot
                    slot = slot + 1
                    if slot == stages:
                        slot = 0
                        phase = 1 - phase
                if blueprint.turns and leader:
                    cb.barrier_arrive(order, 1 - consumer)
                cb.wgmma_wait(0, acc)
                if leader:
                    cb.barrier_arrive(empty, previous)
                write_tile(
                    acc, staging, shift, consumer, sums, None, arrived, done, 1.0, item // tiles,
                    item % tiles % row_tiles * rows + own, item % tiles // row_tiles * columns, blueprint,
                )  # fmt: skip
                done = done + 1
            mine = 1 - mine
            item = item + cb.CUBE_COUNT
        if cb.UNIT_POS_PLANE == 0:
            cb.tma_wait(0)


@cb.kernel
def fold_ranges(sums: cb.Array, out: cb.Array, width, lanes: cb.Comptime[int], ahead: cb.Comptime[int]):
    """out[f, c, tap] = sum over ranges of sums[range, f, tap * width + c]; a unit does a line of channels."""
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    across = out.shape[1] // lanes
    c = at % across * lanes
    tap = at // across % out.shape[2]
    f = at // across // out.shape[2]
    if f < out.shape[0]:
        total = cb.cast(cb.splat(0.0, lanes), cb.f32)
        ranges = sums.shape[0]
        whole = ranges // ahead * ahead
        for first in range(0, whole, ahead):
            lines = ()
            for k in cb.unroll(range(ahead)):
                lines = lines + (sums.load((first + k, f, tap * width + c), lanes),)
            for k in cb.unroll(range(ahead)):
                total = total + lines[k]
        for k in range(whole, ranges):
            total = total + sums.load((k, f, tap * width + c), lanes)
        for k in cb.unroll(range(lanes)):
            out[f, c + k, tap] = cb.cast(total[k], out.dtype)


@cb.kernel
def fold_taps(sums: cb.Array, out: cb.Array, width, taps: cb.Comptime[int]):
    """out[f, c * taps + tap] = sum over ranges of sums[range, f, tap * width + c]; a unit does four channels."""
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    across = out.shape[1] // (4 * taps)
    c, f = at % across * 4, at // across
    if f < out.shape[0]:
        acc = cb.local(taps, cb.f32, lanes=4)
        for t in cb.unroll(range(taps)):
            acc[t] = sums.load((0, f, t * width + c), 4)
        for k in range(1, sums.shape[0]):
            for t in cb.unroll(range(taps)):
                acc[t] = acc[t] + sums.load((k, f, t * width + c), 4)
        flat = cb.local(4 * taps, out.dtype)
        for t in cb.unroll(range(taps)):
            line = acc[t]
            for q in cb.unroll(range(4)):
                flat[q * taps + t] = cb.cast(line[q], out.dtype)
        for t in cb.unroll(range(taps)):
            out.store((f, c * taps + 4 * t), flat.load(4 * t, 4))


@lru_cache(maxsize=1024)
def box_for(n: int, places: tuple[int, int, int]) -> tuple[Four, Four]:
    """The box of 64 places, and how many there are along each axis: the fewest, of these the one that sees least."""
    powers = [1, 2, 4, 8, 16, 32, 64]
    best: tuple[Any, Four, Four] | None = None
    for d, h, w in itertools.product(powers, repeat=3):
        if d * h * w <= PLACES and not (d > 1 and places[0] == 1):
            box = (PLACES // (d * h * w), d, h, w)
            counts = tuple(-(-a // b) for a, b in zip((n, *places), box, strict=True))
            cost = (math.prod(counts), box[0] * (d + 2) * (h + 2) * (w + 2), -w)
            if best is None or cost < best[0]:
                best = cost, box, counts  # type: ignore[assignment]
    assert best is not None
    return best[1], best[2]


@lru_cache(maxsize=1024)
def plan_of(filters: int, pieces: int, boxes: int, cores: int) -> tuple[HopperWindow, int]:
    """The tile, and the boxes of a range: what takes the fewest cycles by an estimate.

    A step takes as long as its products or, at 38 bytes a cycle from the second-level cache, as its bytes (measured on
    an H200 with the forward convolution); the end of an item writes its sums, which are read again.
    """
    best: tuple[float, HopperWindow, int] | None = None
    for plan in TILES:
        tiles = -(-filters // plan.rows) * -(-pieces * BLOCK // plan.columns)
        step = max(plan.rows * plan.columns / 32, 3.4 * (plan.rows + plan.columns))
        for rounds in (1, 2, 3, 4, 6, 8):
            per = -(-boxes // max(1, min(boxes, rounds * cores // tiles)))
            items = -(-boxes // per) * tiles
            cost = -(-items // cores) * (per * step + plan.rows * plan.columns / 4 + 1500)
            if best is None or cost < best[0]:
                best = cost, plan, per
    assert best is not None
    return best[1], best[2]


def prepared(
    x: Any, grad: Any, problem: Problem, cores: int, chosen: tuple[HopperWindow, int] | None = None
) -> tuple[int, tuple[Any, ...], Any]:
    """Cubes and arguments of a launch, and its sums: x (N, *size, C) and grad (N, *out, F) as `in_boxes` gives them."""
    n, c, filters = x.shape[0], x.shape[-1], grad.shape[-1]
    taps, pieces = math.prod(problem.window), -(-c // BLOCK)
    box, counts = box_for(n, problem.out)
    boxes = math.prod(counts)
    plan, per = chosen or plan_of(filters, taps * pieces, boxes, cores)
    plan = replace(plan, phases=problem.stride[1:])
    tall, wide = plan.phases
    parts = [x[:, ..., i::tall, j::wide, :] for i in range(tall) for j in range(wide)]
    maps = [map_of(part, box) for part in parts]
    row_tiles, column_tiles = -(-filters // plan.rows), -(-taps * pieces * BLOCK // plan.columns)
    ranges = -(-boxes // per)
    sums = memory.empty((ranges, filters, taps * pieces * BLOCK), np.float32)
    items = row_tiles * column_tiles * ranges
    arguments = (
        *maps, *[None] * (4 - len(maps)), map_of(grad, box),
        cb.tensor_map(sums, (1, PLANE_ROWS, ROW_BYTES // sums.itemsize)), counts, row_tiles, row_tiles * column_tiles,
        items, per, problem.window, problem.dilation, problem.pad, pieces, plan,
    )  # fmt: skip
    return min(items, cores), arguments, sums


def by_places_on_gpu(view: Any, grad: Any, out: Any, problem: Problem) -> bool:
    """out (F, C, taps) = the gradient by the filters, if the kernel takes it: view (N, *size, C), grad (N, *out, F)."""
    view, problem = without_places_between(view, problem)
    if not suits(view, grad, problem) or view.shape[-1] % MEASURE or grad.shape[-1] % MEASURE:
        return False
    cubes, arguments, sums = prepared(in_boxes(view), in_boxes(grad), problem, cb.device_properties_of().cores)
    hopper_weight[cubes, UNITS](*arguments, mode="unchecked")
    folded(sums, out)
    return True


def folded(sums: Any, out: Any) -> None:
    """out (F, C, taps), contiguous, of sums (ranges, F, taps * (C or more)); C is a multiple of 4."""
    filters, channels, taps = out.shape
    width = sums.shape[2] // taps
    if 1 < taps <= TOGETHER and filters * channels // 4 >= MANY:
        units = filters * channels // 4
        fold_taps[-(-units // FOLDERS), FOLDERS](sums, out.reshape(filters, -1), width, taps, mode="unchecked")
        return
    fold_ranges[-(-out.size // 4 // FOLDERS), FOLDERS](sums, out, width, 4, AHEAD, mode="unchecked")
