"""Largest values of windows on a CPU: first down the rows of a strip into a buffer that stays in cache, then across.

A window of a x b places costs a + b - 2 comparisons, not a * b - 1, and each is of whole lines: along the flattened
columns and channels with channels last, along the width with channels first.
"""

from __future__ import annotations

import math
from typing import Any

import cubepy as cb
from cubepy.kernels.cube_wide import address

ROOM = 24 * 1024  # bytes of the buffer: half of the smallest first-level cache in use
TAPS = 32  # of the rows of a window, which are written out
STREAM = 8 << 20  # bytes of a result that is stored past the caches
LINE = 64  # bytes of a cache line
CUBES = 32  # at least, so that threads finish together


@cb.func
def larger(a, b, exact: cb.Comptime[bool]):
    """The larger; with `exact`, NaN if either is NaN, else a NaN in a may be lost: one instruction instead of four."""
    if exact and a.dtype.is_float:
        return cb.nan_max(a, b)
    return cb.select(a > b, a, b)


@cb.func
def note(seen, line):
    """`seen`, with NaN where the line has NaN (or an infinity, which costs time only)."""
    if line.dtype.is_float:
        for k in cb.unroll(range(0, line.lanes, seen.lanes)):
            seen = cb.fma(cb.slice_line(line, k, seen.lanes), cb.splat(cb.cast(0, line.dtype), seen.lanes), seen)
    return seen


@cb.func
def lowest(dtype: cb.Comptime, least: cb.Comptime, lanes: cb.Comptime[int]):
    """What is larger than nothing, in every lane."""
    return cb.splat(cb.cast(least, dtype), lanes)


