"""Products with few columns: those of the transposed matrices, which have few rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.cpu.gemv import GemvPlan, GemvRoutine
from cubepy.kernels.matmul.cpu.standing import StandingPlan, multiply_standing, tile_of
from cubepy.kernels.matmul.problem import Epilogue, Product, layout_of, result_dtype
from cubepy.kernels.movement.copy import convert_into, copy
from cubepy.runtime import memory

MOST_COLUMNS, MORE_COLUMNS = 4, 8
LONG = 64  # sums, from which on more columns are read
MANY = 64  # rows that are enough for them
ALONG = {4: (5, 12), 8: (16, 1 << 30)}
"""Length of a sum for each column, from which on sums along rows of a, lane by lane, are quicker
than tiles: of up to four columns, and more; by the size of a number."""
ACROSS = {4: (0, 10), 8: (8, 32)}
"""The same for lines across columns of a."""


class TurnedRoutine(GemvRoutine):
    """Few columns: a is read once, where it stands, along its rows or across them."""

    name = "turned"

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """Few columns, more rows, nothing that goes along columns."""
        wide = properties.register_bytes >= 64
        long = problem.k >= LONG if wide else problem.k >= 2 * LONG and problem.batch == 1
        most = MORE_COLUMNS if long else MOST_COLUMNS
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

    def in_tiles(self, problem: Product, across: bool, itemsize: int) -> bool:
        """Whether sums are quicker in tiles of the result as it is, as was measured."""
        n, more = problem.n, problem.n > MOST_COLUMNS
        if problem.properties.register_bytes < 64:
            return False
        least = (ACROSS if across else ALONG)[max(itemsize, 4)][more]
        return n > 1 and (problem.k < least * n or (more and not across and problem.m < MANY))

    def launch(self, blueprint: GemvPlan, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = x (batch, M, K) @ y (batch, K, N)."""
        x, y, out, *rest = args
        second, turned = x.transpose(0, 2, 1), out.transpose(0, 2, 1)
        first, layout = y.transpose(0, 2, 1), layout_of(second)
        across = layout != "columns"
        if self.in_tiles(problem, across, out.itemsize):
            tile = tile_of(problem.m, problem.k, problem.n, blueprint.lanes)
            plan = StandingPlan(*tile, blueprint.lanes)
            return multiply_standing(plan, x, y, out, Epilogue(*rest))
        if across:
            blueprint = next(super().blueprints(self.turned(problem, layout), problem.properties))
        elif first.strides[2] != first.itemsize and problem.k > 1:
            first = copy(first)
        whole = problem.n == 1
        target = turned if whole else memory.empty(turned.shape, out.dtype)
        super().launch(blueprint, problem, (first, second, target, *rest))
        if not whole:
            convert_into(turned, target)
        return None
