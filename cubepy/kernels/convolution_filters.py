"""Filters as the CPU's convolutions take them: in panels, or as taps of groups with few filters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.kernels.arguments import float_array, placed, whole
from cubepy.kernels.convolution_plan import tile_for
from cubepy.kernels.convolution_turn import pack_filters
from cubepy.kernels.elementwise import contiguous, convert_into
from cubepy.runtime import memory

PIECES = 16  # cubes that lay filters out
FEW = 15  # filters of a group: the lanes of the kernel that makes more lie along the filters


@dataclass(frozen=True)
class PackedFilter:
    """Filters laid out for convolutions: give them as `weight` any number of times.

    Attributes:
        panels: (groups, panels, window * channels, width) f32; (groups, filters, channels, window) of groups with few.
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
    return panelled(w, groups)


def has_few(filters: int, groups: int) -> bool:
    """Whether groups have so few of all these filters that the lanes of the dense kernel would be empty."""
    return 1 < groups and filters <= FEW * groups


def _taps(w: Any, groups: int) -> Any:
    """Filters as (groups, filters of a group, channels, window) f32; depthwise, channels are neighbours in memory."""
    flat = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
    order = (3, 1, 2, 0) if flat.shape[1] == flat.shape[2] == 1 else (0, 1, 2, 3)
    taps = memory.empty(tuple(flat.shape[d] for d in order), np.float32)
    if taps.size:
        convert_into(taps, flat.transpose(order))
    return taps.transpose(order)


def panelled(w: Any, groups: int, lines: int = 0) -> PackedFilter:
    """Filters in panels for the dense kernel, `lines` lines wide (0: what suits so many filters)."""
    filters, taps = w.shape[0] // groups, math.prod(w.shape[2:])
    _, usual, lanes = tile_for(filters)
    width = (lines or usual) * lanes
    panels = -(-filters // width)
    out = memory.empty((groups, panels, taps, w.shape[1], width), np.float32)
    if out.size:
        flat = contiguous(w).reshape(groups, filters, -1)
        pieces = max(1, min(flat.shape[2] // lanes, PIECES // (groups * panels)))
        pack_filters[groups * panels * pieces, 1](flat, out, pieces, lanes, mode="unchecked")
    return PackedFilter(out.reshape(groups, panels, taps * w.shape[1], width), w.shape, groups)


def panels_of(w: Any, groups: int, lines: int = 0) -> PackedFilter:
    """Filters in panels, whatever they are in now; packed ones keep their width."""
    if isinstance(w, PackedFilter):
        if not has_few(w.shape[0], groups):
            return w
        w = contiguous(w.panels).reshape(w.shape)
    return panelled(w, groups, lines)


def taps_of(w: Any, groups: int) -> Any:
    """Filters as (groups, filters of a group, channels, window); packed ones lie in one panel of each group."""
    filters, channels = w.shape[0] // groups, w.shape[1]
    if not isinstance(w, PackedFilter):
        return contiguous(w).reshape(groups, filters, channels, -1)
    if has_few(w.shape[0], groups):
        return w.panels
    return w.panels.reshape(groups, -1, channels, w.panels.shape[3]).transpose(0, 3, 2, 1)[
        :, :filters
    ]
