"""Products with few columns: those of the transposed matrices, which have few rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.cpu.gemv import GemvPlan, GemvRoutine
from cubepy.kernels.matmul.problem import Product, layout_of, result_dtype
from cubepy.kernels.movement.copy import convert_into, copy
from cubepy.runtime import memory

MOST_COLUMNS, MORE_COLUMNS = 4, 8
LONG = 128  # sums, from which on more columns are done at once more quickly than packed


class TurnedRoutine(GemvRoutine):
    """Few columns: a is read once, where it stands, along its rows or across them."""

    name = "turned"

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """Few columns, more rows, nothing that goes along columns."""
        most = MORE_COLUMNS if problem.k >= LONG and problem.batch == 1 else MOST_COLUMNS
        if problem.n > most or problem.m <= problem.n or problem.epilogue:
            return f"at most {most} columns, more rows, and no epilogue"
        return super().supports(self.turned(problem, "columns"), properties)

    def turned(self, problem: Product, layout: Any) -> Product:
        """The problem of the transposed matrices, whose second one lies so."""
        kinds = {"a": problem.b, "b": problem.a, "out": result_dtype(problem).name}
        return problem._replace(m=problem.n, n=problem.m, layout=layout, **kinds)

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[GemvPlan]:
        """Those of the turned problem, of rows of a."""
        return super().blueprints(self.turned(problem, "columns"), properties)

    def reads_across(self, blueprint: GemvPlan, x: Any, y: Any) -> bool:
        """Whether a is read where it stands: its columns are the rows of the turned matrix."""
        return layout_of(x.transpose(0, 2, 1)) != "strided"

    def launch(self, blueprint: GemvPlan, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = x (batch, M, K) @ y (batch, K, N)."""
        x, y, out, *rest = args
        second, turned = x.transpose(0, 2, 1), out.transpose(0, 2, 1)
        first = y.transpose(0, 2, 1)
        if first.strides[2] != first.itemsize and first.shape[2] > 1:
            first = copy(first)
        layout = layout_of(second)
        if layout != "columns":
            blueprint = next(super().blueprints(self.turned(problem, layout), problem.properties))
        whole = turned.shape[1] == 1
        target = turned if whole else memory.empty(turned.shape, out.dtype)
        super().launch(blueprint, problem, (first, second, target, *rest))
        if not whole:
            convert_into(turned, target)
