"""Average pooling and interpolation: linear maps along one axis after the other, forward and backward.

Every output place is a weighted sum of neighbours, so each of these operations is a small banded matrix for each axis,
and its gradient is the transposed matrix. One kernel does both.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.arguments import finish, float_array, output, per_axis, placed, wrapper
from cubepy.kernels.cube_wide import has_planes
from cubepy.kernels.elementwise import contiguous, convert_into, lanes_for
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory

UNITS = 128
ROWS = 8  # rows of a cube where units are not threads
LAYOUTS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


@cb.kernel
def band_columns(
    x: cb.Array, out: cb.Array, starts: cb.Array, weights: cb.Array, acc: cb.Comptime, lanes: cb.Comptime[int]
):
    """out[b, j, c] = sum over k of weights[j, k] * x[b, starts[j] + k, c]; lines lie along c, a cube does one j."""
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
    x: cb.Array, out: cb.Array, starts: cb.Array, weights: cb.Array, acc: cb.Comptime, rows: cb.Comptime[int]
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


class Band:
    """A banded matrix: row j has `weights[j]` from column `starts[j]` on."""

    def __init__(self, dense: np.ndarray) -> None:
        m, n = dense.shape
        used = dense != 0
        some = used.any(1)
        self.columns = n
        self.starts = np.where(some, used.argmax(1), 0).astype(np.int32)
        ends = np.where(some, n - used[:, ::-1].argmax(1), 1)
        taps = int((ends - self.starts).max(initial=1))
        at = np.minimum(self.starts[:, None] + np.arange(taps), n - 1)
        inside = self.starts[:, None] + np.arange(taps) < n
        self.weights = np.where(inside, np.take_along_axis(dense, at, 1), 0).astype(np.float32)
        self.rows = m


@lru_cache(maxsize=256)
def _windows(n: int, m: int, k: int, s: int, p: int, include: bool, back: bool) -> Band:
    """Averages of windows."""
    start = np.arange(m) * s - p
    end = np.minimum(start + k, n + p)
    low, high = np.maximum(start, 0), np.minimum(end, n)
    divisor = end - start if include else high - low
    return _band(_between(n, low, high) / np.maximum(divisor, 1)[:, None], back)


@lru_cache(maxsize=256)
def _shares(n: int, m: int, back: bool) -> Band:
    """Averages of m parts of equal size."""
    j = np.arange(m)
    low, high = j * n // m, -(-(j + 1) * n // m)
    return _band(_between(n, low, high) / (high - low)[:, None], back)


@lru_cache(maxsize=256)
def _points(n: int, m: int, scale: float, mode: str, corners: bool, back: bool) -> Band:
    """Values between places: nearest, linear or cubic (Keys, 1981, with a = -0.75)."""
    j = np.arange(m)
    dense = np.zeros((m, n))
    if mode == "nearest":
        np.add.at(dense, (j, np.minimum(np.floor(j * scale).astype(np.int64), n - 1)), 1)
        return _band(dense, back)
    at = j * ((n - 1) / max(m - 1, 1)) if corners else (j + 0.5) * scale - 0.5
    if mode == "linear":
        at = np.maximum(at, 0)
        low = np.minimum(np.floor(at).astype(np.int64), n - 1)
        part = at - low
        np.add.at(dense, (j, low), 1 - part)
        np.add.at(dense, (j, np.minimum(low + 1, n - 1)), part)
        return _band(dense, back)
    low = np.floor(at).astype(np.int64)
    t, a = at - low, -0.75
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (t + 1, 2 - t)]
    for offset, weight in ((-1, far[0]), (0, near[0]), (1, near[1]), (2, far[1])):
        np.add.at(dense, (j, np.clip(low + offset, 0, n - 1)), weight)
    return _band(dense, back)


def _between(n: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    k = np.arange(n)
    return ((k >= low[:, None]) & (k < high[:, None])).astype(np.float64)


def _band(dense: np.ndarray, back: bool) -> Band:
    return Band(dense.T if back else dense)


def _along(x: Any, d: int, band: Band) -> Any:
    """A contiguous array mapped along one axis."""
    shape = (*x.shape[:d], band.rows, *x.shape[d + 1 :])
    out = memory.empty(shape, x.dtype)
    if out.size == 0:
        return out
    starts, weights = memory.empty(band.starts.shape, np.int32), memory.empty(band.weights.shape, np.float32)
    starts[...], weights[...] = band.starts, band.weights
    acc = cb.f64 if as_dtype(x.dtype) == cb.f64 else cb.f32
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


def _mapped(input: Any, bands: list[Band], axes: int, layout: str, out: Any) -> Any:
    """The bands along the axes of size, the one that shrinks most first."""
    first = 1 if layout == LAYOUTS[axes][1] else 2
    value = contiguous(input)
    for k in sorted(range(axes), key=lambda k: bands[k].rows / max(bands[k].columns, 1)):
        value = _along(value, first + k, bands[k])
    if out is not None:
        convert_into(output(out, value.shape, value.dtype), value)
        return out
    return value


def _checked(input: Any, axes: int, layout: str, name: str) -> tuple[Any, tuple[int, ...]]:
    x = float_array(input, "input")
    if layout not in LAYOUTS[axes]:
        raise ShapeError(f"layout is one of {LAYOUTS[axes]}, not {layout!r}")
    if x.ndim != axes + 2:
        raise ShapeError(f"{name} needs {axes + 2} axes ({layout}), not shape {x.shape}")
    size = tuple(x.shape[1:-1] if layout == LAYOUTS[axes][1] else x.shape[2:])
    if 0 in size:
        raise ShapeError(f"{name} of nothing: shape {x.shape}")
    return x, size


def _pool_bands(size: Any, kernel: Any, stride: Any, padding: Any, up: bool, include: bool, back: bool) -> list[Band]:
    axes = len(size)
    ks, ps = per_axis(kernel, axes, "kernel_size", 1), per_axis(padding, axes, "padding", 0)
    ss = ks if stride is None else per_axis(stride, axes, "stride", 1)
    bands = []
    for n, k, s, p in zip(size, ks, ss, ps, strict=True):
        if p > k // 2:
            raise ShapeError(f"padding {p} is more than half of the window {k}")
        span = n + 2 * p - k
        m = (-(-span // s) if up else span // s) + 1
        if up and (m - 1) * s >= n + p:
            m -= 1  # the last window would begin behind the end
        if span < 0 or m < 1:
            raise ShapeError(f"a window of {k} does not fit into {n} with padding {p}")
        bands.append(_windows(n, m, k, s, p, include, back))
    return bands


@placed
def avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, *, layout: str = "NCHW", out: Any = None,
) -> Any:  # fmt: skip
    """Mean of every window, as `torch.nn.functional.avg_pool2d`.

    Args:
        input: (N, C, H, W), or (N, H, W, C) with layout "NHWC"; floats.
        kernel_size, stride, padding: int or pair (height, width); stride defaults to the window.
        ceil_mode: windows may hang over the end.
        count_include_pad: whether padding counts among what is averaged.
        layout: "NCHW" or "NHWC".
        out: array to write.

    Raises:
        ShapeError: wrong rank, padding above half the window, or a window that does not fit.

    Example:
        >>> import numpy as np
        >>> avg_pool2d(np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2), 2)
        array([[[[1.5]]]], dtype=float32)
    """
    x, size = _checked(input, 2, layout, "avg_pool2d")
    bands = _pool_bands(size, kernel_size, stride, padding, ceil_mode, count_include_pad, False)
    return finish(_mapped(x, bands, 2, layout, out), out, wrapper(input))


@placed
def avg_pool2d_input(
    input_size: tuple[int, ...], grad_output: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """The gradient of `avg_pool2d` by its input (N, C, H, W)."""
    grad, size = _checked(grad_output, 2, "NCHW", "avg_pool2d_input")
    bands = _pool_bands(tuple(input_size[2:]), kernel_size, stride, padding, ceil_mode, count_include_pad, True)
    _fits(bands, size)
    return wrapper(grad_output)(_mapped(grad, bands, 2, "NCHW", None))


def _fits(bands: list[Band], size: tuple[int, ...]) -> None:
    if tuple(b.columns for b in bands) != size:
        raise ShapeError(f"the gradient has places {size}, the operation {tuple(b.columns for b in bands)}")


@placed
def adaptive_avg_pool2d(input: Any, output_size: Any, *, layout: str = "NCHW", out: Any = None) -> Any:
    """Means of equal parts of the image, as `torch.nn.functional.adaptive_avg_pool2d`.

    Args:
        input: (N, C, H, W), or (N, H, W, C) with layout "NHWC"; floats.
        output_size: int or pair (height, width).
        layout, out: as for `avg_pool2d`.

    Example:
        >>> import numpy as np
        >>> adaptive_avg_pool2d(np.ones((2, 3, 5, 7), np.float32), 1).shape
        (2, 3, 1, 1)
    """
    x, size = _checked(input, 2, layout, "adaptive_avg_pool2d")
    wanted = per_axis(output_size, 2, "output_size", 1)
    bands = [_shares(n, m, False) for n, m in zip(size, wanted, strict=True)]
    return finish(_mapped(x, bands, 2, layout, out), out, wrapper(input))


MODES = {"nearest": (1, 2, 3), "area": (1, 2, 3), "linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}


def _interpolation(size: tuple[int, ...], wanted: Any, factor: Any, mode: str, corners: bool, back: bool) -> list[Band]:
    axes = len(size)
    if mode not in MODES or axes not in MODES[mode]:
        raise ShapeError(f"mode is one of {', '.join(m for m, a in MODES.items() if axes in a)}, not {mode!r}")
    if (wanted is None) == (factor is None):
        raise ShapeError("interpolate takes either size or scale_factor")
    if factor is not None:
        factors = tuple(factor) if isinstance(factor, (tuple, list)) else (factor,) * axes
        wanted = tuple(math.floor(n * k) for n, k in zip(size, factors, strict=True))
        scales = tuple(1 / k for k in factors)
    else:
        wanted = per_axis(wanted, axes, "size", 1)
        scales = tuple(n / m for n, m in zip(size, wanted, strict=True))
    if min(wanted) < 1:
        raise ShapeError(f"interpolate of {size} by {factor} leaves nothing")
    if mode == "area":
        return [_shares(n, m, back) for n, m in zip(size, wanted, strict=True)]
    kind = "nearest" if mode == "nearest" else ("cubic" if mode == "bicubic" else "linear")
    return [_points(n, m, s, kind, corners, back) for n, m, s in zip(size, wanted, scales, strict=True)]


@placed
def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool = False, *,
    layout: str = "NCHW", out: Any = None,
) -> Any:  # fmt: skip
    """Images, signals or volumes of another size, as `torch.nn.functional.interpolate`.

    Args:
        input: (N, C, ...) with 1 to 3 axes of size, or channels last with layout "NLC", "NHWC" or "NDHWC".
        size: of the result, an int or one for each axis; or
        scale_factor: a number or one for each axis.
        mode: "nearest", "area", "linear", "bilinear", "trilinear" or "bicubic".
        align_corners: the outermost places of input and result lie on each other.
        layout: "NCHW" stands for channels first in any number of axes.
        out: array to write.

    Raises:
        ShapeError: both or neither of size and scale_factor, or a mode for another number of axes.

    Example:
        >>> import numpy as np
        >>> interpolate(np.array([[[0.0, 1.0]]]), size=4, mode="linear")
        array([[[0.  , 0.25, 0.75, 1.  ]]])
    """
    axes = float_array(input, "input").ndim - 2
    if axes not in LAYOUTS:
        raise ShapeError(f"interpolate needs 3 to 5 axes, not {axes + 2}")
    layout = LAYOUTS[axes][0] if layout == "NCHW" else layout
    x, there = _checked(input, axes, layout, "interpolate")
    bands = _interpolation(there, size, scale_factor, mode, bool(align_corners), False)
    return finish(_mapped(x, bands, axes, layout, out), out, wrapper(input))


@placed
def interpolate_input(
    input_size: tuple[int, ...], grad_output: Any, mode: str = "nearest", align_corners: bool = False
) -> Any:
    """The gradient of `interpolate` (to a size, channels first) by its input of shape `input_size`."""
    axes = len(input_size) - 2
    grad, size = _checked(grad_output, axes, LAYOUTS[axes][0], "interpolate_input")
    bands = _interpolation(tuple(input_size[2:]), size, None, mode, bool(align_corners), True)
    return wrapper(grad_output)(_mapped(grad, bands, axes, LAYOUTS[axes][0], None))
