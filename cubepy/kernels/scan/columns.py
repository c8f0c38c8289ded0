"""Scans along columns by units that stand alone: each goes down a piece of a few columns."""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.scan.problem import Scan
from cubepy.runtime import memory
from cubepy.tune import Routine

UNITS = 128  # of a cube of a GPU
LINES = 4  # registers that a unit of a CPU takes at once
SHORT = 64  # rows of a piece, at least


@cb.kernel
def scan_columns(
    x: cb.Array,
    out: cb.Array,
    carry,
    step: cb.Comptime,
    start: cb.Comptime,
    acc: cb.Comptime,
    exclusive: cb.Comptime[bool],
    totals: cb.Comptime[bool],
    lanes: cb.Comptime[int],
    piece,
):
    """out[b, k, c] = x[b, 0, c] ... x[b, k, c] for one piece of k; a unit does `lanes` columns."""
    n, columns = x.shape[1], x.shape[2]
    pieces = (n + piece - 1) // piece
    width = cb.CUBE_DIM * lanes
    blocks = (columns + width - 1) // width
    c = (cb.CUBE_POS % blocks) * width + cb.UNIT_POS * lanes
    p = (cb.CUBE_POS // blocks) % pieces
    b = cb.CUBE_POS // (blocks * pieces)
    running = cb.splat(cb.cast(start, acc), lanes)
    if carry is not None:
        running = carry.load((b, p, c), lanes)
    if c < columns:
        for k in range(p * piece, cb.min((p + 1) * piece, n)):
            v = cb.cast(x.load((b, k, c), lanes), acc)
            if exclusive:
                if not totals:
                    out.store((b, k, c), cb.cast(running, out.dtype))
            running = step(running, v)
            if not exclusive:
                if not totals:
                    out.store((b, k, c), cb.cast(running, out.dtype))
        if totals:
            out.store((b, p, c), running)


class Columns(Routine):
    """Columns by pieces: their totals, a scan of these, then each piece behind what comes before
    it.
    """

    name = "columns"

    def supports(self, p: Scan, properties: cb.DeviceProperties) -> str | None:
        """Columns, on any device."""
        return "for columns" if p.by_rows else None

    def launch(self, p: Scan, properties: cb.DeviceProperties) -> None:
        """As many pieces as keep the device busy."""
        b, n, c = p.x.shape
        if properties.plane_size > 1:
            lanes, units, wanted = 1, UNITS, 4096
        else:
            wide = properties.register_bytes // max(p.x.itemsize, p.acc.itemsize)
            lanes, units, wanted = LINES * max(1, wide), 1, 8
        blocks = -(-c // (lanes * units))
        piece = -(-n // max(1, min(wanted // (b * blocks), n // SHORT)))
        pieces, before = -(-n // piece), None
        cubes, how = b * blocks, (p.step, p.start, p.acc)
        if pieces > 1:
            ends = memory.empty((b, pieces, c), p.acc.numpy)
            before = memory.empty((b, pieces, c), p.acc.numpy)
            scan_columns[cubes * pieces, units](
                p.x, ends, None, *how, p.exclusive, True, lanes, piece, mode="checked"
            )
            scan_columns[cubes, units](
                ends, before, None, *how, True, False, lanes, pieces, mode="checked"
            )
        scan_columns[cubes * pieces, units](
            p.x, p.out, before, *how, p.exclusive, False, lanes, piece, mode="checked"
        )
