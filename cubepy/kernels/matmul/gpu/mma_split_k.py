"""Products with few results and a long K for matrix units (`cb.mma`), of any strides: the planes of
a cube and the cubes of a cluster share K, and read both operands straight from memory.

A sum over K may be taken in any order, so a unit takes 16 neighbours' bytes along K of some rows
and of some columns and calls them the parts of K that are its own in the fragments: nothing goes
through shared memory but the sums. Where rows begin anywhere, the 16 bytes are read in parts, all
of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.gemv_rows import PLANE, PLANES, UNITS, finish_together
from cubepy.kernels.matmul.gpu.operands import NARROW_FLOATS, fitted, once
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.kernels.primitives.vector_width import lanes_within
from cubepy.tune import GpuRoutine, TunedRoutine

PIECE = 16
"""Bytes along K of a row or column that a unit takes in a step: those of two instructions."""
QUADS = 4
"""Units beside each other along K."""
STEPS = 2
"""Steps whose loads are under way at once."""
TILES = {(1, 1): 0.5, (1, 2): 0.65, (2, 4): 1.3}
"""Tiles, and the microseconds that a step of all planes takes, as of a matrix that begins anywhere
(measured on an H200 with 190 products, as all that follows).
"""
START, MEETING = 2.1, (0.8, 0.05)
"""Microseconds of a launch, and those of a cluster and each of its cubes that meet."""
SHORTEST = 16
"""Of K: less is done without matrix units."""
MOST = 300, 40
"""Tiles of 16 x 16 up to which that is so: of rows that begin anywhere, and where the copy engine
can bring them.
"""
ANYWHERE, ALIGNED, LONG = 7.0, 3.9, (1024, 5.3)
"""Microseconds up to which other routines are slower: where rows begin anywhere (others copy them
first), where the copy engine can bring tiles, and there for a K so long.
"""


@dataclass(frozen=True)
class MmaSplitK(Epilogue):
    """What changes the code, beside the epilogue.

    Attributes:
        dtype: name of the operands' dtype.
        high: of a tile, times 16 rows.
        wide: of a tile, times 8 columns.
        parts: cubes of a cluster, which share K.
        steps: whose loads are under way at once.
        a_lanes: elements along K that are read at once.
        b_lanes: the same of b; where it lies `across`, columns of it.
        across: neighbours of b lie along its columns.
    """

    dtype: str
    high: int = 1
    wide: int = 2
    parts: int = 1
    steps: int = STEPS
    a_lanes: int = 1
    b_lanes: int = 1
    across: bool = False

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return 16 * self.high

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return 8 * self.wide


@cb.func
def words_of(values):
    """Four words of a unit's elements of a row."""
    line = cb.line(*values)
    return cb.pack(line, cb.f32) if line.dtype.itemsize == 4 else cb.bitcast(line, cb.u32)


@cb.func
def along(source, batch, row, k, lanes):
    """A unit's elements along K of one row of (batch, rows, K), zeros beyond K."""
    per = PIECE // source.dtype.itemsize
    depth = source.shape[2]
    at = cb.min(row, source.shape[1] - 1)
    values: Any = ()
    for e in cb.unroll(range(0, per, lanes)):
        line = source.load((batch, at, cb.min(k + e, depth - lanes)), lanes)
        line = cb.select(k + e < depth, line, cb.splat(source.dtype(0), lanes))
        values = values + tuple(line[n] for n in cb.unroll(range(lanes)))
    return values


@cb.func
def beside(source, batch, column, k, wide, lanes):
    """The same of `wide` neighbouring columns of (batch, K, columns), one tuple for each."""
    per = PIECE // source.dtype.itemsize
    depth = source.shape[1]
    rows: Any = ()
    for e in cb.unroll(range(per)):
        at, values = cb.min(k + e, depth - 1), ()
        for c in cb.unroll(range(0, wide, lanes)):
            line = source.load((batch, at, cb.min(column + c, source.shape[2] - lanes)), lanes)
            line = cb.select(k + e < depth, line, cb.splat(source.dtype(0), lanes))
            values = values + tuple(line[n] for n in cb.unroll(range(lanes)))
        rows = rows + (values,)
    return tuple(tuple(rows[e][c] for e in range(per)) for c in range(wide))


