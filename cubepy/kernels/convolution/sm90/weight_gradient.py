"""The gradient of a convolution by its filters on Hopper: a product of matrices whose sum runs over
places.

A row of the result is a filter, a column a tap and a channel. A step of the sum is a box of 64
places: the copy engine brings it from the gradient, 64 filters in one copy, and shifted by a tap
from the input, 64 channels in one copy, with zeros beyond the edges. There are few tiles and many
places, so the sum is cut into ranges of boxes, which are added in a second kernel, in an order that
never changes. Rings of stages and turns are the matmul's (matmul/sm90/persistent.py).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.gpu.fold import folded
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.sm90.implicit_gemm import HopperWindow, box_of, box_start, bring_box
from cubepy.kernels.convolution.sm90.implicit_gemm_plan import (
    Four,
    map_of,
    suits,
    without_places_between,
)
from cubepy.kernels.convolution.sm90.operand_layout import MEASURE, in_boxes, of_a_block
from cubepy.kernels.matmul.sm90.persistent import PLANE_ROWS, UNITS, write_tile
from cubepy.kernels.primitives.pipeline import (
    BLOCK,
    GROUP,
    ROW_BYTES,
    multiply_tile,
    next_slot,
    ring_of,
    skip_slots,
)
from cubepy.runtime import memory

PLACES = 64
"""Places of a step."""


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
    """What 64 columns are of the input: a tap's shift along depth, height and width, its phase, the
    first channel.
    """
    tall, wide = phases
    tap = piece // pieces
    down = tap // window[2] % window[1] * dilation[1] - pad[1]
    right = tap % window[2] * dilation[2] - pad[2]
    phase = (down & (tall - 1)) * wide + (right & (wide - 1))
    deep = tap // (window[1] * window[2]) * dilation[0] - pad[0]
    return deep, down >> (tall - 1), right >> (wide - 1), phase, (piece - tap * pieces) * BLOCK


@cb.func
def bring_view(tiles, at, xs, place, view, near, full, slot, phases):
    """Start bringing 64 columns: a tap's view of a box, 64 channels of it; those of a block begin
    at `near`.
    """
    seen = (place[0], place[1] + view[0], place[2] + view[1], place[3] + view[2])
    if phases[0] * phases[1] == 1:
        bring_box(tiles, at, xs[0], seen, near + view[4], full, slot)
    else:
        for k in cb.unroll(range(phases[0] * phases[1])):
            if view[3] == k:
                bring_box(tiles, at, xs[k], seen, near + view[4], full, slot)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def hopper_weight(
    x: cb.TensorMap, x1, x2, x3, grad: cb.TensorMap, sums: cb.TensorMap, counts, row_tiles, tiles, items, per, window,
    dilation, pad, pieces, group, blueprint: cb.Comptime,
):  # fmt: skip
    """sums[range, f, (tap, channel)] = sum over a range's places of grad[place, f] * x[place seen
    by tap, channel].

    x and its further phases (N, D, H, W, C), or without the depth; grad alike, places of the
    output; boxes have 64 places and channels. `counts` are the boxes along images, depth, height
    and width, `per` of a range; a tap has `pieces` of 64 channels, and so many filters as `group`
    see the same ones, the next ones the next. Items are tiles of every range. A launch has at most
    one cube for each core of the device.
    """
    rows, columns, stages, share = (
        blueprint.rows,
        blueprint.columns,
        blueprint.stages,
        blueprint.share,
    )
    ring = ring_of(blueprint, grad.dtype, x.dtype)
    full, empty, _order, tiles_a, tiles_b = ring
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
                near = row * rows // group * pieces * BLOCK
                views = ()  # divisions take long, so none is left for the steps
                for j in cb.unroll(range(columns // BLOCK)):
                    piece = column * (columns // BLOCK) + j
                    views = views + (
                        view_of(piece, pieces, window, dilation, pad, blueprint.phases),
                    )
                i, d, h, w = box_start(first, counts, box)
                for _step in range(steps):
                    cb.barrier_wait(empty, slot, 1 - phase)
                    cb.barrier_expect(
                        full, slot, grad.nbytes * (rows // BLOCK) + x.nbytes * (columns // BLOCK)
                    )
                    for j in cb.unroll(range(rows // BLOCK)):
                        at = (slot * rows + j * BLOCK) * PLACES
                        bring_box(
                            tiles_a, at, grad, (i, d, h, w), row * rows + j * BLOCK, full, slot
                        )
                    for j in cb.unroll(range(columns // BLOCK)):
                        at = (slot * columns + j * BLOCK) * PLACES
                        bring_view(
                            tiles_b,
                            at,
                            (x, x1, x2, x3),
                            (i, d, h, w),
                            views[j],
                            near,
                            full,
                            slot,
                            blueprint.phases,
                        )
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
                    slot, phase = next_slot(slot, phase, stages)
                item = item + cb.CUBE_COUNT
    else:
        cb.set_registers(224, True)
        acc = cb.local(share * columns // GROUP, cb.f32)
        consumer = cb.UNIT_POS // GROUP - 1
        own = 0 if blueprint.turns else consumer * share  # its first row in a tile
        mine = consumer
        turn = 1 - consumer
        done = 0
        while item < items:
            _, steps = range_of(item, tiles, per, boxes)
            if blueprint.turns and mine != 0:  # the other's item: its stages go by
                slot, phase = skip_slots(slot, phase, steps, stages)
            else:
                slot, phase = multiply_tile(acc, ring, slot, phase, turn, steps, blueprint, True)
                turn = 1 - turn
                write_tile(
                    acc, staging, shift, consumer, sums, None, arrived, done, 1.0, item // tiles,
                    item % tiles % row_tiles * rows + own, item % tiles // row_tiles * columns, blueprint,
                )  # fmt: skip
                done = done + 1
            mine = 1 - mine
            item = item + cb.CUBE_COUNT
        if cb.UNIT_POS_PLANE == 0:
            cb.tma_wait(0)


@lru_cache(maxsize=1024)
def box_for(n: int, places: tuple[int, int, int]) -> tuple[Four, Four]:
    """The box of 64 places, and how many there are along each axis: the fewest, of these the one
    that sees least.
    """
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
def plan_of(
    filters: int, pieces: int, boxes: int, cores: int, group: int
) -> tuple[HopperWindow, int]:
    """The tile, of filters of one `group`, and the boxes of a range: what takes the fewest cycles
    by an estimate.

    A step takes as long as its products or, at 38 bytes a cycle from the second-level cache, as its
    bytes (measured on an H200 with the forward convolution); the end of an item writes its sums,
    which are read again.
    """
    best: tuple[float, HopperWindow, int] | None = None
    for plan in TILES if group == filters else [tile for tile in TILES if group % tile.rows == 0]:
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
    x: Any,
    grad: Any,
    problem: Problem,
    cores: int,
    chosen: tuple[HopperWindow, int] | None = None,
    blocks: int = 1,
) -> tuple[int, tuple[Any, ...], Any]:
    """Cubes and arguments of a launch, and its sums: x (N, *size, C) and grad (N, *out, F) as
    `in_boxes` gives them.

    Channels and filters fall into so many blocks, of multiples of 64 if there are several.
    """
    n, c, filters = x.shape[0], x.shape[-1] // blocks, grad.shape[-1]
    group = filters // blocks
    taps, pieces = math.prod(problem.window), -(-c // BLOCK)
    box, counts = box_for(n, problem.out)
    boxes = math.prod(counts)
    plan, per = chosen or plan_of(filters, taps * pieces, boxes, cores, group)
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
        items, per, problem.window, problem.dilation, problem.pad, pieces, group, plan,
    )  # fmt: skip
    return min(items, cores), arguments, sums


def by_places_on_gpu(view: Any, grad: Any, out: Any, problem: Problem, groups: int) -> bool:
    """out (F, C of a group, taps) = the gradient by the filters, if the kernel takes it: view (N,
    *size, C), grad (N, *out, F).

    Groups of few channels make blocks of 64, of whose products those of a filter with its own group
    are kept.
    """
    filters, c = out.shape[0] // groups, out.shape[1]
    together = 1 if groups == 1 else of_a_block(c, filters, groups)
    view, problem = without_places_between(view, problem)
    if together == 0 or view.itemsize > 2 or not suits(view, grad, problem):
        return False
    if view.shape[-1] % MEASURE or grad.shape[-1] % MEASURE:
        return False
    cores = cb.device_properties_of().cores
    cubes, arguments, sums = prepared(
        in_boxes(view), in_boxes(grad), problem, cores, None, groups // together
    )
    hopper_weight[cubes, UNITS](*arguments, mode="unchecked")
    folded(sums, out, filters, together)
    return True
