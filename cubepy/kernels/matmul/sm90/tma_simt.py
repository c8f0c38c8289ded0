"""f32 products by plain arithmetic on a GPU whose copy engine loads the tiles.

Without matrix units a core's limit is what it reads from shared memory, and every instruction that
is no product. Tiles come to shared memory as they lie in memory, 32 of K at a time, and nothing
goes through registers on the way. A line that a unit reads is four of K of one row; the copy
engine's swizzle keeps lines of eight rows in different banks. A unit holds 16 by 8 sums, so it
reads one line for every 21 products. Measured against cuBLAS in docs/benchmarks/log/matmul-sm90.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import cubepy as cb
from cubepy.kernels.matmul.gpu.operands import fitted, map_of, once
from cubepy.kernels.matmul.gpu.simt_costs import chosen
from cubepy.kernels.matmul.problem import Product, is_exact_f32
from cubepy.kernels.matmul.sm90.persistent import tile_position
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.kernels.primitives.pipeline import Stage
from cubepy.tune import GpuRoutine, TunedRoutine

DEPTH = 32
"""K of a stage: 128 bytes of a row, which the copy engine swizzles."""
LANES = 4
ROW_LANES = 4
COLUMN_LANES = 8
WIDE = 8
"""Columns of a unit's sums."""


@dataclass(frozen=True)
class Fma(Epilogue):
    """What changes the code of the f32 product, beside the epilogue.

    Attributes:
        rows, columns: a cube's tile.
        high: rows of a unit's sums.
        stages: tiles of A and B that are under way.
        cubes: how many cubes a core runs at once.
        band: rows of tiles that are walked together.
        b_along_k: True: the neighbours of B lie along K.
    """

    rows: int = 128
    columns: int = 128
    high: int = 16
    stages: int = 3
    cubes: int = 2
    band: int = 16
    b_along_k: ClassVar[bool] = True

    @property
    def units(self) -> int:
        """Units of a cube."""
        return self.rows * self.columns // (self.high * WIDE)


@cb.func
def lines(buffer, at, pick, q, count):
    """Four of K, line `q` of the stage, of `count` rows that are eight apart; the first begins at
    `at`.
    """
    held = cb.local(count, cb.f32, lanes=LANES)
    here = at + (q ^ pick) * LANES
    for n in cb.unroll(range(count)):
        held[n] = buffer.load(here + 8 * n * DEPTH, LANES)
    return held


@cb.func
def turned(y):
    """Lines of K of eight columns as lines of eight columns, one K after the other."""
    one = cb.interleave(cb.interleave(y[0], y[4]), cb.interleave(y[2], y[6]))
    two = cb.interleave(cb.interleave(y[1], y[5]), cb.interleave(y[3], y[7]))
    return cb.interleave(one, two)


@cb.func
def seat(columns, high):
    """The first row and column of a unit's sums; the further ones are eight apart."""
    lane = cb.UNIT_POS_PLANE
    lane_row = (
        lane // 2 % ROW_LANES
    )  # neighbours share a row, and those two apart a column: two reads at a time
    lane_column = lane % 2 + lane // 8 * 2
    beside = columns // (COLUMN_LANES * WIDE)
    part_row = cb.PLANE_POS // beside
    top = (
        part_row // 2 * 8 * high + part_row % 2 * ROW_LANES + lane_row
    )  # two planes share every eight rows
    return top, cb.PLANE_POS % beside * COLUMN_LANES * WIDE + lane_column


