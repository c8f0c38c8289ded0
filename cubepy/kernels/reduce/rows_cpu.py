"""Reductions along rows on a CPU: a cube is one thread's work, and lines of a register's width are
taken several at a time.

NaN among extremes: a maximum by one comparison loses NaN, so the sum of the largest so far is
computed on the side, which is NaN when one of the lines has a NaN (or infinities of both signs).
Then the row is looked at again. Comparisons would say more, but keep few loads in flight:
processors have few registers for masks (Zen 5: 20 % slower from memory). It is the largest so far
that is added up: the line itself is then an operand in memory of a single instruction (Zen 3: 12 %
faster from memory).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.vector_width import lanes_on
from cubepy.kernels.reduce.problem import Reduce
from cubepy.kernels.reduce.reduction import Reduction, Walk
from cubepy.lang.dtypes import DType
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine

STREAMS = 8  # lines of a row that do not wait for each other
NOTES = 4  # sums that are computed on the side
PIECE = 32768  # elements of a row that one cube walks over once
NEAR = 16384  # and those that it walks over again


@dataclass(frozen=True)
class RowPlan:
    """How rows are walked over: `lanes` elements a line, computed in `acc`; `runs` stretches of a
    row at once.
    """

    acc: DType
    lanes: int
    runs: int = 1


@cb.func
def over_line(line, step, lanes: cb.Comptime[int]):
    """`step` over the lanes of a line, by halves: a quarter of the time of one lane after the
    other.
    """
    for j in cb.unroll(range(6)):
        if (lanes >> j + 1) > 0:
            turned = tuple(range(lanes >> j + 1, lanes)) + tuple(range(lanes >> j + 1))
            line = step(line, cb.shuffle(line, line, turned))
    return line[0]


@cb.func
def by_pairs(v, step):
    """Eight values as one."""
    return step(step(step(v[0], v[1]), step(v[2], v[3])), step(step(v[4], v[5]), step(v[6], v[7])))


@cb.func
def walk_row(x, row, first, stop, walk: cb.Comptime[Walk], by, plan: cb.Comptime[RowPlan]):
    """A walk over x[row, first : stop], lane by lane; and what is NaN where the walk lost one."""
    lanes, acc, careful = plan.lanes, plan.acc, walk.exact is not None
    none = cb.splat(cb.cast(walk.start, acc), lanes)
    a = cb.local((STREAMS,), acc, lanes=lanes)
    seen = cb.local((NOTES,), acc, lanes=lanes)
    for j in cb.unroll(range(STREAMS)):
        a[j] = none
    for j in cb.unroll(range(NOTES)):
        seen[j] = cb.splat(cb.cast(0, acc), lanes)
    per = STREAMS // plan.runs
    part = (stop - first) // (STREAMS * lanes) * (per * lanes)
    for k in range(first, first + part, per * lanes):
        for j in cb.unroll(range(STREAMS)):
            v = cb.cast(x.load((row, k + j // per * part + j % per * lanes), lanes), acc)
            a[j] = walk.step(a[j], walk.value(v, by))
            if careful:  # a NaN has just become the largest; the line itself is in no register
                seen[j % NOTES] = seen[j % NOTES] + a[j]
    for k, valid in cb.lines(first + plan.runs * part, stop, lanes):
        v = walk.value(cb.cast(x.load((row, k), lanes, valid=valid), acc), by)
        a[0] = walk.step(a[0], cb.keep_first(v, valid, none))
        if careful:
            seen[0] = seen[0] + a[0]
    line = by_pairs((a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]), walk.step)
    return line, (seen[0] + seen[1]) + (seen[2] + seen[3])


@cb.func
def known_of(
    x, row, first, stop, reduction: cb.Comptime[Reduction], number, plan: cb.Comptime[RowPlan]
):
    """What the walks of a reduction find in x[row, first : stop]."""
    known: Any = ()
    for walk in cb.unroll(reduction.walks):
        line, note = walk_row(x, row, first, stop, walk, walk.by(known, number), plan)
        found = over_line(line, walk.step, plan.lanes)
        if walk.exact is not None and (note != note).any():
            if any_nan(x, row, first, stop, plan.lanes):
                found = cb.cast(float("nan"), plan.acc)
        if walk.end is not None:
            found = walk.end(found, cb.cast(stop - first, plan.acc))
        known = known + (found,)
    return known


@cb.func
def any_nan(x, row, first, stop, lanes: cb.Comptime[int]):
    """Whether there is a NaN among x[row, first : stop]."""
    found = False
    k = first
    while k < stop and not found:
        line = x.load((row, k), lanes, valid=stop - k)
        found = (line != line).any()
        k += lanes
    return found


@cb.kernel
def reduce_rows(
    x: cb.Array,
    out: cb.Array,
    reduction: cb.Comptime[Reduction],
    number,
    plan: cb.Comptime[RowPlan],
    piece: cb.Comptime[int],
    single: cb.Comptime[bool],
):
    """out[r, 0] = the reduction of row r if it is a `single` piece, else out[r, p, i] = what the
    i-th walk finds in its p-th piece; x is (rows, n), unit stride along n.
    """
    n = x.shape[1]
    number = cb.cast(number, plan.acc)
    row = cb.CUBE_POS if single else cb.CUBE_POS // out.shape[1]
    p = 0 if single else cb.CUBE_POS % out.shape[1]
    first = p * piece
    known = known_of(x, row, first, cb.min(first + piece, n), reduction, number, plan)
    if single:
        result = reduction.finish(known, cb.cast(n, plan.acc), number)
        out[row, 0] = cb.cast(result, out.dtype)
    else:
        for i in cb.unroll(range(len(known))):
            out[row, p, i] = known[i]


@cb.kernel
def join_pieces(
    parts: cb.Array,
    out: cb.Array,
    reduction: cb.Comptime[Reduction],
    number,
    n,
    piece,
    lanes: cb.Comptime[int],
):
    """out[b, c] = the reduction of n elements of whose pieces parts[b, :, i, c] tells; a cube does
    `lanes` columns.
    """
    columns = out.shape[1]
    blocks = (columns + lanes - 1) // lanes
    b = cb.CUBE_POS // blocks
    c = cb.CUBE_POS % blocks * lanes
    left = columns - c
    acc = parts.dtype
    walks = len(reduction.walks)
    known = tuple(parts.load((b, 0, i, c), lanes, valid=left) for i in cb.unroll(range(walks)))
    for p in range(1, parts.shape[1]):
        count, seen = cb.cast(cb.min(piece, n - p * piece), acc), cb.cast(p * piece, acc)
        other = tuple(parts.load((b, p, i, c), lanes, valid=left) for i in cb.unroll(range(walks)))
        known = reduction.join(known, other, seen, count)
    value = reduction.finish(known, cb.cast(n, acc), cb.cast(number, acc))
    out.store((b, c), cb.cast(value, out.dtype), valid=left)


def reduce_pieces(
    data: Any, parts: Any, reduction: Reduction, plan: RowPlan, piece: int, number: float
) -> None:
    """What the walks find in the pieces of (rows, n), to parts (rows, pieces, walks)."""
    cubes = parts.shape[0] * parts.shape[1]
    reduce_rows[cubes, 1](data, parts, reduction, number, plan, piece, False, mode="unchecked")


def reduce_all(p: Reduce, properties: cb.DeviceProperties) -> None:
    """Reduce rows; long ones in pieces, which are reduced or joined in a second pass."""
    (m, n), acc, reduction, walks = p.data.shape, p.wide, p.reduction, len(p.reduction.walks)
    simple = reduction.walks[0].exact is None
    runs = 2 if walks == 1 and (simple or properties.register_bytes < 64) else 1  # measured
    plan = RowPlan(acc, lanes_on(properties, p.data, acc), runs)
    piece = PIECE if walks == 1 else NEAR
    pieces, to = -(-n // piece), p.out.reshape(m, 1)
    if pieces == 1:
        reduce_rows[m, 1](p.data, to, reduction, p.number, plan, piece, True, mode="unchecked")
        return
    parts = memory.empty((m, pieces, walks), acc.numpy)
    reduce_pieces(p.data, parts, reduction, plan, piece, p.number)
    if reduction.join is None:
        again = p._replace(data=parts.reshape(m, pieces), reduction=reduction.of_parts)
        reduce_all(again, properties)
        return
    parts = parts.reshape(m, pieces, walks, 1)
    join_pieces[m, 1](parts, to, reduction, p.number, n, piece, 1, mode="unchecked")


class Rows(CpuRoutine):
    """Lines of a row side by side; pieces of long rows on all threads."""

    name = "rows"

    def unfit(self, p: Reduce, properties: cb.DeviceProperties) -> str | None:
        """Rows."""
        return None if p.by_rows else "for rows"

    def launch(self, p: Reduce, properties: cb.DeviceProperties) -> None:
        """A cube walks over a piece."""
        reduce_all(p, properties)
