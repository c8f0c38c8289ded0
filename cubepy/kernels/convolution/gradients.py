"""Gradients of convolutions by their input and by their filters."""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.convolution.conv import LAYOUTS, on_three_axes
from cubepy.kernels.convolution.cpu.depthwise_gradients import Channels
from cubepy.kernels.convolution.cpu.weight_gradient import Pixels
from cubepy.kernels.convolution.gpu.depthwise_nchw import PlanesWeight
from cubepy.kernels.convolution.gpu.depthwise_weight_gradient import ChannelsWeight
from cubepy.kernels.convolution.gpu.weight_gradient import Windows
from cubepy.kernels.convolution.im2col import columns_of
from cubepy.kernels.convolution.problem import Problem, WeightGradient
from cubepy.kernels.convolution.sm90.depthwise_weight_gradient import Boxes
from cubepy.kernels.convolution.sm90.weight_gradient import WidePixels
from cubepy.kernels.convolution.transposed import transposed_into
from cubepy.kernels.entry.arguments import float_array, rounds_to_tf32, whole
from cubepy.kernels.entry.dispatch import repeated, size_of
from cubepy.kernels.entry.results import wrapper
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.runtime import memory
from cubepy.tune import Op, Routine


def _conv_input(
    grad_output: Any,
    weight: Any,
    input_size: tuple[int, ...],
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    precision: str | None,
) -> Any:
    """`conv_input`."""
    wrap, weight, grad_output = (
        wrapper(grad_output),
        float_array(weight, "weight"),
        float_array(grad_output, "grad"),
    )
    axes = len(input_size) - 2
    if not 1 <= axes <= 3 or weight.ndim != axes + 2 or grad_output.ndim != axes + 2:
        raise ShapeError(
            f"an input of shape {input_size}, filters of shape {weight.shape} and a gradient "
            f"of shape {grad_output.shape} do not go together"
        )
    step, dil = (
        on_three_axes(stride, "stride", axes, 1)[-axes:],
        on_three_axes(dilation, "dilation", axes, 1)[-axes:],
    )
    cut = on_three_axes(padding, "padding", axes, 0)[-axes:]
    shape, out_size = weight.shape, grad_output.shape[2:]
    more = tuple(
        n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)
        for n, m, s, p, d, k in zip(
            input_size[2:], out_size, step, cut, dil, shape[2:], strict=True
        )
    )
    if any(m < 0 for m in more):
        raise ShapeError(
            f"a gradient of shape {grad_output.shape} does not come from an input of shape "
            f"{input_size}"
        )
    first = LAYOUTS[axes][0]
    return wrap(
        transposed_into(
            grad_output, weight, None, step, cut, more, groups, dil, first, axes, precision, None
        )
    )


_known_input = repeated(_conv_input)


def conv_input(
    input_size: tuple[int, ...],
    weight: Any,
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
) -> Any:
    """The gradient of a convolution by its input, as `torch.nn.grad.conv2d_input` (in 1 to 3 axes,
    channels first).

    Args:
        input_size: shape of the input, (N, C, *size).
        weight: (filters, channels / groups, *window).
        grad_output: (N, filters, *pixels).
        stride, padding, dilation, groups, precision: as the convolution's.

    Example:
        >>> import numpy as np
        >>> conv_input((1, 3, 8, 8), np.ones((4, 3, 3, 3), np.float32), np.ones((1, 4, 3, 3),
        ...     np.float32), 2).shape
        (1, 3, 8, 8)
    """
    size = size_of(input_size, "input_size")
    return _known_input(grad_output, weight, size, stride, padding, dilation, groups, precision)


class Columns(Routine):
    """Windows laid out in memory, and a product of matrices."""

    name = "columns"

    def launch(self, p: WeightGradient, properties: cb.DeviceProperties) -> None:
        """Group by group."""
        view, taps = contiguous(p.last[0]), p.by_tap
        filters, channels = p.out.shape[0] // p.groups, p.out.shape[1]
        seen = p.grad.reshape(*p.grad.shape[:2], -1).transpose(1, 0, 2)
        for g in range(p.groups):
            own = slice(g * filters, (g + 1) * filters)
            columns = columns_of(view, p.shape, g * channels, channels)
            part = contiguous(seen[own]).reshape(filters, -1)
            product = matmul(part, columns, precision=p.shape.precision)
            convert_into(taps[own], product.reshape(filters, -1, channels).transpose(0, 2, 1))


CONV_WEIGHT = Op(
    "conv_weight",
    [
        PlanesWeight(),
        Boxes(),
        ChannelsWeight(),
        WidePixels(),
        Windows(),
        Channels(),
        Pixels(),
        Columns(),
    ],
)


def _conv_weight(
    input: Any,
    grad_output: Any,
    weight_size: tuple[int, ...],
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    precision: str | None,
) -> Any:
    """`conv_weight`."""
    wrap, x, grad = (
        wrapper(input),
        float_array(input, "input"),
        float_array(grad_output, "grad_output"),
    )
    axes = x.ndim - 2
    if not 1 <= axes <= 3 or grad.ndim != x.ndim or len(weight_size) != x.ndim:
        raise ShapeError(
            f"filters of shape {weight_size} do not go with {x.shape} and {grad.shape}"
        )
    ones = (1,) * (3 - axes)
    problem = Problem(
        ones + tuple(x.shape[2:]),
        ones + tuple(weight_size[2:]),
        on_three_axes(stride, "stride", axes, 1),
        on_three_axes(padding, "padding", axes, 0),
        on_three_axes(dilation, "dilation", axes, 1),
        ones + tuple(grad.shape[2:]),
        rounds_to_tf32(precision),
    )
    groups = whole(groups, "groups")
    filters, channels = weight_size[0] // max(groups, 1), weight_size[1]
    numbers = (problem.size, problem.window, problem.stride, problem.pad, problem.dilation)
    fitting = all(
        m == (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d, m in zip(*numbers, problem.out, strict=True)
    )
    if (
        x.shape[:2] != (grad.shape[0], channels * groups)
        or grad.shape[1] != filters * groups
        or not fitting
    ):
        raise ShapeError(
            f"filters of shape {weight_size} do not go with {x.shape} and {grad.shape}"
        )
    result = memory.empty(tuple(weight_size), x.dtype)
    if x.size == 0 or grad.size == 0 or result.size == 0:
        result[...] = 0
        return wrap(result)
    CONV_WEIGHT.run(WeightGradient(x, grad, result, problem, groups))
    return wrap(result)


_known_weight = repeated(_conv_weight)


def conv_weight(
    input: Any,
    weight_size: tuple[int, ...],
    grad_output: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
) -> Any:
    """The gradient of a convolution by its filters, as `torch.nn.grad.conv2d_weight` (in 1 to 3
    axes, channels first).

    Args:
        input: (N, C, *size).
        weight_size: shape of the filters, (filters, channels / groups, *window).
        grad_output: (N, filters, *pixels).
        stride, padding, dilation, groups, precision: as the convolution's.

    Example:
        >>> import numpy as np
        >>> conv_weight(np.ones((1, 3, 8, 8), np.float32), (4, 3, 3, 3), np.ones((1, 4, 6, 6),
        ...     np.float32)).shape
        (4, 3, 3, 3)
    """
    size = size_of(weight_size, "weight_size")
    return _known_weight(input, grad_output, size, stride, padding, dilation, groups, precision)
