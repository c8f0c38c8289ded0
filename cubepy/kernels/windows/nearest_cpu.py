"""Nearest neighbours on a CPU: every result is one position of the input.

A row of results is made once for every row of the input that it comes from, and copied for the
others. With channels first, results twice or four times as many come from lines that are
interleaved with themselves.
"""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy.kernels.movement.pad import copy_run
from cubepy.kernels.primitives.vector_width import address, lanes_on
from cubepy.kernels.windows.banded import Band, noted
from cubepy.kernels.windows.direct_cpu import LINE, STREAM, pays_streaming
from cubepy.kernels.windows.problem import Banded, ImageRoutine

CUBES = 32  # at least, so that threads finish together
ROWS = 16  # rows of a cube, at most
FACTORS = (1, 2, 4)  # by which lines are widened


@cb.kernel
def pick_pixels(
    x: cb.Array,
    out: cb.Array,
    channels,
    rows: cb.Array,
    columns: cb.Array,
    band_rows,
    streaming: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """out[b, i, j * channels + c] = x[b, rows[i], columns[j] * channels + c]; a cube does
    `band_rows` rows.
    """
    bands = (out.shape[1] + band_rows - 1) // band_rows
    b = cb.CUBE_POS // bands
    top = cb.CUBE_POS % bands * band_rows
    many = 4 * lanes
    begin = channels // many * many
    for i in range(top, cb.min(top + band_rows, out.shape[1])):
        y = rows[i]
        if channels < lanes and i > top and y == rows[cb.max(i - 1, 0)]:
            copy_run(out, (b, i - 1), 0, out, (b, i), 0, out.shape[2], lanes)
        else:
            for j in range(out.shape[2] // channels):
                at, to = columns[j] * channels, j * channels
                for c in range(0, begin, many):
                    wide = x.load((b, y, at + c), many)
                    for k in cb.unroll(range(0, many, lanes)):
                        if streaming:
                            out.store_stream((b, i, to + c + k), cb.slice_line(wide, k, lanes))
                        else:
                            out.store((b, i, to + c + k), cb.slice_line(wide, k, lanes))
                if streaming:
                    for c in range(begin, channels, lanes):
                        out.store_stream((b, i, to + c), x.load((b, y, at + c), lanes))
                elif begin < channels:
                    copy_run(
                        x, (b, y), at + begin, out, (b, i), to + begin, channels - begin, lanes
                    )


@cb.func
def widened(line, factor: cb.Comptime[int]):
    """Every lane `factor` times."""
    if factor == 1:
        return line
    twice = cb.interleave(line, line)
    return twice if factor == 2 else cb.interleave(twice, twice)


@cb.kernel
def pick_planes(
    x: cb.Array,
    out: cb.Array,
    rows: cb.Array,
    columns: cb.Array,
    band_rows,
    factor: cb.Comptime[int],
    streaming: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """out[p, i, j] = x[p, rows[i], columns[j]]; a cube does `band_rows` rows.

    Unless `factor` is 0, columns[j] = j // factor and a row is whole lines of `factor * lanes`.
    """
    bands = (out.shape[1] + band_rows - 1) // band_rows
    p = cb.CUBE_POS // bands
    top = cb.CUBE_POS % bands * band_rows
    for i in range(top, cb.min(top + band_rows, out.shape[1])):
        y = rows[i]
        if factor > 0:
            for k in range(0, x.shape[2], lanes):
                wide = widened(x.load((p, y, k), lanes), factor)
                for q in cb.unroll(range(factor)):
                    line = cb.slice_line(wide, q * lanes, lanes)
                    if streaming:
                        out.store_stream((p, i, k * factor + q * lanes), line)
                    else:
                        out.store((p, i, k * factor + q * lanes), line)
        elif i > top and y == rows[cb.max(i - 1, 0)]:
            copy_run(out, (p, i - 1), 0, out, (p, i), 0, out.shape[2], lanes)
        else:
            for j in range(out.shape[2]):
                out[p, i, j] = x[p, y, columns[j]]


def _band_rows(rows: int, images: int) -> int:
    return max(1, min(ROWS, rows, rows * images // CUBES))


class Nearest(ImageRoutine):
    """Every result is one position of the input."""

    name = "nearest"

    def unfit_image(self, p: Banded, properties: cb.DeviceProperties) -> str | None:
        """Rows of bands with one weight, which is 1."""
        picks = all(band.picks for band in p.image[2:])
        return None if picks else "results are no positions of the input"

    def launch(self, p: Banded, properties: cb.DeviceProperties) -> None:
        """A cube does some rows."""
        x, out, down, across = p.image
        lanes, band_rows = lanes_on(properties, x), _band_rows(out.shape[1], out.shape[0])
        cubes, tables = out.shape[0] * -(-out.shape[1] // band_rows), (down.starts, across.starts)
        if p.last:
            flat = [a.reshape(*a.shape[:2], -1) for a in (x, out)]
            stream = pays_streaming(out, lanes, x)
            pick_pixels[cubes, 1](
                *flat, x.shape[3], *noted(*tables), band_rows, stream, lanes, mode="unchecked"
            )
            return
        factor = widening(across, x.shape[2], out.shape[2], lanes)
        even = factor > 0 and lanes * out.itemsize == LINE and address(out) % LINE == 0
        stream = even and out.nbytes + x.nbytes >= STREAM
        how = (band_rows, factor, stream, lanes)
        pick_planes[cubes, 1](x, out, *noted(*tables), *how, mode="unchecked")


def widening(across: Band, width: int, wide: int, lanes: int) -> int:
    """How many times each lane of whole lines is repeated, or 0."""
    factor = wide // width if width % lanes == 0 and wide % width == 0 else 0
    if factor not in FACTORS or not np.array_equal(
        across.starts, np.arange(wide) // max(factor, 1)
    ):
        return 0
    return factor
