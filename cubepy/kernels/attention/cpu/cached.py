"""Attention of new positions to a cache of keys and values, whose length is known when it runs.

When a model writes text word by word, a step appends one key and value and looks at all before. The
cache is longer than what it holds, so that a step has the same shapes as the one before it, and
positions are numbers in memory: one program does every step. Rotary embeddings (Su et al., 2021)
are applied on the way: to keys when they are stored, to queries when they are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.attention.cpu.streaming import KEYS, add_values, finish, weigh
from cubepy.kernels.attention.rotation import append, rotated_number
from cubepy.kernels.primitives.exponentials import LOG2_E


@dataclass(frozen=True)
class Blueprint:
    """What changes the code.

    Attributes:
        lanes: lanes of a line.
        depth, width: of a key and of a value.
        rotated: numbers of a query or key that are rotated, the first ones; 0: none.
        window: positions that a query looks back at, itself included; 0: all.
        cap: scores are cap * tanh(score / cap); 0: as they are.
    """

    lanes: int
    depth: int
    width: int
    rotated: int
    window: int
    cap: float


@cb.kernel
def attend(
    q: cb.Array,
    cos,
    sin,
    keys: cb.Array,
    values: cb.Array,
    starts: cb.Array,
    out: cb.Array,
    scale: cb.f32,
    shared_heads,
    plan: cb.Comptime,
):
    """out[b, h, i] = sum over j of softmax(scale * q[b, h, i] . keys[b, g, j]) * values[b, g, j],
    with g = h // shared_heads, over the positions j <= starts[b] + i that the window leaves.

    q (B, H, L, D), out (B, H, L, E); a cube does one query.
    """
    lanes, width_lines = plan.lanes, -(-plan.width // plan.lanes)
    length, heads = q.shape[2], q.shape[1]
    i = cb.CUBE_POS % length
    h = cb.CUBE_POS // length % heads
    b = cb.CUBE_POS // (length * heads)
    g = h // shared_heads
    weights = cb.shared(KEYS, cb.f32)
    scaled = cb.shared(-(-plan.depth // lanes) * lanes, cb.f32)
    query = cb.local(-(-plan.depth // lanes), cb.f32, lanes=lanes)
    sums = cb.local(width_lines, cb.f32, lanes=lanes)
    for d in range(plan.depth):
        value = cb.cast(q[b, h, i, d], cb.f32)
        if plan.rotated > 0:
            value = rotated_number(q, cos, sin, (b, h, i), (b, i), d, plan)
        scaled[d] = value * scale
    for d in range(plan.depth, -(-plan.depth // lanes) * lanes):
        scaled[d] = 0.0
    for d in cb.unroll(range(0, plan.depth, lanes)):
        query[d // lanes] = scaled.load(d, lanes)
    for d in cb.unroll(range(width_lines)):
        sums[d] = cb.splat(0.0, lanes)
    total = cb.splat(0.0, lanes)
    top = -cb.f32(float("inf"))

    seen = cb.min(cb.cast(starts[b], cb.i64) + i + 1, keys.shape[2])
    first = cb.i64(0)
    if plan.window > 0:
        first = cb.max(seen - plan.window, 0)
    for start in range(first, seen, KEYS):
        count = cb.min(KEYS, seen - start)
        for r in range(count):
            acc = cb.splat(0.0, lanes)
            for d in cb.unroll(range(0, plan.depth, lanes)):
                part = keys.load((b, g, start + r, d), lanes, valid=plan.depth - d)
                acc = cb.fma(query[d // lanes], cb.cast(part, cb.f32), acc)
            weights[r] = acc.sum()
        best = cb.splat(top, lanes)
        for r in range(0, count, lanes):
            line = weights.load(r, lanes)
            if plan.cap > 0.0:
                line = cb.tanh(line * (1.0 / plan.cap)) * plan.cap
            line = cb.keep_first(line * LOG2_E, count - r, -float("inf"))
            weights.store(r, line)
            best = cb.select(best > line, best, line)
        total, top = weigh(weights, sums, total, top, best, count, plan)
        add_values(weights, sums, values, (b, g), start, count, plan)
    finish(out, sums, total.sum(), (b, h, i), plan)


def launch(
    given: tuple[Any, Any, Any],
    cache: tuple[Any, Any, Any],
    rotation: tuple[Any, Any],
    out: Any,
    scale: float,
    plan: Blueprint,
) -> None:
    """Store the new keys and values, then attend.

    Args:
        given: queries, keys and values.
        cache: keys, values, and how many positions it holds.
        rotation: cos and sin, or None and None.
        out: (B, H, L, E).
        scale: of the products.
        plan: what changes the code.
    """
    (q, k, v), (keys, values, starts) = given, cache
    batch, groups, length = k.shape[:3]
    append[batch * groups * length, 1](
        k, v, *rotation, keys, values, starts, plan, mode="unchecked"
    )
    attend[q.shape[0] * q.shape[1] * length, 1](
        q, *rotation, keys, values, starts, out, scale, q.shape[1] // groups, plan, mode="unchecked"
    )
