"""Sorts, searches, sets and indices, as the array API names them."""

from __future__ import annotations

from typing import Any, NamedTuple

from cubepy.errors import ArgumentError, ShapeError
from cubepy.lang.dtypes import bool_, promote
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.methods.applied import formulas, found_by


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
    if not known.ndim:
        raise ShapeError("searchsorted needs x1 of rank 1 or more")
    if sorter is not None:
        order = as_tensor(sorter)
        last = known.ndim - 1
        known = known.take_along_dim(order, last) if last else apply("take", known, order, axis=0)
    common = promote(known.dtype, given.dtype)
    known, given = (x if x.dtype is common else x.astype(common) for x in (known, given))
    return apply("searchsorted", known, given, right=side == "right")  # type: ignore[no-any-return]


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


class _Groups:
    """Equal elements of a flattened tensor side by side.

    Attributes:
        ordered: what a sort gives.
        order: how it goes; None if nobody asks.
        begins: which elements begin a group.
        starts: where these are.
    """

    def __init__(self, x: Tensor, order: bool = True) -> None:
        flat = x.reshape(-1)
        self.shape = x.shape
        self.order: Any = None
        if order:
            self.ordered, self.order = flat.sort(0)
        else:
            self.ordered = apply("sort", flat, axis=0, descending=False)
        self.begins = formulas().groups(self.ordered)
        self.starts = found_by(self.begins)[0]

    def values(self) -> Tensor:
        """An element of each group."""
        return apply("take", self.ordered, self.starts, axis=0)  # type: ignore[no-any-return]

    def first(self) -> Tensor:
        """Where it comes first."""
        return apply("take", self.order, self.starts, axis=0)  # type: ignore[no-any-return]

    def counts(self) -> Tensor:
        """Of elements in each group."""
        return formulas().gaps(self.starts, self.ordered.size)  # type: ignore[no-any-return]

    def inverse(self) -> Tensor:
        """In which group each element is."""
        return formulas().numbered(self.order, self.begins).reshape(self.shape)  # type: ignore[no-any-return]


def unique_all(x: Any, /) -> UniqueAll:
    """The different elements in order (each NaN is one), where they come first, where each element
    is among them, and how often they come.
    """
    groups = _Groups(as_tensor(x))
    return UniqueAll(groups.values(), groups.first(), groups.inverse(), groups.counts())


def unique_counts(x: Any, /) -> UniqueCounts:
    """The different elements in order, and how often they come."""
    groups = _Groups(as_tensor(x), order=False)
    return UniqueCounts(groups.values(), groups.counts())


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The different elements in order, and where each element is among them."""
    groups = _Groups(as_tensor(x))
    return UniqueInverse(groups.values(), groups.inverse())


def unique_values(x: Any, /) -> Tensor:
    """The different elements in order."""
    return _Groups(as_tensor(x), order=False).values()


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
