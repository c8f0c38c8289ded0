"""How rows are shared by the units of a GPU, which read each once and hold it in registers while
they walk over it.

What reductions of several walks, softmax, log_softmax, layer_norm, rms_norm and group_norm share. A
row is held by some units of a cube, by a whole cube, or on devices with clusters by several cubes
that tell each other what they found. Rows too long even for that are read again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.kernels.reduce.reduction import Walk, joined
from cubepy.kernels.reduce.walk_gpu import lanes_joined, units_joined
from cubepy.runtime.symbolic.cached import cached

UNITS = 256  # of a cube, at least
HELD = 64
"""Bytes of a row that a unit holds, as they are computed with; twice as many where cubes would be
too large.
"""
MOST = 512  # units of a cube, at most
CORE = 1024  # units that should find room on a core
PARTS = (1, 2, 4, 8)  # cubes of a cluster
ROOM = 80
"""Bytes of a row that a unit holds, at most, where some lie behind the row's end and a kernel has
more to hold.
"""
STEP = 2  # lines, by which the numbers of those that a unit holds differ where they are many
EXTRA = 1.1  # what more than HELD bytes cost, as a factor, where cubes could be larger instead
MEETING = 1.04  # the same of a row whose units are not of one plane
PLANE = 32
SHARES = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)  # units of a cube that share a row
RESULTS = 2  # values that the cubes of a cluster tell each other


@dataclass(frozen=True)
class HeldPlan:
    """How rows are shared.

    Attributes:
        lanes: elements of a line.
        units: units of a cube that share a row.
        rows: rows of a cube.
        held: lines that a unit holds; 0: the row is read again instead.
        whole: together these are exactly the row.
        even: rows are whole numbers of lines.
        ragged: of the lines that a unit holds the last ones, which may lie behind the row's end.
        parts: cubes of a cluster that share a row.
        early: launches may overlap.
    """

    lanes: int
    units: int
    rows: int
    held: int
    whole: bool = False
    even: bool = False
    ragged: int = 1
    parts: int = 1
    early: bool = False

    @property
    def hop(self) -> int:
        """Elements from one of a unit's lines to its next one."""
        return self.units * self.lanes * self.parts

    def inside(self, j: int) -> bool:
        """Whether line j of a unit is in the row whatever the unit."""
        return self.whole or j < self.held - self.ragged


@cb.func
def row_line(
    x, row, k, n, j: cb.Comptime[int], acc: cb.Comptime, other, plan: cb.Comptime[HeldPlan]
):
    """A unit's line j, from element k of a row of n on, in the dtype `acc`; `other` behind the
    row's end.
    """
    if plan.inside(j):
        return cb.cast(x.load((row, k), plan.lanes), acc)
    if plan.even:
        value = cb.splat(other, plan.lanes)
        if k < n:
            value = cb.cast(x.load((row, k), plan.lanes), acc)
        return value
    return cb.keep_first(cb.cast(x.load((row, k), plan.lanes, valid=n - k), acc), n - k, other)


@cb.func
def row_of_lines(x, row, at, n, acc: cb.Comptime, other, plan: cb.Comptime[HeldPlan]):
    """All lines of a unit, whose first element is `at`."""
    return tuple(
        row_line(x, row, at + j * plan.hop, n, j, acc, other, plan)
        for j in cb.unroll(range(plan.held))
    )


@cb.func
def store_line(out, row, k, n, j: cb.Comptime[int], value, plan: cb.Comptime[HeldPlan]):
    """The part of line j that lies in the row of n elements."""
    if plan.inside(j):
        out.store((row, k), cb.cast(value, out.dtype))
    elif plan.even:
        if k < n:
            out.store((row, k), cb.cast(value, out.dtype))
    else:
        out.store((row, k), cb.cast(value, out.dtype), valid=n - k)


@cb.func
def part(vector, k, n, j: cb.Comptime[int], acc: cb.Comptime, plan: cb.Comptime[HeldPlan]):
    """Line j of a vector as long as a row."""
    if plan.inside(j):
        return cb.cast(vector.load(k, plan.lanes), acc)
    if plan.even:
        value = cb.splat(cb.cast(0, acc), plan.lanes)
        if k < n:
            value = cb.cast(vector.load(k, plan.lanes), acc)
        return value
    return cb.cast(vector.load(k, plan.lanes, valid=n - k), acc)


