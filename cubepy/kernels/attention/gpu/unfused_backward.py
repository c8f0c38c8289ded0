"""The gradients of attention by matrices of scores, for what no routine without them takes on a
GPU: any dtype, width.

Query heads that share keys lie below each other in memory, so that a key head's queries are the
rows of one product, and its sums over heads need no work of their own. Two f32 matrices of scores
are made at a time, of as many key heads, or of as many rows of one, as `MOST` allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.attention.problem import AttentionGradients
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import copy
from cubepy.runtime import memory

F32 = np.dtype(np.float32)
MOST = 1 << 26
"""Scores of a matrix."""


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
def row_log_sums(
    s: cb.Array,
    lse: cb.Array,
    mask,
    scale: cb.f32,
    length,
    first,
    causal: cb.Comptime[bool],
    kind: cb.Comptime,
):
    """lse[r] = log of the sum of exp(scale * s[r - first] + mask); row r is query r % length. A
    unit a row of s.
    """
    own = cb.ABSOLUTE_POS
    if own < s.shape[0]:
        stop, r = s.shape[1], first + own
        if causal:
            stop = cb.min(stop, r % length + 1)
        top = cb.f32(-float("inf"))
        for j in range(stop):
            top = cb.nan_max(top, masked(s[own, j] * scale, mask, r, j, kind))
        total = cb.f32(0.0)
        for j in range(stop):
            total = total + cb.exp(masked(s[own, j] * scale, mask, r, j, kind) - top)
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
    matrices, sums, mask, scale: cb.f32, length, first, causal: cb.Comptime[bool], kind: cb.Comptime
):
    """The weights of scores s, and gradients by scores, `slopes`, from those by weights, dp. A unit
    for each element.

    sums: of each row its log-sum-exp and the sum of its gradients times its results.
    """
    s, dp, weights, slopes = matrices
    lse, delta = sums
    i = cb.ABSOLUTE_POS
    if i < s.size:
        own, j = i // s.shape[1], i % s.shape[1]
        r = first + own
        weight = cb.exp(masked(s[own, j] * scale, mask, r, j, kind) - lse[r])
        if kind != "none":
            weight = weight if lse[r] != -float("inf") else 0.0  # a query that sees nothing
        if causal:
            weight = weight if j <= r % length else 0.0
        slope = weight * (dp[own, j] - delta[r]) * scale
        weights[own, j] = cb.cast(weight, weights.dtype)
        slopes[own, j] = cb.cast(slope, slopes.dtype)


def grouped(a: Any, groups: int) -> Any:
    """(B, H, L, D) as (B * G, H / G * L, D)."""
    whole = a if a.flags.c_contiguous else copy(a)
    return whole.reshape(a.shape[0] * groups, -1, a.shape[3])


def pieces(heads: int, rows: int, seen: int) -> Iterator[tuple[slice, slice]]:
    """Key heads, and rows of them, whose scores fit."""
    some = max(1, MOST // (rows * seen))
    least = rows if some > 1 else max(1, min(rows, MOST // seen))
    for head in range(0, heads, some):
        for row in range(0, rows, least):
            yield slice(head, min(head + some, heads)), slice(row, min(row + least, rows))


def log_sums(q: Any, k: Any, mask: Any, kind: str, lse: Any, scale: float, causal: bool) -> None:
    """Write the log-sum-exp of each row of scores; `kind` of mask (B, H, L, S): "none", "bool" or
    "float".
    """
    groups, seen = k.shape[1:3]
    queries, keys = grouped(q, groups), grouped(k, groups)
    for heads, rows in pieces(*queries.shape[:2], seen):  # type: ignore[call-arg]
        s = matmul(queries[heads, rows], keys[heads].transpose(0, 2, 1), dtype=F32).reshape(
            -1, seen
        )
        first = heads.start * queries.shape[1] + rows.start
        facts = mask, scale, q.shape[2], first, causal, kind
        row_log_sums[cb.over(s[:, 0])](s, lse.reshape(-1), *facts, mode="checked")


def gradients(p: AttentionGradients) -> tuple[Any, Any, Any]:
    """The gradients by queries, keys and values."""
    q, k, v, lse = p.query, p.key, p.value, p.lse
    groups, seen, length = k.shape[1], k.shape[2], q.shape[2]
    do, results, queries, keys, values = (grouped(a, groups) for a in (p.grad, p.result, q, k, v))
    delta = memory.empty((lse.size,), F32)
    rows_of_both = do.reshape(-1, do.shape[2]), results.reshape(-1, do.shape[2])
    row_dots[cb.over(delta)](*rows_of_both, delta, mode="checked")
    sums = (lse if lse.flags.c_contiguous else copy(lse)).reshape(-1)
    whole = (
        queries.shape[1] * seen <= MOST
    )  # else gradients by keys and values are added up, in f32
    dq = memory.empty(queries.shape, q.dtype)
    dk, dv = (memory.empty(a.shape, a.dtype if whole else F32) for a in (keys, values))
    for heads, rows in pieces(*queries.shape[:2], seen):  # type: ignore[call-arg]
        some, their = queries[heads, rows], do[heads, rows]
        s = matmul(some, keys[heads].transpose(0, 2, 1), dtype=F32)
        dp = matmul(their, values[heads].transpose(0, 2, 1), dtype=F32)
        w, slopes = (a if q.dtype == F32 else memory.empty(a.shape, q.dtype) for a in (s, dp))
        flat = tuple(a.reshape(-1, seen) for a in (s, dp, w, slopes))
        first = heads.start * queries.shape[1] + rows.start
        score_gradients[cb.over(s)](
            flat, (sums, delta), p.mask, p.scale, length, first, p.causal, p.kind, mode="checked"
        )
        matmul(slopes, keys[heads], dtype=q.dtype, out=dq[heads, rows])
        for target, factor, other in ((dk, slopes, some), (dv, w, their)):
            at = target[heads]
            before = at if rows.start else None
            matmul(factor.transpose(0, 2, 1), other, dtype=target.dtype, residual=before, out=at)
    dk, dv = (a if whole else a.astype(b.dtype) for a, b in ((dk, k), (dv, v)))
    return dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)
