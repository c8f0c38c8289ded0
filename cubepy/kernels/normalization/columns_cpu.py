"""softmax and its logarithm down columns on a CPU: of an axis that others lie behind, such as the
classes of every pixel. Neighbouring columns are lanes, so nothing is copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.normalization.problem import accumulator_of
from cubepy.kernels.normalization.rows_cpu import larger, weight_of
from cubepy.runtime import memory
from cubepy.runtime.device import current, device_properties

LINES = 4  # registers that a unit takes at once
FEW = 8
"""Columns side by side below which lanes would be empty."""


@cb.kernel
def softmax_columns(x: cb.Array, out: cb.Array, log: cb.Comptime[bool], lanes: cb.Comptime[int]):
    """out[b, :, c] = exp(x - max) / sum, or its logarithm, down each column; x and out are
    (batch, n, columns). A unit does `lanes` columns of one batch.

    Exponentials wait for their sum in the result, or are computed again where that is narrow.
    """
    n, columns = x.shape[1], x.shape[2]
    acc = cb.f64 if x.dtype == cb.f64 else cb.f32
    blocks = (columns + lanes - 1) // lanes
    b, c = cb.CUBE_POS // blocks, cb.CUBE_POS % blocks * lanes
    top = cb.cast(cb.splat(-float("inf"), lanes), acc)
    for k in range(n):
        top = larger(cb.cast(x.load((b, k, c), lanes), acc), top)
    total = cb.cast(cb.splat(0.0, lanes), acc)
    for k in range(n):
        e = weight_of(cb.cast(x.load((b, k, c), lanes), acc) - top)
        if not log and out.dtype == acc:
            out.store((b, k, c), e)
        total = total + e
    if log:
        less = cb.log(total)
        for k in range(n):
            v = cb.cast(x.load((b, k, c), lanes), acc)
            out.store((b, k, c), cb.cast(v - top - less, out.dtype))
    else:
        scale = 1.0 / total
        for k in range(n):
            if out.dtype == acc:
                e = out.load((b, k, c), lanes)
            else:
                e = weight_of(cb.cast(x.load((b, k, c), lanes), acc) - top)
            out.store((b, k, c), cb.cast(e * scale, out.dtype))


def down_columns(array: Any, out: Any, axis: int, log: bool) -> bool:
    """softmax of an array along an axis that others lie behind; whether that was done: of arrays
    without gaps on the host.
    """
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous or axis == array.ndim - 1:
        return False
    columns = int(np.prod(array.shape[axis + 1 :]))
    if columns < FEW or current().backend != "cpu":
        return False
    one = device_properties(current()).lanes(accumulator_of(array))
    lanes = one if columns <= one else LINES * one
    seen = (-1, array.shape[axis], columns)
    target = out if out.flags.c_contiguous else memory.empty(out.shape, out.dtype)
    cubes = array.size // (array.shape[axis] * columns) * -(-columns // lanes)
    softmax_columns[cubes, 1](array.reshape(seen), target.reshape(seen), log, lanes, mode="checked")
    if target is not out:
        convert_into(out, target)
    return True
