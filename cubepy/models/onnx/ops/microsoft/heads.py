"""Attention in one node: of joined projections, of separate ones, of groups of heads."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.ops.sequence.attention import (
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


def causal(count: int, keys: int, device: Any) -> Tensor:
    """(1, 1, count, keys): keys up to each query, which are the last ones."""
    row, column = np.ogrid[:count, :keys]
    return T(column <= row + keys - count, device=device).reshape(1, 1, count, keys)


def of_mask(call: Call, mask: Tensor | None, keys: int, shape: tuple[int, ...]) -> Tensor | None:
    """A mask of lengths (B,), of keys (B, S) or of pairs (B, L, S) as bools."""
    if mask is None:
        return None
    if len(mask.shape) == 1 and mask.shape[0] == shape[0]:
        steps = T(np.arange(keys, dtype=np.int64), device=mask.device).reshape(1, 1, 1, keys)
        return steps < mask.astype("i64").reshape(-1, 1, 1, 1)
    if len(mask.shape) == 2:
        return (mask != 0).reshape(mask.shape[0], 1, 1, mask.shape[1])
    if len(mask.shape) == 3:
        return (mask != 0).unsqueeze(1)
    raise call.refuse(f"a mask of {list(mask.shape)}")


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """What two masks allow."""
    return b if a is None else a if b is None else a & b


def finished(
    call: Call,
    parts: tuple[Tensor, Tensor, Tensor],
    old: tuple[Tensor, Tensor] | None,
    mask: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result of heads with a cache, and the new cache."""
    q, k, v = parts
    if old is not None:
        k, v = T.concat([old[0], k], axis=2), T.concat([old[1], v], axis=2)
    keys = k.shape[2]
    seen = of_mask(call, mask, keys, q.shape)
    triangle = bool(call.get("unidirectional", 0)) and seen is None and q.shape[2] == keys
    all_see = seen is None and q.shape[2] <= keys
    if call.get("unidirectional", 0):
        seen = both(seen, causal(q.shape[2], keys, q.device))
    return joined(scored(call, q, k, v, bias, seen, triangle, all_see)), k, v


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
    sizes = call.get("qkv_hidden_sizes") or [made.shape[-1] // 3] * 3
    count, ends = call["num_heads"], np.cumsum([0, *sizes])
    q, k, v = (heads_of(made[:, :, int(a) : int(b)], count) for a, b in itertools.pairwise(ends))
    cache = None if old is None else (old[0], old[1])
    result, k, v = finished(call, (q, k, v), cache, mask, added)
    return result, T.stack([k, v], axis=0)


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


@operator("GroupQueryAttention", domain=MS)
def group_query_attention(
    call: Call,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    old_k: Tensor | None,
    old_v: Tensor | None,
    last: Tensor,
    total: Tensor,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    positions: Tensor | None = None,
    bias: Tensor | None = None,
    *others: Tensor | None,
) -> Any:
    """Attention of groups of heads with a cache; `last` is the last key of each batch."""
    if any(o is not None for o in others):
        raise call.refuse("head sinks, and scales of keys and values")
    heads, groups = call["num_heads"], call["kv_num_heads"]
    if k is None or v is None:
        width = q.shape[-1] // (heads + 2 * groups)
        ends = (heads * width, (heads + groups) * width)
        q, k, v = q[:, :, : ends[0]], q[:, :, ends[0] : ends[1]], q[:, :, ends[1] :]
    q, k, v = heads_of(q, heads), heads_of(k, groups), heads_of(v, groups)
    count = q.shape[2]
    steps = T(np.arange(count, dtype=np.int64), device=q.device)
    before = 0 if old_k is None else old_k.shape[2]

    def placed(*shape: int) -> Tensor:
        """Positions of the queries, (B or 1, ..., count, ...)."""
        one = [1] * (len(shape) - 1)
        at = steps.reshape(*shape)
        return at + (last.reshape(-1, *one).astype("i64") + (1 - count)) if before else at

    if call.get("do_rotary", 0):
        if cos is None or sin is None:
            raise call.refuse("rotary positions without cosines and sines")
        way = bool(call.get("rotary_interleaved", 0))
        angles = placed(1, count) if positions is None else positions.astype("i64")
        angles = angles.expand(q.shape[0], count)
        q, k = (rotated(t, cos, sin, angles, way, 2 * cos.shape[-1]) for t in (q, k))
    if old_k is not None and old_v is not None and before:
        k, v = T.concat([old_k, k], axis=2), T.concat([old_v, v], axis=2)
    keys = k.shape[2]
    column = T(np.arange(keys, dtype=np.int64), device=q.device).reshape(1, 1, 1, keys)
    row = placed(1, 1, count, 1)
    seen = column <= row  # each query has a key of its own
    if (window := call.get("local_window_size", -1)) >= 0:
        seen = seen & (column > row - window)
    triangle = not before and count == keys and window < 0
    return joined(scored(call, q, k, v, bias, seen, triangle, True)), k, v


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
