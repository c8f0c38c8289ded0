"""How a transposed convolution on a CPU is cut: phases of the stride, tiles, and pieces of
the input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.cpu.geometry import integers
from cubepy.kernels.convolution.cpu.implicit_gemm_plan import computed
from cubepy.kernels.convolution.cpu.register_tile import tile_for
from cubepy.kernels.convolution.problem import strides_of

ROOM = 40960  # elements of a cube's copy of the input
ACC_TILE = (
    320  # pixels of a cube's tile of sums: together with the copy, what a cube may have of its own
)
PIXELS = 192  # pixels of a phase that a cube makes, at most


@dataclass(frozen=True)
class Phases:
    """A transposed convolution in three axes; fewer are axes of length 1.

    Attributes:
        size, window, stride, cut, dilation, out: along depth, height, width; `cut` is what the
            padding takes away.
    """

    size: tuple[int, int, int]
    window: tuple[int, int, int]
    stride: tuple[int, int, int]
    cut: tuple[int, int, int]
    dilation: tuple[int, int, int]
    out: tuple[int, int, int]

    @property
    def every(self) -> tuple[int, ...]:
        """Of how many neighbouring taps a phase has one."""
        return tuple(s // math.gcd(s, d) for s, d in zip(self.stride, self.dilation, strict=True))

    @property
    def tap_step(self) -> tuple[int, ...]:
        """How far apart in the input the taps of a phase are."""
        return tuple(d // math.gcd(s, d) for s, d in zip(self.stride, self.dilation, strict=True))

    def taps(self, axis: int) -> list[tuple[int, int, int]]:
        """For each phase of an axis: its last tap, the number of its taps, and where pixel 0 sees
        that tap.
        """
        found = []
        s, p, d = self.stride[axis], self.cut[axis], self.dilation[axis]
        for at in range(s):
            own = [t for t in range(self.window[axis]) if (at + p - t * d) % s == 0]
            found.append((own[-1], len(own), (at + p - own[-1] * d) // s) if own else (0, 0, 0))
        return found

    def reach(self, axis: int) -> tuple[int, int]:
        """The first element that pixel 0 of any phase sees, and how many elements behind it at
        most.
        """
        own = [
            (first, first + (count - 1) * self.tap_step[axis])
            for _, count, first in self.taps(axis)
            if count
        ]
        low = min((first for first, _ in own), default=0)
        return low, max((last for _, last in own), default=0) - low


@dataclass(frozen=True)
class Plan:
    """What changes the code.

    Attributes:
        rows, lines, lanes: of the register tile.
        input_last, output_last: whether channels are neighbours in memory.
        bias: whether one is added.
    """

    rows: int
    lines: int
    lanes: int
    input_last: bool
    output_last: bool
    bias: bool

    @property
    def width(self) -> int:
        """Channels of a panel."""
        return self.lines * self.lanes


@cb.struct
class PhaseGeometry:
    """The integers of a launch: sizes and strides of the input (n, d, h, w, c), strides of a cube's
    copy of it, the numbers of the convolution and of its phases, the input that pixel 0 sees, and
    into how many ranges of rows and of columns the pixels of a phase are cut.
    """

    depth: Any
    height: Any
    width: Any
    sn: Any
    sd: Any
    sh: Any
    sw: Any
    sc: Any
    td: Any
    th: Any
    tw: Any
    tc: Any
    channels: Any
    groups: Any
    panels: Any
    filters: Any
    block_panels: Any
    window_d: Any
    window_h: Any
    window_w: Any
    stride_d: Any
    stride_h: Any
    stride_w: Any
    cut_d: Any
    cut_h: Any
    cut_w: Any
    dilation_d: Any
    dilation_h: Any
    dilation_w: Any
    every_d: Any
    every_h: Any
    every_w: Any
    tap_step_d: Any
    tap_step_h: Any
    tap_step_w: Any
    out_d: Any
    out_h: Any
    out_w: Any
    low_d: Any
    low_h: Any
    low_w: Any
    more_d: Any
    more_h: Any
    more_w: Any
    cuts_h: Any
    cuts_w: Any

    def phase(self, at, axis: cb.Comptime[int]):
        """The last tap that reaches a phase along an axis, how many do, and where pixel 0 sees the
        last.
        """
        stride = (self.stride_d, self.stride_h, self.stride_w)[axis]
        dilation = (self.dilation_d, self.dilation_h, self.dilation_w)[axis]
        taps = (self.window_d, self.window_h, self.window_w)[axis]
        every = (self.every_d, self.every_h, self.every_w)[axis]
        start = at + (self.cut_d, self.cut_h, self.cut_w)[axis]
        tap = 0
        while tap < taps and (start - tap * dilation) % stride != 0:
            tap = tap + 1
        count = (taps - 1 - tap) // every + 1
        last = tap + (count - 1) * every
        return last, count, (start - last * dilation) // stride


def cuts_of(
    problem: Phases,
    many: int,
    panels: int,
    channels: int,
    last: bool,
    tiles: tuple[int, int, int],
    threads: int,
) -> tuple[int, int, int] | None:
    """Ranges of rows, of columns and of panels to cut into: what threads finish first by an
    estimate in cycles.

    None: nothing fits into what a cube has of its own.
    """
    rows, lines, lanes = tiles
    (_, sh, sw), (_, out_h, out_w) = problem.stride, problem.out
    high, wide = -(-out_h // sh), -(-out_w // sw)
    planes = max((count - 1) * problem.tap_step[0] + 1 for _, count, _ in problem.taps(0))
    more_h, more_w = problem.reach(1)[1], problem.reach(2)[1]
    works = [
        (h * w * d / problem.stride[0]) * channels
        for _, d, _ in problem.taps(0)
        for _, h, _ in problem.taps(1)
        for _, w, _ in problem.taps(2)
    ]

    def estimate(cuts_h: int, cuts_w: int, panel_cuts: int) -> float | None:
        block, columns, block_panels = (
            -(-high // cuts_h),
            -(-wide // cuts_w),
            -(-panels // panel_cuts),
        )
        patch = max(planes, 1) * (block + more_h) * (columns + more_w) * channels
        if (
            patch > ROOM
            or (not last and block * columns * sw > ACC_TILE)
            or (block - 1) * columns >= PIXELS
        ):
            return None
        made = computed(block * columns, rows)
        turned = 0 if last else 0.6 * block * columns * sh * sw * lines
        cost = 600 + 5 * patch / lanes
        cost += block_panels * (
            sum(made * (w * lines / 2 + 12) + w * lines * 3 + 100 for w in works) + turned
        )
        cubes = many * cuts_h * cuts_w * -(-panels // block_panels)
        return cost * -(-cubes // threads)

    def possible() -> Iterator[tuple[float, tuple[int, int, int]]]:
        for cuts_w in sorted({1, *(-(-wide // w) for w in (128, 64, 32, 16, 8) if w < wide)}):
            for cuts_h in range(1, high + 1):
                for panel_cuts in (1, 2, 4, panels):
                    cost = estimate(cuts_h, cuts_w, panel_cuts) if panel_cuts <= panels else None
                    if cost is not None:
                        yield cost, (cuts_h, cuts_w, panel_cuts)

    return min(possible(), default=(0.0, None))[1]


@lru_cache(maxsize=1024)
def plan_of(
    problem: Phases,
    n: int,
    groups: int,
    channels: int,
    filters: int,
    input_last: bool,
    output_last: bool,
    bias: bool,
    properties: cb.DeviceProperties,
) -> tuple[int, tuple[Any, ...], Plan] | None:
    """Cubes, integers and blueprint of a transposed convolution, or None where a cube's memory is
    too small for it.

    `channels` and `filters`: of a group's input and output.
    """
    tiles = _, lines, lanes = tile_for(filters, properties)
    panels = -(-filters // (lines * lanes))
    many = n * groups * problem.out[0]
    cuts = cuts_of(problem, many, panels, channels, output_last, tiles, properties.cores)
    if cuts is None:
        return None
    cuts_h, cuts_w, panel_cuts = cuts
    all_channels = channels * groups
    high, columns = (-(-problem.out[k] // problem.stride[k]) for k in (1, 2))
    low, more = zip(*(problem.reach(axis) for axis in range(3)), strict=True)
    rows_in, width_in = -(-high // cuts_h) + more[1], -(-columns // cuts_w) + more[2]
    planes = max(1, *((count - 1) * problem.tap_step[0] + 1 for _, count, _ in problem.taps(0)))
    strides = strides_of(problem.size, all_channels, input_last)
    if input_last:
        copied = (rows_in * width_in * channels, width_in * channels, channels, 1)
    else:
        copied = (rows_in * width_in, width_in, 1, planes * rows_in * width_in)
    block_panels = -(-panels // panel_cuts)
    counts = (channels, groups, panels, filters, block_panels)
    steps = (*problem.window, *problem.stride, *problem.cut, *problem.dilation)
    phases = (*problem.every, *problem.tap_step, *problem.out, *low, *more)
    numbers = (*problem.size, *strides, *copied, *counts, *steps, *phases, cuts_h, cuts_w)
    largest = max(
        n * all_channels * math.prod(problem.size),
        groups * panels * math.prod(problem.window) * channels,
    )
    numbers = integers(PhaseGeometry(*numbers), largest * lines * lanes)
    cubes = n * groups * problem.out[0] * cuts_h * cuts_w * -(-panels // block_panels)
    return cubes, numbers, Plan(*tiles, input_last, output_last, bias)
