"""Convolutions on a GPU: as a matrix product where the window is one pixel, by the Hopper kernel
where the copy engine can take the input, and else by columns.
"""

from __future__ import annotations

import math
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.gpu.depthwise import by_channel_on_gpu
from cubepy.kernels.convolution.gpu.depthwise_nchw import by_planes_on_gpu
from cubepy.kernels.convolution.gpu.in_order import in_order
from cubepy.kernels.convolution.im2col import by_columns
from cubepy.kernels.convolution.problem import (
    Convolution,
    Problem,
    shape_of,
    without_skipped_pixels,
)
from cubepy.kernels.convolution.sm90.depthwise_nhwc import by_boxes_of_channels
from cubepy.kernels.convolution.sm90.implicit_gemm_plan import Boxes, by_boxes, suits
from cubepy.kernels.convolution.sm90.operand_layout import in_blocks, laid_out
from cubepy.kernels.elementwise.map import run
from cubepy.kernels.matmul.gpu.operands import ALIGNMENT, activation_for
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.movement.transpose import transpose
from cubepy.kernels.primitives.epilogue import after_sum
from cubepy.kernels.primitives.vector_width import address
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory


def convolve_on_gpu(
    p: Convolution,
    view: Any,
    w: Any,
    bias: Any,
    add: Any,
    target: Any,
    function: Any,
    chosen: Boxes = Boxes(),
) -> None:
    """target = function(convolution + bias + add): view is (N, *size, C) in any layout, target is
    contiguous, (N, *out, F) or channels first, and add lies as it does. If something is chosen, it
    is done by boxes.
    """
    if not _convolved(p, view, w, bias, add, target, function, chosen):
        run(after_sum(function), [target, add], target)


def _convolved(
    p: Convolution,
    view: Any,
    w: Any,
    bias: Any,
    add: Any,
    target: Any,
    function: Any,
    chosen: Boxes,
) -> bool:
    """The same, and whether all of it was done; else target = convolution + bias."""
    n, filters, problem, properties = view.shape[0], w.shape[0], shape_of(p), p.properties
    groups, channels_last = p.groups, p.last
    last = function if add is None else None
    if groups == 1:
        view, problem = without_skipped_pixels(view, problem)
        alone = math.prod(problem.window) == math.prod(problem.stride) == 1 and not any(problem.pad)
        if alone and chosen == Boxes():
            as_rows = channels_last and view.flags.c_contiguous
            as_planes = not channels_last and bias is None
            if as_rows or as_planes or not suits(view, w, problem, properties):
                how = channels_last, function, problem.precision
                if channels_last or as_planes:
                    by_product(view, w, bias, target, *how, add)
                    return True
                by_product(view, w, bias, target, channels_last, last, problem.precision)
                return add is None
    elif by_channel(view, w, bias, target, problem, channels_last, last, properties):
        return add is None
    elif by_channel_on_gpu(view, w, bias, target, problem, channels_last, last):
        return add is None
    if suits(view, w, problem, properties):
        laid = (
            (*laid_out(view, w, problem), 0) if groups == 1 else in_blocks(view, w, problem, groups)
        )
        if laid is not None:
            x, taps, problem, group = laid
            direct = channels_last and address(target) % ALIGNMENT == 0 and len(taps) == filters
            spatial = target.shape[1:-1] if channels_last else target.shape[2:]
            cores = properties.cores
            if direct and (add is None or address(add) % ALIGNMENT == 0):
                by_boxes(x, taps, bias, target, problem, function, cores, group, chosen, add)
                return True
            made = memory.empty((n, *spatial, len(taps)), target.dtype)
            by_boxes(x, taps, bias, made, problem, last, cores, group, chosen)
            made = made[..., :filters]
            if channels_last:
                convert_into(target, made)
            else:
                transpose(made, (0, made.ndim - 1, *range(1, made.ndim - 1)), out=target)
            return add is None
    flat = (n, -1, filters) if channels_last else (n, filters, -1)
    by_columns(view, w, bias, target.reshape(flat), problem, groups, channels_last, last)
    return add is None


def by_channel(
    view: Any,
    w: Any,
    bias: Any,
    target: Any,
    problem: Problem,
    channels_last: bool,
    function: Any,
    properties: cb.DeviceProperties,
) -> bool:
    """target = function(convolution + bias) where every channel has one filter, by the kernels that
    work in shared memory, if one of them takes it; arrays as for `convolve_on_gpu`.
    """
    function = activation_for(function, as_dtype(target.dtype))
    if channels_last:
        return by_boxes_of_channels(view, w, bias, target, problem, function, properties)
    first = view.transpose(0, view.ndim - 1, *range(1, view.ndim - 1))
    return by_planes_on_gpu(first, w, bias, target, problem, function, properties.cores)


def by_product(
    view: Any,
    w: Any,
    bias: Any,
    target: Any,
    channels_last: bool,
    function: Any,
    precision: str | None,
    add: Any = None,
) -> None:
    """A window of one pixel: a product of matrices, whose last step has bias, activation and what
    is added; nothing may be added with a bias and channels first.
    """
    n, c, how = view.shape[0], view.shape[-1], {"activation": function, "precision": precision}
    matrix = contiguous(w).reshape(-1, c)
    if channels_last:
        rows = in_order(view).reshape(-1, c)
        flat = target.reshape(-1, w.shape[0])
        more = None if add is None else add.reshape(flat.shape)
        matmul(rows, matrix.T, out=flat, bias=bias, add=more, **how)
    elif bias is None:
        planes = contiguous(view.transpose(0, view.ndim - 1, *range(1, view.ndim - 1))).reshape(
            n, c, -1
        )
        flat = target.reshape(n, w.shape[0], -1)
        more = None if add is None else add.reshape(flat.shape)
        matmul(matrix, planes, out=flat, add=more, **how)
    else:
        done = matmul(in_order(view).reshape(-1, c), matrix.T, bias=bias, **how)
        transpose(done.reshape(n, -1, w.shape[0]), (0, 2, 1), out=target.reshape(n, w.shape[0], -1))
