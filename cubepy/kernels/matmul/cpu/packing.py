"""Packing b into panels on a CPU."""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives.register_transpose import SIDE, transpose_lines


def pieces_of(panels: int, depth: int) -> int:
    """Into how many pieces of K to cut packing, so that few panels keep all threads busy."""
    return max(1, min(16 // panels, depth // 256))


@cb.kernel
def pack_columns(b: cb.Array, out: cb.Array, width: cb.Comptime[int], lanes: cb.Comptime[int]):
    """out[batch, panel, k, j] = b[batch, k, panel * width + j]; rows of b are neighbours in memory.

    A cube reads `SIDE` whole rows of b and writes as many rows of each panel, two panels at a time.
    One panel after the other takes three times as long, since each row is in another page.
    """
    panels, depth, columns = out.shape[1], b.shape[1], b.shape[2]
    parts = (depth + SIDE - 1) // SIDE
    first = cb.CUBE_POS % parts * SIDE
    batch = cb.CUBE_POS // parts
    whole = columns // width // 2 * 2 if depth - first >= SIDE else 0
    for panel in range(0, whole, 2):
        for r in cb.unroll(range(SIDE)):
            for q in cb.unroll(range(2)):
                pack_part(b, out, batch, panel + q, first + r, width, lanes, width)
    for panel in range(whole, panels):
        for k in range(first, cb.min(first + SIDE, depth)):
            pack_part(b, out, batch, panel, k, width, lanes, columns - panel * width)


@cb.func
def pack_part(b, out, batch, panel, k, width, lanes, valid):
    """One row of a panel, of which `valid` columns are there; the others are zero."""
    for j in cb.unroll(range(0, width, lanes)):
        line = b.load((batch, k, panel * width + j), lanes, valid=cb.max(valid - j, 0))
        out.store((batch, panel, k, j), cb.cast(line, out.dtype))


@cb.kernel
def pack_rows(b: cb.Array, out: cb.Array, pieces, width: cb.Comptime[int], lanes: cb.Comptime[int]):
    """out[batch, panel, k, j] = b[batch, panel * width + j, k]: B given transposed, as a linear
    layer's weight.
    """
    panels, depth = out.shape[1], b.shape[2]
    piece = cb.CUBE_POS % pieces
    panel = cb.CUBE_POS // pieces % panels
    batch = cb.CUBE_POS // (pieces * panels)
    steps = (depth + lanes - 1) // lanes
    for step in range(piece * steps // pieces, (piece + 1) * steps // pieces):
        k = step * lanes
        for j in range(0, width, lanes):
            rows = tuple(
                cb.cast(b.load((batch, panel * width + j + r, k), lanes), out.dtype)
                for r in cb.unroll(range(lanes))
            )
            columns = transpose_lines(rows, lanes)
            for c in cb.unroll(range(lanes)):
                if k + c < depth:
                    out.store((batch, panel, k + c, j), columns[c])
