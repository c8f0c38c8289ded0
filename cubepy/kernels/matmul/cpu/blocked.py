"""Tiled products on a CPU: how rows and panels are shared between cubes, and where b is packed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.entry.shapes import strided
from cubepy.kernels.matmul.cpu.blocking import (
    FEW,
    LINE,
    NEAR,
    SMALL,
    TilePlan,
    blocks,
    goto_blocks,
    matrix_blocks,
    pays_gathering,
    tile_of,
    tile_of_few,
    tile_of_width,
    varied,
)
from cubepy.kernels.matmul.cpu.goto import UNROLL, goto_product
from cubepy.kernels.matmul.cpu.macrokernel import MOST_ROWS, block_product
from cubepy.kernels.matmul.cpu.microkernel import Blueprint
from cubepy.kernels.matmul.cpu.packing import pack_columns, pack_rows, pieces_of
from cubepy.kernels.matmul.cpu.vnni import BITS, kind_of, laid, pack_pairs, turned, words_of
from cubepy.kernels.matmul.problem import Epilogue, Product, name_of, result_dtype
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.kernels.primitives.register_transpose import SIDE
from cubepy.kernels.primitives.vector_width import STREAMING_BYTES, aligned
from cubepy.runtime import memory
from cubepy.tune import TunedRoutine

AT_ONCE = 1 << 20  # numbers of b that are packed at once
ACROSS = 128  # columns of b, at most, where an a that is near is read across
FEW_LINES = 7  # of 64 bytes in a row of b, at most, where any a is
GAP = 8  # rows between panels, so that rows that are packed side by side share no set of the caches


def laid_in_panels(b: Any, p: cb.DeviceProperties) -> Any:
    """b (1, K, N) as products on a device read it most quickly: pairs of bf16 where it multiplies
    them.
    """
    if name_of(b.dtype) != "bf16" or "bf16_dot" not in p.features:
        return pack(b, *tile_of(p)[1:])
    return pack_pairs(b, *((2, 16) if "tiles" in p.features else tile_of(p, "bf16")[1:]))


def pack(b: Any, lines: int, lanes: int, view: bool = False, out: Any = None) -> Any:
    """Panels of (batch, K, N): shape (batch, panels, K, width), zero where a panel is wider than
    what is left.

    With `view`, a small matrix, or one as wide as a panel, is given back as it stands, seen in
    panels. They are written to `out` if that is given, whose panels may have more rows.
    """
    width = lines * lanes
    batch, k, n = b.shape
    panels = -(-n // width)
    if view and seen_in_panels(b, width):
        steps = (b.strides[0], 4 * width, b.strides[1], 4)
        return strided(b, (batch, panels, k, width), steps)
    if out is None:
        dtype = b.dtype if b.itemsize == 8 else cb.f32.numpy
        out = memory.empty((batch, panels, k, width), dtype)
    if not out.size:
        return out
    if b.strides[2] == b.itemsize or n == 1:
        pack_columns[batch * -(-k // SIDE), 1](b, out, width, lanes, mode="unchecked")
    else:
        pieces = pieces_of(batch * panels, k)
        pack_rows[batch * panels * pieces, 1](turned(b), out, pieces, width, lanes, mode="checked")
    return out


def seen_in_panels(b: Any, width: int) -> bool:
    """Whether b (batch, K, N) may be read where it stands, since its rows are a panel wide or it is
    small.
    """
    k, n = b.shape[1:]
    fits = b.dtype == np.float32 and b.strides[2] == 4 and n % width == 0
    return fits and (n == width or 4 * k * n <= (SMALL if 4 * width > LINE else SMALL // 2))


class Tile(TunedRoutine):
    """Any product of floats, and bytes times signed bytes where the machine has dot
    products.
    """

    name = "tile"

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """Sums are in f32 or f64, or in i32 for bytes."""
        if kind_of(problem, properties) or problem.packed and problem.b in ("f32", "bf16"):
            return None
        return f"sums are in f32, not {result_dtype(problem).name}"

    def group(self, key: Product) -> int:
        """Bytes go before the plain product."""
        return 0 if result_dtype(key).is_float else 1

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[TilePlan]:
        """The tile that fills the registers, in blocks that keep all cores busy; then variations of
        both.
        """
        kind = kind_of(problem, properties) or "f32"
        if kind != "f32" and "tiles" in properties.features:
            base = matrix_blocks(problem, kind, properties.cores)
            yield from dict.fromkeys([base, *varied(problem, base)])
            return
        rows, lines, lanes = tile_of(properties, kind)
        if result_dtype(problem).bits == 64:
            lanes //= 2
        if problem.packed:
            lines = problem.packed // lanes
        if (
            (rows, lines, kind) == (6, 2, "f32")
            and 4 * lines * lanes == LINE
            and pays_gathering(problem)
        ):
            yield goto_blocks(problem, lanes, properties.cores)
        if (rows, lines, kind) == (6, 2, "f32") and problem.m <= FEW:
            rows, lines = tile_of_few(problem, lanes)
        narrow = (rows, lines, kind) == (6, 4, "f32") and not problem.packed
        if narrow and problem.n % (lines * lanes):
            rows, lines = tile_of_width(problem, lanes)
        first = blocks(problem, rows, lines, lanes, kind, properties.cores)
        yield first  # all that is needed without tuning
        shapes = (
            [(6, 4), (8, 3), (12, 2), (14, 2)]
            if properties.vector_registers >= 32
            else [(6, 2), (4, 3)]
        )
        if kind != "f32":  # lines of words are mixed pairwise
            shapes = [(rows, lines), (rows + 1, lines)]
        fitting = [s for s in shapes if not problem.packed or s[1] * lanes == problem.packed]
        bases = [blocks(problem, *shape, lanes, kind, properties.cores) for shape in fitting]
        plans = dict.fromkeys(
            [first, *bases, *(plan for base in bases for plan in varied(problem, base))]
        )
        yield from list(plans)[1:]

    def reads_across(self, blueprint: TilePlan, x: Any, y: Any) -> bool:
        """Whether x (batch, M, K) is read where it stands with neighbours along M (as of the
        gradient by a weight): a tile wants neighbouring rows of it, and goes along K in steps that
        the second-level cache serves. For more columns a copy pays.
        """
        floats = blueprint.kind == "f32" and not blueprint.packs_a and x.dtype.itemsize >= 4
        wide = blueprint.lanes * x.itemsize >= LINE
        once = wide and y.shape[2] * x.itemsize <= FEW_LINES * LINE  # it is read few times
        near = y.shape[2] <= ACROSS and x.nbytes <= NEAR
        return floats and (once or near) and x.strides[1] == x.itemsize

    def launch(self, blueprint: TilePlan, problem: Product, args: tuple[Any, ...]) -> None:
        """Multiply, with b where it stands or packed beforehand."""
        (x, y, out), epilogue = args[:3], Epilogue(*args[3:])
        lines, lanes, kind = blueprint.lines, blueprint.lanes, blueprint.kind
        if kind != "f32":
            x = words_of(x, kind)
        elif x.dtype.itemsize < 4 and problem.n > lines * lanes:  # widen once, not for every panel
            x = laid(x, np.float32, x.shape[2])
        if blueprint.packs_a:
            return multiply_goto(blueprint, problem, x, y, out, epilogue)
        if problem.packed:
            b, source = y if y.itemsize == 4 else y.view(np.uint32), "panels"
        elif kind == "f32" and (blueprint.beforehand or seen_in_panels(y, lines * lanes)):
            b, source = pack(y, lines, lanes, view=True), "panels"
        elif blueprint.beforehand:
            b, source = pack_pairs(y, lines, lanes), "panels"
        elif y.strides[2] == y.itemsize or y.shape[2] == 1:
            b, source = y if kind == "f32" else y.view(BITS[kind]), "rows"
        else:
            b, source = turned(y) if kind == "f32" else words_of(turned(y), kind), "columns"
        return product(blueprint, x, b, source, out, epilogue)


@cache
def blueprint_of(
    plan: TilePlan,
    source: str,
    once: bool,
    paired: bool,
    streaming: bool,
    asks: int = 1,
    across: bool = False,
) -> Blueprint:
    """The kernel's blueprint; the same object every time, so that keys compare quickly."""
    wide = 1 if source == "panels" else plan.wide
    return Blueprint(
        plan.rows,
        plan.lines,
        plan.lanes,
        kind=plan.kind,
        source=source,
        wide=wide,
        matrix=plan.matrix,
        once=once,
        paired=paired,
        streaming=streaming,
        ahead=plan.ahead and source == "panels",
        fetched=plan.fetched,
        asks=asks,
        across=across,
    )


