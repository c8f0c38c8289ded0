"""New keys and values that join a cache: rotated on the way, as they are or as bytes with scales,
behind what is there or, in a cache that rolls, over what is oldest.

Bytes have a scale for each group of 32 numbers of a head and a position, as large as its largest
number asks for: keys and values of one head differ by orders of magnitude (KIVI: Liu et al., 2024).
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.attention.rotation import rotated_number

GROUP = 32
"""Numbers that share a scale."""
LARGEST = 127.0
"""The code of the largest number of a group."""


def rolls(window: int, length: int, room: int) -> bool:
    """Whether a cache holds all that queries see, though positions round in it: position p is at
    p % room.

    Args:
        window: positions that a query looks back at, itself included; 0: all.
        length: queries of a launch.
        room: positions of the cache.

    Example:
        >>> rolls(8, 1, 8), rolls(8, 2, 8), rolls(0, 1, 8)
        (True, False, False)
    """
    return window > 0 and room >= window + length - 1


@cb.func
def base_of(first, room, plan):
    """Where the round of a rolling cache that position `first` is in begins; else 0."""
    if plan.rolling:
        return first // room * room
    return first - first


@cb.func
def slot_of(position, base, room, plan):
    """Where a position is in a cache whose round began at `base`, or in the round after it."""
    if not plan.rolling:
        return position
    slot = position - base
    return cb.select(slot >= room, slot - room, slot)


@cb.kernel
def append(
    k: cb.Array,
    v: cb.Array,
    rotation,
    keys: cb.Array,
    values: cb.Array,
    starts: cb.Array,
    scales,
    plan: cb.Comptime,
):
    """keys[b, g, starts[b] + i] = rotated k[b, g, i], and values as they are; a cube does one
    position of one head. Positions beyond the cache are dropped; where it rolls they go round.

    k (B, G, L, D), v (B, G, L, E), keys (B, G, C, D), values (B, G, C, E); `rotation`: cos and sin
    (1 or B, L, rotated / 2), or None; `scales`: those of keys and values (B, G, C, groups), where
    they are bytes, or None.
    """
    if plan.early:
        cb.start_next()
        cb.wait_previous()
    length, heads, room = k.shape[2], k.shape[1], keys.shape[2]
    i = cb.CUBE_POS % length
    g = cb.CUBE_POS // length % heads
    b = cb.CUBE_POS // (length * heads)
    position = cb.cast(starts[b], cb.i64) + i
    slot = position
    if plan.rolling:
        slot = position % room
    if position >= 0 and slot < room:
        if scales is None:
            for d in range(cb.UNIT_POS, plan.depth, cb.CUBE_DIM):
                value = cb.cast(k[b, g, i, d], cb.f32)
                if plan.rotated > 0:
                    value = rotated_number(k, rotation, (b, g, i), (b, i), d, plan)
                keys[b, g, slot, d] = cb.cast(value, keys.dtype)
            for d in range(cb.UNIT_POS, plan.width, cb.CUBE_DIM):
                values[b, g, slot, d] = cb.cast(v[b, g, i, d], values.dtype)
        else:
            at = (b, g, i)
            append_codes(k, rotation, keys, scales[0], at, slot, plan.depth, plan)
            append_codes(v, None, values, scales[1], at, slot, plan.width, plan)


@cb.func
def append_codes(x, rotation, codes, scales, at, slot, width: cb.Comptime[int], plan):
    """Store x[at], rotated, as bytes and scales. On planes a group is that many neighbouring units,
    elsewhere a unit does a group.
    """
    b, g, _ = at
    plane = cb.comptime(cb.device_properties().plane_size)
    if plane >= GROUP:
        for first in range(0, -(-width // GROUP) * GROUP, cb.CUBE_DIM):
            d = first + cb.UNIT_POS
            value = cb.f32(0.0)
            if d < width:
                value = number(x, rotation, at, d, plan)
            largest = cb.abs(value)
            for step in cb.unroll(range(GROUP.bit_length() - 1)):
                largest = cb.nan_max(largest, cb.plane_shuffle_xor(largest, 1 << step))
            if d < width:
                codes[b, g, slot, d] = code_of(value, largest)
                if d % GROUP == 0:
                    scales[b, g, slot, d // GROUP] = largest / LARGEST
    else:
        for group in range(cb.UNIT_POS, -(-width // GROUP), cb.CUBE_DIM):
            first = group * GROUP
            last = cb.min(first + GROUP, width)
            largest = cb.f32(0.0)
            for d in range(first, last):
                largest = cb.nan_max(largest, cb.abs(number(x, rotation, at, d, plan)))
            for d in range(first, last):
                codes[b, g, slot, d] = code_of(number(x, rotation, at, d, plan), largest)
            scales[b, g, slot, group] = largest / LARGEST


@cb.func
def number(x, rotation, at, d, plan):
    """Number d of x[at], rotated where there are angles."""
    b, g, i = at
    value = cb.cast(x[b, g, i, d], cb.f32)
    if rotation is not None:
        value = rotated_number(x, rotation, at, (b, i), d, plan)
    return value


@cb.func
def code_of(value, largest):
    """The byte of a number of a group."""
    inverse = LARGEST / largest if largest > 0.0 else cb.f32(0.0)
    return cb.cast(cb.round(value * inverse), cb.i8)


def groups_of(width: int) -> int:
    """Scales of so many numbers.

    Example:
        >>> groups_of(64), groups_of(80)
        (2, 3)
    """
    return -(-width // GROUP)
