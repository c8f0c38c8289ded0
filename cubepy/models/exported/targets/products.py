"""Products of matrices, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy import tensor as T
from cubepy.errors import ModelError
from cubepy.lang.dtypes import bool_, f32
from cubepy.models.exported.records import target
from cubepy.models.packed.picked import picked
from cubepy.nn import functional as F
from cubepy.tensor import Tensor
from cubepy.tensor.modes import is_grad_enabled
from cubepy.tensor.storage import HOST


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


FEW_GROUPS = 8
"""Groups up to which all rows meet all matrices: as many products are that much quicker."""


@target("_grouped_mm transformers.grouped_mm_fallback.default")
def grouped_mm(
    x: Tensor,
    weight: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:
    """Rows (S, K), each by the matrix (E, K, N) of its group, of which `offs` has the ends: what
    experts read. Rows behind the last group are zero.
    """
    if offs is None:
        found = x @ weight
    elif (x.ndim, weight.ndim) != (2, 3):
        raise ModelError(
            f"products of groups of rows with a stack of matrices run, not of {x.shape} and "
            f"{weight.shape}"
        )
    else:
        rows, groups = T.arange(x.shape[0], dtype="i64", device=x.device), weight.shape[0]
        which = (rows.unsqueeze(1) >= offs.astype("i64").unsqueeze(0)).astype("i64").sum(1)
        learns = is_grad_enabled() and (x.requires_grad or weight.requires_grad)
        plain = x.dtype is weight.dtype is f32 and x.device == HOST and weight.device == HOST
        if plain and not learns and (groups > FEW_GROUPS or x.shape[0] <= groups):
            found = picked(x, weight.transpose(1, 2), which)
            found = T.where((which < groups).unsqueeze(1), found, T.zeros_like(found))
        else:
            parts = [x @ weight[e] for e in range(groups)]
            found = T.zeros_like(parts[0])
            for e, part in enumerate(parts):
                found = T.where((which == e).unsqueeze(1), part, found)
    found = found if bias is None else found + bias
    return found if out_dtype is None else found.astype(out_dtype)


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
