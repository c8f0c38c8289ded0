"""Transposes by whole cubes, for devices with planes: a tile goes through shared memory, so that
both sides of it are read and written along their rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of

UNITS = 256  # of a cube


@dataclass(frozen=True)
class TilePlan:
    """A square tile of `side` elements, and the lanes of a line on the way in and on the
    way out.
    """

    side: int
    lanes_in: int
    lanes_out: int


@cb.kernel
def transpose_shared(x: cb.Array, out: cb.Array, plan: cb.Comptime[TilePlan]):
    """out[..., i, j] = x[..., j, i]; neighbours lie along the last axis of both."""
    tile = cb.shared((plan.side, plan.side + 1), x.dtype)
    last = out.ndim - 1
    across = (out.shape[last] + plan.side - 1) // plan.side
    down = (out.shape[last - 1] + plan.side - 1) // plan.side
    j0 = cb.CUBE_POS % across * plan.side
    i0 = cb.CUBE_POS // across % down * plan.side
    lead = cb.unravel(cb.CUBE_POS // (across * down), out.shape[: last - 1]) if last > 1 else ()
    per = plan.side // plan.lanes_in
    deep = cb.CUBE_DIM // per
    i = cb.UNIT_POS % per * plan.lanes_in
    j = cb.UNIT_POS // per
    height, width = x.shape[last - 1], x.shape[last]
    lines = ()
    for p in cb.unroll(range(plan.side // deep)):
        count = width - i0 - i if j0 + j + p * deep < height else 0
        lines = lines + (
            x.load(
                lead + (j0 + j + p * deep, multiple(i0 + i, plan.lanes_in)),
                plan.lanes_in,
                valid=count,
            ),
        )
    for p in cb.unroll(range(plan.side // deep)):
        for q in cb.unroll(range(plan.lanes_in)):
            tile[j + p * deep, i + q] = lines[p][q]
    cb.sync_cube()
    per_out = plan.side // plan.lanes_out
    deep_out = cb.CUBE_DIM // per_out
    jj = cb.UNIT_POS % per_out * plan.lanes_out
    ii = cb.UNIT_POS // per_out
    for p in cb.unroll(range(plan.side // deep_out)):
        line = cb.line(
            *tuple(tile[jj + q, ii + p * deep_out] for q in cb.unroll(range(plan.lanes_out)))
        )
        rest = out.shape[last] - j0 - jj if i0 + ii + p * deep_out < out.shape[last - 1] else 0
        out.store(
            lead + (i0 + ii + p * deep_out, multiple(j0 + jj, plan.lanes_out)), line, valid=rest
        )


@dataclass(frozen=True)
class PairPlan:
    """A tile for pairs of 16-bit elements: `height` rows of x by `width` of its words of
    32 bits.
    """

    height: int
    width: int


@cb.kernel
def transpose_pairs(x: cb.Array, out: cb.Array, plan: cb.Comptime[PairPlan]):
    """The same for 16-bit elements, two of which lie in each word of x and out: squares of 2 x 2
    elements are turned in registers, so that shared memory holds words.
    """
    half = plan.height // 2
    tile = cb.shared((2 * plan.width, half + 1), cb.u32)
    last = out.ndim - 1
    across = (out.shape[last] + half - 1) // half
    down = (x.shape[last] + plan.width - 1) // plan.width
    j0 = cb.CUBE_POS % across * half
    i0 = cb.CUBE_POS // across % down * plan.width
    lead = cb.unravel(cb.CUBE_POS // (across * down), out.shape[: last - 1]) if last > 1 else ()
    per = plan.width // 4
    deep = cb.CUBE_DIM // per
    i = cb.UNIT_POS % per * 4
    j = cb.UNIT_POS // per
    lines = ()
    for p in cb.unroll(range(half // deep)):
        row = j0 + j + p * deep
        count = x.shape[last] - i0 - i if row < out.shape[last] else 0
        for q in cb.unroll(range(2)):
            lines = lines + (x.load(lead + (2 * row + q, multiple(i0 + i, 4)), 4, valid=count),)
    for p in cb.unroll(range(half // deep)):
        low = (lines[2 * p] & 0xFFFF) | (lines[2 * p + 1] << 16)
        high = (lines[2 * p] >> 16) | (lines[2 * p + 1] & 0xFFFF0000)
        for q in cb.unroll(range(4)):
            tile[2 * (i + q), j + p * deep] = low[q]
            tile[2 * (i + q) + 1, j + p * deep] = high[q]
    cb.sync_cube()
    per_out = half // 4
    deep_out = cb.CUBE_DIM // per_out
    jj = cb.UNIT_POS % per_out * 4
    ii = cb.UNIT_POS // per_out
    for p in cb.unroll(range(2 * plan.width // deep_out)):
        line = transposed_line(tile, ii + p * deep_out, jj)
        rest = out.shape[last] - j0 - jj if 2 * i0 + ii + p * deep_out < out.shape[last - 1] else 0
        out.store(lead + (2 * i0 + ii + p * deep_out, multiple(j0 + jj, 4)), line, valid=rest)


@cb.func
def transposed_line(tile, i, j):
    """Four neighbours in a row of a tile whose rows are not aligned."""
    return cb.line(tile[i, j], tile[i, j + 1], tile[i, j + 2], tile[i, j + 3])


def transpose(dest: Any, source: Any) -> None:
    """dest[..., i, j] = source[..., j, i]; both have unit stride along their last axis."""
    if (
        dest.itemsize == 2
        and line_of(source, dest) == 8
        and source.shape[-1] % 8 == dest.shape[-1] % 8 == 0
    ):
        to, back = dest.view(np.uint32), source.view(np.uint32)
        pair = PairPlan(128, 32)
        tiles = -(-to.shape[-1] // (pair.height // 2)) * -(-back.shape[-1] // pair.width)
        transpose_pairs[math.prod(to.shape[:-2]) * tiles, UNITS](back, to, pair, mode="unchecked")
        return
    plan = TilePlan(64 if dest.itemsize > 1 else 128, line_of(source), line_of(dest))
    cubes = (
        math.prod(dest.shape[:-2])
        * -(-dest.shape[-2] // plan.side)
        * -(-dest.shape[-1] // plan.side)
    )
    transpose_shared[cubes, UNITS](source, dest, plan, mode="unchecked")