@cb.func
def stage_sums(acc, buffer, at_a, at_b, pick_a, pick_b, high):
    """acc += one stage, of rows that begin at `at_a` and columns that begin at `at_b`."""
    for q in range(DEPTH // LANES):
        y = turned(lines(buffer, at_b, pick_b, q, WIDE))
        x = lines(buffer, at_a, pick_a, q, high)
        for k in cb.unroll(range(LANES)):
            line = cb.slice_line(y, k * WIDE, WIDE)
            for i in cb.unroll(range(high)):
                acc[i] = cb.fma(cb.splat(x[i][k], WIDE), line, acc[i])


@cb.struct
class TileOperands:
    """Both operands of a tile: their maps, batches, and first row and column."""

    a: cb.TensorMap
    b: cb.TensorMap
    batch_a: Any
    batch_b: Any
    row: Any
    column: Any
    blueprint: cb.Comptime[Any]

    def load(self, tiles, stage, step):
        """Start bringing a step of K into a stage of the ring `tiles`."""
        rows, columns = self.blueprint.rows, self.blueprint.columns
        slot = stage.index()
        at = slot * (rows + columns) * DEPTH
        stage.expect((rows + columns) * DEPTH * 4)
        cb.tma_load(tiles, at, self.a, (self.batch_a, self.row, step * DEPTH), stage.full, slot)
        seen = (
            (self.batch_b, self.column, step * DEPTH)
            if self.blueprint.b_along_k
            else (self.batch_b, step * DEPTH, self.column)
        )
        cb.tma_load(tiles, at + rows * DEPTH, self.b, seen, stage.full, slot)


@cb.kernel(fast_math=("contract", "nsz"))
def fma_product(
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
    """out[batch] = epilogue(a[batch] @ b[batch].T) for maps (batch, M, K) and (batch, N, K); a cube
    makes a tile. `tiles`: rows and columns of tiles; `batches`: those of a and of b.
    """
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    cb.resident(blueprint.cubes)
    rows, columns, stages, high = (
        blueprint.rows,
        blueprint.columns,
        blueprint.stages,
        blueprint.high,
    )
    full = cb.barrier(stages, 1)
    buffer = cb.shared(stages * (rows + columns) * DEPTH, cb.f32)
    batch, row, column = tile_position(cb.CUBE_POS, tiles[0], tiles[1], blueprint.band)
    row = row * rows
    column = column * columns
    batch_a = cb.min(batch, batches[0] - 1)
    batch_b = cb.min(batch, batches[1] - 1)
    operands = TileOperands(a, b, batch_a, batch_b, row, column, blueprint)
    if cb.UNIT_POS == 0:
        for s in range(cb.min(steps, stages)):
            operands.load(buffer, Stage(full, None, s, 0, stages), s)
    top, left = seat(columns, high)
    pick_a = top % 8
    pick_b = left % 8
    acc = cb.local(high, cb.f32, lanes=WIDE)
    for i in cb.unroll(range(high)):
        acc[i] = cb.splat(0.0, WIDE)
    stage = Stage(full, None, 0, 0, stages)
    for step in range(steps):
        stage.wait()
        at = stage.slot * (rows + columns) * DEPTH
        stage_sums(acc, buffer, at + top * DEPTH, at + (rows + left) * DEPTH, pick_a, pick_b, high)
        cb.sync_cube()
        if cb.UNIT_POS == 0 and step + stages < steps:
            operands.load(buffer, stage, step + stages)
        stage = stage.advance()
    # The sums go where the stages were, so that results are stored in lines.
    pitch = columns + LANES
    for i in cb.unroll(range(high)):
        for j in cb.unroll(range(WIDE)):
            buffer[top * pitch + left + (8 * i * pitch + 8 * j)] = acc[i][j]
    cb.sync_cube()
    for n in range(cb.UNIT_POS, rows * columns // LANES, blueprint.units):
        r = n // (columns // LANES)
        c = n % (columns // LANES) * LANES
        epilogue.finish_inside(buffer.load(r * pitch + c, LANES), batch, row + r, column + c)


class FmaRoutine(GpuRoutine, TunedRoutine):
    """f32 by plain arithmetic, with tiles that the copy engine loads."""

    name, kernel = "fma", fma_product
    layouts: ClassVar[tuple[str, ...]] = ("columns",)

    def group(self, key: Product) -> int:
        """Before the kernel for any strides."""
        return 2

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has a copy engine, everything is f32, and rows are aligned."""
        if "tma" not in properties.features:
            return "the device has no copy engine"
        if not is_exact_f32(problem):
            return "it takes f32 that is not to be rounded"
        if not problem.aligned or problem.layout not in self.layouts:
            return "the copy engine wants neighbours along K, and rows aligned to 16 bytes"
        return None

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Any]:
        """One tile, where the model of costs chooses it."""
        if chosen(problem, properties).routine == "fma":
            yield Fma()

    def launch(self, blueprint: Any, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        plan = fitted(blueprint, args)
        a, b = once(x), once(y).transpose(0, 2, 1) if plan.b_along_k else once(y)
        box = (plan.columns, DEPTH) if plan.b_along_k else (DEPTH, plan.columns)
        batch, m, n = out.shape
        row_tiles, column_tiles = -(-m // plan.rows), -(-n // plan.columns)
        self.kernel[batch * row_tiles * column_tiles, plan.units](
            map_of(a, plan.rows, DEPTH),
            map_of(b, *box),
            out,
            bias,
            residual,
            float(alpha),
            (row_tiles, column_tiles),
            -(-x.shape[2] // DEPTH),
            (a.shape[0], b.shape[0]),
            plan,
            mode="unchecked",
        )
