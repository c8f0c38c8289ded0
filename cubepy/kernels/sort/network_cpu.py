"""Sorting within the cache by a network on lines, for one unit: no branch and no memory access
depends on a key.

What is sorted is seen as a matrix of `rows` lines. Blocks of 16 lines are sorted down their columns
in registers (Batcher's odd-even merges, 1968); then sorted parts of columns, and at last whole
columns, are merged in pairs: the second is taken in reverse, and what came out is bitonic, so that
halving the distance sorts it. Steps of several distances are done at once on lines that are held in
registers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.primitives.register_transpose import transpose_lines
from cubepy.kernels.sort.keys import masked_key, unmasked_key
from cubepy.runtime import recording

BLOCK = 16  # lines that are held in registers, and rows at least


def masks_of(keys: Any) -> np.ndarray:
    """`Keys.masks` as an array of what keys are held in; a call that is repeated reads it again."""
    masks = _masks(keys)
    if recording.active and (recorder := recording.current()) is not None:
        recorder.constant(masks)
    return masks


@lru_cache(maxsize=64)
def _masks(keys: Any) -> np.ndarray:
    masks = np.array(keys.masks(), np.uint64 if keys.bits == 64 else np.uint32)
    return masks.view(np.int64) if keys.bits == 64 else masks


def odd_even_pairs(n: int) -> tuple[tuple[int, int], ...]:
    """Which of n lines are put in order, one pair after the other, to sort them all."""
    pairs = []
    p = 1
    while p < n:
        k = p
        while k >= 1:
            for j in range(k % p, n - k, 2 * k):
                pairs += [
                    (i, i + k)
                    for i in range(j, min(j + k, n - k))
                    if i // (2 * p) == (i + k) // (2 * p)
                ]
            k //= 2
        p *= 2
    return tuple(pairs)


def halving_pairs(n: int, distance: int) -> tuple[tuple[int, int], ...]:
    """Pairs of n lines at the distances distance, distance / 2, ... 1."""
    pairs = []
    while distance >= 1:
        pairs += [(i, i + distance) for i in range(n) if i & distance == 0]
        distance //= 2
    return tuple(pairs)


def reversing_pairs(n: int) -> tuple[tuple[int, int], ...]:
    """The first line with the last and so on; then distances n / 4, ... 1."""
    return (*((i, n - 1 - i) for i in range(n // 2)), *halving_pairs(n, n // 4))


def swapped(lanes: int, bits: int) -> tuple[int, ...]:
    """Every lane takes the one whose number differs in these bits."""
    return tuple(c ^ bits for c in range(lanes))


def weave(lanes: int, bits: int) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """How two lines are shuffled together so that whole lines are compared at the distances bits,
    bits / 2, ... 1.

    Before each step the first line takes the lanes without the bit from both, the second one those
    with it; at last every lane goes back to its place.
    """
    steps = []
    at = {(line, c): line * lanes + c for line in range(2) for c in range(lanes)}
    while bits >= 1:
        first = [where for where in sorted(at) if where[1] & bits == 0]
        second = [(line, c | bits) for line, c in first]
        steps.append((tuple(at[w] for w in first), tuple(at[w] for w in second)))
        at = {w: n for n, w in enumerate(first + second)}
        bits //= 2
    back = [at[w] for w in sorted(at)]
    return (*steps, (tuple(back[:lanes]), tuple(back[lanes:])))


def chosen(lanes: int, bit: int, second: bool) -> tuple[int, ...]:
    """Lanes without the bit from the first line and lanes with it from the second, or the other way
    round.
    """
    return tuple(c + lanes * ((c & bit != 0) != second) for c in range(lanes))


@cb.func
def exchange(held, pairs: cb.Comptime[tuple]):
    """Put pairs of held lines in order, lane by lane."""
    for pair in cb.unroll(pairs):
        low = held[pair[0]]
        high = held[pair[1]]
        held[pair[0]] = cb.min(low, high)
        held[pair[1]] = cb.max(low, high)


@cb.func
def halve(
    a,
    held,
    rows,
    distance,
    pairs: cb.Comptime[tuple],
    count: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """`pairs` of `count` lines at a time that lie `distance` lines from each other."""
    for base in range(0, rows, count * distance):
        for r in range(base, base + distance):
            for k in cb.unroll(range(count)):
                held[k] = a.load((r + k * distance) * lanes, lanes)
            exchange(held, pairs)
            for k in cb.unroll(range(count)):
                a.store((r + k * distance) * lanes, held[k])


@cb.func
def reverse(a, held, rows, size, lanes: cb.Comptime[int]):
    """The first step of merging the two halves of every `size` lines, and the one after it."""
    distance = size // 4
    for base in range(0, rows, size):
        for i in range(distance):
            low = base + i
            high = base + size - 1 - i - distance
            for k in cb.unroll(range(2)):
                held[k] = a.load((low + k * distance) * lanes, lanes)
                held[2 + k] = a.load((high + k * distance) * lanes, lanes)
            exchange(held, reversing_pairs(4))
            for k in cb.unroll(range(2)):
                a.store((low + k * distance) * lanes, held[k])
                a.store((high + k * distance) * lanes, held[2 + k])


@cb.func
def halve_lanes(one, two, steps: cb.Comptime[tuple]):
    """The steps between lanes of two lines, as `weave` has them."""
    for k in cb.unroll(range(len(steps))):
        low, high = cb.shuffle(one, two, steps[k][0]), cb.shuffle(one, two, steps[k][1])
        one, two = low, high
        if k < len(steps) - 1:
            one, two = cb.min(low, high), cb.max(low, high)
    return one, two


@cb.func
def reverse_lanes(a, rows, group: cb.Comptime[int], lanes: cb.Comptime[int]):
    """The steps between columns of merging the two halves of every `group` columns."""
    half = group // 2
    for r in range(rows // 2):
        first = a.load(r * lanes, lanes)
        last = a.load((rows - 1 - r) * lanes, lanes)
        last = cb.shuffle(last, last, swapped(lanes, group - 1))
        low = cb.min(first, last)
        high = cb.max(first, last)
        last = cb.shuffle(low, high, chosen(lanes, half, True))
        last = cb.shuffle(last, last, swapped(lanes, group - 1))
        first, last = halve_lanes(
            cb.shuffle(low, high, chosen(lanes, half, False)), last, weave(lanes, half // 2)
        )
        a.store(r * lanes, first)
        a.store((rows - 1 - r) * lanes, last)


@cb.func
def sort_lines(a, rows, merges, lanes: cb.Comptime[int]):
    """Sort the first rows * lanes elements of `a` column by column: a[r, c] is then element c *
    rows + r.

    `rows` is a power of two, at least BLOCK; `merges` is the binary logarithm of rows / BLOCK *
    lanes.
    """
    held = cb.local(BLOCK, a.dtype, lanes=lanes)
    halve(a, held, rows, 1, odd_even_pairs(BLOCK), BLOCK, lanes)
    size = 2 * BLOCK
    for left in range(merges - 1, -1, -1):
        distance = rows // 2
        if size <= rows:
            reverse(a, held, rows, size, lanes)
            distance = size // 8
            size = size * 2
        else:
            for k in cb.unroll(range(lanes.bit_length() - 1)):
                if left == k:
                    reverse_lanes(a, rows, lanes >> k, lanes)
        while distance >= 4 * BLOCK:
            halve(a, held, rows, distance // 4, halving_pairs(8, 4), 8, lanes)
            distance = distance // 8
        if distance >= 2 * BLOCK:
            halve(a, held, rows, distance // 2, halving_pairs(4, 2), 4, lanes)
        elif distance >= BLOCK:
            halve(a, held, rows, distance, halving_pairs(2, 1), 2, lanes)
        halve(a, held, rows, 1, halving_pairs(BLOCK, BLOCK // 2), BLOCK, lanes)


@cb.func
def all_of(masks):
    """The numbers of `Keys.masks`."""
    return masks[0], masks[1], masks[2], masks[3], masks[4], masks[5]


@cb.func
def largest(dtype):
    """The largest key of 64 bits, which are signed, or of 32, which are not."""
    return dtype((1 << (63 if dtype.bits == 64 else 32)) - 1)


@cb.func
def key_line(x, i, masks, fresh: cb.Comptime[bool], lanes: cb.Comptime[int]):
    """A line of keys, made of elements if `fresh`."""
    line = x.load(i, lanes)
    if fresh:
        return masked_key(line, x.dtype.bits, masks)
    return line


@cb.func
def load_keys(x, first, n, a, size, masks, fresh: cb.Comptime[bool], lanes: cb.Comptime[int]):
    """The keys of x[first : first + n] and, up to `size`, the largest key into `a`."""
    whole = n // lanes * lanes
    for i in range(0, whole, lanes):
        a.store(i, key_line(x, first + i, masks, fresh, lanes))
    for i in range(whole, n):
        a.store(i, key_line(x, first + i, masks, fresh, 1))
    for i in range(n, size):
        a[i] = largest(a.dtype)


@cb.func
def transpose_block(a, r, held, lanes: cb.Comptime[int]):
    """Rows r, r + 1, ... of `a` column by column."""
    lines = ()
    for k in cb.unroll(range(lanes)):
        lines = lines + (a.load((r + k) * lanes, lanes),)
    lines = transpose_lines(lines, lanes)
    for k in cb.unroll(range(lanes)):
        held[k] = lines[k]


@cb.func
def network_of(n, lanes: cb.Comptime[int]):
    """The rows and merges of the smallest network for n keys (see `sort_lines`)."""
    rows = BLOCK
    merges = lanes.bit_length() - 1
    while rows * lanes < n:
        rows = rows * 2
        merges = merges + 1
    return rows, merges


@cb.func
def store_sorted(a, rows, out, first, n, masks, lanes: cb.Comptime[int]):
    """The elements of the first n keys, in the order that `sort_lines` leaves."""
    held = cb.local(lanes, a.dtype, lanes=lanes)
    for r in range(0, rows, lanes):
        transpose_block(a, r, held, lanes)
        at = r
        for c in range(cb.min(lanes, (n - r + rows - 1) // rows)):
            line = cb.cast(unmasked_key(held[c], out.dtype.bits, masks), out.dtype)
            if at + lanes <= n:
                out.store(first + at, line)
            else:
                out.store(first + at, line, valid=n - at)
            at = at + rows


@cb.func
def sort_part(x, first, to, n, out, a, masks, fresh: cb.Comptime[bool], lanes: cb.Comptime[int]):
    """out[to : to + n] = the sorted elements of x from `first` on, which are keys already unless
    `fresh`.
    """
    rows, merges = network_of(n, lanes)
    load_keys(x, first, n, a, rows * lanes, masks, fresh, lanes)
    sort_lines(a, rows, merges, lanes)
    store_sorted(a, rows, out, to, n, masks, lanes)


@cb.kernel
def sort_whole_rows(
    x: cb.Array, masks: cb.Array, out: cb.Array, n, room: cb.Comptime[int], lanes: cb.Comptime[int]
):
    """Rows of n elements, at most `room`, one after the other in flat arrays; a cube of one unit
    does one.
    """
    a = cb.shared(room, masks.dtype)
    first = cb.CUBE_POS * n
    sort_part(x, first, first, n, out, a, all_of(masks), True, lanes)


@cb.func
def placed_line(x, at, i, masks, same_zeros: cb.Comptime[bool], lanes: cb.Comptime[int]):
    """Keys of x[at], x[at + 1], ... above their indices i, i + 1, ...: equal keys keep
    their order.
    """
    line = x.load(at, lanes)
    if same_zeros:  # what has the sign bit alone is zero
        line = cb.select(
            line == x.dtype(1 << (x.dtype.bits - 1)), cb.splat(x.dtype(0), lanes), line
        )
    key = masked_key(line, x.dtype.bits, masks) ^ cb.u32(1 << 31)  # as signed numbers are compared
    return (cb.cast(key, cb.i64) << 32) | cb.cast(cb.iota(lanes) + cb.cast(i, cb.i32), cb.i64)


@cb.func
def store_indices(a, rows, x, first, values, indices, to, k, lanes: cb.Comptime[int]):
    """The indices of the first k keys of `placed_line`, in the order that `sort_lines` leaves, and
    the elements.
    """
    held = cb.local(lanes, cb.i64, lanes=lanes)
    for r in range(0, rows, lanes):
        transpose_block(a, r, held, lanes)
        at = r
        for c in range(cb.min(lanes, (k - r + rows - 1) // rows)):
            indices.store(to + at, held[c] & cb.i64((1 << 32) - 1), valid=k - at)
            if values is not None:
                for j in range(cb.min(lanes, k - at)):
                    values[to + at + j] = x[first + indices[to + at + j]]
            at = at + rows


@cb.kernel
def sort_indices(
    x: cb.Array,
    masks: cb.Array,
    values,
    indices: cb.Array,
    n,
    k,
    same_zeros: cb.Comptime[bool],
    room: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """The indices of the first k of the sorted elements of rows of n, at most `room`, of 32 bits or
    less, and the elements into `values` if there is such; flat arrays; a cube of one unit does a
    row.
    """
    first, to, w = cb.CUBE_POS * n, cb.CUBE_POS * k, all_of(masks)
    a = cb.shared(room, cb.i64)
    rows, merges = network_of(n, lanes)
    whole = n // lanes * lanes
    for i in range(0, whole, lanes):
        a.store(i, placed_line(x, first + i, i, w, same_zeros, lanes))
    for i in range(whole, n):
        a.store(i, placed_line(x, first + i, i, w, same_zeros, 1))
    for i in range(n, rows * lanes):
        a[i] = largest(cb.i64)
    sort_lines(a, rows, merges, lanes)
    store_indices(a, rows, x, first, values, indices, to, k, lanes)
