"""Largest values of windows that are wide, or of parts that are not equal, for devices with planes.

With channels first a cube makes rows of results: the largest values of each column first, in lines along the width,
which it leaves in shared memory, and then those of neighbouring columns. With channels last a unit makes a line of
channels.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.cube_wide import line_of, multiple
from cubepy.kernels.plane_lines import UNITS, behind, coordinates
from cubepy.kernels.pool_places import window

AHEAD = 4  # places that a unit asks for at once
ROOMS = (2048, 8192)  # numbers in shared memory, of a width of at most the last


@cb.func
def span(i, n, m, k, s, p, parts: cb.Comptime[bool]):
    """The first place of window i of m over n places, and the one behind its last, of those inside."""
    first, many = window(i, n, m, k, s, p, parts)
    return cb.max(first, 0), cb.min(first + many, n)


@cb.func
def largest_of(best, x, start, hop, begin, end, lanes: cb.Comptime[int]):
    """The largest of `best` and of the lines of x at start + k * hop for k from begin to end, not included."""
    for k in range(begin, end, AHEAD):
        for v in cb.unroll(range(AHEAD)):  # what counts twice changes nothing
            here = behind(start, cb.min(k + v, end - 1) * hop)
            best = cb.nan_max(best, cb.cast(x.load((here,), lanes), best.dtype))
    return best


@cb.kernel
def largest_columns(
    x: cb.Array, size, out: cb.Array, made, kernel, stride, pad, rows, least: cb.Comptime, acc: cb.Comptime,
    parts: cb.Comptime[bool], lanes: cb.Comptime[int], room: cb.Comptime[int],
):  # fmt: skip
    """x, out of (planes, depth, height, width), of shapes `size` and `made`; a cube does `rows` rows of windows."""
    columns = cb.shared(room, acc)
    wide = multiple(size[3], lanes)
    lines = wide // lanes
    first = cb.CUBE_POS * rows
    many = cb.min(rows, made[0] * made[1] * made[2] - first)
    for item in range(cb.UNIT_POS, many * lines, cb.CUBE_DIM):
        row, line = coordinates(item, (many, lines))
        p, h, i = coordinates(first + row, (made[0], made[1], made[2]))
        a0, a1 = span(h, size[1], made[1], kernel[0], stride[0], pad[0], parts)
        b0, b1 = span(i, size[2], made[2], kernel[1], stride[1], pad[1], parts)
        best = cb.splat(cb.cast(least, acc), lanes)
        for a in range(a0, a1):
            start = (p * size[1] + a) * size[2] * wide + multiple(line * lanes, lanes)
            best = largest_of(best, x, start, wide, b0, b1, lanes)
        columns.store(row * wide + multiple(line * lanes, lanes), best)
    cb.sync_cube()
    for item in range(cb.UNIT_POS, many * made[3], cb.CUBE_DIM):
        row, j = coordinates(item, (many, made[3]))
        c0, c1 = span(j, size[3], made[3], kernel[2], stride[2], pad[2], parts)
        top = largest_of(cb.splat(cb.cast(least, acc), 1), columns, row * wide, 1, c0, c1, 1)
        out[first * made[3] + item] = cb.cast(top[0], out.dtype)


@cb.kernel
def largest_lines(
    x: cb.Array, size, out: cb.Array, made, kernel, stride, pad, least: cb.Comptime, acc: cb.Comptime,
    parts: cb.Comptime[bool], lanes: cb.Comptime[int],
):  # fmt: skip
    """x, out of (batch, depth, height, width, channels), of shapes `size` and `made`."""
    channels = multiple(size[4], lanes)
    lines = channels // lanes
    t = cb.ABSOLUTE_POS
    if t < made[0] * made[1] * made[2] * made[3] * lines:
        n, h, i, j, line = coordinates(t, (made[0], made[1], made[2], made[3], lines))
        a0, a1 = span(h, size[1], made[1], kernel[0], stride[0], pad[0], parts)
        b0, b1 = span(i, size[2], made[2], kernel[1], stride[1], pad[1], parts)
        c0, c1 = span(j, size[3], made[3], kernel[2], stride[2], pad[2], parts)
        best = cb.splat(cb.cast(least, acc), lanes)
        for a in range(a0, a1):
            for b in range(b0, b1):
                start = ((n * size[1] + a) * size[2] + b) * size[3] * channels + multiple(line * lanes, lanes)
                best = largest_of(best, x, start, channels, c0, c1, lanes)
        out.store((multiple(t * lanes, lanes),), cb.cast(best, out.dtype))


def run(x: Any, out: Any, settings: Any, least: Any, parts: bool, last: bool) -> bool:
    """Largest values of (batch, depth, height, width, channels) in windows without gaps; whether it was done."""
    kernel, stride, pad, dilation = settings
    if max(dilation) > 1:
        return False
    acc = cb.f32 if x.itemsize == 2 and x.dtype.kind not in "iu" else cb.as_dtype(x.dtype)
    how = kernel, stride, pad
    if last:
        lanes = line_of(x, out)
        lanes = 1 if x.shape[4] % lanes else lanes
        cubes = -(-out.size // (lanes * UNITS))
        largest_lines[cubes, UNITS](
            x.reshape(-1), x.shape, out.reshape(-1), out.shape, *how, least, acc, parts, lanes, mode="unchecked"
        )
        return True
    images, results = x[..., 0], out[..., 0]
    room = next((n for n in ROOMS if x.shape[3] <= n), 0)
    if not room:
        return False
    rows = min(room // x.shape[3], out.size // out.shape[3])
    largest_columns[-(-out.size // out.shape[3] // rows), UNITS](
        x.reshape(-1), images.shape, out.reshape(-1), results.shape, *how, rows, least, acc, parts, line_of(images),
        room, mode="unchecked",
    )  # fmt: skip
    return True
