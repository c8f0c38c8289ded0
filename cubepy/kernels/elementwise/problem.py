"""What elementwise work is to its routines."""

from __future__ import annotations

import builtins
from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels.entry.shapes import merged
from cubepy.kernels.primitives.vector_width import STREAMING_BYTES, to_line
from cubepy.lang.dtypes import as_dtype


@cb.func
def identity(x):
    """x"""
    return x


class Map(NamedTuple):
    """dest = function(*inputs) for arrays of one shape, not empty, whose axes are merged where they
    can be.

    Attributes:
        moves: whether elements are copied as they are.
    """

    function: Any
    dest: Any
    inputs: list[Any]
    moves: bool = False

    @property
    def across(self) -> list[bool]:
        """Which inputs have neighbours along another axis, and are not written."""
        return [lies_across(x) and not np.may_share_memory(x, self.dest) for x in self.inputs]

    @property
    def flat(self) -> bool:
        """Whether all arrays are one row without gaps."""
        arrays = (self.dest, *self.inputs)
        return all(a.ndim == 1 and a.strides[0] == a.itemsize for a in arrays)

    def head(self) -> int | None:
        """How many elements come before those that are stored past the caches; None where none are:
        results that a cache holds, or that are read as well.
        """
        dest = self.dest
        head = to_line(dest) if dest.nbytes >= STREAMING_BYTES else None
        if head is None or head >= dest.size:
            return None
        return None if builtins.any(np.may_share_memory(dest, x) for x in self.inputs) else head


def memory_order(x: Any) -> list[int]:
    """The axes of an array, those whose neighbours are furthest apart in memory first."""
    return sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]))


def lies_across(x: Any) -> bool:
    """Whether neighbours in memory are neighbours along another axis than the last."""
    separate = x.strides[-1] not in (0, x.itemsize) and x.shape[-1] > 1
    return separate and builtins.any(
        s == x.itemsize and n > 1 for s, n in zip(x.strides, x.shape, strict=True)
    )


def described(function: Any, xs: list[Any], result: Any) -> Map:
    """A function of arrays that broadcast to the shape of the result, as routines take it."""
    spread = [x if x.shape == result.shape else np.broadcast_to(x, result.shape) for x in xs]
    dest, *inputs = merged(as_stored([result, *spread]))
    moves = function is identity and dest.dtype == inputs[0].dtype
    if (
        moves and as_dtype(dest.dtype).is_float and dest.itemsize == 2
    ):  # as bits: nothing is to be computed in f32
        dest, inputs = dest.view(np.uint16), [inputs[0].view(np.uint16)]
    elif moves and dest.dtype == np.bool_:  # squares of bools are not turned
        dest, inputs = dest.view(np.uint8), [inputs[0].view(np.uint8)]
    return Map(function, dest, inputs, moves)


def as_stored(arrays: list[Any]) -> list[Any]:
    """Arrays of one shape with their axes in the order in which the first one lies in memory."""
    first = arrays[0]
    if first.flags.c_contiguous:
        return arrays
    order = memory_order(first)
    return arrays if order == list(range(first.ndim)) else [a.transpose(order) for a in arrays]
