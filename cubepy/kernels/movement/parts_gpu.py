"""Arrays side by side in another one, in one launch on a GPU: each alone would be a small copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.elementwise.problem import memory_order
from cubepy.kernels.entry.shapes import view_as
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of

UNITS = 256  # of a cube
AHEAD = 4  # lines that a unit reads before it writes the first
MOST_PARTS = 8


@dataclass(frozen=True)
class PartsPlan:
    """Elements of a line, and whether launches may overlap."""

    lanes: int
    early: bool = False


@cb.kernel
def copy_parts(out: cb.Array, parts, starts, plan: cb.Comptime[PartsPlan]):
    """out[r, starts[j] + k] = parts[j][r, k], in whole lines; a cube does some of one part."""
    if plan.early:
        cb.start_next()
        cb.wait_previous()
    run = cb.CUBE_DIM * AHEAD
    piece = cb.CUBE_POS
    for j in cb.unroll(range(len(parts))):
        rows, width = parts[j].shape[0], parts[j].shape[1]
        across = width // plan.lanes
        lines = rows * across
        pieces = (lines + run - 1) // run
        if 0 <= piece and piece < pieces:
            found: Any = ()
            coordinates: Any = ()
            for n in cb.unroll(range(AHEAD)):
                line = cb.min(piece * run + n * cb.CUBE_DIM + cb.UNIT_POS, lines - 1)
                row = line // across
                k = multiple((line - row * across) * plan.lanes, plan.lanes)
                coordinates = coordinates + ((row, k),)
                found = found + (parts[j].load((row, k), plan.lanes),)
            for n in cb.unroll(range(AHEAD)):
                if piece * run + n * cb.CUBE_DIM + cb.UNIT_POS < lines:
                    row, k = coordinates[n]
                    at = multiple(starts[j] + k, plan.lanes)
                    out.store((row, at), found[n])
        piece = piece - pieces


def joined(out: Any, arrays: Sequence[Any], axis: int, properties: cb.DeviceProperties) -> bool:
    """Copy arrays side by side into another one, if a launch can do eight of them; gives whether it
    was done.

    Args:
        out, arrays, axis, properties: as of `joined_at_once`.
    """
    arrays = [a for a in arrays if a.size]
    launches, at = -(-len(arrays) // MOST_PARTS), 0
    if launches < 2:
        return joined_at_once(out, arrays, axis, properties)
    for n in range(launches):
        some = arrays[n * len(arrays) // launches : (n + 1) * len(arrays) // launches]
        end = at + sum(a.shape[axis] for a in some)
        target = out[(*[slice(None)] * axis, slice(at, end))]
        if not joined_at_once(target, some, axis, properties):
            return False
        at = end
    return True


def joined_at_once(
    out: Any, arrays: Sequence[Any], axis: int, properties: cb.DeviceProperties
) -> bool:
    """Copy arrays side by side into another one, if that can be one launch; gives whether it was.

    Args:
        out: of a shape that takes all of them.
        arrays: parts along the axis.
        axis: where they are side by side.
        properties: of the device.
    """
    if any(a.dtype != out.dtype for a in arrays):
        return False
    if not 1 < len(arrays) <= MOST_PARTS or out.itemsize not in (1, 2, 4, 8):
        return False
    order = memory_order(out)
    lead, at = order[: order.index(axis)], order.index(axis)
    rows = prod(out.shape[d] for d in lead)
    try:
        whole, *flat = (
            view_as(a.transpose(order), (rows, prod(a.shape[d] for d in order[at:])))
            for a in (out, *arrays)
        )
    except AttributeError:
        return False
    if any(a.strides[1] != a.itemsize and a.shape[1] > 1 for a in (whole, *flat)):
        return False
    kind = np.dtype(f"u{out.itemsize}")
    whole, *flat = (a.view(kind) for a in (whole, *flat))
    widths = [a.shape[1] for a in flat]
    starts = tuple(accumulate(widths[:-1], initial=0))
    lanes = line_of(whole, *flat)
    while any(n % lanes for n in (*starts, *widths)) and lanes > 1:
        lanes //= 2
    plan = PartsPlan(lanes, "overlap" in properties.features)
    run = UNITS * AHEAD
    cubes = sum(-(-a.size // lanes // run) for a in flat)
    copy_parts[cubes, UNITS](whole, tuple(flat), starts, plan, mode="unchecked")
    return True
