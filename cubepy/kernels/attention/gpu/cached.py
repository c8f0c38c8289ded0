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

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.attention.append import GROUP, append, base_of, slot_of
from cubepy.kernels.attention.gpu.cached_plan import combining, plan_for, splits_for
from cubepy.kernels.attention.online_softmax import LOG2E
from cubepy.kernels.attention.rotation import rotated_number
from cubepy.runtime import memory
from cubepy.runtime.device import DeviceProperties


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
def fetch(held, by, source, scales, kind: cb.Comptime[int], where, start, lane, plan):
    """A lane's lines of `plan.keys` keys (kind 0) or values (1) from position `start` on, none from
    `stop`, and their scales.
    """
    b, g, stop, base, room = where
    at = (b, g)
    columns = cb.comptime((plan.depth, plan.width)[kind])
    for u in cb.unroll(range(plan.keys)):
        key = slot_of(cb.min(start + u, stop - 1), base, room, plan)
        for n in cb.unroll(range((plan.depth_lines, plan.width_lines)[kind])):
            held[u, n] = line_at(source, at, key, n, lane, columns, plan)
            if scales is not None:
                by[u, n] = scale_at(scales[kind], at, key, n, lane, columns, plan)


@cb.func
def load_queries(queries, q, rotation, at, first, factor, plan):
    """The rotated and scaled queries of a tile, in shared memory; all units arrive."""
    b, g = at
    length = 1 if plan.single else q.shape[2]
    for n in cb.unroll(range(-(-plan.rows * plan.padded // plan.units))):
        c = n * plan.units + cb.UNIT_POS
        r, d = c // plan.padded, c % plan.padded
        row = cb.min(first + r, plan.heads * length - 1)
        h, i = g * plan.heads + row // length, row % length
        number = cb.f32(0.0)
        if plan.padded == plan.depth or d < plan.depth:
            number = cb.cast(q[b, h, i, d], cb.f32)
            if plan.rotated > 0:
                number = rotated_number(q, rotation, (b, h, i), (b, i), d, plan)
        if plan.rows * plan.padded % plan.units == 0 or r < plan.rows:
            queries[r, d] = number * factor
    cb.sync_cube()


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
def gather_values(s, o, held, by, scales, r: cb.Comptime[int], plan):
    """Add values, times their weights and scales, to a row."""
    for u in cb.unroll(range(plan.keys)):
        for n in cb.unroll(range(plan.width_lines)):
            weight = s[r, u]
            if scales is not None:
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
    E + 4) gets the sums. A cube does a tile of queries and a part of their keys. With scales (B, G,
    C, groups) keys and values are bytes.
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

    if plan.early:
        cb.start_next()
        cb.wait_previous()
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
    by_key = cb.local((plan.keys, plan.depth_lines), cb.f32)
    by_value = cb.local((plan.keys, plan.width_lines), cb.f32)
    where = (b, g, stop, base, room)
    if begin < stop:
        ahead = begin + stream * plan.keys
        fetch(of_key, by_key, keys, scales, 0, where, ahead, lane, plan)
        fetch(of_value, by_value, values, scales, 1, where, ahead, lane, plan)

    factor = scale if plan.cap > 0.0 else scale * LOG2E
    load_queries(queries, q, rotation, (b, g), first, factor, plan)
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
        ahead = start + plan.step
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
        if block + plan.step < stop:
            fetch(of_key, by_key, keys, scales, 0, where, ahead, lane, plan)
        for r in cb.unroll(range(rows)):
            weigh(s, o, tops, totals, None, r, plan)
            gather_values(s, o, of_value, by_value, scales, r, plan)
        if block + plan.step < stop:
            fetch(of_value, by_value, values, scales, 1, where, ahead, lane, plan)

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
    if plan.early:
        cb.start_next()
        cb.wait_previous()
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
        gather_values(s, o, held, None, None, 0, plan)
    leave(found, o, tops, totals, (stream, lane), 0, plan)
    cb.sync_cube()
    for d in range(cb.UNIT_POS, plan.width, cb.CUBE_DIM):
        top, total, value = joined(found, 0, d, plan)
        out[b, h, i, d] = cb.cast(cb.select(total == 0.0, cb.f32(0.0), value / total), out.dtype)


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
    attend[(items, splits), plan.units](q, rotation, *rest, mode="unchecked")
    if parts is not None:
        last = combining(plan, p.plane_size)
        combine[batch * groups * rows, last.units](parts, out, last, mode="unchecked")
