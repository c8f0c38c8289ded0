"""Reductions: sums, extremes and statistics over axes; any and all."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import bool_, f32, float_for, i64, u64
from cubepy.tensor.ops.library import kernels, reduced_array, statistics
from cubepy.tensor.ops.normalization import float_of
from cubepy.tensor.ops.op import Run, Spec, axes_in, define


def _reductions(*names: str) -> dict[str, Run]:
    return {name: _reduction(name) for name in names}


def _reduction(name: str) -> Run:
    def run_reduction(dtype: np.dtype, x: Any, axis: Any, keepdims: bool) -> Any:
        return reduced_array(getattr(kernels(), name), x, axis, keepdims)

    return run_reduction


def reduced(x: Spec, axis: Any, keepdims: bool, op: str) -> tuple[int, ...]:
    """The shape without the axes that are reduced, or with them as 1."""
    axes = axes_in(axis, len(x.shape), op)
    if op in ("max", "min", "argmax", "argmin") and any(x.shape[a] == 0 for a in axes):
        raise ShapeError(f"the {op} of an empty axis is not defined (shape {x.shape})")
    return tuple(1 if d in axes else n for d, n in enumerate(x.shape) if keepdims or d not in axes)


@define("reduce", _reductions("sum", "prod"))
def _sum(x: Spec, axis: Any, keepdims: bool) -> Spec:
    d = x.dtype.compute
    return Spec(
        reduced(x, axis, keepdims, "sum"), d if d.is_float else (u64 if d.kind == "u" else i64)
    )


@define("reduce", _reductions("mean"))
def _mean(x: Spec, axis: Any, keepdims: bool) -> Spec:
    return Spec(reduced(x, axis, keepdims, "mean"), float_for(x.dtype))


@define("reduce", _reductions("max", "min"))
def _extreme(x: Spec, axis: Any, keepdims: bool) -> Spec:
    return Spec(reduced(x, axis, keepdims, "max"), x.dtype.compute)


@define("reduce", _reductions("argmax", "argmin"), constant=True)
def _arg(x: Spec, axis: Any, keepdims: bool) -> Spec:
    if isinstance(axis, tuple):
        raise ShapeError(f"argmax and argmin take one axis or None, not {axis}")
    return Spec(reduced(x, axis, keepdims, "argmax"), i64)


def _spread(name: str) -> Run:
    def run_spread(dtype: np.dtype, x: Any, axis: Any, correction: float, keepdims: bool) -> Any:
        return reduced_array(getattr(kernels(), name), x, axis, keepdims, ddof=correction)

    return run_spread


@define("reduce", {"var": _spread("var"), "std": _spread("std")})
def _var(x: Spec, axis: Any, correction: float, keepdims: bool) -> Spec:
    """`correction`: what is subtracted from the count that divides."""
    return Spec(reduced(x, axis, keepdims, "var"), float_of(x))


def _run_logsumexp(dtype: np.dtype, x: Any, axis: Any, keepdims: bool, wide: bool = False) -> Any:
    run = statistics().wide_logsumexp if wide else kernels().logsumexp
    return reduced_array(run, x, axis, keepdims)


@define("reduce", {"logsumexp": _run_logsumexp})
def _logsumexp(x: Spec, axis: Any, keepdims: bool, wide: bool = False) -> Spec:
    """`wide`: of narrow floats in f32."""
    found = float_of(x)
    return Spec(reduced(x, axis, keepdims, "logsumexp"), f32 if wide and found.bits < 32 else found)


def _run_norm(dtype: np.dtype, x: Any, ord: float, axis: Any, keepdims: bool) -> Any:
    return reduced_array(kernels().norm, x, axis, keepdims, ord=ord)


@define("reduce", {"norm": _run_norm})
def _norm(x: Spec, ord: float, axis: Any, keepdims: bool) -> Spec:
    """The vector norm (sum |x|^ord)^(1/ord)."""
    if not ord > 0:
        raise ShapeError(f"the order of a norm is positive, not {ord}")
    return Spec(reduced(x, axis, keepdims, "norm"), float_of(x))


def _truth(name: str) -> Run:
    def run_truth(dtype: np.dtype, x: Any, axis: Any, keepdims: bool) -> Any:
        return reduced_array(getattr(kernels(), name), x, axis, keepdims)

    return run_truth


@define("reduce", {"any": _truth("any"), "all": _truth("all")}, constant=True)
def _truths(x: Spec, axis: Any, keepdims: bool) -> Spec:
    return Spec(reduced(x, axis, keepdims, "any"), bool_)
