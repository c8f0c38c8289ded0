"""The CPU's depthwise convolution with channels last: lines lie along the channels.

A tile is a few neighbouring places of one line of channels: a line of taps meets all of them, and a line of input all
places that see it. Rows of the window that lie outside are left out, columns outside are read as zeros; most tiles
have neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution_routes import Problem
from cubepy.kernels.elementwise import contiguous
from cubepy.runtime.pointers import address

PLACES = (8, 7, 6, 5)  # of a tile: sums that stay in registers beside the lines of a row of the window
SPAN = 7  # columns of a window that are written out
CUBES = 8  # at least, so that threads finish together
LINE = 64  # bytes of a cache line
STREAM = 8 << 20  # bytes of a result that is stored past the caches
NEAR = 32 * 1024  # bytes of the rows of a window that stay in the first-level cache


@dataclass(frozen=True)
class Places:
    """What changes the code.

    Attributes:
        places, lanes: of a tile.
        window, stride, dilation: along depth, height and width.
        activation: a func of the result, or None.
        past: whether results are stored past the caches.
    """

    places: int
    lanes: int
    window: tuple[int, int, int]
    stride: tuple[int, int, int]
    dilation: tuple[int, int, int]
    activation: Any
    past: bool


def columns_of(places: int, stride: int, span: int, dilation: int) -> tuple[int, ...]:
    """The columns of a row of input that `places` places see through `span` columns of the window."""
    return tuple(sorted({p * stride + v * dilation for p in range(places) for v in range(span)}))


def products_of(v: int, places: int, stride: int, columns: tuple[int, ...], dilation: int) -> tuple[int, ...]:
    """Which of those columns each place meets column v of the window with."""
    return tuple(columns.index(p * stride + v * dilation) for p in range(places))


@cb.func
def add_row(acc, lines, tap, which: cb.Comptime):
    """One column of the window: every place's product."""
    for p in cb.unroll(range(len(which))):
        acc[p] = cb.fma(lines[which[p]], tap, acc[p])


