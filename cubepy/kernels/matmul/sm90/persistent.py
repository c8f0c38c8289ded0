"""The matmul for Hopper: a persistent, warp-specialised product of tiles that the copy engine
loads.

A cube has three groups of 128 units. The first loads tiles of A and B into a pipeline of stages;
the other two multiply. They take turns with whole tiles of the result (ping-pong: while one
finishes its tile, the other's products keep the matrix units busy), or share every tile, which may
then be larger and needs fewer bytes for a product. Cubes stay for the whole launch and walk over
tiles in an order that keeps a band of rows in the L2 cache. Two cubes of a cluster may have tiles
below or beside each other and bring the operand that they share once, which the cache of the whole
device feeds more easily. Measured against cuBLAS in docs/benchmarks/log/matmul-sm90.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.operands import (
    EARLY_BYTES,
    FUSED_END,
    NARROW_FLOATS,
    fitted,
    map_of,
    once,
    oriented,
)
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.matmul.sm90.epilogue import PLANE_ROWS, TileEpilogue
from cubepy.kernels.primitives.epilogue import Epilogue
from cubepy.kernels.primitives.pipeline import (
    BLOCK,
    GROUP,
    ROW_BYTES,
    consume,
    load_tile,
    pipeline_of,
    produce,
)
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.memory.spans import meet
from cubepy.tune import GpuRoutine, TunedRoutine

UNITS = 3 * GROUP
ALIGNED = 8
"""Elements of 16 bits between which the copy engine begins: elsewhere along an array's last axis it
is an illegal instruction.
"""


@dataclass(frozen=True)
class Hopper(Epilogue):
    """What changes the code of the Hopper matmul, beside the epilogue.

    Attributes:
        rows: rows of a tile, 64 or 128.
        columns: columns of a tile, a multiple of 64.
        stages: tiles of A and B that are under way.
        band: rows of tiles that are walked together.
        pingpong: the two consumers take turns with whole tiles; otherwise each does half the rows
            of every tile.
        transpose_a: A is stored (K, M), so its tiles have M innermost. 16-bit dtypes only.
        transpose_b: B is stored (K, N) as NumPy does; else (N, K), as a linear layer's weight.
        early: a launch may begin while the one before it ends.
        plain: the result's rows are not aligned, so units write it, not the copy engine: so many
            elements at once, to multiples of them (0: the copy engine does).
        down, across: cubes of a cluster, whose tiles lie below each other and share B, or beside
            each other and share A; one of both is 1.
    """

    rows: int = 128
    columns: int = 128
    stages: int = 6
    band: int = 16
    pingpong: bool = True
    transpose_a: bool = False
    transpose_b: bool = False
    early: bool = False
    plain: int = 0
    down: int = 1
    across: int = 1

    @property
    def share(self) -> int:
        """Rows of a tile that one consumer does."""
        return self.rows if self.pingpong else self.rows // 2

    @property
    def cubes(self) -> int:
        """Cubes of a cluster."""
        return self.down * self.across

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Rows and columns of a result in tiles of a cube, or of a cluster."""
        return -(-m // (self.rows * self.down)), -(-n // (self.columns * self.across))

    def last(self, m: int, n: int, again: bool = True) -> tuple[int, int]:
        """Where the last row and the last column of tiles begin.

        Tiles that would hang over lie over their neighbours and write the same numbers again: rows
        beyond an operand cost the copy engine more than rows of it. Not unless that is right
        (`again`), nor columns that units write, to multiples of some. Where neighbours in memory
        are those of a row or column of tiles, it begins at 16 bytes of them, and may hang over by
        less.
        """
        if not again:
            return m, n
        down, right = (ALIGNED if t else 1 for t in (self.transpose_a, self.transpose_b))
        row, column = max(m - self.rows, 0), max(n - self.columns, 0)
        return -(-row // down) * down, n if self.plain else -(-column // right) * right


@cb.func
def tile_position(tile, row_tiles, column_tiles, band: cb.Comptime[int]):
    """Batch, row and column of a tile: bands of `band` rows of tiles are walked column by
    column.
    """
    of_batch = row_tiles * column_tiles
    batch = tile // of_batch
    left = tile - batch * of_batch
    of_band = band * column_tiles
    index = left // of_band
    left = left - index * of_band
    here = cb.min(row_tiles - index * band, band)
    column = left // here
    return batch, index * band + left - column * here, column


@cb.struct
class TiledProduct:
    """The tiles of out[batch] = epilogue(a[batch] @ b[batch]), for the loops of the pipeline.

    `tiles` are the batches, the rows and columns of tiles (of clusters, where there are some), and
    where the last row and the last column of tiles begin; `batches` are those of a and of b,
    `count` the stages of a tile.
    """

    a: cb.TensorMap
    b: cb.TensorMap
    epilogue: TileEpilogue
    tiles: Any
    batches: Any
    count: Any
    blueprint: cb.Comptime[Hopper]

    def position(self, tile):
        """Batch, and row and column in elements."""
        blueprint = self.blueprint
        _, row_tiles, column_tiles, last_row, last_column = self.tiles
        batch, row, column = tile_position(tile, row_tiles, column_tiles, blueprint.band)
        if blueprint.down > 1:
            row = row * blueprint.down + cb.CLUSTER_POS
        if blueprint.across > 1:
            column = column * blueprint.across + cb.CLUSTER_POS
        row, column = row * blueprint.rows, column * blueprint.columns
        return batch, cb.min(row, last_row), cb.min(column, last_column)

    def steps(self, position):
        """Stages of a tile."""
        return self.count

    def load(self, pipeline, stage, position):
        """Bring a tile's stages; gives the stage after them."""
        blueprint = self.blueprint
        depth = ROW_BYTES // self.a.dtype.itemsize
        batch, row, column = position
        batch_a = cb.min(batch, self.batches[0] - 1)
        batch_b = cb.min(batch, self.batches[1] - 1)
        for step in range(self.count):
            stage.acquire()
            stage.expect((blueprint.rows + blueprint.columns) * ROW_BYTES)
            load_tile(
                pipeline.a,
                pipeline.at_a(stage),
                self.a,
                (batch_a, row, step * depth),
                blueprint.rows,
                blueprint.transpose_a,
                stage,
                blueprint.across,
            )
            load_tile(
                pipeline.b,
                pipeline.at_b(stage),
                self.b,
                (batch_b, column, step * depth),
                blueprint.columns,
                blueprint.transpose_b,
                stage,
                blueprint.down,
            )
            stage = stage.advance()
        return stage

    def begin(self, position):
        """The tile's bias."""
        if self.blueprint.bias:
            self.epilogue.load_bias(cb.UNIT_POS // GROUP - 1, position[2])

    def finish(self, acc, position, done):
        """Write this consumer's rows of a tile."""
        blueprint = self.blueprint
        batch, row, column = position
        consumer = cb.UNIT_POS // GROUP - 1
        own = 0 if blueprint.pingpong else consumer * blueprint.share  # its first row in a tile
        self.epilogue.write(acc, consumer, (batch, row + own, column), done)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def hopper_product(
    a: cb.TensorMap,
    b: cb.TensorMap,
    out,
    bias,
    residual,
    alpha: cb.f32,
    tiles,
    steps,
    batches,
    blueprint: cb.Comptime,
):
    """out[batch] = epilogue(a[batch] @ b[batch]); a launch has at most one cube for each core of
    the device.

    `tiles` are the batches, the rows and columns of tiles, and where the last ones begin; `steps`
    the stages of K; `batches` those of a and of b.
    """
    if blueprint.cubes > 1:
        cb.cluster(blueprint.cubes)
    pipeline = pipeline_of(blueprint, a.dtype, b.dtype, blueprint.cubes)
    staging = cb.shared(4 * BLOCK * ROW_BYTES // out.dtype.itemsize, out.dtype)
    arrived = cb.barrier(16, 1)
    shift = cb.shared(2 * blueprint.columns if blueprint.bias else 1, cb.f32)
    epilogue = TileEpilogue(out, bias, residual, alpha, staging, shift, arrived, blueprint)
    product = TiledProduct(a, b, epilogue, tiles, batches, steps, blueprint)
    count = tiles[0] * tiles[1] * tiles[2]
    if blueprint.early:
        cb.start_next()
        cb.wait_previous()
    if cb.UNIT_POS < GROUP:
        cb.set_registers(40 if blueprint.cubes == 1 else 56, False)
        if cb.UNIT_POS == 0:
            produce(product, pipeline, count)
    else:
        cb.set_registers(232 if blueprint.cubes == 1 else 224, True)
        sums = blueprint.share * blueprint.columns // GROUP
        acc = cb.local(sums, cb.i32 if a.dtype.is_int else cb.f32)
        consume(product, acc, pipeline, count, blueprint.pingpong)
        if cb.UNIT_POS_PLANE == 0 and not blueprint.plain:
            cb.tma_wait(0)
    if blueprint.cubes > 1:
        cb.sync_cluster()  # the others still bring tiles to this cube, and ask for its barriers


HOPPER_TILES = {
    Hopper(128, 256, 4, pingpong=False): (1.57, 0.26, 0.20),
    Hopper(128, 192, 4, pingpong=False): (1.25, 0.20, 0.20),
    Hopper(128, 128, 6): (0.87, 0.015, 0.13),
    Hopper(64, 128, 8): (0.56, 0.015, 0.22),
    Hopper(64, 64, 10): (0.34, 0.015, 0.28),
}
"""What tiles cost, in parts of a launch of one round of 128 x 128: a round of them, its end where K
is 2 KiB long, and the launch (measured on an H200).
"""
SHARED_TILES = {
    Hopper(128, 256, 4, pingpong=False, down=2): Hopper(128, 256, 4, pingpong=False),
    Hopper(128, 128, 6, across=2): Hopper(128, 128, 6),
}
"""Tiles of clusters, and what they are without one."""
LINE_BYTES = 128
SHARED_COST = {True: 0.90, False: 1.04}
"""What a round of them costs beside one without clusters, where rows of operands begin between
cache lines, so that every row of a box is parts of two of them, and where they do not.
"""


class HopperRoutine(GpuRoutine, TunedRoutine):
    """16-bit floats, 8-bit integers and tf32 by `cb.wgmma`, with operands that the copy engine can
    take.
    """

    name = "hopper"

    def group(self, key: Product) -> int:
        """Before all others where it fits."""
        return 3

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has wgmma, the dtypes are those of its matrix units, and rows are aligned."""
        if not {"wgmma", "tma"} <= properties.features:
            return "the device has no wgmma"
        out = result_dtype(problem)
        fits = (
            problem.a in NARROW_FLOATS
            and out.name in (problem.a, "f32")
            or problem.a == "i8"
            and out.name == "i32"
            or problem.a == "f32"
            and problem.tf32
        )
        if problem.a != problem.b or not fits:
            return f"matrix units do not take {problem.a} and {problem.b} for {out.name}"
        if problem.epilogue and not out.is_float:
            return "there is no epilogue for integers"
        if not problem.aligned or (problem.a == "f32" and problem.layout != "columns"):
            return (
                "the copy engine wants neighbours along K (of 16 bits: along any axis), and "
                "rows aligned to 16 bytes"
            )
        return None

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Hopper]:
        """Tiles by what all rounds of them cost."""
        size = as_dtype(problem.a).itemsize
        depth = max(problem.k, 1) * size / 2048
        rows = (problem.k, problem.n) if problem.layout == "rows" else (problem.k,)
        between = any(n * size % LINE_BYTES for n in rows)

        def cost(tile: Hopper) -> float:
            each, end, start = HOPPER_TILES[SHARED_TILES.get(tile, tile)]
            if problem.epilogue and not tile.pingpong:
                end *= FUSED_END
            if tile.cubes > 1:
                each *= SHARED_COST[between]
            tiles = problem.batch * math.prod(tile.tiles(problem.m, problem.n))
            return (each + end / depth) * -(-tiles // (properties.cores // tile.cubes)) + start

        narrow = problem.a in NARROW_FLOATS  # others were never timed
        shared = SHARED_TILES if narrow and "cluster" in properties.features else ()
        yield from sorted((*HOPPER_TILES, *shared), key=cost)

    def launch(self, blueprint: Hopper, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        a, a_along_k = oriented(once(x))
        b, b_along_k = oriented(once(y).transpose(0, 2, 1))
        early = (
            x.shape[2] * x.itemsize
            <= EARLY_BYTES[blueprint.rows < 128 or out.shape[1] <= blueprint.rows]
        )
        plan = fitted(
            blueprint, args, transpose_a=not a_along_k, transpose_b=not b_along_k, early=early
        )
        depth, width = ROW_BYTES // x.itemsize, ROW_BYTES // out.itemsize
        batch, m, n = out.shape
        row_tiles, column_tiles = plan.tiles(m, n)
        cores, tf32 = problem.properties.cores, problem.a == "f32"
        clusters = min(batch * row_tiles * column_tiles, cores // plan.cubes)
        again = residual is None or not meet(residual, out)  # it would be read overwritten
        rows, columns = plan.rows // plan.across, plan.columns // plan.down
        hopper_product[clusters * plan.cubes, UNITS](
            map_of(a, rows, depth, tf32) if a_along_k else map_of(a, depth, BLOCK),
            map_of(b, columns, depth, tf32) if b_along_k else map_of(b, depth, BLOCK),
            out if plan.plain else map_of(out, PLANE_ROWS, width),
            bias,
            None
            if residual is None
            else map_of(residual, PLANE_ROWS, ROW_BYTES // residual.itemsize),
            float(alpha),
            (batch, row_tiles, column_tiles, *plan.last(m, n, again)),
            -(-x.shape[2] // depth),
            (a.shape[0], b.shape[0]),
            plan,
            mode="unchecked",
        )