def ends_of(out: Any, epilogue: Epilogue) -> LineEpilogue:
    """What becomes of lines of sums."""
    bias, residual, function, alpha, mask, fill, joined = epilogue
    numbers = float(alpha), mask, float(fill)
    return LineEpilogue(out, function, bias, residual, *numbers, joined=joined)


def product(plan: TilePlan, x: Any, b: Any, source: str, out: Any, epilogue: Epilogue) -> None:
    """out = epilogue(x @ b): x (batch, M, K) with unit stride along K, or along M where
    `reads_across`, out (batch, M, N), b as `block_product` says.
    """
    batch, m, n = out.shape
    depth = plan.depth or x.shape[2]
    bias, residual, function, _, mask, _, _ = epilogue
    once = x.shape[2] <= depth
    plain = bias is None and residual is None and mask is None and function is None
    paired = once and plain and plan.kind == "bf16" and name_of(out.dtype) == "bf16"
    if paired:
        out = out.view(BITS["bf16"])
    streaming = (
        once
        and not plan.fetched
        and out.nbytes >= STREAMING_BYTES
        and aligned(out, 64)
        and all(s % 64 == 0 for s in out.strides[:2])
    )
    across = x.strides[2] != x.itemsize and x.shape[2] > 1
    blueprint = blueprint_of(plan, source, once, paired, streaming, across=across)
    tiles, panels = -(-m // plan.rows), -(-n // blueprint.width)
    row_blocks = -(-tiles // plan.block_rows)
    if plan.kind == "i8":
        row_blocks = max(row_blocks, -(-tiles // (MOST_ROWS // plan.rows - 1)))
    cubes = batch * row_blocks * -(-panels // plan.block_panels)
    block_product[cubes, 1](
        x.transpose(0, 2, 1) if across else x,
        b,
        ends_of(out, epilogue),
        row_blocks,
        plan.block_panels,
        depth,
        1 if source == "panels" else plan.depth,
        blueprint,
        mode="unchecked",
    )


def multiply_goto(
    plan: TilePlan, problem: Product, x: Any, y: Any, out: Any, epilogue: Epilogue
) -> None:
    """The same by `goto_product`; y is packed for some pieces of K after the other, so that
    caches hold them.
    """
    batch, m, n = out.shape
    ends = ends_of(out, epilogue)
    k, width = x.shape[2], plan.lines * plan.lanes
    blueprint = blueprint_of(
        plan, "panels", k <= plan.depth, False, False, -(-UNROLL // min(plan.block_rows, UNROLL))
    )
    tiles, panels = -(-m // plan.rows), -(-n // width)
    row_blocks, groups = -(-tiles // plan.block_rows), -(-panels // plan.block_panels)
    deep = k if problem.packed or k * n <= AT_ONCE else plan.depth
    space = (
        None
        if problem.packed
        else memory.empty((y.shape[0], panels, deep + GAP, width), cb.f32.numpy)
    )
    for begin in range(0, k, deep):
        here = min(deep, k - begin)
        b = (
            y
            if space is None
            else pack(y[:, begin : begin + here], plan.lines, plan.lanes, out=space)
        )
        goto_product[batch * row_blocks * groups, 1](
            x,
            b.reshape(*b.shape[:2], -1),
            ends,
            row_blocks,
            groups,
            begin,
            here,
            plan.depth,
            blueprint,
            mode="unchecked",
        )
