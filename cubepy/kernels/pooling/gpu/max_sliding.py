"""Max pooling for devices with planes: units walk along an axis and keep maxima of what the windows
share, so that they read every position of it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.pooling.gpu.half2 import (
    join,
    larger,
    nothing_of,
    put_words,
    two_by_two,
    words_of,
    write_words,
)
from cubepy.kernels.pooling.gpu.max_sliding_plan import pieces_of, plan_of
from cubepy.kernels.pooling.gpu.van_herk import NEW, SlidingWindow, done, kept, overlap, wanted
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.windows.rows_gpu import (
    UNITS,
    PlanePlan,
    Steps,
    behind,
    coordinates,
    fill_core,
    filled,
    inside,
    position_in_row,
    read_row,
    room,
    start_of_row,
    store_row,
    values_of,
    widest,
)

AHEAD = (
    (4, 3),
    (8, 8),
)  # windows written out, by how many positions a window reaches for a stride; others: a loop


@cb.func
def largest(
    results, to: cb.Comptime[int], values, at: cb.Comptime[int], hop: cb.Comptime[int], n: cb.Comptime[int],
    steps: cb.Comptime[Steps], pairs: cb.Comptime,
):  # fmt: skip
    """results[to + q * hop] = the largest value of window q of values[at], values[at + hop], ...
    for q below n; what windows share is looked at once. Values are words that hold two of `pairs`,
    if that is not None.
    """
    for rest, many, hops, own in cb.unroll(without_gaps(n, hop, steps)):
        largest_dense(results, to + rest * hop, values, at + rest * hop, hops, many, own, pairs)


def without_gaps(n: int, hop: int, steps: Steps) -> tuple[tuple[int, int, int, Steps], ...]:
    """Windows with gaps as several times windows without, where strides allow that: the first of
    them, how many there are, how far from each other, and their steps.
    """
    spacing = steps.spacing
    if spacing == 1 or steps.ins != 1:
        return ((0, n, hop, steps),)
    return tuple(
        (r, -(-(n - r) // spacing), hop * spacing, dense(steps)) for r in range(min(n, spacing))
    )


def dense(steps: Steps) -> Steps:
    """The same windows without gaps."""
    return Steps(1, steps.ins, steps.lows, steps.taps)


@cb.func
def largest_dense(
    results, to: cb.Comptime[int], values, at: cb.Comptime[int], hop: cb.Comptime[int], n: cb.Comptime[int],
    steps: cb.Comptime[Steps], pairs: cb.Comptime,
):  # fmt: skip
    """`largest` of windows that share values only where they have no gaps."""
    for first, last in cb.unroll(sharing(n, steps)):
        begin = at + first * steps.ins * hop
        shared = (last - first) * steps.ins
        running = values[begin + shared * hop]
        for v in cb.unroll(range(shared + steps.spacing, steps.reach, steps.spacing)):
            running = larger(running, values[begin + v * hop], pairs)
        results[to + last * hop] = running
        for v in cb.unroll(range(shared - 1, -1, -1)):
            running = larger(running, values[begin + v * hop], pairs)
            if v % steps.ins == 0:
                results[to + (first + v // steps.ins) * hop] = running
        for v in cb.unroll(range(steps.taps, steps.taps + shared)):
            running = (
                values[begin + v * hop]
                if v == steps.taps
                else larger(running, values[begin + v * hop], pairs)
            )
            if (v + 1 - steps.taps) % steps.ins == 0:
                q = to + (first + (v + 1 - steps.taps) // steps.ins) * hop
                results[q] = larger(results[q], running, pairs)


def sharing(n: int, steps: Steps) -> tuple[tuple[int, int], ...]:
    """The first and the last of those of n windows that share values with each other."""
    most = (steps.taps - 1) // steps.ins + 1 if steps.spacing == 1 else 1
    return tuple((q, min(q + most, n) - 1) for q in range(0, n, most))


@cb.func
def read_plane(
    found, rows, values, x, p, begin, least, near: cb.Comptime[tuple], plan, pairs: cb.Comptime
):
    """found = the largest values of the unit's windows in plane p of x, which begin at a row,
    column and channel.
    """
    y, z, c = begin
    positions, wide = plan.down.positions(plan.blocks), kept_columns(plan, pairs)
    to = rows if positions > 1 else found
    at = position_in_row(0, 0, plan)
    for k in cb.unroll(range(positions)):
        if wide == plan.columns:
            read_row(values, 0, x, p, (y + k, z, c), k, least, near, plan)
            largest(to, k * wide, values, at, 1, wide, plan.across, pairs)
        else:
            words = cb.local((values_of(plan) // 2 + 2,), cb.u32)
            for m in cb.unroll(range(values_of(plan) // 2 + 2)):
                words[m] = 0
            read_words(words, x, p, y + k, z, k, cb.cast(least, cb.u32), near, plan)
            steps = two_by_two(plan.across)
            join(
                values,
                words,
                plan.across.low - first_of(plan),
                plan.across.ins,
                steps.positions(wide),
            )
            largest(to, k * wide, values, 0, 1, wide, steps, pairs)
    if positions > 1:
        for q in cb.unroll(range(wide)):
            largest(found, q, rows, q, wide, plan.blocks, plan.down, pairs)


@cb.func
def read_words(words, x, p, y, z, k: cb.Comptime[int], none, near: cb.Comptime[tuple], plan):
    """`read_row` of 16-bit floats, with channels first: element 0 of the words is in column z +
    first_of(plan).
    """
    elements, shape = x
    away = plan.margin or k + plan.down.low < 0 or k + plan.down.low >= plan.blocks * plan.down.ins
    row = cb.min(cb.max(y, 0), shape[1] - 1) if away else y
    start = start_of_row(p, row, 0, shape, plan)
    for at, wide, beside in cb.unroll(plan.loads):
        here = cb.min(cb.max(z + at, 0), shape[2] - wide) if beside else z + at
        there = inside(row == y, here == z + at, away and not near[0], beside and wide > near[1])
        put_words(
            words,
            at - first_of(plan),
            elements.load((behind(start, multiple(here, wide)),), wide),
            there,
            none,
        )


def first_of(plan: PlanePlan) -> int:
    """The first position of a unit's words, counted from its own."""
    return plan.loads[0][0] // 2 * 2


