"""Reading by index on a CPU."""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy.kernels.indexing.bounds import Look, outside
from cubepy.kernels.indexing.gather_gpu import positions_of
from cubepy.kernels.indexing.problem import Gather, Select
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.vector_width import STREAMING_BYTES, aligned, lanes_on
from cubepy.tune import CpuRoutine

CHUNK = 4096  # elements of a cube
LANES = 8  # elements that are picked for a line
FEW = (
    1 << 15
)  # elements of rows that one thread copies before another one is awake; the table may be large
AHEAD = 2  # rows that are asked for before they are read


@cb.kernel
def gather_elements(
    x: cb.Array,
    index: cb.Array,
    out: cb.Array,
    chunk,
    single: cb.Comptime[bool],
    from_end: cb.Comptime[bool],
):
    """out[b, j, c] = x[b, index[b, j, c], c]; `single`: there is one column. Neighbouring units do
    neighbours.
    """
    n, m, columns = x.shape[1], out.shape[1], out.shape[2]
    run = m * columns
    chunks = (run + chunk - 1) // chunk
    b = cb.CUBE_POS // chunks
    first = (cb.CUBE_POS % chunks) * chunk
    for k in range(first + cb.UNIT_POS, cb.min(first + chunk, run), cb.CUBE_DIM):
        if single:
            out[b, k, 0] = x[b, positions_of(index[b, k, 0], n, from_end), 0]
        else:
            j = k // columns
            c = k % columns
            out[b, j, c] = x[b, positions_of(index[b, j, c], n, from_end), c]


@cb.func
def picked_line(x, b, positions, first, lanes: cb.Comptime[int]):
    """x[b, positions[0]], x[b, positions[1]], ...; or, where x has columns, x[b, positions[j],
    first + j].
    """
    line = cb.splat(x[b, positions[0]] if first is None else x[b, positions[0], first], lanes)
    for j in cb.unroll(range(1, lanes)):
        value = x[b, positions[j]] if first is None else x[b, positions[j], first + j]
        line = cb.shuffle(
            line,
            cb.splat(value, lanes),
            tuple(range(j)) + (lanes + j,) + tuple(range(j + 1, lanes)),
        )
    return line


@cb.kernel
def gather_lines(
    x: cb.Array,
    index: cb.Array,
    out: cb.Array,
    chunk,
    flag: cb.Array,
    bounds,
    look: cb.Comptime[int],
    from_end: cb.Comptime[bool],
    lanes: cb.Comptime[int],
    streaming: cb.Comptime[bool],
):
    """out[b, k] = x[b, index[b, k]] for one unit, eight loads a line; a chunk with an index outside
    is left out.

    With `streaming` lines are stored past the caches; they are aligned.
    """
    n, m = x.shape[1], out.shape[1]
    chunks = (m + chunk - 1) // chunk
    b = cb.CUBE_POS // chunks
    first = (cb.CUBE_POS % chunks) * chunk
    stop = cb.min(first + chunk, m)
    if outside(index, b, first, stop, bounds, look):
        flag[0] = 1
        stop = first
    whole = first + (stop - first) // lanes * lanes
    for k in range(first, whole, lanes):
        positions = positions_of(index.load((b, k), lanes), n, from_end)
        line = picked_line(x, b, positions, None, lanes)
        if streaming:
            out.store_stream((b, k), line)
        else:
            out.store((b, k), line)
    for k in range(whole, stop):
        out[b, k] = x[b, positions_of(index[b, k], n, from_end)]


