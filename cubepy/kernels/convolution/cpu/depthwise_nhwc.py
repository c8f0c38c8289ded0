"""The CPU's depthwise convolution with channels last: lines lie along the channels.

A tile is a few neighbouring pixels of one line of channels: a line of taps meets all of them, and a
line of input all pixels that see it. Rows of the window that lie outside are left out, and so are
columns: the first tile of a row and the last have code of their own, without the products that are
not there. The last tile may begin inside the one before it, and so may the last line of channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.cpu.implicit_gemm_plan import LIGHT
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.lang.dtypes import DType
from cubepy.runtime import memory
from cubepy.runtime.memory.address import address

PIXELS = (
    14,
    12,
    10,
    8,
    7,
    6,
    5,
)  # of a tile: sums that stay in 32 registers beside as many lines of input
FEW_PIXELS = (8, 7, 6, 5)  # and in 16, or where every line may lie outside
SPAN = 7  # columns of a window that are written out
CUBES = 8  # at least, so that threads finish together
LINE = 64  # bytes of a cache line
STREAM = 8 << 20  # bytes of a result that is stored past the caches
OUT_OF_CACHE = 8 << 20  # bytes of an input that comes from memory
NEAR = 32 * 1024  # bytes of the rows of a window that stay in the first-level cache
ANYWHERE = (0, 1 << 30)  # columns of a tile's rows, none of which is outside


@dataclass(frozen=True)
class DepthwiseTile:
    """What changes the code.

    Attributes:
        pixels, lanes: of a tile.
        window, stride, dilation: along depth, height and width.
        first, last: columns of the first and of the last tile of a row that are there, or None
            where every line of every tile may lie outside; a row of one tile has no last.
        activation: a func of the result, or None.
        light: whether it is so short that it may be written out for every pixel.
        streaming: whether results are stored past the caches.
        ahead: whether input is asked for before it is used.
        acc: the dtype of sums.
    """

    pixels: int
    lanes: int
    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    first: tuple[int, int] | None
    last: tuple[int, int] | None
    activation: Any
    light: bool
    streaming: bool
    ahead: bool
    acc: Any = cb.f32


Products = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]


def products_of(
    pixels: int, stride: int, span: int, dilation: int, there: tuple[int, int]
) -> tuple[Products, ...]:
    """For each of `span` columns of the window: columns of a row of input that are seen for the
    first time, and pairs of a pixel and of what it sees, counted in that order. Columns that are
    not there are left out.
    """
    columns: list[int] = []
    found = []
    for v in range(span):
        seen = [(p, p * stride + v * dilation) for p in range(pixels)]
        seen = [(p, k) for p, k in seen if there[0] <= k < there[1]]
        more = tuple(dict.fromkeys(k for _, k in seen if k not in columns))
        columns += more
        found.append((more, tuple((p, columns.index(k)) for p, k in seen)))
    return tuple(found)


@cb.func
def add_row(acc, lines, tap, which: cb.Comptime):
    """One column of the window: every pixel's product."""
    for p, k in cb.unroll(which):
        acc[p] = cb.fma(lines[k], tap, acc[p])


