"""Largest values of windows on a CPU: first down the rows of a band into a buffer that stays in
cache, then across.

A window of a x b positions costs a + b - 2 comparisons, not a * b - 1, and each is of whole lines:
along the flattened columns and channels with channels last, along the width with channels first.
Windows that are one position apart share some: four of 5 positions take 9, not 16, and 8 lines are
read, not 20. Meanwhile the rows that come next are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb

ROOM = 24 * 1024  # bytes of the buffer: half of the smallest first-level cache in use
TAPS = 32  # of the rows of a window, which are written out
STREAM = 8 << 20  # bytes of a result that is stored past the caches
LINE = 64  # bytes of a cache line
CUBES = 32  # at least, so that threads finish together


@dataclass(frozen=True)
class Bands:
    """What changes the code.

    Attributes:
        kernel, spread: positions of a window along the axes, and how far they are from each other;
            in the buffer, along the width.
        rows, wide: how many neighbouring rows are done at a time, and how many positions of a row.
        fresh: rows of a window that those above have not.
        step, skip: from window to window along the width, and between the columns that are looked
            at.
        least: what is larger than nothing.
        acc: the dtype of the buffer.
        room: its elements.
        lanes: of a line.
        single: whether there is one channel.
        streaming: whether results are stored past the caches.
    """

    kernel: tuple[int, ...]
    spread: tuple[int, ...]
    rows: int
    wide: int
    fresh: int
    step: int
    skip: int
    least: Any
    acc: Any
    room: int
    lanes: int
    single: bool
    streaming: bool


@cb.struct
class Rows:
    """Rows of some layers of a plane, of which `taps` neighbours are a window's."""

    x: Any
    p: Any
    layers: Any
    rows: Any
    taps: cb.Comptime[int]


@cb.struct
class Results:
    """`many` results of a row from position `first` on; `ahead` is where what is read next begins,
    or None.
    """

    x: Any
    ahead: Any
    out: Any
    at: Any
    first: Any
    many: Any
    channels: Any

    def ask(self, position):
        """Ask for a position of what is read next, while results are made."""
        ahead = self.ahead
        if ahead is not None:
            self.x.prefetch((self.at[0], ahead[0], ahead[1], ahead[2] + position))

    def put(self, position, line, streaming: cb.Comptime[bool]):
        """A line of the result."""
        p, i, j = self.at
        if streaming:
            self.out.store_stream((p, i, j, position), cb.cast(line, self.out.dtype))
        else:
            self.out.store((p, i, j, position), cb.cast(line, self.out.dtype))

    def put_part(self, position, line, valid):
        """The first lanes of a line of the result."""
        p, i, j = self.at
        self.out.store((p, i, j, position), cb.cast(line, self.out.dtype), valid=valid)


@cb.func
def larger(a, b, exact: cb.Comptime[bool]):
    """The larger; with `exact`, NaN if either is NaN, else a NaN in a may be lost: one instruction
    instead of four.
    """
    if exact and a.dtype.is_float:
        return cb.nan_max(a, b)
    return cb.select(a > b, a, b)


@cb.func
def note(seen, line):
    """`seen`, with NaN where the line has NaN (or an infinity, which costs time only)."""
    if line.dtype.is_float:
        for k in cb.unroll(range(0, line.lanes, seen.lanes)):
            seen = cb.fma(
                cb.slice_line(line, k, seen.lanes),
                cb.splat(cb.cast(0, line.dtype), seen.lanes),
                seen,
            )
    return seen


@cb.func
def lowest(dtype: cb.Comptime, least: cb.Comptime, lanes: cb.Comptime[int]):
    """What is larger than nothing, in every lane."""
    return cb.splat(cb.cast(least, dtype), lanes)


