"""Images of another size, channels first, and the gradient of that."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.normalization import float_of
from cubepy.tensor.ops.op import Spec, define

Ints = tuple[int, ...]
Factors = tuple[float, ...] | None


def _run_interpolate(
    dtype: np.dtype, x: Any, size: Ints, factors: Factors, mode: str, align_corners: bool
) -> Any:
    wanted = size if factors is None else None
    return kernels().interpolate(x, wanted, factors, mode, align_corners)


@define("reduce", {"interpolate": _run_interpolate})
def _interpolate(x: Spec, size: Ints, factors: Factors, mode: str, align_corners: bool) -> Spec:
    """x (N, C, ...) to (N, C, *size); `factors` are what the size was made with, where positions
    lie by them and not by the sizes.
    """
    _check(x, size, factors)
    return Spec((*x.shape[:2], *size), float_of(x))


def _run_interpolate_input(
    dtype: np.dtype, g: Any, size: Ints, factors: Factors, mode: str, align_corners: bool
) -> Any:
    shape = (*g.shape[:2], *size)
    return kernels().interpolate_input(shape, g, mode, align_corners, scale_factor=factors)


@define("reduce", {"interpolate_input": _run_interpolate_input})
def _interpolate_input(
    g: Spec, size: Ints, factors: Factors, mode: str, align_corners: bool
) -> Spec:
    """The gradient by an input (N, C, *size)."""
    _check(g, size, factors)
    return Spec((*g.shape[:2], *size), float_of(g))


def _check(x: Spec, size: Ints, factors: Factors) -> None:
    axes = len(size)
    fits = factors is None or len(factors) == axes
    if not 1 <= axes <= 3 or len(x.shape) != axes + 2 or not fits or min(*size, *x.shape[2:]) < 1:
        raise ShapeError(f"interpolate: {x.shape} does not become an image of size {size}")
