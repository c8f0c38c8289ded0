"""Pipelines on Hopper: rings of stages, which the copy engine fills and groups of units multiply.

`Stage` is where somebody is in a ring. `Pipeline` is the ring of a product with two consumers, and
`produce` and `consume` are their walks over the tiles of a cube, which matrix products,
convolutions and gradients share: what differs is a struct that knows where a tile is, how to load
its stages and how to write it.
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


@cb.struct
class Stage:
    """Where a producer or a consumer is in a pipeline of `stages` stages, with CUTLASS's words.

    A producer acquires a stage, fills it and goes on to the next (`advance`); a consumer waits for
    a stage, reads it, gives it back with `release`, and advances too. Each walks by itself. What
    the copy engine fills is full by its bytes (`expect`), what units fill by `commit`.

    Barriers `full` and `empty` have a count for each stage, from `first` on if that is given: the
    stage has come, and the reads are done. `phase` is that of `full` and changes with every round.
    A ring that is refilled behind a barrier of all its readers has no `empty`. Where the `cubes` of
    a cluster fill one another's stages, a reader tells all of them that it is done.
    """

    full: Any
    empty: Any
    slot: Any
    phase: Any
    stages: cb.Comptime[int]
    first: Any = None
    cubes: cb.Comptime[int] = 1

    def index(self):
        """The stage's count among the barriers."""
        return self.slot if self.first is None else self.first + self.slot

    def acquire(self):
        """Wait until the stage may be filled."""
        cb.barrier_wait(self.empty, self.index(), 1 - self.phase)

    def expect(self, nbytes):
        """Say how many bytes the copy engine will bring."""
        cb.barrier_expect(self.full, self.index(), nbytes)

    def commit(self, leader):
        """The stage is full when the `leader` of all that fill it was here."""
        if leader:
            cb.barrier_arrive(self.full, self.index())

    def wait(self):
        """Wait until the stage is full."""
        cb.barrier_wait(self.full, self.index(), self.phase)

    def release(self, leader):
        """The stage is empty when the `leader` of all that read it was here."""
        if leader:
            if self.cubes == 1:
                cb.barrier_arrive(self.empty, self.index())
            else:
                for rank in cb.unroll(range(self.cubes)):
                    cb.barrier_arrive_cluster(self.empty, self.index(), rank)

    def advance(self, count: cb.Comptime[int] = 1):
        """The stage that comes `count` stages later, at most a round."""
        slot, phase = self.slot + count, self.phase
        if slot == self.stages if count == 1 else slot >= self.stages:
            slot = 0 if count == 1 else slot - self.stages
            phase = 1 - phase
        return self.moved(slot, phase)

    def skip(self, count):
        """The stage that comes any number of stages later."""
        ahead = self.slot + count
        phase = (self.phase + ahead // self.stages) % 2
        return self.moved(ahead % self.stages, phase)

    def moved(self, slot, phase):
        """The stage in a slot, in the round of a phase."""
        return Stage(self.full, self.empty, slot, phase, self.stages, self.first, self.cubes)

    def at(self, slot):
        """The stage in a slot, in this one's round."""
        return self.moved(slot, self.phase)

    def beside(self, full, empty):
        """The stage at the same position of another pipeline."""
        return Stage(full, empty, self.slot, self.phase, self.stages, self.first)


@cb.struct
class Pipeline:
    """A pipeline for two consumers: its first stage, barriers that say whose turn it is, tiles of A
    and of B.
    """

    first: Stage
    order: Any
    a: Any
    b: Any
    blueprint: cb.Comptime[Any]

    def at_a(self, stage, row=0):
        """Where a row of a stage's tile of A begins."""
        return (stage.slot * self.blueprint.rows + row) * (ROW_BYTES // self.a.dtype.itemsize)

    def at_b(self, stage, column=0):
        """Where a column of a stage's tile of B begins."""
        return (stage.slot * self.blueprint.columns + column) * (ROW_BYTES // self.b.dtype.itemsize)


@cb.func
def pipeline_of(blueprint, a, b, cubes=1):
    """A pipeline for two consumers and operands of two dtypes, which the `cubes` of a cluster fill
    together.
    """
    stages, depth = blueprint.stages, ROW_BYTES // a.itemsize
    full = cb.barrier(stages, 1)
    empty = cb.barrier(stages, cubes * (1 if blueprint.pingpong else 2))
    order = cb.barrier(2, 1)
    tiles_a = cb.shared(stages * blueprint.rows * depth, a)
    tiles_b = cb.shared(stages * blueprint.columns * depth, b)
    first = Stage(full, empty, 0, 0, stages, None, cubes)
    return Pipeline(first, order, tiles_a, tiles_b, blueprint)


@cb.func
def load_tile(shared, at, source, start, count, transposed, stage, cubes=1):
    """Bring `count` rows (or, transposed, columns) of an operand and a stage's part of K; if the
    `cubes` of a cluster want the same ones, each brings its part of them to all.

    `start`: the batch, the first row or column, and the first of K.
    """
    batch, along, k = start
    depth = ROW_BYTES // source.dtype.itemsize
    part = count // cubes
    everybody = None if cubes == 1 else 2**cubes - 1
    first = 0 if cubes == 1 else cb.CLUSTER_POS * part
    full, slot = stage.full, stage.slot
    if transposed:
        for j in cb.unroll(range(0, part, BLOCK)):
            to, where = at + (first + j) * depth, (batch, k, along + first + j)
            cb.tma_load(shared, to, source, where, full, slot, multicast=everybody)
    else:
        to, where = at + first * depth, (batch, along + first, k)
        cb.tma_load(shared, to, source, where, full, slot, multicast=everybody)


@cb.func
def stage_product(acc, a, at_a, b, at_b, started, blueprint):
    """acc (+)= one stage: every matrix instruction takes 32 bytes of K."""
    depth = ROW_BYTES // a.dtype.itemsize
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
                acc,
                a,
                at_a + in_a,
                b,
                at_b + in_b,
                blueprint.columns,
                a.dtype,
                accumulate=started or q > 0,
                transpose_a=blueprint.transpose_a,
                transpose_b=blueprint.transpose_b,
                start=m * half,
                a_lead=BLOCK * depth if blueprint.transpose_a else 0,
                b_lead=BLOCK * depth if blueprint.transpose_b else 0,
            )


@cb.func
def multiply_tile(acc, pipeline, stage, order_phase, steps, behind):
    """acc = the product of a tile, or of this consumer's rows of it: `steps` stages of the
    pipeline.

    Consumers that take turns wait for theirs, `order_phase` being its phase, and hand it over after
    their last product. A stage is given back when the next one's products are under way (`behind`),
    or at once: then products are under way only if the other consumer has some. Returns the stage
    after the tile.
    """
    blueprint = pipeline.blueprint
    consumer = cb.UNIT_POS // GROUP - 1
    leader = cb.UNIT_POS % GROUP == 0
    own = 0 if blueprint.pingpong else consumer * blueprint.share  # its first row in a tile
    if blueprint.pingpong:
        cb.barrier_wait(pipeline.order, consumer, order_phase)
    previous = pipeline.first
    for step in range(steps):
        stage.wait()
        cb.wgmma_fence()
        stage_product(
            acc,
            pipeline.a,
            pipeline.at_a(stage, own),
            pipeline.b,
            pipeline.at_b(stage),
            step > 0,
            blueprint,
        )
        cb.wgmma_commit()
        cb.wgmma_wait(1 if behind else 0)
        if behind:
            previous.release(leader and step > 0)
        else:
            stage.release(leader)
        previous = stage
        stage = stage.advance()
    if blueprint.pingpong and leader:
        cb.barrier_arrive(pipeline.order, 1 - consumer)
    cb.wgmma_wait(0, acc)
    if behind:
        previous.release(leader)
    return stage


@cb.func
def produce(job, pipeline, tiles):
    """The producer's walk over the cube's tiles, or the cluster's: `job.load(pipeline, stage,
    position)` brings the stages of a tile and gives the stage after them.
    """
    stage = pipeline.first
    cubes = stage.cubes
    tile = cb.CUBE_POS // cubes
    while tile < tiles:
        stage = job.load(pipeline, stage, job.position(tile))
        tile = tile + cb.CUBE_COUNT // cubes


@cb.func
def consume(job, acc, pipeline, tiles, behind):
    """A consumer's walk over the cube's tiles, or over every second one where they take turns.

    `job.position(tile)` says where a tile is, and of such a position `job.steps` are the stages,
    `job.begin` is done before the products, and `job.finish(acc, position, done)` writes the tile,
    `done` being those written before.
    """
    pingpong = pipeline.blueprint.pingpong
    consumer = cb.UNIT_POS // GROUP - 1
    mine = consumer
    order_phase = 1 - consumer
    done = 0
    stage = pipeline.first
    cubes = stage.cubes
    tile = cb.CUBE_POS // cubes
    while tile < tiles:
        position = job.position(tile)
        steps = job.steps(position)
        if pingpong and mine != 0:  # the other's tile: its stages go by
            stage = stage.skip(steps)
        else:
            job.begin(position)
            stage = multiply_tile(acc, pipeline, stage, order_phase, steps, behind)
            order_phase = 1 - order_phase
            job.finish(acc, position, done)
            done = done + 1
        mine = 1 - mine
        tile = tile + cb.CUBE_COUNT // cubes
