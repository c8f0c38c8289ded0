"""Largest values of windows in images on Hopper: the copy engine loads rows to shared memory while
units work.

A cube makes a band of columns and walks down the image. One unit asks for rows as long as there is
room for them; the others read what their windows see of a row and find the largest values across
(`pool_planes.largest`). Down the image rows go by blocks as high as a window: a window is the end
of one block and the begin of the next (van Herk, "A fast algorithm for local minimum and maximum
filters on rectangular and octagonal kernels", 1992). The rows of a block are kept, and where it
ends they become the largest values from each row to that end. So a result takes two maxima more
however high its window is, and how much a core has on its way does not depend on how many units
find room on it.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.pooling.gpu.half2 import join, larger, put_words, two_by_two, write_words
from cubepy.kernels.pooling.gpu.max_sliding import largest
from cubepy.kernels.pooling.sm90.max_tma_plan import FOUR, PLANE, ROW_BYTES, BoxPlan
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.pipeline import Stage
from cubepy.kernels.windows.rows_gpu import coordinates

ALIGNED = 1024
"""Bytes of shared memory that start as the copy engine wants."""
MEETING = 1
"""The number of the barrier at which units meet that look at lines for each other."""


@cb.struct
class Band:
    """What a cube walks down: `rows` rows of the image from row `first` on, `hop` apart.

    They make the windows from number `window` on of those that begin `rest` rows after a multiple
    of `hop`. `size` and `made` are the shapes of the image and of the result.
    """

    first: Any
    rows: Any
    window: Any
    hop: Any
    rest: Any
    size: Any
    made: Any


@cb.func
def load_async(x, tile, stage, band, corner, plan: cb.Comptime[BoxPlan]):
    """Ask for all rows of a cube, one after the other, as room is found."""
    p, z, c = corner
    size = band.size
    for t in range(band.rows):
        y = cb.min(cb.max(band.first + t * band.hop, 0), size[1] - 1)
        stage.acquire()
        stage.expect(plan.copies * x.nbytes)
        start = stage.slot * plan.row
        if plan.last:
            there = cb.min(cb.max(z, 0), size[2] - plan.box)
            at = start + multiple(
                (there - z + plan.before) * plan.channels, ROW_BYTES // x.dtype.itemsize
            )
            cb.tma_load(tile, at, x, (p, y, there, c), stage.full, stage.slot)
        elif plan.copies == 1:
            cb.tma_load(tile, start, x, (p, y, 0), stage.full, stage.slot)
        else:
            for k in range(plan.copies):
                box = (p + k // plan.boxes, y, k % plan.boxes * plan.box)
                cb.tma_load(tile, start + k * plan.box, x, box, stage.full, stage.slot)
        stage = stage.advance()


@cb.func
def clear_edges(tile, least, z, size, plan: cb.Comptime[BoxPlan]):
    """Nothing in the columns that no box fills; a tile sees columns from z on."""
    first = (cb.min(cb.max(z, 0), size[2] - plan.box) - z + plan.before) * plan.channels
    for k in range(cb.UNIT_POS, plan.stages * plan.row, cb.CUBE_DIM):
        position = k % plan.row
        if position < first or position >= first + plan.box * plan.channels:
            tile[k] = cb.cast(least, tile.dtype)


@cb.func
def read_boxed(values, tile, at, z, size, none, plan: cb.Comptime[BoxPlan]):
    """What a unit sees of a row in shared memory. With channels last it begins at element `at`,
    else at column z, where column 0 is element `at`.
    """
    if plan.last:
        for v in cb.unroll(range(plan.across.positions(plan.columns))):
            position = multiple(at + v * plan.channels, plan.lanes)
            values.store(v * plan.lanes, cb.cast(tile.load(position, plan.lanes), values.dtype))
    else:
        if plan.halves == 2:
            for m in cb.unroll(range(plan.seen)):
                values[m] = 0
        for position, wide, beside in cb.unroll(plan.loads):
            read_line(
                values,
                tile,
                at,
                z + position,
                plan.offset_of(position),
                wide,
                beside,
                size,
                none,
                plan,
            )


@cb.func
def read_line(
    values,
    tile,
    at,
    z,
    to: cb.Comptime[int],
    wide: cb.Comptime[int],
    beside: cb.Comptime[bool],
    size,
    none,
    plan: cb.Comptime[BoxPlan],
):
    """values[to], ... = `wide` neighbours from column z on."""
    here = cb.min(cb.max(z, 0), size[2] - wide) if beside else z
    line = tile.load(multiple(at + here, wide), wide)
    if plan.halves == 2:
        put_words(values, to, line, here == z if beside and wide > plan.near[1] else None, none)
    else:
        line = cb.cast(line, values.dtype)
        if beside and wide > plan.near[1]:
            line = cb.select(here == z, line, cb.splat(none, wide))
        values.store(to, line)


@cb.func
def across_row(found, values, plan: cb.Comptime[BoxPlan]):
    """found = the largest values of a row in the unit's windows."""
    if plan.last:
        for e in cb.unroll(range(plan.lanes)):
            largest(found, e, values, e, plan.lanes, plan.columns, plan.across, plan.pairs)
    elif plan.halves == 1:
        largest(found, 0, values, plan.offset_of(plan.across.low), 1, plan.columns, plan.own, None)
    else:
        steps = two_by_two(plan.own)
        joined = cb.local((steps.positions(plan.wide),), cb.u32)
        join(
            joined,
            values,
            plan.offset_of(plan.across.low),
            plan.across.ins,
            steps.positions(plan.wide),
        )
        largest(found, 0, joined, 0, 1, plan.wide, steps, plan.pairs)