@cb.func
def fill_core(acc: cb.Comptime, plan: cb.Comptime[HeldPlan]):
    """Room for 1024 units on a core: while a cube waits for memory or its units, others use the
    core.

    f64, many lines, and rows of narrow floats that are read again need more registers than that
    leaves.
    """
    fits = acc == cb.f32 and plan.held * plan.lanes <= 32 and (plan.held > 0 or plan.lanes <= 4)
    if fits and "mma" in cb.device_properties().features:
        cb.resident(max(1, CORE // cb.CUBE_DIM))


@cb.func
def position_of_unit(rows, plan: cb.Comptime[HeldPlan]):
    """Which row a unit works on, whether there is such a row (else it only keeps the others
    company), and the first of its elements.
    """
    if plan.parts > 1:
        cb.cluster(plan.parts)
        return (
            cb.CUBE_POS // plan.parts,
            True,
            (cb.CUBE_POS % plan.parts * plan.units + cb.UNIT_POS) * plan.lanes,
        )
    if plan.rows == 1:
        return cb.CUBE_POS, True, cb.UNIT_POS * plan.lanes
    position = cb.CUBE_POS * plan.rows + cb.UNIT_POS // plan.units
    return cb.min(position, rows - 1), position < rows, cb.UNIT_POS % plan.units * plan.lanes


@cb.func
def scratch_of(acc: cb.Comptime, plan: cb.Comptime[HeldPlan]):
    """Shared memory through which units of a row meet."""
    return cb.shared(max(1, cb.CUBE_DIM // cb.PLANE_DIM) + RESULTS, acc)


@cb.func
def over_row_units(
    found, walk: cb.Comptime[Walk], nth: cb.Comptime[int], plan: cb.Comptime[HeldPlan], scratch
):
    """What all units of a row know together, given to all of them; the `nth` time of a kernel."""
    found = units_joined((found,), walk, plan.units, (scratch,))
    if plan.parts > 1:
        mine = max(1, cb.CUBE_DIM // cb.PLANE_DIM) + nth
        if cb.UNIT_POS == 0:
            scratch[mine] = found[0]
        cb.sync_cluster()
        found = (cb.load_cluster(scratch, mine, 0),)
        for rank in cb.unroll(range(1, plan.parts)):
            found = joined(found, (cb.load_cluster(scratch, mine, rank),), walk)
    return found[0]


@cb.func
def only_row(line, k, n, j: cb.Comptime[int], start: cb.Comptime, plan: cb.Comptime[HeldPlan]):
    """Line j with `start` behind the row's end."""
    if plan.inside(j):
        return line
    if plan.even and start == 0:
        return line * cb.cast(k < n, line.dtype)
    return cb.keep_first(line, n - k, cb.cast(start, line.dtype))


@cb.func
def walk_held(
    values,
    at,
    n,
    nth: cb.Comptime[int],
    walk: cb.Comptime[Walk],
    by,
    plan: cb.Comptime[HeldPlan],
    scratch,
):
    """What the `nth` walk of a kernel finds in a row of n elements, and the lines of its values;
    `values` are a unit's lines, from element `at` on, with the first walk's `start` behind the end.
    """
    lines = tuple(walk.value(line, by) for line in values)
    found: Any = ()
    for j in cb.unroll(range(plan.held)):
        line = lines[j]
        if not walk.neutral:
            line = only_row(line, at + j * plan.hop, n, j, walk.start, plan)
        found = joined(found, (line,), walk) if j > 0 else (line,)
    total = over_row_units(lanes_joined(found, walk, plan.lanes)[0], walk, nth, plan, scratch)
    if walk.end is not None:
        total = walk.end(total, cb.cast(n, total.dtype))
    return total, lines


@cb.func
def known_of_held(values, at, n, walks: cb.Comptime, number, plan: cb.Comptime[HeldPlan], scratch):
    """What some walks find in a row, given to all of its units."""
    known: Any = ()
    for nth in cb.unroll(range(len(walks))):
        by = walks[nth].by(known, number)
        found, _ = walk_held(values, at, n, nth, walks[nth], by, plan, scratch)
        known = known + (found,)
    met(plan)
    return known


@cb.func
def met(plan: cb.Comptime[HeldPlan]):
    """After the last meeting of a row's units, before results are stored: nobody reads what a cube
    that ended held.
    """
    if plan.parts > 1:
        cb.sync_cluster()


def row_plan(
    properties: cb.DeviceProperties, n: int, *arrays: Any, most: int = 16, room: int = ROOM
) -> HeldPlan:
    """Units for rows of n elements of arrays with unit stride along them, in lines of at most
    `most` elements; where units hold more than the row, `room` is the most bytes of one.
    """
    size = max(4, *(a.itemsize for a in arrays))
    plane, clusters = properties.plane_size, "cluster" in properties.features
    return _row_plan(n, min(most, line_of(*arrays)), size, clusters, room, plane)


@cached
def _row_plan(
    n: int, lanes: int, size: int, clusters: bool, room: int, plane: int = PLANE
) -> HeldPlan:
    """The plan that leaves the fewest units without work, in as few cubes as can be. Units that
    share a row are a part of a plane or whole planes.
    """
    lines = -(-n // lanes)
    shares = tuple(units for units in SHARES if plane % units == 0 or units % plane == 0)
    shares = (power_of_two(lines),) if lines < shares[0] else shares
    best, least = HeldPlan(lanes, MOST, 1, 0), 0.0
    for parts in PARTS if clusters else PARTS[:1]:
        for units in shares:
            held = -(-lines // (units * parts))
            if held > 8:
                held = -(-held // STEP) * STEP
            cost = units * parts * held / lines
            cost *= EXTRA if held * lanes * size > HELD else 1.0
            cost *= MEETING if units > plane else 1.0
            whole = units * parts * held * lanes == n
            limit = room if clusters and not whole else 2 * HELD
            if held * lanes * size <= limit and (not least or cost < least):
                rows, ragged = max(1, UNITS // units) if parts == 1 else 1, STEP if held > 8 else 1
                best, least = (
                    HeldPlan(lanes, units, rows, held, whole, n % lanes == 0, ragged, parts),
                    cost,
                )
        if least:
            break
    return best
