"""Attention of groups of heads with a cache, whose sequences may have several lengths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.ops.microsoft.caches import Form, Window, appended
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
    k_scale, v_scale, q_norm, k_norm, valid = (*others, *(None,) * 5)[:5]
    heads, groups = call["num_heads"], call["kv_num_heads"]
    if k is None or v is None:
        width = q.shape[-1] // (heads + 2 * groups)
        ends = (heads * width, (heads + groups) * width)
        q, k, v = q[:, :, : ends[0]], q[:, :, ends[0] : ends[1]], q[:, :, ends[1] :]
    q, k, v = heads_of(q, heads), heads_of(k, groups), heads_of(v, groups)
    q, k = normed(call, "q", q, q_norm), normed(call, "k", k, k_norm)
    batch, _, count, _ = q.shape
    new, room = k.shape[2], 0 if old_k is None else old_k.shape[2]
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
        q = rotated(q, cos, sin, angles, way, 2 * cos.shape[-1])
        k = rotated(k, cos, sin, angles, way, 2 * cos.shape[-1]) if new else k
    old = None if old_k is None or old_v is None else (old_k, old_v)
    (k, v), kept, rolling = cached(
        call, (k, v), old, (k_scale, v_scale), before, valid, last, total
    )
    keys, window = k.shape[2], call.get("local_window_size", -1)
    row = placed(1, 1, count, 1)
    if rolling is None:
        column = T(np.arange(keys, dtype=np.int64), device=q.device).reshape(1, 1, 1, keys)
    else:
        column = rolling.positions().reshape(-1, 1, 1, keys)
    causal = bool(call.get("causal", 1))
    if causal:
        seen = column <= row  # each query has a key of its own
    else:
        seen = column <= last.reshape(-1, 1, 1, 1).astype("i64")
    if window > 0:
        seen = seen & (column > row - window)
    if bias is not None and rolling is not None:
        bias = rolling.columns(bias)
    elif bias is not None and bias.shape[-1] < keys:
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
    return joined(made), *kept, shown


def normed(call: Call, name: str, x: Tensor, gain: Tensor | None) -> Tensor:
    """Heads (B, H, L, D) by the root of their mean square, times a gain for each feature."""
    if gain is None or 0 in x.shape:
        return x
    eps = call.get(f"{name}_norm_epsilon", call.get("qk_norm_epsilon", 1e-6))
    return apply("rms_norm", x, gain, normalized_shape=gain.shape, eps=eps)


Pair = tuple[Tensor, Tensor]


def cached(
    call: Call,
    new: Pair,
    old: Pair | None,
    scales: tuple[Tensor | None, Tensor | None],
    before: Tensor | None,
    valid: Tensor | None,
    last: Tensor,
    total: Any,
) -> tuple[Pair, Pair, Window | None]:
    """Keys and values that queries look at, the next cache, and its window if it has one.

    Args:
        call: the node.
        new: keys and values (B, G, L, D).
        old: the cache (B, G, S, D).
        scales: of codes.
        before: how many positions each sequence has had, (B,); None: there is no cache.
        valid: how many new ones each has, (B,); None: all.
        last: the last position of each.
        total: positions of the longest one, a host array where shapes decide it.
    """
    room, count = 0 if old is None else old[0].shape[2], new[0].shape[2]
    forms = [
        Form.of(call, name, n if old is None else o, scale, n.shape[1])
        for name, n, o, scale in zip("kv", new, old or new, scales, strict=True)
    ]
    kept = [form.kept(n) for form, n in zip(forms, new, strict=True)]
    rolling = None
    if call.get("sliding_window_cache", 0):
        if old is None or before is None or not count:
            raise call.refuse("a cache of a window needs room, and new keys")
        window = call["local_window_size"]
        if not 0 < window <= room:
            raise call.refuse(f"a window of {window} in a cache of {room} positions")
        after = last.reshape(-1).astype("i64") + 1
        rolling = Window(room, window, before, after, count)
        seen = [T.concat([o, n], axis=2) for o, n in zip(old, kept, strict=True)]
        kept = [rolling.moved(both) for both in seen]
    elif old is not None and before is not None:
        longest = None if isinstance(total, Tensor) else int(np.asarray(total).reshape(()))
        size = room if longest is not None and longest <= room else room + count
        if len(before) == 1 and longest == room + count and valid is None:
            kept = [T.concat([o, n], axis=2) for o, n in zip(old, kept, strict=True)]
        else:
            kept = [appended(o, n, before, valid, size) for o, n in zip(old, kept, strict=True)]
        seen = kept
    else:
        seen = kept
    k, v = (form.read(s, n.dtype.numpy) for form, s, n in zip(forms, seen, new, strict=True))
    return (k, v), (kept[0], kept[1]), rolling


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
