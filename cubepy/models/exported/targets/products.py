"""Products of matrices, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy import tensor as T
from cubepy.lang.dtypes import bool_
from cubepy.models.exported.records import target
from cubepy.nn import functional as F
from cubepy.tensor import Tensor


@target("linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(x, weight, bias)


@target("matmul mm bmm mv dot __matmul__")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


@target("addmm baddbmm addmv")
def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    found = a @ b
    found = found if alpha == 1 else found * alpha
    if beta == 0:
        return found
    return found + (x if beta == 1 else x * beta)


@target("outer ger")
def outer(a: Tensor, b: Tensor) -> Tensor:
    return a.unsqueeze(1) * b.unsqueeze(0)


@target("einsum")
def einsum(equation: str, tensors: Sequence[Tensor], **said: Any) -> Tensor:
    return T.einsum(equation, *tensors)


@target("tensordot")
def tensordot(a: Tensor, b: Tensor, dims_a: Sequence[int], dims_b: Sequence[int]) -> Tensor:
    for m, n in zip(dims_a, dims_b, strict=True):  # an axis of 1 goes with any other
        a = a.sum(m, True) if b.shape[n] == 1 else a
        b = b.sum(n, True) if a.shape[m] == 1 else b
    return T.tensordot(a, b, axes=(list(dims_a), list(dims_b)))


@target("bilinear")
def bilinear(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    found = T.einsum("...i,oij,...j->...o", a, weight, b)
    return found if bias is None else found + bias


@target("cosine_similarity")
def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    return F.cosine_similarity(a, b, dim, eps)


@target("scaled_dot_product_attention")
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Axes before the last three are one; torch's causal mask begins at the top left, as ours."""
    lead = q.shape[:-3]
    if attn_mask is not None and attn_mask.dtype is not bool_:
        attn_mask = attn_mask.astype(q.dtype)
    if q.ndim < 4:
        q, k, v = (t.unsqueeze(0) for t in (q, k, v))
        if attn_mask is not None and attn_mask.ndim == 3:
            attn_mask = attn_mask.unsqueeze(0)
        return attention(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)[0]
    if len(lead) > 1:
        q, k, v = (t.reshape((-1, *t.shape[-3:])) for t in (q, k, v))
        if attn_mask is not None and attn_mask.ndim > 2:
            full = (*lead, *attn_mask.shape[-3:])
            attn_mask = attn_mask.expand(full).reshape((-1, *full[-3:]))
    found = F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal, scale)
    return found.reshape((*lead, *found.shape[-3:])) if len(lead) > 1 else found
