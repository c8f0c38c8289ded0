"""Max pooling with the positions of the maxima, and its gradient, for devices with planes: units
make lines of several rows as in `pooling.gpu.max_sliding`. Nothing is scattered: every position of
the gradient looks at the windows that hold it.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.pooling.problem import MaxPool, MaxPoolBack
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import LINE_BYTES, address, line_of
from cubepy.kernels.windows.rows_gpu import (
    TAPS,
    UNITS,
    PlanePlan,
    Steps,
    coordinates,
    filled,
    lined,
    position_in_row,
    read_row,
    room,
    row_bands_of,
    row_loads,
    store_row,
    values_of,
)
from cubepy.tune import GpuRoutine

WINDOWS = 4  # rows of results with positions that a unit makes
HELD = 128  # numbers that it holds, about: rows of results and the values of a row
ROWS = 8  # of a gradient that a unit makes, about


@cb.func
def better(value, best):
    """Whether a value behind the best one takes its place: if it is larger, or NaN."""
    if value.dtype.is_float:
        return (value > best) | (value != value)
    return value > best


@cb.func
def offer(tops, spots, at: cb.Comptime[int], value, position):
    """Take a value and its position if it is better."""
    take = better(value, tops[at])
    spots[at] = cb.select(take, position, spots[at])
    tops[at] = cb.select(take, value, tops[at])


@cb.func
def best_of_row(tops, spots, k: cb.Comptime[int], values, z, plan):
    """The largest value of every window in row k, and its column; z is the first position of
    the unit.
    """
    first = plan.loads[0][0]
    for q in cb.unroll(range(plan.columns)):
        at = position_in_row(q, 0, plan)
        to = k * plan.columns + q
        tops[to] = values[at]
        spots[to] = filled(cb.cast(cb.max(z + first + at, 0), cb.i32), plan)
        for v in cb.unroll(range(1, plan.across.taps)):
            offer(
                tops, spots, to, values[at + v], filled(cb.cast(z + first + at + v, cb.i32), plan)
            )


@cb.func
def best_of_rows(results, positions, tops, spots, first: cb.Comptime[int], y, shape, plan):
    """The largest value of every window of rows y + first and behind, and its position in
    the plane.
    """
    for q in cb.unroll(range(plan.columns)):
        at = first * plan.columns + q
        results[q] = tops[at]
        positions[q] = spots[at] + row_start(y + first, shape)
        for u in cb.unroll(range(1, plan.down.taps)):
            below = at + u * plan.columns
            offer(
                results, positions, q, tops[below], spots[below] + row_start(y + first + u, shape)
            )


@cb.func
def row_start(y, shape):
    """The position of the first column of row y, or of the nearest row there is."""
    return cb.cast(cb.min(cb.max(y, 0), shape[1] - 1) * shape[2], cb.i32)


@cb.kernel
def max_windows_indices(
    x: cb.Array,
    size,
    out: cb.Array,
    index: cb.Array,
    made,
    groups,
    bands,
    least: cb.Comptime,
    acc: cb.Comptime,
    plan: cb.Comptime[PlanePlan],
):
    """`max_windows`, and where in the plane the value is: the first of equals, the last NaN."""
    t = cb.ABSOLUTE_POS
    lines = made[3] // plan.lanes if plan.last else 1
    if t < made[0] * bands * groups * lines:
        p, band, group, line = coordinates(t, (made[0], bands, groups, lines))
        c = multiple(line * plan.lanes, plan.lanes)
        z = group * (plan.columns * plan.across.ins)
        y = band * (plan.blocks * plan.down.ins) + plan.down.low
        values = room((values_of(plan),), acc, plan)
        tops = room((plan.down.positions(plan.blocks) * plan.columns,), acc, plan)
        spots = room((plan.down.positions(plan.blocks) * plan.columns,), cb.i32, plan)
        results = room((plan.columns,), acc, plan)
        positions = room((plan.columns,), cb.i32, plan)
        for k in cb.unroll(range(plan.down.positions(plan.blocks))):
            read_row(values, 0, (x, size), p, (y + k, z, c), k, least, (True, False), plan)
            best_of_row(tops, spots, k, values, z, plan)
            b = (k + 1 - plan.down.taps) // plan.down.ins
            if b >= 0 and (k + 1 - plan.down.taps) % plan.down.ins == 0:
                best_of_rows(results, positions, tops, spots, b * plan.down.ins, y, size, plan)
                store_row(
                    (out, made), p, band * plan.blocks + b, group * plan.columns, c, results, plan
                )
                store_row(
                    (index, made),
                    p,
                    band * plan.blocks + b,
                    group * plan.columns,
                    c,
                    positions,
                    plan,
                )


def holders(count: tuple[int, ...], lows: tuple[int, ...], r: int) -> tuple[int, ...]:
    """The windows that may hold position r of a block, counted from the first one of the block."""
    low = lows[r % len(lows)] + r // len(lows)
    return tuple(range(low, low + count[r % len(lows)]))


@cb.func
def chosen(
    sums,
    q: cb.Comptime[int],
    grads,
    spots,
    here,
    rows: cb.Comptime[tuple],
    plan,
    across: cb.Comptime[tuple],
):
    """sums[q] = the gradients of the windows that chose position `here`."""
    sums[q] = filled(cb.cast(0, sums.dtype), plan)
    for u in cb.unroll(rows):
        for v in cb.unroll(holders(across, plan.across.lows, q)):
            at = (u - plan.down.low) * values_of(plan) + v - plan.loads[0][0]
            sums[q] = sums[q] + cb.select(
                spots[at] == here, grads[at], filled(cb.cast(0, sums.dtype), plan)
            )


@cb.kernel
def max_windows_back(
    grad: cb.Array,
    index: cb.Array,
    size,
    out: cb.Array,
    made,
    groups,
    bands,
    acc: cb.Comptime,
    plan: cb.Comptime[PlanePlan],
    counts: cb.Comptime[tuple],
):
    """The gradient by the input: for every position the sum over the windows that chose it, always
    in the same order.

    `counts`: how many windows hold a position, by its phase, along height and width.
    """
    t = cb.ABSOLUTE_POS
    lines = made[3] // plan.lanes if plan.last else 1
    if t < made[0] * bands * groups * lines:
        p, band, group, line = coordinates(t, (made[0], bands, groups, lines))
        c = multiple(line * plan.lanes, plan.lanes)
        j = group * plan.columns
        z = group * (plan.columns // plan.across.outs * plan.across.ins)
        i = band * (plan.blocks * plan.down.outs)
        y = band * (plan.blocks * plan.down.ins) + plan.down.low
        positions = plan.down.positions(plan.blocks)
        grads = room((positions * values_of(plan),), acc, plan)
        spots = room((positions * values_of(plan),), cb.i32, plan)
        sums = room((plan.columns,), acc, plan)
        for k in cb.unroll(range(positions)):
            read_row(
                spots,
                k * values_of(plan),
                (index, size),
                p,
                (y + k, z, c),
                k,
                -1,
                (False, False),
                plan,
            )
            read_row(
                grads, k * values_of(plan), (grad, size), p, (y + k, z, c), k, 0, (True, True), plan
            )
        for r in cb.unroll(range(plan.blocks * plan.down.outs)):
            for q in cb.unroll(range(plan.columns)):
                here = filled(cb.cast((i + r) * made[2] + j + q, cb.i32), plan)
                chosen(
                    sums,
                    q,
                    grads,
                    spots,
                    here,
                    holders(counts[0], plan.down.lows, r),
                    plan,
                    counts[1],
                )
            store_row((out, made), p, i + r, j, c, sums, plan)


NOT_SMALL = "for small windows of images, without gaps"


def _planes(settings: Any, size: tuple[int, ...], parts: bool) -> Any:
    """Kernel, stride and padding along height and width; None unless windows are small enough to be
    written out, have no gaps, and no depth. `size` is (batch, depth, height, width, channels).
    """
    kernel, stride, pad, dilation = settings
    large = max(*kernel, *stride) > TAPS or size[2] * size[3] >= 2**31
    if parts or large or max(dilation) > 1 or (size[1], kernel[0], pad[0]) != (1, 1, 0):
        return None
    return kernel[1:], stride[1:], pad[1:]


def _plane(a: Any, last: bool) -> Any:
    return a[:, 0] if last else a[:, 0, :, :, 0]


class Indices(GpuRoutine):
    """Small windows of images, written out, and the positions of their largest values."""

    name = "places"

    def unfit(self, p: MaxPool, properties: cb.DeviceProperties) -> str | None:
        """Where positions are wanted, of windows that are small and have no gaps."""
        if p.index is None:
            return "for places"
        return None if _planes(p.settings, p.x.shape, p.parts) else NOT_SMALL

    def launch(self, p: MaxPool, properties: cb.DeviceProperties) -> None:
        """A unit does some neighbouring windows."""
        kernel, stride, pad = _planes(p.settings, p.x.shape, p.parts)
        images = (_plane(a, p.last) for a in (p.x, p.out, p.index))
        run(*images, stride, pad, kernel, p.least, p.last)  # type: ignore[call-arg]


class IndicesBack(GpuRoutine):
    """The gradient where windows are small: a unit looks at all that hold its positions."""

    name = "places"

    def unfit(self, p: MaxPoolBack, properties: cb.DeviceProperties) -> str | None:
        """Windows that are small and have no gaps."""
        return None if _planes(p.settings, p.out.shape, p.parts) else NOT_SMALL

    def launch(self, p: MaxPoolBack, properties: cb.DeviceProperties) -> None:
        """A unit does some neighbouring positions."""
        kernel, stride, pad = _planes(p.settings, p.out.shape, p.parts)
        images = (_plane(a, p.last) for a in (p.grad, p.index, p.out))
        run_back(*images, stride, pad, kernel, p.last)  # type: ignore[call-arg]


def run(
    x: Any, out: Any, index: Any, step: Any, pad: Any, kernel: Any, least: Any, last: bool
) -> None:
    """Largest values of the windows of (planes, height, width), or with `last` of (batch, height,
    width, channels), and their positions.
    """
    plan, groups, bands = windowed(x, out, step, pad, kernel, last)
    total = out.shape[0] * groups * bands * (out.shape[3] // plan.lanes if last else 1)
    acc = cb.f32 if x.itemsize == 2 and x.dtype.kind not in "iu" else cb.as_dtype(x.dtype)
    max_windows_indices[-(-total // UNITS), UNITS](
        x.reshape(-1),
        x.shape,
        out.reshape(-1),
        index.reshape(-1),
        out.shape,
        groups,
        bands,
        least,
        acc,
        plan,
        mode="unchecked",
    )


def windowed(
    x: Any,
    out: Any,
    step: tuple[int, int],
    pad: tuple[int, int],
    kernel: tuple[int, int],
    last: bool,
) -> tuple[PlanePlan, int, int]:
    """A plan for windows of (planes, height, width) or (batch, height, width, channels), with the
    numbers of a row's groups of results and of a column's row bands.
    """
    down, across = (Steps(1, s, (-p,), k) for s, p, k in zip(step, pad, kernel, strict=True))
    lanes = columns = 1
    if last:
        lanes = line_of(x, out)
        lanes = 1 if out.shape[3] % lanes or x.shape[3] % lanes else lanes
        columns = min(2, out.shape[2]) if across.taps > across.ins else 1
        while (
            columns * lanes > 1
            and lanes * (columns * down.reach + across.positions(columns)) > HELD
        ):
            columns, lanes = (columns // 2, lanes) if columns > 1 else (1, lanes // 2)
    else:
        columns = lanes = lined(x, out, across)
    blocks = min(WINDOWS * (2 if last and down.taps > 3 * down.ins else 1), out.shape[1])
    groups, bands, margin, ragged = row_bands_of(x, out, down, blocks, columns)
    loads = row_loads(
        across, columns, 1 if last else columns, groups * columns * across.ins > x.shape[2]
    )
    return (
        PlanePlan(down, across, blocks, columns, last, lanes, loads, margin, ragged),
        groups,
        bands,
    )


def held(k: int, s: int, p: int) -> tuple[Steps, tuple[int, ...]]:
    """Which windows hold a position, as steps over windows, and how many they are by the position's
    phase.
    """
    lows = tuple(-(-(r + p - k + 1) // s) for r in range(s))
    counts = tuple(max(0, (r + p) // s - low + 1) for r, low in enumerate(lows))
    return Steps(s, 1, lows, max(1, *counts)), counts


def gradient_plan(
    grad: Any, index: Any, out: Any, step: Any, pad: Any, kernel: Any, last: bool
) -> tuple[PlanePlan, int, int, tuple[tuple[int, ...], ...]]:
    """A plan for the gradient, with the numbers of groups and row bands, and how many windows hold
    a position.
    """
    (down, high), (across, wide) = (
        held(k, s, p) for k, s, p in zip(kernel, step, pad, strict=True)
    )
    if last:
        lanes, columns = line_of(grad, index, out), across.outs
        lanes = 1 if out.shape[3] % lanes else lanes
    else:
        lanes = 1 if address(index) % (2 * LINE_BYTES) else lined(grad, out, across)
        columns = max(lanes, across.outs)
    blocks = max(1, min(ROWS, out.shape[1]) // down.outs)
    groups, bands, margin, ragged = row_bands_of(grad, out, down, blocks, columns)
    outside = groups * (columns // across.outs * across.ins) > grad.shape[2]
    loads = row_loads(across, columns, 1 if last else lanes, outside)
    plan = PlanePlan(down, across, blocks, columns, last, lanes, loads, margin, ragged)
    return plan, groups, bands, (high, wide)


def run_back(grad: Any, index: Any, out: Any, step: Any, pad: Any, kernel: Any, last: bool) -> None:
    """The gradient by the input into `out`."""
    plan, groups, bands, counts = gradient_plan(grad, index, out, step, pad, kernel, last)
    total = out.shape[0] * groups * bands * (out.shape[3] // plan.lanes if last else 1)
    acc = cb.f64 if out.itemsize == 8 else cb.f32
    max_windows_back[-(-total // UNITS), UNITS](
        grad.reshape(-1),
        index.reshape(-1),
        grad.shape,
        out.reshape(-1),
        out.shape,
        groups,
        bands,
        acc,
        plan,
        counts,
        mode="unchecked",
    )
