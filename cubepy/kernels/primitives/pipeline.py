"""Rings of stages on Hopper, which the copy engine fills and groups of units multiply.

What the kernels of matrix products and of convolutions share. A ring has `stages` slots, each with
a tile of both operands. Barrier `full` of a slot says that the copy engine has brought them,
`empty` that the products have read them; who walks the ring keeps the slot and its phase, which
changes with every round.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb

GROUP = 128
"""Units that issue a product together: four planes."""
ROW_BYTES = 128
"""Bytes of a row of a tile in shared memory: what the copy engine swizzles."""
BLOCK = 64
"""Rows of one matrix instruction."""


@cb.func
def next_slot(slot, phase, stages):
    """The slot after this one, and its phase."""
    slot = slot + 1
    if slot == stages:
        slot = 0
        phase = 1 - phase
    return slot, phase


@cb.func
def skip_slots(slot, phase, count, stages):
    """The slot that comes `count` after this one, and its phase."""
    ahead = slot + count
    return ahead % stages, (phase + ahead // stages) % 2


@cb.struct
class Stage:
    """Where a producer or a consumer is in a ring of `stages` stages, with CUTLASS's words.

    A producer acquires a stage, starts the copies into it, and goes on with `commit`; a consumer
    waits for a stage, reads it, and gives it back with `release`. Each walks the stages by itself.

    `full` and `empty` are barriers with one count a stage: the copies have come, and the reads are
    done. `phase` changes with every round.
    """

    full: Any
    empty: Any
    slot: Any
    phase: Any
    stages: cb.Comptime[int]

    def acquire(self, nbytes):
        """Wait until the stage may be filled; so many bytes of copies will come to `full`."""
        cb.barrier_wait(self.empty, self.slot, 1 - self.phase)
        cb.barrier_expect(self.full, self.slot, nbytes)

    def commit(self):
        """The next stage, while the copies into this one are under way."""
        return self.next()

    def wait(self):
        """Wait until the stage is full."""
        cb.barrier_wait(self.full, self.slot, self.phase)

    def release(self, leader):
        """The next stage; this one is empty when the `leader` of every group was here."""
        if leader:
            cb.barrier_arrive(self.empty, self.slot)
        return self.next()

    def next(self):
        """The stage after this one."""
        slot, phase = next_slot(self.slot, self.phase, self.stages)
        return Stage(self.full, self.empty, slot, phase, self.stages)


@cb.func
def load_tile(shared, at, source, batch, along, k, count, depth, transposed, bar, slot):
    """Bring `count` rows (or, transposed, columns) of an operand, from `along` on, and `depth` of K
    from k on.
    """
    if transposed:
        for j in cb.unroll(range(0, count, BLOCK)):
            cb.tma_load(shared, at + j * depth, source, (batch, k, along + j), bar, slot)
    else:
        cb.tma_load(shared, at, source, (batch, along, k), bar, slot)


@cb.func
def stage_product(acc, a, at_a, b, at_b, started, blueprint, depth):
    """acc (+)= one stage: every matrix instruction takes 32 bytes of K."""
    step = depth // 4
    half = blueprint.columns // 2
    for q in cb.unroll(range(4)):
        for m in cb.unroll(range(blueprint.share // BLOCK)):
            in_a = (
                (q * step * BLOCK + m * BLOCK * depth)
                if blueprint.transpose_a
                else (q * step + m * BLOCK * depth)
            )
            in_b = q * step * BLOCK if blueprint.transpose_b else q * step
            cb.wgmma(
                acc, a, at_a + in_a, b, at_b + in_b, blueprint.columns, a.dtype, accumulate=started or q > 0,
                transpose_a=blueprint.transpose_a, transpose_b=blueprint.transpose_b, start=m * half,
                a_lead=BLOCK * depth if blueprint.transpose_a else 0,
                b_lead=BLOCK * depth if blueprint.transpose_b else 0,
            )  # fmt: skip


@cb.func
def ring_of(blueprint, a, b):
    """A ring for two consumers and operands of two dtypes: `full`, `empty`, whose turn it is, tiles
    of A and of B.
    """
    stages, depth = blueprint.stages, ROW_BYTES // a.itemsize
    full = cb.barrier(stages, 1)
    empty = cb.barrier(stages, 1 if blueprint.turns else 2)
    order = cb.barrier(2, 1)
    tiles_a = cb.shared(stages * blueprint.rows * depth, a)
    tiles_b = cb.shared(stages * blueprint.columns * depth, b)
    return full, empty, order, tiles_a, tiles_b


@cb.func
def multiply_tile(acc, ring, slot, phase, turn, steps, blueprint, behind):
    """acc = the product of a tile, or of this consumer's rows of it: `steps` stages of the ring.

    Consumers that take turns wait for theirs, `turn` being its phase, and hand it over after their
    last product. A slot is given back when the next one's products are under way (`behind`), or at
    once: then products are under way only if the other consumer has some. Returns the slot and the
    phase after the tile.
    """
    full, empty, order, tiles_a, tiles_b = ring
    rows, columns = blueprint.rows, blueprint.columns
    depth = ROW_BYTES // tiles_a.dtype.itemsize
    consumer = cb.UNIT_POS // GROUP - 1
    leader = cb.UNIT_POS % GROUP == 0
    own = 0 if blueprint.turns else consumer * blueprint.share  # its first row in a tile
    if blueprint.turns:
        cb.barrier_wait(order, consumer, turn)
    previous = 0
    for step in range(steps):
        cb.barrier_wait(full, slot, phase)
        cb.wgmma_fence()
        stage_product(
            acc,
            tiles_a,
            (slot * rows + own) * depth,
            tiles_b,
            slot * columns * depth,
            step > 0,
            blueprint,
            depth,
        )
        cb.wgmma_commit()
        cb.wgmma_wait(1 if behind else 0)
        if leader and (step > 0 or not behind):
            cb.barrier_arrive(empty, previous if behind else slot)
        previous = slot
        slot, phase = next_slot(slot, phase, blueprint.stages)
    if blueprint.turns and leader:
        cb.barrier_arrive(order, 1 - consumer)
    cb.wgmma_wait(0, acc)
    if behind and leader:
        cb.barrier_arrive(empty, previous)
    return slot, phase
