"""How the CPU's convolution is cut: which pixels and panels a cube makes, and in which order the
window is walked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.convolution.cpu.geometry import integers
from cubepy.kernels.convolution.cpu.input_tile import Geometry, Plan
from cubepy.kernels.convolution.cpu.register_tile import tile
from cubepy.kernels.convolution.problem import Problem, strides_of
from cubepy.kernels.primitives.functions import ACTIVATIONS
from cubepy.tune import bucket

LARGEST_PATCH = 45056
"""Elements of a cube's copy of the input: what a cube may have of its own, less its
accumulators.
"""
PATCH_GAP = 64  # elements between the copy and the accumulators, and some more
PIXELS = 224  # output pixels of a cube, at most, unless a row has more
ACC_TILE = 256  # pixels of accumulators that has room for them and for the rest of a tile
PIECE = 1 << 19  # bytes of a panel that stay in the second-level cache beside the input
STREAM = 8 << 20  # bytes of a result that is stored past the caches
SEEN_OFTEN = 1024
"""Pixels that see every filter: with fewer, filters come from memory, with more, they stay near."""
LIGHT = (None, ACTIVATIONS["relu"])


def extent(problem: Problem, block: int) -> tuple[int, int, int]:
    """The input that `block` rows of output pixels need, along depth, height and width."""
    (kd, kh, kw), (dd, dh, dw) = problem.window, problem.dilation
    return (
        (kd - 1) * dd + 1,
        (block - 1) * problem.stride[1] + (kh - 1) * dh + 1,
        (problem.out[2] - 1) * problem.stride[2] + (kw - 1) * dw + 1,
    )


def patch_size(problem: Problem, channels: int, block: int) -> int:
    """Elements of a cube's copy of the input."""
    return math.prod(extent(problem, block)) * channels


