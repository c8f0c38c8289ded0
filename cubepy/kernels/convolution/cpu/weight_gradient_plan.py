"""How the gradient by the filters on a CPU is cut: blocks of positions, chunks of sums, and threads
that share them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cubepy as cb
from cubepy.config import config
from cubepy.kernels.convolution.cpu.geometry import integers
from cubepy.kernels.convolution.cpu.register_tile import tile_for
from cubepy.kernels.convolution.problem import Problem, strides_of

PIXELS = 448
"""Of a block, whose lines the second-level cache holds; fewer cost more sums that come and go."""
CHUNK = 1024  # rows of sums that stay in the second-level cache
SAME = 16  # threads that a deterministic run divides sums for, whatever the cores


@dataclass(frozen=True)
class Plan:
    """What changes the code.

    Attributes:
        rows, lines, lanes: of the register tile.
        last: whether the gradient's filters are neighbours in memory.
    """

    rows: int
    lines: int
    lanes: int
    last: bool

    @property
    def width(self) -> int:
        """Filters of a panel."""
        return self.lines * self.lanes


@cb.struct
class GradientGeometry:
    """The integers of a launch: strides of the input (n, d, h, w, c) and its sizes, the
    convolution's numbers (of a group), rows of a run and how its tiles are cut, rows of pixels
    altogether, how many make a block, into how many pieces a row of pixels is cut, and into how
    many parts the pixels and the tiles are.
    """

    xn: Any
    xd: Any
    xh: Any
    xw: Any
    xc: Any
    depth: Any
    height: Any
    width: Any
    channels: Any
    filters: Any
    groups: Any
    panels: Any
    window_d: Any
    window_h: Any
    window_w: Any
    stride_d: Any
    stride_h: Any
    stride_w: Any
    pad_d: Any
    pad_h: Any
    pad_w: Any
    dilation_d: Any
    dilation_h: Any
    dilation_w: Any
    out_d: Any
    out_h: Any
    out_w: Any
    run: Any
    run_tiles: Any
    whole_tiles: Any
    units: Any
    block: Any
    pieces: Any
    parts: Any
    chunks: Any


def sharers(properties: cb.DeviceProperties) -> int:
    """Threads for which sums are divided: the cores, or as many everywhere for the same bits."""
    return SAME if config.deterministic else properties.cores


def cuts_of(
    pixels: int, blocks: int, tiles: int, many: int, rows: int, lines: int, last: bool, threads: int
) -> tuple[int, int]:
    """Chunks of tiles and parts of pixels: what threads finish first by an estimate in cycles.

    `many`: pairs of a group and a panel.
    """
    copying = lines * (2 if last else 7)

    def possible() -> Iterator[tuple[float, int, int]]:
        for parts in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
            if parts > blocks:
                break
            for chunks in range(
                -(-tiles * rows // CHUNK), min(tiles, 4 * threads) + -(-tiles * rows // CHUNK)
            ):
                some = -(-tiles // chunks)
                here, walks = -(-blocks // parts) / blocks * pixels, -(-blocks // parts)
                tile = here * rows * lines / 2 + walks * (rows * lines * 2 + 40)
                cubes = many * chunks * parts
                fold = tiles * rows * many * lines * (parts + 4) / threads
                yield (
                    -(-cubes // threads) * (500 + here * copying + some * tile) + fold,
                    chunks,
                    parts,
                )

    return min(possible())[1:]


@lru_cache(maxsize=1024)
def plan_of(
    problem: Problem,
    n: int,
    groups: int,
    channels: int,
    filters: int,
    x_last: bool,
    last: bool,
    merged: bool,
    threads: int,
    properties: cb.DeviceProperties,
) -> tuple[int, tuple[Any, ...], Plan]:
    """Cubes, integers and blueprint; `merged`: a run is the channels of all taps along
    the width.
    """
    rows, lines, lanes = tile_for(filters, properties)
    panels = -(-filters // (lines * lanes))
    window_d, window_h, window_w = problem.window
    run = channels
    if merged:
        run, window_w = channels * window_w, 1
    tiles = -(-run // rows)
    whole = max(0, tiles - (tiles * rows - run))
    everything = channels * groups
    strides = strides_of(problem.size, everything, x_last)
    out_d, out_h, out_w = problem.out
    units = n * out_d * out_h
    pieces = -(-out_w // PIXELS)
    block = max(1, PIXELS // out_w)
    runs = window_d * window_h * window_w
    chunks, parts = cuts_of(
        units * out_w, -(-units // block), runs * tiles, groups * panels, rows, lines, last, threads
    )
    counts = (channels, filters, groups, panels, window_d, window_h, window_w)
    steps = (*problem.stride, *problem.pad, *problem.dilation, *problem.out)
    cuts = (run, tiles, whole, units, block, pieces, parts, chunks)
    numbers: tuple[Any, ...] = (*strides, *problem.size, *counts, *steps, *cuts)
    largest = max(n * everything * math.prod(problem.size), units * out_w * groups * filters)
    largest = max(largest, parts * groups * panels * runs * run * lines * lanes)
    cubes = groups * panels * chunks * parts
    return cubes, integers(GradientGeometry(*numbers), largest), Plan(rows, lines, lanes, last)
