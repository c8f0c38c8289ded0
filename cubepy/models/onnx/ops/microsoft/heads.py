"""Attention in one node: of joined projections, of separate ones, of groups of heads."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.ops.sequence.attention import (
    INF,
    fits,
    heads_of,
    joined,
    masked,
    rotated,
    softmax_or_zero,
    spread_heads,
)
from cubepy.models.onnx.records import Call, operator
from cubepy.nn import functional as F
from cubepy.tensor import Tensor

MS = "com.microsoft"


def scored(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    seen: Tensor | None,
    triangle: bool = False,
    all_see: bool = False,
) -> Tensor:
    """softmax(scale q k^T + bias) v of heads, with soft caps; of a `triangle` queries see just the
    keys up to their own number, and where `all_see` each one sees a key.
    """
    scale = call.get("scale", 0.0) or 1 / math.sqrt(q.shape[3])
    if fits(call, q, k, v):
        if triangle and bias is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        return masked(q, k, v, scale, bias, seen, all_see)
    scores = (q @ spread_heads(k, q.shape[1]).permute(0, 1, 3, 2)) * scale
    if cap := call.get("softcap", 0.0):
        scores = (scores / cap).tanh() * cap
    if bias is not None:
        scores = scores + bias
    if seen is not None:
        seen = seen.expand(*scores.shape)
    weights = softmax_or_zero(scores, seen)
    return weights @ spread_heads(v, q.shape[1])


def causal(count: int, keys: int, before: int, device: Any) -> Tensor:
    """(1, 1, count, keys): keys up to each query, before whose first one there are some."""
    row, column = np.ogrid[:count, :keys]
    return T(column <= row + before, device=device).reshape(1, 1, count, keys)


def of_mask(call: Call, mask: Tensor, keys: int, batch: int) -> Tensor:
    """A mask of lengths (B,), of ends and beginnings (2 B,), of keys (B, S) or of pairs (B, L, S)
    as bools.
    """
    if len(mask.shape) == 1 and mask.shape[0] in (batch, 2 * batch):
        steps = T(np.arange(keys, dtype=np.int64), device=mask.device).reshape(1, 1, 1, keys)
        ends = mask.astype("i64").reshape(-1, 1, 1, 1)
        if mask.shape[0] == batch:
            return steps < ends
        return (steps < ends[:batch]) & (steps >= ends[batch:])
    if len(mask.shape) == 2:
        return (mask != 0).reshape(mask.shape[0], 1, 1, mask.shape[1])
    if len(mask.shape) == 3:
        return (mask != 0).unsqueeze(1)
    raise call.refuse(f"a mask of {list(mask.shape)}")


def finished(
    call: Call,
    parts: tuple[Tensor, Tensor, Tensor],
    old: tuple[Tensor, Tensor] | None,
    mask: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The result of heads with a cache, the new cache, and the scores if they are wanted.

    What a mask hides has less, `mask_filter_value`: where it hides all, rows are as without it.
    """
    q, k, v = parts
    if old is not None:
        k, v = T.concat([old[0], k], axis=2), T.concat([old[1], v], axis=2)
    keys, seen = k.shape[2], None
    before = 0 if old is None else old[0].shape[2]
    if mask is not None:
        allowed = of_mask(call, mask, keys, q.shape[0])
        less = T.full_like(allowed, call.get("mask_filter_value", -10000.0), dtype=q.dtype)
        less = T.where(allowed, T.zeros_like(less), less)
        bias = less if bias is None else bias + less
    triangle = bool(call.get("unidirectional", 0))
    if triangle and (before or bias is not None or not fits(call, q, k, v)):
        seen = causal(q.shape[2], keys, before, q.device)
    made = joined(scored(call, q, k, v, bias, seen, triangle and seen is None, True))
    return made, k, v, shown(call, q, k, bias, before) if call.wants(3) else None


def shown(call: Call, q: Tensor, k: Tensor, bias: Tensor | None, before: int) -> Tensor:
    """The scores that `MultiHeadAttention` gives: with what is added, before the softmax."""
    scale = call.get("scale", 0.0) or 1 / math.sqrt(q.shape[3])
    scores = (q @ k.permute(0, 1, 3, 2)) * scale
    scores = scores if bias is None else scores + bias
    if not call.get("unidirectional", 0):
        return scores
    seen = causal(q.shape[2], k.shape[2], before, q.device)
    return T.where(seen, scores, T.full_like(scores, -INF))


@operator("Attention", domain=MS)
def attention(
    call: Call,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    old: Tensor | None = None,
    added: Tensor | None = None,
) -> Any:
    """Attention of one joined projection; also the cache (2, B, H, S, D)."""
    made = x @ weight
    return projected(call, made if bias is None else made + bias, mask, old, added)


def projected(
    call: Call, made: Tensor, mask: Tensor | None, old: Tensor | None, added: Tensor | None
) -> Any:
    """Attention of q, k and v side by side."""
    if call.get("do_rotary", 0):
        raise call.refuse("rotary positions of a joined projection")
    sizes = call.get("qkv_hidden_sizes") or [made.shape[-1] // 3] * 3
    count, ends = call["num_heads"], np.cumsum([0, *sizes])
    q, k, v = (heads_of(made[:, :, int(a) : int(b)], count) for a, b in itertools.pairwise(ends))
    cache = None if old is None else (old[0], old[1])
    result, k, v, _ = finished(call, (q, k, v), cache, mask, added)
    return result, T.stack([k, v], axis=0) if call.wants(1) else None


@operator("MultiHeadAttention", domain=MS)
def multi_head_attention(
    call: Call,
    q: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    added: Tensor | None = None,
    old_k: Tensor | None = None,
    old_v: Tensor | None = None,
) -> Any:
    """Attention of separate, joined or already split projections; also the cache."""
    count = call["num_heads"]
    if k is None:
        if len(q.shape) != 5:
            raise call.refuse("queries without keys must be (B, L, heads, 3, D)")
        q, k, v = (q[:, :, :, n].permute(0, 2, 1, 3) for n in range(3))
        return finished(call, (q, k, v), None, mask, added)
    if v is None:
        k, v = (k[:, :, :, n].permute(0, 2, 1, 3) for n in range(2))
    if bias is not None:
        width = q.shape[-1]
        q = q + bias[:width]
        if len(k.shape) == 3:
            k = k + bias[width : width + k.shape[-1]]
            v = v + bias[bias.shape[0] - v.shape[-1] :]
    q, k, v = (heads_of(t, count) if len(t.shape) == 3 else t for t in (q, k, v))
    old = None if old_k is None or old_v is None else (old_k, old_v)
    return finished(call, (q, k, v), old, mask, added)


@operator("RotaryEmbedding", domain=MS)
def rotary_embedding(call: Call, x: Tensor, position: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs of features rotated by angles of their positions."""
    flat = len(x.shape) == 3
    width = call.get("rotary_embedding_dim", 0)
    count = call.get("num_heads", 0) or (x.shape[-1] // (2 * cos.shape[-1]) if flat else x.shape[1])
    y = heads_of(x, count) if flat else x
    steps = T(np.arange(y.shape[2], dtype=np.int64), device=x.device).reshape(1, -1)
    at = position.astype("i64")
    at = steps + at.reshape(-1, 1) if len(at.shape) == 1 else at
    at = at.expand(y.shape[0], y.shape[2])
    made = rotated(y, cos, sin, at, bool(call.get("interleaved", 0)), width)
    return joined(made) if flat else made
