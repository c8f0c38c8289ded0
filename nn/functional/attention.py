"""Attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import bool_, f64
from cubepy.nn import arguments
from cubepy.nn.functional.activations import softmax
from cubepy.nn.functional.dropout import dropout
from cubepy.nn.functional.linear import optional
from cubepy.tensor import Tensor, apply, as_tensor, is_grad_enabled
from cubepy.tensor.namespace import where


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
        query: (B, H, L, D), or (H, L, D) as the others.
        key: (B, G, S, D); G divides H.
        value: (B, G, S, E).
        attn_mask: broadcastable to (B, H, L, S): bool (true: may look), or floats that are added.
        dropout_p: which part of the weights is left out; torch's, too, does so in any mode.
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
    q, k, v = as_tensor(query), as_tensor(key), as_tensor(value)
    mask = optional(attn_mask)
    causal = arguments.flag("is_causal", is_causal)
    if q.ndim == k.ndim == v.ndim == 3:
        q, k, v = q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0)
        given = scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, scale)
        return given.reshape(given.shape[1:])
    wanted = is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, v, mask))
    if dropout_p or q.dtype is f64:
        _of_four_axes(q, k, v)
        return attention_with_weights(q, k, v, mask, dropout_p, causal, scale)[0]
    if wanted:  # gradients are computed from the log-sum-exp of the scores
        made = apply("attention_forward", q, k, v, mask, is_causal=causal, scale=scale)
        return made[0]  # type: ignore[no-any-return]
    return apply("attention", q, k, v, mask, is_causal=causal, scale=scale)


def _of_four_axes(*tensors: Tensor) -> None:
    if any(t.ndim != 4 for t in tensors):
        shapes = ", ".join(str(t.shape) for t in tensors)
        raise ShapeError(f"attention: expected rank 4 (batch, heads, length, depth), got {shapes}")


def attention_with_weights(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention that writes its weights down: those that dropout thins out, or that are asked for.

    Returns:
        The result, and the weights (B, H, L, S).

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
        >>> attention_with_weights(x, x, x, is_causal=True, scale=100.0)[1]
        tensor([[[[1., 0.],
                  [0., 1.]]]])
    """
    if q.shape[1] != k.shape[1]:  # groups of query heads share a key head
        groups = q.shape[1] // k.shape[1]
        k, v = (_repeated(t, groups) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        rows = np.arange(q.shape[2])[:, None] >= np.arange(k.shape[2])
        scores = where(as_tensor(rows).to(q.device), scores, -math.inf)
    if mask is not None:
        scores = where(mask, scores, -math.inf) if mask.dtype is bool_ else scores + mask
    weights = softmax(scores, -1)
    if dropout_p:
        weights = dropout(weights, dropout_p)
    return weights @ v, weights


def _repeated(x: Tensor, groups: int) -> Tensor:
    """(B, G, S, D) -> (B, G * groups, S, D)."""
    b, g, s, d = x.shape
    return x.unsqueeze(2).expand(b, g, groups, s, d).reshape(b, g * groups, s, d)
