"""Radix sort where units work in planes: rows that one cube holds are sorted in shared memory,
longer ones by `sort.onesweep_gpu`.

Every plane ranks its own stretch, 32 keys at a time: a lane sets its bit in the word of its digit,
and the bits below its own tell how many equal digits come before it.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.primitives.vector_width import power_of_two
from cubepy.kernels.scan.scan_gpu import prefix_plane
from cubepy.kernels.sort.keys import digit_of, from_key, to_key
from cubepy.kernels.sort.problem import Sort
from cubepy.tune import GpuRoutine

UNITS = 256
ITEMS = 16  # keys of 32 bits that a unit holds


@cb.func
def rank_tile(key, position, shift, masks, counts, starts, scratch, items: cb.Comptime[int]):
    """position[j] = where key[j] goes in the tile's order by a digit; starts[digit] = where a digit
    begins.
    """
    planes = cb.CUBE_DIM // cb.PLANE_DIM
    per = 256 // cb.CUBE_DIM
    plane, lane = cb.PLANE_POS, cb.UNIT_POS_PLANE
    word = cb.u64 if cb.PLANE_DIM > 32 else cb.u32
    for k in cb.unroll(range(per)):
        for w in cb.unroll(range(planes)):
            masks[w, k * cb.CUBE_DIM + cb.UNIT_POS] = word(0)
            counts[w, k * cb.CUBE_DIM + cb.UNIT_POS] = 0
    cb.sync_cube()
    mine = word(1) << cb.cast(lane, word)
    for j in cb.unroll(range(items)):
        d = digit_of(key[j], shift, 8)
        cb.atomic_or(masks, (plane, d), mine)
        cb.sync_plane()
        same = masks[plane, d]
        before = cb.popcount(same & (mine - word(1)))
        base = counts[plane, d]
        position[j] = base + cb.cast(before, cb.i32)
        cb.sync_plane()
        if before == 0:
            counts[plane, d] = base + cb.cast(cb.popcount(same), cb.i32)
            masks[plane, d] = word(0)
        cb.sync_plane()
    cb.sync_cube()
    total = 0
    for k in cb.unroll(range(per)):
        d = cb.UNIT_POS * per + k
        for w in cb.unroll(range(planes)):
            here = counts[w, d]
            counts[w, d] = total
            total = total + here
        starts[d] = total
    ends = prefix_plane(total, f.add)
    if lane == cb.PLANE_DIM - 1:
        scratch[plane] = ends
    cb.sync_cube()
    ahead = ends - total
    for w in cb.unroll(range(planes - 1)):
        if w < plane:
            ahead = ahead + scratch[w]
    for k in cb.unroll(range(per)):
        d = cb.UNIT_POS * per + k
        before_all = counts[0, d] + ahead
        for w in cb.unroll(range(planes)):
            counts[w, d] = counts[w, d] + ahead
        starts[d] = before_all
    cb.sync_cube()
    for j in cb.unroll(range(items)):
        position[j] = position[j] + counts[plane, digit_of(key[j], shift, 8)]


@cb.kernel
def sort_rows_by_planes(x: cb.Array, out, out_indices, keys: cb.Comptime, items: cb.Comptime[int]):
    """Rows that one cube holds: all passes in shared memory."""
    wide = cb.u64 if keys.bits == 64 else cb.u32
    tile = cb.CUBE_DIM * items
    planes = cb.CUBE_DIM // cb.PLANE_DIM
    word = cb.u64 if cb.PLANE_DIM > 32 else cb.u32  # a bit for every unit of a plane
    masks = cb.shared((planes, 256), word)
    counts = cb.shared((planes, 256), cb.i32)
    starts = cb.shared(256, cb.i32)
    scratch = cb.shared(planes, cb.i32)
    lined = cb.shared(tile, wide)
    order = cb.shared(tile if out_indices is not None else 1, cb.i32)
    key = cb.local(items, wide)
    at = cb.local(items, cb.i32)
    position = cb.local(items, cb.i32)
    row, n = cb.CUBE_POS, x.shape[1]
    begin = cb.PLANE_POS * (cb.PLANE_DIM * items) + cb.UNIT_POS_PLANE
    for j in cb.unroll(range(items)):
        i = begin + j * cb.PLANE_DIM
        key[j] = wide(keys.ones)
        if i < n:
            key[j] = to_key(x[row, i], keys)
        at[j] = cb.cast(i, cb.i32)
    for p in range((keys.bits + 7) // 8):
        rank_tile(key, position, p * 8, masks, counts, starts, scratch, items)
        for j in cb.unroll(range(items)):
            lined[position[j]] = key[j]
            if out_indices is not None:
                order[position[j]] = at[j]
        cb.sync_cube()
        for j in cb.unroll(range(items)):
            key[j] = lined[begin + j * cb.PLANE_DIM]
            if out_indices is not None:
                at[j] = order[begin + j * cb.PLANE_DIM]
        cb.sync_cube()
    for j in cb.unroll(range(items)):
        i = begin + j * cb.PLANE_DIM
        if i < n:
            if out is not None:
                out[row, i] = cb.cast(from_key(key[j], keys), out.dtype)
            if out_indices is not None:
                out_indices[row, i] = cb.cast(at[j], out_indices.dtype)


class BlockRadix(GpuRoutine):
    """A cube holds a row in registers and sorts it by radix."""

    name = "radix_block"

    def unfit(self, p: Sort, properties: cb.DeviceProperties) -> str | None:
        """Rows that the registers of a cube hold."""
        most = UNITS * (ITEMS // 2 if p.keys.bits == 64 else ITEMS)
        return None if p.x.shape[1] <= most else f"for rows of at most {most}"

    def launch(self, p: Sort, properties: cb.DeviceProperties) -> None:
        """A cube sorts a row."""
        m, n = p.x.shape
        units = min(UNITS, max(properties.plane_size, power_of_two(n) // 8))
        sort_rows_by_planes[m, units](
            p.source, p.target, p.indices, p.keys, max(1, power_of_two(n) // units), mode="checked"
        )
