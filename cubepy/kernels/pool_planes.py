"""Max pooling for devices with planes: a unit makes lines of several rows, first along each row, then down them, so
that it reads every row once."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.cube_wide import line_of, multiple
from cubepy.kernels.plane_lines import (
    UNITS,
    PlanePlan,
    Steps,
    coordinates,
    fill_core,
    lined,
    nothing,
    place_in_row,
    read_row,
    room,
    row_loads,
    store_row,
    strips_of,
    values_of,
)  # fmt: skip

MARKS = 4  # sums in which NaN is looked for: one would be a long chain
WRITTEN_OUT = 480  # places of a unit, at most, unless one row of results takes more
HELD = 128  # numbers that a unit holds, about: rows of results and the values of a row
ROWS = ((4, 3), (8, 8), (16, 1 << 30))  # of results of a unit, by how many places a window reaches for a stride
MANY = 8  # places along both axes from which on a maximum is not exact at first


@cb.func
def larger(a, b, careful: cb.Comptime[bool]):
    """The larger of two. If not `careful`, NaN may be lost: that takes one instruction instead of three."""
    return cb.nan_max(a, b) if careful else cb.max(a, b)


@cb.func
def largest(
    results, to: cb.Comptime[int], values, at: cb.Comptime[int], hop: cb.Comptime[int], n: cb.Comptime[int],
    steps: cb.Comptime[Steps], careful: cb.Comptime[bool],
):  # fmt: skip
    """results[to + q * hop] = the largest of window q of values[at], values[at + hop], ... for q below n.

    Windows that all share some values are made of what these and the values before, or behind them, come to (van Herk,
    "A fast algorithm for local minimum and maximum filters on rectangular and octagonal kernels", 1992).
    """
    for first, last in cb.unroll(sharing(n, steps)):
        begin = at + first * steps.ins * hop
        shared = (last - first) * steps.ins
        running = values[begin + shared * hop]
        for v in cb.unroll(range(shared + steps.apart, steps.reach, steps.apart)):
            running = larger(running, values[begin + v * hop], careful)
        results[to + last * hop] = running
        for v in cb.unroll(range(shared - 1, -1, -1)):
            running = larger(running, values[begin + v * hop], careful)
            if v % steps.ins == 0:
                results[to + (first + v // steps.ins) * hop] = running
        for v in cb.unroll(range(steps.taps, steps.taps + shared)):
            if v == steps.taps:
                running = values[begin + v * hop]
            else:
                running = larger(running, values[begin + v * hop], careful)
            if (v + 1 - steps.taps) % steps.ins == 0:
                q = to + (first + (v + 1 - steps.taps) // steps.ins) * hop
                results[q] = larger(results[q], running, careful)


def sharing(n: int, steps: Steps) -> tuple[tuple[int, int], ...]:
    """The first and the last of those of n windows that share values with each other."""
    most = (steps.taps - 1) // steps.ins + 1 if steps.apart == 1 else 1
    return tuple((q, min(q + most, n) - 1) for q in range(0, n, most))


def counted(plan: PlanePlan) -> tuple[int, ...]:
    """Which of a row's values are in a window."""
    places = range(0, plan.across.reach, plan.across.apart)
    return tuple(sorted({place_in_row(q, v, plan) for q in range(plan.columns) for v in places}))


@cb.func
def exactly(x, out, p, i, z, j, c, y, plan):
    """The unit's results again, value by value, where there may be a NaN."""
    for b in range(plan.blocks):
        for q in range(plan.columns):
            if i + b < out.shape[1] and j + q < out.shape[2]:
                best = cb.cast(cb.splat(-float("inf"), plan.lanes if plan.last else 1), x.dtype)
                for u in range(plan.down.taps):
                    row = y + b * plan.down.ins + u * plan.down.apart
                    for v in range(plan.across.taps):
                        column = z + q * plan.across.ins + v * plan.across.apart
                        if row >= 0 and row < x.shape[1] and column >= 0 and column < x.shape[2]:
                            if plan.last:
                                best = cb.nan_max(best, x.load((p, row, column, c), plan.lanes))
                            else:
                                best = cb.nan_max(best, x.load((p, row, column), 1))
                if plan.last:
                    out.store((p, i + b, j + q, c), cb.cast(best, out.dtype))
                else:
                    out.store((p, i + b, j + q), cb.cast(best, out.dtype))


