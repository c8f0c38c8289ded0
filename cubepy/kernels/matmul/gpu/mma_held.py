"""Products of many rows with a small matrix for matrix units (`cb.mma`), of any strides: a plane
holds the whole matrix in registers, or a cube in shared memory, while rows go past it, straight
from memory and back.

Such a product is as long as its rows are in memory: they never go through shared memory, no plane
waits for another one, and several tiles of rows are under way at once. As in `mma_split_k`, a unit
takes 16 neighbours' bytes along K for its own parts of K. So it is with columns: those of a unit's
sums are neighbours, which are stored together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.mma_split_k import PIECE, QUADS, along, unfit_for_floats, words_of
from cubepy.kernels.matmul.gpu.operands import fitted, once
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.kernels.primitives.vector_width import lanes_within
from cubepy.tune import GpuRoutine, TunedRoutine

PLANE, PLANES = 32, 8
UNITS = PLANE * PLANES
DEEPEST = 256
"""Bytes of K, at most: four steps of rows are held."""
WIDEST = 8
"""Tiles of 8 columns, at most."""
FEWEST, MANY = 1 << 12, 50_000
"""Rows from which on the matrix is read seldom enough, and those that have work for all planes of
an H200 several times: then two tiles of rows are under way (measured there with 130 products, as
what follows).
"""
HELD = 7
"""Tiles of columns times steps of K, up to which registers hold them, or in one step."""
CUBES = 4
"""Cubes of a core that are launched, where there is work for them."""


@dataclass(frozen=True)
class MmaHeld(Epilogue):
    """What changes the code, beside the epilogue.

    Attributes:
        dtype: name of the operands' dtype.
        wide: columns, times 8.
        steps: along K, of 64 bytes each.
        high: rows that are under way at once, times 16.
        a_lanes: elements along K that are read at once.
        b_lanes: the same of b; where it lies `across`, columns of it.
        across: neighbours of b lie along its columns.
        exact: there are as many columns as in the tile.
        meets: b is in shared memory.
    """

    dtype: str = "f16"
    wide: int = 1
    steps: int = 1
    high: int = 2
    a_lanes: int = 1
    b_lanes: int = 1
    across: bool = False
    exact: bool = False
    meets: bool = False


@cb.func
def column_of(n, tile, wide):
    """The column of the result that is the nth of a tile of 8: a unit's are neighbours."""
    return n // 2 * (2 * wide) + tile * 2 + n % 2


@cb.func
def held_columns(b, k, blueprint):
    """A unit's elements of b, along K from k on, for each tile of columns."""
    wide, n = blueprint.wide, cb.UNIT_POS_PLANE // QUADS
    per = PIECE // b.dtype.itemsize
    if not blueprint.across:
        return tuple(along(b, 0, column_of(n, j, wide), k, blueprint.b_lanes) for j in range(wide))
    found: Any = ()
    for j in cb.unroll(range(wide)):
        values: Any = ()
        column = cb.min(column_of(n, j, wide), b.shape[2] - 1)
        for e in cb.unroll(range(per)):
            value = b[0, cb.min(k + e, b.shape[1] - 1), column]
            values = values + (value if k + e < b.shape[1] else b.dtype(0),)
        found = found + (values,)
    return found


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def mma_held(
    a: cb.Array, b: cb.Array, out: cb.Array, bias, residual, alpha: cb.f32, blueprint: cb.Comptime
):
    """out[0] = epilogue(a[0] @ b[0]) for a (1, M, K), and b (1, N, K) or, across, (1, K, N); 16-bit
    floats are given as integers.
    """
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    wide, steps, high = blueprint.wide, blueprint.steps, blueprint.high
    per = PIECE // a.dtype.itemsize
    low, quad = cb.UNIT_POS_PLANE // QUADS, cb.UNIT_POS_PLANE % QUADS
    column, lanes = quad * (2 * wide), 2 * wide
    inside = cb.max(out.shape[2] - column, 0)
    rights: Any = ()
    held = cb.shared(steps * wide * 4 * PLANE if blueprint.meets else 1, cb.u32)
    for s in cb.unroll(range(steps)):
        if not blueprint.meets:
            columns = held_columns(b, (s * QUADS + quad) * per, blueprint)
            rights = rights + (tuple(words_of(one) for one in columns),)
        elif cb.PLANE_POS == s % PLANES:
            columns = held_columns(b, (s * QUADS + quad) * per, blueprint)
            for j in cb.unroll(range(wide)):
                words = words_of(columns[j])
                for half in cb.unroll(range(2)):
                    to = ((s * wide + j) * 2 + half) * PLANE + cb.UNIT_POS_PLANE
                    held.store(2 * to, cb.slice_line(words, 2 * half, 2))
    if blueprint.meets:
        cb.sync_cube()
    shift = None
    if blueprint.bias:
        shift = epilogue.shift((0, 0, column), lanes, inside)
    tiles = (out.shape[1] + 16 * high - 1) // (16 * high)
    first = cb.CUBE_POS * PLANES + cb.PLANE_POS
    for tile in range(first, tiles, cb.CUBE_COUNT * PLANES):
        row = tile * (16 * high) + low
        lefts: Any = ()
        for i in cb.unroll(range(2 * high)):
            for s in cb.unroll(range(steps)):
                k = (s * QUADS + quad) * per
                lefts = lefts + (along(a, 0, row + i * 8, k, blueprint.a_lanes),)
        acc = cb.local((high, wide), cb.f32, lanes=4)
        for i in cb.unroll(range(high)):
            for j in cb.unroll(range(wide)):
                acc[i, j] = cb.splat(cb.f32(0), 4)
        for s in cb.unroll(range(steps)):
            for half in cb.unroll(range(2)):
                tiles_of_a: Any = ()
                for i in cb.unroll(range(high)):
                    one = words_of(lefts[2 * i * steps + s])
                    two = words_of(lefts[(2 * i + 1) * steps + s])
                    pair = cb.slice_line(one, 2 * half, 2), cb.slice_line(two, 2 * half, 2)
                    tiles_of_a = tiles_of_a + (cb.interleave(*pair),)
                for j in cb.unroll(range(wide)):
                    if blueprint.meets:
                        at = ((s * wide + j) * 2 + half) * PLANE + cb.UNIT_POS_PLANE
                        right = held.load(2 * at, 2)
                    else:
                        right = cb.slice_line(rights[s][j], 2 * half, 2)
                    for i in cb.unroll(range(high)):
                        acc[i, j] = cb.mma(tiles_of_a[i], right, acc[i, j], blueprint.dtype)
        for i in cb.unroll(range(high)):
            for half in cb.unroll(range(2)):
                values: Any = ()
                for j in cb.unroll(range(wide)):
                    values = values + (acc[i, j][2 * half], acc[i, j][2 * half + 1])
                at = row + (2 * i + half) * 8
                if at < out.shape[1]:
                    line = cb.line(*values)
                    if blueprint.exact:
                        epilogue.finish(line, (0, at, column), shift=shift)
                    else:
                        epilogue.finish(line, (0, at, column), inside, shift=shift)


