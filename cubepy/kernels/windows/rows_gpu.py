"""Images read by units that make several neighbouring results: where a unit's positions lie, and
reading a row of them.

A map along an axis is regular where `outs` neighbouring results take the same positions, shifted by
`ins`, as the `outs` results before them. Then everything but the first position of a unit is known
when the code is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import address, line_of

UNITS = 128  # of a cube
TAPS = 8  # of a result along an axis, which are written out


@dataclass(frozen=True)
class Steps:
    """How results go along an axis: result r of a block of `outs` takes `taps` positions, `spacing`
    from each other, from lows[r] on, counted from the first position of the block, which is `ins`
    behind that of the block before.
    """

    outs: int
    ins: int
    lows: tuple[int, ...]
    taps: int
    spacing: int = 1

    @property
    def reach(self) -> int:
        """From the first position of a result to behind the last."""
        return (self.taps - 1) * self.spacing + 1

    @property
    def low(self) -> int:
        """The first position of a block, counted from its own."""
        return min(self.lows)

    @property
    def span(self) -> int:
        """From the first position of a block to behind the last."""
        return max(self.lows) + self.reach - self.low

    def positions(self, blocks: int) -> int:
        """Of so many blocks together."""
        return (blocks - 1) * self.ins + self.span


@dataclass(frozen=True)
class PlanePlan:
    """What a unit makes: `blocks` blocks of rows by `columns` results in a row.

    `last`: channels are last, and a result is a line of `lanes` of them; otherwise a unit's results
    in a row are a line if `lanes` is not 1. `loads`: where a unit reads along a row, from the first
    position of its first block on: the position, how many neighbours at once, and whether they may
    lie outside. `margin`: rows of a unit's own blocks may lie outside, too. `ragged`: some of a
    unit's results may lie outside. `resident`: cubes that should find room on a core, where that is
    not left to the compiler.
    """

    down: Steps
    across: Steps
    blocks: int
    columns: int
    last: bool
    lanes: int
    loads: tuple[tuple[int, int, bool], ...]
    margin: bool
    ragged: bool
    resident: int = 0


@cb.func
def fill_core(plan: cb.Comptime[PlanePlan]):
    """Registers for as many cubes as the plan wants on a core."""
    if plan.resident and "mma" in cb.device_properties().features:
        cb.resident(plan.resident)


def row_loads(
    across: Steps, columns: int, lanes: int, margin: bool
) -> tuple[tuple[int, int, bool], ...]:
    """Loads of the positions of `columns` results. Those before the unit's first position and
    behind its last may be outside; with `margin`, all.
    """
    blocks = columns // across.outs
    width = blocks * across.ins
    low, high = across.low, across.low + across.positions(blocks)
    wide = min(lanes, width & -width)
    loads = []
    at = low // wide * wide
    while at < high:
        needed = min(high, at + wide) - max(low, at)
        outside = margin or at < 0 or at + wide > width
        if needed * 4 <= wide or needed == 1:
            loads += [(k, 1, outside) for k in range(max(low, at), min(high, at + wide))]
        else:
            loads.append((at, wide, outside))
        at += wide
    return tuple(loads)


def row_bands_of(
    x: Any, out: Any, down: Steps, blocks: int, columns: int
) -> tuple[int, int, bool, bool]:
    """How many groups of columns and bands of rows there are, and whether their positions and their
    results may lie outside: `margin` and `ragged` of a plan.
    """
    groups, bands = -(-out.shape[2] // columns), -(-out.shape[1] // (blocks * down.outs))
    margin = bands * blocks * down.ins > x.shape[1]
    ragged = bands * blocks * down.outs > out.shape[1] or groups * columns > out.shape[2]
    return groups, bands, margin, ragged


def lined(x: Any, out: Any, across: Steps) -> int:
    """How many neighbours of a row of `out` a unit may make as a line of 16 bytes, reading whole
    lines of x: of arrays (planes, height, width). 1 if rows do not allow it.
    """
    lanes = line_of(out)
    if lanes == 1 or lanes % across.outs or out.shape[-1] % lanes:
        return 1
    width = lanes // across.outs * across.ins
    wide = min(lanes, width & -width)
    if (
        x.shape[-1] % wide
        or address(x) % (wide * x.itemsize)
        or x.strides[-2] % (wide * x.itemsize)
    ):
        return 1
    return lanes


@cb.func
def coordinates(t, shape):
    """The coordinates of element t of a shape. None of it is negative, so that divisions need not
    round down.
    """
    kind = cb.u64 if t.dtype == cb.i64 else cb.u32
    rest = cb.cast(t, kind)
    found = ()
    for d in cb.unroll(range(len(shape) - 1, 0, -1)):
        found = (cb.cast(rest % cb.cast(shape[d], kind), t.dtype),) + found
        rest = rest // cb.cast(shape[d], kind)
    return (cb.cast(rest, t.dtype),) + found


@cb.func
def room(shape: cb.Comptime[tuple], acc, plan):
    """Memory of a unit for lines of channels where these are last, else for numbers."""
    if plan.last:
        return cb.local(shape, acc, lanes=plan.lanes)
    return cb.local(shape, acc)


@cb.func
def nothing(acc, plan):
    """Zeros."""
    return cb.splat(cb.cast(0, acc), plan.lanes) if plan.last else cb.cast(0, acc)


@cb.func
def filled(number, plan):
    """A number for every channel of a unit."""
    return cb.splat(number, plan.lanes) if plan.last else number


def values_of(plan: PlanePlan) -> int:
    """How many values of a row a unit reads."""
    return sum(wide for _, wide, _ in plan.loads)


@cb.func
def read_row(
    values,
    base: cb.Comptime[int],
    x,
    p,
    begin,
    k: cb.Comptime[int],
    none,
    nearest: cb.Comptime[tuple],
    plan,
):
    """What a unit needs of a row, its k-th: the values from column z + plan.loads[0][0] on, to
    values[base] and on; `begin`: the row, the column z, and the channel.

    x: all elements in a row, and the shape: (planes, height, width) or (batch, height, width,
    channels). `none` where the row or the column is outside. Where nearest[0], rows outside may
    have the values of the nearest one inside; loads of up to nearest[1] columns may be of the
    nearest ones inside. Positions outside are never read.
    """
    elements, shape = x
    y, z, c = begin
    away = plan.margin or k + plan.down.low < 0 or k + plan.down.low >= plan.blocks * plan.down.ins
    row = cb.min(cb.max(y, 0), shape[1] - 1) if away else y
    first, start = plan.loads[0][0], start_of_row(p, row, c, shape, plan)
    for at, wide, beside in cb.unroll(plan.loads):
        here = cb.min(cb.max(z + at, 0), shape[2] - wide) if beside else z + at
        by_row = away and not nearest[0]
        by_column = beside and wide > nearest[1]
        there = inside(row == y, here == z + at, by_row, by_column)
        put(
            values,
            base + at - first,
            piece_of(elements, start, here, shape, wide, values.dtype, plan),
            there,
            none,
            plan,
        )


@cb.func
def inside(in_rows, in_columns, by_row: cb.Comptime[bool], by_column: cb.Comptime[bool]):
    """Whether a position counts, of the conditions that matter."""
    if by_row and by_column:
        return in_rows and in_columns
    if by_row:
        return in_rows
    return in_columns if by_column else None


@cb.func
def start_of_row(p, i, c, shape, plan):
    """Where row i of plane p begins, or its channel c, among all elements; lines that start there
    are aligned.
    """
    if plan.last:
        return (p * shape[1] + i) * shape[2] * multiple(shape[3], plan.lanes) + c
    return (p * shape[1] + i) * multiple(shape[2], widest(plan))


def widest(plan: PlanePlan) -> int:
    """The most neighbours that are read or written at once: rows are a multiple of it."""
    return max(wide for _, wide, _ in plan.loads)


@cb.func
def piece_of(elements, start, here, shape, wide: cb.Comptime[int], acc, plan):
    """One load of a row."""
    if plan.last:
        return cb.cast(
            elements.load((behind(start, here * multiple(shape[3], plan.lanes)),), plan.lanes), acc
        )
    return cb.cast(elements.load((behind(start, multiple(here, wide)),), wide), acc)


@cb.func
def behind(start, many):
    """start + many, as a number of that size. Of sums that cannot overflow compilers make sums of
    addresses, of twice the size, which take twice as many instructions.
    """
    kind = cb.u64 if start.dtype == cb.i64 else cb.u32
    return cb.cast(cb.cast(start, kind) + cb.cast(many, kind), start.dtype)


@cb.func
def put(values, at: cb.Comptime[int], line, there, none, plan):
    """Keep a line, or `none` where it is not `there`; None means that it is."""
    kept = (
        line
        if there is None
        else cb.select(there, line, cb.splat(cb.cast(none, line.dtype), len(line)))
    )
    if plan.last:
        values[at] = kept
    else:
        values.store(at, kept)


def position_in_row(q: int, v: int, plan: PlanePlan) -> int:
    """Which of the values of `read_row` is position v of result q."""
    return (
        q // plan.across.outs * plan.across.ins
        + plan.across.lows[q % plan.across.outs]
        + v
        - plan.loads[0][0]
    )


@cb.func
def store_row(out, p, i, j, c, values, plan, at: cb.Comptime[int] = 0):
    """A unit's results of row i from column j on: values[at] and following. Nothing where the row
    or columns are outside. `out`: all elements in a row, and the shape.
    """
    elements, shape = out
    if plan.last:
        start = (p * shape[1] + i) * shape[2] * multiple(shape[3], plan.lanes) + c
        for q in cb.unroll(range(plan.columns)):
            if not plan.ragged or (i < shape[1] and j + q < shape[2]):
                index = start + (j + q) * multiple(shape[3], plan.lanes)
                elements.store((index,), cb.cast(values[at + q], elements.dtype))
    elif plan.lanes == 1:
        for q in cb.unroll(range(plan.columns)):
            if not plan.ragged or (i < shape[1] and j + q < shape[2]):
                elements[(p * shape[1] + i) * shape[2] + j + q] = cb.cast(
                    values[at + q], elements.dtype
                )
    elif not plan.ragged or i < shape[1]:
        start = (p * shape[1] + i) * multiple(shape[2], plan.columns) + multiple(j, plan.columns)
        elements.store((start,), cb.cast(values.load(at, plan.columns), elements.dtype))
