"""Attention of new positions to a cache of keys and values, whose length is known when it runs.

When a model writes text word by word, a step appends one key and value and looks at all before. The
cache is longer than what it holds, so that a step has the same shapes as the one before it, and
positions are numbers in memory: one program does every step. Rotary embeddings (Su et al., 2021)
are applied on the way: to keys when they are stored, to queries when they are read. Layers with a
window may have caches that roll, where a position is at its number modulo the room, and keys and
values may be bytes with scales of groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.attention.append import GROUP, append, base_of, slot_of
from cubepy.kernels.attention.cpu.streaming import KEYS, finish, weigh
from cubepy.kernels.attention.rotation import rotated_number
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
        rolling: whether positions go round in the cache.
        early: never here: launches follow each other.
    """

    lanes: int
    depth: int
    width: int
    rotated: int
    window: int
    cap: float
    rolling: bool = False
    early: bool = False


@cb.kernel
def attend(
    q: cb.Array,
    rotation,
    keys: cb.Array,
    values: cb.Array,
    starts: cb.Array,
    scales,
    out: cb.Array,
    scale: cb.f32,
    shared_heads,
    plan: cb.Comptime,
):
    """out[b, h, i] = sum over j of softmax(scale * q[b, h, i] . keys[b, g, j]) * values[b, g, j],
    with g = h // shared_heads, over the positions j <= starts[b] + i that the window leaves.

    q (B, H, L, D), out (B, H, L, E); a cube does one query. With scales (B, G, C, groups) keys and
    values are bytes.
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
            value = rotated_number(q, rotation, (b, h, i), (b, i), d, plan)
        scaled[d] = value * scale
    for d in range(plan.depth, -(-plan.depth // lanes) * lanes):
        scaled[d] = 0.0
    for d in cb.unroll(range(0, plan.depth, lanes)):
        query[d // lanes] = scaled.load(d, lanes)
    for d in cb.unroll(range(width_lines)):
        sums[d] = cb.splat(0.0, lanes)
    total = cb.splat(0.0, lanes)
    top = -cb.f32(float("inf"))

    room = keys.shape[2]
    seen = cb.cast(starts[b], cb.i64) + i + 1
    if not plan.rolling:
        seen = cb.min(seen, room)
    first = cb.i64(0)
    if plan.window > 0:
        first = cb.max(seen - plan.window, 0)
    base = base_of(first, room, plan)
    for start in range(first, seen, KEYS):
        count = cb.min(KEYS, seen - start)
        for r in range(count):
            slot = slot_of(start + r, base, room, plan)
            weights[r] = score(query, keys, scales, (b, g, slot), plan)
        best = cb.splat(top, lanes)
        for r in range(0, count, lanes):
            line = weights.load(r, lanes)
            if plan.cap > 0.0:
                line = cb.tanh(line * (1.0 / plan.cap)) * plan.cap
            line = cb.keep_first(line * LOG2_E, count - r, -float("inf"))
            weights.store(r, line)
            best = cb.select(best > line, best, line)
        total, top = weigh(weights, sums, total, top, best, count, plan)
        for r in range(count):
            slot = slot_of(start + r, base, room, plan)
            add_value(sums, weights[r], values, scales, (b, g, slot), plan)
    finish(out, sums, total.sum(), (b, h, i), plan)


@cb.func
def score(query, keys, scales, at, plan):
    """The product of the query and a key; bytes are summed group by group."""
    b, g, slot = at
    lanes = plan.lanes
    acc = cb.splat(0.0, lanes)
    size = plan.depth if scales is None else GROUP
    for first in cb.unroll(range(0, plan.depth, size)):
        part = cb.splat(0.0, lanes)
        for d in cb.unroll(range(first, min(first + size, plan.depth), lanes)):
            line = keys.load((b, g, slot, d), lanes, valid=plan.depth - d)
            part = cb.fma(query[d // lanes], cb.cast(line, cb.f32), part)
        if scales is None:
            acc = part
        else:
            by = scales[0][b, g, slot, first // GROUP]
            acc = cb.fma(part, cb.splat(by, lanes), acc)
    return acc.sum()


@cb.func
def add_value(sums, weight, values, scales, at, plan):
    """Add a weighted value."""
    b, g, slot = at
    lanes = plan.lanes
    size = plan.width if scales is None else GROUP
    for first in cb.unroll(range(0, plan.width, size)):
        if scales is None:
            factor = weight
        else:
            factor = weight * scales[1][b, g, slot, first // GROUP]
        for d in cb.unroll(range(first, min(first + size, plan.width), lanes)):
            line = values.load((b, g, slot, d), lanes, valid=plan.width - d)
            sums[d // lanes] = cb.fma(
                cb.splat(factor, lanes), cb.cast(line, cb.f32), sums[d // lanes]
            )


def launch(
    given: tuple[Any, Any, Any],
    cache: tuple[Any, ...],
    rotation: tuple[Any, Any] | None,
    out: Any,
    scale: float,
    plan: Blueprint,
) -> None:
    """Store the new keys and values, then attend.

    Args:
        given: queries, keys and values.
        cache: keys, values, how many positions it holds, and a pair of scales or None.
        rotation: cos and sin, or None.
        out: (B, H, L, E).
        scale: of the products.
        plan: what changes the code.
    """
    (q, k, v), (keys, values, starts, scales) = given, cache
    batch, groups, length = k.shape[:3]
    append[batch * groups * length, 1](
        k, v, rotation, keys, values, starts, scales, plan, mode="unchecked"
    )
    rest = (out, scale, q.shape[1] // groups, plan)
    attend[q.shape[0] * q.shape[1] * length, 1](
        q, rotation, keys, values, starts, scales, *rest, mode="unchecked"
    )
