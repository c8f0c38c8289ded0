"""Sorting what no cache holds: parted by the leading bits of its keys into buckets that one does
(see `sort.network_cpu`).

The range of keys is cut into bins of equal width, the bins are counted, neighbouring bins are
joined to buckets of about one size, and every key moves to its bucket. A bin that is too full for
the cache is parted again, by its own range of keys, and needs nothing more when that is one key.
Where every bin is one key, the counts say all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels.sort.keys import unmasked_key
from cubepy.kernels.sort.network_cpu import all_of, key_line, largest, masks_of, sort_part
from cubepy.kernels.sort.problem import Sort
from cubepy.runtime import memory, recording
from cubepy.tune import CpuRoutine

ROOM = 1 << 17  # bytes of the largest bucket that is sorted within the cache
PIECES = 8  # of a segment, at most, so that threads share it
LEAST = 8192  # keys of a piece, at least
CHUNK = 256  # keys whose bins are computed at once
PARTS = 8  # of the bins, that are filled at once
BUCKETS = 768  # that are written at a time without losing their pages, about
BINS = 16  # binary logarithm of how many there are, at most


class Segments(NamedTuple):
    """Parts of a flat array, and into how many pieces each is cut."""

    starts: Any
    sizes: Any
    pieces: int


@cb.func
def piece_of(starts, sizes, s, p, pieces):
    """The ends of piece p of segment s."""
    n = sizes[s]
    length = (n + pieces - 1) // pieces
    return starts[s] + cb.min(n, p * length), starts[s] + cb.min(n, (p + 1) * length)


@cb.kernel
def key_ends(
    x: cb.Array,
    starts: cb.Array,
    sizes: cb.Array,
    ends: cb.Array,
    masks: cb.Array,
    fresh: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """ends[s, p] = the smallest and the largest key of a piece."""
    pieces = ends.shape[1]
    s = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    begin, end = piece_of(starts, sizes, s, p, pieces)
    ways = all_of(masks)
    low = cb.splat(largest(ends.dtype), lanes)
    high = ~low if ends.dtype.bits == 64 else cb.splat(ends.dtype(0), lanes)
    whole = begin + (end - begin) // lanes * lanes
    for i in range(begin, whole, lanes):
        line = key_line(x, i, ways, fresh, lanes)
        low, high = cb.min(low, line), cb.max(high, line)
    for i in range(whole, end):
        line = cb.splat(key_line(x, i, ways, fresh, 1)[0], lanes)
        low, high = cb.min(low, line), cb.max(high, line)
    ends[s, p, 0] = low.min()
    ends[s, p, 1] = high.max()


@cb.func
def bin_of(key, low, shift):
    """How many bins there are below that of a key."""
    wide = cb.u64 if key.dtype.bits == 64 else cb.u32
    return cb.cast(cb.cast(key - low, wide) >> cb.cast(shift, wide), cb.i32)


@cb.func
def bins_of(
    x,
    first,
    count,
    low,
    shift,
    masks,
    bins,
    held,
    fresh: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """The bins of `count` keys from `first` on into `bins`, the keys themselves into `held` if
    there is such.
    """
    whole = count // lanes * lanes
    for i in range(0, whole, lanes):
        line = key_line(x, first + i, masks, fresh, lanes)
        if held is not None:
            held.store(i, line)
        bins.store(i, bin_of(line, low, shift))
    for i in range(whole, count):
        one = key_line(x, first + i, masks, fresh, 1)[0]
        if held is not None:
            held[i] = one
        bins[i] = bin_of(one, low, shift)


@cb.kernel
def count_bins(
    x: cb.Array,
    starts: cb.Array,
    sizes: cb.Array,
    lows: cb.Array,
    shifts: cb.Array,
    counts: cb.Array,
    masks: cb.Array,
    fresh: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """counts[s, p, bin] = how many keys of a piece are in a bin; a cube of one unit does
    a piece.
    """
    pieces = counts.shape[1]
    s = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    begin, end = piece_of(starts, sizes, s, p, pieces)
    low, shift, ways = lows[s], shifts[s], all_of(masks)
    bins = cb.shared(CHUNK, cb.i32)
    for b in range(counts.shape[2]):
        counts[s, p, b] = 0
    for first in range(begin, end, CHUNK):
        count = cb.min(CHUNK, end - first)
        bins_of(x, first, count, low, shift, ways, bins, None, fresh, lanes)
        for i in range(count):
            b = bins[i]
            counts[s, p, b] = counts[s, p, b] + 1


@cb.func
def over_pieces(counts, s, first, lanes: cb.Comptime[int]):
    """How many keys of a segment are in each of `lanes` bins."""
    total = counts.load((s, 0, first), lanes)
    for p in range(1, counts.shape[1]):
        total = total + counts.load((s, p, first), lanes)
    return total


@cb.kernel
def fill_bins(
    starts: cb.Array,
    lows: cb.Array,
    counts: cb.Array,
    out: cb.Array,
    masks: cb.Array,
    parts,
    lanes: cb.Comptime[int],
):
    """Every bin is one key, written as often as it was counted; a cube does one of `parts` parts of
    the bins.
    """
    s, ways = cb.CUBE_POS // parts, all_of(masks)
    width = counts.shape[2] // parts
    begin = cb.CUBE_POS % parts * width
    ahead = cb.splat(cb.cast(0, cb.i32), lanes)
    for first in range(0, begin, lanes):
        ahead = ahead + over_pieces(counts, s, first, lanes)
    at = starts[s] + ahead.sum()
    for b in range(begin, begin + width):
        count = over_pieces(counts, s, b, 1)[0]
        if count > 0:
            key = cb.splat(lows[s] + cb.cast(b, lows.dtype), lanes)
            line = cb.cast(unmasked_key(key, out.dtype.bits, ways), out.dtype)
            whole = count // lanes * lanes
            for i in range(at, at + whole, lanes):
                out.store(i, line)
            for i in range(at + whole, at + count):
                out[i] = line[0]
            at = at + count


@cb.kernel
def join_bins(counts: cb.Array, table: cb.Array, edges: cb.Array, target, lanes: cb.Comptime[int]):
    """table[s, bin] = the bucket of a bin, edges[s, k] = the position where bucket k begins; one
    unit does a segment.

    A bucket holds at most `target` keys, or is one bin.
    """
    s = cb.CUBE_POS
    bucket, filled, total = 0, 0, 0
    edges[s, 0] = 0
    sums = cb.shared(lanes, cb.i32)
    for first in range(0, counts.shape[2], lanes):
        sums.store(0, over_pieces(counts, s, first, lanes))
        for j in range(lanes):
            count = sums[j]
            if filled > 0 and filled + count > target:
                bucket = bucket + 1
                edges[s, bucket] = total
                filled = 0
            table[s, first + j] = cb.cast(bucket, cb.u16)
            filled = filled + count
            total = total + count
    for k in range(bucket + 1, edges.shape[1]):
        edges[s, k] = total


@cb.kernel
def count_buckets(counts: cb.Array, table: cb.Array, found: cb.Array):
    """found[s, p, k] = how many keys of a piece are in bucket k."""
    pieces = counts.shape[1]
    s = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    for k in range(found.shape[2]):
        found[s, p, k] = 0
    for b in range(counts.shape[2]):
        k = table[s, b]
        found[s, p, k] = found[s, p, k] + counts[s, p, b]


@cb.kernel
def move_to_buckets(
    x: cb.Array,
    segments,
    buckets,
    out: cb.Array,
    room: cb.Comptime[int],
    masks: cb.Array,
    fresh: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """out[position] = key, bucket by bucket, within a bucket piece by piece; a cube of one unit
    does a piece.

    segments: where each starts, its size, its lowest key and the shift of its keys. buckets: of
    each bin the bucket, where buckets begin, and the keys that pieces have for them.
    """
    starts, sizes, lows, shifts = segments
    table, edges, found = buckets
    pieces = found.shape[1]
    s = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    begin, end = piece_of(starts, sizes, s, p, pieces)
    low, shift, ways = lows[s], shifts[s], all_of(masks)
    bins, held = cb.shared(CHUNK, cb.i32), cb.shared(CHUNK, out.dtype)
    position = cb.shared(room, cb.i64)
    for k in range(found.shape[2]):
        to = cb.cast(starts[s] + edges[s, k], cb.i64)
        for q in range(p):
            to = to + found[s, q, k]
        position[k] = to
    for first in range(begin, end, CHUNK):
        count = cb.min(CHUNK, end - first)
        bins_of(x, first, count, low, shift, ways, bins, held, fresh, lanes)
        for i in range(count):
            k = cb.cast(table[s, bins[i]], cb.i32)
            to = position[k]
            position[k] = to + 1
            out[to] = held[i]


@cb.kernel
def sort_each_bucket(
    x: cb.Array,
    starts: cb.Array,
    edges: cb.Array,
    out: cb.Array,
    masks: cb.Array,
    room: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """Sort the keys of every bucket that has room, and write them as elements."""
    a = cb.shared(room, x.dtype)
    buckets = edges.shape[1] - 1
    s = cb.CUBE_POS // buckets
    k = cb.CUBE_POS % buckets
    n = edges[s, k + 1] - edges[s, k]
    if n > 0 and n <= room:
        first = starts[s] + edges[s, k]
        sort_part(x, first, first, n, out, a, all_of(masks), False, lanes)


@cb.kernel
def fill_equal(starts: cb.Array, sizes: cb.Array, lows: cb.Array, out: cb.Array, masks: cb.Array):
    """Segments of one key."""
    s = cb.CUBE_POS
    value = cb.cast(unmasked_key(cb.splat(lows[s], 1), out.dtype.bits, all_of(masks))[0], out.dtype)
    for i in range(starts[s], starts[s] + sizes[s]):
        out[i] = value


def _listed(values: Any) -> Any:
    return np.ascontiguousarray(values, np.int64)


class Bucketsort(CpuRoutine):
    """Keys go to buckets by their range, which a network sorts within the cache."""

    name = "bucketsort"

    def unfit(self, p: Sort, properties: cb.DeviceProperties) -> str | None:
        """Values."""
        return None if p.indices is None else "for values alone"

    def launch(self, p: Sort, properties: cb.DeviceProperties) -> None:
        """Five launches, and as many for what is left of buckets that are too large."""
        x, out, masks = p.source, p.target, masks_of(p.keys)
        recording.spoil()  # what is launched depends on the keys
        m, n = x.shape
        wide = masks.dtype
        lanes, room = properties.register_bytes // wide.itemsize, ROOM // wide.itemsize
        source, target, fresh = x.reshape(-1), out.reshape(-1), True
        starts, sizes = _listed(np.arange(m) * n), _listed(np.full(m, n))
        while starts.size:
            pieces = max(1, min(PIECES, int(sizes.max()) // LEAST)) if starts.size < PIECES else 1
            lows, spans = _ranges(source, Segments(starts, sizes, pieces), masks, fresh, lanes)
            some = spans != 0
            if not some.all():
                one = (np.ascontiguousarray(a[~some]) for a in (starts, sizes, lows))
                fill_equal[starts.size - int(some.sum()), 1](*one, target, masks, mode="unchecked")
                starts, sizes, lows, spans = (
                    np.ascontiguousarray(a[some]) for a in (starts, sizes, lows, spans)
                )
                if not starts.size:
                    return
            todo, width = Segments(starts, sizes, pieces), int(spans.max()).bit_length()
            bits = max(10, min(BINS, int(sizes.max()).bit_length() - 6))
            if width <= BINS and int(sizes.max()) >> width:
                bits = max(10, width)
            shifts = np.array([max(0, int(span).bit_length() - bits) for span in spans], wide)
            counts = memory.empty((starts.size, pieces, 1 << bits), np.int32)
            how = (masks, fresh, lanes)
            count_bins[starts.size * pieces, 1](
                source, *todo[:2], lows, shifts, counts, *how, mode="unchecked"
            )
            if width <= bits:
                fill_bins[starts.size * PARTS, 1](
                    starts, lows, counts, target, masks, PARTS, lanes, mode="unchecked"
                )
                return
            moved = memory.empty((m * n,), wide)
            edges = _moved(source, moved, todo, lows, shifts, counts, how)
            cubes = starts.size * (edges.shape[1] - 1)
            sort_each_bucket[cubes, 1](
                moved, starts, edges, target, masks, room, lanes, mode="unchecked"
            )
            filled = np.diff(edges, axis=1)
            left = np.nonzero(filled > room)
            starts, sizes = _listed(starts[left[0]] + edges[:, :-1][left]), _listed(filled[left])
            source, fresh = moved, False


def _ranges(x: Any, todo: Segments, masks: Any, fresh: bool, lanes: int) -> tuple[Any, Any]:
    """The smallest key of every segment, and how far away the largest is."""
    count = todo.starts.size
    ends = memory.empty((count, todo.pieces, 2), masks.dtype)
    key_ends[count * todo.pieces, 1](x, *todo[:2], ends, masks, fresh, lanes, mode="unchecked")
    low, high = ends[:, :, 0].min(1), ends[:, :, 1].max(1)
    return low, (high - low).view(f"u{masks.itemsize}")


def _moved(
    x: Any,
    moved: Any,
    todo: Segments,
    lows: Any,
    shifts: Any,
    counts: Any,
    how: tuple[Any, bool, int],
) -> Any:
    """Move keys to their buckets; gives where those begin (and end) in each segment."""
    segments, pieces, bins = counts.shape
    goal = target_of(int(todo.sizes.max()), moved.itemsize)
    buckets = 2 * (int(todo.sizes.max()) // goal) + 2
    table, found = (
        memory.empty((segments, bins), np.uint16),
        memory.empty((segments, pieces, buckets), np.int32),
    )
    edges = memory.empty((segments, buckets + 1), np.int64)
    join_bins[segments, 1](counts, table, edges, goal, how[2], mode="unchecked")
    count_buckets[segments * pieces, 1](counts, table, found, mode="unchecked")
    room = 1 << (buckets - 1).bit_length()
    parts, ends = (todo.starts, todo.sizes, lows, shifts), (table, edges, found)
    move_to_buckets[segments * pieces, 1](x, parts, ends, moved, room, *how, mode="unchecked")
    return edges


def target_of(n: int, itemsize: int) -> int:
    """Keys of a bucket that is aimed at: few enough for the first-level cache, unless that made too
    many buckets.
    """
    fits = ROOM // 8 // itemsize
    while n // fits > BUCKETS and 2 * fits * itemsize <= ROOM:
        fits *= 2
    return fits