@cb.kernel
def gather_columns(
    x: cb.Array,
    index: cb.Array,
    out: cb.Array,
    rows,
    flag: cb.Array,
    bounds,
    look: cb.Comptime[int],
    from_end: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """out[b, j, c] = x[b, index[b, j * columns + c], c] for one unit, `rows` rows a cube; see
    `gather_lines`.
    """
    n, m, columns = x.shape[1], out.shape[1], out.shape[2]
    groups = (m + rows - 1) // rows
    b = cb.CUBE_POS // groups
    first = (cb.CUBE_POS % groups) * rows
    stop = cb.min(first + rows, m)
    whole = columns // lanes * lanes
    if outside(index, b, first * columns, stop * columns, bounds, look):
        flag[0] = 1
        stop = first
    for j in range(first, stop):
        for c in range(0, whole, lanes):
            positions = positions_of(index.load((b, j * columns + c), lanes), n, from_end)
            out.store((b, j, c), picked_line(x, b, positions, c, lanes))
        for c in range(whole, columns):
            out[b, j, c] = x[b, positions_of(index[b, j * columns + c], n, from_end), c]


@cb.kernel
def select_slices(
    x: cb.Array,
    index: cb.Array,
    out: cb.Array,
    rows,
    flag: cb.Array,
    bounds,
    look: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """out[b, j] = x[b, index[0, j]] for one unit, `rows` rows a cube; see `gather_lines`.

    Rows lie anywhere: nobody but the kernel can ask in time for what is read next.
    """
    m, columns = out.shape[1], out.shape[2]
    groups = (m + rows - 1) // rows
    b = cb.CUBE_POS // groups
    first = (cb.CUBE_POS % groups) * rows
    stop = cb.min(first + rows, m)
    whole = columns // lanes * lanes
    if outside(index, 0, first, stop, bounds, look):
        flag[0] = 1
        stop = first
    for j in range(first, stop):
        row = index[0, j]
        after = index[0, cb.min(j + AHEAD, stop - 1)]
        for c in range(0, whole, lanes):
            x.prefetch((b, after, c))
            out.store((b, j, c), x.load((b, row, c), lanes))
        if whole < columns:
            out.store(
                (b, j, whole),
                x.load((b, row, whole), lanes, valid=columns - whole),
                valid=columns - whole,
            )


class Host(CpuRoutine):
    """A routine whose kernels look at the indices themselves, in the memory of the host."""

    def unfit(self, p: Gather | Select, properties: cb.DeviceProperties) -> str | None:
        """Indices elsewhere."""
        return None if isinstance(p.index, np.ndarray) else "for indices on the host"


class Lines(Host):
    """Several elements a line: of one column, or along the columns."""

    name = "lines"

    def launch(self, p: Gather, properties: cb.DeviceProperties) -> None:
        """Large columns are stored past the caches. One element of each of many rows is one of each
        column of the rows turned.
        """
        blocks, m, columns = p.out.shape
        if columns == 1 and m == 1:
            many, rest = divmod(blocks, CHUNK)
            self.turned(p, 0, many, CHUNK)
            self.turned(p, many * CHUNK, 1, rest)
            return
        look = p.look()
        if columns == 1:
            x, index, out = (a[:, :, 0] for a in (p.x, p.index, p.out))
            stream = out.nbytes >= STREAMING_BYTES and m % LANES == 0 and aligned(out, LANES)
            gather_lines[blocks * -(-m // CHUNK), 1](
                x, index, out, CHUNK, *look.arguments, p.from_end, LANES, stream, mode="unchecked"
            )
        else:
            rows, index = max(1, CHUNK // columns), p.index.reshape(blocks, -1)
            gather_columns[blocks * -(-m // rows), 1](
                p.x, index, p.out, rows, *look.arguments, p.from_end, LANES, mode="unchecked"
            )
        look.done()

    def turned(self, p: Gather, first: int, cubes: int, rows: int) -> None:
        """One element of each of some rows."""
        if cubes * rows:
            part = p._replace(index=p.index[first : first + cubes * rows])
            look, index = part.look(), part.index.reshape(cubes, rows)
            x, out = (
                a[first : first + cubes * rows].reshape(cubes, rows, -1) for a in (p.x, p.out)
            )
            how = (1, *look.arguments, p.from_end, LANES)
            gather_columns[cubes, 1](
                x.transpose(0, 2, 1), index, out.transpose(0, 2, 1), *how, mode="unchecked"
            )
            look.done()


class Elements(CpuRoutine):
    """One element after the other."""

    name = "elements"

    def launch(self, p: Gather, properties: cb.DeviceProperties) -> None:
        """Indices outside give zero."""
        p.check()
        blocks, m, columns = p.out.shape
        gather_elements[blocks * -(-m * columns // CHUNK), 1](
            p.x, contiguous(p.index), p.out, CHUNK, columns == 1, p.from_end, mode="checked"
        )


class Slices(Host):
    """Rows, the next of which are asked for while one is copied."""

    name = "slices"

    def launch(self, p: Select, properties: cb.DeviceProperties) -> None:
        """A cube does some rows."""
        blocks, m, columns = p.out.shape
        rows, lanes = (
            m if p.out.size <= FEW else max(1, CHUNK // columns),
            lanes_on(properties, p.x),
        )
        index, look = p.index.reshape(1, -1), Look(p.index, p.x.shape[1], p.what)
        select_slices[blocks * -(-m // rows), 1](
            p.x, index, p.out, rows, *look.arguments, lanes, mode="unchecked"
        )
        look.done()
