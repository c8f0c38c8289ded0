"""Two banded maps at once on a CPU: down the columns of an image into a buffer in cache, then along
its rows.

A row of the result is a weighted sum of rows, in which lines lie along the memory, and then every
position is a weighted sum of neighbours. With channels last those are lines of channels. With
channels first a unit does as many rows as a line has lanes and turns them, so that a line holds one
position of each.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.register_transpose import transpose_lines
from cubepy.kernels.windows.banded import Table
from cubepy.kernels.windows.problem import Banded, ImageRoutine

SPACE = 1 << 16  # bytes of the buffer of channels last: a part of the second-level cache
FEW = (1, 2, 4)  # terms of a sum that are written out
WIDEST = 4096  # columns of channels first, at most


@cb.func
def added(total, line, w, acc: cb.Comptime, sure: cb.Comptime[bool]):
    """The total and w times a line; what has no part must not spread NaN, unless it is `sure` that
    there is none.
    """
    more = cb.cast(line, acc) * w
    if sure:
        return total + more
    return total + cb.select(w != 0, more, cb.cast(cb.splat(0.0, line.lanes), acc))


@cb.struct
class Sum:
    """Row i of a map along the columns of plane p of x: a sum of `taps` of its rows, from row
    `first` on.

    `few` terms are written out (0: none), and `sure`: all of them count.
    """

    x: Any
    p: Any
    i: Any
    weights: Any
    first: Any
    taps: Any
    few: cb.Comptime[int]
    sure: cb.Comptime[bool]
    acc: cb.Comptime[Any]

    def line(self, at, lanes: cb.Comptime[int], valid=None):
        """`lanes` neighbours from `at` on."""
        x, p, i, first, weights = self.x, self.p, self.i, self.first, self.weights
        total = cb.cast(cb.splat(0.0, lanes), self.acc)
        if self.few > 0:
            for k in cb.unroll(range(self.few)):
                row = cb.min(first + k, x.shape[1] - 1)
                line = x.load((p, row, at), lanes, valid=valid)
                total = added(total, line, weights[i, k], self.acc, self.sure)
        else:
            for k in range(self.taps):
                w = weights[i, k]
                if w != 0:
                    line = x.load((p, first + k, at), lanes, valid=valid)
                    total = added(total, line, w, self.acc, True)
        return total

    def into(self, start, count, buffer, to, spacing: cb.Comptime[int], lanes: cb.Comptime[int]):
        """The row from `start` on, into the buffer from `to` on; its lines are `spacing` there.

        The last line is read whole where memory goes on behind it: what is too much is never looked
        at.
        """
        whole = count if self.p + 1 < self.x.shape[0] else count // lanes * lanes
        many = 4 * lanes
        begin = 0
        if spacing == lanes:
            begin = count // many * many
            for c in range(0, begin, many):
                buffer.store(to + c, self.line(start + c, many))
        for c in range(begin, whole, lanes):
            buffer.store(to + c // lanes * spacing, self.line(start + c, lanes))
        if whole < count:
            line = self.line(start + whole, lanes, count - whole)
            buffer.store(to + whole // lanes * spacing, line)


@cb.func
def sum_of(x, p, i, down, few: cb.Comptime[int], sure: cb.Comptime[bool], acc):
    """Row i of a map along the columns of plane p."""
    first = down.starts[i]
    taps = cb.min(down.weights.shape[1], x.shape[1] - first)
    return Sum(x, p, i, down.weights, first, taps, few, sure, acc)


@cb.func
def weighted_lines(
    buffer,
    at,
    spacing,
    weights,
    j,
    taps,
    few: cb.Comptime[int],
    sure: cb.Comptime[bool],
    acc: cb.Comptime,
    lanes: cb.Comptime[int],
):
    """The sum over k of weights[j, k] * the line of the buffer at at + k * spacing."""
    total = cb.cast(cb.splat(0.0, lanes), acc)
    if few > 0:
        for k in cb.unroll(range(few)):
            total = added(total, buffer.load(at + k * spacing, lanes), weights[j, k], acc, sure)
    else:
        for k in range(taps):
            w = weights[j, k]
            if w != 0:
                total = added(total, buffer.load(at + k * spacing, lanes), w, acc, True)
    return total


@cb.kernel
def band_pixels(
    x: cb.Array,
    out: cb.Array,
    channels,
    down: Table,
    across: Table,
    chunk,
    sums: cb.Comptime[tuple],
    room: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """x (b, height, width * channels) -> out (b, h, w * channels); a cube does `chunk` positions of
    a row. sums: as `_written_out` gives them, and their dtype.
    """
    few, sure, acc = sums
    width, positions = x.shape[2] // channels, out.shape[2] // channels
    chunks = (positions + chunk - 1) // chunk
    j0 = cb.CUBE_POS % chunks * chunk
    i = cb.CUBE_POS // chunks % out.shape[1]
    b = cb.CUBE_POS // chunks // out.shape[1]
    buffer = cb.shared(room, acc)
    j1 = cb.min(j0 + chunk, positions)
    left = across.starts[j0]
    right = cb.min(width, across.starts[j1 - 1] + across.weights.shape[1])
    row = sum_of(x, b, i, down, few, sure, acc)
    row.into(left * channels, (right - left) * channels, buffer, 0, lanes, lanes)
    many = 4 * lanes
    begin, whole = channels // many * many, channels // lanes * lanes
    for j in range(j0, j1):
        at = (across.starts[j] - left) * channels
        taps = cb.min(across.weights.shape[1], width - across.starts[j])
        for c in range(0, begin, many):
            wide = weighted_lines(
                buffer, at + c, channels, across.weights, j, taps, few, sure, acc, many
            )
            out.store((b, i, j * channels + c), cb.cast(wide, out.dtype))
        for c in range(begin, whole, lanes):
            line = weighted_lines(
                buffer, at + c, channels, across.weights, j, taps, few, sure, acc, lanes
            )
            out.store((b, i, j * channels + c), cb.cast(line, out.dtype))
        if whole < channels:
            line = weighted_lines(
                buffer, at + whole, channels, across.weights, j, taps, few, sure, acc, lanes
            )
            out.store(
                (b, i, j * channels + whole), cb.cast(line, out.dtype), valid=channels - whole
            )


@cb.kernel
def band_planes(
    x: cb.Array,
    out: cb.Array,
    high,
    down: Table,
    across: Table,
    few: cb.Comptime[int],
    sure: cb.Comptime[bool],
    acc: cb.Comptime,
    room: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """x (planes, height, width) -> out (planes * high, w); a cube does `lanes` rows of the
    result.
    """
    width, rows = x.shape[2], out.shape[0]
    first = cb.CUBE_POS * lanes
    many = cb.min(lanes, rows - first)
    buffer = cb.shared(room * lanes, acc)
    held = cb.local(lanes, acc, lanes=lanes)
    for r in range(many):
        t = first + r
        # squares of lines: line r of the square of columns c, c + 1, ...
        row = t // high
        one = sum_of(x, row, t - row * high, down, few, sure, acc)
        one.into(0, width, buffer, r * lanes, lanes * lanes, lanes)
    for c in range(0, width, lanes):
        lines = ()
        for r in cb.unroll(range(lanes)):
            lines = lines + (buffer.load((c + r) * lanes, lanes),)
        lines = transpose_lines(lines, lanes)
        for r in cb.unroll(range(lanes)):
            buffer.store((c + r) * lanes, lines[r])
    for j0 in range(0, out.shape[1], lanes):
        wide = cb.min(lanes, out.shape[1] - j0)
        for q in range(wide):
            start = across.starts[j0 + q]
            taps = cb.min(across.weights.shape[1], width - start)
            held[q] = weighted_lines(
                buffer, start * lanes, lanes, across.weights, j0 + q, taps, few, sure, acc, lanes
            )
        lines = ()
        for q in cb.unroll(range(lanes)):
            lines = lines + (held[q],)
        lines = transpose_lines(lines, lanes)
        for r in cb.unroll(range(lanes)):
            held[r] = lines[r]
        for r in range(many):
            if wide == lanes:
                out.store((first + r, j0), cb.cast(held[r], out.dtype))
            else:
                out.store((first + r, j0), cb.cast(held[r], out.dtype), valid=wide)


def _written_out(*bands: Any) -> tuple[int, bool]:
    """How many terms of a sum are written out, or 0, and whether all of them count."""
    taps = max(band.weights.shape[1] for band in bands)
    few = next((n for n in FEW if n >= taps), 0)
    return few, few > 0 and all(
        band.weights.shape[1] == few and band.weights.all() for band in bands
    )


class Separable(ImageRoutine):
    """Sums down the rows go into a buffer, of which sums across are made."""

    name = "separable"

    def unfit_image(self, p: Banded, properties: cb.DeviceProperties) -> str | None:
        """Whether there is room for it."""
        if p.last:
            return None if chunk_of(p, properties) else "there is no room for so many channels"
        if properties.lanes(p.acc) < 2:
            return "for lines of several lanes"
        return None if room_of(p, properties) else "there is no room for a row"

    def launch(self, p: Banded, properties: cb.DeviceProperties) -> None:
        """A cube does a part of a row, or as many rows as a line has lanes."""
        (x, out, *bands), lanes = p.image, properties.lanes(p.acc)
        few, sure = _written_out(*bands)
        tables = (band.table(p.acc, few) for band in bands)
        if p.last:
            flat = [a.reshape(*a.shape[:2], -1) for a in (x, out)]
            chunk, room = chunk_of(p, properties), SPACE // p.acc.itemsize
            cubes = out.shape[0] * out.shape[1] * -(-out.shape[2] // chunk)
            band_pixels[cubes, 1](
                *flat, x.shape[3], *tables, chunk, (few, sure, p.acc), room, lanes, mode="unchecked"
            )
            return
        rows, room = out.reshape(-1, out.shape[2]), room_of(p, properties)
        band_planes[-(-rows.shape[0] // lanes), 1](
            x, rows, out.shape[1], *tables, few, sure, p.acc, room, lanes, mode="unchecked"
        )


def chunk_of(p: Banded, properties: cb.DeviceProperties) -> int:
    """How many neighbouring pixels of a row of results find room in the buffer, 0: not one."""
    room, (*_, down, across) = SPACE // p.acc.itemsize, p.image
    few, lanes = _written_out(down, across)[0], properties.lanes(p.acc)
    return across.chunk((room - 8 * lanes) // p.x.shape[-1] - few)


def room_of(p: Banded, properties: cb.DeviceProperties) -> int:
    """How many numbers of a row with channels first the buffer has room for, 0: not enough."""
    x, _, *bands = p.image
    least = x.shape[2] + properties.lanes(p.acc) + _written_out(*bands)[0]
    return next((n for n in (256, WIDEST) if n >= least), 0)
