"""Sums down the columns of several matrices of one shape in one launch: the gradients of biases and
of norms' weights, each of which alone fills a small part of a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels.fused.problem import put
from cubepy.kernels.fused.row_plan import halves
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.kernels.reduce.reduce import sum as sum_of
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, GpuRoutine, Op

UNITS = 256  # of a cube
AHEAD = 4  # lines that a unit asks for before it adds the first
ACROSS = (32, 16, 8, 4)
"""Units side by side; the last ones read 64 bytes of a row together."""
CUBES = 256  # that the columns of all members are cut for


class BundledSums(NamedTuple):
    """totals[j] = the sums of the columns of members[j].

    Attributes:
        totals: contiguous arrays of shape (columns,), to be written.
        members: arrays of shape (rows, columns) and of one dtype, with unit stride along columns.
    """

    totals: list[Any]
    members: list[Any]


@dataclass(frozen=True)
class SumPlan:
    """How columns are cut: `across` units lie side by side, each with a line of `lanes` columns."""

    lanes: int
    across: int


@cb.func
def sum_of_rows(x, k, unit, down, lanes: cb.Comptime[int]):
    """The sum of the lines x[unit, k:], x[unit + down, k:] and so on."""
    rows, left = x.shape[0], x.shape[1] - k
    parts = tuple(cb.splat(cb.f32(0.0), lanes) for _ in cb.unroll(range(AHEAD)))
    row = unit
    if left >= lanes:
        while row + (AHEAD - 1) * down < rows:
            found = tuple(
                cb.cast(x.load((row + j * down, k), lanes), cb.f32) for j in cb.unroll(range(AHEAD))
            )
            parts = tuple(parts[j] + found[j] for j in cb.unroll(range(AHEAD)))
            row += AHEAD * down
    total = (parts[0] + parts[1]) + (parts[2] + parts[3])
    while row < rows:
        total = total + cb.cast(x.load((row, k), lanes, valid=left), cb.f32)
        row += down
    return total


@cb.kernel
def sum_members_wide(totals, members, plan: cb.Comptime[SumPlan]):
    """totals[j][c] = sum of members[j][:, c]; a cube does some columns of one member."""
    lanes, columns = plan.lanes, members[0].shape[1]
    width, down = plan.across * plan.lanes, cb.CUBE_DIM // plan.across
    blocks = (columns + width - 1) // width
    member = cb.CUBE_POS // blocks
    k = multiple(cb.CUBE_POS % blocks * width + cb.UNIT_POS % plan.across * lanes, lanes)
    unit = cb.UNIT_POS // plan.across
    total = cb.splat(cb.f32(0.0), lanes)
    for j in cb.unroll(range(len(members))):
        if member == j and k < columns:
            total = sum_of_rows(members[j], k, unit, down, lanes)
    scratch = cb.shared((cb.CUBE_DIM * lanes,), cb.f32)
    here = multiple(cb.UNIT_POS * lanes, lanes)
    scratch.store(here, total)
    cb.sync_cube()
    for half in cb.unroll(halves(down)):
        if unit < half:
            other = multiple(here + half * width, lanes)
            scratch.store(here, scratch.load(here, lanes) + scratch.load(other, lanes))
        cb.sync_cube()
    if unit == 0:
        for j in cb.unroll(range(len(members))):
            if member == j and k < columns:
                put(totals[j], (k,), scratch.load(here, lanes), lanes, columns - k)


class Shared(GpuRoutine):
    """Units of a cube share some columns of a member."""

    name = "shared"

    def launch(self, p: BundledSums, properties: cb.DeviceProperties) -> None:
        """Cubes of as many columns as leave enough of them."""
        columns, lanes = p.members[0].shape[1], line_of(*p.totals, *p.members)
        for across in ACROSS:
            cubes = -(-columns // (across * lanes)) * len(p.members)
            if cubes >= CUBES:
                break
        plan = SumPlan(lanes, across)
        sum_members_wide[cubes, UNITS](tuple(p.totals), tuple(p.members), plan, mode="unchecked")


class Alone(CpuRoutine):
    """One after the other."""

    name = "alone"

    def launch(self, p: BundledSums, properties: cb.DeviceProperties) -> None:
        """The library's sums."""
        for total, member in zip(p.totals, p.members, strict=True):
            sum_of(member, axis=0, out=total)


BUNDLED_SUMS = Op("bundled_sums", [Shared(), Alone()])


def bundled_sums(members: Sequence[Any]) -> list[Any]:
    """The sums of the columns of several matrices, one array each; narrow floats are added up in
    f32.

    Args:
        members: floats of up to 32 bits of shape (rows, columns), all of one shape and dtype, with
            unit stride along columns; not empty.

    Example:
        >>> import numpy as np
        >>> bundled_sums([np.ones((3, 2), np.float32), np.eye(3, 2, dtype=np.float32)])
        [array([3., 3.], dtype=float32), array([1., 1.], dtype=float32)]
    """
    totals = [memory.empty(x.shape[1:], np.dtype(x.dtype)) for x in members]
    BUNDLED_SUMS.run(BundledSums(totals, list(members)))
    return totals
