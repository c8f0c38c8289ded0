"""Rules of the functions of `lang.mathematics`; comptime numbers are folded."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr, VType
from cubepy.compiler.lower.operands import number
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, Value, describe
from cubepy.errors import DTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang import mathematics
from cubepy.lang.dtypes import DType


def _known(*values: Value) -> list[Any] | None:
    """The numbers that comptime values are, or None where one of them is none."""
    numbers = [v.value for v in values if isinstance(v, Const) and v.is_number]
    return numbers if len(numbers) == len(values) else None


def _float_dtype(dtype: DType) -> DType:
    """The dtype in which a function of floats takes a number."""
    return dt.f32 if dtype.kind == "b" else dt.float_for(dtype)


@lowers(*mathematics.UNARY, "isfinite")
def _unary(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    (x,) = unpack(name, args, kwargs, "x")
    known = _known(x)
    if known is not None:
        return Const(mathematics.evaluate(name, *known).item())
    v = number(s, x, name)
    if not v.type.dtype.is_float:
        v = convert.cast(v, _float_dtype(v.type.dtype))
    dtype = dt.bool_ if name == "isfinite" else v.type.dtype
    return Expr("call", VType(dtype, v.type.lanes, v.type.weak and dtype.is_float), (v,), name)


@lowers(*mathematics.BINARY)
def _binary(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    names = ("y", "x") if name == "atan2" else ("x", "y")
    first, second = unpack(name, args, kwargs, *names)
    known = _known(first, second)
    if known is not None:
        return Const(mathematics.evaluate(name, *known).item())
    a, b = convert.unify(number(s, first, name), number(s, second, name), s.index)
    if not a.type.dtype.is_float:
        dtype = _float_dtype(a.type.dtype)
        a, b = convert.cast(a, dtype), convert.cast(b, dtype)
    return Expr("call", a.type, (a, b), name)


@lowers("sign")
def _sign(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    (x,) = unpack(name, args, kwargs, "x")
    v = number(s, x, name)
    if v.type.dtype.kind == "b":
        raise DTypeError("cb.sign needs a number, not bool_", hint="cast it to an integer")
    known = _known(x)
    if known is not None:
        found = mathematics.evaluate(name, *known).item()
        return Const(type(known[0])(found))
    return Expr("call", v.type, (v,), name)


@lowers("ldexp")
def _ldexp(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    x, n = unpack(name, args, kwargs, "x", "n")
    power = number(s, n, name)
    if not power.type.dtype.is_int:
        raise DTypeError(f"cb.ldexp needs an integer exponent, not {power.type.dtype.name}")
    known = _known(x, n)
    if known is not None:
        return Const(float(mathematics.times_power(float(known[0]), known[1])))
    v = number(s, x, name)
    if not v.type.dtype.is_float:
        v = convert.cast(v, _float_dtype(v.type.dtype))
    if isinstance(n, Const):
        most = mathematics.MOST_DOUBLINGS
        power = convert.constant(int(np.clip(n.value, -most, most)), dt.i32)
    elif power.type.dtype in (dt.u32, dt.i64, dt.u64):
        power = _within(power, mathematics.MOST_DOUBLINGS)
    lanes = convert.common_lanes(v, power)
    v = convert.to(v, v.type.dtype, lanes, v.type.weak)
    return Expr("call", v.type, (v, convert.cast(power, dt.i32, lanes)), name)


def _within(n: Expr, most: int) -> Expr:
    """An integer, brought into bounds that i32 holds."""
    dtype, lanes = n.type.dtype, n.type.lanes
    n = Expr("call", VType(dtype, lanes), (n, convert.constant(most, dtype, lanes)), "min")
    if dtype.kind == "u":
        return n
    return Expr("call", n.type, (n, convert.constant(-most, dtype, lanes)), "max")


def _integers(s: Scope, name: str, *values: Value) -> None:
    for v in values:
        dtype = number(s, v, name).type.dtype
        if not dtype.is_int:
            raise DTypeError(
                f"cb.{name} needs integers, not {dtype.name}", hint=f"it was given {describe(v)}"
            )


@lowers("mulhi")
def _mulhi(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    first, second = unpack(name, args, kwargs, "x", "y")
    _integers(s, name, first, second)
    x, y = convert.unify(first, second, s.index)
    known = _known(first, second)
    if known is not None:
        return Const(mathematics.high_half(int(known[0]), int(known[1]), x.type.dtype.bits))
    x, y = (convert.cast(v, v.type.dtype) for v in (x, y))
    return Expr("call", x.type, (x, y), name)


@lowers("reverse_bits")
def _reverse_bits(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    (v,) = unpack(name, args, kwargs, "x")
    _integers(s, name, v)
    x = number(s, v, name)
    dtype = x.type.dtype
    known = _known(v)
    if known is not None:
        return Const(mathematics.reversed_bits(int(known[0]), dtype.bits, dtype.kind == "i"))
    x = convert.cast(x, dtype)
    return Expr("call", x.type, (x,), name)
