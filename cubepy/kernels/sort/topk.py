"""The first elements of sorted rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import whole
from cubepy.kernels.entry.dispatch import placed, repeated
from cubepy.kernels.entry.results import wrapper
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.sort.problem import Top, keys_of
from cubepy.kernels.sort.routines import TOPK
from cubepy.kernels.sort.sort import in_rows, order_back
from cubepy.runtime import memory


@repeated
def _topk(input: Any, k: int, axis: int, largest: bool, *, out: None = None) -> tuple[Any, Any]:
    """`topk`, as it is repeated."""
    wrap = wrapper(input)
    rows, _, moved = in_rows(input, axis, "topk")
    n = rows.shape[-1]
    k = whole(k, "k")
    if not 0 <= k <= n:
        raise ShapeError(f"topk of {k} elements of an axis of length {n}")
    shape = (*rows.shape[:-1], k)
    values, indices = memory.empty(shape, rows.dtype), memory.empty(shape, np.int64)
    if values.size:
        flat = rows.reshape(-1, n)
        keys = keys_of(rows.dtype, largest, same_zeros=True)
        TOPK.run(Top(flat, values.reshape(-1, k), indices.reshape(-1, k), k, keys))
    order = order_back(moved)
    return wrap(contiguous(values.transpose(order))), wrap(contiguous(indices.transpose(order)))


@placed
def topk(
    input: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Any, Any]:
    """The k largest (or smallest) elements along an axis and their indices, as `torch.topk`.

    Args:
        input: array of any shape, strides and dtype.
        k: how many; at most the length of the axis.
        axis: int.
        largest: whether the largest are wanted (NaN counts as the largest).
        sorted: results are in order in any case; of equal elements the first ones are taken.

    Returns:
        values and indices (i64), with length k along the axis.

    Raises:
        ShapeError: k is negative or longer than the axis.

    Example:
        >>> import numpy as np
        >>> topk(np.array([3, 1, 4, 1, 5]), 2)
        (array([5, 4]), array([4, 2]))
    """
    return _topk(input, k, axis, largest)  # type: ignore[no-any-return]
