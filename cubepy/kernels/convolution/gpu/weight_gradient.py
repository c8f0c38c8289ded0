"""A GPU's gradient of a convolution by its filters, in which no columns stand in memory: any dtype,
stride and groups.

The sum runs over pixels. A stage has a few pixels of a tile's filters and of its columns, which are
(tap, channel) pairs: asynchronous copies load them, the input's from the pixel that the tap sees,
with zeros where there is none. A unit loads the same columns of one pixel of every stage, so it
works taps out once and then counts pixels up. There are few tiles and many pixels: these are cut
into ranges, which `convolution_weight_hopper.folded` adds in one order. Products are plain
arithmetic in f32, or matrix units' (16-bit floats; f32 where it may be rounded to tf32).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.gpu.fold import folded
from cubepy.kernels.convolution.gpu.in_order import in_order
from cubepy.kernels.convolution.problem import WeightGradient, in_three
from cubepy.kernels.matmul.gpu.mma_multistage import stage_product
from cubepy.kernels.matmul.gpu.operands import ALIGNMENT
from cubepy.kernels.primitives.vector_width import address
from cubepy.runtime import memory
from cubepy.runtime.symbolic.cached import cached
from cubepy.tune import GpuRoutine

UNITS, SIDE, LANES = 256, 16, 4
BLOCK = 64
"""Columns (or rows) of which a unit loads one piece."""
PIECE = 16
"""Bytes of a copy."""
PAD = 8
"""Elements between rows of a stage, so that the fragments of tf32 meet no bank twice."""


@dataclass(frozen=True)
class Window:
    """What changes the code.

    Attributes:
        rows, columns: of a tile: filters, and (tap, channel) pairs; multiples of 64.
        matrix: whether matrix units multiply.
        copies: whether copies of 16 bytes suit both arrays.
        stages: that are under way.
        cubes: of a core.
        a_along_k, b_along_k: False, as the matmul calls it if the sum's axis is outermost.
    """

    rows: int
    columns: int
    matrix: bool = False
    copies: bool = True
    stages: int = 3
    cubes: int = 2
    a_along_k: bool = False
    b_along_k: bool = False


TILES = (
    Window(64, 192),
    Window(64, 128),
    Window(64, 64),
    Window(128, 128),
    Window(128, 192, stages=4, cubes=1),
)
DEPTH = 16
"""Pixels of a stage of f32."""
RATES, STEP = {False: 112, True: 464}, 400
"""Products of a core and cycle, without matrix units and with them; cycles of a stage beside them.
"""
ENDS, BYTES = 12, 1300
"""What the ends of a range cost, in steps; bytes a cycle of sums."""


@cb.func
def load_async(tiles, at, source, index, left, copies):
    """Start loading 16 bytes, or `left` elements of them."""
    if copies:
        cb.copy_async(tiles, at, source, index, PIECE, left > 0)
    else:
        tiles.store(at, source.load(index, PIECE // tiles.dtype.itemsize, valid=left))


@cb.func
def columns_of_unit(column, lane, width, channels, size, window, dilation, pad, plan):
    """For every block of columns the shift of this unit's tap, along the axes and of the input's
    rows, its first channel, and how many channels are left.
    """
    found = ()
    for j in cb.unroll(range(plan.columns // BLOCK)):
        at = column + j * BLOCK + lane
        tap = at // width
        channel = at - tap * width
        t = tap // (window[1] * window[2])
        left = channels - channel if t < window[0] else 0
        deep, down = t * dilation[0] - pad[0], tap // window[2] % window[1] * dilation[1] - pad[1]
        right = tap % window[2] * dilation[2] - pad[2]
        found = found + (
            (deep, down, right, (deep * size[1] + down) * size[2] + right, channel, left),
        )
    return found


@cb.struct
class Loads:
    """What a unit loads of every stage: of its pixel, the `mine`-th, pieces from element `lane` on
    of the tile's filters, `filters` from `first` on, and of what the tile's taps see.

    `near`: the group's first filter and channel. `sizes`: of the image, the result, and the stride.
    """

    tiles_a: Any
    tiles_b: Any
    grad: Any
    x: Any
    mine: Any
    lane: Any
    first: Any
    filters: Any
    near: Any
    seen: Any
    sizes: Any
    plan: cb.Comptime[Any]


@cb.func
def load_stage(loads, slot, row, pixel):
    """Start loading a unit's pixel of a stage. Gives its row and pixel of the next stage."""
    tiles_a, tiles_b, grad, x = loads.tiles_a, loads.tiles_b, loads.grad, loads.x
    mine, lane, near, plan = loads.mine, loads.lane, loads.near, loads.plan
    size, out, stride = loads.sizes
    depth = UNITS * (PIECE // x.dtype.itemsize) // BLOCK
    at_a = (slot * depth + mine) * (plan.rows + PAD) + lane
    at_b = (slot * depth + mine) * (plan.columns + PAD) + lane
    n, d, h, w = pixel
    there = row < grad.shape[0]
    for i in cb.unroll(range(plan.rows // BLOCK)):
        f = loads.first + i * BLOCK + lane
        left = cb.max(loads.filters - f, 0) if there else 0
        load_async(tiles_a, at_a + i * BLOCK, grad, (row, near[0] + f), left, plan.copies)
    d, h, w = d * stride[0], h * stride[1], w * stride[2]
    origin = ((n * size[0] + d) * size[1] + h) * size[2] + w
    for j in cb.unroll(range(plan.columns // BLOCK)):
        deep, down, right, shift, channel, left = loads.seen[j]
        inside = (
            within(d + deep, size[0]) and within(h + down, size[1]) and within(w + right, size[2])
        )
        left = left if inside and there else 0
        at = (origin + shift, near[1] + channel)
        load_async(tiles_b, at_b + j * BLOCK, x, at, left, plan.copies)
    n, d, h, w = further(pixel, out, depth)
    return row + depth, n, d, h, w


@cb.func
def within(k, count):
    """0 <= k < count, in one comparison."""
    return cb.cast(k, cb.u32) < cb.cast(count, cb.u32)


@cb.func
def further(pixel, out, count):
    """The pixel so many later, in an output of such a size."""
    n, d, h, w = pixel
    w = w + count
    while w >= out[2]:
        w = w - out[2]
        h = h + 1
        if h == out[1]:
            h = 0
            d = d + 1
            if d == out[0]:
                d = 0
                n = n + 1
    return n, d, h, w


@cb.func
def words_of(tiles, at, down, right):
    """A fragment of tf32: elements at `at`, and further ones `down` and `right` of it, as matrix
    units take them.
    """
    held = cb.local(2 * len(right), cb.f32)
    for k in cb.unroll(range(2)):
        for j in cb.unroll(range(len(right))):
            held[k * len(right) + j] = tiles[at + k * down + right[j]]
    return cb.pack(held.load(0, 2 * len(right)), cb.f32)


@cb.func
def tf32_product(acc, tiles_a, at_a, tiles_b, at_b, start, shape, depth, plan):
    """acc += one stage, for a plane's part of the tile, whose operands have the sum's axis
    outermost.
    """
    top, left = start
    high, wide = shape
    pitch_a, pitch_b = plan.rows + PAD, plan.columns + PAD
    lane = cb.UNIT_POS_PLANE
    for k in cb.unroll(range(0, depth, 8)):
        from_a = at_a + (k + lane % 4) * pitch_a + top + lane // 4
        from_b = at_b + (k + lane % 4) * pitch_b + left + lane // 4
        b = tuple(
            words_of(tiles_b, from_b + j * 8, 4 * pitch_b, (0,))
            for j in cb.unroll(range(wide // 8))
        )
        for i in cb.unroll(range(high // 16)):
            a = words_of(tiles_a, from_a + i * 16, 4 * pitch_a, (0, 8))
            for j in cb.unroll(range(wide // 8)):
                acc[i, j] = cb.mma(a, b[j], acc[i, j], cb.f32)


@cb.func
def plain_product(acc, tiles_a, at_a, tiles_b, at_b, depth, plan):
    """acc += one stage by plain arithmetic: a unit has 4 by 4 blocks of the tile."""
    top, left = cb.UNIT_POS // SIDE * LANES, cb.UNIT_POS % SIDE * LANES
    for k in cb.unroll(range(depth)):
        for g in cb.unroll(range(plan.rows // BLOCK)):
            a = cb.cast(tiles_a.load(at_a + k * (plan.rows + PAD) + g * BLOCK + top, LANES), cb.f32)
            for j in cb.unroll(range(plan.columns // BLOCK)):
                b = cb.cast(
                    tiles_b.load(at_b + k * (plan.columns + PAD) + j * BLOCK + left, LANES), cb.f32
                )
                for e in cb.unroll(range(LANES)):
                    acc[g * LANES + e, j] = cb.fma(cb.splat(a[e], LANES), b, acc[g * LANES + e, j])


@cb.kernel(fast_math=("contract", "nsz"))
def window_weight(
    x: cb.Array,
    grad: cb.Array,
    sums: cb.Array,
    groups,
    channels,
    filters,
    shape,
    steps,
    per,
    plan: cb.Comptime,
):
    """sums[range, f, (tap, channel)] = sum over a range's pixels of grad[pixel, f] * x[pixel seen
    by tap, channel].

    x (N * D * H * W, C) and grad (pixels, F) are contiguous, of sizes `size` and `out`; a group has
    so many `channels` and `filters`. shape: size, out, window, stride, padding and dilation. A
    range has `per` of all `steps`. A cube does a tile of one group and range.
    """
    size, out, window, stride, pad, dilation = shape
    cb.resident(plan.cubes)
    rows, columns, stages = plan.rows, plan.columns, plan.stages
    piece = PIECE // x.dtype.itemsize
    depth = UNITS * piece // BLOCK
    pitch_a, pitch_b = rows + PAD, columns + PAD
    tiles_a = cb.shared(stages * depth * pitch_a, x.dtype)
    tiles_b = cb.shared(stages * depth * pitch_b, x.dtype)
    column_tiles = (sums.shape[2] + columns - 1) // columns
    row_tiles = (filters + rows - 1) // rows
    column = cb.CUBE_POS % column_tiles * columns
    row = cb.CUBE_POS // column_tiles % row_tiles * rows
    group = cb.CUBE_POS // (column_tiles * row_tiles) % groups
    part = cb.CUBE_POS // (column_tiles * row_tiles * groups)
    width = sums.shape[2] // (window[0] * window[1] * window[2])
    mine = cb.UNIT_POS // (BLOCK // piece)  # the pixel of a stage that this unit loads
    lane = cb.UNIT_POS % (BLOCK // piece) * piece
    seen = columns_of_unit(column, lane, width, channels, size, window, dilation, pad, plan)
    near, sizes = (group * filters, group * channels), (size, out, stride)
    loads = Loads(tiles_a, tiles_b, grad, x, mine, lane, row, filters, near, seen, sizes, plan)
    count = cb.min(per, steps - part * per)
    first = part * per * depth + mine
    line = first // out[2]
    plane = line // out[1]
    n = plane // out[0]
    d, h, w = plane - n * out[0], line - plane * out[1], first - line * out[2]
    high, wide = rows // 2, columns // 4  # of a plane's part; the eight planes stand two by four
    top, left = cb.PLANE_POS // 4 * high, cb.PLANE_POS % 4 * wide
    start, shape = (top, left), (high, wide)
    if plan.matrix:
        acc = cb.local((high // 16, wide // 8), cb.f32, lanes=4)
        for i in cb.unroll(range(high // 16)):
            for j in cb.unroll(range(wide // 8)):
                acc[i, j] = cb.splat(0.0, 4)
    else:
        acc = cb.local((rows // SIDE, columns // BLOCK), cb.f32, lanes=LANES)
        for i in cb.unroll(range(rows // SIDE)):
            for j in cb.unroll(range(columns // BLOCK)):
                acc[i, j] = cb.splat(0.0, LANES)
    for slot in cb.unroll(range(stages - 1)):
        if slot < count:
            first, n, d, h, w = load_stage(loads, slot, first, (n, d, h, w))
        cb.copy_async_commit()
    slot, ahead = 0, stages - 1
    for step in range(count):
        cb.copy_async_wait(stages - 2)
        cb.sync_cube()
        if step + stages - 1 < count:
            first, n, d, h, w = load_stage(loads, ahead, first, (n, d, h, w))
        cb.copy_async_commit()
        at_a, at_b = slot * depth * pitch_a, slot * depth * pitch_b
        if plan.matrix and x.dtype.itemsize == 2:
            stage_product(acc, tiles_a, at_a, tiles_b, at_b, start, shape, depth, plan)
        elif plan.matrix:
            tf32_product(acc, tiles_a, at_a, tiles_b, at_b, start, shape, depth, plan)
        else:
            plain_product(acc, tiles_a, at_a, tiles_b, at_b, depth, plan)
        slot = slot + 1 if slot + 1 < stages else 0
        ahead = ahead + 1 if ahead + 1 < stages else 0
    if plan.matrix:
        r, c = top + cb.UNIT_POS_PLANE // 4, column + left + cb.UNIT_POS_PLANE % 4 * 2
        for i in cb.unroll(range(high // 16)):
            for j in cb.unroll(range(wide // 8)):
                for half in cb.unroll(range(2)):
                    f = row + r + i * 16 + half * 8
                    store_sums(
                        cb.slice_line(acc[i, j], half * 2, 2),
                        sums,
                        part,
                        near[0],
                        f,
                        filters,
                        c + j * 8,
                    )
    else:
        c = column + cb.UNIT_POS % SIDE * LANES
        for i in cb.unroll(range(rows // SIDE)):
            for j in cb.unroll(range(columns // BLOCK)):
                f = row + i // LANES * BLOCK + cb.UNIT_POS // SIDE * LANES + i % LANES
                store_sums(acc[i, j], sums, part, near[0], f, filters, c + j * BLOCK)


@cb.func
def store_sums(line, sums, part, near, f, filters, column):
    """Write what lies inside the array, and in the group."""
    if f < filters and column < sums.shape[2]:
        sums.store((part, near + f, column), line)


@cached
def plan_of(
    filters: int, columns: int, groups: int, steps: int, cores: int, matrix: bool, copies: bool
) -> tuple[Window, int, int]:
    """The tile, the tiles of a range, and the steps of one: what takes the fewest cycles by an
    estimate.

    Cores make so many products a cycle, ranges have ends, and sums are written and read again (as
    on an H200).
    """
    best: tuple[float, Window, int, int] | None = None
    for plan in TILES if filters > BLOCK else TILES[:3]:
        plan = replace(plan, matrix=matrix, copies=copies)
        tiles = groups * -(-filters // plan.rows) * -(-columns // plan.columns)
        slots = plan.cubes * cores
        step = plan.cubes * (DEPTH * plan.rows * plan.columns / RATES[matrix] + STEP)
        for rounds in (1, 2, 3, 4, 6, 8):
            per = -(-steps // max(1, min(steps, rounds * slots // tiles)))
            ranges = -(-steps // per)
            cost = (
                -(-tiles * ranges // slots) * (per + ENDS) * step
                + ranges * groups * filters * columns * 8 / BYTES
            )
            if best is None or cost < best[0]:
                best = cost, plan, tiles, per
    assert best is not None
    return best[1:]


class Windows(GpuRoutine):
    """A product along the pixels, whose windows are gathered on the way."""

    name = "windows"

    def unfit(self, p: WeightGradient, properties: cb.DeviceProperties) -> str | None:
        """Matrix units and copies, arrays of one dtype."""
        fits = p.x.dtype == p.grad.dtype and p.x.itemsize <= 4
        units = {"mma", "copy_async"} <= properties.features
        return None if fits and units else "for `mma`, and f32 or narrower"

    def launch(self, p: WeightGradient, properties: cb.DeviceProperties) -> None:
        """Sums of ranges, which are added."""
        x, seen = (in_three(in_order(a)) for a in p.last)
        problem, groups, out = p.shape, p.groups, p.by_tap
        filters, channels, taps = out.shape[0] // groups, out.shape[1], out.shape[2]
        piece = PIECE // x.itemsize
        whole = all(n % piece == 0 for n in (channels, filters))
        copies = whole and address(x) % ALIGNMENT == 0 and address(seen) % ALIGNMENT == 0
        matrix = problem.tf32 or x.itemsize == 2
        width = -(-channels // piece) * piece
        steps = -(-math.prod(seen.shape[:4]) // (UNITS * piece // BLOCK))
        plan, tiles, per = plan_of(
            filters, taps * width, groups, steps, properties.cores, matrix, copies
        )
        ranges = -(-steps // per)
        sums = memory.empty((ranges, out.shape[0], taps * width), np.float32)
        flat = (a.reshape(-1, a.shape[4]) for a in (x, seen))
        lengths = problem.size, problem.out, problem.window
        shape = (*lengths, problem.stride, problem.pad, problem.dilation)
        window_weight[tiles * ranges, UNITS](
            *flat, sums, groups, channels, filters, shape, steps, per, plan, mode="unchecked"
        )
        folded(sums, out, filters)
