"""Inputs and filters laid out in memory as a GPU's convolution takes them: 16 bytes are the copy
engine's measure.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.gpu.in_order import in_order
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.entry.shapes import strided
from cubepy.kernels.matmul.gpu.operands import ALIGNMENT
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.primitives.vector_width import address
from cubepy.runtime import memory

UNITS = 128
MEASURE = 8
"""Elements of 16 bits that the copy engine counts in."""
FOLDED = 16
"""Channels that the pixels of a folded input have at most."""
ROW = 64
"""Channels of a step of the sum, of 16 bits."""
SAVED, PIXELS = 10, 1 << 14
"""Steps of all rounds that a copy of an input is worth which could be taken as it lies, and the
pixels of a round (as layers of 8 and 16 channels took on an H100).
"""


@cb.kernel
def widen(x: cb.Array, out: cb.Array, before, lanes: cb.Comptime[int]):
    """out[n, h, w, c] = x[n, h, w - before, c], with zeros where x has nothing; a unit does a
    line of a pixel.
    """
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    lines = out.shape[3] // lanes
    first = at % lines * lanes
    pixel = at // lines
    w = pixel % out.shape[2]
    h = pixel // out.shape[2] % out.shape[1]
    n = pixel // out.shape[2] // out.shape[1]
    if n < out.shape[0]:
        channels, column = x.shape[3], w - before
        seen = cb.min(cb.max(column, 0), x.shape[2] - 1)
        line = cb.local((lanes,), x.dtype)
        for k in cb.unroll(range(lanes)):
            value = x[n, h, seen, cb.min(first + k, channels - 1)]
            line[k] = cb.select(column == seen and first + k < channels, value, x.dtype(0))
        out.store((n, h, w, first), line.load((0,), lanes))


@cb.kernel
def lay_filters(w: cb.Array, out: cb.Array, inner):
    """out[f, t, v * inner + c] = w[f, c, t, v], with zeros where w has nothing; a unit does a
    line of `MEASURE` elements.
    """
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    lines = out.shape[2] // MEASURE
    first = at % lines * MEASURE
    t = at // lines % out.shape[1]
    f = at // lines // out.shape[1]
    if f < out.shape[0]:
        filters, channels, across = w.shape[0], w.shape[1], w.shape[3]
        line = cb.local((MEASURE,), w.dtype)
        c, v = first % inner, first // inner
        for k in cb.unroll(range(MEASURE)):
            here = cb.min(f, filters - 1), cb.min(c, channels - 1), t, cb.min(v, across - 1)
            value = w[here]
            line[k] = cb.select(f < filters and c < channels and v < across, value, w.dtype(0))
            c = c + 1
            if c == inner:
                c, v = 0, v + 1
        out.store((f, t, first), line.load((0,), MEASURE))


@cb.kernel
def lay_blocks(w: cb.Array, out: cb.Array, filters, together):
    """out[f, t, c] = w[f, c - C * j, t] for the j-th of the `together` groups that make a block,
    with zeros where w has nothing; a group has so many `filters`, and C channels. A unit does an
    element.
    """
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    j = at % out.shape[2]
    t = at // out.shape[2] % out.shape[1]
    f = at // out.shape[2] // out.shape[1]
    if f < out.shape[0]:
        c = j - f // filters % together * w.shape[1]
        if c >= 0 and c < w.shape[1]:
            out[f, t, j] = w[f, c, t]
        else:
            out[f, t, j] = 0


@cb.kernel
def fold(x: cb.Array, out: cb.Array, above, before, few: cb.Comptime[int], lanes: cb.Comptime[int]):
    """out[n, h, w, (i * 2 + j) * C + c] = x[n, 2 h + i - above, 2 w + j - before, c], with zeros
    where x has nothing.

    A unit does a pixel; C is `few`, and out has `lanes` channels, no less than 4 C.
    """
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    w = at % out.shape[2]
    h = at // out.shape[2] % out.shape[1]
    n = at // out.shape[2] // out.shape[1]
    if n < out.shape[0]:
        line = cb.local((lanes,), x.dtype)
        for k in cb.unroll(range(lanes)):
            i, j, c = k // (2 * few), k // few % 2, k % few
            line[k] = 0
            if k < 4 * few:
                row, column = 2 * h + i - above, 2 * w + j - before
                if row >= 0 and row < x.shape[1] and column >= 0 and column < x.shape[2]:
                    line[k] = x[n, row, column, c]
        for k in cb.unroll(range(0, lanes, MEASURE)):
            out.store((n, h, w, k), line.load((k,), MEASURE))


@cb.kernel
def fold_filters(w: cb.Array, out: cb.Array, inner):
    """out[f, t, v * inner + (i * 2 + j) * C + c] = w[f, c, 2 t + i, 2 v + j], with zeros where w
    has nothing.
    """
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    k = at % out.shape[2]
    t = at // out.shape[2] % out.shape[1]
    f = at // out.shape[2] // out.shape[1]
    if f < out.shape[0]:
        few = w.shape[1]
        part = k % inner // few
        row, column = 2 * t + part // 2, k // inner * 2 + part % 2
        value = w.dtype(0)
        if f < w.shape[0] and part < 4 and row < w.shape[2] and column < w.shape[3]:
            value = w[f, k % inner % few, row, column]
        out[f, t, k] = value


def measured(n: int) -> int:
    """The next multiple of what the copy engine counts in."""
    return -(-n // MEASURE) * MEASURE


def laid_out(view: Any, w: Any, problem: Problem) -> tuple[Any, Any, Problem]:
    """The input (N, *size, C), filters (F, taps, C) and the convolution that they make together.

    Where the copy engine cannot take so many channels, zeros are put beside them. A window's rows
    of a few channels are taken as one tap with many: neighbours along the width are channels too,
    of an array whose pixels overlap.
    """
    n, c, filters = view.shape[0], view.shape[-1], w.shape[0]
    whole = measured(c)
    few = of_a_pixel(c, problem.stride[2])
    worth = by_rows(n, c, problem, view.itemsize)
    if lies_well(n, c, filters, problem, view.itemsize):
        return view, in_order(w.transpose(0, *range(2, w.ndim), 1)).reshape(filters, -1, c), problem
    if folds(problem, c):
        return folded(view, w, problem)
    if worth:
        return as_rows(view, w, problem, few)
    if c != whole:
        size = view.shape[1:-1]
        flat = view.reshape(n, math.prod(size[:-1]), size[-1], c)
        view = widened(flat, size[-1], whole, 0).reshape(n, *size, whole)
    return view, filters_of(w.reshape(filters, c, -1, 1), whole, whole), problem


def by_rows(n: int, c: int, problem: Problem, itemsize: int) -> bool:
    """Whether rows of the window are taken as one tap of many channels."""
    _, high, wide = problem.window
    whole, few = measured(c), of_a_pixel(c, problem.stride[2])
    if problem.size[0] * problem.window[0] * problem.dilation[2] != 1:
        return False
    row = ROW * 2 // itemsize
    steps, in_rows = high * wide * -(-whole // row), high * -(-wide * few // row)
    rounds = -(-n * math.prod(problem.out) // PIXELS)
    return in_rows < steps if c % MEASURE else (steps - in_rows) * rounds >= SAVED


def lies_well(n: int, c: int, filters: int, problem: Problem, itemsize: int) -> bool:
    """Whether images are taken as they lie, and filters where channels come last."""
    whole = c % MEASURE == 0 and filters % MEASURE == 0
    return whole and not by_rows(n, c, problem, itemsize)


def of_a_pixel(c: int, stride: int) -> int:
    """Channels of a pixel, at least c, whose neighbours `stride` pixels on begin at whole
    measures.
    """
    unit = MEASURE // math.gcd(MEASURE, stride)
    return -(-c // unit) * unit


def as_rows(view: Any, w: Any, problem: Problem, few: int) -> tuple[Any, Any, Problem]:
    """Rows of the window as taps of many channels: the input's pixels have `few` and overlap."""
    n, c, filters = view.shape[0], view.shape[-1], w.shape[0]
    _, high, wide = problem.window
    out_width = problem.out[2]
    unit = MEASURE // math.gcd(MEASURE, few)  # pixels that fill whole measures
    room = -(-((out_width - 1) * problem.stride[2] + wide) // unit) * unit
    x = view.reshape(n, *problem.size[1:], c)
    if c != few or problem.pad[2] or room > x.shape[2] or not x.flags.c_contiguous:
        x = widened(x, room, few, problem.pad[2])
    row, pixel_stride = x.strides[1], problem.stride[2] * x.strides[2]
    x = strided(
        x,
        (n, problem.size[1], out_width, wide * few),
        (x.strides[0], row, pixel_stride, x.itemsize),
    )
    taps = filters_of(w.reshape(filters, c, high, wide), measured(wide * few), few)
    smaller = replace(
        problem,
        size=(1, problem.size[1], out_width),
        window=(1, high, 1),
        stride=(1, problem.stride[1], 1),
        pad=(0, problem.pad[1], 0),
    )
    return x, taps, smaller


def of_a_block(c: int, filters: int, groups: int) -> int:
    """How many groups of so many channels and filters make a block; 0: none fits."""
    together = 1 if c % ROW == 0 else ROW // c if ROW % c == 0 else 0
    if together == 0 or groups % together or filters * together % ROW or c * groups % MEASURE:
        return 0
    return together


def in_blocks(
    view: Any, w: Any, problem: Problem, groups: int
) -> tuple[Any, Any, Problem, int] | None:
    """The input, filters (F, taps, channels of a block), the convolution, and the filters of a
    block; None: none fits.

    Groups of few channels make blocks of `ROW`, whose filters are zero for the channels of other
    groups. So what is not finite in a channel reaches all filters of its block.
    """
    c, filters = w.shape[1], w.shape[0] // groups
    together = of_a_block(c, filters, groups)
    if together == 0:
        return None
    taps = memory.empty((w.shape[0], math.prod(w.shape[2:]), c * together), w.dtype)
    last = w.transpose(
        0, *range(2, w.ndim), 1
    )  # filters in channels-last memory are taken as they lie
    as_last = last.flags.c_contiguous
    flat = (
        last.reshape(w.shape[0], -1, c).transpose(0, 2, 1)
        if as_last
        else in_order(w).reshape(w.shape[0], c, -1)
    )
    lay_blocks[-(-taps.size // UNITS), UNITS](flat, taps, filters, together, mode="unchecked")
    return view, taps, problem, filters * together


def folds(problem: Problem, c: int) -> bool:
    """Whether the input of images is folded: a stride of 2 along both axes, and four pixels fit 16
    channels.
    """
    flat = problem.size[0] == problem.window[0] == problem.dilation[1] == problem.dilation[2] == 1
    return flat and tuple(problem.stride) == (1, 2, 2) and 4 * c <= FOLDED


def folded(view: Any, w: Any, problem: Problem) -> tuple[Any, Any, Problem]:
    """Two by two pixels become the channels of one, so that the stride is 1 and the window half as
    tall and wide.
    """
    n, c, filters = view.shape[0], view.shape[-1], w.shape[0]
    _, high, wide = problem.window
    taps, across = -(-high // 2), -(-wide // 2)
    room = measured(4 * c)
    height, width = problem.out[1] + taps - 1, problem.out[2] + across - 1
    x = memory.empty((n, height, width, room), view.dtype)
    source = in_order(view).reshape(n, *problem.size[1:], c)
    fold[-(-n * height * width // UNITS), UNITS](
        source, x, problem.pad[1], problem.pad[2], c, room, mode="unchecked"
    )
    filled = memory.empty((measured(filters), taps, across * room), w.dtype)
    flat = in_order(w).reshape(filters, c, high, wide)
    fold_filters[-(-filled.size // UNITS), UNITS](flat, filled, room, mode="unchecked")
    x = strided(x, (n, height, problem.out[2], across * room), x.strides)
    smaller = replace(
        problem,
        size=(1, height, problem.out[2]),
        window=(1, taps, 1),
        stride=(1, 1, 1),
        pad=(0, 0, 0),
    )
    return x, filled, smaller


def widened(x: Any, width: int, channels: int, before: int) -> Any:
    """(N, H, width, channels): x (N, H, W, C) moved by `before` along the width, with zeros around
    it.
    """
    out = memory.empty((*x.shape[:2], width, channels), x.dtype)
    lanes = math.gcd(channels, MEASURE)
    widen[-(-out.size // lanes // UNITS), UNITS](x, out, before, lanes, mode="unchecked")
    return out


def filters_of(w: Any, channels: int, inner: int) -> Any:
    """(F, T, channels) of w (F, C, T, V), F a multiple of 8: a tap's V rows of C values have
    `inner` pixels each.
    """
    out = memory.empty((measured(w.shape[0]), w.shape[2], channels), w.dtype)
    lay_filters[-(-out.size // MEASURE // UNITS), UNITS](w, out, inner, mode="unchecked")
    return out


def in_boxes(view: Any) -> Any:
    """(N, H, W, C) of images and lines, (N, D, H, W, C) of volumes, where the copy engine can take
    it: a copy if it cannot take the array itself.
    """
    steps = [s for n, s in zip(view.shape[:-1], view.strides[:-1], strict=True) if n != 1]
    fits = view.strides[-1] == view.itemsize and all(s > 0 and s % ALIGNMENT == 0 for s in steps)
    if not fits or address(view) % ALIGNMENT:
        view = starting_well(in_order(view))
    if view.ndim > 3:
        return view
    n, length, c = view.shape
    return strided(view, (n, 1, length, c), (view.strides[0], view.strides[0], *view.strides[1:]))


def starting_well(a: Any) -> Any:
    """A contiguous array that starts at a multiple of 16 bytes."""
    if address(a) % ALIGNMENT == 0:
        return a
    out = memory.empty(a.shape, a.dtype)
    convert_into(out, a)
    return out
