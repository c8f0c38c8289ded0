"""Operands whose rows begin anywhere, copied into aligned rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.gpu.operands import ALIGNMENT, aligned, once, oriented
from cubepy.kernels.movement.copy import copy
from cubepy.kernels.movement.transpose_gpu import transpose
from cubepy.kernels.primitives.vector_width import address
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
    """out[b, i, j] = x[b, i, j] in the rows of x, and 0 behind their ends; rows of out are in
    `pieces` pieces.
    """
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


def padded(x: Any, properties: cb.DeviceProperties) -> Any:
    """(batch, rows, n) with neighbours along the last axis, copied to rows that are whole multiples
    of 16 bytes, with zeros behind their ends.
    """
    batch, rows, n = x.shape
    per = ALIGNMENT // x.itemsize
    out = memory.empty((batch, rows, -(-n // per) * per), x.dtype)
    source, target = (v.view("u2" if v.itemsize == 2 else "u4") for v in (x, out))
    if (
        x.itemsize == 2
        and n % 2 == 0
        and address(x) % 4 == 0
        and all(s % 4 == 0 for s in x.strides[:2])
    ):
        source, target = source.view("u4"), target.view("u4")  # words: half as many accesses
    width = target.shape[2]
    units = next((u for u in (8, 16, 32, 64, 128) if u * HELD >= width), UNITS)
    pieces = -(-width // (units * HELD))
    held = -(-width // (units * pieces))
    early = "overlap" in properties.features
    cubes = -(-batch * rows // (UNITS // units)) * pieces
    pad_rows[cubes, UNITS](source, target, pieces, PadPlan(units, held, early), mode="unchecked")
    return out


def along_own(a: Any, k_last: bool, properties: cb.DeviceProperties) -> Any:
    """An operand (batch, own axis, K) in memory that the copy engine takes, as it is where
    possible; if `k_last`, with neighbours along K.
    """
    a = once(a)
    if aligned(a) or (not k_last and aligned(a.transpose(0, 2, 1))):
        return a
    found, along_k = oriented(a)
    if found.strides[2] != found.itemsize and found.shape[2] != 1:
        found, along_k = copy(a), True
    if along_k:
        return padded(found, properties)[:, :, : a.shape[2]]
    if not k_last:
        return padded(found, properties)[:, :, : found.shape[2]].transpose(0, 2, 1)
    per = ALIGNMENT // a.itemsize
    out = memory.empty((*a.shape[:2], -(-a.shape[2] // per) * per), a.dtype)[:, :, : a.shape[2]]
    transpose(out, found)
    return out