@cb.func
def columns_of(b, batch, column, k, blueprint):
    """A unit's elements of all columns of a tile that are its own."""
    wide, low = blueprint.wide, cb.UNIT_POS_PLANE // QUADS
    if blueprint.across:
        return beside(b, batch, column + low * wide, k, wide, blueprint.b_lanes)
    return tuple(along(b, batch, column + j * 8 + low, k, blueprint.b_lanes) for j in range(wide))


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def mma_split_k(
    a: cb.Array, b: cb.Array, out: cb.Array, bias, residual, alpha: cb.f32, blueprint: cb.Comptime
):
    """out[batch] = epilogue(a[batch] @ b[batch]) for a (batches or 1, M, K), and b (batches or 1,
    N, K) or, across, (.., K, N); 16-bit floats are given as integers.
    """
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    rows, columns, parts = blueprint.rows, blueprint.columns, blueprint.parts
    high, wide, steps = blueprint.high, blueprint.wide, blueprint.steps
    if parts > 1:
        cb.cluster(parts)
    per = PIECE // a.dtype.itemsize
    column_tiles = (out.shape[2] + columns - 1) // columns
    row_tiles = (out.shape[1] + rows - 1) // rows
    tile = cb.CUBE_POS // parts
    row, column = tile // column_tiles % row_tiles * rows, tile % column_tiles * columns
    batch = tile // (row_tiles * column_tiles)
    batch_a, batch_b = cb.min(batch, a.shape[0] - 1), cb.min(batch, b.shape[0] - 1)
    low, own = cb.UNIT_POS_PLANE // QUADS, cb.UNIT_POS_PLANE % QUADS * per
    acc = cb.local((high, wide), cb.f32, lanes=4)
    for i in cb.unroll(range(high)):
        for j in cb.unroll(range(wide)):
            acc[i, j] = cb.splat(cb.f32(0), 4)
    first = (cb.CUBE_POS % parts * PLANES + cb.PLANE_POS) * (QUADS * per)
    stride = PLANES * parts * QUADS * per
    for start in range(first, a.shape[2], steps * stride):
        lefts: Any = ()
        rights: Any = ()
        for s in cb.unroll(range(steps)):
            k = start + s * stride + own
            for i in cb.unroll(range(2 * high)):
                lefts = lefts + (along(a, batch_a, row + i * 8 + low, k, blueprint.a_lanes),)
            rights = rights + columns_of(b, batch_b, column, k, blueprint)
        for s in cb.unroll(range(steps)):
            for i in cb.unroll(range(high)):
                one = words_of(lefts[(s * high + i) * 2])
                two = words_of(lefts[(s * high + i) * 2 + 1])
                halves = (
                    cb.interleave(cb.slice_line(one, 0, 2), cb.slice_line(two, 0, 2)),
                    cb.interleave(cb.slice_line(one, 2, 2), cb.slice_line(two, 2, 2)),
                )
                for j in cb.unroll(range(wide)):
                    other = words_of(rights[s * wide + j])
                    for half in cb.unroll(range(2)):
                        pair = cb.slice_line(other, 2 * half, 2)
                        acc[i, j] = cb.mma(halves[half], pair, acc[i, j], blueprint.dtype)
    sums = cb.shared(PLANES * rows * columns, cb.f32)
    for i in cb.unroll(range(high)):
        for j in cb.unroll(range(wide)):
            for half in cb.unroll(range(2)):
                to = (cb.PLANE_POS * rows + i * 16 + half * 8 + low) * columns
                if blueprint.across:
                    at = to + cb.UNIT_POS_PLANE % QUADS * (2 * wide) + j
                    sums[at] = acc[i, j][2 * half]
                    sums[at + wide] = acc[i, j][2 * half + 1]
                else:
                    at = to + j * 8 + cb.UNIT_POS_PLANE % QUADS * 2
                    sums.store(at, cb.slice_line(acc[i, j], 2 * half, 2))
    cb.sync_cube()
    finish_together(sums, epilogue, (batch, row, column), (rows, columns), parts)


