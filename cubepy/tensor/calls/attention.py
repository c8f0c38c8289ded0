"""Attention of tensors."""

from __future__ import annotations

from typing import Any

from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.calls.table import call_of


@call_of("attention")
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """`attention`."""
    return attention_forward(query, key, value, is_causal, scale, attn_mask)[0]


@call_of("attention_forward")
def attention_forward(
    query: Any, key: Any, value: Any, is_causal: bool, scale: float | None, attn_mask: Any
) -> tuple[Tensor, Tensor]:
    """`attention_forward`."""
    mask = None if attn_mask is None else as_tensor(attn_mask)
    given = (as_tensor(query), as_tensor(key), as_tensor(value), mask)
    result, lse = apply("attention_forward", *given, is_causal=is_causal, scale=scale)
    return result, lse


@call_of("attention_gradients")
def attention_gradients(
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    result: Any,
    lse: Any,
    is_causal: bool,
    scale: float | None,
    attn_mask: Any,
) -> tuple[Tensor, ...]:
    """`attention_gradients`."""
    mask = None if attn_mask is None else as_tensor(attn_mask)
    given = [as_tensor(x) for x in (grad, query, key, value, result, lse)]
    made = apply("attention_gradients", *given, mask, is_causal=is_causal, scale=scale)
    return tuple(made)
