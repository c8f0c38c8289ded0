"""Scans along columns where units work in planes: every element is read once and written once.

A cube holds a tile of rows and columns in registers, each unit a line of columns of a few rows
below each other. What comes before a tile is passed on from the tile above it through memory, as in
`scan.scan_gpu`: words of 64 bits, half of which number the tile (from 1 on) that shows the other
half. A tile shows its word only after it has seen that of the tile above, so two words for each
column do for all tiles, and they stay in the cache: a word is written again by a tile after next,
when the tile between has read it.
"""

from __future__ import annotations

from dataclasses import dataclass

import cubepy as cb
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of, power_of_two
from cubepy.kernels.scan.problem import Scan
from cubepy.kernels.scan.scan_gpu import HELD, UNITS, cleared, fill_core
from cubepy.lang.dtypes import DType
from cubepy.tune import GpuRoutine

LINES = 16  # single elements that a unit holds
SHORT = 8  # tiles that may wait for each other wherever they are
HALF = (1 << 32) - 1
SIDE_BY_SIDE = 24  # columns of tiles that keep the device busy while each waits for the one above


@dataclass(frozen=True)
class ColumnPlan:
    """`across` units lie side by side, each holds lines of `lanes` columns of `lines` rows."""

    lanes: int
    lines: int
    across: int


@cb.func
def read_rows(x, b, k, c, nothing, whole: cb.Comptime[bool], plan: cb.Comptime[ColumnPlan]):
    """The lines of a unit from row k and column c on; `nothing` behind the last row."""
    lines = ()
    for j in cb.unroll(range(plan.lines)):
        if whole:
            v = cb.cast(x.load((b, k + j, c), plan.lanes), nothing.dtype)
        else:
            here = k + j < x.shape[1]
            v = cb.cast(
                x.load((b, k + j, c), plan.lanes, valid=x.shape[2] - c if here else 0),
                nothing.dtype,
            )
            v = v if here else cb.splat(nothing, plan.lanes)
        lines = lines + (v,)
    return lines


@cb.func
def store_rows(
    out, b, k, c, lines, before, step, whole: cb.Comptime[bool], plan: cb.Comptime[ColumnPlan]
):
    """The lines of a unit, behind `before`."""
    for j in cb.unroll(range(plan.lines)):
        line = cb.cast(step(before, lines[j]), out.dtype)
        if whole:
            out.store((b, k + j, c), line)
        else:
            out.store((b, k + j, c), line, valid=out.shape[2] - c if k + j < out.shape[1] else 0)


@cb.func
def shown(state, at, number, wanted):
    """The word at `at` that tile `number` shows, once it does; 0 for units that want none."""
    word = cb.u64(0)
    waiting = wanted
    while cb.plane_any(waiting):
        if waiting:
            word = cb.atomic_or(state, at, cb.u64(0))
            waiting = cb.cast(word >> 32, cb.i32) != number
    return word & cb.u64(HALF)


@cb.func
def pass_on(state, at, p, columns, total, step, nothing, inside):
    """`step` over what comes before tile p in one column, whose `total` is shown to the tile below
    with it.

    `at`: the first of the column's words. For units that are `inside`; the others of a plane come
        along.
    """
    mine = at + p % 2 * columns
    other = at + (p + 1) % 2 * columns
    wanted = inside and p > 0
    mark = cb.cast(p + 1, cb.u64) << 32
    word = shown(state, other, p, wanted)
    if nothing.dtype.bits == 64:
        word = word | (shown(state, other + 2 * columns, p, wanted) << 32)
        ahead = cb.select(wanted, cb.bitcast(word, nothing.dtype), nothing)
        bits = cb.bitcast(step(ahead, total), cb.u64)
        if inside:
            cb.atomic_exchange(state, mine + 2 * columns, (bits >> 32) | mark)
    else:
        ahead = cb.select(wanted, cb.bitcast(cb.cast(word, cb.u32), nothing.dtype), nothing)
        bits = cb.cast(cb.bitcast(step(ahead, total), cb.u32), cb.u64)
    if inside:
        cb.atomic_exchange(state, mine, (bits & cb.u64(HALF)) | mark)
    return ahead


