"""A GPU's depthwise convolution, channels first: whole planes lie in shared memory, with zeros
around them.

Planes are one run of memory, whose rows begin anywhere, so units load it in lines of 16 bytes and
put every element where it belongs. Then a unit does a tile of a plane as in
convolution/sm90/depthwise_nhwc.py, for one channel; results are gathered in shared memory and leave
in lines again. The gradient by the input is such a convolution too, and that by the filters sums
over tiles: a cube has some channels of several images, and a second kernel adds what the cubes
have.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.gpu.depthwise_strip import (
    COLUMNS,
    FETCHED,
    ROWS,
    WRITTEN_OUT,
    Settings,
    UnitTile,
    add_columns,
    add_unit_tile,
    begin_at,
    flat_settings,
    instructions,
    walk,
)
from cubepy.kernels.convolution.problem import Problem, WeightGradient
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.lines import multiple
from cubepy.runtime import memory
from cubepy.runtime.symbolic.cached import cached
from cubepy.runtime.symbolic.number import known
from cubepy.tune import GpuRoutine

UNITS = 128
HELD = 8
"""Lines that a unit loads at once, at most; twice as many of one plane."""
SHARED = 56 * 1024
"""Bytes of shared memory, at most."""


@dataclass(frozen=True)
class Planes(UnitTile):
    """What changes the code; a tile has whole planes, each made of whole unit tiles.

    Attributes:
        size: rows and columns of the input.
        out: rows and columns of the output.
        line: elements of a line of memory.
        more: further columns of zeros, so that units read from different banks.
    """

    size: tuple[int, int] = (1, 1)
    out: tuple[int, int] = (1, 1)
    line: int = 1
    more: int = 0

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Planes in shared memory: how many, rows and columns, with the zeros around them."""
        high, wide = (max(self.reach(a), self.size[a] - self.low(a)) for a in (0, 1))
        return self.tile[0], high, wide + self.more, 1

    @property
    def corner(self) -> tuple[int, int]:
        """Rows and columns of zeros before the input's."""
        return -self.low(0), -self.low(1)


