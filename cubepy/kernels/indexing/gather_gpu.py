"""Reading by index where units work in planes: a unit looks up a line of indices, so several reads
are under way.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.indexing.problem import Gather, Select
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.tune import GpuRoutine

UNITS = 256  # of a cube
STAGED = 512  # of a cube that keeps a row in shared memory
MOST = 1 << 16  # bytes of a row in shared memory: three cubes find room on a core
ROOM = 216 << 10  # bytes of shared memory of a core
CORE = 1536  # units that should find room there
MANY = 128  # rows that keep the device busy, or elements that keep a cube busy, at least
AHEAD = 4  # lines that a unit asks for at once
DENSE = (
    4  # elements of a row for each index, at most: a row with fewer is not worth reading as a whole
)


@cb.func
def positions_of(index, n, from_end: cb.Comptime[bool]):
    """A line of indices as positions; with `from_end` negative ones count from the end."""
    if from_end and index.dtype.bits < 32:  # n need not fit
        index = cb.cast(index, cb.i32)
    if from_end:
        return cb.select(index < 0, index + cb.cast(n, index.dtype), index)
    return index


@cb.kernel
def gather_lines_wide(
    x: cb.Array,
    index: cb.Array,
    out: cb.Array,
    across: cb.Comptime[int],
    from_end: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """out[b, k] = x[b, index[b, k]]; `across` units lie along a row."""
    n, m = x.shape[1], out.shape[1]
    width = across * lanes
    blocks = (m + width - 1) // width
    b = cb.CUBE_POS // blocks * (cb.CUBE_DIM // across) + cb.UNIT_POS // across
    k = multiple(cb.CUBE_POS % blocks * width + cb.UNIT_POS % across * lanes, lanes)
    if b < out.shape[0] and k < m:
        positions = positions_of(index.load((b, k), lanes, valid=m - k), n, from_end)
        line = cb.splat(x[b, positions[0]], lanes)
        for j in cb.unroll(range(1, lanes)):
            one = cb.splat(x[b, positions[j]], lanes)
            line = cb.shuffle(line, one, tuple(range(j)) + tuple(range(lanes + j, 2 * lanes)))
        out.store((b, k), line, valid=m - k)


@cb.kernel
def gather_columns_wide(
    x: cb.Array,
    index: cb.Array,
    out: cb.Array,
    across: cb.Comptime[int],
    from_end: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """out[b, j, c] = x[b, index[b, j, c], c]; `across` units lie along the columns."""
    n, m, columns = x.shape[1], out.shape[1], out.shape[2]
    width = across * lanes
    blocks = (columns + width - 1) // width
    row = cb.CUBE_POS // blocks * (cb.CUBE_DIM // across) + cb.UNIT_POS // across
    c = multiple(cb.CUBE_POS % blocks * width + cb.UNIT_POS % across * lanes, lanes)
    b = row // m
    if b < out.shape[0] and c < columns:
        where = (b, row % m, c)
        positions = positions_of(index.load(where, lanes, valid=columns - c), n, from_end)
        line = cb.splat(x[b, positions[0], c], lanes)
        for j in cb.unroll(range(1, lanes)):
            one = cb.splat(x[b, positions[j], c + j], lanes)
            line = cb.shuffle(line, one, tuple(range(j)) + tuple(range(lanes + j, 2 * lanes)))
        out.store(where, line, valid=columns - c)


@cb.func
def fill_core(size: cb.Comptime[int], dtype: cb.Comptime):
    """As many cubes on a core as have room for their shared memory: some wait for memory while
    others work.
    """
    if "mma" in cb.device_properties().features:
        cb.resident(max(1, min(CORE // cb.CUBE_DIM, ROOM // (size * dtype.itemsize))))


@cb.func
def load_row(row, x, b, lanes: cb.Comptime[int]):
    """row[k] = x[b, k]; a unit asks for several lines before it stores the first."""
    n = x.shape[1]
    hop = cb.CUBE_DIM * lanes
    first = cb.UNIT_POS * lanes
    whole = n // (hop * AHEAD) * (hop * AHEAD)
    for begin in range(0, whole, hop * AHEAD):
        lines = ()
        for j in cb.unroll(range(AHEAD)):
            lines = lines + (x.load((b, multiple(begin + first + j * hop, lanes)), lanes),)
        for j in cb.unroll(range(AHEAD)):
            row.store(multiple(begin + first + j * hop, lanes), lines[j])
    for k in range(whole + first, n, hop):
        at = multiple(k, lanes)
        row.store(at, x.load((b, at), lanes, valid=n - at))


@cb.kernel
def gather_rows_shared(
    x: cb.Array,
    index: cb.Array,
    out: cb.Array,
    from_end: cb.Comptime[bool],
    size: cb.Comptime[int],
    lanes: cb.Comptime[int],
    at_once: cb.Comptime[int],
):
    """out[b, k] = x[b, index[b, k]]; a cube reads a row of up to `size` elements in order and looks
    up what is asked for in shared memory: indices in no order would read most of the row anyway, by
    pieces of 32 bytes.
    """
    fill_core(size, x.dtype)
    row = cb.shared(size, x.dtype)
    b = cb.CUBE_POS
    n, m = x.shape[1], out.shape[1]
    load_row(row, x, b, lanes)
    cb.sync_cube()
    whole = m // at_once * at_once
    for j in range(cb.UNIT_POS * at_once, whole, cb.CUBE_DIM * at_once):
        k = multiple(j, at_once)
        positions = positions_of(index.load((b, k), at_once), n, from_end)
        line = cb.splat(inside_row(row, n, positions[0]), at_once)
        for q in cb.unroll(range(1, at_once)):
            one = cb.splat(inside_row(row, n, positions[q]), at_once)
            line = cb.shuffle(line, one, tuple(range(q)) + tuple(range(at_once + q, 2 * at_once)))
        out.store((b, k), line)
    rest = whole + cb.UNIT_POS
    if rest < m:
        out[b, rest] = inside_row(row, n, positions_of(index[b, rest], n, from_end))


@cb.func
def inside_row(row, n, position):
    """row[position], 0 where there is no such position."""
    good = position >= 0 and position < n
    return cb.select(
        good, row[cb.select(good, position, cb.cast(0, position.dtype))], cb.cast(0, row.dtype)
    )


class SharedRows(GpuRoutine):
    """A cube keeps a row in shared memory."""

    name = "shared_rows"

    def unfit(self, p: Gather, properties: cb.DeviceProperties) -> str | None:
        """Many rows of one column each, of which much is asked for."""
        (blocks, m, columns), n, bytes = p.out.shape, p.x.shape[1], p.x.itemsize
        dense = MANY <= n <= DENSE * m and n * bytes <= MOST and bytes >= 4
        many = columns == 1 and blocks >= 2 * MANY
        return None if many and dense else "for many rows with room in shared memory"

    def launch(self, p: Gather, properties: cb.DeviceProperties) -> None:
        """A row moves once."""
        p.check()
        x, index, out = (a[:, :, 0] for a in (p.x, contiguous(p.index), contiguous(p.out)))
        size, at_once = power_of_two(x.shape[1]), line_of(out) if line_of(index) > 1 else 1
        units = min(STAGED, max(64, size // 16))
        gather_rows_shared[out.shape[0], units](
            x, index, out, p.from_end, size, line_of(x), at_once, mode="unchecked"
        )


class Wide(GpuRoutine):
    """A unit looks up a line of indices."""

    name = "wide"

    def launch(self, p: Gather, properties: cb.DeviceProperties) -> None:
        """Units lie along rows, or along columns."""
        p.check()
        blocks, m, columns = p.out.shape
        single = columns == 1
        arrays = [p.x, contiguous(p.index), contiguous(p.out)]
        arrays = [a[:, :, 0] for a in arrays] if single else arrays
        lanes = line_of(arrays[2]) if line_of(arrays[1]) > 1 else 1  # of the result
        along, rows = (m, blocks) if single else (columns, blocks * m)
        across = min(UNITS, power_of_two(-(-along // lanes)))
        cubes = -(-along // (across * lanes)) * -(-rows // (UNITS // across))
        kernel = gather_lines_wide if single else gather_columns_wide
        kernel[cubes, UNITS](*arrays, across, p.from_end, lanes, mode="checked")


@cb.kernel
def gather_rows_wide(
    indices: cb.Array,
    table: cb.Array,
    out: cb.Array,
    lanes: cb.Comptime[int],
    across: cb.Comptime[int],
    ahead: cb.Comptime[int],
    along: cb.Comptime[bool],
):
    """out[i] = table[indices[i]]; `across` units lie along a row, the others of a cube along the
    indices. A unit asks for `ahead` lines before it stores the first: `along` one row that is
    longer than a cube is wide, else of several.
    """
    hop = across * lanes
    down = cb.CUBE_DIM // across
    n = out.shape[1]
    if along:
        blocks = (n + hop * ahead - 1) // (hop * ahead)
        i = cb.CUBE_POS // blocks
        k = multiple(cb.CUBE_POS % blocks * (hop * ahead) + cb.UNIT_POS * lanes, lanes)
        row = indices[i]
        if k + hop * (ahead - 1) + lanes <= n:
            lines = ()
            for j in cb.unroll(range(ahead)):
                lines = lines + (table.load((row, k + j * hop), lanes),)
            for j in cb.unroll(range(ahead)):
                out.store((i, k + j * hop), lines[j])
        else:
            for at in range(k, n, hop):
                out.store((i, at), table.load((row, at), lanes))
    else:
        k = multiple(cb.UNIT_POS % across * lanes, lanes)
        i = cb.CUBE_POS * (down * ahead) + cb.UNIT_POS // across
        if k < n and i + down * (ahead - 1) < indices.size:
            rows = ()
            for j in cb.unroll(range(ahead)):
                rows = rows + (indices[i + j * down],)
            lines = ()
            for j in cb.unroll(range(ahead)):
                lines = lines + (table.load((rows[j], k), lanes),)
            for j in cb.unroll(range(ahead)):
                out.store((i + j * down, k), lines[j])
        elif k < n:
            for at in range(i, cb.min(i + down * ahead, indices.size), down):
                out.store((at, k), table.load((indices[at], k), lanes))


class LookUp(GpuRoutine):
    """Rows of a table, several lines of a unit under way."""

    name = "look_up"

    def unfit(self, p: Select, properties: cb.DeviceProperties) -> str | None:
        """One table."""
        return None if p.what == "embedding" else "for embeddings"

    def launch(self, p: Select, properties: cb.DeviceProperties) -> None:
        """Units lie along a row, or rows."""
        p.check()
        look_up(p.index, p.x[0], p.out[0])


def look_up(indices: Any, table: Any, target: Any) -> None:
    """Rows of a table by index."""
    lanes = line_of(table, target)
    n = target.shape[1]
    across = min(UNITS, power_of_two(-(-n // lanes)))
    along = n > UNITS * lanes
    if along:
        cubes = -(-n // (UNITS * lanes * AHEAD)) * indices.size
    else:
        cubes = -(-indices.size // (UNITS // across * AHEAD))
    gather_rows_wide[cubes, UNITS](
        indices, table, target, lanes, across, AHEAD, along, mode="checked"
    )
