"""Sorting what a few caches hold: runs sorted by networks (see `sort.network_cpu`), then merged in
pairs, level by level.

A cube makes one stretch of the result of a pair: a search finds where it begins in both runs
(Green, McColl and Bader, 2012), and lines are merged by a bitonic network in registers (Chhugani et
al., 2008). No launch depends on a key.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.sort.keys import unmasked_key
from cubepy.kernels.sort.network_cpu import (
    all_of,
    halve_lanes,
    largest,
    masks_of,
    sort_part,
    swapped,
    weave,
)
from cubepy.kernels.sort.problem import Sort
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine

RUN = 1 << 15  # bytes of a run that the nearest cache holds while it is sorted
FEW = 1 << 14  # elements that one thread sorts and merges before two have met twice
STRETCH = 8192  # elements of a pair of runs that a cube merges
WAYS = 3  # stretches that are merged side by side
MOST = 1 << 20  # longest row that is sorted in this way


@cb.kernel
def sort_runs(
    x: cb.Array,
    masks: cb.Array,
    out: cb.Array,
    n,
    length,
    each,
    room: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """The sorted keys of every run of `length` elements of rows of n, one row after the other in
    flat arrays; a cube does `each` runs.
    """
    runs = (n + length - 1) // length
    groups = (runs + each - 1) // each
    row = cb.CUBE_POS // groups
    begin = cb.CUBE_POS % groups * each
    a = cb.shared(room, masks.dtype)
    w = all_of(masks)
    same = masks.dtype(0)  # keys remain keys
    ways = (w[0], w[1], same, same, w[4], w[5])
    for k in range(begin, cb.min(begin + each, runs)):
        first = k * length
        at = row * n + first
        sort_part(x, at, at, cb.min(length, n - first), out, a, ways, True, lanes)


@cb.func
def taken_before(x, one, two, count, other, wanted):
    """How many of the first `wanted` of two merged runs, of `count` from `one` on and of `other`
    from `two` on, come from the first.
    """
    low = cb.max(wanted - other, 0)
    high = cb.min(wanted, count)
    while low < high:
        middle = (low + high) // 2
        if x[one + middle] <= x[two + wanted - 1 - middle]:
            low = middle + 1
        else:
            high = middle
    return low


@cb.func
def next_line(x, a, a_end, b, b_end, most, lanes: cb.Comptime[int]):
    """The next line of the run whose next key is smaller, with the largest key behind its end; and
    whether that is the first run.
    """
    edge = x.size - 1
    one = cb.select(a < a_end, x[cb.min(a, edge)], most)
    two = cb.select(b < b_end, x[cb.min(b, edge)], most)
    left = one <= two  # no branch: which run goes on is not to be foretold
    at = cb.select(left, a, b)
    rest = cb.select(left, a_end, b_end) - at
    if rest >= lanes:
        line = x.load(at, lanes)
    else:
        line = cb.keep_first(x.load(cb.min(at, edge), lanes, valid=rest), rest, most)
    return line, left


@cb.kernel
def merge_runs(
    x: cb.Array,
    masks: cb.Array,
    out: cb.Array,
    n,
    length,
    parts,
    last: cb.Comptime[bool],
    ways: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """Merge pairs of runs of `length` keys of rows of n; a cube does one of `parts` parts of a
    pair, in `ways` stretches side by side, since each step of one waits for the step before. The
    `last` launch writes elements.
    """
    pairs = (n + 2 * length - 1) // (2 * length)
    row = cb.CUBE_POS // (pairs * parts)
    first = cb.CUBE_POS // parts % pairs * (2 * length)
    p = cb.CUBE_POS % parts
    count = cb.min(length, n - first)
    other = cb.min(length, n - first - count)
    one = row * n + first
    two = one + count
    a_end, b_end = two, two + other
    size = (count + other + parts * ways - 1) // (parts * ways)
    most = largest(x.dtype)
    elements = all_of(masks)
    held = cb.local(ways, x.dtype, lanes=lanes)
    a = cb.local(ways, cb.i64)
    b = cb.local(ways, cb.i64)
    for w in cb.unroll(range(ways)):
        begin = cb.min((p * ways + w) * size, count + other)
        taken = taken_before(x, one, two, count, other, begin)
        a[w] = one + taken
        b[w] = two + begin - taken
        line, left = next_line(x, a[w], a_end, b[w], b_end, most, lanes)
        held[w] = line
        a[w] = a[w] + cb.select(left, lanes, 0)
        b[w] = b[w] + cb.select(left, 0, lanes)
    for k in range(0, size, lanes):
        for w in cb.unroll(range(ways)):
            line, left = next_line(x, a[w], a_end, b[w], b_end, most, lanes)
            a[w] = a[w] + cb.select(left, lanes, 0)
            b[w] = b[w] + cb.select(left, 0, lanes)
            line = cb.shuffle(line, line, swapped(lanes, lanes - 1))
            low, high = halve_lanes(
                cb.min(held[w], line), cb.max(held[w], line), weave(lanes, lanes // 2)
            )
            held[w] = high
            at = (p * ways + w) * size + k
            rest = cb.min(size - k, count + other - at)
            if last:
                value = cb.cast(unmasked_key(low, out.dtype.bits, elements), out.dtype)
            else:
                value = low
            if rest >= lanes:
                out.store(one + at, value)
            elif rest > 0:
                out.store(one + at, value, valid=rest)


class Mergesort(CpuRoutine):
    """Runs that the nearest cache holds, merged two and two."""

    name = "mergesort"

    def unfit(self, p: Sort, properties: cb.DeviceProperties) -> str | None:
        """Values; buckets only count keys of so few bits, and longer rows are theirs."""
        if p.indices is not None:
            return "for values alone"
        most = MOST >> (2 if p.keys.bits <= 16 else 0)
        return None if p.x.shape[1] <= most else f"for rows of at most {most}"

    def launch(self, p: Sort, properties: cb.DeviceProperties) -> None:
        """A launch for the runs, and one for every doubling."""
        x, out, masks = p.source, p.target, masks_of(p.keys)
        m, n = x.shape
        wide = masks.dtype
        lanes, room = properties.register_bytes // wide.itemsize, RUN // wide.itemsize
        # a network sorts a power of two: runs of equal lengths would each be padded to the next one
        length = room
        runs = -(-n // length)
        each = runs if m * n <= FEW else 1
        here, there = (memory.empty((m * n,), wide) for _ in range(2))
        sort_runs[m * -(-runs // each), 1](
            x.reshape(-1), masks, here, n, length, each, room, lanes, mode="unchecked"
        )
        merge(here, there, out, masks, length, properties)


def merge(
    here: Any, there: Any, out: Any, masks: Any, length: int, properties: cb.DeviceProperties
) -> None:
    """Write the merged runs of `length` keys of `here` to `out` (rows, n); both spare arrays are
    flat.
    """
    m, n = out.shape
    lanes = properties.register_bytes // here.itemsize
    while length < n:
        last = 2 * length >= n
        parts = (
            1 if m * n <= FEW else max(1, -(-2 * length // STRETCH), -(-2 // -(-n // (2 * length))))
        )
        to = out.reshape(-1) if last else there
        cubes = m * -(-n // (2 * length)) * parts
        merge_runs[cubes, 1](here, masks, to, n, length, parts, last, WAYS, lanes, mode="unchecked")
        here, there, length = there, here, 2 * length
