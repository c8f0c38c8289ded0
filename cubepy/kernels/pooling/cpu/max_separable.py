"""Largest values of windows on a CPU: first down the rows of a band into a buffer that stays in
cache, then across.

A window of a x b positions costs a + b - 2 comparisons, not a * b - 1, and each is of whole lines:
along the flattened columns and channels with channels last, along the width with channels first.
Windows that are one position apart share some: four of 5 positions take 9, not 16, and 8 lines are
read, not 20. Meanwhile the rows that come next are asked for.
"""

from __future__ import annotations

import cubepy as cb

ROOM = 24 * 1024  # bytes of the buffer: half of the smallest first-level cache in use
TAPS = 32  # of the rows of a window, which are written out
STREAM = 8 << 20  # bytes of a result that is stored past the caches
LINE = 64  # bytes of a cache line
CUBES = 32  # at least, so that threads finish together


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
def down(
    x,
    p,
    layers,
    rows,
    taps: cb.Comptime[int],
    z,
    seen,
    fresh: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """The largest of x[p, layer, row, z : z + lanes] over layers and each `taps` neighbours of
    `rows`, and what was `seen` of NaN.

    With `fresh` = 0 the maximum is exact, NaN included; else only the last `fresh` rows are looked
    at for NaN.
    """
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
    best = shared(lines, taps, fresh == 0)
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
def down_run(
    x,
    p,
    layers,
    rows,
    taps: cb.Comptime[int],
    z,
    count,
    buffer,
    to,
    seen,
    fresh: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """`down` of `count` neighbours from column z on, into the buffer from `to` on; what was seen of
    NaN.
    """
    if count >= lanes:
        for k in range(0, count - lanes, lanes):
            best, seen = down(x, p, layers, rows, taps, z + k, seen, fresh, lanes)
            keep(buffer, to + k, best)
        last = count - lanes  # overlaps the line before
        best, seen = down(x, p, layers, rows, taps, z + last, seen, fresh, lanes)
        keep(buffer, to + last, best)
    else:
        for k in range(count):
            one, mark = down(x, p, layers, rows, taps, z + k, cb.slice_line(seen, 0, 1), fresh, 1)
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
    x,
    p,
    layers,
    rows,
    taps: cb.Comptime[int],
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
            wide, seen = down(x, p, layers, rows, taps, z + k * skip, seen, fresh, lanes * skip)
            keep(buffer, to + k, picked(wide, tuple(range(0, lanes * skip, skip))))
        last = count - lanes
        wide, seen = down(
            x, p, layers, rows, taps, z + last * skip - (skip - 1), seen, fresh, lanes * skip
        )
        keep(buffer, to + last, picked(wide, tuple(range(skip - 1, lanes * skip, skip))))
    else:
        for k in range(count):
            one, mark = down(
                x, p, layers, rows, taps, z + k * skip, cb.slice_line(seen, 0, 1), fresh, 1
            )
            keep(buffer, to + k, one)
            seen = seen + cb.splat(mark[0], lanes)
    return seen


@cb.func
def down_all(
    x,
    p,
    layers,
    rows,
    taps: cb.Comptime[int],
    z,
    count,
    channels,
    buffer,
    to,
    skip: cb.Comptime[int],
    fresh: cb.Comptime[int],
    lanes: cb.Comptime[int],
    single: cb.Comptime[bool],
):
    """The rows of the buffer from position `to` on; whether a NaN was seen."""
    seen = cb.splat(cb.cast(0, buffer.dtype), lanes)
    if skip == 1:
        begin = to * channels
        seen = down_run(
            x,
            p,
            layers,
            rows,
            taps,
            z * channels,
            count * channels,
            buffer,
            begin,
            seen,
            fresh,
            lanes,
        )
    elif single:
        seen = down_every(x, p, layers, rows, taps, z, count, buffer, to, seen, skip, fresh, lanes)
    else:
        for q in range(count):
            at = (z + q * skip) * channels
            seen = down_run(
                x,
                p,
                layers,
                rows,
                taps,
                at,
                channels,
                buffer,
                (to + q) * channels,
                seen,
                fresh,
                lanes,
            )
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
def put(out, p, i, j, at, line, streaming: cb.Comptime[bool]):
    """A line of the result."""
    if streaming:
        out.store_stream((p, i, j, at), cb.cast(line, out.dtype))
    else:
        out.store((p, i, j, at), cb.cast(line, out.dtype))


@cb.func
def ask(x, p, ahead, at):
    """Ask for a position of what is read next, while results are made; `ahead` is where this
    begins, or None.
    """
    if ahead is not None:
        x.prefetch((p, ahead[0], ahead[1], ahead[2] + at))


@cb.func
def across_shared(
    x, ahead, buffer, r, out, p, i, j, first, many, channels, taps: cb.Comptime[int],
    group: cb.Comptime[int], exact: cb.Comptime[bool], lanes: cb.Comptime[int],
    streaming: cb.Comptime[bool],
):  # fmt: skip
    """The first `many` positions of a row of the result, a multiple of `group`, where lines are of
    channels.
    """
    for m in range(0, many, group):
        for c in range(0, channels, lanes):
            for k in cb.unroll(range(group)):
                ask(x, p, ahead, (m + k) * channels + c)
            lines = ()
            for v in cb.unroll(range(taps + group - 1)):
                lines = lines + (buffer.load((r, (m + v) * channels + c), lanes),)
            best = shared(lines, taps, exact)
            for k in cb.unroll(range(group)):
                put(out, p, i, j, (first + m + k) * channels + c, best[k], streaming)


@cb.func
def across_all(
    x, ahead, buffer, r, out, p, i, j, first, many, channels, spacing, taps: cb.Comptime[int],
    step: cb.Comptime[int], group: cb.Comptime[int], exact: cb.Comptime[bool],
    lanes: cb.Comptime[int], single: cb.Comptime[bool], streaming: cb.Comptime[bool],
):  # fmt: skip
    """One row of the result from row r of the buffer."""
    if step == 1 or single:
        total = many * channels
        begin = 0
        if group > 1:
            part = many // group * group
            begin = part * channels
            across_shared(
                x, ahead, buffer, r, out, p, i, j, first, part, channels, taps, group, exact, lanes,
                streaming
            )  # fmt: skip
        whole = total // lanes * lanes
        for e in range(begin, whole, lanes):
            ask(x, p, ahead, e)
            best = across(buffer, r, e * step, spacing, taps, step, exact, lanes)
            put(out, p, i, j, first * channels + e, best, streaming)
        if whole < total:
            best = cb.cast(
                across(buffer, r, whole * step, spacing, taps, step, exact, lanes), out.dtype
            )
            out.store((p, i, j, first * channels + whole), best, valid=total - whole)
    else:
        for m in range(many):
            for c in range(0, channels, lanes):
                best = across(buffer, r, m * step * channels + c, spacing, taps, 1, exact, lanes)
                at = (first + m) * channels + c
                if streaming:
                    put(out, p, i, j, at, best, True)
                else:
                    out.store((p, i, j, at), cb.cast(best, out.dtype), valid=channels - c)


@cb.kernel
def max_bands(
    x: cb.Array, out: cb.Array, channels, stride_d, stride_h, pad_d, pad_h, pad_w, columns,
    band_rows, kernel: cb.Comptime[tuple], spread: cb.Comptime[tuple], groups: cb.Comptime[tuple],
    fresh: cb.Comptime[int], step: cb.Comptime[int], skip: cb.Comptime[int], least: cb.Comptime,
    acc: cb.Comptime, room: cb.Comptime[int], lanes: cb.Comptime[int], single: cb.Comptime[bool],
    streaming: cb.Comptime[bool],
):  # fmt: skip
    """out[p, i, j, l * channels + c] for x of (planes, depth, height, width * channels).

    A cube does `band_rows` rows by `columns` positions. Position q of its buffer is column (first *
    step + q)
    * skip - pad_w, where `skip` divides stride and dilation: the columns between are never looked
    at. `groups`: how many neighbouring rows are done at a time, and how many positions of a row.
    """
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
    begin = cb.min(cb.max(0, (pad_w + skip - 1) // skip - first * step), positions)
    end = cb.max(begin, cb.min(positions, (width - 1 + pad_w) // skip + 1 - first * step))
    rows_at_once, across_at_once = groups
    buffer = cb.local((rows_at_once, room), acc)
    for r in range(rows_at_once):
        for e in range(begin * channels):
            buffer.store((r, e), lowest(acc, least, 1))
        for e in range(end * channels, cb.min(positions * channels + lanes * step, room)):
            buffer.store((r, e), lowest(acc, least, 1))
    layers = inside(i * stride_d - pad_d, spread[0], kernel[0], x.shape[1])
    z = (first * step + begin) * skip - pad_w
    spacing = spread[2] * channels
    taps = kernel[1]
    dirty = True  # the first rows are exact, so that all rows of their windows have been looked at
    for j in range(top, cb.min(top + band_rows, out.shape[2]), rows_at_once):
        rows = inside(j * stride_h - pad_h, spread[1], taps + rows_at_once - 1, x.shape[2])
        if not dirty:
            dirty = down_all(
                x, p, layers, rows, taps, z, end - begin, channels, buffer, begin, skip, fresh,
                lanes, single
            )  # fmt: skip
        exact = dirty
        if dirty:
            dirty = down_all(
                x,
                p,
                layers,
                rows,
                taps,
                z,
                end - begin,
                channels,
                buffer,
                begin,
                skip,
                0,
                lanes,
                single,
            )
        below = (j + rows_at_once) * stride_h - pad_h + (taps - 1) * spread[1]
        for r in range(cb.min(rows_at_once, out.shape[2] - j)):
            ahead = None
            if (
                step * skip == 1 and fresh == rows_at_once
            ):  # one new row for each, one new column for each
                ahead = (layers[0], below + r * spread[1], first * channels - pad_w * channels)
            if exact:
                across_all(
                    x, ahead, buffer, r, out, p, i, j + r, first, many, channels, spacing,
                    kernel[2], step, across_at_once, True, lanes, single, streaming,
                )  # fmt: skip
            else:
                across_all(
                    x, ahead, buffer, r, out, p, i, j + r, first, many, channels, spacing,
                    kernel[2], step, across_at_once, False, lanes, single, streaming,
                )  # fmt: skip
