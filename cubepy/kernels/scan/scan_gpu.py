"""Scans where units work in planes: every element is read once and written once.

A tile of a row stays in the registers of a cube: lines are scanned by their units, units by
shuffles, planes through shared memory. A row of one tile is then done. The tiles of a longer row
pass on what came before them through memory (after Merrill and Garland, "Single-pass parallel
prefix scan with decoupled look-back", 2016): a tile shows its own total as soon as it has it, and
adds up the totals of the tiles before it in its group; the last tile of a group shows the sum of
everything up to there to the next one. Which numbers are added, and in which order, is a matter of
shapes only, so results never change from run to run.

What is shown are words of 64 bits: half a mark that they are there, half 32 bits of a number. They
are swapped in whole, so no order of memory is asked for. Tiles are given out in the order in which
cubes start: whoever is waited for runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.kernels.scan.problem import Scan
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine

UNITS = 512  # of a cube, at most
CORE = 1024  # units that should find room on a core
HELD = 128  # bytes of accumulators that a unit holds
SHARED = 256  # units of a cube that does several rows
GROUP = 128  # tiles whose totals are added up by each other
MARK = 1 << 32


@dataclass(frozen=True)
class ScanPlan:
    """How rows are cut: `units` units share a row (or a tile of it), a cube does `rows` of them; a
    unit holds `lines` lines of `lanes` elements; `width` of the units are in one plane. `whole`:
    together they are exactly the row.
    """

    lanes: int
    lines: int
    units: int
    width: int
    rows: int = 1
    whole: bool = False

    @property
    def hop(self) -> int:
        """From one line of a unit to the next."""
        return self.width * self.lanes


@cb.func
def prefix_line(v, step, start, lanes: cb.Comptime[int]):
    """The running `step` of a line, in log2(lanes) shifts."""
    empty = cb.splat(start, lanes)
    for k in cb.unroll(range(lanes.bit_length() - 1)):
        by = 1 << k
        v = step(cb.shuffle(empty, v, tuple(range(by)) + tuple(range(lanes, 2 * lanes - by))), v)
    return v


@cb.func
def shifted(line, first, lanes: cb.Comptime[int]):
    """The line moved up by one lane, with `first` in front."""
    return cb.shuffle(cb.splat(first, lanes), line, (0,) + tuple(range(lanes, 2 * lanes - 1)))


@cb.func
def prefix_units(v, step, width: cb.Comptime[int]):
    """The running `step` over `width` neighbouring units of a plane, a power of two."""
    for k in cb.unroll(range(width.bit_length() - 1)):
        before = cb.plane_shuffle_up(v, 1 << k)
        v = cb.select(cb.UNIT_POS_PLANE % width >= (1 << k), step(before, v), v)
    return v


@cb.func
def prefix_plane(v, step):
    """The running `step` over the units of a plane."""
    return prefix_units(v, step, cb.PLANE_DIM)


@cb.func
def fold_plane(v, step):
    """`step` over the units of a plane, given to all of them."""
    for k in cb.unroll(range(cb.PLANE_DIM.bit_length() - 1)):
        v = step(v, cb.plane_shuffle_xor(v, 1 << k))
    return v


@cb.func
def read_lines(
    x, row, first, start, acc: cb.Comptime, whole: cb.Comptime[bool], plan: cb.Comptime[ScanPlan]
):
    """The lines of a unit from element `first` on, a plane's width apart; `start` behind the row's
    end, unless the lines are known to be `whole`.
    """
    n = x.shape[1]
    lines = ()
    for j in cb.unroll(range(plan.lines)):
        k = multiple(first + j * plan.hop, plan.lanes)
        if whole:
            v = cb.cast(x.load((row, k), plan.lanes), acc)
        else:
            v = cb.cast(x.load((row, k), plan.lanes, valid=n - k), acc)
            if start != 0:
                v = cb.keep_first(v, n - k, cb.cast(start, acc))
        lines = lines + (v,)
    return lines


@cb.func
def scan_in_plane(lines, step, start, acc: cb.Comptime, exclusive, plan: cb.Comptime[ScanPlan]):
    """The lines that `plan.width` units hold, scanned; and their total."""
    nothing = cb.cast(start, acc)
    unit = cb.UNIT_POS_PLANE % plan.width
    running = nothing
    done = ()
    for j in cb.unroll(range(plan.lines)):
        v = prefix_line(lines[j], step, nothing, plan.lanes)
        ends = v[plan.lanes - 1]
        before = running
        if plan.width > 1:
            ends = prefix_units(ends, step, plan.width)
            earlier = cb.plane_shuffle_up(ends, 1)
            before = cb.select(unit > 0, step(running, earlier), running)
            ends = cb.plane_shuffle(ends, cb.UNIT_POS_PLANE | (plan.width - 1))
        scanned = step(cb.splat(before, plan.lanes), v)
        if exclusive:
            scanned = shifted(scanned, before, plan.lanes)
        done = done + (scanned,)
        running = step(running, ends)
    return done, running


@cb.func
def before_plane(scratch, position, planes: cb.Comptime[int], step, start, acc: cb.Comptime):
    """`step` over the totals of those of `planes` neighbours that come before the one at
    `position`; and over all.
    """
    mine = position % planes
    total = cb.cast(start, acc)
    before = total
    for k in cb.unroll(range(planes)):
        before = cb.select(mine == k, total, before)
        total = step(total, scratch[position - mine + k])
    return before, total


@cb.func
def store_lines(
    out, row, first, lines, before, step, whole: cb.Comptime[bool], plan: cb.Comptime[ScanPlan]
):
    """What a unit holds, behind `before` where there is such a thing."""
    n = out.shape[1]
    for j in cb.unroll(range(plan.lines)):
        k = multiple(first + j * plan.hop, plan.lanes)
        line = lines[j]
        if before is not None:
            line = step(cb.splat(before, plan.lanes), line)
        if whole:
            out.store((row, k), cb.cast(line, out.dtype))
        else:
            out.store((row, k), cb.cast(line, out.dtype), valid=n - k)


@cb.func
def fill_core(acc: cb.Comptime):
    """Room for 1024 units on a core: while a cube waits for memory or its units, others use the
    core.
    """
    if acc.bits == 32 and "mma" in cb.device_properties().features:
        cb.resident(max(1, CORE // cb.CUBE_DIM))


@cb.kernel
def scan_held(
    x: cb.Array,
    out: cb.Array,
    step: cb.Comptime,
    start: cb.Comptime,
    acc: cb.Comptime,
    exclusive: cb.Comptime[bool],
    plan: cb.Comptime[ScanPlan],
):
    """out[r, k] = x[r, 0] ... x[r, k] for rows that their units hold."""
    fill_core(acc)
    planes = plan.units // plan.width
    out_row = cb.CUBE_POS * plan.rows + cb.UNIT_POS // plan.units
    row = cb.min(out_row, x.shape[0] - 1)
    unit = cb.UNIT_POS % plan.units
    first = unit // plan.width * (plan.lines * plan.hop) + unit % plan.width * plan.lanes
    lines = read_lines(x, row, first, start, acc, plan.whole, plan)
    lines, total = scan_in_plane(lines, step, start, acc, exclusive, plan)
    before = None
    if planes > 1:
        scratch = cb.shared(cb.CUBE_DIM // plan.width, acc)
        if unit % plan.width == 0:
            scratch[cb.UNIT_POS // plan.width] = total
        cb.sync_cube()
        before, total = before_plane(scratch, cb.UNIT_POS // plan.width, planes, step, start, acc)
    if out_row < x.shape[0]:
        store_lines(out, row, first, lines, before, step, plan.whole, plan)


@cb.func
def show(state, at, value):
    """Let others see a number at `at`."""
    if value.dtype.bits == 32:
        cb.atomic_exchange(state, at, cb.cast(cb.bitcast(value, cb.u32), cb.u64) | cb.u64(MARK))
    else:
        bits = cb.bitcast(value, cb.u64)
        cb.atomic_exchange(state, 2 * at, (bits & cb.u64(MARK - 1)) | cb.u64(MARK))
        cb.atomic_exchange(state, 2 * at + 1, (bits >> 32) | cb.u64(MARK))


@cb.func
def awaited(state, at, wanted):
    """The word that is shown at `at`, once it is there; 0 for units that want none."""
    word = cb.u64(0)
    waiting = wanted
    while cb.plane_any(waiting):
        if waiting:
            word = cb.atomic_or(state, at, cb.u64(0))
            waiting = word < cb.u64(MARK)
    return word


@cb.func
def seen(state, at, wanted, nothing):
    """The number that is shown at `at`, once it is there; `nothing` for units that want none."""
    if nothing.dtype.bits == 32:
        value = cb.bitcast(cb.cast(awaited(state, at, wanted), cb.u32), nothing.dtype)
    else:
        low = awaited(state, 2 * at, wanted) & cb.u64(MARK - 1)
        value = cb.bitcast(low | (awaited(state, 2 * at + 1, wanted) << 32), nothing.dtype)
    return cb.select(wanted, value, nothing)


@cb.func
def look_back(state, row, p, tiles, total, step, nothing, group: cb.Comptime[int]):
    """`step` over everything before tile p of a row, for the units of one plane, which shows the
    tile's total.

    Places: how many tiles were given out; a total for every tile; for every group the result up to
        its end.
    """
    lane = cb.UNIT_POS_PLANE
    inside = p % group
    here = 1 + row * tiles + p
    groups = (tiles + group - 1) // group
    end = 1 + (cb.CUBE_COUNT + row * groups + p // group)
    if lane == 0:
        show(state, here, total)
    before = nothing
    for j in cb.unroll(range(group // cb.PLANE_DIM)):
        k = j * cb.PLANE_DIM + lane
        before = step(before, seen(state, here - inside + k, k < inside, nothing))
    # all cubes at once wait for the end of a group: one unit of each, or they would mostly wait for
    # each other
    ahead = seen(state, end - 1, lane == 0 and p >= group, nothing)
    cb.sync_plane()
    before = step(cb.plane_shuffle(ahead, 0), fold_plane(before, step))
    if lane == 0 and inside == group - 1:
        show(state, end, step(before, total))
    return before


@cb.kernel
def scan_chained(
    x: cb.Array,
    out: cb.Array,
    state: cb.Array,
    step: cb.Comptime,
    start: cb.Comptime,
    acc: cb.Comptime,
    exclusive: cb.Comptime[bool],
    plan: cb.Comptime[ScanPlan],
    group: cb.Comptime[int],
):
    """out[r, k] = x[r, 0] ... x[r, k], a tile of a row for a cube; `state` begins with 0."""
    fill_core(acc)
    planes = plan.units // plan.width
    scratch = cb.shared(planes + 1, acc)
    ticket = cb.shared(1, cb.i32)
    size = cb.CUBE_DIM * plan.lines * plan.lanes
    tiles = (x.shape[1] + size - 1) // size
    if cb.UNIT_POS == 0:
        ticket[0] = cb.cast(cb.atomic_add(state, 0, cb.u64(1)), cb.i32)
    cb.sync_cube()
    t = ticket[0]
    row = t // tiles
    p = t % tiles
    first = p * size + cb.PLANE_POS * (plan.lines * plan.hop) + cb.UNIT_POS_PLANE * plan.lanes
    whole = p * size + size <= x.shape[1]
    if whole:
        lines = read_lines(x, row, first, start, acc, True, plan)
    else:
        lines = read_lines(x, row, first, start, acc, False, plan)
    lines, total = scan_in_plane(lines, step, start, acc, exclusive, plan)
    if cb.UNIT_POS_PLANE == 0:
        scratch[cb.PLANE_POS] = total
    cb.sync_cube()
    before, total = before_plane(scratch, cb.PLANE_POS, planes, step, start, acc)
    if cb.PLANE_POS == 0:
        ahead = look_back(state, row, p, tiles, total, step, cb.cast(start, acc), group)
        if cb.UNIT_POS_PLANE == 0:
            scratch[planes] = ahead
    cb.sync_cube()
    before = step(scratch[planes], before)
    if whole:
        store_lines(out, row, first, lines, before, step, True, plan)
    else:
        store_lines(out, row, first, lines, before, step, False, plan)


@cb.kernel
def clear(words: cb.Array):
    """Nothing has been shown yet."""
    i = cb.ABSOLUTE_POS
    if i < words.size:
        words[i] = cb.u64(0)


def cleared(words: int) -> Any:
    """Memory in which nothing has been shown."""
    state = memory.empty((words,), np.uint64)
    clear[-(-words // UNITS), UNITS](state, mode="unchecked")
    return state


def most_lines(p: Scan) -> tuple[int, int]:
    """Elements of a line, and lines that a unit holds."""
    lanes = line_of(p.x, p.out)
    return lanes, max(1, HELD // (lanes * p.acc.itemsize))


class HeldRows(GpuRoutine):
    """Rows that their units hold."""

    name = "held_rows"

    def unfit(self, p: Scan, properties: cb.DeviceProperties) -> str | None:
        """Rows that fit into the registers of a cube."""
        if not p.by_rows:
            return "for rows"
        lanes, most = most_lines(p)
        return None if p.x.shape[1] <= UNITS * lanes * most else "rows are longer than a cube holds"

    def launch(self, p: Scan, properties: cb.DeviceProperties) -> None:
        """A cube scans a row, or several short ones."""
        (m, n), (lanes, most) = p.x.shape, most_lines(p)
        units = min(UNITS, power_of_two(-(-n // (lanes * most))))
        lines = power_of_two(-(-n // (lanes * units)))
        rows, width = max(1, SHARED // units), min(units, properties.plane_size)
        plan = ScanPlan(lanes, lines, units, width, rows, n == units * lanes * lines)
        scan_held[-(-m // rows), units * rows](p.x, p.out, *p.how, plan, mode="unchecked")


class ChainedRows(GpuRoutine):
    """Tiles of long rows, by decoupled look-back."""

    name = "chained_rows"

    def unfit(self, p: Scan, properties: cb.DeviceProperties) -> str | None:
        """Rows."""
        return None if p.by_rows else "for rows"

    def launch(self, p: Scan, properties: cb.DeviceProperties) -> None:
        """A cube scans a tile."""
        (m, n), (lanes, most) = p.x.shape, most_lines(p)
        plan = ScanPlan(lanes, most, UNITS, properties.plane_size)
        tiles = -(-n // (UNITS * lanes * most))
        state = cleared((1 + m * (tiles + -(-tiles // GROUP))) * (p.acc.itemsize // 4))
        scan_chained[m * tiles, UNITS](p.x, p.out, state, *p.how, plan, GROUP, mode="unchecked")
