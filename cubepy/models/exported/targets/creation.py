"""Operators that make tensors of nothing but numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy import tensor as T
from cubepy.lang.dtypes import DType, bool_, f32, i64
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
    return T.linspace(float(start), float(end), num=steps, dtype=dtype or f32)


@target("eye")
def eye(n: int, m: int | None = None, *, dtype: DType | None = None, **said: Any) -> Tensor:
    return T.eye(n, m, dtype=dtype or f32)


@target("zeros empty")
def zeros(shape: Sequence[int], *, dtype: DType | None = None, **said: Any) -> Tensor:
    """What `empty` holds is nobody's business: zeros."""
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


@target("zeros_like empty_like")
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
