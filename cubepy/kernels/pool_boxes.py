"""Largest values of windows in images on Hopper: the copy engine brings rows to shared memory while units work.

A cube makes a band of columns and walks down the image. One unit asks for rows as long as there is room for them; the
others read what their windows see of a row and find the largest values across (`pool_planes.largest`). Down the image
rows go by blocks as high as a window: a window is the end of one block and the begin of the next (van Herk, "A fast
algorithm for local minimum and maximum filters on rectangular and octagonal kernels", 1992). The rows of a block are
kept, and where it ends they become the largest values from each row to that end. So a result takes two maxima more
however high its window is, and how much a core has on its way does not depend on how many units find room on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import cubepy as cb
from cubepy.kernels.cube_wide import address, multiple
from cubepy.kernels.matmul_ring import next_slot
from cubepy.kernels.plane_lines import Steps, coordinates, row_loads
from cubepy.kernels.pool_planes import largest

PLANE = 32
"""Units of a plane."""
ROW_BYTES = 128
"""Of channels of a box, and what targets of the copy engine are multiples of."""
ALIGNED = 1024
"""Bytes of shared memory that start as the copy engine wants."""
LINE_BYTES = 16
"""Of a line, and what rows are multiples of."""
WIDEST = 256
"""Places of a box along an axis, at most."""
FOUR = 4
"""Rows of a block that are gone over at once."""
TILES = (8, 16, 24, 32, 48, 64)
"""Columns of results of a cube, at most, with channels last."""
UNITS = (64, 128, 192, 256, 512)
"""Of a cube, about, with channels first."""
MOST_STAGES = 12
"""Rows on their way to a cube."""
SHARED = 226 * 1024
"""Bytes of shared memory of a core."""
REGISTERS = 1 << 16
"""Of a core."""
ENOUGH_UNITS, ENOUGH_BYTES = 512, 40 << 10
"""That work on a core, and are on their way to it (measured on an H200)."""
TURNS = 2
"""Cubes that a core's place for one should do, at least."""
LEAST_SIZE = 1 << 22
"""Results, below which a launch takes longer than memory."""
SHORT, HIGH, HIGH_NARROW, HIGH_SINGLE, MOST = 5, 7, 13, 14, 32
"""Other kernels are faster for windows that reach over up to SHORT strides, that have less than HIGH rows with channels
first (of 16-bit floats less than HIGH_NARROW, HIGH_SINGLE where results are no whole lines), or more than MOST places
along an axis,"""
GAPS = 10, 20
"""and, with channels first, for those with gaps that do not reach over so many places (all measured on an H200)."""
LEAST_WORTH = 0.7, 0.55
"""Below which other kernels are faster, with channels first and last."""


