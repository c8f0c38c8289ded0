"""Transposed convolutions, and the gradients of convolutions by their input and by their filters."""

from __future__ import annotations

import math
from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels.arguments import float_array, output, placed, whole, wholes, wrapper
from cubepy.kernels.convolution import LAYOUTS, _convolve, _three
from cubepy.kernels.convolution_routes import Problem, columns_of
from cubepy.kernels.elementwise import contiguous, convert_into
from cubepy.kernels.matmul import matmul
from cubepy.kernels.pad import pad
from cubepy.runtime import memory


def _turned(w: Any, groups: int) -> Any:
    """Filters (in, out / groups, *window) as (out, in / groups, *window), with every window reversed."""
    axes = w.ndim - 2
    parts = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    back = parts[(slice(None),) * 3 + (slice(None, None, -1),) * axes]
    swapped = contiguous(back.transpose(0, 2, 1, *range(3, 3 + axes)))
    return swapped.reshape(groups * w.shape[1], w.shape[0] // groups, *w.shape[2:])


def _transposed(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any,
    layout: str, axes: int, out: Any,
) -> Any:  # fmt: skip
    wrap, x, w = wrapper(input), float_array(input, "input"), float_array(weight, "weight")
    first, last = LAYOUTS[axes]
    if layout not in (first, last):
        raise ShapeError(f'layout is "{first}" or "{last}", not {layout!r}')
    if x.ndim != axes + 2 or w.ndim != axes + 2:
        raise ShapeError(f"conv_transpose{axes}d needs {axes + 2} axes, not shapes {x.shape} and {w.shape}")
    view = x if layout == last else x.transpose(0, *range(2, axes + 2), 1)
    groups = whole(groups, "groups")
    if groups < 1 or view.shape[-1] != w.shape[0] or w.shape[0] % groups:
        raise ShapeError(f"filters of shape {w.shape} in {groups} groups do not go with {view.shape[-1]} channels")
    step, dil = _three(stride, "stride", axes, 1)[-axes:], _three(dilation, "dilation", axes, 1)[-axes:]
    cut, more = _three(padding, "padding", axes, 0)[-axes:], _three(output_padding, "output_padding", axes, 0)[-axes:]
    for m, s, d in zip(more, step, dil, strict=True):
        if m >= max(s, d):
            raise ShapeError(f"output_padding {m} must be smaller than the stride {s} or the dilation {d}")
    spread = view
    if any(s > 1 for s in step):
        sizes = tuple((n - 1) * s + 1 for n, s in zip(view.shape[1:-1], step, strict=True))
        spread = memory.empty((view.shape[0], *sizes, view.shape[-1]), view.dtype)
        spread[...] = 0
        spread[(slice(None), *(slice(None, None, s) for s in step), slice(None))] = view
    widths: list[int] = []
    for k, d, p, m in zip(w.shape[2:], dil, cut, more, strict=True):
        widths = [d * (k - 1) - p, d * (k - 1) - p + m, *widths]
    wide = pad(contiguous(spread), (0, 0, *widths)) if any(widths) else spread
    result = _convolve(wide, _turned(w, groups), bias, 1, 0, dil, groups, last, None, None, axes)
    if layout == first:
        result = result.transpose(0, axes + 1, *range(1, axes + 1))
    if out is not None:
        convert_into(output(out, result.shape, result.dtype), result)
        return out
    return wrap(contiguous(result) if layout == first and not view.flags.c_contiguous else result)


@placed
def conv_transpose1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, *, layout: str = "NCL", out: Any = None,
) -> Any:  # fmt: skip
    """Transposed convolution along one axis, as `torch.nn.functional.conv_transpose1d`."""
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, layout, 1, out)


@placed
def conv_transpose2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, *, layout: str = "NCHW", out: Any = None,
) -> Any:  # fmt: skip
    """Transposed convolution of images, as `torch.nn.functional.conv_transpose2d`.

    Args:
        input: (N, C, H, W), or (N, H, W, C) with layout "NHWC".
        weight: (channels, filters / groups, kh, kw).
        bias: (filters,), or None.
        stride, padding, output_padding, dilation: int or 2 of them.
        groups: channels and filters fall into so many groups.
        layout: "NCHW" or "NHWC".
        out: array to write.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> import numpy as np
        >>> conv_transpose2d(np.ones((1, 2, 3, 3), np.float32), np.ones((2, 4, 2, 2), np.float32), stride=2).shape
        (1, 4, 6, 6)
    """
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, layout, 2, out)


