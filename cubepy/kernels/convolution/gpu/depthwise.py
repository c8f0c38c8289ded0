"""A GPU's convolution in which every filter sees one channel (depthwise). It is bound by memory, so
a unit makes a small box of pixels for one line of channels (channels last) or of one plane
(channels first), and reads what they see once.

What the boxes of neighbouring units share comes from the first-level cache. Sums are in f32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.problem import Problem, in_three
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.movement.transpose import transpose
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.runtime import memory
from cubepy.runtime.symbolic.cached import cached

UNITS = 128
ROWS, PIXELS = 4, 4  # of a unit's box, channels last
FEW_TAPS = 9  # with more, with strides or with few rows, boxes are half as high
HIGH = 4  # rows of a unit's box, channels first
WRITTEN_OUT = (
    64  # taps whose products are written out for all rows of a box; with more, a box is one row
)
NEAR = 8, 4  # lines of channels and boxes down the image of neighbouring units, at most
LARGEST_RANGE, BUSY = 16, 1 << 16  # boxes of a range, at most, and units that keep a device busy
SUMS = 50  # elements of the sums by taps that a unit holds, at most
WIDEST = 64  # columns of a window, dilation included


@dataclass(frozen=True)
class Box:
    """What changes the code.

    Attributes:
        rows, pixels: of output, which a unit makes.
        lanes: of a line, along the channels or along the pixels.
        window, stride, dilation: along depth, height and width.
        pad: along the width.
        filters: of every channel.
        activation: a func of the result, or None.
        near: lines of channels and, of each, boxes down the image that neighbouring units make
            (channels last).
    """

    rows: int
    pixels: int
    lanes: int
    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: int
    filters: int
    activation: Any
    near: tuple[int, int] = (1, 1)


def seen_rows(plan: Box) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    """The input rows that a box sees, each with pairs of a row of the box and a row of the
    window.
    """
    seen: dict[int, list[tuple[int, int]]] = {}
    for r in range(plan.rows):
        for u in range(plan.window[1]):
            seen.setdefault(r * plan.stride[1] + u * plan.dilation[1], []).append((r, u))
    return tuple((i, tuple(pairs)) for i, pairs in sorted(seen.items()))


def reach(plan: Box) -> int:
    """Input pixels along the width that a box sees, first to last."""
    return (plan.pixels - 1) * plan.stride[2] + (plan.window[2] - 1) * plan.dilation[2] + 1


@cb.func
def add_lines(acc, x, taps, at, first, pairs: cb.Comptime, plan: cb.Comptime[Box]):
    """A row of the input to the sums of the rows that see it; `at`: the image, row and
    first pixel of the input, and the channel of the result; `first`: the tap in the window's first
    row.
    """
    n, d, h, w, c = at
    lanes, wide, step = plan.lanes, plan.window[2], plan.dilation[2]
    inside = d >= 0 and d < x.shape[1] and h >= 0 and h < x.shape[2]
    row = cb.clamp(h, 0, x.shape[2] - 1)
    deep = cb.clamp(d, 0, x.shape[1] - 1)
    channel = c if plan.filters == 1 else c // plan.filters
    nothing = cb.cast(cb.splat(0.0, lanes), cb.f32)
    lines = ()
    for j in cb.unroll(range(reach(plan))):
        there = inside and w + j >= 0 and w + j < x.shape[3]
        line = cb.cast(
            x.load((n, deep, row, cb.clamp(w + j, 0, x.shape[3] - 1), channel), lanes), cb.f32
        )
        lines = lines + (cb.select(there, line, nothing),)
    for k in cb.unroll(range(len(pairs))):
        r, u = pairs[k]
        for v in cb.unroll(range(wide)):
            tap = taps.load((first + u * wide + v, c), lanes)
            for p in cb.unroll(range(plan.pixels)):
                acc[r * plan.pixels + p] = cb.fma(
                    lines[p * plan.stride[2] + v * step], tap, acc[r * plan.pixels + p]
                )


@cb.kernel
def channelwise_last(
    x: cb.Array, taps: cb.Array, bias, out: cb.Array, pad_d, pad_h, plan: cb.Comptime[Box]
):
    """out[n, d, h, w, c] = activation(sum over the window of x * taps[tap, c] + bias[c]), channels
    last; f32 taps.
    """
    lanes, rows, pixels = plan.lanes, plan.rows, plan.pixels
    lines, down = plan.near
    across = out.shape[4] // (lanes * lines)
    wide = (out.shape[3] + pixels - 1) // pixels
    high = (out.shape[2] + rows * down - 1) // (rows * down)
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    line, row_block = at % lines, at // lines % down
    at = at // (lines * down)
    w = at % wide * pixels
    at = at // wide
    h = (at % high * down + row_block) * rows
    at = at // high
    c = multiple((at % across * lines + line) * lanes, lanes)
    at = at // across
    d = at % out.shape[1]
    n = at // out.shape[1]
    if n < out.shape[0] and h < out.shape[2]:
        acc = cb.local(rows * pixels, cb.f32, lanes=lanes)
        for k in cb.unroll(range(rows * pixels)):
            acc[k] = cb.splat(0.0, lanes)
        top, left = h * plan.stride[1] - pad_h, w * plan.stride[2] - plan.pad
        for t in range(plan.window[0]):
            deep = d * plan.stride[0] + t * plan.dilation[0] - pad_d
            first = t * (plan.window[1] * plan.window[2])
            if plan.window[1] * plan.window[2] <= WRITTEN_OUT:
                for i, pairs in cb.unroll(seen_rows(plan)):
                    add_lines(acc, x, taps, (n, deep, top + i, left, c), first, pairs, plan)
            else:
                for u in range(plan.window[1]):
                    tap = first + u * plan.window[2]
                    seen = (n, deep, top + u * plan.dilation[1], left, c)
                    add_lines(acc, x, taps, seen, tap, ((0, 0),), plan)
        for r in cb.unroll(range(rows)):
            for p in cb.unroll(range(pixels)):
                if h + r < out.shape[2] and w + p < out.shape[3]:
                    value = acc[r * pixels + p]
                    if bias is not None:
                        value = value + cb.cast(bias.load(c, lanes), cb.f32)
                    if plan.activation is not None:
                        value = plan.activation(value)
                    out.store((n, d, h + r, w + p, multiple(c, lanes)), cb.cast(value, out.dtype))


@cb.func
def add_pixels(acc, x, taps, at, filter, first, pairs: cb.Comptime, plan: cb.Comptime[Box]):
    """A row of the input to the sums of the rows that see it: its whole lines, and one by one what
    hangs over. `at`: the image, channel, row and first pixel of the input.
    """
    n, c, d, h, w = at
    lanes, wide, step = plan.lanes, plan.window[2], plan.dilation[2]
    inside = d >= 0 and d < x.shape[2] and h >= 0 and h < x.shape[3]
    row = cb.clamp(h, 0, x.shape[3] - 1)
    deep = cb.clamp(d, 0, x.shape[2] - 1)
    zero = cb.cast(0.0, cb.f32)
    seen = cb.local(reach(plan), cb.f32)
    for j in cb.unroll(range(reach(plan))):
        k = j - plan.pad  # from the first pixel of the first line on
        if lanes > 1 and k >= 0 and k < lanes * plan.stride[2]:
            if k % lanes == 0 or j == 0:
                begin = multiple(w + k // lanes * lanes, lanes)
                there = inside and begin < x.shape[4]
                line = x.load(
                    (n, c, deep, row, multiple(cb.min(begin, x.shape[4] - lanes), lanes)), lanes
                )
                for q in cb.unroll(range(lanes)):
                    to = k // lanes * lanes + q + plan.pad
                    if to >= 0 and to < reach(plan):
                        seen[to] = cb.select(there, cb.cast(line[q], cb.f32), zero)
        else:
            there = inside and w + k >= 0 and w + k < x.shape[4]
            one = cb.cast(x[n, c, deep, row, cb.clamp(w + k, 0, x.shape[4] - 1)], cb.f32)
            seen[j] = cb.select(there, one, zero)
    for k in cb.unroll(range(len(pairs))):
        r, u = pairs[k]
        for v in cb.unroll(range(wide)):
            tap = taps[filter, first + u * wide + v]
            for p in cb.unroll(range(plan.pixels)):
                value = seen[p * plan.stride[2] + v * step]
                acc[r * plan.pixels + p] = cb.fma(value, tap, acc[r * plan.pixels + p])


@cb.kernel
def channelwise_first(
    x: cb.Array, taps: cb.Array, bias, out: cb.Array, pad_d, pad_h, plan: cb.Comptime[Box]
):
    """out[n, f, d, h, w] = activation(sum over the window of x[n, f // filters] * taps[f, tap] +
    bias[f]).
    """
    rows, pixels = plan.rows, plan.pixels
    wide = (out.shape[4] + pixels - 1) // pixels
    high = (out.shape[3] + rows - 1) // rows
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    w = multiple(at % wide * pixels, pixels)
    at = at // wide
    h = at % high * rows
    at = at // high
    d = at % out.shape[2]
    at = at // out.shape[2]
    f = at % out.shape[1]
    n = at // out.shape[1]
    if n < out.shape[0]:
        acc = cb.local(rows * pixels, cb.f32)
        for k in cb.unroll(range(rows * pixels)):
            acc[k] = 0.0
        top, left, c = (
            h * plan.stride[1] - pad_h,
            multiple(w * plan.stride[2], pixels),
            f // plan.filters,
        )
        for t in range(plan.window[0]):
            deep = d * plan.stride[0] + t * plan.dilation[0] - pad_d
            first = t * (plan.window[1] * plan.window[2])
            if plan.window[1] * plan.window[2] <= WRITTEN_OUT:
                for i, pairs in cb.unroll(seen_rows(plan)):
                    add_pixels(acc, x, taps, (n, c, deep, top + i, left), f, first, pairs, plan)
            else:
                for u in range(plan.window[1]):
                    tap = first + u * plan.window[2]
                    seen = (n, c, deep, top + u * plan.dilation[1], left)
                    add_pixels(acc, x, taps, seen, f, tap, ((0, 0),), plan)
        more = cb.cast(0.0, cb.f32) if bias is None else cb.cast(bias[f], cb.f32)
        for r in cb.unroll(range(rows)):
            line = cb.local(pixels, out.dtype)
            for p in cb.unroll(range(pixels)):
                value = acc[r * pixels + p] + more
                line[p] = cb.cast(
                    value if plan.activation is None else plan.activation(value), out.dtype
                )
            if h + r < out.shape[3]:
                out.store((n, f, d, h + r, w), line.load(0, pixels))


@cached
def box_of(problem: Problem, lanes: int, last: bool, filters: int, function: Any) -> Box:
    """The blueprint; `lanes` is what lines of the arrays allow."""
    _, high, wide = problem.window
    pixels = min(PIXELS, 1 << (problem.out[2] - 1).bit_length()) if last else lanes
    rows = HIGH
    if last:
        even = problem.out[1] % ROWS == 0 or problem.out[1] > 8 * ROWS
        dense = (
            high * wide <= FEW_TAPS and max(problem.stride) == 1
        )  # so that sums and lines stay in registers
        rows = ROWS if dense and even else ROWS // 2
    if high * wide > WRITTEN_OUT or problem.out[1] == 1:
        rows = 1
    if (wide - 1) * problem.dilation[2] + pixels > WRITTEN_OUT // 2:
        rows, pixels = 1, pixels if not last else 1
    settings = (problem.window, problem.stride, problem.dilation, problem.pad[2])
    return Box(rows, pixels, lanes, *settings, filters, function)


def near_of(lines: int, row_blocks: int) -> tuple[int, int]:
    """Lines of channels and boxes down the image for neighbouring units: what they share is read
    once into a cache.
    """
    return math.gcd(lines, NEAR[0]), math.gcd(row_blocks, NEAR[1])


def lanes_of(view: Any, out: Any, problem: Problem) -> int:
    """Pixels of a line along the width that all lines of the arrays allow, channels first."""
    lanes = min(line_of(view.reshape(-1)), line_of(out.reshape(-1)))
    while lanes > 1 and (problem.size[2] % lanes or problem.out[2] % lanes):
        lanes //= 2
    return lanes


def by_channel_on_gpu(
    view: Any, w: Any, bias: Any, out: Any, problem: Problem, channels_last: bool, function: Any
) -> bool:
    """out = function(convolution + bias) where groups have one channel; False if the window is too
    wide.

    view is (N, *size, C) in any layout; out is contiguous, (N, *out, F) or channels first.
    """
    if w.shape[1] != 1 or (problem.window[2] - 1) * problem.dilation[2] >= WIDEST:
        return False
    n, filters, c = view.shape[0], w.shape[0], view.shape[-1]
    flat = w.reshape(filters, -1)
    taps = memory.empty(flat.shape[::-1] if channels_last else flat.shape, np.float32)
    convert_into(taps, flat.T if channels_last else flat)
    if channels_last:
        x = in_three(view if view.flags.c_contiguous else transpose(view, tuple(range(view.ndim))))
        result = out.reshape(n, *problem.out, filters)
        lanes = 1 if filters != c else min(line_of(x), line_of(result))
        box = box_of(problem, lanes if c % lanes == 0 else 1, True, filters // c, function)
        lines, row_blocks = filters // box.lanes, -(-problem.out[1] // box.rows)
        box = replace(box, near=near_of(lines, row_blocks))
        units = n * problem.out[0] * row_blocks * -(-problem.out[2] // box.pixels) * lines
        kernel: Any = channelwise_last
    else:
        first = view.transpose(0, view.ndim - 1, *range(1, view.ndim - 1))
        x = first if first.flags.c_contiguous else transpose(first, tuple(range(view.ndim)))
        x, result = x.reshape(n, c, *problem.size), out.reshape(n, filters, *problem.out)
        box = box_of(problem, lanes_of(x, result, problem), False, filters // c, function)
        units = (
            n
            * filters
            * problem.out[0]
            * -(-problem.out[1] // box.rows)
            * (problem.out[2] // box.pixels)
        )
        kernel = channelwise_first
    kernel[-(-units // UNITS), UNITS](
        x, taps, bias, result, *problem.pad[:2], box, mode="unchecked"
    )
    return True
