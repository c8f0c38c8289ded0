"""Exact f32 on Hopper with operands that the copy engine does not bring as the product wants them:
across K, as both of NumPy's own order are for one of `a @ b` and `a.T @ b`, or of rows that begin
anywhere. They are copied into aligned rows along K first; measured in
docs/benchmarks/log/matmul-sm90.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.padded_operands import along_own
from cubepy.kernels.matmul.gpu.simt_costs import chosen
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.sm90.tma_simt import Fma, FmaRoutine
from cubepy.kernels.matmul.sm90.tma_simt_split_k import FmaPlanesRoutine, planes_for
from cubepy.tune import GpuRoutine, TunedRoutine


class FmaCopiedRoutine(GpuRoutine, TunedRoutine):
    """f32 by plain arithmetic, with operands that are copied before."""

    name = "fma_copied"
    large, small = FmaRoutine(), FmaPlanesRoutine()

    def group(self, key: Product) -> int:
        """Before the kernel for any strides."""
        return 2

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The operands are not as the copy engine wants them."""
        if problem.aligned and problem.layout == "columns":
            return "operands are along K and aligned as they are"
        ready = problem._replace(aligned=True, layout="columns")
        reason = self.large.unfit(ready, properties)
        if reason is not None:
            return reason
        return None

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Any]:
        """That of the routines for aligned operands, where the model of costs chooses copies."""
        choice = chosen(problem, properties)
        if choice.routine == self.name:
            ready = problem._replace(aligned=True, layout="columns")
            yield planes_for(ready, properties.cores) if choice.tile else Fma()

    def launch(self, blueprint: Any, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, *rest = args
        a, b = (along_own(v, True, problem.properties) for v in (x, y.transpose(0, 2, 1)))
        routine = self.large if type(blueprint) is Fma else self.small
        routine.launch(blueprint, problem, (a, b.transpose(0, 2, 1), *rest))
