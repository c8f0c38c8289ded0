"""Attention of few new positions to a cache, for planes: keys are split among cubes, and in a cube
among groups of lanes.

A group of lanes holds a query and takes some neighbouring keys at once, each lane a few numbers of
each: sums over a key are exchanges inside the group. The query heads that share a key head are rows
of one tile, so that its keys and values are read once. Lengths are numbers in memory: the grid is
that of the cache's room, and cubes whose part of the keys is not there yet are done at once. What
groups found is added up in shared memory, what cubes found by a second kernel, in their order
(Flash-Decoding: Dao, Haziza, Massa and Sizov, 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.attention.append import append, base_of, rolls
from cubepy.kernels.attention.gpu.cached_lines import fetch, floats, load_queries
from cubepy.kernels.attention.online_softmax import LOG2E
from cubepy.lang.dtypes import as_dtype, i8
from cubepy.runtime import memory
from cubepy.runtime.device import DeviceProperties

FACTS = 4
"""Numbers behind each row of sums: the largest score and the sum of weights; the rest keeps rows at
multiples of 16 bytes.
"""
MOST_ROWS = 4
"""Queries of a tile."""
KEYS = 4
"""Keys of a group of lanes at once: as many loads are on their way. Twice as many of bytes."""
LEAST_STEPS = 4
"""Steps of a cube, at least, of a cache that is full."""


@dataclass(frozen=True)
class Blueprint:
    """What changes the code.

    Attributes:
        depth, width: of a key and of a value.
        rotated: numbers of a query or key that are rotated, the first ones; 0: none.
        window: positions that a query looks back at, itself included; 0: all.
        cap: scores are cap * tanh(score / cap); 0: as they are.
        rows: queries of a tile.
        line: numbers of a lane that lie side by side.
        group: lanes that share a key, a power of two.
        units: of a cube.
        keys: keys of a group at once.
        groups: heads of keys.
        heads: heads of queries that share one.
        single: whether there is one new position; its sums need no divisions.
        rolling: whether positions go round in the cache.
        words: whether keys and values are bytes, read four at once.
    """

    depth: int
    width: int
    rotated: int
    window: int
    cap: float
    rows: int
    line: int
    group: int
    units: int
    keys: int = KEYS
    groups: int = 1
    heads: int = 1
    single: bool = False
    rolling: bool = False
    words: bool = False

    @property
    def streams(self) -> int:
        """Groups of a cube."""
        return self.units // self.group

    @property
    def step(self) -> int:
        """Keys of a cube at once."""
        return self.streams * self.keys

    @property
    def depth_lines(self) -> int:
        """Lines of a key that a lane holds."""
        return -(-self.depth // (self.group * self.line))

    @property
    def width_lines(self) -> int:
        """Lines of a value that a lane holds."""
        return -(-self.width // (self.group * self.line))

    @property
    def padded(self) -> int:
        """Numbers of a query in shared memory."""
        return self.depth_lines * self.group * self.line

    @property
    def stride(self) -> int:
        """Numbers of a row of what a group found."""
        return self.width + FACTS


@cb.func
def capped(score, plan):
    """A score behind the soft limit, in units of log 2."""
    if plan.cap > 0.0:
        score = cb.tanh(score * (1.0 / plan.cap)) * plan.cap * LOG2E
    return score


@cb.func
def weigh(s, o, tops, totals, sums, r: cb.Comptime[int], plan):
    """Turn a row's scores into weights, of what has such `sums` or is one key each; what was found
    before is scaled to the greatest score.
    """
    newest = tops[r]
    for u in cb.unroll(range(plan.keys)):
        newest = cb.max(newest, s[r, u])
    base = cb.select(newest == -cb.f32(float("inf")), cb.f32(0.0), newest)
    shrink = cb.exp2(tops[r] - base)
    total = totals[r] * shrink
    for u in cb.unroll(range(plan.keys)):
        s[r, u] = cb.exp2(s[r, u] - base)
        if sums is None:
            total = total + s[r, u]
        else:
            total = cb.fma(sums[u], s[r, u], total)
    for n in cb.unroll(range(plan.width_lines)):
        o[r, n] = o[r, n] * shrink
    tops[r], totals[r] = newest, total


@cb.func
def gather_values(s, o, held, by, r: cb.Comptime[int], plan):
    """Add values, times their weights and scales, to a row."""
    for u in cb.unroll(range(plan.keys)):
        for n in cb.unroll(range(plan.width_lines)):
            weight = s[r, u]
            if by is not None:
                weight = weight * by[u, n]
            o[r, n] = cb.fma(cb.splat(weight, plan.line), floats(held[u, n], plan), o[r, n])


@cb.func
def leave(found, o, tops, totals, at, r: cb.Comptime[int], plan):
    """Row r of a group of lanes to shared memory, its facts behind it."""
    stream, lane = at
    for n in cb.unroll(range(plan.width_lines)):
        d = (n * plan.group + lane) * plan.line
        for e in cb.unroll(range(plan.line)):
            if d + e < plan.width:
                found[stream, r, d + e] = o[r, n][e]
    if lane == 0:
        found[stream, r, plan.width] = tops[r]
        found[stream, r, plan.width + 1] = totals[r]


@cb.func
def finish(out, parts, whole, at, d, value, plan):
    """A number of a row: the result, or a part of it behind which its facts lie."""
    owner, split, row, b, h, i = at
    top, total = whole
    if parts is None:
        out[b, h, i, d] = cb.cast(cb.select(total == 0.0, cb.f32(0.0), value / total), out.dtype)
    else:
        parts[owner, split, row, d] = value
        if d == 0:
            parts[owner, split, row, plan.width] = top
            parts[owner, split, row, plan.width + 1] = total


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def attend(
    q: cb.Array,
    rotation,
    keys: cb.Array,
    values: cb.Array,
    starts: cb.Array,
    scales,
    out: cb.Array,
    parts,
    scale: cb.f32,
    plan: cb.Comptime,
):
    """out[b, h, i] = sum over j of softmax(scale * q[b, h, i] . keys[b, g, j]) * values[b, g, j],
    with g = h // (H // G), over the positions j <= starts[b] + i that the window leaves.

    q (B, H, L, D), out (B, H, L, E); with more than one part, `parts` (B * G, splits, H // G * L,
    E + 4) gets the sums. A cube does a tile of queries and a part of their keys. `rotation`: cos
    and sin, or None; `scales`: of keys and of values (B, G, C, groups), which are bytes, or None.
    """
    rows, line, group = plan.rows, plan.line, plan.group
    queries = cb.shared((rows, plan.padded), cb.f32)
    found = cb.shared((plan.streams, rows, plan.stride), cb.f32)
    length = 1 if plan.single else q.shape[2]
    every = plan.heads * length
    splits = 1 if parts is None else parts.shape[1]
    tiles = (every + rows - 1) // rows
    first = cb.CUBE_POS_X % tiles * rows
    split, owner = cb.CUBE_POS_Y, cb.CUBE_POS_X // tiles
    b, g = owner // plan.groups, owner % plan.groups
    lane, stream = cb.UNIT_POS % group, cb.UNIT_POS // group

    held = cb.cast(starts[b], cb.i32)
    room = cb.cast(keys.shape[2], cb.i32)
    begin, stop = cb.i32(0), cb.cast(held + length, cb.i32)
    if not plan.rolling:
        stop = cb.min(stop, room)
    if plan.window > 0:
        begin = cb.max(held + 1 - plan.window, 0)
    base = base_of(begin, room, plan)
    each = (stop - begin + splits * plan.step - 1) // (splits * plan.step) * plan.step
    begin = begin + split * each
    stop = cb.min(stop, begin + each)

    # The first keys and values are on their way while queries are rotated.
    lanes = line // 4 if plan.words else line
    of_key = cb.local((plan.keys, plan.depth_lines), keys.dtype, lanes=lanes)
    of_value = cb.local((plan.keys, plan.width_lines), values.dtype, lanes=lanes)
    by_key, by_value = None, None
    key_scales, value_scales = (None, None) if scales is None else scales
    if scales is not None:
        by_key = cb.local((plan.keys, plan.depth_lines), cb.f32)
        by_value = cb.local((plan.keys, plan.width_lines), cb.f32)
    if begin < stop:
        ahead = (begin + stream * plan.keys, stop, base)
        fetch((of_key, by_key), (keys, key_scales), (b, g), ahead, lane, plan.depth, plan)
        fetch((of_value, by_value), (values, value_scales), (b, g), ahead, lane, plan.width, plan)
    load_queries(queries, q, rotation, (b, g), first, scale, length, plan)

    query = cb.local((rows, plan.depth_lines), cb.f32, lanes=line)
    o = cb.local((rows, plan.width_lines), cb.f32, lanes=line)
    tops, totals = cb.local(rows, cb.f32), cb.local(rows, cb.f32)
    firsts, lasts = cb.local(rows, cb.i32), cb.local(rows, cb.i32)
    s = cb.local((rows, plan.keys), cb.f32)
    for r in cb.unroll(range(rows)):
        tops[r], totals[r] = -cb.f32(float("inf")), cb.f32(0.0)
        lasts[r] = cb.min(stop, held + cb.min(first + r, every - 1) % length + 1)
        firsts[r] = cb.i32(0)
        if plan.window > 0:
            firsts[r] = held + cb.min(first + r, every - 1) % length + 1 - plan.window
        for n in cb.unroll(range(plan.depth_lines)):
            query[r, n] = queries.load((r, (n * group + lane) * line), line)
        for n in cb.unroll(range(plan.width_lines)):
            o[r, n] = cb.splat(cb.f32(0.0), line)

    for block in range(begin, stop, plan.step):
        start = block + stream * plan.keys
        ahead = (start + plan.step, stop, base)
        for r in cb.unroll(range(rows)):
            for u in cb.unroll(range(plan.keys)):
                acc = cb.splat(cb.f32(0.0), line)
                for n in cb.unroll(range(plan.depth_lines)):
                    part = floats(of_key[u, n], plan)
                    if by_key is not None:
                        part = part * by_key[u, n]
                    acc = cb.fma(query[r, n], part, acc)
                score = acc.sum()
                for step in cb.unroll(range(group.bit_length() - 1)):
                    score = score + cb.plane_shuffle_xor(score, 1 << step)
                seen = start + u < lasts[r] and start + u >= firsts[r]
                s[r, u] = cb.select(seen, capped(score, plan), -cb.f32(float("inf")))
        if block + plan.step < stop:
            fetch((of_key, by_key), (keys, key_scales), (b, g), ahead, lane, plan.depth, plan)
        for r in cb.unroll(range(rows)):
            weigh(s, o, tops, totals, None, r, plan)
            gather_values(s, o, of_value, by_value, r, plan)
        if block + plan.step < stop:
            fetch(
                (of_value, by_value), (values, value_scales), (b, g), ahead, lane, plan.width, plan
            )

    for r in cb.unroll(range(rows)):
        leave(found, o, tops, totals, (stream, lane), r, plan)
    cb.sync_cube()
    for c in range(cb.UNIT_POS, rows * plan.width, cb.CUBE_DIM):
        r, d = c // plan.width, c % plan.width
        row = first + r
        if row < every:
            top, total, value = joined(found, r, d, plan)
            h, i = g * plan.heads + row // length, row % length
            finish(out, parts, (top, total), (owner, split, row, b, h, i), d, value, plan)


@cb.func
def joined(found, r, d, plan):
    """What the groups of a cube found for number d of a row."""
    top = -cb.f32(float("inf"))
    for t in cb.unroll(range(plan.streams)):
        top = cb.max(top, found[t, r, plan.width])
    base = cb.select(top == -cb.f32(float("inf")), cb.f32(0.0), top)
    total, value = cb.f32(0.0), cb.f32(0.0)
    for t in cb.unroll(range(plan.streams)):
        grown = cb.exp2(found[t, r, plan.width] - base)
        total = cb.fma(found[t, r, plan.width + 1], grown, total)
        value = cb.fma(found[t, r, d], grown, value)
    return top, total, value


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def combine(parts: cb.Array, out: cb.Array, plan: cb.Comptime):
    """out (B, H, L, E) from parts (B * groups, splits, H // groups * L, E + 4): a row a cube, whose
    groups of lanes take some parts each.
    """
    found = cb.shared((plan.streams, 1, plan.stride), cb.f32)
    splits, length = parts.shape[1], 1 if plan.single else out.shape[2]
    every = plan.heads * length
    owner, row = cb.CUBE_POS // every, cb.CUBE_POS % every
    b, g = owner // plan.groups, owner % plan.groups
    h, i = g * plan.heads + row // length, row % length
    lane, stream = cb.UNIT_POS % plan.group, cb.UNIT_POS // plan.group
    o = cb.local((1, plan.width_lines), cb.f32, lanes=plan.line)
    tops, totals = cb.local(1, cb.f32), cb.local(1, cb.f32)
    s, sums = cb.local((1, plan.keys), cb.f32), cb.local(plan.keys, cb.f32)
    held = cb.local((plan.keys, plan.width_lines), cb.f32, lanes=plan.line)
    tops[0], totals[0] = -cb.f32(float("inf")), cb.f32(0.0)
    for n in cb.unroll(range(plan.width_lines)):
        o[0, n] = cb.splat(cb.f32(0.0), plan.line)
    for first in range(stream * plan.keys, splits, plan.step):
        for u in cb.unroll(range(plan.keys)):
            part = cb.min(first + u, splits - 1)
            seen = first + u < splits
            top = parts[owner, part, row, plan.width]
            s[0, u] = cb.select(seen, top, -cb.f32(float("inf")))
            sums[u] = parts[owner, part, row, plan.width + 1]
            for n in cb.unroll(range(plan.width_lines)):
                d = (n * plan.group + lane) * plan.line
                room = cb.max(plan.width - d, 0)
                held[u, n] = parts.load((owner, part, row, d), plan.line, valid=room)
        weigh(s, o, tops, totals, sums, 0, plan)
        gather_values(s, o, held, None, 0, plan)
    leave(found, o, tops, totals, (stream, lane), 0, plan)
    cb.sync_cube()
    for d in range(cb.UNIT_POS, plan.width, cb.CUBE_DIM):
        top, total, value = joined(found, 0, d, plan)
        out[b, h, i, d] = cb.cast(cb.select(total == 0.0, cb.f32(0.0), value / total), out.dtype)


def plan_for(
    q: Any, keys: Any, values: Any, rotated: int, window: int, cap: float, p: DeviceProperties
) -> Blueprint:
    """The blueprint for queries (B, H, L, D) and caches (B, G, C, D) and (B, G, C, E)."""
    depth, width = keys.shape[3], values.shape[3]
    line = 16 // max(2, as_dtype(keys.dtype).itemsize, as_dtype(values.dtype).itemsize)
    words = as_dtype(keys.dtype) is i8 and depth % line == 0 and width % line == 0
    lines = -(-max(depth, width) // line)
    group = min(p.plane_size, 1 << (lines - 1).bit_length())
    rows = min(MOST_ROWS, q.shape[1] // keys.shape[1] * q.shape[2])
    groups, single = keys.shape[1], q.shape[2] == 1
    heads = q.shape[1] // groups
    return Blueprint(
        *(
            depth,
            width,
            rotated,
            window,
            cap,
            rows,
            line,
            group,
            4 * p.plane_size,
            KEYS * (1 + words),
        ),
        *(groups, heads, single, rolls(window, q.shape[2], keys.shape[2]), words),
    )


def combining(plan: Blueprint, plane: int) -> Blueprint:
    """The blueprint of `combine`: parts are its keys."""
    line = 4
    lines = -(-plan.width // line)
    group = min(plane, 1 << (lines - 1).bit_length())
    rest: dict[str, Any] = {"rotated": 0, "window": 0, "cap": 0.0, "rows": 1, "words": False}
    return replace(plan, depth=plan.width, line=line, group=group, units=8 * plane, **rest)


def splits_for(items: int, room: int, length: int, plan: Blueprint, cores: int) -> int:
    """Parts of the keys: enough cubes for all cores, none with less than a few steps.

    Example:
        >>> plan = Blueprint(128, 128, 128, 0, 0.0, 1, 8, 16, 128)
        >>> [splits_for(items, 4096, 1, plan, 132) for items in (1, 32, 1024)]
        [32, 17, 1]
    """
    most = room if plan.window == 0 else min(room, plan.window + length - 1)
    return max(1, min(-(-4 * cores // items), most // (LEAST_STEPS * plan.step)))


def launch(
    given: tuple[Any, Any, Any],
    cache: tuple[Any, ...],
    rotation: tuple[Any, Any] | None,
    out: Any,
    options: tuple[float, int, float],
    p: DeviceProperties,
) -> None:
    """Store the new keys and values, then attend.

    Args:
        given: queries, keys and values.
        cache: keys, values, how many positions it holds, and a pair of scales or None.
        rotation: cos and sin, or None.
        out: (B, H, L, E).
        options: factor of the products, window, soft limit.
        p: of the device.
    """
    (q, k, v), (keys, values, starts, scales) = given, cache
    scale, window, cap = options
    rotated = 0 if rotation is None else 2 * rotation[0].shape[-1]
    plan = plan_for(q, keys, values, rotated, window, cap, p)
    batch, groups, length = k.shape[:3]
    append[batch * groups * length, 2 * p.plane_size](
        k, v, rotation, keys, values, starts, scales, plan, mode="unchecked"
    )
    rows = q.shape[1] // groups * length
    items = batch * groups * -(-rows // plan.rows)
    splits = splits_for(items, keys.shape[2], length, plan, p.cores)
    parts = None
    if splits > 1:
        shape = (batch * groups, splits, rows, plan.stride)
        parts = memory.empty(shape, np.dtype(np.float32))
    held = tuple(x.view(np.uint32) if plan.words else x for x in (keys, values))
    rest = (starts, scales, out, parts, scale, plan)
    attend[(items, splits), plan.units](q, rotation, *held, *rest, mode="unchecked")
    if parts is not None:
        last = combining(plan, p.plane_size)
        combine[batch * groups * rows, last.units](parts, out, last, mode="unchecked")
