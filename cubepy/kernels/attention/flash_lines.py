"""Attention with queries in the lanes of lines: on any device, made for CPUs.

A query block is as many queries as a register tile has lanes. Its scores stand as one line of
queries for each key, so that maxima, exponentials and sums need no step across lanes, keys and
values are read as they are, a number at a time, and only queries and results are turned. The
running maximum and sum make the softmax online (Milakov and Gimelshein, 2018), as in FlashAttention
(Dao et al., 2022): scores of a query block and of a block of keys are all that is ever kept.

Queries too few for that have a kernel in which keys stand in the lanes (attention/cpu/decode.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.attention.problem import Attention
from cubepy.kernels.primitives.exponentials import LOG2_E, power_of_two
from cubepy.kernels.primitives.register_transpose import transpose_lines

QUERIES = 128  # of a cube, at most
WORK = 1 << 18  # products of a cube, at least, where many cores share few queries
KEYS = 96  # of a block, at most; a multiple of all tiles
BYTES, PLANES_BYTES = 1 << 17, 1 << 15  # of a block's keys and values on a CPU and on a GPU
NARROW = (
    1.15  # so many times fewer positions for queries make narrow tiles pay, which read more numbers
)
FEW = 12  # queries of a head up to which they are done one by one


@dataclass(frozen=True)
class QueryBlocks:
    """What may be chosen by measuring; what is not given is left to the rules.

    Attributes:
        shape: rows and lines of a register tile.
        keys: keys of a block, a multiple of the rows.
        tiles: query blocks of a cube, at most.
    """

    shape: tuple[int, int] | None = None
    keys: int = 0
    tiles: int = 0


@dataclass(frozen=True)
class Blueprint:
    """What changes the code.

    Attributes:
        rows: keys, or positions of a value, of a register tile.
        lines, lanes: of queries of a register tile.
        keys: keys of a block.
        room: query blocks of a cube, at most.
        depth, width: of a key and of a value.
        causal: a query sees keys up to its own position (aligned at the first key and query).
        mask: "none", "bool" (true: may look) or "float" (added to the scores).
    """

    rows: int
    lines: int
    lanes: int
    keys: int
    room: int
    depth: int
    width: int
    causal: bool
    mask: str

    @property
    def block_rows(self) -> int:
        """Queries of a query block."""
        return self.lines * self.lanes

    @property
    def deep(self) -> int:
        """The depth in whole lines."""
        return -(-self.depth // self.lanes) * self.lanes

    @property
    def wide(self) -> int:
        """The width in whole lines."""
        return -(-self.width // self.lanes) * self.lanes


@cb.kernel
def attend(
    q: cb.Array,
    k: cb.Array,
    v: cb.Array,
    mask,
    out: cb.Array,
    lse,
    scale: cb.f32,
    shared_heads,
    tiles,
    plan: cb.Comptime,
):
    """out[b, h, i] = sum over j of softmax(scale * q[b, h, i] . k[b, g, j]) * v[b, g, j], with g =
    h // shared_heads.

    q (B, H, L, D), k (B, G, S, D), v (B, G, S, E), out (B, H, L, E); a cube does `tiles` query
    blocks of queries. `lse` (B, H, L), if it is there, gets the log of each row's sum of
    exponentials.
    """
    lanes, lines, block_rows = plan.lanes, plan.lines, plan.block_rows
    length = q.shape[2]
    blocks = (length + block_rows * tiles - 1) // (block_rows * tiles)
    b, h, block = cb.unravel(cb.CUBE_POS, (q.shape[0], q.shape[1], blocks))
    first = block * (block_rows * tiles)
    g = h // shared_heads
    here = (cb.min(length - first, block_rows * tiles) + block_rows - 1) // block_rows

    keys = cb.shared((plan.keys, plan.deep), cb.f32)
    values = cb.shared((plan.keys, plan.wide), cb.f32)
    queries = cb.local((plan.room * plan.deep, lines), cb.f32, lanes=lanes)
    weights = cb.local((plan.keys + lanes, lines), cb.f32, lanes=lanes)
    sums = cb.local((plan.room * plan.wide, lines), cb.f32, lanes=lanes)
    top = cb.local((plan.room, lines), cb.f32, lanes=lanes)
    total = cb.local((plan.room, lines), cb.f32, lanes=lanes)
    for t in range(here):
        for j in range(lines):
            top[t, j] = cb.splat(-float("inf"), lanes)
            total[t, j] = cb.splat(0.0, lanes)
            query = (b, h, first + t * block_rows + j * lanes)
            read_line(queries, q, query, t * plan.deep, j, scale * LOG2_E, plan)
        for i in range(plan.wide):
            for j in range(lines):
                sums[t * plan.wide + i, j] = cb.splat(0.0, lanes)

    seen = k.shape[2]
    if plan.causal:
        seen = cb.min(seen, first + here * block_rows)
    for start in range(0, seen, plan.keys):
        count = cb.min(plan.keys, seen - start)
        fill_rows(keys, k, b, g, start, count, count, plan.depth, plan.deep // lanes, lanes)
        fill_rows(values, v, b, g, start, count, count, plan.width, plan.wide // lanes, lanes)
        for t in range(here):
            row = first + t * block_rows
            limit = count
            if plan.causal:
                limit = cb.min(count, row + block_rows - start)
            if limit > 0:
                for r in range(0, limit, plan.rows):
                    scores(weights, queries, keys, r, t * plan.deep, q.shape[3], plan)
                if plan.mask != "none":
                    apply_mask(weights, mask, b, h, row, start, limit, plan)
                if plan.causal:
                    for r in range(cb.max(row + 1 - start, 0), limit):
                        hide_later(weights, r, start + r - row, plan)
                shrink = weigh(weights, top, total, t, limit, plan)
                for e in range(0, plan.width - plan.rows + 1, plan.rows):
                    add_values(sums, weights, shrink, values, t, limit, e, plan.rows, plan)
                if plan.width % plan.rows > 0:
                    e = plan.width // plan.rows * plan.rows
                    add_values(
                        sums, weights, shrink, values, t, limit, e, plan.width % plan.rows, plan
                    )
    for t in range(here):
        for j in range(lines):
            query = (b, h, first + t * block_rows + j * lanes)
            write_line(out, lse, sums, (top[t, j], total[t, j]), query, t * plan.wide, j, plan)


@cb.func
def fill_rows(rows, x, b, h, first, here, most, depth, lines: cb.Comptime, lanes: cb.Comptime):
    """rows[i] = x[b, h, first + i] in f32, zero from `here` on and beyond the end of a row."""
    for i in range(here):
        for d in cb.unroll(range(lines)):
            line = x.load((b, h, first + i, d * lanes), lanes, valid=depth - d * lanes)
            rows.store((i, d * lanes), cb.cast(line, cb.f32))
    for i in range(here, most):
        for d in cb.unroll(range(lines)):
            rows.store((i, d * lanes), cb.splat(cb.f32(0.0), lanes))


@cb.func
def read_line(queries, q, start, at, j, factor, plan):
    """queries[at + d, j] = factor * q[b, h, row + r, d] in lane r, (b, h, row) being `start`; past
    the end stands the last query.
    """
    b, h, row = start
    lanes, last = plan.lanes, q.shape[2] - 1
    for d, some in cb.lines(0, plan.depth, lanes):
        square = tuple(
            cb.cast(q.load((b, h, cb.min(row + r, last), d), lanes, valid=some), cb.f32) * factor
            for r in cb.unroll(range(lanes))
        )
        square = transpose_lines(square, lanes)
        for c in cb.unroll(range(lanes)):
            queries[at + d + c, j] = square[c]


@cb.func
def scores(weights, queries, keys, first, at, depth, plan):
    """weights[first + i] = keys[first + i] . queries for one register tile."""
    acc = cb.local((plan.rows, plan.lines), cb.f32, lanes=plan.lanes)
    line = cb.local(plan.lines, cb.f32, lanes=plan.lanes)
    for i in range(plan.rows):
        for j in range(plan.lines):
            acc[i, j] = cb.splat(0.0, plan.lanes)
    for d in range(depth):
        for j in range(plan.lines):
            line[j] = queries[at + d, j]
        for i in range(plan.rows):
            x = cb.splat(keys[first + i, d], plan.lanes)
            for j in range(plan.lines):
                acc[i, j] = cb.fma(x, line[j], acc[i, j])
    for i in range(plan.rows):
        for j in range(plan.lines):
            weights[first + i, j] = acc[i, j]


@cb.func
def apply_mask(weights, mask, b, h, row, start, limit, plan):
    """Add the mask to scores (in units of log 2), or hide them by it: it is turned as
    queries are.
    """
    lanes = plan.lanes
    piece = cb.local(lanes, cb.f32, lanes=lanes)
    for r in range(0, limit, lanes):
        for j in range(plan.lines):
            for i in range(lanes):
                query = cb.min(row + j * lanes + i, mask.shape[2] - 1)
                line = mask.load((b, h, query, start + r), lanes, valid=limit - r)
                piece[i] = (
                    cb.select(line, 1.0, 0.0) if plan.mask == "bool" else cb.cast(line, cb.f32)
                )
            part = transpose_lines(tuple(piece[i] for i in cb.unroll(range(lanes))), lanes)
            for c in cb.unroll(range(lanes)):
                if plan.mask == "bool":
                    weights[r + c, j] = cb.select(part[c] > 0.0, weights[r + c, j], -float("inf"))
                else:
                    weights[r + c, j] = weights[r + c, j] + part[c] * LOG2_E


@cb.func
def hide_later(weights, r, query, plan):
    """Hide key r from queries that come before it; `query` is the query of the block at the key's
    own position.
    """
    for j in range(plan.lines):
        sees = cb.iota(plan.lanes) >= query - j * plan.lanes
        weights[r, j] = cb.select(sees, weights[r, j], -float("inf"))


@cb.func
def weigh(weights, top, total, t, limit, plan):
    """Turn scores into 2 ** (score - maximum), add them up, and give the factor of what was summed
    before.
    """
    lanes = plan.lanes
    base = cb.local(plan.lines, cb.f32, lanes=lanes)
    shrink = cb.local(plan.lines, cb.f32, lanes=lanes)
    more = cb.local(plan.lines, cb.f32, lanes=lanes)
    for j in range(plan.lines):
        base[j] = top[t, j]
        more[j] = cb.splat(0.0, lanes)
    for r in range(limit):
        for j in range(plan.lines):
            base[j] = cb.select(base[j] > weights[r, j], base[j], weights[r, j])
    for j in range(plan.lines):
        old = top[t, j]
        top[t, j] = base[j]
        base[j] = cb.select(base[j] == -float("inf"), 0.0, base[j])
        shrink[j] = power_of_two(old - base[j])
    for r in range(limit):
        for j in range(plan.lines):
            weight = power_of_two(weights[r, j] - base[j])
            more[j] = more[j] + weight
            weights[r, j] = weight
    for j in range(plan.lines):
        total[t, j] = cb.fma(total[t, j], shrink[j], more[j])
    return shrink


@cb.func
def add_values(sums, weights, shrink, values, t, count, e, rows: cb.Comptime, plan):
    """sums[e + i] = shrink * sums[e + i] + sum over r of values[r, e + i] * weights[r], for one
    register tile.
    """
    acc = cb.local((rows, plan.lines), cb.f32, lanes=plan.lanes)
    line = cb.local(plan.lines, cb.f32, lanes=plan.lanes)
    at = t * plan.wide + e
    for i in range(rows):
        for j in range(plan.lines):
            acc[i, j] = sums[at + i, j] * shrink[j]
    for r in range(count):
        for j in range(plan.lines):
            line[j] = weights[r, j]
        for i in range(rows):
            x = cb.splat(values[r, e + i], plan.lanes)
            for j in range(plan.lines):
                acc[i, j] = cb.fma(x, line[j], acc[i, j])
    for i in range(rows):
        for j in range(plan.lines):
            sums[at + i, j] = acc[i, j]


@cb.func
def write_line(out, lse, sums, softmax, start, at, j, plan):
    """out[b, h, row + r, d] = sums[at + d, j] / total of lane r, (b, h, row) being `start`, and the
    log of that sum of exponentials; `softmax` are the maximum and the total of the line.
    """
    b, h, row = start
    top, total = softmax
    lanes = plan.lanes
    nothing = total == 0.0
    inverse = cb.select(nothing, 0.0, 1.0 / total)
    if lse is not None:
        found = cb.select(nothing, top, (top + cb.log2(total)) / LOG2_E)
        lse.store((b, h, row), found, valid=out.shape[2] - row)
    for d, some in cb.lines(0, plan.width, lanes):
        square = tuple(sums[at + d + c, j] * inverse for c in cb.unroll(range(lanes)))
        square = transpose_lines(square, lanes)
        for r in cb.unroll(range(lanes)):
            if row + r < out.shape[2]:
                out.store((b, h, row + r, d), cb.cast(square[r], out.dtype), valid=some)


def plan_for(
    q: Any,
    k: Any,
    v: Any,
    causal: bool,
    mask: str,
    p: cb.DeviceProperties,
    chosen: QueryBlocks = QueryBlocks(),
) -> tuple[Blueprint, int]:
    """The blueprint for arrays of these shapes, and the query blocks of a cube; results do not
    depend on how many cores there are.
    """
    lanes, length = p.register_bytes // 4, q.shape[2]
    depth, width = q.shape[3], v.shape[3]
    wide, narrow = ((6, 4), (12, 2)) if p.vector_registers >= 32 else ((6, 2), (12, 1))
    slots = [-(-length // (lines * lanes)) * lines for _, lines in (wide, narrow)]
    rows, lines = chosen.shape or (narrow if NARROW * slots[1] < slots[0] else wide)
    query_blocks, most = (
        -(-length // (lines * lanes)),
        min(QUERIES, BYTES // (2 * (depth + width))) // (lines * lanes),
    )
    least = -(-WORK // (lines * lanes * k.shape[2] * (depth + width)))
    tiles = max(least, q.shape[0] * q.shape[1] * query_blocks // (4 * p.cores))
    planes = p.plane_size > 1
    room = 1 if planes else max(1, most)
    tiles = max(1, min(chosen.tiles or tiles, query_blocks, room))
    fit = (PLANES_BYTES if planes else BYTES) // (4 * (depth + width))
    keys = max(rows, min(chosen.keys or KEYS, fit) // rows * rows)
    return Blueprint(rows, lines, lanes, keys, room, depth, width, causal, mask), tiles


def launch(p: Attention, operands: tuple[Any, ...], chosen: QueryBlocks) -> None:
    """The attention, and its log-sum-exp if `lse` is there; rows are neighbours in memory."""
    q, k, v, *_ = operands
    plan, tiles = plan_for(q, k, v, p.causal, p.mask, p.properties, chosen)
    cubes = q.shape[0] * q.shape[1] * -(-q.shape[2] // (plan.block_rows * tiles))
    attend[cubes, 1](*operands, q.shape[1] // k.shape[1], tiles, plan, mode="unchecked")