@cb.func
def mark_lines(marks, tile, row, at, none, plan: cb.Comptime[BoxPlan]):
    """Keep the largest value of every line of a row that a unit owns, the `row`-th of those that
    are kept.
    """
    member, group = coordinates(cb.UNIT_POS, (plan.planes, plan.groups))
    for step in cb.unroll(range(-(-plan.whole[2] // plan.groups))):
        line = group + step * plan.groups
        if cb.UNIT_POS < plan.used and line < plan.whole[2]:
            words = cb.local((plan.wide,), marks.dtype)
            found = tile.load(multiple(at + line * plan.columns, plan.columns), plan.columns)
            if plan.halves == 2:
                put_words(words, 0, found, None, none)
            else:
                words.store(0, cb.cast(found, marks.dtype))
            top = words[0]
            for q in cb.unroll(range(1, plan.wide)):
                top = larger(top, words[q], plan.pairs)
            if plan.halves == 2:
                top = larger(top, (top >> 16) | (top << 16), plan.pairs)
            marks[(row * plan.planes + member) * plan.marks + plan.margin + line] = top


@cb.func
def read_marks(values, marks, row, plan: cb.Comptime[BoxPlan]):
    """The largest value of the lines that are whole in a unit's windows, to its position among
    values.
    """
    member, group = coordinates(cb.UNIT_POS, (plan.planes, plan.groups))
    first, count, _ = plan.whole
    at = (
        (row * plan.planes + cb.min(member, plan.planes - 1)) * plan.marks
        + plan.margin
        + first
        + group
    )
    top = marks[at]
    for v in cb.unroll(range(1, count)):
        top = larger(top, marks[at + v], plan.pairs)
    values[(plan.offset_of((first + count) * plan.columns) - plan.halves) // plan.halves] = top


@cb.func
def kept_at(k, m: cb.Comptime[int], plan: cb.Comptime[BoxPlan]):
    """Where a unit keeps part m of row k of a block."""
    line = (k + plan.over) * (plan.numbers // plan.line) + m
    return multiple((line * plan.workers + cb.UNIT_POS) * plan.line, plan.line)


@cb.func
def end_block(held, none, plan: cb.Comptime[BoxPlan]):
    """Make what is kept of a block the largest values from each row to its end."""
    for m in cb.unroll(range(plan.numbers // plan.line)):
        running = cb.splat(none, plan.line)
        for k in range(plan.taps - 1, 0, -FOUR):
            lines = ()
            for v in cb.unroll(range(FOUR)):
                lines = lines + (held.load(kept_at(k - v, m, plan), plan.line),)
            for v in cb.unroll(range(FOUR)):
                running = larger(running, lines[v], plan.pairs)
                held.store(kept_at(k - v, m, plan), running)


@cb.func
def write_row(out, made, results, p, i, j, c, plan: cb.Comptime[BoxPlan]):
    """A unit's results of row i from column j on."""
    if plan.last:
        start = (p * made[1] + i) * made[2] * multiple(made[3], plan.lanes) + c
        if c < made[3]:
            for q in cb.unroll(range(plan.columns)):
                if not plan.ragged or j + q < made[2]:
                    position = start + (j + q) * multiple(made[3], plan.lanes)
                    out.store(
                        (position,), cb.cast(results.load(q * plan.lanes, plan.lanes), out.dtype)
                    )
    elif cb.UNIT_POS < plan.used and p < made[0]:
        start = (p * made[1] + i) * multiple(made[2], plan.lined) + multiple(j, plan.lined)
        if plan.halves == 2:
            write_words(
                out, start, results, 0, plan.wide, plan.lined, made[2] - j if plan.ragged else None
            )
        else:
            for q in cb.unroll(range(0, plan.columns, plan.lined)):
                if not plan.ragged or j + q < made[2]:
                    out.store((start + q,), cb.cast(results.load(q, plan.lined), out.dtype))


@cb.func
def walk(tile, stage, out, band, mine, at, none, plan: cb.Comptime[BoxPlan]):
    """Take in rows as they come, and write those of the results that are done."""
    size, made, hop = band.size, band.made, band.hop
    p, j, c = mine
    z = j * plan.across.ins
    acc, pairs = none.dtype, plan.pairs
    deep = (made[1] - band.rest + hop - 1) // hop
    held = cb.shared(plan.kept, acc)
    values, found = cb.local((plan.seen,), acc), cb.local((plan.numbers,), acc)
    running, results = cb.local((plan.numbers,), acc), cb.local((plan.numbers,), acc)
    for q in cb.unroll(range(plan.numbers)):
        running[q] = none
    for m in cb.unroll(range(plan.numbers // plan.line)):
        held.store(kept_at(plan.taps, m, plan), cb.splat(none, plan.line))
    marks = cb.shared(max(1, 2 * plan.planes * plan.marks), acc)
    if plan.marks:
        for k in range(cb.UNIT_POS, 2 * plan.planes * plan.marks, plan.workers):
            marks[k] = none
        cb.sync_group(MEETING, plan.workers)
    kept_slot = 0
    for t in range(band.rows):
        stage.wait()
        read_boxed(values, tile, stage.slot * plan.row + at, z, size, none, plan)
        if plan.marks:
            mark_lines(marks, tile, t % 2, stage.slot * plan.row + at, none, plan)
            cb.sync_group(MEETING, plan.workers)
            read_marks(values, marks, t % 2, plan)
        across_row(found, values, plan)
        cb.fence_async()
        cb.sync_plane()
        stage.release(cb.UNIT_POS_PLANE == 0)
        stage = stage.advance()
        if not plan.near[0]:
            y = band.first + t * hop
            for q in cb.unroll(range(plan.numbers)):
                found[q] = cb.select(y >= 0 and y < size[1], found[q], none)
        for q in cb.unroll(range(plan.numbers)):
            running[q] = larger(running[q], found[q], pairs)
        since = t - (plan.taps - 1)
        i = band.window + since // plan.ins
        if since >= 0 and since % plan.ins == 0 and i < deep:
            for m in cb.unroll(range(plan.numbers // plan.line)):
                begun = held.load(kept_at(kept_slot + 1, m, plan), plan.line)
                results.store(
                    m * plan.line, larger(begun, running.load(m * plan.line, plan.line), pairs)
                )
            write_row(out, made, results, p, i * hop + band.rest, j, c, plan)
        for m in cb.unroll(range(plan.numbers // plan.line)):
            held.store(kept_at(kept_slot, m, plan), found.load(m * plan.line, plan.line))
        kept_slot = kept_slot + 1
        if kept_slot == plan.taps:
            end_block(held, none, plan)
            kept_slot = 0
            for q in cb.unroll(range(plan.numbers)):
                running[q] = none


@cb.kernel
def max_boxes(
    x: cb.TensorMap,
    size,
    out: cb.Array,
    made,
    steps,
    counts,
    least: cb.Comptime,
    acc: cb.Comptime,
    plan: cb.Comptime[BoxPlan],
):
    """out (planes, height, width), or (batch, height, width, channels), = the largest value of each
    window of x.

    `size` and `made` are the shapes of x and out; windows begin `low` rows above the image, and
    their rows are `hop` apart (`steps` = low, hop). Cubes, the slowest first: planes or
    images, `pieces` of `windows` windows along the height, `hop` first rows, `bands` of the width,
    and `blocks` of channels (`counts` = pieces, windows, bands, blocks).
    """
    low, hop = steps
    pieces, windows, bands, blocks = counts
    cb.resident(plan.cubes)
    full = cb.barrier(plan.stages, 1)
    empty = cb.barrier(plan.stages, plan.workers // PLANE)
    tile = cb.shared(max(plan.stages * plan.row, ALIGNED // x.dtype.itemsize), x.dtype)
    teams = (made[0] + plan.planes - 1) // plan.planes
    team, piece, rest, band, block = coordinates(cb.CUBE_POS, (teams, pieces, hop, bands, blocks))
    left = 0
    if bands > 1:
        left = cb.min(
            band * plan.tile,
            (made[2] + plan.columns - 1) // plan.columns * plan.columns - plan.tile,
        )
    z = left * plan.across.ins + plan.across.low  # of the first column that is seen
    if plan.last:
        clear_edges(tile, least, z, size, plan)
        cb.sync_cube()
    window = piece * windows
    first = window * plan.ins * hop + low + rest
    rows = (windows - 1) * plan.ins + plan.taps
    band = Band(first, rows, window, hop, rest, size, made)
    stage = Stage(full, empty, 0, 0, plan.stages)
    if cb.UNIT_POS >= plan.workers:
        if cb.UNIT_POS == plan.workers:
            corner = (team * plan.planes, z, block * plan.channels)
            load_async(x, tile, stage, band, corner, plan)
    else:
        none = cb.cast(least, acc)
        if plan.last:
            group, line = coordinates(cb.UNIT_POS, (plan.groups, plan.channels // plan.lanes))
            c = multiple(block * plan.channels + line * plan.lanes, plan.lanes)
            at = (
                plan.before + group * (plan.columns * plan.across.ins)
            ) * plan.channels + line * plan.lanes
            mine = team, left + group * plan.columns, c
        else:
            member, group = coordinates(cb.UNIT_POS, (plan.planes, plan.groups))
            at = cb.min(member, plan.planes - 1) * plan.pitch
            mine = team * plan.planes + member, group * plan.columns, 0
        walk(tile, stage, out, band, mine, at, none, plan)
