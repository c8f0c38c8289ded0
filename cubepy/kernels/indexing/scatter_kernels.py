"""Writing by index: the kernels of every device.

Where units are not threads, one unit owns its columns and walks the indices in order: the last
assignment wins, and sums do not depend on the number of threads. On a GPU updates are atomic, in no
order, and of several assignments to one position any may win, as in torch, unless
`cb.config.deterministic` is set.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.config import config
from cubepy.kernels.indexing.problem import InPlace, Put, Scatter, room_for, rounds
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.vector_width import lanes_on
from cubepy.tune import CpuRoutine, GpuRoutine

UPDATES = ("assign", "add", "mul", "min", "max")
COLUMNS = 64  # that one unit owns
UNITS = 256
NEAR = 1 << 18  # bytes of a row that stays in a near cache between its copy and its updates
PARTS = 8  # that columns of one index list are cut into, at most, so that threads share them


@cb.func
def updated(old, new, update: cb.Comptime[str]):
    """The value of a position after an update; min and max spread NaN."""
    if update == "assign":
        return new
    if update == "add":
        return old + new
    if update == "mul":
        return old * new
    if old.dtype.is_float:
        return cb.nan_min(old, new) if update == "min" else cb.nan_max(old, new)
    return cb.min(old, new) if update == "min" else cb.max(old, new)


@cb.func
def update_at(out, b, row, c, value, update: cb.Comptime[str], atomic: cb.Comptime[bool]):
    """out[b, row, c] = updated(out[b, row, c], value), at once if other units may do the same."""
    v = cb.cast(value, out.dtype)
    if not atomic or update == "assign":
        out[b, row, c] = updated(out[b, row, c], v, update)
    elif update == "add":
        cb.atomic_add(out, (b, row, c), v)
    else:
        seen = out[b, row, c]
        trying = True
        while trying:
            before = cb.atomic_compare_exchange(out, (b, row, c), seen, updated(seen, v, update))
            trying = not (before == seen or (before != before and seen != seen))
            seen = before


@cb.kernel
def scatter_columns(
    out: cb.Array,
    index: cb.Array,
    src: cb.Array,
    update: cb.Comptime[str],
    columns: cb.Comptime[int],
):
    """out[b, index[b, j, c], c] is updated with src[b, j, c] for all j in order, by the unit that
    owns column c.
    """
    blocks = (index.shape[2] + columns - 1) // columns
    b = cb.CUBE_POS // blocks
    first = (cb.CUBE_POS % blocks) * columns
    for j in range(index.shape[1]):
        for c in range(first, cb.min(first + columns, index.shape[2])):
            update_at(out, b, index[b, j, c], c, src[b, j, c], update, False)


@cb.kernel
def scatter_row(
    x,
    out: cb.Array,
    index: cb.Array,
    src: cb.Array,
    update: cb.Comptime[str],
    lanes: cb.Comptime[int],
):
    """The same where there is one column, by a unit for each block: out[b, index[b, j]] is updated
    with src[b, j]. If there is an x, the block is copied from it before, and is in the nearest
    cache then.
    """
    b = cb.CUBE_POS
    if x is not None:
        whole = out.shape[1] // lanes * lanes
        for k in range(0, whole, lanes):
            out.store((b, k), x.load((b, k), lanes))
        for k in range(whole, out.shape[1]):
            out[b, k] = x[b, k]
    for j in range(index.shape[1]):
        position = index[b, j]
        out[b, position] = updated(out[b, position], cb.cast(src[b, j], out.dtype), update)


@cb.kernel
def scatter_elements(out: cb.Array, index: cb.Array, src: cb.Array, update: cb.Comptime[str], size):
    """The same by a unit for every element of `index`."""
    i = cb.ABSOLUTE_POS
    if i < size:
        columns = index.shape[2]
        c = i % columns
        j = (i // columns) % index.shape[1]
        b = i // (columns * index.shape[1])
        update_at(out, b, index[b, j, c], c, src[b, j, c], update, True)


@cb.kernel
def put_rows(
    out: cb.Array,
    indices,
    values: cb.Array,
    sizes,
    count,
    update: cb.Comptime[str],
    columns: cb.Comptime[int],
    atomic: cb.Comptime[bool],
    known: cb.Comptime[bool],
):
    """out[0, row, c] is updated with values[j, c], where row is the position that the j-th indices
    name together.

    With `atomic` a unit does one (j, c), else one unit does all j of its columns. `known`: the host
    has looked at the indices.
    """
    width = out.shape[2]
    if atomic:
        i = cb.ABSOLUTE_POS
        if i < count * width:
            j = i // width
            row = row_of(indices, sizes, j, known)
            if row >= 0:
                update_at(out, 0, row, i % width, values[j, i % width], update, True)
    else:
        first = cb.CUBE_POS * columns
        for j in range(count):
            row = row_of(indices, sizes, j, known)
            if row >= 0:
                for c in range(first, cb.min(first + columns, width)):
                    update_at(out, 0, row, c, values[j, c], update, False)


@cb.kernel
def put_lines(
    out: cb.Array,
    indices,
    values: cb.Array,
    sizes,
    columns,
    update: cb.Comptime[str],
    lanes: cb.Comptime[int],
):
    """The same for one unit that owns `columns` columns: out[row] is updated with values[j] for all
    j in order.
    """
    width = out.shape[1]
    first = cb.CUBE_POS * columns
    stop = cb.min(first + columns, width)
    for j in range(values.shape[0]):
        row = row_of(indices, sizes, j, True)
        for c, valid in cb.lines(first, stop, lanes):
            line = values.load((j, c), lanes, valid=valid)
            update_line(out, row, c, line, valid, update, lanes)


@cb.func
def update_line(out, row, c, line, left, update: cb.Comptime[str], lanes: cb.Comptime[int]):
    """Update out[row, c], ... with the first `left` lanes of a line."""
    line = cb.cast(line, out.dtype)
    if update != "assign":
        line = updated(out.load((row, c), lanes, valid=left), line, update)
    out.store((row, c), line, valid=left)


@cb.kernel
def put_elements(out: cb.Array, indices, values: cb.Array, sizes, update: cb.Comptime[str]):
    """The same where rows are elements, for one unit."""
    for j in range(values.shape[0]):
        position = row_of(indices, sizes, j, True)
        out[position] = updated(out[position], cb.cast(values[j], out.dtype), update)


@cb.func
def row_of(indices, sizes, j, known: cb.Comptime[bool]):
    """The row, in C order, that the j-th entries of the index lists name; negative ones count from
    the end. It is -1 where one is outside its axis, which the host has looked at if they are
    `known`.
    """
    row = cb.cast(0, cb.i64)
    inside = True
    for d in cb.unroll(range(len(indices))):
        size = cb.cast(sizes[d], cb.i64)
        at = cb.cast(indices[d][j], cb.i64)
        at = cb.select(at < 0, at + size, at)
        row = row * size + at
        if not known:
            inside = inside and at >= 0 and at < size
    if known:
        return row
    return cb.select(inside, row, cb.cast(-1, cb.i64))


class Copied(CpuRoutine):
    """A row is copied by the unit that updates it."""

    name = "copied"

    def unfit(self, p: Scatter, properties: cb.DeviceProperties) -> str | None:
        """Short contiguous rows, where the host has looked at the indices."""
        if p.out is not None and np.may_share_memory(p.out, p.x):
            return "the result is in place"
        if rounds(p.x, p.update) or p.x.dtype == np.bool_:
            return "not for narrow floats that are added up, and truth"
        near = p.x.flags.c_contiguous and p.x.shape[p.axis] * p.x.itemsize <= NEAR
        same = [n for k, n in enumerate(p.x.shape) if k != p.axis] == [
            n for k, n in enumerate(p.index.shape) if k != p.axis
        ]
        rows = near and same and math.prod(p.x.shape[p.axis + 1 :]) == 1
        host = p.index.size > 0 and isinstance(p.index, np.ndarray)
        return None if rows and host else "for short rows, all of which are indexed"

    def launch(self, p: Scatter, properties: cb.DeviceProperties) -> Any:
        """It is in the nearest cache then."""
        target = room_for(p)
        arrays = (p.x, target, contiguous(p.index), contiguous(p.src))
        rows = (a.reshape(-1, a.shape[p.axis]) for a in arrays)
        lanes = lanes_on(properties, p.x)
        scatter_row[p.x.size // p.x.shape[p.axis], 1](*rows, p.update, lanes, mode="unchecked")
        return target


class AnyOrder(InPlace, GpuRoutine):
    """A routine whose updates are atomic."""

    def unfit(self, p: Any, properties: cb.DeviceProperties) -> str | None:
        """Where their order must be fixed."""
        return "its order is not fixed" if config.deterministic else None


class Atomic(AnyOrder):
    """A unit does one index."""

    name = "atomic"

    def change(self, p: Scatter, work: Any, properties: cb.DeviceProperties) -> None:
        """In any order."""
        size = p.index.size
        scatter_elements[-(-size // UNITS), UNITS](*p.blocks(work), p.update, size, mode="checked")


class Row(InPlace, CpuRoutine):
    """A unit does a block of one column."""

    name = "row"

    def unfit(self, p: Scatter, properties: cb.DeviceProperties) -> str | None:
        """One column, where the host has looked at the indices."""
        single = math.prod(p.index.shape[p.axis + 1 :]) == 1 and isinstance(p.index, np.ndarray)
        return None if single else "for one column, and indices on the host"

    def change(self, p: Scatter, work: Any, properties: cb.DeviceProperties) -> None:
        """In order."""
        blocks = [a.reshape(len(a), -1) for a in p.blocks(work)]
        scatter_row[len(blocks[0]), 1](None, *blocks, p.update, 1, mode="unchecked")


class Columns(InPlace):
    """A unit owns some columns."""

    name = "columns"

    def change(self, p: Scatter, work: Any, properties: cb.DeviceProperties) -> None:
        """In order."""
        blocks, columns = p.blocks(work), owned(properties)
        cubes = blocks[0].shape[0] * -(-blocks[1].shape[2] // columns)
        known = "unchecked" if isinstance(p.index, np.ndarray) else "checked"
        scatter_columns[cubes, 1](*blocks, p.update, columns, mode=known)


def owned(properties: cb.DeviceProperties) -> int:
    """Columns that one unit owns: on a GPU there are units enough for one each."""
    return 1 if properties.plane_size > 1 else COLUMNS


class PutAtomic(AnyOrder):
    """A unit does one element of what is put."""

    name = "atomic"

    def change(self, p: Put, work: Any, properties: cb.DeviceProperties) -> None:
        """In any order."""
        put(p, work, -(-p.src.size // UNITS), UNITS, 1, True)


class PutLines(InPlace, CpuRoutine):
    """A unit owns some columns, and does a line, or the only one, at a time."""

    name = "lines"

    def unfit(self, p: Put, properties: cb.DeviceProperties) -> str | None:
        """Truth, which has no lines, and indices elsewhere."""
        fits = p.known and p.x.dtype != np.bool_
        return None if fits else "for numbers, and indices on the host"

    def change(self, p: Put, work: Any, properties: cb.DeviceProperties) -> None:
        """In order."""
        lanes, width = lanes_on(properties, work, p.src), p.src.shape[1]
        if width == 1:
            flat = (work.reshape(-1), p.lists, p.src.reshape(-1), p.sizes)
            put_elements[1, 1](*flat, p.update, mode="unchecked")
        else:
            columns = -(-width // (PARTS * lanes)) * lanes
            rest, work = (p.sizes, columns, p.update, lanes), work.reshape(-1, width)
            put_lines[-(-width // columns), 1](work, p.lists, p.src, *rest, mode="unchecked")


class PutRows(InPlace):
    """A unit owns some columns."""

    name = "rows"

    def change(self, p: Put, work: Any, properties: cb.DeviceProperties) -> None:
        """In order."""
        columns = owned(properties)
        put(p, work, -(-p.src.shape[1] // columns), 1, columns, False)


def put(p: Put, work: Any, cubes: int, units: int, columns: int, atomic: bool) -> None:
    """Launch `put_rows`."""
    count, width = p.src.shape
    rest = (p.sizes, count, p.update, columns, atomic, p.known)
    put_rows[cubes, units](work.reshape(1, -1, width), p.lists, p.src, *rest, mode="checked")
