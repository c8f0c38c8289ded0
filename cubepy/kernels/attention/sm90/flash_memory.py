"""What the units of the attention for Hopper share: operands, the walk over tiles, and memory."""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.attention.sm90.plan import HopperAttention
from cubepy.kernels.primitives.pipeline import Stage


@cb.struct
class Attention:
    """What is computed: operands, sizes, what is known of the mask, and the blueprint."""

    q: cb.TensorMap
    k: cb.TensorMap
    v: cb.TensorMap
    out: cb.Array
    lse: Any
    mask: Any
    known: Any
    sizes: Any
    scale: Any
    plan: cb.Comptime[HopperAttention]

    def row_tiles(self):
        """Tiles of query rows of a head."""
        return (self.sizes[3] + self.plan.rows - 1) // self.plan.rows

    def tiles(self):
        """Tiles of all heads."""
        return self.row_tiles() * self.sizes[0] * self.sizes[2]

    def position(self, tile):
        """Batch, head and tile row: the heads of a row together, longest rows first, where rows
        differ in work.
        """
        heads, row_tiles = self.sizes[0], self.row_tiles()
        if self.plan.longest_first:
            every = self.tiles() // row_tiles
            row = row_tiles - 1 - tile // every
            which = tile % every
        else:
            row = tile % row_tiles
            which = tile // row_tiles
        return which // heads, which % heads, row

    def blocks(self, row):
        """Blocks of keys that a tile of rows sees."""
        blocks = (self.sizes[4] + self.plan.keys - 1) // self.plan.keys
        if self.plan.causal:
            seen = ((row + 1) * self.plan.rows + self.plan.keys - 1) // self.plan.keys
            blocks = cb.min(blocks, seen)
        return blocks


@cb.struct
class Memory:
    """Shared memory of a cube: queries, rings of keys and of values, masks, and what the copying
    unit tells of blocks and tiles.

    `query` and `key` are the first stages; values come in stages beside those of the keys.
    """

    query: Stage
    key: Stage
    value_full: Any
    value_empty: Any
    queries: Any
    keys: Any
    values: Any
    masks: Any
    announced: Any
    announced_tile: Any

    def value(self, key):
        """The stage of the values that belong to keys."""
        return key.beside(self.value_full, self.value_empty)


@cb.func
def memory_of(q, k, v, mask, plan):
    """The memory for operands of these dtypes."""
    depth, keys, stages = plan.depth, plan.keys, plan.stages
    loaded = cb.barrier(plan.queries, 1)
    freed = cb.barrier(plan.queries, 4 * plan.groups)
    key_full, key_empty = cb.barrier(stages, 1), cb.barrier(stages, 4 * plan.groups)
    value_full, value_empty = cb.barrier(stages, 1), cb.barrier(stages, 4 * plan.groups)
    queries = cb.shared(plan.queries * plan.rows * depth, q)
    key_tiles = cb.shared(stages * keys * depth, k)
    value_tiles = cb.shared(stages * keys * depth, v)
    masks, announced, announced_tile = queries, queries, queries
    if plan.mask != "none":
        masks = cb.shared(stages * plan.mask_stage // mask[0].dtype.itemsize, mask[0].dtype)
    if plan.chosen:
        announced, announced_tile = cb.shared(stages, cb.i32), cb.shared(1, cb.i32)
    query = Stage(loaded, freed, 0, 0, plan.queries)
    key = Stage(key_full, key_empty, 0, 0, stages)
    return Memory(
        query,
        key,
        value_full,
        value_empty,
        queries,
        key_tiles,
        value_tiles,
        masks,
        announced,
        announced_tile,
    )


@cb.func
def first_step(plan):
    """From a cube's first tile to its second: there and back over the cubes, so that each gets the
    same work where the longest tiles come first.
    """
    return 2 * (cb.CUBE_COUNT - cb.CUBE_POS) - 1 if plan.causal else cb.CUBE_COUNT