@cb.kernel
def scan_columns_chained(
    x: cb.Array,
    out: cb.Array,
    state: cb.Array,
    step: cb.Comptime,
    start: cb.Comptime,
    acc: cb.Comptime,
    exclusive: cb.Comptime[bool],
    plan: cb.Comptime[ColumnPlan],
):
    """out[b, k, c] = x[b, 0, c] ... x[b, k, c]; `state` is 0 in the beginning."""
    fill_core(acc)
    down = cb.CUBE_DIM // plan.across
    width = plan.across * plan.lanes
    scratch = cb.shared((down, width), acc)
    above = cb.shared(width, acc)
    ticket = cb.shared(1, cb.i32)
    if cb.UNIT_POS == 0:
        ticket[0] = cb.cast(cb.atomic_add(state, 0, cb.u64(1)), cb.i32)
    cb.sync_cube()
    t = ticket[0]
    blocks = (x.shape[2] + width - 1) // width
    height = down * plan.lines
    tiles = (x.shape[1] + height - 1) // height
    u = cb.UNIT_POS % plan.across
    v = cb.UNIT_POS // plan.across
    c = multiple(t % blocks * width + u * plan.lanes, plan.lanes)
    p = t // blocks % tiles
    b = t // (blocks * tiles)
    k = p * height + v * plan.lines
    whole = (p + 1) * height <= x.shape[1] and (t % blocks + 1) * width <= x.shape[2]
    nothing = cb.cast(start, acc)
    if whole:
        lines = read_rows(x, b, k, c, nothing, True, plan)
    else:
        lines = read_rows(x, b, k, c, nothing, False, plan)
    running = lines[0]
    done = (cb.splat(nothing, plan.lanes) if exclusive else running,)
    for j in cb.unroll(range(1, plan.lines)):
        if exclusive:
            done = done + (running,)
        running = step(running, lines[j])
        if not exclusive:
            done = done + (running,)
    scratch.store((v, u * plan.lanes), running)
    cb.sync_cube()
    before = cb.splat(nothing, plan.lanes)
    columns = blocks * width
    for begin in range(0, width, cb.CUBE_DIM):  # a unit a column: all of them wait at the same time
        inside = begin + cb.UNIT_POS < width
        column = cb.min(begin + cb.UNIT_POS, width - 1)
        total = scratch[0, column]
        for r in cb.unroll(range(1, down)):
            total = step(total, scratch[r, column])
        at = 1 + b * (words_of(acc) * columns) + t % blocks * width + column
        ahead = pass_on(state, at, p, columns, total, step, nothing, inside)
        if inside:
            above[column] = ahead
    for r in range(v):
        before = step(before, scratch.load((r, u * plan.lanes), plan.lanes))
    cb.sync_cube()
    before = step(above.load(u * plan.lanes, plan.lanes), before)
    if whole:
        store_rows(out, b, k, c, done, before, step, True, plan)
    else:
        store_rows(out, b, k, c, done, before, step, False, plan)


def words_of(acc: DType) -> int:
    """Words of the state for a column."""
    return acc.itemsize // 2


class ChainedColumns(GpuRoutine):
    """Tiles of columns that are passed on from tile to tile."""

    name = "chained_columns"

    def unfit(self, p: Scan, properties: cb.DeviceProperties) -> str | None:
        """Columns enough that others work while tiles wait for the ones above."""
        if p.by_rows:
            return "for columns"
        _, blocks, tiles = self.plan(p)
        enough = tiles <= SHORT or blocks >= SIDE_BY_SIDE
        return None if enough else f"for {SIDE_BY_SIDE} columns of tiles and more"

    def plan(self, p: Scan) -> tuple[ColumnPlan, int, int]:
        """How columns are cut, columns of tiles in all, and tiles of each."""
        b, n, columns = p.x.shape
        lanes = line_of(p.x, p.out)
        across = min(32, power_of_two(-(-columns // lanes)))
        lines = max(1, HELD // (lanes * p.acc.itemsize)) if lanes > 1 else LINES
        tiles = -(-n // (UNITS // across * lines))
        return ColumnPlan(lanes, lines, across), b * -(-columns // (across * lanes)), tiles

    def launch(self, p: Scan, properties: cb.DeviceProperties) -> None:
        """A cube scans a tile."""
        plan, blocks, tiles = self.plan(p)
        state = cleared(1 + blocks * plan.across * plan.lanes * words_of(p.acc))
        scan_columns_chained[blocks * tiles, UNITS](
            p.x, p.out, state, *p.how, plan, mode="unchecked"
        )
