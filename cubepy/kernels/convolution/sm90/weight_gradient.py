"""The gradient of a convolution by its filters on Hopper: a product of matrices whose sum runs over
pixels.

A row of the result is a filter, a column a tap and a channel. A step of the sum is a box of 64
pixels: the copy engine loads it from the gradient, 64 filters in one copy, and shifted by a tap
from the input, 64 channels in one copy, with zeros beyond the edges. There are few tiles and many
pixels, so the sum is cut into ranges of boxes, which are added in a second kernel, in an order that
never changes. Pipelines and the order of consumers are the matmul's (matmul/sm90/persistent.py).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.gpu.fold import folded
from cubepy.kernels.convolution.problem import Problem, WeightGradient, without_skipped_pixels
from cubepy.kernels.convolution.sm90.implicit_gemm import HopperWindow, box_of, box_start, load_box
from cubepy.kernels.convolution.sm90.implicit_gemm_plan import Four, map_of, suits
from cubepy.kernels.convolution.sm90.operand_layout import MEASURE, in_boxes, of_a_block
from cubepy.kernels.matmul.sm90.epilogue import PLANE_ROWS, TileEpilogue
from cubepy.kernels.matmul.sm90.persistent import UNITS
from cubepy.kernels.primitives.pipeline import (
    BLOCK,
    GROUP,
    ROW_BYTES,
    consume,
    pipeline_of,
    produce,
)
from cubepy.runtime import memory
from cubepy.runtime.symbolic.cached import cached
from cubepy.tune import GpuRoutine

PIXELS = 64
"""Pixels of a step."""


def tile(rows: int, columns: int, stages: int, pingpong: bool = True) -> HopperWindow:
    """A blueprint; both operands have pixels outermost."""
    return HopperWindow(
        rows, columns, stages, pingpong=pingpong, transpose_a=True, transpose_b=True
    )


TILES = (
    tile(128, 256, 4, False),
    tile(128, 192, 4, False),
    tile(128, 128, 5),
    tile(64, 256, 4),
    tile(64, 192, 5),
    tile(128, 64, 6),
    tile(64, 128, 6),
    tile(64, 64, 8),
)


@cb.func
def range_of(part, per, boxes):
    """The boxes of a range: the first, and how many."""
    first = part * per
    return first, cb.min(boxes, first + per) - first


@cb.func
def view_of(piece, pieces, window, dilation, pad, phases):
    """What 64 columns are of the input: a tap's shift along depth, height and width, its phase, the
    first channel.
    """
    high, wide = phases
    tap = piece // pieces
    down = tap // window[2] % window[1] * dilation[1] - pad[1]
    right = tap % window[2] * dilation[2] - pad[2]
    phase = (down & (high - 1)) * wide + (right & (wide - 1))
    deep = tap // (window[1] * window[2]) * dilation[0] - pad[0]
    return deep, down >> (high - 1), right >> (wide - 1), phase, (piece - tap * pieces) * BLOCK


@cb.func
def load_view(tiles, at, xs, start, view, near, stage, phases):
    """Start bringing 64 columns: a tap's view of a box, 64 channels of it; those of a block begin
    at `near`.
    """
    seen = (start[0], start[1] + view[0], start[2] + view[1], start[3] + view[2])
    if phases[0] * phases[1] == 1:
        load_box(tiles, at, xs[0], seen, near + view[4], stage)
    else:
        for k in cb.unroll(range(phases[0] * phases[1])):
            if view[3] == k:
                load_box(tiles, at, xs[k], seen, near + view[4], stage)


@cb.struct
class WeightProduct:
    """The items of a gradient by the filters, for the loops of the pipeline; fields as the kernel's
    arguments are.
    """

    xs: Any
    grad: cb.TensorMap
    epilogue: TileEpilogue
    counts: Any
    tiles: Any
    per: Any
    geometry: Any
    block: Any
    blueprint: cb.Comptime[HopperWindow]

    def position(self, item):
        """The range of an item, and its row and column of tiles."""
        row_tiles, tiles = self.tiles[0], self.tiles[1]
        return item // tiles, item % tiles % row_tiles, item % tiles // row_tiles

    def steps(self, position):
        """Stages of an item."""
        boxes = self.counts[0] * self.counts[1] * self.counts[2] * self.counts[3]
        _, steps = range_of(position[0], self.per, boxes)
        return steps

    def load(self, pipeline, stage, position):
        """Bring an item's stages, one of a box of 64 positions each; gives the stage after them."""
        xs, grad, counts, blueprint = self.xs, self.grad, self.counts, self.blueprint
        rows, columns = blueprint.rows, blueprint.columns
        window, dilation, pad = self.geometry
        pieces, group = self.block
        boxes = counts[0] * counts[1] * counts[2] * counts[3]
        box = box_of(grad)
        ends = (0, counts[1] * box[1], counts[2] * box[2], counts[3] * box[3])
        part, row, column = position
        first, steps = range_of(part, self.per, boxes)
        near = row * rows // group * pieces * BLOCK
        views = tuple(  # divisions take long, so none is left for the steps
            view_of(
                column * (columns // BLOCK) + j, pieces, window, dilation, pad, blueprint.phases
            )
            for j in cb.unroll(range(columns // BLOCK))
        )
        i, d, h, w = box_start(first, counts, box)
        for _step in range(steps):
            stage.acquire()
            stage.expect(grad.nbytes * (rows // BLOCK) + xs[0].nbytes * (columns // BLOCK))
            for j in cb.unroll(range(rows // BLOCK)):
                at = (stage.slot * rows + j * BLOCK) * PIXELS
                load_box(pipeline.a, at, grad, (i, d, h, w), row * rows + j * BLOCK, stage)
            for j in cb.unroll(range(columns // BLOCK)):
                at = (stage.slot * columns + j * BLOCK) * PIXELS
                load_view(pipeline.b, at, xs, (i, d, h, w), views[j], near, stage, blueprint.phases)
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
            stage = stage.advance()
        return stage

    def begin(self, position):
        """Nothing comes before the products."""

    def finish(self, acc, position, done):
        """Write this consumer's rows of an item's sums."""
        blueprint = self.blueprint
        part, row, column = position
        consumer = cb.UNIT_POS // GROUP - 1
        own = 0 if blueprint.pingpong else consumer * blueprint.share  # its first row in a tile
        start = (part, row * blueprint.rows + own, column * blueprint.columns)
        self.epilogue.write(acc, consumer, start, done)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def hopper_weight(
    xs,
    grad: cb.TensorMap,
    sums: cb.TensorMap,
    counts,
    tiles,
    per,
    geometry,
    block,
    blueprint: cb.Comptime,
):
    """sums[range, f, (tap, channel)] = sum over a range's pixels of grad[pixel, f] * x[pixel seen
    by tap, channel].

    `xs` are the maps of x and its further phases (N, D, H, W, C), or without the depth; grad alike,
    positions of the output; boxes have 64 positions and channels. `counts` are the boxes along
    images, depth, height and width, `per` of a range; `tiles` the rows of tiles, all tiles, and the
    items, which are the tiles of every range. `geometry` is the window with its dilation and
    padding. `block` says the pieces of 64 channels of a tap, and how many filters see the same
    ones; the next filters see the next. A launch has at most one cube for each core of the device.
    """
    pipeline = pipeline_of(blueprint, grad.dtype, xs[0].dtype)
    staging = cb.shared(4 * BLOCK * ROW_BYTES // sums.dtype.itemsize, sums.dtype)
    arrived = cb.barrier(16, 1)
    shift = cb.shared(1, cb.f32)
    epilogue = TileEpilogue(sums, None, None, 1.0, staging, shift, arrived, blueprint)
    product = WeightProduct(xs, grad, epilogue, counts, tiles, per, geometry, block, blueprint)
    if cb.UNIT_POS < GROUP:
        cb.set_registers(56, False)
        if cb.UNIT_POS == 0:
            produce(product, pipeline, tiles[2])
    else:
        cb.set_registers(224, True)
        acc = cb.local(blueprint.share * blueprint.columns // GROUP, cb.f32)
        consume(product, acc, pipeline, tiles[2], True)
        if cb.UNIT_POS_PLANE == 0:
            cb.tma_wait(0)


@cached
def box_for(n: int, out_size: tuple[int, ...]) -> tuple[Four, Four]:
    """The box of 64 pixels, and how many there are along each axis: the fewest, of these the one
    that sees least.
    """
    powers = [1, 2, 4, 8, 16, 32, 64]
    best: tuple[Any, Four, Four] | None = None
    for d, h, w in itertools.product(powers, repeat=3):
        if d * h * w <= PIXELS and not (d > 1 and out_size[0] == 1):
            box = (PIXELS // (d * h * w), d, h, w)
            counts = tuple(-(-a // b) for a, b in zip((n, *out_size), box, strict=True))
            cost = (math.prod(counts), box[0] * (d + 2) * (h + 2) * (w + 2), -w)
            if best is None or cost < best[0]:
                best = cost, box, counts  # type: ignore[assignment]
    assert best is not None
    return best[1], best[2]


@cached
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
    high, wide = plan.phases
    parts = [x[:, ..., i::high, j::wide, :] for i in range(high) for j in range(wide)]
    maps = [map_of(part, box) for part in parts]
    row_tiles, column_tiles = -(-filters // plan.rows), -(-taps * pieces * BLOCK // plan.columns)
    ranges = -(-boxes // per)
    sums = memory.empty((ranges, filters, taps * pieces * BLOCK), np.float32)
    items = row_tiles * column_tiles * ranges
    arguments = (
        tuple(maps),
        map_of(grad, box),
        cb.tensor_map(sums, (1, PLANE_ROWS, ROW_BYTES // sums.itemsize)),
        counts,
        (row_tiles, row_tiles * column_tiles, items),
        per,
        (problem.window, problem.dilation, problem.pad),
        (pieces, group),
        plan,
    )
    return min(items, cores), arguments, sums


class WidePixels(GpuRoutine):
    """A product along the pixels, by the kernels for Hopper. Groups of few channels make blocks of
    64, of whose products those of a filter with its own group are kept.
    """

    name = "wide_pixels"

    def unfit(self, p: WeightGradient, properties: cb.DeviceProperties) -> str | None:
        """16 bits, channels and filters that the copy engine takes."""
        if p.x.itemsize > 2 or together(p) == 0:
            return "for 16 bits, and groups that fill blocks"
        view, shape = without_skipped_pixels(p.last[0], p.shape)
        fits = suits(view, p.grad, shape, properties)
        whole = p.x.shape[1] % MEASURE == p.grad.shape[1] % MEASURE == 0
        return None if fits and whole else "for `wgmma`, by the copy engine"

    def launch(self, p: WeightGradient, properties: cb.DeviceProperties) -> None:
        """Sums of ranges, which are added."""
        (view, grad), many = p.last, together(p)
        view, shape = without_skipped_pixels(view, p.shape)
        cubes, arguments, sums = prepared(
            in_boxes(view), in_boxes(grad), shape, properties.cores, None, p.groups // many
        )
        hopper_weight[cubes, UNITS](*arguments, mode="unchecked")
        folded(sums, p.by_tap, p.out.shape[0] // p.groups, many)


def together(p: WeightGradient) -> int:
    """Groups that make a block, 0: there are none such."""
    return 1 if p.groups == 1 else of_a_block(p.out.shape[1], p.out.shape[0] // p.groups, p.groups)
