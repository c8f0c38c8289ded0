"""Attention by matrix units whose fragments the device describes (`matrix_instruction`): AMD's MFMA
and WMMA. 16-bit floats, widths up to 256, any lengths and strides, masks.

Both products are computed transposed. Scores are keys times queries, so that all scores that a unit
holds are one query's: its softmax is the unit's own but for the units, two or four of them, that
hold the query's other keys. Results are values times weights: a unit scales its sums by one factor,
and they are neighbours along a row of the result.

Which key a row of the first product belongs to is free, and so is where along its depth an element
of the second one is. Keys are numbered such that the weights that a unit holds are those that its
fragment of the second product wants, eight neighbouring keys at a time: they become an operand
without leaving their registers. RDNA 3, whose fragments are the same in both halves of a plane,
exchanges them with one other unit.

Keys, and values along keys, are in shared memory as primitives/stages.py says. While one of them is
multiplied, the other is on its way to registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.attention.gpu.flash_fragments_plan import NEIGHBOURS, FragmentAttention
from cubepy.kernels.attention.gpu.operands import copyable
from cubepy.kernels.attention.online_softmax import LOG2E, LOWEST
from cubepy.kernels.movement.copy import copy
from cubepy.kernels.movement.pad import pad
from cubepy.kernels.primitives.fragments import coordinates, instruction_of
from cubepy.kernels.primitives.stages import PIECES, piece_start, words_of

STAGE = 32
"""Elements of a row in a stage."""
BLOCK = 16
"""Bytes of which rows are whole numbers."""


@cb.func
def key_of(row, m):
    """The key, within a block, of a row of shared memory: row `row % m.rows` of a product."""
    each = m.c.count
    score = row // m.rows * each + row % each
    group = row % m.rows // each
    return (score // NEIGHBOURS * (m.rows // each) + group) * NEIGHBOURS + score % NEIGHBOURS


@cb.func
def line_of(source, b, h, row, d, zero):
    """Eight neighbours of a row, or of the last one; zeros where `zero` holds."""
    rows, columns = source.shape[2], source.shape[3]
    inside = cb.select(d < columns, d, 0)  # rather than the last eight: a known multiple
    words = cb.bitcast(source.load((b, h, cb.min(row, rows - 1), inside), NEIGHBOURS), cb.u32)
    return cb.bitcast(cb.select(zero, cb.splat(cb.u32(0), NEIGHBOURS // 2), words), source.dtype)


@cb.func
def rows_of_unit(n, count):
    """Stage, row and piece of the n-th 16 bytes of `count` rows."""
    return n // (count * PIECES), n // PIECES % count, n % PIECES


@cb.func
def fetch_keys(held, source, b, h, start, plan, m):
    """A block of keys from memory to registers, in the order of `key_of`."""
    works = plan.keys * (plan.depth // NEIGHBOURS)
    for step in cb.unroll(range((works + cb.CUBE_DIM - 1) // cb.CUBE_DIM)):
        n = step * cb.CUBE_DIM + cb.UNIT_POS
        stage, row, piece = rows_of_unit(n, plan.keys)
        d = stage * STAGE + piece * NEIGHBOURS
        beyond = not plan.deep and d >= source.shape[3]
        held[step] = line_of(source, b, h, start + key_of(row, m), d, beyond)


@cb.func
def put_keys(held, tiles, plan):
    """The block from registers to shared memory."""
    works = plan.keys * (plan.depth // NEIGHBOURS)
    for step in cb.unroll(range((works + cb.CUBE_DIM - 1) // cb.CUBE_DIM)):
        n = step * cb.CUBE_DIM + cb.UNIT_POS
        stage, row, piece = rows_of_unit(n, plan.keys)
        at = stage * plan.keys * STAGE + piece_start(row, piece, 2)
        if works % cb.CUBE_DIM == 0:
            tiles.store(at, held[step])
        elif n < works:
            tiles.store(at, held[step])


@cb.func
def values_of_unit(n, plan):
    """Stage, key and column of the n-th eight columns of two neighbouring keys of a block."""
    pairs = STAGE // 2
    each = pairs * (plan.width // NEIGHBOURS)
    return n // each, n % pairs * 2, n % each // pairs * NEIGHBOURS


@cb.func
def fetch_values(held, source, b, h, start, plan):
    """A block of values from memory to registers."""
    works = plan.keys // 2 * (plan.width // NEIGHBOURS)
    for step in cb.unroll(range((works + cb.CUBE_DIM - 1) // cb.CUBE_DIM)):
        stage, key, column = values_of_unit(step * cb.CUBE_DIM + cb.UNIT_POS, plan)
        for e in cb.unroll(range(2)):
            row = start + stage * STAGE + key + e
            held[step * 2 + e] = line_of(source, b, h, row, column, row >= source.shape[2])


@cb.func
def put_values(held, tiles, plan):
    """The block from registers to shared memory, every column along keys."""
    works = plan.keys // 2 * (plan.width // NEIGHBOURS)
    for step in cb.unroll(range((works + cb.CUBE_DIM - 1) // cb.CUBE_DIM)):
        n = step * cb.CUBE_DIM + cb.UNIT_POS
        stage, key, column = values_of_unit(n, plan)
        both = cb.interleave(held[step * 2], held[step * 2 + 1])
        if works % cb.CUBE_DIM == 0:
            put_pairs(both, tiles, stage * plan.width * STAGE, key, column)
        elif n < works:
            put_pairs(both, tiles, stage * plan.width * STAGE, key, column)


@cb.func
def put_pairs(both, tiles, at, key, column):
    """Eight columns of two keys."""
    for e in cb.unroll(range(NEIGHBOURS)):
        to = piece_start(column + e, key // NEIGHBOURS, 2) + key % NEIGHBOURS
        tiles.store(at + to, cb.slice_line(both, e * 2, 2))


@cb.func
def fetch_queries(held, source, b, h, row, plan, m):
    """A unit's fragments of its query."""
    groups, pieces = m.depth // m.b.count, cb.comptime(max(1, m.lengths[1] // 4))
    first = coordinates(m.b, cb.UNIT_POS_PLANE)[0] // m.b.count * pieces * NEIGHBOURS
    for n in cb.unroll(range(plan.depth // (groups * pieces * NEIGHBOURS))):
        d = n * groups * pieces * NEIGHBOURS + first
        beyond = not plan.deep and d >= source.shape[3]
        line = cb.bitcast(line_of(source, b, h, row, d, beyond), cb.u32)
        if pieces == 1:
            held[n] = line
        else:
            d = d + NEIGHBOURS
            beyond = not plan.deep and d >= source.shape[3]
            held[n] = cb.concat(line, cb.bitcast(line_of(source, b, h, row, d, beyond), cb.u32))


@cb.func
def put_queries(tiles, source, b, h, first, plan):
    """A cube's queries to shared memory."""
    rows = plan.side * plan.planes
    for step in cb.unroll(range(rows * (plan.depth // NEIGHBOURS) // cb.CUBE_DIM)):
        n = step * cb.CUBE_DIM + cb.UNIT_POS
        stage, row, piece = rows_of_unit(n, rows)
        d = stage * STAGE + piece * NEIGHBOURS
        beyond = not plan.deep and d >= source.shape[3]
        line = line_of(source, b, h, first + row, d, beyond)
        tiles.store(stage * rows * STAGE + piece_start(row, piece, 2), line)


@cb.func
def product(acc, n, x, y, m, dtype):
    """acc[n] += x @ y, by as many instructions as the words of a line last for."""
    words = m.lengths[0]
    total = acc[n]
    for t in cb.unroll(range(cb.comptime(max(1, 4 // words)))):
        a, b = cb.slice_line(x, t * words, words), cb.slice_line(y, t * words, words)
        total = cb.mma(a, b, total, dtype)
    acc[n] = total


@cb.func
def scores(s, tiles, queries, plan, m):
    """s = keys @ queries for a block of keys and a plane's queries, in registers or in shared
    memory.
    """
    groups, pieces = m.depth // m.b.count, cb.comptime(max(1, m.lengths[1] // 4))
    row, k = coordinates(m.a, cb.UNIT_POS_PLANE)
    part = k // m.a.count * pieces
    for i in cb.unroll(range(plan.keys // m.rows)):
        s[i] = cb.splat(cb.f32(0.0), m.c.count)
    if plan.held:
        for n in cb.unroll(range(plan.depth // (groups * pieces * NEIGHBOURS))):
            piece = n * groups * pieces
            multiply_keys(s, tiles, piece, part, row, queries[n], plan, m)
    else:
        mine = cb.PLANE_POS * plan.side + cb.UNIT_POS_PLANE % m.columns
        for stage in range(plan.depth // STAGE):
            for n in cb.unroll(range(PIECES // (groups * pieces))):
                at, piece = stage * plan.planes * plan.side * STAGE, n * groups * pieces + part
                y = words_of(queries, at, mine, piece, pieces)
                piece = stage * PIECES + n * groups * pieces
                multiply_keys(s, tiles, piece, part, row, y, plan, m)


@cb.func
def multiply_keys(s, tiles, first, part, row, y, plan, m):
    """s += keys @ y, of the pieces of the depth from `first` on."""
    pieces = cb.comptime(max(1, m.lengths[1] // 4))
    at = first // PIECES * plan.keys * STAGE
    for i in cb.unroll(range(plan.keys // m.rows)):
        x = words_of(tiles, at, i * m.rows + row, first % PIECES + part, pieces)
        product(s, i, x, y, m, plan.dtype)


@cb.func
def neighbours_of(s, n, each: cb.Comptime[int]):
    """A unit's scores of its n-th eight neighbouring keys."""
    if each == 4:
        return cb.concat(s[2 * n], s[2 * n + 1])
    if each == 8:
        return s[n]
    return cb.slice_line(s[n // 2], n % 2 * NEIGHBOURS, NEIGHBOURS)


@cb.func
def larger(x, y):
    """The larger one; NaN may be lost, which its weight brings back."""
    return cb.select(x > y, x, y)


@cb.func
def largest(line):
    """The largest of eight."""
    four = larger(cb.slice_line(line, 0, 4), cb.slice_line(line, 4, 4))
    two = larger(cb.slice_line(four, 0, 2), cb.slice_line(four, 2, 2))
    return larger(two[0], two[1])


@cb.struct
class Seen:
    """What a unit's query sees: its row of the mask (batch, head, row), keys below `limit`; all
    queries of its plane see those below `sure`.
    """

    mask: Any
    at: Any
    limit: Any
    sure: Any


@cb.func
def seen_scores(w, s, seen, start, scale, plan, m):
    """w = s in units of log 2, eight neighbouring keys a line; the lowest where a key is hidden."""
    low = cb.splat(cb.f32(LOWEST), NEIGHBOURS)
    groups = m.rows // m.c.count
    first = start + cb.UNIT_POS_PLANE // m.columns * NEIGHBOURS
    for n in cb.unroll(range(plan.keys // groups // NEIGHBOURS)):
        x = neighbours_of(s, n, m.c.count) * scale
        if plan.mask != "none":
            b, h, row = seen.at
            key = first + n * groups * NEIGHBOURS
            key = cb.select(key < seen.mask.shape[3], key, 0)  # what lies beyond is hidden below
            marks = seen.mask.load((b, h, row, key), NEIGHBOURS)
            if plan.mask == "bool":
                x = cb.select(marks, x, low)
            else:
                x = x + cb.cast(marks, cb.f32) * LOG2E
                x = cb.select(x < low, low, x)
        w[n] = x
    if start + plan.keys > seen.sure:
        for n in cb.unroll(range(plan.keys // groups // NEIGHBOURS)):
            left = seen.limit - (first + n * groups * NEIGHBOURS)
            w[n] = cb.select(cb.iota(NEIGHBOURS) < left, w[n], low)


@cb.func
def weigh(w, top, total, plan, m):
    """Scores become weights: the largest score and the unit's sum of weights, and by how much what
    was summed before shrinks.
    """
    lines = plan.keys // (m.rows // m.c.count) // NEIGHBOURS
    line = w[0]
    for n in cb.unroll(range(1, lines)):
        line = larger(line, w[n])
    new = larger(largest(line), top)
    for k in cb.unroll(range((m.rows // m.c.count).bit_length() - 1)):
        new = larger(new, cb.plane_shuffle_xor(new, m.columns << k))
    base = cb.select(new <= LOWEST, cb.f32(0.0), new)  # nothing seen yet: weights are 0
    grown = cb.exp2(top - new)
    sums = cb.splat(cb.f32(0.0), NEIGHBOURS)
    for n in cb.unroll(range(lines)):
        w[n] = cb.exp2(w[n] - base)
        sums = sums + w[n]
    four = cb.slice_line(sums, 0, 4) + cb.slice_line(sums, 4, 4)
    more = (four[0] + four[1]) + (four[2] + four[3])
    return new, cb.fma(total, grown, more), grown


@cb.func
def operand_of(line, dtype, m):
    """Weights of eight neighbouring keys as words of a fragment; where both halves of a plane hold
    the same one, those of the other half's eight keys, too.
    """
    mine = cb.pack(line, dtype)
    if m.depth > m.b.count:
        return mine
    other = cb.plane_shuffle_xor(mine, m.columns)
    upper = cb.UNIT_POS_PLANE // m.columns % 2 == 1
    return cb.select(upper, cb.concat(other, mine), cb.concat(mine, other))


@cb.func
def add_values(o, w, grown, tiles, plan, m):
    """o = o * grown + values @ weights."""
    groups, pieces = m.rows // m.c.count, cb.comptime(max(1, m.lengths[1] // 4))
    row, k = coordinates(m.a, cb.UNIT_POS_PLANE)
    part = k // m.a.count * pieces
    for i in cb.unroll(range(plan.width // m.rows)):
        o[i] = o[i] * grown
    for n in cb.unroll(range(plan.keys // groups // NEIGHBOURS)):
        y = operand_of(w[n], plan.dtype, m)
        at, piece = n * groups // PIECES * plan.width * STAGE, n * groups % PIECES + part
        for i in cb.unroll(range(plan.width // m.rows)):
            x = words_of(tiles, at, i * m.rows + row, piece, pieces)
            product(o, i, x, y, m, plan.dtype)


@cb.kernel(fast_math=("contract", "afn", "nsz", "arcp"))
def fragment_attend(
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
    """out[b, h, i] = sum over j of softmax(scale * q[b, h, i] . k[b, g, j] + mask) * v[b, g, j], g
    = h // shared_heads.

    q (B, H, L, D), k (B, G, S, D), v (B, G, S, E), the three as unsigned integers that hold the
    elements, whose rows, as those of the mask, are whole blocks of 16 bytes; out (B, H, L, E), lse
    (B, H, L) f32 or None; a cube for `plan.planes` times as many queries as an instruction has
    columns. scale is in units of log 2.
    """
    m = instruction_of(plan.dtype, plan.side)
    keys, rows = plan.keys, plan.side * plan.planes
    units, groups = cb.CUBE_DIM, m.rows // m.c.count
    key_tile = cb.shared(keys * plan.depth, k.dtype)
    value_tile = cb.shared(keys * plan.width, v.dtype)
    held_k = cb.local((keys * plan.depth // NEIGHBOURS + units - 1) // units, k.dtype, lanes=8)
    held_v = cb.local((keys * plan.width // 16 + units - 1) // units * 2, v.dtype, lanes=8)
    words = cb.comptime(max(4, m.lengths[1]))
    parts = plan.depth // (m.depth // m.b.count * words * 2)
    if plan.held:
        queries = cb.local(parts, cb.u32, lanes=words)
    else:
        queries = cb.shared(rows * plan.depth, q.dtype)
    s = cb.local(keys // m.rows, cb.f32, lanes=m.c.count)
    w = cb.local(keys // groups // NEIGHBOURS, cb.f32, lanes=NEIGHBOURS)
    o = cb.local(plan.width // m.rows, cb.f32, lanes=m.c.count)

    length, seen = q.shape[2], k.shape[2]
    tiles, owners = (length + rows - 1) // rows, q.shape[0] * q.shape[1]
    first = (tiles - 1 - cb.CUBE_POS // owners) * rows  # the longest first, where they differ
    b, h = cb.CUBE_POS % owners // q.shape[1], cb.CUBE_POS % q.shape[1]
    g = h // shared_heads
    top_row = first + cb.PLANE_POS * plan.side
    row = top_row + cb.UNIT_POS_PLANE % m.columns
    stop, limit, sure = seen, seen, seen
    if plan.causal:
        stop, limit = cb.min(seen, first + rows), cb.min(seen, row + 1)
        sure = cb.min(seen, top_row + 1)
    sees = Seen(mask, (b, h, cb.min(row, length - 1)), limit, sure)
    if plan.held:
        fetch_queries(queries, q, b, h, row, plan, m)
    else:
        put_queries(queries, q, b, h, first, plan)
    for i in cb.unroll(range(plan.width // m.rows)):
        o[i] = cb.splat(cb.f32(0.0), m.c.count)
    top, total = cb.f32(LOWEST), cb.f32(0.0)
    fetch_keys(held_k, k, b, g, 0, plan, m)
    for start in range(0, stop, keys):
        put_keys(held_k, key_tile, plan)
        cb.sync_cube()
        fetch_values(held_v, v, b, g, start, plan)
        scores(s, key_tile, queries, plan, m)
        seen_scores(w, s, sees, start, scale, plan, m)
        top, total, grown = weigh(w, top, total, plan, m)
        put_values(held_v, value_tile, plan)
        cb.sync_cube()
        if start + keys < stop:
            fetch_keys(held_k, k, b, g, start + keys, plan, m)
        add_values(o, w, grown, value_tile, plan, m)
    for n in cb.unroll(range(groups.bit_length() - 1)):
        total = total + cb.plane_shuffle_xor(total, m.columns << n)
    if row < length:
        if lse is not None:
            if cb.UNIT_POS_PLANE < m.columns:
                lse[b, h, row] = (top + cb.log2(total)) / LOG2E
        inverse = cb.select(total == 0.0, cb.f32(0.0), 1.0 / total)
        for i in cb.unroll(range(plan.width // m.rows)):
            column = i * m.rows + cb.UNIT_POS_PLANE // m.columns * m.c.count
            left = out.shape[3] - column
            if left > 0:
                out.store((b, h, row, column), cb.cast(o[i] * inverse, out.dtype), valid=left)


def in_blocks(a: Any) -> Any:
    """The array, whose rows are whole lines and whole blocks of 16 bytes, or a copy of what is not
    repeated of it, with zeros behind the ends of its rows.
    """
    more = -a.shape[-1] % max(NEIGHBOURS, BLOCK // a.itemsize)
    if not more and copyable(a, repeats=True):
        return a
    once = a[tuple(slice(1) if s == 0 else slice(None) for s in a.strides[:-1])]
    copied = pad(once, (0, more)) if more else copy(once)
    return np.broadcast_to(copied, (*a.shape[:-1], copied.shape[-1]))


def launch(
    q: Any, k: Any, v: Any, mask: Any, out: Any, lse: Any, scale: float, plan: FragmentAttention
) -> None:
    """Write the attention of (B, H, L, D) to `out`, and its log-sum-exp to `lse` if there
    is one.
    """
    batches, heads, length = q.shape[:3]
    cubes = batches * heads * -(-length // (plan.side * plan.planes))
    q, k, v = (in_blocks(a).view(np.uint16) for a in (q, k, v))
    mask = None if mask is None else in_blocks(mask)
    for first in range(0, out.shape[3], plan.width):
        values, result = (a[..., first : first + plan.width] for a in (v, out))
        arrays = q, k, values, mask, result, None if first else lse
        fragment_attend[cubes, plan.units](
            *arrays, scale * LOG2E, heads // k.shape[1], plan, mode="unchecked"
        )
