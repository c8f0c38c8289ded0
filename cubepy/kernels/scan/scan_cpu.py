"""Scans along rows on a CPU: a cube is one thread's work."""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives.lines import over_lanes
from cubepy.kernels.scan.problem import Scan
from cubepy.kernels.scan.scan_gpu import prefix_line, shifted
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine

PIECE = 16384  # elements of a row that a cube of one unit scans


@cb.func
def scanned(line, running, step, nothing, exclusive: cb.Comptime[bool], lanes: cb.Comptime[int]):
    """A line after `running`, and what the next one comes after."""
    v = prefix_line(cb.cast(line, nothing.dtype), step, nothing, lanes)
    done = step(running, v)
    if exclusive:
        done = shifted(done, running[0], lanes)
    return done, step(
        running, cb.splat(v[lanes - 1], lanes)
    )  # the last lane of what is done, which comes later


@cb.kernel
def scan_rows(
    x: cb.Array,
    out: cb.Array,
    carry,
    step: cb.Comptime,
    start: cb.Comptime,
    acc: cb.Comptime,
    exclusive: cb.Comptime[bool],
    totals: cb.Comptime[bool],
    lanes: cb.Comptime[int],
    piece: cb.Comptime[int],
):
    """out[r, k] = x[r, 0] ... x[r, k] for one piece of a row, a cube of one unit each; `totals`:
    out[r, piece].
    """
    n = x.shape[1]
    pieces = (n + piece - 1) // piece
    row = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    nothing = cb.cast(start, acc)
    first = p * piece
    stop = cb.min(first + piece, n)
    if totals:
        sums = cb.splat(nothing, lanes)
        for k, valid in cb.lines(first, stop, lanes):
            v = cb.cast(x.load((row, k), lanes, valid=valid), acc)
            sums = step(sums, v if valid == lanes else cb.keep_first(v, valid, nothing))
        out[row, p] = over_lanes(sums, step, lanes)
    else:
        running = cb.splat(nothing, lanes)
        if carry is not None:
            running = cb.splat(carry[row, p], lanes)
        for k, valid in cb.lines(first, stop, lanes):
            v = x.load((row, k), lanes, valid=valid)
            done, running = scanned(v, running, step, nothing, exclusive, lanes)
            out.store((row, k), cb.cast(done, out.dtype), valid=valid)


class Rows(CpuRoutine):
    """Rows by pieces of a thread: their totals, a scan of these, then each piece behind what comes
    before it.
    """

    name = "rows"

    def unfit(self, p: Scan, properties: cb.DeviceProperties) -> str | None:
        """Rows."""
        return None if p.by_rows else "for rows"

    def launch(self, p: Scan, properties: cb.DeviceProperties) -> None:
        """Whole rows where they are many."""
        m, n = p.x.shape
        lanes = max(1, properties.register_bytes // max(p.x.itemsize, p.acc.itemsize))
        piece = PIECE if m < 64 else max(PIECE, 1 << (n - 1).bit_length())
        pieces, before = -(-n // piece), None
        how = (*p.how, False, lanes, piece)
        if pieces > 1:
            ends = memory.empty((m, pieces), p.acc.numpy)
            before = memory.empty((m, pieces), p.acc.numpy)
            totals = (*p.how, True, lanes, piece)
            scan_rows[m * pieces, 1](p.x, ends, None, *totals, mode="unchecked")
            self.launch(p._replace(x=ends, out=before, exclusive=True), properties)
        scan_rows[m * pieces, 1](p.x, p.out, before, *how, mode="unchecked")
