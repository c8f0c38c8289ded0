"""Scans along columns where units work in planes: every element is read once and written once.

A cube holds a tile of rows and columns in registers, each unit a line of columns of a few rows below each other. What
comes before a tile is passed on from the tile above it through memory, as in `scan_planes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.cube_wide import line_of, multiple, power_of_two
from cubepy.kernels.scan_planes import HELD, UNITS, cleared, fill_core, seen, show
from cubepy.lang.dtypes import DType

LINES = 16  # single elements that a unit holds
SHORT = 8  # tiles that may wait for each other wherever they are
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
            v = cb.cast(x.load((b, k + j, c), plan.lanes, valid=x.shape[2] - c if here else 0), nothing.dtype)
            v = v if here else cb.splat(nothing, plan.lanes)
        lines = lines + (v,)
    return lines


@cb.func
def store_rows(out, b, k, c, lines, before, step, whole: cb.Comptime[bool], plan: cb.Comptime[ColumnPlan]):
    """The lines of a unit, behind `before`."""
    for j in cb.unroll(range(plan.lines)):
        line = cb.cast(step(before, lines[j]), out.dtype)
        if whole:
            out.store((b, k + j, c), line)
        else:
            out.store((b, k + j, c), line, valid=out.shape[2] - c if k + j < out.shape[1] else 0)


@cb.kernel
def scan_columns_chained(
    x: cb.Array, out: cb.Array, state: cb.Array, step: cb.Comptime, start: cb.Comptime, acc: cb.Comptime,
    exclusive: cb.Comptime[bool], plan: cb.Comptime[ColumnPlan],
):  # fmt: skip
    """out[b, k, c] = x[b, 0, c] ... x[b, k, c]; `state` is 0 in the beginning."""
    fill_core(acc)
    down = cb.CUBE_DIM // plan.across
    width = plan.across * plan.lanes
    board = cb.shared((down, width), acc)
    above = cb.shared(width, acc)
    turn = cb.shared(1, cb.i32)
    if cb.UNIT_POS == 0:
        turn[0] = cb.cast(cb.atomic_add(state, 0, cb.u64(1)), cb.i32)
    cb.sync_cube()
    t = turn[0]
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
    board.store((v, u * plan.lanes), running)
    cb.sync_cube()
    before = cb.splat(nothing, plan.lanes)
    for r in range(v):
        before = step(before, board.load((r, u * plan.lanes), plan.lanes))
    if v == down - 1:
        total = step(before, running)
        here = 1 + t * width + u
        last = here - blocks * width
        for q in cb.unroll(range(plan.lanes)):
            ahead = seen(state, last + q * plan.across, p > 0, nothing)
            show(state, here + q * plan.across, step(ahead, total[q]))
            above[u * plan.lanes + q] = ahead
    cb.sync_cube()
    before = step(above.load(u * plan.lanes, plan.lanes), before)
    if whole:
        store_rows(out, b, k, c, done, before, step, True, plan)
    else:
        store_rows(out, b, k, c, done, before, step, False, plan)


def along_columns(x: Any, out: Any, step: Any, start: int, acc: DType, exclusive: bool) -> bool:
    """Scan (batch, n, columns) along n; False where the columns are too few for tiles that wait for the ones above."""
    b, n, columns = x.shape
    lanes = line_of(x, out)
    across = min(32, power_of_two(-(-columns // lanes)))
    blocks = -(-columns // (across * lanes))
    plan = ColumnPlan(lanes, max(1, HELD // (lanes * acc.itemsize)) if lanes > 1 else LINES, across)
    tiles = -(-n // (UNITS // across * plan.lines))
    if tiles > SHORT and b * blocks < SIDE_BY_SIDE:
        return False
    cubes = b * blocks * tiles
    state = cleared((1 + cubes * across * lanes) * (acc.itemsize // 4))
    scan_columns_chained[cubes, UNITS](x, out, state, step, start, acc, exclusive, plan, mode="unchecked")
    return True
