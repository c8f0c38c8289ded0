"""Largest values and where they are, on a CPU, and gradients by such positions.

With channels last lines lie along the channels. With channels first the largest of each column of a
window comes first, in lines along the width, with its position; then the largest of neighbouring
columns: of equals the first position counts and of several NaN the last, as if the window had been
read row by row. The gradient adds what every window has to the position that it chose: a unit owns
a plane, or a line of channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cubepy as cb
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.pooling.problem import MaxPool, MaxPoolBack
from cubepy.kernels.windows.window import Windows, window
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine

TOGETHER = 4  # planes, where cubes have as many each
ROOM = 4096  # positions of a row of windows, at most
CUBES = 8  # at least, where channels can be shared
BEHIND_ALL = (1 << 31) - 1  # a position behind all others


@cb.func
def reach(first, spread, count, size):
    """From which member of a window on, and up to which, its positions are inside."""
    if first >= 0 and first + (count - 1) * spread < size:  # most are, and divisions take long
        return 0 * count, count
    low = (cb.max(0, -first) + spread - 1) // spread
    return low, cb.max(low, cb.min(count, (size - 1 - first) // spread + 1))


@cb.func
def better_of(value, best):
    """Where a value counts that is read after the best so far."""
    if value.dtype.is_float:
        return (value > best) | (value != value)
    return value > best


@cb.func
def better_at(value, position, best, spot):
    """Where a value counts, of two that may have been read in any order."""
    sooner = (value > best) | ((value == best) & (position < spot))
    if value.dtype.is_float:
        wrong = value != value
        return (wrong & ((best == best) | (position > spot))) | (
            sooner & (best == best) & (value == value)
        )
    return sooner


@cb.struct
class Region:
    """A window that ends at the edges: its corner, and its first taps and those behind its last
    along each axis.
    """

    corner: Any
    low: Any
    high: Any
    dilation: Any


@cb.func
def largest_pixel(
    x,
    out,
    index,
    to,
    c,
    region,
    least: cb.Comptime,
    part: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """A line of channels of one window; with `part` it hangs over the end."""
    n, h, i, j = to
    corner, low, high, dilation = region.corner, region.low, region.high, region.dilation
    many = x.shape[4] - c
    start = (
        (corner[0] + low[0] * dilation[0]) * x.shape[2] + corner[1] + low[1] * dilation[1]
    ) * x.shape[3]
    best = cb.splat(cb.cast(least, x.dtype), lanes)
    spot = cb.splat(cb.cast(start + corner[2] + low[2] * dilation[2], cb.i32), lanes)
    for u in range(low[0], high[0]):
        y = corner[0] + u * dilation[0]
        for v in range(low[1], high[1]):
            z = corner[1] + v * dilation[1]
            row = (y * x.shape[2] + z) * x.shape[3]
            for w in range(low[2], high[2]):
                q = corner[2] + w * dilation[2]
                if part:
                    value = x.load((n, y, z, q, c), lanes, valid=many)
                else:
                    value = x.load((n, y, z, q, c), lanes)
                better = better_of(value, best)
                best = cb.select(better, value, best)
                spot = cb.select(better, cb.splat(cb.cast(row + q, cb.i32), lanes), spot)
    if part:
        out.store((n, h, i, j, c), best, valid=many)
        if index is not None:
            index.store((n, h, i, j, c), cb.cast(spot, cb.i64), valid=many)
    else:
        out.store((n, h, i, j, c), best)
        if index is not None:
            index.store((n, h, i, j, c), cb.cast(spot, cb.i64))


@cb.kernel
def largest_pixels(
    x: cb.Array,
    out: cb.Array,
    index,
    kernel,
    stride,
    pad,
    dilation,
    least: cb.Comptime,
    parts: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """x, out, index of (batch, depth, height, width, channels); a cube does a row of windows."""
    i = cb.CUBE_POS % out.shape[2]
    h = cb.CUBE_POS // out.shape[2] % out.shape[1]
    n = cb.CUBE_POS // out.shape[2] // out.shape[1]
    a0, ka = window(h, x.shape[1], out.shape[1], kernel[0], stride[0], pad[0], parts)
    b0, kb = window(i, x.shape[2], out.shape[2], kernel[1], stride[1], pad[1], parts)
    u0, u1 = reach(a0, dilation[0], ka, x.shape[1])
    v0, v1 = reach(b0, dilation[1], kb, x.shape[2])
    whole = x.shape[4] // lanes * lanes
    wide = x.shape[4] // (4 * lanes) * (4 * lanes)
    for j in range(out.shape[3]):
        c0, kc = window(j, x.shape[3], out.shape[3], kernel[2], stride[2], pad[2], parts)
        w0, w1 = reach(c0, dilation[2], kc, x.shape[3])
        region = Region((a0, b0, c0), (u0, v0, w0), (u1, v1, w1), dilation)
        to = (n, h, i, j)
        for c in range(0, wide, 4 * lanes):
            largest_pixel(x, out, index, to, c, region, least, False, 4 * lanes)
        for c in range(wide, whole, lanes):
            largest_pixel(x, out, index, to, c, region, least, False, lanes)
        if whole < x.shape[4]:
            largest_pixel(x, out, index, to, whole, region, least, True, lanes)


@cb.kernel
def largest_planes(
    x: cb.Array,
    out: cb.Array,
    index,
    windows: Windows,
    columns,
    least: cb.Comptime,
    parts: cb.Comptime[bool],
    step: cb.Comptime[int],
    room: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """x, out, index of (planes, depth, height, width); a cube does a row of windows.

    With `step`, the stride along the width, lines are of neighbouring windows; with 0 windows are
    done one by one. columns: how many rows have whose positions are counted, and the first one's
    number here.
    """
    pitch, base = columns
    i = cb.CUBE_POS % out.shape[2]
    h = cb.CUBE_POS // out.shape[2] % out.shape[1]
    p = cb.CUBE_POS // out.shape[2] // out.shape[1]
    width = x.shape[3]
    kernel, stride, pad, dilation = windows.kernel, windows.stride, windows.pad, windows.dilation
    values, positions = cb.shared(room, x.dtype), cb.shared(room, cb.i32)
    a0, ka = window(h, x.shape[1], out.shape[1], kernel[0], stride[0], pad[0], parts)
    b0, kb = window(i, x.shape[2], out.shape[2], kernel[1], stride[1], pad[1], parts)
    u0, u1 = reach(a0, dilation[0], ka, x.shape[1])
    v0, v1 = reach(b0, dilation[1], kb, x.shape[2])
    corner = (a0 + u0 * dilation[0]) * x.shape[2] + b0 + v0 * dilation[1]
    first = cb.cast(corner * pitch + base, cb.i32)
    counting = cb.cast(0, cb.i32)
    ahead = 0 if parts else pad[2]
    whole = width // lanes * lanes
    for q in range(ahead):
        values[q] = cb.cast(least, x.dtype)
        positions[q] = cb.cast(BEHIND_ALL, cb.i32)
    if not parts:
        for q in range(
            ahead + width, cb.min(room, ahead + width + kernel[2] * dilation[2] + lanes * stride[2])
        ):
            values[q] = cb.cast(least, x.dtype)
            positions[q] = cb.cast(BEHIND_ALL, cb.i32)
    column = cb.splat(counting, lanes)
    for k in cb.unroll(range(1, lanes)):
        kth = cb.splat(cb.cast(k, cb.i32), lanes)
        column = cb.shuffle(column, kth, tuple(range(k)) + tuple(range(lanes + k, 2 * lanes)))
    for q in range(0, whole, lanes):
        best = cb.splat(cb.cast(least, x.dtype), lanes)
        spot = column + (first + cb.cast(q, cb.i32))
        for u in range(u0, u1):
            y = a0 + u * dilation[0]
            for v in range(v0, v1):
                z = b0 + v * dilation[1]
                value = x.load((p, y, z, q), lanes)
                better = better_of(value, best)
                best = cb.select(better, value, best)
                spot = cb.select(
                    better, column + cb.cast((y * x.shape[2] + z) * pitch + base + q, cb.i32), spot
                )
        values.store(ahead + q, best)
        positions.store(ahead + q, spot)
    for q in range(whole, width):
        one = cb.splat(cb.cast(least, x.dtype), 1)
        at = cb.splat(first + cb.cast(q, cb.i32), 1)
        for u in range(u0, u1):
            y = a0 + u * dilation[0]
            for v in range(v0, v1):
                z = b0 + v * dilation[1]
                element = x.load((p, y, z, q), 1)
                wins = better_of(element, one)
                one = cb.select(wins, element, one)
                number = cb.cast((y * x.shape[2] + z) * pitch + base + q, cb.i32)
                at = cb.select(wins, cb.splat(number, 1), at)
        values.store(ahead + q, one)
        positions.store(ahead + q, at)
    if step > 0:
        for j in range(0, out.shape[3], lanes):
            best, spot = (
                spaced(values, j * step, step, lanes),
                spaced(positions, j * step, step, lanes),
            )
            for w in range(1, kernel[2]):
                value = spaced(values, j * step + w * dilation[2], step, lanes)
                position = spaced(positions, j * step + w * dilation[2], step, lanes)
                better = better_at(value, position, best, spot)
                best = cb.select(better, value, best)
                spot = cb.select(better, position, spot)
            many = out.shape[3] - j
            if many >= lanes:
                out.store((p, h, i, j), best)
                if index is not None:
                    index.store((p, h, i, j), cb.cast(spot, cb.i64))
            else:
                out.store((p, h, i, j), best, valid=many)
                if index is not None:
                    index.store((p, h, i, j), cb.cast(spot, cb.i64), valid=many)
    else:
        for j in range(out.shape[3]):
            c0, kc = window(j, width, out.shape[3], kernel[2], stride[2], pad[2], parts)
            one, at = values.load(ahead + c0, 1), positions.load(ahead + c0, 1)
            for w in range(1, kc):
                element = values.load(ahead + c0 + w * dilation[2], 1)
                spot_of = positions.load(ahead + c0 + w * dilation[2], 1)
                wins = better_at(element, spot_of, one, at)
                one = cb.select(wins, element, one)
                at = cb.select(wins, spot_of, at)
            out.store((p, h, i, j), one)
            if index is not None:
                index.store((p, h, i, j), cb.cast(at, cb.i64))


@cb.func
def spaced(a, first, step: cb.Comptime[int], lanes: cb.Comptime[int]):
    """Every step-th position."""
    line = a.load(first, lanes * step)
    if step > 1:
        return cb.shuffle(line, line, tuple(range(0, lanes * step, step)))
    return line


@cb.func
def fill_zeros(a, first, count, lanes: cb.Comptime[int]):
    """Zeros in a flat array."""
    whole = count // lanes * lanes
    for k in range(first, first + whole, lanes):
        a.store(k, cb.cast(cb.splat(0.0, lanes), a.dtype))
    for k in range(first + whole, first + count):
        a[k] = cb.cast(0, a.dtype)


@cb.func
def add_at(grad, index, out, k, first, size, channels):
    """out[first + index[k] * channels] += grad[k], if the index is one of `size`."""
    position = cb.cast(index[k], cb.u64)
    if position < cb.cast(size, cb.u64):
        at = first + cb.cast(position, cb.i64) * channels
        out[at] = out[at] + cb.cast(grad[k], out.dtype)


@cb.kernel
def add_chosen_planes(
    grad: cb.Array,
    index: cb.Array,
    out: cb.Array,
    size,
    count,
    together: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """out[b, index[b, k]] += grad[b, k] in flat arrays of (batch, size) and (batch, count).

    A cube does some planes side by side: neighbours often chose one position, and a sum there waits
        for the one before.
    """
    first = cb.CUBE_POS * together
    last = cb.min(first + together, out.size // size)
    fill_zeros(out, first * size, (last - first) * size, lanes)
    if first + together == last:
        for k in range(count):
            for j in cb.unroll(range(together)):
                add_at(grad, index, out, (first + j) * count + k, (first + j) * size, size, 1)
    else:
        for b in range(first, last):
            for k in range(count):
                add_at(grad, index, out, b * count + k, b * size, size, 1)


@cb.kernel
def add_chosen(
    grad: cb.Array,
    index: cb.Array,
    out: cb.Array,
    size,
    count,
    channels,
    width,
    lanes: cb.Comptime[int],
):
    """out[b, index[b, k, c], c] += grad[b, k, c] in flat arrays of (batch, size) and (batch, count,
    channels).

    A cube owns `width` of the channels of a batch. What an index outside has is dropped.
    """
    blocks = (channels + width - 1) // width
    b = cb.CUBE_POS // blocks
    first = cb.CUBE_POS % blocks * width
    many = cb.min(width, channels - first)
    for k in range(size):
        fill_zeros(out, (b * size + k) * channels + first, many, lanes)
    for k in range(b * count, (b + 1) * count):
        for c in range(first, first + many):
            add_at(grad, index, out, k * channels + c, b * size * channels + c, size, channels)


class Indices(CpuRoutine):
    """Rows of windows with their positions, along the width in lines."""

    name = "indices"

    def unfit(self, p: MaxPool, properties: cb.DeviceProperties) -> str | None:
        """Images whose positions are numbers of 32 bits, and whose rows there is room for."""
        if p.x[0, ..., 0].size > BEHIND_ALL:
            return "images are too large"
        if p.x.shape[4] > 1:
            return None
        lanes = max(1, properties.register_bytes // max(4, p.x.itemsize))
        if row_fits(p, lanes) or (not p.parts and windows_at_once(p, lanes) >= lanes):
            return None
        return "there is no room for a row"

    def launch(self, p: MaxPool, properties: cb.DeviceProperties) -> None:
        """A cube does a row of windows."""
        lanes = max(1, properties.register_bytes // max(4, p.x.itemsize))
        rows = p.out.shape[0] * p.out.shape[1] * p.out.shape[2]
        arrays, rest = (p.x, p.out, p.index), (p.least, p.parts)
        if p.x.shape[4] > 1:
            largest_pixels[rows, 1](*arrays, *p.settings, *rest, lanes, mode="unchecked")
            return
        stride = p.settings[1][2]
        step = stride if not p.parts and lanes * stride <= 64 else 0
        planes = [None if a is None else a.reshape(a.shape[:4]) for a in arrays]
        for (x, out, index), settings, base in parts_of(p, planes, lanes):
            largest_planes[rows, 1](
                x,
                out,
                index,
                Windows(*settings),
                (p.x.shape[3], base),
                *rest,
                step,
                ROOM,
                lanes,
                mode="unchecked",
            )


def row_fits(p: MaxPool, lanes: int) -> bool:
    """Whether there is room for a whole row."""
    kernel, stride, pad, dilation = (part[2] for part in p.settings)
    reached = (p.out.shape[3] + lanes) * stride + kernel * dilation
    return max(p.x.shape[3] + 2 * pad + kernel * dilation + lanes * stride, reached) <= ROOM


def windows_at_once(p: MaxPool, lanes: int) -> int:
    """The windows of a row that there is room for, in whole lines."""
    kernel, stride, pad, dilation = (part[2] for part in p.settings)
    room = ROOM - 2 * pad - 2 * kernel * dilation - 2 * lanes * stride
    return max(0, room // stride // lanes * lanes)


def parts_of(p: MaxPool, planes: list[Any], lanes: int) -> Iterator[tuple[list[Any], Any, int]]:
    """Rows of windows in parts that there is room for: arrays of (planes, depth, height, width),
    settings, and the column where the part begins.
    """
    if row_fits(p, lanes):
        yield planes, p.settings, 0
        return
    kernel, stride, pad, dilation = (part[2] for part in p.settings)
    count = windows_at_once(p, lanes)
    for first in range(0, p.out.shape[3], count):
        behind = min(first + count, p.out.shape[3])
        low, high = first * stride - pad, (behind - 1) * stride - pad + (kernel - 1) * dilation + 1
        begin = min(max(low, 0), p.x.shape[3])
        inside = slice(begin, max(begin, min(high, p.x.shape[3])))
        cut = [
            planes[0][..., inside],
            *(a if a is None else a[..., first:behind] for a in planes[1:]),
        ]
        settings = [list(part) for part in p.settings]
        settings[2][2] = begin - low
        yield cut, tuple(map(tuple, settings)), begin


class AddChosen(CpuRoutine):
    """Gradients added where indices say, image by image."""

    name = "add_chosen"

    def launch(self, p: MaxPoolBack, properties: cb.DeviceProperties) -> None:
        """Indices outside of the input are dropped."""
        grad, index, out = p.grad, p.index, p.out
        total = memory.empty(out.shape, "f4") if out.itemsize == 2 else out
        channels, lanes = (out.shape[4], max(1, properties.register_bytes // total.itemsize))
        sizes = [a[0, ..., 0].size for a in (out, grad)]
        flat = [a.reshape(-1) for a in (grad, index, total)]
        if channels == 1:
            together = max(1, min(TOGETHER, out.shape[0] // CUBES))
            add_chosen_planes[-(-out.shape[0] // together), 1](
                *flat, *sizes, together, lanes, mode="unchecked"
            )
        else:
            blocks = min(
                -(-channels // lanes), -(-CUBES // out.shape[0])
            )  # neighbours are read together
            width = -(-channels // (blocks * lanes)) * lanes
            cubes = out.shape[0] * -(-channels // width)
            add_chosen[cubes, 1](*flat, *sizes, channels, width, lanes, mode="unchecked")
        if total is not out:
            convert_into(out, total)
