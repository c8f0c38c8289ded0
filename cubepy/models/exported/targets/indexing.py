"""Operators by integers or masks that are data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.errors import ModelError
from cubepy.lang.dtypes import bool_, i64
from cubepy.models.exported.lifting import lifted
from cubepy.models.exported.promotion import converted
from cubepy.models.exported.records import target
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, apply, as_tensor


def _indices(indices: Sequence[Any]) -> tuple[Any, ...]:
    """An index of tensors and None, as `x[...]` takes it.

    Raises:
        ModelError: a mask, whose data decide how much there is.
    """
    if any(i is not None and i.dtype is bool_ for i in indices):
        raise ModelError("an index by a mask gives as many elements as data decide")
    return tuple(slice(None) if i is None else i for i in indices)


@target("index")
def index(x: Tensor, indices: Sequence[Any]) -> Tensor:
    return x[_indices(indices)]


@target("index_put")
def index_put(x: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Any:
    """x with values where the index is; of first axes, which are one axis then."""
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and mask.dtype is bool_ and values.ndim == 0 and not accumulate:
        shape = (*mask.shape, *(1,) * (x.ndim - mask.ndim))
        return T.where(mask.reshape(shape), values.astype(x.dtype), x)
    given = _indices(indices)
    if any(isinstance(i, slice) for i in given):
        raise ModelError("index_put with axes left out between indices")
    parts = T.broadcast_arrays(*given)
    lengths = x.shape[: len(parts)]
    flat: Any = 0
    for n, part in zip(lengths, parts, strict=True):
        flat = flat * n + T.where(part < 0, part + n, part)
    rest = x.shape[len(parts) :]
    rows = x.reshape((-1, *rest))
    flat_index = flat.reshape(-1)
    new = values.astype(x.dtype).expand((*flat.shape, *rest)).reshape((-1, *rest))
    made = rows.index_add(0, flat_index, new) if accumulate else rows.index_copy(0, flat_index, new)
    return made.reshape(x.shape)


@target("index_select")
@lifted
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    return x.index_select(dim, index)


@target("index_add")
@lifted
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    return x.index_add(dim, index, source if alpha == 1 else source * alpha)


@target("index_copy")
@lifted
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return x.index_copy(dim, index, source)


@target("take_along_dim")
def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    return x.take_along_dim(indices, dim)


@target("gather")
def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    if not index.size:
        return T.zeros(index.shape, dtype=x.dtype)
    if not x.ndim or not index.ndim:
        return x.reshape(-1).gather(0, index.reshape(-1)).reshape(index.shape)
    return x.gather(dim, index)


def _sources(x: Tensor, index: Tensor, source: Any) -> Tensor:
    """What is scattered: a tensor of the index's shape, or a number for all."""
    if isinstance(source, Tensor) and source.ndim:
        return source
    return as_tensor(converted(source, x.dtype)).astype(x.dtype).expand(index.shape)


UPDATES = {"add": "add", "multiply": "mul"}


@target("scatter")
@lifted
def scatter(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: Any = None) -> Tensor:
    update = "assign" if reduce is None else UPDATES[reduce]
    return x.scatter(dim, index, _sources(x, index, source), update)


@target("scatter_add")
@lifted
def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return x.scatter_add(dim, index, source)


def _started(x: Tensor, how: str) -> Any:
    """What changes no result of a reduction."""
    if how in ("sum", "mean", "prod"):
        return int(how == "prod")
    if x.dtype.is_float:
        return float("-inf") if how == "amax" else float("inf")
    limits = T.iinfo(x.dtype)
    return limits.min if how == "amax" else limits.max


