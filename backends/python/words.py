"""What the words of loops and lines mean on the python backend: typed ranges, loops over lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cubepy.backends.python.values import Value
from cubepy.errors import ComptimeError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType


def counting(bounds: tuple[Any, ...], index: DType) -> DType:
    """The dtype in which a loop with these bounds counts."""
    for b in bounds:
        if isinstance(b, Value) and b.dtype.bits >= index.bits:
            index = dt.promote(index, b.dtype)
    return index


class TypedRange:
    """`range` in a kernel: its items are integers of the index dtype."""

    def __init__(self, bounds: tuple[Any, ...], index: DType) -> None:
        self.plain = range(*(int(b) for b in bounds))
        self.dtype = counting(bounds, index)

    def __iter__(self) -> Iterator[Value]:
        return (Value(i, self.dtype) for i in self.plain)


def lines(start: Any, stop: Any, lanes: Any, index: DType) -> Iterator[tuple[Value, Any]]:
    """`cb.lines(start, stop, lanes)`: where each line begins, and how many of its lanes are there.

    Raises:
        ComptimeError: the lane count is a runtime value.
        KernelTypeError: it is less than 1, or a bound is no integer.
    """
    if isinstance(lanes, Value):
        raise ComptimeError("the lane count of cb.lines must be comptime")
    if lanes < 1:
        raise KernelTypeError(f"a line has at least one lane, not {lanes}")
    for bound in (start, stop):
        if not (isinstance(bound, int) or (isinstance(bound, Value) and bound.dtype.is_int)):
            raise KernelTypeError(f"cb.lines needs integers, not {bound!r}")
    dtype, end = counting((start, stop), index), int(stop)
    for k in range(int(start), end, lanes):
        yield Value(k, dtype), lanes if end - k >= lanes else Value(end - k, dtype)
