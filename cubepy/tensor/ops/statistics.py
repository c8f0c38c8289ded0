"""Reductions of several walks, or with a function at the end; any and all."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import bool_
from cubepy.tensor.ops.library import kernels, reduced_array
from cubepy.tensor.ops.normalization import float_of
from cubepy.tensor.ops.op import Run, Spec, define
from cubepy.tensor.ops.reductions import reduced


def _spread(name: str) -> Run:
    def run_spread(dtype: np.dtype, x: Any, axis: Any, correction: float, keepdims: bool) -> Any:
        return reduced_array(getattr(kernels(), name), x, axis, keepdims, ddof=correction)

    return run_spread


@define("reduce", {"var": _spread("var"), "std": _spread("std")})
def _var(x: Spec, axis: Any, correction: float, keepdims: bool) -> Spec:
    """`correction`: what is subtracted from the count that divides."""
    return Spec(reduced(x, axis, keepdims, "var"), float_of(x))


def _run_logsumexp(dtype: np.dtype, x: Any, axis: Any, keepdims: bool) -> Any:
    return reduced_array(kernels().logsumexp, x, axis, keepdims)


@define("reduce", {"logsumexp": _run_logsumexp})
def _logsumexp(x: Spec, axis: Any, keepdims: bool) -> Spec:
    return Spec(reduced(x, axis, keepdims, "logsumexp"), float_of(x))


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
