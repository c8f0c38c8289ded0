"""Largest values of wide windows with stride 1 in planes, for devices with planes, however wide
they are.

Both axes are cut into chunks. A window begins within one chunk, ends within another, and holds the
chunks between them as a whole. So of a chunk only the maxima from each of its positions to its end
are kept, and a result is the largest of one such maximum, of the chunks between, and of the
positions of the last chunk so far. A unit owns a line of columns, walks down the plane by chunks of
rows, and keeps the maxima of its last chunks in shared memory. What it finds goes to its cube's
others, whose lines are the chunks along the width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import address
from cubepy.kernels.windows.rows_gpu import coordinates

ROWS = 4  # of a chunk
LEAST_UNITS, MOST_UNITS = 64, 256  # of a cube, about
CUBES = 4096  # that there should be, if planes are tall enough to be cut
TOGETHER = 2  # cubes that should find room on a core


@dataclass(frozen=True)
class WidePlan:
    """`down`, `across`: positions of a window. A cube does `lines` lines of `lanes` columns in
    `groups` planes; `halo` of the lines belong to the tile before, but for the first tile. Windows
    may end in `more` lines behind them, where nothing is. `whole`: lines of x can be read at once.
    `beyond`: some are behind the end of a row.
    """

    down: int
    across: int
    lines: int
    groups: int
    halo: int
    more: int
    lanes: int
    whole: bool
    beyond: bool

    @property
    def units(self) -> int:
        """Of a cube."""
        return -(-self.lines * self.groups // 32) * 32

    @property
    def slots(self) -> int:
        """Chunks of rows that are kept."""
        return behind(self.down, 0, ROWS)[0]

    @property
    def margin(self) -> int:
        """Lines before the first one, of nothing."""
        return behind(self.across, 0, self.lanes)[0]

    @property
    def row(self) -> int:
        """Lines from one row of a cube's to the next."""
        return self.margin + self.ends

    @property
    def ends(self) -> int:
        """Lines in which windows end."""
        return self.lines + self.more

    @property
    def nbytes(self) -> int:
        """Shared memory, of numbers of 4 bytes."""
        held = self.slots * ROWS * self.units * self.lanes
        return 4 * (
            held + ROWS * self.groups * (self.row * (self.lanes + 1) + self.ends * self.lanes)
        )


