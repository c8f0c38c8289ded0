"""Launches of `max_separable`: how rows and columns of windows are cut."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.pooling.cpu.max_separable import (
    CUBES,
    LINE,
    ROOM,
    STREAM,
    TAPS,
    Bands,
    max_bands,
)
from cubepy.kernels.pooling.problem import MaxPool
from cubepy.kernels.primitives.vector_width import address
from cubepy.tune import CpuRoutine


def together(taps: int, count: int) -> int:
    """How many of `count` neighbouring windows of so many positions are done at once, if they are
    one position apart.
    """
    group = 4 if taps > 3 else 2
    return group if taps > 1 and count >= 2 * group else 1


class Cut(NamedTuple):
    """Lanes and the dtype of what is kept; steps along a row, of which `skip` are never looked at,
    from window to window and from position to position; windows of a row that there is room for.
    """

    acc: Any
    lanes: int
    skip: int
    step: int
    spacing: int
    fit: int


def cut_of(p: MaxPool, properties: cb.DeviceProperties) -> Cut:
    """How rows of windows are looked at."""
    kernel, stride, _, dilation = p.settings
    dtype = cb.as_dtype(p.out.dtype)
    acc = cb.f32 if dtype.is_float and dtype.bits == 16 else dtype
    return cut(acc, properties.lanes(acc), kernel[2], stride[2], dilation[2], p.out.shape[4])


@lru_cache(1024)
def cut(acc: Any, lanes: int, taps: int, stride: int, dilation: int, channels: int) -> Cut:
    """The same of a window along a row."""
    skip = math.gcd(stride, dilation) if taps > 1 else stride
    step, spacing = stride // skip, dilation // skip if taps > 1 else 1
    room = ROOM // acc.itemsize
    fit = ((room - lanes * step) // channels - (taps - 1) * spacing - 1) // step + 1
    return Cut(acc, lanes, skip, step, spacing, fit)


class Separable(CpuRoutine):
    """Strips of windows: the largest down the columns, then of these along the row."""

    name = "separable"

    def unfit(self, p: MaxPool, properties: cb.DeviceProperties) -> str | None:
        """Values of windows of few rows, and columns and channels that the buffer has room for."""
        if p.index is not None or p.parts:
            return "for values of windows"
        kernel = p.settings[0]
        if kernel[0] * kernel[1] > TAPS or kernel[2] > TAPS:
            return f"for windows of at most {TAPS} rows and columns"
        cut = cut_of(p, properties)
        if p.x.shape[4] == 1 and cut.lanes * max(cut.step, cut.skip) > 64:
            return "windows are too far apart for lines"
        return "there is no room for rows" if cut.fit < min(4, p.out.shape[3]) else None

    def launch(self, p: MaxPool, properties: cb.DeviceProperties) -> None:
        """A cube does some rows by some columns of windows."""
        x, out, (kernel, stride, pad, dilation) = p.x, p.out, p.settings
        acc, lanes, skip, step, spacing, fit = cut_of(p, properties)
        planes, channels, room = x.shape[0], x.shape[4], ROOM // acc.itemsize
        single = channels == 1
        columns = min(fit, out.shape[3])
        even = LINE // math.gcd(LINE, channels * out.itemsize)
        if columns < out.shape[3] and columns >= even:
            columns -= columns % even
        blocks = -(-out.shape[3] // columns)
        rows = together(kernel[1], out.shape[2]) if stride[1] == dilation[1] else 1
        wide = together(kernel[2], columns) if step == spacing and channels % lanes == 0 else 1
        band_rows = max(
            1, min(out.shape[2], 64, out.shape[2] * blocks * out.shape[0] * out.shape[1] // CUBES)
        )
        row = out.shape[3] * channels * out.itemsize
        streaming = (
            out.nbytes >= STREAM
            and lanes * out.itemsize == LINE
            and not (address(out) % LINE or row % LINE or columns * channels * out.itemsize % LINE)
            and (step == 1 or single or channels % lanes == 0)
        )
        band_rows = -(-band_rows // rows) * rows
        again = stride[1] % dilation[1] == 0 and stride[1] // dilation[1] < kernel[1]
        fresh = (
            rows * stride[1] // dilation[1] if again else kernel[1]
        )  # rows of windows that those above have not
        cubes = planes * out.shape[1] * -(-out.shape[2] // band_rows) * blocks
        plan = Bands(
            tuple(kernel),
            (*dilation[:2], spacing),
            rows,
            wide,
            fresh,
            step,
            skip,
            p.least,
            acc,
            room,
            lanes,
            single,
            streaming,
        )
        max_bands[cubes, 1](
            x.reshape(*x.shape[:3], -1),
            out.reshape(*out.shape[:3], -1),
            channels,
            tuple(stride[:2]),
            tuple(pad),
            columns,
            band_rows,
            plan,
            mode="unchecked",
        )
