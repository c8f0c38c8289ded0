"""Ops by integers that are data. Indices are looked at before anything is read or written by them
(see `cubepy.kernels.indexing.bounds`); negative ones count from the end, unless a rule says
otherwise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.lang.dtypes import bool_, i64
from cubepy.tensor.ops.library import (
    bounds,
    counts,
    embeddings,
    flat,
    function,
    gathering,
    kernels,
    masks,
    number,
    searches,
    zeros,
)
from cubepy.tensor.ops.op import Spec, axis_in, broadcast, define

UPDATES = ("assign", "add", "mul", "min", "max")


def _integers(op: str, *indices: Spec) -> None:
    """Raise unless indices are integers."""
    for index in indices:
        if not index.dtype.is_int or index.dtype.storage_only:
            raise DTypeError(f"{op} needs integer indices, not {index.dtype.name}")


@define("index", {"embedding": lambda d, indices, weight: kernels().embedding(indices, weight)})
def _embedding(indices: Spec, weight: Spec) -> Spec:
    _integers("embedding", indices)
    if len(weight.shape) != 2:
        raise ShapeError(f"expected an embedding table of rank 2, got shape {weight.shape}")
    return Spec((*indices.shape, weight.shape[1]), weight.dtype)


def _run_embedding_gradient(dtype: np.dtype, g: Any, indices: Any, rows: int) -> Any:
    width = g.shape[-1]
    values = flat(g).reshape(indices.size, width)
    if embeddings().is_large(values, rows):
        return embeddings().rows_summed(values, flat(indices), rows)
    start = zeros(g, (rows, width), dtype)
    return kernels().index_put(start, (flat(indices),), values, "add", out=start)


@define("index", {"embedding_gradient": _run_embedding_gradient})
def _embedding_gradient(g: Spec, indices: Spec, rows: int) -> Spec:
    """The sums of rows of g by index."""
    return Spec((rows, g.shape[-1]), g.dtype)


def _run_flat_index(dtype: np.dtype, *indices: Any, lengths: tuple[int, ...]) -> Any:
    flat = None
    for index, n in zip(indices, lengths, strict=True):
        bounds().check_indices(index, n, "an index", from_end=True)
        length = number(index, n, dtype)
        part = index
        if index.dtype.kind == "i":
            part = kernels().map(function("t:from_end"), index, length, dtype=dtype)
        if flat is not None:
            part = kernels().map(function("t:joined_index"), flat, length, part, dtype=dtype)
        flat = part
    if flat is not indices[0]:
        return flat  # that of a map already
    return kernels().map(function("t:identity"), flat, dtype=dtype)


@define("index", {"flat_index": _run_flat_index}, constant=True)
def _flat_index(*indices: Spec, lengths: tuple[int, ...]) -> Spec:
    """One index into neighbouring axes of these lengths as if they were one, counted from the
    front, of an index into each.
    """
    _integers("an index", *indices)
    return Spec(broadcast(*indices), i64)


def _run_take(dtype: np.dtype, x: Any, index: Any, axis: int, from_end: bool = False) -> Any:
    at = axis % x.ndim
    if from_end and index.dtype.kind == "i":
        if not isinstance(x, np.ndarray):
            return gathering().taken(x, at, index)
        index = _run_flat_index(np.dtype(np.int64), index, lengths=(x.shape[at],))
    shape = (*x.shape[:at], *index.shape, *x.shape[at + 1 :])
    return kernels().select(x, at, flat(index)).reshape(shape)


@define("index", {"take": _run_take})
def _take(x: Spec, index: Spec, axis: int, from_end: bool = False) -> Spec:
    """Slices at the positions of an index of any rank, whose axes replace the one; it counts from
    the front, if `from_end` below 0 from the end.
    """
    _integers("take", index)
    at = axis_in(axis, len(x.shape), "take")
    return Spec((*x.shape[:at], *index.shape, *x.shape[at + 1 :]), x.dtype)


def _run_put(dtype: np.dtype, x: Any, index: Any, values: Any, axis: int, update: str) -> Any:
    at, rank = axis % x.ndim, index.ndim
    order = (at, *(d for d in range(x.ndim) if d != at))
    shape = (*x.shape[:at], *index.shape, *x.shape[at + 1 :])
    given = np.broadcast_to(values, shape)
    ahead = (*range(at, at + rank), *(d for d in range(given.ndim) if not at <= d < at + rank))
    if given.dtype != dtype:
        given = kernels().map(function("t:identity"), given, dtype=dtype)
    done = kernels().index_put(x.transpose(order), (index,), given.transpose(ahead), update)
    if not at:
        return done
    back = [0] * x.ndim
    for to, d in enumerate(order):
        back[d] = to
    return kernels().copy(done.transpose(back))


@define("index", {"put": _run_put})
def _put(x: Spec, index: Spec, values: Spec, axis: int, update: str) -> Spec:
    """x, where the slices that `take` gives are updated with values that broadcast to them; indices
    below 0 count from the end.
    """
    found = _take(x, index, axis)
    _updates(update)
    if broadcast(found, values) != found.shape:
        raise ShapeError(f"values of shape {values.shape} do not broadcast to {found.shape}")
    return x


def _updates(update: str) -> None:
    if update not in UPDATES:
        raise ShapeError(f"an update is one of {', '.join(UPDATES)}, not {update!r}")


def _covers(x: Spec, index: Spec, axis: int, op: str) -> None:
    """Raise unless an index is no longer than x along the other axes."""
    _integers(op, index)
    at = axis_in(axis, len(x.shape), op)
    if len(index.shape) != len(x.shape) or any(
        n > m for d, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if d != at
    ):
        raise ShapeError(
            f"{op} along axis {axis}: an index of shape {index.shape} does not go with {x.shape}"
        )


@define("index", {"gather": lambda d, x, index, axis: kernels().gather(x, axis, index)})
def _gather(x: Spec, index: Spec, axis: int) -> Spec:
    """out[i, j] = x[index[i, j], j] for axis 0; the index counts from the front."""
    _covers(x, index, axis, "gather")
    return Spec(index.shape, x.dtype)


def _run_scatter(dtype: np.dtype, x: Any, index: Any, source: Any, axis: int, update: str) -> Any:
    if source.dtype != dtype:
        source = kernels().map(function("t:identity"), source, dtype=dtype)
    return kernels().scatter(x, axis, index, source, update)


@define("index", {"scatter": _run_scatter})
def _scatter(x: Spec, index: Spec, source: Spec, axis: int, update: str) -> Spec:
    """x, where x[index[i, j], j] is updated with source[i, j] (for axis 0); the index counts from
    the front.
    """
    _covers(x, index, axis, "scatter")
    _updates(update)
    if len(source.shape) != len(index.shape) or any(
        n < m for n, m in zip(source.shape, index.shape, strict=True)
    ):
        raise ShapeError(
            f"scatter: a source of shape {source.shape} does not cover an index of {index.shape}"
        )
    return x


def _run_take_along(dtype: np.dtype, x: Any, index: Any, axis: int) -> Any:
    return kernels().take_along_axis(x, index, axis)


@define("index", {"take_along_axis": _run_take_along})
def _take_along_axis(x: Spec, index: Spec, axis: int) -> Spec:
    """`gather`, whose index may count from the end and covers the other axes."""
    _integers("take_along_axis", index)
    at = axis_in(axis, len(x.shape), "take_along_axis")
    if len(index.shape) != len(x.shape) or any(
        n != m for d, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if d != at
    ):
        raise ShapeError(
            f"take_along_axis {axis}: an index of shape {index.shape} does not go with {x.shape}"
        )
    return Spec(index.shape, x.dtype)


@define("index", {"mask_positions": lambda d, mask: list(masks().positions(mask))}, constant=True)
def _mask_positions(mask: Spec) -> list[Spec]:
    """The indices of the elements of a mask that hold, a row for each axis, in the first columns of
    a matrix that has one for each element; and how many they are, one number.
    """
    if mask.dtype is not bool_ or not mask.shape:
        raise ShapeError(f"mask_positions takes a mask, not {mask.dtype.name}{mask.shape}")
    return [Spec((len(mask.shape), math.prod(mask.shape)), i64), Spec((1,), i64)]


@define(
    "index", {"mask_selected": lambda d, x, mask: list(masks().selected(x, mask))}, constant=True
)
def _mask_selected(x: Spec, mask: Spec) -> list[Spec]:
    """What a mask of the first axes of x selects, the first of as many as it has elements; and how
    many they are, one number.
    """
    axes = len(mask.shape)
    if mask.dtype is not bool_ or not axes or mask.shape != x.shape[:axes]:
        raise ShapeError(
            f"mask_selected: {mask.dtype.name}{mask.shape} is no mask of a tensor of {x.shape}"
        )
    return [Spec((math.prod(mask.shape), *x.shape[axes:]), x.dtype), Spec((1,), i64)]


def _run_search(dtype: np.dtype, known: Any, wanted: Any, right: bool) -> Any:
    rows = math.prod(known.shape[:-1])
    width = math.prod(wanted.shape[known.ndim - 1 :])
    found = searches().searched(
        flat(known).reshape(rows, known.shape[-1]), flat(wanted).reshape(rows, width), right
    )
    return found.reshape(wanted.shape)


@define("index", {"searchsorted": _run_search}, constant=True)
def _search(known: Spec, wanted: Spec, right: bool) -> Spec:
    """Where elements would stand among others that are in order along the last axis, before those
    that equal them or, if `right`, behind; in a row for each row, if there are several.
    """
    ahead = known.shape[:-1]
    if known.dtype is not wanted.dtype or known.dtype.storage_only:
        raise DTypeError(
            f"searchsorted: {wanted.dtype.name} among {known.dtype.name}: elements of one dtype "
            "that is no storage are compared"
        )
    if not known.shape or (ahead and wanted.shape[:-1] != ahead):
        raise ShapeError(
            f"searchsorted: rows of the shape {known.shape} go with those of {ahead} and a "
            f"length, not of {wanted.shape}"
        )
    return Spec(wanted.shape, i64)


def _run_bincount(dtype: np.dtype, x: Any, count: int) -> Any:
    return counts().counted(x, zeros(x, (count,), dtype))


@define("index", {"bincount": _run_bincount}, constant=True)
def _bincount(x: Spec, count: int) -> Spec:
    """How often each number below `count` is in a vector of integers; others are passed over."""
    _integers("bincount", x)
    if len(x.shape) != 1:
        raise ShapeError(f"bincount takes a vector, not a tensor of shape {x.shape}")
    return Spec((count,), i64)
