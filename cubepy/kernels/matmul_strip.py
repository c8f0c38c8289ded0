"""Products with some tens of rows: each cube packs a panel of b piece by piece, just where it multiplies with it.

Packed beforehand, a large b would go through memory three times; here it is read once, and a piece stays in the
second-level cache while all rows of a meet it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul_blocks import TilePlan, blueprint_of, tile_of
from cubepy.kernels.matmul_kernels import row_product, tile_product, tile_row
from cubepy.kernels.matmul_problem import Product, result_dtype
from cubepy.tune import Routine

MOST_ROWS = 96  # with more, packing beforehand is a small part of the work
LEAST_PANELS = 8  # that threads share


@dataclass(frozen=True)
class StripPlan:
    """What changes the code of a product that packs as it goes.

    Attributes:
        rows, lines, lanes: the register tile, rows x (lines x lanes).
        depth: rows of b that are packed at a time.
    """

    rows: int
    lines: int
    lanes: int
    depth: int


@cb.kernel
def strip_product(
    a: cb.Array, b: cb.Array, out: cb.Array, bias, residual, alpha, most: cb.Comptime[int], blueprint: cb.Comptime
):
    """out[batch] = a[batch] @ b[batch] for one panel of columns: b is (batch, K, N), its rows neighbours in memory."""
    rows, lines, lanes, width = blueprint.rows, blueprint.lines, blueprint.lanes, blueprint.width
    m, columns, depth = out.shape[1], out.shape[2], b.shape[1]
    panels = (columns + width - 1) // width
    panel = cb.CUBE_POS % panels
    batch = cb.CUBE_POS // panels
    batch_b = cb.min(batch, b.shape[0] - 1)
    done = cb.local((rows, lines), cb.f32, lanes=lanes)
    strip = cb.local((1, 1, most, width), cb.f32)
    for piece in range((depth + most - 1) // most):
        start = piece * most
        end = cb.min(start + most, depth)
        for k in range(start, end):
            for j in cb.unroll(range(0, width, lanes)):
                at = panel * width + j
                line = b.load((batch_b, k, at), lanes, valid=cb.max(columns - at, 0))
                strip.store((0, 0, k - start, j), cb.cast(line, cb.f32))
        for tile in range(0, m, rows):
            row = cb.min(tile, cb.max(m - rows, 0))  # the last tile does some rows again
            here = cb.min(rows, m - row)
            if here == rows:
                tile_product(done, a, strip, batch, 0, row, 0, start, end, start, blueprint)
            else:
                for r in range(here):
                    row_product(done, r, a, strip, batch, 0, row + r, 0, start, end, start, blueprint)
            for i in range(tile - row, here):
                tile_row(done, i, out, bias, residual, alpha, batch, batch_b, row + i, panel, columns, start > 0,
                         end == depth, blueprint)  # fmt: skip


class Strip(Routine):
    """f32 products with some tens of rows and many columns."""

    name = "strip"

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """b lies in rows; sums of pieces of K are kept in the result."""
        if properties.plane_size > 1:
            return "one unit does a strip: for devices whose units are not threads"
        if problem.packed or problem.layout != "rows":
            return "b lies in rows and is not packed"
        if result_dtype(problem) is not cb.f32 or problem.a != "f32":
            return f"a and the result are f32, not {problem.a} and {result_dtype(problem).name}"
        _, lines, lanes = tile_of(properties)
        if problem.n < LEAST_PANELS * lines * lanes:
            return f"at least {LEAST_PANELS * lines * lanes} columns, not {problem.n}"
        return None if problem.m <= MOST_ROWS else f"at most {MOST_ROWS} rows, not {problem.m}"

    def group(self, key: Product) -> int:
        """Where it fits, packing b beforehand costs more than it brings."""
        return 1

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[StripPlan]:
        """The tile that fills the registers; pieces that fill part of the second-level cache."""
        for depth in (256, 128, 512):
            yield StripPlan(*tile_of(properties), depth)

    def launch(self, blueprint: StripPlan, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ b (batch, K, N))."""
        x, b, out, bias, residual, function, alpha = args
        p = blueprint
        plan = blueprint_of(
            TilePlan(p.rows, p.lines, p.lanes, 1, 1, 0), bias is not None, residual is not None, function
        )
        cubes = out.shape[0] * -(-out.shape[2] // plan.width)
        strip_product[cubes, 1](x, b, out, bias, residual, float(alpha), p.depth, plan, mode="unchecked")
