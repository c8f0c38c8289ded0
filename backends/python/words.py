"""What the words of loops, lines and tuples mean on the python backend."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from cubepy.backends.python.builtins import MEANING, means
from cubepy.backends.python.values import Value, WeakNumber, convert, is_weak, meeting, strong
from cubepy.errors import ComptimeError, DTypeError, KernelAssertionError, KernelTypeError, Location
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.lang.words import STEP_OF_ZERO, read_too_early


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

    def __reversed__(self) -> TypedRange:  # type: ignore[override]
        other = TypedRange((0,), self.dtype)
        other.plain = self.plain[::-1]
        return other


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


def unassigned(kernel: str, error: UnboundLocalError) -> Exception:
    """What is said of a variable that a unit reads before it has a value; the error itself where no
    kernel reads it.
    """
    begun = error.__traceback__
    assert begun is not None
    while begun.tb_next is not None:
        begun = begun.tb_next
    code, number = begun.tb_frame.f_code, begun.tb_lineno
    if "__run__" not in code.co_varnames:
        return error
    text = linecache.getline(code.co_filename, number)
    column = len(text) - len(text.lstrip())
    name = str(error).partition("'")[2].partition("'")[0]
    return KernelAssertionError(
        f"in {kernel}: {read_too_early(name)}",
        location=Location(code.co_filename, number, column, code.co_name),
    )


class Sides:
    """Loops, and expressions that a launch evaluates in part, or many times."""

    skipped = object()
    index: DType
    typed: dict[tuple[str, str], DType]

    def do_range(self, *bounds: Any, unroll: bool = True) -> TypedRange:
        """`range` of integers."""
        if len(bounds) == 3 and int(bounds[2]) == 0:
            self.do_debug_assert(False, STEP_OF_ZERO)
        return TypedRange(bounds, self.index)

    def do_debug_assert(self, condition: Any, message: str = "assertion failed") -> None:
        """Fail where a condition does not hold."""
        raise NotImplementedError

    def collected(self, items: Any, element: Callable[..., Any]) -> Generator[Any, None, Any]:
        """`(element for ... in items)`, as a tuple."""
        out = []
        for item in getattr(items, "plain", items):
            value = yield from element(item)
            if value is not self.skipped:
                out.append(value)
        return tuple(out)

    def holds(self, condition: Any) -> bool:
        """Whether the first side of a conditional expression is looked at; of a mask, both are."""
        return bool(getattr(condition, "lanes", 0) or condition)

    def fails(self, condition: Any) -> bool:
        """Whether the second side of a conditional expression is looked at."""
        return bool(getattr(condition, "lanes", 0) or not condition)

    def chosen(self, condition: Any, a: Any, b: Any, types: dict[str, Any], site: str) -> Any:
        """`a if condition else b`, lane by lane where the condition is a mask."""
        if getattr(condition, "lanes", 0):
            return MEANING["select"](condition, a, b)
        return self.joined(a if condition else b, types, site)

    def joined(self, value: Any, types: dict[str, Any], site: str) -> Any:
        """The side that was evaluated, as what both become in compiled code."""
        known = self.typed.get((types[""], site))
        if known is None or not (isinstance(value, Value) or is_weak(value)):
            return value
        if (types[""], f"{site}~") not in self.typed:
            made = convert(value, known)
            return Value(made.data, known) if type(made) is WeakNumber else made
        if known.is_float and not strong(value).dtype.is_float:
            return float(value) if is_weak(value) else WeakNumber(convert(value, known).data, known)
        return value

    def negated(self, value: Any) -> Any:
        """`not value`, lane by lane of a mask."""
        if getattr(value, "lanes", 0):
            return Value(value.data == 0, dt.bool_)
        return not value


@means("iota")
def _iota(lanes: Any, dtype: Any = dt.i32) -> Value:
    target = as_dtype(dtype).compute
    return Value(np.arange(int(lanes)).astype(target.numpy), target)


@means("line")
def _line(*values: Any) -> Value:
    met = values[0]
    for v in values[1:]:
        dtype = meeting(met, v)
        if not (is_weak(met) and is_weak(v)):
            met = Value(0, dtype)
        else:
            met = 0.0 if dtype.is_float else max(met, v, key=abs)
    dtype = strong(met).dtype
    return Value(np.array([convert(v, dtype).data for v in values]), dtype)


@means("keep_first")
def _keep_first(line: Value, n: Any, other: Any) -> Value:
    is_float = isinstance(other, float) if is_weak(other) else strong(other).dtype.is_float
    if is_float and not line.dtype.is_float:
        raise DTypeError(f"a float cannot be put into lanes of a line of {line.dtype.name}")
    rest = convert(other, line.dtype)
    inside = np.arange(line.lanes) < int(n)
    return Value(np.where(inside, line.data, rest.data), line.dtype)


@means("unravel")
def _unravel(position: Any, shape: tuple[Any, ...]) -> tuple[Any, ...]:
    found: list[Any] = []
    for extent in reversed(shape[1:]):
        found.append(position % extent)
        position = position // extent
    return (position, *reversed(found))
