"""The matmul of a GPU's plain arithmetic: f32 without tf32, f64, integers and mixed dtypes, of any
strides.

A cube has 256 units. Each holds blocks of 4 by 4 elements of the result in registers and reads
lines of four of both operands, which stand in shared memory with K outermost. The next stage is on
its way from memory while one is used. A tile of fewer blocks than a cube's units hold is shared by
teams of units: each sums its part of every stage, and their sums meet in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.operands import fitted, once, oriented
from cubepy.kernels.matmul.gpu.simt_costs import simt_tiles
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import GpuRoutine, TunedRoutine

UNITS = 256
LANES = 4
UNROLL = 2
RUN = 16
"""Neighbours along K that units beside each other move."""


@dataclass(frozen=True)
class Simt(Epilogue):
    """What changes the code of the plain matmul, beside the epilogue.

    Attributes:
        dtype: of products and sums.
        rows, columns: a cube's tile.
        depth: K of a stage.
        high, wide: blocks of four rows, and of four columns, of a unit.
        a_along_k, b_along_k: the operand's last axis is K; otherwise it is its own.
    """

    dtype: Any = cb.f32
    rows: int = 128
    columns: int = 128
    depth: int = 8
    high: int = 2
    wide: int = 2
    a_along_k: bool = True
    b_along_k: bool = True

    @property
    def across(self) -> int:
        """Units of a team beside each other."""
        return self.columns // (LANES * self.wide)

    @property
    def down(self) -> int:
        """Units of a team below each other."""
        return self.rows // (LANES * self.high)

    @property
    def teams(self) -> int:
        """Groups of units that share a tile, each with its part of K."""
        return UNITS // (self.across * self.down)

    @property
    def shared(self) -> int:
        """Elements of a cube's shared memory: two stages, and at the end what teams add up."""
        stages = 2 * self.depth * (self.rows + self.columns + 2 * LANES)
        return max(stages, 0 if self.teams == 1 else self.teams * self.rows * self.columns)


@cb.func
def tile_start(out, rows, columns, tile=None):
    """Batch, row and column where a tile of the result starts, by default this cube's: tiles beside
    each other come first.
    """
    tile = cb.CUBE_POS if tile is None else tile
    column_tiles = (out.shape[2] + columns - 1) // columns
    row_tiles = (out.shape[1] + rows - 1) // rows
    row = tile // column_tiles % row_tiles * rows
    return tile // (row_tiles * column_tiles), row, tile % column_tiles * columns


@cb.func
def line_and_offset(step, count, depth, along_k):
    """Which line of four this unit moves: its row and offset within it."""
    n = step * UNITS + cb.UNIT_POS
    if along_k:
        pieces = min(depth, RUN) // LANES
        return n // pieces % count, n // (pieces * count) * RUN + n % pieces * LANES
    return n // (count // LANES), n % (count // LANES) * LANES


