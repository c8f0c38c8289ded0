"""Reductions down columns on a CPU: lines of neighbouring columns, several rows side by side.

Where a reduction walks once, the sums of a cube's columns stay in the nearest cache, or in
registers where they are few, while it goes down all rows; where it walks again, it does so block by
block of rows, while the cache holds them. NaN among extremes is noticed by a sum on the side, as
along rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.functions import add
from cubepy.kernels.primitives.vector_width import lanes_on
from cubepy.kernels.reduce.problem import Reduce
from cubepy.kernels.reduce.reduction import Reduction, Walk
from cubepy.kernels.reduce.rows_cpu import STREAMS, by_pairs, join_pieces
from cubepy.lang.dtypes import DType
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, bucket

BLOCK_STREAMS = 4  # rows of a block that do not wait for each other
ROWS = 32  # of a block of columns
LINES = 8  # of its rows
WIDTH = 1024  # columns that one cube reduces
WIDE = 256
"""Lines that one cube reduces of long columns: what it reads lies in one stretch of memory."""
NARROW = 512  # columns that few are folded to
FEW = 16  # lines of columns that are held in registers (half as many where NaN is looked for, too)
FOLDS = (2, 4, 8, 16, 32, 64, 128)  # rows that become one
CUBES = 32  # as many as columns are cut for, so that threads finish together


@dataclass(frozen=True)
class ColumnPlan:
    """How columns are walked down: `lanes` of them a line, computed in `acc`; a cube has `room` for
    so many lines, of which it holds `few` in registers (0: they are more).
    """

    acc: DType
    lanes: int
    room: int
    few: int


@cb.func
def few_lines(
    x, b, begin, stop, sums, walk: cb.Comptime[Walk], step, by, plan: cb.Comptime[ColumnPlan]
):
    """A walk down rows [begin, stop) of `plan.few` lines, which stay in registers, to `sums`.

    What comes back is NaN where `step` is not exact and a NaN was seen.
    """
    acc, lanes, careful = plan.acc, plan.lanes, walk.exact is not None and step is walk.step
    held = cb.local((plan.few,), acc, lanes=lanes)
    seen = cb.cast(cb.splat(0, lanes), acc)
    other = seen
    for j in cb.unroll(range(plan.few)):
        held[j] = cb.cast(cb.splat(walk.start, lanes), acc)
    for k in range(begin, stop):
        for j in cb.unroll(range(plan.few)):
            held[j] = step(held[j], walk.value(cb.cast(x.load((b, k, j * lanes), lanes), acc), by))
            if careful and j % 2 == 0:
                seen = seen + held[j]
            if careful and j % 2 == 1:
                other = other + held[j]
    for j in cb.unroll(range(plan.few)):
        sums[j] = held[j]
    return seen + other


@cb.func
def walk_columns(
    x,
    columns,
    begin,
    stop,
    sums,
    walk: cb.Comptime[Walk],
    step,
    by,
    side,
    plan: cb.Comptime[ColumnPlan],
):
    """A walk down rows [begin, stop) into the lines `sums`; whether a NaN was seen that `step`
    loses. `columns`: of which matrix, the first of them, and how many.

    With `side` STREAMS rows are read side by side, else one after the other.
    """
    b, first, count = columns
    acc, lanes, careful = plan.acc, plan.lanes, walk.exact is not None and step is walk.step
    lines = count // lanes
    rest = count - lines * lanes
    none = cb.cast(cb.splat(walk.start, lanes), acc)
    seen = cb.cast(cb.splat(0, lanes), acc)
    for j in range(lines + (1 if rest > 0 else 0)):
        sums[j] = none
    if plan.few > 0:
        seen = few_lines(x, b, begin, stop, sums, walk, step, by, plan)
        begin = stop
    whole = begin + cb.max(stop - begin, 0) // STREAMS * STREAMS if side else begin
    for k in range(begin, whole, STREAMS):
        for j in range(lines):
            c = first + j * lanes
            v = tuple(
                walk.value(cb.cast(x.load((b, k + r, c), lanes), acc), by)
                for r in cb.unroll(range(STREAMS))
            )
            if careful:
                # in two steps: a select of what is there already would be stored under a mask
                high = step(step(v[0], v[1]), step(v[2], v[3]))
                sums[j] = step(step(sums[j], high), step(step(v[4], v[5]), step(v[6], v[7])))
                seen = seen + by_pairs(v, add)
            else:
                sums[j] = step(by_pairs(v, step), sums[j])
    pairs = whole + (stop - whole) // 2 * 2 if careful else whole
    for k in range(whole, pairs, 2):
        for j in range(lines):
            c = first + j * lanes
            line = walk.value(cb.cast(x.load((b, k, c), lanes), acc), by)
            after = walk.value(cb.cast(x.load((b, k + 1, c), lanes), acc), by)
            sums[j] = step(step(sums[j], line), after)
            seen = seen + line + after
    for k in range(pairs, stop):
        for j in range(lines):
            line = walk.value(cb.cast(x.load((b, k, first + j * lanes), lanes), acc), by)
            if careful:
                sums[j] = step(step(sums[j], line), none)
                seen = seen + line
            else:
                sums[j] = step(line, sums[j])
    if rest > 0:
        for k in range(begin, stop):
            line = cb.cast(x.load((b, k, first + lines * lanes), lanes, valid=rest), acc)
            line = walk.value(line, by)
            sums[lines] = step(line, sums[lines])
            if careful:
                seen = seen + line
    return (seen != seen).any()


@cb.kernel
def reduce_columns(
    x: cb.Array,
    out: cb.Array,
    reduction: cb.Comptime[Reduction],
    number,
    plan: cb.Comptime[ColumnPlan],
    width,
    piece,
    side,
):
    """out[b, 0, c] = the reduction of x[b, :, c], or out[b, p, c] = that of its p-th piece; x is
    (batch, n, columns).

    A cube does `width` columns; with `side` STREAMS rows are read side by side. Where the step has
    lost a NaN, the walk is done again with the exact one.
    """
    n, count = x.shape[1], x.shape[2]
    acc, lanes, walk = plan.acc, plan.lanes, reduction.walks[0]
    pieces = out.shape[1]
    blocks = (count + width - 1) // width
    first = (cb.CUBE_POS % blocks) * width
    p = (cb.CUBE_POS // blocks) % pieces
    b = cb.CUBE_POS // (blocks * pieces)
    count = cb.min(width, count - first)
    sums = cb.local((plan.room,), acc, lanes=lanes)
    begin = p * piece
    stop = cb.min(begin + piece, n)
    number = cb.cast(number, acc)
    by = walk.by((), number)
    lost = walk_columns(x, (b, first, count), begin, stop, sums, walk, walk.step, by, side, plan)
    if walk.exact is not None and lost:
        walk_columns(x, (b, first, count), begin, stop, sums, walk, walk.exact, by, side, plan)
    for j in range((count + lanes - 1) // lanes):
        value = reduction.finish((sums[j],), cb.cast(n, acc), number)
        out.store((b, p, first + j * lanes), cb.cast(value, out.dtype), valid=count - j * lanes)


@cb.func
def known_of_block(
    x,
    at,
    end,
    c,
    left,
    reduction: cb.Comptime[Reduction],
    number,
    acc: cb.Comptime,
    lanes: cb.Comptime[int],
):
    """What the walks of a reduction find in x[b, begin : end, c ...], lane by lane; `at` is b and
    begin.
    """
    b, begin = at
    whole = begin + (end - begin) // BLOCK_STREAMS * BLOCK_STREAMS
    known: Any = ()
    for walk in cb.unroll(reduction.walks):
        by = walk.by(known, number)
        a = cb.local(BLOCK_STREAMS, acc, lanes=lanes)
        for j in cb.unroll(range(BLOCK_STREAMS)):
            a[j] = cb.splat(cb.cast(walk.start, acc), lanes)
        for k in range(begin, whole, BLOCK_STREAMS):
            for j in cb.unroll(range(BLOCK_STREAMS)):
                line = cb.cast(x.load((b, k + j, c), lanes, valid=left), acc)
                a[j] = walk.step(a[j], walk.value(line, by))
        for k in range(whole, end):
            line = cb.cast(x.load((b, k, c), lanes, valid=left), acc)
            a[0] = walk.step(a[0], walk.value(line, by))
        found = walk.step(walk.step(a[0], a[1]), walk.step(a[2], a[3]))
        if walk.end is not None:
            found = walk.end(found, cb.cast(end - begin, acc))
        known = known + (found,)
    return known


@cb.kernel
def reduce_blocks(
    x: cb.Array,
    out: cb.Array,
    reduction: cb.Comptime[Reduction],
    number,
    acc: cb.Comptime,
    lanes: cb.Comptime[int],
    piece,
    pieces,
):
    """out[b, p, i, c] = what the i-th walk finds in the p-th piece of x[b, :, c], for two walks; a
    cube does LINES lines of columns, and joins blocks of ROWS rows.
    """
    n, columns = x.shape[1], x.shape[2]
    width = LINES * lanes
    blocks = (columns + width - 1) // width
    first = cb.CUBE_POS % blocks * width
    p = cb.CUBE_POS // blocks % pieces
    b = cb.CUBE_POS // (blocks * pieces)
    lines = cb.min(LINES, (columns - first + lanes - 1) // lanes)
    one = cb.local(LINES, acc, lanes=lanes)
    two = cb.local(LINES, acc, lanes=lanes)
    stop = cb.min((p + 1) * piece, n)
    by = cb.splat(cb.cast(number, acc), lanes)
    for begin in range(p * piece, stop, ROWS):
        end = cb.min(begin + ROWS, stop)
        count, seen = cb.cast(end - begin, acc), cb.cast(begin - p * piece, acc)
        for j in range(lines):
            c = first + j * lanes
            known = known_of_block(x, (b, begin), end, c, columns - c, reduction, by, acc, lanes)
            if begin > p * piece:
                known = reduction.join((one[j], two[j]), known, seen, count)
            one[j] = known[0]
            two[j] = known[1]
    for j in range(lines):
        c = first + j * lanes
        out.store((b, p, 0, c), one[j], valid=columns - c)
        out.store((b, p, 1, c), two[j], valid=columns - c)


def reduce_all(p: Reduce, properties: cb.DeviceProperties) -> None:
    """Reduce columns in one walk. Some rows of few columns count as one, so that memory is read in
    long runs; what is left of a column is reduced in a second pass.
    """
    data, acc, (b, n, c) = p.data, p.wide, p.data.shape
    lanes, exact = lanes_on(properties, data, acc), p.reduction.walks[0].exact
    solid = data.strides[1] == c * data.itemsize
    folds = [g for g in (1, *FOLDS) if n % g == 0 and n >= 64 * g and solid]
    held = FEW if exact is None else FEW // 2 if properties.register_bytes < 64 else 0
    few = held if any(g * c == held * lanes for g in folds) else 0
    fold = few * lanes // c if few else max((g for g in folds if g * c <= NARROW), default=1)
    if fold > 1:
        data = data.reshape(b, n // fold, fold * c)
    width, blocks, pieces, piece = column_cuts(data, lanes)
    single = pieces == fold == 1
    part = p.out.reshape(b, 1, c) if single else memory.empty((b, pieces, fold * c), acc.numpy)
    side = (
        not solid or fold * c > NARROW
    )  # short rows that follow each other are read in this order
    plan = ColumnPlan(acc, lanes, bucket(width // lanes), few)
    reduction = p.reduction if single else p.reduction.unfinished
    reduce_columns[blocks * pieces, 1](
        data, part, reduction, p.number, plan, width, piece, side, mode="unchecked"
    )
    if not single:
        rest = part.reshape(b, pieces * fold, c)
        reduce_all(p._replace(data=rest, reduction=p.reduction.of_parts), properties)


class Columns(CpuRoutine):
    """Several rows side by side, added to sums that stay in the nearest cache."""

    name = "columns"

    def unfit(self, p: Reduce, properties: cb.DeviceProperties) -> str | None:
        """Columns, and one walk."""
        if p.by_rows:
            return "for columns"
        return None if len(p.reduction.walks) == 1 else "for reductions that walk once"

    def launch(self, p: Reduce, properties: cb.DeviceProperties) -> None:
        """A cube walks down some columns of a piece."""
        reduce_all(p, properties)


class Blocks(CpuRoutine):
    """Blocks of rows and columns that the cache holds while they are walked over twice."""

    name = "blocks"

    def unfit(self, p: Reduce, properties: cb.DeviceProperties) -> str | None:
        """Columns."""
        return "for columns" if p.by_rows else None

    def launch(self, p: Reduce, properties: cb.DeviceProperties) -> None:
        """Pieces of columns, block by block; then they are joined."""
        b, n, c = p.data.shape
        lanes = lanes_on(properties, p.data)
        blocks = b * -(-c // (LINES * lanes))
        pieces = max(1, min(-(-n // (2 * ROWS)), CUBES // blocks))
        piece = -(-n // pieces)
        pieces = -(-n // piece)
        parts = memory.empty((b, pieces, 2, c), p.acc.numpy)
        reduce_blocks[blocks * pieces, 1](
            p.data, parts, p.reduction, p.number, p.acc, lanes, piece, pieces, mode="unchecked"
        )
        join_pieces[b * -(-c // lanes), 1](
            parts, p.out.reshape(b, c), p.reduction, p.number, n, piece, lanes, mode="unchecked"
        )


def column_cuts(data: Any, lanes: int) -> tuple[int, int, int, int]:
    """Columns of a cube, blocks of them in all, pieces of a column, and their length, for (batch,
    n, columns).
    """
    b, n, c = data.shape
    most = WIDE * lanes if b * -(-c // (WIDE * lanes)) * (n // 64) >= CUBES else WIDTH
    width = min(most, -(-c // lanes) * lanes)
    blocks = b * -(-c // width)
    pieces = max(1, min(-(-n // 64), CUBES // blocks))
    piece = -(-n // pieces)
    return width, blocks, -(-n // piece), piece
