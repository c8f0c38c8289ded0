"""Sorts, scans, and what is read and written by integers, of tensors."""

from __future__ import annotations

import math
from typing import Any

from cubepy.kernels.entry.arguments import whole
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.calls.table import Call, call_of


def _along(x: Any, axis: Any) -> tuple[Tensor, int]:
    """A tensor and an axis of it; flattened where there is none."""
    given = as_tensor(x)
    return (given.reshape(-1), 0) if axis is None else (given, whole(axis, "axis"))


def _sort(name: str) -> Call:
    def sorted_along(x: Any, axis: Any, descending: bool) -> Any:
        given, at = _along(x, axis)
        return apply(name, given, axis=at, descending=descending)

    return sorted_along


def _scan(name: str) -> Call:
    def scanned(x: Any, axis: Any, exclusive: bool) -> Any:
        given, at = _along(x, axis)
        return apply(name, given, axis=at, exclusive=exclusive)

    return scanned


for _name in ("sort", "argsort"):
    call_of(_name)(_sort(_name))
for _name in ("cumsum", "cumprod"):
    call_of(_name)(_scan(_name))


@call_of("topk")
def topk(input: Any, k: int, axis: int, largest: bool, sorted: bool) -> tuple[Tensor, Tensor]:
    """`topk`."""
    given, at = _along(input, axis)
    values, indices = apply("topk", given, k=whole(k, "k"), axis=at, largest=largest)
    return values, indices


@call_of("gather")
def gather(input: Any, axis: int, index: Any) -> Tensor:
    """`gather`."""
    given, at = _along(input, axis)
    return apply("gather", given, as_tensor(index), axis=at)  # type: ignore[no-any-return]


@call_of("take_along_axis")
def take_along_axis(x: Any, indices: Any, axis: int | None) -> Tensor:
    """`take_along_axis`."""
    given, at = _along(x, axis)
    return apply(  # type: ignore[no-any-return]
        "take_along_axis", given, as_tensor(indices), axis=at
    )


@call_of("select")
def select(input: Any, axis: int, index: Any) -> Tensor:
    """`select`."""
    given, at = _along(input, axis)
    return apply("take", given, as_tensor(index), axis=at)  # type: ignore[no-any-return]


@call_of("scatter")
def scatter(input: Any, axis: int, index: Any, src: Any, update: str) -> Tensor:
    """`scatter`; a number goes to all positions."""
    given, at = _along(input, axis)
    spots, source = as_tensor(index), as_tensor(src)
    if not source.shape:
        source = source.astype(given.dtype).expand(spots.shape)
    return apply(  # type: ignore[no-any-return]
        "scatter", given, spots, source, axis=at, update=update
    )


@call_of("put_any")
def index_put(input: Any, lists: tuple[Any, ...], values: Any, update: str) -> Tensor:
    """`index_put`: indices into the first axes are one into all of them."""
    x, indices = as_tensor(input), [as_tensor(i) for i in lists]
    first = x.shape[: len(indices)]
    flat = apply("flat_index", *indices, lengths=first)
    rows = x.reshape(math.prod(first), *x.shape[len(first) :])
    new = as_tensor(values).astype(x.dtype)
    done = apply("put", rows, flat, new, axis=0, update=update)
    return done.reshape(x.shape)  # type: ignore[no-any-return]
