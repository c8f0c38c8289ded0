"""Reductions on a CPU: a cube is one thread's work, and lines of a register's width are taken
several at a time.

NaN among extremes: a maximum by one comparison loses NaN, so the sum of the same lines, or of the
largest so far, is computed on the side, which is NaN when one of them has a NaN (or infinities of
both signs). Then the work is done again with care. Comparisons would say more, but keep few loads
in flight: processors have few registers for masks (Zen 5: 20 % slower from memory). Along rows it
is the largest so far that is added up: the line itself is then an operand in memory of a single
instruction (Zen 3: 12 % faster from memory).
"""

from __future__ import annotations

import cubepy as cb

STREAMS = 8  # lines of a row, or rows of a column, that are taken side by side
NOTES = 4  # sums that are computed on the side


@cb.func
def greater(a, b):
    """The larger by one comparison; b where one is NaN."""
    return cb.select(a > b, a, b)


@cb.func
def lesser(a, b):
    """The smaller by one comparison; b where one is NaN."""
    return cb.select(a < b, a, b)


@cb.func
def joined(v, step):
    """Eight values as one."""
    return step(step(step(v[0], v[1]), step(v[2], v[3])), step(step(v[4], v[5]), step(v[6], v[7])))


@cb.func
def added(a, b):
    """a + b"""
    return a + b


@cb.func
def over_line(line, step, lanes: cb.Comptime[int]):
    """`step` over the lanes of a line, by halves: a quarter of the time of one lane after the
    other.
    """
    for j in cb.unroll(range(6)):
        if (lanes >> j + 1) > 0:
            turned = tuple(range(lanes >> j + 1, lanes)) + tuple(range(lanes >> j + 1))
            line = step(line, cb.shuffle(line, line, turned))
    return line[0]


