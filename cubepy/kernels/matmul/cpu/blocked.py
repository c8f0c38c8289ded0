"""Tiled products on a CPU: how rows and panels are shared between cubes, and where b is packed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.matmul.cpu.goto import DEEP, TALL, TURN, gathered_product
from cubepy.kernels.matmul.cpu.macrokernel import MOST_ROWS, block_product
from cubepy.kernels.matmul.cpu.microkernel import Blueprint
from cubepy.kernels.matmul.cpu.packing import pack_columns, pack_rows, pieces_of
from cubepy.kernels.matmul.cpu.packing_on_stack import PER_WORD
from cubepy.kernels.matmul.cpu.vnni import BITS, kind_of, laid, pack_pairs, turned, words_of
from cubepy.kernels.matmul.problem import Product, name_of, result_dtype
from cubepy.kernels.primitives.register_transpose import SIDE
from cubepy.kernels.primitives.vector_width import PAST, aligned
from cubepy.runtime import memory
from cubepy.tune import TunedRoutine

DEPTH = 256  # of a piece: 32 columns of it fill the first-level cache
DEEPEST = 2048  # of a piece on the stack, half of the second-level cache
FEW = 128  # rows with which packing b takes longer than multiplying
MEMORY_BOUND = 32  # rows with which reading b from memory takes about as long as multiplying
MIDDLE = 1 << 24  # bytes of b that caches may hold between two products
BLOCK = 512  # rows of a cube: enough to pay for packing, and A stays in the second-level cache
NARROW = 120  # rows of a cube that makes whole rows of the result: A stays near beside all panels of b in turn
LINE = 64  # bytes of a line of the caches
SHALLOW = 64  # words along K with which a matrix unit takes less time than writing its sums
NEAR = 1 << 19  # bytes of b, packed, that stay in the second-level cache beside a's rows
ALONE = 1 << 18  # products of numbers or words that one core does before another has begun
PANELS = 16  # of b that share rows of a which are copied
SHORT = 16  # of K: copies of shorter rows are no shorter than what they are read for
WORTH = 3 << 25  # products of numbers beside which packing b beforehand takes no time
AT_ONCE = 1 << 20  # numbers of b that are packed at once
HELD = 1 << 21  # numbers of a piece of b that the last cache holds between packing and multiplying
GAP = 8  # rows between panels, so that rows that are packed side by side share no set of the caches
SMALL = (
    1 << 16
)  # bytes of a matrix that needs no packing, since the nearest caches hold it as it is; half with AVX2


@dataclass(frozen=True)
class TilePlan:
    """What changes the code and the launch of a tiled product.

    Attributes: rows, lines, lanes: the register tile, rows x (lines x lanes). block_rows,
        block_panels: tiles of a cube along M, at most, and panels along N. depth: K is walked in
        pieces of this length, 0 for all at once. kind: what sums are made of (see
        `matmul.cpu.vnni`). wide: panels that are packed at a time. beforehand: whether all of b is
        packed first. matrix: whether a matrix unit multiplies. ahead: whether panels that are there
        already are asked for a piece ahead. fetched: whether the part of the result that a tile
        writes is asked for when the tile begins. gathered: whether cubes copy their rows of a
        beside each other (see `matmul.cpu.goto`).
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
    gathered: bool = False


