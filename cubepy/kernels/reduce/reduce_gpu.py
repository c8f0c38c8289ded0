"""Reductions by whole cubes, for devices with planes: units of a cube read neighbouring lines of
one row.

Like the kernels for one unit, the work is cut by shapes only, so results are the same on every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.lines import multiple, over_lanes
from cubepy.kernels.primitives.units import over_units
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.kernels.reduce.problem import Reduce
from cubepy.kernels.reduce.reduction import Reduction, itself, scaled_total, total
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine

UNITS = 256  # of a cube
AHEAD = 4  # lines that a unit asks for before it uses the first
LEAST = 8192  # elements of a row that one cube reduces, at least, where it is cut in pieces
CUBES = 4096  # as many as pieces are cut for: several times what a GPU runs at once


@dataclass(frozen=True)
class RowPlan:
    """How rows are cut: `units` units share a row, a cube does `rows` of them; `lanes` elements are
    a line.
    """

    lanes: int
    units: int
    rows: int


@cb.kernel
def reduce_rows_wide(
    x: cb.Array,
    out: cb.Array,
    step: cb.Comptime,
    start: cb.Comptime,
    acc: cb.Comptime,
    plan: cb.Comptime[RowPlan],
    piece,
    scale,
):
    """out[r, p] = scale * reduction of the p-th piece of row r; x is (rows, n), unit stride along
    n.
    """
    scratch = cb.shared(max(1, cb.CUBE_DIM // cb.PLANE_DIM), acc)
    n = x.shape[1]
    pieces = out.shape[1]
    position = cb.CUBE_POS // pieces * plan.rows + cb.UNIT_POS // plan.units
    row = cb.min(position, x.shape[0] - 1)
    p = cb.CUBE_POS % pieces
    stop = cb.min(p * piece + piece, n)
    hop = plan.units * plan.lanes
    k = multiple(p * piece + cb.UNIT_POS % plan.units * plan.lanes, plan.lanes)
    none = cb.cast(start, acc)
    a0, a1, a2, a3 = tuple(cb.splat(none, plan.lanes) for _ in cb.unroll(range(AHEAD)))
    while k + 3 * hop + plan.lanes <= stop:
        v0 = x.load((row, k), plan.lanes)
        v1 = x.load((row, k + hop), plan.lanes)
        v2 = x.load((row, k + 2 * hop), plan.lanes)
        v3 = x.load((row, k + 3 * hop), plan.lanes)
        a0 = step(a0, cb.cast(v0, acc))
        a1 = step(a1, cb.cast(v1, acc))
        a2 = step(a2, cb.cast(v2, acc))
        a3 = step(a3, cb.cast(v3, acc))
        k += 4 * hop
    while k < stop:
        rest = cb.cast(x.load((row, k), plan.lanes, valid=stop - k), acc)
        a0 = step(a0, cb.keep_first(rest, stop - k, none))
        k += hop
    line = step(step(a0, a1), step(a2, a3))
    total = over_units(over_lanes(line, step, plan.lanes), step, plan.units, scratch)
    if cb.UNIT_POS % plan.units == 0 and position < x.shape[0]:
        out[position, p] = cb.cast(
            total * cb.cast(scale, acc) if out.dtype.is_float else total, out.dtype
        )


@dataclass(frozen=True)
class ColumnPlan:
    """How columns are cut: `across` units lie side by side, each with a line of `lanes` columns."""

    lanes: int
    across: int


@cb.kernel
def reduce_columns_wide(
    x: cb.Array,
    out: cb.Array,
    step: cb.Comptime,
    start: cb.Comptime,
    acc: cb.Comptime,
    plan: cb.Comptime[ColumnPlan],
    piece,
    scale,
):
    """out[b, p, c] = scale * reduction of piece p of x[b, :, c]; x is (batch, n, columns)."""
    down = cb.CUBE_DIM // plan.across
    scratch = cb.shared((down, plan.across * plan.lanes), acc)
    n, columns = x.shape[1], x.shape[2]
    pieces = out.shape[1]
    width = plan.across * plan.lanes
    blocks = (columns + width - 1) // width
    u = cb.UNIT_POS % plan.across
    v = cb.UNIT_POS // plan.across
    c = multiple(cb.CUBE_POS % blocks * width + u * plan.lanes, plan.lanes)
    p = cb.CUBE_POS // blocks % pieces
    b = cb.CUBE_POS // (blocks * pieces)
    stop = cb.min(p * piece + piece, n)
    here = columns - c
    none = cb.splat(cb.cast(start, acc), plan.lanes)
    a0 = none
    a1 = none
    a2 = none
    a3 = none
    k = p * piece + v
    if here >= plan.lanes:
        while k + 3 * down < stop:
            v0 = x.load((b, k, c), plan.lanes)
            v1 = x.load((b, k + down, c), plan.lanes)
            v2 = x.load((b, k + 2 * down, c), plan.lanes)
            v3 = x.load((b, k + 3 * down, c), plan.lanes)
            a0 = step(a0, cb.cast(v0, acc))
            a1 = step(a1, cb.cast(v1, acc))
            a2 = step(a2, cb.cast(v2, acc))
            a3 = step(a3, cb.cast(v3, acc))
            k += 4 * down
    if here > 0:
        while k < stop:
            a0 = step(a0, cb.cast(x.load((b, k, c), plan.lanes, valid=here), acc))
            k += down
    scratch.store((v, u * plan.lanes), step(step(a0, a1), step(a2, a3)))
    cb.sync_cube()
    if v == 0 and here > 0:
        total = scratch.load((0, u * plan.lanes), plan.lanes)
        for r in range(1, down):
            total = step(total, scratch.load((r, u * plan.lanes), plan.lanes))
        if out.dtype.is_float:
            total = total * cb.cast(scale, acc)
        out.store((b, p, c), cb.cast(total, out.dtype), valid=here)


def row_plan(data: Any, n: int) -> RowPlan:
    """Units for rows of n elements: 16 lines or so for each, a plane at least, a whole cube where
    rows are long.
    """
    lanes = line_of(data) if data.shape[0] > 1 else line_of(data[0])
    lines = -(-n // lanes)
    units = min(UNITS, max(power_of_two(-(-lines // 16)), min(32, power_of_two(lines))))
    return RowPlan(lanes, units, UNITS // units)


def pieces_of(rows: int, n: int) -> tuple[int, int]:
    """In how many pieces a row is cut, and their length: enough to fill a GPU, none too short."""
    pieces = max(1, min(-(-n // LEAST), -(-CUBES // rows)))
    piece = -(-(-(-n // pieces)) // 1024) * 1024
    return -(-n // piece), piece


def rows(data: Any, target: Any, step: Any, start: Any, acc: Any, scale: float) -> None:
    """Reduce (rows, n) into (rows,) elements of the contiguous `target`."""
    m, n = data.shape
    plan = row_plan(data, n)
    pieces, piece = pieces_of(m, n) if plan.rows == 1 else (1, n)
    last = pieces == 1
    part = target.reshape(m, 1) if last else memory.empty((m, pieces), acc.numpy)
    cubes = -(-m // plan.rows) * pieces
    reduce_rows_wide[cubes, UNITS](
        data, part, step, start, acc, plan, piece, scale if last else 1.0, mode="unchecked"
    )
    if not last:
        rows(part, target, step, start, acc, scale)


def column_plan(data: Any) -> tuple[ColumnPlan, int, int, int]:
    """How the columns of (batch, n, columns) are cut, with the pieces of a column, their length,
    and all cubes.
    """
    b, n, c = data.shape
    lanes = line_of(data)
    across = min(32, power_of_two(-(-c // lanes)))
    blocks = -(-c // (across * lanes))
    pieces = max(1, min(-(-n // (8 * UNITS // across)), -(-CUBES // (2 * b * blocks))))
    piece = -(-n // pieces)
    pieces = -(-n // piece)
    return ColumnPlan(lanes, across), pieces, piece, b * pieces * blocks


def columns(data: Any, target: Any, step: Any, start: Any, acc: Any, scale: float) -> None:
    """Reduce (batch, n, columns) into (batch, columns) elements of the contiguous `target`."""
    b, _, c = data.shape
    plan, pieces, piece, cubes = column_plan(data)
    last = pieces == 1
    part = target.reshape(b, 1, c) if last else memory.empty((b, pieces, c), acc.numpy)
    reduce_columns_wide[cubes, UNITS](
        data, part, step, start, acc, plan, piece, scale if last else 1.0, mode="unchecked"
    )
    if not last:
        columns(part, target, step, start, acc, scale)


class RowsWide(GpuRoutine):
    """Units of a cube share a row, or a piece of a long one."""

    name = "wide_rows"

    def unfit(self, p: Reduce, properties: cb.DeviceProperties) -> str | None:
        """Rows, and totals."""
        return unfit_total(p.reduction) or (None if p.by_rows else "for rows")

    def launch(self, p: Reduce, properties: cb.DeviceProperties) -> None:
        """Pieces of long rows, then what they gave."""
        start = p.reduction.walks[0].start
        rows(p.data, p.out, p.reduction.step, start, p.acc, scale_of(p))


class ColumnsWide(GpuRoutine):
    """Units of a cube share some columns, or pieces of them."""

    name = "wide_columns"

    def unfit(self, p: Reduce, properties: cb.DeviceProperties) -> str | None:
        """Columns, and totals."""
        return unfit_total(p.reduction) or ("for columns" if p.by_rows else None)

    def launch(self, p: Reduce, properties: cb.DeviceProperties) -> None:
        """Pieces of long columns, then what they gave."""
        start = p.reduction.walks[0].start
        columns(p.data, p.out, p.reduction.step, start, p.acc, scale_of(p))


def unfit_total(reduction: Reduction) -> str | None:
    """Why a reduction is more than the total of elements, if it is."""
    plain = reduction.walks[0].value is itself and reduction.finish in (total, scaled_total)
    return None if plain and len(reduction.walks) == 1 else "for totals of elements"


def scale_of(p: Reduce) -> float:
    """What the total is multiplied by."""
    return p.number if p.reduction.finish is scaled_total else 1.0
