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
from cubepy.nn.functional.linear import linear, optional
from cubepy.nn.functional.padding import pad
from cubepy.tensor import Tensor, apply, as_tensor, is_grad_enabled
from cubepy.tensor.array import constant
from cubepy.tensor.gradients.attention import formula
from cubepy.tensor.namespace import concat, where


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale * query @ key.T + mask) @ value, without ever writing the scores to memory.

    Args:
        query: (B, H, L, D), or (H, L, D) as the others, or (L, D), or with more axes in front.
        key: (B, G, S, D); G divides H.
        value: (B, G, S, E).
        attn_mask: broadcastable to (B, H, L, S): bool (true: may look), or floats that are added.
        dropout_p: which part of the weights is left out; torch's, too, does so in any mode.
        is_causal: query i sees keys 0 to i.
        scale: 1 / sqrt(D) by default.
        enable_gqa: nothing: that heads share keys (G below H) is seen from the shapes.

    Returns:
        (B, H, L, E).

    Example:
        >>> one = [[[[1.0, 0.0], [0.0, 1.0]]]]  # a batch of one, one head, two positions
        >>> scaled_dot_product_attention(one, one, one, is_causal=True, scale=100.0)
        tensor([[[[1., 0.],
                  [0., 1.]]]])
    """
    q, k, v = as_tensor(query), as_tensor(key), as_tensor(value)
    query_shape, mask = q.shape, optional(attn_mask)
    causal = arguments.flag("is_causal", is_causal)
    if not q.ndim == k.ndim == v.ndim and min(q.ndim, k.ndim, v.ndim) > 2:
        front = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
        q, k, v = (t.expand(*front, *t.shape[-2:]) for t in (q, k, v))
        query_shape = q.shape
    if q.ndim == k.ndim == v.ndim != 4 and q.ndim > 1:
        front = q.shape[:-3]
        if mask is not None and len(front) > 1:
            mask = mask.broadcast_to((*front, *np.broadcast_shapes(mask.shape[-3:], (1, 1, 1))))
            mask = mask.reshape(-1, *mask.shape[-3:])
        q, k, v = (_in_four_axes(t) for t in (q, k, v))
        given = scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, scale)
        return given.reshape(*query_shape[:-1], given.shape[-1])
    wanted = is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, k, v, mask))
    if dropout_p or q.dtype is f64:
        _of_four_axes(q, k, v)
    if dropout_p:
        return attention_with_weights(q, k, v, mask, dropout_p, causal, scale)[0]
    if q.dtype is f64:  # there is no kernel
        return formula(q, k, v, mask, causal, scale)[0]
    if wanted:  # gradients are computed from the log-sum-exp of the scores
        made = apply("attention_forward", q, k, v, mask, is_causal=causal, scale=scale)
        return made[0]  # type: ignore[no-any-return]
    return apply("attention", q, k, v, mask, is_causal=causal, scale=scale)


def _in_four_axes(x: Tensor) -> Tensor:
    """(..., H, L, D) or (L, D) -> (B, H, L, D)."""
    heads = x.shape[-3] if x.ndim > 2 else 1
    return x.reshape(math.prod(x.shape[:-3]), heads, *x.shape[-2:])


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


def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What `torch.nn.MultiheadAttention` does, with its weights as arguments.

    Args:
        query: (L, B, E), or (L, E); key and value (S, B, ...).
        embed_dim_to_check: E.
        num_heads: how many heads E is split into.
        in_proj_weight, in_proj_bias: of queries, keys and values, one below the other.
        bias_k, bias_v: a key and a value (1, 1, E) that are added to all, or None.
        add_zero_attn: whether a key and a value of zeros are added to all.
        dropout_p: which part of the weights is left out while `training`.
        out_proj_weight, out_proj_bias: of the result.
        key_padding_mask: (B, S): true, or -inf, where a key is not looked at.
        need_weights: whether the weights of attention are wanted.
        attn_mask: (L, S) or (B * num_heads, L, S): true where a query may not look, or floats that
            are added.
        use_separate_proj_weight: `q_proj_weight`, `k_proj_weight`, `v_proj_weight` are used.
        static_k, static_v: (B * num_heads, S, E / num_heads) in place of keys and values.
        average_attn_weights: whether the weights are the mean over heads.
        is_causal: with `attn_mask` only a hint that it is causal.

    Returns:
        The result (L, B, E), and the weights (B, L, S) or None.

    Raises:
        ShapeError: another E, which num_heads does not divide, or a mask of another shape.

    Example:
        >>> import cubepy as cb
        >>> x, eye = cb.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), cb.tensor.eye(2)
        >>> how = (2, 1, cb.tensor.concat([eye, eye, eye]), None, None, None, False, 0.0, eye, None)
        >>> out, weights = multi_head_attention_forward(x, x, x, *how)
        >>> out.shape, weights.shape
        ((2, 1, 2), (1, 2, 2))
    """
    q, k, v = as_tensor(query), as_tensor(key), as_tensor(value)
    if q.ndim == 2:
        named = {name: given for name, given in locals().items() if name not in ("q", "k", "v")}
        padding = optional(key_padding_mask)
        named["key_padding_mask"] = None if padding is None else padding.unsqueeze(0)
        named |= {"query": q.unsqueeze(1), "key": k.unsqueeze(1), "value": v.unsqueeze(1)}
        out, weights = multi_head_attention_forward(**named)
        return out.squeeze(1), None if weights is None else weights.squeeze(0)
    length, batch, width = q.shape
    if width != embed_dim_to_check or width % num_heads:
        raise ShapeError(f"{num_heads} heads of {embed_dim_to_check} features, not of {width}")
    split = (q_proj_weight, k_proj_weight, v_proj_weight)
    whole = None if use_separate_proj_weight else as_tensor(in_proj_weight)
    offset = optional(in_proj_bias)
    parts = [slice(n * width, (n + 1) * width) for n in range(3)]
    projected = [
        linear(x, given if whole is None else whole[part], None if offset is None else offset[part])
        for x, given, part in zip((q, k, v), split, parts, strict=True)
    ]
    mask, padding = optional(attn_mask), optional(key_padding_mask)
    if is_causal and mask is None:
        raise ShapeError("is_causal is a hint about attn_mask, which is missing")
    heads: list[Tensor] = []
    for x, added, static in zip(
        projected, (None, bias_k, bias_v), (None, static_k, static_v), strict=True
    ):
        if added is not None:
            x = concat([x, as_tensor(added).expand(1, batch, width)], axis=0)
        x = x.reshape(x.shape[0], batch, num_heads, width // num_heads).permute(1, 2, 0, 3)
        if static is not None:
            x = as_tensor(static).reshape(batch, num_heads, -1, width // num_heads)
        if add_zero_attn and x.shape[2] and len(heads):
            x = pad(x, (0, 0, 0, 1))
        heads.append(x)
    total = None
    more = int(bias_k is not None) + int(bool(add_zero_attn))
    for given in (mask, padding):
        if given is None:
            continue
        m = given
        if m.dtype is bool_:
            zero = constant(0.0, q.dtype).to(q.device)
            m = where(m, constant(-math.inf, q.dtype).to(q.device), zero)
        if given is padding:
            m = m.reshape(batch, 1, 1, m.shape[1])
        elif m.ndim == 3:
            m = m.reshape(batch, num_heads, *m.shape[1:])
        m = pad(m, (0, more)) if more else m
        total = m if total is None else total + m
    q, k, v = heads
    dropped = dropout_p if training else 0.0
    found: Tensor | None = None
    if need_weights:
        out, found = attention_with_weights(q, k, v, total, dropped)
        found = found.mean(axis=1) if average_attn_weights else found
    else:
        out = scaled_dot_product_attention(q, k, v, total, dropped)
    joined = out.permute(2, 0, 1, 3).reshape(length, batch, width)
    return linear(joined, out_proj_weight, out_proj_bias), found