def laid_in_panels(b: Any) -> Any:
    """b (1, K, N) as products on the current device read it most quickly: pairs of bf16 where it
    multiplies them.
    """
    p = cb.device_properties_of()
    if name_of(b.dtype) != "bf16" or "bf16_dot" not in p.features:
        return pack(b, *tile_of(p)[1:])
    return pack_pairs(b, *((2, 16) if "tiles" in p.features else tile_of(p, "bf16")[1:]))


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

    def cost(tile: tuple[int, int]) -> float:
        rows, width = tile[0], tile[1] * lanes
        return tiles[tile] * -(-problem.m // rows) * rows * -(-problem.n // width) * width

    return min(tiles, key=cost)


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
        return np.lib.stride_tricks.as_strided(b, (batch, panels, k, width), steps, writeable=False)
    if out is None:
        out = memory.empty((batch, panels, k, width), cb.f32.numpy)
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
    """Any float product of 32 bits or less, and bytes times signed bytes where the machine has dot
    products.
    """

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
        """The tile that fills the registers, in blocks that keep all cores busy; then variations of
        both.
        """
        kind = kind_of(problem, properties) or "f32"
        if kind != "f32" and "tiles" in properties.features:
            base = matrix_blocks(problem, kind, properties.cores)
            yield from dict.fromkeys([base, *varied(problem, base)])
            return
        rows, lines, lanes = tile_of(properties, kind)
        if problem.packed:
            lines = problem.packed // lanes
        if (
            (rows, lines, kind) == (6, 2, "f32")
            and 4 * lines * lanes == LINE
            and pays_gathering(problem)
        ):
            yield gathered_blocks(problem, lanes, properties.cores)
        if (rows, lines, kind) == (6, 2, "f32") and problem.m <= FEW:
            rows, lines = tile_of_few(problem, lanes)
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

    def launch(self, blueprint: TilePlan, problem: Product, args: tuple[Any, ...]) -> None:
        """Multiply, with b where it stands or packed beforehand."""
        x, y, out, bias, residual, function, alpha, mask, fill = (*args, None, 0.0)[:9]
        lines, lanes, kind = blueprint.lines, blueprint.lanes, blueprint.kind
        if kind != "f32":
            x = words_of(x, kind)
        elif x.dtype != np.float32 and problem.n > lines * lanes:  # widen once, not for every panel
            x = laid(x, np.float32, x.shape[2])
        if blueprint.gathered:
            return gathered(
                blueprint, problem, x, y, out, bias, residual, function, alpha, mask, fill
            )
        if problem.packed:
            b, source = y, "panels"
        elif kind == "f32" and (blueprint.beforehand or seen_in_panels(y, lines * lanes)):
            b, source = pack(y, lines, lanes, view=True), "panels"
        elif blueprint.beforehand:
            b, source = pack_pairs(y, lines, lanes), "panels"
        elif y.strides[2] == y.itemsize or y.shape[2] == 1:
            b, source = y if kind == "f32" else y.view(BITS[kind]), "rows"
        else:
            b, source = turned(y) if kind == "f32" else words_of(turned(y), kind), "columns"
        return product(blueprint, x, b, source, out, bias, residual, function, alpha, mask, fill)


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
    line = kind == "f32" and 4 * lines * lanes == LINE  # so it is with AVX2
    far = 4 * problem.k * problem.n > MIDDLE
    ahead = (
        bool(problem.packed)
        and kind == "f32"
        and problem.m <= MEMORY_BOUND
        and far
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
    if wide > 1 and (kind != "f32" or 4 * lines * lanes > 2 * LINE):
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
    far = 4 * problem.k * problem.n > MIDDLE  # it comes from memory in any case
    least, rows = (WORTH // 16, 2) if problem.packed else (WORTH, 5 if far else FEW // 2)
    large = problem.m >= rows and problem.batch * problem.m * problem.k * problem.n >= least
    return exact and large and problem.k >= SHORT and problem.n > (PANELS - 1) * LINE // 4


def gathered_blocks(problem: Product, lanes: int, cores: int) -> TilePlan:
    """Blocks for `gathered_product`: tall ones, and whole rows of the result unless that leaves
    cores idle.
    """
    lines, beforehand = LINE // (4 * lanes), not problem.packed
    rows = tile_of_few(problem._replace(packed=lines * lanes), lanes)[0] if problem.m <= FEW else 6
    tiles, panels = -(-problem.m // rows), -(-problem.n // (lines * lanes))
    least = -(-tiles // TALL)
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
        rows, lines, lanes, -(-tiles // count), -(-panels // part), depth, beforehand=beforehand, fetched=True,
        gathered=True,
    )  # fmt: skip


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
    if base.kind != "i8" and base.kind != "u8":
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


@cache
def blueprint_of(
    plan: TilePlan, source: str, once: bool, paired: bool, past: bool, bias: bool, residual: bool, mask: bool,
    function: Any, asks: int = 1,
) -> Blueprint:  # fmt: skip
    """The kernel's blueprint; the same object every time, so that keys compare quickly."""
    wide = 1 if source == "panels" else plan.wide
    return Blueprint(
        plan.rows, plan.lines, plan.lanes, bias, residual, mask, function, plan.kind, source, wide, matrix=plan.matrix,
        once=once, paired=paired, past=past, ahead=plan.ahead and source == "panels",
        fetched=plan.fetched, asks=asks,
    )  # fmt: skip


def product(
    plan: TilePlan,
    x: Any,
    b: Any,
    source: str,
    out: Any,
    bias: Any,
    residual: Any,
    function: Any,
    alpha: float,
    mask: Any = None,
    fill: float = 0.0,
) -> None:
    """out = epilogue(x @ b): x (batch, M, K) with unit stride along K, out (batch, M, N), b as
    `block_product` says.
    """
    batch, m, n = out.shape
    depth = plan.depth or x.shape[2]
    once, plain = (
        x.shape[2] <= depth,
        bias is None and residual is None and mask is None and function is None,
    )
    paired = once and plain and plan.kind == "bf16" and name_of(out.dtype) == "bf16"
    if paired:
        out = out.view(BITS["bf16"])
    past = (
        once
        and not plan.fetched
        and out.nbytes >= PAST
        and aligned(out, 64)
        and all(s % 64 == 0 for s in out.strides[:2])
    )
    blueprint = blueprint_of(
        plan,
        source,
        once,
        paired,
        past,
        bias is not None,
        residual is not None,
        mask is not None,
        function,
    )
    tiles, panels = -(-m // plan.rows), -(-n // blueprint.width)
    row_blocks = -(-tiles // plan.block_rows)
    if plan.kind == "i8":
        row_blocks = max(row_blocks, -(-tiles // (MOST_ROWS // plan.rows - 1)))
    cubes = batch * row_blocks * -(-panels // plan.block_panels)
    block_product[cubes, 1](
        x, b, out, bias, residual, mask, float(alpha), float(fill), row_blocks, plan.block_panels,
        depth, 1 if source == "panels" else plan.depth, blueprint, mode="unchecked",
    )  # fmt: skip


def gathered(
    plan: TilePlan,
    problem: Product,
    x: Any,
    y: Any,
    out: Any,
    bias: Any,
    residual: Any,
    function: Any,
    alpha: float,
    mask: Any,
    fill: float,
) -> None:
    """The same by `gathered_product`; y is packed for some pieces of K after the other, so that
    caches hold them.
    """
    batch, m, n = out.shape
    k, width = x.shape[2], plan.lines * plan.lanes
    blueprint = blueprint_of(
        plan, "panels", k <= plan.depth, False, False, bias is not None, residual is not None, mask is not None,
        function, -(-TURN // min(plan.block_rows, TURN)),
    )  # fmt: skip
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
        gathered_product[batch * row_blocks * groups, 1](
            x, b.reshape(*b.shape[:2], -1), out, bias, residual, mask, float(alpha), float(fill), row_blocks, groups,
            begin, here, plan.depth, blueprint, mode="unchecked",
        )  # fmt: skip
