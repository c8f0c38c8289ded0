"""Banded maps with channels last on a CPU, where few positions of the input count: all of them are
read for each result.

Nothing is kept between, which is less work than one axis after the other where windows hardly
overlap (see `pays`).
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.vector_width import address
from cubepy.kernels.windows.banded import Table
from cubepy.kernels.windows.problem import Banded, ImageRoutine

MOST = 16  # positions of a result that are written out
STREAM = 12 << 20  # bytes, read and written, beyond which a result is stored past the caches
LINE = 64  # bytes of a cache line


@cb.struct
class Positions:
    """The positions of the input that a result sees: rows and columns of image b, with weights."""

    x: Any
    b: Any
    rows: Any
    columns: Any
    weights: Any


@cb.func
def put(out, to, at, line, streaming: cb.Comptime[bool]):
    """A line of the result: of the image and the row `to`, from element `at` on."""
    b, i = to
    if streaming:
        out.store_stream((b, i, at), cb.cast(line, out.dtype))
    else:
        out.store((b, i, at), cb.cast(line, out.dtype))


@cb.func
def all_of(positions, c, acc: cb.Comptime, even: cb.Comptime[bool], lanes: cb.Comptime[int]):
    """The weighted sum of the positions rows x columns; with `even` they all have the first
    weight.
    """
    x, b, rows, columns = positions.x, positions.b, positions.rows, positions.columns
    weights = positions.weights
    total = cb.cast(cb.splat(0.0, lanes), acc)
    for u in cb.unroll(range(len(rows))):
        for v in cb.unroll(range(len(columns))):
            line = cb.cast(x.load((b, rows[u], columns[v] + c), lanes), acc)
            if not even:
                total = cb.fma(line, cb.splat(weights[u * len(columns) + v], lanes), total)
            else:
                total = total + line if u + v > 0 else line
    return total * weights[0] if even else total


@cb.func
def some_of(positions, c, acc: cb.Comptime, lanes: cb.Comptime[int]):
    """The same where some weights are zero: what has no part must not spread NaN."""
    x, b, rows, columns = positions.x, positions.b, positions.rows, positions.columns
    weights = positions.weights
    total = cb.cast(cb.splat(0.0, lanes), acc)
    for u in cb.unroll(range(len(rows))):
        for v in cb.unroll(range(len(columns))):
            w = weights[u * len(columns) + v]
            if w != 0:
                line = cb.cast(x.load((b, rows[u], columns[v] + c), lanes), acc)
                total = cb.fma(line, cb.splat(w, lanes), total)
    return total


@cb.func
def channels_of(
    positions,
    out,
    to,
    j,
    channels,
    acc: cb.Comptime,
    careful: cb.Comptime[bool],
    even: cb.Comptime[bool],
    streaming: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """All channels of a result, four lines at a time; the last line overlaps the one before."""
    begin = channels // (4 * lanes) * (4 * lanes)
    for c in range(0, begin, 4 * lanes):
        if careful:
            wide = some_of(positions, c, acc, 4 * lanes)
        else:
            wide = all_of(positions, c, acc, even, 4 * lanes)
        for k in cb.unroll(range(0, 4 * lanes, lanes)):
            put(out, to, j * channels + c + k, cb.slice_line(wide, k, lanes), streaming)
    for k in range(begin, channels, lanes):
        c = cb.min(k, channels - lanes)
        if careful:
            line = some_of(positions, c, acc, lanes)
        else:
            line = all_of(positions, c, acc, even, lanes)
        put(out, to, j * channels + c, line, streaming)


@cb.kernel
def band_positions(
    x: cb.Array,
    out: cb.Array,
    channels,
    down: Table,
    across: Table,
    taps: cb.Comptime[tuple],
    even: cb.Comptime[bool],
    acc: cb.Comptime,
    streaming: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """x (b, height, width * channels) -> out (b, h, w * channels); a cube does a row of the
    result.
    """
    high, wide = taps
    i = cb.CUBE_POS % out.shape[1]
    b = cb.CUBE_POS // out.shape[1]
    width = x.shape[2] // channels
    rows = ()
    full_row = True
    for u in cb.unroll(range(high)):
        rows = rows + (cb.min(down.starts[i] + u, x.shape[1] - 1),)
        full_row = full_row and down.weights[i, u] != 0
    for j in range(out.shape[2] // channels):
        columns = ()
        full = full_row
        for v in cb.unroll(range(wide)):
            columns = columns + (cb.min(across.starts[j] + v, width - 1) * channels,)
            full = full and across.weights[j, v] != 0
        weights = ()
        for u in cb.unroll(range(high)):
            for v in cb.unroll(range(wide)):
                weights = weights + (down.weights[i, u] * across.weights[j, v],)
        positions, to = Positions(x, b, rows, columns, weights), (b, i)
        if full:
            channels_of(positions, out, to, j, channels, acc, False, even, streaming, lanes)
        else:
            channels_of(positions, out, to, j, channels, acc, True, False, streaming, lanes)


class Direct(ImageRoutine):
    """All positions of each result are read, without sums down the rows in between."""

    name = "direct"

    def unfit_image(self, p: Banded, properties: cb.DeviceProperties) -> str | None:
        """Whether that costs less than a sum down the rows and one across."""
        if not p.last or p.x.shape[-1] < properties.lanes(p.acc):
            return "for lines of channels"
        x, out, down, across = p.image
        high, wide = down.weights.shape[1], across.weights.shape[1]
        ratio = x.shape[2] / out.shape[2]  # sums down the rows, for each result
        few = high * wide <= MOST and high * wide <= high * ratio + wide + ratio + 1
        return None if few else "windows share too many positions"

    def launch(self, p: Banded, properties: cb.DeviceProperties) -> None:
        """A cube does a row of the result."""
        (x, out, *bands), lanes = p.image, properties.lanes(p.acc)
        taps = tuple(band.weights.shape[1] for band in bands)
        even = all(bool((band.weights == band.weights[0, 0]).all()) for band in bands)
        flat = [a.reshape(*a.shape[:2], -1) for a in (x, out)]
        tables = (band.table(p.acc) for band in bands)
        stream = pays_streaming(out, lanes, x)
        band_positions[out.shape[0] * out.shape[1], 1](
            *flat, x.shape[3], *tables, taps, even, p.acc, stream, lanes, mode="unchecked"
        )


def pays_streaming(out: Any, lanes: int, *inputs: Any) -> bool:
    """Whether lines of channels, which are last, may and should be stored past the caches."""
    whole = lanes * out.itemsize == LINE and out.shape[-1] % lanes == 0
    return (
        whole and out.nbytes + sum(a.nbytes for a in inputs) >= STREAM and address(out) % LINE == 0
    )
