"""Products of few rows with a matrix that lies along its columns (NumPy's own order), on a GPU: it
is read once.

A unit has some columns and walks down K, so that neighbouring units read neighbours. The planes of
a cube and the cubes of a cluster share K; their sums meet in shared memory. Rows of the matrix may
begin anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.gemv import Few, FewRoutine
from cubepy.kernels.matmul.gpu.operands import aligned, fitted
from cubepy.kernels.matmul.gpu.padded_operands import padded
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.movement.copy import copy
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import GpuRoutine, TunedRoutine

UNITS = 256
PLANE, PLANES = 32, 8
CHUNK = 32
"""Of K: what a plane loads of the rows at once."""
UNROLL = 8
"""Rows of the matrix that a unit asks for before it uses the first."""
MOST_ROWS = 8
LEAST_TURNED = 1024
"""Rows of a product that is turned, at least: planes may not share K there, so there must be many
of them.
"""


@dataclass(frozen=True)
class Across(Epilogue):
    """What changes the code of a product of few rows with a matrix along its columns, beside the
    epilogue.

    Attributes:
        rows: a power of two up to 8.
        lanes: neighbouring columns of a unit, which divide the matrix's.
        groups: lines of them.
        parts: cubes of a cluster, which share K.
    """

    rows: int = 1
    lanes: int = 1
    groups: int = 2
    parts: int = 1

    @property
    def columns(self) -> int:
        """Columns of a cube."""
        return PLANE * self.lanes * self.groups


@cb.func
def load_rows(staged, x, k, depth, m, blueprint):
    """A chunk of the rows of x to a plane's shared memory, the rows' elements of one k side by
    side; zeros beyond K.
    """
    lane = cb.UNIT_POS_PLANE
    at = cb.min(k + lane, depth - 1)
    found = ()
    for i in cb.unroll(range(blueprint.rows)):
        found = found + (x[cb.min(i, m - 1), at],)
    cb.sync_plane()
    for i in cb.unroll(range(blueprint.rows)):
        value = cb.select(k + lane < depth and i < m, cb.cast(found[i], cb.f32), 0.0)
        staged[(cb.PLANE_POS * CHUNK + lane) * blueprint.rows + i] = value
    cb.sync_plane()


@cb.func
def finish_together(sums, epilogue, start, shape, parts):
    """What becomes of the sums of a tile that begins at `start` (batch, row, column): a cube's
    planes have one each, one after the other in shared memory, and so have the cubes of a cluster.
    """
    rows, columns = shape
    part = cb.CUBE_POS % parts
    size = rows * columns
    for e in range(cb.UNIT_POS, size, UNITS):
        total = sums[e]
        for p in cb.unroll(range(1, PLANES)):
            total = total + sums[p * size + e]
        sums[e] = total
    steps = (size + UNITS * parts - 1) // (UNITS * parts)
    if parts > 1:
        cb.sync_cluster()
    else:
        cb.sync_cube()
    totals: Any = ()
    for t in cb.unroll(range(steps)):
        e = cb.min((t * parts + part) * UNITS + cb.UNIT_POS, size - 1)
        total = sums[e]
        if parts > 1:
            total = cb.load_cluster(sums, e, 0)
            for rank in cb.unroll(range(1, parts)):
                total = total + cb.load_cluster(sums, e, rank)
        totals = totals + (total,)
    if parts > 1:
        cb.sync_cluster()  # before results are stored: it would wait until all see them
    for t in cb.unroll(range(steps)):
        e = (t * parts + part) * UNITS + cb.UNIT_POS
        if e < size:
            line = cb.splat(totals[t], 1)
            epilogue.finish_inside(line, start[0], start[1] + e // columns, start[2] + e % columns)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def few_across(
    x: cb.Array, y: cb.Array, out: cb.Array, bias, residual, alpha: cb.f32, blueprint: cb.Comptime
):
    """out[0] = epilogue(x @ y) for x (M, K) and y (K, N)."""
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    rows, lanes, groups, parts, columns = (
        blueprint.rows,
        blueprint.lanes,
        blueprint.groups,
        blueprint.parts,
        blueprint.columns,
    )
    if parts > 1:
        cb.cluster(parts)
    m, n, depth = x.shape[0], y.shape[1], x.shape[1]
    first = cb.CUBE_POS // parts * columns
    part = cb.CUBE_POS % parts
    slices = PLANES * parts
    each = (depth + slices * CHUNK - 1) // (slices * CHUNK) * CHUNK
    begin = (part * PLANES + cb.PLANE_POS) * each
    staged = cb.shared(PLANES * CHUNK * rows, cb.f32)
    sums = cb.shared(PLANES * rows * columns, cb.f32)
    acc = cb.local((rows, groups), cb.f32, lanes=lanes)
    for i in cb.unroll(range(rows)):
        for c in cb.unroll(range(groups)):
            acc[i, c] = cb.splat(0.0, lanes)
    for chunk in range(begin, cb.min(begin + each, depth), CHUNK):
        load_rows(staged, x, chunk, depth, m, blueprint)
        for step in range(0, CHUNK, UNROLL):
            lines = ()
            for j in cb.unroll(range(UNROLL)):
                for c in cb.unroll(range(groups)):
                    # inside for every unit, so that all loads are on their way at once
                    column = first + (c * PLANE + cb.UNIT_POS_PLANE) * lanes
                    where = cb.min(chunk + step + j, depth - 1), cb.min(column, n - lanes)
                    lines = lines + (y.load(where, lanes),)
            for j in cb.unroll(range(UNROLL)):
                values = staged.load((cb.PLANE_POS * CHUNK + step + j) * rows, rows)
                inside = chunk + step + j < depth
                for c in cb.unroll(range(groups)):
                    line = cb.cast(lines[j * groups + c], cb.f32)
                    line = cb.select(inside, line, cb.splat(0.0, lanes))
                    for i in cb.unroll(range(rows)):
                        acc[i, c] = cb.fma(cb.splat(values[i], lanes), line, acc[i, c])
    for i in cb.unroll(range(rows)):
        for c in cb.unroll(range(groups)):
            sums.store(
                (cb.PLANE_POS * rows + i) * columns + (c * PLANE + cb.UNIT_POS_PLANE) * lanes,
                acc[i, c],
            )
    cb.sync_cube()
    finish_together(sums, epilogue, (0, 0, first), (rows, columns), parts)


class AcrossRoutine(GpuRoutine, TunedRoutine):
    """Few rows, and a matrix of floats with neighbours along its columns."""

    name = "across"

    def group(self, key: Product) -> int:
        """With the other routine for few rows."""
        return 4

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """One product of few rows, floats, neighbours along N."""
        if properties.plane_size != PLANE:
            return "the device has no planes of 32 units"
        out = result_dtype(problem)
        if problem.batch != 1 or problem.layout != "rows" or not out.is_float or out.bits > 32:
            return "it takes one product of floats, with neighbours along N"
        if as_dtype(problem.b).bits == 16 and problem.n % 8 == 0 and problem.aligned:
            return (
                "matrix units are quicker where rows of 16-bit floats begin at multiples of "
                "16 bytes"
            )
        return None if problem.m <= MOST_ROWS else f"at most {MOST_ROWS} rows"

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Across]:
        """As many cubes to a cluster as fill the device twice, and still have a chunk for every
        plane.
        """
        rows = power_of_two(problem.m)
        size = max(as_dtype(problem.a).itemsize, as_dtype(problem.b).itemsize)
        whole = problem.n * as_dtype(problem.b).itemsize % 16 == 0
        lanes, groups = (8 // size, 1) if whole else (1, 2)
        plan = Across(rows=rows, lanes=lanes, groups=groups)
        if "cluster" in properties.features:
            cubes = -(-problem.n // plan.columns)
            fit = [
                p
                for p in (8, 4, 2)
                if p * cubes <= 4 * properties.cores and problem.k >= p * PLANES * CHUNK
            ]
            plan = replace(plan, parts=fit[0] if fit else 1)
        yield plan

    def launch(self, blueprint: Across, problem: Product, args: tuple[Any, ...]) -> None:
        """out (1, M, N) = epilogue(x (1, M, K) @ y (1, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        lanes = math.gcd(min(blueprint.lanes, line_of(y[0])), y.shape[2])
        plan = fitted(replace(blueprint, lanes=lanes), args)
        cubes = -(-y.shape[2] // plan.columns) * plan.parts
        few_across[cubes, UNITS](
            x[0], y[0], out, bias, residual, float(alpha), plan, mode="unchecked"
        )


class TurnedRoutine(FewRoutine):
    """Few columns: the product of the transposed matrices, which has few rows."""

    name = "turned"

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """Few columns, more rows, nothing that goes along columns."""
        if problem.epilogue or problem.m < LEAST_TURNED or problem.packed:
            return f"it takes {LEAST_TURNED} rows or more, and no epilogue"
        narrow = as_dtype(problem.a).bits == 16
        if narrow and problem.layout == "rows" and problem.aligned:
            return "tiles need no copy of the matrix"
        return super().unfit(self.turned(problem), properties)

    def turned(self, problem: Product) -> Product:
        """The problem of the transposed matrices, as if its second one had neighbours along K."""
        return problem._replace(
            m=problem.n,
            n=problem.m,
            a=problem.b,
            b=problem.a,
            layout="columns",
            out=result_dtype(problem).name,
            aligned=problem.k % 8 == 0,
        )

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Few]:
        """Those of the turned problem."""
        return super().blueprints(self.turned(problem), properties)

    def launch(self, blueprint: Few, problem: Product, args: tuple[Any, ...]) -> None:
        """out (1, M, N) = x (1, M, K) @ y (1, K, N)."""
        x, y, out, *rest = args
        first = y.transpose(0, 2, 1)
        first = first if first.flags.c_contiguous else copy(first)
        second = x if x.strides[2] == x.itemsize or x.shape[2] == 1 else copy(x)
        if not blueprint.dot:  # it reads 16 bytes at once
            here = problem.properties
            first, second = (v if aligned(v) else padded(v, here) for v in (first, second))
        super().launch(
            blueprint, problem, (first, second.transpose(0, 2, 1), out.transpose(0, 2, 1), *rest)
        )