@cb.func
def inside(first, spread: cb.Comptime[int], k: cb.Comptime[int], size):
    """The positions first + u * spread of a window, those outside moved to the nearest of its
    positions inside: a position that counts twice changes no maximum.
    """
    low = first + (cb.max(0, -first) + spread - 1) // spread * spread
    high = first + cb.min(k - 1, (size - 1 - first) // spread) * spread
    positions = ()
    for u in cb.unroll(range(k)):
        positions = positions + (cb.min(cb.max(first + u * spread, low), high),)
    return positions


@cb.func
def shared(a, taps: cb.Comptime[int], exact: cb.Comptime[bool]):
    """For neighbouring windows of `taps` of the lines a, the largest of each: what windows share is
    compared once.
    """
    group = len(a) - taps + 1
    core = a[group - 1]
    for t in cb.unroll(range(group, taps)):
        core = larger(core, a[t], exact)
    found = (core,)
    for i in cb.unroll(range(group - 2, -1, -1)):
        found = (larger(a[i], found[0], exact),) + found
    best, right = found[:1], a[len(a) - 1]
    for i in cb.unroll(range(1, group)):
        right = a[taps] if i == 1 else larger(right, a[taps + i - 1], exact)
        best = best + (larger(found[i], right, exact),)
    return best


@cb.func
def down(of, z, seen, fresh: cb.Comptime[int], lanes: cb.Comptime[int]):
    """The largest of columns z to z + lanes over the layers and the rows of each window, and what
    was `seen` of NaN.

    With `fresh` = 0 the maximum is exact, NaN included; else only the last `fresh` rows are looked
    at for NaN.
    """
    x, p, layers, rows = of.x, of.p, of.layers, of.rows
    lines = ()
    for r in cb.unroll(range(len(rows))):
        line = cb.cast(x.load((p, layers[0], rows[r], z), lanes), seen.dtype)
        if r >= len(rows) - fresh:
            seen = note(seen, line)
        for u in cb.unroll(range(1, len(layers))):
            more = cb.cast(x.load((p, layers[u], rows[r], z), lanes), seen.dtype)
            if r >= len(rows) - fresh:
                seen = note(seen, more)
            line = larger(line, more, fresh == 0)
        lines = lines + (line,)
    best = shared(lines, of.taps, fresh == 0)
    if fresh == 0:
        for line in cb.unroll(best):
            seen = note(seen, line)
    return best, seen


@cb.func
def keep(buffer, to, best):
    """A line into each row of the buffer."""
    for i in cb.unroll(range(len(best))):
        buffer.store((i, to), best[i])


@cb.func
def down_run(rows, z, count, buffer, to, seen, fresh: cb.Comptime[int], lanes: cb.Comptime[int]):
    """`down` of `count` neighbours from column z on, into the buffer from `to` on; what was seen of
    NaN.
    """
    if count >= lanes:
        for k in range(0, count - lanes, lanes):
            best, seen = down(rows, z + k, seen, fresh, lanes)
            keep(buffer, to + k, best)
        last = count - lanes  # overlaps the line before
        best, seen = down(rows, z + last, seen, fresh, lanes)
        keep(buffer, to + last, best)
    else:
        for k in range(count):
            one, mark = down(rows, z + k, cb.slice_line(seen, 0, 1), fresh, 1)
            keep(buffer, to + k, one)
            seen = seen + cb.splat(mark[0], lanes)
    return seen


@cb.func
def picked(lines, positions: cb.Comptime[tuple]):
    """Some lanes of every line."""
    found = ()
    for line in cb.unroll(lines):
        found = found + (cb.shuffle(line, line, positions),)
    return found


@cb.func
def down_every(
    rows,
    z,
    count,
    buffer,
    to,
    seen,
    skip: cb.Comptime[int],
    fresh: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """`down` of every `skip`-th column from z on. Lines are read whole and never past the last
    column that counts.
    """
    if count > lanes:
        for k in range(0, count - lanes, lanes):
            wide, seen = down(rows, z + k * skip, seen, fresh, lanes * skip)
            keep(buffer, to + k, picked(wide, tuple(range(0, lanes * skip, skip))))
        last = count - lanes
        wide, seen = down(rows, z + last * skip - (skip - 1), seen, fresh, lanes * skip)
        keep(buffer, to + last, picked(wide, tuple(range(skip - 1, lanes * skip, skip))))
    else:
        for k in range(count):
            one, mark = down(rows, z + k * skip, cb.slice_line(seen, 0, 1), fresh, 1)
            keep(buffer, to + k, one)
            seen = seen + cb.splat(mark[0], lanes)
    return seen


@cb.func
def down_all(rows, z, count, channels, buffer, to, fresh: cb.Comptime[int], plan):
    """The rows of the buffer from position `to` on; whether a NaN was seen."""
    skip, lanes = plan.skip, plan.lanes
    seen = cb.splat(cb.cast(0, buffer.dtype), lanes)
    if skip == 1:
        begin = to * channels
        seen = down_run(rows, z * channels, count * channels, buffer, begin, seen, fresh, lanes)
    elif plan.single:
        seen = down_every(rows, z, count, buffer, to, seen, skip, fresh, lanes)
    else:
        for q in range(count):
            at, begin = (z + q * skip) * channels, (to + q) * channels
            seen = down_run(rows, at, channels, buffer, begin, seen, fresh, lanes)
    return (seen != seen).any()


@cb.func
def across(
    buffer,
    r,
    e,
    spacing,
    taps: cb.Comptime[int],
    step: cb.Comptime[int],
    exact: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """The largest of `taps` positions of a row, `spacing` from each other, for `lanes` positions
    `step` apart from e.
    """
    best = buffer.load((r, e), lanes * step)
    for v in cb.unroll(range(1, taps)):
        best = larger(best, buffer.load((r, e + v * spacing), lanes * step), exact)
    if step > 1:
        return cb.shuffle(best, best, tuple(range(0, lanes * step, step)))
    return best


@cb.func
def across_shared(results, many, buffer, r, exact: cb.Comptime[bool], plan):
    """The first `many` positions of a row of the result, a multiple of `plan.wide`, where lines are
    of channels.
    """
    channels, group, lanes, taps = results.channels, plan.wide, plan.lanes, plan.kernel[2]
    for m in range(0, many, group):
        for c in range(0, channels, lanes):
            for k in cb.unroll(range(group)):
                results.ask((m + k) * channels + c)
            lines = ()
            for v in cb.unroll(range(taps + group - 1)):
                lines = lines + (buffer.load((r, (m + v) * channels + c), lanes),)
            best = shared(lines, taps, exact)
            for k in cb.unroll(range(group)):
                at = (results.first + m + k) * channels + c
                results.put(at, best[k], plan.streaming)


@cb.func
def across_all(results, buffer, r, exact: cb.Comptime[bool], plan):
    """One row of the result from row r of the buffer."""
    first, many, channels = results.first, results.many, results.channels
    taps, step, lanes = plan.kernel[2], plan.step, plan.lanes
    spacing = plan.spread[2] * channels
    if step == 1 or plan.single:
        total = many * channels
        begin = 0
        if plan.wide > 1:
            part = many // plan.wide * plan.wide
            begin = part * channels
            across_shared(results, part, buffer, r, exact, plan)
        whole = total // lanes * lanes
        for e in range(begin, whole, lanes):
            results.ask(e)
            best = across(buffer, r, e * step, spacing, taps, step, exact, lanes)
            results.put(first * channels + e, best, plan.streaming)
        if whole < total:
            best = across(buffer, r, whole * step, spacing, taps, step, exact, lanes)
            results.put_part(first * channels + whole, best, total - whole)
    else:
        for m in range(many):
            for c in range(0, channels, lanes):
                best = across(buffer, r, m * step * channels + c, spacing, taps, 1, exact, lanes)
                at = (first + m) * channels + c
                if plan.streaming:
                    results.put(at, best, True)
                else:
                    results.put_part(at, best, channels - c)


@cb.kernel
def max_bands(
    x: cb.Array, out: cb.Array, channels, stride, pad, columns, band_rows, plan: cb.Comptime[Bands]
):
    """out[p, i, j, l * channels + c] for x of (planes, depth, height, width * channels).

    A cube does `band_rows` rows by `columns` positions. Position q of its buffer is column (first *
    step + q) * skip - pad[2], where `skip` divides stride and dilation: the columns between are
    never looked at. `stride`: along depth and height.
    """
    kernel, spread, step, skip = plan.kernel, plan.spread, plan.step, plan.skip
    acc, least, room, lanes = plan.acc, plan.least, plan.room, plan.lanes
    blocks = (out.shape[3] // channels + columns - 1) // columns
    bands = (out.shape[2] + band_rows - 1) // band_rows
    t = cb.CUBE_POS
    first = t % blocks * columns
    top = t // blocks % bands * band_rows
    i = t // blocks // bands % out.shape[1]
    p = t // blocks // bands // out.shape[1]
    width = x.shape[3] // channels
    many = cb.min(columns, out.shape[3] // channels - first)
    positions = (many - 1) * step + (kernel[2] - 1) * spread[2] + 1
    begin = cb.min(cb.max(0, (pad[2] + skip - 1) // skip - first * step), positions)
    end = cb.max(begin, cb.min(positions, (width - 1 + pad[2]) // skip + 1 - first * step))
    buffer = cb.local((plan.rows, room), acc)
    for r in range(plan.rows):
        for e in range(begin * channels):
            buffer.store((r, e), lowest(acc, least, 1))
        for e in range(end * channels, cb.min(positions * channels + lanes * step, room)):
            buffer.store((r, e), lowest(acc, least, 1))
    layers = inside(i * stride[0] - pad[0], spread[0], kernel[0], x.shape[1])
    z = (first * step + begin) * skip - pad[2]
    taps = kernel[1]
    # the first rows are exact, so that all rows of their windows have been looked at
    dirty: cb.bool_ = True
    for j in range(top, cb.min(top + band_rows, out.shape[2]), plan.rows):
        rows = Rows(
            x,
            p,
            layers,
            inside(j * stride[1] - pad[1], spread[1], taps + plan.rows - 1, x.shape[2]),
            taps,
        )
        if not dirty:
            dirty = down_all(rows, z, end - begin, channels, buffer, begin, plan.fresh, plan)
        exact = dirty
        if dirty:
            dirty = down_all(rows, z, end - begin, channels, buffer, begin, 0, plan)
        below = (j + plan.rows) * stride[1] - pad[1] + (taps - 1) * spread[1]
        for r in range(cb.min(plan.rows, out.shape[2] - j)):
            ahead = None
            # one new row for each, one new column for each
            if step * skip == 1 and plan.fresh == plan.rows:
                ahead = (layers[0], below + r * spread[1], first * channels - pad[2] * channels)
            results = Results(x, ahead, out, (p, i, j + r), first, many, channels)
            if exact:
                across_all(results, buffer, r, True, plan)
            else:
                across_all(results, buffer, r, False, plan)
