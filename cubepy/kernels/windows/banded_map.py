"""Linear maps along one axis after the other, forward and backward: averages, interpolation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import float_array, per_axis
from cubepy.kernels.entry.dispatch import has_planes
from cubepy.kernels.entry.results import output
from cubepy.kernels.entry.shapes import as_new
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.primitives.vector_width import lanes_for
from cubepy.kernels.reduce.reduce import scaled_sum
from cubepy.kernels.windows import direct_cpu, nearest_cpu, separable_cpu, separable_gpu
from cubepy.kernels.windows.banded import SAME, Band
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory

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


def _sums(dtype: Any) -> Any:
    """The dtype that sums have."""
    return cb.f64 if as_dtype(dtype) == cb.f64 else cb.f32


def _along(x: Any, d: int, band: Band, dtype: Any) -> Any:
    """A contiguous array mapped along one axis."""
    shape = (*x.shape[:d], band.rows, *x.shape[d + 1 :])
    out = memory.empty(shape, dtype)
    if out.size == 0:
        return out
    acc = _sums(x.dtype)
    starts, weights = (
        memory.empty(band.starts.shape, np.int32),
        memory.empty(band.weights.shape, acc.numpy),
    )
    starts[...], weights[...] = band.tables(acc)
    wide = has_planes()
    columns = math.prod(x.shape[d + 1 :])
    if columns == 1:
        rows = 1 if wide else ROWS
        source, target = x.reshape(-1, x.shape[d]), out.reshape(-1, band.rows)
        band_rows[-(-target.shape[0] // rows), UNITS if wide else 1](
            source, target, starts, weights, acc, rows, mode="checked"
        )
    else:
        source, target = x.reshape(-1, x.shape[d], columns), out.reshape(-1, band.rows, columns)
        lanes = 1 if wide else 2 * lanes_for(x)
        band_columns[target.shape[0] * band.rows, UNITS if wide else 1](
            source, target, starts, weights, acc, lanes, mode="checked"
        )
    return out


def _image(x: Any, bands: list[Band], last: bool, dtype: Any, target: Any) -> Any:
    """A contiguous array mapped along its last two axes of size, or the only one; into `target` if
    there is such.
    """
    axes, shape = len(bands), list(x.shape)
    at = x.ndim - axes - last
    shape[at : at + axes] = [band.rows for band in bands]
    out = memory.empty(tuple(shape), dtype) if target is None else target
    down, across = bands if axes == 2 else (SAME, *bands)
    acc = _sums(x.dtype)
    size = ((1,) if axes == 1 else ()) + x.shape[at : at + axes]
    if last:
        flat = (
            x.reshape(-1, *size, x.shape[-1]),
            out.reshape(-1, down.rows, across.rows, x.shape[-1]),
        )
        done = (
            nearest_cpu.last(*flat, down, across)
            or direct_cpu.run(*flat, down, across, acc)
            or separable_cpu.last(*flat, down, across, acc)
        )
    else:
        planes = x.reshape(-1, *size), out.reshape(-1, down.rows, across.rows)
        done = nearest_cpu.first(*planes, down, across) or separable_cpu.first(
            *planes, down, across, acc
        )
    if not done:
        return None
    return out


def _one_by_one(x: Any, bands: list[Band], first: int, dtype: Any) -> Any:
    """The bands along axes from `first` on, the one that shrinks most first."""
    between = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    order = sorted(range(len(bands)), key=lambda k: bands[k].rows / max(bands[k].columns, 1))
    for k in order:
        x = _along(x, first + k, bands[k], dtype if k == order[-1] else between)
    return x


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
    dtype, first = x.dtype, 1 if last else 2
    sizes = tuple(band.rows for band in bands)
    shape = (x.shape[0], *sizes, x.shape[-1]) if last else (*x.shape[:2], *sizes)
    given, target = None, None
    if out is not None:
        seen = tuple(shape[d] for d in back) if turned else shape
        given = output(out, seen[alone:], dtype, x)
        target = as_new(given, order if turned else None, alone)
    wide = (
        separable_gpu.mapped(x, bands, last, target) if has_planes() and 0 not in x.shape else None
    )
    if wide is not None:
        if target is not None:
            return out
        value = wide
    elif has_planes() or 0 in x.shape or not isinstance(x, np.ndarray):
        value = _one_by_one(x, bands, first, dtype)
    else:
        value = _on_cpu(x, bands, last, dtype, target)
    value = value.transpose(back) if turned else value
    value = value.reshape(value.shape[1:]) if alone else value
    if given is None:
        return value
    if not np.may_share_memory(given, value):
        convert_into(given, value)
    return out


def _on_cpu(x: Any, bands: list[Band], last: bool, dtype: Any, target: Any) -> Any:
    """The depth alone, where it makes the work less, and the image at once; means of whole images
    are sums.
    """
    first, between = 1 if last else 2, np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    value, deep = x, bands[:-2]
    scale = math.prod(band.whole or 0.0 for band in bands)
    if scale:
        size = tuple(range(first, first + len(bands)))
        out = target
        if out is None:
            out = memory.empty(tuple(1 if d in size else n for d, n in enumerate(x.shape)), dtype)
        scaled_sum(
            x, size, out.reshape(tuple(n for d, n in enumerate(out.shape) if d not in size)), scale
        )
        return out
    growing = bool(deep) and deep[0].rows > deep[0].columns
    if deep and not growing:
        value = _along(value, first, deep[0], between)
    done = _image(
        value, bands[-2:], last, between if growing else dtype, None if growing else target
    )
    if done is None:
        return _one_by_one(x, bands, first, dtype)
    return _along(done, first, deep[0], dtype) if growing else done


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