def plan_of(problem: Product) -> MmaHeld:
    """The tile of all columns, and the rows that are under way."""
    size = 4 if problem.a == "f32" else 2
    wide, steps = -(-problem.n // 8), -(-problem.k * size // (QUADS * PIECE))
    wide = next(w for w in (1, 2, 3, 4, 6, 8) if w >= wide)
    high = 2 if problem.m >= MANY and steps == 1 and wide <= 4 else 1
    meets = steps > 1 and wide * steps > HELD
    return MmaHeld(dtype=problem.a, wide=wide, steps=steps, high=high, meets=meets)


class MmaHeldRoutine(GpuRoutine, TunedRoutine):
    """16-bit floats and tf32 of any strides, where a small matrix meets many rows."""

    name = "mma_held"

    def group(self, key: Product) -> int:
        """Before all others where it fits."""
        return 4

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """Floats of matrix units, many rows, and a matrix that registers hold."""
        reason = unfit_for_floats(problem, properties)
        if reason is not None:
            return reason
        if problem.batch > 1 or problem.m < FEWEST:
            return "there are several matrices, or few rows"
        size = 4 if problem.a == "f32" else 2
        if problem.k * size > DEEPEST or problem.n > 8 * WIDEST:
            return "the matrix is not small"
        plan = plan_of(problem)
        large = plan.wide == WIDEST and plan.steps > 1
        return "wide tiles of several steps are quicker by other routines" if large else None

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[MmaHeld]:
        """By the rule; then with more or fewer rows under way."""
        plan = plan_of(problem)
        yield plan
        yield replace(plan, high=3 - plan.high)

    def launch(self, blueprint: MmaHeld, problem: Product, args: tuple[Any, ...]) -> None:
        """out (1, M, N) = epilogue(x (1, M, K) @ y (1, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        a, b = once(x), once(y)
        per = PIECE // a.itemsize
        across = problem.layout == "rows"
        b = b if across else b.transpose(0, 2, 1)
        made = replace(
            blueprint,
            across=across,
            a_lanes=lanes_within(a, per),
            b_lanes=1 if across else lanes_within(b, per),
            exact=out.shape[2] == 8 * blueprint.wide,
        )
        plan = fitted(made, args)
        tiles = -(-out.shape[1] // (16 * plan.high * PLANES))
        cubes = min(tiles, CUBES * problem.properties.cores)
        a, b = (v.view("u2") if v.itemsize == 2 else v for v in (a, b))
        mma_held[cubes, UNITS](a, b, out, bias, residual, float(alpha), plan, mode="unchecked")
