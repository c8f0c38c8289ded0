"""Convolutions in f64, on any device: columns in memory and a matrix product, group by group."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.im2col import columns_of
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.elementwise.map import run
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.primitives.functions import add as added
from cubepy.runtime import memory


def convolve_doubles(
    view: Any,
    w: Any,
    bias: Any,
    plus: Any,
    out: Any,
    problem: Problem,
    groups: int,
    channels_last: bool,
    function: Any,
) -> None:
    """view is (N, *size, C) in any layout, out (N, *out, filters) or (N, filters, *out), and plus
    like it.
    """
    channels, filters = w.shape[1], w.shape[0] // groups
    matrix = contiguous(w.transpose(0, *range(2, w.ndim), 1)).reshape(groups, filters, -1)
    flat = (out.shape[0], -1, w.shape[0]) if channels_last else (out.shape[0], w.shape[0], -1)
    target = out.reshape(flat)
    for g in range(groups):
        part = slice(g * filters, (g + 1) * filters)
        done = matmul(columns_of(view, problem, g * channels, channels), as_doubles(matrix[g]).T)
        done = done.reshape(out.shape[0], -1, filters)
        if channels_last:
            convert_into(target[:, :, part], done)
        else:
            convert_into(target[:, part], done.transpose(0, 2, 1))
    if bias is not None:
        along = bias if channels_last else bias.reshape(-1, 1)
        run(added, [target, np.broadcast_to(along, target.shape)], target)
    if plus is not None:
        run(added, [out, plus], out)
    if function is not None:
        run(_of_one(function), [out], out)


@lru_cache(maxsize=64)
def _of_one(function: Any) -> Any:
    @cb.func
    def applied(x):  # type: ignore[no-untyped-def]
        return function(x)

    return applied


def as_doubles(x: Any) -> Any:
    """An array in f64."""
    if x.dtype == np.float64:
        return x
    wide = memory.empty(x.shape, np.float64)
    convert_into(wide, x)
    return wide
