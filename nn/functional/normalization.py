"""Normalisation over axes."""

from __future__ import annotations

from typing import Any

from cubepy.errors import LaunchError
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


def normalize(input: Any, p: float = 2.0, dim: int = -1, eps: float = 1e-12) -> Tensor:
    """Divided by its norm along an axis (at least eps); p is 2.

    Example:
        >>> normalize([[3.0, 4.0]])
        tensor([[0.6, 0.8]])
    """
    if p != 2:
        raise LaunchError(f"normalize knows the norm with p = 2, not {p}")
    x = as_tensor(input)
    wide = arguments.widened(x)
    y = wide / (wide * wide).sum(axis=dim, keepdims=True).sqrt().clip(eps)
    return y.astype(x.dtype) if wide is not x else y
