"""The gradients of attention by matrices of scores, for what no routine without them takes: any device, dtype, width.

It needs two f32 arrays (B, H, L, S). Query heads that share keys lie below each other in memory, so that a key head's
queries are the rows of one product, and its sums over heads need no work of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.elementwise import copy
from cubepy.kernels.matmul import matmul
from cubepy.runtime import memory

F32 = np.dtype(np.float32)


@cb.func
def masked(score, mask, r, j, kind: cb.Comptime):
    """A score of row r, of head r // L and query r % L, as the mask (B, H, L, S) leaves it."""
    if kind != "none":
        length = mask.shape[2]
        h = r // length
        value = mask[h // mask.shape[1], h % mask.shape[1], r % length, j]
        if kind == "bool":
            score = cb.select(value, score, cb.f32(-float("inf")))
        else:
            score = score + cb.cast(value, cb.f32)
    return score


@cb.kernel
def row_log_sums(s: cb.Array, lse: cb.Array, mask, scale: cb.f32, length, causal: cb.Comptime[bool], kind: cb.Comptime):
    """lse[r] = log of the sum of exp(scale * s[r] + mask); row r belongs to query r % length. A unit for each row."""
    r = cb.ABSOLUTE_POS
    if r < lse.size:
        stop = s.shape[1]
        if causal:
            stop = cb.min(stop, r % length + 1)
        top = cb.f32(-float("inf"))
        for j in range(stop):
            top = cb.nan_max(top, masked(s[r, j] * scale, mask, r, j, kind))
        total = cb.f32(0.0)
        for j in range(stop):
            total = total + cb.exp(masked(s[r, j] * scale, mask, r, j, kind) - top)
        lse[r] = top if top == -float("inf") else top + cb.log(total)


@cb.kernel
def row_dots(a: cb.Array, b: cb.Array, dots: cb.Array):
    """dots[r] = sum of a[r] * b[r]. A unit for each row."""
    r = cb.ABSOLUTE_POS
    if r < dots.size:
        total = cb.f32(0.0)
        for j in range(a.shape[1]):
            total = total + cb.cast(a[r, j], cb.f32) * cb.cast(b[r, j], cb.f32)
        dots[r] = total


@cb.kernel
def score_gradients(
    s: cb.Array, dp: cb.Array, lse: cb.Array, delta: cb.Array, mask, scale: cb.f32, length,
    causal: cb.Comptime[bool], kind: cb.Comptime,
):  # fmt: skip
    """s becomes the weights, dp (gradients by weights) becomes the gradients by scores. A unit for each element."""
    i = cb.ABSOLUTE_POS
    if i < s.size:
        r, j = i // s.shape[1], i % s.shape[1]
        weight = cb.exp(masked(s[r, j] * scale, mask, r, j, kind) - lse[r])
        if kind != "none":
            weight = weight if lse[r] != -float("inf") else 0.0  # a query that sees nothing
        if causal:
            weight = weight if j <= r % length else 0.0
        s[r, j] = weight
        dp[r, j] = weight * (dp[r, j] - delta[r]) * scale


def grouped(a: Any, groups: int) -> Any:
    """(B, H, L, D) as (B, G, H / G * L, D)."""
    whole = a if a.flags.c_contiguous else copy(a)
    return whole.reshape(a.shape[0], groups, -1, a.shape[3])


def scores(q: Any, k: Any) -> Any:
    """The products of queries with the keys of their group: f32 (B, G, H / G * L, S)."""
    return matmul(grouped(q, k.shape[1]), k.transpose(0, 1, 3, 2), dtype=F32)


def log_sums(q: Any, k: Any, mask: Any, kind: str, lse: Any, scale: float, causal: bool) -> None:
    """Write the log-sum-exp of each row of scores; `kind` of mask (B, H, L, S): "none", "bool" or "float"."""
    s = scores(q, k)
    row_log_sums[cb.over(lse)](s.reshape(-1, k.shape[2]), lse.reshape(-1), mask, scale, q.shape[2], causal, kind)


def gradients(
    grad: Any, q: Any, k: Any, v: Any, mask: Any, kind: str, out: Any, lse: Any, scale: float, causal: bool
) -> tuple[Any, Any, Any]:
    """The gradients by queries, keys and values."""
    groups, seen = k.shape[1:3]
    do = grouped(grad, groups)
    s, dp = scores(q, k), matmul(do, v.transpose(0, 1, 3, 2), dtype=F32)
    delta = memory.empty((lse.size,), F32)
    width = grad.shape[3]
    row_dots[cb.over(delta)](do.reshape(-1, width), grouped(out, groups).reshape(-1, width), delta)
    flat = [a.reshape(-1, seen) for a in (s, dp)]
    whole = lse if lse.flags.c_contiguous else copy(lse)
    score_gradients[cb.over(s)](*flat, whole.reshape(-1), delta, mask, scale, q.shape[2], causal, kind)
    s, dp = (a if q.dtype == F32 else a.astype(q.dtype) for a in (s, dp))
    dq = matmul(dp, k, dtype=q.dtype).reshape(q.shape)
    dk = matmul(dp.transpose(0, 1, 3, 2), grouped(q, groups), dtype=k.dtype)
    dv = matmul(s.transpose(0, 1, 3, 2), do, dtype=v.dtype)
    return dq, dk, dv
