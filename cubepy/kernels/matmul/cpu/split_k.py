"""Split-K on a CPU: a product of few tiles and a long K as several products of parts of K, which
are then added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.config import config
from cubepy.kernels.entry.shapes import strided
from cubepy.kernels.matmul.cpu.blocked import Tile
from cubepy.kernels.matmul.cpu.blocking import TilePlan, even
from cubepy.kernels.matmul.cpu.microkernel import Blueprint
from cubepy.kernels.matmul.cpu.packing_on_stack import PER_WORD
from cubepy.kernels.matmul.cpu.vnni import kind_of
from cubepy.kernels.matmul.problem import Epilogue, Product, result_dtype
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, TunedRoutine

LEAST = 256  # of K in a part, at least
MOST_PARTS = 32
FEWEST_ROWS = 5  # fewer are not made in tiles


@cb.kernel
def add_parts(
    parts: cb.Array,
    out: cb.Array,
    bias,
    residual,
    mask,
    alpha,
    fill,
    width: cb.Comptime[int],
    plan: cb.Comptime,
):
    """out[0, row] = epilogue(the sum of parts[:, row]), in order; a cube does `width` columns of a
    row.
    """
    lanes, columns = plan.lanes, out.shape[2]
    epilogue = LineEpilogue(
        out, plan.activation, bias, residual, alpha, mask, fill, joined=plan.joined
    )
    across = (columns + width - 1) // width
    row, first = cb.CUBE_POS // across, cb.CUBE_POS % across * width
    for j in range(first, cb.min(first + width, columns), lanes):
        total = parts.load((0, row, j), lanes, valid=columns - j)
        for part in range(1, parts.shape[0]):
            total = total + parts.load((part, row, j), lanes, valid=columns - j)
        if plan.exact:
            out.store((0, row, j), total, valid=columns - j)
        else:
            epilogue.finish(total, (0, row, j), columns - j)


@dataclass(frozen=True)
class SplitPlan:
    """How a product is split.

    Attributes:
        parts: of K, all equally long.
        part: the plan of the products of the parts.
        whole: the plan of the product where sums must not depend on the machine.
    """

    parts: int
    part: TilePlan
    whole: TilePlan


@cache
def blueprint_of(kind: str, lanes: int, function: Any, joined: str) -> Blueprint:
    """The blueprint of the last step."""
    return Blueprint(1, 1, lanes, function, kind, joined=joined)


def cut(x: Any, axis: int, parts: int) -> Any:
    """x (1, ...) as (parts, ...): an axis cut into parts, as a view."""
    length = x.shape[axis] // parts
    shape = (parts, *x.shape[1:axis], length, *x.shape[axis + 1 :])
    return strided(x, shape, (length * x.strides[axis], *x.strides[1:]))


class Split(CpuRoutine, TunedRoutine):
    """Products with fewer tiles than cores; unless `cb.config.deterministic` is set, since sums
    depend on the parts.
    """

    name = "split"

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """One product with a long K and idle cores."""
        if config.deterministic:
            return "its sums depend on the number of cores"
        known = kind_of(problem, properties) and result_dtype(problem).bits <= 32
        if problem.batch != 1 or problem.m < FEWEST_ROWS or not known:
            return "it splits one product of floats or bytes that has several rows"
        return (
            None if self.parts(problem, properties) > 1 else "there are enough tiles, or K is short"
        )

    def group(self, key: Product) -> int:
        """Before what leaves cores idle."""
        return 2

    def parts(self, problem: Product, properties: cb.DeviceProperties) -> int:
        """Parts of K that give every core something to do; 1: it is not worth it."""
        whole = next(Tile().blueprints(problem, properties))
        tiles = -(-problem.m // min(whole.rows, 32)) * -(-problem.n // (whole.lines * whole.lanes))
        if 4 * tiles > 3 * properties.cores:
            return 1
        unit = PER_WORD[whole.kind]
        fitting = [
            p
            for p in (2, 4, 8, 16, MOST_PARTS)
            if problem.k % (p * unit) == 0 and problem.k // p >= LEAST * unit
        ]
        return next(
            (p for p in fitting if even(p * tiles, properties.cores)), max(fitting, default=1)
        )

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[SplitPlan]:
        """The fewest parts that keep all cores busy; then more of them."""
        parts = self.parts(problem, properties)
        whole = next(Tile().blueprints(problem, properties))
        for count in (parts, 2 * parts, parts // 2):
            if count > 1 and problem.k % (count * PER_WORD[whole.kind]) == 0:
                yield SplitPlan(
                    count,
                    next(Tile().blueprints(part_of(problem, count, whole), properties)),
                    whole,
                )

    def launch(self, blueprint: SplitPlan, problem: Product, args: tuple[Any, ...]) -> None:
        """Multiply the parts, add them up."""
        if config.deterministic:
            return Tile().launch(blueprint.whole, problem, args)
        (x, y, out), ending = args[:3], Epilogue(*args[3:])
        bias, residual, function, alpha, mask, fill, joined = ending
        count, whole = blueprint.parts, blueprint.whole
        sums = np.int32 if whole.kind in ("i8", "u8") else np.float32
        parts = memory.empty((count, *out.shape[1:]), sums)
        pieces = (cut(x, 2, count), cut(y, 2 if problem.packed else 1, count), parts)
        Tile().launch(
            blueprint.part, part_of(problem, count, whole), (*pieces, None, None, None, 1.0)
        )
        plan = blueprint_of(whole.kind, whole.lanes, function, joined)
        width = 4 * whole.lanes
        cubes = out.shape[1] * -(-out.shape[2] // width)
        add_parts[cubes, 1](
            parts,
            out,
            bias,
            residual,
            mask,
            float(alpha),
            float(fill),
            width,
            plan,
            mode="unchecked",
        )
        return None


def part_of(problem: Product, parts: int, whole: TilePlan) -> Product:
    """What the products of the parts are."""
    out = "i32" if whole.kind in ("i8", "u8") else "f32"
    return problem._replace(k=problem.k // parts, batch=parts, epilogue=False, out=out)
