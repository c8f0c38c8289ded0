"""Functions of tensors with the names, argument order and defaults of `torch.nn.functional`.

Arguments may be tensors or anything that `cb.tensor` takes; results are tensors.

Example:
    >>> from cubepy.nn import functional as F
    >>> F.linear([[1.0, 2.0]], [[3.0, 4.0]], activation="relu", residual=[[100.0]])
    tensor([[111.]])
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import LaunchError
from cubepy.nn import arguments, init
from cubepy.tensor import Tensor, apply, as_tensor


def _optional(value: Any) -> Tensor | None:
    return None if value is None else as_tensor(value)


def linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
) -> Tensor:
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
        raise LaunchError(
            f"there is no activation {activation!r}", hint=f"use one of {', '.join(ACTIVATIONS)}"
        )
    return apply(
        "linear",
        as_tensor(input),
        as_tensor(weight),
        _optional(bias),
        _optional(residual),
        activation=activation,
    )


ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "sigmoid", "tanh")


def embedding(input: Any, weight: Any) -> Tensor:
    """Rows of a table: (..., width) for integer indices (...) and a weight (entries, width).

    Raises: OutOfBoundsError: an index is negative or not below the number of entries. On a GPU,
        which is not waited for, it gives zeros, and this error in validate mode or with
        CUBEPY_DEBUG=1.

    Example:
        >>> embedding([2, 0], [[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]])
        tensor([[3. , 3.5],
                [1. , 1.5]])
    """
    return apply("embedding", as_tensor(input), as_tensor(weight))


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
        _optional(weight),
        _optional(bias),
        normalized_shape=shape,
        eps=eps,
    )


def gelu(input: Any, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit; `approximate` is "none" (error function) or "tanh".

    Example:
        >>> gelu([-1.0, 0.0, 1.0])
        tensor([-0.15865523,  0.        ,  0.8413448 ])
    """
    return apply("gelu", as_tensor(input), approximate=approximate)


def relu(input: Any) -> Tensor:
    """max(x, 0).

    Example:
        >>> relu([-1.0, 0.0, 1.0])
        tensor([0., 0., 1.])
    """
    return apply("relu", as_tensor(input))


def silu(input: Any) -> Tensor:
    """x / (1 + exp(-x)).

    Example:
        >>> silu([-1.0, 0.0, 1.0])
        tensor([-0.26894143,  0.        ,  0.7310586 ])
    """
    return apply("silu", as_tensor(input))


def sigmoid(input: Any) -> Tensor:
    """1 / (1 + exp(-x)).

    Example:
        >>> sigmoid([-1.0, 0.0, 1.0])
        tensor([0.26894143, 0.5       , 0.7310586 ])
    """
    return apply("sigmoid", as_tensor(input))


def tanh(input: Any) -> Tensor:
    """Hyperbolic tangent.

    Example:
        >>> tanh([-1.0, 0.0, 1.0])
        tensor([-0.7615942,  0.       ,  0.7615942])
    """
    return apply("tanh", as_tensor(input))


def softmax(input: Any, dim: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis.

    Example:
        >>> softmax([[0.0, 0.0], [0.0, 100.0]])
        tensor([[0.5, 0.5],
                [0. , 1. ]])
    """
    return apply("softmax", as_tensor(input), axis=dim)


def dropout(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p); the identity unless
    training.

    Example:
        >>> dropout([1.0, 2.0], training=False)
        tensor([1., 2.])
        >>> dropout([1.0, 2.0], p=1.0)
        tensor([0., 0.])
    """
    p, training = (
        arguments.number("p, the probability of dropout,", p, 0, 1),
        arguments.flag("training", training),
    )
    x = as_tensor(input)
    if not training or p == 0:
        return x
    kept = as_tensor((init.generator().random(x.shape) >= p).astype(x.dtype.numpy))
    return x * kept * (1 / (1 - p) if p < 1 else 0.0)


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


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
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

    Example:
        >>> one = [[[[1.0, 0.0], [0.0, 1.0]]]]  # a batch of one, one head, two positions
        >>> scaled_dot_product_attention(one, one, one, is_causal=True, scale=100.0)
        tensor([[[[1., 0.],
                  [0., 1.]]]])
    """
    if dropout_p:
        raise LaunchError(
            f"attention has no dropout, but dropout_p is {dropout_p}", hint="pass dropout_p=0.0"
        )
    q, k, v = as_tensor(query), as_tensor(key), as_tensor(value)
    return apply(
        "attention",
        q,
        k,
        v,
        _optional(attn_mask),
        is_causal=arguments.flag("is_causal", is_causal),
        scale=scale,
    )
