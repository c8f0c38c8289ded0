"""Row-wise normalisation: softmax and layer_norm, each a row at a time while the row is in the
cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.entry.arguments import axis_of, float_array
from cubepy.kernels.entry.dispatch import has_planes, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.normalization import softmax_gpu
from cubepy.kernels.normalization.rows_cpu import (
    MANY,
    ROOM,
    ROWS,
    STREAMS,
    accumulator_of,
    as_rows,
    past_caches,
    rows_in,
    softmax_past,
    softmax_rows,
)
from cubepy.kernels.primitives.vector_width import lanes_for
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
    result = output(out, array.shape, array.dtype)
    if result.size:
        rows, target = as_rows(array, d), rows_in(result, d)
        inside = target is not None
        target = memory.empty(rows.shape, result.dtype) if target is None else target
        lanes = lanes_for(np.empty(0, np.float64 if array.dtype == np.float64 else np.float32))
        cubes = -(-rows.shape[0] // ROWS)
        if has_planes():
            softmax_gpu.softmax_rows(rows, target, accumulator_of(array))
        elif (
            rows.shape[1] <= ROOM
            and rows.shape[1] % (STREAMS * lanes) == 0
            and (head := past_caches(rows, target, lanes)) is not None
        ):
            early = cb.device_properties_of().register_bytes < 64
            cubes = -(-rows.shape[0] // MANY)
            softmax_past[cubes, 1](
                rows, target, head, lanes, MANY, ROOM, early, head > 0, mode="unchecked"
            )
        else:
            room = ROOM if target.itemsize == 2 and rows.shape[1] <= ROOM else 0
            softmax_rows[cubes, 1](rows, target, lanes, ROWS, room, mode="unchecked")
        if not inside:
            moved = np.moveaxis(result, d, -1)
            convert_into(moved, target.reshape(moved.shape))
    return finish(result, out, wrap)
