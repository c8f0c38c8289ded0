"""The matmul for Hopper: a persistent, warp-specialised product of tiles that the copy engine
brings.

A cube has three groups of 128 units. The first brings tiles of A and B into a ring of stages; the
other two multiply. They take turns with whole tiles of the result (ping-pong: while one finishes
its tile, the other's products keep the matrix units busy), or share every tile, which may then be
larger and needs fewer bytes for a product. Cubes stay for the whole launch and walk over tiles in
an order that keeps a band of rows in the L2 cache. Measured against cuBLAS in
docs/benchmarks/log/matmul-sm90.md.
"""

from __future__ import annotations

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
from cubepy.kernels.primitives.epilogue import Epilogue
from cubepy.kernels.primitives.pipeline import (
    BLOCK,
    GROUP,
    ROW_BYTES,
    load_tile,
    multiply_tile,
    next_slot,
    ring_of,
    skip_slots,
)
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import TunedRoutine

UNITS = 3 * GROUP
PLANE_ROWS = 16
"""Rows of the result that a plane holds of each instruction."""


@dataclass(frozen=True)
class Hopper(Epilogue):
    """What changes the code of the Hopper matmul, beside the epilogue.

    Attributes: rows: rows of a tile, 64 or 128. columns: columns of a tile, a multiple of 64.
        stages: tiles of A and B that are under way. band: rows of tiles that are walked together.
        turns: the two consumers take turns with whole tiles; otherwise each does half the rows of
        every tile. transpose_a: A is stored (K, M), so its tiles have M innermost. 16-bit dtypes
        only. transpose_b: B is stored (K, N) as NumPy does; else (N, K), as a linear layer's
        weight. early: a launch may begin while the one before it ends. plain: the result's rows are
        not aligned, so units write it, not the copy engine: so many elements at once, to multiples
        of them (0: the copy engine does).
    """

    rows: int = 128
    columns: int = 128
    stages: int = 6
    band: int = 16
    turns: bool = True
    transpose_a: bool = False
    transpose_b: bool = False
    early: bool = False
    plain: int = 0

    @property
    def share(self) -> int:
        """Rows of a tile that one consumer does."""
        return self.rows if self.turns else self.rows // 2


@cb.func
def tile_place(tile, row_tiles, column_tiles, band: cb.Comptime[int]):
    """Batch, row and column of a tile: bands of `band` rows of tiles are walked column by column."""
    of_batch = row_tiles * column_tiles
    batch = tile // of_batch
    left = tile - batch * of_batch
    of_band = band * column_tiles
    index = left // of_band
    left = left - index * of_band
    here = cb.min(row_tiles - index * band, band)
    column = left // here
    return batch, index * band + left - column * here, column


@cb.func
def box_place(n, consumer, plane, width, boxes):
    """Where a plane's box `n` stands: rows down and columns right in its tile, its buffer, and that
    one's start.
    """
    buffer = (consumer * 2 + n % 2) * 4 + plane
    return n // boxes * BLOCK, n % boxes * width, buffer, buffer * PLANE_ROWS * width