@cb.func
def inside(first, spread: cb.Comptime[int], k: cb.Comptime[int], size):
    """The places first + u * spread of a window, those outside moved to the nearest of its places inside: a place that
    counts twice changes no maximum."""
    low = first + (cb.max(0, -first) + spread - 1) // spread * spread
    high = first + cb.min(k - 1, (size - 1 - first) // spread) * spread
    places = ()
    for u in cb.unroll(range(k)):
        places = places + (cb.min(cb.max(first + u * spread, low), high),)
    return places


@cb.func
def down(x, p, layers, rows, z, seen, fresh: cb.Comptime[int], lanes: cb.Comptime[int]):
    """The largest of x[p, layer, row, z : z + lanes] over layers and rows, and what was `seen` of NaN.

    With `fresh` = 0 the maximum is exact, NaN included; else only the last `fresh` rows are looked at for NaN.
    """
    best = cb.cast(x.load((p, layers[0], rows[0], z), lanes), seen.dtype)
    if fresh == len(rows):
        seen = note(seen, best)
    for t in cb.unroll(range(1, len(layers) * len(rows))):
        line = cb.cast(x.load((p, layers[t // len(rows)], rows[t % len(rows)], z), lanes), seen.dtype)
        if t % len(rows) >= len(rows) - fresh:
            seen = note(seen, line)
        best = larger(best, line, fresh == 0)
    if fresh == 0:
        seen = note(seen, best)
    return best, seen


@cb.func
def down_run(x, p, layers, rows, z, count, buffer, to, seen, fresh: cb.Comptime[int], lanes: cb.Comptime[int]):
    """`down` of `count` neighbours from column z on, into the buffer from `to` on; what was seen of NaN."""
    if count >= lanes:
        for k in range(0, count - lanes, lanes):
            best, seen = down(x, p, layers, rows, z + k, seen, fresh, lanes)
            buffer.store(to + k, best)
        last = count - lanes  # overlaps the line before
        best, seen = down(x, p, layers, rows, z + last, seen, fresh, lanes)
        buffer.store(to + last, best)
    else:
        for k in range(count):
            one, mark = down(x, p, layers, rows, z + k, cb.slice_line(seen, 0, 1), fresh, 1)
            buffer.store(to + k, one)
            seen = seen + cb.splat(mark[0], lanes)
    return seen


@cb.func
def down_every(
    x, p, layers, rows, z, count, buffer, to, seen, skip: cb.Comptime[int], fresh: cb.Comptime[int],
    lanes: cb.Comptime[int],
):  # fmt: skip
    """`down` of every `skip`-th column from z on. Lines are read whole and never past the last column that counts."""
    if count > lanes:
        for k in range(0, count - lanes, lanes):
            wide, seen = down(x, p, layers, rows, z + k * skip, seen, fresh, lanes * skip)
            buffer.store(to + k, cb.shuffle(wide, wide, tuple(range(0, lanes * skip, skip))))
        last = count - lanes
        wide, seen = down(x, p, layers, rows, z + last * skip - (skip - 1), seen, fresh, lanes * skip)
        buffer.store(to + last, cb.shuffle(wide, wide, tuple(range(skip - 1, lanes * skip, skip))))
    else:
        for k in range(count):
            one, mark = down(x, p, layers, rows, z + k * skip, cb.slice_line(seen, 0, 1), fresh, 1)
            buffer.store(to + k, one)
            seen = seen + cb.splat(mark[0], lanes)
    return seen


@cb.func
def down_all(
    x, p, layers, rows, z, count, channels, buffer, to, skip: cb.Comptime[int], fresh: cb.Comptime[int],
    lanes: cb.Comptime[int], single: cb.Comptime[bool],
):  # fmt: skip
    """One row of the buffer from place `to` on; whether a NaN was seen."""
    seen = cb.splat(cb.cast(0, buffer.dtype), lanes)
    if skip == 1:
        seen = down_run(x, p, layers, rows, z * channels, count * channels, buffer, to * channels, seen, fresh, lanes)
    elif single:
        seen = down_every(x, p, layers, rows, z, count, buffer, to, seen, skip, fresh, lanes)
    else:
        for q in range(count):
            at = (z + q * skip) * channels
            seen = down_run(x, p, layers, rows, at, channels, buffer, (to + q) * channels, seen, fresh, lanes)
    return (seen != seen).any()


@cb.func
def across(
    buffer, e, apart, taps: cb.Comptime[int], step: cb.Comptime[int], exact: cb.Comptime[bool], lanes: cb.Comptime[int]
):
    """The largest of `taps` places of the buffer, `apart` from each other, for `lanes` places `step` apart from e."""
    best = buffer.load(e, lanes * step)
    for v in cb.unroll(range(1, taps)):
        best = larger(best, buffer.load(e + v * apart, lanes * step), exact)
    if step > 1:
        return cb.shuffle(best, best, tuple(range(0, lanes * step, step)))
    return best


@cb.func
def across_all(
    buffer, out, p, i, j, first, many, channels, apart, taps: cb.Comptime[int], step: cb.Comptime[int],
    exact: cb.Comptime[bool], lanes: cb.Comptime[int], single: cb.Comptime[bool], past: cb.Comptime[bool],
):  # fmt: skip
    """One row of the result from the buffer."""
    if step == 1 or single:
        total = many * channels
        whole = total // lanes * lanes
        for e in range(0, whole, lanes):
            best = cb.cast(across(buffer, e * step, apart, taps, step, exact, lanes), out.dtype)
            if past:
                out.store_stream((p, i, j, first * channels + e), best)
            else:
                out.store((p, i, j, first * channels + e), best)
        if whole < total:
            best = cb.cast(across(buffer, whole * step, apart, taps, step, exact, lanes), out.dtype)
            out.store((p, i, j, first * channels + whole), best, valid=total - whole)
    else:
        for m in range(many):
            for c in range(0, channels, lanes):
                best = cb.cast(across(buffer, m * step * channels + c, apart, taps, 1, exact, lanes), out.dtype)
                at = (first + m) * channels + c
                if past:
                    out.store_stream((p, i, j, at), best)
                else:
                    out.store((p, i, j, at), best, valid=channels - c)


@cb.kernel
def max_strips(
    x: cb.Array, out: cb.Array, channels, stride_d, stride_h, pad_d, pad_h, pad_w, columns, strip,
    kernel: cb.Comptime[tuple], spread: cb.Comptime[tuple], fresh: cb.Comptime[int], step: cb.Comptime[int],
    skip: cb.Comptime[int], least: cb.Comptime, acc: cb.Comptime, room: cb.Comptime[int], lanes: cb.Comptime[int],
    single: cb.Comptime[bool], past: cb.Comptime[bool],
):  # fmt: skip
    """out[p, i, j, l * channels + c] for x of (planes, depth, height, width * channels).

    A cube does `strip` rows by `columns` places. Place q of its buffer is column (first * step + q) * skip - pad_w,
    where `skip` divides stride and dilation: the columns between are never looked at.
    """
    blocks = (out.shape[3] // channels + columns - 1) // columns
    strips = (out.shape[2] + strip - 1) // strip
    t = cb.CUBE_POS
    first = t % blocks * columns
    top = t // blocks % strips * strip
    i = t // blocks // strips % out.shape[1]
    p = t // blocks // strips // out.shape[1]
    width = x.shape[3] // channels
    many = cb.min(columns, out.shape[3] // channels - first)
    places = (many - 1) * step + (kernel[2] - 1) * spread[2] + 1
    begin = cb.min(cb.max(0, (pad_w + skip - 1) // skip - first * step), places)
    end = cb.max(begin, cb.min(places, (width - 1 + pad_w) // skip + 1 - first * step))
    buffer = cb.local((room,), acc)
    for e in range(begin * channels):
        buffer.store(e, lowest(acc, least, 1))
    for e in range(end * channels, cb.min(places * channels + lanes * step, room)):
        buffer.store(e, lowest(acc, least, 1))
    layers = inside(i * stride_d - pad_d, spread[0], kernel[0], x.shape[1])
    z = (first * step + begin) * skip - pad_w
    apart = spread[2] * channels
    dirty = True  # the first row is exact, so that all rows of its windows have been looked at
    for j in range(top, cb.min(top + strip, out.shape[2])):
        rows = inside(j * stride_h - pad_h, spread[1], kernel[1], x.shape[2])
        if not dirty:
            dirty = down_all(x, p, layers, rows, z, end - begin, channels, buffer, begin, skip, fresh, lanes, single)
        if dirty:
            dirty = down_all(x, p, layers, rows, z, end - begin, channels, buffer, begin, skip, 0, lanes, single)
            across_all(
                buffer, out, p, i, j, first, many, channels, apart, kernel[2], step, True, lanes, single, past
            )  # fmt: skip
        else:
            across_all(
                buffer, out, p, i, j, first, many, channels, apart, kernel[2], step, False, lanes, single, past
            )  # fmt: skip


def run(x: Any, out: Any, kernel: Any, stride: Any, pad: Any, dilation: Any, least: Any) -> bool:
    """Largest values of the windows of x (planes, depth, height, width, channels) into `out`, both contiguous.

    Returns whether it was done: windows of many rows, or of more columns and channels than the buffer has room for,
    are left to others.
    """
    acc = cb.f32 if out.itemsize == 2 and out.dtype.kind not in "iu" else cb.as_dtype(out.dtype)
    lanes = max(1, cb.device_properties_of().register_bytes // acc.itemsize)
    planes, channels = x.shape[0], x.shape[4]
    single = channels == 1
    skip = math.gcd(stride[2], dilation[2]) if kernel[2] > 1 else stride[2]
    step, apart = stride[2] // skip, dilation[2] // skip if kernel[2] > 1 else 1
    if kernel[0] * kernel[1] > TAPS or kernel[2] > TAPS or (single and lanes * max(step, skip) > 64):
        return False
    room = ROOM // acc.itemsize
    fit = ((room - lanes * step) // channels - (kernel[2] - 1) * apart - 1) // step + 1
    if fit < min(4, out.shape[3]):
        return False
    columns = min(fit, out.shape[3])
    even = LINE // math.gcd(LINE, channels * out.itemsize)
    if columns < out.shape[3] and columns >= even:
        columns -= columns % even
    blocks = -(-out.shape[3] // columns)
    strip = max(1, min(out.shape[2], 64, out.shape[2] * blocks * out.shape[0] * out.shape[1] // CUBES))
    row = out.shape[3] * channels * out.itemsize
    past = (
        out.nbytes >= STREAM
        and lanes * out.itemsize == LINE
        and not (address(out) % LINE or row % LINE or columns * channels * out.itemsize % LINE)
        and (step == 1 or single or channels % lanes == 0)
    )
    again = stride[1] % dilation[1] == 0 and stride[1] // dilation[1] < kernel[1]
    fresh = stride[1] // dilation[1] if again else kernel[1]  # rows of a window that the window above has not
    cubes = planes * out.shape[1] * -(-out.shape[2] // strip) * blocks
    max_strips[cubes, 1](
        x.reshape(*x.shape[:3], -1), out.reshape(*out.shape[:3], -1), channels, *stride[:2], *pad, columns, strip,
        tuple(kernel), (*dilation[:2], apart), fresh, step, skip, least, acc, room, lanes, single, past,
        mode="unchecked",
    )  # fmt: skip
    return True
