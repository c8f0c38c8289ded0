"""The matmul of a GPU's plain arithmetic: f32 without tf32, f64, integers and mixed dtypes, of any strides.

A cube has 16 by 16 units. Each holds 4 by 4 blocks of the result in registers and reads lines of four of both
operands, which stand in shared memory with K outermost. The next stage is on its way from memory while one is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul_epilogue import Epilogue, finish_line

UNITS = 256
SIDE = 16
LANES = 4
UNROLL = 2


@dataclass(frozen=True)
class Simt(Epilogue):
    """What changes the code of the plain matmul, beside the epilogue.

    Attributes:
        dtype: of products and sums.
        rows, columns: a cube's tile, multiples of 64.
        depth: K of a stage.
        a_along_k, b_along_k: the operand's last axis is K; otherwise it is its own.
    """

    dtype: Any = cb.f32
    rows: int = 128
    columns: int = 128
    depth: int = 16
    a_along_k: bool = True
    b_along_k: bool = True


@cb.func
def tile_start(out, rows, columns):
    """Batch, row and column where this cube's tile of the result starts: tiles beside each other come first."""
    column_tiles = (out.shape[2] + columns - 1) // columns
    row_tiles = (out.shape[1] + rows - 1) // rows
    row = cb.CUBE_POS // column_tiles % row_tiles * rows
    return cb.CUBE_POS // (row_tiles * column_tiles), row, cb.CUBE_POS % column_tiles * columns


@cb.func
def place_of(turn, count, depth, along_k):
    """Which line of four this unit moves: its row and place within it."""
    n = turn * UNITS + cb.UNIT_POS
    pieces = (depth if along_k else count) // LANES
    return n // pieces, n % pieces * LANES


@cb.func
def fetch(held, source, batch, first, k, count, depth, along_k):
    """A stage of an operand from memory to registers."""
    for turn in cb.unroll(range(count * depth // LANES // UNITS)):
        line, place = place_of(turn, count, depth, along_k)
        i = (first if along_k else k) + line
        j = (k if along_k else first) + place
        left = cb.select(i < source.shape[1], cb.max(source.shape[2] - j, 0), 0)
        held[turn] = cb.cast(source.load((batch, i, j), LANES, valid=left), held.dtype)


@cb.func
def put(held, shared, at, pitch, count, depth, along_k):
    """The stage from registers to shared memory, K outermost."""
    for turn in cb.unroll(range(count * depth // LANES // UNITS)):
        line, place = place_of(turn, count, depth, along_k)
        if along_k:
            for e in cb.unroll(range(LANES)):
                shared[at + (place + e) * pitch + line] = held[turn][e]
        else:
            shared.store(at + line * pitch + place, held[turn])


@cb.kernel(fast_math=("contract", "nsz"))
def simt_product(
    a: cb.Array, b: cb.Array, out: cb.Array, bias, residual, alpha: cb.f32, steps, blueprint: cb.Comptime
):  # fmt: skip
    """out[batch] = epilogue(a[batch] @ b[batch]); operands as for `mma_product`, of any dtypes."""
    rows, columns, depth = blueprint.rows, blueprint.columns, blueprint.depth
    dtype = blueprint.dtype
    pitch_a = rows + LANES
    pitch_b = columns + LANES
    tiles_a = cb.shared(2 * depth * pitch_a, dtype)
    tiles_b = cb.shared(2 * depth * pitch_b, dtype)
    held_a = cb.local(rows * depth // LANES // UNITS, dtype, lanes=LANES)
    held_b = cb.local(columns * depth // LANES // UNITS, dtype, lanes=LANES)
    batch, row, column = tile_start(out, rows, columns)
    batch_a = cb.min(batch, a.shape[0] - 1)
    batch_b = cb.min(batch, b.shape[0] - 1)
    top = cb.UNIT_POS // SIDE * LANES
    left = cb.UNIT_POS % SIDE * LANES
    high = rows // (SIDE * LANES)
    wide = columns // (SIDE * LANES)
    acc = cb.local((high * LANES, wide), dtype, lanes=LANES)
    for i in cb.unroll(range(high * LANES)):
        for j in cb.unroll(range(wide)):
            acc[i, j] = cb.cast(cb.splat(0, LANES), dtype)
    fetch(held_a, a, batch_a, row, 0, rows, depth, blueprint.a_along_k)
    fetch(held_b, b, batch_b, column, 0, columns, depth, blueprint.b_along_k)
    for step in range(steps):
        now = step % 2
        put(held_a, tiles_a, now * depth * pitch_a, pitch_a, rows, depth, blueprint.a_along_k)
        put(held_b, tiles_b, now * depth * pitch_b, pitch_b, columns, depth, blueprint.b_along_k)
        cb.sync_cube()
        if step + 1 < steps:
            fetch(held_a, a, batch_a, row, (step + 1) * depth, rows, depth, blueprint.a_along_k)
            fetch(held_b, b, batch_b, column, (step + 1) * depth, columns, depth, blueprint.b_along_k)
        for k in range(0, depth, UNROLL):
            for u in cb.unroll(range(UNROLL)):
                at_a = (now * depth + k + u) * pitch_a + top
                at_b = (now * depth + k + u) * pitch_b + left
                for g in cb.unroll(range(high)):
                    x = tiles_a.load(at_a + g * SIDE * LANES, LANES)
                    for j in cb.unroll(range(wide)):
                        y = tiles_b.load(at_b + j * SIDE * LANES, LANES)
                        for e in cb.unroll(range(LANES)):
                            acc[g * LANES + e, j] = acc[g * LANES + e, j] + cb.splat(x[e], LANES) * y
    for i in cb.unroll(range(high * LANES)):
        for j in cb.unroll(range(wide)):
            r = row + i // LANES * SIDE * LANES + top + i % LANES
            finish_line(acc[i, j], out, bias, residual, alpha, batch, r, column + j * SIDE * LANES + left, blueprint)