def to_widen(
    problem: Problem, channels: int, properties: cb.DeviceProperties, filters: int = 0
) -> bool:
    """Whether padding goes into memory first: where a row is too much for a cube, or there is but a
    long one.

    So it does where cubes would be so many, because their copies are large, that filters beyond the
    second-level cache are read again and again: 32 elements of them take as long as one of the
    padding (measured on a Zen 5).
    """
    _, out_h, out_w = problem.out
    whole, depth = patch_size(problem, channels, out_h), math.prod(problem.window) * channels
    again = (-(-whole // LARGEST_PATCH) - 1) * depth * filters
    if 4 * depth * filters > 2 * PIECE and again > 32 * whole:
        return True
    patch, (_, lines, lanes) = patch_size(problem, channels, 1), tile(properties)
    room = patch + 4096 + (out_w + 64) * lines * lanes
    too_much = patch > LARGEST_PATCH or 4 * room > properties.max_shared_memory
    return too_much or (out_w > PIXELS and out_h == 1)


def computed(pixels: int, rows: int) -> int:
    """Pixels that tiles of `rows` and `rows` - 1 make for so many."""
    tiles = -(-pixels // rows)
    return tiles * rows - min(tiles, tiles * rows - pixels)


def makespan(costs: list[float], threads: int) -> float:
    """When the last thread is done, if each takes the next piece of work."""
    ready = [0.0] * threads
    for cost in costs:
        at = ready.index(min(ready))
        ready[at] += cost
    return max(ready)


def fewest_cuts(
    problem: Problem, channels: int, direct: bool, properties: cb.DeviceProperties
) -> int:
    """Ranges of pixels, at least: what a cube has memory for."""
    units, width = (problem.out[1] * problem.out[2], 1) if direct else problem.out[1:]
    fewest = max(1, -(-units * width // PIXELS) if width <= PIXELS else units)
    while not direct and fewest < units:
        if fits(problem, channels, -(-units // fewest), properties):
            break
        fewest += 1
    return fewest


def fits(problem: Problem, channels: int, block: int, properties: cb.DeviceProperties) -> bool:
    """Whether a cube has memory for the input of `block` rows of output pixels and for
    their sums.
    """
    patch, (rows, lines, lanes) = patch_size(problem, channels, block), tile(properties)
    acc_tile = (block * problem.out[2] + 16 + rows + lanes) * lines * lanes
    return (
        patch <= LARGEST_PATCH
        and 4 * (patch + 4096 + PATCH_GAP + acc_tile) <= properties.max_shared_memory
    )


@lru_cache(maxsize=1024)
def cuts_of(
    problem: Problem,
    many: int,
    panels: int,
    depth: int,
    channels: int,
    direct: bool,
    tiles: tuple[int, int, int],
    properties: cb.DeviceProperties,
) -> tuple[int, int]:
    """Ranges of output pixels and of panels to cut into: what threads finish first by an estimate
    in cycles.

    A pixel costs two lines of products a cycle, a line of a panel comes in three cycles, a line of
    input is copied in five (measured on a Zen 5; what counts is their ratio).
    """
    rows, lines, lanes = tiles
    _, out_h, out_w = problem.out
    units, width = (out_h * out_w, 1) if direct else (out_h, out_w)

    def estimate(cuts: int, panel_cuts: int) -> float:
        least, more = divmod(units, cuts)
        block_panels = -(-panels // panel_cuts)
        costs = []
        for block in (least + 1,) * more + (least,) * (cuts - more):
            made = computed(block * width, rows)
            copying = 400.0 if direct else 400.0 + 5 * patch_size(problem, channels, block) / lanes
            for first in range(0, panels, block_panels):
                count = min(block_panels, panels - first)
                costs.append(
                    copying + count * (made * (depth * lines / 2 + 12) + depth * lines * 3 + 100)
                )
        if many > 1:
            costs = costs * min(many, max(1, 256 // len(costs)))
        repeated = many * cuts * -(-panels // block_panels) / len(costs)
        return makespan(costs, properties.cores) * repeated + 0.02 * max(costs)

    def possible() -> Iterator[tuple[int, int]]:
        fewest = fewest_cuts(problem, channels, direct, properties)
        panel_cuts = [
            c for c in (1, 2, 4, 8, 16, panels) if c <= panels and -(-panels // c) * c - panels < c
        ]
        for cuts in range(min(fewest, units), min(units, fewest + 24) + 1):
            for panel_cut in panel_cuts:
                if cuts * panel_cut <= 1024 or panel_cut == 1:
                    yield cuts, panel_cut

    return min(possible(), key=lambda pair: (estimate(*pair), pair))


def rooms(patch: int, pixels: int, width: int, properties: cb.DeviceProperties) -> tuple[int, int]:
    """Elements for the cube's copy of the input and pixels of its accumulators, of `width` sums
    each, if there are such.

    They are part of the code, so they are as large as usual where both fit: other sizes then need
        no other code.
    """
    left = properties.max_shared_memory // 4 - PATCH_GAP
    usual = max(patch, LARGEST_PATCH) if patch else 0
    most = bucket(max(pixels, ACC_TILE)) if pixels else 0
    for room, acc_tile in ((usual, most), (usual, pixels)):
        if room + acc_tile * width <= left:
            return room, acc_tile
    return patch, pixels


def walk_of(
    problem: Problem, channels: int, width: int, strides: tuple[int, ...]
) -> tuple[int, ...]:
    """The walk over the window, as the last fields of `Geometry` have it: the lengths of its three
    loops, their steps in what is read, the innermost run and its step, and steps in the panel.

    `strides`: of what is read, along depth, height, width and channels.
    """
    kd, kh, kw = problem.window
    dw = problem.dilation[2]
    down, across, c = strides[:2], strides[2], strides[3]
    steps = [d * stride for d, stride in zip(problem.dilation, (*down, across), strict=True)]
    in_row = (kw * channels * width, channels * width, width)
    if dw == 1 and ((c == 1 and across == channels) or channels == 1):
        # the window's columns and channels are one run
        steps[2] = 0
        return (kd, kh, 1, *steps, kw * channels, across if channels == 1 else 1, *in_row)
    if kw > channels and c != 1:  # few channels, each a plane: the run is along the width
        steps[2] = c
        return (kd, kh, channels, *steps, kw, dw * across, in_row[0], width, channels * width)
    return (kd, kh, kw, *steps, channels, c, *in_row)


class Memory(NamedTuple):
    """How arrays lie.

    Attributes:
        input_last, output_last: channels of the input, of the result are neighbours.
        single: the input is f32.
        aligned: the result begins at a cache line.
    """

    input_last: bool
    output_last: bool
    single: bool = True
    aligned: bool = True


class Ending(NamedTuple):
    """What follows the sums: whether there is a bias, whether something is added, and a func."""

    bias: bool = False
    add: bool = False
    function: Any = None


@lru_cache(maxsize=1024)
def plan_of(
    problem: Problem,
    n: int,
    filters: int,
    channels: int,
    counts: tuple[int, int, int],
    memory: Memory,
    ending: Ending,
    properties: cb.DeviceProperties,
    finer: float = 1.0,
    parts: int = 0,
) -> tuple[int, Any, Plan]:
    """Cubes, integers and blueprint of a convolution on a CPU.

    `counts`: groups, panels and width of the packed filters. Input without padding is read where it
    is, unless it would be converted again and again, or its channels lie apart. `finer`: so many
    times as many ranges of pixels as the estimate has; `parts`: so many ranges of panels, if not as
    many as it has.
    """
    last, channels_last, single, aligned = memory
    groups, panels, width = counts
    tiles = rows, lines, lanes = tile(properties, width)
    taps = math.prod(problem.window)
    turned = not last and channels >= lanes and taps > 1
    direct = not any(problem.pad) and (
        to_widen(problem, channels, properties) or (single and not turned)
    )
    turned = turned and not direct
    mixed = channels if not (last or direct) and 1 < channels < lanes and taps > 1 else 0
    many = n * groups * problem.out[0]
    cuts, panel_cuts = cuts_of(
        problem, many, panels, taps * channels, channels, direct, tiles, properties
    )
    units = math.prod(problem.out[1:]) if direct else problem.out[1]
    if finer != 1.0:
        fewest = fewest_cuts(problem, channels, direct, properties)
        cuts = min(units, max(fewest, round(cuts * finer)))
    panel_cuts = min(panels, parts or panel_cuts)
    block, block_panels = -(-units // cuts), -(-panels // panel_cuts)
    window_d, rows_in, width_in = reach = extent(problem, 1 if direct else block)
    all_channels = channels * groups
    strides = strides_of(problem.size, all_channels, last)
    if direct:
        copied, room = (0, 0, 0, 0), 0
    else:
        room = -(-math.prod(reach) * channels // 4096) * 4096
        if last or turned or mixed:
            copied = (rows_in * width_in * channels, width_in * channels, channels, 1)
        else:
            copied = (rows_in * width_in, width_in, 1, window_d * rows_in * width_in)
    walk = walk_of(problem, channels, width, strides[1:] if direct else copied)
    sizes = (channels, groups, panels, taps, filters, cuts, block_panels)
    moves = (*reach, *problem.stride, *problem.pad, *problem.out)
    numbers = (*problem.size, *strides, *copied, *moves, *sizes, *walk)
    largest = max(
        n * all_channels * math.prod(problem.size), groups * panels * taps * channels * width
    )
    pieces = math.prod(problem.window[:2]) > 1 and taps * channels * width * 4 > PIECE
    pixels = block if direct else block * problem.out[2]
    acc_tile = 0 if channels_last and not pieces else -(-pixels // 16) * 16 + rows + lanes
    room, acc_tile = rooms(room, acc_tile, width, properties)
    streaming = (
        single
        and aligned
        and lanes * 4 == 64
        and many * filters * math.prod(problem.out[1:]) * 4 >= STREAM
    )
    if channels_last:
        streaming = streaming and filters % width == 0 and ending.function in LIGHT
    else:
        streaming = streaming and not direct and problem.out[2] % lanes == 0
    follow = direct and last and groups == taps == 1 and set(problem.stride) == {1}
    ahead = (
        min(lines, -(-lines * rows // pixels))
        if many * math.prod(problem.out[1:]) <= SEEN_OFTEN * groups
        else 0
    )
    bias, add, function = ending
    epilogue = (channels_last, pieces, bias, add, function, function in LIGHT, streaming)
    padded = room > 0 and problem.pad[1] > 0 and problem.dilation[1] == 1
    copying = (ahead, turned, mixed, follow, padded)
    plan = Plan(rows, lines, lanes, room, acc_tile, *epilogue, *copying)  # type: ignore[arg-type]
    return many * cuts * -(-panels // block_panels), integers(Geometry(*numbers), largest), plan