@placed
def conv_transpose3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, *, layout: str = "NCDHW", out: Any = None,
) -> Any:  # fmt: skip
    """Transposed convolution of volumes, as `torch.nn.functional.conv_transpose3d`."""
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, layout, 3, out)


def conv_input(
    input_size: tuple[int, ...], weight: Any, grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Any:  # fmt: skip
    """The gradient of a convolution by its input, as `torch.nn.grad.conv2d_input` (in 1 to 3 axes, channels first).

    Args:
        input_size: shape of the input, (N, C, *size).
        weight: (filters, channels / groups, *window).
        grad_output: (N, filters, *places).
        stride, padding, dilation, groups: as the convolution's.

    Example:
        >>> import numpy as np
        >>> conv_input((1, 3, 8, 8), np.ones((4, 3, 3, 3), np.float32), np.ones((1, 4, 3, 3), np.float32), 2).shape
        (1, 3, 8, 8)
    """
    input_size = wholes(input_size, "input_size")
    wrap, weight, grad_output = wrapper(grad_output), float_array(weight, "weight"), float_array(grad_output, "grad")
    axes = len(input_size) - 2
    if not 1 <= axes <= 3 or weight.ndim != axes + 2 or grad_output.ndim != axes + 2:
        raise ShapeError(
            f"an input of shape {input_size}, filters of shape {weight.shape} and a gradient of shape "
            f"{grad_output.shape} do not go together"
        )
    step, dil = _three(stride, "stride", axes, 1)[-axes:], _three(dilation, "dilation", axes, 1)[-axes:]
    cut = _three(padding, "padding", axes, 0)[-axes:]
    shape, places = weight.shape, grad_output.shape[2:]
    more = tuple(
        n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)
        for n, m, s, p, d, k in zip(input_size[2:], places, step, cut, dil, shape[2:], strict=True)
    )
    if any(m < 0 for m in more):
        raise ShapeError(f"a gradient of shape {grad_output.shape} does not come from an input of shape {input_size}")
    function = (conv_transpose1d, conv_transpose2d, conv_transpose3d)[axes - 1]
    return wrap(function(grad_output, weight, None, step, cut, more, groups, dil))


@placed
def conv_weight(
    input: Any, weight_size: tuple[int, ...], grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Any:  # fmt: skip
    """The gradient of a convolution by its filters, as `torch.nn.grad.conv2d_weight` (in 1 to 3 axes, channels first).

    Args:
        input: (N, C, *size).
        weight_size: shape of the filters, (filters, channels / groups, *window).
        grad_output: (N, filters, *places).
        stride, padding, dilation, groups: as the convolution's.

    Example:
        >>> import numpy as np
        >>> conv_weight(np.ones((1, 3, 8, 8), np.float32), (4, 3, 3, 3), np.ones((1, 4, 6, 6), np.float32)).shape
        (4, 3, 3, 3)
    """
    wrap, x, grad = wrapper(input), float_array(input, "input"), float_array(grad_output, "grad_output")
    axes = x.ndim - 2
    ones = (1,) * (3 - axes)
    problem = Problem(
        ones + tuple(x.shape[2:]), ones + tuple(weight_size[2:]), _three(stride, "stride", axes, 1),
        _three(padding, "padding", axes, 0), _three(dilation, "dilation", axes, 1), ones + tuple(grad.shape[2:]),
    )  # fmt: skip
    filters, channels = weight_size[0] // groups, weight_size[1]
    if x.shape[1] != channels * groups or grad.shape[1] != weight_size[0]:
        raise ShapeError(f"filters of shape {weight_size} do not go with {x.shape} and {grad.shape}")
    view = contiguous(x.transpose(0, *range(2, axes + 2), 1))
    seen = grad.reshape(*grad.shape[:2], -1).transpose(1, 0, 2)
    result = memory.empty(tuple(weight_size), x.dtype)
    for g in range(groups):
        columns = columns_of(view, problem, g * channels, channels)
        part = contiguous(seen[g * filters : (g + 1) * filters]).reshape(filters, -1)
        product = matmul(part, columns).reshape(filters, math.prod(weight_size[2:]), channels)
        convert_into(result[g * filters : (g + 1) * filters].reshape(filters, channels, -1), product.transpose(0, 2, 1))
    return wrap(result)
