"""Largest values or means of windows that overlap little, or of parts that are not equal, for
devices with planes.

With channels first a cube makes rows of results: every column of their windows first, in lines
along the width, which it leaves in shared memory, and then neighbouring columns. With channels last
a unit makes a line of channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.functions import add, larger
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import LINE_BYTES, address, line_of
from cubepy.kernels.reduce import reduce_gpu
from cubepy.kernels.reduce.reduction import SCALED_SUM, Reduction, Walk, itself, total
from cubepy.kernels.windows.banded import Means
from cubepy.kernels.windows.rows_gpu import UNITS, behind, coordinates
from cubepy.kernels.windows.window import Windows, window
from cubepy.runtime import memory

AHEAD = 8  # positions that a unit asks for at once, at most
MANY = 1 << 15  # units, from which on there are enough of them
ROOMS = (2048, 8192)  # numbers in shared memory, of a width of at most the last
ROWS = 128  # of results that a cube does, at most


@dataclass(frozen=True)
class PartPlan:
    """What is made of windows, from `start` on. `mean`: it is divided by how many positions there
    are, those outside too if `padded`, or by a number. `parts`: windows are equal parts. `ahead`:
    positions along the height and the width that are asked for at once. `room`: numbers in shared
    memory. `few`: results in a row find room in a table.
    """

    start: Any
    mean: bool
    padded: bool
    parts: bool
    ahead: tuple[int, int]
    lanes: int
    room: int = 0
    few: bool = False


@cb.func
def span(i, n, m, k, s, p, plan: cb.Comptime[PartPlan]):
    """The first position of window i of m over n positions, the one behind its last, of those
    inside, and how many count.
    """
    first, many = window(i, n, m, k, s, p, plan.parts)
    begin, end = cb.max(first, 0), cb.min(first + many, n)
    return begin, end, cb.min(first + many, n + p) - first if plan.padded else end - begin


@cb.func
def over(
    total,
    x,
    start,
    hop,
    begin,
    end,
    step,
    plan: cb.Comptime[PartPlan],
    ahead: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """`step` over `total` and the lines of x at start + k * hop for k from begin to end, not
    included.
    """
    k = begin
    while k + ahead <= end:
        for v in cb.unroll(range(ahead)):
            line = cb.cast(x.load((behind(start, (k + v) * hop),), lanes), total.dtype)
            total = step(total, line)
        k += ahead
    if k < end:
        none = cb.splat(cb.cast(plan.start, total.dtype), lanes)
        for v in cb.unroll(range(ahead - 1)):
            line = cb.cast(
                x.load((behind(start, cb.min(k + v, end - 1) * hop),), lanes), total.dtype
            )
            total = step(total, cb.select(k + v < end, line, none))
    return total


@cb.func
def shared_out(total, count, divisor, acc, plan: cb.Comptime[PartPlan]):
    """What becomes of what was found in so many positions."""
    if not plan.mean:
        return total
    return total / cb.select(divisor != 0, cb.cast(divisor, acc), cb.cast(count, acc))


@cb.func
def look_up_rows(table, first, many, size, made, kernel, stride, pad, plan: cb.Comptime[PartPlan]):
    """table[:, row] = the plane of a cube's row of results, its positions along the depth and the
    height, and how many of them count, so that units that share a row divide once.
    """
    for row in range(cb.UNIT_POS, many, cb.CUBE_DIM):
        p, h, i = coordinates(first + row, (made[0], made[1], made[2]))
        a0, a1, deep = span(h, size[1], made[1], kernel[0], stride[0], pad[0], plan)
        b0, b1, high = span(i, size[2], made[2], kernel[1], stride[1], pad[1], plan)
        found = (p, a0, a1, b0, b1, deep * high)
        for k in cb.unroll(range(len(found))):
            table[k, row] = cb.cast(found[k], cb.i32)


@cb.kernel
def combine_columns(
    x: cb.Array,
    size,
    out: cb.Array,
    made,
    windows: Windows,
    rows,
    divisor,
    step: cb.Comptime,
    acc: cb.Comptime,
    plan: cb.Comptime[PartPlan],
):
    """x, out of (planes, depth, height, width), of shapes `size` and `made`; a cube does `rows`
    rows of windows.
    """
    columns = cb.shared(plan.room, acc)
    table = cb.shared((6, ROWS), cb.i32)
    columns_at = cb.shared((3, ROWS), cb.i32)
    lanes = plan.lanes
    kernel, stride, pad = windows.kernel, windows.stride, windows.pad
    wide = multiple(size[3], lanes)
    lines = wide // lanes
    first = cb.CUBE_POS * rows
    many = cb.min(rows, made[0] * made[1] * made[2] - first)
    look_up_rows(table, first, many, size, made, kernel, stride, pad, plan)
    if plan.few:
        for j in range(cb.UNIT_POS, made[3], cb.CUBE_DIM):
            found = span(j, size[3], made[3], kernel[2], stride[2], pad[2], plan)
            for k in cb.unroll(range(3)):
                columns_at[k, j] = cb.cast(found[k], cb.i32)
    cb.sync_cube()
    for item in range(cb.UNIT_POS, many * lines, cb.CUBE_DIM):
        row, line = coordinates(item, (many, lines))
        p = cb.cast(table[0, row], first.dtype)
        found = cb.splat(cb.cast(plan.start, acc), lanes)
        for a in range(table[1, row], table[2, row]):
            start = (p * size[1] + a) * size[2] * wide + multiple(line * lanes, lanes)
            found = over(
                found,
                x,
                start,
                wide,
                table[3, row],
                table[4, row],
                step,
                plan,
                plan.ahead[0],
                lanes,
            )
        columns.store(row * wide + multiple(line * lanes, lanes), found)
    cb.sync_cube()
    for item in range(cb.UNIT_POS, many * made[3], cb.CUBE_DIM):
        row, j = coordinates(item, (many, made[3]))
        if plan.few:
            c0, c1, broad = columns_at[0, j], columns_at[1, j], columns_at[2, j]
        else:
            c0, c1, broad = span(j, size[3], made[3], kernel[2], stride[2], pad[2], plan)
        none = cb.splat(cb.cast(plan.start, acc), 1)
        total = over(none, columns, row * wide, 1, c0, c1, step, plan, plan.ahead[1], 1)
        result = shared_out(total[0], table[5, row] * broad, divisor, acc, plan)
        out[first * made[3] + item] = cb.cast(result, out.dtype)


@cb.kernel
def combine_lines(
    x: cb.Array,
    size,
    out: cb.Array,
    made,
    windows: Windows,
    divisor,
    step: cb.Comptime,
    acc: cb.Comptime,
    plan: cb.Comptime[PartPlan],
):
    """x, out of (batch, depth, height, width, channels), of shapes `size` and `made`."""
    lanes = plan.lanes
    kernel, stride, pad = windows.kernel, windows.stride, windows.pad
    channels = multiple(size[4], lanes)
    lines = channels // lanes
    t = cb.ABSOLUTE_POS
    if t < made[0] * made[1] * made[2] * made[3] * lines:
        n, h, i, j, line = coordinates(t, (made[0], made[1], made[2], made[3], lines))
        a0, a1, deep = span(h, size[1], made[1], kernel[0], stride[0], pad[0], plan)
        b0, b1, high = span(i, size[2], made[2], kernel[1], stride[1], pad[1], plan)
        c0, c1, broad = span(j, size[3], made[3], kernel[2], stride[2], pad[2], plan)
        found = cb.splat(cb.cast(plan.start, acc), lanes)
        for a in range(a0, a1):
            for b in range(b0, b1):
                start = ((n * size[1] + a) * size[2] + b) * size[3] * channels + multiple(
                    line * lanes, lanes
                )
                found = over(found, x, start, channels, c0, c1, step, plan, plan.ahead[1], lanes)
        found = shared_out(found, deep * high * broad, divisor, acc, plan)
        out.store((multiple(t * lanes, lanes),), cb.cast(found, out.dtype))


@lru_cache(maxsize=256)
def together(n: int, m: int, kernel: int, parts: bool) -> int:
    """How many positions of windows or parts to ask for at once, so that the longest take few
    turns, all of the same.
    """
    longest = min(kernel, n)
    if parts:
        longest = max(-(-(j + 1) * n // m) - j * n // m for j in range(m))
    rounds = -(-longest // AHEAD)
    return -(-longest // rounds)


def widest_line(x: Any) -> int:
    """Lanes of the widest line in which the rows of a contiguous array can be read."""
    lanes = max(1, LINE_BYTES // max(x.itemsize, 2))
    while x.shape[-1] % lanes or address(x) % (lanes * x.itemsize):
        lanes //= 2
    return lanes


def units_of(x: Any, out: Any, last: bool) -> int:
    """How many units find something to do at first."""
    if last:
        return int(out.size // line_of(x, out))
    return int(out.size // out.shape[3] * x.shape[3] // widest_line(x[..., 0]))


def even(size: tuple[int, ...], made: tuple[int, ...], settings: Any, parts: bool) -> bool:
    """Whether windows are parts of equal size."""
    if parts:
        return not any(n % m for n, m in zip(size, made, strict=True))
    kernel, stride, pad, _ = settings
    return (
        kernel == stride
        and not any(pad)
        and all(n == k * m for n, k, m in zip(size, kernel, made, strict=True))
    )


def highest(least: Any) -> Reduction:
    """The largest element, from `least` on."""
    return Reduction("largest", (Walk(itself, larger, least),), total)


def reduced(x: Any, out: Any, reduction: Reduction, scale: float) -> None:
    """Parts of equal size, by reductions along one axis after the other; the result is multiplied
    by `scale`.
    """
    axes: list[tuple[int, int]] = []
    for n, m in zip(x.shape[1:4], out.shape[1:4], strict=True):
        if axes and m == 1:  # all of it, with what lies around it
            axes[-1] = (axes[-1][0] * n, axes[-1][1])
        else:
            axes.append((n, m))
    value, acc, tail = x, cb.as_dtype(x.dtype).compute, x.shape[4]
    acc = cb.f32 if acc.is_float and acc.bits == 16 else acc
    for at in range(len(axes) - 1, -1, -1):
        n, m = axes[at]
        lead = x.shape[0] * math.prod(n for n, _ in axes[:at])
        if n != m:
            done = all(n == m for n, m in axes[:at])
            target = out.reshape(-1) if done else memory.empty((lead * m * tail,), acc.numpy)
            part = reduction if done else reduction.unfinished
            cut = (lead * m, n // m) if tail == 1 else (lead * m, n // m, tail)
            reduce_gpu.reduce(value.reshape(cut), target, part, acc, scale)
            value = target
        tail *= m


def averages(x: Any, out: Any, bands: list[Any], last: bool) -> None:
    """Means that are bands along the axes of size of x, with a batch axis."""
    deep = 3 - len(bands)
    means = [Means(min(1, bands[-1].means.kernel))] * deep + [b.means for b in bands]
    settings = tuple(zip(*((m.kernel, m.stride, m.padding, 1) for m in means), strict=True))
    given = None if means[-1].divisor is None else math.prod(m.divisor or 1.0 for m in means)
    by = Means(padded=means[-1].padded and given is None, divisor=given)
    lead, tail = (x.shape[0], x.shape[-1]) if last else (x.shape[0] * x.shape[1], 1)
    sizes = (
        (1,) * deep + tuple(sizes)
        for sizes in zip(*((b.columns, b.rows) for b in bands), strict=True)
    )
    views = (a.reshape(lead, *size, tail) for a, size in zip((x, out), sizes, strict=True))
    run(*views, settings, not means[-1].kernel, last, means=by)  # type: ignore[call-arg, misc]


def fits(x: Any, settings: Any, last: bool) -> bool:
    """Whether `run` takes windows: without gaps, and with channels first of rows not too long."""
    return max(settings[3]) == 1 and (last or x.shape[3] <= ROOMS[-1])


def run(
    x: Any,
    out: Any,
    settings: Any,
    parts: bool,
    last: bool,
    least: Any = None,
    means: Means | None = None,
) -> None:
    """Largest values, from `least` on, or means of (batch, depth, height, width, channels) in
    windows that `fits`.
    """
    windows = Windows(*settings)
    whole = cb.as_dtype(x.dtype)
    acc = cb.f32 if x.itemsize == 2 and x.dtype.kind not in "iu" else whole
    ahead = tuple(together(x.shape[d], out.shape[d], windows.kernel[d - 1], parts) for d in (2, 3))
    by = 0.0 if means is None else means.divisor or 0.0
    if even(x.shape[1:4], out.shape[1:4], settings, parts) and units_of(x, out, last) < MANY:
        scale = (
            1.0
            if means is None
            else 1 / (by or math.prod(x.shape[1:4]) / math.prod(out.shape[1:4]))
        )
        reduced(x, out, highest(least) if means is None else SCALED_SUM, scale)
        return
    step, what = (
        (larger, (least, False, False)) if means is None else (add, (0, True, means.padded))
    )
    if last:
        lanes = line_of(x, out)
        lanes = 1 if x.shape[4] % lanes else lanes
        plan = PartPlan(*what, parts, ahead, lanes)  # type: ignore[call-arg]
        arrays = (x.reshape(-1), x.shape, out.reshape(-1), out.shape)
        combine_lines[-(-out.size // (lanes * UNITS)), UNITS](
            *arrays, windows, by, step, acc, plan, mode="unchecked"
        )
        return
    images, results = x[..., 0], out[..., 0]
    room = next(n for n in ROOMS if x.shape[3] <= n)
    rows = min(room // x.shape[3], ROWS, out.size // out.shape[3])
    plan = PartPlan(*what, parts, ahead, widest_line(images), room, out.shape[3] <= ROWS)  # type: ignore[call-arg]
    arrays = (x.reshape(-1), images.shape, out.reshape(-1), results.shape)
    combine_columns[-(-out.size // out.shape[3] // rows), UNITS](
        *arrays, windows, rows, by, step, acc, plan, mode="unchecked"
    )
