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
MANY = 8  # taps along both axes from which on a maximum is not exact at first


@cb.func
def across_row(rows, k: cb.Comptime[int], values, careful: cb.Comptime[bool], plan):
    """The largest values of a row's windows, one for each of the unit's columns. If not `careful`, NaN may be lost:
    that takes one instruction instead of three."""
    for q in cb.unroll(range(plan.columns)):
        at = place_in_row(q, 0, plan)
        to = k * plan.columns + q
        rows[to] = values[at]
        for v in cb.unroll(range(1, plan.across.taps)):
            if careful:
                rows[to] = cb.nan_max(rows[to], values[at + v])
            else:
                rows[to] = cb.max(rows[to], values[at + v])


@cb.func
def down_rows(results, rows, first: cb.Comptime[int], careful: cb.Comptime[bool], plan):
    """The largest values of rows from the first on, one for each of the unit's columns."""
    for q in cb.unroll(range(plan.columns)):
        at = first * plan.columns + q
        results[q] = rows[at]
        for u in cb.unroll(range(1, plan.down.taps)):
            if careful:
                results[q] = cb.nan_max(results[q], rows[at + u * plan.columns])
            else:
                results[q] = cb.max(results[q], rows[at + u * plan.columns])


@cb.func
def exactly(x, out, p, i, z, j, c, y, plan):
    """The unit's results again, value by value, where there may be a NaN."""
    for b in range(plan.blocks):
        for q in range(plan.columns):
            if i + b < out.shape[1] and j + q < out.shape[2]:
                best = first_of(x, p, y + b * plan.down.ins, z + q * plan.across.ins, c, plan)
                for u in range(plan.down.taps):
                    for v in range(plan.across.taps):
                        here = first_of(x, p, y + b * plan.down.ins + u, z + q * plan.across.ins + v, c, plan)
                        best = cb.nan_max(best, here)
                if plan.last:
                    out.store((p, i + b, j + q, c), cb.cast(best, out.dtype))
                else:
                    out[p, i + b, j + q] = best


@cb.func
def first_of(x, p, y, z, c, plan):
    """What is at row y and column z, or at the nearest place inside."""
    row, column = cb.min(cb.max(y, 0), x.shape[1] - 1), cb.min(cb.max(z, 0), x.shape[2] - 1)
    return x.load((p, row, column, c), plan.lanes) if plan.last else x[p, row, column]


@cb.kernel
def max_windows(
    x: cb.Array, out: cb.Array, groups, strips, least: cb.Comptime, acc: cb.Comptime, careful: cb.Comptime[bool],
    plan: cb.Comptime[PlanePlan],
):  # fmt: skip
    """out[p, i, j] or out[n, i, j, c] = the largest value of a window.

    Units lie along channels or columns, of which there are `groups`, then along the `strips` of rows. Unless `careful`,
    a unit looks whether it saw a NaN, and does its work again if so.
    """
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
        results = room((plan.columns,), acc, plan)
        seen = room((MARKS,), acc, plan)
        for n in cb.unroll(range(MARKS)):
            seen[n] = nothing(acc, plan)
        for k in cb.unroll(range(plan.down.places(plan.blocks))):
            # a place that counts twice changes nothing
            read_row(values, 0, x, p, y + k, z, c, k, least, (True, True), plan)
            if not careful:
                for n in cb.unroll(range(values_of(plan))):
                    seen[n % MARKS] = cb.fma(values[n], nothing(acc, plan), seen[n % MARKS])
            across_row(rows, k, values, careful, plan)
            b = (k + 1 - plan.down.taps) // plan.down.ins
            if b >= 0 and (k + 1 - plan.down.taps) % plan.down.ins == 0:
                down_rows(results, rows, b * plan.down.ins, careful, plan)
                store_row(out, p, i + b, j, c, results, plan)
        if not careful:
            mark = (seen[0] + seen[1]) + (seen[2] + seen[3])
            if (mark != mark).any() if plan.last else mark != mark:
                exactly(x, out, p, i, z + plan.across.low, j, c, y, plan)


def windowed(
    x: Any, out: Any, step: tuple[int, int], pad: tuple[int, int], kernel: tuple[int, int], last: bool,
    blocks: int = 0, pair: int = 2,
) -> tuple[PlanePlan, int, int]:  # fmt: skip
    """A plan for windows of (planes, height, width) or (batch, height, width, channels), with the numbers of a row's
    groups of results and of a column's strips."""
    down, across = (Steps(1, s, (-p,), k) for s, p, k in zip(step, pad, kernel, strict=True))
    lanes = 1
    if last:
        lanes = line_of(x, out)
        lanes = 1 if out.shape[3] % lanes or x.shape[3] % lanes else lanes
        wide = pair if across.taps > across.ins and out.shape[2] > 1 else 1
    else:
        wide = lanes = lined(x, out, across)
    blocks = max(1, min(blocks or (8 if last and down.taps > 3 * down.ins else 4), out.shape[1]))
    groups, strips, margin, ragged = strips_of(x, out, down, blocks, wide)
    loads = row_loads(across, wide, 1 if last else wide, groups * wide * across.ins > x.shape[2])
    return PlanePlan(down, across, blocks, wide, last, lanes, loads, margin, ragged), groups, strips


def run(
    x: Any, out: Any, step: tuple[int, int], pad: tuple[int, int], kernel: tuple[int, int], least: Any, last: bool
) -> None:
    """Largest values of the windows of (planes, height, width), or with `last` of (batch, height, width, channels)."""
    plan, groups, strips = windowed(x, out, step, pad, kernel, last)
    total = out.shape[0] * groups * strips * (out.shape[3] // plan.lanes if last else 1)
    acc = cb.f32 if x.itemsize == 2 and x.dtype.kind not in "iu" else cb.as_dtype(x.dtype)
    careful = x.dtype.kind in "iu" or sum(kernel) < MANY
    if not careful:  # an infinity would look like a NaN
        least = float(np.finfo(acc.numpy).min)
    max_windows[-(-total // UNITS), UNITS](x, out, groups, strips, least, acc, careful, plan, mode="unchecked")
