"""Table look-up by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.dispatch import has_planes, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.indexing.bounds import check_indices, integers
from cubepy.kernels.indexing.gather import select_rows_of
from cubepy.kernels.indexing.gather_gpu import look_up as gather
from cubepy.kernels.movement.copy import contiguous, copy
from cubepy.runtime import memory


@repeated
def embedding(input: Any, weight: Any, *, out: Any = None) -> Any:
    """Rows of a table: `weight[input]`, as `torch.nn.functional.embedding`.

    Args:
        input: integer indices of any shape.
        weight: (entries, width).
        out: array to write, of shape (*input.shape, width).

    Raises: OutOfBoundsError: an index is negative or not below the number of entries. On a GPU,
        which is not waited for, such an index gives a row of zeros, and this error in validate mode
        or with CUBEPY_DEBUG=1. DTypeError: the indices are no integers.

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
    if not (isinstance(indices, np.ndarray) and result.size) or has_planes():
        check_indices(indices, table.shape[0], "embedding")
    if result.size:
        flat = contiguous(indices).reshape(-1)
        rows = result if result.flags.c_contiguous else memory.empty(result.shape, result.dtype)
        if has_planes():
            gather(flat, table, rows.reshape(flat.size, table.shape[1]))
        else:
            target = rows.reshape(1, flat.size, table.shape[1])
            select_rows_of(table.reshape(1, *table.shape), flat, target, "embedding")
        if rows is not result:
            copy(rows, out=result)
    return finish(result, out, wrap)
