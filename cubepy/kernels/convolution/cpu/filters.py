"""Filters as the CPU's convolutions take them: in panels, or as taps of groups with few filters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.convolution.cpu.register_tile import tile_for
from cubepy.kernels.entry.arguments import float_array, whole
from cubepy.kernels.entry.dispatch import placed, properties_here
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.primitives.register_transpose import transpose_lines
from cubepy.runtime import memory

PIECES = 16  # cubes that lay filters out
FEW = 15  # filters of a group: the lanes of the kernel that makes more lie along the filters


@dataclass(frozen=True)
class PackedFilter:
    """Filters laid out for convolutions: give them as `weight` any number of times.

    Attributes:
        panels: (groups, panels, window * channels, width) f32; (groups, filters, channels, window)
            of groups with few.
        shape: of the weight, (filters, channels of a group, *window).
        groups: number of groups.
    """

    panels: Any
    shape: tuple[int, ...]
    groups: int


@placed
def prepack_filter(weight: Any, groups: int = 1) -> PackedFilter:
    """Lay constant filters out once, so that later convolutions on the CPU need not.

    Args:
        weight: (filters, channels / groups, *window), as torch has it.
        groups: as the convolution's.

    Example:
        >>> import numpy as np
        >>> from cubepy.kernels import conv2d
        >>> w = prepack_filter(np.ones((4, 3, 1, 1), np.float32))
        >>> conv2d(np.ones((1, 3, 2, 2), np.float32), w).shape
        (1, 4, 2, 2)
    """
    w, groups = float_array(weight, "weight"), whole(groups, "groups", 1)
    if w.ndim < 3 or w.shape[0] % groups:
        raise ShapeError(f"filters of shape {w.shape} do not make {groups} groups")
    if has_few(w.shape[0], groups):
        return PackedFilter(_taps(w, groups), w.shape, groups)
    return panelled(w, groups, properties_here())


def has_few(filters: int, groups: int) -> bool:
    """Whether groups have so few of all these filters that the lanes of the dense kernel would be
    empty.
    """
    return 1 < groups and filters <= FEW * groups


def _taps(w: Any, groups: int) -> Any:
    """Filters as (groups, filters of a group, channels, window) f32; depthwise, channels are
    neighbours in memory.
    """
    flat = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
    order = (3, 1, 2, 0) if flat.shape[1] == flat.shape[2] == 1 else (0, 1, 2, 3)
    taps = memory.empty(tuple(flat.shape[d] for d in order), np.float32)
    if taps.size:
        convert_into(taps, flat.transpose(order))
    return taps.transpose(order)


def panelled(w: Any, groups: int, properties: cb.DeviceProperties, lines: int = 0) -> PackedFilter:
    """Filters in panels for the dense kernel, `lines` lines wide (0: what suits so many
    filters).
    """
    filters, taps = w.shape[0] // groups, math.prod(w.shape[2:])
    _, usual, lanes = tile_for(filters, properties)
    width = (lines or usual) * lanes
    panels = -(-filters // width)
    out = memory.empty((groups, panels, taps, w.shape[1], width), np.float32)
    if out.size:
        flat = contiguous(w).reshape(groups, filters, -1)
        pieces = max(1, min(flat.shape[2] // lanes, PIECES // (groups * panels)))
        pack_filters[groups * panels * pieces, 1](flat, out, pieces, lanes, mode="unchecked")
    return PackedFilter(out.reshape(groups, panels, taps * w.shape[1], width), w.shape, groups)


def panels_of(w: Any, groups: int, properties: cb.DeviceProperties, lines: int = 0) -> PackedFilter:
    """Filters in panels, whatever they are in now; packed ones keep their width."""
    if isinstance(w, PackedFilter):
        if not has_few(w.shape[0], groups):
            return w
        w = contiguous(w.panels).reshape(w.shape)
    return panelled(w, groups, properties, lines)


def taps_of(w: Any, groups: int) -> Any:
    """Filters as (groups, filters of a group, channels, window); packed ones lie in one panel of
    each group.
    """
    filters, channels = w.shape[0] // groups, w.shape[1]
    if not isinstance(w, PackedFilter):
        return contiguous(w).reshape(groups, filters, channels, -1)
    if has_few(w.shape[0], groups):
        return w.panels
    return w.panels.reshape(groups, -1, channels, w.panels.shape[3]).transpose(0, 3, 2, 1)[
        :, :filters
    ]


@cb.func
def transpose_square(square, lanes):
    """Local lines as the rows of a square, transposed. What is around is in loops, which compile
    quickly.
    """
    lines = tuple(square[i] for i in cb.unroll(range(lanes)))
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
                index = (group, cb.min(panel * width + j + i, filters - 1), first)
                if depth >= lanes:
                    square[i] = cb.cast(weight.load(index, lanes), out.dtype)
                else:
                    square[i] = cb.cast(weight.load(index, lanes, valid=depth), out.dtype)
            transpose_square(square, lanes)
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
    weight: cb.Array,
    out: cb.Array,
    pieces,
    last: cb.Comptime[bool],
    reverse: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """out[group, panel, tap, f, j] = weight[group, f, panel * width + j, tap]; with `last` the tap
    comes before.

    With `reverse` the taps are in reverse. What lies behind the last channel is arbitrary: nobody
    reads its products.
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
                        index = (group, f, cb.min(c + i, weight.shape[2] - 1), first)
                        if behind >= lanes:
                            square[i] = cb.cast(weight.load(index, lanes), out.dtype)
                        else:
                            square[i] = cb.cast(
                                weight.load(index, lanes, valid=taps - first), out.dtype
                            )
                    transpose_square(square, lanes)
                    for i in range(cb.min(lanes, taps - first)):
                        t = taps - 1 - first - i if reverse else first + i
                        out.store((group, panel, t, f, j), square[i])


def turned_panels(w: Any, groups: int, reverse: bool, width: int, lanes: int) -> Any:
    """Filters (in, out / groups, *window) as panels (groups, panels, taps * in / groups, width) of
    the filters of the transposed convolution, in f32.
    """
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
