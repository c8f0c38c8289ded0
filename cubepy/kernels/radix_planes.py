"""Radix sort where units work in planes: the passes of `radix` with a whole cube for each piece.

Within a piece every plane ranks its own stretch, 32 keys at a time: a lane sets its bit in the word of its digit, and
the bits below its own tell how many equal digits come before it. Keys are put in order in shared memory first, so
that writes to memory go to runs of neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels import functions as f
from cubepy.kernels.cube_wide import power_of_two
from cubepy.kernels.radix import digit_of, from_key, key_at, to_key
from cubepy.kernels.scan import prefix_plane, scan_along_rows
from cubepy.lang.dtypes import i32
from cubepy.runtime import memory

DIGITS = 8
UNITS = 256
ITEMS = 16  # keys of 32 bits that a unit holds


@cb.kernel
def count_digits_by_planes(
    x: cb.Array, counts: cb.Array, shift, piece, keys: cb.Comptime, first: cb.Comptime[bool], lanes: cb.Comptime[int]
):
    """counts[row, digit, p] = how often the p-th piece of a row has the digit."""
    seen = cb.shared(256, cb.i32)
    pieces = counts.shape[2]
    row = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    seen[cb.UNIT_POS] = 0
    cb.sync_cube()
    stop = cb.min((p + 1) * piece, x.shape[1])
    for i in range(p * piece + cb.UNIT_POS * lanes, stop, cb.CUBE_DIM * lanes):
        line = x.load((row, i), lanes)
        for j in cb.unroll(range(lanes)):
            if i + j < stop:
                key = to_key(line[j], keys) if first else line[j]
                cb.atomic_add(seen, digit_of(key, shift, 8), 1)
    cb.sync_cube()
    counts[row, cb.UNIT_POS, p] = seen[cb.UNIT_POS]


@cb.func
def rank_tile(key, place, shift, masks, counts, starts, board, items: cb.Comptime[int]):
    """place[j] = where key[j] goes in the tile's order by a digit; starts[digit] = where a digit begins."""
    planes = cb.CUBE_DIM // cb.PLANE_DIM
    per = 256 // cb.CUBE_DIM
    plane, lane = cb.PLANE_POS, cb.UNIT_POS_PLANE
    for k in cb.unroll(range(per)):
        for w in cb.unroll(range(planes)):
            masks[w, k * cb.CUBE_DIM + cb.UNIT_POS] = cb.u32(0)
            counts[w, k * cb.CUBE_DIM + cb.UNIT_POS] = 0
    cb.sync_cube()
    mine = cb.u32(1) << cb.cast(lane, cb.u32)
    for j in cb.unroll(range(items)):
        d = digit_of(key[j], shift, 8)
        cb.atomic_or(masks, (plane, d), mine)
        cb.sync_plane()
        same = masks[plane, d]
        before = cb.popcount(same & (mine - cb.u32(1)))
        base = counts[plane, d]
        place[j] = base + cb.cast(before, cb.i32)
        cb.sync_plane()
        if before == 0:
            counts[plane, d] = base + cb.cast(cb.popcount(same), cb.i32)
            masks[plane, d] = cb.u32(0)
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
        board[plane] = ends
    cb.sync_cube()
    ahead = ends - total
    for w in cb.unroll(range(planes - 1)):
        if w < plane:
            ahead = ahead + board[w]
    for k in cb.unroll(range(per)):
        d = cb.UNIT_POS * per + k
        before_all = counts[0, d] + ahead
        for w in cb.unroll(range(planes)):
            counts[w, d] = counts[w, d] + ahead
        starts[d] = before_all
    cb.sync_cube()
    for j in cb.unroll(range(items)):
        place[j] = place[j] + counts[plane, digit_of(key[j], shift, 8)]


