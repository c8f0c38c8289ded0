"""Values given to parameters of funcs and fields of structs."""

from __future__ import annotations

from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import (
    ArrayValue,
    Const,
    MethodValue,
    RangeValue,
    StructValue,
    TupleValue,
    UnrollValue,
    Value,
    describe,
)
from cubepy.compiler.walk.attributes import wrap
from cubepy.errors import ComptimeError, KernelTypeError
from cubepy.lang.declare import Func, Param
from cubepy.lang.struct import StructField, StructType


def construct(s: Scope, cls: StructType, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Make a struct; scalar fields convert to their dtype."""
    given = cls.bind(tuple(args), dict(kwargs))
    return StructValue(
        cls,
        tuple(
            (f.name, taken(s, f, given[f.name], f"the field {cls.__name__}.{f.name}"))
            for f in cls.fields
        ),
    )


def parameter(s: Scope, fn: Func, param: Param, value: Any) -> Value:
    """An argument converted for a parameter."""
    return taken(s, param, value, f"the parameter {param.name!r} of {fn.__name__}")


def taken(s: Scope, by: Param | StructField, value: Any, what: str) -> Value:
    """A value, or the default of the host, as a parameter or field takes it."""
    if not isinstance(
        value,
        (Const, Expr, ArrayValue, StructValue, TupleValue, MethodValue, RangeValue, UnrollValue),
    ):
        value = wrap(s, value)
    if by.kind == "comptime" and not isinstance(value, Const):
        raise ComptimeError(
            f"{what} is comptime but is given {describe(value)}",
            hint="comptime arguments are known before launch",
        )
    if by.kind == "scalar" and by.dtype is not None:
        lanes = value.type.lanes if isinstance(value, Expr) else 0
        value = convert.storable(value, by.dtype, lanes, what)
    if by.kind == "array" and not isinstance(value, ArrayValue):
        raise KernelTypeError(f"{what} is an array but is given {describe(value)}")
    if by.kind == "map" and not (isinstance(value, ArrayValue) and value.mem.kind == "map"):
        raise KernelTypeError(f"{what} is a tensor map but is given {describe(value)}")
    if by.kind == "struct" and not (isinstance(value, StructValue) and value.type is by.struct):
        raise KernelTypeError(f"{what} is a {by.struct.__name__} but is given {describe(value)}")
    return s.pinned(value, by.name)
