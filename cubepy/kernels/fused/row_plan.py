"""Rows in phases: what is done with a row, as data.

A row is walked in phases. A phase computes lines of values, reduces some of them, stores some and
keeps some in a buffer; what it reduced is known to those after it. Softmax is three phases: the
maximum, the sum of exponentials (which are kept), the quotients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.primitives import functions as f
from cubepy.lang.dtypes import DType


@cb.func
def added(a, b):
    """a + b"""
    return a + b


STEPS: dict[str, tuple[Any, float]] = {
    "sum": (added, 0.0),
    "max": (f.larger, -float("inf")),
    "min": (f.smaller, float("inf")),
}
"""What a reduction does with two values, and what it begins with."""


@dataclass(frozen=True)
class Phase:
    """A walk over a row.

    Attributes:
        lines: of the lines of the wide inputs, those of the buffers that are read, and the numbers
            known so far: a tuple of what is reduced, then stored, then kept.
        steps: how each is reduced (functions of two values), and what they begin with.
        stores: the results that are written.
        keeps: the buffers that are written; -1, -2, ... are results that a later phase writes.
        reads: the buffers that are read; -1, -2, ... are results that an earlier phase wrote.
        after: of the length of a row, what was reduced, and the numbers known so far: a tuple of
            numbers that are known from here on; None where nothing was reduced.
    """

    lines: Any
    steps: tuple[Any, ...]
    starts: tuple[float, ...]
    stores: tuple[int, ...]
    keeps: tuple[int, ...]
    reads: tuple[int, ...]
    after: Any


@dataclass(frozen=True)
class RowPlan:
    """What is done with a row.

    Attributes:
        before: of the narrow inputs' numbers: a tuple of more numbers that are known; or None.
        phases: the walks.
        numbers: (result, which known number it is).
        sums: the dtype of sums and buffers.
        buffers: how many there are.
    """

    before: Any
    phases: tuple[Phase, ...]
    numbers: tuple[tuple[int, int], ...]
    sums: DType
    buffers: int


class Rows(NamedTuple):
    """What a plan gives for all rows.

    Attributes:
        plan: the phases.
        results: arrays of shape (*lead, n) or (*lead, 1), to be written.
        wides: arrays of shape (*lead, n), whose neighbours are neighbours in memory.
        narrows: arrays of shape (*lead, 1).
        n: the length of a row.
    """

    plan: RowPlan
    results: list[Any]
    wides: list[Any]
    narrows: list[Any]
    n: int


@cb.func
def put_number(out, lead, value):
    """Store the number of a row as the array's dtype."""
    out[lead + (0,)] = cb.cast(value, out.dtype)


@cb.func
def across(line, step, lanes: cb.Comptime[int]):
    """`step` over the lanes of a line, halves first."""
    for half in cb.unroll(halves(lanes)):
        line = step(line, cb.shuffle(line, line, swapped(half, lanes)))
    return line[0]


def halves(lanes: int) -> tuple[int, ...]:
    """Half of the lanes, a quarter of them, ... 1."""
    return tuple(1 << k for k in reversed(range(lanes.bit_length() - 1)))


def swapped(half: int, lanes: int) -> tuple[int, ...]:
    """Lanes so that what is `half` further comes first."""
    return tuple(k ^ half for k in range(lanes))
