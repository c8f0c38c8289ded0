"""Attention of few queries on a CPU, one at a time: each key and value is read once, as lines.

With a single query, as when a model writes text word by word, the time is that of reading keys and
values; strips of queries (attention/flash_lines.py) would leave most of their lanes empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.attention.cpu.streaming import KEYS, add_values, finish, weigh
from cubepy.kernels.attention.problem import Attention
from cubepy.kernels.primitives.exponentials import LOG2_E


@dataclass(frozen=True)
class Blueprint:
    """What changes the code.

    Attributes:
        lanes: lanes of a line.
        depth, width: of a key and of a value.
        causal: a query sees keys up to its own position (aligned at the first key and query).
        mask: "none", "bool" (true: may look) or "float" (added to the scores).
    """

    lanes: int
    depth: int
    width: int
    causal: bool
    mask: str


@cb.kernel
def attend(
    q: cb.Array,
    k: cb.Array,
    v: cb.Array,
    mask,
    out: cb.Array,
    lse,
    scale: cb.f32,
    shared_heads,
    plan: cb.Comptime,
):
    """out[b, h, i] = sum over j of softmax(scale * q[b, h, i] . k[b, g, j]) * v[b, g, j], with g =
    h // shared_heads.

    q (B, H, L, D), k (B, G, S, D), v (B, G, S, E), out (B, H, L, E); a cube does one query. `lse`
    (B, H, L), if it is there, gets the log of each row's sum of exponentials.
    """
    lanes, width_lines = plan.lanes, -(-plan.width // plan.lanes)
    length, heads = q.shape[2], q.shape[1]
    i = cb.CUBE_POS % length
    h = cb.CUBE_POS // length % heads
    b = cb.CUBE_POS // (length * heads)
    g = h // shared_heads
    weights = cb.shared(KEYS, cb.f32)
    query = cb.local(-(-plan.depth // lanes), cb.f32, lanes=lanes)
    sums = cb.local(width_lines, cb.f32, lanes=lanes)
    for d in cb.unroll(range(0, plan.depth, lanes)):
        line = cb.cast(q.load((b, h, i, d), lanes, valid=plan.depth - d), cb.f32)
        query[d // lanes] = line * (scale * LOG2_E)
    for d in cb.unroll(range(width_lines)):
        sums[d] = cb.splat(0.0, lanes)
    total = cb.splat(0.0, lanes)
    top = -cb.f32(float("inf"))

    seen = k.shape[2]
    if plan.causal:
        seen = cb.min(seen, i + 1)
    for start in range(0, seen, KEYS):
        count = cb.min(KEYS, seen - start)
        for r in range(count):
            weights[r] = score(query, k, b, g, start + r, plan)
        best = cb.splat(top, lanes)
        for r in range(0, count, lanes):
            line = masked(weights.load(r, lanes), mask, b, h, i, start + r, count - r, plan)
            weights.store(r, line)
            best = cb.select(best > line, best, line)
        total, top = weigh(weights, sums, total, top, best, count, plan)
        add_values(weights, sums, v, (b, g), start, count, plan)
    whole = total.sum()
    if lse is not None:
        lse[b, h, i] = (top + cb.log2(whole)) / LOG2_E if whole != 0.0 else top
    finish(out, sums, whole, (b, h, i), plan)


@cb.func
def score(query, k, b, g, key, plan):
    """The product of the query and a key."""
    lanes = plan.lanes
    acc = cb.splat(0.0, lanes)
    for d in cb.unroll(range(0, plan.depth, lanes)):
        line = cb.cast(k.load((b, g, key, d), lanes, valid=plan.depth - d), cb.f32)
        acc = cb.fma(query[d // lanes], line, acc)
    return acc.sum()


@cb.func
def masked(line, mask, b, h, i, key, left, plan):
    """Scores (in units of log 2) of keys from `key` on as the mask leaves them; those past the
    end are hidden.
    """
    lanes = plan.lanes
    low = cb.splat(-float("inf"), lanes)
    if plan.mask == "float":
        line = line + cb.cast(mask.load((b, h, i, key), lanes, valid=left), cb.f32) * LOG2_E
    if plan.mask == "bool":
        line = cb.select(mask.load((b, h, i, key), lanes, valid=left), line, low)
    return cb.keep_first(line, left, -float("inf"))


def launch(p: Attention, operands: tuple[Any, ...]) -> None:
    """The attention, and its log-sum-exp if `lse` is there; rows are neighbours in memory."""
    q, k, v, *_ = operands
    plan = Blueprint(p.properties.register_bytes // 4, q.shape[3], v.shape[3], p.causal, p.mask)
    cubes = q.shape[0] * q.shape[1] * q.shape[2]
    attend[cubes, 1](*operands, q.shape[1] // k.shape[1], plan, mode="unchecked")
