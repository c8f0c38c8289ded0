"""Convolutions in one to three axes, channels first: forward, back by the input (which is the
transposed convolution) and back by the filters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.tensor.ops.library import columns, kernels
from cubepy.tensor.ops.normalization import float_of
from cubepy.tensor.ops.op import Spec, define

Ints = tuple[int, ...]


def conv_size(size: Ints, window: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    """How many windows there are along each axis."""
    along = zip(size, window, stride, padding, dilation, strict=True)
    return tuple([(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in along])


def _run_conv(
    dtype: np.dtype,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    precision: str | None,
) -> Any:
    function = getattr(kernels(), f"conv{len(stride)}d")
    return function(x, weight, bias, stride, padding, dilation, groups, precision=precision)


@define("product", {"conv": _run_conv})
def _conv(
    x: Spec,
    weight: Spec,
    bias: Spec | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    precision: str | None,
) -> Spec:
    """x (N, C, *size), weight (filters, C / groups, *window), bias (filters,)."""
    axes = len(stride)
    _check_ranks("conv", axes, x, weight)
    channels, filters = x.shape[1], weight.shape[0]
    if groups < 1 or channels != weight.shape[1] * groups or filters % groups:
        raise ShapeError(
            f"conv{axes}d: filters of shape {weight.shape} in {groups} groups do not go with "
            f"{channels} channels"
        )
    _check_bias("conv", bias, filters)
    size = conv_size(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    if min(size) < 1:
        raise ShapeError(
            f"conv{axes}d: filters of shape {weight.shape} with dilation={dilation} do not fit "
            f"into {x.shape} with padding={padding}"
        )
    return Spec((x.shape[0], filters, *size), float_of(x))


def _run_transpose(
    dtype: np.dtype,
    x: Any,
    weight: Any,
    bias: Any,
    size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    precision: str | None,
) -> Any:
    K, axes = kernels(), len(stride)
    if bias is None:  # takes more sizes: what windows of the convolution did not reach
        shape = (x.shape[0], weight.shape[1] * groups, *size)
        how = (stride, padding, dilation, groups)
        return K.conv_input(shape, weight, x, *how, precision=precision)
    more = rest_of(size, x.shape[2:], weight.shape[2:], stride, padding, dilation)
    function = getattr(K, f"conv_transpose{axes}d")
    return function(x, weight, bias, stride, padding, more, groups, dilation, precision=precision)


def rest_of(
    size: Ints, given: Ints, window: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Ints:
    """How far a transposed convolution's result goes beyond its windows (`output_padding`)."""
    along = zip(size, given, window, stride, padding, dilation, strict=True)
    return tuple([n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, k, s, p, d in along])


@define("product", {"conv_transpose": _run_transpose})
def _conv_transpose(
    x: Spec,
    weight: Spec,
    bias: Spec | None,
    size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    precision: str | None,
) -> Spec:
    """What "conv" makes from, transposed: x (N, channels, *pixels), weight (channels,
    filters / groups, *window), to (N, filters, *size).
    """
    axes = len(stride)
    _check_ranks("conv_transpose", axes, x, weight)
    if groups < 1 or x.shape[1] != weight.shape[0] or weight.shape[0] % groups:
        raise ShapeError(
            f"conv_transpose{axes}d: filters of shape {weight.shape} in {groups} groups do not go "
            f"with {x.shape[1]} channels"
        )
    filters = weight.shape[1] * groups
    _check_bias("conv_transpose", bias, filters)
    if min(size) < 1 or conv_size(size, weight.shape[2:], stride, padding, dilation) != x.shape[2:]:
        raise ShapeError(
            f"conv_transpose{axes}d: a result of size {size} does not come from {x.shape} with "
            f"filters of shape {weight.shape}"
        )
    return Spec((x.shape[0], filters, *size), float_of(x))


def _run_weight(
    dtype: np.dtype,
    x: Any,
    g: Any,
    window: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    precision: str | None,
) -> Any:
    size = (g.shape[1], x.shape[1] // groups, *window)
    return kernels().conv_weight(x, size, g, stride, padding, dilation, groups, precision=precision)


@define("product", {"conv_weight": _run_weight})
def _conv_weight(
    x: Spec,
    g: Spec,
    window: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    precision: str | None,
) -> Spec:
    """The sums of x times g by the places of filters (g.shape[1], channels / groups, *window)."""
    _check_ranks("conv_weight", len(stride), x, g)
    fits = conv_size(x.shape[2:], window, stride, padding, dilation) == g.shape[2:]
    if not fits or x.shape[0] != g.shape[0] or x.shape[1] % groups or g.shape[1] % groups:
        raise ShapeError(
            f"conv_weight: a gradient {g.shape} does not come from an input {x.shape} and windows "
            f"{window} in {groups} groups"
        )
    return Spec((g.shape[1], x.shape[1] // groups, *window), float_of(x))


def _check_ranks(op: str, axes: int, *specs: Spec) -> None:
    if not 1 <= axes <= 3 or any(len(s.shape) != axes + 2 for s in specs):
        raise ShapeError(
            f"{op}{axes}d needs {axes + 2} axes, not shapes "
            f"{' and '.join(str(s.shape) for s in specs)}"
        )


def _check_bias(op: str, bias: Spec | None, filters: int) -> None:
    if bias is not None and bias.shape != (filters,):
        raise ShapeError(f"{op}: expected a bias of shape {(filters,)}, got {bias.shape}")


# Windows as columns

Pairs = tuple[tuple[int, int], ...]


@define("opaque", {"unfold": lambda d, x, how, counts: columns().unfold(x, how, counts)})
def _unfold(x: Spec, how: Pairs, counts: tuple[int, int]) -> Spec:
    """The windows of images (N, C, H, W) as columns (N, C * K, L); how: of both axes the windows'
    lengths, dilation, padding, stride; counts: of windows.
    """
    (high, wide), many = how[0], counts[0] * counts[1]
    if len(x.shape) != 4:
        raise ShapeError(f"unfold takes images (N, C, H, W), not {x.shape}")
    return Spec((x.shape[0], x.shape[1] * high * wide, many), x.dtype)


@define("opaque", {"fold": lambda d, x, size, how, counts: columns().fold(x, size, how, counts)})
def _fold(x: Spec, size: tuple[int, int], how: Pairs, counts: tuple[int, int]) -> Spec:
    """Images (N, C, *size) as the sums of windows that are columns."""
    high, wide = how[0]
    if len(x.shape) != 3 or x.shape[1] % (high * wide) or x.shape[2] != counts[0] * counts[1]:
        raise ShapeError(f"fold: {counts} windows of {how[0]} are no columns of shape {x.shape}")
    return Spec((x.shape[0], x.shape[1] // (high * wide), *size), x.dtype)
