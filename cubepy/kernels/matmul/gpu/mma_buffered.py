"""The matmul for matrix units whose fragments the device describes (`matrix_instruction`): AMD's
MFMA and WMMA. Any strides, any size.

Two stages of both operands lie in shared memory: while one is multiplied, the next is on its way to
registers, and one barrier a step is enough. A stage has 64 bytes of K of every row, in the order of
primitives/stages.py.

The product that is computed is the transposed one: a unit's sums are then neighbours along a row of
the result. Where a unit's elements are along K does not change a product, so units read 16 bytes at
once, enough for several instructions of a shorter depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.operands import copies, fitted, once, oriented
from cubepy.kernels.matmul.gpu.simt import tile_start
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.kernels.primitives.fragments import coordinates, instruction_of
from cubepy.kernels.primitives.stages import DEPTH_BYTES, PIECE, PIECES, piece_start, words_of
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import GpuRoutine, TunedRoutine


@dataclass(frozen=True)
class Buffered(Epilogue):
    """What changes the code of the double-buffered matmul, beside the epilogue.

    Attributes:
        dtype: of the elements of a and b, which the arrays hold as unsigned integers.
        side: rows and columns of an instruction.
        rows, columns: a cube's tile.
        high, wide: planes below and beside each other.
        a_along_k, b_along_k: the operand's last axis is K; otherwise it is its own (16-bit dtypes).
        a_whole, b_whole: its last axis is contiguous, aligned to 16 bytes, and a multiple of them
            long.
        k_whole: K is a multiple of a stage's.
    """

    dtype: Any = cb.f16
    side: int = 16
    rows: int = 128
    columns: int = 128
    high: int = 2
    wide: int = 2
    a_along_k: bool = True
    b_along_k: bool = True
    a_whole: bool = False
    b_whole: bool = False
    k_whole: bool = False


@cb.func
def piece_of(source, batch, i, j, along_k, whole, k_whole):
    """16 bytes of an operand; zeros beyond K. Rows and columns that are not the result's may be
    anything.
    """
    per = PIECE // source.dtype.itemsize
    rows, length = source.shape[1], source.shape[2]
    if not whole:
        left = cb.select(i < rows, cb.max(length - j, 0), 0)
        return source.load((batch, i, j), per, valid=left)
    inside = (j < length) if along_k else (i < rows)
    found = source.load((batch, cb.min(i, rows - 1), cb.select(j < length, j, 0)), per)
    if k_whole:
        return found
    words = cb.select(inside, cb.bitcast(found, cb.u32), cb.splat(cb.u32(0), PIECE // 4))
    return cb.bitcast(words, source.dtype)


@cb.func
def fetch(held, source, batch, first, k, count, along_k, whole, k_whole):
    """A stage of an operand from memory to registers: `count` of its rows from `first` on."""
    size = source.dtype.itemsize
    per = PIECE // size
    units = cb.CUBE_DIM
    if along_k:
        for step in cb.unroll(range(count * PIECES // units)):
            n = step * units + cb.UNIT_POS
            i, j = first + n // PIECES, k + n % PIECES * per
            held[step] = piece_of(source, batch, i, j, True, whole, k_whole)
    else:
        pairs = DEPTH_BYTES // size // 2
        for step in cb.unroll(range(count * PIECES // units // 2)):
            n = step * units + cb.UNIT_POS
            j = first + n // pairs * per
            for e in cb.unroll(range(2)):
                i = k + n % pairs * 2 + e
                held[step * 2 + e] = piece_of(source, batch, i, j, False, whole, k_whole)


@cb.func
def put(held, tiles, at, count, along_k):
    """The stage from registers to shared memory, every row along K."""
    size = tiles.dtype.itemsize
    per = PIECE // size
    units = cb.CUBE_DIM
    if along_k:
        for step in cb.unroll(range(count * PIECES // units)):
            n = step * units + cb.UNIT_POS
            tiles.store(at + piece_start(n // PIECES, n % PIECES, size), held[step])
    else:
        pairs = DEPTH_BYTES // size // 2
        for step in cb.unroll(range(count * PIECES // units // 2)):
            n = step * units + cb.UNIT_POS
            k = n % pairs * 2
            both = cb.interleave(held[step * 2], held[step * 2 + 1])
            for e in cb.unroll(range(per)):
                to = piece_start(n // pairs * per + e, k // per, size) + k % per
                tiles.store(at + to, cb.slice_line(both, e * 2, 2))


@cb.func
def stage_product(acc, tiles, at_a, at_b, start, shape, m, dtype):
    """acc += one stage, for a plane's part of the tile: rows and columns from `start` on."""
    for run in cb.unroll(range(runs(m))):
        run_product(acc, tiles, at_a, at_b, run, start, shape, m, dtype)


