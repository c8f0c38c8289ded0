"""Averages of windows, interpolation and the gradients of both for devices with planes: both axes
of an image in one pass, a line of results and several rows of them at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.kernels.windows import disjoint_gpu
from cubepy.kernels.windows.problem import Banded
from cubepy.kernels.windows.regular import IDENTITY, Regular, Weights, regular
from cubepy.kernels.windows.rows_gpu import (
    TAPS,
    UNITS,
    PlanePlan,
    Steps,
    coordinates,
    lined,
    nothing,
    position_in_row,
    read_row,
    room,
    row_bands_of,
    row_loads,
    store_row,
    values_of,
)
from cubepy.runtime import memory
from cubepy.runtime.device import current, gpu_of
from cubepy.runtime.memory.constants import constant_on
from cubepy.tune import GpuRoutine

ROWS = 4  # of results that a unit makes
OWN = 6  # taps, from more on results that share few of them are left to `windows.disjoint_gpu`
MANY = 8  # with more than 3 taps, where rows share more, and where 64 values make a result


@cb.func
def weighted(total, value, weight, holes: cb.Comptime[bool]):
    """total + value * weight."""
    if holes:
        return cb.select(weight != cb.cast(0, weight.dtype), cb.fma(value, weight, total), total)
    return cb.fma(value, weight, total)


@cb.func
def sum_up(
    sums,
    where,
    values,
    taps: cb.Comptime[tuple],
    weights,
    first_weight,
    axis: cb.Comptime[Weights],
    r,
    plan,
):
    """sums[where] = the sum of values[taps[0]], values[taps[1]], ... with the weights of result r
    of a block, or with those of a table from `first_weight` on.
    """
    if axis.steady is None:
        sums[where] = weighted(
            nothing(sums.dtype, plan), values[taps[0]], weights[first_weight], axis.holes
        )
        for v in cb.unroll(range(1, len(taps))):
            sums[where] = weighted(
                sums[where], values[taps[v]], weights[first_weight + v], axis.holes
            )
    else:
        known = counting(axis.steady[r])
        sums[where] = nothing(sums.dtype, plan)
        for v in cb.unroll(known):
            weight = axis.steady[r][v]
            if v == known[0]:
                sums[where] = values[taps[v]] if weight == 1 else values[taps[v]] * weight
            else:
                sums[where] = cb.fma(values[taps[v]], weight, sums[where])


@cb.func
def at_ends(
    sums, first: cb.Comptime[int], values, taps: cb.Comptime, units, unit, ends: cb.Comptime[tuple]
):
    """sums[first + q] with what result q of this unit has more than steady weights; taps[q] are its
    positions.
    """
    for at, terms in cb.unroll(ends):
        if unit == (at if at >= 0 else units + at):
            add_terms(sums, first, values, taps, terms)


@cb.func
def add_terms(sums, first: cb.Comptime[int], values, taps: cb.Comptime, terms: cb.Comptime[tuple]):
    """Add values with their weights to the results of a unit."""
    for q, v, weight in cb.unroll(terms):
        sums[first + q] = cb.fma(values[taps[q][v]], weight, sums[first + q])


def counting(weights: tuple[float, ...]) -> tuple[int, ...]:
    """Those that are not 0."""
    return tuple(v for v, w in enumerate(weights) if w)


def taps_across(plan: PlanePlan, q: int) -> tuple[int, ...]:
    """The values of a row that result q takes."""
    return tuple(position_in_row(q, v, plan) for v in range(plan.across.taps))


def taps_down(plan: PlanePlan, r: int, q: int) -> tuple[int, ...]:
    """The rows that result q of row r takes."""
    first = r // plan.down.outs * plan.down.ins + plan.down.lows[r % plan.down.outs] - plan.down.low
    return tuple((first + u) * plan.columns + q for u in range(plan.down.taps))


def all_taps_across(plan: PlanePlan) -> tuple[tuple[int, ...], ...]:
    """`taps_across` of all results."""
    return tuple(taps_across(plan, q) for q in range(plan.columns))


def all_taps_down(plan: PlanePlan, r: int) -> tuple[tuple[int, ...], ...]:
    """`taps_down` of all results of row r."""
    return tuple(taps_down(plan, r, q) for q in range(plan.columns))


def ends_of(ends: tuple[Any, ...], r: int, columns: int) -> tuple[Any, ...]:
    """Those of row r, for each of its columns."""
    mine = ((at, [t for t in terms if t[0] == r]) for at, terms in ends)
    return tuple(
        (at, tuple((q, v, w) for _, v, w in terms for q in range(columns)))
        for at, terms in mine
        if terms
    )


def ready(down: Steps, blocks: int, k: int) -> tuple[int, ...]:
    """The rows of results whose last row of positions is k."""
    last = lambda r: r // down.outs * down.ins + down.lows[r % down.outs] + down.taps - 1 - down.low
    return tuple(r for r in range(blocks * down.outs) if last(r) == k)


@cb.kernel
def weighted_windows(
    x: cb.Array,
    size,
    out: cb.Array,
    made,
    tables,
    counts,
    acc: cb.Comptime,
    plan: cb.Comptime[PlanePlan],
    sums: cb.Comptime[tuple],
    ends: cb.Comptime[tuple],
):
    """out[p, i, j] or out[n, i, j, c] = the weighted sum of a window, where x has the shape `size`
    and out `made`.

    Units lie along channels or columns, of which there are `groups`, then along the `bands` of
    rows (`counts`). tables: weights of rows and columns, and where their windows start; None is
    what is not in tables. sums: the `Weights` of both axes; ends: theirs, by unit.
    """
    row_weights, column_weights, row_starts, column_starts = tables
    groups, bands = counts
    downwards, sideways = sums
    t = cb.ABSOLUTE_POS
    lines = made[3] // plan.lanes if plan.last else 1
    if t < made[0] * bands * groups * lines:
        p, band, group, line = coordinates(t, (made[0], bands, groups, lines))
        c = multiple(line * plan.lanes, plan.lanes)
        j = group * plan.columns
        if column_starts is None:
            z = group * (plan.columns // plan.across.outs * plan.across.ins)
        else:
            z = column_starts[group]
        i = band * (plan.blocks * plan.down.outs)
        if row_starts is None:
            y = band * (plan.blocks * plan.down.ins) + plan.down.low
        else:
            y = row_starts[band]
        columns = plan.columns
        weights = cb.local((columns * plan.across.taps,), acc)
        if sideways.steady is None:
            for n in cb.unroll(range(columns * plan.across.taps)):
                weights[n] = column_weights[j * plan.across.taps + n]
        values = room((values_of(plan),), acc, plan)
        rows = room((plan.down.positions(plan.blocks) * columns,), acc, plan)
        results = room((columns,), acc, plan)
        for k in cb.unroll(range(plan.down.positions(plan.blocks))):
            read_row(values, 0, (x, size), p, (y + k, z, c), k, 0, (False, False), plan)
            for q in cb.unroll(range(columns)):
                first = q * plan.across.taps
                sum_up(
                    rows,
                    k * columns + q,
                    values,
                    taps_across(plan, q),
                    weights,
                    first,
                    sideways,
                    q % plan.across.outs,
                    plan,
                )
            at_ends(rows, k * columns, values, all_taps_across(plan), groups, group, ends[1])
            for r in cb.unroll(ready(plan.down, plan.blocks, k)):
                first_row = (i + r) * plan.down.taps
                for q in cb.unroll(range(columns)):
                    taps = taps_down(plan, r, q)
                    sum_up(
                        results,
                        q,
                        rows,
                        taps,
                        row_weights,
                        first_row,
                        downwards,
                        r % plan.down.outs,
                        plan,
                    )
                at_ends(
                    results,
                    0,
                    rows,
                    all_taps_down(plan, r),
                    bands,
                    band,
                    ends_of(ends[0], r, columns),
                )
                store_row((out, made), p, i + r, j, c, results, plan)


def _there(table: np.ndarray) -> Any:
    """A table on the current device."""
    where = current()
    return table if gpu_of(where) is None else constant_on(where, np.ascontiguousarray(table))


def _padded(table: np.ndarray, rows: int, acc: Any) -> np.ndarray:
    """A table of rows by taps, with rows of zeros behind, as one axis."""
    more = np.zeros((rows - len(table), *table.shape[1:]))
    return np.concatenate((table, more)).reshape(-1).astype(acc.numpy)


def plane_plan(
    x: Any, out: Any, down: Regular, across: Regular, last: bool
) -> tuple[PlanePlan, int, int]:
    """A plan for (planes, height, width) or (batch, height, width, channels), with the numbers of a
    row's groups of results and of a column's row bands.
    """
    lanes, columns = 1, across.steps.outs
    if last:
        lanes = line_of(x, out)
        lanes = 1 if out.shape[3] % lanes else lanes
        if (
            columns == 1
            and across.starts is None
            and across.steps.taps > across.steps.ins
            and out.shape[2] > 1
        ):
            columns = 2
    elif across.starts is None:
        lanes = lined(x, out, across.steps)
        columns = max(lanes, columns)
    many = not last and x.itemsize == 4 and min(down.steps.taps, across.steps.taps) == TAPS
    rows = MANY if many or (down.steps.outs > 1 and down.steps.taps > 3) else ROWS
    blocks = 1 if down.starts is not None else max(1, min(rows, out.shape[1]) // down.steps.outs)
    groups, bands, margin, ragged = row_bands_of(x, out, down.steps, blocks, columns)
    outside = (
        across.starts is not None
        or groups * (columns // across.steps.outs * across.steps.ins) > x.shape[2]
    )
    loads = row_loads(across.steps, columns, 1 if last else lanes, outside)
    how = (blocks, columns, last, lanes, loads, margin or down.starts is not None, ragged)
    return PlanePlan(down.steps, across.steps, *how), groups, bands  # type: ignore[arg-type]


def window_sums(x: Any, out: Any, down: Regular, across: Regular, last: bool) -> None:
    """Map (planes, height, width), or with `last` (batch, height, width, channels), along height
    and width.
    """
    plan, groups, bands = plane_plan(x, out, down, across, last)
    high = plan.blocks * plan.down.outs
    total = out.shape[0] * groups * bands * (out.shape[3] // plan.lanes if last else 1)
    tables, acc = [], cb.f64 if x.itemsize == 8 else cb.f32
    for axis, n in ((down, bands * high), (across, groups * plan.columns)):
        tables.append(_there(_padded(axis.table, n, acc)) if axis.weights.steady is None else None)
    for axis in (down, across):
        tables.append(None if axis.starts is None else _there(axis.starts))
    ends = (
        down.weights.by_unit(out.shape[1], high),
        across.weights.by_unit(out.shape[2], plan.columns),
    )
    # the same code whatever the size
    sums = tuple(replace(axis.weights, ends=()) for axis in (down, across))
    arrays = (x.reshape(-1), x.shape, out.reshape(-1), out.shape)
    weighted_windows[-(-total // UNITS), UNITS](
        *arrays, tuple(tables), (groups, bands), acc, plan, sums, ends, mode="unchecked"
    )


class Disjoint(GpuRoutine):
    """Means of windows that share few positions, or of too many to be written out."""

    name = "disjoint"

    def unfit(self, p: Banded, properties: cb.DeviceProperties) -> str | None:
        """Means, of rows that are not too long."""
        if not disjoint_means(p):
            return "for means of windows that share few positions"
        fits = p.last or p.x.shape[-1] <= disjoint_gpu.ROOMS[-1]
        return None if fits else "for rows that shared memory holds"

    def launch(self, p: Banded, properties: cb.DeviceProperties) -> None:
        """All axes at once."""
        disjoint_gpu.averages(p.x, p.out, p.bands, p.last)


class Windows(GpuRoutine):
    """Both axes of an image in one pass; the depth alone, before."""

    name = "windows"

    def unfit(self, p: Banded, properties: cb.DeviceProperties) -> str | None:
        """Windows of few positions along each axis."""
        if disjoint_means(p):
            return "windows share few positions"
        few = all(regular(band) for band in p.bands)
        return None if few else "results have too many positions"

    def launch(self, p: Banded, properties: cb.DeviceProperties) -> None:
        """A unit does a line of results, and several rows of them."""
        if len(p.bands) == 3:
            size, tail = p.x.shape[p.first :], p.x.shape[-1:] if p.last else ()
            dtype = np.dtype(np.float32) if p.x.itemsize == 2 else p.x.dtype
            deep = memory.empty((*p.x.shape[: p.first], p.bands[0].rows, *size[1:]), dtype)
            views = (a.reshape(-1, a.shape[p.first], size[1] * size[2], *tail) for a in (p.x, deep))
            window_sums(*views, regular(p.bands[0]), IDENTITY, p.last)  # type: ignore[call-arg]
            p = p._replace(x=deep, bands=p.bands[1:])
        x, out, down, across = p.image
        window_sums(x, out, regular(down), regular(across), p.last)  # type: ignore[arg-type]


def disjoint_means(p: Banded) -> bool:
    """Whether all bands are means, one of which is better not written out."""
    return all(b.means for b in p.bands) and any(separate(regular(b)) for b in p.bands)


def separate(how: Regular | None) -> bool:
    """Whether results have too many taps to be written out, or many of which they share few with
    each other.
    """
    if how is None:
        return True
    return how.steps.taps > OWN and (how.starts is not None or how.steps.taps < 2 * how.steps.ins)