@cb.func
def tile_of(x, taps, epilogue, to, c, first, edge: cb.Comptime[bool], there: cb.Comptime, plan):
    """The pixels from `to` on, which is (n, d, h, w), for the channels from c on; with `edge`
    some columns or channels may not be there.
    """
    n, d, h, w = to
    pixels, lanes = plan.pixels, plan.lanes
    kd, kh, kw = plan.window
    dd, dh, dw = plan.dilation
    d0, h0, w0 = first
    left = x.shape[4] - c
    span = kw if kw <= SPAN else 1
    products = products_of(pixels, plan.stride[2], span, dw, there)
    acc = cb.local(pixels, plan.acc, lanes=lanes)
    for p in cb.unroll(range(pixels)):
        acc[p] = cb.cast(cb.splat(0.0, lanes), plan.acc)
    for t in range(kd):
        if d0 + t * dd >= 0 and d0 + t * dd < x.shape[1]:
            u0 = (cb.max(0, -h0) + dh - 1) // dh
            u1 = cb.min(kh, (x.shape[2] - h0 + dh - 1) // dh)
            for u in range(u0, u1):
                for v0 in range(0, kw, span):
                    lines = ()
                    for v in cb.unroll(range(span)):
                        for k in cb.unroll(products[v][0]):
                            at = (n, d0 + t * dd, h0 + u * dh, w0 + v0 * dw + k, c)
                            if edge:
                                inside = at[3] >= 0 and at[3] < x.shape[3]
                                line = x.load(at, lanes, valid=cb.select(inside, left, 0))
                                lines = lines + (cb.cast(line, plan.acc),)
                            else:
                                lines = lines + (cb.cast(x.load(at, lanes), plan.acc),)
                        tap = (t * kh + u) * kw + v0 + v
                        if edge:
                            add_row(
                                acc, lines, taps.load((tap, c), lanes, valid=left), products[v][1]
                            )
                        else:
                            add_row(acc, lines, taps.load((tap, c), lanes), products[v][1])
    if plan.ahead and not edge:  # the rows that the next row of pixels sees first come from memory
        for i in cb.unroll(range(plan.stride[1])):
            for p in cb.unroll(range(pixels * plan.stride[2])):
                x.prefetch((n, d0, h0 + (kh - 1) * dh + 1 + i, cb.max(0, w0) + p, c))
    shift, out = None, epilogue.out
    if epilogue.bias is not None:
        shift = cb.cast(epilogue.bias.load((c,), lanes, valid=left), plan.acc)
    if plan.light and not edge:
        for p in cb.unroll(range(pixels)):
            value = epilogue.value(acc[p], None, None, shift)
            if plan.streaming:
                out.store_stream((n, d, h, w + p, c), cb.cast(value, out.dtype))
            else:
                out.store((n, d, h, w + p, c), cb.cast(value, out.dtype))
    else:
        done = cb.local(pixels, plan.acc, lanes=lanes)
        for p in cb.unroll(range(pixels)):
            done[p] = acc[p]
        for p in range(pixels):
            value = epilogue.value(done[p], None, None, shift)
            if edge:
                out.store((n, d, h, w + p, c), cb.cast(value, out.dtype), valid=left)
            elif plan.streaming:
                out.store_stream((n, d, h, w + p, c), cb.cast(value, out.dtype))
            else:
                out.store((n, d, h, w + p, c), cb.cast(value, out.dtype))


@cb.kernel
def depthwise(
    x: cb.Array,
    taps: cb.Array,
    bias,
    out: cb.Array,
    band_rows,
    piece,
    pad_d,
    pad_h,
    pad_w,
    plan: cb.Comptime,
):
    """out[n, d, h, w, c] = activation(sum over the window of x * taps[tap, c] + bias[c]).

    A cube does `band_rows` rows, `piece` channels after the other.
    """
    bands = (out.shape[2] + band_rows - 1) // band_rows
    pos = cb.CUBE_POS
    top = pos % bands * band_rows
    d = pos // bands % out.shape[1]
    n = pos // bands // out.shape[1]
    epilogue = LineEpilogue(out, plan.activation, bias, axis=4)
    sd, sh, sw = plan.stride
    lanes, hang = plan.lanes, out.shape[4] - plan.lanes
    for begin in range(0, out.shape[4], piece):
        stop = cb.min(begin + piece, out.shape[4])
        for h in range(top, cb.min(top + band_rows, out.shape[2])):
            for block in range(0, out.shape[3], plan.pixels):
                w = cb.min(block, out.shape[3] - plan.pixels)
                first = (d * sd - pad_d, h * sh - pad_h, w * sw - pad_w)
                if plan.first is None:
                    for c in range(begin, stop, lanes):
                        tile_of(x, taps, epilogue, (n, d, h, w), c, first, True, ANYWHERE, plan)
                elif plan.last is None:
                    for c in range(begin, stop, lanes):
                        here = cb.min(c, hang)
                        tile_of(
                            x, taps, epilogue, (n, d, h, w), here, first, False, plan.first, plan
                        )
                elif block == 0:
                    for c in range(begin, stop, lanes):
                        here = cb.min(c, hang)
                        tile_of(
                            x, taps, epilogue, (n, d, h, w), here, first, False, plan.first, plan
                        )
                elif block + plan.pixels >= out.shape[3]:
                    for c in range(begin, stop, lanes):
                        here = cb.min(c, hang)
                        tile_of(
                            x, taps, epilogue, (n, d, h, w), here, first, False, plan.last, plan
                        )
                else:
                    for c in range(begin, stop, lanes):
                        here = cb.min(c, hang)
                        tile_of(x, taps, epilogue, (n, d, h, w), here, first, False, ANYWHERE, plan)


def tile_pixels(problem: Problem, possible: tuple[int, ...]) -> tuple[int, Any]:
    """Pixels of a tile, and the columns of the first and of the last tile of a row that are there.

    None instead of these: other tiles have columns outside, too, or the window is not written out.
    """
    wide, width, step, padding = problem.size[2], problem.out[2], problem.stride[2], problem.pad[2]
    fitting = [p for p in possible if p <= width] or [width]
    pixels = min(fitting, key=lambda p: (-(-width // p) * (p + 2), -p))
    reach = (pixels - 1) * step + (problem.window[2] - 1) * problem.dilation[2]
    tiles, end = -(-width // pixels), (width - pixels) * step - padding
    first, last = (
        (padding, min(wide + padding, reach + 1)),
        (max(0, -end), min(wide - end, reach + 1)),
    )
    inside = pixels * step >= padding and (tiles - 2) * pixels * step - padding + reach < wide
    if problem.window[2] > SPAN or (tiles > 2 and not inside):
        return pixels, None
    return pixels, (first, last if tiles > 1 else None)


@lru_cache(maxsize=1024)
def plan_for(
    problem: Problem,
    n: int,
    channels: int,
    function: Any,
    streaming: bool,
    ahead: bool,
    acc: DType,
    properties: cb.DeviceProperties,
) -> tuple[DepthwiseTile, int, int]:
    """Blueprint, rows of a cube, and channels of a piece."""
    lanes = properties.register_bytes // acc.itemsize
    rows = problem.out[1]
    many = properties.vector_registers >= 32
    wide = (
        many and problem.window[2] > 3 and not ahead
    )  # else memory is what counts: fewer rows at once
    pixels, there = tile_pixels(problem, PIXELS if wide else FEW_PIXELS)
    if there is None or channels < lanes:
        (pixels, _), there = tile_pixels(problem, FEW_PIXELS), (None, None)
    plan = DepthwiseTile(  # type: ignore[call-arg]
        pixels,
        lanes,
        problem.window,
        problem.stride,
        problem.dilation,
        *there,
        function,
        function in LIGHT,
        streaming,
        ahead,
        acc,
    )
    many_rows, near = problem.window[1] > 3, not (streaming or ahead)
    band_rows = max(1, min(4 if many_rows and near else 16, n * problem.out[0] * rows // CUBES))
    seen = problem.size[2] * problem.window[1] * lanes * acc.itemsize  # bytes of a line of channels
    piece = max(2, NEAR // seen) * lanes if many_rows and not streaming else channels
    return plan, band_rows, piece


def by_channel(
    x: Any,
    w: Any,
    bias: Any,
    out: Any,
    problem: Problem,
    function: Any,
    properties: cb.DeviceProperties,
) -> None:
    """Every channel has one filter: x (N, d, h, w, C) and out (N, *out, C) are contiguous, w is (C,
    1, 1, window).
    """
    taps, acc = w[:, 0, 0].T, cb.f64 if out.dtype == np.float64 else cb.f32
    if not taps.flags.c_contiguous or taps.dtype != acc.numpy:
        taps = memory.empty(taps.shape, acc.numpy)
        convert_into(taps, w[:, 0, 0].T)
    lanes = properties.register_bytes // acc.itemsize
    even = (
        lanes * out.itemsize == LINE
        and out.shape[4] * out.itemsize % LINE == 0
        and address(out) % LINE == 0
    )
    streaming, ahead = even and out.nbytes >= STREAM, x.nbytes >= OUT_OF_CACHE
    plan, band_rows, piece = plan_for(
        problem, out.shape[0], out.shape[4], function, streaming, ahead, acc, properties
    )
    cubes = out.shape[0] * out.shape[1] * -(-out.shape[2] // band_rows)
    depthwise[cubes, 1](x, taps, bias, out, band_rows, piece, *problem.pad, plan, mode="unchecked")
