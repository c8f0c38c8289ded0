"""How `pooling.sm90.max_tma` cuts images: what a cube makes, what its units read, and which of the
ways to do so is fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cubepy.kernels.windows.rows_gpu import Steps, row_loads
from cubepy.runtime.symbolic.cached import cached

PLANE = 32
"""Units of a plane."""
ROW_BYTES = 128
"""Of channels of a box, and what targets of the copy engine are multiples of."""
LINE_BYTES = 16
"""Of a line, and what rows are multiples of."""
WIDEST = 256
"""Positions of a box along an axis, at most."""
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
FEWEST_WHOLE = 3
"""Lines that are whole in all windows of a unit, from which on it takes their largest values from
other units.
"""
ENOUGH_ROWS = 6
"""On their way to a core, with channels last, where rows are long (the same)."""
WRITTEN_OUT = 13
"""Positions of a window along an axis, up to which other kernels have code for all of it."""
LEAST_WORTH, LEAST_WIDE = (0.7, 0.55), 0.35
"""Below which other kernels are faster, with channels first and last, and for wider windows with
channels first.
"""
FEW_CUBES = 0.04, 0.2
"""What it costs that a core has one cube, and where units look at lines for each other (both
measured on an H200).
"""


@dataclass(frozen=True)
class BoxPlan:
    """What a cube makes: `tile` columns of results, in `planes` planes, or for `channels` channels
    with `last`.

    Attributes:
        across: how windows go along the width.
        taps, ins: rows of a window, and from one window to the next.
        last: whether channels are last.
        columns, lanes: results of a unit in a row, and the channels of each.
        lined: neighbouring results of a row that are written at once, with channels first.
        loads: where a unit reads along a row, with channels first: as in `PlanePlan`.
        tile, planes, channels: of a cube.
        before: with channels last, where the first column that a tile sees is in a row of shared
            memory, which has nothing in columns that no box fills. With channels first a tile is as
            wide as the image.
        box, boxes, pitch: columns of a box, boxes of a row, and columns of a row in shared memory.
        stages: rows that are under way, or read.
        cubes: that should find room on a core.
        near: whether rows, and loads of so many columns, may be the nearest ones inside.
        ragged: whether some results may lie outside.
        pairs: the dtype of which rows hold the bits, as `pool_pairs.words_of` gives them, or None.
        whole: lines that are whole in all windows of a unit, of which it takes the largest values
            that others found: the first, counted from its own line, how many, and how many lines a
            row of the image has.
    """

    across: Steps
    taps: int
    ins: int
    last: bool
    columns: int
    lanes: int
    lined: int
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
    pairs: Any
    whole: tuple[int, int, int] = (0, 0, 0)

    @property
    def wide(self) -> int:
        """Numbers that are kept of a unit's columns, for each channel."""
        return self.columns if self.pairs is None or self.last else self.columns // 2

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
        """That a unit keeps of a row."""
        return self.wide * self.lanes

    @property
    def halves(self) -> int:
        """Numbers of a row that a word of what a unit reads holds."""
        return self.columns // self.wide

    @property
    def seen(self) -> int:
        """Numbers, or words of two, that a unit reads of a row."""
        if self.last:
            return self.across.positions(self.columns) * self.lanes
        position, wide, _ = self.loads[-1]
        return -(-(self.offset_of(position) + wide) // self.halves)

    def offset_of(self, position: int) -> int:
        """Where a position of a row is among the numbers that a unit reads, with channels first.
        Lines that others look at are one number there, or a word.
        """
        first, count, _ = self.whole
        at = position - self.loads[0][0] // self.halves * self.halves
        return (
            at - count * self.columns + self.halves
            if count and position >= first * self.columns
            else at
        )

    @property
    def own(self) -> Steps:
        """How windows go along what a unit reads, with channels first."""
        _, count, _ = self.whole
        taps = self.across.taps - count * self.columns + self.halves if count else self.across.taps
        return replace(self.across, taps=taps)

    @property
    def margin(self) -> int:
        """Lines before a row of the image, of which nothing is larger."""
        return max(0, -self.whole[0])

    @property
    def marks(self) -> int:
        """The largest values of lines that are kept of a row of an image."""
        first, count, lines = self.whole
        return self.margin + max(lines, self.groups - 1 + first + count) if count else 0

    @property
    def line(self) -> int:
        """Numbers that are kept at once."""
        return math.gcd(4, self.numbers)

    @property
    def row(self) -> int:
        """Elements of a row in shared memory, of 4 bytes or 2."""
        return -(-self.pitch * (self.channels if self.last else self.planes) // 64) * 64

    @property
    def over(self) -> int:
        """Rows before those of a block, so that all but its first are gone over by fours."""
        return max(0, (1 - self.taps) % FOUR - 1)

    @property
    def kept(self) -> int:
        """Numbers that all units keep: a block, and what is before and behind it (nothing)."""
        return (self.over + self.taps + 1) * self.workers * self.numbers

    def nbytes(self, itemsize: int) -> int:
        """Shared memory."""
        kept = (self.kept + 2 * self.planes * self.marks) * (itemsize if self.pairs is None else 4)
        return itemsize * self.stages * self.row + kept + 16 * self.stages + 2048


def first_plan(
    size: tuple[int, ...],
    made: tuple[int, ...],
    itemsize: int,
    down: Steps,
    across: Steps,
    columns: int,
    planes: int,
    pairs: Any = None,
) -> BoxPlan:
    """Of (planes, height, width), for one stage and one cube on a core."""
    wide_in, wide_out = size[2], made[2]
    tile = -(-wide_out // columns) * columns
    loads = row_loads(
        across, columns, min(LINE_BYTES // itemsize, columns), tile * across.ins > wide_in
    )
    whole = whole_lines(across, columns, wide_in)
    if whole[1]:
        loads = tuple(
            load for load in loads if not 0 <= load[0] - whole[0] * columns < whole[1] * columns
        )
    widest = max(wide for _, wide, _ in loads)
    left, right = across.taps + across.low, wide_in - (wide_out - 1) * across.ins - across.low
    nearby = 0 if across.spacing > 1 else widest if min(left, right) >= widest else 1
    boxes, measure = -(-wide_in // WIDEST), ROW_BYTES // itemsize
    box = wide_in if boxes == 1 else -(-wide_in // (boxes * measure)) * measure
    return BoxPlan(
        across,
        down.taps,
        down.ins,
        False,
        columns,
        1,
        math.gcd(wide_out, columns),
        loads,
        tile,
        planes,
        1,
        0,
        box,
        boxes,
        box * boxes,
        1,
        1,
        (down.spacing == 1, nearby),
        tile > wide_out,
        pairs,
        whole,
    )


def whole_lines(across: Steps, columns: int, wide_in: int) -> tuple[int, int, int]:
    """`whole` of a plan, for units whose results are `columns` neighbours."""
    first = -(-(across.low + columns - 1) // columns)
    count = (across.low + across.taps) // columns - first
    if count < FEWEST_WHOLE or across.spacing > 1 or across.ins > 1 or wide_in % columns:
        return 0, 0, 0
    return first, count, wide_in // columns


def last_plan(
    size: tuple[int, ...],
    made: tuple[int, ...],
    itemsize: int,
    down: Steps,
    across: Steps,
    columns: int,
    tile: int,
    channels: int,
    pairs: Any = None,
) -> BoxPlan:
    """Of (batch, height, width, channels), for one stage and one cube on a core."""
    wide_in, results = size[2], -(-made[2] // columns) * columns
    tile = min(tile, results)
    seen = across.positions(tile)
    box = min(seen, wide_in)
    lows = [min(b, results - tile) * across.ins + across.low for b in range(0, results, tile)]
    moved = [min(max(low, 0), wide_in - box) - low for low in lows]
    before = max(0, -min(moved))
    pitch = before + max(seen, max(moved) + box)
    return BoxPlan(
        across,
        down.taps,
        down.ins,
        True,
        columns,
        4 // itemsize,
        1,
        (),
        tile,
        1,
        channels,
        before,
        box,
        1,
        pitch,
        1,
        1,
        (down.spacing == 1, 0),
        results > made[2],
        pairs,
    )


def plans(
    size: tuple[int, ...],
    made: tuple[int, ...],
    itemsize: int,
    down: Steps,
    across: Steps,
    last: bool,
    pairs: Any = None,
) -> Iterator[BoxPlan]:
    """Blueprints that differ in how much a cube does, as many of which find room on a core as can,
    and bring as many rows as can.
    """
    for columns in (4, 8):
        if last:
            measure, results = ROW_BYTES // itemsize, -(-made[2] // columns)
            tiles = {-(-results // -(-results * columns // tile)) * columns for tile in TILES}
            whole = size[3] % (2 * measure) == 0 or size[3] > 8 * measure
            some = [
                last_plan(size, made, itemsize, down, across, columns, tile, n * measure, pairs)
                for tile in sorted(tiles)
                for n in (1, 1 + whole)
            ]
        elif columns * itemsize == LINE_BYTES:
            groups = -(-made[2] // columns)
            many = {min(WIDEST, max(1, units // groups)) for units in UNITS}
            some = [
                first_plan(size, made, itemsize, down, across, columns, n, pairs)
                for n in sorted(many)
            ]
        else:
            continue
        for plan in some:
            for cubes in range(1, 9):
                room = SHARED // cubes - plan.nbytes(itemsize)
                stages = min(MOST_STAGES, 1 + room // (plan.row * itemsize + 16))
                fits = cubes * (plan.workers + PLANE) * (64 + plan.numbers * 4) <= REGISTERS
                if (
                    room >= 0
                    and stages > 2
                    and plan.box <= WIDEST
                    and plan.workers <= UNITS[-1]
                    and fits
                ):
                    yield replace(plan, stages=stages, cubes=cubes)


def worth(plan: BoxPlan, size: tuple[int, ...], made: tuple[int, ...], itemsize: int) -> float:
    """How fast a plan is, about: 1 where a core has enough units that work, enough bytes on their
    way, and cubes read few positions that others read, too, in long pieces, and write lines.
    """
    working = min(1.0, plan.cubes * plan.used / ENOUGH_UNITS) ** 0.4
    coming = min(1.0, plan.cubes * plan.stages * plan.row * itemsize / ENOUGH_BYTES) ** 0.5
    coming *= min(1.0, plan.cubes * plan.stages / ENOUGH_ROWS) ** 0.5 if plan.last else 1.0
    tiles = -(-made[2] // plan.tile)
    again = tiles * plan.box / size[2] + tiles * plan.tile / made[2] - 2 if plan.last else 0.0
    short = plan.last and plan.channels * itemsize == ROW_BYTES
    single = not plan.last and plan.lined < plan.columns
    lost = (
        0.1 * (again + single + short) + 0.01 * plan.cubes + FEW_CUBES[plan.marks > 0] / plan.cubes
    )
    return working * coming / (1 + lost)


@cached
def plan_of(
    size: tuple[int, ...],
    made: tuple[int, ...],
    itemsize: int,
    down: Steps,
    across: Steps,
    last: bool,
    pairs: Any = None,
) -> BoxPlan | None:
    """The blueprint for shapes of x and out, or None where there is none that is fast."""
    found = plans(size, made, itemsize, down, across, last, pairs)
    value, _, best = max(
        ((worth(p, size, made, itemsize), -n, p) for n, p in enumerate(found)),
        default=(0.0, 0, None),
    )
    wide = not last and across.taps > WRITTEN_OUT
    return best if value >= (LEAST_WIDE if wide else LEAST_WORTH[last]) else None
