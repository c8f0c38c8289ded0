"""What rules take: values as numbers, indices, lines, dtypes and shapes, or an error."""

from __future__ import annotations

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr, Mem, VType
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, Value, describe, instead, late_shape
from cubepy.errors import ComptimeError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType


def number(s: Scope, value: Value, name: str) -> Expr:
    """A value as an expression, or an error that names the builtin."""
    if not isinstance(value, Expr) and not (isinstance(value, Const) and value.is_number):
        raise KernelTypeError(
            f"cb.{name} needs a number or a line, not {describe(value)}", hint=instead(value)
        )
    return convert.runtime(value, s.index)


def dtype_of(value: Value, what: str) -> DType:
    """A comptime dtype."""
    if not isinstance(value, Const):
        raise ComptimeError(f"{what} must be comptime, but it is {describe(value)}")
    return dt.as_dtype(value.value)


def shape_of(value: Value, what: str) -> tuple[int, ...]:
    """A comptime shape."""
    if not isinstance(value, Const):
        raise late_shape(what, value)
    shape = value.value if isinstance(value.value, tuple) else (value.value,)
    for n in shape:
        if isinstance(n, bool) or not hasattr(n, "__index__") or n.__index__() < 1:
            raise ComptimeError(
                f"the shape of {what} must be positive ints, not {value.value!r}",
                hint="one int, or a tuple with one for each axis",
            )
    return tuple(n.__index__() for n in shape)


def lanes_of(value: Value, least: int = 1) -> int:
    """A comptime lane count from 1 to 64."""
    lanes = comptime_int(value, "the lane count")
    if not least <= lanes <= 64:
        raise KernelTypeError(
            f"a line has 1 to 64 lanes, not {lanes}",
            hint="a line is what a few registers hold; one element is x[i], and more are a loop",
        )
    return lanes


def comptime_int(value: Value, what: str) -> int:
    """A value that must be a comptime int."""
    if not isinstance(value, Const):
        raise ComptimeError(
            f"{what} must be comptime, but it is {describe(value)}",
            hint="write a number, or take it as a parameter that is annotated cb.Comptime[int]",
        )
    if isinstance(value.value, bool) or not hasattr(value.value, "__index__"):
        raise ComptimeError(f"{what} must be an int, not {value.value!r}")
    return value.value.__index__()


def as_index(s: Scope, value: Value) -> Expr:
    """A value as an integer index."""
    expr = convert.runtime(value, s.index)
    if expr.type.lanes:
        raise KernelTypeError(
            "an index must be a scalar, not a line", hint="use load(i, lanes) for neighbours"
        )
    if not expr.type.dtype.is_int:
        raise KernelTypeError(
            f"an index must be an integer, not {expr.type.dtype.name}",
            hint="write cb.cast(i, cb.i32)",
        )
    return expr


def indices(s: Scope, mem: Mem, values: tuple[Value, ...]) -> tuple[Expr, ...]:
    """Indices of an element, checked for rank and kind."""
    if mem.kind == "map":
        raise KernelTypeError(
            f"the tensor map {mem.argument} cannot be indexed",
            hint="copy boxes of it with cb.tma_load",
        )
    if len(values) != mem.ndim:
        raise KernelTypeError(
            f"{mem.argument or mem.name} has rank {mem.ndim} and is indexed with {len(values)} "
            f"{'index' if len(values) == 1 else 'indices'}",
            hint="use load(i, lanes) and store(i, line) for positions in C order",
        )
    return tuple(as_index(s, v) for v in values)


def line_of(s: Scope, value: Value, name: str) -> Expr:
    x = number(s, value, name)
    if not x.type.lanes:
        raise KernelTypeError(f"cb.{name} needs a line, not a scalar {x.type}")
    return x


def shuffled(a: Expr, b: Expr, order: tuple[int, ...]) -> Value:
    total = a.type.lanes + b.type.lanes
    if not 1 <= len(order) <= 64 or any(not 0 <= k < total for k in order):
        raise KernelTypeError(f"the lanes {order} are not 1 to 64 lanes out of {total}")
    return Expr("shuffle", VType(a.type.dtype, len(order)), (a, b), order)
