"""Convolutions in f64: columns in memory and a matrix product, group by group; channels with a
filter each, on a CPU, by the kernels of f32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.cpu.depthwise_nchw import by_plane
from cubepy.kernels.convolution.cpu.depthwise_nchw import plan_for as planes_for
from cubepy.kernels.convolution.cpu.depthwise_nhwc import by_channel
from cubepy.kernels.convolution.cpu.filters import taps_of
from cubepy.kernels.convolution.im2col import columns_of
from cubepy.kernels.convolution.problem import Problem, in_three
from cubepy.kernels.elementwise.map import run
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.primitives.functions import add as added
from cubepy.runtime import memory
from cubepy.runtime.device import current, device_properties, gpu_of


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
    if w.shape[1] == 1 and w.shape[0] == groups and gpu_of(current()) is None:
        inside = function if plus is None else None
        _by_channels(view, as_doubles(w), bias, out, problem, channels_last, inside)
        if plus is None:
            return
    else:
        _by_columns(view, w, bias, out, problem, groups, channels_last)
    if plus is not None:
        run(added, [out, plus], out)
    if function is not None:
        run(_of_one(function), [out], out)


def _by_columns(
    view: Any, w: Any, bias: Any, out: Any, problem: Problem, groups: int, channels_last: bool
) -> None:
    """Group by group."""
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


def _by_channels(
    view: Any, w: Any, bias: Any, out: Any, problem: Problem, channels_last: bool, function: Any
) -> None:
    """The same where every channel has one filter, on a CPU."""
    properties, groups = device_properties(current()), w.shape[0]
    taps, planes = taps_of(w, groups), view.transpose(0, view.ndim - 1, *range(1, view.ndim - 1))
    if not channels_last and planes.flags.c_contiguous:
        if planes_for(problem, view.shape[0] * groups, function, properties, cb.f64):
            result = out.reshape(view.shape[0], groups, -1)
            by_plane(view, taps[:, 0, 0], bias, result, problem, function, properties)
            return
    shape = (view.shape[0], *problem.out, groups)
    made = out.reshape(shape) if channels_last else memory.empty(shape, np.float64)
    by_channel(in_three(contiguous(view)), taps, bias, made, problem, function, properties)
    if not channels_last:
        convert_into(out, made.transpose(0, 4, 1, 2, 3).reshape(out.shape))


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
