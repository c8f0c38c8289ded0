"""Masks of the attention for Hopper: how they come to shared memory, what is known of them before,
and their use.

A mask that is the same for all query rows (of padding) becomes one number a key. Other masks come
as they are, in tiles beside the keys, by the copy engine. Where several heads share a mask, a pass
before says of every tile of rows and keys whether anything in it is seen, or everything: tiles of
which nothing is seen are left out of the attention, and where all is seen the mask is not read
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.attention.online_softmax import HIDDEN, LOG2E, LOWEST
from cubepy.runtime import memory

LINE = 16
"""Bytes that the copy engine's rows, strides and addresses are multiples of."""
ROW_BYTES = 128
"""Bytes of a row of a tile in shared memory, which the copy engine swizzles."""
BY_KEY = ("keys", "key bias")
"""Kinds of mask that are the same for all rows: bool, and numbers that are added."""
ITEM_BYTES = {"bool": 1, "f16": 2, "bf16": 2, "f32": 4}
"""Kinds of mask with a number for each row and key, and the bytes of one."""
SURVEY = 500
"""Columns of all heads that share a mask for each of its bytes, from which on the pass before is a
twentieth of all.
"""
UNITS = 128
"""Units of a cube of the pass before, for whole masks."""


@dataclass(frozen=True)
class Prepared:
    """What the kernel takes: a mask's map with its steps from batch to batch and head to head, and
    what is known.
    """

    mask: tuple[Any, int, int] | None = None
    known: tuple[Any, Any] | None = None


def kind_of(mask: Any, kind: str) -> str | None:
    """The kind of a mask (B, H, L, S), `kind` "none", "bool" or "float"; None where the kernel does
    not know it.
    """
    if kind == "none":
        return kind
    if mask.shape[2] == 1 or mask.strides[2] == 0:
        return "keys" if kind == "bool" else "key bias"
    return {"bool": "bool", "float16": "f16", "bfloat16": "bf16", "float32": "f32"}.get(
        mask.dtype.name
    )


def worth_a_survey(mask: Any, kind: str, width: int) -> bool:
    """Whether there is a pass before: always where it makes the numbers a key, else where it costs
    little.
    """
    if kind == "none" or kind in BY_KEY:
        return kind != "none"
    shared = int(
        np.prod([n for n, s in zip(mask.shape[:2], mask.strides[:2], strict=True) if s == 0])
    )
    return shared * width >= SURVEY * ITEM_BYTES[kind]


@cb.func
def next_block(known, offset, block, plan):
    """The next block down from `block` of which something is seen; -1 if there is none."""
    block = block - 1
    if plan.chosen:
        while (
            cb.cast(block >= 0, cb.i32) * cb.cast(known[0][offset + cb.max(block, 0)] == 0, cb.i32)
            != 0
        ):
            block = block - 1
    return block


@cb.func
def offset_of_known(mask, b, h, row, row_tiles, blocks, plan):
    """Where what is known of a tile's blocks begins."""
    which = 0
    if plan.chosen:
        which = b * mask[1] + h * mask[2]
        if plan.mask not in BY_KEY:
            which = which * row_tiles + row
    return which * blocks


@cb.func
def is_plain(known, offset, block, plan):
    """1 where all of a block is seen."""
    plain = 0
    if plan.chosen:
        plain = cb.cast(known[0][offset + block], cb.i32) & 1
    return plain