def steps_of(plan: MmaSplitK, problem: Product) -> int:
    """Steps of a plane along K."""
    depth = QUADS * PIECE // (4 if problem.a == "f32" else 2)
    return -(-problem.k // (plan.parts * PLANES * depth))


def tiles_of(plan: MmaSplitK, problem: Product) -> int:
    """Tiles of all results."""
    return problem.batch * -(-problem.m // plan.rows) * -(-problem.n // plan.columns)


def cost_of(plan: MmaSplitK, problem: Product, properties: cb.DeviceProperties) -> float:
    """Microseconds that a product takes, by what was measured."""
    rounds = max(1.0, tiles_of(plan, problem) * plan.parts / properties.cores)
    if plan.wide == 4:  # its sums and fragments leave room for one cube a core
        rounds = math.ceil(rounds)
    meeting = MEETING[0] + MEETING[1] * plan.parts if plan.parts > 1 else 0.0
    return START + meeting + TILES[plan.high, plan.wide] * steps_of(plan, problem) * rounds


def plans_of(problem: Product, properties: cb.DeviceProperties) -> list[MmaSplitK]:
    """Those of every tile and number of parts, the quickest first."""
    plans = [
        MmaSplitK(problem.a, high, wide, parts)
        for high, wide in TILES
        for parts in ((1, 2, 4, 8) if "cluster" in properties.features else (1,))
        if problem.n > 8 or wide < 4
    ]
    return sorted(plans, key=lambda plan: cost_of(plan, problem, properties))


def quickest(problem: Product, properties: cb.DeviceProperties) -> MmaSplitK:
    """The first of them."""
    return plans_of(problem, properties)[0]


def unfit_for_floats(problem: Product, properties: cb.DeviceProperties) -> str | None:
    """Why `cb.mma` does not take a product of floats whose fragments come from memory, or None."""
    if "mma" not in properties.features or properties.plane_size != PLANE:
        return "the device has no matrix units"
    fits = problem.a in NARROW_FLOATS or (problem.a == "f32" and problem.tf32)
    if problem.a != problem.b or not fits or problem.packed:
        return f"matrix units do not take {problem.a} and {problem.b}"
    out = result_dtype(problem)
    return None if out.is_float and out.bits <= 32 else "sums are in f32"


class MmaSplitKRoutine(GpuRoutine, TunedRoutine):
    """16-bit floats and tf32 of any strides, where K is long and results are few."""

    name = "mma_split_k"

    def group(self, key: Product) -> int:
        """Before all others where it fits."""
        return 4

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """Floats of matrix units, and few results of a long K."""
        reason = unfit_for_floats(problem, properties)
        if reason is not None:
            return reason
        if problem.k < SHORTEST or (problem.m == 1 and problem.layout == "columns"):
            return "K is short, or there is one row for rows of the matrix"
        plan = quickest(problem, properties)
        small = tiles_of(MmaSplitK(problem.a), problem)
        if small > (MOST[1] if problem.aligned else MOST[0]):
            return "there are too many tiles that share nothing"
        most = ANYWHERE if not problem.aligned else LONG[1] if problem.k >= LONG[0] else ALIGNED
        quick = cost_of(plan, problem, properties) <= most
        return None if quick else "there is too much work for tiles that share nothing"

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[MmaSplitK]:
        """Those of every tile and number of parts, the quickest first."""
        for plan in plans_of(problem, properties):
            yield replace(plan, steps=min(STEPS, steps_of(plan, problem)))

    def launch(self, blueprint: MmaSplitK, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        a, b = once(x), once(y)
        per = PIECE // a.itemsize
        across = problem.layout == "rows"
        b = b if across else b.transpose(0, 2, 1)
        a_lanes = lanes_within(a, per)
        b_lanes = lanes_within(b, blueprint.wide if across else per)
        crowded = blueprint.wide == 4 and min(a_lanes, b_lanes) == 1  # registers hold one step
        made = replace(
            blueprint,
            across=across,
            steps=1 if crowded else blueprint.steps,
            a_lanes=a_lanes,
            b_lanes=b_lanes,
        )
        plan = fitted(made, args)
        batch, m, n = out.shape
        cubes = batch * -(-m // plan.rows) * -(-n // plan.columns) * plan.parts
        a, b = (v.view("u2") if v.itemsize == 2 else v for v in (a, b))
        mma_split_k[cubes, UNITS](a, b, out, bias, residual, float(alpha), plan, mode="unchecked")