@cb.func
def write_tile(
    acc,
    staging,
    shift,
    consumer,
    out,
    residual,
    arrived,
    done,
    alpha,
    batch,
    row,
    column,
    blueprint,
):
    """The epilogue, box by box of 16 rows a plane: from registers to shared memory, in the order
    that the copy engine swizzles, and from there by the copy engine. Two buffers take turns.

    A residual comes the opposite way: its box is brought to where the result's box will stand.
        `done` counts the
    tiles that this consumer wrote before; it says the parity of `arrived`.
    """
    lane = cb.UNIT_POS_PLANE
    plane = cb.PLANE_POS % 4
    width = ROW_BYTES // staging.dtype.itemsize
    boxes = blueprint.columns // width
    count = blueprint.share // BLOCK * boxes
    top = row + plane * PLANE_ROWS
    if blueprint.residual:
        if blueprint.plain:
            cb.fence_async()
            cb.sync_plane()
        if lane == 0:
            cb.tma_wait(0)
            for n in cb.unroll(range(min(2, count))):
                bring_residual(
                    staging, consumer, plane, residual, arrived, batch, top, column, n, width, boxes
                )
    for n in cb.unroll(range(count)):
        down, right, buffer, at = box_place(n, consumer, plane, width, boxes)
        if blueprint.residual:
            cb.barrier_wait(arrived, buffer, (done * ((count + 1 - n % 2) // 2) + n // 2) % 2)
        elif blueprint.plain:
            cb.sync_plane()
        else:
            if (
                lane == 0
            ):  # an odd number of boxes gives the last and the next first one the same buffer
                cb.tma_wait(1 - count % 2)
            cb.sync_plane()
        for j in cb.unroll(range(width // 16)):
            left = right + j * 16
            first = (down * blueprint.columns // BLOCK + left) // 2
            place = consumer * blueprint.columns + left
            stage_fragment(acc, first, staging, at, j, lane, shift, place, alpha, blueprint, width)
        if blueprint.plain:
            cb.sync_plane()
            write_box(staging, at, out, batch, top + down, column + right, lane, width, blueprint)
            if blueprint.residual and n + 2 < count:
                cb.fence_async()
                cb.sync_plane()
                if lane == 0:
                    bring_residual(
                        staging,
                        consumer,
                        plane,
                        residual,
                        arrived,
                        batch,
                        top,
                        column,
                        n + 2,
                        width,
                        boxes,
                    )
        else:
            cb.fence_async()
            cb.sync_plane()
            if lane == 0:
                cb.tma_store(out, (batch, top + down, column + right), staging, at)
                cb.tma_commit()
                if blueprint.residual and n + 2 < count:
                    cb.tma_wait(0)
                    bring_residual(
                        staging,
                        consumer,
                        plane,
                        residual,
                        arrived,
                        batch,
                        top,
                        column,
                        n + 2,
                        width,
                        boxes,
                    )


@cb.func
def write_box(staging, at, out, batch, row, column, lane, width, blueprint):
    """16 rows of a box from shared memory, where they are swizzled, to rows of any alignment."""
    per = blueprint.plain
    block = 16 // staging.dtype.itemsize
    for r in cb.unroll(range(PLANE_ROWS)):
        if row + r < out.shape[1]:
            for place in cb.unroll(range(0, width, per * cb.PLANE_DIM)):
                k = place + lane * per
                value = staging.load(
                    at + r * width + (k // block ^ (r % 8)) * block + k % block, per
                )
                out.store((batch, row + r, column + k), value, valid=out.shape[2] - column - k)


@cb.func
def bring_bias(shift, bias, consumer, column, columns):
    """The tile's part of the bias to shared memory; called before the products, which hide its way."""
    cb.sync_group(consumer + 1, GROUP)
    for k in range(cb.UNIT_POS % GROUP, columns, GROUP):
        value = 0.0
        if column + k < bias.shape[0]:
            value = cb.cast(bias[column + k], cb.f32)
        shift[consumer * columns + k] = value
    cb.sync_group(consumer + 1, GROUP)


@cb.func
def bring_residual(
    staging, consumer, plane, residual, arrived, batch, top, column, n, width, boxes
):
    """Start bringing box `n` of the residual."""
    down, right, buffer, at = box_place(n, consumer, plane, width, boxes)
    cb.barrier_expect(arrived, buffer, PLANE_ROWS * ROW_BYTES)
    cb.tma_load(staging, at, residual, (batch, top + down, column + right), arrived, buffer)


@cb.func
def stage_fragment(acc, first, staging, at, j, lane, shift, left, alpha, blueprint, width):
    """16 rows by 16 columns, eight elements a unit, to their swizzled place in shared memory: pairs
    in rows r and r + 8 at one column, then the same 8 columns on, as matrix units lay them out.
    """
    value = acc.load(first, 8)
    if blueprint.scaled:
        value = value * alpha
    if blueprint.bias:
        one = shift.load(left + lane % 4 * 2, 2)
        two = shift.load(left + lane % 4 * 2 + 8, 2)
        value = value + cb.concat(cb.concat(one, one), cb.concat(two, two))
    if blueprint.activation is not None:
        value = blueprint.activation(value)
    if staging.dtype.itemsize == 2:
        place = at + lane % 16 * width + ((2 * j + lane // 16) ^ (lane % 8)) * 8
        if blueprint.residual:
            value = value + cb.unpack(cb.load_matrix(staging, place, 4), staging.dtype)
        cb.store_matrix(staging, place, cb.pack(value, staging.dtype))
    else:
        for piece in cb.unroll(range(4)):
            block = 4 * j + piece // 2 * 2 + lane % 4 // 2
            place = (
                at + (lane // 4 + piece % 2 * 8) * width + (block ^ (lane // 4)) * 4 + lane % 2 * 2
            )
            pair = cb.slice_line(value, 2 * piece, 2)
            if blueprint.residual:
                pair = pair + staging.load(place, 2)
            staging.store(place, cb.cast(pair, staging.dtype))


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def hopper_product(
    a: cb.TensorMap, b: cb.TensorMap, out, bias, residual, alpha: cb.f32, batches, row_tiles,
    column_tiles, steps, batches_a, batches_b, blueprint: cb.Comptime,
):  # fmt: skip
    """out[batch] = epilogue(a[batch] @ b[batch]); a launch has at most one cube for each core of
    the device.
    """
    rows, columns, stages, share = (
        blueprint.rows,
        blueprint.columns,
        blueprint.stages,
        blueprint.share,
    )
    depth = ROW_BYTES // a.dtype.itemsize
    ring = ring_of(blueprint, a.dtype, b.dtype)
    full, empty, _order, tiles_a, tiles_b = ring
    staging = cb.shared(4 * BLOCK * ROW_BYTES // out.dtype.itemsize, out.dtype)
    arrived = cb.barrier(16, 1)
    shift = cb.shared(2 * columns if blueprint.bias else 1, cb.f32)
    tiles = batches * row_tiles * column_tiles
    if blueprint.early:
        cb.start_next()
        cb.wait_previous()
    slot = 0
    phase = 0
    tile = cb.CUBE_POS
    if cb.UNIT_POS < GROUP:
        cb.set_registers(40, False)
        if cb.UNIT_POS == 0:
            while tile < tiles:
                batch, row, column = tile_place(tile, row_tiles, column_tiles, blueprint.band)
                batch_a = cb.min(batch, batches_a - 1)
                batch_b = cb.min(batch, batches_b - 1)
                for step in range(steps):
                    cb.barrier_wait(empty, slot, 1 - phase)
                    cb.barrier_expect(full, slot, (rows + columns) * ROW_BYTES)
                    load_tile(
                        tiles_a, slot * rows * depth, a, batch_a, row * rows, step * depth, rows, depth,
                        blueprint.transpose_a, full, slot,
                    )  # fmt: skip
                    load_tile(
                        tiles_b, slot * columns * depth, b, batch_b, column * columns, step * depth, columns, depth,
                        blueprint.transpose_b, full, slot,
                    )  # fmt: skip
                    slot, phase = next_slot(slot, phase, stages)
                tile = tile + cb.CUBE_COUNT
    else:
        cb.set_registers(232, True)
        acc = cb.local(share * columns // GROUP, cb.i32 if a.dtype.is_int else cb.f32)
        consumer = cb.UNIT_POS // GROUP - 1
        own = 0 if blueprint.turns else consumer * share  # its first row in a tile
        mine = consumer
        turn = 1 - consumer
        done = 0
        while tile < tiles:
            if blueprint.turns and mine != 0:  # the other's tile: its stages go by
                slot, phase = skip_slots(slot, phase, steps, stages)
            else:
                batch, row, column = tile_place(tile, row_tiles, column_tiles, blueprint.band)
                if blueprint.bias:
                    bring_bias(shift, bias, consumer, column * columns, columns)
                slot, phase = multiply_tile(
                    acc, ring, slot, phase, turn, steps, blueprint, blueprint.turns
                )
                turn = 1 - turn
                write_tile(
                    acc, staging, shift, consumer, out, residual, arrived, done, alpha, batch, row * rows + own,
                    column * columns, blueprint,
                )  # fmt: skip
                done = done + 1
            mine = 1 - mine
            tile = tile + cb.CUBE_COUNT
        if cb.UNIT_POS_PLANE == 0 and not blueprint.plain:
            cb.tma_wait(0)


HOPPER_TILES = {
    Hopper(128, 256, 4, turns=False): (1.57, 0.26, 0.20), Hopper(128, 128, 6): (0.87, 0.015, 0.13),
    Hopper(64, 128, 8): (0.48, 0.015, 0.22), Hopper(64, 64, 10): (0.34, 0.015, 0.28),
}  # fmt: skip
"""What tiles cost, in parts of a launch of one round of 128 x 128: a round of them, its end where K
is 2 KiB long, and the launch (measured on an H200).
"""


class HopperRoutine(TunedRoutine):
    """16-bit floats, 8-bit integers and tf32 by `cb.wgmma`, with operands that the copy engine can
    take.
    """

    name = "hopper"

    def group(self, key: Product) -> int:
        """Before all others where it fits."""
        return 3

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has wgmma, the dtypes are those of its matrix units, and rows are aligned."""
        if not {"wgmma", "tma"} <= properties.features:
            return "the device has no wgmma"
        out = result_dtype(problem)
        fits = (
            problem.a in NARROW_FLOATS and out.name in (problem.a, "f32")
            or problem.a == "i8" and out.name == "i32"
            or problem.a == "f32" and problem.tf32
        )  # fmt: skip
        if problem.a != problem.b or not fits:
            return f"matrix units do not take {problem.a} and {problem.b} for {out.name}"
        if problem.epilogue and not out.is_float:
            return "there is no epilogue for integers"
        if not problem.aligned or (problem.a == "f32" and problem.layout != "columns"):
            return "the copy engine wants neighbours along K (of 16 bits: along any axis), and rows aligned to 16 bytes"
        return None

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Hopper]:
        """Tiles by what all rounds of them cost."""
        depth = max(problem.k, 1) * as_dtype(problem.a).itemsize / 2048

        def cost(tile: Hopper) -> float:
            each, end, start = HOPPER_TILES[tile]
            if problem.epilogue and not tile.turns:
                end *= FUSED_END
            tiles = problem.batch * -(-problem.m // tile.rows) * -(-problem.n // tile.columns)
            return (each + end / depth) * -(-tiles // properties.cores) + start

        yield from sorted(HOPPER_TILES, key=cost)

    def launch(self, blueprint: Hopper, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha = args
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
        row_tiles, column_tiles = -(-m // plan.rows), -(-n // plan.columns)
        cores, tf32 = cb.device_properties_of().cores, problem.a == "f32"
        hopper_product[min(batch * row_tiles * column_tiles, cores), UNITS](
            map_of(a, plan.rows, depth, tf32) if a_along_k else map_of(a, depth, BLOCK),
            map_of(b, plan.columns, depth, tf32) if b_along_k else map_of(b, depth, BLOCK),
            out if plan.plain else map_of(out, PLANE_ROWS, width), bias,
            None if residual is None else map_of(residual, PLANE_ROWS, ROW_BYTES // residual.itemsize),
            float(alpha), batch, row_tiles, column_tiles, -(-x.shape[2] // depth), a.shape[0], b.shape[0], plan,
            mode="unchecked",
        )  # fmt: skip