@cb.func
def load_mask(tiles, mask, position, block, stage, plan):
    """Start copying a block's part of the mask of a tile at a batch, head and tile row."""
    b, h, row = position
    bar, slot = stage.full, stage.slot
    if plan.mask in BY_KEY:
        keys = (b * mask[1] + h * mask[2], block * plan.keys)
        cb.tma_load(tiles, slot * (plan.mask_stage // 4), mask[0], keys, bar, slot)
    else:
        columns = plan.mask_columns
        for c in cb.unroll(range(plan.mask_boxes)):
            at = (slot * plan.mask_boxes + c) * plan.rows * columns
            column = (block * plan.mask_boxes + c) * columns
            start = (b * cb.min(mask[1], 1), h * mask[2], row * plan.rows, column)
            cb.tma_load(tiles, at, mask[0], start, bar, slot)


@cb.func
def announced_block(announced, slot, block, plan):
    """The block that lies in a slot, how many follow (0 where none does), and whether all of it is
    seen.
    """
    follow, plain = block, 0
    if plan.chosen:
        word = announced[slot]
        block = word >> 2
        follow = word & 2
        plain = word & 1
    return block, follow, plain


@cb.func
def mask_scores(s, tiles, slot, plane, inverse, plan):
    """Hide what the mask hides, or add it; `plane`: the first of the plane's 16 rows in the tile.

    inverse is the factor by which what is added is divided by what scores will be multiplied with.
    """
    lane = cb.UNIT_POS_PLANE
    if plan.mask in BY_KEY:
        for j in range(plan.keys // 8):
            pair = tiles.load(slot * (plan.mask_stage // 4) + 8 * j + lane % 4 * 2, 2)
            for e in cb.unroll(range(2)):
                if plan.mask == "keys":
                    s[4 * j + e] = cb.min(s[4 * j + e], pair[e])
                    s[4 * j + 2 + e] = cb.min(s[4 * j + 2 + e], pair[e])
                else:
                    s[4 * j + e] = s[4 * j + e] + pair[e]
                    s[4 * j + 2 + e] = s[4 * j + 2 + e] + pair[e]
    columns = plan.mask_columns
    first = (slot * plan.mask_boxes * plan.rows + plane) * columns
    own = first + lane // 4 * columns
    if plan.mask == "bool":
        for j in range(plan.keys // 8):
            index = own + ((j // 2) ^ (lane // 4)) * 8 + j % 2 * 4 + lane % 4
            upper, lower = tiles[index], tiles[index + 8 * columns]
            s[4 * j] = cb.select((upper & 0xFF) != 0, s[4 * j], HIDDEN)
            s[4 * j + 1] = cb.select((upper & 0xFF00) != 0, s[4 * j + 1], HIDDEN)
            s[4 * j + 2] = cb.select((lower & 0xFF) != 0, s[4 * j + 2], HIDDEN)
            s[4 * j + 3] = cb.select((lower & 0xFF00) != 0, s[4 * j + 3], HIDDEN)
    if plan.mask in ("f16", "bf16"):
        for j in range(plan.keys // 16):
            box = first + j // 4 * plan.rows * columns + lane % 16 * columns
            words = cb.load_matrix(tiles, box + ((2 * (j % 4) + lane // 16) ^ (lane % 8)) * 8)
            eight = cb.unpack(words, tiles.dtype)
            for e in cb.unroll(range(8)):
                s[8 * j + e] = cb.fma(eight[e], inverse, s[8 * j + e])
    if plan.mask == "f32":
        for j in range(plan.keys // 8):
            box = own + j // 4 * plan.rows * columns
            index = box + ((2 * (j % 4) + lane % 4 // 2) ^ (lane // 4)) * 4 + lane % 2 * 2
            for r in cb.unroll(range(2)):
                pair = tiles.load(index + 8 * r * columns, 2)
                for e in cb.unroll(range(2)):
                    at = 4 * j + 2 * r + e
                    s[at] = cb.fma(pair[e], inverse, s[at])


@cb.kernel
def survey_keys(
    mask: cb.Array,
    bias: cb.Array,
    known: cb.Array,
    counter: cb.Array,
    cubes,
    inverse: cb.f32,
    keys: cb.Comptime,
):
    """bias[m, i]: what is done to key i's scores, for m = b * H + h of a mask (B, H, 1, S).

    A bool becomes infinite, for a minimum; a float is multiplied by `inverse`. known[m, block] is 0
    where nothing in a block of keys is seen, 1 where the mask changes nothing, 2 otherwise. A cube
    of one plane for a block.
    """
    blocks = known.shape[1]
    m, block = cb.CUBE_POS // blocks, cb.CUBE_POS % blocks
    hidden, plain = True, True
    for n in range((keys + 31) // 32):
        i = n * 32 + cb.UNIT_POS
        key = block * keys + i
        if i < keys:
            value = cb.f32(HIDDEN)
            if key < mask.shape[3]:
                given = mask[m // mask.shape[1], m % mask.shape[1], 0, key]
                if mask.dtype == cb.bool_:
                    value = cb.select(given, cb.f32(-HIDDEN), cb.f32(HIDDEN))
                    plain = plain & given
                else:
                    value = cb.cast(given, cb.f32) * inverse
                    plain = plain & (value == 0.0)
                hidden = hidden & (value < 2 * LOWEST)
            bias[m, key] = value
    hidden = cb.plane_all(hidden)
    plain = cb.plane_all(plain)
    if cb.UNIT_POS == 0:
        known[m, block] = cb.select(hidden, 0, cb.select(plain, 1, 2))
        if cb.CUBE_POS == 0:
            counter[0] = cubes


@cb.kernel
def survey(
    mask: cb.Array,
    known: cb.Array,
    counter: cb.Array,
    cubes,
    inverse: cb.f32,
    rows: cb.Comptime,
    keys: cb.Comptime,
):
    """The same for a whole mask (B, H, L, S), in tiles of `rows` by `keys`; bools come as words of
    four.
    """
    words = mask.dtype == cb.u32
    lanes = LINE // mask.dtype.itemsize
    lines = keys // 4 // lanes if words else keys // lanes
    row_tiles, blocks = known.shape[1], known.shape[2]
    m, tile, block = (
        cb.CUBE_POS // (blocks * row_tiles),
        cb.CUBE_POS // blocks % row_tiles,
        cb.CUBE_POS % blocks,
    )
    found = cb.shared(2 * UNITS // 32, cb.i32)
    hidden, plain = True, True
    for n in range(rows * lines // UNITS):
        i = n * UNITS + cb.UNIT_POS
        row, column = tile * rows + i // lines, (block * lines + i % lines) * lanes
        if row < mask.shape[2] and column < mask.shape[3]:
            line = mask.load((m // mask.shape[1], m % mask.shape[1], row, column), lanes)
            if words:
                hidden = hidden & (line == 0).all()
                plain = plain & (line == 0x01010101).all()
            else:
                value = cb.cast(line, cb.f32) * inverse
                hidden = hidden & (value < 2 * LOWEST).all()
                plain = plain & (value == 0.0).all()
    hidden = cb.plane_all(hidden)
    plain = cb.plane_all(plain)
    if cb.UNIT_POS_PLANE == 0:
        found[2 * cb.PLANE_POS] = cb.cast(hidden, cb.i32)
        found[2 * cb.PLANE_POS + 1] = cb.cast(plain, cb.i32)
    cb.sync_cube()
    if cb.UNIT_POS == 0:
        nothing, everything = found[0], found[1]
        for k in range(1, UNITS // 32):
            nothing = nothing & found[2 * k]
            everything = everything & found[2 * k + 1]
        known[m, tile, block] = cb.select(nothing != 0, 0, cb.select(everything != 0, 1, 2))
        if cb.CUBE_POS == 0:
            counter[0] = cubes


def once(mask: Any) -> Any:
    """A mask (B, H, L, S) as the copy engine takes it: axes that repeat have length 1."""
    shape = tuple(1 if s == 0 else n for n, s in zip(mask.shape[:3], mask.strides[:3], strict=True))
    mask = mask[: shape[0], : shape[1], : shape[2]]
    whole = [s for n, s in zip(mask.shape[:3], mask.strides[:3], strict=True) if n > 1]
    if (
        mask.address % LINE
        or mask.shape[3] * mask.itemsize % LINE
        or any(s % LINE or s < 0 for s in whole)
    ):
        padded = memory.empty((*shape, -(-mask.shape[3] // LINE) * LINE), mask.dtype)
        padded[..., mask.shape[3] :] = 0
        padded[..., : mask.shape[3]] = mask
        return padded
    strides = [mask.itemsize]
    for axis in (2, 1, 0):
        natural = strides[0] * mask.shape[axis + 1]
        strides.insert(0, mask.strides[axis] if mask.shape[axis] > 1 else natural)
    return mask.strided(mask.shape, tuple(strides))


def numbers_of_keys(
    mask: Any, seen: int, scale: float, keys: int, counter: Any, cubes: int
) -> tuple[Any, Any, tuple[int, int]]:
    """What `survey_keys` finds in a mask that is the same for all rows, and its batches and heads
    that differ.
    """
    batches, heads = (
        1 if s == 0 else n for n, s in zip(mask.shape[:2], mask.strides[:2], strict=True)
    )
    blocks = -(-seen // keys)
    bias = memory.empty((batches * heads, blocks * keys), np.dtype(np.float32))
    known = memory.empty((batches * heads, blocks), np.dtype(np.uint8))
    survey_keys[known.size, 32](
        mask[:batches, :heads, :1],
        bias,
        known,
        counter,
        cubes,
        LOG2E / scale,
        keys,
        mode="unchecked",
    )
    return bias, known, (batches, heads)


def prepare(mask: Any, length: int, seen: int, scale: float, cubes: int, plan: Any) -> Prepared:
    """Launch the pass before, if there is one, and say what the kernel takes.

    `scale` is what scores are multiplied with, in units of log 2; `cubes` how many the kernel will
    have.
    """
    if plan.mask == "none":
        return Prepared()
    counter = memory.empty((1,), np.dtype(np.int32))
    if plan.mask in BY_KEY:
        bias, known, few = numbers_of_keys(mask, seen, scale, plan.keys, counter, cubes)
        tiles = cb.tensor_map(bias, (1, plan.keys), swizzle=0)
    else:
        core = once(mask)
        few = core.shape[:2]
        box = (1, 1, plan.rows, plan.mask_columns)
        tiles = cb.tensor_map(
            core.view(np.uint16) if plan.mask == "bool" else core, box, swizzle=ROW_BYTES
        )
        if plan.chosen:
            shape = (few[0] * few[1], -(-length // plan.rows), -(-seen // plan.keys))
            known = memory.empty(shape, np.dtype(np.uint8))
            lines = core.view(np.uint32) if plan.mask == "bool" else core
            survey[known.size, UNITS](
                lines, known, counter, cubes, LOG2E / scale, plan.rows, plan.keys, mode="unchecked"
            )
    steps = (tiles, few[1] if few[0] > 1 else 0, 1 if few[1] > 1 else 0)
    return Prepared(steps, (known.reshape(-1), counter) if plan.chosen else None)
