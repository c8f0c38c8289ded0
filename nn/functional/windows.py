"""Convolutions, pools and interpolation of images, signals and volumes with channels first."""

from __future__ import annotations

import math
from operator import mul
from typing import Any

from cubepy import kernels as K
from cubepy.errors import LaunchError, ShapeError
from cubepy.kernels.entry.arguments import per_axis
from cubepy.nn import arguments
from cubepy.nn.functional.padding import same
from cubepy.tensor import Tensor, as_tensor


def _batched(function: Any, axes: int, input: Any, weight: Any, bias: Any, *how: Any) -> Tensor:
    """A convolution; an image alone is a batch of one."""
    x, w, how = same(as_tensor(input), as_tensor(weight), how)
    alone = x.ndim == axes + 1
    given = None if bias is None else as_tensor(bias)
    y: Tensor = function(x.unsqueeze(0) if alone else x, w, given, *how)
    return y.squeeze(0) if alone else y


def conv1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of (N, C, L) with filters (out, C / groups, ...).

    Example:
        >>> conv1d([[[1.0, 2.0, 3.0]]], [[[1.0, 1.0]]])
        tensor([[[3., 5.]]])
    """
    return _batched(K.conv1d, 1, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution of (N, C, L) with filters (C, out / groups, ...).

    Example:
        >>> conv_transpose1d([[[1.0, 2.0, 3.0]]], [[[1.0, 1.0]]])
        tensor([[[1., 3., 5., 3.]]])
    """
    how = (stride, padding, output_padding, groups, dilation)
    return _batched(K.conv_transpose1d, 1, input, weight, bias, *how)


def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest value of each window of (N, C, L); with `return_indices` where it was, too.

    Example:
        >>> max_pool1d([[[1.0, 2.0, 3.0]]], 2, 1)
        tensor([[[2., 3.]]])
    """
    x = as_tensor(input)
    how = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return K.max_pool1d(x, *how)


def avg_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
) -> Tensor:
    """The mean of each window of (N, C, L).

    Example:
        >>> avg_pool1d([[[1.0, 2.0, 3.0]]], 2, 1)
        tensor([[[1.5, 2.5]]])
    """
    x = as_tensor(input)
    how = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return K.avg_pool1d(x, *how)  # type: ignore[no-any-return]


def adaptive_max_pool1d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The largest value of each of `output_size` parts of (N, C, L); None keeps a length.

    Example:
        >>> adaptive_max_pool1d([[[1.0, 2.0, 3.0]]], 1)
        tensor([[[3.]]])
    """
    x = as_tensor(input)
    return K.adaptive_max_pool1d(x, _parts(x, output_size, 1), return_indices)


def adaptive_avg_pool1d(input: Any, output_size: Any) -> Tensor:
    """The mean of each of `output_size` parts of (N, C, L); None keeps a length.

    Example:
        >>> adaptive_avg_pool1d([[[1.0, 2.0, 3.0]]], 1)
        tensor([[[2.]]])
    """
    x = as_tensor(input)
    return K.adaptive_avg_pool1d(x, _parts(x, output_size, 1))  # type: ignore[no-any-return]


def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of (N, C, H, W) with filters (out, C / groups, ...).

    Example:
        >>> conv2d([[[[1.0, 2.0, 3.0]]]], [[[[1.0, 1.0]]]])
        tensor([[[[3., 5.]]]])
    """
    return _batched(K.conv2d, 2, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution of (N, C, H, W) with filters (C, out / groups, ...).

    Example:
        >>> conv_transpose2d([[[[1.0, 2.0, 3.0]]]], [[[[1.0, 1.0]]]])
        tensor([[[[1., 3., 5., 3.]]]])
    """
    how = (stride, padding, output_padding, groups, dilation)
    return _batched(K.conv_transpose2d, 2, input, weight, bias, *how)


def max_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest value of each window of (N, C, H, W); with `return_indices` where it was, too.

    Example:
        >>> max_pool2d([[[[1.0, 2.0, 3.0]]]], (1, 2), 1)
        tensor([[[[2., 3.]]]])
    """
    x = as_tensor(input)
    how = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return K.max_pool2d(x, *how)


def avg_pool2d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
) -> Tensor:
    """The mean of each window of (N, C, H, W).

    Example:
        >>> avg_pool2d([[[[1.0, 2.0, 3.0]]]], (1, 2), 1)
        tensor([[[[1.5, 2.5]]]])
    """
    x = as_tensor(input)
    how = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return K.avg_pool2d(x, *how)  # type: ignore[no-any-return]


def adaptive_max_pool2d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The largest value of each of `output_size` parts of (N, C, H, W); None keeps a length.

    Example:
        >>> adaptive_max_pool2d([[[[1.0, 2.0, 3.0]]]], 1)
        tensor([[[[3.]]]])
    """
    x = as_tensor(input)
    return K.adaptive_max_pool2d(x, _parts(x, output_size, 2), return_indices)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Tensor:
    """The mean of each of `output_size` parts of (N, C, H, W); None keeps a length.

    Example:
        >>> adaptive_avg_pool2d([[[[1.0, 2.0, 3.0]]]], 1)
        tensor([[[[2.]]]])
    """
    x = as_tensor(input)
    return K.adaptive_avg_pool2d(x, _parts(x, output_size, 2))  # type: ignore[no-any-return]