@cb.func
def larger_of(to, state, found, moves: cb.Comptime[tuple], n: cb.Comptime[int], pairs: cb.Comptime):
    """The moves of a sliding window, for lines of n numbers, to slots or (`to` is not the state) to
    the only one of results.
    """
    for slot, a, b in cb.unroll(moves):
        for q in cb.unroll(range(n)):
            number = found[q] if a == NEW else state[a * n + q]
            if a != b:
                number = larger(number, found[q] if b == NEW else state[b * n + q], pairs)
            to[slot * n + q] = number


@dataclass(frozen=True)
class Maxima:
    """What changes the code of `max_windows`.

    Attributes:
        plan: how units lie along height and width.
        sliding: how they walk along d.
        near: whether windows have no gaps along d, and what `read_row` wants.
        ragged: whether some windows may be behind the end of d.
        least: what nothing is larger than.
        acc: the dtype of maxima.
        pairs: the dtype of which x and out hold the bits, as `half2.words_of` gives them, or None.
    """

    plan: PlanePlan
    sliding: SlidingWindow
    near: tuple[bool, tuple[bool, int]]
    ragged: bool
    least: Any
    acc: cb.DType
    pairs: cb.DType | None


@cb.kernel
def max_windows(
    x: cb.Array, size, out: cb.Array, made, sizes, counts, loop_steps, maxima: cb.Comptime[Maxima]
):
    """out[(p, d), i, j] or out[(n, d), i, j, c] = the largest value of a window; shapes are `size`
    and `made`.

    Units walk along d, of which there are `sizes` in x and in out. `counts`: units along d, i and
    j.
    """
    plan, sliding, acc = maxima.plan, maxima.sliding, maxima.acc
    fill_core(plan)
    t = cb.ABSOLUTE_POS
    lines = made[3] // plan.lanes if plan.last else 1
    planes = made[0] // sizes[1]
    if t < planes * counts[0] * sliding.hop * counts[1] * counts[2] * lines:
        p, piece, rest, band, group, line = coordinates(
            t, (planes, counts[0], sliding.hop, counts[1], counts[2], lines)
        )
        y = band * (plan.blocks * plan.down.ins) + plan.down.low
        begin = y, group * (plan.columns * plan.across.ins), multiple(line * plan.lanes, plan.lanes)
        here = rest, band * plan.blocks, group * plan.columns, begin[2]
        first = piece * (loop_steps * sliding.ahead)
        wide = kept_columns(plan, maxima.pairs)
        n = plan.blocks * wide
        held = (
            room((sliding.slots * n,), acc, plan), room((n,), acc, plan),
            room((plan.down.positions(plan.blocks) * wide,), acc, plan), room((values_of(plan),), acc, plan),
        )  # fmt: skip
        unit = Unit((x, size), (out, made), held, p, first, begin, here, sizes)
        if not sliding.again:
            for r in cb.unroll(range(sliding.lead)):
                look_at(unit, first, r, maxima)
        if sliding.looped:
            for loop_step in range(-1 if sliding.again else 0, loop_steps):
                w = first + loop_step * sliding.ahead
                for r in cb.unroll(sliding.positions):
                    look_at(unit, w, r, maxima)
        else:
            for r in cb.unroll(sliding.positions):
                look_at(unit, first, r, maxima)


@cb.struct
class Unit:
    """What a unit has: x and out with their shapes, its memory, a plane, its first window along d,
    where its windows begin in x, where its results do, and the lengths of d in x and out.
    """

    x: Any
    out: Any
    held: Any
    p: Any
    first: Any
    begin: Any
    here: Any
    sizes: Any


