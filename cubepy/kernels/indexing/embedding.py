"""Table look-up by index, and sums of rows by index."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.indexing.bounds import integers
from cubepy.kernels.indexing.gather import slices
from cubepy.kernels.indexing.scatter import index_put
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory

UNITS = 64  # of a cube
MOST = 4096  # indices, of each of which all others are looked at
LARGE = 4  # times as many rows as indices: a table is large


@repeated
def embedding(input: Any, weight: Any, *, out: Any = None) -> Any:
    """Rows of a table: `weight[input]`, as `torch.nn.functional.embedding`.

    Args:
        input: integer indices of any shape.
        weight: (entries, width).
        out: array to write, of shape (*input.shape, width).

    Raises:
        OutOfBoundsError: an index is negative or not below the number of entries. On a GPU, which
            is not waited for, such an index gives a row of zeros, and this error in validate mode
            or with CUBEPY_DEBUG=1.
        DTypeError: the indices are no integers.

    Example:
        >>> import numpy as np
        >>> embedding(np.array([2, 0]), np.array([[1, 1], [2, 2], [3, 3]], np.float32))
        array([[3., 3.],
               [1., 1.]], dtype=float32)
    """
    wrap, table = wrapper(weight, input), array_of(weight, "weight")
    if table.ndim != 2:
        raise ShapeError(f"an embedding table has rank 2, not shape {table.shape}")
    indices = integers(array_of(input, "input"), "embedding")
    result = output(out, (*indices.shape, table.shape[1]), table.dtype, table)
    slices(table[None], indices, result, "embedding")
    return finish(result, out, wrap)


@cb.kernel
def first_equal(indices: cb.Array, out: cb.Array, rows):
    """out[j] = the first k with indices[k] = indices[j]; negative ones count from the end of
    `rows`. A cube does one.
    """
    best = cb.shared(1, cb.i32)
    j = cb.CUBE_POS
    if cb.UNIT_POS == 0:
        best[0] = cb.cast(j, cb.i32)
    cb.sync_cube()
    mine = counted(indices[j], rows)
    for k in range(cb.UNIT_POS, j, cb.CUBE_DIM):
        if counted(indices[k], rows) == mine:
            cb.atomic_min(best, 0, cb.cast(k, cb.i32))
    cb.sync_cube()
    if cb.UNIT_POS == 0:
        out[j] = best[0]


@cb.func
def counted(index, rows):
    """An index from the beginning."""
    i = cb.cast(index, cb.i64)
    return cb.select(i < 0, i + rows, i)


def rows_summed(values: Any, indices: Any, rows: int) -> Any:
    """The sums of rows of `values` (count, width) by index, (rows, width), of narrow floats on a
    GPU.

    Few rows of a large table are summed up in f32 by themselves, each where its index comes first,
    so that nothing of the table but zeros is written; several of one index write the same.
    """
    count, width = values.shape
    first = memory.empty((count,), np.int32)
    first_equal[count, UNITS](indices, first, rows, mode="unchecked")
    sums = memory.empty((count, width), np.float32)
    sums[...] = 0
    index_put(sums, (first,), values, "add", out=sums)
    found = memory.empty((count, width), values.dtype)
    found[...] = embedding(first, sums)
    out = memory.empty((rows, width), values.dtype)
    out[...] = 0
    return index_put(out, (indices,), found, "assign", out=out)


def is_large(values: Any, rows: int) -> bool:
    """Whether `rows_summed` is meant for such values."""
    count, dtype = values.shape[0], as_dtype(values.dtype)
    narrow = dtype.is_float and dtype.bits < 32 and not isinstance(values, np.ndarray)
    return narrow and 0 < count <= MOST and rows >= LARGE * count
