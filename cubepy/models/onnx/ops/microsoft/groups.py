"""Attention of groups of heads with a cache, whose sequences may have several lengths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.ops.microsoft.heads import MS, scored
from cubepy.models.onnx.ops.sequence.attention import (
    INF,
    fits,
    heads_of,
    joined,
    masked,
    rotated,
    spread_heads,
)
from cubepy.models.onnx.ops.shapes import padded
from cubepy.models.onnx.records import Call, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply


@operator("GroupQueryAttention", domain=MS, known=(6,))
def group_query_attention(
    call: Call,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    old_k: Tensor | None,
    old_v: Tensor | None,
    last: Tensor,
    total: Any,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    positions: Tensor | None = None,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
    *others: Tensor | None,
) -> Any:
    """Attention of groups of heads with a cache; `last` is the last key of each batch, `total` how
    many keys the longest one has.
    """
    valid = others[4] if len(others) > 4 else None
    if any(o is not None for o in others[:4]) or call.get("sliding_window_cache", 0):
        raise call.refuse("quantized caches, caches of windows, and norms of queries and keys")
    heads, groups = call["num_heads"], call["kv_num_heads"]
    if k is None or v is None:
        width = q.shape[-1] // (heads + 2 * groups)
        ends = (heads * width, (heads + groups) * width)
        q, k, v = q[:, :, : ends[0]], q[:, :, ends[0] : ends[1]], q[:, :, ends[1] :]
    q, k, v = heads_of(q, heads), heads_of(k, groups), heads_of(v, groups)
    batch, _, count, _ = q.shape
    room = 0 if old_k is None else old_k.shape[2]
    before = None  # keys before the first query, (B,); None: none
    if room:
        before = last.reshape(-1).astype("i64") + 1
        before = (before - (count if valid is None else valid.astype("i64"))).maximum(0)

    def placed(*shape: int) -> Tensor:
        """Positions of the queries, (B or 1, ..., count, ...)."""
        at = T(np.arange(count, dtype=np.int64), device=q.device).reshape(*shape)
        return at if before is None else at + before.reshape(-1, *[1] * (len(shape) - 1))

    if call.get("do_rotary", 0):
        if cos is None or sin is None:
            raise call.refuse("rotary positions without cosines and sines")
        way = bool(call.get("rotary_interleaved", 0))
        angles = placed(1, count) if positions is None else positions.astype("i64")
        angles = angles.expand(batch, count)
        q, k = (rotated(t, cos, sin, angles, way, 2 * cos.shape[-1]) for t in (q, k))
    if old_k is not None and old_v is not None and before is not None:
        longest = None if isinstance(total, Tensor) else int(np.asarray(total).reshape(()))
        alone = batch == 1 and longest == room + count and valid is None
        size = room if longest is not None and longest <= room else room + count
        if alone:
            k, v = T.concat([old_k, k], axis=2), T.concat([old_v, v], axis=2)
        else:
            k, v = (appended(o, n, before, valid, size) for o, n in ((old_k, k), (old_v, v)))
    keys = k.shape[2]
    column = T(np.arange(keys, dtype=np.int64), device=q.device).reshape(1, 1, 1, keys)
    row, window = placed(1, 1, count, 1), call.get("local_window_size", -1)
    causal = bool(call.get("causal", 1))
    if causal:
        seen = column <= row  # each query has a key of its own
    else:
        seen = column <= last.reshape(-1, 1, 1, 1).astype("i64")
    if window > 0:
        seen = seen & (column > row - window)
    if bias is not None and bias.shape[-1] < keys:
        bias = padded(bias, [(0, 0)] * 3 + [(0, keys - bias.shape[-1])], 0)
    if call.get("smooth_softmax", 0) and sink is None:
        sink = T.zeros((heads,), dtype="f32", device=q.device)
    triangle = causal and before is None and window <= 0
    shown = None
    if call.wants(3) and call.get("qk_output", 0):
        made, shown = written(call, q, k, v, bias, seen, sink)
        if isinstance(total, np.ndarray):
            shown = shown[..., : int(total.reshape(()))]
    elif sink is not None and fits(call, q, k, v):
        made = sunk(call, q, k, v, bias, seen, sink)
    elif sink is not None:
        made, _ = written(call, q, k, v, bias, seen, sink)
    else:
        made = scored(call, q, k, v, bias, seen, triangle, True)
    return joined(made), k, v, shown


def appended(old: Tensor, new: Tensor, before: Tensor, valid: Tensor | None, size: int) -> Tensor:
    """A cache (B, G, S, D) of so many positions to which each sequence's own are written behind
    those that it has.

    Args:
        old: the cache.
        new: (B, G, L, D).
        before: how many positions each has, (B,).
        valid: how many new ones are there, (B,); None: all.
        size: positions of the result.
    """
    count, room = new.shape[2], old.shape[2]
    if count == 1 and size > room and valid is None:  # behind all, or among what is there
        column = T(np.arange(room, dtype=np.int64), device=new.device).reshape(1, 1, room, 1)
        here = column == before.reshape(-1, 1, 1, 1)
        return T.concat([T.where(here, new, old), new], axis=2)
    if size > room:
        old = padded(old, [(0, 0), (0, 0), (0, size - room), (0, 0)], 0)
    column = T(np.arange(size, dtype=np.int64), device=new.device).reshape(1, 1, size, 1)
    at = column - before.reshape(-1, 1, 1, 1)
    inside = (at >= 0) & (at < (count if valid is None else valid.reshape(-1, 1, 1, 1)))
    if count > 1:
        index = at.maximum(0).minimum(count - 1).expand(*new.shape[:2], size, new.shape[3])
        new = apply("take_along_axis", new, index, axis=2)
    return T.where(inside, new, old)


def sunk(
    call: Call, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, seen: Tensor, sink: Tensor
) -> Tensor:
    """Attention where a number of each head is in the sum of the softmax, and nothing else is."""
    scale = call.get("scale", 0.0) or 1 / math.sqrt(q.shape[3])
    made, sums = masked(q, k, v, scale, bias, seen, True, sums=True)
    part = (sums - sink.astype(sums.dtype).reshape(1, -1, 1)).sigmoid()
    return made * part.unsqueeze(-1).astype(made.dtype)


def written(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    seen: Tensor,
    sink: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Attention in pieces, and scores before (1) or behind (2) the softmax, as `qk_output` says."""
    scale = call.get("scale", 0.0) or 1 / math.sqrt(q.shape[3])
    scores = (q @ spread_heads(k, q.shape[1]).permute(0, 1, 3, 2)) * scale
    if cap := call.get("softcap", 0.0):
        scores = (scores / cap).tanh() * cap
    if bias is not None:
        scores = scores + bias
    seen = seen.expand(*scores.shape)
    hidden = T.where(seen, scores, T.full_like(scores, -INF))
    if sink is None:
        weights = apply("softmax", hidden, axis=-1)
    else:
        more = sink.astype(scores.dtype).reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        weights = apply("softmax", T.concat([hidden, more], axis=-1), axis=-1)
        weights = weights[..., : scores.shape[3]]
    made = weights @ spread_heads(v, q.shape[1])
    if call.get("qk_output", 0) == 1:
        return made, T.where(seen, scores, T.zeros_like(scores))
    return made, weights
