"""Reductions by whole cubes, for devices with planes: units of a cube read neighbouring lines of
one row, or of some columns. One driver along rows, one down columns; a reduction is data.

Like the kernels for one unit, the work is cut by shapes only, so results are the same on every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.kernels.reduce.problem import Arg, Reduce
from cubepy.kernels.reduce.reduction import Reduction, extreme_at, joined
from cubepy.kernels.reduce.walk_gpu import (
    AHEAD,
    Pass,
    finished,
    forward,
    found_in_row,
    nothing,
    scratch_for,
    together,
)
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine

UNITS = 256  # of a cube
UNITS_OF_CORE = 1280  # that have room for their registers
UNITS_ON_CDNA = 1536
"""The same where narrow floats are compared: else LLVM compares so many lanes at once that their
masks, two scalar registers each, do not fit.
"""
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


@cb.func
def keep_room():
    """Room for five cubes on a core: else compilers unroll loops that come round twice."""
    if "mma" in cb.device_properties().features:
        cb.resident(UNITS_OF_CORE // cb.CUBE_DIM)


@cb.kernel
def reduce_rows_wide(
    x: cb.Array,
    given,
    values,
    out: cb.Array,
    number,
    count,
    work: cb.Comptime[Pass],
    plan: cb.Comptime[RowPlan],
    piece,
):
    """out[r, p] = what a walk makes of the p-th piece of row r; x is (rows, n), unit stride along
    n.

    `given` is what walks before found, given[w, r], or where x is the best of pieces the positions
    of these, given[r, i]. A walk for positions stores positions, and the elements in `values`.
    """
    if work.acc.bits == 32 and plan.lanes <= 4 and not work.walk.positions:
        keep_room()
    elif work.acc.bits == 16 and "mfma" in cb.device_properties().features:
        cb.resident(UNITS_ON_CDNA // cb.CUBE_DIM)
    scratch = scratch_for(work)
    n = x.shape[1]
    pieces = out.shape[1]
    position = cb.CUBE_POS // pieces * plan.rows + cb.UNIT_POS // plan.units
    row = cb.min(position, x.shape[0] - 1)
    p = cb.CUBE_POS % pieces
    stop = cb.min(p * piece + piece, n)
    k = multiple(p * piece + cb.UNIT_POS % plan.units * plan.lanes, plan.lanes)
    known = tuple(given[w, row] for w in cb.unroll(range(work.before)))
    by = work.walk.by(known, cb.cast(number, work.acc))
    found = found_in_row(x, given, row, k, stop, by, work, plan.lanes, plan.units, scratch)
    if cb.UNIT_POS % plan.units == 0 and position < x.shape[0]:
        out[position, p] = cb.cast(finished(known, found, number, count, work), out.dtype)
        if values is not None:
            values[position, p] = found[0]


@dataclass(frozen=True)
class ColumnPlan:
    """How columns are cut: `across` units lie side by side, each with a line of `lanes` columns."""

    lanes: int
    across: int


@cb.func
def element_of_columns(x, given, at, left, by, work: cb.Comptime[Pass], lanes: cb.Comptime[int]):
    """A line of columns x[at], of which `left` are there (None: all are)."""
    v = work.walk.value(cb.cast(x.load(at, lanes, valid=left), work.acc), by)
    if not work.walk.positions:
        return (v,)
    if given is not None:
        return v, cb.cast(given.load(at, lanes, valid=left), work.index)
    return v, cb.splat(cb.cast(at[1], work.index), lanes)


@cb.kernel
def reduce_columns_wide(
    x: cb.Array,
    given,
    values,
    out: cb.Array,
    number,
    count,
    work: cb.Comptime[Pass],
    plan: cb.Comptime[ColumnPlan],
    piece,
):
    """out[b, p, c] = what a walk makes of piece p of x[b, :, c]; x is (batch, n, columns).

    `given`, given[w, b, c] or given[b, i, c], and `values` are as for rows.
    """
    down = cb.CUBE_DIM // plan.across
    width = plan.across * plan.lanes
    scratch = tuple(cb.shared((down, width), dtype) for dtype in cb.unroll(work.dtypes))
    n, columns = x.shape[1], x.shape[2]
    pieces = out.shape[1]
    blocks = (columns + width - 1) // width
    u = cb.UNIT_POS % plan.across
    v = cb.UNIT_POS // plan.across
    c = multiple(cb.CUBE_POS % blocks * width + u * plan.lanes, plan.lanes)
    p = cb.CUBE_POS // blocks % pieces
    b = cb.CUBE_POS // (blocks * pieces)
    stop = cb.min(p * piece + piece, n)
    here = columns - c
    known = tuple(
        given.load((w, b, c), plan.lanes, valid=here) for w in cb.unroll(range(work.before))
    )
    by = work.walk.by(known, cb.cast(number, work.acc))
    k = p * piece + v
    at = cb.min(k, stop - 1)
    state = tuple(nothing(work, at, plan.lanes) for _ in cb.unroll(range(work.streams)))
    if work.ahead and here >= plan.lanes:
        while k + (AHEAD - 1) * down < stop:
            elements = tuple(
                element_of_columns(x, given, (b, k + j * down, c), None, by, work, plan.lanes)
                for j in cb.unroll(range(AHEAD))
            )
            state = forward(state, elements, work)
            k += AHEAD * down
    if here > 0:
        while k < stop:
            rest = element_of_columns(x, given, (b, k, c), here, by, work, plan.lanes)
            state = forward(state, (rest,), work)
            k += down
    mine = together(state, work)
    for i in cb.unroll(range(len(mine))):
        scratch[i].store((v, u * plan.lanes), mine[i])
    cb.sync_cube()
    if v == 0 and here > 0:
        found = mine
        for r in range(1, down):
            others = tuple(slots.load((r, u * plan.lanes), plan.lanes) for slots in scratch)
            found = joined(found, others, work.walk)
        value = finished(known, found, number, count, work)
        out.store((b, p, c), cb.cast(value, out.dtype), valid=here)
        if values is not None:
            values.store((b, p, c), found[0], valid=here)


def row_cuts(data: Any, *others: Any) -> tuple[RowPlan, int, int, int]:
    """How rows (m, n) are cut, with the pieces of a row, their length, and all cubes.

    16 lines or so for each unit, a plane at least, a whole cube where rows are long. Pieces are
    enough to fill a GPU, and none is too short.
    """
    m, n = data.shape
    lanes = line_of(*(a if m > 1 else a[0] for a in (data, *others)))
    lines = -(-n // lanes)
    units = min(UNITS, max(power_of_two(-(-lines // 16)), min(32, power_of_two(lines))))
    plan, piece = RowPlan(lanes, units, UNITS // units), n
    if plan.rows == 1:
        pieces = max(1, min(-(-n // LEAST), -(-CUBES // m)))
        piece = -(-(-(-n // pieces)) // 1024) * 1024
    pieces = -(-n // piece)
    return plan, pieces, piece, -(-m // plan.rows) * pieces


def column_cuts(data: Any, *others: Any) -> tuple[ColumnPlan, int, int, int]:
    """How the columns of (batch, n, columns) are cut, with the pieces of a column, their length,
    and all cubes.
    """
    b, n, c = data.shape
    lanes = line_of(data, *others)
    across = min(32, power_of_two(-(-c // lanes)))
    blocks = -(-c // (across * lanes))
    pieces = max(1, min(-(-n // (8 * UNITS // across)), -(-CUBES // (2 * b * blocks))))
    piece = -(-n // pieces)
    pieces = -(-n // piece)
    return ColumnPlan(lanes, across), pieces, piece, b * pieces * blocks


def walk(data: Any, given: Any, target: Any, work: Pass, number: float, count: int) -> None:
    """A walk over rows (m, n), or over columns (batch, n, c), to the contiguous `target`; `count`
    elements are reduced to one, in the pieces of which data has the numbers.
    """
    kernel: Any = reduce_rows_wide
    cuts: Any = row_cuts
    if data.ndim == 3:
        kernel, cuts = reduce_columns_wide, column_cuts
    positions = work.index is not None
    plan, pieces, piece, cubes = cuts(data, *((given,) if positions and given is not None else ()))
    shape = (data.shape[0], pieces, *data.shape[2:])
    last = pieces == 1
    out = target.reshape(shape) if last else memory.empty(shape, work.dtypes[-1].numpy)
    values = memory.empty(shape, work.acc.numpy) if positions and not last else None
    work, after = (work, None) if last else (work.partial, work.of_parts)
    kernel[cubes, UNITS](
        data, given, values, out, number, count, work, plan, piece, mode="unchecked"
    )
    if after is not None:
        found, given = (values, out) if positions else (out, given)
        walk(found, given, target, after, number, count)


def reduce(data: Any, target: Any, reduction: Reduction, acc: DType, number: float) -> None:
    """A reduction of rows (m, n), or of columns (batch, n, c), to the contiguous `target`."""
    *before, last = reduction.walks
    shape = (data.shape[0], *data.shape[2:])
    known: Any = memory.empty((len(before), *shape), acc.numpy) if before else None
    for i, each in enumerate(before):
        given = known[:i] if i else None
        walk(data, given, known[i], Pass(each, acc, None, i), number, data.shape[1])
    work = Pass(last, acc, reduction.finish, len(before))
    walk(data, known, target, work, number, data.shape[1])


class ReduceWide(GpuRoutine):
    """Units of a cube share a row or some columns, or pieces of them."""

    name = "wide"

    def launch(self, p: Reduce, properties: cb.DeviceProperties) -> None:
        """A launch for each walk, and one for what it found in pieces."""
        reduce(p.data, p.out, p.reduction, p.acc, p.number)


class ArgWide(GpuRoutine):
    """Units of a cube share a row or some columns, or pieces of them."""

    name = "wide"

    def launch(self, p: Arg, properties: cb.DeviceProperties) -> None:
        """The best of pieces, then the best of these."""
        dtype, n = as_dtype(p.data.dtype).compute, p.data.shape[1]
        index = cb.i64 if n >= 2**31 else cb.i32
        walk(p.data, None, p.out, Pass(extreme_at(dtype, p.largest), dtype, index=index), 0.0, n)
