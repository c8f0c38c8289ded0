"""f32 products by plain arithmetic on a GPU with asynchronous copies: any strides, any size, and K
shared by the cubes of a cluster.

Without matrix units a core's limit is what it reads from shared memory, and every instruction that
is no product. Stages stand in shared memory with K outermost, whatever the operands' order: what
lies across K and is aligned comes in pieces of 16 bytes, anything else element by element, and is
transposed on the way. A unit holds 16 by 8 sums, or 8 by 8 of smaller tiles. Where tiles are fewer
than cores the cubes of a cluster take parts of K, and add their sums up in each other's shared
memory. Measured in docs/benchmarks/log/matmul-sm90.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.entry.shapes import strided
from cubepy.kernels.matmul.gpu.operands import copies, fitted, once, oriented
from cubepy.kernels.matmul.gpu.padded_operands import along_own
from cubepy.kernels.matmul.gpu.simt import tile_start
from cubepy.kernels.matmul.gpu.simt_costs import MULTISTAGE, chosen
from cubepy.kernels.matmul.problem import Product, is_exact_f32
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.tune import GpuRoutine, TunedRoutine

LANES = 4
WIDE = 2
"""Lines of a unit's sums beside each other."""
UNROLL = 4
RUN = 8
"""Neighbours along K that units beside each other move: a sector of the cache."""
ROW_LANES, COLUMN_LANES = 4, 8
PLANE_COLUMNS = COLUMN_LANES * WIDE * LANES
"""Columns of a plane's sums."""


@dataclass(frozen=True)
class SimtMultistage(Epilogue):
    """What changes the code, beside the epilogue.

    Attributes:
        rows, columns: a cube's tile.
        high: blocks of four rows of a unit.
        teams: groups of units that share a tile, each with its part of every stage's K.
        depth: K of a stage.
        stages: stages of the pipeline.
        cubes: how many cubes a core runs at once.
        parts: cubes of a cluster, which share K.
        a_along_k, b_along_k: the operand's last axis is K; otherwise it is its own.
        a_whole, b_whole: it is its own, and copies of 16 bytes suit it.
    """

    rows: int = 128
    columns: int = 128
    high: int = 4
    teams: int = 2
    depth: int = 32
    stages: int = 3
    cubes: int = 1
    parts: int = 1
    a_along_k: bool = True
    b_along_k: bool = True
    a_whole: bool = False
    b_whole: bool = False

    @property
    def team(self) -> int:
        """Units of a team."""
        return self.rows * self.columns // (self.high * WIDE * LANES * LANES)

    @property
    def units(self) -> int:
        """Units of a cube."""
        return self.teams * self.team

    @property
    def lines(self) -> int:
        """Lines of a tile."""
        return self.rows * self.columns // LANES

    @property
    def stage(self) -> int:
        """Elements of a stage of both operands."""
        return self.depth * (self.rows + self.columns + 2 * LANES)

    @property
    def shared(self) -> int:
        """Elements of a cube's shared memory: stages, and at the end the sums of all teams."""
        sums = self.teams * self.lines * LANES if self.teams * self.parts > 1 else 0
        return max(self.stages * self.stage, sums)


