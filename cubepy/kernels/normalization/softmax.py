"""Row-wise normalisation: softmax and layer_norm, each a row at a time while the row is in the
cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.kernels.elementwise.problem import memory_order
from cubepy.kernels.entry.arguments import axis_of, float_array
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.normalization.columns_cpu import down_columns
from cubepy.kernels.normalization.problem import Softmax
from cubepy.kernels.normalization.routines import SOFTMAX
from cubepy.kernels.normalization.rows_cpu import as_rows, rows_in
from cubepy.runtime import memory


@repeated
def softmax(x: Any, axis: int = -1, *, out: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along an axis, computed from the maximum down so that it cannot
    overflow.

    Args:
        x: array of floats, any shape and strides; f16 and bf16 are computed in f32.
        axis: the axis that sums to one.
        out: array to write, x itself included.

    Example:
        >>> import numpy as np
        >>> softmax(np.zeros((1, 4), np.float32))
        array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    wrap, array = wrapper(x), float_array(x, "x")
    d = axis_of(axis, array.ndim)
    order = None if out is not None else inner_order(array, d)
    if order is not None:  # neighbours lie along the axis, others not as in a new array
        array, d = array.transpose(order), array.ndim - 1
    result = output(out, array.shape, array.dtype)
    if result.size and not down_columns(array, result, d, log=False):
        rows, target = as_rows(array, d), rows_in(result, d)
        inside = target is not None
        target = memory.empty(rows.shape, result.dtype) if target is None else target
        SOFTMAX.run(Softmax(rows, target))
        if not inside:
            moved = np.moveaxis(result, d, -1)
            convert_into(moved, target.reshape(moved.shape))
    if order is not None:
        result = result.transpose([order.index(k) for k in range(result.ndim)])
    return finish(result, out, wrap)


def inner_order(array: Any, axis: int) -> list[int] | None:
    """The axes of an array as they lie in memory, where an axis that is not the last one, or whose
    others are in another order, is the innermost; None otherwise.
    """
    if array.flags.c_contiguous or array.strides[axis] != array.itemsize:
        return None
    order = memory_order(array)
    return order if order[-1] == axis and order != list(range(array.ndim)) else None
