"""Small products on a GPU: units read both operands straight from memory.

Where K is short, or all of a product is, tiles in shared memory cost more than they save: their
copies, barriers and code take longer than the arithmetic. A unit has a few rows and columns of the
result, those of its neighbours lie beside them, and asks for some of K of all of them before it
uses the first. Operands of any strides and dtypes. Measured against cuBLAS in
docs/benchmarks/log/matmul-sm90.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.operands import fitted, once
from cubepy.kernels.matmul.gpu.simt import tile_start
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.kernels.primitives.vector_width import lanes_within
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import GpuRoutine, TunedRoutine

UNITS = 128
SHORT, STEP = 8, 4
"""Of K, so little that large results are nearly written when tiles are there, and what a unit with
many of them asks for at once.
"""
MOST_RESULTS = 1 << 20
"""Elements of a result, at most, of other floats than those of 16 and 32 bits (which were measured
on an H200, as all that follows) and where the copy engine can bring tiles.
"""
LONGER, MOST_PRODUCTS = 24, 1 << 18
"""Of K, where there are no more products of numbers than that."""
PLANS: tuple[tuple[int, dict[str, Any]], ...] = (
    (1 << 14, {}),
    (1 << 16, {"high": 2, "wide": 2}),
    (1 << 60, {"high": 4, "wide": 4, "depth": STEP}),
)
"""Elements of a result, at most, and what a unit has of them."""
WIDE_PLAN: dict[str, Any] = {"high": 4, "lanes": 4, "depth": STEP}
LARGE_PLAN: dict[str, Any] = {"high": 8, "lanes": 4, "depth": STEP // 2}
"""Instead of the last one, where rows of the result are whole lines; of more results."""
NARROW = 64
"""Columns from which on a plane has one row."""


@dataclass(frozen=True)
class Direct(Epilogue):
    """What changes the code of a small product, beside the epilogue.

    Attributes:
        dtype: of products and sums.
        across: units of a cube beside each other.
        high: rows of a unit, below each other.
        wide: lines of columns of a unit, `across` lines apart.
        lanes: columns of a line, which divide the result's.
        depth: of K, what is asked for at once.
    """

    dtype: Any = cb.f32
    across: int = 32
    high: int = 1
    wide: int = 1
    lanes: int = 1
    depth: int = 8

    @property
    def rows(self) -> int:
        """Rows of a cube."""
        return UNITS // self.across * self.high

    @property
    def columns(self) -> int:
        """Columns of a cube."""
        return self.across * self.wide * self.lanes


@cb.kernel(fast_math=("contract", "nsz"))
def direct_product(
    a: cb.Array, b: cb.Array, out: cb.Array, bias, residual, alpha: cb.f32, blueprint: cb.Comptime
):
    """out[batch] = epilogue(a[batch] @ b[batch]) for a (batches, M, K) and b (batches, K, N)."""
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    across, high, wide = blueprint.across, blueprint.high, blueprint.wide
    lanes, dtype = blueprint.lanes, blueprint.dtype
    batch, row, column = tile_start(out, blueprint.rows, blueprint.columns)
    batch_a = cb.min(batch, a.shape[0] - 1)
    batch_b = cb.min(batch, b.shape[0] - 1)
    row = row + cb.UNIT_POS // across * high
    column = column + cb.UNIT_POS % across * lanes
    nothing = cb.cast(cb.splat(0, lanes), dtype)
    acc = cb.local((high, wide), dtype, lanes=lanes)
    for i in cb.unroll(range(high)):
        for j in cb.unroll(range(wide)):
            acc[i, j] = nothing
    for k in range(0, a.shape[2], blueprint.depth):
        rows: Any = ()
        lines: Any = ()
        for d in cb.unroll(range(blueprint.depth)):
            # inside for every unit, so that all loads are on their way at once
            at = cb.min(k + d, a.shape[2] - 1)
            for i in cb.unroll(range(high)):
                rows = rows + (a[batch_a, cb.min(row + i, a.shape[1] - 1), at],)
            for j in cb.unroll(range(wide)):
                where = cb.min(column + j * across * lanes, b.shape[2] - lanes)
                lines = lines + (b.load((batch_b, at, where), lanes),)
        for d in cb.unroll(range(blueprint.depth)):
            inside = k + d < a.shape[2]
            for j in cb.unroll(range(wide)):
                line = cb.select(inside, cb.cast(lines[d * wide + j], dtype), nothing)
                for i in cb.unroll(range(high)):
                    x = cb.select(inside, cb.cast(rows[d * high + i], dtype), cb.cast(0, dtype))
                    acc[i, j] = acc[i, j] + cb.splat(x, lanes) * line
    for i in cb.unroll(range(high)):
        for j in cb.unroll(range(wide)):
            epilogue.finish_inside(acc[i, j], batch, row + i, column + j * across * lanes)


class DirectRoutine(GpuRoutine, TunedRoutine):
    """Small products, of any strides and dtypes."""

    name = "direct"

    def group(self, key: Product) -> int:
        """Before all others where it fits."""
        return 4

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """There is little of K, or little at all."""
        if problem.packed:
            return "it takes no packed weights"
        results, out = problem.batch * problem.m * problem.n, result_dtype(problem)
        if problem.k <= SHORT:
            few = results <= MOST_RESULTS or (
                out.is_float and out.bits <= 32 and not problem.aligned
            )
            return None if few else f"its result has more than {MOST_RESULTS} elements"
        if problem.k > LONGER or problem.m == 1:
            return f"K is longer than {SHORT if problem.m == 1 else LONGER}"
        few = results * problem.k <= MOST_PRODUCTS
        return None if few else f"K is longer than {SHORT}, and there are many results"

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Direct]:
        """Few rows and columns a unit where there are few of them."""
        out = result_dtype(problem)
        sums = as_dtype("f32") if out.is_float and out.bits < 64 else out
        across = 32 if problem.n >= NARROW else 8
        if problem.k > SHORT:
            yield Direct(sums, across, depth=2 * SHORT)
            return
        results = problem.batch * problem.m * problem.n
        plan = next(plan for most, plan in PLANS if results <= most)
        if results > PLANS[1][0] and problem.n % 2 == 0:
            plan = WIDE_PLAN if results <= MOST_RESULTS else LARGE_PLAN
        yield Direct(sums, across, **plan)

    def launch(self, blueprint: Direct, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        a, b = once(x), once(y)
        batch, m, n = out.shape
        lanes = lanes_within(out, blueprint.lanes)
        plan = fitted(replace(blueprint, lanes=lanes), args)
        cubes = batch * -(-m // plan.rows) * -(-n // plan.columns)
        direct_product[cubes, UNITS](
            a, b, out, bias, residual, float(alpha), plan, mode="unchecked"
        )