@cb.struct
class Operand:
    """What a unit moves of a matrix: elements `source` in a row, of which `length` are along K.

    `start` is the first one's position, `own_step` and `k_step` lead to the next along the own axis
    and along K, and `inside` has a bit for each that exists along the own axis. `at` is where the
    first one goes in a stage.
    """

    source: Any
    start: Any
    own_step: Any
    k_step: Any
    inside: Any
    at: Any
    deep: Any
    length: Any
    count: cb.Comptime[int]
    units: cb.Comptime[int]
    along_k: cb.Comptime[bool]
    whole: cb.Comptime[bool]

    def load(self, tiles, at, k, depth):
        """Start copying `depth` of K from k on into a stage that begins at `at`."""
        pitch = self.count + LANES
        to = at + self.at
        left = self.length - k - self.deep
        if self.along_k:
            rounds = self.count * RUN // self.units
            for group in cb.unroll(range(0, depth, RUN)):
                index = self.start + (k + group) * self.k_step
                here = cb.select(group < left, self.inside, 0)
                for n in cb.unroll(range(rounds)):
                    cb.copy_async(
                        tiles,
                        to + (group * pitch + n * (self.units // RUN)),
                        self.source,
                        index + n * self.own_step,
                        4,
                        here & (1 << n) != 0,
                    )
        else:
            per = LANES if self.whole else 1
            rows = self.units * per // self.count
            index = self.start + k * self.k_step
            left = cb.select(self.inside != 0, left, 0)
            for n in cb.unroll(range(0, depth, rows)):
                cb.copy_async(
                    tiles, to + n * pitch, self.source, index + n * self.k_step, 4 * per, n < left
                )


@cb.func
def operand(source, steps, batch, first, size, count, along_k, whole, units):
    """The operand of which a cube takes `count` along its own axis of `size[0]`, from `first` on;
    `steps` are elements to the next batch, along its own axis and along K.
    """
    unit = cb.UNIT_POS
    if along_k:
        own, deep = unit // RUN, unit % RUN
        own_step = units // RUN
    else:
        per = LANES if whole else 1
        own, deep = unit * per % count, unit * per // count
        own_step = count
    inside = cb.cast(0, cb.i32)
    for n in cb.unroll(range(count // own_step)):
        inside = inside + cb.select(first + own + n * own_step < size[0], 1 << n, 0)
    start = batch * steps[0] + (first + own) * steps[1] + deep * steps[2]
    return Operand(
        source,
        start,
        own_step * steps[1],
        steps[2],
        inside,
        deep * (count + LANES) + own,
        deep,
        size[1],
        count,
        units,
        along_k,
        whole,
    )


@cb.func
def seat(unit, blueprint):
    """The first row and column of a unit's sums in lines of four: neighbours share rows, and those
    two apart columns.
    """
    plane, lane = unit // 32, unit % 32
    beside = blueprint.columns // PLANE_COLUMNS
    top = plane // beside * (blueprint.high * ROW_LANES) + lane // 2 % ROW_LANES
    left = plane % beside * (COLUMN_LANES * WIDE) + lane % 2 + lane // 8 * 2
    return top, left


@cb.func
def finish_line(line, n, corner, epilogue, blueprint):
    """Write line n of a tile's sums, which are in the order of units that hold them."""
    batch, row, column = corner
    i, j = n // blueprint.team // WIDE, n // blueprint.team % WIDE
    top, left = seat(n % blueprint.team, blueprint)
    r = row + (top + i // LANES * ROW_LANES) * LANES + i % LANES
    epilogue.finish_inside(line, batch, r, column + (left + j * COLUMN_LANES) * LANES)


@cb.func
def team_sums(tiles, n, blueprint):
    """Line n of a tile, summed over teams."""
    done = tiles.load(n * LANES, LANES)
    for t in cb.unroll(range(1, blueprint.teams)):
        done = done + tiles.load((t * blueprint.lines + n) * LANES, LANES)
    return done


@cb.func
def add_parts(tiles, rank, corner, epilogue, blueprint):
    """Add the sums of the cubes of a cluster, each cube its share of the tile, and write them."""
    units, lines = blueprint.units, blueprint.lines
    if blueprint.teams > 1:
        for n in range(cb.UNIT_POS, lines, units):
            tiles.store(n * LANES, team_sums(tiles, n, blueprint))
    cb.sync_cluster()
    each = (lines + blueprint.parts - 1) // blueprint.parts
    rounds = (each + units - 1) // units
    total = cb.local(rounds, cb.f32, lanes=LANES)
    for step in cb.unroll(range(rounds)):
        n = cb.min(rank * each + step * units + cb.UNIT_POS, lines - 1)
        total[step] = cb.splat(0.0, LANES)
        for other in cb.unroll(range(blueprint.parts)):
            near = cb.line(
                *(cb.load_cluster(tiles, n * LANES + e, other) for e in cb.unroll(range(LANES)))
            )
            total[step] = total[step] + near
    cb.sync_cluster()  # before the results are stored: it would wait until all see them
    for step in cb.unroll(range(rounds)):
        mine = step * units + cb.UNIT_POS
        if mine < each and rank * each + mine < lines:
            finish_line(total[step], rank * each + mine, corner, epilogue, blueprint)


@cb.func
def stage_sums(acc, tiles, at_a, at_b, high):
    """acc += one of K, of rows and columns that begin at lines `at_a` and `at_b` of a stage."""
    y = tuple(tiles.load((at_b + j * COLUMN_LANES) * LANES, LANES) for j in cb.unroll(range(WIDE)))
    for g in cb.unroll(range(high)):
        x = tiles.load((at_a + g * ROW_LANES) * LANES, LANES)
        for e in cb.unroll(range(LANES)):
            for j in cb.unroll(range(WIDE)):
                i = g * LANES + e
                acc[i, j] = cb.fma(cb.splat(x[e], LANES), y[j], acc[i, j])


@cb.kernel(fast_math=("contract", "nsz"))
def simt_multistage_product(
    a: cb.Array,
    b: cb.Array,
    out: cb.Array,
    bias,
    residual,
    alpha: cb.f32,
    length,
    steps_a,
    steps_b,
    blueprint: cb.Comptime,
):
    """out[batch] = epilogue(a[batch] @ b[batch]); a cluster makes a tile.

    Operands are their elements in a row, `length` is K, and steps lead to an operand's next batch,
    to its next row or column of the result, and along K.
    """
    epilogue = epilogue_of(blueprint, out, bias, residual, alpha)
    rows, columns, depth = blueprint.rows, blueprint.columns, blueprint.depth
    stages, parts, units = blueprint.stages, blueprint.parts, blueprint.units
    cb.resident(blueprint.cubes)
    if parts > 1:
        cb.cluster(parts)
    tiles = cb.shared(blueprint.shared, cb.f32)
    rank = cb.CUBE_POS % parts
    batch, row, column = tile_start(out, rows, columns, cb.CUBE_POS // parts)
    size_a, size_b = (out.shape[1], length), (out.shape[2], length)
    along, whole = (
        (blueprint.a_along_k, blueprint.b_along_k),
        (blueprint.a_whole, blueprint.b_whole),
    )
    one = operand(a, steps_a, batch, row, size_a, rows, along[0], whole[0], units)
    two = operand(b, steps_b, batch, column, size_b, columns, along[1], whole[1], units)
    behind = depth * (rows + LANES)  # where b begins in a stage
    steps = (length + depth - 1) // depth
    begin = rank * steps // parts
    end = (rank + 1) * steps // parts
    for s in cb.unroll(range(stages - 1)):
        if begin + s < end:
            one.load(tiles, s * blueprint.stage, (begin + s) * depth, depth)
            two.load(tiles, s * blueprint.stage + behind, (begin + s) * depth, depth)
        cb.copy_async_commit()
    unit, team = cb.UNIT_POS % blueprint.team, cb.UNIT_POS // blueprint.team
    top, left = seat(unit, blueprint)
    acc = cb.local((blueprint.high * LANES, WIDE), cb.f32, lanes=LANES)
    for i in cb.unroll(range(blueprint.high * LANES)):
        for j in cb.unroll(range(WIDE)):
            acc[i, j] = cb.splat(0.0, LANES)
    mine = depth // blueprint.teams
    slot = cb.cast(0, cb.i32)
    for step in range(begin, end):
        cb.copy_async_wait(stages - 2)
        cb.sync_cube()
        if step + stages - 1 < end:
            free = (stages - 1 if slot == 0 else slot - 1) * blueprint.stage
            one.load(tiles, free, (step + stages - 1) * depth, depth)
            two.load(tiles, free + behind, (step + stages - 1) * depth, depth)
        cb.copy_async_commit()
        # Positions are in lines, so that they are known as such.
        at_a = slot * (blueprint.stage // LANES) + top
        at_b = slot * (blueprint.stage // LANES) + behind // LANES + left
        for first in range(team * mine, (team + 1) * mine, UNROLL):
            for k in cb.unroll(range(UNROLL)):
                to_a = at_a + (first + k) * (rows // LANES + 1)
                to_b = at_b + (first + k) * (columns // LANES + 1)
                stage_sums(acc, tiles, to_a, to_b, blueprint.high)
        slot = 0 if slot == stages - 1 else slot + 1
    if blueprint.teams * parts > 1:
        cb.sync_cube()  # the sums go where the stages were
        for i in cb.unroll(range(blueprint.high * LANES)):
            for j in cb.unroll(range(WIDE)):
                n = team * blueprint.lines + (i * WIDE + j) * blueprint.team + unit
                tiles.store(n * LANES, acc[i, j])
        cb.sync_cube()
        if parts > 1:
            add_parts(tiles, rank, (batch, row, column), epilogue, blueprint)
        else:
            for n in range(cb.UNIT_POS, blueprint.lines, units):
                line = team_sums(tiles, n, blueprint)
                finish_line(line, n, (batch, row, column), epilogue, blueprint)
    else:
        for i in cb.unroll(range(blueprint.high * LANES)):
            for j in cb.unroll(range(WIDE)):
                n = (i * WIDE + j) * blueprint.team + unit
                finish_line(acc[i, j], n, (batch, row, column), epilogue, blueprint)


def ahead(a: Any, properties: cb.DeviceProperties) -> Any:
    """An operand (batch, own axis, K) none of whose steps leads back; a copy where one does."""
    return along_own(a, True, properties) if any(s < 0 for s in a.strides) else once(a)


def elements(a: Any, along_k: bool) -> tuple[Any, tuple[int, int, int]]:
    """An operand's elements in a row, as far as it reaches, and those from one batch, own position
    and position of K to the next; a single batch is every batch's.
    """
    size = a.itemsize
    batch, own, k = a.strides if along_k else (a.strides[0], a.strides[2], a.strides[1])
    reach = sum((n - 1) * (s // size) for n, s in zip(a.shape, a.strides, strict=True)) + 1
    batch = batch if a.shape[0] != 1 else 0
    return strided(a, (reach,), (size,)), (batch // size, own // size, k // size)


class SimtMultistageRoutine(GpuRoutine, TunedRoutine):
    """f32 by plain arithmetic, of any strides; cubes of a cluster share K where tiles are few."""

    name = "simt_multistage"

    def group(self, key: Product) -> int:
        """With the other kernels of plain arithmetic, which it is compared with."""
        return 2

    def unfit(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device copies asynchronously, and everything is f32."""
        if "copy_async" not in properties.features:
            return "the device has no asynchronous copies"
        if not is_exact_f32(problem):
            return "it takes f32 that is not to be rounded"
        return None

    def blueprints(
        self, problem: Product, properties: cb.DeviceProperties
    ) -> Iterator[SimtMultistage]:
        """The tile and parts of K that the model of costs chooses."""
        choice = chosen(problem, properties)
        if choice.routine == self.name:
            rows, columns, high, teams, _ = MULTISTAGE[choice.tile]
            pair = choice.parts == 1 and rows * columns <= 64 * 64
            yield SimtMultistage(rows, columns, high, teams, cubes=1 + pair, parts=choice.parts)

    def launch(self, blueprint: SimtMultistage, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha, *_ = args
        a, a_along_k = oriented(ahead(x, problem.properties))
        b, b_along_k = oriented(ahead(y.transpose(0, 2, 1), problem.properties))
        plan = fitted(
            blueprint,
            args,
            a_along_k=a_along_k,
            b_along_k=b_along_k,
            a_whole=not a_along_k and copies(a),
            b_whole=not b_along_k and copies(b),
        )
        batch, m, n = out.shape
        cubes = batch * -(-m // plan.rows) * -(-n // plan.columns) * plan.parts
        one, steps_a = elements(a, a_along_k)
        two, steps_b = elements(b, b_along_k)
        simt_multistage_product[cubes, plan.units](
            one,
            two,
            out,
            bias,
            residual,
            float(alpha),
            x.shape[2],
            steps_a,
            steps_b,
            plan,
            mode="unchecked",
        )
