"""Sorts, searches, sets and indices, as the array API names them."""

from __future__ import annotations

from typing import Any, NamedTuple

from cubepy.errors import ArgumentError, ShapeError
from cubepy.lang.dtypes import bool_, i64
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.methods.indexing import positions_of
from cubepy.tensor.namespace.choice import concat
from cubepy.tensor.namespace.creation import full, zeros


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Indices (i64) of the first largest elements."""
    return as_tensor(x).argmax(axis, keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Indices (i64) of the first smallest elements."""
    return as_tensor(x).argmin(axis, keepdims)


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices (i64) that sort an axis; equal elements keep their order."""
    return as_tensor(x).argsort(axis, descending)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis; NaN last, first when descending."""
    return apply("sort", as_tensor(x), axis=axis, descending=descending)  # type: ignore[no-any-return]


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements are not 0 (i64)."""
    given = as_tensor(x)
    return (given if given.dtype is bool_ else given != 0).sum(axis, keepdims)


def nonzero(x: Any, /) -> tuple[Tensor, ...]:
    """The indices of the elements that are not 0: a tensor (i64) for each axis."""
    given = as_tensor(x)
    if not given.ndim:
        raise ShapeError("nonzero needs a tensor of rank 1 or more")
    return given.nonzero(as_tuple=True)  # type: ignore[no-any-return]


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Tensor:
    """Where elements of x2 would stand in the sorted x1 (i64): before equal ones, or with side
    "right" behind them. An x1 of several axes holds a sequence for each row of x2 along the last
    one, as in PyTorch; `sorter` says which order sorts them.
    """
    if side not in ("left", "right"):
        raise ArgumentError(f'side is "left" or "right", not {side!r}')
    known, given = as_tensor(x1), as_tensor(x2)
    if known.ndim > 1:
        return _in_rows(known, given, side, sorter)
    if not known.ndim:
        raise ShapeError("searchsorted needs x1 of rank 1 or more")
    if sorter is not None:
        known = apply("take", known, as_tensor(sorter), axis=0)
    wanted, m = given.reshape(-1), given.size
    # how many of x1 come before each of x2, where both are sorted as one, stably
    n = known.size
    order = concat([wanted, known] if side == "left" else [known, wanted]).argsort()
    of_known = (order >= m) if side == "left" else (order < n)
    before = apply("cumsum", of_known, axis=0, exclusive=False)
    start = zeros(n + m, dtype=i64, device=given.device)
    found = apply("put", start, order, before, axis=0, update="assign")
    part = found[:m] if side == "left" else found[n:]
    return part.reshape(given.shape)  # type: ignore[no-any-return]


def _in_rows(known: Tensor, given: Tensor, side: str, sorter: Any) -> Tensor:
    """`searchsorted` in a sequence for each row, by halves."""
    if given.ndim != known.ndim or given.shape[:-1] != known.shape[:-1]:
        raise ShapeError(
            f"searchsorted: rows of the shape {known.shape} go with those of {known.shape[:-1]} "
            f"and a length, not of {given.shape}"
        )
    if sorter is not None:
        known = known.take_along_dim(as_tensor(sorter), known.ndim - 1)
    n = known.shape[-1]
    first = last = zeros(given.shape, dtype=i64, device=given.device)
    last = last + n
    for _ in range(n.bit_length()):
        middle = (first + last) // 2
        there = known.take_along_dim(middle.clip(max=n - 1), known.ndim - 1)
        behind = (first < last) & ~(there >= given if side == "left" else there > given)
        first = apply("where", behind, middle + 1, first)
        last = apply("where", behind, last, middle)
    return first


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Tensor:
    """Whole slices at the positions of indices, which may count from the end."""
    given = as_tensor(x)
    if axis is None:
        if given.ndim != 1:
            raise ShapeError(f"take of a tensor of shape {given.shape} needs an axis")
        axis = 0
    return given.index_select(axis, indices)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Tensor:
    """Elements at indices along an axis; the other axes broadcast."""
    return as_tensor(x).take_along_dim(indices, axis)


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: Tensor
    inverse_indices: Tensor


class _Groups(NamedTuple):
    """Equal elements of a flattened tensor side by side: the order of the sort, the sorted
    elements, which of them begin a group, and where these are.
    """

    order: Tensor
    ordered: Tensor
    begins: Tensor
    starts: Tensor


def _groups(x: Tensor) -> _Groups:
    flat = x.reshape(-1)
    order = flat.argsort()
    ordered = apply("take", flat, order, axis=0)
    first = full(min(1, flat.size), True, device=x.device)
    begins = concat([first, ordered[1:] != ordered[:-1]])
    return _Groups(order, ordered, begins, positions_of(begins))


def _counts(groups: _Groups) -> Tensor:
    n = groups.order.size
    ends = concat([groups.starts[1:], full(min(1, n), n, device=groups.order.device)])
    return ends - groups.starts


def _inverse(groups: _Groups, x: Tensor) -> Tensor:
    number = apply("cumsum", groups.begins, axis=0, exclusive=False) - 1
    start = zeros(x.size, dtype=i64, device=x.device)
    return apply("put", start, groups.order, number, axis=0, update="assign").reshape(x.shape)  # type: ignore[no-any-return]


def _values(groups: _Groups) -> Tensor:
    return apply("take", groups.ordered, groups.starts, axis=0)  # type: ignore[no-any-return]


def unique_all(x: Any, /) -> UniqueAll:
    """The different elements in order (each NaN is one), where they come first, where each element
    is among them, and how often they come.
    """
    given = as_tensor(x)
    groups = _groups(given)
    first = apply("take", groups.order, groups.starts, axis=0)
    return UniqueAll(_values(groups), first, _inverse(groups, given), _counts(groups))


def unique_counts(x: Any, /) -> UniqueCounts:
    """The different elements in order, and how often they come."""
    groups = _groups(as_tensor(x))
    return UniqueCounts(_values(groups), _counts(groups))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The different elements in order, and where each element is among them."""
    given = as_tensor(x)
    groups = _groups(given)
    return UniqueInverse(_values(groups), _inverse(groups, given))


def unique_values(x: Any, /) -> Tensor:
    """The different elements in order."""
    return _values(_groups(as_tensor(x)))


__all__ = [
    "argmax",
    "argmin",
    "argsort",
    "count_nonzero",
    "nonzero",
    "searchsorted",
    "sort",
    "take",
    "take_along_axis",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]
