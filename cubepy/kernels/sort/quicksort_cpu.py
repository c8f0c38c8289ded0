"""Quicksort on lines (Hoare, 1961; on lines Blacher, Giesen and Kühne, 2021), by one unit; runs,
one for each thread, are merged (see `sort.mergesort_cpu`).

A line of keys is compared with the pivot at once; `cb.partition` moves its smaller keys to the
front, and the line is written to both ends of what is left of the other buffer, where the next
lines overwrite what does not belong there. So no branch depends on a key. Parts that are small
enough are sorted by a network (see `sort.network_cpu`).
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.sort import mergesort_cpu
from cubepy.kernels.sort.keys import unmasked_key
from cubepy.kernels.sort.mergesort_cpu import FEW, merge
from cubepy.kernels.sort.network_cpu import all_of, key_line, largest, masks_of, sort_part
from cubepy.kernels.sort.problem import Sort
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine

SMALL = 256  # keys of a part that a network sorts
LEVELS = 2  # times the binary logarithm of a row's length: deeper ones halve the range of keys
DEPTH = 64  # parts that wait, at most: the larger one of two does
MOST = 1 << 24  # longest row that is sorted in this way
LINES = 9  # that a pivot is taken from


@cb.func
def middle_of(a, b, c):
    """The middle one of three keys."""
    return cb.max(cb.min(a, b), cb.min(cb.max(a, b), c))


@cb.func
def likely_middle(keys, first, n, lanes: cb.Comptime[int]):
    """A key that is likely to be near the middle: of nine lines the middle of middles, then of
    three of its lanes.
    """
    found = ()
    for k in cb.unroll(range(LINES)):
        found = found + (keys.load(first + n // LINES * k, lanes),)
    middles = ()
    for k in cb.unroll(range(3)):
        middles = middles + (middle_of(found[k], found[k + 3], found[k + 6]),)
    line = middle_of(middles[0], middles[1], middles[2])
    return middle_of(line[0], line[lanes // 2], line[lanes - 1])


@cb.func
def ends_of(keys, first, n, lanes: cb.Comptime[int]):
    """The smallest and the largest of n keys, at least a line."""
    low = keys.load(first, lanes)
    high = low
    for i in range(first, first + n - lanes, lanes):
        line = keys.load(i, lanes)
        low, high = cb.min(low, line), cb.max(high, line)
    line = keys.load(first + n - lanes, lanes)
    return cb.min(low, line).min(), cb.max(high, line).max()


@cb.func
def pivot_of(keys, first, n, likely, lanes: cb.Comptime[int]):
    """A key near the middle if `likely`, else one that halves the range of keys, which ends in any
    case.
    """
    pivot = likely_middle(keys, first, n, lanes)
    if not likely:
        low, high = ends_of(keys, first, n, lanes)
        wide = cb.u64 if keys.dtype.bits == 64 else cb.u32
        half = cb.cast(cb.cast(high - low, wide) >> 1, keys.dtype)
        pivot = cb.select(low == high, low, low + half + keys.dtype(1))
    return pivot


@cb.func
def part_keys(keys, source, target, n, pivot, lanes: cb.Comptime[int]):
    """keys[target : target + n] = the n keys from `source` on, those below the pivot first; gives
    how many they are.
    """
    low = target
    high = target + n
    split = cb.splat(pivot, lanes)
    whole = source + n // lanes * lanes
    for i in range(
        whole, source + n
    ):  # first, so that what is left are whole lines: two at least, or one in one place
        key = keys[i]
        keys[low] = key
        keys[high - 1] = key
        count = cb.select(key < pivot, 1, 0)
        low = low + count
        high = high - (1 - count)
    for i in range(source, whole, lanes):
        line = keys.load(i, lanes)
        below = line < split
        line = cb.partition(line, below)
        keys.store(low, line)
        keys.store(high - lanes, line)
        count = below.sum()
        low = low + count
        high = high - (lanes - count)
    return low - target


@cb.func
def write_equal(out, first, n, key, masks, lanes: cb.Comptime[int]):
    """n elements of one key."""
    line = cb.cast(unmasked_key(cb.splat(key, lanes), out.dtype.bits, masks), out.dtype)
    for i in range(first, first + n, lanes):
        out.store(i, line, valid=first + n - i)


@cb.func
def quicksort(keys, other, first, n, out, a, masks, levels, lanes: cb.Comptime[int]):
    """out[first : first + n] = the elements of the sorted keys[first : first + n]; a part of m keys
    may use the `other` keys behind. Pivots that halve the range of keys bound what is left after so
    many `levels`.
    """
    begins = cb.shared(DEPTH, cb.i64)
    ends = cb.shared(DEPTH, cb.i64)
    depths = cb.shared(DEPTH, cb.i32)
    top: cb.i32 = 0
    begin, end = cb.cast(first, cb.i64), cb.cast(first + n, cb.i64)  # of the result
    depth: cb.i32 = 0  # odd ones are in the other buffer
    going: cb.bool_ = True
    while going:
        count = end - begin
        here = begin + cb.select(depth % 2 == 0, 0, other)
        there = begin + cb.select(depth % 2 == 0, other, 0)
        if count <= SMALL:
            sort_part(keys, here, begin, count, out, a, masks, False, lanes)
            begin = end
        else:
            pivot = pivot_of(keys, here, count, depth < levels, lanes)
            less = part_keys(keys, here, there, count, pivot, lanes)
            if less == 0:  # the pivot is the smallest key
                same = count
                if pivot != largest(keys.dtype):
                    same = part_keys(keys, here, there, count, pivot + keys.dtype(1), lanes)
                write_equal(out, begin, same, pivot, masks, lanes)
                begin = begin + same
                depth = depth + 1
            else:
                depth = depth + 1
                middle = begin + less
                if less + less > count:  # the larger part waits
                    begins[top] = begin
                    ends[top] = middle
                    begin = middle
                else:
                    begins[top] = middle
                    ends[top] = end
                    end = middle
                depths[top] = depth
                top = top + 1
        if begin == end:
            going = top > 0
            if going:
                top = top - 1
                begin, end, depth = begins[top], ends[top], depths[top]


@cb.kernel
def quicksort_runs(
    x: cb.Array,
    masks: cb.Array,
    keys: cb.Array,
    out: cb.Array,
    n,
    length,
    levels,
    last: cb.Comptime[bool],
    room: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """The sorted keys (elements if `last`) of every run of `length` elements of rows of n, one row
    after the other in flat arrays; a cube of one unit does a run. `keys` has room for all twice.
    """
    runs = (n + length - 1) // length
    begin = cb.CUBE_POS % runs * length
    first = cb.CUBE_POS // runs * n + begin
    count = cb.min(length, n - begin)
    ways = all_of(masks)
    whole = first + count // lanes * lanes
    for i in range(first, whole, lanes):
        keys.store(i, key_line(x, i, ways, True, lanes))
    for i in range(whole, first + count):
        keys.store(i, key_line(x, i, ways, True, 1))
    a = cb.shared(room, masks.dtype)
    same = masks.dtype(0)  # keys remain keys
    if last:
        quicksort(keys, x.size, first, count, out, a, ways, levels, lanes)
    else:
        quicksort(
            keys,
            x.size,
            first,
            count,
            out,
            a,
            (ways[0], ways[1], same, same, ways[4], ways[5]),
            levels,
            lanes,
        )


def quick(properties: cb.DeviceProperties) -> bool:
    """Whether the device parts a line as long as its registers by a mask in a few steps."""
    return "partition" in properties.features and properties.register_bytes == 32


def parts(p: Sort, properties: cb.DeviceProperties) -> bool:
    """Whether parting rows is worth it."""
    return quick(properties) and (p.wide == 8 or p.x.shape[1] > mergesort_cpu.FEW)


class Quicksort(CpuRoutine):
    """Rows are parted until a network sorts the rest; several units' parts are merged."""

    name = "quicksort"

    def unfit(self, p: Sort, properties: cb.DeviceProperties) -> str | None:
        """Values, where lines are parted quickly."""
        if p.indices is not None:
            return "for values alone"
        if not parts(p, properties):
            return "lines are not parted quickly, or rows are short"
        most = MOST >> (4 if p.keys.bits <= 16 else 0)
        return None if p.x.shape[1] <= most else f"for rows of at most {most}"

    def launch(self, p: Sort, properties: cb.DeviceProperties) -> None:
        """A launch for the parts of units, and one for every doubling."""
        x, out, masks = p.source, p.target, masks_of(p.keys)
        m, n = x.shape
        wide = masks.dtype
        lanes, pieces = properties.register_bytes // wide.itemsize, 1
        while m * pieces < properties.cores and n > pieces * FEW:
            pieces *= 2
        length = -(-n // (16 * pieces)) * 16
        keys, target = memory.empty((2 * m * n,), wide), out.reshape(-1)
        here = target if length >= n else memory.empty((m * n,), wide)
        quicksort_runs[m * -(-n // length), 1](
            x.reshape(-1),
            masks,
            keys,
            here,
            n,
            length,
            LEVELS * n.bit_length(),
            length >= n,
            SMALL,
            lanes,
            mode="unchecked",
        )
        if length < n:
            merge(here, keys[: m * n], out, masks, length, properties)