@cb.func
def runs(m):
    """How often all units together read a piece, or two, to have all of a stage."""
    return cb.comptime(PIECES // (m.depth // m.a.count * max(1, m.lengths[0] // 4)))


@cb.func
def run_product(acc, tiles, at_a, at_b, run: cb.Comptime[int], start, shape, m, dtype):
    """acc += a part of a stage, whose columns follow each other: the run-th of `runs`."""
    top, left = start
    high, wide = shape
    words, side = m.lengths[0], m.rows
    pieces = max(1, words // 4)  # that a unit reads at once
    together = max(1, 4 // words)  # instructions that they are enough for
    groups = m.depth // m.a.count  # of units with parts of the depth of their own
    row_b, k = coordinates(m.a, cb.UNIT_POS_PLANE)
    row_a = coordinates(m.b, cb.UNIT_POS_PLANE)[1]
    piece = run * groups * pieces + k // m.a.count * pieces
    b = tuple(
        words_of(tiles, at_b, left + j * side + row_b, piece, pieces)
        for j in cb.unroll(range(wide // side))
    )
    for i in cb.unroll(range(high // side)):
        a = words_of(tiles, at_a, top + i * side + row_a, piece, pieces)
        for t in cb.unroll(range(together)):
            x = cb.slice_line(a, t * words, words)
            for j in cb.unroll(range(wide // side)):
                y = cb.slice_line(b[j], t * words, words)
                acc[i, j] = cb.mma(y, x, acc[i, j], dtype)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def mma_buffered(
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
    says; both as unsigned integers that hold the elements.
    """
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    m = instruction_of(blueprint.dtype, blueprint.side)
    rows, columns = blueprint.rows, blueprint.columns
    depth = DEPTH_BYTES // a.dtype.itemsize
    span_a, span_b = rows * depth, columns * depth
    tiles = cb.shared(2 * (span_a + span_b), a.dtype)
    held_a = cb.local(rows * PIECES // cb.CUBE_DIM, a.dtype, lanes=PIECE // a.dtype.itemsize)
    held_b = cb.local(columns * PIECES // cb.CUBE_DIM, b.dtype, lanes=PIECE // b.dtype.itemsize)
    batch, row, column = tile_start(out, rows, columns)
    batch_a = cb.min(batch, a.shape[0] - 1)
    batch_b = cb.min(batch, b.shape[0] - 1)
    high, wide, side = rows // blueprint.high, columns // blueprint.wide, blueprint.side
    top = cb.PLANE_POS // blueprint.wide * high
    left = cb.PLANE_POS % blueprint.wide * wide
    sums = cb.i32 if blueprint.dtype.is_int else cb.f32
    acc = cb.local((high // side, wide // side), sums, lanes=m.c.count)
    for i in cb.unroll(range(high // side)):
        for j in cb.unroll(range(wide // side)):
            acc[i, j] = cb.cast(cb.splat(0, m.c.count), sums)
    of_a = (blueprint.a_along_k, blueprint.a_whole, blueprint.k_whole)
    of_b = (blueprint.b_along_k, blueprint.b_whole, blueprint.k_whole)
    fetch(held_a, a, batch_a, row, 0, rows, *of_a)
    fetch(held_b, b, batch_b, column, 0, columns, *of_b)
    for step in range(steps):
        at_a = step % 2 * (span_a + span_b)
        at_b = at_a + span_a
        put(held_a, tiles, at_a, rows, blueprint.a_along_k)
        put(held_b, tiles, at_b, columns, blueprint.b_along_k)
        cb.sync_cube()
        if step + 1 < steps:
            k = (step + 1) * depth
            fetch(held_a, a, batch_a, row, k, rows, *of_a)
            fetch(held_b, b, batch_b, column, k, columns, *of_b)
        stage_product(acc, tiles, at_a, at_b, (top, left), (high, wide), m, blueprint.dtype)
    of_column, of_row = coordinates(m.c, cb.UNIT_POS_PLANE)
    for i in cb.unroll(range(high // side)):
        for j in cb.unroll(range(wide // side)):
            r, c = row + top + i * side + of_row, column + left + j * side + of_column
            epilogue.finish_inside(acc[i, j], batch, r, c)


def roomy(plan: Buffered, properties: cb.DeviceProperties) -> Buffered:
    """The blueprint, with more planes where four would spill registers: fragments of eight words
    (RDNA 3) leave none for the addresses of pieces that may be cut, or lie across K.
    """
    m = properties.matrix_instruction(plan.dtype.name)
    quick = all((plan.a_along_k, plan.b_along_k, plan.a_whole, plan.b_whole, plan.k_whole))
    if m is not None and m.lengths[0] > 4 and plan.rows > 64 and not quick:
        return replace(plan, high=4)
    return plan


class BufferedRoutine(GpuRoutine, TunedRoutine):
    """16-bit floats and bytes with signs by the matrix units of AMD's GPUs, of any strides."""

    name = "mma_buffered"

    def group(self, key: Product) -> int:
        """Before plain arithmetic."""
        return 2

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has MFMA or WMMA for the dtype of both operands."""
        if not {"mfma", "wmma"} & properties.features:
            return "the device has no MFMA or WMMA"
        if problem.a != problem.b or properties.matrix_instruction(problem.a) is None:
            return f"matrix units do not take {problem.a} and {problem.b}"
        out = result_dtype(problem)
        if out.is_int and out.bits > 32:
            return "sums are in 32 bits"
        return (
            "there is no epilogue for integers" if problem.epilogue and not out.is_float else None
        )

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Buffered]:
        """Large tiles where they fill the device; small ones have 128 units on any GPU. The larger
        instruction reads less for as many products.
        """
        tiles = problem.batch * -(-problem.m // 128) * -(-problem.n // 128)
        dtype, high = as_dtype(problem.a), 64 // properties.plane_size
        side = max(m.rows for m in properties.matrix_instructions if m.dtype == problem.a)
        sizes = [Buffered(dtype, side), Buffered(dtype, side, 64, 64, high)]
        yield from sizes if tiles >= properties.cores else sizes[::-1]

    def launch(self, blueprint: Buffered, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        word = {1: "u1", 2: "u2"}[x.itemsize]
        a, b, a_along_k, b_along_k = once(x), once(y).transpose(0, 2, 1), True, True
        if x.itemsize == 2:
            (a, a_along_k), (b, b_along_k) = oriented(a), oriented(b)
        orders = {"a_along_k": a_along_k, "b_along_k": b_along_k}
        k_whole = x.shape[2] * x.itemsize % DEPTH_BYTES == 0
        whole = {"a_whole": copies(a), "b_whole": copies(b), "k_whole": k_whole}
        plan = fitted(blueprint, args, **orders, **whole)
        plan = roomy(plan, problem.properties)
        batch, m, n = out.shape
        cubes = batch * -(-m // plan.rows) * -(-n // plan.columns)
        units = plan.high * plan.wide * problem.properties.plane_size
        steps = -(-x.shape[2] // (DEPTH_BYTES // x.itemsize))
        a, b = a.view(word), b.view(word)
        mma_buffered[cubes, units](
            a, b, out, bias, residual, float(alpha), steps, plan, mode="unchecked"
        )
