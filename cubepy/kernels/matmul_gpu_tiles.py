"""Routines of `K.matmul` on Hopper that the persistent kernel does not suit: too few tiles, and f32 without tf32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import cubepy as cb
from cubepy.kernels.matmul_fma import DEPTH, Fma, fma_product
from cubepy.kernels.matmul_fma_planes import COLUMNS, ROWS, FmaPlanes, fma_planes_product
from cubepy.kernels.matmul_gpu import NARROW_FLOATS, fitted, map_of, once, oriented
from cubepy.kernels.matmul_problem import Product, result_dtype
from cubepy.kernels.matmul_ring import BLOCK, ROW_BYTES
from cubepy.kernels.matmul_thin import Thin, thin_product
from cubepy.lang.dtypes import as_dtype
from cubepy.tune import Routine

LEAST_STEPS = 32
"""Stages of K, at least, for which two cubes are faster than one: their sums take a microsecond to meet."""
SHARED_BY = ((8, 96), (4, 64))
"""Cubes of larger clusters, and the stages of K, at least, for which they are taken where MOST_SHARED fit."""
MOST_SHARED = 64
"""Cubes of larger clusters that surely find room at once: a cluster wants its cores in one part of the chip."""


class ThinRoutine(Routine):
    """16-bit floats and tf32 where tiles are fewer than cores: cubes share K, so that all cores bring the matrix."""

    name = "thin"

    def group(self, key: Product) -> int:
        """With the other kernel of wgmma."""
        return 3

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has wgmma and clusters, operands are 16-bit floats or tf32, and rows are aligned."""
        if not {"wgmma", "tma", "cluster", "overlap"} <= properties.features:
            return "the device has no clusters"
        narrow, rounded = problem.a in NARROW_FLOATS, problem.a == "f32" and problem.tf32
        if problem.a != problem.b or not (narrow or rounded) or result_dtype(problem).bits > 32:
            return f"it takes 16-bit floats and tf32, not {problem.a} and {problem.b}"
        if rounded and problem.layout != "columns":
            return "matrix units take tf32 along K only"
        return None if problem.aligned else "the copy engine wants rows aligned to 16 bytes"

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Thin]:
        """One tile a cluster, where all of them run at once and K is long."""
        plan = Thin()
        tiles = problem.batch * -(-problem.m // plan.rows) * -(-problem.n // plan.columns)
        steps = problem.k * as_dtype(problem.a).itemsize // ROW_BYTES
        for parts, least in SHARED_BY:
            if tiles * parts <= MOST_SHARED and steps >= least:
                yield replace(plan, parts=parts)
        if tiles * plan.parts <= properties.cores and steps >= LEAST_STEPS:
            yield plan

    def launch(self, blueprint: Thin, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha = args
        a, a_along_k = oriented(once(x))
        b, b_along_k = oriented(once(y).transpose(0, 2, 1))
        plan = fitted(blueprint, args, transpose_a=not a_along_k, transpose_b=not b_along_k)
        depth, tf32 = ROW_BYTES // x.itemsize, problem.a == "f32"
        batch, m, n = out.shape
        row_tiles, column_tiles = -(-m // plan.rows), -(-n // plan.columns)
        thin_product[batch * row_tiles * column_tiles * plan.parts, plan.units](
            map_of(a, plan.rows, depth, tf32) if a_along_k else map_of(a, depth, BLOCK),
            map_of(b, plan.columns, depth, tf32) if b_along_k else map_of(b, depth, BLOCK),
            out, bias, residual, float(alpha), row_tiles, column_tiles, -(-x.shape[2] // depth), a.shape[0],
            b.shape[0], plan, mode="unchecked",
        )  # fmt: skip


class FmaRoutine(Routine):
    """f32 by plain arithmetic, with tiles that the copy engine brings."""

    name, kernel = "fma", fma_product
    layouts: ClassVar[tuple[str, ...]] = ("columns",)

    def group(self, key: Product) -> int:
        """Before the kernel for any strides."""
        return 2

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has a copy engine, everything is f32, and rows are aligned."""
        if "tma" not in properties.features:
            return "the device has no copy engine"
        if problem.tf32 or (problem.a, problem.b, result_dtype(problem).name) != (
            "f32",
            "f32",
            "f32",
        ):
            return "it takes f32 that is not to be rounded"
        if not problem.aligned or problem.layout not in self.layouts:
            return "the copy engine wants neighbours along K, and rows aligned to 16 bytes"
        return None

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Any]:
        """One tile, where there is one for every core."""
        plan = Fma()
        if (
            problem.batch * -(-problem.m // plan.rows) * -(-problem.n // plan.columns)
            >= properties.cores
        ):
            yield plan

    def launch(self, blueprint: Any, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha = args
        plan = fitted(blueprint, args)
        a, b = once(x), once(y).transpose(0, 2, 1) if plan.b_along_k else once(y)
        box = (plan.columns, DEPTH) if plan.b_along_k else (DEPTH, plan.columns)
        batch, m, n = out.shape
        row_tiles, column_tiles = -(-m // plan.rows), -(-n // plan.columns)
        self.kernel[batch * row_tiles * column_tiles, plan.units](
            map_of(a, plan.rows, DEPTH), map_of(b, *box), out, bias, residual, float(alpha), row_tiles, column_tiles,
            -(-x.shape[2] // DEPTH), a.shape[0], b.shape[0], plan, mode="unchecked",
        )  # fmt: skip


class FmaPlanesRoutine(FmaRoutine):
    """f32 by plain arithmetic, with small tiles that the copy engine brings and planes that share K."""

    name, kernel = "fma_planes", fma_planes_product
    layouts = ("columns", "rows")

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Any]:
        """One tile, where large ones do not fill the device; where quarters of it find a core each, teams of units are
        faster."""
        large = problem.batch * -(-problem.m // Fma.rows) * -(-problem.n // Fma.columns)
        tiles = problem.batch * -(-problem.m // ROWS) * -(-problem.n // COLUMNS)
        if 4 * tiles > properties.cores > large:
            plan = FmaPlanes() if tiles <= properties.cores else FmaPlanes(stages=1, cubes=2)
            yield replace(plan, b_along_k=problem.layout == "columns")
