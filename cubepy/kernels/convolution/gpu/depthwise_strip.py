"""The tile of a unit in depthwise convolutions on a GPU: which pixels see which, and the walk down
its rows.

Which pixels see which is worked out when the kernel is compiled. That serves the gradient by the
input too: pixel i sees tap k of the gradient's pixel (i + pad - k dilation) / stride, if that is
whole.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.runtime.symbolic.cached import cached

TAPS = 49
"""Taps of a window, at most: their values stay in registers."""

UNITS = 256
"""Units of a cube, at most."""
LONG = (14, 8, 7, 4, 2, 1)
"""Rows and pixels of a unit tile."""
MADE = 64
"""Pixels of a unit tile, at most: with more, a core waits for instructions."""
WRITTEN_OUT = 25
"""Taps whose products are written out for all rows of a unit tile, at most."""
FETCHED = 2500
"""Instructions of a unit tile that come as fast as they run: with more they are waited for."""

Pairs = tuple[tuple[int, int, int], ...]
Settings = tuple[tuple[int, int], ...]
Row = tuple[int, tuple[int, ...], tuple[tuple[int, int], ...], tuple[int, ...]]


@cached
def along(count: int, window: int, stride: int, dilation: int, pad: int, back: bool) -> Pairs:
    """`Unit tile.seen` along an axis."""
    found = []
    for at, tap in itertools.product(range(count), range(window)):
        if not back:
            found.append((at * stride + tap * dilation - pad, at, tap))
        elif (at + pad - tap * dilation) % stride == 0:
            found.append(((at + pad - tap * dilation) // stride, at, tap))
    return tuple(sorted(found))


@dataclass(frozen=True)
class UnitTile:
    """What changes the code.

    Attributes:
        tile: images, rows and columns of the output that a cube does.
        channels: of a cube.
        lanes: of a line of channels.
        rows, pixels: of the output, of a unit's tile.
        window, stride, dilation, pad: along height and width.
        back: whether the output is the gradient by the input; the input then is the gradient.
        activation: a func of the result, or None.
        cubes: of a core.
        rolled: whether the window's rows are a loop, each of which reads its rows of the box again,
            instead of all written out.
        parts: units among which the rows of the window are shared, for the gradient by the filters.
        exact: whether tiles divide the output.
    """

    tile: tuple[int, int, int]
    channels: int
    lanes: int
    rows: int
    pixels: int
    window: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    back: bool = False
    activation: Any = None
    cubes: int = 4
    rolled: bool = False
    parts: int = 1
    exact: bool = False

    def seen(self, axis: int, count: int) -> Pairs:
        """Triples of a pixel of the input, one of the first `count` of the output that see it, and
        the tap.
        """
        return along(
            count,
            self.window[axis],
            self.stride[axis],
            self.dilation[axis],
            self.pad[axis],
            self.back,
        )

    def low(self, axis: int) -> int:
        """The first pixel of the input that a tile at the beginning of the output sees."""
        return next((i for i, _, _ in self.seen(axis, self.tile[1 + axis])), 0)

    def reach(self, axis: int) -> int:
        """Pixels of the input from there on."""
        seen = self.seen(axis, self.tile[1 + axis])
        return seen[-1][0] - seen[0][0] + 1 if seen else 1

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Of the input: images, rows, columns and channels."""
        return self.tile[0], self.reach(0), self.reach(1), self.channels

    @property
    def lines(self) -> int:
        """Of channels."""
        return self.channels // self.lanes

    @property
    def unit_tiles(self) -> tuple[int, int, int]:
        """Of a tile, along its sides."""
        return self.tile[0], self.tile[1] // self.rows, self.tile[2] // self.pixels

    @property
    def units(self) -> int:
        """Of a cube."""
        beside = self.lines * self.parts
        return max(1, min(UNITS // beside, math.prod(self.unit_tiles))) * beside

    def counts(self, n: int, out_size: tuple[int, ...], channels: int) -> tuple[int, int, int, int]:
        """Tiles along the images, the height and the width of the output, and blocks of
        channels.
        """
        sides = zip((n, *out_size, channels), (*self.tile, self.channels), strict=True)
        return tuple(-(-a // b) for a, b in sides)  # type: ignore[return-value]

    def rows_seen(self) -> tuple[Row, ...]:
        """The rows of a box that a unit tile sees: each with the rows of the unit tile that see it
        first, pairs of a row of the unit tile and of the window, and the rows of the unit tile that
        see it last.
        """
        pairs, low = self.seen(0, self.rows), self.low(0)
        found = []
        ends = [[i for i, at, _ in pairs if at == r] or [low] for r in range(self.rows)]
        for i in sorted({i for some in ends for i in some}):
            begun, done = (
                tuple(r for r, some in enumerate(ends) if end(some) == i) for end in (min, max)
            )
            found.append((i - low, begun, tuple((r, u) for k, r, u in pairs if k == i), done))
        return tuple(found)

    @property
    def columns_seen(self) -> int:
        """How many columns of a box a unit tile sees."""
        return (self.seen(1, self.pixels) or ((self.low(1), 0, 0),))[-1][0] - self.low(1) + 1

    def pixels_seen(self) -> Pairs:
        """Of these columns triples as `seen` gives."""
        return tuple((j - self.low(1), p, v) for j, p, v in self.seen(1, self.pixels))


@cb.func
def begin_at(at, axis: cb.Comptime[int], plan: cb.Comptime[UnitTile]):
    """Where the input begins for pixels from `at` on."""
    return at // plan.stride[axis] if plan.back else at * plan.stride[axis]


@cb.func
def seen_lines(tile, at, wide: cb.Comptime[int], plan: cb.Comptime[UnitTile]):
    """Neighbouring lines of channels in f32, from element `at` on."""
    lines = tuple(
        cb.cast(tile.load(at + j * plan.channels, plan.lanes), cb.f32)
        for j in cb.unroll(range(wide))
    )
    return lines


@cb.func
def store_row(acc, r: cb.Comptime[int], out, left, step, corner, plan: cb.Comptime[UnitTile]):
    """A row of a unit tile to the output, what of it lies there."""
    for p in cb.unroll(range(plan.pixels)):
        if plan.exact or (r < left[0] and p < left[1]):
            value = acc[r * plan.pixels + p]
            if plan.activation is not None:
                value = plan.activation(value)
            out.store(corner + r * step[0] + p * step[1], cb.cast(value, out.dtype))


@cb.func
def walk(tile, scale, line, start, out, at, left, step, corner, plan: cb.Comptime[UnitTile]):
    """A unit tile: its box begins at element `at` of the tile, its output at `corner`; `left` rows
    and columns of it are in the array, where pixels are `step` elements apart. Taps lie in `scale`,
    from `line` on.
    """
    wide, pairs = plan.columns_seen, plan.pixels_seen()
    columns = plan.window[1]
    acc = cb.local(plan.rows * plan.pixels, cb.f32, lanes=plan.lanes)
    for k in cb.unroll(range(plan.rows * plan.pixels)):
        acc[k] = start
    if plan.rolled:
        for u in range(plan.window[0]):
            scales = tuple(
                scale.load((u * columns + v) * plan.channels + line, plan.lanes)
                for v in cb.unroll(range(columns))
            )
            below = (plan.window[0] - 1 - u if plan.back else u) * plan.dilation[0]
            for r in cb.unroll(range(plan.rows)):
                row = (below + r * (1 if plan.back else plan.stride[0])) * (
                    plan.box[2] * plan.channels
                )
                lines = seen_lines(tile, at + row, wide, plan)
                for j, p, v in cb.unroll(pairs):
                    acc[r * plan.pixels + p] = cb.fma(lines[j], scales[v], acc[r * plan.pixels + p])
        for r in cb.unroll(range(plan.rows)):
            store_row(acc, r, out, left, step, corner, plan)
    else:
        scales = tuple(
            scale.load(k * plan.channels + line, plan.lanes)
            for k in cb.unroll(range(plan.window[0] * columns))
        )
        for i, _, rows, done in cb.unroll(plan.rows_seen()):
            lines = seen_lines(tile, at + i * (plan.box[2] * plan.channels), wide, plan)
            for r, u in cb.unroll(rows):
                for j, p, v in cb.unroll(pairs):
                    k = r * plan.pixels + p
                    acc[k] = cb.fma(lines[j], scales[u * columns + v], acc[k])
            for r in cb.unroll(done):
                store_row(acc, r, out, left, step, corner, plan)


def instructions(plan: UnitTile, itemsize: int, given: int = 0) -> float:
    """Of a unit for a unit tile, about; `given` lines are read of the gradient."""
    rows, columns = plan.seen(0, plan.rows), plan.seen(1, plan.pixels)
    read = plan.window[0] * plan.rows if plan.rolled else len({i for i, _, _ in rows})
    seen, taps = plan.columns_seen, len(rows) * len(columns)
    return (
        (read * seen + given) * (1 + plan.lanes * (itemsize == 2))
        + taps * plan.lanes
        + 4 * plan.rows * plan.pixels
        + 150
    )


def problem_back(
    size: Any, window: Any, sizes: Any, stride: Any, cut: Any, dilation: Any
) -> Problem:
    """A transposed convolution of some size to some sizes in three axes; `cut` is what the padding
    takes away.
    """
    ones, zeros = (1,) * (3 - len(sizes)), (0,) * (3 - len(sizes))
    settings = (ones + tuple(stride), zeros + tuple(cut), ones + tuple(dilation))
    return Problem(ones + tuple(size), ones + tuple(window), *settings, ones + tuple(sizes))  # type: ignore[arg-type]


COLUMNS, ROWS = 32, 16
"""Sums that a cube adds side by side, and units for each."""


@cb.func
def add_unit_tile(acc, tile, at, given, beside, plan: cb.Comptime[UnitTile]):
    """The products of a unit tile: its box begins at element `at` of the tile, its gradient at
    `beside` of the other.
    """
    pixels = plan.pixels
    wide, pairs = plan.columns_seen, plan.pixels_seen()
    down = plan.box[2] * plan.channels
    if plan.parts > 1:  # `at` is where a row of the window begins
        for r in cb.unroll(range(plan.rows)):
            grads = seen_lines(given, beside + r * plan.tile[2] * plan.channels, pixels, plan)
            lines = seen_lines(tile, at + r * plan.stride[0] * down, wide, plan)
            for j, p, v in cb.unroll(pairs):
                acc[v] = cb.fma(lines[j], grads[p], acc[v])
    else:
        held = cb.local(plan.rows * pixels, cb.f32, lanes=plan.lanes)
        for i, begun, rows, _ in cb.unroll(plan.rows_seen()):
            for r in cb.unroll(begun):
                grads = seen_lines(given, beside + r * plan.tile[2] * plan.channels, pixels, plan)
                for p in cb.unroll(range(pixels)):
                    held[r * pixels + p] = grads[p]
            lines = seen_lines(tile, at + i * down, wide, plan)
            for r, u in cb.unroll(rows):
                for j, p, v in cb.unroll(pairs):
                    k = u * plan.window[1] + v
                    acc[k] = cb.fma(lines[j], held[r * pixels + p], acc[k])


@cb.kernel
def add_columns(sums: cb.Array, out: cb.Array):
    """out[i] = sum over ranges of sums[range, i]; a cube does a few neighbours, units below each
    other some ranges.
    """
    scratch = cb.shared((ROWS, COLUMNS), cb.f32)
    column, row = cb.UNIT_POS % COLUMNS, cb.UNIT_POS // COLUMNS
    at = cb.CUBE_POS * COLUMNS + column
    total = cb.cast(0.0, cb.f32)
    if at < out.shape[0]:
        for k in range(row, sums.shape[0], ROWS):
            total = total + sums[k, at]
    scratch[row, column] = total
    cb.sync_cube()
    if row == 0 and at < out.shape[0]:
        for k in cb.unroll(range(1, ROWS)):
            total = total + scratch[k, column]
        out[at] = cb.cast(total, out.dtype)


def flat_settings(problem: Problem, *arrays: Any) -> Any:
    """Window, stride, dilation and padding of images or lines, channels first and one after the
    other in memory, and the line that suits them; None for others.
    """
    flat = (
        problem.window[0] == problem.stride[0] == problem.out[0] == problem.size[0] == 1
        and problem.pad[0] == 0
    )
    if (
        not flat
        or math.prod(problem.window) > TAPS
        or not all(a.flags.c_contiguous for a in arrays)
    ):
        return None
    if any(
        a.itemsize not in (2, 4) or a.size >= 1 << 31 or a.dtype != arrays[0].dtype for a in arrays
    ):
        return None
    settings = tuple(
        tuple(a[1:]) for a in (problem.window, problem.stride, problem.dilation, problem.pad)
    )
    return settings, min(line_of(a.reshape(-1)) for a in arrays)
