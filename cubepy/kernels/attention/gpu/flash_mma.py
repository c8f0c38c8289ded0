"""Attention by the matrix units of a plane (`cb.mma`), for what the routine of the newest devices
does not take.

Any widths up to 256, any lengths and strides, masks, and f32: an f32 is split into three bf16,
whose six largest products are added, so that nothing is lost. A plane owns 16 query rows; keys and
values pass through shared memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.attention.gpu.flash_mma_plan import PAD, PlaneAttention
from cubepy.kernels.attention.online_softmax import LOG2E, LOWEST

PRODUCTS = {1: ((0, 0),), 3: ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0))}
"""Which parts of two operands are multiplied."""


@cb.func
def words_of(line, dtype, part: cb.Comptime[int]):
    """A part of a line of floats as words: what is left of it after the parts before."""
    for _ in cb.unroll(range(part)):
        line = line - cb.unpack(cb.pack(line, dtype), dtype)
    return cb.pack(line, dtype)


@cb.func
def load_tile(tile, source, b, h, first, count: cb.Comptime[int], columns: cb.Comptime[int], plan):
    """Rows `first` on of source[b, h] as words, through registers; zeros beyond the array."""
    stride = columns // 2 + PAD
    lines = columns // 8
    for c in range(cb.UNIT_POS, count * lines, cb.CUBE_DIM):
        r, d = c // lines, c % lines * 8
        line = cb.splat(cb.f32(0.0), 8)
        if first + r < source.shape[2] and d < source.shape[3]:
            line = cb.cast(source.load((b, h, first + r, d), 8, valid=source.shape[3] - d), cb.f32)
        for part in cb.unroll(range(plan.parts)):
            tile.store((part * count + r) * stride + d // 2, words_of(line, plan.dtype, part))


@cb.func
def start_tile(
    tile, at, source, b, h, first, left, count: cb.Comptime[int], columns: cb.Comptime[int]
):
    """The same beside the work, from word `left` on of an array of words in whole blocks of 16
    bytes.
    """
    lines = columns // 8
    for n in range((count * lines + cb.CUBE_DIM - 1) // cb.CUBE_DIM):
        c = n * cb.CUBE_DIM + cb.UNIT_POS
        r, d = c // lines, c % lines * 4
        if count * lines % cb.CUBE_DIM == 0:
            copy_words(tile, at + r * (columns // 2 + PAD) + d, source, b, h, first + r, left + d)
        elif r < count:
            copy_words(tile, at + r * (columns // 2 + PAD) + d, source, b, h, first + r, left + d)


@cb.func
def copy_words(tile, at, source, b, h, row, d):
    """Start copying four words; zeros beyond the array."""
    there = row < source.shape[2] and d < source.shape[3]
    cb.copy_async(tile, at, source, (b, h, cb.min(row, source.shape[2] - 1), d), 16, valid=there)


@cb.struct
class KeyBlocks:
    """Keys, values and the mask in memory, and a pipeline of blocks of them in shared memory.

    `at`: the batch, the key head, the query head, and the first row of queries.
    """

    keys: Any
    values: Any
    marks: Any
    k: Any
    v: Any
    mask: Any
    at: Any
    plan: cb.Comptime[Any]

    def start(self, stage, first):
        """A block from key `first` on to a stage of the pipeline; one group of copies."""
        plan = self.plan
        b, g, h, row = self.at
        start_tile(self.keys, stage * plan.key_words, self.k, b, g, first, 0, plan.keys, plan.depth)
        start_tile(
            self.values, stage * plan.value_words, self.v, b, g, first, 0, plan.keys, plan.width
        )
        if plan.mask == "words":
            at, rows = stage * plan.mask_words, 16 * plan.planes
            start_tile(self.marks, at, self.mask, b, h, row, first // 4, rows, plan.keys // 2)

    def load(self, first):
        """A block of keys and values to the only stage, through registers."""
        plan = self.plan
        b, g, _, _ = self.at
        load_tile(self.keys, self.k, b, g, first, plan.keys, plan.depth, plan)
        load_tile(self.values, self.v, b, g, first, plan.keys, plan.width, plan)


@cb.func
def multiply(a, b, first: cb.Comptime[int], main, rest, plan):
    """Products of all parts, added to `main`; those with a lesser part are added to `rest`."""
    for x, y in cb.unroll(PRODUCTS[plan.parts]):
        right = cb.shuffle(b[y], b[y], (first, first + 1))
        if x + y == 0:
            main = cb.mma(a[x], right, main, plan.dtype)
        else:
            rest = cb.mma(a[x], right, rest, plan.dtype)
    return main, rest


@cb.func
def scores(s, queries, rows: cb.Comptime[int], first, keys, at, plan):
    """s = queries @ keys.T for 16 of the tile's `rows` queries, from `first` on."""
    stride = plan.depth // 2 + PAD
    lane = cb.UNIT_POS_PLANE
    row = first + lane % 16
    key = lane // 16 * 8 + lane % 8
    zero = cb.splat(cb.f32(0.0), 4)
    rest = cb.local(plan.keys // 8, cb.f32, lanes=4)
    for n in range(plan.keys // 8):
        s[n] = zero
        rest[n] = zero
    for d in range(plan.depth // 16):
        a = tuple(
            cb.load_matrix(queries, (part * rows + row) * stride + d * 8 + lane // 16 * 4)
            for part in cb.unroll(range(plan.parts))
        )
        for n in range(plan.keys // 16):
            b = ()
            for part in cb.unroll(range(plan.parts)):
                index = at + (part * plan.keys + n * 16 + key) * stride + d * 8 + lane // 8 % 2 * 4
                b = b + (cb.load_matrix(keys, index),)
            s[2 * n], rest[2 * n] = multiply(a, b, 0, s[2 * n], rest[2 * n], plan)
            s[2 * n + 1], rest[2 * n + 1] = multiply(a, b, 2, s[2 * n + 1], rest[2 * n + 1], plan)
    if plan.parts > 1:
        for n in range(plan.keys // 8):
            s[n] = s[n] + rest[n]


@cb.func
def add_values(o, s, grown, values, at, plan):
    """o = o * grown + weights @ values.

    Matrix units truncate as they add; where all bits count, a block's sum starts at zero and is
    added here.
    """
    stride = plan.width // 2 + PAD
    lane = cb.UNIT_POS_PLANE
    key = lane // 8 % 2 * 8 + lane % 8
    zero = cb.splat(cb.f32(0.0), 4)
    a = ()
    for j in cb.unroll(range(plan.keys // 16)):
        for part in cb.unroll(range(plan.parts)):
            upper = words_of(s[2 * j], plan.dtype, part)
            a = a + (cb.concat(upper, words_of(s[2 * j + 1], plan.dtype, part)),)
    for n in range(plan.width // 16):
        even, odd = zero, zero
        if plan.parts == 1:
            even, odd = o[2 * n] * grown, o[2 * n + 1] * grown
        even_rest, odd_rest = zero, zero
        for j in cb.unroll(range(plan.keys // 16)):
            b = ()
            for part in cb.unroll(range(plan.parts)):
                index = at + (part * plan.keys + j * 16 + key) * stride + n * 8 + lane // 16 * 4
                b = b + (cb.load_matrix(values, index, transpose=True),)
            mine = a[j * plan.parts : (j + 1) * plan.parts]
            even, even_rest = multiply(mine, b, 0, even, even_rest, plan)
            odd, odd_rest = multiply(mine, b, 2, odd, odd_rest, plan)
        if plan.parts > 1:
            even, odd = (
                cb.fma(o[2 * n], grown, even + even_rest),
                cb.fma(o[2 * n + 1], grown, odd + odd_rest),
            )
        o[2 * n], o[2 * n + 1] = even, odd


@cb.struct
class Mask:
    """The mask of a batch, or the part of it in shared memory from word `at` on, and the last
    key.
    """

    array: Any
    tile: Any
    at: Any
    b: Any
    last: Any


@cb.struct
class Row:
    """A row of queries of a unit: its head, its row of the mask, and how many keys it sees."""

    h: Any
    row: Any
    limit: Any


@cb.struct
class Sums:
    """The largest score of a row so far, and the sum of its weights."""

    top: Any
    total: Any


@cb.func
def seen_scores(raw, mask, at, row, key, scale, plan):
    """The scores of two neighbouring keys in units of log 2, or the lowest where a key is
    not seen; `at`: of their words in shared memory.
    """
    x, y = raw[0] * scale, raw[1] * scale
    low = cb.f32(LOWEST)
    b, h, i = mask.b, row.h, row.row
    if plan.mask == "float":
        x = x + cb.cast(mask.array[b, h, i, cb.min(key, mask.last)], cb.f32) * LOG2E
        y = y + cb.cast(mask.array[b, h, i, cb.min(key + 1, mask.last)], cb.f32) * LOG2E
        x, y = cb.select(x < LOWEST, low, x), cb.select(y < LOWEST, low, y)
    if plan.mask == "bool":
        x = cb.select(mask.array[b, h, i, cb.min(key, mask.last)], x, low)
        y = cb.select(mask.array[b, h, i, cb.min(key + 1, mask.last)], y, low)
    if plan.mask == "words":
        pair = mask.tile[at] >> cb.cast(cb.UNIT_POS_PLANE % 2 * 16, cb.u32)
        x = cb.select((pair & 0xFF) != 0, x, low)
        y = cb.select((pair & 0xFF00) != 0, y, low)
    return cb.select(key < row.limit, x, low), cb.select(key + 1 < row.limit, y, low)


@cb.func
def row_top(top):
    """The largest of the four units of a row."""
    top = cb.max(top, cb.plane_shuffle_xor(top, 1))
    return cb.max(top, cb.plane_shuffle_xor(top, 2))


@cb.func
def row_total(x):
    """The sum over the four units of a row."""
    x = x + cb.plane_shuffle_xor(x, 1)
    return x + cb.plane_shuffle_xor(x, 2)


@cb.func
def base_of(top):
    """What is subtracted from scores: the largest, or nothing while no key was seen, so that
    weights are 0.
    """
    return cb.select(top <= LOWEST, cb.f32(0.0), top)


@cb.func
def weigh(s, mask, row0, row1, sums0, sums1, start, scale, plan):
    """Scores of the keys from `start` on become weights: the sums of the unit's two rows, and by
    how much what was summed before shrinks.
    """
    lane = cb.UNIT_POS_PLANE
    new0, new1 = sums0.top, sums1.top
    for n in range(plan.keys // 8):
        key = start + n * 8 + lane % 4 * 2
        four = s[n]
        at = mask.at + n * 2
        upper, lower = two(four[0], four[1]), two(four[2], four[3])
        x, y = seen_scores(upper, mask, at, row0, key, scale, plan)
        at = at + 8 * (plan.keys // 4 + PAD)
        z, w = seen_scores(lower, mask, at, row1, key, scale, plan)
        new0 = cb.max(new0, cb.max(x, y))
        new1 = cb.max(new1, cb.max(z, w))
        s[n] = line_of_four(x, y, z, w)
    new0, new1 = row_top(new0), row_top(new1)
    grown0, grown1 = cb.exp2(sums0.top - new0), cb.exp2(sums1.top - new1)
    base0, base1 = base_of(new0), base_of(new1)
    sum0, sum1 = sums0.total * grown0, sums1.total * grown1
    for n in range(plan.keys // 8):
        x, y = cb.exp2(s[n][0] - base0), cb.exp2(s[n][1] - base0)
        z, w = cb.exp2(s[n][2] - base1), cb.exp2(s[n][3] - base1)
        sum0 = sum0 + (x + y)
        sum1 = sum1 + (z + w)
        s[n] = line_of_four(x, y, z, w)
    grown = line_of_four(grown0, grown0, grown1, grown1)
    return Sums(new0, sum0), Sums(new1, sum1), grown


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
    """out[b, h, i] = sum over j of softmax(scale * q[b, h, i] . k[b, g, j] + mask) * v[b, g, j], g
    = h // shared_heads.

    q (B, H, L, D), k (B, G, S, D), v (B, G, S, E), the three as words where the plan says so; out
    (B, H, L, E), lse (B, H, L) f32 or None; a cube for 16 rows a plane. scale is in units of log 2.
    """
    keys = plan.keys
    rows = 16 * plan.planes
    queries = cb.shared(plan.parts * rows * (plan.depth // 2 + PAD), cb.u32)
    key_tile = cb.shared(plan.stages * plan.key_words, cb.u32)
    value_tile = cb.shared(plan.stages * plan.value_words, cb.u32)
    mask_tile = cb.shared(cb.comptime(max(1, plan.stages * plan.mask_words)), cb.u32)
    heads, length, seen = q.shape[1], q.shape[2], k.shape[2]
    tiles = (length + rows - 1) // rows
    owners = q.shape[0] * heads
    first = (
        tiles - 1 - cb.CUBE_POS // owners
    ) * rows  # the longest first, where rows differ in work
    b, h = cb.CUBE_POS % owners // heads, cb.CUBE_POS % heads
    g = h // shared_heads
    lane = cb.UNIT_POS_PLANE
    row0 = first + cb.PLANE_POS * 16 + lane // 4
    row1 = row0 + 8
    of_mask = (cb.PLANE_POS * 16 + lane // 4) * (keys // 4 + PAD) + lane % 4 // 2
    s = cb.local(keys // 8, cb.f32, lanes=4)
    o = cb.local(plan.width // 8, cb.f32, lanes=4)
    for n in range(plan.width // 8):
        o[n] = cb.splat(cb.f32(0.0), 4)
    sums0 = Sums(cb.f32(LOWEST), cb.f32(0.0))
    sums1 = Sums(cb.f32(LOWEST), cb.f32(0.0))
    stop = seen
    limit0, limit1 = seen, seen
    if plan.causal:
        stop = cb.min(seen, first + rows)
        limit0, limit1 = cb.min(seen, row0 + 1), cb.min(seen, row1 + 1)
    upper = Row(h, cb.min(row0, length - 1), limit0)
    lower = Row(h, cb.min(row1, length - 1), limit1)
    blocks = KeyBlocks(key_tile, value_tile, mask_tile, k, v, mask, (b, g, h, first), plan)
    if plan.words:
        start_tile(queries, 0, q, b, h, first, 0, rows, plan.depth)
        blocks.start(0, 0)
        cb.copy_async_commit()
    else:
        load_tile(queries, q, b, h, first, rows, plan.depth, plan)
    stage = 0
    for start in range(0, stop, keys):
        if plan.words:
            if start + keys < stop:
                blocks.start(1 - stage, start + keys)
            cb.copy_async_commit()
            cb.copy_async_wait(1)
        else:
            blocks.load(start)
        cb.sync_cube()
        scores(s, queries, rows, cb.PLANE_POS * 16, key_tile, stage * plan.key_words, plan)
        seen_by = Mask(mask, mask_tile, of_mask + stage * plan.mask_words, b, seen - 1)
        sums0, sums1, grown = weigh(s, seen_by, upper, lower, sums0, sums1, start, scale, plan)
        add_values(o, s, grown, value_tile, stage * plan.value_words, plan)
        cb.sync_cube()
        if plan.words:
            stage = 1 - stage
    sum0, sum1 = row_total(sums0.total), row_total(sums1.total)
    if lse is not None:
        if lane % 4 == 0:
            if row0 < length:
                lse[b, h, row0] = (sums0.top + cb.log2(sum0)) / LOG2E
            if row1 < length:
                lse[b, h, row1] = (sums1.top + cb.log2(sum1)) / LOG2E
    inverse0 = cb.select(sum0 == 0.0, cb.f32(0.0), 1.0 / sum0)
    inverse1 = cb.select(sum1 == 0.0, cb.f32(0.0), 1.0 / sum1)
    for n in range(plan.width // 8):
        column = n * 8 + lane % 4 * 2
        left = out.shape[3] - column
        if left > 0:
            if row0 < length:
                pair = two(o[n][0], o[n][1]) * inverse0
                out.store((b, h, row0, column), cb.cast(pair, out.dtype), valid=left)
            if row1 < length:
                pair = two(o[n][2], o[n][3]) * inverse1
                out.store((b, h, row1, column), cb.cast(pair, out.dtype), valid=left)


@cb.func
def two(x, y):
    """A line of two numbers."""
    return cb.concat(cb.splat(x, 1), cb.splat(y, 1))


@cb.func
def line_of_four(x, y, z, w):
    """A line of four numbers."""
    return cb.concat(two(x, y), two(z, w))


exact_attend = cb.kernel(attend)
"""For f32: functions as exact as everywhere."""
quick_attend = cb.kernel(fast_math=("contract", "afn", "nsz", "arcp"))(attend)
"""For 16-bit floats: powers by the special function unit."""


def launch(
    q: Any, k: Any, v: Any, mask: Any, out: Any, lse: Any, scale: float, plan: PlaneAttention
) -> None:
    """Write the attention of (B, H, L, D) to `out`, and its log-sum-exp to `lse` if there
    is one.
    """
    batches, heads, length = q.shape[:3]
    cubes = batches * heads * -(-length // (16 * plan.planes))
    shared_heads = heads // k.shape[1]
    if plan.words:
        q, k, v = (a.view(np.uint32) for a in (q, k, v))
    if plan.mask == "words":
        mask = mask.view(np.uint32)
    kernel = quick_attend if plan.parts == 1 else exact_attend
    kernel[cubes, 32 * plan.planes](
        q, k, v, mask, out, lse, scale * LOG2E, shared_heads, plan, mode="unchecked"
    )
