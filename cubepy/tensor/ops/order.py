"""Sorts and scans along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.lang.dtypes import DType, i64, u64
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.op import Run, Spec, axis_in, define


def _in_order(x: Spec, axis: int, op: str) -> None:
    """Raise unless x can be sorted along an axis."""
    axis_in(axis, len(x.shape), op)
    if x.dtype.storage_only:
        raise DTypeError(f"{op} works on dtypes that kernels compute with, not {x.dtype.name}")


@define("order", {"sort": lambda d, x, axis, descending: kernels().sort(x, axis, descending)})
def _sort(x: Spec, axis: int, descending: bool) -> Spec:
    _in_order(x, axis, "sort")
    return x


def _run_argsort(dtype: np.dtype, x: Any, axis: int, descending: bool) -> Any:
    return kernels().argsort(x, axis, descending)


@define("order", {"argsort": _run_argsort}, constant=True)
def _argsort(x: Spec, axis: int, descending: bool) -> Spec:
    _in_order(x, axis, "argsort")
    return Spec(x.shape, i64)


def _run_topk(dtype: np.dtype, x: Any, k: int, axis: int, largest: bool) -> Any:
    return list(kernels().topk(x, k, axis, largest))


@define("order", {"topk": _run_topk})
def _topk(x: Spec, k: int, axis: int, largest: bool) -> list[Spec]:
    """Values, and their indices."""
    _in_order(x, axis, "topk")
    at = axis_in(axis, len(x.shape), "topk")
    if not 0 <= k <= x.shape[at]:
        raise ShapeError(f"topk of {k} elements of an axis of length {x.shape[at]}")
    shape = (*x.shape[:at], k, *x.shape[at + 1 :])
    return [Spec(shape, x.dtype), Spec(shape, i64)]


def _scan(name: str) -> Run:
    def run_scan(dtype: np.dtype, x: Any, axis: int, exclusive: bool) -> Any:
        return getattr(kernels(), name)(x, axis, exclusive=exclusive)

    return run_scan


@define("order", {"cumsum": _scan("cumsum"), "cumprod": _scan("cumprod")})
def _scans(x: Spec, axis: int, exclusive: bool) -> Spec:
    """`exclusive`: an element is the sum of those before it, without itself."""
    axis_in(axis, len(x.shape), "cumsum and cumprod")
    return Spec(x.shape, _sum_of(x.dtype))


def _sum_of(dtype: DType) -> DType:
    found = dtype.compute
    return found if found.is_float else (u64 if found.kind == "u" else i64)