@cb.kernel
def max_windows(
    x: cb.Array, out: cb.Array, groups, strips, least: cb.Comptime, acc: cb.Comptime, careful: cb.Comptime[bool],
    plan: cb.Comptime[PlanePlan],
):  # fmt: skip
    """out[p, i, j] or out[n, i, j, c] = the largest value of a window.

    Units lie along channels or columns, of which there are `groups`, then along the `strips` of rows. Unless `careful`,
    a unit looks whether it saw a NaN, and does its work again if so.
    """
    fill_core(plan)
    t = cb.ABSOLUTE_POS
    lines = out.shape[3] // plan.lanes if plan.last else 1
    if t < out.shape[0] * strips * groups * lines:
        p, strip, group, line = coordinates(t, (out.shape[0], strips, groups, lines))
        c = multiple(line * plan.lanes, plan.lanes)
        j = group * plan.columns
        z = group * (plan.columns * plan.across.ins)
        i = strip * plan.blocks
        y = strip * (plan.blocks * plan.down.ins) + plan.down.low
        values = room((values_of(plan),), acc, plan)
        rows = room((plan.down.places(plan.blocks) * plan.columns,), acc, plan)
        results = room((plan.blocks * plan.columns,), acc, plan)
        seen = room((MARKS,), acc, plan)
        for n in cb.unroll(range(MARKS)):
            seen[n] = nothing(acc, plan)
        for k in cb.unroll(range(plan.down.places(plan.blocks))):
            # a place that counts twice changes nothing
            dense = plan.down.apart == 1, plan.across.apart == 1
            read_row(values, 0, x, p, y + k, z, c, k, least, dense, plan)
            if not careful:
                for n in cb.unroll(counted(plan)):
                    seen[n % MARKS] = cb.fma(values[n], nothing(acc, plan), seen[n % MARKS])
            largest(rows, k * plan.columns, values, place_in_row(0, 0, plan), 1, plan.columns, plan.across, careful)
            for first, last in cb.unroll(sharing(plan.blocks, plan.down)):
                if k == last * plan.down.ins + plan.down.reach - 1:
                    for q in cb.unroll(range(plan.columns)):
                        to, at = first * plan.columns + q, first * plan.down.ins * plan.columns + q
                        largest(results, to, rows, at, plan.columns, last + 1 - first, plan.down, careful)
                    for b in cb.unroll(range(first, last + 1)):
                        store_row(out, p, i + b, j, c, results, plan, b * plan.columns)
        if not careful:
            mark = (seen[0] + seen[1]) + (seen[2] + seen[3])
            if (mark != mark).any() if plan.last else mark != mark:
                exactly(x, out, p, i, z + plan.across.low, j, c, y, plan)


def windowed(
    x: Any, out: Any, step: tuple[int, int], pad: tuple[int, int], kernel: tuple[int, int], last: bool,
    blocks: int = 0, pair: int = 0, dilation: tuple[int, int] = (1, 1),
) -> tuple[PlanePlan, int, int]:  # fmt: skip
    """A plan for windows of (planes, height, width) or (batch, height, width, channels), with the numbers of a row's
    groups of results and of a column's strips."""
    sizes = zip(step, pad, kernel, dilation, strict=True)
    down, across = (Steps(1, s, (-p,), k, d) for s, p, k, d in sizes)
    lanes = 1
    if last:
        lanes = line_of(x, out)
        lanes = 1 if out.shape[3] % lanes or x.shape[3] % lanes else lanes
        wide = 1
        if across.taps > across.ins and across.apart == 1:
            wide = min(pair or (4 if across.taps > 3 * across.ins else 2), out.shape[2])
        while wide * lanes > 1 and lanes * (wide * down.reach + across.places(wide)) > HELD:
            wide, lanes = (wide // 2, lanes) if wide > 1 else (1, lanes // 2)
    else:
        wide = lanes = lined(x, out, across)
    blocks = blocks or next(b for b, most in ROWS if down.reach <= most * down.ins)
    blocks = max(1, min(blocks, 16 if not last else 8 if down.apart == 1 else 4, out.shape[1]))
    while blocks > 1 and down.places(blocks) * across.places(wide) > WRITTEN_OUT:
        blocks //= 2
    groups, strips, margin, ragged = strips_of(x, out, down, blocks, wide)
    loads = row_loads(across, wide, 1 if last else wide, groups * wide * across.ins > x.shape[2])
    return PlanePlan(down, across, blocks, wide, last, lanes, loads, margin, ragged), groups, strips


def run(
    x: Any, out: Any, step: tuple[int, int], pad: tuple[int, int], kernel: tuple[int, int],
    dilation: tuple[int, int], least: Any, last: bool,
) -> None:  # fmt: skip
    """Largest values of the windows of (planes, height, width), or with `last` of (batch, height, width, channels)."""
    plan, groups, strips = windowed(x, out, step, pad, kernel, last, dilation=dilation)
    total = out.shape[0] * groups * strips * (out.shape[3] // plan.lanes if last else 1)
    acc = cb.f32 if x.itemsize == 2 and x.dtype.kind not in "iu" else cb.as_dtype(x.dtype)
    careful = x.dtype.kind in "iu" or plan.down.reach + plan.across.reach < MANY
    if not careful:  # an infinity would look like a NaN
        least = float(np.finfo(acc.numpy).min)
    max_windows[-(-total // UNITS), UNITS](x, out, groups, strips, least, acc, careful, plan, mode="unchecked")
