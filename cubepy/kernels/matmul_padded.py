"""Products on Hopper whose operands the copy engine cannot take: they are copied into aligned rows first.

Rows that are no multiple of 16 bytes would otherwise go through registers, element by element, for every tile that
needs them; a copy touches them once, and the matrix units then run as fast as ever. A result of such rows is written
by the matmul itself. f32 that lies across K is turned on the way, because matrix units take tf32 along K only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cubepy as cb
from cubepy.kernels.elementwise import copy
from cubepy.kernels.matmul_few import MOST_DOT_ROWS, Few
from cubepy.kernels.matmul_gpu import (
    ALIGNMENT,
    NARROW_FLOATS,
    FewRoutine,
    HopperRoutine,
    aligned,
    once,
    oriented,
    place_of,
)
from cubepy.kernels.matmul_gpu_tiles import ThinRoutine
from cubepy.kernels.matmul_problem import Product, result_dtype
from cubepy.kernels.matmul_thin import Thin
from cubepy.kernels.movement_cubes import transpose
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory

UNITS = 256
HELD = 8
"""Elements of a unit, that it asks for at once."""
STEPS = 5
"""Stages of the matmul for any strides, one after the other, whose time two copies take."""
STAGE_BYTES = 64


@dataclass(frozen=True)
class PadPlan:
    """How rows are copied: `units` units to a piece of a row, `held` elements each.

    Attributes:
        units: a power of two up to 256.
        held: from 1 to 8.
        early: a launch may begin while the one before it ends.
    """

    units: int
    held: int
    early: bool = False


@cb.kernel
def pad_rows(x: cb.Array, out: cb.Array, pieces, plan: cb.Comptime[PadPlan]):
    """out[b, i, j] = x[b, i, j] in the rows of x, and 0 behind their ends; rows of out are in `pieces` pieces."""
    if plan.early:
        cb.start_next()
        cb.wait_previous()
    rows, n, width = x.shape[1], x.shape[2], out.shape[2]
    each = UNITS // plan.units
    piece = cb.CUBE_POS % pieces
    line = cb.CUBE_POS // pieces * each + cb.UNIT_POS // plan.units
    batch = line // rows
    row = line - batch * rows
    at = piece * plan.units * plan.held + cb.UNIT_POS % plan.units
    if batch < x.shape[0]:
        found = ()
        for j in cb.unroll(range(plan.held)):
            k = at + j * plan.units
            value = cb.cast(0, x.dtype)
            if k < n:
                value = x[batch, row, k]
            found = found + (value,)
        for j in cb.unroll(range(plan.held)):
            k = at + j * plan.units
            if k < width:
                out[batch, row, k] = found[j]


def padded(x: Any) -> Any:
    """(batch, rows, n) with neighbours along the last axis, copied to rows that are whole multiples of 16 bytes, with
    zeros behind their ends."""
    batch, rows, n = x.shape
    per = ALIGNMENT // x.itemsize
    out = memory.empty((batch, rows, -(-n // per) * per), x.dtype)
    source, target = (v.view("u2" if v.itemsize == 2 else "u4") for v in (x, out))
    if (
        x.itemsize == 2
        and n % 2 == 0
        and place_of(x) % 4 == 0
        and all(s % 4 == 0 for s in x.strides[:2])
    ):
        source, target = source.view("u4"), target.view("u4")  # words: half as many accesses
    width = target.shape[2]
    units = next((u for u in (8, 16, 32, 64, 128) if u * HELD >= width), UNITS)
    pieces = -(-width // (units * HELD))
    held = -(-width // (units * pieces))
    early = "overlap" in cb.device_properties_of().features
    cubes = -(-batch * rows // (UNITS // units)) * pieces
    pad_rows[cubes, UNITS](source, target, pieces, PadPlan(units, held, early), mode="unchecked")
    return out


def along_own(a: Any, k_last: bool) -> Any:
    """An operand (batch, own axis, K) in memory that the copy engine takes, as it is where possible; if `k_last`, with
    neighbours along K."""
    a = once(a)
    if aligned(a) or (not k_last and aligned(a.transpose(0, 2, 1))):
        return a
    found, along_k = oriented(a)
    if found.strides[2] != found.itemsize and found.shape[2] != 1:
        found, along_k = copy(a), True
    if along_k:
        return padded(found)[:, :, : a.shape[2]]
    if not k_last:
        return padded(found)[:, :, : found.shape[2]].transpose(0, 2, 1)
    per = ALIGNMENT // a.itemsize
    out = memory.empty((*a.shape[:2], -(-a.shape[2] // per) * per), a.dtype)[:, :, : a.shape[2]]
    transpose(out, found)
    return out


class PaddedRoutine(HopperRoutine):
    """16-bit floats and tf32 by `cb.wgmma`, with operands that are copied before."""

    name = "padded"
    few, thin, wide = FewRoutine(), ThinRoutine(), HopperRoutine()

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has wgmma, the dtypes are those of its matrix units, and there is work enough for a copy."""
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
        if self.thin.supports(ready, properties) is None:
            yield from self.thin.blueprints(ready, properties)
        yield from self.wide.blueprints(ready, properties)

    def launch(self, blueprint: Any, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, *rest = args
        if isinstance(blueprint, Few):
            a, b = (
                v if aligned(v) and v.shape[2] % 8 == 0 else padded(v)
                for v in (x, y.transpose(0, 2, 1))
            )
            self.few.launch(
                blueprint, problem, (a, b.transpose(0, 2, 1), out, bias, residual, *rest)
            )
            return
        k_last = problem.a == "f32"
        a, b = along_own(x, k_last), along_own(y.transpose(0, 2, 1), k_last).transpose(0, 2, 1)
        if isinstance(blueprint, Thin):
            self.thin.launch(blueprint, problem, (a, b, out, bias, residual, *rest))
            return
        if residual is not None and not (aligned(residual) and residual.dtype == out.dtype):
            own = (
                memory.empty(residual.shape, out.dtype) if residual.dtype != out.dtype else residual
            )
            if own is not residual:
                own[...] = residual
            residual = own if aligned(own) else along_own(own, True)
        words = place_of(out) % 4 == 0 and all(
            s % 4 == 0 for n, s in zip(out.shape, out.strides[:2]) if n != 1
        )
        plain = 0 if aligned(out) else 2 if out.itemsize == 2 and words else 1
        self.wide.launch(
            replace(blueprint, plain=plain), problem, (a, b, out, bias, residual, *rest)
        )
