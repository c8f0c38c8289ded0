"""Linear maps along one axis after the other, forward and backward: averages, interpolation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import float_array, per_axis
from cubepy.kernels.entry.results import output
from cubepy.kernels.entry.shapes import as_new
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.primitives.vector_width import lanes_on
from cubepy.kernels.reduce.reduce import scaled_sum
from cubepy.kernels.windows.banded import Band
from cubepy.kernels.windows.direct_cpu import Direct
from cubepy.kernels.windows.nearest_cpu import Nearest
from cubepy.kernels.windows.problem import Banded
from cubepy.kernels.windows.rows_gpu import TAPS
from cubepy.kernels.windows.separable_cpu import Separable
from cubepy.kernels.windows.separable_gpu import Disjoint, Windows
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, Op, Routine

UNITS = 128
ROWS = 8  # rows of a cube where units are not threads
LAYOUTS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


@cb.kernel
def band_columns(
    x: cb.Array,
    out: cb.Array,
    starts: cb.Array,
    weights: cb.Array,
    acc: cb.Comptime,
    lanes: cb.Comptime[int],
):
    """out[b, j, c] = sum over k of weights[j, k] * x[b, starts[j] + k, c]; lines lie along c, a
    cube does one j.
    """
    m = out.shape[1]
    j = cb.CUBE_POS % m
    b = cb.CUBE_POS // m
    first = starts[j]
    taps = cb.min(weights.shape[1], x.shape[1] - first)
    for c in range(cb.UNIT_POS * lanes, out.shape[2], cb.CUBE_DIM * lanes):
        total = cb.cast(cb.splat(0.0, lanes), acc)
        for k in range(taps):
            w = weights[j, k]
            if w != 0:  # what has no part must not spread NaN
                total = total + cb.cast(x.load((b, first + k, c), lanes), acc) * cb.cast(w, acc)
        out.store((b, j, c), cb.cast(total, out.dtype))


@cb.kernel
def band_rows(
    x: cb.Array,
    out: cb.Array,
    starts: cb.Array,
    weights: cb.Array,
    acc: cb.Comptime,
    rows: cb.Comptime[int],
):
    """out[r, j] = sum over k of weights[j, k] * x[r, starts[j] + k]; a cube does `rows` rows."""
    for row in range(cb.CUBE_POS * rows, cb.min((cb.CUBE_POS + 1) * rows, out.shape[0])):
        for j in range(cb.UNIT_POS, out.shape[1], cb.CUBE_DIM):
            first = starts[j]
            total = cb.cast(0, acc)
            for k in range(cb.min(weights.shape[1], x.shape[1] - first)):
                w = weights[j, k]
                if w != 0:
                    total = total + cb.cast(x[row, first + k], acc) * cb.cast(w, acc)
            out[row, j] = cb.cast(total, out.dtype)


class Sums(Routine):
    """The mean of everything, by a reduction."""

    name = "sums"

    def supports(self, p: Banded, properties: cb.DeviceProperties) -> str | None:
        """One result, whose weights are equal; of few positions it is a window."""
        if p.x.dtype != p.out.dtype or not all(band.whole for band in p.bands):
            return "for the mean of everything"
        few = properties.plane_size > 1 and math.prod(b.columns for b in p.bands) <= TAPS
        return "windows are small" if few else None

    def launch(self, p: Banded, properties: cb.DeviceProperties) -> None:
        """The sum with a factor."""
        size = tuple(range(p.first, p.first + len(p.bands)))
        out = p.out.reshape(tuple(n for d, n in enumerate(p.out.shape) if d not in size))
        scaled_sum(p.x, size, out, math.prod(band.whole or 0.0 for band in p.bands))


class Depth(CpuRoutine):
    """The depth alone, where it makes the work less, and images."""

    name = "depth"

    def unfit(self, p: Banded, properties: cb.DeviceProperties) -> str | None:
        """Three axes."""
        volume = len(p.bands) == 3 and isinstance(p.x, np.ndarray)
        return None if volume else "for volumes in the memory of the host"

    def launch(self, p: Banded, properties: cb.DeviceProperties) -> None:
        """Before the images, where it does not grow."""
        deep, axis = p.bands[0], p.first
        if deep.rows > deep.columns:
            made = between(p, (*p.x.shape[: axis + 1], *p.out.shape[axis + 1 :]))
            BANDED.run(Banded(p.x, p.bands[1:], p.last, made))
            along(made, axis, deep, p.out, properties)
        else:
            made = between(p, (*p.out.shape[: axis + 1], *p.x.shape[axis + 1 :]))
            along(p.x, axis, deep, made, properties)
            BANDED.run(Banded(made, p.bands[1:], p.last, p.out))


class OneByOne(Routine):
    """One axis after the other, the one that shrinks most first."""

    name = "one_by_one"

    def launch(self, p: Banded, properties: cb.DeviceProperties) -> None:
        """A launch for each axis."""
        bands, x = p.bands, p.x
        order = sorted(range(len(bands)), key=lambda k: bands[k].rows / max(bands[k].columns, 1))
        for k in order:
            d, out = p.first + k, p.out
            if k != order[-1]:
                out = between(p, (*x.shape[:d], bands[k].rows, *x.shape[d + 1 :]))
            along(x, d, bands[k], out, properties)
            x = out


def between(p: Banded, shape: tuple[int, ...]) -> Any:
    """What is made between two axes: of narrow floats in f32."""
    return memory.empty(shape, np.dtype(np.float32) if p.out.itemsize == 2 else p.out.dtype)


def along(x: Any, d: int, band: Band, out: Any, properties: cb.DeviceProperties) -> None:
    """A contiguous array mapped along one axis."""
    acc = cb.f64 if x.itemsize == 8 else cb.f32
    starts, weights = (
        memory.empty(band.starts.shape, np.int32),
        memory.empty(band.weights.shape, acc.numpy),
    )
    table = band.table(acc)
    starts[...], weights[...] = table.starts, table.weights
    wide = properties.plane_size > 1
    columns = math.prod(x.shape[d + 1 :])
    if columns == 1:
        rows = 1 if wide else ROWS
        source, target = x.reshape(-1, x.shape[d]), out.reshape(-1, band.rows)
        band_rows[-(-target.shape[0] // rows), UNITS if wide else 1](
            source, target, starts, weights, acc, rows, mode="checked"
        )
    else:
        source, target = x.reshape(-1, x.shape[d], columns), out.reshape(-1, band.rows, columns)
        lanes = 1 if wide else 2 * lanes_on(properties, x)
        band_columns[target.shape[0] * band.rows, UNITS if wide else 1](
            source, target, starts, weights, acc, lanes, mode="checked"
        )


BANDED = Op(
    "banded_map",
    [Sums(), Disjoint(), Windows(), Depth(), Nearest(), Direct(), Separable(), OneByOne()],
)


def mapped(x: Any, bands: list[Band], layout: str, out: Any = None, alone: bool = False) -> Any:
    """The bands along the axes of size of x, which has a batch axis; `alone`: the result
    has none.
    """
    axes = len(bands)
    last = layout == LAYOUTS[axes][1]
    order, back = (0, *range(2, axes + 2), 1), (0, axes + 1, *range(1, axes + 1))
    turned = (
        not last
        and x.shape[1] > 1
        and not x.flags.c_contiguous
        and x.transpose(order).flags.c_contiguous
    )
    x, last = (x.transpose(order), True) if turned else (contiguous(x), last)
    sizes = tuple(band.rows for band in bands)
    shape = (x.shape[0], *sizes, x.shape[-1]) if last else (*x.shape[:2], *sizes)
    given, target = None, None
    if out is not None:
        seen = tuple(shape[d] for d in back) if turned else shape
        given = output(out, seen[alone:], x.dtype, x)
        target = as_new(given, order if turned else None, alone)
    value = memory.empty(shape, x.dtype) if target is None else target
    if value.size:
        BANDED.run(Banded(x, bands, last, value))
    value = value.transpose(back) if turned else value
    value = value.reshape(value.shape[1:]) if alone else value
    if given is None:
        return value
    if not np.may_share_memory(given, value):
        convert_into(given, value)
    return out


def checked(
    input: Any, axes: int, layout: str, name: str, either: bool = True
) -> tuple[Any, tuple[int, ...], bool]:
    """The array with a batch axis, its size, and whether that axis was added (`either`: it may be
    missing).
    """
    x = float_array(input, "input")
    if layout not in LAYOUTS[axes]:
        raise ShapeError(f"layout is one of {LAYOUTS[axes]}, not {layout!r}")
    alone = either and x.ndim == axes + 1
    if x.ndim != axes + 2 and not alone:
        raise ShapeError(
            f"{name} needs {axes + 2} axes ({layout}){', or one less' * either}, not shape "
            f"{x.shape}"
        )
    x = x.reshape(1, *x.shape) if alone else x
    size = tuple(x.shape[1:-1] if layout == LAYOUTS[axes][1] else x.shape[2:])
    if 0 in size:
        raise ShapeError(f"{name} of nothing: shape {x.shape}")
    return x, size, alone


def size_of(shape: Any, axes: int, layout: str, grad: Any, name: str) -> tuple[int, ...]:
    """The axes of size of an input of this shape, whose gradient (with its batch axis) has such a
    batch and channels.

    Raises:
        ShapeError: they do not go together.
    """
    shape = tuple(shape) if len(shape) == axes + 2 else (1, *shape)
    last = layout == LAYOUTS[axes][1]
    if (
        len(shape) != axes + 2
        or shape[0] != grad.shape[0]
        or shape[-1 if last else 1] != grad.shape[-1 if last else 1]
    ):
        raise ShapeError(
            f"{name}: a gradient of shape {grad.shape} does not go with an input of shape {shape}"
        )
    return per_axis(shape[1:-1] if last else shape[2:], axes, "the size in input_size", 1)
