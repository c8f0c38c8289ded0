"""How often each number is there."""

from __future__ import annotations

from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.movement.copy import contiguous
from cubepy.tune import GpuRoutine, Op, Routine

UNITS = 512  # of a cube
PER_UNIT = 16  # numbers of a unit
SIZES = (512, 4096)  # counts that a cube keeps, in shared memory


@cb.kernel
def count_shared(x: cb.Array, out: cb.Array, chunk, size: cb.Comptime[int]):
    """out[v] += how often v is in x, for v below `size`; a cube counts a chunk by itself first."""
    counts = cb.shared(size, cb.i32)
    for k in range(cb.UNIT_POS, size, cb.CUBE_DIM):
        counts[k] = 0
    cb.sync_cube()
    first = cb.CUBE_POS * chunk
    for i in range(first + cb.UNIT_POS, cb.min(first + chunk, x.size), cb.CUBE_DIM):
        value = cb.cast(x[i], cb.i64)
        if value >= 0 and value < out.size:
            cb.atomic_add(counts, value, cb.i32(1))
    cb.sync_cube()
    for k in range(cb.UNIT_POS, cb.min(size, out.size), cb.CUBE_DIM):
        if counts[k] > 0:
            cb.atomic_add(out, k, cb.cast(counts[k], cb.i64))


@cb.kernel
def count_each(x: cb.Array, out: cb.Array, chunk):
    """The same, number by number."""
    first = cb.CUBE_POS * chunk
    for i in range(first + cb.UNIT_POS, cb.min(first + chunk, x.size), cb.CUBE_DIM):
        value = cb.cast(x[i], cb.i64)
        if value >= 0 and value < out.size:
            cb.atomic_add(out, value, cb.i64(1))


class Counts(NamedTuple):
    """Adds to out[v] (i64) how often v is in x, both of rank 1; what is no index is passed over."""

    x: Any
    out: Any


class Shared(GpuRoutine):
    """Each cube counts in shared memory, and adds what it found."""

    name = "shared"

    def unfit(self, p: Counts, properties: cb.DeviceProperties) -> str | None:
        """Few counts."""
        return None if p.out.size <= SIZES[-1] else "for counts with room in shared memory"

    def launch(self, p: Counts, properties: cb.DeviceProperties) -> None:
        """Cubes as there are cores, or more for longer chunks."""
        size = next(s for s in SIZES if s >= p.out.size)
        most = 2 * properties.cores
        chunk = max(UNITS * PER_UNIT, -(-p.x.size // most))
        count_shared[-(-p.x.size // chunk), UNITS](p.x, p.out, chunk, size, mode="unchecked")


class Each(Routine):
    """Every number is added where it belongs."""

    name = "each"

    def launch(self, p: Counts, properties: cb.DeviceProperties) -> None:
        """Units of planes do some numbers each, one of a CPU all."""
        if properties.plane_size == 1:
            count_each[1, 1](p.x, p.out, p.x.size, mode="unchecked")
            return
        chunk = UNITS * PER_UNIT
        count_each[-(-p.x.size // chunk), UNITS](p.x, p.out, chunk, mode="unchecked")


COUNTS = Op("bincount", [Shared(), Each()])


def counted(x: Any, out: Any) -> Any:
    """Add how often each number is in a vector of integers to counts (i64), which are given back.

    Example:
        >>> import numpy as np
        >>> counted(np.array([2, 0, 2]), np.zeros(4, np.int64))
        array([1, 0, 2, 0])
    """
    if x.size and out.size:
        COUNTS.run(Counts(contiguous(x), out))
    return out
