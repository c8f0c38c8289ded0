"""The unit that copies in the attention for Hopper: queries, blocks of keys, and one behind them
the values.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.attention.sm90 import masks as masking
from cubepy.kernels.attention.sm90.flash_memory import first_step
from cubepy.kernels.attention.sm90.plan import BLOCK


@cb.func
def load_rows(
    shared, at, source, start, count: cb.Comptime[int], depth: cb.Comptime[int], stage, more=0
):
    """Start copying `count` rows, 64 columns after 64 columns; `more` bytes will arrive beside
    them.
    """
    b, h, row = start
    stage.expect(count * depth * 2 + more)
    for c in cb.unroll(range(depth // BLOCK)):
        cb.tma_load(
            shared, at + c * count * BLOCK, source, (b, h, row, c * BLOCK), stage.full, stage.slot
        )


@cb.func
def load_keys(job, memory, position, known_at, block, after, stage):
    """Start copying a block of keys and its part of the mask, and say which block it is and whether
    one comes after.
    """
    plan = job.plan
    b, h, _ = position
    plain = masking.is_plain(job.known, known_at, block, plan)
    if plan.chosen:
        memory.announced[stage.slot] = block * 4 + cb.cast(after >= 0, cb.i32) * 2 + plain
    more = cb.select(plain != 0, 0, plan.mask_bytes)
    start = (b, h // job.sizes[1], block * plan.keys)
    at = stage.slot * plan.keys * plan.depth
    load_rows(memory.keys, at, job.k, start, plan.keys, plan.depth, stage, more)
    if plan.mask != "none":
        if plain == 0:
            masking.load_mask(memory.masks, job.mask, position, block, stage, plan)


@cb.func
def load_blocks(job, memory, position, key):
    """Copy the blocks of keys that a tile sees, the last one first, and one behind them the values;
    gives the stage after them.
    """
    plan, known = job.plan, job.known
    b, h, row = position
    size = plan.keys * plan.depth
    blocks = (job.sizes[4] + plan.keys - 1) // plan.keys
    known_at = masking.offset_of_known(job.mask, b, h, row, job.row_tiles(), blocks, plan)
    block = masking.next_block(known, known_at, job.blocks(row), plan)
    if plan.chosen:
        block = cb.max(block, 0)  # a row that sees nothing is computed, too
    after = masking.next_block(known, known_at, block, plan)
    key.acquire()
    load_keys(job, memory, position, known_at, block, after, key)
    while block >= 0:
        value = memory.value(key)
        key = key.advance()
        later = -1
        if after >= 0:
            later = masking.next_block(known, known_at, after, plan)
            key.acquire()
            load_keys(job, memory, position, known_at, after, later, key)
        value.acquire()
        start = (b, h // job.sizes[1], block * plan.keys)
        load_rows(memory.values, value.slot * size, job.v, start, plan.keys, plan.depth, value)
        block = after
        after = later
    return key


@cb.func
def produce(job, memory):
    """The copying unit: of every tile the queries, then its blocks."""
    plan = job.plan
    size, tiles = plan.rows * plan.depth, job.tiles()
    query, key = memory.query, memory.key
    tile = cb.CUBE_POS
    step = first_step(plan)
    while tile < tiles:
        position = job.position(tile)
        b, h, row = position
        query.acquire()
        if plan.chosen:
            memory.announced_tile[0] = tile
        start = (b, h, row * plan.rows)
        load_rows(memory.queries, query.slot * size, job.q, start, plan.rows, plan.depth, query)
        query = query.advance()
        key = load_blocks(job, memory, position, key)
        if plan.chosen:
            tile = cb.atomic_add(job.known[1], 0, 1)
        else:
            tile = tile + step
            if plan.causal:
                step = 2 * cb.CUBE_COUNT - step
    if plan.chosen:
        query.acquire()
        memory.announced_tile[0] = tile
        query.commit(True)
