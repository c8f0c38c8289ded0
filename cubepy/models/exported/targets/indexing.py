"""Operators by integers or masks that are data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy import tensor as T
from cubepy.errors import ModelError
from cubepy.lang.dtypes import bool_, i64
from cubepy.models.exported.promotion import converted
from cubepy.models.exported.records import target
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, as_tensor


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
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    return x.index_select(dim, index)


@target("index_add")
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    return x.index_add(dim, index, source if alpha == 1 else source * alpha)


@target("index_copy")
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return x.index_copy(dim, index, source)


@target("take_along_dim")
def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    return x.take_along_dim(indices, dim)


@target("gather")
def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    return x.gather(dim, index)


@target("scatter")
def scatter(x: Tensor, dim: int, index: Tensor, source: Any, **said: Any) -> Tensor:
    if said.get("reduce") is not None:
        raise ModelError(f"scatter with reduce={said['reduce']!r}")
    if not isinstance(source, Tensor):
        source = as_tensor(converted(source, x.dtype)).astype(x.dtype).expand(index.shape)
    return x.scatter(dim, index, source)


@target("scatter_add")
def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return x.scatter_add(dim, index, source)


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
