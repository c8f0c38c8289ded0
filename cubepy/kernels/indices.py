"""Indices that the host can see are looked at before anything is read or written by them."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, OutOfBoundsError
from cubepy.kernels.arguments import axis_of, repeated
from cubepy.kernels.elementwise import contiguous

PART = 1 << 14  # indices that a cube looks at


@cb.kernel
def extremes(index: cb.Array, ends: cb.Array, chunk: cb.Comptime[int], lanes: cb.Comptime[int]):
    """ends[p] = the smallest and the largest index of the p-th chunk."""
    first = cb.CUBE_POS * chunk
    stop = cb.min(first + chunk, index.size)
    whole = first + (stop - first) // (2 * lanes) * (2 * lanes)
    least, most = cb.splat(index[first], lanes), cb.splat(index[first], lanes)
    less, more = least, most
    for k in range(first, whole, 2 * lanes):
        one, two = index.load(k, lanes), index.load(k + lanes, lanes)
        least, most = cb.min(least, one), cb.max(most, one)
        less, more = cb.min(less, two), cb.max(more, two)
    least, most = cb.min(least, less), cb.max(most, more)
    for k in range(whole, stop):
        least, most = cb.min(least, cb.splat(index[k], lanes)), cb.max(most, cb.splat(index[k], lanes))
    smallest, largest = least[0], most[0]
    for j in cb.unroll(range(1, lanes)):
        smallest, largest = cb.min(smallest, least[j]), cb.max(largest, most[j])
    ends[cb.CUBE_POS, 0] = smallest
    ends[cb.CUBE_POS, 1] = largest


@repeated
def ends_of(index: Any, *, out: None = None) -> Any:
    """The smallest and the largest of some indices on the host, as a new array of two."""
    flat = contiguous(index).reshape(-1)
    lanes = max(1, 64 // index.itemsize)
    while True:
        parts = -(-flat.size // PART)
        ends = np.empty((parts, 2), index.dtype)
        extremes[parts, 1](flat, ends, PART, lanes, mode="unchecked", device="cpu")
        if parts == 1:
            return ends.reshape(2)
        flat = ends.reshape(-1)


def check_indices(index: Any, n: int, what: str, from_end: bool = False) -> None:
    """Refuse indices that are no integers or, where the host can see them, outside of an axis of length n.

    Raises:
        DTypeError, OutOfBoundsError: as it says.
    """
    dtype = index.dtype
    if dtype.kind not in "iu":
        raise DTypeError(f"{what} needs integer indices, not {dtype}")
    if isinstance(index, np.ndarray) and index.size:
        low, high = ends_of(index).tolist() if dtype.isnative else (int(index.min()), int(index.max()))
        if low < (-n if from_end else 0) or high >= n:
            bad = high if high >= n else low
            raise OutOfBoundsError(f"{what}: the index {bad} is outside an axis of length {n}")


def length_of(x: Any, axis: Any) -> int:
    """The length of one axis.

    Raises:
        ShapeError, ArgumentError: there is no such axis.
    """
    known = type(axis) is int and -x.ndim <= axis < x.ndim
    return int(x.shape[axis if known else axis_of(axis, x.ndim)])