@cb.func
def fetch(held, source, batch, first, k, count, depth, along_k):
    """A stage of an operand from memory to registers."""
    for step in cb.unroll(range(count * depth // LANES // UNITS)):
        line, offset = line_and_offset(step, count, depth, along_k)
        i = (first if along_k else k) + line
        j = (k if along_k else first) + offset
        left = cb.select(i < source.shape[1], cb.max(source.shape[2] - j, 0), 0)
        held[step] = cb.cast(source.load((batch, i, j), LANES, valid=left), held.dtype)


@cb.func
def put(held, shared, at, pitch, count, depth, along_k):
    """The stage from registers to shared memory, K outermost."""
    for step in cb.unroll(range(count * depth // LANES // UNITS)):
        line, offset = line_and_offset(step, count, depth, along_k)
        if along_k:
            for e in cb.unroll(range(LANES)):
                shared[at + (offset + e) * pitch + line] = held[step][e]
        else:
            shared.store(at + line * pitch + offset, held[step])


@cb.kernel(fast_math=("contract", "nsz"))
def simt_product(
    a: cb.Array,
    b: cb.Array,
    out: cb.Array,
    bias,
    residual,
    alpha: cb.f32,
    steps,
    blueprint: cb.Comptime,
):
    """out[batch] = epilogue(a[batch] @ b[batch]); operands as for `mma_product`, of any dtypes."""
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    rows, columns, depth = blueprint.rows, blueprint.columns, blueprint.depth
    dtype, across, down, teams = blueprint.dtype, blueprint.across, blueprint.down, blueprint.teams
    high, wide, team_units = blueprint.high, blueprint.wide, blueprint.across * blueprint.down
    pitch_a = rows + LANES
    pitch_b = columns + LANES
    behind = 2 * depth * pitch_a  # where the stages of b start
    tiles = cb.shared(blueprint.shared, dtype)
    held_a = cb.local(rows * depth // LANES // UNITS, dtype, lanes=LANES)
    held_b = cb.local(columns * depth // LANES // UNITS, dtype, lanes=LANES)
    batch, row, column = tile_start(out, rows, columns)
    batch_a = cb.min(batch, a.shape[0] - 1)
    batch_b = cb.min(batch, b.shape[0] - 1)
    unit = cb.UNIT_POS % team_units
    top, left = unit // across * LANES, unit % across * LANES
    part = depth // teams
    acc = cb.local((high * LANES, wide), dtype, lanes=LANES)
    for i in cb.unroll(range(high * LANES)):
        for j in cb.unroll(range(wide)):
            acc[i, j] = cb.cast(cb.splat(0, LANES), dtype)
    fetch(held_a, a, batch_a, row, 0, rows, depth, blueprint.a_along_k)
    fetch(held_b, b, batch_b, column, 0, columns, depth, blueprint.b_along_k)
    for step in range(steps):
        now = step % 2
        put(held_a, tiles, now * depth * pitch_a, pitch_a, rows, depth, blueprint.a_along_k)
        put(
            held_b,
            tiles,
            behind + now * depth * pitch_b,
            pitch_b,
            columns,
            depth,
            blueprint.b_along_k,
        )
        cb.sync_cube()
        if step + 1 < steps:
            fetch(held_a, a, batch_a, row, (step + 1) * depth, rows, depth, blueprint.a_along_k)
            fetch(
                held_b, b, batch_b, column, (step + 1) * depth, columns, depth, blueprint.b_along_k
            )
        first = now * depth + cb.UNIT_POS // team_units * part
        for k in range(0, part, UNROLL):
            for u in cb.unroll(range(UNROLL)):
                at_a = (first + k + u) * pitch_a + top
                at_b = behind + (first + k + u) * pitch_b + left
                for g in cb.unroll(range(high)):
                    x = tiles.load(at_a + g * down * LANES, LANES)
                    for j in cb.unroll(range(wide)):
                        y = tiles.load(at_b + j * across * LANES, LANES)
                        for e in cb.unroll(range(LANES)):
                            acc[g * LANES + e, j] = (
                                acc[g * LANES + e, j] + cb.splat(x[e], LANES) * y
                            )
    if teams == 1:
        for i in cb.unroll(range(high * LANES)):
            for j in cb.unroll(range(wide)):
                r, c = (
                    row + i // LANES * down * LANES + top + i % LANES,
                    column + j * across * LANES + left,
                )
                epilogue.finish_inside(acc[i, j], batch, r, c)
    else:
        lines = rows * columns // LANES
        cb.sync_cube()
        for i in cb.unroll(range(high * LANES)):
            for j in cb.unroll(range(wide)):
                line = cb.UNIT_POS // team_units * lines + (i * wide + j) * team_units + unit
                tiles.store(line * LANES, acc[i, j])
        cb.sync_cube()
        for n in range(cb.UNIT_POS, lines, UNITS):
            done = tiles.load(n * LANES, LANES)
            for t in cb.unroll(range(1, teams)):
                done = done + tiles.load((t * lines + n) * LANES, LANES)
            i, j = n // team_units // wide, n // team_units % wide
            r = row + i // LANES * down * LANES + n % team_units // across * LANES + i % LANES
            c = column + (j * across + n % team_units % across) * LANES
            epilogue.finish_inside(done, batch, r, c)


class SimtRoutine(GpuRoutine, TunedRoutine):
    """Everything else on a GPU: f32 without tf32, f64, integers, mixed dtypes."""

    name = "simt"

    def group(self, key: Product) -> int:
        """After the matrix units."""
        return 1

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Simt]:
        """Tiles by what all rounds of them cost."""
        out = result_dtype(problem)
        sums = as_dtype("f32") if out.is_float and out.bits < 64 else out

        for tile in simt_tiles(problem, properties.cores):
            plan, small = Simt(sums, *tile), sums.bits <= 32 or tile[0] * tile[1] < 128 * 128
            if small and plan.shared * sums.itemsize <= properties.max_shared_memory:
                yield plan

    def launch(self, blueprint: Simt, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        a, a_along_k = oriented(once(x))
        b, b_along_k = oriented(once(y).transpose(0, 2, 1))
        plan = fitted(blueprint, args, a_along_k=a_along_k, b_along_k=b_along_k)
        batch, m, n = out.shape
        cubes = batch * -(-m // plan.rows) * -(-n // plan.columns)
        steps = -(-x.shape[2] // plan.depth)
        simt_product[cubes, UNITS](
            a, b, out, bias, residual, float(alpha), steps, plan, mode="unchecked"
        )
