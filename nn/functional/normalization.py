"""Normalisation over axes."""

from __future__ import annotations

import math
from typing import Any

from cubepy.errors import ShapeError
from cubepy.nn import arguments
from cubepy.nn.functional.linear import optional
from cubepy.tensor import Tensor, apply, as_tensor


def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """Normalise over the last axes to mean 0 and variance 1, then scale and shift.

    Example:
        >>> layer_norm([[1.0, 3.0]], 2).numpy().round(3)
        array([[-1.,  1.]], dtype=float32)
    """
    shape, eps = (
        arguments.shape("normalized_shape", normalized_shape),
        arguments.number("eps", eps, 0),
    )
    return apply(
        "layer_norm",
        as_tensor(input),
        optional(weight),
        optional(bias),
        normalized_shape=shape,
        eps=eps,
    )


def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divided by its norm (sum |x|^p)^(1/p) along an axis (at least eps).

    Example:
        >>> normalize([[3.0, 4.0]])
        tensor([[0.6, 0.8]])
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    y = wide / wide.norm(p, dim, keepdim=True).clip(eps)
    return y.astype(x.dtype) if wide is not x else y


def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """Normalise groups of channels (axis 1) of each sample, then scale and shift each channel.

    Raises:
        ShapeError: the groups do not divide the channels.

    Example:
        >>> group_norm([[1.0, 3.0, 2.0, 2.0]], 2).numpy().round(3)
        array([[-1.,  1.,  0.,  0.]], dtype=float32)
    """
    x = as_tensor(input)
    groups = arguments.size("num_groups", num_groups, 1)
    if x.ndim < 2 or x.shape[1] % groups:
        raise ShapeError(f"group_norm: {groups} groups do not divide the channels of {x.shape}")
    wide = arguments.widened(x)
    rows = wide.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    y = layer_norm(rows, rows.shape[-1], eps=eps).reshape(x.shape)
    channels = (x.shape[1], *(1,) * (x.ndim - 2))
    if weight is not None:
        y = y * as_tensor(weight).reshape(channels)
    if bias is not None:
        y = y + as_tensor(bias).reshape(channels)
    return y.astype(x.dtype) if wide is not x else y


def instance_norm(input: Any, *, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Normalise each channel (axis 1) of each sample, then scale and shift it.

    Example:
        >>> instance_norm([[[1.0, 3.0]]]).numpy().round(3)
        array([[[-1.,  1.]]], dtype=float32)
    """
    x = as_tensor(input)
    if x.ndim < 2:
        raise ShapeError(f"instance_norm: an input of shape {x.shape} has no axis of channels")
    return group_norm(x, x.shape[1], weight, bias, eps)
