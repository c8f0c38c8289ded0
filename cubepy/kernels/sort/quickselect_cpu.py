"""The first elements of sorted rows by quickselect on lines (Hoare, 1961; see
`sort.quicksort_cpu`), for one unit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.sort import quicksort_cpu
from cubepy.kernels.sort.network_cpu import (
    all_of,
    largest,
    masks_of,
    network_of,
    placed_line,
    sort_lines,
    store_indices,
)
from cubepy.kernels.sort.problem import Top
from cubepy.kernels.sort.quicksort_cpu import SMALL, part_keys, pivot_of
from cubepy.kernels.sort.radix_cpu import FEW
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine

LONGEST = 1 << 16  # row
WANTED = 1024  # elements of it, at most
OFTEN = 128  # elements for each that is wanted, at most


@cb.func
def keep(keys, source, a, to, n, lanes: cb.Comptime[int]):
    """a[to : to + n] = the n keys from `source` on; what is behind is written, too."""
    for i in range(0, n, lanes):
        a.store(to + i, keys.load(source + i, lanes))


@cb.struct
class Workspace:
    """A cube's memory: `keys` from `room` on for two rows, `chosen` for those that are kept; and
    the masks of a row's keys.
    """

    keys: Any
    room: Any
    chosen: Any
    masks: Any


@cb.func
def choose(x, n, values, indices, k, row, levels, space, same_zeros: cb.Comptime[bool], lanes):
    """One row of n elements, of which the first k are looked for."""
    keys, room, a, w = space.keys, space.room, space.chosen, space.masks
    first, to = row * n, row * k
    other = n + 2 * lanes
    whole = n // lanes * lanes
    for i in range(0, whole, lanes):
        keys.store(room + i, placed_line(x, first + i, i, w, same_zeros, lanes))
    for i in range(whole, n):
        keys.store(room + i, placed_line(x, first + i, i, w, same_zeros, 1))
    begin, end, depth = (
        0,
        n,
        0,
    )  # what may still be among the first k; after an odd number of steps it is behind
    while end > k and end - begin > SMALL:
        here = room + begin + cb.select(depth % 2 == 0, 0, other)
        there = room + begin + cb.select(depth % 2 == 0, other, 0)
        pivot = pivot_of(keys, here, end - begin, depth < levels, lanes)
        middle = begin + part_keys(keys, here, there, end - begin, pivot, lanes)
        if middle > k:
            end = middle
        else:
            keep(keys, there, a, begin, middle - begin, lanes)
            begin = middle
        depth = depth + 1
    keep(keys, room + begin + cb.select(depth % 2 == 0, 0, other), a, begin, end - begin, lanes)
    rows, merges = network_of(end, lanes)
    for i in range(end, rows * lanes):
        a[i] = largest(cb.i64)
    sort_lines(a, rows, merges, lanes)
    store_indices(a, rows, x, first, values, indices, to, k, lanes)


@cb.kernel
def top_by_parts(
    x: cb.Array,
    masks: cb.Array,
    keys: cb.Array,
    found,
    shape,
    each,
    levels,
    same_zeros: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """found = the first k of the sorted elements of m rows of n, of 32 bits or less, and their
    indices, with shape = m, n, k; flat arrays; a cube of one unit does `each` rows, with memory of
    its own in `keys`.
    """
    values, indices = found
    m, n, k = shape
    a = cb.shared(2 * WANTED, cb.i64)
    space = Workspace(keys, cb.CUBE_POS * (2 * (n + 2 * lanes)), a, all_of(masks))
    for row in range(cb.CUBE_POS * each, cb.min(cb.CUBE_POS * each + each, m)):
        choose(x, n, values, indices, k, row, levels, space, same_zeros, lanes)


class Quickselect(CpuRoutine):
    """Rows are parted until the first k are apart, which a network sorts.

    Of many more elements few are better than the worst of those that were found so far
    (`radix_cpu.Collected`).
    """

    name = "quickselect"

    def unfit(self, p: Top, properties: cb.DeviceProperties) -> str | None:
        """A good part of rows of 32 bits, where lines are parted quickly."""
        n, k = p.x.shape[1], p.k
        if not quicksort_cpu.quick(properties):
            return "lines are not parted quickly"
        if p.x.itemsize > 4:
            return "for keys of 32 bits"
        fits = FEW < k <= WANTED and 2 * k <= n <= min(LONGEST, OFTEN * k)
        return None if fits else f"for {FEW + 1} to {WANTED} of twice to {OFTEN} times as many"

    def launch(self, p: Top, properties: cb.DeviceProperties) -> None:
        """A cube searches some rows."""
        (m, n), k = p.x.shape, p.k
        lanes = properties.register_bytes // 8
        each = -(-m // (4 * properties.cores))
        cubes = -(-m // each)
        keys = memory.empty((cubes * 2 * (n + 2 * lanes),), np.int64)
        source, found = (a.reshape(-1) for a in (p.source, p.target))
        top_by_parts[cubes, 1](
            source,
            masks_of(p.keys),
            keys,
            (found, p.indices.reshape(-1)),
            (m, n, k),
            each,
            quicksort_cpu.LEVELS * n.bit_length(),
            p.keys.same_zeros,
            lanes,
            mode="unchecked",
        )
