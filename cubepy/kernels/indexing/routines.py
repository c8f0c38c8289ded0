"""The routines of reading and writing by index, in order of preference; and whole rows by index."""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy.kernels.indexing import gather_cpu, gather_gpu
from cubepy.kernels.indexing.problem import Gather, Select
from cubepy.kernels.indexing.scatter_gpu import SharedRows
from cubepy.kernels.indexing.scatter_kernels import (
    Atomic,
    Columns,
    Copied,
    PutAtomic,
    PutLines,
    PutRows,
    Row,
)
from cubepy.kernels.primitives.vector_width import lanes_on
from cubepy.tune import Op, Routine

UNITS = 256  # that share a row, at most


@cb.kernel
def select_rows(
    x: cb.Array,
    index: cb.Array,
    out: cb.Array,
    from_end: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """out[b, j] = x[b, index[j]], row by row; the units of a cube share a row."""
    m = out.shape[1]
    j = cb.CUBE_POS % m
    b = cb.CUBE_POS // m
    row = gather_gpu.positions_of(index[j], x.shape[1], from_end)
    for c in range(cb.UNIT_POS * lanes, out.shape[2], cb.CUBE_DIM * lanes):
        out.store((b, j, c), x.load((b, row, c), lanes))


class OneColumn(Routine):
    """Rows of one element, each of which would be a cube: a gather."""

    name = "one_column"

    def supports(self, p: Select, properties: cb.DeviceProperties) -> str | None:
        """One column."""
        return None if p.out.shape[2] == 1 else "rows have several elements"

    def launch(self, p: Select, properties: cb.DeviceProperties) -> None:
        """The same indices for all blocks."""
        index = np.broadcast_to(p.index, p.out.shape[:2])[:, :, None]
        GATHER.run(Gather(p.x, index, p.out, p.what, p.from_end))


class Rows(Routine):
    """A cube does a row."""

    name = "rows"

    def launch(self, p: Select, properties: cb.DeviceProperties) -> None:
        """Indices outside give zero."""
        p.check()
        (blocks, m, columns), lanes = p.out.shape, lanes_on(properties, p.x)
        units = min(UNITS, max(32, columns // lanes)) if properties.plane_size > 1 else 1
        select_rows[blocks * m, units](p.x, p.index, p.out, p.from_end, lanes, mode="checked")


GATHER = Op(
    "gather",
    [gather_gpu.SharedRows(), gather_gpu.Wide(), gather_cpu.Lines(), gather_cpu.Elements()],
)
SELECT = Op("select", [gather_gpu.LookUp(), OneColumn(), gather_cpu.Slices(), Rows()])
SCATTER = Op("scatter", [SharedRows(), Copied(), Atomic(), Row(), Columns()])
INDEX_PUT = Op("index_put", [PutAtomic(), PutLines(), PutRows()])
