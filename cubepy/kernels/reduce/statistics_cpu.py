"""Statistics on a CPU: along rows by pieces that the nearest cache holds, down columns by blocks of
rows that it holds.

What is known of a part are two numbers, `one` and `two`: its mean and the squares about it, its
largest element and the sum of exponentials under it, or a sum alone. Parts are joined as by Chan,
Golub and LeVeque (1979), so a long axis loses no more digits than a short one, and every element is
read from memory once.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.reduce.reduce_cpu import over_line

STREAMS = 4  # lines of a row, or rows of a column, that do not wait for each other
ROWS = 32  # of a block of columns
LINES = 8  # of its rows


@cb.func
def itself(v, shift):
    """v"""
    return v


@cb.func
def squared(v, shift):
    """(v - shift)^2"""
    return (v - shift) * (v - shift)


@cb.func
def magnitude(v, shift):
    """|v|"""
    return cb.abs(v)


@cb.func
def cubed(v, shift):
    """|v|^3"""
    return cb.abs(v) * v * v


@cb.func
def power(v, shift):
    """|v|^shift"""
    return cb.pow(cb.abs(v), shift)


@cb.func
def exponential(v, shift):
    """e^(v - shift)"""
    return cb.exp(v - shift)


@cb.func
def lowest_finite(top):
    """The maximum as something to subtract: infinite ones would give NaN."""
    return cb.select(cb.isinf(top), cb.cast(0, top.dtype), top)


@cb.func
def along_part(
    x,
    row,
    first,
    stop,
    value,
    step,
    start: cb.Comptime,
    acc: cb.Comptime,
    lanes: cb.Comptime[int],
    shift,
):
    """`step` over value(x[row, k], shift) for the k of [first, stop), as a number."""
    none = cb.splat(cb.cast(start, acc), lanes)
    by = cb.splat(shift, lanes)
    a = cb.local(STREAMS, acc, lanes=lanes)
    for j in cb.unroll(range(STREAMS)):
        a[j] = none
    whole = first + (stop - first) // (STREAMS * lanes) * (STREAMS * lanes)
    for k in range(first, whole, STREAMS * lanes):
        for j in cb.unroll(range(STREAMS)):
            a[j] = step(a[j], value(cb.cast(x.load((row, k + j * lanes), lanes), acc), by))
    for k in range(whole, stop, lanes):
        v = value(cb.cast(x.load((row, k), lanes, valid=stop - k), acc), by)
        a[0] = step(a[0], cb.keep_first(v, stop - k, cb.cast(start, acc)))
    return over_line(step(step(a[0], a[1]), step(a[2], a[3])), step, lanes)


@cb.func
def finished(kind: cb.Comptime[str], one, two, n, number):
    """The statistic of n elements of which `one` and `two` are known, lane by lane."""
    if kind == "var" or kind == "std":
        value = two / cb.max(n - number, n - n)
        if kind == "std":
            value = cb.sqrt(value)
    elif kind == "logsumexp":
        value = cb.log(two) + lowest_finite(one)
    elif kind == "norm2":
        value = cb.sqrt(one)
    elif kind == "norm1" or kind == "largest":
        value = one
    else:
        value = cb.pow(one, 1 / number)
    return value


@cb.func
def joined(kind: cb.Comptime[str], one, two, seen, other, more, count):
    """What is known of two parts together, of `seen` and of `count` elements."""
    if kind == "var" or kind == "std":
        apart = other - one
        share = count / (seen + count)
        two = two + more + apart * apart * (seen * share)
        one = one + apart * share
    elif kind == "logsumexp":
        top = f.larger(one, other)
        shift = lowest_finite(top)
        two = two * cb.exp(one - shift) + more * cb.exp(other - shift)
        one = top
    elif kind == "largest":
        one = f.larger(one, other)
    else:
        one = one + other
    return one, two


@cb.func
def of_part(
    x, row, first, stop, kind: cb.Comptime[str], number, acc: cb.Comptime, lanes: cb.Comptime[int]
):
    """What is known of x[row, first : stop]."""
    zero = cb.cast(0, acc)
    two = zero
    if kind == "var" or kind == "std":
        one = along_part(x, row, first, stop, itself, f.add, 0, acc, lanes, zero) / cb.cast(
            stop - first, acc
        )
        two = along_part(x, row, first, stop, squared, f.add, 0, acc, lanes, one)
    elif kind == "logsumexp":
        one = along_part(x, row, first, stop, itself, f.larger, -float("inf"), acc, lanes, zero)
        two = along_part(x, row, first, stop, exponential, f.add, 0, acc, lanes, lowest_finite(one))
    elif kind == "norm1":
        one = along_part(x, row, first, stop, magnitude, f.add, 0, acc, lanes, zero)
    elif kind == "norm2":
        one = along_part(x, row, first, stop, squared, f.add, 0, acc, lanes, zero)
    elif kind == "norm3":
        one = along_part(x, row, first, stop, cubed, f.add, 0, acc, lanes, zero)
    elif kind == "largest":
        one = along_part(x, row, first, stop, magnitude, f.larger, 0, acc, lanes, zero)
    else:
        one = along_part(x, row, first, stop, power, f.add, 0, acc, lanes, number)
    return one, two


@cb.kernel
def statistic_of_rows(
    x: cb.Array, out: cb.Array, kind: cb.Comptime[str], number, acc: cb.Comptime, lanes: cb.Comptime[int],
    piece: cb.Comptime[int], single: cb.Comptime[bool],
):  # fmt: skip
    """out[r, 0] = the statistic of row r if `single`, else out[r, p, :, 0] = what is known of its
    p-th piece.
    """
    n = x.shape[1]
    by = cb.cast(number, acc)
    if single:
        one, two = of_part(x, cb.CUBE_POS, 0, n, kind, by, acc, lanes)
        out[cb.CUBE_POS, 0] = cb.cast(finished(kind, one, two, cb.cast(n, acc), by), out.dtype)
    else:
        row = cb.CUBE_POS // out.shape[1]
        p = cb.CUBE_POS % out.shape[1]
        one, two = of_part(x, row, p * piece, cb.min((p + 1) * piece, n), kind, by, acc, lanes)
        out[row, p, 0, 0] = one
        out[row, p, 1, 0] = two


@cb.func
def down_rows(
    x,
    b,
    begin,
    stop,
    c,
    left,
    value,
    step,
    start: cb.Comptime,
    acc: cb.Comptime,
    lanes: cb.Comptime[int],
    shift,
):
    """`step` over value(x[b, k, c ...], shift) for the k of [begin, stop), lane by lane."""
    a = cb.local(STREAMS, acc, lanes=lanes)
    for j in cb.unroll(range(STREAMS)):
        a[j] = cb.splat(cb.cast(start, acc), lanes)
    whole = begin + (stop - begin) // STREAMS * STREAMS
    for k in range(begin, whole, STREAMS):
        for j in cb.unroll(range(STREAMS)):
            a[j] = step(a[j], value(cb.cast(x.load((b, k + j, c), lanes, valid=left), acc), shift))
    for k in range(whole, stop):
        a[0] = step(a[0], value(cb.cast(x.load((b, k, c), lanes, valid=left), acc), shift))
    return step(step(a[0], a[1]), step(a[2], a[3]))


@cb.func
def of_block(
    x, b, begin, stop, c, left, kind: cb.Comptime[str], number, acc: cb.Comptime, lanes: cb.Comptime[int]
):  # fmt: skip
    """What is known of x[b, begin : stop, c ...], lane by lane."""
    zero = cb.splat(cb.cast(0, acc), lanes)
    two = zero
    if kind == "var" or kind == "std":
        one = down_rows(x, b, begin, stop, c, left, itself, f.add, 0, acc, lanes, zero) / cb.cast(
            stop - begin, acc
        )
        two = down_rows(x, b, begin, stop, c, left, squared, f.add, 0, acc, lanes, one)
    elif kind == "logsumexp":
        one = down_rows(
            x, b, begin, stop, c, left, itself, f.larger, -float("inf"), acc, lanes, zero
        )
        two = down_rows(
            x, b, begin, stop, c, left, exponential, f.add, 0, acc, lanes, lowest_finite(one)
        )
    elif kind == "norm1":
        one = down_rows(x, b, begin, stop, c, left, magnitude, f.add, 0, acc, lanes, zero)
    elif kind == "norm2":
        one = down_rows(x, b, begin, stop, c, left, squared, f.add, 0, acc, lanes, zero)
    elif kind == "norm3":
        one = down_rows(x, b, begin, stop, c, left, cubed, f.add, 0, acc, lanes, zero)
    elif kind == "largest":
        one = down_rows(x, b, begin, stop, c, left, magnitude, f.larger, 0, acc, lanes, zero)
    else:
        one = down_rows(
            x, b, begin, stop, c, left, power, f.add, 0, acc, lanes, cb.splat(number, lanes)
        )
    return one, two


@cb.kernel
def statistic_of_columns(
    x: cb.Array, out: cb.Array, kind: cb.Comptime[str], number, acc: cb.Comptime, lanes: cb.Comptime[int],
    piece, pieces,
):  # fmt: skip
    """out[b, p, :, c] = what is known of the p-th piece of x[b, :, c]; a cube does LINES lines of
    columns.
    """
    n, columns = x.shape[1], x.shape[2]
    width = LINES * lanes
    blocks = (columns + width - 1) // width
    first = cb.CUBE_POS % blocks * width
    p = cb.CUBE_POS // blocks % pieces
    b = cb.CUBE_POS // (blocks * pieces)
    lines = cb.min(LINES, (columns - first + lanes - 1) // lanes)
    one = cb.local(LINES, acc, lanes=lanes)
    two = cb.local(LINES, acc, lanes=lanes)
    stop = cb.min((p + 1) * piece, n)
    by = cb.cast(number, acc)
    for begin in range(p * piece, stop, ROWS):
        end = cb.min(begin + ROWS, stop)
        count, seen = cb.cast(end - begin, acc), cb.cast(begin - p * piece, acc)
        for j in range(lines):
            c = first + j * lanes
            a, t = of_block(x, b, begin, end, c, columns - c, kind, by, acc, lanes)
            if begin > p * piece:
                a, t = joined(kind, one[j], two[j], seen, a, t, count)
            one[j] = a
            two[j] = t
    for j in range(lines):
        c = first + j * lanes
        out.store((b, p, 0, c), one[j], valid=columns - c)
        out.store((b, p, 1, c), two[j], valid=columns - c)


@cb.kernel
def join_pieces(
    parts: cb.Array, out: cb.Array, kind: cb.Comptime[str], number, n, piece, lanes: cb.Comptime[int]
):  # fmt: skip
    """out[b, c] = the statistic of n elements of whose pieces parts[b, :, :, c] tells; a cube does
    `lanes` columns.
    """
    columns = out.shape[1]
    blocks = (columns + lanes - 1) // lanes
    b = cb.CUBE_POS // blocks
    c = cb.CUBE_POS % blocks * lanes
    left = columns - c
    acc = parts.dtype
    one = parts.load((b, 0, 0, c), lanes, valid=left)
    two = parts.load((b, 0, 1, c), lanes, valid=left)
    for p in range(1, parts.shape[1]):
        count, seen = cb.cast(cb.min(piece, n - p * piece), acc), cb.cast(p * piece, acc)
        other = parts.load((b, p, 0, c), lanes, valid=left)
        one, two = joined(
            kind, one, two, seen, other, parts.load((b, p, 1, c), lanes, valid=left), count
        )
    value = finished(kind, one, two, cb.cast(n, acc), cb.cast(number, acc))
    out.store((b, c), cb.cast(value, out.dtype), valid=left)


@cb.kernel
def truth_of_rows(
    x: cb.Array,
    out: cb.Array,
    every: cb.Comptime[bool],
    lanes: cb.Comptime[int],
    piece: cb.Comptime[int],
):
    """out[r, p] = whether some element of the p-th piece of a row is not 0, or with `every` whether
    none is.
    """
    pieces = out.shape[1]
    row = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    k = p * piece
    stop = cb.min(k + piece, x.shape[1])
    found = False
    while k + 4 * lanes <= stop and not found:
        a, b = x.load((row, k), lanes), x.load((row, k + lanes), lanes)
        c, d = x.load((row, k + 2 * lanes), lanes), x.load((row, k + 3 * lanes), lanes)
        if every:
            found = ((a == 0) | (b == 0) | (c == 0) | (d == 0)).any()
        else:
            found = ((a != 0) | (b != 0) | (c != 0) | (d != 0)).any()
        k = k + 4 * lanes
    while k < stop and not found:
        found = x[row, k] == 0 if every else x[row, k] != 0
        k = k + 1
    out[row, p] = cb.cast(cb.select(found, 0, 1) if every else cb.select(found, 1, 0), out.dtype)
