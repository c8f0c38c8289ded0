"""Table look-up by index."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, OutOfBoundsError, ShapeError
from cubepy.kernels.arguments import array_of, finish, output, placed, wrapper
from cubepy.kernels.cube_wide import has_planes
from cubepy.kernels.elementwise import contiguous, lanes_for
from cubepy.kernels.pool_cubes import gather


@cb.kernel
def gather_rows(indices: cb.Array, table: cb.Array, out: cb.Array, lanes: cb.Comptime[int], rows: cb.Comptime[int]):
    """out[i] = table[indices[i]]"""
    for i in range(cb.CUBE_POS * rows, cb.min((cb.CUBE_POS + 1) * rows, indices.size)):
        row = indices[i]
        for k in range(0, table.shape[1], lanes):
            out.store((i, k), table.load((row, k), lanes))


@placed
def embedding(input: Any, weight: Any, *, out: Any = None) -> Any:
    """Rows of a table: `weight[input]`, as `torch.nn.functional.embedding`.

    Args:
        input: integer indices of any shape.
        weight: (entries, width).
        out: array to write, of shape (*input.shape, width).

    Raises:
        OutOfBoundsError: an index is negative or not below the number of entries. On a GPU, which is not waited
            for, such an index gives a row of zeros, and an error in validate mode.
        DTypeError: the indices are no integers.
    """
    wrap, indices, table = wrapper(weight, input), array_of(input, "input"), array_of(weight, "weight")
    if indices.dtype.kind not in "iu":
        raise DTypeError(f"embedding needs integer indices, not {indices.dtype}")
    if table.ndim != 2:
        raise ShapeError(f"an embedding table has rank 2, not shape {table.shape}")
    if indices.size and isinstance(indices, np.ndarray):
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= table.shape[0]:
            raise OutOfBoundsError(
                f"the index {low if low < 0 else high} is outside the table of {table.shape[0]} entries"
            )
    result = output(out, (*indices.shape, table.shape[1]), table.dtype)
    if result.size:
        flat = contiguous(indices).reshape(-1)
        rows = result.reshape(flat.size, table.shape[1])
        if has_planes():
            gather(flat, table, rows)
        else:
            gather_rows[-(-flat.size // 16), 1](flat, table, rows, lanes_for(table), 16)
        if not np.shares_memory(rows, result):
            result[...] = rows.reshape(result.shape)
    return finish(result, out, wrap)
