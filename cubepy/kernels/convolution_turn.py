"""Filters on the CPU, laid out in panels for the kernels of convolutions and of transposed convolutions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.elementwise import contiguous
from cubepy.kernels.matmul_kernels import transpose_lines
from cubepy.runtime import memory


@cb.func
def turn_square(square, lanes):
    """Local lines as the rows of a square, transposed. What is around is in loops, which compile quickly."""
    lines = ()
    for i in cb.unroll(range(lanes)):
        lines = lines + (square[i],)
    lines = transpose_lines(lines, lanes)
    for i in cb.unroll(range(lanes)):
        square[i] = lines[i]


@cb.kernel
def pack_filters(weight: cb.Array, out: cb.Array, pieces, lanes: cb.Comptime[int]):
    """out[group, panel, tap, c, j] = weight[group, panel * width + j, c * taps + tap].

    What lies behind the last filter is arbitrary: nobody reads its products.
    """
    panels, taps, width = out.shape[1], out.shape[2], out.shape[4]
    filters, depth = weight.shape[1], weight.shape[2]
    piece = cb.CUBE_POS % pieces
    panel = cb.CUBE_POS // pieces % panels
    group = cb.CUBE_POS // (pieces * panels)
    square = cb.local(lanes, cb.f32, lanes=lanes)
    blocks = (depth + lanes - 1) // lanes
    for block in range(piece * blocks // pieces, (piece + 1) * blocks // pieces):
        first = cb.max(0, cb.min(block * lanes, depth - lanes))
        for j in range(0, width, lanes):
            for i in range(lanes):
                place = (group, cb.min(panel * width + j + i, filters - 1), first)
                if depth >= lanes:
                    square[i] = cb.cast(weight.load(place, lanes), out.dtype)
                else:
                    square[i] = cb.cast(weight.load(place, lanes, valid=depth), out.dtype)
            turn_square(square, lanes)
            c = first // taps
            t = first - c * taps
            for i in range(cb.min(lanes, depth)):
                out.store((group, panel, t, c, j), square[i])
                t = t + 1
                if t == taps:
                    t = 0
                    c = c + 1


@cb.kernel
def pack_turned(
    weight: cb.Array, out: cb.Array, pieces, last: cb.Comptime[bool], reverse: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):  # fmt: skip
    """out[group, panel, tap, f, j] = weight[group, f, panel * width + j, tap]; with `last` the tap comes before.

    With `reverse` the taps are in reverse. What lies behind the last channel is arbitrary: nobody reads its products.
    """
    panels, taps, filters, width = out.shape[1], out.shape[2], out.shape[3], out.shape[4]
    piece = cb.CUBE_POS % pieces
    panel = cb.CUBE_POS // pieces % panels
    group = cb.CUBE_POS // (pieces * panels)
    square = cb.local(lanes, cb.f32, lanes=lanes)
    for f in range(piece * filters // pieces, (piece + 1) * filters // pieces):
        for j in range(0, width, lanes):
            c = panel * width + j
            if last:
                whole = c + lanes <= weight.shape[3]
                for t in range(taps):
                    to = (group, panel, taps - 1 - t if reverse else t, f, j)
                    if whole:  # masked loads take a multiple of the time where the caches miss
                        out.store(to, cb.cast(weight.load((group, f, t, c), lanes), out.dtype))
                    else:
                        line = weight.load((group, f, t, c), lanes, valid=weight.shape[3] - c)
                        out.store(to, cb.cast(line, out.dtype))
            else:
                behind = weight.size - (group * filters + f + 1) * weight.shape[2] * taps
                for first in range(0, taps, lanes):
                    for i in range(lanes):
                        place = (group, f, cb.min(c + i, weight.shape[2] - 1), first)
                        if behind >= lanes:
                            square[i] = cb.cast(weight.load(place, lanes), out.dtype)
                        else:
                            square[i] = cb.cast(
                                weight.load(place, lanes, valid=taps - first), out.dtype
                            )
                    turn_square(square, lanes)
                    for i in range(cb.min(lanes, taps - first)):
                        t = taps - 1 - first - i if reverse else first + i
                        out.store((group, panel, t, f, j), square[i])


def turned_panels(w: Any, groups: int, reverse: bool, width: int) -> Any:
    """Filters (in, out / groups, *window) as panels (groups, panels, taps * in / groups, width) of the filters of the
    transposed convolution, in f32."""
    lanes = cb.device_properties_of().register_bytes // 4
    taps, channels, filters = math.prod(w.shape[2:]), w.shape[1], w.shape[0] // groups
    panels = -(-channels // width)
    out = memory.empty((groups, panels, taps, filters, width), np.float32)
    order = w.transpose(0, *range(2, w.ndim), 1)
    last = taps == 1 or (order.flags.c_contiguous and not w.flags.c_contiguous)
    if last:
        seen = contiguous(order).reshape(groups, filters, taps, channels)
    else:
        seen = contiguous(w).reshape(groups, filters, channels, taps)
    pieces = max(1, min(filters, 16 // (groups * panels)))
    pack_turned[groups * panels * pieces, 1](
        seen, out, pieces, last, reverse, lanes, mode="unchecked"
    )
    return out.reshape(groups, panels, taps * filters, width)
