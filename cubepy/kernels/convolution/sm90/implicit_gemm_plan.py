"""Convolutions by the kernels for Hopper: tiles, boxes of pixels, and what a launch is given."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.errors import TuneError
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.sm90.implicit_gemm import HopperWindow, hopper_convolution
from cubepy.kernels.convolution.sm90.implicit_gemm_simt import FmaWindow, fma_convolution
from cubepy.kernels.convolution.sm90.operand_layout import in_boxes, starting_well
from cubepy.kernels.convolution.sm90.split_k import added
from cubepy.kernels.entry.shapes import strided
from cubepy.kernels.matmul.gpu.operands import ALIGNMENT, NARROW_FLOATS, activation_for
from cubepy.kernels.primitives.pipeline import BLOCK, ROW_BYTES
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory
from cubepy.runtime.symbolic.cached import cached
from cubepy.runtime.symbolic.least import least
from cubepy.runtime.symbolic.number import plain

TILES = {
    HopperWindow(128, 256, 4, pingpong=False): (1.57, 0.26, 0.20),
    HopperWindow(128, 192, 4, pingpong=False): (1.20, 0.20, 0.20),
    HopperWindow(128, 128, 5): (0.87, 0.015, 0.13),
    HopperWindow(128, 64, 8): (0.68, 0.015, 0.13),
    HopperWindow(64, 128, 8): (0.62, 0.015, 0.22),
    HopperWindow(64, 64, 10): (0.48, 0.015, 0.28),
    HopperWindow(256, 64, 4, pingpong=False): (1.0, 0.13, 0.20),
}
"""What tiles cost, as of the matmul: a round of them, its end where the sums are 2 KiB long, and
the launch (measured on an H200 with ResNet-50's layers).
"""
PLAIN_TILES = {
    FmaWindow(128, 128): (15.0, 0.5, 0.2),
    FmaWindow(128, 64, stages=2, cubes=4): (15.0, 0.5, 0.2),
}
"""The same for plain arithmetic."""
RANGES = 8
"""Ranges that a sum is cut into, at most."""
ADDING = 0.25, 5e-8
"""What adding ranges costs: a launch, and each byte that is written and read (as 1 to 128 images of
7 x 7 took).
"""
PHASES = 2
"""The largest stride that the kernel takes along height and width."""

SIDES = (1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64, 128)
"""Sides of boxes."""
NONE = 1 << 20
"""A side longer than any tile."""

Four = tuple[int, int, int, int]
Tile = HopperWindow | FmaWindow


class Part(NamedTuple):
    """One of the convolutions of a launch.

    Attributes:
        out: the output (N, *out, F).
        problem: the convolution.
        walk: over the window: the first tap, and the steps to the next ones along its axes.
        add: what is added before the activation, which lies as out does.
    """

    out: Any
    problem: Problem
    walk: Four
    add: Any = None


@dataclass(frozen=True)
class Boxes:
    """What may be chosen by measuring; zeros leave it to the rules.

    Attributes:
        rows, columns: pixels and filters of a tile.
        ranges: of the sum.
    """

    rows: int = 0
    columns: int = 0
    ranges: int = 0


def boxes_for(
    problem: Problem, dtype: str, weight: str, groups: int, channels: int, filters: int, p: cb.DeviceProperties
) -> Iterator[Boxes]:  # fmt: skip
    """Tiles and ranges of the sum that are worth a try where the kernels for Hopper take a
    convolution.

    `channels` and `filters` of a group; none where every channel has its own.
    """
    if not suited(problem, dtype, weight, p) or (groups > 1 and filters == 1):
        return
    for tile in PLAIN_TILES if dtype == "f32" and not problem.tf32 else TILES:
        if groups == 1 or filters % tile.columns == 0:
            yield Boxes(tile.rows, tile.columns, 1)
    steps = math.prod(problem.window) * -(-channels // (ROW_BYTES // as_dtype(dtype).itemsize))
    yield from (Boxes(ranges=ranges) for ranges in (2, 4, 8) if is_whole(steps, ranges))


def suits(view: Any, w: Any, problem: Problem, properties: cb.DeviceProperties) -> bool:
    """Whether the kernels for Hopper take a convolution, if need be laid out anew."""
    return suited(problem, as_dtype(view.dtype).name, as_dtype(w.dtype).name, properties)


def suited(problem: Problem, dtype: str, weight: str, p: cb.DeviceProperties) -> bool:
    """The same by names of dtypes, on a device."""
    depth, high, wide = problem.stride
    return (
        {"wgmma", "tma"} <= p.features
        and dtype in (*NARROW_FLOATS, "f32")
        and dtype == weight
        and depth == 1
        and max(high, wide) <= PHASES
        and all(n >= s for n, s in zip(problem.size, problem.stride, strict=True))
    )


def by_boxes(
    x: Any,
    taps: Any,
    bias: Any,
    out: Any,
    problem: Problem,
    function: Any,
    cores: int,
    group: int = 0,
    chosen: Boxes = Boxes(),
    add: Any = None,
) -> None:
    """out (N, *out, F), contiguous, by the kernels for Hopper; the rest as for `prepared`."""
    n, c = x.shape[0], taps.shape[2] if group else x.shape[-1]
    steps = math.prod(problem.window) * -(-c // (ROW_BYTES // x.itemsize))
    plan, ranges = plan_for(
        n, problem.out, out.shape[-1], steps, cores, group, RANGES, is_plain(x, problem), chosen
    )
    if ranges == 1:
        part = part_of(out, problem, add)
        launch(*prepared_parts(x, taps, bias, (part,), function, cores, plan, group))
        return
    box, counts = box_for(n, problem.out, plan.rows)
    sums = memory.empty((ranges * counts[0] * box[0], *out.shape[1:]), np.float32)
    launch(*prepared(x, taps, None, sums, problem, None, cores, plan, group, ranges))
    added(sums, bias, out, ranges, activation_for(function, as_dtype(out.dtype)), add)


def is_plain(x: Any, problem: Problem) -> bool:
    """Whether products are f32's, without matrix units."""
    return x.itemsize == 4 and not problem.tf32


def launch(cubes: int, arguments: tuple[Any, ...]) -> None:
    """Run what `prepared` gives."""
    plan = arguments[-1]
    kernel: Any = fma_convolution if isinstance(plan, FmaWindow) else hopper_convolution
    kernel[cubes, plan.units](*arguments, mode="unchecked")


def prepared(
    x: Any, taps: Any, bias: Any, out: Any, problem: Problem, function: Any, cores: int, plan: Any = None,
    group: int = 0, ranges: int = 1,
) -> tuple[int, tuple[Any, ...]]:  # fmt: skip
    """Cubes and arguments of a launch: out (N, *out, F), x (N, *size, C), taps (F, taps, C of
    `group` filters). The plan is chosen by what its tiles cost, unless one is given.

    So many filters as `group` see the same channels (0: all do). With several `ranges` of the sum,
    out has images for each, whole boxes.
    """
    part = part_of(out, problem)
    return prepared_parts(x, taps, bias, (part,), function, cores, plan, group, ranges)


def part_of(out: Any, problem: Problem, add: Any = None) -> Part:
    """A convolution by the whole window."""
    return Part(out, problem, (0, *steps_of(problem.window)), add)


def prepared_parts(
    x: Any, taps: Any, bias: Any, parts: Sequence[Part], function: Any, cores: int, plan: Any = None, group: int = 0,
    ranges: int = 1, across: bool = False,
) -> tuple[int, tuple[Any, ...]]:  # fmt: skip
    """As `prepared`, for one to four convolutions of one input in a launch, with outputs of much
    the same sizes.

    taps are (F, taps, C), or (C, taps, F) of 16 bits if they lie `across`. Only where there is one
    part something may be added to it.
    """
    out, problem, _, add = parts[0]
    n, c, filters = (
        x.shape[0],
        taps.shape[2] if group else x.shape[-1],
        taps.shape[2 if across else 0],
    )
    depth = ROW_BYTES // x.itemsize
    out_size: Any = tuple(max(p.out[axis] for _, p, *_ in parts) for axis in range(3))
    steps = -(-sum(math.prod(p.window) for _, p, *_ in parts) * -(-c // depth) // len(parts))
    if plan is None:
        plan = tile_for(
            n * len(parts), out_size, filters, steps, cores, group, is_plain(x, problem)
        )
    if isinstance(plan, HopperWindow):
        two = (
            plan.pingpong and plan.columns == BLOCK and out.itemsize == 4
        )  # f32 goes through two buffers, not one
        plan = replace(plan, stages=plan.stages - 2 * two, transpose_b=across)
    phases = problem.stride[1:]
    plan = _with(
        plan,
        phases,
        bias is not None,
        activation_for(function, as_dtype(out.dtype)),
        len(parts),
        add is not None,
    )
    box, counts = box_for(n, out_size, plan.rows)
    x = in_boxes(x)
    views = [
        x[:, ..., i :: phases[0], j :: phases[1], :]
        for i in range(phases[0])
        for j in range(phases[1])
    ]
    tf32 = problem.tf32 and x.itemsize == 4
    maps = [map_of(view, box, tf32) for view in views]
    outs = [map_of(in_boxes(view), box) for view, *_ in parts]
    column_tiles = -(-filters // plan.columns)
    other = None if add is None else map_of(in_boxes(add), box)
    arguments = (
        tuple(maps),
        cb.tensor_map(starting_well(taps), (depth, 1, BLOCK) if across else (plan.columns, 1, depth), tf32=tf32),
        tuple(outs), bias, other, (*counts, column_tiles), tuple((p.window, p.dilation, p.pad, walk) for _, p, walk, _ in parts),
        (c, group or filters), (ranges * len(parts), -(-steps // ranges)), plan,
    )  # fmt: skip
    tiles = math.prod(counts) * column_tiles * ranges * len(parts)
    return tiles if isinstance(plan, FmaWindow) else min(tiles, cores), arguments


def steps_of(window: tuple[int, ...]) -> tuple[int, int, int]:
    """From a tap to the next one along the window's axes."""
    return window[1] * window[2], window[2], 1


@lru_cache
def _with(
    plan: Tile, phases: tuple[int, int], bias: bool, activation: Any, parts: int, add: bool
) -> Tile:
    joined = "add" if add else "residual"
    ending = replace(plan, bias=bias, residual=add, activation=activation, joined=joined)
    return replace(ending, phases=phases, parts=parts)


def map_of(a: Any, box: Four, tf32: bool = False) -> Any:
    """A tensor map with boxes of `ROW_BYTES` of channels; axes of length 1 get strides that maps
    allow. `tf32`: f32 is rounded on its way.
    """
    strides = [a.itemsize]
    step = -(-a.shape[-1] * a.itemsize // ALIGNMENT) * ALIGNMENT
    for n, s in zip(a.shape[-2::-1], a.strides[-2::-1], strict=True):
        strides.append(s if n != 1 else step)
        step = strides[-1] * n
    sides = box if a.ndim == 5 else (box[0], *box[2:])
    return cb.tensor_map(
        strided(a, a.shape, tuple(strides[::-1])), (*sides, ROW_BYTES // a.itemsize), tf32=tf32
    )


@cached
def box_for(n: int, out_size: tuple[int, ...], rows: int) -> tuple[Four, Four]:
    """The box of output pixels (images, depth, height, width) that a tile of so many rows does, and
    how many boxes there are along each: the fewest tiles, of these the box that sees the least of
    the input.

    Every box is code of its own, so its sides are chosen from few. Boxes that cannot be longer
    along any axis give the fewest tiles; of those, sides are made shorter as long as no tile more
    is needed.
    """
    axes = [sides(a) for a in (n, *out_size)]
    boxes = [*_longest(axes, rows)]
    numbers = [math.prod(side.boxes for side in box) for box in boxes]
    few = min(numbers, key=plain)
    found = []
    for box, number in zip(boxes, numbers, strict=True):
        if few < number:
            continue
        assert few == number
        shorter = [_shortest(side, axis) for side, axis in zip(box, axes, strict=True)]
        i, d, h, w = (side.length for side in shorter)
        cost = i * (d + 2) * (h + 2) * (w + 2), -w
        found.append((cost, (d, h, w, i), tuple(side.boxes for side in shorter)))
    _, (d, h, w, i), counts = min(found, key=itemgetter(0, 1))
    return (i, d, h, w), counts  # type: ignore[return-value]


class Side(NamedTuple):
    """A side of a box: pixels, how many boxes there are along it, and what the next one has."""

    length: int
    boxes: int
    after: int


def sides(n: int) -> list[Side]:
    """Sides of boxes along an axis of n pixels, up to the first that takes all of them."""
    several = SIDES[: bisect_left(SIDES, n) + 1]
    return [
        Side(side, -(-n // side), after)
        for side, after in zip(several, (*several[1:], NONE), strict=True)
    ]


def _longest(axes: Sequence[list[Side]], rows: int) -> Iterator[tuple[Side, ...]]:
    """Boxes of at most so many pixels that have more if one side is longer."""
    images, deep, high, wide = axes
    for d, h, w in itertools.product(deep, high, wide):
        area = d.length * h.length * w.length
        if area <= rows:
            i = next(image for image in images if image.length * area <= rows < image.after * area)
            box = i, d, h, w
            if all(i.length * area // side.length * side.after > rows for side in box[1:]):
                yield box


def _shortest(side: Side, axis: list[Side]) -> Side:
    """The shortest side of as many boxes."""
    at = axis.index(side)
    while at > 0 and not side.boxes < axis[at - 1].boxes:
        at -= 1
    return axis[at]


def is_whole(steps: int, ranges: int) -> bool:
    """Whether none of so many ranges of steps is empty."""
    return -(-steps // -(-steps // ranges)) == ranges


def tile_for(
    n: int, out_size: tuple[int, int, int], filters: int, steps: int, cores: int, group: int = 0, plain: bool = False
) -> Tile:  # fmt: skip
    """The tile whose rounds cost least, if sums are not cut; a tile's filters are of one group of
    so many.
    """
    return plan_for(n, out_size, filters, steps, cores, group, 1, plain)[0]


@cached
def plan_for(
    n: int, out_size: tuple[int, ...], filters: int, steps: int, cores: int, group: int = 0, most: int = RANGES,
    plain: bool = False, chosen: Boxes = Boxes(),
) -> tuple[Tile, int]:  # fmt: skip
    """The tile, and the ranges of the sum, at most so many, that cost least of those that agree
    with what is chosen.
    """
    depth = steps * ROW_BYTES / 2048
    costs: dict[Any, tuple[float, float, float]] = PLAIN_TILES if plain else TILES  # type: ignore[assignment]

    def cost(choice: tuple[Tile, int]) -> float:
        tile, ranges = choice
        each, end, start = costs[tile]
        tiles = math.prod(box_for(n, out_size, tile.rows)[1]) * -(-filters // tile.columns) * ranges
        rounds = -(-tiles // (cores * tile.cubes))
        adding = (
            ADDING[0] + ADDING[1] * n * math.prod(out_size) * filters * (8 * ranges + 2)
            if ranges > 1
            else 0.0
        )
        return (each * -(-steps // ranges) / steps + end / depth) * rounds + start + adding / depth

    tiles = [
        tile for tile in costs
        if group % tile.columns == 0 and chosen.rows in (0, tile.rows) and chosen.columns in (0, tile.columns)
    ]  # fmt: skip
    ranges = range(1, min(most, steps) + 1)
    if chosen.ranges:
        ranges = range(chosen.ranges, chosen.ranges + 1)
    found = [(t, r) for t in tiles for r in ranges if is_whole(steps, r)]
    if not found:
        raise TuneError(
            f"{chosen} does not fit a sum of {steps} steps for groups of {group} filters"
        )
    return least(found, cost)
