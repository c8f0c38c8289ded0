"""Where the largest elements are, by whole cubes, for devices with planes."""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.kernels.reduce.problem import Arg
from cubepy.kernels.reduce.reduce_gpu import (
    UNITS,
    ColumnPlan,
    RowPlan,
    column_plan,
    pieces_of,
    row_plan,
)
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine


@cb.func
def better(v, i, best, where, largest):
    """Whether element i is to be taken over the best one: strictly better or the first NaN; of
    equals the first.
    """
    if v.dtype.is_float:
        wins = v > best if largest else v < best
        nan, had = v != v, best != best
        return (wins | (nan & (best == best))) | (((v == best) | (nan & had)) & (i < where))
    wins = v > best if largest else v < best
    return wins | ((v == best) & (i < where))


@cb.kernel
def arg_rows_wide(
    x: cb.Array,
    given,
    values,
    out: cb.Array,
    largest: cb.Comptime[bool],
    plan: cb.Comptime[RowPlan],
    index: cb.Comptime,
    piece,
):
    """out[r, p] = index of the best element of the p-th piece of row r, and values[r, p] that
    element.

    With `given`, x holds the best of pieces and given[r, i] their indices. Indices are of dtype
    `index`.
    """
    planes = max(1, cb.CUBE_DIM // cb.PLANE_DIM)
    tops = cb.shared(planes, x.dtype)
    wheres = cb.shared(planes, index)
    n = x.shape[1]
    pieces = out.shape[1]
    position = cb.CUBE_POS // pieces * plan.rows + cb.UNIT_POS // plan.units
    row = cb.min(position, x.shape[0] - 1)
    p = cb.CUBE_POS % pieces
    stop = cb.min(p * piece + piece, n)
    hop = plan.units * plan.lanes
    k = multiple(p * piece + cb.UNIT_POS % plan.units * plan.lanes, plan.lanes)
    begin = cb.min(k, stop - 1)
    best = cb.splat(x[row, begin], plan.lanes)
    first = cb.cast(begin, index) if given is None else cb.cast(given[row, begin], index)
    where = cb.splat(first, plan.lanes)
    numbers = cb.iota(plan.lanes, index)
    if given is None:
        while k + 3 * hop + plan.lanes <= stop:
            v0 = x.load((row, k), plan.lanes)
            v1 = x.load((row, k + hop), plan.lanes)
            v2 = x.load((row, k + 2 * hop), plan.lanes)
            v3 = x.load((row, k + 3 * hop), plan.lanes)
            for v, j in cb.unroll(((v0, 0), (v1, 1), (v2, 2), (v3, 3))):
                take = strictly(v, best, largest)
                best = cb.select(take, v, best)
                where = cb.select(take, numbers + cb.cast(k + j * hop, index), where)
            k += 4 * hop
        while k < stop:
            rest = x.load((row, k), plan.lanes, valid=stop - k)
            take = strictly(rest, best, largest) & (numbers < cb.cast(stop - k, index))
            best = cb.select(take, rest, best)
            where = cb.select(take, numbers + cb.cast(k, index), where)
            k += hop
    top = best[0]
    at = where[0]
    for j in cb.unroll(range(1, plan.lanes)):
        if better(best[j], where[j], top, at, largest):
            top = best[j]
            at = where[j]
    if given is not None:
        while k < stop:
            i = cb.cast(given[row, k], index)
            if better(x[row, k], i, top, at, largest):
                top = x[row, k]
                at = i
            k += hop
    for j in cb.unroll(range(6)):
        if (32 >> j) < plan.units and (32 >> j) < cb.PLANE_DIM:
            other = cb.plane_shuffle_xor(top, 32 >> j)
            there = cb.plane_shuffle_xor(at, 32 >> j)
            if better(other, there, top, at, largest):
                top = other
                at = there
    if plan.units > cb.PLANE_DIM:
        if cb.UNIT_POS % cb.PLANE_DIM == 0:
            tops[cb.UNIT_POS // cb.PLANE_DIM] = top
            wheres[cb.UNIT_POS // cb.PLANE_DIM] = at
        cb.sync_cube()
        if cb.UNIT_POS % plan.units == 0:
            for plane in range(1, plan.units // cb.PLANE_DIM):
                near = cb.UNIT_POS // cb.PLANE_DIM + plane
                if better(tops[near], wheres[near], top, at, largest):
                    top = tops[near]
                    at = wheres[near]
    if cb.UNIT_POS % plan.units == 0 and position < x.shape[0]:
        out[position, p] = cb.cast(at, out.dtype)
        if values is not None:
            values[position, p] = top


@cb.kernel
def arg_columns_wide(
    x: cb.Array,
    given,
    values,
    out: cb.Array,
    largest: cb.Comptime[bool],
    plan: cb.Comptime[ColumnPlan],
    index: cb.Comptime,
    piece,
):
    """out[b, p, c] = index of the best element of the p-th piece of x[b, :, c]; `given` and
    `values` as for rows.
    """
    down = cb.CUBE_DIM // plan.across
    width = plan.across * plan.lanes
    tops = cb.shared((down, width), x.dtype)
    wheres = cb.shared((down, width), index)
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
    k = p * piece + v
    begin = cb.min(k, stop - 1)
    best = x.load((b, begin, c), plan.lanes, valid=here)
    where = cb.splat(cb.cast(begin, index), plan.lanes)
    if given is not None:
        where = cb.cast(given.load((b, begin, c), plan.lanes, valid=here), index)
    if here >= plan.lanes and given is None:
        while k + 3 * down < stop:
            v0 = x.load((b, k, c), plan.lanes)
            v1 = x.load((b, k + down, c), plan.lanes)
            v2 = x.load((b, k + 2 * down, c), plan.lanes)
            v3 = x.load((b, k + 3 * down, c), plan.lanes)
            for line, j in cb.unroll(((v0, 0), (v1, 1), (v2, 2), (v3, 3))):
                take = strictly(line, best, largest)
                best = cb.select(take, line, best)
                where = cb.select(take, cb.splat(cb.cast(k + j * down, index), plan.lanes), where)
            k += 4 * down
    while k < stop:
        rest = x.load((b, k, c), plan.lanes, valid=here)
        position = cb.splat(cb.cast(k, index), plan.lanes)
        if given is not None:
            position = cb.cast(given.load((b, k, c), plan.lanes, valid=here), index)
        swap = better(rest, position, best, where, largest)
        best = cb.select(swap, rest, best)
        where = cb.select(swap, position, where)
        k += down
    tops.store((v, u * plan.lanes), best)
    wheres.store((v, u * plan.lanes), where)
    cb.sync_cube()
    if v == 0 and here > 0:
        for r in range(1, down):
            top = tops.load((r, u * plan.lanes), plan.lanes)
            at = wheres.load((r, u * plan.lanes), plan.lanes)
            change = better(top, at, best, where, largest)
            best = cb.select(change, top, best)
            where = cb.select(change, at, where)
        out.store((b, p, c), cb.cast(where, out.dtype), valid=here)
        if values is not None:
            values.store((b, p, c), best, valid=here)


@cb.func
def strictly(v, best, largest):
    """Whether v is better than best, or the first NaN."""
    if v.dtype.is_float:
        return ((v > best) if largest else (v < best)) | ((v != v) & (best == best))
    return (v > best) if largest else (v < best)


class ArgRowsWide(GpuRoutine):
    """Units of a cube share a row, or a piece of a long one."""

    name = "wide_rows"

    def unfit(self, p: Arg, properties: cb.DeviceProperties) -> str | None:
        """Rows."""
        return None if p.by_rows else "for rows"

    def launch(self, p: Arg, properties: cb.DeviceProperties) -> None:
        """Pieces of long rows, then the best of their best."""
        (m, n), data, largest, final = p.data.shape, p.data, p.largest, p.out.reshape(-1, 1)
        index = cb.i64 if n >= 2**31 else cb.i32
        plan = row_plan(data, n)
        pieces, piece = pieces_of(m, n) if plan.rows == 1 else (1, n)
        if pieces == 1:
            arg_rows_wide[-(-m // plan.rows), UNITS](
                data, None, None, final, largest, plan, index, n, mode="unchecked"
            )
            return
        values = memory.empty((m, pieces), data.dtype)
        where = memory.empty((m, pieces), index.numpy)
        arg_rows_wide[m * pieces, UNITS](
            data, None, values, where, largest, plan, index, piece, mode="unchecked"
        )
        plan = RowPlan(1, UNITS, 1)
        arg_rows_wide[m, UNITS](
            values, where, None, final, largest, plan, index, pieces, mode="unchecked"
        )


class ArgColumnsWide(GpuRoutine):
    """Units of a cube share some columns, or pieces of them."""

    name = "wide_columns"

    def unfit(self, p: Arg, properties: cb.DeviceProperties) -> str | None:
        """Columns."""
        return "for columns" if p.by_rows else None

    def launch(self, p: Arg, properties: cb.DeviceProperties) -> None:
        """Pieces of long columns, then the best of their best."""
        (b, n, c), data, largest = p.data.shape, p.data, p.largest
        index = cb.i64 if n >= 2**31 else cb.i32
        final = p.out.reshape(b, 1, c)
        plan, pieces, piece, cubes = column_plan(data)
        if pieces == 1:
            arg_columns_wide[cubes, UNITS](
                data, None, None, final, largest, plan, index, piece, mode="unchecked"
            )
            return
        values = memory.empty((b, pieces, c), data.dtype)
        where = memory.empty((b, pieces, c), index.numpy)
        arg_columns_wide[cubes, UNITS](
            data, None, values, where, largest, plan, index, piece, mode="unchecked"
        )
        plan = ColumnPlan(line_of(values, where), plan.across)
        cubes = b * -(-c // (plan.across * plan.lanes))
        arg_columns_wide[cubes, UNITS](
            values, where, None, final, largest, plan, index, pieces, mode="unchecked"
        )
