"""What several results of the same elements are to their routines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.elementwise.map_gpu import converted
from cubepy.lang.declare import Func
from cubepy.lang.dtypes import DType


class Maps(NamedTuple):
    """results = function(*numbers, *inputs) for arrays of one shape, not empty, whose axes are
    merged.

    Attributes:
        results: one array each; where there are `parts`, one of rank one more for all of them and
            then one for each of the others.
        numbers: arrays of rank 1: what is the same for all elements.
        parts: what the function gives that lies in one array, in this order.
    """

    function: Func
    results: list[Any]
    inputs: list[Any]
    numbers: tuple[Any, ...] = ()
    parts: tuple[int, ...] = ()


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


@dataclass(frozen=True)
class ColumnPlan:
    """What is done with the elements of columns.

    Attributes:
        function: of a value of each input: a tuple of what is reduced, then stored; None where the
            inputs are reduced as they are.
        steps: how each is reduced (functions of two values), and what they begin with.
        means: which are divided by the length of a column.
        sums: the dtype of sums.
    """

    function: Any
    steps: tuple[Any, ...]
    starts: tuple[float, ...]
    means: tuple[bool, ...]
    sums: DType


class Columns(NamedTuple):
    """What a plan gives for all columns.

    Attributes:
        plan: the function.
        totals: contiguous arrays of shape (1, n), to be written.
        stored: arrays of shape (*lead, n), to be written.
        inputs: arrays of shape (*lead, n), whose neighbours are neighbours in memory, or one.
        rows: how many there are.
    """

    plan: ColumnPlan
    totals: list[Any]
    stored: list[Any]
    inputs: list[Any]
    rows: int


def lanes_for(lanes: int, n: int) -> int:
    """Lanes of the lines of a short row, so that not much of the last one is empty."""
    return lanes // 2 if n % lanes and -n % lanes * 4 >= n and n % (lanes // 2) == 0 else lanes


def fixed_along_rows(arrays: Sequence[Any]) -> tuple[bool, ...]:
    """Which arrays are constant along the last axis."""
    return tuple(a.strides[-1] == 0 and a.shape[-1] > 1 for a in arrays)


@cb.func
def given_by(plan: cb.Comptime[ColumnPlan], values):
    """What a plan's function makes of values; without one, the values."""
    if plan.function is None:
        return values
    return plan.function(*values)


@cb.func
def begun(plan: cb.Comptime[ColumnPlan], lanes: cb.Comptime[int]):
    """A line of what each reduction starts with."""
    parts: Any = ()
    for j in cb.unroll(range(len(plan.steps))):
        parts = parts + (cb.cast(cb.splat(plan.starts[j], lanes), plan.sums),)
    return parts


@cb.func
def further(parts, found, plan: cb.Comptime[ColumnPlan], lanes: cb.Comptime[int]):
    """The same with what a function gave of a row."""
    new: Any = ()
    for j in cb.unroll(range(len(plan.steps))):
        value = cb.splat(cb.cast(found[j], plan.sums), lanes)
        new = new + (plan.steps[j](parts[j], value),)
    return new


@cb.func
def put_all(results, lead, k, found, parts: cb.Comptime[tuple], lanes: cb.Comptime[int], valid):
    """Store what a function gave: parts in the first array, then one array each."""
    for n in cb.unroll(range(len(parts))):
        put(results[0], (n,) + lead + (k,), found[parts[n]], lanes, valid)
    done = 1 if len(parts) > 0 else 0
    for n in cb.unroll(range(len(found))):
        if n not in parts:
            put(results[done], lead + (k,), found[n], lanes, valid)
            done = done + 1


@cb.func
def put(out, where, value, lanes: cb.Comptime[int], valid):
    """Store a line as the array's dtype."""
    out.store(where, converted(value, out.dtype, lanes), valid=valid)
