"""Attention with caches, masks and windows, and rotary positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.formats.onnx_schema import DTYPES
from cubepy.models.onnx.ops.shapes import padded
from cubepy.models.onnx.records import Call, operator
from cubepy.nn import functional as F
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply

INF = float("inf")
LEAST = -1e29
"""What hides a score: rows whose keys are all hidden are means, as with the least float; on a GPU,
too, where attention takes anything below -8.8e29 for infinite (`LOWEST` of its softmax).
"""


def heads_of(x: Tensor, count: int) -> Tensor:
    """(B, L, H D) as (B, H, L, D)."""
    b, length, width = x.shape
    return x.reshape(b, length, count, width // count).permute(0, 2, 1, 3)


def joined(x: Tensor) -> Tensor:
    """(B, H, L, D) as (B, L, H D)."""
    b, h, length, width = x.shape
    return x.permute(0, 2, 1, 3).reshape(b, length, h * width)


def spread_heads(x: Tensor, count: int) -> Tensor:
    """Keys or values of fewer heads repeated, one after the other."""
    return x if x.shape[1] == count else x.repeat_interleave(count // x.shape[1], 1)


def softmax_or_zero(scores: Tensor, seen: Tensor | None) -> Tensor:
    """Softmax along the last axis; rows that see nothing are zero."""
    if seen is None:
        return apply("softmax", scores, axis=-1)
    top = T.where(seen, scores, T.full_like(scores, -INF)).max(axis=-1, keepdims=True)
    top = T.where(top == -INF, T.zeros_like(top), top)
    powers = T.where(seen, (scores - top).exp(), T.zeros_like(scores))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / T.where(total == 0, T.ones_like(total), total)


def seen_by(call: Call, q: Tensor, keys: int, before: Any, valid: Any, causal: bool) -> Any:
    """What each query may look at: bools that broadcast to (B, H, L, S), or None for everything.

    Args:
        call: the node, with `left_window_size` and `right_window_size`.
        q: queries (B, H, L, D).
        keys: how many there are.
        before: keys before the first query: a number, or (B,).
        valid: how many keys of each batch are there, or None.
        causal: whether queries see no later keys.
    """
    count = q.shape[2]
    left, right = call.get("left_window_size", -1), call.get("right_window_size", -1)
    conditions: list[Tensor] = []
    if causal or left >= 0 or right >= 0:
        row = np.arange(count, dtype=np.int64).reshape(count, 1)
        column = np.arange(keys, dtype=np.int64).reshape(1, keys)
        if isinstance(before, Tensor):
            distance = before.astype("i64").reshape(-1, 1, 1, 1) + T(row - column, device=q.device)
        else:
            distance = T(row - column + int(before), device=q.device)
        conditions += [distance >= 0] if causal else []
        conditions += [distance <= left] if left >= 0 else []
        conditions += [distance >= -right] if right >= 0 else []
    if valid is not None:
        there = T(np.arange(keys, dtype=np.int64), device=q.device).reshape(1, 1, 1, keys)
        conditions.append(there < valid.astype("i64").reshape(-1, 1, 1, 1))
    seen = None
    for one in conditions:
        seen = one if seen is None else seen & one
    return seen


@operator("Attention", 23)
def attention(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    old_k: Tensor | None = None,
    old_v: Tensor | None = None,
    valid: Tensor | None = None,
) -> Any:
    """softmax(scale q k^T + mask) v; also keys and values with the cache, and the scores."""
    flat = len(q.shape) == 3
    if flat:
        q = heads_of(q, call["q_num_heads"])
        k, v = (heads_of(x, call["kv_num_heads"]) for x in (k, v))
    if old_k is not None and old_v is not None:
        k, v = T.concat([old_k, k], axis=2), T.concat([old_v, v], axis=2)
    keys, dtype = k.shape[2], q.dtype
    before: Any = 0 if old_k is None else old_k.shape[2]
    if old_k is None and valid is not None:
        before = valid.astype("i64") - q.shape[2]
    causal = bool(call.get("is_causal", 0))
    if not call.wants(3) and fits(call, q, k, v) and mask is None and valid is None:
        plain = max(call.get(f"{side}_window_size", -1) for side in ("left", "right")) < 0
        if plain and (not causal or (old_k is None and q.shape[2] == keys)):
            made = F.scaled_dot_product_attention(q, k, v, None, 0.0, causal, call.get("scale"))
            return (joined(made) if flat else made), k, v, None
    seen = seen_by(call, q, keys, before, valid, causal)
    if mask is not None and mask.shape[-1] < keys:
        widths = [(0, 0)] * (len(mask.shape) - 1) + [(0, keys - mask.shape[-1])]
        mask = padded(mask, widths, 0 if mask.dtype.kind == "b" else -INF)
    if mask is not None:
        mask = mask.reshape(*(1,) * (4 - len(mask.shape)), *mask.shape)
        allowed = mask if mask.dtype.kind == "b" else mask > -INF
        seen = allowed if seen is None else seen & allowed
        mask = None if mask.dtype.kind == "b" else mask
    if not call.wants(3) and fits(call, q, k, v):
        made = masked(q, k, v, call.get("scale"), mask, seen)
        return (joined(made) if flat else made), k, v, None
    made, shown = attended(call, q, k, v, mask, seen)
    return (joined(made) if flat else made).astype(dtype), k, v, shown.astype(dtype)


def fits(call: Call, q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether heads (B, H, L, D) are those of the op of attention, which writes no scores."""
    same = q.dtype == k.dtype == v.dtype and q.dtype.name in ("f32", "f64")
    plain = not call.get("softcap", 0.0) and call.get("softmax_precision", 1) in (1, 11)
    return same and plain and 0 not in (*q.shape, *k.shape, *v.shape)


def masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    added: Tensor | None,
    seen: Tensor | None,
    all_see: bool = False,
    sums: bool = False,
) -> Any:
    """softmax(scale q k^T + added) v of what is seen; rows that see nothing are zero, unless it is
    known that there are none. With `sums` there are the logarithms of the softmax's sums, too.
    """
    mask = seen
    if added is not None:
        mask = (added if seen is None else T.where(seen, added, LEAST)).astype(q.dtype)
    if sums:
        return tuple(apply("attention_forward", q, k, v, mask, is_causal=False, scale=scale))
    made = F.scaled_dot_product_attention(q, k, v, mask, scale=scale)
    if seen is None or all_see:
        return made
    return T.where(seen.any(axis=-1, keepdims=True), made, T.zeros_like(made))


def attended(
    call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, seen: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The result, and the scores at the point that `qk_matmul_output_mode` names."""
    scale, mode = call.get("scale"), call.get("qk_matmul_output_mode", 0)
    root = math.sqrt(1 / math.sqrt(q.shape[3]) if scale is None else scale)
    scores = (q * root) @ (spread_heads(k, q.shape[1]) * root).permute(0, 1, 3, 2)
    shown = scores
    if cap := call.get("softcap", 0.0):
        scores = (scores / cap).tanh() * cap
        shown = scores if mode == 1 else shown
    if mask is not None:
        scores = scores + T.where(mask > -INF, mask, T.zeros_like(mask)).astype(scores.dtype)
    if seen is not None:
        seen = seen.expand(*scores.shape)
    if mode == 2:
        shown = scores if seen is None else T.where(seen, scores, T.full_like(scores, -INF))
    if "softmax_precision" in call.node.attributes:
        scores = scores.astype(DTYPES[call["softmax_precision"]])
    weights = softmax_or_zero(scores, seen)
    shown = weights if mode == 3 else shown
    return weights.astype(q.dtype) @ spread_heads(v, q.shape[1]).astype(q.dtype), shown


@operator("RotaryEmbedding", 23)
def rotary_embedding(
    call: Call, x: Tensor, cos: Tensor, sin: Tensor, position: Tensor | None = None
) -> Tensor:
    """Pairs of features rotated by angles that grow with the position (Su et al., 2021)."""
    flat = len(x.shape) == 3
    y = heads_of(x, call["num_heads"]) if flat else x
    made = rotated(
        y, cos, sin, position, bool(call.get("interleaved", 0)), call.get("rotary_embedding_dim", 0)
    )
    return joined(made) if flat else made


def rotated(
    x: Tensor, cos: Tensor, sin: Tensor, position: Tensor | None, interleaved: bool, width: int
) -> Tensor:
    """x (B, H, L, D) with the first `width` features rotated (0: all of them)."""
    width = width or x.shape[3]
    if position is not None:
        at = position.astype("i64")
        cos, sin = (apply("take", c, at, axis=0) for c in (cos, sin))
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    moving, rest = x[..., :width], x[..., width:]
    if interleaved:
        first, second = moving[..., 0::2], moving[..., 1::2]
    else:
        first, second = moving[..., : width // 2], moving[..., width // 2 :]
    real, imaginary = cos * first - sin * second, sin * first + cos * second
    if interleaved:
        made = T.stack([real, imaginary], axis=-1).reshape(*moving.shape)
    else:
        made = T.concat([real, imaginary], axis=-1)
    return T.concat([made, rest], axis=-1) if rest.shape[3] else made


@operator("FlexAttention", 1, domain="ai.onnx.preview")
def flex_attention(call: Call, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention with subgraphs for the scores and for the weights."""
    scale = call.get("scale")
    root = math.sqrt(1 / math.sqrt(q.shape[3]) if scale is None else scale)
    k, v = spread_heads(k, q.shape[1]), spread_heads(v, q.shape[1])
    scores = (q * root) @ (k * root).permute(0, 1, 3, 2)
    code = call.get("softmax_precision")
    wide = DTYPES[code] if code else np.float64 if q.dtype.bits == 64 else np.float32
    scores = scores.astype(wide)
    if call.get("score_mod") is not None:
        (scores,) = call.run_graph(call["score_mod"], [scores])
    weights = apply("softmax", scores.astype(wide), axis=-1)
    if call.get("prob_mod") is not None:
        (weights,) = call.run_graph(call["prob_mod"], [weights])
    return (weights.astype(wide) @ v.astype(wide)).astype(v.dtype)