@cb.func
def along_row(
    x,
    row,
    first,
    stop,
    step,
    start,
    acc,
    lanes: cb.Comptime[int],
    runs: cb.Comptime[int],
    careful: cb.Comptime[bool],
):
    """`step` over x[row, first : stop]; with `careful` NaN where there is one."""
    none = cb.cast(cb.splat(start, lanes), acc)
    zero = cb.cast(cb.splat(0, lanes), acc)
    a = cb.local((STREAMS,), acc, lanes=lanes)
    seen = cb.local((NOTES,), acc, lanes=lanes)
    for j in cb.unroll(range(STREAMS)):
        a[j] = none
    for j in cb.unroll(range(NOTES)):
        seen[j] = zero
    per = STREAMS // runs
    part = (stop - first) // (STREAMS * lanes) * (per * lanes)
    for k in range(first, first + part, per * lanes):
        for j in cb.unroll(range(STREAMS)):
            a[j] = step(
                a[j], cb.cast(x.load((row, k + j // per * part + j % per * lanes), lanes), acc)
            )
            if (
                careful
            ):  # a NaN in the line has just become the largest; the line itself is in no register
                seen[j % NOTES] = seen[j % NOTES] + a[j]
    rest = first + runs * part
    whole = rest + (stop - rest) // lanes * lanes
    for k in range(rest, whole, lanes):
        a[0] = step(a[0], cb.cast(x.load((row, k), lanes), acc))
        if careful:
            seen[0] = seen[0] + a[0]
    total = over_line(joined((a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]), step), step, lanes)
    last = zero[0]
    for k in range(whole, stop):
        value = cb.cast(x[row, k], acc)
        total = step(value, total)
        if careful:
            last = last + value
    if careful:
        sums = (seen[0] + seen[1]) + (seen[2] + seen[3]) + last
        if (sums != sums).any():
            if any_nan(x, row, first, whole, stop, lanes):
                total = cb.cast(float("nan"), acc)
    return total


@cb.kernel
def reduce_rows(
    x: cb.Array, out: cb.Array, step: cb.Comptime, start: cb.Comptime, acc: cb.Comptime, lanes: cb.Comptime[int],
    piece: cb.Comptime[int], runs: cb.Comptime[int], single: cb.Comptime[bool], careful: cb.Comptime[bool], scale,
):  # fmt: skip
    """out[r, p] = scale * reduction of the p-th piece of row r; x is (rows, n), unit stride along
    n.

    A piece is read along `runs` runs at once, into STREAMS lines that do not wait for each other.
    With `single` a row is one piece; with `careful` a NaN makes the result NaN.
    """
    row = cb.CUBE_POS if single else cb.CUBE_POS // out.shape[1]
    p = 0 if single else cb.CUBE_POS % out.shape[1]
    first = p * piece
    stop = cb.min(first + piece, x.shape[1])
    total = along_row(x, row, first, stop, step, start, acc, lanes, runs, careful)
    out[row, p] = cb.cast(total * cb.cast(scale, acc) if out.dtype.is_float else total, out.dtype)


@cb.func
def any_nan(x, row, first, whole, stop, lanes: cb.Comptime[int]):
    """Whether there is a NaN among x[row, first : stop], `whole` of which are in lines."""
    found = False
    k = first
    while k < whole and not found:
        line = x.load((row, k), lanes)
        found = (line != line).any()
        k += lanes
    for i in range(whole, stop):
        found = found or x[row, i] != x[row, i]
    return found


@cb.func
def few_lines(
    x, b, begin, stop, sums, step, none, acc: cb.Comptime, lanes: cb.Comptime[int], careful: cb.Comptime[bool],
    few: cb.Comptime[int],
):  # fmt: skip
    """`step` down rows [begin, stop) of `few` lines, which stay in registers, into the first of
    `sums`.

    What comes back is NaN where, with `careful`, one was seen.
    """
    held = cb.local((few,), acc, lanes=lanes)
    seen = cb.cast(cb.splat(0, lanes), acc)
    other = seen
    for j in cb.unroll(range(few)):
        held[j] = none
    for k in range(begin, stop):
        for j in cb.unroll(range(few)):
            held[j] = step(held[j], cb.cast(x.load((b, k, j * lanes), lanes), acc))
            if careful and j % 2 == 0:
                seen = seen + held[j]
            if careful and j % 2 == 1:
                other = other + held[j]
    for j in cb.unroll(range(few)):
        sums[j] = held[j]
    return seen + other


@cb.func
def down_rows(
    x, b, begin, stop, first, lines, rest, sums, step, start, acc, side, lanes: cb.Comptime[int],
    careful: cb.Comptime[bool], few: cb.Comptime[int],
):  # fmt: skip
    """`step` down rows [begin, stop) into the lines `sums`; whether a NaN was seen, for `careful`.

    With `side` STREAMS rows are read side by side, else one after the other.
    """
    none = cb.cast(cb.splat(start, lanes), acc)
    seen = cb.cast(cb.splat(0, lanes), acc)
    for j in range(lines + (1 if rest > 0 else 0)):
        sums[j] = none
    if few > 0:
        seen = few_lines(x, b, begin, stop, sums, step, none, acc, lanes, careful, few)
        begin = stop
    whole = begin + cb.max(stop - begin, 0) // STREAMS * STREAMS if side else begin
    for k in range(begin, whole, STREAMS):
        for j in range(lines):
            v = ()
            for r in cb.unroll(range(STREAMS)):
                v = v + (cb.cast(x.load((b, k + r, first + j * lanes), lanes), acc),)
            if careful:  # in two steps: a select of what is there already would be stored under a mask (slow)
                high = step(step(v[0], v[1]), step(v[2], v[3]))
                sums[j] = step(step(sums[j], high), step(step(v[4], v[5]), step(v[6], v[7])))
                seen = seen + joined(v, added)
            else:
                sums[j] = step(joined(v, step), sums[j])
    pairs = whole + (stop - whole) // 2 * 2 if careful else whole
    for k in range(whole, pairs, 2):
        for j in range(lines):
            line = cb.cast(x.load((b, k, first + j * lanes), lanes), acc)
            after = cb.cast(x.load((b, k + 1, first + j * lanes), lanes), acc)
            sums[j] = step(step(sums[j], line), after)
            seen = seen + line + after
    for k in range(pairs, stop):
        for j in range(lines):
            line = cb.cast(x.load((b, k, first + j * lanes), lanes), acc)
            if careful:
                sums[j] = step(step(sums[j], line), none)
                seen = seen + line
            else:
                sums[j] = step(line, sums[j])
    if rest > 0:
        for k in range(begin, stop):
            line = cb.cast(x.load((b, k, first + lines * lanes), lanes, valid=rest), acc)
            sums[lines] = step(line, sums[lines])
            if careful:
                seen = seen + line
    return (seen != seen).any()


@cb.kernel
def reduce_columns(
    x: cb.Array, out: cb.Array, step: cb.Comptime, right: cb.Comptime, start: cb.Comptime, acc: cb.Comptime,
    lanes: cb.Comptime[int], room: cb.Comptime[int], width, piece, scale, side, few: cb.Comptime[int],
):  # fmt: skip
    """out[b, p, c] = scale * reduction over the p-th piece of x[b, :, c]; x is (batch, n, columns).

    A cube does `width` columns, at most `room` lines; with `side` STREAMS rows are read side by
    side; the sums stay in the nearest cache, or in registers where all columns are `few` lines (0:
    they are more). Where `right` is another function than `step`, it is what is right for NaN too.
    """
    n, columns = x.shape[1], x.shape[2]
    pieces = out.shape[1]
    blocks = (columns + width - 1) // width
    first = (cb.CUBE_POS % blocks) * width
    p = (cb.CUBE_POS // blocks) % pieces
    b = cb.CUBE_POS // (blocks * pieces)
    count = cb.min(width, columns - first)
    lines = count // lanes
    rest = count - lines * lanes
    sums = cb.local((room,), acc, lanes=lanes)
    begin = p * piece
    stop = cb.min(begin + piece, n)
    if step is right:
        down_rows(
            x, b, begin, stop, first, lines, rest, sums, step, start, acc, side, lanes, False, few
        )
    elif down_rows(
        x, b, begin, stop, first, lines, rest, sums, step, start, acc, side, lanes, True, few
    ):
        down_rows(
            x, b, begin, stop, first, lines, rest, sums, right, start, acc, side, lanes, False, few
        )
    for j in range((count + lanes - 1) // lanes):
        value = sums[j]
        if out.dtype.is_float:
            value = value * cb.cast(scale, acc)
        out.store((b, p, first + j * lanes), cb.cast(value, out.dtype), valid=count - j * lanes)
