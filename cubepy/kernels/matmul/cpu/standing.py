"""Small products: both matrices are read where they stand, and sums are made in register tiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.cpu.blocking import ALONE, even
from cubepy.kernels.matmul.cpu.microkernel import multiply_add, sums_of
from cubepy.kernels.matmul.problem import Epilogue, Product
from cubepy.kernels.movement.copy import copy
from cubepy.kernels.primitives.epilogue import LineEpilogue

HEIGHTS = {
    1: (12, 8, 6, 4, 3, 2, 1),
    2: (12, 8, 6, 4, 3, 2, 1),
    3: (8, 6, 4, 3, 2, 1),
    4: (6, 4, 3, 2, 1),
    5: (5, 3),
}
"""Rows of a register tile by its lines."""
FEW_HEIGHTS = {
    1: (12, 8, 6, 4, 3, 2, 1),
    2: (6, 5, 4, 3, 2, 1),
    3: (4, 3, 2, 1),
    4: (2, 1),
    6: (1,),
}
"""The same with 16 registers."""
NEAREST, FEW_NEAREST = 40 << 10, 26 << 10
"""Bytes that the nearest cache holds beside other things; with 16 registers."""


@cb.kernel
def standing_product(
    a: cb.Array,
    b: cb.Array,
    epilogue: LineEpilogue,
    row_blocks,
    rows: cb.Comptime[int],
    lines: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """epilogue(a[z] @ b[z]) for a cube: one of `row_blocks` blocks of rows, `lines` lines of
    columns.

    a (batch, M, K) has any strides, b (batch, K, N) neighbours along N. A tile of `rows` rows keeps
    its sums in registers; where rows are left, the last tile makes some again.
    """
    out = epilogue.out
    sums = sums_of(out)
    m, columns, depth = out.shape[1], out.shape[2], a.shape[2]
    width = lines * lanes
    panels = (columns + width - 1) // width
    first = cb.CUBE_POS % panels * width
    block, z = cb.CUBE_POS // panels % row_blocks, cb.CUBE_POS // (panels * row_blocks)
    tiles = (m + rows - 1) // rows
    step = cb.cast(cb.min(row_blocks, 1), cb.i64)
    for tile in range(block * tiles // row_blocks, (block + 1) * tiles // row_blocks):
        row = cb.min(tile * rows, m - rows)
        for i in cb.unroll(range(rows)):  # lines that are written come while sums are made
            for j in cb.unroll(range(lines)):
                out.prefetch((z, row + i, first + j * lanes))
        acc = cb.local((rows, lines), sums, lanes=lanes)
        b_lines = cb.local(lines, sums, lanes=lanes)
        for i in range(rows):
            for j in range(lines):
                acc[i, j] = cb.splat(cb.cast(0, sums), lanes)
        k = cb.cast(0, cb.i64)
        while k < depth:  # of unknown step, so that LLVM does not unroll it and spill registers
            for j in cb.unroll(range(lines)):
                at = first + j * lanes
                b_lines[j] = cb.cast(b.load((z, k, at), lanes, valid=columns - at), sums)
            for i in cb.unroll(range(rows)):
                x = cb.splat(cb.cast(a[z, row + i, k], sums), lanes)
                for j in cb.unroll(range(lines)):
                    acc[i, j] = multiply_add(x, b_lines[j], acc[i, j])
            k = k + step
        for i in cb.unroll(range(rows)):
            for j in cb.unroll(range(lines)):
                at = first + j * lanes
                left = columns - at
                if epilogue.residual is not None:  # which may be the result itself
                    left = cb.select(row + i < tile * rows, 0, left)
                epilogue.finish(acc[i, j], (z, row + i, at), left)


@dataclass(frozen=True)
class StandingPlan:
    """What changes the code and the launch of a small product.

    Attributes:
        rows, lines, lanes: the register tile, rows x (lines x lanes).
        row_blocks: how many cubes share the rows of a matrix.
    """

    rows: int
    lines: int
    lanes: int
    row_blocks: int = 1


def cycles(problem: Product, rows: int, lines: int, lanes: int, few: bool = False) -> float:
    """About how long tiles of a shape take for a matrix: within a sixth of what 600 random products
    took with AVX-512. With `few`, of 16 registers of half the width.
    """
    panels, tiles = -(-problem.n // (lines * lanes)), -(-problem.m // rows)
    sums = rows * lines
    # products, loads (lines lie across two of the caches), instructions, or waiting for a sum
    step = max(sums / 2, (rows + 2 * lines) / 2, (sums + rows + 4 * lines + 8) / 5.5, 4.0)
    size, nearest = (32, FEW_NEAREST) if few else (64, NEAREST)
    near = size * (lines * (1 if tiles > 1 else panels) + rows / lanes)  # bytes of both for a step
    if problem.k * near > nearest:
        step = step + lines if tiles > 1 else max(step, 2.2 * lines + 1)
    return panels * (40 + tiles * (problem.k * step + 30 + 2 * sums))


@cache
def tile_of(m: int, k: int, n: int, lanes: int, few: bool = False) -> tuple[int, int]:
    """Rows and lines of the register tile for matrices of a size; with `few`, of 16 registers."""
    problem = Product("cpu", m, k, n)
    shapes = [
        (rows, lines)
        for lines, heights in (FEW_HEIGHTS if few else HEIGHTS).items()
        if (lines - 1) * lanes < n
        for rows in (*heights, m, (m + 1) // 2)  # one or two tiles may be as tall as they are
        if rows <= min(m, heights[0])
    ]
    return min(shapes, key=lambda shape: cycles(problem, shape[0], shape[1], lanes, few))


def row_blocks_of(problem: Product, rows: int, panels: int, cores: int) -> int:
    """Blocks of rows that give all cores as much to do."""
    if problem.batch * problem.m * problem.k * problem.n < ALONE:
        return 1
    options = range(1, min(-(-problem.m // rows), 4 * cores) + 1)
    return next((c for c in options if even(problem.batch * panels * c, cores)), 1)


def multiply_standing(plan: StandingPlan, x: Any, b: Any, out: Any, epilogue: Epilogue) -> None:
    """out (batch, M, N) = epilogue(x (batch, M, K) @ b (batch, K, N))."""
    if b.strides[2] != b.itemsize and b.shape[2] > 1:
        b = copy(b)
    bias, residual, function, alpha, mask, fill, joined = epilogue
    if out.dtype.itemsize == 8 or out.dtype.kind in "iub":
        ends = LineEpilogue(out, None)
    else:
        numbers = float(alpha), mask, float(fill)
        ends = LineEpilogue(out, function, bias, residual, *numbers, joined=joined)
    cubes = out.shape[0] * plan.row_blocks * -(-out.shape[2] // (plan.lines * plan.lanes))
    standing_product[cubes, 1](
        x, b, ends, plan.row_blocks, plan.rows, plan.lines, plan.lanes, mode="unchecked"
    )
