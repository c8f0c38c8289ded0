"""Products on Hopper whose operands the copy engine cannot take: they are copied into aligned rows
first.

Rows that are no multiple of 16 bytes would otherwise go through registers, element by element, for
every tile that needs them; a copy touches them once, and the matrix units then run as fast as ever.
A result of such rows is written by the matmul itself. f32 that lies across K is turned on the way,
because matrix units take tf32 along K only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.gemv import MOST_DOT_ROWS, Few, FewRoutine
from cubepy.kernels.matmul.gpu.operands import NARROW_FLOATS, aligned
from cubepy.kernels.matmul.gpu.padded_operands import STAGE_BYTES, STEPS, along_own, padded
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.matmul.sm90.cluster_split_k import ClusterSplitK, ClusterSplitKRoutine
from cubepy.kernels.matmul.sm90.persistent import HopperRoutine
from cubepy.kernels.primitives.vector_width import address
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory


class PaddedRoutine(HopperRoutine):
    """16-bit floats and tf32 by `cb.wgmma`, with operands that are copied before."""

    name = "padded"
    few, split_k, wide = FewRoutine(), ClusterSplitKRoutine(), HopperRoutine()

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has wgmma, the dtypes are those of its matrix units, and there is work enough
        for a copy.
        """
        if not {"wgmma", "tma"} <= properties.features:
            return "the device has no wgmma"
        out = result_dtype(problem)
        narrow = problem.a in NARROW_FLOATS and out.name in (problem.a, "f32")
        if problem.a != problem.b or not (narrow or (problem.a == "f32" and problem.tf32)):
            return f"it takes 16-bit floats and tf32, not {problem.a} and {problem.b}"
        if problem.aligned and (narrow or problem.layout == "columns"):
            return "operands are aligned as they are"
        size = as_dtype(problem.a).itemsize
        tiles = problem.batch * -(-problem.m // 64) * -(-problem.n // 64)
        rounds = -(-tiles // (2 * properties.cores))
        if rounds * -(-problem.k * size // STAGE_BYTES) < STEPS:
            return "there is too little work for copies"
        return None

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Any]:
        """Those of the routines for aligned operands, as if these were."""
        ready = problem._replace(
            aligned=True, layout="columns" if problem.a == "f32" else problem.layout
        )
        if problem.a in NARROW_FLOATS:
            full = ready._replace(k=-(-problem.k // 8) * 8)
            if problem.m > MOST_DOT_ROWS and self.few.supports(full, properties) is None:
                yield from self.few.blueprints(full, properties)
        if self.split_k.supports(ready, properties) is None:
            yield from self.split_k.blueprints(ready, properties)
        for plan in self.wide.blueprints(ready, properties):
            if plan.cubes == 1:  # clusters that write rows of any alignment were never timed
                yield plan

    def launch(self, blueprint: Any, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        (x, y, out, bias, residual, *rest), here = args, problem.properties
        if isinstance(blueprint, Few):
            a, b = (
                v if aligned(v) and v.shape[2] % 8 == 0 else padded(v, here)
                for v in (x, y.transpose(0, 2, 1))
            )
            self.few.launch(
                blueprint, problem, (a, b.transpose(0, 2, 1), out, bias, residual, *rest)
            )
            return
        k_last = problem.a == "f32"
        a, b = (along_own(v, k_last, here) for v in (x, y.transpose(0, 2, 1)))
        b = b.transpose(0, 2, 1)
        if isinstance(blueprint, ClusterSplitK):
            self.split_k.launch(blueprint, problem, (a, b, out, bias, residual, *rest))
            return
        if residual is not None and not (aligned(residual) and residual.dtype == out.dtype):
            own = (
                memory.empty(residual.shape, out.dtype) if residual.dtype != out.dtype else residual
            )
            if own is not residual:
                own[...] = residual
            residual = own if aligned(own) else along_own(own, True, here)
        words = address(out) % 4 == 0 and all(
            s % 4 == 0 for n, s in zip(out.shape, out.strides[:2]) if n != 1
        )
        plain = 0 if aligned(out) else 2 if out.itemsize == 2 and words else 1
        self.wide.launch(
            replace(blueprint, plain=plain), problem, (a, b, out, bias, residual, *rest)
        )
