"""Writing by index where units work in planes: a row is updated in shared memory, so that it moves
once each way.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.indexing.gather_gpu import MANY, MOST, fill_core, load_row
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of, power_of_two

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


def fits(x: Any, index: Any, axis: int) -> bool:
    """Whether rows along an axis are next to each other, small enough for shared memory, and
    indices many enough.
    """
    n, m = x.shape[axis], index.shape[axis]
    if any(
        k != axis and (a != b or (k > axis and a > 1))
        for k, (a, b) in enumerate(zip(x.shape, index.shape))
    ):
        return False
    return (
        x.itemsize >= 4
        and MANY <= n <= DENSE * m
        and n * x.itemsize <= MOST
        and x.size >= 2 * MANY * n
    )


def scatter(x: Any, out: Any, index: Any, src: Any, axis: int, change: Any, update: str) -> None:
    """out = x where positions along an axis are updated with src, in any order, where `fits` says
    so; contiguous.
    """
    x, out, index, src = (a.reshape(-1, a.shape[axis]) for a in (x, out, index, src))
    size = power_of_two(x.shape[1])
    units = min(UNITS, max(64, size // 16))
    at_once = 4 if min(line_of(index), line_of(src)) > 1 else 1
    scatter_rows_shared[x.shape[0], units](
        x, out, index, src, change, update, size, line_of(x, out), at_once, mode="unchecked"
    )
