"""Reductions down columns of what a function gives, by whole cubes: units of a cube lie side by
side along the columns and go down rows in steps; then they are joined in shared memory.
"""

from __future__ import annotations

from dataclasses import replace

import cubepy as cb
from cubepy.kernels.elementwise.map_gpu import LinePlan, read_all
from cubepy.kernels.fused.problem import (
    ColumnPlan,
    Columns,
    begun,
    fixed_along_rows,
    further,
    given_by,
    put,
)
from cubepy.kernels.fused.row_plan import halves
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine

UNITS = 256  # of a cube
ACROSS = 32  # of them side by side, at most
ROWS = 8  # of a unit, at least, where columns are cut in pieces
CUBES = 2048  # that pieces are cut for
SMALL = 1 << 14  # elements that are reduced in one launch, whatever their shape


@cb.kernel
def reduce_columns_of_wide(
    totals,
    stored,
    inputs,
    plan: cb.Comptime[ColumnPlan],
    n,
    count,
    piece,
    lines: cb.Comptime[LinePlan],
):
    """totals[j][p, c] = the j-th reduction of the p-th piece of column c of what the function
    gives; means are of `count` rows.
    """
    columns, lanes, many = totals[0].shape[1], lines.lanes, len(plan.steps)
    width, down = lines.across * lines.lanes, cb.CUBE_DIM // lines.across
    blocks = (columns + width - 1) // width
    k = multiple(cb.CUBE_POS % blocks * width + cb.UNIT_POS % lines.across * lanes, lanes)
    p = cb.CUBE_POS // blocks
    unit = cb.UNIT_POS // lines.across
    stop = cb.min(p * piece + piece, n) if k < columns else 0
    lead = inputs[0].shape[: inputs[0].ndim - 1]
    parts = begun(plan, lanes)
    for row in range(p * piece + unit, stop, down):
        at = cb.unravel(row, lead)
        found = given_by(plan, read_all(inputs, at + (k,), columns - k, lines))
        parts = further(parts, found, plan, lanes)
        for m in cb.unroll(range(len(stored))):
            put(stored[m], at + (k,), found[many + m], lanes, columns - k)
    scratch = cb.shared((cb.CUBE_DIM * lanes,), plan.sums)
    here = multiple(cb.UNIT_POS * lanes, lanes)
    for j in cb.unroll(range(many)):
        scratch.store(here, parts[j])
        cb.sync_cube()
        for half in cb.unroll(halves(down)):
            if unit < half:
                other = multiple(here + half * width, lanes)
                one = plan.steps[j](scratch.load(here, lanes), scratch.load(other, lanes))
                scratch.store(here, one)
            cb.sync_cube()
        if unit == 0 and k < columns:
            total = scratch.load(here, lanes)
            if plan.means[j]:
                total = total / cb.cast(count, plan.sums)
            put(totals[j], (p, k), total, lanes, columns - k)
        cb.sync_cube()


class Shared(GpuRoutine):
    """Units of a cube share some columns, or pieces of them, which a second launch joins."""

    name = "shared"

    def launch(self, p: Columns, properties: cb.DeviceProperties) -> None:
        """Cubes enough for the device, where the work is worth it."""
        columns, n = p.totals[0].shape[1], p.rows
        lines = lines_over(p, columns)
        down = UNITS // lines.across
        blocks = -(-columns // (lines.across * lines.lanes))
        pieces = 1
        if n * columns > SMALL:
            pieces = max(1, min(-(-n // (ROWS * down)), -(-CUBES // blocks)))
        piece = -(-n // pieces)
        pieces = -(-n // piece)
        if pieces == 1:
            launched(p, lines, n, piece, pieces)
            return
        parts = [memory.empty((pieces, columns), p.plan.sums.numpy) for _ in p.totals]
        partly = replace(p.plan, means=(False,) * len(parts))
        launched(p._replace(plan=partly, totals=parts), lines, n, piece, pieces)
        rest = p._replace(plan=replace(p.plan, function=None), stored=[], inputs=parts, rows=pieces)
        launched(rest, lines_over(rest, columns), n, pieces, 1)


def lines_over(p: Columns, columns: int) -> LinePlan:
    """The lines of units, and how many lie side by side."""
    fixed = fixed_along_rows(p.inputs)
    read = [a for a, f in zip(p.inputs, fixed, strict=True) if not f]
    lanes = line_of(*p.totals, *p.stored, *read)
    return LinePlan(lanes, 1, fixed, min(ACROSS, power_of_two(-(-columns // lanes))))


def launched(p: Columns, lines: LinePlan, count: int, piece: int, pieces: int) -> None:
    """One launch over all pieces."""
    blocks = -(-p.totals[0].shape[1] // (lines.across * lines.lanes))
    given = tuple(p.totals), tuple(p.stored), tuple(p.inputs), p.plan, p.rows, count, piece, lines
    reduce_columns_of_wide[blocks * pieces, UNITS](*given, mode="unchecked")
