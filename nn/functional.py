"""Functions of tensors with the names, argument order and defaults of `torch.nn.functional`.

Arguments may be tensors or anything that `cb.tensor` takes; results are tensors.
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import LaunchError
from cubepy.nn import init
from cubepy.tensor import Tensor, apply, as_tensor


def _optional(value: Any) -> Tensor | None:
    return None if value is None else as_tensor(value)


def linear(input: Any, weight: Any, bias: Any = None, *, activation: str | None = None, residual: Any = None) -> Tensor:
    """`activation(input @ weight.T + bias) + residual`, in one pass.

    Args:
        input: (..., in_features).
        weight: (out_features, in_features), of any storage, such as quantized.
        bias: (out_features,) or None.
        activation: "gelu", "gelu_tanh", "relu", "silu", "sigmoid" or "tanh", or None.
        residual: (..., out_features) to add at the end, or None.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> linear([[1.0, 2.0]], [[3.0, 4.0]], [0.5])
        tensor([[11.5]])
    """
    if activation is not None and activation not in ACTIVATIONS:
        raise LaunchError(f"there is no activation {activation!r}", hint=f"use one of {', '.join(ACTIVATIONS)}")
    return apply(
        "linear", as_tensor(input), as_tensor(weight), _optional(bias), _optional(residual), activation=activation
    )


ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "sigmoid", "tanh")


def embedding(input: Any, weight: Any) -> Tensor:
    """Rows of a table: (..., width) for integer indices (...) and a weight (entries, width).

    Raises:
        OutOfBoundsError: an index outside the table.
    """
    return apply("embedding", as_tensor(input), as_tensor(weight))


def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Normalise over the last axes to mean 0 and variance 1, then scale and shift."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    return apply(
        "layer_norm", as_tensor(input), _optional(weight), _optional(bias), normalized_shape=shape, eps=float(eps)
    )


def gelu(input: Any, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit; `approximate` is "none" (error function) or "tanh"."""
    return apply("gelu", as_tensor(input), approximate=approximate)


def relu(input: Any) -> Tensor:
    """max(x, 0)."""
    return apply("relu", as_tensor(input))


def silu(input: Any) -> Tensor:
    """x / (1 + exp(-x))."""
    return apply("silu", as_tensor(input))


def sigmoid(input: Any) -> Tensor:
    """1 / (1 + exp(-x))."""
    return apply("sigmoid", as_tensor(input))


def tanh(input: Any) -> Tensor:
    """Hyperbolic tangent."""
    return apply("tanh", as_tensor(input))


def softmax(input: Any, dim: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis."""
    return apply("softmax", as_tensor(input), axis=dim)


def dropout(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p); the identity unless training."""
    if not 0 <= p <= 1:
        raise LaunchError(f"dropout needs a probability between 0 and 1, not {p}")
    x = as_tensor(input)
    if not training or p == 0:
        return x
    kept = as_tensor((init.generator().random(x.shape) >= p).astype(x.dtype.numpy))
    return x * kept * (1 / (1 - p) if p < 1 else 0.0)


def normalize(input: Any, p: float = 2.0, dim: int = -1, eps: float = 1e-12) -> Tensor:
    """Divided by its norm along an axis (at least eps); p is 2."""
    if p != 2:
        raise LaunchError(f"normalize knows the norm with p = 2, not {p}")
    x = as_tensor(input)
    return x / (x * x).sum(axis=dim, keepdims=True).sqrt().clip(eps)


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    """softmax(scale * query @ key.T + mask) @ value, without ever writing the scores to memory.

    Args:
        query: (B, H, L, D).
        key: (B, G, S, D); G divides H.
        value: (B, G, S, E).
        attn_mask: broadcastable to (B, H, L, S): bool (true: may look), or floats that are added.
        dropout_p: must be 0.
        is_causal: query i sees keys 0 to i.
        scale: 1 / sqrt(D) by default.

    Returns:
        (B, H, L, E).
    """
    if dropout_p:
        raise LaunchError(f"attention has no dropout, but dropout_p is {dropout_p}", hint="pass dropout_p=0.0")
    q, k, v = as_tensor(query), as_tensor(key), as_tensor(value)
    return apply("attention", q, k, v, _optional(attn_mask), is_causal=bool(is_causal), scale=scale)