def conv3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of (N, C, D, H, W) with filters (out, C / groups, ...).

    Example:
        >>> conv3d([[[[[1.0, 2.0, 3.0]]]]], [[[[[1.0, 1.0]]]]])
        tensor([[[[[3., 5.]]]]])
    """
    return _batched(K.conv3d, 3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution of (N, C, D, H, W) with filters (C, out / groups, ...).

    Example:
        >>> conv_transpose3d([[[[[1.0, 2.0, 3.0]]]]], [[[[[1.0, 1.0]]]]])
        tensor([[[[[1., 3., 5., 3.]]]]])
    """
    how = (stride, padding, output_padding, groups, dilation)
    return _batched(K.conv_transpose3d, 3, input, weight, bias, *how)


def max_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest value of each window of (N, C, D, H, W); with `return_indices` where it was, too.

    Example:
        >>> max_pool3d([[[[[1.0, 2.0, 3.0]]]]], (1, 1, 2), 1)
        tensor([[[[[2., 3.]]]]])
    """
    x = as_tensor(input)
    how = (kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return K.max_pool3d(x, *how)


def avg_pool3d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
) -> Tensor:
    """The mean of each window of (N, C, D, H, W).

    Example:
        >>> avg_pool3d([[[[[1.0, 2.0, 3.0]]]]], (1, 1, 2), 1)
        tensor([[[[[1.5, 2.5]]]]])
    """
    x = as_tensor(input)
    how = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return K.avg_pool3d(x, *how)  # type: ignore[no-any-return]


def adaptive_max_pool3d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """The largest value of each of `output_size` parts of (N, C, D, H, W); None keeps a length.

    Example:
        >>> adaptive_max_pool3d([[[[[1.0, 2.0, 3.0]]]]], 1)
        tensor([[[[[3.]]]]])
    """
    x = as_tensor(input)
    return K.adaptive_max_pool3d(x, _parts(x, output_size, 3), return_indices)


def adaptive_avg_pool3d(input: Any, output_size: Any) -> Tensor:
    """The mean of each of `output_size` parts of (N, C, D, H, W); None keeps a length.

    Example:
        >>> adaptive_avg_pool3d([[[[[1.0, 2.0, 3.0]]]]], 1)
        tensor([[[[[2.]]]]])
    """
    x = as_tensor(input)
    return K.adaptive_avg_pool3d(x, _parts(x, output_size, 3))  # type: ignore[no-any-return]


def _parts(x: Tensor, output_size: Any, axes: int) -> tuple[int, ...]:
    several = isinstance(output_size, (tuple, list))
    wanted = tuple(output_size) if several else (output_size,) * axes
    if len(wanted) != axes or x.ndim < axes:
        raise ShapeError(f"output_size is {axes} lengths for {x.shape}, not {output_size}")
    return tuple(have if n is None else n for n, have in zip(wanted, x.shape[-axes:], strict=True))


def interpolate(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Images of another size.

    Args:
        input: (N, C, ...) with 1 to 3 axes of size.
        size: of the result, an int or one for each axis; or scale_factor.
        scale_factor: a number or one for each axis.
        mode: "nearest", "nearest-exact", "area", "linear", "bilinear", "trilinear" or "bicubic".
        align_corners: the outermost positions of input and result lie on each other.
        recompute_scale_factor: positions lie by the sizes, not by `scale_factor`.
        antialias: a smaller image weighs all positions that it leaves out ("bilinear", "bicubic").

    Example:
        >>> interpolate([[[1.0, 2.0]]], scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    x = as_tensor(input)
    if recompute_scale_factor and scale_factor is not None:
        factors = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * 3
        size, scale_factor = tuple(map(math.floor, map(mul, x.shape[2:], factors))), None
    how = (size, scale_factor, mode, bool(align_corners))
    return K.interpolate(x, *how, antialias=antialias)  # type: ignore[no-any-return]


def upsample(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under its old name.

    Example:
        >>> upsample([[[1.0, 2.0]]], scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` by the nearest element.

    Example:
        >>> upsample_nearest([[[1.0, 2.0]]], 4)
        tensor([[[1., 1., 2., 2.]]])
    """
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` of images by straight lines, the corners on each other.

    Example:
        >>> upsample_bilinear([[[[1.0, 3.0]]]], (1, 3))
        tensor([[[[1., 2., 3.]]]])
    """
    return interpolate(input, size, scale_factor, "bilinear", True)


def lp_pool1d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) of each window of (N, C, L).

    Example:
        >>> lp_pool1d([[[3.0, 4.0]]], 2, 2)
        tensor([[[5.]]])
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) of each window of (N, C, H, W).

    Example:
        >>> lp_pool2d([[[[3.0, 4.0]]]], 2, (1, 2))
        tensor([[[[5.]]]])
    """
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) of each window of (N, C, D, H, W).

    Example:
        >>> lp_pool3d([[[[[3.0, 4.0]]]]], 2, (1, 1, 2))
        tensor([[[[[5.]]]]])
    """
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _lp_pool(
    axes: int, input: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Tensor:
    """Sums are means times the size of the window."""
    x, p = as_tensor(input), arguments.number("norm_type", norm_type)
    if not p:
        raise LaunchError("norm_type must not be 0")
    window = per_axis(kernel_size, axes, "kernel_size", 1)
    pool = (avg_pool1d, avg_pool2d, avg_pool3d)[axes - 1]
    wide = arguments.widened(x)
    mean = pool(wide * wide if p == 2 else wide**p, window, stride, 0, ceil_mode)
    y = ((mean.sign() * mean.abs().relu()) * math.prod(window)) ** (1 / p)
    return y.astype(x.dtype) if x.dtype.is_float else y
