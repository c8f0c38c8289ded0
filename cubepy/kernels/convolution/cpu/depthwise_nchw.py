"""The CPU's depthwise convolution of images with channels first: planes as they lie.

A line of pixels walks down the rows of its plane. A row of input is loaded once for every column of
the window, next to the pixel, and meets the sums of all rows that see it: these stay in registers,
and the oldest is done. Columns beyond the edges become zeros while a line is shifted in registers.
That is known when the kernel is compiled: the first line of a row and the last have code of their
own, and the last one may begin inside the one before it. So no plane is copied, and hardly anything
is masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.cpu.input_tile import begin_of
from cubepy.kernels.convolution.problem import Problem
from cubepy.lang.dtypes import DType

SUMS = 12  # lines of sums beside those of the taps, at most
WRITTEN_OUT = 49  # taps, at most
CUBES = 16  # at least, so that threads finish together
NEAR = 16 * 1024  # bytes of rows that a line after the other walks through

Seen = tuple[int, "tuple[int, ...] | None"]


@dataclass(frozen=True)
class Planes:
    """What changes the code.

    Attributes:
        lanes: of a line.
        window, stride, dilation: along height and width.
        first, middle, last: how the lines of a row see the input, for each column of the window:
            where a load begins, and which of its elements are taken (None: all); for `first` from
            the beginning of the row, for `middle` from the line's own beginning, for `last` from
            the row's end. `first` alone makes rows of one line.
        valid: columns of a row that is shorter than a load, or 0.
        pixels: of a row that is shorter than a line, or 0.
        activation: a func of the result, or None.
        acc: the dtype of sums.
    """

    lanes: int
    window: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    first: tuple[Seen, ...]
    middle: tuple[Seen, ...] | None
    last: tuple[Seen, ...] | None
    valid: int
    pixels: int
    activation: Any
    acc: Any = cb.f32

    @property
    def older(self) -> int:
        """Rows of pixels above the last one that see a row of input."""
        return -(-(self.window[0] - 1) * self.dilation[0] // self.stride[0])

    def met_by(self, i: int, v: int) -> tuple[tuple[int, int], ...]:
        """The sums that see input row i of a step, the oldest first, each with its tap of column v
        of the window.
        """
        (rows, columns), skip, dilation = self.window, self.stride[0], self.dilation[0]
        return tuple(
            (self.older + (i - u * dilation) // skip, u * columns + v)
            for u in range(rows)
            if (i - u * dilation) % skip == 0
        )


@cb.func
def line_of(x, plane, h, origin, base: cb.Comptime[int], taken: cb.Comptime, plan):
    """What a line of pixels sees through one column of the window."""
    lanes = plan.lanes * plan.stride[1]
    if plan.valid:
        wide = cb.cast(x.load((plane, h, origin + base), lanes, valid=plan.valid), plan.acc)
    else:
        wide = cb.cast(x.load((plane, h, origin + base), lanes), plan.acc)
    if taken is None:
        return wide
    return cb.shuffle(wide, cb.cast(cb.splat(0.0, lanes), plan.acc), taken)


@cb.func
def add_line(sums, scales, line, met: cb.Comptime):
    """A line of input, for all rows of pixels that see it."""
    for r, k in cb.unroll(met):
        sums[r] = cb.fma(line, scales[k], sums[r])


@cb.struct
class Band:
    """Rows from `begin` to `end` of a plane. With `over`, what hangs over the end of a row is
    written again afterwards.
    """

    plane: Any
    begin: Any
    end: Any
    over: Any


@cb.func
def walk(x, taps, bias, out, band, pad_h, origin, pixel, seen: cb.Comptime, plan):
    """The rows of a band of a line of pixels."""
    plane, begin, end = band.plane, band.begin, band.end
    lanes, older, skip = plan.lanes, plan.older, plan.stride[0]
    channel = plane % taps.shape[0]
    start = cb.cast(cb.splat(0.0, lanes), plan.acc)
    if bias is not None:
        start = cb.splat(cb.cast(bias[channel], plan.acc), lanes)
    scales = tuple(
        cb.splat(cb.cast(taps[channel, k], plan.acc), lanes)
        for k in cb.unroll(range(plan.window[0] * plan.window[1]))
    )
    sums = cb.local(older + 1, plan.acc, lanes=lanes)
    for r in cb.unroll(range(older + 1)):
        sums[r] = start
    for row in range(begin, end + older):
        for i in cb.unroll(range(skip)):
            h = row * skip + i - pad_h
            if h >= 0 and h < x.shape[1]:
                for v in cb.unroll(range(plan.window[1])):
                    line = line_of(x, plane, h, origin, seen[v][0], seen[v][1], plan)
                    add_line(sums, scales, line, plan.met_by(i, v))
        if row - older >= begin:
            value = sums[0]
            if plan.activation is not None:
                value = plan.activation(value)
            if plan.pixels == 0 or band.over:
                out.store((plane, row - older, pixel), cb.cast(value, out.dtype))
            else:
                out.store((plane, row - older, pixel), cb.cast(value, out.dtype), valid=plan.pixels)
        for r in cb.unroll(range(older)):
            sums[r] = sums[r + 1]
        sums[older] = start


@cb.kernel
def depthwise_planes(
    x: cb.Array, taps: cb.Array, bias, out: cb.Array, cuts, bands, pad_h, pad_w, plan: cb.Comptime
):
    """out[p, h, w] = activation(sum over the window of x[p] * taps[p % channels, tap] + bias[p %
    channels]).

    x and out (planes, height, width) are contiguous. A cube makes one of `cuts` ranges of planes,
    and each plane in `bands` ranges of rows.
    """
    lanes, planes, width = plan.lanes, out.shape[0], out.shape[2]
    begin, end = (
        begin_of(cb.CUBE_POS, planes * bands, cuts),
        begin_of(cb.CUBE_POS + 1, planes * bands, cuts),
    )
    for part in range(begin, end):
        plane = part // bands
        band = part - plane * bands
        top, low = begin_of(band, out.shape[1], bands), begin_of(band + 1, out.shape[1], bands)
        rows = Band(plane, top, low, part + 1 < end)
        walk(x, taps, bias, out, rows, pad_h, 0, 0, plan.first, plan)
        if plan.last is not None:
            if plan.middle is not None:
                for pixel in range(lanes, width - lanes, lanes):
                    origin = pixel * plan.stride[1] - pad_w
                    walk(x, taps, bias, out, rows, pad_h, origin, pixel, plan.middle, plan)
            walk(x, taps, bias, out, rows, pad_h, x.shape[2], width - lanes, plan.last, plan)


def seen_from(start: int, low: int, high: int, wide: int, skip: int, count: int) -> Seen:
    """A load of `wide` elements between columns `low` and `high` that has every `skip`-th column
    from `start` on.

    Of `count` columns; those that are not there are taken from the zeros behind the load.
    """
    base = min(max(start - start % skip, low), max(low, high - wide))
    at = [start + k * skip if k < count else None for k in range(wide // skip)]
    taken = tuple(0 if c is None else c - base if low <= c < high else wide for c in at)
    plain = skip == 1 and all(c is None or taken[k] == k for k, c in enumerate(at))
    return base, None if plain else taken


@lru_cache(maxsize=1024)
def plan_for(
    problem: Problem,
    planes: int,
    function: Any,
    properties: cb.DeviceProperties,
    acc: DType = cb.f32,
) -> tuple[Planes, int, int] | None:
    """Blueprint, cubes, and ranges of rows of a plane; None: another kernel has less to do."""
    lanes = properties.register_bytes // acc.itemsize
    wide, pw, (_, kh, kw) = problem.size[2], problem.pad[2], problem.window
    (_, sh, sw), (_, dh, dw), (_, out_h, out_w) = problem.stride, problem.dilation, problem.out
    flat = problem.window[0] == problem.out[0] == problem.size[0] == 1 and problem.pad[0] == 0
    load, starts = lanes * sw, [v * dw - pw for v in range(kw)]
    if not flat or load > 64 or kh * kw > WRITTEN_OUT or out_h * out_w < lanes or out_h < kh:
        return None
    middle, last, valid, pixels = None, None, 0, 0
    if out_w <= lanes:
        valid, pixels = 0 if wide >= load else wide, out_w % lanes
        first = tuple(seen_from(s, 0, wide, load, sw, out_w) for s in starts)
    elif wide < load:
        return None
    else:
        first = tuple(seen_from(s, 0, wide, load, sw, lanes) for s in starts)
        last = tuple(
            seen_from((out_w - lanes) * sw + s - wide, -wide, 0, load, sw, lanes) for s in starts
        )
        if out_w > 2 * lanes:
            behind = (
                out_w - lanes - 1
            ) // lanes * lanes * sw - pw  # where the last one in the middle begins
            if lanes * sw < pw or behind + (kw - 1) * dw + load > wide:
                return None
            middle = tuple(seen_from(v * dw, 0, 1 << 30, load, sw, lanes) for v in range(kw))
    plan = Planes(
        lanes, (kh, kw), (sh, sw), (dh, dw), first, middle, last, valid, pixels, function, acc
    )
    if plan.older > SUMS:
        return None
    bands = 1
    if not pixels:
        bands = max(-(-acc.itemsize * wide * sh * out_h // NEAR), -(-CUBES // planes))
        bands = max(1, min(bands, out_h // (4 * plan.older + 1)))
    return plan, min(planes * bands, CUBES), bands


def by_plane(
    view: Any,
    w: Any,
    bias: Any,
    out: Any,
    problem: Problem,
    function: Any,
    properties: cb.DeviceProperties,
) -> None:
    """Launch the kernel where there is a plan: every channel has one filter.

    view is (N, *size, C) of a contiguous (N, C, *size), w (C, window), out (N, C, pixels).
    """
    acc = cb.f64 if out.dtype == np.float64 else cb.f32
    found = plan_for(problem, out.shape[0] * out.shape[1], function, properties, acc)
    assert found is not None
    plan, cubes, bands = found
    x = view.transpose(0, view.ndim - 1, *range(1, view.ndim - 1)).reshape(-1, *problem.size[1:])
    result = out.reshape(-1, *problem.out[1:])
    depthwise_planes[cubes, 1](
        x, w, bias, result, cubes, bands, *problem.pad[1:], plan, mode="unchecked"
    )
