"""Tensors of nothing: numbers, steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import dtype_named
from cubepy.runtime import memory
from cubepy.tensor.ops.library import filled, sequence
from cubepy.tensor.ops.op import Spec, define


def check_lengths(shape: tuple[int, ...]) -> None:
    """Refuse a shape with lengths below 0."""
    if any(n < 0 for n in shape):
        raise ShapeError(f"lengths are at least 0, not {shape}")


@define("make", {"empty": lambda d, shape, dtype: memory.empty(shape, d)})
def _empty(shape: tuple[int, ...], dtype: str) -> Spec:
    """Elements of any value."""
    check_lengths(shape)
    return Spec(shape, dtype_named(dtype))


def _run_full(d: np.dtype, shape: tuple[int, ...], value: Any, dtype: str) -> Any:
    return filled(None, shape, d, value)


@define("make", {"full": _run_full})
def _full(shape: tuple[int, ...], value: Any, dtype: str) -> Spec:
    """A number everywhere."""
    check_lengths(shape)
    return Spec(shape, dtype_named(dtype))


def _run_arange(d: np.dtype, start: Any, step: Any, count: int, dtype: str) -> Any:
    return sequence().steps(start, step, count, d)


@define("make", {"arange": _run_arange})
def _arange(start: Any, step: Any, count: int, dtype: str) -> Spec:
    """`count` numbers: start, start + step, ..."""
    check_lengths((count,))
    return Spec((count,), dtype_named(dtype))