@cb.kernel
def move_keys_by_planes(
    x: cb.Array, indices, places: cb.Array, out, out_indices, shift, keys: cb.Comptime, first: cb.Comptime[bool],
    last: cb.Comptime[bool], items: cb.Comptime[int],
):  # fmt: skip
    """out[row, place] = key (an element again in the last pass), with its index; a cube does one tile of a row."""
    wide = cb.u64 if keys.bits == 64 else cb.u32
    tile = cb.CUBE_DIM * items
    planes = cb.CUBE_DIM // cb.PLANE_DIM
    masks = cb.shared((planes, 256), cb.u32)
    counts = cb.shared((planes, 256), cb.i32)
    starts = cb.shared(256, cb.i32)
    board = cb.shared(planes, cb.i32)
    lined = cb.shared(tile, wide)
    order = cb.shared(tile if out_indices is not None else 1, cb.i32)
    key = cb.local(items, wide)
    place = cb.local(items, cb.i32)
    pieces = places.shape[2]
    row = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    n = x.shape[1]
    begin = p * tile + cb.PLANE_POS * (cb.PLANE_DIM * items) + cb.UNIT_POS_PLANE
    for j in cb.unroll(range(items)):
        i = begin + j * cb.PLANE_DIM
        key[j] = wide(keys.ones) if keys.bits >= 32 else wide((1 << keys.bits) - 1)
        if i < n:
            key[j] = key_at(x, row, i, keys, first)
    rank_tile(key, place, shift, masks, counts, starts, board, items)
    for j in cb.unroll(range(items)):
        lined[place[j]] = key[j]
        if out_indices is not None:
            i = begin + j * cb.PLANE_DIM
            at = cb.cast(i, cb.i32)
            if not first:
                if i < n:
                    at = cb.cast(indices[row, i], cb.i32)
            order[place[j]] = at
    starts[cb.UNIT_POS] = places[row, cb.UNIT_POS, p] - starts[cb.UNIT_POS]
    cb.sync_cube()
    for j in cb.unroll(range(items)):
        q = j * cb.CUBE_DIM + cb.UNIT_POS
        if p * tile + q < n:
            k = lined[q]
            to = starts[digit_of(k, shift, 8)] + q
            if out is not None:
                out[row, to] = cb.cast(from_key(k, keys), out.dtype) if last else k
            if out_indices is not None:
                out_indices[row, to] = cb.cast(order[q], out_indices.dtype)


@cb.kernel
def sort_rows_by_planes(x: cb.Array, out, out_indices, keys: cb.Comptime, items: cb.Comptime[int]):
    """Rows that one cube holds: all passes in shared memory."""
    wide = cb.u64 if keys.bits == 64 else cb.u32
    tile = cb.CUBE_DIM * items
    planes = cb.CUBE_DIM // cb.PLANE_DIM
    masks = cb.shared((planes, 256), cb.u32)
    counts = cb.shared((planes, 256), cb.i32)
    starts = cb.shared(256, cb.i32)
    board = cb.shared(planes, cb.i32)
    lined = cb.shared(tile, wide)
    order = cb.shared(tile if out_indices is not None else 1, cb.i32)
    key = cb.local(items, wide)
    at = cb.local(items, cb.i32)
    place = cb.local(items, cb.i32)
    row, n = cb.CUBE_POS, x.shape[1]
    begin = cb.PLANE_POS * (cb.PLANE_DIM * items) + cb.UNIT_POS_PLANE
    for j in cb.unroll(range(items)):
        i = begin + j * cb.PLANE_DIM
        key[j] = wide(keys.ones)
        if i < n:
            key[j] = to_key(x[row, i], keys)
        at[j] = cb.cast(i, cb.i32)
    for p in range((keys.bits + 7) // 8):
        rank_tile(key, place, p * 8, masks, counts, starts, board, items)
        for j in cb.unroll(range(items)):
            lined[place[j]] = key[j]
            if out_indices is not None:
                order[place[j]] = at[j]
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


def sort_by_planes(x: Any, values: Any, indices: Any, keys: Any) -> None:
    """Sort (rows, n) of unsigned integers on the current device."""
    m, n = x.shape
    items = ITEMS // 2 if keys.bits == 64 else ITEMS
    tile = UNITS * items
    if n <= tile:
        units = min(UNITS, max(32, power_of_two(n) // 8))
        sort_rows_by_planes[m, units](x, values, indices, keys, max(1, power_of_two(n) // units), mode="checked")
        return
    passes = -(-keys.bits // DIGITS)
    pieces = -(-n // tile)
    counts = memory.empty((m, 256, pieces), np.int32)
    places = memory.empty(counts.shape, np.int32)
    wide = np.uint64 if keys.bits == 64 else np.uint32
    spare = [memory.empty((m, n), wide) for _ in range(min(passes - 1, 2))]
    spare_order = [memory.empty((m, n), np.int32) if indices is not None else None for _ in spare]
    here, order = x, None
    for p in range(passes):
        first, last = p == 0, p == passes - 1
        out, out_order = (values, indices) if last else (spare[p % 2], spare_order[p % 2])
        lanes = max(1, 16 // here.itemsize)
        count_digits_by_planes[m * pieces, UNITS](here, counts, p * DIGITS, tile, keys, first, lanes, mode="checked")
        scan_along_rows(counts.reshape(m, -1), places.reshape(m, -1), f.add, 0, i32, True)
        move_keys_by_planes[m * pieces, UNITS](
            here, order, places, out, out_order, p * DIGITS, keys, first, last, items, mode="checked"
        )
        here, order = out, out_order