def behind(taps: int, position: int, size: int) -> tuple[int, int]:
    """Where the window begins that ends at a position of a chunk: how many chunks before, and at
    which of its positions.
    """
    first = position - taps + 1
    return -(first // size), first % size


def between(taps: int, size: int) -> int:
    """The chunks that are whole in every window which ends in a chunk: so many before it, but for
    the farthest.
    """
    return behind(taps, size - 1, size)[0]


def starts(plan: WidePlan) -> tuple[int, ...]:
    """The chunks before it in which windows begin that end in a chunk of columns."""
    back = {behind(plan.across, r, plan.lanes)[0] for r in range(plan.lanes)}
    return tuple(sorted(k for k in back if k > 0))


@cb.func
def ending(results, values, whole, begun, taps: cb.Comptime[int], size: cb.Comptime[int]):
    """results[r] = the largest value of the window that ends at position r of the chunk `values`.

    whole: the largest of the chunks in every one of them, or None. begun[r]: of the chunk where
        window r begins.
    """
    running = values[0]
    for r in cb.unroll(range(size)):
        if r > 0:
            running = cb.nan_max(running, values[r])
        first = behind(taps, r, size)
        if first[0] <= 0:
            inside = values[first[1]]
            for v in cb.unroll(range(first[1] + 1, r + 1)):
                inside = cb.nan_max(inside, values[v])
            results[r] = inside
        else:
            results[r] = cb.nan_max(begun[r], running)
            if whole is not None:
                results[r] = cb.nan_max(results[r], whole)


@cb.func
def walk_down(found, rows, held, chunk, lane, plan: cb.Comptime[WidePlan]):
    """found[r] = the largest values of the columns' windows that end in row r of a chunk; keep the
    chunk.
    """
    if plan.down == 1:
        for r in cb.unroll(range(ROWS)):
            found[r] = rows[r]
    else:
        near = between(plan.down, ROWS)
        whole = None
        for k in cb.unroll(range(1, near)):
            one = held.load((kept(chunk, k, plan), 0, lane), plan.lanes)
            whole = one if k == 1 else cb.nan_max(whole, one)
        begun = cb.local((ROWS,), held.dtype, lanes=plan.lanes)
        for r in cb.unroll(range(ROWS)):
            chunks_back, position = behind(plan.down, r, ROWS)
            if chunks_back > 0:
                begun[r] = held.load((kept(chunk, chunks_back, plan), position, lane), plan.lanes)
                if chunks_back > near and near > 0:
                    begun[r] = cb.nan_max(
                        begun[r], held.load((kept(chunk, near, plan), 0, lane), plan.lanes)
                    )
        ending(found, rows, whole, begun, plan.down, ROWS)
        running = rows[ROWS - 1]
        for r in cb.unroll(range(ROWS - 1, -1, -1)):
            running = cb.nan_max(running, rows[r])
            held.store((kept(chunk, 0, plan), r, lane), running)


@cb.func
def kept(chunk, k: cb.Comptime[int], plan: cb.Comptime[WidePlan]):
    """Where the maxima of the k-th chunk before are kept; `chunk` is where this one's will be."""
    if k == 0 or k == plan.slots:
        return chunk
    return cb.select(chunk >= k, chunk - k, chunk + (plan.slots - k))


@cb.func
def walk_across(own, stage, marks, at, plan: cb.Comptime[WidePlan]):
    """The largest values of windows that end in the columns of a line, the `at`-th of all that are
    staged.
    """
    lanes = plan.lanes
    values, results, begun = (
        cb.local((lanes,), own.dtype),
        cb.local((lanes,), own.dtype),
        cb.local((lanes,), own.dtype),
    )
    near = between(plan.across, lanes)
    for r in cb.unroll(range(lanes)):
        values[r] = own[r]
    whole = None
    for k in cb.unroll(range(1, near)):
        whole = marks[at - k] if k == 1 else cb.nan_max(whole, marks[at - k])
    for chunks_back in cb.unroll(starts(plan)):
        there = stage.load(multiple((at - chunks_back) * lanes, lanes), lanes)
        running = there[lanes - 1]
        for v in cb.unroll(range(lanes - 1, -1, -1)):
            running = cb.nan_max(running, there[v])
            for r in cb.unroll(range(lanes)):
                if behind(plan.across, r, lanes) == (chunks_back, v):
                    begun[r] = (
                        cb.nan_max(running, marks[at - near])
                        if chunks_back > near and near > 0
                        else running
                    )
    ending(results, values, whole, begun, plan.across, lanes)
    return results.load(0, lanes)


@cb.func
def read_chunk(rows, x, plane, chunk, column, size, plan: cb.Comptime[WidePlan]):
    """The columns' rows of a chunk. Behind the end of an axis its last position counts again, which
    changes nothing.
    """
    for r in cb.unroll(range(ROWS)):
        y = cb.min(chunk * ROWS + r, size[1] - 1)
        if plan.whole:
            start = (plane * size[1] + y) * multiple(size[2], plan.lanes)
            beside = multiple(cb.min(column, size[2] - plan.lanes), plan.lanes)
            line = cb.cast(x.load((start + beside,), plan.lanes), rows.dtype)
            last = cb.splat(line[plan.lanes - 1], plan.lanes)
            rows[r] = cb.select(column < size[2], line, last) if plan.beyond else line
        else:
            numbers = cb.local((plan.lanes,), rows.dtype)
            for v in cb.unroll(range(plan.lanes)):
                numbers[v] = cb.cast(
                    x[(plane * size[1] + y) * size[2] + cb.min(column + v, size[2] - 1)], rows.dtype
                )
            rows[r] = numbers.load(0, plan.lanes)


@cb.kernel
def largest_wide(
    x: cb.Array,
    size,
    out: cb.Array,
    made,
    pad,
    cut,
    least: cb.Comptime,
    acc: cb.Comptime,
    plan: cb.Comptime[WidePlan],
):
    """x, out of (planes, height, width), of shapes `size` and `made`; a cube does a tile of a strip
    of `chunks` chunks of rows in some planes.

    cut: the tiles of a row, the strips of a plane, and `chunks`.
    """
    tiles, bands, chunks = cut
    lanes, lines, units = plan.lanes, plan.lines, plan.units
    held = cb.shared((max(1, plan.slots), ROWS, units * lanes), acc)
    stage = cb.shared((ROWS * plan.groups * plan.row * lanes,), acc)
    marks = cb.shared((ROWS * plan.groups * plan.row,), acc)
    ready = cb.shared((ROWS, plan.groups * plan.ends * lanes), acc)
    group, line = coordinates(cb.UNIT_POS, (units, lines))
    team, band, tile = coordinates(cb.CUBE_POS, (made[0], bands, tiles))
    plane = team * plan.groups + group
    here = group < plan.groups
    first = tile * (lines - plan.halo)
    mine = multiple(cb.UNIT_POS * lanes, lanes)
    none = cb.splat(cb.cast(least, acc), lanes)
    for k in cb.unroll(range(plan.slots)):
        for r in cb.unroll(range(ROWS)):
            held.store((k, r, mine), none)
    for k in range(cb.UNIT_POS, ROWS * plan.groups * plan.row, units):
        stage.store(multiple(k * lanes, lanes), none)
        marks[k] = cb.cast(least, acc)
    cb.sync_cube()
    source = cb.min(plane, size[0] - 1)
    column = (first + line) * lanes
    begin = band * chunks
    slot = 0
    rows, ahead = cb.local((ROWS,), acc, lanes=lanes), cb.local((ROWS,), acc, lanes=lanes)
    found = cb.local((ROWS,), acc, lanes=lanes)
    start = cb.max(0, begin - plan.slots)
    read_chunk(ahead, x, source, start, column, size, plan)
    for chunk in range(start, begin + chunks):
        for r in cb.unroll(range(ROWS)):
            rows[r] = ahead[r]
        read_chunk(ahead, x, source, chunk + 1, column, size, plan)
        walk_down(found, rows, held, slot, mine, plan)
        slot = cb.select(slot + 1 >= plan.slots, 0, slot + 1)
        i = (
            chunk * ROWS - (plan.down - 1) + pad[0]
        )  # of the result that ends with the chunk's first row
        if chunk >= begin and i + ROWS > 0 and i < made[1]:
            if here:
                for r in cb.unroll(range(ROWS)):
                    at = (group * ROWS + r) * plan.row + plan.margin + line
                    top = found[r][0]
                    for v in cb.unroll(range(1, lanes)):
                        top = cb.nan_max(top, found[r][v])
                    stage.store(multiple(at * lanes, lanes), found[r])
                    marks[at] = top
            cb.sync_cube()
            if here:
                for r in cb.unroll(range(ROWS)):
                    at = (group * ROWS + r) * plan.row + plan.margin + line
                    result = walk_across(found[r], stage, marks, at, plan)
                    ready.store((r, multiple((group * plan.ends + line) * lanes, lanes)), result)
            for item in range(cb.UNIT_POS, plan.groups * ROWS * plan.more, units):
                g, row, beyond = coordinates(item, (plan.groups, ROWS, plan.more))
                at = (g * ROWS + row) * plan.row + plan.margin + lines + beyond
                last = walk_across(none, stage, marks, at, plan)
                ready.store((row, multiple((g * plan.ends + lines + beyond) * lanes, lanes)), last)
            cb.sync_cube()
            if here and plane < size[0]:
                for step in cb.unroll(range(-(-plan.ends * lanes // lines))):
                    beside = step * lines + line  # neighbouring units write neighbours
                    j = first * lanes + beside - (plan.across - 1) + pad[1]
                    new = tile == 0 or beside >= plan.halo * lanes
                    if new and beside < plan.ends * lanes and j >= 0 and j < made[2]:
                        for r in cb.unroll(range(ROWS)):
                            if i + r >= 0 and i + r < made[1]:
                                value = ready[r, group * plan.ends * lanes + beside]
                                out[(plane * made[1] + i + r) * made[2] + j] = cb.cast(
                                    value, out.dtype
                                )


def plan_of(
    x: Any, out: Any, kernel: tuple[int, int], pad: tuple[int, int], properties: cb.DeviceProperties
) -> tuple[WidePlan, int] | None:
    """How (planes, height, width) are cut, and tiles of a row; None if windows are too tall for
    shared memory.
    """
    lanes = 4
    whole = not (x.shape[2] % lanes or address(x) % (lanes * x.itemsize))
    lines, ends = -(-x.shape[2] // lanes), -(-(out.shape[2] + kernel[1] - 1 - pad[1]) // lanes)
    found = []
    if lines <= MOST_UNITS:
        more = max(0, ends - lines)
        for groups in range(1, min(8, x.shape[0]) + 1):
            found.append((WidePlan(*kernel, lines, groups, 0, more, lanes, whole, False), 1))
    halo = behind(kernel[1], 0, lanes)[0]
    for wide in (32, 64, 128, 256):
        if halo < wide // 2 and wide < ends:
            tiles = 1 + -(-(ends - wide) // (wide - halo))
            found.append((WidePlan(*kernel, wide, 1, halo, 0, lanes, whole, True), tiles))
    room = properties.max_shared_memory // TOGETHER
    found = [
        (plan, tiles) for plan, tiles in found if plan.units <= MOST_UNITS and plan.nbytes <= room
    ]
    if not found:
        return None
    return max(found, key=lambda one: use(*one, lines))  # type: ignore[call-arg]


def use(plan: WidePlan, tiles: int, lines: int) -> float:
    """The share of a cube's units that make results; less where cubes are small or large."""
    share = lines * plan.groups / (tiles * plan.units)
    return share * (0.9 if plan.units < LEAST_UNITS else 1 - plan.units / 10 / MOST_UNITS)


def fits(
    x: Any, out: Any, kernel: tuple[int, int], pad: tuple[int, int], properties: cb.DeviceProperties
) -> bool:
    """Whether `run` can do it: elements of up to 4 bytes, and windows so tall that shared memory
    holds them.
    """
    return x.itemsize <= 4 and plan_of(x, out, kernel, pad, properties) is not None


def run(
    x: Any,
    out: Any,
    kernel: tuple[int, int],
    pad: tuple[int, int],
    least: Any,
    properties: cb.DeviceProperties,
) -> None:
    """Largest values of windows of (planes, height, width), with stride 1 and without gaps, that
    fit.
    """
    planned = plan_of(x, out, kernel, pad, properties)
    assert planned is not None, "ask `fits` first"
    plan, tiles = planned
    acc = cb.f32 if x.itemsize == 2 and x.dtype.kind not in "iu" else cb.as_dtype(x.dtype)
    chunks = -(-(out.shape[1] + kernel[0] - 1 - pad[0]) // ROWS)
    teams = -(-x.shape[0] // plan.groups)
    bands = max(1, min(-(-CUBES // (teams * tiles)), chunks // max(1, 4 * plan.slots)))
    each = -(-chunks // bands)
    bands = -(-chunks // each)
    arrays = (x.reshape(-1), x.shape, out.reshape(-1), out.shape)
    largest_wide[teams * bands * tiles, plan.units](
        *arrays, pad, (tiles, bands, each), least, acc, plan, mode="unchecked"
    )
