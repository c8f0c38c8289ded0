"""Attention of few queries to long keys by the matrix units of a plane: keys are split among planes
and cubes.

The query heads that share a key head are rows of one tile, so that its keys are read once. A cube
has some teams of planes, each with a pipeline of blocks of keys and values of its own; what the
teams found is added up in shared memory, and what the cubes of a tile found by a second kernel, in
their order (Flash-Decoding: Dao, Haziza, Massa and Sizov, 2023). Neither depends on which came
first, so results do not vary. What was measured: docs/benchmarks/log/attention-sm90.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.attention.gpu.flash_decoding_plan import FACTS, SplitAttention, splits_for
from cubepy.kernels.attention.gpu.flash_mma import (
    Mask,
    Row,
    Sums,
    add_values,
    copy_words,
    line_of_four,
    row_total,
    scores,
    two,
    weigh,
    words_of,
)
from cubepy.kernels.attention.gpu.flash_mma_plan import PAD
from cubepy.kernels.attention.online_softmax import LOG2E, LOWEST
from cubepy.runtime import memory
from cubepy.runtime.device import DeviceProperties

COMBINING = 4  # planes of a cube that adds up what cubes found


@cb.func
def sync_team(plan):
    """The planes that share a pipeline meet."""
    if plan.row_planes == 1:
        cb.sync_plane()
    elif plan.teams == 1:
        cb.sync_cube()
    else:
        cb.sync_group(1 + cb.UNIT_POS // (32 * plan.row_planes), 32 * plan.row_planes)


@cb.func
def start_block(buffer, at, source, b, g, first, columns: cb.Comptime[int], plan):
    """Start copying a block of rows from `first` on by the units of a team."""
    units = 32 * plan.row_planes
    lines = columns // 8
    u = cb.UNIT_POS % units
    for n in range((plan.keys * lines + units - 1) // units):
        c = n * units + u
        r, d = c // lines, c % lines * 4
        if plan.keys * lines % units == 0:
            copy_words(buffer, at + r * (columns // 2 + PAD) + d, source, b, g, first + r, d)
        elif r < plan.keys:
            copy_words(buffer, at + r * (columns // 2 + PAD) + d, source, b, g, first + r, d)


@cb.func
def start_blocks(buffer, at, k, v, b, g, block, stop, plan):
    """A block of keys and values, if there is one; in any case one group of copies."""
    if block < stop:
        start_block(buffer, at, k, b, g, block * plan.keys, plan.depth, plan)
        start_block(buffer, at + plan.key_words, v, b, g, block * plan.keys, plan.width, plan)
    cb.copy_async_commit()


@cb.func
def load_block(buffer, at, source, b, g, first, columns: cb.Comptime[int], plan):
    """The same through registers, for any floats; zeros beyond the array."""
    stride = columns // 2 + PAD
    lines = columns // 8
    units = 32 * plan.row_planes
    for c in range(cb.UNIT_POS % units, plan.keys * lines, units):
        r, d = c // lines, c % lines * 8
        line = cb.splat(cb.f32(0.0), 8)
        if first + r < source.shape[2] and d < source.shape[3]:
            line = cb.cast(source.load((b, g, first + r, d), 8, valid=source.shape[3] - d), cb.f32)
        for part in cb.unroll(range(plan.parts)):
            buffer.store(
                at + (part * plan.keys + r) * stride + d // 2, words_of(line, plan.dtype, part)
            )


@cb.func
def load_queries(queries, q, b, g, first, left, shared_heads, plan):
    """The tile's rows: the queries of the heads that share a key head, one head after the other;
    then zeros.
    """
    stride = plan.depth // 2 + PAD
    lines = plan.depth // 8
    length = q.shape[2]
    for c in range(cb.UNIT_POS, plan.rows * lines, cb.CUBE_DIM):
        r, d = c // lines, c % lines
        row = cb.min(first + r, left - 1)
        h, i = g * shared_heads + row // length, row % length
        if plan.words:
            there = first + r < left and d * 4 < q.shape[3]
            cb.copy_async(queries, r * stride + d * 4, q, (b, h, i, d * 4), 16, valid=there)
        else:
            line = cb.splat(cb.f32(0.0), 8)
            if first + r < left and d * 8 < q.shape[3]:
                line = cb.cast(q.load((b, h, i, d * 8), 8, valid=q.shape[3] - d * 8), cb.f32)
            for part in cb.unroll(range(plan.parts)):
                queries.store(
                    (part * plan.rows + r) * stride + d * 4, words_of(line, plan.dtype, part)
                )


@cb.func
def leave(buffer, o, sums0, sums1, plan):
    """Sums, largest scores and sums of weights of the plane's rows to where all units find them."""
    lane = cb.UNIT_POS_PLANE
    stride = plan.width + FACTS
    sum0, sum1 = row_total(sums0.total), row_total(sums1.total)
    at = (cb.PLANE_POS * 16 + lane // 4) * stride
    for n in range(plan.width // 8):
        column = n * 8 + lane % 4 * 2
        buffer.store(at + column, cb.bitcast(two(o[n][0], o[n][1]), cb.u32))
        buffer.store(at + 8 * stride + column, cb.bitcast(two(o[n][2], o[n][3]), cb.u32))
    if lane % 4 == 0:
        buffer.store(at + plan.width, cb.bitcast(two(sums0.top, sum0), cb.u32))
        buffer.store(at + 8 * stride + plan.width, cb.bitcast(two(sums1.top, sum1), cb.u32))


@cb.func
def of_teams(buffer, row, column, plan):
    """Four sums of a row from `column` on, its largest score and its sum of weights over
    the teams.
    """
    stride = plan.width + FACTS
    top, total = cb.f32(LOWEST), cb.f32(0.0)
    four = cb.splat(cb.f32(0.0), 4)
    for t in cb.unroll(range(plan.teams)):
        top = cb.max(top, cb.bitcast(buffer[(t * plan.rows + row) * stride + plan.width], cb.f32))
    for t in cb.unroll(range(plan.teams)):
        at = (t * plan.rows + row) * stride
        facts = cb.bitcast(buffer.load(at + plan.width, 2), cb.f32)
        grown = cb.exp2(facts[0] - top)
        total = cb.fma(facts[1], grown, total)
        four = cb.fma(cb.bitcast(buffer.load(at + column, 4), cb.f32), cb.splat(grown, 4), four)
    return four, top, total


@cb.func
def finish(four, top, total, out, lse, b, h, i, column):
    """A row's results from `column` on, and its log-sum-exp."""
    if lse is not None:
        if column == 0:
            lse[b, h, i] = (top + cb.log2(total)) / LOG2E
    inverse = cb.select(total == 0.0, cb.f32(0.0), 1.0 / total)
    left = out.shape[3] - column
    if left > 0:
        out.store((b, h, i, column), cb.cast(four * inverse, out.dtype), valid=left)


def attend_parts(
    q: cb.Array,
    k: cb.Array,
    v: cb.Array,
    mask,
    found,
    scale: cb.f32,
    shared_heads,
    splits,
    each,
    plan: cb.Comptime,
):
    """Attention of the queries of a key head's query heads to `each` blocks of keys, one of
    `splits` parts.

    q (B, H, L, D), k (B, G, S, D), v (B, G, S, E), the three as words where the plan says so;
    found: out (B, H, L, E), lse (B, H, L) f32 or None and, with more than one part, `parts` (B * G,
    splits, H // G * L, width + 4), which get the sums. scale is in units of log 2.
    """
    out, lse, parts = found
    if plan.early:
        cb.start_next()
        cb.wait_previous()
    keys, rows = plan.keys, plan.rows
    queries = cb.shared(plan.query_words, cb.u32)
    buffer = cb.shared(plan.buffer_words, cb.u32)
    length, seen, groups = q.shape[2], k.shape[2], k.shape[1]
    every = shared_heads * length
    tiles = (every + rows - 1) // rows
    first = cb.CUBE_POS % tiles * rows
    split = cb.CUBE_POS // tiles % splits
    owner = cb.CUBE_POS // (tiles * splits)
    b, g = owner // groups, owner % groups
    lane = cb.UNIT_POS_PLANE
    team = 0
    if plan.teams > 1:
        team = cb.UNIT_POS // (32 * plan.row_planes)
    plane_row = cb.PLANE_POS % plan.row_planes * 16
    row0 = cb.min(first + plane_row + lane // 4, every - 1)
    row1 = cb.min(first + plane_row + lane // 4 + 8, every - 1)
    place0, place1 = row0 % length, row1 % length
    stop = seen
    limit0, limit1 = seen, seen
    if plan.causal:
        stop = cb.min(seen, length)
        limit0, limit1 = cb.min(seen, place0 + 1), cb.min(seen, place1 + 1)
    upper = Row(g * shared_heads + row0 // length, place0, limit0)
    lower = Row(g * shared_heads + row1 // length, place1, limit1)
    seen_by = Mask(mask, buffer, 0, b, seen - 1)
    stop = cb.min((stop + keys - 1) // keys, (split + 1) * each)
    span = plan.key_words + plan.value_words
    mine = team * plan.stages * span
    s = cb.local(keys // 8, cb.f32, lanes=4)
    o = cb.local(plan.width // 8, cb.f32, lanes=4)
    for n in range(plan.width // 8):
        o[n] = cb.splat(cb.f32(0.0), 4)
    sums0 = Sums(cb.f32(LOWEST), cb.f32(0.0))
    sums1 = Sums(cb.f32(LOWEST), cb.f32(0.0))
    block = split * each + team
    load_queries(queries, q, b, g, first, every, shared_heads, plan)
    if plan.words:
        cb.copy_async_commit()
        for n in cb.unroll(range(plan.stages - 1)):
            start_blocks(buffer, mine + n * span, k, v, b, g, block + n * plan.teams, stop, plan)
        cb.copy_async_wait(plan.stages - 1)
    cb.sync_cube()
    stage = 0
    for start in range(block, stop, plan.teams):
        at = mine + stage * span
        if plan.words:
            cb.copy_async_wait(plan.stages - 2)
            sync_team(plan)
            before = cb.select(stage == 0, plan.stages - 1, stage - 1)
            later = start + (plan.stages - 1) * plan.teams
            start_blocks(buffer, mine + before * span, k, v, b, g, later, stop, plan)
            stage = cb.select(stage == plan.stages - 1, 0, stage + 1)
        else:
            sync_team(plan)
            load_block(buffer, at, k, b, g, start * keys, plan.depth, plan)
            load_block(buffer, at + plan.key_words, v, b, g, start * keys, plan.width, plan)
            sync_team(plan)
        scores(s, queries, rows, plane_row, buffer, at, plan)
        sums0, sums1, grown = weigh(
            s, seen_by, upper, lower, sums0, sums1, start * keys, scale, plan
        )
        add_values(o, s, grown, buffer, at + plan.key_words, plan)
    if plan.words:
        cb.copy_async_wait(0)
    cb.sync_cube()
    leave(buffer, o, sums0, sums1, plan)
    cb.sync_cube()
    for c in range(cb.UNIT_POS, rows * plan.width // 4, plan.units):
        r, column = c // (plan.width // 4), c % (plan.width // 4) * 4
        row = first + r
        if row < every:
            four, top, total = of_teams(buffer, r, column, plan)
            if parts is None:
                h = g * shared_heads + row // length
                finish(four, top, total, out, lse, b, h, row % length, column)
            else:
                parts.store((owner, split, row, column), four)
                if column == 0:
                    facts = line_of_four(top, total, top, total)
                    parts.store((owner, split, row, plan.width), facts)


exact_parts = cb.kernel(attend_parts)
"""For f32: functions as exact as everywhere."""
quick_parts = cb.kernel(fast_math=("contract", "afn", "nsz", "arcp"))(attend_parts)
"""For 16-bit floats: powers by the special function unit."""


@cb.kernel
def combine_parts(
    parts: cb.Array, out: cb.Array, lse, groups, width: cb.Comptime[int], early: cb.Comptime[bool]
):
    """out (B, H, L, E) from parts (B * groups, splits, H // groups * L, width + 4); a cube for a
    row.
    """
    if early:
        cb.start_next()
        cb.wait_previous()
    sums = cb.shared((COMBINING, width), cb.f32)
    totals = cb.shared(COMBINING, cb.f32)
    splits, every, length = parts.shape[1], parts.shape[2], out.shape[2]
    owner, row = cb.CUBE_POS // every, cb.CUBE_POS % every
    lane, plane = cb.UNIT_POS_PLANE, cb.PLANE_POS
    top = cb.f32(LOWEST)
    for s in range(lane, splits, 32):
        top = cb.max(top, parts[owner, s, row, width])
    top = cb.plane_max(top)
    total = cb.f32(0.0)
    four = cb.local((width + 127) // 128, cb.f32, lanes=4)
    for n in cb.unroll(range((width + 127) // 128)):
        four[n] = cb.splat(cb.f32(0.0), 4)
    for s in range(plane, splits, COMBINING):
        facts = parts.load((owner, s, row, width), 2)
        grown = cb.exp2(facts[0] - top)
        total = cb.fma(facts[1], grown, total)
        for n in cb.unroll(range((width + 127) // 128)):
            column = n * 128 + lane * 4
            if column < width:
                four[n] = cb.fma(
                    parts.load((owner, s, row, column), 4), cb.splat(grown, 4), four[n]
                )
    for n in cb.unroll(range((width + 127) // 128)):
        column = n * 128 + lane * 4
        if column < width:
            sums.store((plane, column), four[n])
    if lane == 0:
        totals[plane] = total
    cb.sync_cube()
    b, h, i = owner // groups, owner % groups * (every // length) + row // length, row % length
    for column in range(cb.UNIT_POS * 4, width, 4 * cb.CUBE_DIM):
        whole = sums.load((0, column), 4)
        total = totals[0]
        for p in cb.unroll(range(1, COMBINING)):
            whole = whole + sums.load((p, column), 4)
            total = total + totals[p]
        finish(whole, top, total, out, lse, b, h, i, column)


def launch(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    out: Any,
    lse: Any,
    scale: float,
    plan: SplitAttention,
    p: DeviceProperties,
    splits: int = 0,
) -> None:
    """Write the attention of (B, H, L, D) to `out`, and its log-sum-exp to `lse` if there
    is one.
    """
    batches, heads, length = q.shape[:3]
    groups, seen = k.shape[1], min(k.shape[2], length) if plan.causal else k.shape[2]
    shared_heads, owners = heads // groups, batches * groups
    rows = shared_heads * length
    items, blocks = owners * -(-rows // plan.rows), -(-seen // plan.keys)
    splits = min(splits, blocks) or splits_for(items, blocks, plan, p)
    each = -(-blocks // splits)
    splits = -(-blocks // each)
    if plan.words:
        q, k, v = (a.view(np.uint32) for a in (q, k, v))
    parts = (
        memory.empty((owners, splits, rows, plan.width + FACTS), np.dtype(np.float32))
        if splits > 1
        else None
    )
    kernel = quick_parts if plan.parts == 1 else exact_parts
    kernel[items * splits, plan.units](
        q,
        k,
        v,
        mask,
        (out, lse, parts),
        scale * LOG2E,
        shared_heads,
        splits,
        each,
        plan,
        mode="unchecked",
    )
    if parts is not None:
        combine_parts[owners * rows, 32 * COMBINING](
            parts, out, lse, groups, plan.width, plan.early, mode="unchecked"
        )
