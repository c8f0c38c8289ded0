"""Tiles and blocks of the products on a CPU, from the problem's sizes and the caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.cpu.goto import DEEP, MOST_TILES
from cubepy.kernels.matmul.cpu.packing_on_stack import PER_WORD
from cubepy.kernels.matmul.problem import Product, result_dtype

DEPTH = 256  # of a piece: 32 columns of it fill the first-level cache
DEEPEST = 2048  # of a piece on the stack, half of the second-level cache
FEW = 128  # rows with which packing b takes longer than multiplying
MEMORY_BOUND = 32  # rows with which reading b from memory takes about as long as multiplying
MIDDLE = 1 << 24  # bytes of b that caches may hold between two products
BLOCK = 512  # rows of a cube: enough to pay for packing, and A stays in the second-level cache
NARROW = 120
"""Rows of a cube that makes whole rows of the result: A stays near beside all panels of b
in turn.
"""
LINE = 64  # bytes of a line of the caches
SHALLOW = 64  # words along K with which a matrix unit takes less time than writing its sums
NEAR = 1 << 19  # bytes of b, packed, that stay in the second-level cache beside a's rows
ALONE = 1 << 18  # products of numbers or words that one core does before another has begun
PANELS = 16  # of b that share rows of a which are copied
SHORT = 16  # of K: copies of shorter rows are no shorter than what they are read for
WORTH = 3 << 25  # products of numbers beside which packing b beforehand takes no time
HELD = 1 << 21  # numbers of a piece of b that the last cache holds between packing and multiplying
SMALL = 1 << 16
"""Bytes of a matrix that needs no packing, since the nearest caches hold it as it is; half
with AVX2.
"""


@dataclass(frozen=True)
class TilePlan:
    """What changes the code and the launch of a tiled product.

    Attributes:
        rows, lines, lanes: the register tile, rows x (lines x lanes).
        block_rows, block_panels: tiles of a cube along M, at most, and panels along N.
        depth: K is walked in pieces of this length, 0 for all at once.
        kind: what sums are made of (see `matmul.cpu.vnni`).
        wide: panels that are packed at a time.
        beforehand: whether all of b is packed first.
        matrix: whether a matrix unit multiplies.
        ahead: whether panels that are there already are asked for a piece ahead.
        fetched: whether the part of the result that a tile writes is asked for when the tile
            begins.
        gathered: whether cubes copy their rows of a beside each other (see `matmul.cpu.goto`).
    """

    rows: int
    lines: int
    lanes: int
    block_rows: int
    block_panels: int
    depth: int
    kind: str = "f32"
    beforehand: bool = False
    wide: int = 1
    matrix: bool = False
    ahead: bool = False
    fetched: bool = False
    packs_a: bool = False


@cache
def tile_of(p: cb.DeviceProperties, kind: str = "f32") -> tuple[int, int, int]:
    """Rows, lines and lanes of the register tile for a device."""
    lanes = p.register_bytes // 4
    if kind == "i8":  # LLVM moves broadcasts of bytes up, which then need registers
        return (4, 4 if p.vector_registers >= 32 else 2, lanes)
    return (6, 4 if p.vector_registers >= 32 else 2, lanes)


def tile_of_few(problem: Product, lanes: int) -> tuple[int, int]:
    """Rows and lines of a tile for few rows, with 16 registers: tiles of six make 36 of 32.

    Four rows of two lines are just as many sums as are under way at a time, so that multipliers
    wait now and then.
    """
    tiles = {(6, 2): 1.0, (4, 2): 1.06} if problem.packed else {(6, 2): 1.0, (4, 3): 1.05}
    if 1 < problem.m < 6:  # a tile that is taller makes one row after the other
        tiles = {(problem.m, 2): 1.0}

    def cost(tile: tuple[int, int]) -> float:
        rows, width = tile[0], tile[1] * lanes
        return tiles[tile] * -(-problem.m // rows) * rows * -(-problem.n // width) * width

    return min(tiles, key=cost)


TILES = {(6, 4): 1.0, (8, 3): 1.02, (12, 2): 1.04}
"""Register tiles with 32 registers, rows and lines, and what a product of numbers takes in them
(measured with AVX-512)."""


def tile_of_width(problem: Product, lanes: int) -> tuple[int, int]:
    """Rows and lines of a tile with 32 registers, by how many columns it makes beside those of the
    result: of 24, a tile of four lines makes 64.
    """

    def cost(tile: tuple[int, int]) -> float:
        rows, width = tile[0], tile[1] * lanes
        return TILES[tile] * -(-problem.m // rows) * rows * -(-problem.n // width) * width

    fitting = [tile for tile in TILES if tile == (6, 4) or tile[0] <= problem.m]
    return min(fitting, key=cost)


def blocks(
    problem: Product, rows: int, lines: int, lanes: int, kind: str = "f32", cores: int = 1
) -> TilePlan:
    """A register tile in blocks that give all cores as much to do: the largest, since each packs
    its panels anew.
    """
    tiles, panels = -(-problem.m // rows), -(-problem.n // (lines * lanes))
    depth, beforehand = DEPTH, False
    k = -(-problem.k // PER_WORD[kind])
    if (
        result_dtype(problem).bits < 32 and k > DEPTH
    ):  # sums of pieces would be rounded in the result
        depth, beforehand = (
            (0, True) if k > DEEPEST else (2 * DEPTH if k <= 2 * DEPTH else DEEPEST, False)
        )
    row = max(4, result_dtype(problem).bits // 8) * lines * lanes  # bytes of a row of a panel
    line = kind == "f32" and 4 * lines * lanes == row == LINE  # so it is with AVX2 and f32
    out_of_cache = 4 * problem.k * problem.n > MIDDLE
    ahead = (
        bool(problem.packed)
        and kind == "f32"
        and problem.m <= MEMORY_BOUND
        and out_of_cache
        and depth == DEPTH
    )
    if ahead:  # what is asked for stays in the caches beside the piece that is read
        depth = DEPTH // 2
    group = 1
    if kind == "i8":  # the sum of a row serves all panels of a cube
        group = next(
            (g for g in (4, 2) if panels % g == 0 and even(problem.batch * panels // g, cores)), 1
        )
    wide = 1
    most = BLOCK
    unpacked = problem.layout == "rows" and kind != "bf16" and depth == DEPTH and not problem.packed
    if line and panels < PANELS and problem.m >= BLOCK and problem.m * k * problem.n >= WORTH // 4:
        beforehand = not problem.packed  # blocks of rows share panels that are in order
    if (
        line and k <= DEPTH and problem.m >= 2 * BLOCK
    ):  # whole rows of the result: what is written lies together
        group, most, beforehand = panels, NARROW, not problem.packed
    elif unpacked and (problem.m <= FEW or line):
        sides = (
            (8, 4) if kind != "f32" else (4,)
        )  # of a row of b, 256 bytes and more: a part of a page
        wide = next(
            (
                w
                for w in sides
                if panels // w >= 4 * cores and even(problem.batch * -(-panels // w), cores)
            ),
            1,
        )
        group = max(wide, group)
    if wide > 1 and (kind != "f32" or row > 2 * LINE):
        depth = DEPTH // 2
    elif wide > 1:
        depth = 4 * DEPTH if line else DEPTH
    elif kind == "f32" and depth == DEPTH and (problem.m > FEW or problem.packed):
        deeper = (
            4 if problem.packed or beforehand else 2
        )  # first and last steps are a twentieth of a shorter piece
        depth = deeper * DEPTH
    least = -(-problem.m // most)
    cubes = problem.batch * -(-panels // group)
    options = range(least, min(tiles, least + 4 * cores) + 1)
    if problem.batch * problem.m * k * problem.n < ALONE:
        options = range(least, least + 1)
    count = next((c for c in options if even(cubes * c, cores)), least)
    blocked = -(-tiles // count)
    return TilePlan(
        rows, lines, lanes, blocked, group, depth, kind, beforehand, wide, ahead=ahead, fetched=line
    )


def pays_gathering(problem: Product) -> bool:
    """Whether to copy rows of a (with AVX2): where enough panels share them, and enough rows share
    packing b.
    """
    exact = (
        result_dtype(problem).bits == 32 or problem.k <= DEEP
    )  # sums of pieces would be rounded in the result
    out_of_cache = 4 * problem.k * problem.n > MIDDLE  # it comes from memory in any case
    least, rows = (WORTH // 16, 2) if problem.packed else (WORTH, 5 if out_of_cache else FEW // 2)
    large = problem.m >= rows and problem.batch * problem.m * problem.k * problem.n >= least
    return exact and large and problem.k >= SHORT and problem.n > (PANELS - 1) * LINE // 4


def goto_blocks(problem: Product, lanes: int, cores: int) -> TilePlan:
    """Blocks for `goto_product`: tall ones, and whole rows of the result unless that leaves
    cores idle.
    """
    lines, beforehand = LINE // (4 * lanes), not problem.packed
    rows = tile_of_few(problem._replace(packed=lines * lanes), lanes)[0] if problem.m <= FEW else 6
    tiles, panels = -(-problem.m // rows), -(-problem.n // (lines * lanes))
    least = -(-tiles // MOST_TILES)
    counts, parts = (
        range(least, max(least, tiles // 6) + 1),
        range(1, min(panels // 2, 2 * cores) + 1),
    )
    shares = ((c, p) for p in parts for c in counts if (problem.batch * c * p) % cores == 0)
    busy = (share for share in shares if problem.batch * share[0] * share[1] >= 2 * cores)
    count, part = next(busy, (least, max(1, panels // 2)))
    most = (
        min(DEEP, max(DEPTH, HELD // problem.n))
        if beforehand and problem.k * problem.n > HELD
        else DEEP
    )
    depth = -(-problem.k // -(-problem.k // most) // 8) * 8
    return TilePlan(
        rows,
        lines,
        lanes,
        -(-tiles // count),
        -(-panels // part),
        depth,
        beforehand=beforehand,
        fetched=True,
        packs_a=True,
    )


def matrix_blocks(problem: Product, kind: str, cores: int) -> TilePlan:
    """Blocks for a CPU's matrix unit, which is so fast that reading a and b and writing the sums
    decide.
    """
    panels, batch, k = -(-problem.n // 32), problem.batch, -(-problem.k // PER_WORD[kind])
    if (
        k <= SHALLOW
    ):  # setting the unit's shapes takes as long as 32 rows; more rows to a call share that
        least = 2 * cores * min(4, panels)
        rows = next(
            (
                r
                for r in (128, 64)
                if 2 * problem.m > r and batch * -(-problem.m // r) * panels >= least
            ),
            32,
        )
        plan = blocks(problem, rows, 2, 16, kind, cores)
        return replace(plan, matrix=True, block_rows=1, block_panels=min(4, panels))
    rows = next((r for r in (128, 64) if batch * -(-problem.m // r) * panels >= 2 * cores), 32)
    cubes = batch * -(-problem.m // rows)
    if 4 * k * problem.n <= NEAR and cubes >= 2 * cores:  # a cube makes whole rows of the result
        plan = TilePlan(rows, 2, 16, 1, panels, DEEPEST, kind, matrix=True)
        return replace(plan, beforehand=True, depth=0) if kind == "bf16" else plan
    plan = replace(blocks(problem, rows, 2, 16, kind, cores), matrix=True)
    if problem.m > 2 * BLOCK and kind == "bf16":  # several blocks of rows would each pack b
        return replace(plan, beforehand=True, depth=0)
    return plan


def even(cubes: int, cores: int) -> bool:
    """Whether the cores are about equally long at work."""
    return cubes * 12 >= -(-cubes // cores) * cores * 11


def varied(problem: Product, base: TilePlan) -> Iterator[TilePlan]:
    """A plan and its neighbours: other blocks, other pieces of K, b packed beforehand."""
    most_rows = -(-problem.m // base.rows)
    most_panels = -(-problem.n // (base.lines * base.lanes))
    yield base
    if base.kind != "i8" and base.kind != "u8" and result_dtype(problem).bits <= 32:
        yield replace(
            base, beforehand=True, depth=base.depth if result_dtype(problem).bits == 32 else 0
        )
    if result_dtype(problem).bits == 32:  # pieces of K are added up in the result
        for depth in (DEPTH // 2, DEPTH * 3 // 2, 2 * DEPTH):
            yield replace(base, depth=depth)
    for block_rows, block_panels in ((8, 1), (16, 1), (32, 1), (64, 1), (16, 2), (64, 2), (16, 4)):
        shares: dict[str, Any] = {
            "block_rows": min(block_rows, most_rows),
            "block_panels": min(block_panels, most_panels),
        }
        yield replace(base, wide=1, **shares)
