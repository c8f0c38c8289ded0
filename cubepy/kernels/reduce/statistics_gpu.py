"""Reductions of several walks by whole cubes, for devices with planes: the units of a cube visit a
row together, the second time while it is in the cache.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.lines import over_lanes
from cubepy.kernels.primitives.units import over_units
from cubepy.kernels.reduce.problem import Reduce
from cubepy.kernels.reduce.reduction import Reduction, Walk
from cubepy.tune import GpuRoutine

UNITS = 256


@cb.func
def walk_units(
    x, row, walk: cb.Comptime[Walk], by, acc: cb.Comptime, lanes: cb.Comptime[int], scratch
):
    """A walk over a row, given to all units of a cube."""
    n = x.shape[1]
    start = cb.cast(walk.start, acc)
    total = cb.splat(start, lanes)
    for k in range(cb.UNIT_POS * lanes, n, cb.CUBE_DIM * lanes):
        v = walk.value(cb.cast(x.load((row, k), lanes), acc), by)
        if k + lanes > n:
            v = cb.keep_first(v, n - k, start)
        total = walk.step(total, v)
    return over_units(over_lanes(total, walk.step, lanes), walk.step, cb.CUBE_DIM, scratch)


@cb.func
def known_of_units(x, row, walks: cb.Comptime, number, lanes: cb.Comptime[int]):
    """What some walks find in a row, given to all units of a cube."""
    scratch = cb.shared(cb.CUBE_DIM // cb.PLANE_DIM, number.dtype)
    known: Any = ()
    for walk in cb.unroll(walks):
        found = walk_units(x, row, walk, walk.by(known, number), number.dtype, lanes, scratch)
        if walk.end is not None:
            found = walk.end(found, cb.cast(x.shape[1], number.dtype))
        known = known + (found,)
    return known


@cb.kernel
def row_statistic(
    x: cb.Array,
    out: cb.Array,
    reduction: cb.Comptime[Reduction],
    number,
    acc: cb.Comptime,
    lanes: cb.Comptime[int],
):
    """out[r] = the reduction of row r; a cube does a row."""
    row, number = cb.CUBE_POS, cb.cast(number, acc)
    known = known_of_units(x, row, reduction.walks, number, lanes)
    value = reduction.finish(known, cb.cast(x.shape[1], acc), number)
    if cb.UNIT_POS == 0:
        out[row] = cb.cast(value, out.dtype)


class Walks(GpuRoutine):
    """A cube for each row, whatever the reduction."""

    name = "walks"

    def launch(self, p: Reduce, properties: cb.DeviceProperties) -> None:
        """Columns are made rows first."""
        rows = p.data if p.by_rows else contiguous(p.data.transpose((0, 2, 1)))
        rows = contiguous(rows).reshape(p.out.size, -1)
        lanes = 16 // max(4, rows.itemsize)
        row_statistic[p.out.size, UNITS](
            rows, p.out.reshape(-1), p.reduction, p.number, p.acc, lanes, mode="checked"
        )