def _reduced(
    x: Tensor, put: Callable[[Tensor, Any, str], Tensor], source: Tensor, how: str, include: bool
) -> Tensor:
    """x with reductions of what goes to each place; `put(x, source, update)` updates."""
    if x.dtype is bool_:
        kind = {"amax": "sum", "amin": "prod"}.get(how, how)
        made = _reduced(x.astype(i64), put, source.astype(i64), kind, include)
        return made != 0
    update = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[how]
    one = T.ones(source.shape, dtype=i64)
    counts = put(T.zeros(x.shape, dtype=i64), one, "add")
    start = (
        x if include else T.where(counts > 0, T.full(x.shape, _started(x, how), dtype=x.dtype), x)
    )
    made = put(start, source.astype(x.dtype), update)
    if how != "mean":
        return made
    many = (counts + int(include)).maximum(1)
    return made / many.astype(x.dtype) if x.dtype.is_float else made // many.astype(x.dtype)


@target("scatter_reduce")
@lifted
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if not index.size:
        return x
    source = source[tuple(slice(n) for n in index.shape)]
    return _reduced(x, lambda a, b, u: a.scatter(dim, index, b, u), source, reduce, include_self)


@target("index_reduce")
@lifted
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if not index.size:
        return x
    axis = dim % x.ndim

    def put(a: Tensor, b: Any, update: str) -> Tensor:
        return apply("put", a, index, b, axis=axis, update=update)  # type: ignore[no-any-return]

    return _reduced(x, put, source, reduce, include_self)


@target("index_fill")
@lifted
def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    filled = as_tensor(converted(value, x.dtype)).astype(x.dtype)
    shape = list(x.shape)
    shape[dim] = index.size
    return x.index_copy(dim, index.reshape(-1), filled.expand(tuple(shape)))


@target("take")
def take(x: Tensor, index: Tensor) -> Tensor:
    return x.reshape(-1)[index.reshape(-1)].reshape(index.shape)


@target("put")
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat, at = x.reshape(-1), index.reshape(-1)
    at = T.where(at < 0, at + flat.size, at)
    made = (flat.index_add if accumulate else flat.index_copy)(0, at, source.reshape(-1))
    return made.reshape(x.shape)


def _strided(size: Sequence[int], stride: Sequence[int], offset: int | None) -> np.ndarray:
    """Where elements of a view with strides lie."""
    at = np.full((), offset or 0, np.int64)
    for n, step in zip(size, stride, strict=True):
        at = at[..., None] + np.arange(n) * step
    return at


@target("as_strided")
def as_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Tensor:
    """Of a tensor whose elements lie one behind the other, which the reader looks at."""
    at = as_tensor(_strided(size, stride, offset)).to(x.device)
    return take(x, at)


@target("as_strided_scatter")
def as_strided_scatter(
    x: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Tensor:
    return put(x, as_tensor(_strided(size, stride, offset)).to(x.device), source)


@target("masked_scatter")
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of a source, one after the other, where a mask holds."""
    x, mask = T.broadcast_arrays(x, mask)
    if not x.size or not source.size:
        return x
    at = (mask.reshape(-1).astype(i64).cumsum(0) - 1).maximum(0).minimum(source.size - 1)
    given = source.reshape(-1).index_select(0, at).reshape(x.shape)
    return T.where(mask, given.astype(x.dtype), x)


@target("slice_scatter")
def slice_scatter(
    x: Tensor, source: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    positions = range(*slice(start, end, step).indices(x.shape[dim]))
    index = T.arange(positions.start, positions.stop, positions.step, dtype=i64)
    return x.index_copy(dim, index, source.astype(x.dtype))


@target("select_scatter")
def select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    index %= x.shape[dim]
    return slice_scatter(x, source.unsqueeze(dim), dim, index, index + 1)


@target("embedding")
def embedding(weight: Tensor, indices: Tensor, *rest: Any) -> Tensor:
    return F.embedding(indices, weight)


@target("one_hot")
def one_hot(x: Tensor, classes: int = -1) -> Tensor:
    if classes < 0:
        raise ModelError("one_hot without a number of classes looks at the data")
    return (x.unsqueeze(-1) == T.arange(classes, dtype=x.dtype)).astype(i64)
