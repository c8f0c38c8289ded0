"""Inputs and filters laid out in memory as a GPU's convolution takes them: 16 bytes are the copy engine's measure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution_routes import Problem
from cubepy.kernels.movement import transpose
from cubepy.kernels.shapes import strided
from cubepy.runtime import memory

UNITS = 128
MEASURE = 8
"""Elements of 16 bits that the copy engine counts in."""
ROW = 64
"""Channels of a step of the sum."""


@cb.kernel
def widen(x: cb.Array, out: cb.Array, before, lanes: cb.Comptime[int]):
    """out[n, h, w, c] = x[n, h, w - before, c], with zeros where x has nothing; a unit does a place."""
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    w = at % out.shape[2]
    h = at // out.shape[2] % out.shape[1]
    n = at // out.shape[2] // out.shape[1]
    if n < out.shape[0]:
        inside = w >= before and w - before < x.shape[2]
        for c in range(0, out.shape[3], lanes):
            count = x.shape[3] - c if inside else 0
            out.store((n, h, w, c), x.load((n, h, w - before, c), lanes, valid=count))


@cb.kernel
def lay_filters(w: cb.Array, out: cb.Array, inner):
    """out[f, t, v * inner + c] = w[f, c, t, v], with zeros where w has nothing; a unit does an element."""
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    j = at % out.shape[2]
    t = at // out.shape[2] % out.shape[1]
    f = at // out.shape[2] // out.shape[1]
    if f < out.shape[0]:
        c = j % inner
        v = j // inner
        if f < w.shape[0] and c < w.shape[1] and v < w.shape[3]:
            out[f, t, j] = w[f, c, t, v]
        else:
            out[f, t, j] = 0


def measured(n: int) -> int:
    """The next multiple of what the copy engine counts in."""
    return -(-n // MEASURE) * MEASURE


def laid_out(view: Any, w: Any, problem: Problem) -> tuple[Any, Any, Problem]:
    """The input (N, *size, C), filters (F, taps, C) and the convolution that they make together.

    Where the copy engine cannot take so many channels, zeros are put beside them. A window's rows of a few channels are
    taken as one tap with many: neighbours along the width are channels too, of an array whose places overlap.
    """
    n, c, filters = view.shape[0], view.shape[-1], w.shape[0]
    if c % MEASURE == 0 and filters % MEASURE == 0:
        return view, in_order(w.transpose(0, *range(2, w.ndim), 1)).reshape(filters, -1, c), problem
    _, tall, wide = problem.window
    whole = measured(c)
    unit = MEASURE // math.gcd(MEASURE, problem.stride[2])
    few = -(-c // unit) * unit
    as_rows = problem.size[0] == problem.window[0] == problem.dilation[2] == 1 and c % MEASURE != 0
    if as_rows and tall * -(-wide * few // ROW) < tall * wide * -(-whole // ROW):
        places = problem.out[2]
        unit = MEASURE // math.gcd(MEASURE, few)  # places that fill whole measures
        room = -(-((places - 1) * problem.stride[2] + wide) // unit) * unit
        x = widened(view.reshape(n, *problem.size[1:], c), room, few, problem.pad[2])
        row, place = x.strides[1], problem.stride[2] * x.strides[2]
        x = strided(x, (n, problem.size[1], places, wide * few), (x.strides[0], row, place, x.itemsize))
        taps = filters_of(w.reshape(filters, c, tall, wide), measured(wide * few), few)
        smaller = replace(
            problem, size=(1, problem.size[1], places), window=(1, tall, 1), stride=(1, problem.stride[1], 1),
            pad=(0, problem.pad[1], 0),
        )  # fmt: skip
        return x, taps, smaller
    if c != whole:
        size = view.shape[1:-1]
        flat = view.reshape(n, math.prod(size[:-1]), size[-1], c)
        view = widened(flat, size[-1], whole, 0).reshape(n, *size, whole)
    return view, filters_of(w.reshape(filters, c, -1, 1), whole, whole), problem


def widened(x: Any, width: int, channels: int, before: int) -> Any:
    """(N, H, width, channels): x (N, H, W, C) moved by `before` along the width, with zeros around it."""
    out = memory.empty((*x.shape[:2], width, channels), x.dtype)
    widen[-(-math.prod(out.shape[:3]) // UNITS), UNITS](x, out, before, math.gcd(channels, MEASURE), mode="unchecked")
    return out


def filters_of(w: Any, channels: int, inner: int) -> Any:
    """(F, T, channels) of w (F, C, T, V), F a multiple of 8: a tap's V rows of C values have `inner` places each."""
    out = memory.empty((measured(w.shape[0]), w.shape[2], channels), w.dtype)
    lay_filters[-(-out.size // UNITS), UNITS](w, out, inner, mode="unchecked")
    return out


def in_order(a: Any) -> Any:
    """The array, or a contiguous copy through shared memory."""
    return a if a.flags.c_contiguous else transpose(a, tuple(range(a.ndim)))
