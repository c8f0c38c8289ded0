"""Copies whose axes are swapped, on a CPU: tiles are transposed in registers, so that both sides
are read and written along their rows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.elementwise.problem import Map
from cubepy.kernels.entry.shapes import strided
from cubepy.kernels.primitives.register_transpose import transpose_lines
from cubepy.runtime import memory
from cubepy.runtime.memory.address import address
from cubepy.tune import CpuRoutine

FEW = 4  # lines that are interleaved with each other
CHUNK = 4096  # positions of them that a cube does
SIDE = 256  # bytes (of narrow elements half or a quarter) that a cube does along each axis


@cb.kernel
def transpose_tiles(
    x: cb.Array,
    out: cb.Array,
    lanes: cb.Comptime[int],
    tile: cb.Comptime[int],
    group: cb.Comptime[int] = 1,
    streaming: cb.Comptime[bool] = False,
):
    """out[..., i, j] = x[..., j, i]; neighbours lie along the last axis of both.

    A cube does `tile` squares each way; `group` squares, which are a line of the cache in `out`,
    are written together. With `streaming` they are stored past the caches, for lines that are
    aligned.
    """
    last = out.ndim - 1
    side = lanes * tile
    across = (out.shape[last] + side - 1) // side
    down = (out.shape[last - 1] + side - 1) // side
    j0 = (cb.CUBE_POS % across) * side
    i0 = ((cb.CUBE_POS // across) % down) * side
    lead = cb.unravel(cb.CUBE_POS // (across * down), out.shape[: last - 1])
    for j in range(j0, cb.min(j0 + side, out.shape[last]), group * lanes):
        for i in range(i0, cb.min(i0 + side, out.shape[last - 1]), lanes):
            if i + lanes <= out.shape[last - 1] and j + group * lanes <= out.shape[last]:
                for h in cb.unroll(range(group)):
                    transpose_square(x, out, lead, i, j + h * lanes, lanes, streaming)
            else:
                for k in range(j, cb.min(j + group * lanes, out.shape[last]), lanes):
                    transpose_edge(x, out, lead, i, k, lanes)


@cb.func
def transpose_square(x, out, lead, i, j, lanes: cb.Comptime[int], streaming: cb.Comptime[bool]):
    """out[..., i + c, j + r] = x[..., j + r, i + c] for lanes x lanes positions."""
    rows = tuple(x.load(lead + (j + r, i), lanes) for r in cb.unroll(range(lanes)))
    columns = transpose_lines(rows, lanes)
    for c in cb.unroll(range(lanes)):
        if streaming:
            out.store_stream(lead + (i + c, j), columns[c])
        else:
            out.store(lead + (i + c, j), columns[c])


@cb.func
def transpose_edge(x, out, lead, i, j, lanes: cb.Comptime[int]):
    """The same for those of the positions that are there."""
    last = out.ndim - 1
    rows = ()
    for r in cb.unroll(range(lanes)):
        row = cb.min(j + r, out.shape[last] - 1)
        rows = rows + (x.load(lead + (row, i), lanes, valid=out.shape[last - 1] - i),)
    columns = transpose_lines(rows, lanes)
    for c in cb.unroll(range(lanes)):
        if i + c < out.shape[last - 1]:
            out.store(lead + (i + c, j), columns[c], valid=out.shape[last] - j)


def interleaved(m: int, k: int, few: int, lanes: int) -> tuple[int, ...]:
    """Lanes of the m-th of `few` lines that hold lane after lane of all lines, from those before
    the k-th and the k-th.
    """
    positions = range(m * lanes, (m + 1) * lanes)
    if k == 1:
        return tuple(e // few + (lanes if e % few else 0) for e in positions)
    return tuple(lanes + e // few if e % few == k else n for n, e in enumerate(positions))


def deinterleaved(m: int, k: int, few: int, lanes: int) -> tuple[int, ...]:
    """The reverse: lanes of the m-th line from those of the lines before the k-th and the k-th."""
    positions = [n * few + m for n in range(lanes)]
    if k == 1:
        return tuple(min(e, 2 * lanes - 1) for e in positions)
    return tuple(e % lanes + lanes if e // lanes == k else n for n, e in enumerate(positions))


@cb.func
def mixed(lines, m: cb.Comptime[int], order: cb.Comptime, lanes: cb.Comptime[int]):
    """One line of lanes of several."""
    line = cb.shuffle(lines[0], lines[1], order(m, 1, len(lines), lanes))
    for k in cb.unroll(range(2, len(lines))):
        line = cb.shuffle(line, lines[k], order(m, k, len(lines), lanes))
    return line


@cb.kernel
def interleave(
    x: cb.Array,
    out: cb.Array,
    few: cb.Comptime[int],
    split: cb.Comptime[bool],
    chunk,
    lanes: cb.Comptime[int],
):
    """out[b, i * few + j] = x[b, j, i], or with `split` out[b, j, i] = x[b, i * few + j]; a cube
    does `chunk` of i.

    The last lines overlap those before.
    """
    total = out.shape[2] if split else x.shape[2]
    pieces = (total + chunk - 1) // chunk
    b = cb.CUBE_POS // pieces
    first = cb.CUBE_POS % pieces * chunk
    stop = cb.min(first + chunk, total)
    for k in range(first, stop, lanes):
        i = cb.min(k, total - lanes)
        lines = ()
        for j in cb.unroll(range(few)):
            if split:
                lines = lines + (x.load((b, i * few + j * lanes), lanes),)
            else:
                lines = lines + (x.load((b, j, i), lanes),)
        for j in cb.unroll(range(few)):
            if split:
                out.store((b, j, i), mixed(lines, j, deinterleaved, lanes))
            else:
                out.store((b, i * few + j * lanes), mixed(lines, j, interleaved, lanes))


def _interleave(to: Any, back: Any, lanes: int) -> bool:
    """Copy (b, J, I) to (b, I, J) where one of them is a few."""
    if to.ndim != 3 or lanes < 4:
        return False
    flat = (
        to if to.shape[2] < to.shape[1] else back
    )  # it has few neighbours, and rows without gaps between
    few, count = flat.shape[2], flat.shape[1]
    if not (1 < few <= FEW and count >= lanes and flat.strides[1] == few * flat.itemsize):
        return False
    split = flat is back
    source, dest = (
        strided(a, (a.shape[0], count * few), (a.strides[0], a.itemsize)) if a is flat else a
        for a in (back, to)
    )
    cubes = to.shape[0] * -(-count // CHUNK)
    interleave[cubes, 1](source, dest, few, split, CHUNK, lanes, mode="unchecked")
    return True


def squares(dest: Any, source: Any) -> tuple[Any, Any] | None:
    """(..., I, J) and (..., J, I) views with unit strides at their ends, if two axes are simply
    swapped.
    """
    if dest.ndim < 2 or dest.dtype == np.bool_ or dest.strides[-1] != dest.itemsize:
        return None
    if source.strides[-1] == source.itemsize:  # neighbours stay neighbours
        return None
    inner = [d for d in range(source.ndim - 1) if source.strides[d] == source.itemsize]
    if not inner:
        return None
    d = inner[-1]
    order = [a for a in range(dest.ndim) if a not in (d, dest.ndim - 1)] + [d, dest.ndim - 1]
    to, back = dest.transpose(order), source.transpose(order)
    if to.ndim == 2:
        to, back = to[None], back[None]
    return to, back.transpose(*range(back.ndim - 2), back.ndim - 1, back.ndim - 2)


class Transposed(CpuRoutine):
    """Copies of which two axes are simply swapped."""

    name = "transposed"

    def unfit(self, p: Map, properties: cb.DeviceProperties) -> str | None:
        """Copies whose neighbours lie along another axis."""
        if not p.moves or p.dest.ndim < 2:
            return "for copies of two axes and more"
        return None if squares(p.dest, p.inputs[0]) else "axes are not simply swapped"

    def launch(self, p: Map, properties: cb.DeviceProperties) -> None:
        """A cube does some squares."""
        dest, streaming = p.dest, p.head() is not None
        pair = squares(dest, p.inputs[0])
        assert pair is not None, "the routine does not support it"
        to, back = pair
        lanes = min(properties.register_bytes // max(4, dest.itemsize), 16)
        if _interleave(to, back, lanes):
            return
        line = lanes * dest.itemsize
        streaming = streaming and all(stride % memory.ALIGNMENT == 0 for stride in to.strides[:-1])
        head, rest = divmod(-address(to) % memory.ALIGNMENT, to.itemsize) if streaming else (0, 0)
        streaming = streaming and not rest and to.shape[-1] > head
        tile = SIDE // max(4, dest.itemsize) // lanes
        group = max(1, min(memory.ALIGNMENT // line, tile))
        if streaming and head:  # the columns up to a line of the cache
            _transpose(to[..., :head], back[..., :head, :], lanes, tile, group, False)
            to, back = to[..., head:], back[..., head:, :]
        _transpose(to, back, lanes, tile, group, streaming)


def _transpose(to: Any, back: Any, lanes: int, tile: int, group: int, streaming: bool) -> None:
    """to[..., i, j] = back[..., j, i]"""
    cubes = (
        math.prod(to.shape[:-2])
        * -(-to.shape[-2] // (lanes * tile))
        * -(-to.shape[-1] // (lanes * tile))
    )
    transpose_tiles[cubes, 1](back, to, lanes, tile, group, streaming, mode="unchecked")
