"""A recurrence on GPUs with clusters: the cubes of a cluster do all steps of some sequences.

Each cube has a share of the states, and what of the matrix makes these: in its shared memory, where
that has room, for all steps. After a step it tells its states to the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cubepy as cb
from cubepy.kernels.primitives.vector_width import power_of_two
from cubepy.kernels.recurrent.back_cpu import length_of, position
from cubepy.kernels.recurrent.cells import gru_cell, lstm_cell, plain_cell
from cubepy.kernels.recurrent.problem import GATES, Recurrence, RecurrenceBack
from cubepy.lang.dtypes import DType
from cubepy.tune import GpuRoutine

UNITS = 512  # of a cube
CUBES = 8  # of a cluster, at most
SHARE = 32  # states of a cube, before there are more cubes
SEQUENCES = 8  # that a cluster does together, at most
AHEAD = 8  # products that a unit begins with together
FROM_MEMORY = 32  # the same where the matrix is read from memory


@dataclass(frozen=True)
class ClusterPlan:
    """What changes the code of steps.

    Attributes:
        cell: a name of `GATES`.
        acc: what sums are made in.
        cubes: of a cluster.
        rows: sequences that it does together.
        share: states of a cube, at most; a power of two.
        depth: products of a sum, at most; a power of two.
        columns: sums of a cube and sequence, at most.
        held: whether shared memory has the cube's part of the matrix.
        units: of a cube.
    """

    cell: str
    acc: DType
    cubes: int
    rows: int
    share: int
    depth: int
    columns: int
    held: bool
    units: int

    @property
    def ahead(self) -> int:
        """How many products a unit begins with together."""
        return AHEAD if self.held else FROM_MEMORY

    @property
    def groups(self) -> int:
        """How many units share the products of a sum."""
        return self.units // self.columns


@cb.func
def meet(plan: cb.Comptime[ClusterPlan]):
    """All units of a cluster arrive before any goes on."""
    if plan.cubes > 1:
        cb.sync_cluster()
    else:
        cb.sync_cube()


@cb.func
def broadcast(values, at, value, plan: cb.Comptime[ClusterPlan]):
    """Set an element of the values of all cubes."""
    if plan.cubes > 1:
        for cube in cb.unroll(range(plan.cubes)):
            cb.store_cluster(values, at, value, cube)
    else:
        values[at] = value


@cb.func
def weight_at(panel, matrix, at, plan: cb.Comptime[ClusterPlan]):
    """A product's element of the matrix, which the panel may have."""
    d, k, column, given = at
    if plan.held:
        return panel[k * plan.columns + column]
    return cb.cast(matrix[d, k, given], plan.acc)


@cb.func
def sum_products(values, begin, panel, matrix, sums, where, plan: cb.Comptime[ClusterPlan]):
    """sums[group, column, row] of the products of a group of units: the values from `begin` on,
    (depth, rows), by a column of the panel (depth, columns), or of the matrix.
    """
    d, depth, given = where
    group, column = cb.UNIT_POS // plan.columns, cb.UNIT_POS % plan.columns
    part = (depth + plan.groups - 1) // plan.groups
    first = cb.min(group * part, depth)
    last = cb.min(first + part, depth)
    whole = first + (last - first) // plan.ahead * plan.ahead
    total = cb.splat(cb.cast(0, sums.dtype), plan.rows)
    for k in range(first, whole, plan.ahead):
        found = tuple(
            weight_at(panel, matrix, (d, k + n, column, given), plan)
            for n in cb.unroll(range(plan.ahead))
        )
        for n in cb.unroll(range(plan.ahead)):
            line = values.load(begin + (k + n) * plan.rows, plan.rows)
            total = cb.fma(line, cb.splat(found[n], plan.rows), total)
    for k in range(whole, last):
        line = values.load(begin + k * plan.rows, plan.rows)
        weight = weight_at(panel, matrix, (d, k, column, given), plan)
        total = cb.fma(line, cb.splat(weight, plan.rows), total)
    sums.store(cb.UNIT_POS * plan.rows, total)


@cb.func
def summed(sums, column, row, plan: cb.Comptime[ClusterPlan]):
    """A sum of all groups."""
    total = sums[column * plan.rows + row]
    for group in cb.unroll(range(1, plan.groups)):
        total += sums[(group * plan.columns + column) * plan.rows + row]
    return total


