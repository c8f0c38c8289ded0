"""What an expression of a kernel can be while it is compiled: comptime, runtime, or an aggregate of
both.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Union

from cubepy.compiler.ir import Expr, Mem
from cubepy.errors import ComptimeError, CubeError, KernelTypeError
from cubepy.lang.struct import StructType


@dataclass(frozen=True)
class Const:
    """A comptime value: any Python object. Python numbers among them are weak."""

    value: Any

    def __init__(self, value: Any) -> None:  # half of what the made one takes
        self.__dict__["value"] = value

    @property
    def is_number(self) -> bool:
        """Whether it can become a runtime value."""
        value = self.value
        plain = isinstance(value, (bool, int, float))
        return plain or (hasattr(value, "dtype") and not isinstance(value, type))


@dataclass(frozen=True)
class ArrayValue:
    """An array: an argument, shared or local memory."""

    mem: Mem


@dataclass(frozen=True)
class StructValue:
    """A struct whose fields are values."""

    type: StructType
    fields: tuple[tuple[str, Value], ...]

    def get(self, name: str) -> Value | None:
        """The field of this name, or None."""
        for n, v in self.fields:
            if n == name:
                return v
        return None


@dataclass(frozen=True)
class TupleValue:
    """A tuple of values, at least one of which is not comptime."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class TailCount(Expr):
    """How many lanes a tail has: less than `lanes`, and never changed."""

    lanes: int = 0


@dataclass(frozen=True)
class Tail(TupleValue):
    """Where the tail begins, and how many lanes it has: of values that nothing changes."""


@dataclass(frozen=True)
class MethodValue:
    """`owner.name`, about to be called."""

    owner: Value
    name: str


@dataclass(frozen=True)
class RangeValue:
    """`range(start, stop, step)` with at least one runtime bound."""

    start: Value
    stop: Value
    step: Value
    rolled: bool = False
    """Whether the loop must not be unrolled; then the step is comptime."""


@dataclass(frozen=True)
class LinesValue(RangeValue):
    """`cb.lines(start, stop, step)`: lines of comptime `step` lanes, and what is left."""


@dataclass(frozen=True)
class UnrollValue:
    """`cb.unroll(...)`: the comptime items that a loop variable takes."""

    items: tuple[Any, ...]


@dataclass(frozen=True)
class Undecided:
    """A name whose meaning depends on a runtime condition; using it is an error.

    With a `key`, using it makes the variable of that key a runtime one instead.
    """

    message: str
    key: tuple[Any, ...] | None = None

    def refused(self) -> CubeError:
        """The error for its use."""
        return ComptimeError(self.message, hint="assign it on every path, with a runtime value")


@dataclass(frozen=True)
class NoValue(Undecided):
    """What a func gives that returns a value on some paths only."""

    hint: str = ""

    def refused(self) -> CubeError:
        """The error for its use."""
        return KernelTypeError(self.message, hint=self.hint)


Value = Union[
    Const,
    Expr,
    ArrayValue,
    StructValue,
    TupleValue,
    MethodValue,
    RangeValue,
    UnrollValue,
    Undecided,
]


def describe(value: Value) -> str:
    """A short name of what a value is, for error messages."""
    if isinstance(value, Const):
        return f"the comptime value {value.value!r}"
    if isinstance(value, Expr):
        return f"a runtime {value.type}"
    if isinstance(value, ArrayValue):
        return f"the array {value.mem.name!r}"
    if isinstance(value, StructValue):
        return f"a struct {value.type.__name__}"
    if isinstance(value, TupleValue):
        return f"a tuple of {len(value.items)}"
    if isinstance(value, MethodValue):
        return f"the method {value.name!r}"
    return "a loop over lines" if isinstance(value, LinesValue) else "a range"


def instead(value: Value) -> str:
    """What to write where an aggregate stands for a number: the hint of an error."""
    if isinstance(value, ArrayValue):
        first = ", ".join("ijk"[: value.mem.ndim]) or "()"
        return f"name one element, as in {value.mem.name}[{first}], or take a line with load"
    if isinstance(value, StructValue):
        return "an operator is a method of it, as in `def __add__(self, other):`"
    if isinstance(value, TupleValue):
        return "take one of its items"
    known = value.value if isinstance(value, Const) else 0
    if isinstance(known, tuple):
        return "take one of its items"
    if isinstance(known, str):
        return "text is comptime: it may choose code (if how == 'sum'), be printed, or name a dtype"
    if known is None or known is ...:
        return f"a number must stand here, and {known} is none"
    if callable(known):
        return "call it, or pass it as a comptime argument to what calls it"
    return ""


