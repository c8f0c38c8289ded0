"""The best elements of rows where units work in planes: every plane walks along a piece and keeps
what may still count.

An element is worth a look when it beats the worst that a plane kept; on numbers in no particular
order that is soon rare, and most of a row is read once and compared. When a plane's memory is full,
it finds a key that leaves enough elements by bisection of the keys' range, counting in registers.
Planes of a cube merge what they kept, two and two; what cubes kept is searched again, until one
cube has the row, which puts it in order (Batcher's bitonic sort, 1968).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.kernels.sort.keys import from_key, to_key
from cubepy.kernels.sort.problem import Top
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine

MOST = {32: 1008, 64: 256}  # the largest k, by bits of a key: registers are the limit
PLANES = 16  # of a core, for a row that is cut
MANY = 256  # entries: where more are wanted of few elements, sorting all of them is quicker
FEW = 1 << 22
LAST = 131072  # what one cube searches, of entries that others kept
NOWHERE = (1 << 31) - 1  # index of what pads a piece with fewer than k elements


@dataclass(frozen=True)
class TopPlan:
    """How a kernel searches: `rounds` lines of `lanes` elements a unit at once, `room` entries a
    plane, and whether it reads elements (or keys with their indices) and writes elements in order
    (or keys in any).
    """

    lanes: int
    rounds: int
    room: int
    first: bool
    last: bool


@cb.func
def stays(key, at, high, final):
    """Whether an entry is among the best; what only pads never is."""
    return ((key < high) | ((key == high) & (at <= final))) & (at != NOWHERE)


@cb.func
def between(low, high, begin, final, wide: cb.Comptime):
    """The next guess of a bisection: by keys, and by indices once one key is left."""
    middle = low + ((high - low) >> wide(1))
    return middle, NOWHERE if low < high else begin + ((final - begin) >> 1)


@cb.func
def keep_best(kept, order, count, k, most, keys, room: cb.Comptime[int]):
    """Cut a plane's `count` entries back to between k and `most` (at least k) best ones: smaller
    keys, then smaller indices. Gives how many, the largest key and the largest index that an entry
    of this key may have.
    """
    wide = cb.u64 if keys.bits == 64 else cb.u32
    plane, lane = cb.PLANE_POS, cb.UNIT_POS_PLANE
    slots = room // cb.PLANE_DIM
    mine = lane * slots
    held = cb.keep_first(kept.load((plane, mine), slots), count - mine, wide(keys.ones))
    where = cb.keep_first(order.load((plane, mine), slots), count - mine, cb.i32(NOWHERE))
    low = cb.plane_min(held.min())
    high = cb.plane_max(cb.keep_first(held, count - mine, wide(0)).max())
    begin = 0
    final = NOWHERE
    found = count
    while found > most and (low < high or begin < final):
        middle, index = between(low, high, begin, final, wide)
        found_here = cb.select(
            (held < middle) | ((held == middle) & (where <= index)), cb.splat(1, slots), 0
        )
        n = cb.plane_sum(found_here.sum())
        if low < high:
            if n >= k:
                high = middle
                found = n
            else:
                low = middle + wide(1)
        elif n >= k:  # too many have the largest key: the first of them stay
            final = index
            found = n
        else:
            begin = index + 1
    cb.sync_plane()
    n = cb.select(stays(held, where, high, final), cb.splat(1, slots), 0).sum()
    ends = cb.plane_inclusive_sum(n)
    to = ends - n
    for j in cb.unroll(range(slots)):
        if stays(held[j], where[j], high, final):
            kept[plane, to] = held[j]
            order[plane, to] = where[j]
            to = to + 1
    cb.sync_plane()
    return cb.plane_shuffle(ends, cb.PLANE_DIM - 1), high, final


@cb.func
def walk(x, given, span, k, most, kept, order, counts, keys, plan):
    """Let a plane keep the best of x[row, begin:stop], the `span`; gives how many they are (k at
    least, if there are so many).
    """
    row, begin, stop = span
    wide = cb.u64 if keys.bits == 64 else cb.u32
    plane, lane = cb.PLANE_POS, cb.UNIT_POS_PLANE
    lanes = plan.lanes
    hop = cb.PLANE_DIM * lanes
    chunk = hop * plan.rounds
    lines = cb.local(plan.rounds, wide, lanes=lanes)
    count = 0
    open_ = True  # nothing was dropped so far
    limit = wide(0)
    final = 0
    for start in range(begin, stop, chunk):
        base = multiple(start + lane * lanes, lanes)
        if start + chunk <= stop:
            for r in cb.unroll(range(plan.rounds)):
                v = x.load((row, base + r * hop), lanes)
                lines[r] = to_key(v, keys) if plan.first else v
        else:
            for r in cb.unroll(range(plan.rounds)):
                i = base + r * hop
                v = x.load((row, i), lanes, valid=stop - i)
                lines[r] = cb.keep_first(
                    to_key(v, keys) if plan.first else v, stop - i, wide(keys.ones)
                )
        if open_:
            for r in cb.unroll(range(plan.rounds)):
                i = base + r * hop
                to = multiple(count + (r * cb.PLANE_DIM + lane) * lanes, lanes)
                where = cb.iota(lanes) + cb.cast(i, cb.i32)
                if not plan.first:
                    where = given.load((row, i), lanes, valid=stop - i)
                kept.store((plane, to), lines[r])
                order.store((plane, to), cb.keep_first(where, stop - i, cb.i32(NOWHERE)))
            count = count + chunk
            cb.sync_plane()
        else:
            best = lines[0]
            for r in cb.unroll(range(1, plan.rounds)):
                best = cb.min(best, lines[r])
            if cb.plane_any(best.min() < limit if plan.first else best.min() <= limit):
                if lane == 0:
                    counts[plane] = count
                cb.sync_plane()
                for r in cb.unroll(range(plan.rounds)):
                    for e in cb.unroll(range(lanes)):
                        key = lines[r][e]
                        i = base + r * hop + e
                        if (key < limit) if plan.first else (key <= limit):
                            if i < stop:
                                at = cb.cast(i, cb.i32) if plan.first else given[row, i]
                                if plan.first or key < limit or at <= final:
                                    to = cb.atomic_add(counts, plane, 1)
                                    kept[plane, to] = key
                                    order[plane, to] = at
                cb.sync_plane()
                count = counts[plane]
        if count > plan.room - chunk:
            count, limit, final = keep_best(kept, order, count, k, most, keys, plan.room)
            open_ = False
            if plan.first and final == NOWHERE:
                limit = limit + wide(
                    1
                )  # less than all that was dropped; equal ones come later and are no better
    return count


@cb.func
def put_in_order(kept, order, padded):
    """Sort the first `padded` entries (a power of two) of the first plane, by keys and then by
    indices.
    """
    size = 2
    while size <= padded:
        step = size // 2
        while step >= 1:
            for t in range(cb.UNIT_POS, padded // 2, cb.CUBE_DIM):
                i = 2 * t - (t & (step - 1))
                key, other = kept[0, i], kept[0, i + step]
                at, there = order[0, i], order[0, i + step]
                wrong = (other < key) | ((other == key) & (there < at))
                if wrong == ((i & size) == 0):
                    kept[0, i] = other
                    kept[0, i + step] = key
                    order[0, i] = there
                    order[0, i + step] = at
            cb.sync_cube()
            step = step // 2
        size = size * 2


@cb.kernel
def top_of_pieces(
    x: cb.Array,
    given,
    out: cb.Array,
    out_indices: cb.Array,
    k,
    most,
    part,
    padded,
    keys: cb.Comptime,
    plan: cb.Comptime[TopPlan],
):
    """The k best of every piece of every row (and up to `most`, unless it is the last search), a
    cube each; each of its planes walks along `part` elements.

    With `given`, x holds keys and given[row, i] the index of each of them.
    """
    wide = cb.u64 if keys.bits == 64 else cb.u32
    planes = cb.CUBE_DIM // cb.PLANE_DIM
    kept = cb.shared((planes, plan.room), wide)
    order = cb.shared((planes, plan.room), cb.i32)
    counts = cb.shared(planes, cb.i32)
    plane, lane = cb.PLANE_POS, cb.UNIT_POS_PLANE
    n = x.shape[1]
    piece = planes * part
    pieces = (n + piece - 1) // piece
    row = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    begin = p * piece + plane * part
    span = (row, begin, cb.min(begin + part, n))
    count = walk(x, given, span, k, most, kept, order, counts, keys, plan)
    step = 1
    while step <= planes:
        if plane % step == 0:
            if step > 1:
                other = plane + step // 2
                more = counts[other]
                for e in range(lane, more, cb.PLANE_DIM):
                    kept[plane, count + e] = kept[other, e]
                    order[plane, count + e] = order[other, e]
                cb.sync_plane()
                count = count + more
            if count > most:
                count, _, _ = keep_best(kept, order, count, k, most, keys, plan.room)
            if lane == 0:
                counts[plane] = count
        cb.sync_cube()
        step = step * 2
    filled = counts[0]
    if plan.last:
        for e in range(filled + cb.UNIT_POS, padded, cb.CUBE_DIM):
            kept[0, e] = wide(keys.ones)
            order[0, e] = NOWHERE
        cb.sync_cube()
        put_in_order(kept, order, padded)
        for e in range(cb.UNIT_POS, k, cb.CUBE_DIM):
            out[row, e] = cb.cast(from_key(kept[0, e], keys), out.dtype)
            out_indices[row, e] = cb.cast(order[0, e], out_indices.dtype)
    else:
        for e in range(cb.UNIT_POS, most, cb.CUBE_DIM):
            out[row, p * most + e] = kept[0, e] if e < filled else wide(keys.ones)
            out_indices[row, p * most + e] = order[0, e] if e < filled else NOWHERE


def worth_it(elements: int, n: int, k: int, itemsize: int) -> bool:
    """Whether searching rows of n, so many elements in all, for the k best of each is better than
    sorting them.
    """
    return n > 4 * k and k <= MOST[max(32, 8 * itemsize)] and (k <= MANY or elements >= FEW)


class Search(GpuRoutine):
    """Planes walk along pieces and keep what may still count."""

    name = "search"

    def unfit(self, p: Top, properties: cb.DeviceProperties) -> str | None:
        """Few enough that searching is better than sorting."""
        m, n = p.x.shape
        worth = worth_it(m * n, n, p.k, p.x.itemsize)
        return None if worth else "so many are better sorted"

    def launch(self, p: Top, properties: cb.DeviceProperties) -> None:
        """A launch over the rows, and as many as it takes over what cubes kept."""
        top_by_planes(p.source, p.target, p.indices, p.k, p.keys, properties)


def top_by_planes(
    x: Any,
    values: Any,
    indices: Any,
    k: int,
    keys: Any,
    properties: cb.DeviceProperties,
    given: Any = None,
) -> None:
    """The k best of every row of x (rows, n), unsigned integers: `values` and `indices` are (rows,
    k), in order.

    With `given`, x holds keys, and given[row, i] the index of each of them.
    """
    m, n = x.shape
    narrow = 8 if keys.bits == 64 else 4
    least = power_of_two(k)
    most = (
        max(16, least if 5 * k <= 4 * least else least + least // 2)
        if k <= MANY
        else min(1024, k + k // 4)
    )
    wanted = max(1, PLANES * properties.cores // m)
    room = max(512, 4 * least) if k <= MANY else 2048
    lanes = min(line_of(x), 8)
    plane = properties.plane_size
    rounds = max(1, min(room // 2, 512) // plane // lanes)
    chunk = plane * lanes * rounds
    widest = min(
        16, power_of_two(properties.max_shared_memory // (room * (narrow + 4) + 16) + 1) // 2
    )
    planes = min(wanted, -(-n // (2 * chunk)), max(1, n // (2 * k)))
    if planes > widest and given is None or n > LAST:
        cubes, planes = -(-planes // min(8, widest)), min(8, widest)
    else:
        cubes, planes = 1, min(widest, power_of_two(planes))
    part = -(-n // (cubes * planes * chunk)) * chunk
    cubes = -(-n // (planes * part))
    plan = TopPlan(lanes, rounds, room, given is None, cubes == 1)
    if cubes == 1:
        found, at = values, indices
    else:
        wide = np.uint64 if keys.bits == 64 else np.uint32
        found, at = memory.empty((m, cubes * most), wide), memory.empty((m, cubes * most), np.int32)
    top_of_pieces[m * cubes, plane * planes](
        x, given, found, at, k, most, part, power_of_two(most), keys, plan, mode="unchecked"
    )
    if cubes > 1:
        top_by_planes(found, values, indices, k, keys, properties, at)
