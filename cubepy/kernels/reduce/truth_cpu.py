"""Whether something is true of a row, on a CPU: it is looked at no further than is needed."""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy.kernels.reduce.problem import Truth
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine

TRUTHS = 1 << 17  # elements of a row that one cube looks at


@cb.kernel
def truth_of_rows(
    x: cb.Array,
    out: cb.Array,
    every: cb.Comptime[bool],
    lanes: cb.Comptime[int],
    piece: cb.Comptime[int],
):
    """out[r, p] = whether some element of the p-th piece of a row is not 0, or with `every` whether
    none is.
    """
    pieces = out.shape[1]
    row = cb.CUBE_POS // pieces
    p = cb.CUBE_POS % pieces
    k = p * piece
    stop = cb.min(k + piece, x.shape[1])
    found = False
    while k + 4 * lanes <= stop and not found:
        a, b = x.load((row, k), lanes), x.load((row, k + lanes), lanes)
        c, d = x.load((row, k + 2 * lanes), lanes), x.load((row, k + 3 * lanes), lanes)
        if every:
            found = ((a == 0) | (b == 0) | (c == 0) | (d == 0)).any()
        else:
            found = ((a != 0) | (b != 0) | (c != 0) | (d != 0)).any()
        k = k + 4 * lanes
    while k < stop and not found:
        found = x[row, k] == 0 if every else x[row, k] != 0
        k = k + 1
    out[row, p] = cb.cast(cb.select(found, 0, 1) if every else cb.select(found, 1, 0), out.dtype)


class TruthOfRows(CpuRoutine):
    """Rows, or pieces of them, until something is found."""

    name = "rows"

    def unfit(self, p: Truth, properties: cb.DeviceProperties) -> str | None:
        """Arrays whose neighbours are looked at together."""
        return None if p.by_rows else "for rows"

    def launch(self, p: Truth, properties: cb.DeviceProperties) -> None:
        """Pieces, then what was found in them."""
        rows = p.data
        while True:
            m, n = rows.shape
            pieces = -(-n // TRUTHS)
            single = pieces == 1
            found = p.out.reshape(m, 1) if single else memory.empty((m, pieces), np.uint8)
            lanes = properties.register_bytes // rows.itemsize
            truth_of_rows[m * pieces, 1](rows, found, p.every, lanes, TRUTHS, mode="unchecked")
            if single:
                return
            rows = found
