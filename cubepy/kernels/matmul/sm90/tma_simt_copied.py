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
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.sm90.tma_simt import Fma, FmaRoutine
from cubepy.kernels.matmul.sm90.tma_simt_split_k import FmaPlanesRoutine
from cubepy.tune import GpuRoutine, TunedRoutine

RATES = {"simt": 33.0, "unaligned": 25.0, "fma": 45.0, "fma_planes": 39.0}
"""Million products and sums that an H200 does in a microsecond, by routine."""
BANDWIDTH = 2.5
"""Million bytes that a copy reads and writes in a microsecond."""
LAUNCH = 3.0
"""Microseconds of a copy, however small it is."""


class FmaCopiedRoutine(GpuRoutine, TunedRoutine):
    """f32 by plain arithmetic, with operands that are copied before."""

    name = "fma_copied"
    large, small = FmaRoutine(), FmaPlanesRoutine()

    def group(self, key: Product) -> int:
        """Before the kernel for any strides."""
        return 2

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The operands are not as the copy engine wants them, and there is work enough for
        copies.
        """
        if problem.aligned and problem.layout == "columns":
            return "operands are along K and aligned as they are"
        ready = problem._replace(aligned=True, layout="columns")
        reason = self.large.unfit(ready, properties)
        if reason is not None:
            return reason
        if not self.worth(problem, properties):
            return "there is too little work for copies"
        return None

    def worth(self, problem: Product, properties: cb.DeviceProperties) -> bool:
        """Whether what is gained takes longer than copies."""
        m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
        plan = next(self.blueprints(problem, properties), None)
        if plan is None:
            return False
        rate = RATES["fma" if type(plan) is Fma else "fma_planes"]
        before = RATES["simt" if problem.aligned else "unaligned"]
        gained = 2e-6 * batch * m * n * k * (1 / before - 1 / rate)
        elements = batch * k * (n if problem.aligned else m + n)
        copies = 1 if problem.aligned else 2
        return gained > 8e-6 * elements / BANDWIDTH + LAUNCH * copies

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Any]:
        """Those of the routines for aligned operands, as if these were."""
        ready = problem._replace(aligned=True, layout="columns")
        yield from self.large.blueprints(ready, properties)
        yield from self.small.blueprints(ready, properties)

    def launch(self, blueprint: Any, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, *rest = args
        a, b = (along_own(v, True, problem.properties) for v in (x, y.transpose(0, 2, 1)))
        routine = self.large if type(blueprint) is Fma else self.small
        routine.launch(blueprint, problem, (a, b.transpose(0, 2, 1), *rest))
