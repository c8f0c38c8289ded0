"""The CPU's convolution of groups with few filters (depthwise too) with channels first: lines lie
along rows of pixels.

A cube copies the input rows that it needs into memory of its own, with zeros for the padding. The
columns of a stride lie apart there, so that every tap reads neighbours. A tile makes `rows` rows of
one line for `block` filters: a line of input is loaded once and meets all rows and filters that see
it, and taps are numbers that are the same for all lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.movement.transpose import transpose
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.runtime import memory

HALF = 16  # filters of a group that are made faster here, if pixels are neighbours in memory
FLAT = 4  # channels of an image, whose pixels are the longer neighbourhood
ROOM = 6144  # elements of a cube's copy of the input that leave half of a first-level cache free
LARGEST = 40960  # what it may have at most
WRITTEN_OUT = 128  # products of a tile with a column of the window, which are written out
WIDEST = 64  # lanes of a line
SHARE = 2  # of the registers one for so many holds a sum of a tile: rows times filters


@dataclass(frozen=True)
class Rows:
    """What changes the code.

    Attributes:
        rows, block, lanes: a tile is `rows` rows of `lanes` pixels for `block` filters.
        window, stride, dilation: along depth, height and width.
        room: elements of the copy of the input.
        activation: a func of the result, or None.
    """

    rows: int
    block: int
    lanes: int
    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    room: int
    activation: Any


@cb.func
def clear(patch, begin, stop, lanes):
    """Zeros by whole lines, which may hang over into what is written next."""
    zero = cb.cast(cb.splat(0.0, lanes), cb.f32)
    for k in range(begin, stop, lanes):
        patch.store(k, zero)


@cb.func
def fill_columns(patch, to, x, row, begin, reach, skip: cb.Comptime[int], lanes: cb.Comptime[int]):
    """Every `skip`-th column of a row (n, c, d, h) of x from `begin` on, then zeros up to pixel
    `reach`; they hang over.
    """
    n, c, d, h = row
    width = x.shape[4]
    count = (width - begin + skip - 1) // skip
    whole = 0
    if lanes * skip <= WIDEST:
        whole = cb.max(0, (width - begin) // (lanes * skip)) * lanes
        for k in range(0, whole, lanes):
            wide = cb.cast(x.load((n, c, d, h, begin + k * skip), lanes * skip), cb.f32)
            patch.store(to + k, cb.shuffle(wide, wide, tuple(range(0, lanes * skip, skip))))
        if whole < count:
            left = width - begin - whole * skip
            wide = cb.cast(
                x.load((n, c, d, h, begin + whole * skip), lanes * skip, valid=left), cb.f32
            )
            patch.store(to + whole, cb.shuffle(wide, wide, tuple(range(0, lanes * skip, skip))))
            whole = whole + lanes
    else:
        for k in range(count):
            patch[to + k] = cb.cast(x[n, c, d, h, begin + k * skip], cb.f32)
        whole = cb.max(0, count)
    clear(patch, to + whole, to + reach, lanes)


@cb.func
def fill_phase(patch, to, x, row, phase, pad_w, head, length, plan):
    """The columns of a padded row that stand at one phase of the stride."""
    skip = plan.stride[2]
    begin = (phase - pad_w) % skip
    start = head + (begin + pad_w) // skip
    clear(patch, to, to + start, plan.lanes)
    fill_columns(patch, to + start, x, row, begin, length - start, skip, plan.lanes)


@cb.func
def fill_patch(patch, x, at, channels, first, pad_w, rows_in, head, length, plan):
    """patch[c, t, i, phase, p]: padded column p * stride + phase stands at pixel head + p of its
    phase. `at`: the image and the first of the channels.
    """
    skip = plan.stride[2]
    n, channel = at
    d0, h0 = first
    to = 0
    for c in range(channels):
        for t in range(plan.window[0]):
            d = d0 + t * plan.dilation[0]
            for i in range(rows_in):
                h = h0 + i
                if d >= 0 and d < x.shape[2] and h >= 0 and h < x.shape[3]:
                    row = (n, channel + c, d, h)
                    if skip * plan.lanes <= WIDEST:  # each phase is a shuffle of its own
                        for phase in cb.unroll(range(skip)):
                            fill_phase(patch, to, x, row, phase, pad_w, head, length, plan)
                            to = to + length
                    else:
                        for phase in range(skip):
                            fill_phase(patch, to, x, row, phase, pad_w, head, length, plan)
                            to = to + length
                else:
                    clear(patch, to, to + skip * length, plan.lanes)
                    to = to + skip * length


def seen_by(
    i: int, rows: int, stride: int, block: int, window: int, dilation: int
) -> tuple[tuple[int, int], ...]:
    """The sums of a tile that see input row i, each with its tap."""
    reach = range(0, (window - 1) * dilation + 1, dilation)
    seen = [(r, reach.index(i - r * stride)) for r in range(rows) if i - r * stride in reach]
    return tuple((b * rows + r, b * window + u) for b in range(block) for r, u in seen)


@cb.func
def tile_of(patch, at, rows_in, length, taps, f, epilogue, to, stop, plan):
    """`rows` rows of one line of pixels for `block` filters of a group from f on; the last one may
    be done again.

    `at`: where the line's pixels begin in the patch, of `rows_in` rows of such a length; `to`: the
    image, group, depth, row and pixel. Columns of the window are a loop, its rows are written out,
    so that a line is loaded once for all rows that see it.
    """
    n, group, d, row, pixel = to
    rows, block, lanes = plan.rows, plan.block, plan.lanes
    kd, kh, kw = plan.window
    dh, dw, sh, sw = plan.dilation[1], plan.dilation[2], plan.stride[1], plan.stride[2]
    last = taps.shape[1] - 1
    acc = cb.local(block * rows, cb.f32, lanes=lanes)
    for k in cb.unroll(range(block * rows)):
        acc[k] = cb.splat(0.0, lanes)
    for c in range(taps.shape[2]):
        for t in range(kd):
            for v in range(kw):
                scales = ()
                for b in cb.unroll(range(block)):
                    for u in cb.unroll(range(kh)):
                        scale = cb.cast(
                            taps[group, cb.min(f + b, last), c, (t * kh + u) * kw + v], cb.f32
                        )
                        scales = scales + (cb.splat(scale, lanes),)
                column = (
                    at + (c * kd + t) * rows_in * sw * length + v * dw % sw * length + v * dw // sw
                )
                for i in cb.unroll(range((rows - 1) * sh + (kh - 1) * dh + 1)):
                    line = patch.load(column + i * sw * length, lanes)
                    for r, k in cb.unroll(seen_by(i, rows, sh, block, kh, dh)):
                        acc[r] = cb.fma(line, scales[k], acc[r])
    done = cb.local(block * rows, cb.f32, lanes=lanes)
    for k in cb.unroll(range(block * rows)):
        done[k] = acc[k]
    for b in range(block):
        c = group * (last + 1) + cb.min(f + b, last)
        for r in range(cb.min(rows, stop - row)):
            epilogue.finish(
                done[b * rows + r], (n, c, d, row + r, pixel), epilogue.out.shape[4] - pixel
            )


@cb.kernel
def convolve_rows(
    x: cb.Array,
    taps: cb.Array,
    bias,
    out: cb.Array,
    band_rows,
    pad,
    head,
    length,
    plan: cb.Comptime,
):
    """out[n, f, d, h, w] = activation(sum over channels of the group and window of x * taps +
    bias[f]).

    x (N, C, D, H, W) and out are contiguous; taps (group, filter, channel, tap). A cube makes
    `band_rows` rows for all filters of a group.
    """
    bands, groups = (out.shape[3] + band_rows - 1) // band_rows, taps.shape[0]
    pos = cb.CUBE_POS
    top = pos % bands * band_rows
    pos = pos // bands
    d = pos % out.shape[2]
    pos = pos // out.shape[2]
    group = pos % groups
    n = pos // groups
    rows, lanes = plan.rows, plan.lanes
    sd, sh, sw = plan.stride
    filters, channels = taps.shape[1], taps.shape[2]
    rows_in = (
        ((band_rows + rows - 1) // rows * rows - 1) * sh
        + (plan.window[1] - 1) * plan.dilation[1]
        + 1
    )
    patch = cb.shared(plan.room, cb.f32)
    first = (d * sd - pad[0], top * sh - pad[1])
    fill_patch(
        patch, x, (n, group * channels), channels, first, pad[2], rows_in, head, length, plan
    )
    epilogue = LineEpilogue(out, plan.activation, bias, axis=1)
    stop = cb.min(top + band_rows, out.shape[3])
    for f in range(0, filters, plan.block):
        for row in range(top, stop, rows):
            at = (row - top) * sh * sw * length + head
            for pixel in range(0, out.shape[4], lanes):
                to = (n, group, d, row, pixel)
                tile_of(patch, at + pixel, rows_in, length, taps, f, epilogue, to, stop, plan)


def tile_for(
    height: int, filters: int, column: int, properties: cb.DeviceProperties
) -> tuple[int, int]:
    """Rows and filters of a tile: what makes the fewest products and loads, of the tiles that
    registers hold.
    """
    most = properties.vector_registers // SHARE

    def cost(tile: tuple[int, int]) -> float:
        rows, block = tile
        tiles = -(-height // rows) * -(-filters // block)
        return tiles * (rows * block * column / 2 + rows + column + block * column / 2 + 7)

    tiles = [
        (rows, block)
        for block in (1, 2, 3, 4)
        for rows in range(1, 9)
        if rows * block <= most and block <= filters and rows * block * column <= WRITTEN_OUT
    ]
    return min(tiles, key=cost)


@lru_cache(maxsize=1024)
def plan_for(
    problem: Problem,
    channels: int,
    filters: int,
    function: Any,
    properties: cb.DeviceProperties,
    tile: tuple[int, int] | None = None,
) -> tuple[Rows, int, int, int] | None:
    """Blueprint, rows of a cube, where padded columns begin, and the length of a row in a phase;
    None: too large.

    `tile`: rows and filters of a tile, if they are not to be chosen.
    """
    lanes = properties.register_bytes // 4
    if problem.window[1] > WRITTEN_OUT // 4:
        return None
    rows, block = tile or tile_for(problem.out[1], filters, problem.window[1], properties)
    skip, (_, kh, kw), (_, dh, dw) = problem.stride[2], problem.window, problem.dilation
    head, length = 0, -(-problem.out[2] // lanes) * lanes + (kw - 1) * dw // skip
    if (
        problem.out[2] > 2 * lanes
    ):  # long rows are copied by lines that lie at the beginnings of cache lines
        head = -(problem.pad[2] // skip) % lanes
        length = -(-(head + length) // lanes) * lanes

    def room_for(band_rows: int) -> int:
        made = -(-band_rows // rows) * rows
        rows_in = (made - 1) * problem.stride[1] + (kh - 1) * dh + 1
        return channels * problem.window[0] * rows_in * skip * length + 2 * lanes

    band_rows = rows
    while band_rows < problem.out[1] and room_for(band_rows + rows) <= ROOM:
        band_rows += rows
    bands = -(-problem.out[1] // band_rows)
    band_rows = min(problem.out[1], -(-problem.out[1] // (bands * rows)) * rows)
    if room_for(band_rows) > LARGEST:
        return None
    room = ROOM
    while room < room_for(band_rows):
        room += 4096
    plan = Rows(
        rows, block, lanes, problem.window, problem.stride, problem.dilation, room, function
    )
    return plan, band_rows, head, length


def by_rows(
    view: Any,
    taps: Any,
    bias: Any,
    out: Any,
    problem: Problem,
    channels_last: bool,
    function: Any,
    properties: cb.DeviceProperties,
    tile: tuple[int, int] | None = None,
) -> None:
    """Launch the kernel for groups with few filters; `plan_for` says whether there is a plan.

    view is (N, *size, C) in any layout, out (N, pixels, filters) or the other way, taps (groups,
    filters of a group, channels of a group, window).
    """
    groups, filters, channels, _ = taps.shape
    n = out.shape[0]
    found = plan_for(problem, channels, filters, function, properties, tile)
    assert found is not None
    x = view.transpose(0, view.ndim - 1, *range(1, view.ndim - 1))
    if (
        view.flags.c_contiguous and not x.flags.c_contiguous
    ):  # channels last: turned before, and after
        x = transpose(view.reshape(n, -1, view.shape[-1]), (0, 2, 1))
    x = contiguous(x).reshape(n, groups * channels, *problem.size)
    target = memory.empty((n, groups * filters, out.shape[1]), out.dtype) if channels_last else out
    plan, band_rows, head, length = found
    convolve_rows[n * groups * problem.out[0] * -(-problem.out[1] // band_rows), 1](
        x,
        taps,
        bias,
        target.reshape(n, groups * filters, *problem.out),
        band_rows,
        problem.pad,
        head,
        length,
        plan,
        mode="unchecked",
    )
    if channels_last:
        transpose(target, (0, 2, 1), out=out)
