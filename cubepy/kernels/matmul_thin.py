"""Products of few tiles on Hopper: the cubes of a cluster share K, so that all cores bring the matrices.

A product of 64 rows has too few tiles for all cores, and a core alone cannot bring its part of the matrix at the speed
of memory. Every cube of a cluster multiplies the same tile over its own part of K; then each adds up a part of the
tile, out of the shared memory of all of them. A cube has a group of units for every 64 rows, and one plane that brings
the operands into a ring which holds much of a cube's part of K. Measured against cuBLAS in docs/design/gemm-hopper.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import cubepy as cb
from cubepy.kernels.matmul_epilogue import Epilogue, finish_line
from cubepy.kernels.matmul_ring import BLOCK, GROUP, ROW_BYTES, load_tile, stage_product
from cubepy.kernels.pipeline import Stage

PLANE = 32
PAIR = 2


@dataclass(frozen=True)
class Thin(Epilogue):
    """What changes the code of a product of few rows of tiles, beside the epilogue.

    Attributes:
        rows: rows of a tile, 64 or 128.
        columns: columns of a tile, a multiple of 16, and of four times the parts where there are several.
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


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def thin_product(
    a: cb.TensorMap, b: cb.TensorMap, out: cb.Array, bias, residual, alpha: cb.f32, row_tiles, column_tiles, steps,
    batches_a, batches_b, blueprint: cb.Comptime,
):  # fmt: skip
    """out[batch] = epilogue(a[batch] @ b[batch]); a cluster makes one tile."""
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
    pitch = columns + 8
    sums = cb.shared(rows * pitch, cb.f32)
    cb.start_next()
    cb.wait_previous()
    tile = cb.CUBE_POS // parts
    part = cb.CUBE_POS % parts
    row = tile % row_tiles * rows
    column = tile // row_tiles % column_tiles * columns
    batch = tile // (row_tiles * column_tiles)
    first = part * steps // parts
    count = (part + 1) * steps // parts - first
    stage = Stage(full, empty, 0, 0, stages)
    if cb.UNIT_POS >= workers:
        if cb.UNIT_POS == workers:
            batch_a = cb.min(batch, batches_a - 1)
            batch_b = cb.min(batch, batches_b - 1)
            for step in range(count):
                k = (first + step) * depth
                stage.acquire((rows + columns) * ROW_BYTES)
                load_tile(
                    tiles_b, stage.slot * columns * depth, b, batch_b, column, k, columns, depth,
                    blueprint.transpose_b, full, stage.slot,
                )  # fmt: skip
                load_tile(
                    tiles_a, stage.slot * rows * depth, a, batch_a, row, k, rows, depth, blueprint.transpose_a,
                    full, stage.slot,
                )  # fmt: skip
                stage = stage.commit()
    else:
        acc = cb.local(columns // PAIR, cb.f32)
        group = cb.UNIT_POS // GROUP
        for n in cb.unroll(range(columns // PAIR)):
            acc[n] = 0.0
        for _step in range(count):
            stage.wait()
            cb.wgmma_fence()
            stage_product(
                acc, tiles_a, (stage.slot * rows + group * BLOCK) * depth, tiles_b, stage.slot * columns * depth, True,
                blueprint, depth,
            )  # fmt: skip
            cb.wgmma_commit()
            cb.wgmma_wait(0)
            stage = stage.release(cb.UNIT_POS % GROUP == 0)
        cb.wgmma_wait(0, acc)
        lane = cb.UNIT_POS_PLANE
        to = (cb.PLANE_POS * 16 + lane // 4) * pitch + lane % 4 * PAIR
        for n in cb.unroll(range(columns // 8)):
            sums.store(to + n * 8, acc.load(n * 4, PAIR))
            sums.store(to + n * 8 + 8 * pitch, acc.load(n * 4 + PAIR, PAIR))
    each = columns // PAIR
    if parts > 1:
        cb.sync_cluster()
        turns = columns // (2 * PAIR * parts)
        total = cb.local(turns, cb.f32, lanes=PAIR)
        if cb.UNIT_POS < workers:
            for turn in cb.unroll(range(turns)):
                n = (part * turns + turn) * workers + cb.UNIT_POS
                at = n // each * pitch + n % each * PAIR
                total[turn] = cb.splat(0.0, PAIR)
                for rank in cb.unroll(range(parts)):
                    one = cb.splat(cb.load_cluster(sums, at, rank), 1)
                    total[turn] = total[turn] + cb.concat(
                        one, cb.splat(cb.load_cluster(sums, at + 1, rank), 1)
                    )
        cb.sync_cluster()  # before the results are stored: it would wait until all see them
        if cb.UNIT_POS < workers:
            for turn in cb.unroll(range(turns)):
                n = (part * turns + turn) * workers + cb.UNIT_POS
                finish_line(
                    total[turn], out, bias, residual, alpha, batch, row + n // each, column + n % each * PAIR, blueprint
                )  # fmt: skip
    else:
        cb.sync_cube()
        if cb.UNIT_POS < workers:
            for n in range(cb.UNIT_POS, rows * each, workers):
                r, c = n // each, n % each * PAIR
                finish_line(
                    sums.load(r * pitch + c, PAIR), out, bias, residual, alpha, batch, row + r, column + c, blueprint
                )  # fmt: skip
