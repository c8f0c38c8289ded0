"""The tile routine of matmul on the CPU: b packed into panels, blocks of register tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import cubepy as cb
from cubepy.kernels.elementwise import copy
from cubepy.kernels.matmul_kernels import Blueprint, block_product, pack_columns, pack_rows
from cubepy.kernels.matmul_problem import Product, result_dtype
from cubepy.runtime import memory
from cubepy.tune import Routine

DEPTH = 256  # a panel of 32 columns of this depth fills the first-level cache


@dataclass(frozen=True)
class TilePlan:
    """What changes the code and the launch of a tiled product.

    Attributes:
        rows, lines, lanes: the register tile, rows x (lines x lanes).
        block_rows, block_panels: tiles of a cube along M, panels along N.
        depth: K is walked in pieces of this length, 0 for all at once.
    """

    rows: int
    lines: int
    lanes: int
    block_rows: int
    block_panels: int
    depth: int


def tile() -> tuple[int, int, int]:
    """Rows, lines and lanes of the register tile for the current device."""
    return tile_of(cb.device_properties_of())


@cache
def tile_of(p: cb.DeviceProperties) -> tuple[int, int, int]:
    """Rows, lines and lanes of the register tile for a device."""
    lanes = p.register_bytes // 4
    return (6, 4, lanes) if p.vector_registers >= 32 else (6, 2, lanes)


def pack(b: Any, lines: int, lanes: int) -> Any:
    """Panels of (batch, K, N): shape (batch, panels, K, width), zero where a panel is wider than what is left."""
    width = lines * lanes
    batch, k, n = b.shape
    panels = -(-n // width)
    out = memory.empty((batch, panels, k, width), cb.f32.numpy)
    if b.strides[2] == b.itemsize or n == 1:
        pack_columns[batch * panels, 1](b, out, width, lanes)
    else:
        t = b.transpose(0, 2, 1)
        if t.strides[2] != t.itemsize and k > 1:
            t = copy(t)
        pack_rows[batch * panels, 1](t, out, width, lanes)
    return out


class Tile(Routine):
    """Any float product of 32 bits or less."""

    name = "tile"

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """Sums are in f32."""
        dtype = result_dtype(problem)
        return None if problem.packed or (dtype.is_float and dtype.bits <= 32) else f"sums are in f32, not {dtype.name}"

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[TilePlan]:
        """The tile that fills the registers, in blocks that fill the second-level cache; then variations of both."""
        rows, lines, lanes = tile_of(properties)
        if problem.packed:
            lines = problem.packed // lanes
        shapes = [(6, 4), (8, 3), (12, 2), (14, 2)] if properties.vector_registers >= 32 else [(6, 2), (4, 3)]
        fitting = [s for s in shapes if not problem.packed or s[1] * lanes == problem.packed]
        first = blocks(problem, rows, lines, lanes)
        yield first  # all that is needed without tuning
        bases = [blocks(problem, *shape, lanes) for shape in fitting]
        plans = dict.fromkeys([first, *bases, *(plan for base in bases for plan in varied(problem, base))])
        yield from list(plans)[1:]

    def launch(self, blueprint: TilePlan, problem: Product, args: tuple[Any, ...]) -> None:
        """Pack b, unless it comes packed, and multiply."""
        x, y, out, bias, residual, function, alpha = args
        panels = y if problem.packed else pack(y, blueprint.lines, blueprint.lanes)
        product(blueprint, x, panels, out, bias, residual, function, alpha)


def blocks(problem: Product, rows: int, lines: int, lanes: int) -> TilePlan:
    """A register tile in blocks of a good size, smaller where there would be fewer than four."""
    m, panels = problem.m, -(-problem.n // (lines * lanes))
    block_rows = max(1, min(8, -(-m // rows)))
    block_panels = 8
    while block_panels > 1 and problem.batch * -(-m // (rows * block_rows)) * -(-panels // block_panels) < 4:
        block_panels //= 2
    depth = DEPTH if result_dtype(problem) is cb.f32 and problem.k > 2 * DEPTH else 0
    return TilePlan(rows, lines, lanes, block_rows, block_panels, depth)


def varied(problem: Product, base: TilePlan) -> Iterator[TilePlan]:
    """A plan and its neighbours: other blocks, other pieces of K."""
    shape = (base.rows, base.lines, base.lanes)
    most_rows = -(-problem.m // base.rows)
    most_panels = -(-problem.n // (base.lines * base.lanes))
    yield base
    if base.depth:  # pieces of K are added up in the result, which must be f32
        for depth in (2 * DEPTH, DEPTH * 3 // 2, 0):
            yield TilePlan(*shape, base.block_rows, base.block_panels, depth)
    for block_rows, block_panels in ((4, 8), (16, 4), (8, 4), (16, 8), (8, 2), (2, 2), (4, 1)):
        yield TilePlan(*shape, min(block_rows, most_rows), min(block_panels, most_panels), base.depth)


@cache
def blueprint_of(plan: TilePlan, bias: bool, residual: bool, function: Any) -> Blueprint:
    """The kernel's blueprint; the same object every time, so that keys compare quickly."""
    shape = (plan.rows, plan.lines, plan.lanes, plan.block_rows, plan.block_panels)
    return Blueprint(*shape, 0, bias, residual, function)


def product(
    plan: TilePlan, x: Any, packed: Any, out: Any, bias: Any, residual: Any, function: Any, alpha: float
) -> None:
    """out = epilogue(x @ packed): x (batch, M, K) with unit stride along K, out (batch, M, N)."""
    batch, m, n = out.shape
    k, panels = packed.shape[2], packed.shape[1]
    blueprint = blueprint_of(plan, bias is not None, residual is not None, function)
    cubes = batch * -(-m // (plan.rows * plan.block_rows)) * -(-panels // plan.block_panels)
    depth = plan.depth or max(k, 1)
    for first in range(0, max(k, 1), depth):
        block_product[cubes, 1](
            x, packed, out, bias, residual, float(alpha), n, first, min(k, first + depth),
            first > 0, first + depth >= k, blueprint, mode="unchecked",
        )  # fmt: skip