def plain(value: Value) -> Value:
    """A tuple whose items are all comptime becomes a comptime tuple."""
    if isinstance(value, TupleValue) and all(isinstance(i, Const) for i in value.items):
        return Const(tuple(i.value for i in value.items))  # type: ignore[union-attr]
    return value


def as_tuple(value: Value) -> Value:
    """A comptime tuple as a tuple of comptime values; anything else as it is."""
    if isinstance(value, Const) and isinstance(value.value, tuple):
        return TupleValue(tuple(Const(v) for v in value.value))
    return value


def tuple_items(value: Value) -> tuple[Value, ...]:
    """The items of a tuple, comptime or not."""
    if isinstance(value, TupleValue):
        return value.items
    if isinstance(value, Const) and isinstance(value.value, tuple):
        return tuple(Const(v) for v in value.value)
    raise KernelTypeError(
        f"{describe(value)} is not a tuple",
        hint=instead(value) or "a tuple is written (a, b), or tuple(... for ...)",
    )


def unpacked(value: Value, count: int) -> list[Value]:
    """The parts of a tuple that is unpacked into `count` targets."""
    if isinstance(value, TupleValue):
        items = list(value.items)
    elif isinstance(value, Const) and isinstance(value.value, (tuple, list)):
        items = [Const(v) for v in value.value]
    else:
        raise KernelTypeError(f"{describe(value)} cannot be unpacked", hint=instead(value))
    if len(items) != count:
        raise KernelTypeError(
            f"{len(items)} values cannot be unpacked into {count} names",
            hint=f"give it {len(items)} names; one that nobody reads may be called _",
        )
    return items


def late_shape(what: str, value: Value) -> ComptimeError:
    """The error for a shape that is known at run time only: its parts, a variable's name."""
    described = describe(value)
    if isinstance(value, TupleValue):
        parts = (repr(v.value) if isinstance(v, Const) else describe(v) for v in value.items)
        described = f"({', '.join(parts)})"
    elif isinstance(value, Expr) and value.op == "var":
        described = f"{value.attr!r}, {describe(value)}"
    return ComptimeError(
        f"the shape of {what} must be comptime, but it is {described}",
        hint="take it as a parameter `n: cb.Comptime[int]`, or allocate the most",
    )


def of_an_array(value: Value) -> str:
    """How a loop goes over an array; empty for other values."""
    if not isinstance(value, ArrayValue):
        return ""
    name = value.mem.argument or value.mem.name
    return f"write `for i in range({name}.shape[0]):` and use {name}[i]"


def refuse_loop_with(function: str, args: list[Value]) -> None:
    """`enumerate` and `zip` of what is no tuple.

    Raises:
        KernelTypeError: an array, or another runtime value.
    """
    for value in args:
        known = isinstance(value, Const) and isinstance(value.value, (tuple, range))
        if isinstance(value, TupleValue) or known:
            continue
        hint = of_an_array(value) or "write `for i in range(...):` and use what belongs to i"
        raise KernelTypeError(
            f"{function} goes over comptime tuples in a kernel, not over {describe(value)}",
            hint=hint,
        )


def refuse_index_after_index(node: ast.Subscript, names: dict[str, Value]) -> None:
    """`tmp[i][j]` of an array of several axes, which takes its indices at once.

    Raises:
        KernelTypeError: it stands there.
    """
    inner, indices = node.value, [node.slice]
    while isinstance(inner, ast.Subscript):
        indices.append(inner.slice)
        inner = inner.value
    owner = names.get(inner.id) if len(indices) > 1 and isinstance(inner, ast.Name) else None
    if not isinstance(owner, ArrayValue) or owner.mem.lanes or not isinstance(inner, ast.Name):
        return
    parts = [ast.unparse(index) for index in indices]
    axes = f"{owner.mem.ndim} {'axis' if owner.mem.ndim == 1 else 'axes'}"
    fits = len(parts) == owner.mem.ndim
    raise KernelTypeError(
        f"{ast.unparse(node)} indexes twice, but an array takes all of its indices at once; "
        f"{inner.id} has {axes}",
        hint=f"write {inner.id}[{', '.join(reversed(parts))}]"
        if fits
        else "it takes as many indices as it has axes, in one pair of brackets",
    )
