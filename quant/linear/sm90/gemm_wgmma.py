"""Linear layers with packed weights and 17 rows of float activations or more, for Hopper: `wgmma`
with W in registers.

W is the operand with 64 rows (channels), in registers, as `cubepy.quant.linear.gpu.layout` arranges
it: the four planes of a group take a panel of sixteen channels each, and a 16-byte load of a lane
is its part of four products. Codes become weights on the way. Activations are the other operand:
one launch scales them, rounds them and permutes their inputs as the fragments of W want them, and
the copy engine loads tiles of them beside the codes. So a weight is read once, and the cost of its
codes does not grow with the rows. What it is worth is in docs/benchmarks/log/packed-weights-gpu.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.pipeline import Stage
from cubepy.kernels.primitives.register_transpose import whole_words
from cubepy.quant.linear.gpu.blueprint import CHUNK, PANEL
from cubepy.quant.linear.gpu.gemm_mma import scaled
from cubepy.quant.linear.sm90.fragments import fragments

GROUP = 128
"""Units that issue a product together: four planes."""
BLOCK = 64
"""Channels of one product."""
ALONE = 118_000
"""Bytes of shared memory with which no two cubes share a core: if launches overlap they would,
unevenly.
"""
PADDING = 4
"""Words between columns of results in shared memory: the lanes of a plane write to different banks.
"""


@dataclass(frozen=True)
class Wide:
    """What changes the code of the product.

    Attributes:
        columns: rows of activations of a cube, a multiple of 8.
        groups: groups that multiply.
        blocks: products of 64 channels of each group.
        splits: cubes of a cluster that share a tile, and each takes inputs of its own.
        stages: chunks of 64 inputs that are under way.
        split_k: whether the groups share channels, and each takes chunks of its own.
        group: inputs that share a scale, or 0 (int8).
        symmetric: whether codes stand for n - 8 (int4).
        bias, residual, activation: the epilogue.
        whole: whether results are whole lines of four.
        early: whether the launch may begin before the one before it has ended.
    """

    columns: int
    groups: int
    blocks: int
    splits: int
    stages: int
    group: int
    symmetric: bool
    bias: bool = False
    residual: bool = False
    activation: Any = None
    whole: bool = True
    early: bool = False
    split_k: bool = False

    @property
    def teams(self) -> int:
        """Groups that have channels of their own."""
        return 1 if self.split_k else self.groups

    @property
    def channels(self) -> int:
        """Channels of a cube."""
        return BLOCK * self.teams * self.blocks

    @property
    def parts(self) -> int:
        """Groups whose sums belong together."""
        return self.groups // self.teams

    @property
    def panels(self) -> int:
        """Panels of a cube."""
        return self.channels // PANEL

    @property
    def units(self) -> int:
        """Units of a cube: one group loads what the others multiply."""
        return GROUP * (self.groups + 1)

    @property
    def halves(self) -> int:
        """Pieces of four bits of a code."""
        return 1 if self.group else 2

    @property
    def per_block(self) -> int:
        """Chunks that lie together in the weight."""
        return max(1, self.group // CHUNK)

    @property
    def fact_words(self) -> int:
        """Words that say the scales (and minimums) of two channels, for a block."""
        return max(1, CHUNK // self.group) * (1 if self.symmetric else 2) if self.group else 0

    @property
    def code_words(self) -> int:
        """Words of a stage's codes."""
        return self.panels * self.halves * 128

    @property
    def slot(self) -> int:
        """Words of a stage's codes, scales and minimums."""
        return self.code_words + self.panels * 8 * self.fact_words

    @property
    def pitch(self) -> int:
        """Words from one column of results to the next."""
        return self.channels + PADDING

    @property
    def buffer_words(self) -> int:
        """Words of stages, where results stand at the end."""
        rows = self.stages * self.columns * CHUNK * 2
        return max(
            self.stages * self.slot, self.parts * self.columns * self.pitch, (ALONE - rows) // 4
        )

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube, with its barriers."""
        return 4 * self.buffer_words + self.stages * self.columns * CHUNK * 2 + 1024

    @property
    def registers(self) -> tuple[int, int] | None:
        """Registers of a unit that copies and of one that multiplies, where what all may have is
        not enough.
        """
        needed = self.blocks * self.columns // 2
        if self.groups == 2:
            return (40, 232) if needed > 80 else None
        return (24, 112) if self.groups == 4 and needed > 32 else None


SMALLER = 0.125
"""Of f16 activations: large ones times their factors stay finite, and those of 1e-3 are still as
exact as f16 is.
"""


@cb.kernel
def permute_rows(x: cb.Array, factors: cb.Array, out: cb.Array, early: cb.Comptime[bool]):
    """out = x * factors as words of two numbers, (M, inputs / 2), zeros beyond the end of a row;
    f16 an eighth of it.

    Of 32 inputs, the fragments of W have in lane t of four those from 8 t on. So words t, t + 4, t
    + 8 and t + 12 of each 16 are inputs 8 t to 8 t + 7.
    """
    if early:
        cb.start_next()
        cb.wait_previous()
    eighths = out.shape[1] // 4
    at = cb.ABSOLUTE_POS
    row, eighth = at // eighths, at % eighths
    there = row < x.shape[0]
    values = scaled(x, factors, cb.min(row, x.shape[0] - 1), eighth * 8)
    if x.dtype == cb.f16:
        values = values * SMALLER
    words = cb.pack(values, x.dtype)
    line = whole_words(words[0], words[1], words[2], words[3])
    if there:
        out.store((row, eighth * 4), line)


@cb.struct
class Tile:
    """What a cube makes: operands of a tile of channels by a block of rows, from chunk `first` to
    `last` of the inputs, and the memory for them. `stage` is the first of the ring.
    """

    x: cb.TensorMap
    words: cb.TensorMap
    facts: Any
    buffer: Any
    rows: Any
    stage: Stage
    panel: Any
    top: Any
    first: Any
    last: Any
    plan: cb.Comptime[Wide]

    def load_weights(self, stage, chunk):
        """Start copying the codes and scales of a chunk; announces them and the activations."""
        plan, slot = self.plan, stage.slot
        stage.expect(4 * plan.slot + plan.columns * CHUNK * 2)
        block, inside = chunk // plan.per_block, chunk % plan.per_block
        at = slot * plan.slot
        start = (block, self.panel, inside * plan.halves, 0)
        cb.tma_load(self.buffer, at, self.words, start, stage.full, slot)
        if plan.group > 0:
            cb.tma_load(
                self.buffer,
                at + plan.code_words,
                self.facts,
                (block, self.panel, 0),
                stage.full,
                slot,
            )

    def load_rows(self, stage, chunk):
        """Start copying the activations of a chunk."""
        at = stage.slot * self.plan.columns * CHUNK
        start = (self.top, chunk * CHUNK)
        cb.tma_load(self.rows, at, self.x, start, stage.full, stage.slot)


@cb.func
def produce(tile):
    """The copying unit: as many chunks as there are stages, then one after another as they are
    free.
    """
    # Codes are asked for before the launch before this one, which makes the activations, has ended.
    begun = cb.min(tile.last, tile.first + tile.plan.stages)
    for chunk in range(tile.first, begun):
        tile.load_weights(tile.stage.at(chunk - tile.first), chunk)
    if tile.plan.early:
        cb.wait_previous()
    for chunk in range(tile.first, begun):
        tile.load_rows(tile.stage.at(chunk - tile.first), chunk)
    stage = Stage(tile.stage.full, tile.stage.empty, 0, 1, tile.plan.stages)
    for chunk in range(begun, tile.last):
        stage.acquire()
        tile.load_weights(stage, chunk)
        tile.load_rows(stage, chunk)
        stage = stage.advance()


@cb.func
def multiply(tile, magic):
    """A group that multiplies: codes of its panels become fragments of weights, two products ahead
    of the matrix units; its sums go where the stages were.
    """
    plan, buffer, dtype = tile.plan, tile.buffer, tile.x.dtype
    columns, half = plan.columns, plan.columns // 2
    acc = cb.local(plan.blocks * half, cb.f32)
    a = cb.local((2, 2 * plan.blocks), cb.u32, lanes=4)
    lane = cb.UNIT_POS_PLANE
    group = cb.PLANE_POS // 4 - 1
    mine = cb.PLANE_POS % 4
    origin = tile.first
    stage = tile.stage
    if plan.split_k:
        origin = tile.first + group
        stage = stage.at(group)
    else:
        mine = mine + group * 4 * plan.blocks
    previous = stage.at(0)
    for chunk in range(origin, tile.last, plan.parts):
        stage.wait()
        for q in cb.unroll(range(2)):
            for b in cb.unroll(range(plan.blocks)):
                fragments(a, buffer, stage.slot, mine + 4 * b, q, b, magic, dtype, plan)
            cb.wgmma_fence()
            for s in cb.unroll(range(2)):
                for b in cb.unroll(range(plan.blocks)):
                    cb.wgmma(
                        acc,
                        a[q, 2 * b + s],
                        0,
                        tile.rows,
                        stage.slot * columns * CHUNK + (2 * q + s) * 16,
                        columns,
                        dtype,
                        accumulate=chunk > origin or q + s > 0,
                        start=b * half,
                    )
            cb.wgmma_commit()
            # The products before these are over: their fragments and, once, their stage may be
            # overwritten.
            cb.wgmma_wait(1)
            if q == 0:
                previous.release(lane == 0 and chunk > origin)
        previous = stage
        stage = stage.advance(plan.parts)
    cb.wgmma_wait(0, acc)
    cb.sync_group(1, GROUP * plan.groups)
    for b in cb.unroll(range(plan.blocks)):
        to = (lane & 3) * 2 * plan.pitch + (mine + 4 * b) * PANEL + lane // 4
        if plan.split_k:
            to = to + group * columns * plan.pitch
        for j in cb.unroll(range(columns // 8)):
            for e in cb.unroll(range(4)):
                value = cb.bitcast(acc[b * half + 4 * j + e], cb.u32)
                buffer[to + (8 * j + e % 2) * plan.pitch + e // 2 * 8] = value


@cb.kernel
def wide_product(
    x: cb.TensorMap,
    words: cb.TensorMap,
    facts,
    scales: cb.Array,
    bias,
    residual,
    out: cb.Array,
    gain: cb.f32,
    magic: cb.u32,
    chunks,
    row_blocks,
    plan: cb.Comptime,
):
    """out = epilogue(gain * x @ W.T): x as `permute_rows` makes it, W as words with facts or, in
    int8, scales.

    A cube takes a tile of channels and a block of rows, or with splits a part of their inputs: at
        least one chunk.
    """
    columns, stages = plan.columns, plan.stages
    rank, first, last = 0, 0, chunks
    job = cb.CUBE_POS_X
    if plan.splits > 1:
        cb.cluster(plan.splits)
        rank = cb.CLUSTER_POS
        job = job // plan.splits
        first = chunks * rank // plan.splits
        last = chunks * (rank + 1) // plan.splits
    tile, row_block = job // row_blocks, job % row_blocks
    full, empty = cb.barrier(stages, 1), cb.barrier(stages, 4 * plan.teams)
    buffer = cb.shared(plan.buffer_words, cb.u32)
    rows = cb.shared(stages * columns * CHUNK, x.dtype)
    if plan.early:
        cb.start_next()
    stage = Stage(full, empty, 0, 0, stages)
    work = Tile(
        x,
        words,
        facts,
        buffer,
        rows,
        stage,
        tile * plan.panels,
        row_block * columns,
        first,
        last,
        plan,
    )
    if cb.UNIT_POS < GROUP:
        if plan.registers is not None:
            cb.set_registers(plan.registers[0], False)
        if cb.UNIT_POS == 0:
            produce(work)
    else:
        if plan.registers is not None:
            cb.set_registers(plan.registers[1], True)
        multiply(work, magic)
    if plan.splits > 1:
        cb.sync_cluster()
    else:
        cb.sync_cube()
    if cb.UNIT_POS >= GROUP:
        finish(
            buffer,
            scales,
            bias,
            residual,
            out,
            gain,
            tile * plan.channels,
            row_block * columns,
            rank,
            plan,
        )
    if plan.splits > 1:
        cb.sync_cluster()


@cb.func
def finish(buffer, scales, bias, residual, out, gain, left, top, rank, plan):
    """Add the results of the cubes of the cluster, in their order, and write them, four channels a
    unit.
    """
    units = GROUP * plan.groups
    quads = plan.channels // 4
    here = cb.min(plan.columns, out.shape[0] - top)
    for at in range(rank * units + cb.UNIT_POS - GROUP, here * quads, plan.splits * units):
        row, inside = at // quads, at % quads * 4
        channel = left + inside
        room = out.shape[1] - channel
        if room > 0:
            index = row * plan.pitch + inside
            value = cb.splat(cb.f32(0.0), 4)
            for k in cb.unroll(range(plan.splits)):
                for part in cb.unroll(range(plan.parts)):
                    value = value + sums_of(
                        buffer, index + part * plan.columns * plan.pitch, k, plan
                    )
            value = value * gain
            if plan.group == 0:
                value = value * scales.load(channel, 4)
            if plan.bias:
                value = value + cb.cast(line_at(bias, (channel,), room, plan), cb.f32)
            if plan.activation is not None:
                value = plan.activation(value)
            if plan.residual:
                value = value + cb.cast(line_at(residual, (top + row, channel), room, plan), cb.f32)
            if plan.whole:
                out.store((top + row, channel), cb.cast(value, out.dtype))
            else:
                out.store((top + row, channel), cb.cast(value, out.dtype), valid=room)


@cb.func
def sums_of(buffer, index, rank: cb.Comptime[int], plan):
    """Four sums of a group of a cube of the cluster."""
    if plan.splits == 1:
        return cb.bitcast(buffer.load(index, 4), cb.f32)
    four = tuple(cb.load_cluster(buffer, index + e, rank) for e in cb.unroll(range(4)))
    return cb.bitcast(cb.line(four[0], four[1], four[2], four[3]), cb.f32)


@cb.func
def line_at(array, index, room, plan):
    """Four neighbours, as many as there are."""
    if plan.whole:
        return array.load(index, 4)
    return array.load(index, 4, valid=room)
