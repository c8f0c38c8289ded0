"""What the kernels of attention's gradients on Hopper share: their blueprint, products, and how
blocks come and go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.attention.online_softmax import LOWEST
from cubepy.kernels.attention.sm90 import masks as masking
from cubepy.kernels.attention.sm90.plan import BLOCK, GROUP
from cubepy.kernels.primitives.pipeline import Stage


@dataclass(frozen=True)
class HopperGradients:
    """What changes the code of the backward pass.

    Attributes:
        depth: width of queries, keys and values, rounded up to 64, 128, 192 or 256.
        query_stages, grad_stages: blocks of queries, and of the result's gradient, that are under
            way.
        causal: a query sees keys up to its own position.
        ragged: the keys are no multiple of those of a cube.
        queries: queries of a step, 64 or, at depth 64, 128.
        mask: "none", "keys" (bool) or "key bias" (added), the same for all queries and heads.
    """

    depth: int = 128
    query_stages: int = 3
    grad_stages: int = 3
    causal: bool = False
    ragged: bool = False
    queries: int = 64
    mask: str = "none"

    @property
    def wide(self) -> bool:
        """Whether the groups of a cube own different sums, and not different keys."""
        return self.depth > 128

    @property
    def units(self) -> int:
        """Units of a cube."""
        return 3 * GROUP

    @property
    def keys(self) -> int:
        """Keys of a cube."""
        return BLOCK if self.wide else 2 * BLOCK

    @property
    def by_rows(self) -> bool:
        """Whether each group has its own rows of a step's query gradients, and not its own
        columns.
        """
        return self.queries == 2 * BLOCK

    @property
    def part(self) -> int:
        """Numbers of a step's query gradients that a unit has."""
        return self.queries * self.depth // (2 * GROUP)

    @property
    def by_key(self) -> bool:
        """Whether keys are hidden, or have something added to their scores, whatever the query."""
        return self.ragged or self.mask != "none"

    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        stages = self.query_stages + self.grad_stages
        squares = 4 if self.wide else 2
        tiles = (
            2 * self.keys + stages * self.queries
        ) * self.depth + squares * self.keys * self.queries
        return 2 * tiles + 4 * stages * self.queries


@cb.struct
class KeyBlock:
    """A cube's block of keys: its number, batch and key head, how many query heads there are and
    share it, `head` the first of these among those of all batches, the first step that sees it and
    how many steps there are.
    """

    block: Any
    b: Any
    g: Any
    heads: Any
    shared_heads: Any
    head: Any
    first: Any
    steps: Any

    def total(self):
        """Steps of all query heads."""
        return (self.steps - self.first) * self.shared_heads


