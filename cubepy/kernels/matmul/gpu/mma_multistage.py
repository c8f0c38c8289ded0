"""The matmul for matrix units that a plane drives (`cb.mma`, from sm_80 on): any strides, any size,
many dtypes.

A pipeline of stages in shared memory is filled by asynchronous copies of 16 bytes where rows are
aligned, and by ordinary loads and stores where they are not. Rows of a stage are padded by 16
bytes, so that `load_matrix` meets no bank twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.operands import (
    NARROW_FLOATS,
    aligned,
    copies,
    fitted,
    once,
    oriented,
)
from cubepy.kernels.matmul.gpu.simt import tile_start
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.kernels.primitives.lines import load_elements_inside
from cubepy.tune import GpuRoutine, TunedRoutine

UNITS = 256
PLANE, PLANES = 32, 8
PIECE = 16
"""Bytes that one copy moves, and by which rows are padded."""
DEPTH_BYTES = 64
"""Bytes of K in a stage: two matrix instructions."""


@dataclass(frozen=True)
class Mma(Epilogue):
    """What changes the code of the matmul with `cb.mma`, beside the epilogue.

    Attributes:
        rows, columns: a cube's tile; its eight planes stand two by four.
        stages: stages of the pipeline.
        a_along_k, b_along_k: the operand's last axis is K; otherwise it is its own (16-bit dtypes).
        a_async, b_async: its last axis is contiguous, aligned to 16 bytes, and a multiple of them
            long.
        staged: results of 16 bits meet in shared memory, so that a plane writes neighbours of a
            row: for rows that are not aligned.
    """

    rows: int = 128
    columns: int = 128
    stages: int = 3
    a_along_k: bool = True
    b_along_k: bool = True
    a_async: bool = False
    b_async: bool = False
    staged: bool = False


@cb.func
def pitch_of(count, depth, along_k, size):
    """Elements from one row of a stage to the next."""
    return (depth if along_k else count) + PIECE // size


@cb.func
def start_loading(shared, at, source, batch, first, k, count, depth, along_k, asynchronous):
    """Start filling a stage of an operand: `count` of its rows from `first` on, and `depth` of K
    from k on. What no copy brings is given, for `end_loading`.
    """
    size = shared.dtype.itemsize
    per = PIECE // size
    pitch = pitch_of(count, depth, along_k, size)
    width = depth if along_k else count
    pieces = width // per
    lines: Any = ()
    for step in cb.unroll(range(count * depth // per // UNITS)):
        n = step * UNITS + cb.UNIT_POS
        line = n // pieces
        offset = n % pieces * per
        i = (first if along_k else k) + line
        j = (k if along_k else first) + offset
        if asynchronous:
            inside = i < source.shape[1] and j < source.shape[2]
            to = at + line * pitch + offset
            cb.copy_async(shared, to, source, (batch, i, j), PIECE, inside)
        else:
            lines = lines + (load_elements_inside(source, batch, i, j, per),)
    return lines


@cb.func
def end_loading(shared, at, lines, count, depth, along_k):
    """Put lines that `start_loading` gave into their stage."""
    size = shared.dtype.itemsize
    per = PIECE // size
    pitch = pitch_of(count, depth, along_k, size)
    pieces = (depth if along_k else count) // per
    for step in cb.unroll(range(len(lines))):
        n = step * UNITS + cb.UNIT_POS
        shared.store(at + n // pieces * pitch + n % pieces * per, lines[step])


@cb.func
def fragment(shared, at, row, k, pitch, along_k, of_a):
    """Four 8x8 tiles (of 16-bit elements) of an operand: 16 rows of A or columns of B, and 32 bytes
    of K.
    """
    lane = cb.UNIT_POS_PLANE
    half = PIECE // shared.dtype.itemsize
    low = lane // 8 % 2
    high = lane // 16
    of_row = (low if of_a else high) * 8 + lane % 8
    of_k = (high if of_a else low) * half
    if along_k:
        found = cb.load_matrix(shared, at + (row + of_row) * pitch + k + of_k, 4)
        if shared.dtype.itemsize == 4:  # matrix units would cut off what tf32 does not hold
            found = cb.pack(cb.unpack(found, shared.dtype), shared.dtype)
        return found
    of_row = (low if of_a else high) * 8
    of_k = (high if of_a else low) * 8 + lane % 8
    return cb.load_matrix(shared, at + (k + of_k) * pitch + row + of_row, 4, transpose=True)


@cb.func
def stage_product(acc, tiles_a, at_a, tiles_b, at_b, start, shape, depth, blueprint):
    """acc += one stage, for a plane's part of the tile: rows and columns from `start` on."""
    top, left = start
    high, wide = shape
    size = tiles_a.dtype.itemsize
    pitch_a = pitch_of(blueprint.rows, depth, blueprint.a_along_k, size)
    pitch_b = pitch_of(blueprint.columns, depth, blueprint.b_along_k, size)
    for k in cb.unroll(range(0, depth, 32 // size)):
        b = tuple(
            fragment(tiles_b, at_b, left + j * 16, k, pitch_b, blueprint.b_along_k, False)
            for j in cb.unroll(range(wide // 16))
        )
        for i in cb.unroll(range(high // 16)):
            a = fragment(tiles_a, at_a, top + i * 16, k, pitch_a, blueprint.a_along_k, True)
            for j in cb.unroll(range(wide // 8)):
                pair = cb.slice_line(b[j // 2], j % 2 * 2, 2)
                acc[i, j] = cb.mma(a, pair, acc[i, j], tiles_a.dtype)


@cb.func
def stage_result(acc, staged, epilogue, start, left, shape):
    """What becomes of a plane's sums to shared memory; the half of a tile that its planes have
    begins at `start`, the plane's columns are `left` behind that.
    """
    batch, row, column = start
    high, wide = shape
    lane = cb.UNIT_POS_PLANE
    pitch = 4 * wide + PIECE // staged.dtype.itemsize
    for i in cb.unroll(range(high // 16)):
        for j in cb.unroll(range(wide // 8)):
            for half in cb.unroll(range(2)):
                r, c = i * 16 + half * 8 + lane // 4, left + j * 8 + lane % 4 * 2
                inside = cb.max(epilogue.out.shape[2] - column - c, 0)
                inside = cb.select(row + r < epilogue.out.shape[1], inside, 0)
                sums = cb.slice_line(acc[i, j], 2 * half, 2)
                value = epilogue.value(sums, (batch, row + r, column + c), inside)
                staged.store(r * pitch + c, cb.cast(value, staged.dtype))


@cb.func
def write_rows(out, staged, batch, row, column, high, columns):
    """A half of a tile from shared memory to the result: a plane has every fourth row."""
    pitch = columns + PIECE // staged.dtype.itemsize
    for i in range(cb.PLANE_POS % 4, cb.min(high, out.shape[1] - row), 4):
        for j in cb.unroll(range(0, columns, PLANE)):
            c = j + cb.UNIT_POS_PLANE
            if column + c < out.shape[2]:
                out[batch, row + i, column + c] = staged[i * pitch + c]


@cb.func
def finish_tile(acc, tiles_a, tiles_b, epilogue, start, part, blueprint):
    """What becomes of a tile that begins at `start` (batch, row, column): a plane has the rows and
    columns from the first two of `part` on, as many as the others.
    """
    batch, row, column = start
    top, left, high, wide = part
    if blueprint.staged:
        cb.copy_async_wait(0)  # of a short K, stages behind it are still filled
        cb.sync_cube()  # the last stage is read
        if cb.PLANE_POS < PLANES // 2:
            stage_result(acc, tiles_a, epilogue, (batch, row + top, column), left, (high, wide))
        else:
            stage_result(acc, tiles_b, epilogue, (batch, row + top, column), left, (high, wide))
        cb.sync_cube()
        if cb.PLANE_POS < PLANES // 2:
            write_rows(epilogue.out, tiles_a, batch, row + top, column, high, blueprint.columns)
        else:
            write_rows(epilogue.out, tiles_b, batch, row + top, column, high, blueprint.columns)
    else:
        lane = cb.UNIT_POS_PLANE
        for i in cb.unroll(range(high // 16)):
            for j in cb.unroll(range(wide // 8)):
                r = row + top + i * 16 + lane // 4
                c = column + left + j * 8 + lane % 4 * 2
                epilogue.finish_inside(cb.slice_line(acc[i, j], 0, 2), batch, r, c)
                epilogue.finish_inside(cb.slice_line(acc[i, j], 2, 2), batch, r + 8, c)


@cb.func
def room_for(span, blueprint, size):
    """Elements of all stages of an operand, where half of a result that is staged fits, too."""
    staged = blueprint.rows // 2 * (blueprint.columns + PIECE // size) if blueprint.staged else 0
    return max(blueprint.stages * span, staged)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def mma_product(
    a: cb.Array,
    b: cb.Array,
    out: cb.Array,
    bias,
    residual,
    alpha: cb.f32,
    steps,
    blueprint: cb.Comptime,
):
    """out[batch] = epilogue(a[batch] @ b[batch]), one cube for each tile.

    a is (batches or 1, M, K) or (.., K, M), b (batches or 1, N, K) or (.., K, N), as the blueprint
    says.
    """
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    rows, columns, stages = blueprint.rows, blueprint.columns, blueprint.stages
    size = a.dtype.itemsize
    depth = DEPTH_BYTES // size
    span_a = (rows if blueprint.a_along_k else depth) * pitch_of(
        rows, depth, blueprint.a_along_k, size
    )
    span_b = (columns if blueprint.b_along_k else depth) * pitch_of(
        columns, depth, blueprint.b_along_k, size
    )
    tiles_a = cb.shared(room_for(span_a, blueprint, size), a.dtype)
    tiles_b = cb.shared(room_for(span_b, blueprint, size), b.dtype)
    batch, row, column = tile_start(out, rows, columns)
    batch_a = cb.min(batch, a.shape[0] - 1)
    batch_b = cb.min(batch, b.shape[0] - 1)
    high = rows // 2
    wide = columns // 4
    top = cb.PLANE_POS // 4 * high
    left = cb.PLANE_POS % 4 * wide
    sums = cb.i32 if a.dtype.is_int else cb.f32
    acc = cb.local((high // 16, wide // 8), sums, lanes=4)
    for i in cb.unroll(range(high // 16)):
        for j in cb.unroll(range(wide // 8)):
            acc[i, j] = cb.cast(cb.splat(0, 4), sums)
    how_a = rows, depth, blueprint.a_along_k
    how_b = columns, depth, blueprint.b_along_k
    asked_a, asked_b = blueprint.a_async, blueprint.b_async
    for step in cb.unroll(range(max(1, stages - 1))):
        k = step * depth
        lines_a = start_loading(tiles_a, step * span_a, a, batch_a, row, k, *how_a, asked_a)
        lines_b = start_loading(tiles_b, step * span_b, b, batch_b, column, k, *how_b, asked_b)
        end_loading(tiles_a, step * span_a, lines_a, *how_a)
        end_loading(tiles_b, step * span_b, lines_b, *how_b)
        cb.copy_async_commit()
    if stages == 1:
        cb.copy_async_wait(0)
        cb.sync_cube()
        stage_product(acc, tiles_a, 0, tiles_b, 0, (top, left), (high, wide), depth, blueprint)
    # what no copy brings is on its way to registers while a stage is multiplied
    filling = cb.max(steps - stages + 1, 0) if stages > 1 else 0
    for step in range(filling):
        cb.copy_async_wait(stages - 2)
        cb.sync_cube()
        ahead, now = step + stages - 1, step % stages
        to_a, to_b, k = ahead % stages * span_a, ahead % stages * span_b, ahead * depth
        at_a, at_b = now * span_a, now * span_b
        start, shape = (top, left), (high, wide)
        lines_a = start_loading(tiles_a, to_a, a, batch_a, row, k, *how_a, asked_a)
        lines_b = start_loading(tiles_b, to_b, b, batch_b, column, k, *how_b, asked_b)
        cb.copy_async_commit()
        stage_product(acc, tiles_a, at_a, tiles_b, at_b, start, shape, depth, blueprint)
        end_loading(tiles_a, to_a, lines_a, *how_a)
        end_loading(tiles_b, to_b, lines_b, *how_b)
    for step in range(filling, steps if stages > 1 else 0):
        cb.copy_async_commit()
        cb.copy_async_wait(stages - 2)
        cb.sync_cube()
        at_a, at_b = step % stages * span_a, step % stages * span_b
        start, shape = (top, left), (high, wide)
        stage_product(acc, tiles_a, at_a, tiles_b, at_b, start, shape, depth, blueprint)
    part = top, left, high, wide
    finish_tile(acc, tiles_a, tiles_b, epilogue, (batch, row, column), part, blueprint)


def stages_for(most: int, steps: int) -> int:
    """Stages of a pipeline, up to so many, that so many steps fill: one is no pipeline."""
    return min(most, steps + 1) if steps > 1 else 1


class MmaRoutine(GpuRoutine, TunedRoutine):
    """16-bit floats, 8-bit integers and tf32 by `cb.mma`, of any strides."""

    name = "mma"

    def group(self, key: Product) -> int:
        """After wgmma, before plain arithmetic."""
        return 2

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has mma, and both operands have one of its dtypes."""
        if not {"mma", "copy_async"} <= properties.features:
            return "the device has no matrix units"
        fits = (
            problem.a in NARROW_FLOATS
            or problem.a in ("i8", "u8")
            or (problem.a == "f32" and problem.tf32)
        )
        if problem.a != problem.b or not fits:
            return f"matrix units do not take {problem.a} and {problem.b}"
        out = result_dtype(problem)
        if out.is_int and out.bits > 32:
            return "sums are in 32 bits"
        return (
            "there is no epilogue for integers" if problem.epilogue and not out.is_float else None
        )

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Mma]:
        """Large tiles where they fill the device."""
        tiles = problem.batch * -(-problem.m // 128) * -(-problem.n // 128)
        sizes = [Mma(128, 128, 3), Mma(64, 64, 4)]
        yield from sizes if tiles >= properties.cores else sizes[::-1]

    def launch(self, blueprint: Mma, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        narrow = x.itemsize == 2
        a, a_along_k = oriented(once(x)) if narrow else (once(x), True)
        b, b_along_k = (
            oriented(once(y).transpose(0, 2, 1)) if narrow else (once(y).transpose(0, 2, 1), True)
        )
        plan = fitted(
            blueprint,
            args,
            a_along_k=a_along_k,
            b_along_k=b_along_k,
            a_async=copies(a),
            b_async=copies(b),
            staged=narrow and out.dtype == x.dtype and not aligned(out),
        )
        batch, m, n = out.shape
        cubes = batch * -(-m // plan.rows) * -(-n // plan.columns)
        steps = -(-x.shape[2] // (DEPTH_BYTES // x.itemsize))
        plan = replace(plan, stages=stages_for(plan.stages, steps))
        mma_product[cubes, UNITS](
            a, b, out, bias, residual, float(alpha), steps, plan, mode="unchecked"
        )