@cb.func
def look_at(unit, w, r: cb.Comptime[int], maxima):
    """Position r of those that are written out; window w begins at position 0."""
    plan, sliding, pairs, near = maxima.plan, maxima.sliding, maxima.pairs, maxima.near
    x, out, p, here, sizes = unit.x, unit.out, unit.p, unit.here, unit.sizes
    state, found, rows, values = unit.held
    if wanted(sliding, r):
        d = (w * sliding.steps.ins + r) * sliding.hop + here[0] + sliding.steps.low
        inside = cb.min(cb.max(d, 0), sizes[0] - 1)
        read_plane(
            found,
            rows,
            values,
            x,
            p * sizes[0] + inside,
            unit.begin,
            maxima.least,
            near[1],
            plan,
            pairs,
        )
        n = plan.blocks * kept_columns(plan, pairs)
        if not near[0]:
            none = filled(cb.cast(maxima.least, found.dtype), plan)
            for q in cb.unroll(range(n)):
                found[q] = cb.select(d == inside, found[q], none)
        larger_of(state, state, found, kept(sliding, r), n, pairs)
        for which, a, b in cb.unroll(done(sliding, r)):
            larger_of(found, state, found, ((0, a, b),), n, pairs)
            if not sliding.again or w + which >= unit.first:
                store_plane(
                    out,
                    p,
                    (w + which) * sliding.hop + here[0],
                    sizes[1],
                    here,
                    found,
                    plan,
                    maxima.ragged,
                    pairs,
                )


@cb.func
def store_plane(out, p, w, deep, here, found, plan, ragged: cb.Comptime[bool], pairs: cb.Comptime):
    """The unit's results of window w of `deep` along d, if there is such a window."""
    _, i, j, c = here
    wide = kept_columns(plan, pairs)
    if not ragged or w < deep:
        for k in cb.unroll(range(plan.blocks)):
            if wide == plan.columns:
                store_row(out, p * deep + w, i + k, j, c, found, plan, k * wide)
            elif not plan.ragged or i + k < out[1][1]:
                start = ((p * deep + w) * out[1][1] + i + k) * multiple(out[1][2], plan.lanes)
                many = out[1][2] - j if plan.ragged else None
                write_words(
                    out[0], start + multiple(j, plan.lanes), found, k * wide, wide, plan.lanes, many
                )


def kept_columns(plan: PlanePlan, pairs: Any) -> int:
    """Numbers, or lines of channels, that a unit keeps for a row of its results."""
    return plan.columns if pairs is None or plan.last else plan.columns // 2


def run(
    x: Any,
    out: Any,
    sizes: tuple[int, int],
    walked: Steps,
    down: Steps,
    across: Steps,
    least: Any,
    last: bool,
    properties: cb.DeviceProperties,
) -> None:
    """Largest values of windows of ((planes, depth), height, width), or with `last` of ((batch,
    depth), height, width, channels), where `sizes` are the depths of x and out.
    """
    dense_down = walked.spacing == 1
    hop = (
        walked.spacing if walked.ins == 1 else 1
    )  # windows with gaps are several times windows without
    walked, deep = dense(walked) if hop > 1 else walked, -(-sizes[1] // hop)
    ahead = (
        next((n for n, most in AHEAD if walked.reach <= most * walked.ins), 0)
        if down.taps == 1
        else 0
    )
    sliding = (
        SlidingWindow(walked, min(ahead, deep), False, hop)
        if ahead
        else SlidingWindow(walked, overlap(walked), True, hop)
    )
    whole, (x, out, pairs) = (x, out), words_of(x, out, last, properties)
    plan, groups, bands = plan_of(
        x, out, sliding, down, across, last, pairs is not None and not last
    )
    if pairs is not None and not last and (plan.columns % 2 or across.spacing > 1):
        (x, out), pairs = whole, None
        plan, groups, bands = plan_of(x, out, sliding, down, across, last, False)
    units = out.shape[0] // sizes[1] * bands * groups * (out.shape[3] // plan.lanes if last else 1)
    pieces, loop_steps = pieces_of(sliding, deep, units * hop)
    acc = cb.f32 if x.itemsize == 2 and x.dtype.kind not in "iu" else cb.as_dtype(x.dtype)
    acc = acc if pairs is None else cb.u32
    # a position that counts twice changes nothing: those outside may have the value of one that is
    # in the same window
    left, right = (
        across.taps + across.low,
        x.shape[2] - (out.shape[2] - 1) * across.ins - across.low,
    )
    columns = 0 if across.spacing > 1 else widest(plan) if min(left, right) >= widest(plan) else 1
    near, ragged = (
        (dense_down, (down.spacing == 1, columns)),
        pieces * loop_steps * sliding.ahead * hop > sizes[1],
    )
    max_windows[-(-units * pieces * hop // UNITS), UNITS](
        x.reshape(-1),
        x.shape,
        out.reshape(-1),
        out.shape,
        sizes,
        (pieces, bands, groups),
        loop_steps,
        Maxima(plan, sliding, near, ragged, nothing_of(least, pairs), acc, pairs),
        mode="unchecked",
    )