@cb.func
def keys_of_cube(sizes, padding, plan):
    """The cube's block; `sizes` are query heads, key heads, batches, queries, keys, and key heads
    that are done together.
    """
    heads, key_heads, batches, length, seen, band = sizes
    blocks = (seen + plan.keys - 1) // plan.keys
    steps = (length + plan.queries - 1) // plan.queries
    block, owner = cb.CUBE_POS % blocks, cb.CUBE_POS // blocks
    if plan.causal:
        start = cb.CUBE_POS // (band * blocks) * band
        beside = cb.min(band, batches * key_heads - start)
        inside = cb.CUBE_POS - start * blocks
        block, owner = inside // beside, start + inside % beside
    b, g = owner // key_heads, owner % key_heads
    first = cb.min(steps, block * (plan.keys // plan.queries)) if plan.causal else 0
    if plan.mask != "none":
        if padding[1][b * padding[2], block] == 0:
            first = steps  # nobody sees these keys
    shared_heads = heads // key_heads
    head = b * heads + g * shared_heads
    return KeyBlock(block, b, g, heads, shared_heads, head, first, steps)


@cb.struct
class Passing:
    """A ring of what passes by: a step's rows of queries, or of gradients, and the number that goes
    with each row. `first` is the ring's first stage.
    """

    tiles: Any
    numbers: Any
    source: cb.TensorMap
    vector: cb.TensorMap
    first: Stage
    plan: cb.Comptime[HopperGradients]

    def load(self, stage, b, h, row, step):
        """Start copying a step's rows of a head; `row` is the head's among all."""
        rows, depth = self.plan.queries, self.plan.depth
        slot = stage.slot
        stage.expect(rows * (2 * depth + 4))
        for c in cb.unroll(range(depth // BLOCK)):
            at = slot * rows * depth + c * rows * BLOCK
            start = (b, h, step * rows, c * BLOCK)
            cb.tma_load(self.tiles, at, self.source, start, stage.full, slot)
        cb.tma_load(self.numbers, slot * rows, self.vector, (row, step * rows), stage.full, slot)


@cb.func
def load_keys(keys, values, k, v, cube, loaded, plan):
    """Start copying the cube's keys and values."""
    cb.barrier_expect(loaded, 0, 4 * plan.keys * plan.depth)
    for c in cb.unroll(range(plan.depth // BLOCK)):
        at, start = c * plan.keys * BLOCK, (cube.b, cube.g, cube.block * plan.keys, c * BLOCK)
        cb.tma_load(keys, at, k, start, loaded, 0)
        cb.tma_load(values, at, v, start, loaded, 0)


@cb.func
def hide_turned(s, first, plan):
    """Give queries before `first` (from the unit's first column; 8 more for the lower row) the
    lowest score.
    """
    for j in range(plan.queries // 8):
        for e in range(2):
            if 8 * j + e < first:
                s[4 * j + e] = LOWEST
            if 8 * j + e < first + 8:
                s[4 * j + 2 + e] = LOWEST


@cb.func
def shifts_of_keys(row, b, seen, scale, padding, plan):
    """What is added to the exponents of keys row and row + 8: by a mask, or where they are beyond
    the end.
    """
    upper, lower = cb.f32(0.0), cb.f32(0.0)
    if plan.mask == "keys":
        upper = cb.min(upper, padding[0][b * padding[2], row])
        lower = cb.min(lower, padding[0][b * padding[2], row + 8])
    if plan.mask == "key bias":
        upper = padding[0][b * padding[2], row] * scale
        lower = padding[0][b * padding[2], row + 8] * scale
    if plan.ragged:
        upper = cb.select(row >= seen, cb.f32(masking.HIDDEN), upper)
        lower = cb.select(row + 8 >= seen, cb.f32(masking.HIDDEN), lower)
    return upper, lower


@cb.func
def weigh_turned(s, tops, at, scale, upper, lower, plan):
    """Scores become weights, 2 ** (scale * score - the top of its query + the shift of its key);
    tops from `at` on.
    """
    for j in range(plan.queries // 8):
        for e in range(2):
            top = tops[at + 8 * j + e]
            one, other = cb.fma(s[4 * j + e], scale, -top), cb.fma(s[4 * j + 2 + e], scale, -top)
            if plan.by_key:
                one, other = one + upper, other + lower
            s[4 * j + e] = cb.exp2(one)
            s[4 * j + 2 + e] = cb.exp2(other)


@cb.func
def store_slopes(ds, at, words, j, lane):
    """Put 16 columns of a fragment's rows into a swizzled tile: `at` is that of the unit's row, j
    which columns.
    """
    cb.store_matrix(ds, at + ((2 * (j % 4) + lane // 16) ^ (lane % 8)) * 8, words)


@cb.func
def add_query_grads(dq, part, at):
    """Add a part of the queries' gradients, in the order of accumulators, from dq[at] on; `at` is
    the unit's place.
    """
    for i in range(part.size // 4):
        line = cb.line(part[4 * i], part[4 * i + 1], part[4 * i + 2], part[4 * i + 3])
        cb.add_line(dq, at + i * GROUP * 4, line)
