"""Table look-up by index."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.indexing.bounds import integers
from cubepy.kernels.indexing.gather import slices


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
    slices(table[None], indices, result, "embedding")
    return finish(result, out, wrap)
