"""f32 products of a few tiles by plain arithmetic: the planes of a cube share a tile's sum over K.

As `matmul.sm90.tma_simt`, where its tiles would be fewer than a device's cores. A plane takes every
eighth stage of K into a pipeline of its own and waits for nobody; a unit holds 4 by 8 sums. At the
end the planes' sums meet in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import cubepy as cb
from cubepy.kernels.matmul.gpu.simt_costs import chosen
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.sm90.persistent import tile_position
from cubepy.kernels.matmul.sm90.tma_simt import (
    DEPTH,
    LANES,
    WIDE,
    FmaRoutine,
    TileOperands,
    lines,
    turned,
)
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.kernels.primitives.pipeline import Stage

PLANES = 8
ROW_LANES = 8
COLUMN_LANES = 4
HIGH = 4
"""Rows of a unit's sums."""
ROWS, COLUMNS = HIGH * ROW_LANES, WIDE * COLUMN_LANES


@dataclass(frozen=True)
class FmaPlanes(Epilogue):
    """What changes the code, beside the epilogue.

    Attributes:
        rows, columns: a cube's tile.
        stages: tiles of A and B that are under way for each plane.
        cubes: how many cubes a core runs at once.
        band: rows of tiles that are walked together.
        b_along_k: whether the neighbours of B lie along K; otherwise along its columns.
    """

    rows: ClassVar[int] = ROWS
    columns: ClassVar[int] = COLUMNS
    stages: int = 2
    cubes: int = 1
    band: int = 16
    b_along_k: bool = True

    @property
    def units(self) -> int:
        """Units of a cube."""
        return PLANES * 32


@cb.func
def neighbours(buffer, at, k, beside):
    """Eight columns of row k of the stage, which the copy engine's swizzle has put in two
    positions.
    """
    pick = k % 8
    one = buffer.load(at + k * COLUMNS + (2 * beside ^ pick) * LANES, LANES)
    two = buffer.load(at + k * COLUMNS + (2 * beside + 1 ^ pick) * LANES, LANES)
    return cb.concat(one, two)


@cb.kernel(fast_math=("contract", "nsz"))
def fma_planes_product(
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
    stages, size = blueprint.stages, (ROWS + COLUMNS) * DEPTH
    full = cb.barrier(PLANES * stages, 1)
    buffer = cb.shared(PLANES * max(stages * size, ROWS * COLUMNS), cb.f32)
    batch, row, column = tile_position(cb.CUBE_POS, tiles[0], tiles[1], blueprint.band)
    row = row * ROWS
    column = column * COLUMNS
    batch_a = cb.min(batch, batches[0] - 1)
    batch_b = cb.min(batch, batches[1] - 1)
    operands = TileOperands(a, b, batch_a, batch_b, row, column, blueprint)
    plane, lane = cb.PLANE_POS, cb.UNIT_POS_PLANE
    first = plane * stages
    if lane == 0:
        for s in range(stages):
            if plane + s * PLANES < steps:
                operands.load(buffer, Stage(full, None, s, 0, stages, first), plane + s * PLANES)
    top = (
        lane // 2 % 4 + lane // 16 * 4
    )  # units next to each other share a row, those two apart a column
    beside = lane % 2 + lane // 8 % 2 * 2
    left = (
        beside if blueprint.b_along_k else beside * WIDE
    )  # a unit's columns are four apart, or neighbours
    acc = cb.local(HIGH, cb.f32, lanes=WIDE)
    for i in cb.unroll(range(HIGH)):
        acc[i] = cb.splat(0.0, WIDE)
    stage = Stage(full, None, 0, 0, stages, first)
    for step in range(plane, steps, PLANES):
        stage.wait()
        at_a = (first + stage.slot) * size + top * DEPTH
        at_b = (first + stage.slot) * size + ROWS * DEPTH
        for q in range(DEPTH // LANES):
            if blueprint.b_along_k:
                near = lines(
                    buffer, at_b + left * DEPTH, left, q, WIDE // 2
                )  # of columns eight apart
                later = lines(
                    buffer, at_b + (left + COLUMN_LANES) * DEPTH, left + COLUMN_LANES, q, WIDE // 2
                )
                y = turned(
                    (near[0], later[0], near[1], later[1], near[2], later[2], near[3], later[3])
                )
            x = lines(buffer, at_a, top, q, HIGH)
            for k in cb.unroll(range(LANES)):
                if blueprint.b_along_k:
                    line = cb.slice_line(y, k * WIDE, WIDE)
                else:
                    line = neighbours(buffer, at_b, q * LANES + k, beside)
                for i in cb.unroll(range(HIGH)):
                    acc[i] = cb.fma(cb.splat(x[i][k], WIDE), line, acc[i])
        cb.sync_plane()
        if lane == 0 and step + stages * PLANES < steps:
            operands.load(buffer, stage, step + stages * PLANES)
        stage = stage.advance()
    cb.sync_cube()  # the sums go where the stages were
    for i in cb.unroll(range(HIGH)):
        for j in cb.unroll(range(WIDE)):
            at = (plane * ROWS + top + i * ROW_LANES) * COLUMNS
            here = left + j * (COLUMN_LANES if blueprint.b_along_k else 1)
            buffer[at + (here ^ (top + i * ROW_LANES) % 8 * LANES)] = acc[i][j]
    cb.sync_cube()
    for n in range(cb.UNIT_POS, ROWS * COLUMNS // LANES, blueprint.units):
        r, c = n // (COLUMNS // LANES), n % (COLUMNS // LANES) * LANES
        at = r * COLUMNS + (c ^ r % 8 * LANES)
        done = buffer.load(at, LANES)
        for p in cb.unroll(range(1, PLANES)):
            done = done + buffer.load(p * ROWS * COLUMNS + at, LANES)
        epilogue.finish_inside(done, batch, row + r, column + c)


def planes_for(problem: Product, cores: int) -> FmaPlanes:
    """How many cubes a core runs, with how many stages, for so many tiles."""
    tiles = problem.batch * -(-problem.m // ROWS) * -(-problem.n // COLUMNS)
    plan = FmaPlanes() if tiles <= cores else FmaPlanes(stages=1, cubes=2)
    return replace(plan, b_along_k=problem.layout == "columns")


class FmaPlanesRoutine(FmaRoutine):
    """f32 by plain arithmetic, with small tiles that the copy engine loads and planes that share
    K.
    """

    name, kernel = "fma_planes", fma_planes_product
    layouts = ("columns", "rows")

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Any]:
        """One tile, where the model of costs chooses it."""
        if chosen(problem, properties).routine == self.name:
            yield planes_for(problem, properties.cores)
