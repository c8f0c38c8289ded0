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

from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.attention.append import GROUP, append, base_of, rolls, slot_of
from cubepy.kernels.attention.online_softmax import LOG2E
from cubepy.kernels.attention.rotation import rotated_number
from cubepy.lang.dtypes import as_dtype, i8
from cubepy.runtime import memory
from cubepy.runtime.device import DeviceProperties

FACTS = 2
"""Numbers behind each row of sums: the largest score and the sum of weights."""
MOST_ROWS = 4
"""Queries of a tile."""
KEYS = 4
"""Keys of a group of lanes at once: as many loads are on their way."""
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
def line_at(source, at, key, n: cb.Comptime[int], lane, columns: cb.Comptime[int], plan):
    """Line n of a lane of a key or value, as it is in memory."""
    b, g = at
    d = (n * plan.group + lane) * plan.line
    if plan.words:
        if columns % (plan.group * plan.line) == 0:
            return source.load((b, g, key, d // 4), plan.line // 4)
        return source.load((b, g, key, d // 4), plan.line // 4, valid=cb.max(columns - d, 0) // 4)
    if columns % (plan.group * plan.line) == 0:
        return source.load((b, g, key, d), plan.line)
    return source.load((b, g, key, d), plan.line, valid=cb.max(columns - d, 0))


@cb.func
def floats(line, plan):
    """The numbers of a line. Bytes become the last bits of a float between 2^23 and 2^24, which is
    fewer steps than a conversion of integers.
    """
    if not plan.words:
        return cb.cast(line, cb.f32)
    line = line ^ 0x80808080
    return cb.interleave(
        cb.interleave(byte_of(line, 0), byte_of(line, 2)),
        cb.interleave(byte_of(line, 1), byte_of(line, 3)),
    )


@cb.func
def byte_of(words, n: cb.Comptime[int]):
    """Byte n of each word, from which 128 is taken."""
    return cb.bitcast(((words >> (8 * n)) & 255) | 0x4B000000, cb.f32) - 8388736.0


@cb.func
def scale_at(scales, at, key, n: cb.Comptime[int], lane, columns: cb.Comptime[int], plan):
    """The scale of line n of a lane of a key or value."""
    b, g = at
    d = cb.min((n * plan.group + lane) * plan.line, columns - 1)
    return scales[b, g, key, d // GROUP]


@cb.func
def load_queries(queries, q, rotation, at, first, scale, shared_heads, plan):
    """The rotated and scaled queries of a tile, in shared memory; all units arrive."""
    b, g = at
    length = q.shape[2]
    factor = scale if plan.cap > 0.0 else scale * LOG2E
    for c in range(cb.UNIT_POS, plan.rows * plan.padded, cb.CUBE_DIM):
        r, d = c // plan.padded, c % plan.padded
        row = cb.min(first + r, shared_heads * length - 1)
        h, i = g * shared_heads + row // length, row % length
        number = cb.f32(0.0)
        if d < plan.depth:
            number = cb.cast(q[b, h, i, d], cb.f32)
            if plan.rotated > 0:
                number = rotated_number(q, rotation, (b, h, i), (b, i), d, plan)
        queries[r, d] = number * factor
    cb.sync_cube()


@cb.func
def capped(score, plan):
    """A score behind the soft limit, in units of log 2."""
    if plan.cap > 0.0:
        score = cb.tanh(score * (1.0 / plan.cap)) * plan.cap * LOG2E
    return score


@cb.func
def weigh(s, o, tops, totals, r: cb.Comptime[int], plan):
    """Turn a row's scores into weights; what was found before is scaled to the greatest score."""
    newest = tops[r]
    for u in cb.unroll(range(plan.keys)):
        newest = cb.max(newest, s[r, u])
    base = cb.select(newest == -cb.f32(float("inf")), cb.f32(0.0), newest)
    shrink = cb.exp2(tops[r] - base)
    total = totals[r] * shrink
    for u in cb.unroll(range(plan.keys)):
        s[r, u] = cb.exp2(s[r, u] - base)
        total = total + s[r, u]
    for n in cb.unroll(range(plan.width_lines)):
        o[r, n] = o[r, n] * shrink
    tops[r], totals[r] = newest, total


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
    E + 2) gets the sums. A cube does a tile of queries and a part of their keys. With scales (B, G,
    C, groups) keys and values are bytes.
    """
    rows, line, group = plan.rows, plan.line, plan.group
    queries = cb.shared((rows, plan.padded), cb.f32)
    found = cb.shared((plan.streams, rows, plan.stride), cb.f32)
    length, groups, room = q.shape[2], keys.shape[1], keys.shape[2]
    shared_heads = q.shape[1] // groups
    every = shared_heads * length
    splits = 1 if parts is None else parts.shape[1]
    tiles = (every + rows - 1) // rows
    first = cb.CUBE_POS % tiles * rows
    split = cb.CUBE_POS // tiles % splits
    owner = cb.CUBE_POS // (tiles * splits)
    b, g = owner // groups, owner % groups
    lane, stream = cb.UNIT_POS % group, cb.UNIT_POS // group

    load_queries(queries, q, rotation, (b, g), first, scale, shared_heads, plan)

    held = cb.cast(starts[b], cb.i64)
    begin, stop = cb.i64(0), held + length
    if not plan.rolling:
        stop = cb.min(stop, room)
    if plan.window > 0:
        begin = cb.max(held + 1 - plan.window, 0)
    base = base_of(begin, room, plan)
    each = (stop - begin + splits * plan.step - 1) // (splits * plan.step) * plan.step
    begin = begin + split * each
    stop = cb.min(stop, begin + each)

    query = cb.local((rows, plan.depth_lines), cb.f32, lanes=line)
    o = cb.local((rows, plan.width_lines), cb.f32, lanes=line)
    tops, totals = cb.local(rows, cb.f32), cb.local(rows, cb.f32)
    firsts, lasts = cb.local(rows, cb.i64), cb.local(rows, cb.i64)
    s = cb.local((rows, plan.keys), cb.f32)
    lanes = line // 4 if plan.words else line
    of_key = cb.local((plan.keys, plan.depth_lines), keys.dtype, lanes=lanes)
    of_value = cb.local((plan.keys, plan.width_lines), values.dtype, lanes=lanes)
    by_key = cb.local((plan.keys, plan.depth_lines), cb.f32)
    by_value = cb.local((plan.keys, plan.width_lines), cb.f32)
    for r in cb.unroll(range(rows)):
        tops[r], totals[r] = -cb.f32(float("inf")), cb.f32(0.0)
        lasts[r] = cb.min(stop, held + cb.min(first + r, every - 1) % length + 1)
        firsts[r] = cb.i64(0)
        if plan.window > 0:
            firsts[r] = held + cb.min(first + r, every - 1) % length + 1 - plan.window
        for n in cb.unroll(range(plan.depth_lines)):
            query[r, n] = queries.load((r, (n * group + lane) * line), line)
        for n in cb.unroll(range(plan.width_lines)):
            o[r, n] = cb.splat(cb.f32(0.0), line)

    for block in range(begin, stop, plan.step):
        start = block + stream * plan.keys
        for u in cb.unroll(range(plan.keys)):
            key = slot_of(cb.min(start + u, stop - 1), base, room, plan)
            for n in cb.unroll(range(plan.depth_lines)):
                of_key[u, n] = line_at(keys, (b, g), key, n, lane, plan.depth, plan)
                if scales is not None:
                    by_key[u, n] = scale_at(scales[0], (b, g), key, n, lane, plan.depth, plan)
        for u in cb.unroll(range(plan.keys)):
            key = slot_of(cb.min(start + u, stop - 1), base, room, plan)
            for n in cb.unroll(range(plan.width_lines)):
                of_value[u, n] = line_at(values, (b, g), key, n, lane, plan.width, plan)
                if scales is not None:
                    by_value[u, n] = scale_at(scales[1], (b, g), key, n, lane, plan.width, plan)
        for r in cb.unroll(range(rows)):
            for u in cb.unroll(range(plan.keys)):
                acc = cb.splat(cb.f32(0.0), line)
                for n in cb.unroll(range(plan.depth_lines)):
                    if scales is None:
                        acc = cb.fma(query[r, n], floats(of_key[u, n], plan), acc)
                    else:
                        part = query[r, n] * floats(of_key[u, n], plan)
                        acc = cb.fma(part, cb.splat(by_key[u, n], line), acc)
                score = acc.sum()
                for step in cb.unroll(range(group.bit_length() - 1)):
                    score = score + cb.plane_shuffle_xor(score, 1 << step)
                seen = start + u < lasts[r] and start + u >= firsts[r]
                s[r, u] = cb.select(seen, capped(score, plan), -cb.f32(float("inf")))
            weigh(s, o, tops, totals, r, plan)
            for u in cb.unroll(range(plan.keys)):
                for n in cb.unroll(range(plan.width_lines)):
                    weight = s[r, u]
                    if scales is not None:
                        weight = weight * by_value[u, n]
                    o[r, n] = cb.fma(cb.splat(weight, line), floats(of_value[u, n], plan), o[r, n])

    for r in cb.unroll(range(rows)):
        for n in cb.unroll(range(plan.width_lines)):
            d = (n * group + lane) * line
            for e in cb.unroll(range(line)):
                if d + e < plan.width:
                    found[stream, r, d + e] = o[r, n][e]
        if lane == 0:
            found[stream, r, plan.width] = tops[r]
            found[stream, r, plan.width + 1] = totals[r]
    cb.sync_cube()
    for c in range(cb.UNIT_POS, rows * plan.width, cb.CUBE_DIM):
        r, d = c // plan.width, c % plan.width
        row = first + r
        if row < every:
            top, total, value = joined(found, r, d, plan)
            h, i = g * shared_heads + row // length, row % length
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


@cb.kernel
def combine(parts: cb.Array, out: cb.Array, groups, width: cb.Comptime[int]):
    """out (B, H, L, E) from parts (B * groups, splits, H // groups * L, E + 2): a row a cube."""
    splits, every, length = parts.shape[1], parts.shape[2], out.shape[2]
    owner, row = cb.CUBE_POS // every, cb.CUBE_POS % every
    b, h, i = owner // groups, owner % groups * (every // length) + row // length, row % length
    top = -cb.f32(float("inf"))
    for s in range(splits):
        top = cb.max(top, parts[owner, s, row, width])
    base = cb.select(top == -cb.f32(float("inf")), cb.f32(0.0), top)
    for d in range(cb.UNIT_POS, width, cb.CUBE_DIM):
        total, value = cb.f32(0.0), cb.f32(0.0)
        for s in range(splits):
            grown = cb.exp2(parts[owner, s, row, width] - base)
            total = cb.fma(parts[owner, s, row, width + 1], grown, total)
            value = cb.fma(parts[owner, s, row, d], grown, value)
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
    rolling = rolls(window, q.shape[2], keys.shape[2])
    units = 4 * p.plane_size
    fixed = (depth, width, rotated, window, cap, rows, line, group, units)
    return Blueprint(*fixed, rolling=rolling, words=words)


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
    rest = (*held, starts, scales, out, parts, scale, plan)
    attend[items * splits, plan.units](q, rotation, *rest, mode="unchecked")
    if parts is not None:
        combine[batch * groups * rows, 2 * p.plane_size](
            parts, out, groups, plan.width, mode="unchecked"
        )