@cb.func
def tile_of(x, taps, bias, out, n, d, h, w, c, first, edge: cb.Comptime[bool], plan):
    """The places from w on for the channels from c on; with `edge` some columns or channels may not be there."""
    places, lanes = plan.places, plan.lanes
    kd, kh, kw = plan.window
    dd, dh, dw = plan.dilation
    d0, h0, w0 = first
    left = x.shape[4] - c
    span = kw if kw <= SPAN else 1
    columns = columns_of(places, plan.stride[2], span, dw)
    acc = cb.local(places, cb.f32, lanes=lanes)
    for p in cb.unroll(range(places)):
        acc[p] = cb.splat(0.0, lanes)
    for t in range(kd):
        if d0 + t * dd >= 0 and d0 + t * dd < x.shape[1]:
            u0 = (cb.max(0, -h0) + dh - 1) // dh
            u1 = cb.min(kh, (x.shape[2] - h0 + dh - 1) // dh)
            for u in range(u0, u1):
                for v0 in range(0, kw, span):
                    lines = ()
                    for k in cb.unroll(columns):
                        at = (n, d0 + t * dd, h0 + u * dh, w0 + v0 * dw + k, c)
                        if edge:
                            inside = at[3] >= 0 and at[3] < x.shape[3]
                            lines = lines + (cb.cast(x.load(at, lanes, valid=cb.select(inside, left, 0)), cb.f32),)
                        else:
                            lines = lines + (cb.cast(x.load(at, lanes), cb.f32),)
                    for v in cb.unroll(range(span)):
                        tap = (t * kh + u) * kw + v0 + v
                        if edge:
                            add_row(acc, lines, taps.load((tap, c), lanes, valid=left),
                                    products_of(v, places, plan.stride[2], columns, dw))  # fmt: skip
                        else:
                            add_row(acc, lines, taps.load((tap, c), lanes),
                                    products_of(v, places, plan.stride[2], columns, dw))  # fmt: skip
    add = cb.cast(cb.splat(0.0, lanes), cb.f32)
    if bias is not None:
        add = cb.cast(bias.load(c, lanes, valid=left), cb.f32)
    done = cb.local(places, cb.f32, lanes=lanes)
    for p in cb.unroll(range(places)):
        done[p] = acc[p]
    for p in range(places):
        value = done[p]
        if bias is not None:
            value = value + add
        if plan.activation is not None:
            value = plan.activation(value)
        if edge:
            out.store((n, d, h, w + p, c), cb.cast(value, out.dtype), valid=left)
        else:
            if plan.past:
                out.store_stream((n, d, h, w + p, c), cb.cast(value, out.dtype))
            else:
                out.store((n, d, h, w + p, c), cb.cast(value, out.dtype))


@cb.kernel
def depthwise(x: cb.Array, taps: cb.Array, bias, out: cb.Array, strip, piece, pad_d, pad_h, pad_w, plan: cb.Comptime):
    """out[n, d, h, w, c] = activation(sum over the window of x * taps[tap, c] + bias[c]).

    A cube does `strip` rows, `piece` channels after the other.
    """
    strips = (out.shape[2] + strip - 1) // strip
    pos = cb.CUBE_POS
    top = pos % strips * strip
    d = pos // strips % out.shape[1]
    n = pos // strips // out.shape[1]
    sd, sh, sw = plan.stride
    lanes = plan.lanes
    reach = (plan.places - 1) * sw + (plan.window[2] - 1) * plan.dilation[2]
    for begin in range(0, out.shape[4], piece):
        stop = cb.min(begin + piece, out.shape[4])
        for h in range(top, cb.min(top + strip, out.shape[2])):
            for block in range(0, out.shape[3], plan.places):
                w = cb.min(block, out.shape[3] - plan.places)
                first = (d * sd - pad_d, h * sh - pad_h, w * sw - pad_w)
                rest = begin
                if first[2] >= 0 and first[2] + reach < x.shape[3]:
                    rest = begin + (stop - begin) // lanes * lanes
                    for c in range(begin, rest, lanes):
                        tile_of(x, taps, bias, out, n, d, h, w, c, first, False, plan)
                for c in range(rest, stop, lanes):
                    tile_of(x, taps, bias, out, n, d, h, w, c, first, True, plan)


@lru_cache(maxsize=1024)
def plan_for(problem: Problem, n: int, channels: int, function: Any, past: bool) -> tuple[Places, int, int]:
    """Blueprint, rows of a cube, and channels of a piece."""
    lanes = cb.device_properties_of().register_bytes // 4
    width, rows = problem.out[1:][::-1]
    places = width
    if width >= PLACES[-1]:
        places = min((p for p in PLACES if p <= width), key=lambda p: (-(-width // p) * (p + 2), -p))
    plan = Places(places, lanes, problem.window, problem.stride, problem.dilation, function, past)
    strip = max(1, min(16, n * problem.out[0] * rows // CUBES))
    seen = problem.size[2] * problem.window[1] * lanes * 4  # bytes of a line of channels
    piece = max(4, NEAR // seen) * lanes if problem.window[1] > 3 and not past else channels
    return plan, strip, piece


def by_channel(x: Any, w: Any, bias: Any, out: Any, problem: Problem, function: Any) -> None:
    """Every channel has one filter: x (N, d, h, w, C) and out (N, *out, C) are contiguous, w is (C, 1, 1, window)."""
    taps = contiguous(w[:, 0, 0].T)
    lanes = cb.device_properties_of().register_bytes // 4
    even = lanes * out.itemsize == LINE and out.shape[4] * out.itemsize % LINE == 0 and address(out) % LINE == 0
    plan, strip, piece = plan_for(problem, out.shape[0], out.shape[4], function, even and out.nbytes >= STREAM)
    cubes = out.shape[0] * out.shape[1] * -(-out.shape[2] // strip)
    depthwise[cubes, 1](x, taps, bias, out, strip, piece, *problem.pad, plan, mode="unchecked")
