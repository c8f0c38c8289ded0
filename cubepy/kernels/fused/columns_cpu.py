"""Reductions down columns of what a function gives, on a CPU: a cube goes down some columns, some
rows at a time, with sums that stay in the nearest cache.

The rows of a block are added to one another in registers, then to the sums: so a sum of n rows
rounds no more often than n / ROWS + ROWS times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.elementwise.map_cpu import following, lines_at
from cubepy.kernels.fused.problem import (
    ColumnPlan,
    Columns,
    begun,
    fixed_along_rows,
    further,
    given_by,
    lanes_for,
    put,
)
from cubepy.kernels.primitives.vector_width import lanes_on
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, bucket

ROWS = 16  # of a block
WIDTH, NARROW = 1024, 64  # columns of a cube, at most and at least
CUBES = 32  # that much work is cut for
FEW = 8  # that the columns of less are cut for
SMALL, LARGE = 1 << 16, 1 << 20
"""Elements that are reduced in one launch whatever their shape, and where columns are many."""
PIECE = 64  # rows of a piece, at least


@dataclass(frozen=True)
class Lines:
    """Lanes of a line, how many lines a cube has room for, and which inputs are constant along the
    last axis.
    """

    lanes: int
    room: int
    fixed: tuple[bool, ...]


@cb.kernel
def reduce_columns_of(
    totals,
    stored,
    inputs,
    plan: cb.Comptime[ColumnPlan],
    lines: cb.Comptime[Lines],
    n,
    count,
    piece,
    width,
):
    """totals[j][p, c] = the j-th reduction of the p-th piece of column c of what the function
    gives. A cube does `width` columns of a piece; means are of `count` rows.
    """
    columns, lanes = totals[0].shape[1], lines.lanes
    blocks = (columns + width - 1) // width
    first = cb.CUBE_POS % blocks * width
    p = cb.CUBE_POS // blocks
    last = cb.min(first + width, columns)
    stop = cb.min(p * piece + piece, n)
    lead = inputs[0].shape[: inputs[0].ndim - 1]
    many = len(plan.steps)
    sums: Any = ()
    for _ in cb.unroll(range(many)):
        sums = sums + (cb.local((lines.room,), plan.sums, lanes=lanes),)
    for j in cb.unroll(range(many)):
        for k in range((last - first + lanes - 1) // lanes):
            sums[j][k] = cb.cast(cb.splat(plan.starts[j], lanes), plan.sums)
    for row in range(p * piece, stop, ROWS):
        at = cb.unravel(row, lead)
        rows = cb.min(ROWS, stop - row)
        for k, valid in cb.lines(first, last, lanes):
            found = reduced_rows(inputs, stored, at, k, valid, rows, plan, lines)
            for j in cb.unroll(range(many)):
                sums[j][(k - first) // lanes] = plan.steps[j](
                    sums[j][(k - first) // lanes], found[j]
                )
    for j in cb.unroll(range(many)):
        for k, valid in cb.lines(first, last, lanes):
            total = sums[j][(k - first) // lanes]
            if plan.means[j]:
                total = total / cb.cast(count, plan.sums)
            put(totals[j], (p, k), total, lanes, valid)


@cb.func
def reduced_rows(
    inputs, stored, at, k, valid, rows, plan: cb.Comptime[ColumnPlan], lines: cb.Comptime[Lines]
):
    """A line of what `rows` rows from the coordinates `at` on are reduced to; what else the
    function gives is stored.
    """
    many, lanes = len(plan.steps), lines.lanes
    parts = begun(plan, lanes)
    for _ in range(rows):
        found = given_by(plan, lines_at(inputs, at, lines.fixed, k, valid, lanes))
        parts = further(parts, found, plan, lanes)
        for m in cb.unroll(range(len(stored))):
            put(stored[m], at + (k,), found[many + m], lanes, valid)
        at = following(at, inputs[0].shape)
    return parts


def cuts(rows: int, columns: int) -> tuple[int, int]:
    """Columns of a cube, and pieces of a column: by the shape alone. Of much work neighbours in
    memory stay together, and columns are cut in pieces.
    """
    total = rows * columns
    few = 1 if total > LARGE else FEW
    width = min(max(-(-columns // (few * NARROW)) * NARROW, NARROW), WIDTH)
    blocks = -(-columns // width)
    if total <= SMALL or (total <= LARGE and blocks >= FEW - 2):
        return width, 1
    return width, max(1, min(-(-rows // PIECE), CUBES // blocks))


def lanes_of(p: Columns, columns: int, properties: cb.DeviceProperties) -> int:
    """Lanes of a line: few of them are beyond the last column."""
    lanes = lanes_on(properties, *p.totals, *p.stored, *p.inputs)
    return 2 * lanes if columns >= 4 * lanes else lanes_for(lanes, columns)


class Blocks(CpuRoutine):
    """Blocks of columns; where these are few, pieces of them, which a second launch joins."""

    name = "blocks"

    def launch(self, p: Columns, properties: cb.DeviceProperties) -> None:
        """Cubes enough for all threads, where the work is worth it."""
        columns = p.totals[0].shape[1]
        width, pieces = cuts(p.rows, columns)
        piece = -(-p.rows // pieces)
        piece = -(-piece // ROWS) * ROWS
        pieces = -(-p.rows // piece)
        lanes = lanes_of(p, columns, properties)
        totals = p.totals
        if pieces > 1:
            sums = p.plan.sums.numpy
            totals = [memory.empty((pieces, columns), sums) for _ in totals]
        plan = p.plan if pieces == 1 else replace(p.plan, means=(False,) * len(totals))
        cubes = -(-columns // width) * pieces
        given = tuple(totals), tuple(p.stored), tuple(p.inputs), plan
        lines = Lines(lanes, bucket(width // lanes), fixed_along_rows(p.inputs))
        reduce_columns_of[cubes, 1](*given, lines, p.rows, p.rows, piece, width, mode="unchecked")
        if pieces > 1:
            self.join(p, totals, width, lines)

    def join(self, p: Columns, parts: list[Any], width: int, lines: Lines) -> None:
        """Reduce what pieces of columns were reduced to."""
        n, columns = parts[0].shape
        given = tuple(p.totals), (), tuple(parts), replace(p.plan, function=None)
        lines, cubes = replace(lines, fixed=(False,) * len(parts)), -(-columns // width)
        reduce_columns_of[cubes, 1](*given, lines, n, p.rows, n, width, mode="unchecked")
