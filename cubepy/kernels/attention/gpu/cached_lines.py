"""How units read queries, and keys and values of a cache: floats as they are, bytes as words."""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.attention.append import GROUP, slot_of
from cubepy.kernels.attention.online_softmax import LOG2E
from cubepy.kernels.attention.rotation import rotated_number


@cb.func
def load_queries(queries, q, rotation, at, first, scale, length, plan):
    """The rotated and scaled queries of a tile, in shared memory; all units arrive."""
    b, g = at
    factor = scale if plan.cap > 0.0 else scale * LOG2E
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
def line_at(source, at, slot, n: cb.Comptime[int], lane, columns: cb.Comptime[int], plan):
    """Line n of a lane of a key or value, as it is in memory."""
    b, g = at
    whole = columns % (plan.group * plan.line) == 0
    d = (n * plan.group + lane) * plan.line
    width = plan.line
    if plan.words:
        d, columns, width = d // 4, columns // 4, plan.line // 4
    if whole:
        return source.load((b, g, slot, d), width)
    return source.load((b, g, slot, d), width, valid=cb.max(columns - d, 0))


@cb.func
def fetch(held, source, at, span, lane, columns: cb.Comptime[int], plan):
    """A lane's lines of `plan.keys` keys or values.

    Args:
        held: local memory of lines, and of their scales or None.
        source: keys or values, and their scales or None.
        at: row of the batch, and head.
        span: the first position, the one to stop before, and where the round of the first begins.
        lane: its number.
        columns: numbers of a key or value.
    """
    lines, by = held
    numbers, scales = source
    start, stop, base = span
    b, g = at
    room = cb.cast(numbers.shape[2], cb.i32)
    for u in cb.unroll(range(plan.keys)):
        slot = slot_of(cb.min(start + u, stop - 1), base, room, plan)
        for n in cb.unroll(range(-(-columns // (plan.group * plan.line)))):
            lines[u, n] = line_at(numbers, at, slot, n, lane, columns, plan)
            if scales is not None:
                d = cb.min((n * plan.group + lane) * plan.line, columns - 1)
                by[u, n] = scales[b, g, slot, d // GROUP]


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