@cb.func
def hold(panel, matrix, d, depth, given, plan: cb.Comptime[ClusterPlan]):
    """Put a cube's part of the matrix into its panel; `given` is the column of this unit's."""
    group, column = cb.UNIT_POS // plan.columns, cb.UNIT_POS % plan.columns
    if plan.held:
        for k in range(group, depth, plan.groups):
            panel[k * plan.columns + column] = cb.cast(matrix[d, k, given], plan.acc)


@cb.kernel
def run_clusters(given, weights, first, written, back, plan: cb.Comptime[ClusterPlan]):
    """All steps of some sequences in a direction.

    given: gates (T, B, D * G * H), lengths. weights: matrix (D, H, G * H), bias, peepholes. first:
    h (and c). written: y and the last states.
    """
    if plan.cubes > 1:
        cb.cluster(plan.cubes)
    gates = cb.comptime(GATES[plan.cell])
    products, lengths = given
    steps, batch, width = products.shape[0], first[0].shape[1], first[0].shape[2]
    cluster, cube = cb.CUBE_POS // plan.cubes, cb.CUBE_POS % plan.cubes
    parts = (batch + plan.rows - 1) // plan.rows
    d, base = cluster // parts, cluster % parts * plan.rows
    reverse = back or d == 1
    acc = plan.acc
    share = (width + plan.cubes - 1) // plan.cubes
    begin = cube * share
    mine = cb.clamp(width - begin, 0, share)
    values = cb.shared(2 * plan.depth * plan.rows, acc)
    sums = cb.shared(plan.units * plan.rows, acc)
    panel = cb.shared(plan.depth * plan.columns if plan.held else 1, acc)
    column = cb.UNIT_POS % plan.columns
    within = begin + cb.max(cb.min(column % plan.share, mine - 1), 0)
    source = cb.min(cb.min(within, width - 1) + column // plan.share * width, gates * width - 1)
    hold(panel, weights[0], d, width, source, plan)
    for e in range(cb.UNIT_POS, width * plan.rows, plan.units):
        k, r = e // plan.rows, e % plan.rows
        value = cb.cast(0, acc)
        if base + r < batch:
            value = cb.cast(first[0][d, base + r, k], acc)
        values[e] = value
    j, r = cb.UNIT_POS // plan.rows, cb.UNIT_POS % plan.rows
    k, row = cb.min(begin + j, width - 1), cb.min(base + r, batch - 1)
    sends = j < mine
    active = sends and base + r < batch
    h = cb.cast(first[0][d, row, k], acc)
    c = h
    if plan.cell == "lstm":
        c = cb.cast(first[1][d, row, k], acc)
    length = cb.max(length_of(lengths, row, steps), 0)
    biases = tuple(
        cb.cast(0, acc) if weights[1] is None else cb.cast(weights[1][d, g * width + k], acc)
        for g in cb.unroll(range(gates))
    )
    holes = None
    if weights[2] is not None:
        holes = tuple(cb.cast(weights[2][d, g * width + k], acc) for g in cb.unroll(range(3)))
    meet(plan)
    for s in range(steps):
        now = s % 2 * (plan.depth * plan.rows)
        t = position(s, length, reverse)
        found = tuple(
            cb.cast(products[t, row, (d * gates + g) * width + k], acc)
            for g in cb.unroll(range(gates))
        )
        sum_products(values, now, panel, weights[0], sums, (d, width, source), plan)
        cb.sync_cube()
        if sends:
            totals = tuple(
                summed(sums, g * plan.share + j, r, plan) + biases[g]
                for g in cb.unroll(range(gates))
            )
            if s < length:
                c, h = step_of(found, totals, c, h, holes, plan.cell)
            broadcast(values, (plan.depth * plan.rows - now) + (begin + j) * plan.rows + r, h, plan)
        meet(plan)
        if active:  # while nobody waits: a meeting would wait for what is stored before it
            result = h if s < length else cb.cast(0, acc)
            written[0][t, row, d * width + k] = cb.cast(result, written[0].dtype)
    if active:
        written[1][d, row, k] = cb.cast(h, written[1].dtype)
        if plan.cell == "lstm":
            written[2][d, row, k] = cb.cast(c, written[2].dtype)


@cb.func
def step_of(found, totals, c, h, peepholes, cell: cb.Comptime[str]):
    """The next c (of a cell without one, anything) and h."""
    if cell == "lstm":
        return lstm_cell(tuple(found[g] + totals[g] for g in cb.unroll(range(4))), c, peepholes)
    if cell == "gru":
        return c, gru_cell(found, totals, h)
    return c, plain_cell(found[0] + totals[0], cell)


def cluster_plan(
    cell: str,
    sizes: tuple[int, int, int, int],
    acc: DType,
    properties: cb.DeviceProperties,
    back: bool = False,
) -> ClusterPlan | None:
    """How clusters do a recurrence, ahead or back; None where they cannot.

    Args:
        cell: a name of `GATES`.
        sizes: of a recurrence.
        acc: what sums are made in.
        properties: of the device.
        back: whether it is the gradient, whose sums have products of all gates.
    """
    _, batch, directions, width = sizes
    cubes = min(CUBES, power_of_two(-(-width // SHARE)))
    if cubes > 1 and "cluster" not in properties.features:
        return None
    share = power_of_two(-(-width // cubes))
    gates = GATES[cell]
    columns = share if back else power_of_two(gates) * share
    depth = power_of_two(width * gates if back else width)
    if columns > UNITS or UNITS > properties.max_units:
        return None
    room = properties.max_shared_memory // acc.itemsize - 1
    most = min(SEQUENCES, UNITS // share, room // (2 * depth + UNITS))
    if most < 1:
        return None
    rows = 1
    while 2 * rows <= most and directions * -(-batch // rows) > together(cubes, properties):
        rows *= 2
    held = depth * columns <= room - (2 * depth + UNITS) * rows
    return ClusterPlan(cell, acc, cubes, rows, share, depth, columns, held, UNITS)


class Cost(NamedTuple):
    """Microseconds of a step, as measured on an H200.

    Attributes:
        meeting: what clusters need for anything.
        held, read: products of a cube in one, where its shared memory has the matrix, and not.
        launches: what a step of two launches needs for anything.
        full, narrow: products of a device in one, of f32 and f64, and of 16 bits.
    """

    meeting: float
    held: float
    read: float
    launches: float
    full: float
    narrow: float


COSTS = {
    False: Cost(2.1, 110e3, 150e3, 8, 13e6, 120e6),
    True: Cost(3.2, 55e3, 100e3, 11, 7.5e6, 60e6),
}
"""Of steps ahead, and back."""
READ = 15e3  # elements of a matrix that a cube reads in a microsecond


def unfit(
    p: Recurrence | RecurrenceBack, acc: DType, properties: cb.DeviceProperties, back: bool = False
) -> str | None:
    """Why clusters are not for a recurrence, see `cluster_plan`; None where they are."""
    plan = cluster_plan(p.cell, p.sizes, acc, properties, back)
    if plan is None:
        return "for GPUs with clusters, whose shared memory has room for the states"
    _, batch, directions, width = p.sizes
    cost, part = COSTS[back], plan.columns * plan.depth
    step = plan.rows * part / (cost.held if plan.held else cost.read)
    step += 0 if plan.held else part / READ
    waves = -(-directions * -(-batch // plan.rows) // together(plan.cubes, properties))
    full = cost.narrow if p.gates.itemsize == 2 else cost.full
    products = batch * directions * width * width * GATES[p.cell]
    if waves * (cost.meeting + step) > cost.launches + products / full:
        return "for steps that do not fill the device"
    return None


def together(cubes: int, properties: cb.DeviceProperties) -> int:
    """How many clusters run at once: groups of cores are no whole numbers of them."""
    return max(1, properties.cores // cubes * 15 // 16)


class Clusters(GpuRoutine):
    """Cubes that share the states of a step, and broadcast them to each other."""

    name = "clusters"

    def unfit(self, p: Recurrence, properties: cb.DeviceProperties) -> str | None:
        """Usual cells of floats, whose states are not too many for a cluster."""
        if p.codes is not None or p.cell not in GATES:
            return "for usual cells of floats"
        return unfit(p, p.acc, properties)

    def launch(self, p: Recurrence, properties: cb.DeviceProperties) -> None:
        """A cluster for some sequences."""
        _, batch, directions, _ = p.sizes
        plan = cluster_plan(p.cell, p.sizes, p.acc, properties)
        assert plan is not None
        run_clusters[directions * -(-batch // plan.rows) * plan.cubes, plan.units](
            (p.gates, p.lengths),
            (p.panels, p.bias, p.peepholes),
            p.first,
            (p.y, *p.last),
            p.reverse,
            plan,
            mode="unchecked",
        )
