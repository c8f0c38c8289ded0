"""Products of few tiles on Hopper: the cubes of a cluster share K, so that all cores load the
matrices.

A product of 64 rows has too few tiles for all cores, and a core alone cannot load its part of the
matrix at the speed of memory. Every cube of a cluster multiplies the same tile over its own part of
K; then each adds up a part of the tile, out of the shared memory of all of them. A cube has a group
of units for every 64 rows, and one plane that loads the operands into a pipeline which holds much
of a cube's part of K. Measured against cuBLAS: docs/benchmarks/log/matmul-sm90.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.operands import NARROW_FLOATS, fitted, map_of, once, oriented
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.kernels.primitives.pipeline import (
    BLOCK,
    GROUP,
    ROW_BYTES,
    Stage,
    load_tile,
    stage_product,
)
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import GpuRoutine, TunedRoutine

PLANE = 32
PAIR = 2
PADDING = 8
"""Numbers between rows of sums in shared memory: planes write to different banks."""


@dataclass(frozen=True)
class ClusterSplitK(Epilogue):
    """What changes the code of a product of few rows of tiles, beside the epilogue.

    Attributes:
        rows: rows of a tile, 64 or 128.
        columns: columns of a tile, a multiple of 16, and of four times the parts where there are
            several.
        stages: tiles of A and B that are under way.
        parts: cubes of a cluster, which share K.
        transpose_a: A is stored (K, M). 16-bit dtypes only.
        transpose_b: B is stored (K, N) as NumPy does; then columns are a multiple of 64.
    """

    rows: int = 64
    columns: int = 64
    stages: int = 10
    parts: int = 2
    transpose_a: bool = False
    transpose_b: bool = False

    @property
    def share(self) -> int:
        """Rows that one group does."""
        return BLOCK

    @property
    def units(self) -> int:
        """Units of a cube."""
        return self.rows // BLOCK * GROUP + PLANE


@cb.struct
class Part:
    """A cube's part of K of a tile: its batch, first row and column, first step and how many."""

    batch: Any
    row: Any
    column: Any
    first: Any
    count: Any


@cb.func
def load_part(a, b, tiles_a, tiles_b, stage, part, batches, blueprint):
    """Bring a part's stages of both operands."""
    rows, columns = blueprint.rows, blueprint.columns
    depth = ROW_BYTES // a.dtype.itemsize
    batch_a = cb.min(part.batch, batches[0] - 1)
    batch_b = cb.min(part.batch, batches[1] - 1)
    for step in range(part.count):
        k = (part.first + step) * depth
        stage.acquire()
        stage.expect((rows + columns) * ROW_BYTES)
        load_tile(
            tiles_b,
            stage.slot * columns * depth,
            b,
            (batch_b, part.column, k),
            columns,
            blueprint.transpose_b,
            stage,
        )
        load_tile(
            tiles_a,
            stage.slot * rows * depth,
            a,
            (batch_a, part.row, k),
            rows,
            blueprint.transpose_a,
            stage,
        )
        stage = stage.advance()


