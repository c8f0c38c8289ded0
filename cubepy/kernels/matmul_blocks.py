"""The tile routine of matmul on the CPU: b packed into panels, blocks of register tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.elementwise import copy
from cubepy.kernels.matmul_kernels import Blueprint, block_product, pack_columns, pack_rows, pieces_of
from cubepy.kernels.matmul_problem import Product, result_dtype
from cubepy.kernels.matmul_words import kind_of, laid, pack_in_words, sums_of, words_of
from cubepy.runtime import memory
from cubepy.tune import Routine

DEPTH = 256  # a panel of 32 columns of this depth fills the first-level cache
SMALL = 1 << 16  # bytes of a matrix that needs no packing, since the first-level cache holds it as it is
FEW = 1 << 16  # results that stay in the second-level cache while all of K is walked


@dataclass(frozen=True)
class TilePlan:
    """What changes the code and the launch of a tiled product.

    Attributes:
        rows, lines, lanes: the register tile, rows x (lines x lanes).
        block_rows, block_panels: tiles of a cube along M, panels along N.
        depth: K is walked in pieces of this length, 0 for all at once.
        kind: what sums are made of (see `matmul_words`).
    """

    rows: int
    lines: int
    lanes: int
    block_rows: int
    block_panels: int
    depth: int
    kind: str = "f32"


def tile() -> tuple[int, int, int]:
    """Rows, lines and lanes of the register tile for the current device."""
    return tile_of(cb.device_properties_of())


@cache
def tile_of(p: cb.DeviceProperties) -> tuple[int, int, int]:
    """Rows, lines and lanes of the register tile for a device."""
    lanes = p.register_bytes // 4
    return (6, 4, lanes) if p.vector_registers >= 32 else (6, 2, lanes)


def pack(b: Any, lines: int, lanes: int, view: bool = False) -> Any:
    """Panels of (batch, K, N): shape (batch, panels, K, width), zero where a panel is wider than what is left.

    With `view`, a small matrix, or one as wide as a panel, is given back as it stands, seen in panels.
    """
    width = lines * lanes
    batch, k, n = b.shape
    panels = -(-n // width)
    small = panels == 1 or 4 * k * n <= SMALL
    if view and small and b.dtype == np.float32 and b.strides[2] == 4 and n % width == 0:
        steps = (b.strides[0], 4 * width, b.strides[1], 4)
        return np.lib.stride_tricks.as_strided(b, (batch, panels, k, width), steps, writeable=False)
    out = memory.empty((batch, panels, k, width), cb.f32.numpy)
    pieces = pieces_of(batch * panels, k)
    cubes = batch * panels * pieces
    if b.strides[2] == b.itemsize or n == 1:
        pack_columns[cubes, 1](b, out, pieces, width, lanes)
    else:
        t = b.transpose(0, 2, 1)
        if t.strides[2] != t.itemsize and k > 1:
            t = copy(t)
        pack_rows[cubes, 1](t, out, pieces, width, lanes)
    return out


class Tile(Routine):
    """Any float product of 32 bits or less, and bytes times signed bytes where the machine has dot products."""

    name = "tile"

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """Sums are in f32, or in i32 for bytes."""
        if problem.packed or kind_of(problem, properties):
            return None
        return f"sums are in f32, not {result_dtype(problem).name}"

    def group(self, key: Product) -> int:
        """Bytes go before the plain product."""
        return 0 if result_dtype(key).is_float else 1

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[TilePlan]:
        """The tile that fills the registers, in blocks that fill the second-level cache; then variations of both."""
        rows, lines, lanes = tile_of(properties)
        if problem.packed:
            lines = problem.packed // lanes
        shapes = [(6, 4), (8, 3), (12, 2), (14, 2)] if properties.vector_registers >= 32 else [(6, 2), (4, 3)]
        fitting = [s for s in shapes if not problem.packed or s[1] * lanes == problem.packed]
        kind = kind_of(problem, properties) or "f32"
        first = blocks(problem, rows, lines, lanes, kind)
        yield first  # all that is needed without tuning
        bases = [blocks(problem, *shape, lanes, kind) for shape in fitting]
        plans = dict.fromkeys([first, *bases, *(plan for base in bases for plan in varied(problem, base))])
        yield from list(plans)[1:]

    def launch(self, blueprint: TilePlan, problem: Product, args: tuple[Any, ...]) -> None:
        """Pack b, unless it comes packed, and multiply."""
        x, y, out, bias, residual, function, alpha = args
        lines, lanes, kind = blueprint.lines, blueprint.lanes, blueprint.kind
        if kind == "f32":
            if x.dtype != np.float32 and problem.n > lines * lanes:  # widen once, not for every panel
                x = laid(x, np.float32, x.shape[2])
            panels = y if problem.packed else pack(y, lines, lanes, view=True)
        else:
            x, panels = words_of(x, kind), pack_in_words(y, kind, lines, lanes)
            if kind == "i8":
                bias = sums_of(panels, lanes)
        product(blueprint, x, panels, out, bias, residual, function, alpha)


def blocks(problem: Product, rows: int, lines: int, lanes: int, kind: str = "f32") -> TilePlan:
    """A register tile in blocks of a good size, smaller where there would be fewer than four."""
    tiles, panels = -(-problem.m // rows), -(-problem.n // (lines * lanes))
    block_rows = max(1, -(-tiles // -(-tiles // 8)))
    block_panels = 8
    while block_panels > 1 and problem.batch * -(-tiles // block_rows) * -(-panels // block_panels) < 4:
        block_panels //= 2
    while block_rows > 1 and problem.batch * -(-tiles // block_rows) * -(-panels // block_panels) < 4:
        block_rows = -(-block_rows // 2)
    depth = DEPTH if result_dtype(problem).bits == 32 and problem.k > 2 * DEPTH else 0
    return TilePlan(rows, lines, lanes, block_rows, block_panels, depth, kind)


def varied(problem: Product, base: TilePlan) -> Iterator[TilePlan]:
    """A plan and its neighbours: other blocks, other pieces of K."""
    most_rows = -(-problem.m // base.rows)
    most_panels = -(-problem.n // (base.lines * base.lanes))
    yield base
    if base.depth:  # pieces of K are added up in the result, which must be as wide as the sums
        for depth in (2 * DEPTH, DEPTH * 3 // 2, 0):
            yield replace(base, depth=depth)
    for block_rows, block_panels in ((4, 8), (16, 4), (8, 4), (16, 8), (8, 2), (2, 2), (4, 1)):
        yield replace(base, block_rows=min(block_rows, most_rows), block_panels=min(block_panels, most_panels))


@cache
def blueprint_of(plan: TilePlan, bias: bool, residual: bool, function: Any) -> Blueprint:
    """The kernel's blueprint; the same object every time, so that keys compare quickly."""
    shape = (plan.rows, plan.lines, plan.lanes, plan.block_rows, plan.block_panels)
    return Blueprint(*shape, 0, bias, residual, function, plan.kind)


def product(
    plan: TilePlan, x: Any, packed: Any, out: Any, bias: Any, residual: Any, function: Any, alpha: float
) -> None:
    """out = epilogue(x @ packed): x (batch, M, K) with unit stride along K, out (batch, M, N)."""
    batch, m, n = out.shape
    k, panels = packed.shape[2], packed.shape[1]
    blueprint = blueprint_of(plan, bias is not None, residual is not None, function)
    cubes = batch * -(-m // (plan.rows * plan.block_rows)) * -(-panels // plan.block_panels)
    depth = plan.depth or k
    span = k if m * n <= FEW else depth  # many results go to memory for each piece: then all blocks share a piece of b
    for first in range(0, k, span):
        block_product[cubes, 1](
            x, packed, out, bias, residual, float(alpha), n, first, min(k, first + span), depth, blueprint,
            mode="unchecked",
        )  # fmt: skip