@dataclass(frozen=True)
class BoxPlan:
    """What a cube makes: `tile` columns of results, in `planes` planes, or for `channels` channels with `last`.

    Attributes:
        across: how windows go along the width.
        taps, ins: rows of a window, and from one window to the next.
        last: whether channels are last.
        columns, lanes: results of a unit in a row, and the channels of each.
        lined: whether results of a row are written as a line.
        loads: where a unit reads along a row, with channels first: as in `PlanePlan`.
        tile, planes, channels: of a cube.
        before: with channels last, where the first column that a tile sees is in a row of shared memory, which has
            nothing in columns that no box fills. With channels first a tile is as wide as the image.
        box, boxes, pitch: columns of a box, boxes of a row, and columns of a row in shared memory.
        stages: rows that are under way, or read.
        cubes: that should find room on a core.
        near: whether rows, and loads of so many columns, may be the nearest ones inside.
        ragged: whether some results may lie outside.
    """

    across: Steps
    taps: int
    ins: int
    last: bool
    columns: int
    lanes: int
    lined: bool
    loads: tuple[tuple[int, int, bool], ...]
    tile: int
    planes: int
    channels: int
    before: int
    box: int
    boxes: int
    pitch: int
    stages: int
    cubes: int
    near: tuple[bool, int]
    ragged: bool

    @property
    def groups(self) -> int:
        """Of columns, in a tile."""
        return self.tile // self.columns

    @property
    def used(self) -> int:
        """Units that make results."""
        return self.groups * (self.channels // self.lanes if self.last else self.planes)

    @property
    def workers(self) -> int:
        """Units but for those that ask for rows."""
        return -(-self.used // PLANE) * PLANE

    @property
    def copies(self) -> int:
        """Boxes of a row of all planes; one does for several if it is as wide as they are."""
        return 1 if self.boxes == 1 else self.boxes * self.planes

    @property
    def numbers(self) -> int:
        """That a unit makes of a row."""
        return self.columns * self.lanes

    @property
    def seen(self) -> int:
        """Numbers that a unit reads of a row."""
        if self.last:
            return self.across.places(self.columns) * self.lanes
        return sum(wide for _, wide, _ in self.loads)

    @property
    def line(self) -> int:
        """Numbers that are kept at once."""
        return math.gcd(4, self.numbers)

    @property
    def row(self) -> int:
        """Elements of a row in shared memory, of 4 bytes or 2."""
        return -(-self.pitch * (self.channels if self.last else self.planes) // 64) * 64

    @property
    def kept(self) -> int:
        """Numbers that all units keep: a block, what is behind it (nothing), and room so that it is gone over by
        fours."""
        return (self.taps + 1 + FOUR) * self.workers * self.numbers

    def nbytes(self, itemsize: int) -> int:
        """Shared memory."""
        return itemsize * (self.stages * self.row + self.kept) + 16 * self.stages + 2048


@cb.func
def bring(x, tile, full, empty, rows, first, hop, corner, size, plan: cb.Comptime[BoxPlan]):
    """Ask for all rows of a cube, one after the other, as room is found."""
    slot, phase = 0, 0
    p, z, c = corner
    for t in range(rows):
        y = cb.min(cb.max(first + t * hop, 0), size[1] - 1)
        cb.barrier_wait(empty, slot, 1 - phase)
        cb.barrier_expect(full, slot, plan.copies * x.nbytes)
        if plan.last:
            there = cb.min(cb.max(z, 0), size[2] - plan.box)
            at = slot * plan.row + multiple((there - z + plan.before) * plan.channels, ROW_BYTES // x.dtype.itemsize)
            cb.tma_load(tile, at, x, (p, y, there, c), full, slot)
        elif plan.copies == 1:
            cb.tma_load(tile, slot * plan.row, x, (p, y, 0), full, slot)
        else:
            for k in range(plan.copies):
                to = slot * plan.row + k * plan.box
                cb.tma_load(tile, to, x, (p + k // plan.boxes, y, k % plan.boxes * plan.box), full, slot)
        slot, phase = next_slot(slot, phase, plan.stages)


@cb.func
def clear_edges(tile, least, z, size, plan: cb.Comptime[BoxPlan]):
    """Nothing in the columns that no box fills; a tile sees columns from z on."""
    first = (cb.min(cb.max(z, 0), size[2] - plan.box) - z + plan.before) * plan.channels
    for k in range(cb.UNIT_POS, plan.stages * plan.row, cb.CUBE_DIM):
        place = k % plan.row
        if place < first or place >= first + plan.box * plan.channels:
            tile[k] = cb.cast(least, tile.dtype)


@cb.func
def read_boxed(values, tile, at, z, size, none, plan: cb.Comptime[BoxPlan]):
    """What a unit sees of a row in shared memory. With channels last it begins at element `at`, else at column z, where
    column 0 is element `at`."""
    if plan.last:
        for v in cb.unroll(range(plan.across.places(plan.columns))):
            place = multiple(at + v * plan.channels, plan.lanes)
            values.store(v * plan.lanes, cb.cast(tile.load(place, plan.lanes), values.dtype))
    else:
        for place, wide, beside in cb.unroll(plan.loads):
            read_line(values, tile, at, z + place, place - plan.loads[0][0], wide, beside, size, none, plan)


@cb.func
def read_line(
    values, tile, at, z, to: cb.Comptime[int], wide: cb.Comptime[int], beside: cb.Comptime[bool], size, none,
    plan: cb.Comptime[BoxPlan],
):  # fmt: skip
    """values[to], ... = `wide` neighbours from column z on."""
    here = cb.min(cb.max(z, 0), size[2] - wide) if beside else z
    line = cb.cast(tile.load(multiple(at + here, wide), wide), values.dtype)
    if beside and wide > plan.near[1]:
        line = cb.select(here == z, line, cb.splat(none, wide))
    values.store(to, line)


@cb.func
def across_row(found, values, plan: cb.Comptime[BoxPlan]):
    """found = the largest values of a row in the unit's windows."""
    if plan.last:
        for e in cb.unroll(range(plan.lanes)):
            largest(found, e, values, e, plan.lanes, plan.columns, plan.across)
    else:
        largest(found, 0, values, plan.across.low - plan.loads[0][0], 1, plan.columns, plan.across)


@cb.func
def kept_at(k, m: cb.Comptime[int], plan: cb.Comptime[BoxPlan]):
    """Where a unit keeps part m of row k of a block."""
    line = (k + FOUR - 1) * (plan.numbers // plan.line) + m
    return multiple((line * plan.workers + cb.UNIT_POS) * plan.line, plan.line)


@cb.func
def end_block(held, none, plan: cb.Comptime[BoxPlan]):
    """Make what is kept of a block the largest values from each row to its end."""
    for m in cb.unroll(range(plan.numbers // plan.line)):
        running = cb.splat(none, plan.line)
        for k in range(plan.taps - 1, 0, -FOUR):
            lines = ()
            for v in cb.unroll(range(FOUR)):
                lines = lines + (held.load(kept_at(k - v, m, plan), plan.line),)
            for v in cb.unroll(range(FOUR)):
                running = cb.nan_max(running, lines[v])
                held.store(kept_at(k - v, m, plan), running)


@cb.func
def write_row(out, made, results, p, i, j, c, plan: cb.Comptime[BoxPlan]):
    """A unit's results of row i from column j on."""
    if plan.last:
        start = (p * made[1] + i) * made[2] * multiple(made[3], plan.lanes) + c
        if c < made[3]:
            for q in cb.unroll(range(plan.columns)):
                if not plan.ragged or j + q < made[2]:
                    place = start + (j + q) * multiple(made[3], plan.lanes)
                    out.store((place,), cb.cast(results.load(q * plan.lanes, plan.lanes), out.dtype))
    elif plan.lined:
        if cb.UNIT_POS < plan.used and p < made[0]:
            start = (p * made[1] + i) * multiple(made[2], plan.columns) + multiple(j, plan.columns)
            out.store((start,), cb.cast(results.load(0, plan.columns), out.dtype))
    elif cb.UNIT_POS < plan.used and p < made[0]:
        for q in cb.unroll(range(plan.columns)):
            if not plan.ragged or j + q < made[2]:
                out[(p * made[1] + i) * made[2] + j + q] = cb.cast(results[q], out.dtype)


@cb.func
def walk(
    tile, full, empty, out, mine, at, none, rows, first, window, hop, rest, size, made, plan: cb.Comptime[BoxPlan]
):
    """Take in rows as they come, and write those of the results that are done."""
    p, j, c = mine
    z = j * plan.across.ins
    acc = none.dtype
    deep = (made[1] - rest + hop - 1) // hop
    held = cb.shared(plan.kept, acc)
    values, found = cb.local((plan.seen,), acc), cb.local((plan.numbers,), acc)
    running, results = cb.local((plan.numbers,), acc), cb.local((plan.numbers,), acc)
    for q in cb.unroll(range(plan.numbers)):
        running[q] = none
    for m in cb.unroll(range(plan.numbers // plan.line)):
        held.store(kept_at(plan.taps, m, plan), cb.splat(none, plan.line))
    place = 0
    slot, phase = 0, 0
    for t in range(rows):
        cb.barrier_wait(full, slot, phase)
        read_boxed(values, tile, slot * plan.row + at, z, size, none, plan)
        cb.sync_plane()
        if cb.UNIT_POS_PLANE == 0:
            cb.barrier_arrive(empty, slot)
        slot, phase = next_slot(slot, phase, plan.stages)
        across_row(found, values, plan)
        if not plan.near[0]:
            y = first + t * hop
            for q in cb.unroll(range(plan.numbers)):
                found[q] = cb.select(y >= 0 and y < size[1], found[q], none)
        for q in cb.unroll(range(plan.numbers)):
            running[q] = cb.nan_max(running[q], found[q])
        since = t - (plan.taps - 1)
        i = window + since // plan.ins
        if since >= 0 and since % plan.ins == 0 and i < deep:
            for m in cb.unroll(range(plan.numbers // plan.line)):
                begun = held.load(kept_at(place + 1, m, plan), plan.line)
                results.store(m * plan.line, cb.nan_max(begun, running.load(m * plan.line, plan.line)))
            write_row(out, made, results, p, i * hop + rest, j, c, plan)
        for m in cb.unroll(range(plan.numbers // plan.line)):
            held.store(kept_at(place, m, plan), found.load(m * plan.line, plan.line))
        place = place + 1
        if place == plan.taps:
            end_block(held, none, plan)
            place = 0
            for q in cb.unroll(range(plan.numbers)):
                running[q] = none


@cb.kernel
def max_boxes(
    x: cb.TensorMap, size, out: cb.Array, made, low, hop, pieces, windows, bands, blocks, least: cb.Comptime,
    acc: cb.Comptime, plan: cb.Comptime[BoxPlan],
):  # fmt: skip
    """out (planes, height, width), or (batch, height, width, channels), = the largest value of each window of x.

    `size` and `made` are the shapes of x and out; windows begin `low` rows above the image, and their rows are `hop`
    apart. Cubes, the slowest first: planes or images, `pieces` of `windows` windows along the height, `hop` first rows,
    `bands` of the width, and `blocks` of channels.
    """
    cb.resident(plan.cubes)
    full = cb.barrier(plan.stages, 1)
    empty = cb.barrier(plan.stages, plan.workers // PLANE)
    tile = cb.shared(max(plan.stages * plan.row, ALIGNED // x.dtype.itemsize), x.dtype)
    teams = (made[0] + plan.planes - 1) // plan.planes
    team, piece, rest, band, block = coordinates(cb.CUBE_POS, (teams, pieces, hop, bands, blocks))
    left = 0
    if bands > 1:
        left = cb.min(band * plan.tile, (made[2] + plan.columns - 1) // plan.columns * plan.columns - plan.tile)
    z = left * plan.across.ins + plan.across.low  # of the first column that is seen
    if plan.last:
        clear_edges(tile, least, z, size, plan)
        cb.sync_cube()
    window = piece * windows
    first = window * plan.ins * hop + low + rest
    rows = (windows - 1) * plan.ins + plan.taps
    if cb.UNIT_POS >= plan.workers:
        if cb.UNIT_POS == plan.workers:
            bring(x, tile, full, empty, rows, first, hop, (team * plan.planes, z, block * plan.channels), size, plan)
    else:
        none = cb.cast(least, acc)
        if plan.last:
            group, line = coordinates(cb.UNIT_POS, (plan.groups, plan.channels // plan.lanes))
            c = multiple(block * plan.channels + line * plan.lanes, plan.lanes)
            at = (plan.before + group * (plan.columns * plan.across.ins)) * plan.channels + line * plan.lanes
            mine = team, left + group * plan.columns, c
        else:
            member, group = coordinates(cb.UNIT_POS, (plan.planes, plan.groups))
            at = cb.min(member, plan.planes - 1) * plan.pitch
            mine = team * plan.planes + member, group * plan.columns, 0
        walk(tile, full, empty, out, mine, at, none, rows, first, window, hop, rest, size, made, plan)


def first_plan(
    size: tuple[int, ...], made: tuple[int, ...], itemsize: int, down: Steps, across: Steps, columns: int, planes: int,
    stages: int, cubes: int,
) -> BoxPlan:  # fmt: skip
    """Of (planes, height, width)."""
    wide_in, wide_out = size[2], made[2]
    tile = -(-wide_out // columns) * columns
    loads = row_loads(across, columns, min(LINE_BYTES // itemsize, columns), tile * across.ins > wide_in)
    widest = max(wide for _, wide, _ in loads)
    left, right = across.taps + across.low, wide_in - (wide_out - 1) * across.ins - across.low
    nearby = 0 if across.apart > 1 else widest if min(left, right) >= widest else 1
    boxes, measure = -(-wide_in // WIDEST), ROW_BYTES // itemsize
    box = wide_in if boxes == 1 else -(-wide_in // (boxes * measure)) * measure
    return BoxPlan(
        across, down.taps, down.ins, False, columns, 1, wide_out % columns == 0, loads, tile, planes, 1, 0, box, boxes,
        box * boxes, stages, cubes, (down.apart == 1, nearby), tile > wide_out,
    )  # fmt: skip


def last_plan(
    size: tuple[int, ...], made: tuple[int, ...], itemsize: int, down: Steps, across: Steps, columns: int, tile: int,
    channels: int, stages: int, cubes: int,
) -> BoxPlan:  # fmt: skip
    """Of (batch, height, width, channels)."""
    wide_in, results = size[2], -(-made[2] // columns) * columns
    tile = min(tile, results)
    seen = across.places(tile)
    box = min(seen, wide_in)
    lows = [min(b, results - tile) * across.ins + across.low for b in range(0, results, tile)]
    moved = [min(max(low, 0), wide_in - box) - low for low in lows]
    before = max(0, -min(moved))
    pitch = before + max(seen, max(moved) + box)
    return BoxPlan(
        across, down.taps, down.ins, True, columns, 4 // itemsize, False, (), tile, 1, channels, before, box, 1, pitch,
        stages, cubes, (down.apart == 1, 0), results > made[2],
    )  # fmt: skip


def plans(
    size: tuple[int, ...], made: tuple[int, ...], itemsize: int, down: Steps, across: Steps, last: bool
) -> Iterator[BoxPlan]:  # fmt: skip
    """Blueprints that differ in how much a cube does, as many of which find room on a core as can, and bring as many
    rows as can."""
    for columns in (4, 8):
        if last:
            measure, results = ROW_BYTES // itemsize, -(-made[2] // columns)
            tiles = {-(-results // -(-results * columns // tile)) * columns for tile in TILES}
            whole = size[3] % (2 * measure) == 0 or size[3] > 8 * measure
            some = [
                last_plan(size, made, itemsize, down, across, columns, tile, n * measure, 1, 1)
                for tile in sorted(tiles) for n in (1, 1 + whole)
            ]  # fmt: skip
        elif columns * itemsize == LINE_BYTES:
            groups = -(-made[2] // columns)
            many = {min(WIDEST, max(1, units // groups)) for units in UNITS}
            some = [first_plan(size, made, itemsize, down, across, columns, n, 1, 1) for n in sorted(many)]
        else:
            continue
        for plan in some:
            for cubes in range(1, 9):
                room = SHARED // cubes - plan.nbytes(itemsize)
                stages = min(MOST_STAGES, 1 + room // (plan.row * itemsize + 16))
                fits = cubes * (plan.workers + PLANE) * (64 + plan.numbers * 4) <= REGISTERS
                if room >= 0 and stages > 2 and plan.box <= WIDEST and plan.workers <= UNITS[-1] and fits:
                    yield replace(plan, stages=stages, cubes=cubes)


def worth(plan: BoxPlan, size: tuple[int, ...], made: tuple[int, ...], itemsize: int) -> float:
    """How fast a plan is, about: 1 where a core has enough units that work, enough bytes on their way, and cubes read
    few places that others read, too, in long pieces, and write lines."""
    working = min(1.0, plan.cubes * plan.used / ENOUGH_UNITS) ** 0.4
    coming = min(1.0, plan.cubes * plan.stages * plan.row * itemsize / ENOUGH_BYTES) ** 0.5
    tiles = -(-made[2] // plan.tile)
    again = tiles * plan.box / size[2] + tiles * plan.tile / made[2] - 2 if plan.last else 0.0
    short = plan.last and plan.channels * itemsize == ROW_BYTES
    single = not (plan.last or plan.lined)
    return working * coming / (1 + 0.1 * (again + single + short) + 0.01 * plan.cubes + 0.04 / plan.cubes)


@lru_cache(maxsize=1024)
def plan_of(
    size: tuple[int, ...], made: tuple[int, ...], itemsize: int, down: Steps, across: Steps, last: bool
) -> BoxPlan | None:
    """The blueprint for shapes of x and out, or None where there is none that is fast."""
    found = plans(size, made, itemsize, down, across, last)
    value, _, best = max(((worth(p, size, made, itemsize), -n, p) for n, p in enumerate(found)), default=(0.0, 0, None))
    return best if value >= LEAST_WORTH[last] else None


def launch(x: Any, out: Any, down: Steps, least: Any, plan: BoxPlan, pieces: int) -> None:
    """Run a plan, with the height in so many pieces."""
    hop = down.apart
    deep = -(-out.shape[1] // hop)
    windows = -(-deep // pieces)
    pieces = -(-deep // windows)
    teams, bands = -(-x.shape[0] // plan.planes), -(-out.shape[2] // plan.tile)
    blocks = -(-x.shape[3] // plan.channels) if plan.last else 1
    box = (1, 1, plan.box, plan.channels) if plan.last else (plan.planes if plan.copies == 1 else 1, 1, plan.box)
    max_boxes[teams * pieces * hop * bands * blocks, plan.workers + PLANE](
        cb.tensor_map(x, box, swizzle=0), x.shape, out.reshape(-1), out.shape, down.low, hop, pieces, windows, bands,
        blocks, least, cb.as_dtype(x.dtype), plan, mode="unchecked",
    )  # fmt: skip


def fits(x: Any, out: Any, down: Steps, across: Steps, last: bool) -> bool:
    """Whether `run` takes it, and is faster than others are: images whose rows the copy engine takes, large enough to
    fill a GPU, and windows that reach over many others."""
    device = cb.device_properties_of()
    if "tma" not in device.features or x.itemsize not in (2, 4) or x.dtype.kind in "iu" or out.size < LEAST_SIZE:
        return False
    if x.shape[-1] * x.itemsize % LINE_BYTES or address(x) % LINE_BYTES or out.size >= 1 << 31 or down.taps < 3:
        return False
    if max(down.taps, across.reach) > MOST or (last and x.shape[3] * x.itemsize < ROW_BYTES):
        return False
    if max(down.apart, across.apart) > 1:
        reach = max(down.reach, across.reach)
        if max(down.ins, across.ins) > 1 or not (last or GAPS[0] <= reach <= GAPS[1]):
            return False
    elif max(down.taps / down.ins, across.taps / across.ins) <= SHORT or (not last and down.taps < HIGH):
        return False
    elif not last and out.shape[2] * out.itemsize % LINE_BYTES and (x.itemsize == 2 or down.taps < HIGH_SINGLE):
        return False
    if x.itemsize == 2 and not last and down.taps < HIGH_NARROW:
        return False
    return plan_of(tuple(x.shape), tuple(out.shape), x.itemsize, down, across, last) is not None


def run(x: Any, out: Any, down: Steps, across: Steps, least: Any, last: bool) -> None:
    """Largest values of windows of (planes, height, width), or with `last` of (batch, height, width, channels)."""
    plan = plan_of(tuple(x.shape), tuple(out.shape), x.itemsize, down, across, last)
    assert plan is not None, "ask `fits` first"
    cubes = -(-x.shape[0] // plan.planes) * down.apart * -(-out.shape[2] // plan.tile)
    cubes *= -(-x.shape[3] // plan.channels) if last else 1
    wanted = TURNS * plan.cubes * cb.device_properties_of().cores
    pieces = min(-(-wanted // cubes), out.shape[1] * down.ins // (down.apart * 2 * down.taps))
    launch(x, out, down, least, plan, max(1, pieces))
