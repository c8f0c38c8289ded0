"""Operators that make tensors of nothing but numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.lang.dtypes import DType, bool_, f32, f64, i64
from cubepy.models.exported.records import target
from cubepy.tensor import Tensor, as_tensor


def _full(shape: Any, value: Any, dtype: DType | None) -> Tensor:
    if isinstance(value, Tensor):
        return value.astype(dtype or value.dtype).expand(tuple(shape))
    if dtype is None:
        dtype = bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f32
    if dtype is bool_:
        return T.full(tuple(shape), bool(value), dtype=dtype)
    return T.full(tuple(shape), value, dtype=dtype)


@target("arange")
def arange(*bounds: Any, dtype: DType | None = None, **said: Any) -> Tensor:
    whole = all(isinstance(b, int) for b in bounds)
    return T.arange(*bounds, dtype=dtype or (i64 if whole else f32))


@target("linspace")
def linspace(start: Any, end: Any, steps: int, *, dtype: DType | None = None, **s: Any) -> Tensor:
    dtype = dtype or f32
    if not isinstance(start, Tensor) and not isinstance(end, Tensor):
        kind = float if dtype.is_float else int  # integers go between integers
        return T.linspace(float(kind(start)), float(kind(end)), num=steps, dtype=dtype)
    start, end = (as_tensor(v).astype(dtype) for v in (start, end))
    return start + (end - start) * T.linspace(0.0, 1.0, num=steps, dtype=dtype)


@target("logspace")
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: DType | None = None, **s: Any
) -> Tensor:
    powers = linspace(start, end, steps, dtype=f64)
    found = (powers * math.log(abs(base))).exp()
    if base < 0:  # of whole powers
        found = T.where(powers % 2 == 0, found, T.where(powers % 1 == 0, -found, float("nan")))
    return found.astype(dtype or f32)


def _triangle(inside: Any) -> Any:
    def run(
        rows: int, columns: int, offset: int = 0, *, dtype: DType | None = None, **said: Any
    ) -> Tensor:
        """Rows and columns of what is in a triangle."""
        made = np.stack(np.nonzero(inside(rows, offset, columns)))
        return as_tensor(made.astype(np.int64)).astype(dtype or i64)

    return run


target("tril_indices")(_triangle(lambda n, k, m: np.tri(n, m, k)))
target("triu_indices")(_triangle(lambda n, k, m: 1 - np.tri(n, m, k - 1)))


def _window(formula: Callable[..., Any]) -> Callable[..., Tensor]:
    def run(
        length: int, periodic: bool = True, *rest: Any, dtype: DType | None = None, **said: Any
    ) -> Tensor:
        """A window function; a periodic one is that of one element more, without the last."""
        n = length + bool(periodic)
        at = np.arange(length) / max(n - 1, 1)
        made = formula(at, *rest) if length > 1 else np.ones(length)
        return as_tensor(np.asarray(made, np.float64)[:length]).astype(dtype or f32)

    return run


def _cosines(at: Any, a: float, b: float, c: float = 0.0) -> Any:
    return a - b * np.cos(2 * np.pi * at) + c * np.cos(4 * np.pi * at)


target("hann_window")(_window(lambda at: _cosines(at, 0.5, 0.5)))
target("hamming_window")(_window(lambda at, a=0.54, b=0.46: _cosines(at, a, b)))
target("blackman_window")(_window(lambda at: _cosines(at, 0.42, 0.5, 0.08)))
target("bartlett_window")(_window(lambda at: 1 - np.abs(2 * at - 1)))
target("kaiser_window")(
    _window(lambda at, beta=12.0: np.i0(beta * np.sqrt(1 - (2 * at - 1) ** 2)) / np.i0(beta))
)


@target("eye")
def eye(n: int, m: int | None = None, *, dtype: DType | None = None, **said: Any) -> Tensor:
    return T.eye(n, m, dtype=dtype or f32)


@target("zeros empty")
def zeros(shape: Sequence[int], *, dtype: DType | None = None, **said: Any) -> Tensor:
    """What `empty` holds is nobody's business: zeros."""
    return _full(shape, 0, dtype or f32)


@target("empty_permuted empty_strided")
def empty_laid_out(shape: Any, layout: Any, *, dtype: DType | None = None, **said: Any) -> Tensor:
    return _full(shape, 0, dtype or f32)


@target("ones")
def ones(shape: Sequence[int], *, dtype: DType | None = None, **said: Any) -> Tensor:
    return _full(shape, 1, dtype or f32)


@target("full")
def full(shape: Sequence[int], value: Any, *, dtype: DType | None = None, **said: Any) -> Tensor:
    return _full(shape, value, dtype)


@target("scalar_tensor")
def scalar_tensor(value: Any, *, dtype: DType | None = None, **said: Any) -> Tensor:
    return _full((), value, dtype or f32)


@target("zeros_like empty_like zero")
def zeros_like(x: Tensor, *, dtype: DType | None = None, **said: Any) -> Tensor:
    return _full(x.shape, 0, dtype or x.dtype)


@target("ones_like")
def ones_like(x: Tensor, *, dtype: DType | None = None, **said: Any) -> Tensor:
    return _full(x.shape, 1, dtype or x.dtype)


@target("full_like")
def full_like(x: Tensor, value: Any, *, dtype: DType | None = None, **said: Any) -> Tensor:
    return _full(x.shape, value, dtype or x.dtype)


@target("new_zeros new_empty")
def new_zeros(x: Tensor, shape: Any, *, dtype: DType | None = None, **said: Any) -> Tensor:
    return _full(shape, 0, dtype or x.dtype)


@target("new_empty_strided")
def new_laid_out(
    x: Tensor, shape: Any, layout: Any, *, dtype: DType | None = None, **said: Any
) -> Tensor:
    return _full(shape, 0, dtype or x.dtype)


@target("new_ones")
def new_ones(x: Tensor, shape: Any, *, dtype: DType | None = None, **said: Any) -> Tensor:
    return _full(shape, 1, dtype or x.dtype)


@target("new_full")
def new_full(x: Tensor, shape: Any, value: Any, *, dtype: Any = None, **said: Any) -> Tensor:
    return _full(shape, value, dtype or x.dtype)


@target("fill")
def fill(x: Tensor, value: Any) -> Tensor:
    return _full(x.shape, value, x.dtype)


@target("copy")
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return as_tensor(source).astype(x.dtype).expand(x.shape)
