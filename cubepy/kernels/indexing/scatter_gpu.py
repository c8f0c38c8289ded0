"""Writing by index where units work in planes: a row is updated in shared memory, so that it moves
once each way.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.config import config
from cubepy.kernels.indexing.gather_gpu import MANY, MOST, fill_core, load_row
from cubepy.kernels.indexing.problem import Scatter, room_for
from cubepy.kernels.indexing.scatter_kernels import updated
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.tune import GpuRoutine

UNITS = 512  # of a cube
DENSE = (
    8  # elements of a row for each index, at most: a row with fewer is not worth reading as a whole
)


@cb.func
def change_at(row, n, position, value, change: cb.Comptime, update: cb.Comptime[str]):
    """row[position] is updated with a value; positions outside are passed over."""
    if position >= 0 and position < n:
        if update == "assign":
            row[position] = value
        elif update == "add":
            cb.atomic_add(row, position, value)
        else:
            seen = row[position]
            trying = True
            while trying:
                before = cb.atomic_compare_exchange(
                    row, position, seen, change(seen, value, update)
                )
                trying = not (before == seen or (before != before and seen != seen))
                seen = before


@cb.kernel
def scatter_rows_shared(
    x: cb.Array,
    out: cb.Array,
    index: cb.Array,
    src: cb.Array,
    change: cb.Comptime,
    update: cb.Comptime[str],
    size: cb.Comptime[int],
    lanes: cb.Comptime[int],
    at_once: cb.Comptime[int],
):
    """out[b] = x[b] where position index[b, j] is updated with src[b, j] for all j; a cube does a
    row of up to `size`.
    """
    fill_core(size, x.dtype)
    row = cb.shared(size, x.dtype)
    b = cb.CUBE_POS
    n, m = x.shape[1], index.shape[1]
    load_row(row, x, b, lanes)
    cb.sync_cube()
    whole = m // at_once * at_once
    for k in range(cb.UNIT_POS * at_once, whole, cb.CUBE_DIM * at_once):
        j = multiple(k, at_once)
        positions = index.load((b, j), at_once)
        values = cb.cast(src.load((b, j), at_once), x.dtype)
        for q in cb.unroll(range(at_once)):
            change_at(row, n, positions[q], values[q], change, update)
    rest = whole + cb.UNIT_POS
    if rest < m:
        change_at(row, n, index[b, rest], cb.cast(src[b, rest], x.dtype), change, update)
    cb.sync_cube()
    for k in range(cb.UNIT_POS * lanes, n, cb.CUBE_DIM * lanes):
        at = multiple(k, lanes)
        out.store((b, at), row.load(at, lanes), valid=n - at)


class SharedRows(GpuRoutine):
    """A cube keeps a row in shared memory, updated in any order."""

    name = "shared_rows"

    def unfit(self, p: Scatter, properties: cb.DeviceProperties) -> str | None:
        """Rows that are next to each other and have room, and indices that are many enough."""
        if config.deterministic:
            return "its order is not fixed"
        n, m = p.x.shape[p.axis], p.index.shape[p.axis]
        other = any(
            k != p.axis and (a != b or (k > p.axis and a > 1))
            for k, (a, b) in enumerate(zip(p.x.shape, p.index.shape, strict=True))
        )
        if other or p.x.itemsize < 4:  # not narrow floats, whose sums would be rounded
            return "for rows of numbers of 32 bits and more, all of which are indexed"
        some = MANY <= n <= DENSE * m and n * p.x.itemsize <= MOST and p.x.size >= 2 * MANY * n
        return None if some else "for many rows with room in shared memory"

    def launch(self, p: Scatter, properties: cb.DeviceProperties) -> Any:
        """A row moves once each way."""
        target = room_for(p)
        arrays = (contiguous(a) for a in (p.x, target, p.index, p.src))
        x, out, index, src = (a.reshape(-1, a.shape[p.axis]) for a in arrays)
        size = power_of_two(x.shape[1])
        units = min(UNITS, max(64, size // 16))
        at_once = 4 if min(line_of(index), line_of(src)) > 1 else 1
        scatter_rows_shared[x.shape[0], units](
            x, out, index, src, updated, p.update, size, line_of(x, out), at_once, mode="unchecked"
        )
        return target