@cb.func
def load_planes(
    tile,
    x,
    first,
    size: cb.Comptime,
    box: cb.Comptime,
    corner: cb.Comptime,
    planes: cb.Comptime[int],
    line: cb.Comptime[int],
):
    """Planes of such a size from element `first` of x on, into boxes of zeros, from a corner of
    each on.
    """
    high, wide = size
    many = planes * high * wide // line
    lines = ()
    for k in cb.unroll(range(-(-many // UNITS))):
        at = cb.min(cb.UNIT_POS + k * UNITS, many - 1)
        lines = lines + (x.load(multiple(first + at * line, line), line),)
    nothing = cb.cast(cb.splat(0.0, line), x.dtype)
    for k in range(cb.UNIT_POS, tile.size // line, UNITS):
        tile.store(k * line, nothing)
    cb.sync_cube()
    for k in cb.unroll(range(-(-many // UNITS))):
        at = cb.UNIT_POS + k * UNITS
        if at < many:
            row = at * line // wide
            column = at * line - row * wide
            plane = row // high
            row = row - plane * high
            to = (plane * box[0] + row + corner[0]) * box[1] + column + corner[1]
            for j in cb.unroll(range(line)):
                tile[to] = lines[k][j]
                to = to + 1
                if wide % line != 0:
                    column = column + 1
                    if column == wide:
                        column = 0
                        row = row + 1
                        to = to + (box[1] - wide)
                        if row == high:
                            row = 0
                            to = to + (box[0] - high) * box[1]


@cb.kernel(fast_math=("contract", "nsz"))
def channelwise_planes(x: cb.Array, w: cb.Array, bias, out: cb.Array, plan: cb.Comptime[Planes]):
    """out[n, c] = activation(convolution of x[n, c] with w[c] + bias[c]); x and out are flat, w (C,
    taps); a cube does some planes.
    """
    if "mma" in cb.device_properties().features:
        cb.resident(plan.cubes)
    planes, taps, line = plan.tile[0], plan.window[0] * plan.window[1], plan.line
    _, high, wide, _ = plan.box
    many = planes * plan.out[0] * plan.out[1]
    tile = cb.shared(-(-planes * high * wide // line) * line, x.dtype)
    made = cb.shared(many, out.dtype)
    scale = cb.shared(planes * taps, cb.f32)
    first = cb.CUBE_POS * planes
    for k in range(cb.UNIT_POS, planes * taps, UNITS):
        scale[k] = cb.cast(w[(first + k // taps) % w.shape[0], k % taps], cb.f32)
    load_planes(
        tile,
        x,
        first * (plan.size[0] * plan.size[1]),
        plan.size,
        (high, wide),
        plan.corner,
        planes,
        line,
    )
    cb.sync_cube()
    _, down, across = plan.unit_tiles
    for unit_tile in range(cb.UNIT_POS, planes * down * across, UNITS):
        column = unit_tile % across * plan.pixels
        row = unit_tile // across % down * plan.rows
        plane = unit_tile // (across * down)
        start = cb.splat(cb.cast(0.0, cb.f32), 1)
        if bias is not None:
            start = cb.splat(cb.cast(bias[(first + plane) % w.shape[0]], cb.f32), 1)
        begin = (plane * high + begin_at(row, 0, plan)) * wide + begin_at(column, 1, plan)
        walk(
            tile, scale, plane * taps, start, made, begin, (plan.out[0] - row, plan.out[1] - column), (plan.out[1], 1),
            (plane * plan.out[0] + row) * plan.out[1] + column, plan,
        )  # fmt: skip
    cb.sync_cube()
    for k in range(cb.UNIT_POS, many // line, UNITS):
        out.store(multiple(cb.CUBE_POS * many + k * line, line), made.load(k * line, line))


@cb.kernel(fast_math=("contract", "nsz"))
def channelwise_planes_weight(
    x: cb.Array, grad: cb.Array, sums: cb.Array, images, plan: cb.Comptime[Planes]
):
    """sums[range, c, tap] = sum over a range's images of grad[n, c, pixel] * x[n, c, pixel seen by
    tap]; x and grad are flat. A cube does some channels, which run fastest, of every so many of the
    images.
    """
    if "mma" in cb.device_properties().features:
        cb.resident(plan.cubes)
    planes, taps, line = plan.tile[0], plan.window[0] * plan.window[1], plan.line
    _, seen_high, wide, _ = plan.box
    high, broad = plan.tile[1], plan.tile[2]
    tile = cb.shared(-(-planes * seen_high * wide // line) * line, x.dtype)
    given = cb.shared(-(-planes * high * broad // line) * line, x.dtype)
    scratch = cb.shared(UNITS * taps, cb.f32)
    channels = sums.shape[1]
    blocks = channels // planes
    part, c = cb.CUBE_POS // blocks, cb.CUBE_POS % blocks * planes
    _, down, across = plan.unit_tiles
    acc = cb.local(taps, cb.f32, lanes=1)
    for k in cb.unroll(range(taps)):
        acc[k] = cb.splat(0.0, 1)
    for n in range(part, images, sums.shape[0]):
        first = n * channels + c
        load_planes(
            tile, x, first * (plan.size[0] * plan.size[1]), plan.size, (seen_high, wide), plan.corner, planes,
            line,
        )  # fmt: skip
        load_planes(
            given,
            grad,
            first * (plan.out[0] * plan.out[1]),
            plan.out,
            (high, broad),
            (0, 0),
            planes,
            line,
        )
        cb.sync_cube()
        for unit_tile in range(cb.UNIT_POS, planes * down * across, UNITS):
            column = unit_tile % across * plan.pixels
            row = unit_tile // across % down * plan.rows
            plane = unit_tile // (across * down)
            begin = (plane * seen_high + row * plan.stride[0]) * wide + column * plan.stride[1]
            add_unit_tile(acc, tile, begin, given, (plane * high + row) * broad + column, plan)
        cb.sync_cube()
    for k in cb.unroll(range(taps)):
        scratch[k * UNITS + cb.UNIT_POS] = acc[k][0]
    cb.sync_cube()
    mine = UNITS if planes == 1 else down * across  # units of a plane
    for k in range(cb.UNIT_POS, planes * taps, UNITS):
        total = cb.cast(0.0, cb.f32)
        for unit in range(mine):
            total = total + scratch[k % taps * UNITS + k // taps * mine + unit]
        sums[part, c + k // taps, k % taps] = total


def shares(count: int, longest: int, skip: int) -> tuple[int, int]:
    """Pixels of each of the fewest equal unit tiles, multiples of `skip`, and what they make
    together.
    """
    each = -(-count // -(-count // longest))
    each = -(-each // skip) * skip
    return each, -(-count // each) * each


def meeting(plan: Planes, itemsize: int) -> float:
    """How many words of one bank of shared memory the tiles of neighbouring units begin with, at
    most; half as many where elements of 16 bits come in pairs.
    """
    _, down, across = plan.unit_tiles
    _, high, wide, _ = plan.box
    sides = (
        [1 if plan.back else s for s in plan.stride],
        [s if plan.back else 1 for s in plan.stride],
    )
    found = []
    for shift in range(4 // itemsize):
        words: dict[int, set[int]] = {}
        for unit_tile in range(32):
            row = unit_tile // across % down * plan.rows * sides[0][0] // sides[1][0]
            column = unit_tile % across * plan.pixels * sides[0][1] // sides[1][1]
            word = (
                ((unit_tile // (across * down) * high + row) * wide + column + shift)
                * itemsize
                // 4
            )
            words.setdefault(word % 32, set()).add(word)
        found.append(max(map(len, words.values())))
    pairs = itemsize == 2 and plan.pixels % 2 == wide % 2 == 0
    return sum(found) / len(found) * (0.5 if pairs else 1.0)


def cost_of(
    plan: Planes, itemsize: int, whole: int, images: int, cores: int
) -> tuple[float, int, int]:
    """Cycles, about (as on an H200), cubes that a core holds, and ranges of images; 0 cubes if
    shared memory is short.

    There are `whole` cubes for all images, or for one of so many `images`. A core starts 2.6
    instructions a cycle and reads shared memory once: words of the same bank one by one, 16 bits in
    pairs where unit tiles are even.
    """
    taps, unit_tiles, (rows, pixels) = (
        math.prod(plan.window),
        math.prod(plan.unit_tiles),
        (plan.rows, plan.pixels),
    )
    moved = plan.tile[0] * (math.prod(plan.size) + math.prod(plan.out))
    room = (math.prod(plan.box) + math.prod(plan.tile)) * itemsize + (
        4 * UNITS * taps if images else 0
    )
    held = (
        taps
        + plan.columns_seen
        + (rows if plan.rolled else min(rows, plan.window[0])) * pixels
        + (44 if images else 32)
    )
    brought = plan.tile[0] * max(math.prod(plan.size), math.prod(plan.out)) / plan.line / UNITS
    spare = 64 + taps if images else 64 if brought > HELD else 44
    held = max(held, 4 * math.ceil(brought) + spare)  # registers of a unit
    cubes = (
        min(16, (220 << 10) // (room + 1024), (1 << 16) // (UNITS * held)) if room <= SHARED else 0
    )
    if not cubes:
        return math.inf, 0, 0
    jobs, planes = (
        -(-unit_tiles // UNITS),
        -(-min(unit_tiles, UNITS) // 32),
    )  # strips of a unit, and planes that have some
    moving = moved / plan.line / UNITS * (5 * plan.line + 10)
    each = instructions(plan, itemsize, rows * pixels if images else 0)
    loop = plan.window[0] if plan.rolled else 1
    rate = 2.6 * min(1.0, FETCHED * loop / each)
    reads = (
        (loop * rows if plan.rolled else plan.window[0] + rows)
        * plan.columns_seen
        * meeting(plan, itemsize)
    )
    started = 4 * (moving + 300) + each * jobs * planes
    ranges = max(1, min(images, cubes * cores // whole))
    again = -(-images // ranges) if images else 1
    ranges = -(-images // again)
    every = whole * max(1, ranges)
    busy = min(cubes, -(-every // cores))
    bounds = (
        2500 + (moving + each * jobs) / 0.45,
        busy * started / rate,
        busy * (reads * jobs * planes + moved / 32),
        busy * moved * itemsize / 18,
    )
    return -(-every // (cubes * cores)) * again * max(bounds), cubes, ranges


@cached
def plan_for(
    count: int, size: tuple[int, int], out: tuple[int, int], itemsize: int, settings: Settings, back: bool,
    function: Any, images: int, line: int, cores: int,
) -> tuple[Planes, int] | None:  # fmt: skip
    """The blueprint for planes that come in multiples of `count`, and how many ranges of images
    there are, or None: what costs least by an estimate. `settings` are window, stride, dilation and
    padding; lines of memory have at most `line` elements. For the gradient by the filters `images`
    is how many sums run over, else 0.
    """
    best: tuple[float, Planes, int] | None = None
    skip = settings[1] if back else (1, 1)
    rolled = (
        math.prod(settings[0]) > WRITTEN_OUT and not images and not (back and max(settings[1]) > 1)
    )
    for longest, most in itertools.product((8, 7, 4, 2), (8, 7)):
        (rows, high), (pixels, wide) = (
            shares(out[0], longest, skip[0]),
            shares(out[1], most, skip[1]),
        )
        for planes in (k for k in (1, 2, 4, 8, 16, 32, 64) if count % k == 0):
            plan = Planes(  # type: ignore[call-arg, misc]
                (planes, high, wide), 1, 1, rows, pixels, *settings, back, function, rolled=rolled,  # type: ignore[arg-type]
                exact=(high, wide) == out, size=size, out=out, line=line,
            )  # fmt: skip
            moved = [planes * math.prod(n) for n in (size, out)]
            if any(n % line or n > line * UNITS * HELD * (2 if planes == 1 else 1) for n in moved):
                continue
            if planes > 1 and math.prod(plan.unit_tiles) > UNITS:
                continue
            known(*size, *out)  # code of its own
            plan = min(
                (replace(plan, more=more) for more in range(4)),
                key=lambda plan: meeting(plan, itemsize),
            )
            cost, cubes, ranges = cost_of(plan, itemsize, count // planes, images, cores)
            if cubes and (best is None or cost < best[0]):
                best = cost, replace(plan, cubes=cubes), ranges
    return best and best[1:]


def by_planes_on_gpu(
    x: Any,
    w: Any,
    bias: Any,
    out: Any,
    problem: Problem,
    function: Any,
    cores: int,
    back: bool = False,
) -> bool:
    """out = function(convolution + bias) where every channel has one filter, if the kernel takes
    it.

    x is (N, C, *size), w (C, 1, *window), out (N, C, *out). With `back`, out is the gradient by the
    input of a convolution as `problem` has it, and x the gradient of its result.
    """
    c = x.shape[1]
    found = flat_settings(problem, x, out)
    if found is None or w.shape[:2] != (c, 1) or w.dtype != x.dtype:
        return False
    size: Any = problem.size[1:]
    large: Any = problem.out[1:]
    chosen = plan_for(
        x.shape[0] * c, size, large, x.itemsize, found[0], back, function, 0, found[1], cores
    )
    if chosen is None:
        return False
    plan, _ = chosen
    channelwise_planes[x.shape[0] * c // plan.tile[0], UNITS](
        x.reshape(-1), contiguous(w).reshape(c, -1), bias, out.reshape(-1), plan, mode="unchecked"
    )
    return True


class PlanesWeight(GpuRoutine):
    """Every channel has its own filter, and planes are read as they lie."""

    name = "planes"

    def unfit(self, p: WeightGradient, properties: cb.DeviceProperties) -> str | None:
        """Depthwise, channels first, few taps."""
        return None if self.plan(p, properties) else "depthwise, short windows, channels first"

    def plan(self, p: WeightGradient, properties: cb.DeviceProperties) -> Any:
        """The blueprint, and how many ranges of images there are."""
        found = flat_settings(p.shape, p.x, p.grad) if p.depthwise else None
        if found is None:
            return None
        sides, (n, c) = (p.shape.size[1:], p.shape.out[1:]), p.x.shape[:2]
        how = (p.x.itemsize, found[0], False, None, n, found[1], properties.cores)
        return plan_for(c, *sides, *how)  # type: ignore[arg-type]

    def launch(self, p: WeightGradient, properties: cb.DeviceProperties) -> None:
        """Sums of ranges, which are added."""
        plan, ranges = self.plan(p, properties)
        (n, c), size = p.x.shape[:2], p.out.size
        sums = memory.empty((ranges, size), np.float32)
        channelwise_planes_weight[ranges * (c // plan.tile[0]), UNITS](
            p.x.reshape(-1),
            p.grad.reshape(-1),
            sums.reshape(ranges, c, -1),
            n,
            plan,
            mode="unchecked",
        )
        add_columns[-(-size // COLUMNS), COLUMNS * ROWS](sums, p.out.reshape(-1), mode="unchecked")


def takes_back(x: Any, w: Any, problem: Problem, cores: int) -> bool:
    """Whether there is a plan for the gradient by the input, of `problem`."""
    found = flat_settings(problem, x) if w.dtype == x.dtype else None
    many = x.shape[0] * x.shape[1]
    if found is None or many * math.prod(problem.out) >= 1 << 31:
        return False
    how = (x.itemsize, found[0], True, None, 0, found[1], cores)
    return plan_for(many, problem.size[1:], problem.out[1:], *how) is not None  # type: ignore[arg-type]