@cb.func
def multiply_part(sums, tiles_a, tiles_b, stage, count, blueprint):
    """Multiply a part's stages and leave the sums in shared memory, rows `columns + 8` apart."""
    rows, columns = blueprint.rows, blueprint.columns
    depth = ROW_BYTES // tiles_a.dtype.itemsize
    pitch = columns + PADDING
    acc = cb.local(columns // PAIR, cb.f32)
    group = cb.UNIT_POS // GROUP
    for n in cb.unroll(range(columns // PAIR)):
        acc[n] = 0.0
    for _step in range(count):
        stage.wait()
        cb.wgmma_fence()
        stage_product(
            acc,
            tiles_a,
            (stage.slot * rows + group * BLOCK) * depth,
            tiles_b,
            stage.slot * columns * depth,
            True,
            blueprint,
        )
        cb.wgmma_commit()
        cb.wgmma_wait(0)
        stage.release(cb.UNIT_POS % GROUP == 0)
        stage = stage.advance()
    cb.wgmma_wait(0, acc)
    lane = cb.UNIT_POS_PLANE
    to = (cb.PLANE_POS * 16 + lane // 4) * pitch + lane % 4 * PAIR
    for n in cb.unroll(range(columns // 8)):
        sums.store(to + n * 8, acc.load(n * 4, PAIR))
        sums.store(to + n * 8 + 8 * pitch, acc.load(n * 4 + PAIR, PAIR))


@cb.func
def add_parts(sums, rank, workers, epilogue, part, blueprint):
    """Add the sums of the cubes of a cluster, each cube its share of the tile, and write them."""
    columns, parts = blueprint.columns, blueprint.parts
    pitch, each = columns + PADDING, columns // PAIR
    rounds = columns // (2 * PAIR * parts)
    total = cb.local(rounds, cb.f32, lanes=PAIR)
    cb.sync_cluster()
    if cb.UNIT_POS < workers:
        for round_ in cb.unroll(range(rounds)):
            n = (rank * rounds + round_) * workers + cb.UNIT_POS
            at = n // each * pitch + n % each * PAIR
            total[round_] = cb.splat(0.0, PAIR)
            for other in cb.unroll(range(parts)):
                one = cb.splat(cb.load_cluster(sums, at, other), 1)
                total[round_] = total[round_] + cb.concat(
                    one, cb.splat(cb.load_cluster(sums, at + 1, other), 1)
                )
    cb.sync_cluster()  # before the results are stored: it would wait until all see them
    if cb.UNIT_POS < workers:
        for round_ in cb.unroll(range(rounds)):
            n = (rank * rounds + round_) * workers + cb.UNIT_POS
            row, column = part.row + n // each, part.column + n % each * PAIR
            epilogue.finish_inside(total[round_], part.batch, row, column)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def cluster_split_k_product(
    a: cb.TensorMap,
    b: cb.TensorMap,
    out: cb.Array,
    bias,
    residual,
    alpha: cb.f32,
    tiles,
    steps,
    batches,
    blueprint: cb.Comptime,
):
    """out[batch] = epilogue(a[batch] @ b[batch]); a cluster makes one tile.

    `tiles` are the rows and columns of tiles, `steps` the stages of K, `batches` those of a and of
    b.
    """
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    cb.cluster(blueprint.parts)
    rows, columns, stages, parts = (
        blueprint.rows,
        blueprint.columns,
        blueprint.stages,
        blueprint.parts,
    )
    depth = ROW_BYTES // a.dtype.itemsize
    workers = rows // BLOCK * GROUP
    full = cb.barrier(stages, 1)
    empty = cb.barrier(stages, rows // BLOCK)
    tiles_a = cb.shared(stages * rows * depth, a.dtype)
    tiles_b = cb.shared(stages * columns * depth, b.dtype)
    pitch = columns + PADDING
    sums = cb.shared(rows * pitch, cb.f32)
    cb.start_next()
    cb.wait_previous()
    tile = cb.CUBE_POS // parts
    rank = cb.CUBE_POS % parts
    row = tile % tiles[0] * rows
    column = tile // tiles[0] % tiles[1] * columns
    batch = tile // (tiles[0] * tiles[1])
    first = rank * steps // parts
    part = Part(batch, row, column, first, (rank + 1) * steps // parts - first)
    stage = Stage(full, empty, 0, 0, stages)
    if cb.UNIT_POS >= workers:
        if cb.UNIT_POS == workers:
            load_part(a, b, tiles_a, tiles_b, stage, part, batches, blueprint)
    else:
        multiply_part(sums, tiles_a, tiles_b, stage, part.count, blueprint)
    if parts > 1:
        add_parts(sums, rank, workers, epilogue, part, blueprint)
    else:
        cb.sync_cube()
        each = columns // PAIR
        if cb.UNIT_POS < workers:
            for n in range(cb.UNIT_POS, rows * each, workers):
                r, c = n // each, n % each * PAIR
                epilogue.finish_inside(sums.load(r * pitch + c, PAIR), batch, row + r, column + c)


LEAST_STEPS = 32
"""Stages of K, at least, for which two cubes are faster than one: their sums take a microsecond to
meet.
"""
SHARED_BY = ((8, 96), (4, 64))
"""Cubes of larger clusters, and the stages of K, at least, for which they are taken where
MOST_SHARED fit.
"""
MOST_SHARED = 96
"""Cubes of larger clusters that surely find room at once: a cluster wants its cores in one part of
the chip.
"""


class ClusterSplitKRoutine(GpuRoutine, TunedRoutine):
    """16-bit floats and tf32 where tiles are fewer than cores: cubes share K, so that all cores
    load the matrix.
    """

    name = "cluster_split_k"

    def group(self, key: Product) -> int:
        """With the other kernel of wgmma."""
        return 3

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has wgmma and clusters, operands are 16-bit floats or tf32, and rows are
        aligned.
        """
        if not {"wgmma", "tma", "cluster", "overlap"} <= properties.features:
            return "the device has no clusters"
        narrow, rounded = problem.a in NARROW_FLOATS, problem.a == "f32" and problem.tf32
        if problem.a != problem.b or not (narrow or rounded) or result_dtype(problem).bits > 32:
            return f"it takes 16-bit floats and tf32, not {problem.a} and {problem.b}"
        if rounded and problem.layout != "columns":
            return "matrix units take tf32 along K only"
        return None if problem.aligned else "the copy engine wants rows aligned to 16 bytes"

    def blueprints(
        self, problem: Product, properties: cb.DeviceProperties
    ) -> Iterator[ClusterSplitK]:
        """One tile a cluster, where all of them run at once and K is long."""
        plan = ClusterSplitK()
        tiles = problem.batch * -(-problem.m // plan.rows) * -(-problem.n // plan.columns)
        steps = problem.k * as_dtype(problem.a).itemsize // ROW_BYTES
        for parts, least in SHARED_BY:
            if tiles * parts <= MOST_SHARED and steps >= least:
                yield replace(plan, parts=parts)
        if tiles * plan.parts <= properties.cores and steps >= LEAST_STEPS:
            yield plan

    def launch(self, blueprint: ClusterSplitK, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        a, a_along_k = oriented(once(x))
        b, b_along_k = oriented(once(y).transpose(0, 2, 1))
        plan = fitted(blueprint, args, transpose_a=not a_along_k, transpose_b=not b_along_k)
        depth, tf32 = ROW_BYTES // x.itemsize, problem.a == "f32"
        batch, m, n = out.shape
        row_tiles, column_tiles = -(-m // plan.rows), -(-n // plan.columns)
        cluster_split_k_product[batch * row_tiles * column_tiles * plan.parts, plan.units](
            map_of(a, plan.rows, depth, tf32) if a_along_k else map_of(a, depth, BLOCK),
            map_of(b, plan.columns, depth, tf32) if b_along_k else map_of(b, depth, BLOCK),
            out,
            bias,
            residual,
            float(alpha),
            (row_tiles, column_tiles),
            -(-x.shape[2] // depth),
            (a.shape[0], b.shape[0]),
            plan,
            mode="unchecked",
        )
