"""What several results of the same elements are to their routines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.elementwise.map_gpu import converted
from cubepy.lang.declare import Func


class Maps(NamedTuple):
    """results = function(*numbers, *inputs) for arrays of one shape, not empty, whose axes are
    merged.

    Attributes:
        numbers: arrays of rank 1: what is the same for all elements.
    """

    function: Func
    results: list[Any]
    inputs: list[Any]
    numbers: tuple[Any, ...] = ()


class Bundle(NamedTuple):
    """results = function(*numbers, *inputs) for several members: contiguous arrays of rank 1 and
    one size, not empty.

    Attributes:
        results: those of the first member, of the second ...
        inputs: likewise.
        many: the members.
        fixed: which inputs of a member are of one element, for all of its elements.
        numbers: arrays of rank 1: what is the same for all elements of all members.
    """

    function: Func
    results: list[Any]
    inputs: list[Any]
    many: int
    fixed: tuple[bool, ...]
    numbers: tuple[Any, ...] = ()


def fixed_along_rows(arrays: Sequence[Any]) -> tuple[bool, ...]:
    """Which arrays are constant along the last axis."""
    return tuple(a.strides[-1] == 0 and a.shape[-1] > 1 for a in arrays)


@cb.func
def put(out, where, value, lanes: cb.Comptime[int], valid):
    """Store a line as the array's dtype."""
    out.store(where, converted(value, out.dtype, lanes), valid=valid)
