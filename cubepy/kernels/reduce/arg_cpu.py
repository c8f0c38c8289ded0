"""Where the largest elements are, on a CPU: first the largest of a block of lines, as fast as
memory gives them, then its position, which is looked for only where it is needed. Short rows carry
positions along: what would end a search cannot be foreseen.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.functions import add
from cubepy.kernels.primitives.vector_width import lanes_on
from cubepy.kernels.reduce.columns_cpu import column_cuts
from cubepy.kernels.reduce.problem import Arg
from cubepy.kernels.reduce.reduction import Walk, extreme, greater, lesser, worst_of
from cubepy.kernels.reduce.rows_cpu import (
    PIECE,
    STREAMS,
    RowPlan,
    by_pairs,
    over_line,
    reduce_pieces,
    walk_row,
)
from cubepy.lang.dtypes import DType, as_dtype, f32, i64
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, bucket

BLOCK = 8  # times STREAMS lines whose largest is found before its position
SIDE = 4  # lines of a short row that are taken side by side
AHEAD = 16  # lines of a row that are asked for before they are used
SHORT = 1024  # elements of a row, at most, whose position is carried along with the largest
TOGETHER = 4096  # elements of short rows that one cube takes


@cb.func
def first_better(v, best, largest):
    """Whether v is to be taken over best: strictly better, or the first NaN."""
    if largest:
        return ~(v <= best) & (best == best) if v.dtype.is_float else v > best
    return ~(v >= best) & (best == best) if v.dtype.is_float else v < best


@cb.func
def smaller_number(a, b):
    """The smaller of two integers."""
    return cb.select(a < b, a, b)


@cb.func
def index_of(x, row, first, stop, value, lanes: cb.Comptime[int]):
    """The first position in [first, stop) of a row where `value` is (NaN: where NaN is), or the
    last position.
    """
    k = first
    whole = first + (stop - first) // lanes * lanes
    found = False
    while k < whole and not found:
        line = cb.cast(x.load((row, k), lanes), value.dtype)
        found = same(line, cb.splat(value, lanes)).any()
        if not found:
            k += lanes
    k = cb.min(k, stop - 1)
    while k < stop - 1 and not same(cb.cast(x[row, k], value.dtype), value):
        k += 1
    return k


@cb.func
def same(a, b):
    """Equal, or both NaN."""
    if a.dtype.is_float:
        return (a == b) | ((a != a) & (b != b))
    return a == b


@cb.kernel
def arg_rows(
    x: cb.Array,
    out: cb.Array,
    largest: cb.Comptime[bool],
    walk: cb.Comptime[Walk],
    plan: cb.Comptime[RowPlan],
):
    """out[r] = index of the largest (or smallest) element of row r, the first one of equals, NaN
    before all.

    In every lane the best block of lines is kept; only in the best of all is looked for the
    element.
    """
    row = cb.CUBE_POS
    n = x.shape[1]
    lanes, acc = plan.lanes, plan.acc
    best = cb.splat(cb.cast(walk.start, acc), lanes)
    seen = cb.splat(cb.cast(0, acc), lanes)
    block = cb.splat(cb.cast(0, cb.i32), lanes)
    size = BLOCK * STREAMS * lanes
    for first in range(0, n, size):
        line, note = walk_row(x, row, first, cb.min(first + size, n), walk, 0, plan)
        take = line > best if largest else line < best
        best = cb.select(take, line, best)
        block = cb.select(take, cb.splat(cb.cast(first, cb.i32), lanes), block)
        seen = seen + note
    top = over_line(best, walk.step, lanes)
    last = cb.splat(cb.cast(n, cb.i32), lanes)
    begin = over_line(cb.select(best == top, block, last), smaller_number, lanes)
    index = index_of(x, row, begin, cb.min(begin + size, n), top, lanes)
    if walk.exact is not None and (seen != seen).any():
        found = index_of(x, row, 0, n, cb.cast(float("nan"), acc), lanes)
        if x[row, found] != x[row, found]:
            index = found
    out[row] = cb.cast(index, out.dtype)


@cb.kernel
def arg_short_rows(
    x: cb.Array,
    out: cb.Array,
    rows,
    largest: cb.Comptime[bool],
    start: cb.Comptime,
    acc: cb.Comptime,
    lanes: cb.Comptime[int],
):
    """The same of short rows, `rows` of them a cube. In every lane the best element is kept, and
    the line it was in.
    """
    n = x.shape[1]
    step = greater if largest else lesser
    none = cb.cast(cb.splat(start, lanes), acc)
    nowhere = cb.splat(cb.cast(n, cb.i32), lanes)
    whole = n // lanes * lanes
    best = cb.local((SIDE,), acc, lanes=lanes)
    at = cb.local((SIDE,), cb.i32, lanes=lanes)
    begin = cb.CUBE_POS * rows
    for row in range(begin, cb.min(begin + rows, x.shape[0])):
        seen = cb.cast(cb.splat(0, lanes), acc)
        for j in cb.unroll(range(SIDE)):
            best[j] = none
            at[j] = nowhere
        full = n // (SIDE * lanes) * (SIDE * lanes)
        for k in range(0, full, SIDE * lanes):
            for j in cb.unroll(range(SIDE)):
                seen = seen + take_index(x, row, k + j * lanes, best, at, j, step, largest)
        for k in range(full, whole, lanes):
            seen = seen + take_index(x, row, k, best, at, 0, step, largest)
        top = over_line(step(step(best[0], best[1]), step(best[2], best[3])), step, lanes)
        position = nowhere
        for j in cb.unroll(range(SIDE)):
            position = smaller_number(cb.select(best[j] == top, at[j], nowhere), position)
        position = cb.select(position < nowhere, position + cb.iota(lanes), nowhere)
        index = over_line(position, smaller_number, lanes)
        for k in range(whole, n):
            value = cb.cast(x[row, k], acc)
            if first_better(value, top, largest):
                top = value
                index = k
        if acc.is_float and (seen != seen).any():
            found = index_of(x, row, 0, n, cb.cast(float("nan"), acc), lanes)
            if x[row, found] != x[row, found]:
                index = found
        if index == n:  # nothing is better than `start`
            index = index_of(x, row, 0, n, top, lanes)
        out[row] = cb.cast(index, out.dtype)


@cb.func
def take_index(x, row, k, best, at, j, step, largest: cb.Comptime[bool]):
    """The line x[row, k:], which counts for the j-th best ones, and its position for theirs."""
    line = cb.cast(x.load((row, k), best[j].lanes), best[j].dtype)
    take = line > best[j] if largest else line < best[j]
    at[j] = cb.select(take, cb.splat(cb.cast(k, cb.i32), line.lanes), at[j])
    best[j] = step(line, best[j])
    return line


@cb.kernel
def arg_pieces(
    x: cb.Array,
    values: cb.Array,
    out: cb.Array,
    largest: cb.Comptime[bool],
    lanes: cb.Comptime[int],
    piece: cb.Comptime[int],
):
    """The same from values[r, p], the best of the p-th piece of row r."""
    row = cb.CUBE_POS
    top = values[row, 0]
    best = 0
    for p in range(1, values.shape[1]):
        if first_better(values[row, p], top, largest):
            top = values[row, p]
            best = p
    first = best * piece
    out[row] = cb.cast(
        index_of(x, row, first, cb.min(first + piece, x.shape[1]), top, lanes), out.dtype
    )


@cb.func
def take_line(line, k, j, best, where, largest):
    """A line of row k counts for the best ones of the j-th lines."""
    take = first_better(line, best[j], largest)
    best[j] = cb.select(take, line, best[j])
    where[j] = cb.select(take, cb.splat(cb.cast(k, cb.i32), line.lanes), where[j])


@cb.func
def better(a, b, largest):
    """The better of two (line of values, line of positions), the first where they are equal."""
    keep = a[0] >= b[0] if largest else a[0] <= b[0]
    return greater(b[0], a[0]) if largest else lesser(b[0], a[0]), cb.select(keep, a[1], b[1])


@cb.func
def down_best(
    x,
    b,
    begin,
    stop,
    first,
    lines,
    best,
    where,
    largest: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """The best ones of whole STREAMS of rows [begin, stop), and their positions; whether a NaN was
    seen.

    Without a branch: whether rows hold a new best one cannot be foreseen, and as long as that is
    not known no rows after them are read from memory.
    """
    acc = best[0].dtype
    step = greater if largest else lesser
    seen = cb.cast(cb.splat(0, lanes), acc)
    zero = cb.splat(cb.cast(0, cb.i32), lanes)
    for k in range(begin, stop, STREAMS):
        for j in range(lines):
            v = ()
            at = ()
            for r in cb.unroll(range(STREAMS)):
                v = v + (cb.cast(x.load((b, k + r, first + j * lanes), lanes), acc),)
                at = at + (cb.splat(cb.cast(r, cb.i32), lanes),)
                x.prefetch((b, k + r, first + (j + AHEAD) * lanes))
            p = better((v[0], at[0]), (v[1], at[1]), largest)
            q = better((v[2], at[2]), (v[3], at[3]), largest)
            high = better(p, q, largest)
            p = better((v[4], at[4]), (v[5], at[5]), largest)
            q = better((v[6], at[6]), (v[7], at[7]), largest)
            low = better(p, q, largest)
            top = better(high, low, largest)
            take = top[0] > best[j] if largest else top[0] < best[j]
            # Positions only grow. A select of what is there already would be stored under a mask,
            # and such a store is not read before it has reached the cache; for the same reason the
            # best ones are taken in two steps.
            position = cb.select(take, top[1] + cb.splat(cb.cast(k, cb.i32), lanes), zero)
            where[j] = cb.max(where[j], position)
            best[j] = step(step(best[j], high[0]), low[0])
            if acc.is_float:
                seen = seen + by_pairs(v, add)
    return (seen != seen).any()


@cb.kernel
def arg_columns(
    x: cb.Array,
    values,
    out: cb.Array,
    largest: cb.Comptime[bool],
    acc: cb.Comptime,
    lanes: cb.Comptime[int],
    room: cb.Comptime[int],
    width,
    piece,
):
    """out[b, p, c] = index of the largest (or smallest) of the p-th piece of x[b, :, c], the first
    one of equals, NaN before all; values[b, p, c] = that element, if there are `values`.

    A cube does `width` columns, at most `room` lines, STREAMS rows at a time; the best ones and
    their positions stay in the nearest cache. Where one may be NaN, the rows are looked at again
    one by one.
    """
    n, columns = x.shape[1], x.shape[2]
    pieces = out.shape[1]
    blocks = (columns + width - 1) // width
    first = (cb.CUBE_POS % blocks) * width
    p = (cb.CUBE_POS // blocks) % pieces
    b = cb.CUBE_POS // (blocks * pieces)
    begin = p * piece
    stop = cb.min(begin + piece, n)
    count = cb.min(width, columns - first)
    lines = count // lanes
    rest = count - lines * lanes
    best = cb.local((room,), acc, lanes=lanes)
    where = cb.local((room,), cb.i32, lanes=lanes)
    for j in range((count + lanes - 1) // lanes):
        best[j] = cb.cast(
            x.load((b, begin, first + j * lanes), lanes, valid=count - j * lanes), acc
        )
        where[j] = cb.splat(cb.cast(begin, cb.i32), lanes)
    whole = begin + (stop - begin) // STREAMS * STREAMS
    if down_best(x, b, begin, whole, first, lines, best, where, largest, lanes):
        for j in range(lines):
            best[j] = cb.cast(x.load((b, begin, first + j * lanes), lanes), acc)
            where[j] = cb.splat(cb.cast(begin, cb.i32), lanes)
        whole = begin
    for k in range(whole, stop):
        for j in range(lines):
            take_line(
                cb.cast(x.load((b, k, first + j * lanes), lanes), acc), k, j, best, where, largest
            )
    if rest > 0:
        for k in range(begin + 1, stop):
            line = cb.cast(x.load((b, k, first + lines * lanes), lanes, valid=rest), acc)
            take_line(line, k, lines, best, where, largest)
    for j in range((count + lanes - 1) // lanes):
        out.store((b, p, first + j * lanes), cb.cast(where[j], out.dtype), valid=count - j * lanes)
        if values is not None:
            values.store(
                (b, p, first + j * lanes), cb.cast(best[j], values.dtype), valid=count - j * lanes
            )


@cb.kernel
def arg_columns_join(
    values: cb.Array,
    where: cb.Array,
    out: cb.Array,
    largest: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """out[b, 0, c] = where[b, p, c] of the best of the pieces p, the first one of equals."""
    columns = values.shape[2]
    blocks = (columns + lanes - 1) // lanes
    b = cb.CUBE_POS // blocks
    c = cb.CUBE_POS % blocks * lanes
    best = values.load((b, 0, c), lanes, valid=columns - c)
    position = where.load((b, 0, c), lanes, valid=columns - c)
    for p in range(1, values.shape[1]):
        line = values.load((b, p, c), lanes, valid=columns - c)
        take = first_better(line, best, largest)
        best = cb.select(take, line, best)
        position = cb.select(take, where.load((b, p, c), lanes, valid=columns - c), position)
    out.store((b, 0, c), position, valid=columns - c)


class ArgRows(CpuRoutine):
    """The largest of blocks of a row, then its position in the best block."""

    name = "rows"

    def unfit(self, p: Arg, properties: cb.DeviceProperties) -> str | None:
        """Rows."""
        return None if p.by_rows else "for rows"

    def launch(self, p: Arg, properties: cb.DeviceProperties) -> None:
        """A cube looks through a row, or a piece of a long one."""
        (m, n), dtype, acc = p.data.shape, *dtypes_of(p.data)
        plan, flat = RowPlan(acc, lanes_on(properties, p.data, acc)), p.out.reshape(m)
        extremes = extreme(dtype, p.largest)
        if n <= PIECE:
            walk = extremes.walks[0]
            arg_rows[m, 1](p.data, flat, p.largest, walk, plan, mode="unchecked")
            return
        pieces = -(-n // PIECE)
        values = memory.empty((m, pieces), acc.numpy)
        reduce_pieces(p.data, values.reshape(m, pieces, 1), extremes, plan, PIECE, 0)
        arg_pieces[m, 1](p.data, values, flat, p.largest, plan.lanes, PIECE, mode="unchecked")


class ArgShortRows(CpuRoutine):
    """Positions are carried along with the largest elements."""

    name = "short_rows"

    def unfit(self, p: Arg, properties: cb.DeviceProperties) -> str | None:
        """Short rows, where lines are short too."""
        if not p.by_rows or properties.register_bytes >= 64:  # measured
            return "for rows, and registers of less than 64 bytes"
        most = SHORT if dtypes_of(p.data)[1].bits <= 32 else SHORT // 4
        return None if p.data.shape[1] <= most else f"for rows of at most {most} elements"

    def launch(self, p: Arg, properties: cb.DeviceProperties) -> None:
        """A cube looks through several rows."""
        (m, n), dtype, acc = p.data.shape, *dtypes_of(p.data)
        rows, lanes = TOGETHER // n, lanes_on(properties, p.data, acc)
        start = worst_of(dtype, p.largest)
        arg_short_rows[-(-m // rows), 1](
            p.data, p.out.reshape(m), rows, p.largest, start, acc, lanes, mode="unchecked"
        )


class ArgColumns(CpuRoutine):
    """Several rows side by side; the best ones and their positions stay in the nearest cache."""

    name = "columns"

    def unfit(self, p: Arg, properties: cb.DeviceProperties) -> str | None:
        """Columns."""
        return "for columns" if p.by_rows else None

    def launch(self, p: Arg, properties: cb.DeviceProperties) -> None:
        """A cube looks through some columns, or pieces of them, whose best are then compared."""
        data, largest, acc, (b, _, c) = p.data, p.largest, dtypes_of(p.data)[1], p.data.shape
        lanes, final = lanes_on(properties, data, acc), p.out.reshape(b, 1, c)
        width, blocks, pieces, piece = column_cuts(data, lanes)
        room = bucket(width // lanes)
        if pieces == 1:
            arg_columns[blocks, 1](
                data, None, final, largest, acc, lanes, room, width, piece, mode="unchecked"
            )
            return
        values = memory.empty((b, pieces, c), acc.numpy)
        where = memory.empty((b, pieces, c), i64.numpy)
        arg_columns[blocks * pieces, 1](
            data, values, where, largest, acc, lanes, room, width, piece, mode="unchecked"
        )
        arg_columns_join[b * -(-c // lanes), 1](
            values, where, final, largest, lanes, mode="unchecked"
        )


def dtypes_of(data: Any) -> tuple[DType, DType]:
    """What elements are, and what they are compared as."""
    dtype = as_dtype(data.dtype).compute
    return dtype, f32 if dtype.is_float and dtype.bits < 32 else dtype
