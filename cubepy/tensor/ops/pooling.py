"""Pools and interpolation in one to three axes, channels first: largest values and means of windows
and of equal parts, other sizes, positions that are data; and their gradients, which are ops
themselves.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.entry.shapes import window_count
from cubepy.lang.dtypes import i64
from cubepy.tensor.ops.library import grids, kernels, zeros
from cubepy.tensor.ops.normalization import float_of
from cubepy.tensor.ops.op import Spec, define

Ints = tuple[int, ...]
Factors = tuple[float, ...] | None


def _library(name: str, axes: int, back: bool = False) -> Any:
    return getattr(kernels(), f"{name}{axes}d{'_input' if back else ''}")


def _images(op: str, axes: int, x: Spec) -> None:
    if not 1 <= axes <= 3 or len(x.shape) != axes + 2:
        raise ShapeError(f"{op}{axes}d needs {axes + 2} axes, not shape {x.shape}")


def pooled_size(
    op: str, size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Ints:
    """How many windows there are along each axis."""
    along = zip(size, kernel, stride, padding, dilation, strict=True)
    return tuple([window_count(op, *lengths, ceil_mode) for lengths in along])


def _came_from(op: str, g: Spec, size: Ints, wanted: Ints) -> Spec:
    """The spec of a gradient by an input of this size."""
    if g.shape[2:] != wanted:
        raise ShapeError(
            f"{op}: a gradient {g.shape} does not come from an input of size {size}: expected "
            f"{wanted}"
        )
    return Spec((*g.shape[:2], *size), float_of(g))


def _check_positions(op: str, g: Spec, indices: Spec) -> None:
    if indices.shape != g.shape or not indices.dtype.is_int:
        raise ShapeError(
            f"{op}: a gradient {g.shape} and indices {indices.dtype.name}{indices.shape} do not go "
            "together"
        )


# Largest values


def _numbers(x: Spec) -> Any:
    if x.dtype.kind == "b":
        raise DTypeError("the largest of booleans is not defined", hint="convert them first")
    return x.dtype if x.dtype.is_int else float_of(x)


def _run_max_pool(
    dtype: np.dtype,
    x: Any,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
    indices: bool,
) -> Any:
    function = _library("max_pool", len(kernel))
    made = function(x, kernel, stride, padding, dilation, ceil_mode, indices)
    return list(made) if indices else made


@define("reduce", {"max_pool": _run_max_pool}, keeps=True)
def _max_pool(
    x: Spec,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
    indices: bool,
) -> Any:
    """Largest values of windows; with `indices` their positions in the plane, too."""
    axes = len(kernel)
    _images("max_pool", axes, x)
    name = f"max_pool{axes}d"
    size = pooled_size(name, x.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    shape = (*x.shape[:2], *size)
    values = Spec(shape, _numbers(x))
    return [values, Spec(shape, i64)] if indices else values


def _run_max_pool_input(
    dtype: np.dtype,
    g: Any,
    indices: Any,
    size: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> Any:
    function = _library("max_pool", len(kernel), back=True)
    return function((*g.shape[:2], *size), g, indices, kernel, stride, padding, dilation, ceil_mode)


@define("index", {"max_pool_input": _run_max_pool_input})
def _max_pool_input(
    g: Spec,
    indices: Spec,
    size: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> Spec:
    """The sums of g by the positions that it came from."""
    axes = len(kernel)
    _images("max_pool", axes, g)
    name = f"max_pool{axes}d"
    _check_positions(name, g, indices)
    wanted = pooled_size(name, size, kernel, stride, padding, dilation, ceil_mode)
    return _came_from(name, g, size, wanted)


def _run_adaptive_max_pool(dtype: np.dtype, x: Any, size: Ints, indices: bool) -> Any:
    made = _library("adaptive_max_pool", len(size))(x, size, indices)
    return list(made) if indices else made


@define("reduce", {"adaptive_max_pool": _run_adaptive_max_pool}, keeps=True)
def _adaptive_max_pool(x: Spec, size: Ints, indices: bool) -> Any:
    """Largest values of equal parts; with `indices` their positions in the plane, too."""
    values = Spec(_parts("adaptive_max_pool", x, size), _numbers(x))
    return [values, Spec(values.shape, i64)] if indices else values


def _parts(op: str, x: Spec, size: Ints) -> Ints:
    _images(op, len(size), x)
    if 0 in x.shape[2:] or min(size) < 1:
        raise ShapeError(f"{op}{len(size)}d: {size} parts of {x.shape[2:]} are not defined")
    return (*x.shape[:2], *size)


def _run_adaptive_max_pool_input(dtype: np.dtype, g: Any, indices: Any, size: Ints) -> Any:
    function = _library("adaptive_max_pool", len(size), back=True)
    return function((*g.shape[:2], *size), g, indices)


@define("index", {"adaptive_max_pool_input": _run_adaptive_max_pool_input})
def _adaptive_max_pool_input(g: Spec, indices: Spec, size: Ints) -> Spec:
    """The sums of g by the positions that it came from."""
    _images("adaptive_max_pool", len(size), g)
    _check_positions("adaptive_max_pool", g, indices)
    return _came_from("adaptive_max_pool", g, size, g.shape[2:])


def _run_at_positions(dtype: np.dtype, x: Any, indices: Any) -> Any:
    K = kernels()
    planes = K.copy(x).reshape(*x.shape[:2], -1)
    spots = K.copy(indices).reshape(*x.shape[:2], -1)
    return K.gather(planes, 2, spots).reshape(indices.shape)


@define("index", {"at_positions": _run_at_positions})
def _at_positions(x: Spec, indices: Spec) -> Spec:
    """The elements of planes at positions that are counted in rows, as a max pool gives them."""
    if len(x.shape) != len(indices.shape) or x.shape[:2] != indices.shape[:2]:
        raise ShapeError(f"positions {indices.shape} do not go with planes {x.shape}")
    if not indices.dtype.is_int or math.prod(x.shape[2:]) < 1:
        raise ShapeError(f"positions {indices.dtype.name} in planes {x.shape} are not defined")
    return Spec(indices.shape, x.dtype)


def _run_to_positions(dtype: np.dtype, g: Any, indices: Any, size: Ints) -> Any:
    K, (n, c) = kernels(), g.shape[:2]
    start = zeros(g, (n, c, math.prod(size)), dtype)
    spots, values = K.copy(indices).reshape(n, c, -1), K.copy(g).reshape(n, c, -1)
    return K.scatter(start, 2, spots, values, "add", out=start).reshape(n, c, *size)


@define("index", {"to_positions": _run_to_positions})
def _to_positions(g: Spec, indices: Spec, size: Ints) -> Spec:
    """The sums of g by positions in planes of a size."""
    _check_positions("to_positions", g, indices)
    return Spec((*g.shape[:2], *size), g.dtype)


# Means


def _run_avg_pool(
    dtype: np.dtype,
    x: Any,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: float | None,
) -> Any:
    function = _library("avg_pool", len(kernel))
    return function(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor)


@define("reduce", {"avg_pool": _run_avg_pool})
def _avg_pool(
    x: Spec,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: float | None,
) -> Spec:
    axes = len(kernel)
    _images("avg_pool", axes, x)
    if divisor == 0:
        raise ShapeError("divisor_override must not be zero")
    ones = (1,) * axes
    size = pooled_size(f"avg_pool{axes}d", x.shape[2:], kernel, stride, padding, ones, ceil_mode)
    return Spec((*x.shape[:2], *size), float_of(x))


def _run_avg_pool_input(
    dtype: np.dtype,
    g: Any,
    size: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: float | None,
) -> Any:
    function, shape = _library("avg_pool", len(kernel), back=True), (*g.shape[:2], *size)
    return function(shape, g, kernel, stride, padding, ceil_mode, count_include_pad, divisor)


@define("reduce", {"avg_pool_input": _run_avg_pool_input})
def _avg_pool_input(
    g: Spec,
    size: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: float | None,
) -> Spec:
    axes = len(kernel)
    _images("avg_pool", axes, g)
    name, ones = f"avg_pool{axes}d", (1,) * axes
    wanted = pooled_size(name, size, kernel, stride, padding, ones, ceil_mode)
    return _came_from(name, g, size, wanted)


def _run_parts(dtype: np.dtype, x: Any, size: Ints) -> Any:
    return _library("adaptive_avg_pool", len(size))(x, size)


@define("reduce", {"adaptive_avg_pool": _run_parts})
def _adaptive_avg_pool(x: Spec, size: Ints) -> Spec:
    return Spec(_parts("adaptive_avg_pool", x, size), float_of(x))


def _run_parts_input(dtype: np.dtype, g: Any, size: Ints) -> Any:
    return _library("adaptive_avg_pool", len(size), back=True)((*g.shape[:2], *size), g)


@define("reduce", {"adaptive_avg_pool_input": _run_parts_input})
def _adaptive_avg_pool_input(g: Spec, size: Ints) -> Spec:
    _images("adaptive_avg_pool", len(size), g)
    return _came_from("adaptive_avg_pool", g, size, g.shape[2:])


# Other sizes


SMOOTH = "antialiased "
"""What modes of interpolation begin with that weigh all positions of a larger image."""


def _run_interpolate(
    dtype: np.dtype, x: Any, size: Ints, factors: Factors, mode: str, align_corners: bool
) -> Any:
    wanted = size if factors is None else None
    smooth, mode = mode.startswith(SMOOTH), mode.removeprefix(SMOOTH)
    return kernels().interpolate(x, wanted, factors, mode, align_corners, antialias=smooth)


@define("reduce", {"interpolate": _run_interpolate})
def _interpolate(x: Spec, size: Ints, factors: Factors, mode: str, align_corners: bool) -> Spec:
    """x (N, C, ...) to (N, C, *size); `factors` are what the size was made with, where positions
    lie by them and not by the sizes.
    """
    _check_size(x, size, factors)
    return Spec((*x.shape[:2], *size), float_of(x))


def _run_interpolate_input(
    dtype: np.dtype, g: Any, size: Ints, factors: Factors, mode: str, align_corners: bool
) -> Any:
    shape = (*g.shape[:2], *size)
    smooth, mode = mode.startswith(SMOOTH), mode.removeprefix(SMOOTH)
    how = {"scale_factor": factors, "antialias": smooth}
    return kernels().interpolate_input(shape, g, mode, align_corners, **how)


@define("reduce", {"interpolate_input": _run_interpolate_input})
def _interpolate_input(
    g: Spec, size: Ints, factors: Factors, mode: str, align_corners: bool
) -> Spec:
    """The gradient by an input (N, C, *size)."""
    _check_size(g, size, factors)
    return Spec((*g.shape[:2], *size), float_of(g))


def _check_size(x: Spec, size: Ints, factors: Factors) -> None:
    axes = len(size)
    fits = factors is None or len(factors) == axes
    if not 1 <= axes <= 3 or len(x.shape) != axes + 2 or not fits or min(*size, *x.shape[2:]) < 1:
        raise ShapeError(f"interpolate: {x.shape} does not become an image of size {size}")


# Positions that are data


def check_grid(x: Any, grid: Any, size: Ints) -> None:
    """Look whether images of a size go with a grid.

    Raises:
        ShapeError: they do not.

    Example:
        >>> from cubepy.lang.dtypes import f32
        >>> check_grid(Spec((1, 3, 4, 4), f32), Spec((1, 2, 2, 2), f32), (4, 4))
    """
    axes = len(size)
    fits = axes in (2, 3) and len(grid.shape) == axes + 2 and grid.shape[-1] == axes
    if not fits or x.shape[0] != grid.shape[0]:
        raise ShapeError(f"grid_sample: an image of shape {x.shape} has no grid of {grid.shape}")
    if 0 in size:
        raise ShapeError(f"grid_sample: an image of size {size} has no pixels")


def _check_floats(*specs: Spec) -> None:
    for spec in specs:
        if not spec.dtype.is_float or spec.dtype.storage_only:
            raise DTypeError(f"grid_sample is for floats, not {spec.dtype.name}")


def _run_grid_sample(
    dtype: np.dtype, x: Any, grid: Any, mode: str, padding: str, align: bool
) -> Any:
    return grids().grid_sample(x, grid, mode, padding, align)


@define("opaque", {"grid_sample": _run_grid_sample})
def _grid_sample(x: Spec, grid: Spec, mode: str, padding: str, align: bool) -> Spec:
    """x (N, C, *size) at a grid (N, *out, axes) of positions from -1 to 1: (N, C, *out)."""
    _check_floats(x, grid)
    check_grid(x, grid, x.shape[2:])
    return Spec((*x.shape[:2], *grid.shape[1:-1]), x.dtype)


def _run_grid_sample_grid(
    dtype: np.dtype, x: Any, grid: Any, g: Any, mode: str, padding: str, align: bool
) -> Any:
    return grids().grid_sample_grid(x, grid, g, mode, padding, align)


@define("opaque", {"grid_sample_grid": _run_grid_sample_grid})
def _grid_sample_grid(x: Spec, grid: Spec, g: Spec, mode: str, padding: str, align: bool) -> Spec:
    """The gradient by the grid."""
    _check_floats(x, grid)
    check_grid(x, grid, x.shape[2:])
    _check_sampled(g, grid, x.shape[1])
    return grid


def _run_grid_sample_input(
    dtype: np.dtype, g: Any, grid: Any, size: Ints, mode: str, padding: str, align: bool
) -> Any:
    return grids().grid_sample_image(g, grid, size, mode, padding, align)


@define("opaque", {"grid_sample_input": _run_grid_sample_input})
def _grid_sample_input(
    g: Spec, grid: Spec, size: Ints, mode: str, padding: str, align: bool
) -> Spec:
    """The gradient by an input (N, C, *size)."""
    _check_floats(g, grid)
    check_grid(g, grid, size)
    _check_sampled(g, grid, g.shape[1])
    return Spec((*g.shape[:2], *size), g.dtype)


def _check_sampled(g: Spec, grid: Spec, channels: int) -> None:
    if g.shape != (grid.shape[0], channels, *grid.shape[1:-1]):
        raise ShapeError(f"grid_sample: a gradient {g.shape} does not come from {grid.shape}")
