"""Radix sort: elements as unsigned keys whose order is theirs, sorted digit by digit from the
lowest, stable.

One pass counts the digits of every piece of a row, a scan turns the counts into positions (digit by
digit, and piece by piece within a digit), and a second look at the pieces moves keys, with their
indices where wanted, to their positions. A piece is walked by one unit where units are not threads,
and ranked by planes where they are: lanes that hold the same digit find each other through a word
of shared memory (Merrill and Grimshaw, 2011; CUB's match by atomics).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.primitives.register_transpose import transpose_lines
from cubepy.kernels.primitives.vector_width import power_of_two
from cubepy.kernels.scan.problem import Scan
from cubepy.kernels.scan.routines import SCAN
from cubepy.kernels.sort.keys import Keys, digit_of, from_key, key_at, to_key
from cubepy.kernels.sort.problem import Sort, Top
from cubepy.lang.dtypes import i32
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine

ROOM = 8192  # longest row that is sorted within the cache, by one unit
PIECES = 8  # of a long row, at most
FEW = 16  # largest k of topk that is kept in order all the time
FEW_OF = 1 << 16  # and the longest row of it


class Pass(NamedTuple):
    """What one digit's pass over rows of keys reads and writes.

    Attributes:
        here, order: keys (elements in the first pass) and their indices, None where they are their
            own.
        out, out_order: where both go; None for what nobody wants.
        first, last: whether elements become keys, and keys elements again.
    """

    here: Any
    order: Any
    out: Any
    out_order: Any
    first: bool
    last: bool


def passes_of(x: Any, values: Any, indices: Any, keys: Keys, digits: int) -> Iterator[Pass]:
    """The passes that sort x (rows, n) into `values` and its permutation into `indices`, either of
    which may be None: back and forth between two spare arrays.
    """
    passes = -(-keys.bits // digits)
    wide = np.uint64 if keys.bits == 64 else np.uint32
    spare = [memory.empty(x.shape, wide) for _ in range(min(passes - 1, 2))]
    spare_order = [memory.empty(x.shape, np.int32) if indices is not None else None for _ in spare]
    here, order = x, None
    for p in range(passes):
        last = p == passes - 1
        out, out_order = (values, indices) if last else (spare[p % 2], spare_order[p % 2])
        yield Pass(here, order, out, out_order, p == 0, last)
        here, order = out, out_order


@cb.kernel
def count_digits(
    x: cb.Array,
    counts: cb.Array,
    shift,
    piece,
    keys: cb.Comptime,
    digits: cb.Comptime[int],
    first: cb.Comptime[bool],
):
    """counts[row, digit, p] = how often the p-th piece of a row has the digit; a cube of one unit
    does a piece.
    """
    pieces = counts.shape[2]
    row = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    seen = cb.shared(1 << digits, cb.i32)
    for d in range(counts.shape[1]):
        seen[d] = 0
    for i in range(p * piece, cb.min((p + 1) * piece, x.shape[1])):
        d = digit_of(key_at(x, row, i, keys, first), shift, digits)
        seen[d] = seen[d] + 1
    for d in range(counts.shape[1]):
        counts[row, d, p] = seen[d]


@cb.kernel
def move_keys(
    source,
    positions: cb.Array,
    found,
    shift,
    piece,
    keys: cb.Comptime,
    digits: cb.Comptime[int],
    first: cb.Comptime[bool],
    last: cb.Comptime[bool],
):
    """out[row, position] = key (an element again in the last pass), with its index; a cube of one
    unit does a piece. source: x, and indices or None; found: the same of the results.
    """
    x, indices = source
    out, out_indices = found
    pieces = positions.shape[2]
    row = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    position = cb.shared(1 << digits, cb.i32)
    for d in range(positions.shape[1]):
        position[d] = positions[row, d, p]
    for i in range(p * piece, cb.min((p + 1) * piece, x.shape[1])):
        key = key_at(x, row, i, keys, first)
        d = digit_of(key, shift, digits)
        to = position[d]
        position[d] = to + 1
        if out is not None:
            out[row, to] = cb.cast(from_key(key, keys), out.dtype) if last else key
        if out_indices is not None:
            if first:
                out_indices[row, to] = cb.cast(i, out_indices.dtype)
            else:
                out_indices[row, to] = cb.cast(indices[row, i], out_indices.dtype)


@cb.func
def clear_counts(counts, bins):
    """No digit was seen yet. (The number of digits is no constant here, since LLVM is slow at long
    constant loops.)
    """
    for p in range(counts.shape[0]):
        for d in range(bins):
            counts[p, d] = 0


@cb.func
def count_key(counts, key, passes: cb.Comptime[int], digits: cb.Comptime[int]):
    """See all digits of a key."""
    for p in cb.unroll(range(passes)):
        d = digit_of(key, p * digits, digits)
        counts[p, d] = counts[p, d] + 1


@cb.func
def sort_counted(
    a,
    order,
    counts,
    n,
    bins,
    passes: cb.Comptime[int],
    digits: cb.Comptime[int],
    indexed: cb.Comptime[bool],
):
    """Sort a[0, :n], whose digits are counted, back and forth between a[0] and a[1]; gives where it
    ends up.

    A digit that all keys have in common costs no pass.
    """
    side = 0
    for p in range(passes):
        if counts[p, digit_of(a[0, 0], p * digits, digits)] < n:
            total = 0
            for d in range(bins):
                here = counts[p, d]
                counts[p, d] = total
                total = total + here
            for i in range(n):
                key = a[side, i]
                d = digit_of(key, p * digits, digits)
                to = counts[p, d]
                counts[p, d] = to + 1
                a[1 - side, to] = key
                if indexed:
                    order[1 - side, to] = order[side, i]
            side = 1 - side
    return side


@cb.kernel
def sort_rows(
    x: cb.Array,
    out,
    out_indices,
    bins,
    keys: cb.Comptime,
    digits: cb.Comptime[int],
    room: cb.Comptime[int],
    indexed: cb.Comptime[bool],
):
    """Sort rows of at most `room` elements, each by one unit, all passes within the cache."""
    wide = cb.u64 if keys.bits == 64 else cb.u32
    passes = (keys.bits + digits - 1) // digits
    row, n = cb.CUBE_POS, x.shape[1]
    a = cb.shared((2, room), wide)
    order = cb.shared((2, room if indexed else 1), cb.i32)
    counts = cb.shared((passes, 1 << digits), cb.i32)
    clear_counts(counts, bins)
    for i in range(n):
        key = to_key(x[row, i], keys)
        a[0, i] = key
        if indexed:
            order[0, i] = i
        count_key(counts, key, passes, digits)
    side = sort_counted(a, order, counts, n, bins, passes, digits, indexed)
    if out is not None:
        for i in range(n):
            out[row, i] = cb.cast(from_key(a[side, i], keys), out.dtype)
    if out_indices is not None:
        for i in range(n):
            out_indices[row, i] = cb.cast(order[side, i], out_indices.dtype)


@cb.func
def transpose_block(a, k, lanes: cb.Comptime[int]):
    """The square of lines from k on, transposed where it is."""
    rows = ()
    for r in cb.unroll(range(lanes)):
        rows = rows + (a[k + r],)
    rows = transpose_lines(rows, lanes)
    for r in cb.unroll(range(lanes)):
        a[k + r] = rows[r]


@cb.kernel
def sort_short_rows(
    x: cb.Array,
    out: cb.Array,
    count,
    keys: cb.Comptime,
    room: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """Rows of at most `room` elements, `lanes` rows at once, one in each lane: Batcher's odd-even
    merges (1968).

    `count` is `room` as a number that the compiler does not know, so that the network stays a loop.
    """
    wide = cb.u64 if keys.bits == 64 else cb.u32
    n = x.shape[1]
    first = cb.CUBE_POS * lanes
    a = cb.local(room, wide, lanes=lanes)
    for k in range(0, count, lanes):
        for r in range(lanes):
            line = to_key(x.load((first + r, k), lanes), keys)
            a[k + r] = cb.keep_first(line, n - k, wide(keys.ones))
        transpose_block(a, k, lanes)
    p = 1
    block = 1  # the binary logarithm of 2 p
    while p < count:
        k = p
        while k >= 1:
            for j in range(k & (p - 1), count - k, 2 * k):
                for i in range(j, j + cb.min(k, count - k - j)):
                    if i >> block == (i + k) >> block:
                        low = a[i]
                        high = a[i + k]
                        swap = high < low
                        a[i] = cb.select(swap, high, low)
                        a[i + k] = cb.select(swap, low, high)
            k = k // 2
        p = p * 2
        block = block + 1
    for k in range(0, count, lanes):
        transpose_block(a, k, lanes)
        for r in range(cb.min(lanes, out.shape[0] - first)):
            out.store((first + r, k), cb.cast(from_key(a[k + r], keys), out.dtype), valid=n - k)


@cb.kernel
def top_rows(
    x: cb.Array,
    out: cb.Array,
    out_indices: cb.Array,
    k,
    bins,
    keys: cb.Comptime,
    room: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """The k smallest keys of every row: what beats the k-th best so far is collected, and cut to k
    when room ends.
    """
    wide = cb.u64 if keys.bits == 64 else cb.u32
    passes = (keys.bits + 7) // 8
    row, n = cb.CUBE_POS, x.shape[1]
    a = cb.shared((2, room), wide)
    order = cb.shared((2, room), cb.i32)
    counts = cb.shared((passes, 256), cb.i32)
    limit = wide(0)
    filled = 0
    cut = False
    for first in range(0, n, lanes):
        line = to_key(x.load((row, first), lanes), keys)
        better = line < cb.splat(limit, lanes)
        if not cut or better.any():
            for j in range(first, cb.min(first + lanes, n)):
                key = to_key(x[row, j], keys)
                if not cut or key < limit:
                    a[0, filled] = key
                    order[0, filled] = j
                    filled = filled + 1
        if filled > room - lanes or first + lanes >= n:
            clear_counts(counts, bins)
            for i in range(filled):
                count_key(counts, a[0, i], passes, 8)
            side = sort_counted(a, order, counts, filled, bins, passes, 8, True)
            filled = cb.min(filled, k)
            if side == 1:
                for i in range(filled):
                    a[0, i] = a[1, i]
                    order[0, i] = order[1, i]
            cut = filled == k
            limit = a[0, filled - 1]
    for i in range(k):
        out[row, i] = cb.cast(from_key(a[0, i], keys), out.dtype)
        out_indices[row, i] = cb.cast(order[0, i], out_indices.dtype)


@cb.kernel
def top_few(
    x: cb.Array,
    out: cb.Array,
    out_indices: cb.Array,
    k,
    keys: cb.Comptime,
    room: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """The same for a small k: the best so far are in order all the time, and each new one takes its
    position there.
    """
    wide = cb.u64 if keys.bits == 64 else cb.u32
    row, n = cb.CUBE_POS, x.shape[1]
    best = cb.shared(room, wide)
    order = cb.shared(room, cb.i32)
    limit = wide(0)
    filled = 0
    for first in range(0, n, lanes):
        line = to_key(x.load((row, first), lanes, valid=n - first), keys)
        better = line < cb.splat(limit, lanes)
        if filled < k or better.any():
            for j in range(first, cb.min(first + lanes, n)):
                key = to_key(x[row, j], keys)
                if filled < k or key < limit:
                    at = cb.min(filled, k - 1)
                    while at > 0 and key < best[cb.max(at - 1, 0)]:
                        best[at] = best[at - 1]
                        order[at] = order[at - 1]
                        at = at - 1
                    best[at] = key
                    order[at] = j
                    filled = cb.min(filled + 1, k)
                    limit = best[filled - 1]
    for i in range(k):
        out[row, i] = cb.cast(from_key(best[i], keys), out.dtype)
        out_indices[row, i] = cb.cast(order[i], out_indices.dtype)


class Rows(CpuRoutine):
    """Radix passes within the cache, a row by one unit (stable)."""

    name = "radix_rows"

    def unfit(self, p: Sort, properties: cb.DeviceProperties) -> str | None:
        """Rows of at most ROOM."""
        return None if p.x.shape[1] <= ROOM else f"for rows of at most {ROOM}"

    def launch(self, p: Sort, properties: cb.DeviceProperties) -> None:
        """A cube sorts a row."""
        m, n = p.x.shape
        digits, indexed = 11 if n >= 2048 else 8, p.indices is not None
        sort_rows[m, 1](
            p.source,
            p.target,
            p.indices,
            1 << digits,
            p.keys,
            digits,
            max(16, power_of_two(n)),
            indexed,
            mode="unchecked",
        )


class Pieces(CpuRoutine):
    """Radix passes over pieces of rows (stable)."""

    name = "radix_pieces"

    def launch(self, p: Sort, properties: cb.DeviceProperties) -> None:
        """Digits are counted and keys moved, pass by pass."""
        m, n = p.x.shape
        digits = 11 if p.keys.bits > 16 else 8
        pieces = max(1, min(PIECES, n // 8192)) if m < PIECES else 1
        piece = -(-n // pieces)
        pieces = -(-n // piece)
        counts = memory.empty((m, 1 << digits, pieces), np.int32)
        positions = memory.empty(counts.shape, np.int32)
        for step, (here, order, out, out_order, first, last) in enumerate(
            passes_of(p.source, p.target, p.indices, p.keys, digits)
        ):
            count_digits[m * pieces, 1](
                here, counts, step * digits, piece, p.keys, digits, first, mode="unchecked"
            )
            flat = (m, counts.size // m)
            SCAN.run(Scan(counts.reshape(flat), positions.reshape(flat), f.add, 0, i32, True))
            how, found = (p.keys, digits, first, last), (out, out_order)
            move_keys[m * pieces, 1](
                (here, order), positions, found, step * digits, piece, *how, mode="unchecked"
            )


class Few(CpuRoutine):
    """The best so far are in order all the time."""

    name = "few"

    def unfit(self, p: Top, properties: cb.DeviceProperties) -> str | None:
        """Few of rows that are not long."""
        few = p.k <= FEW and p.x.shape[1] <= FEW_OF
        return None if few else f"for at most {FEW} of at most {FEW_OF}"

    def launch(self, p: Top, properties: cb.DeviceProperties) -> None:
        """A cube searches a row."""
        lanes = max(1, properties.register_bytes // max(4, p.x.itemsize))
        top_few[p.x.shape[0], 1](
            p.source, p.target, p.indices, p.k, p.keys, FEW, lanes, mode="unchecked"
        )


class Collected(CpuRoutine):
    """What beats the worst so far is collected, and cut to k when room ends."""

    name = "collected"

    def launch(self, p: Top, properties: cb.DeviceProperties) -> None:
        """A cube searches a row."""
        lanes = max(1, properties.register_bytes // max(4, p.x.itemsize))
        room = max(128, power_of_two(2 * p.k) + lanes)
        top_rows[p.x.shape[0], 1](
            p.source, p.target, p.indices, p.k, 256, p.keys, room, lanes, mode="checked"
        )
