"""Rules of arithmetic: functions of numbers and lines, bits, choices. Comptime numbers are
folded.
"""

from __future__ import annotations

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr, VType
from cubepy.compiler.lower.operands import number
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, Value
from cubepy.errors import DTypeError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang import mathematics
from cubepy.lang.builtins import FLOAT_MATH


def folded(name: str, values: Args) -> Value | None:
    """A math builtin of comptime numbers, computed now in f64; NumPy's have a dtype to keep."""
    if not all(isinstance(v, Const) and isinstance(v.value, (int, float)) for v in values):
        return None
    return Const(mathematics.of_numbers(name, *(v.value for v in values)))  # type: ignore[union-attr]


@lowers(*FLOAT_MATH)
def _float_math(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    (x,) = unpack(name, args, kwargs, "x")
    known = folded(name, [x])
    if known is not None:
        return known
    v = number(s, x, name)
    if not v.type.dtype.is_float:
        if name in ("floor", "ceil", "trunc") and v.type.dtype.is_int:
            return v
        v = convert.cast(v, dt.float_for(v.type.dtype) if v.type.dtype.kind != "b" else dt.f32)
    dtype = dt.bool_ if name in ("isnan", "isinf") else v.type.dtype
    return Expr("call", VType(dtype, v.type.lanes, v.type.weak and dtype.is_float), (v,), name)


@lowers("abs")
def _abs(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    (x,) = unpack(name, args, kwargs, "x")
    known = folded(name, [x])
    if known is not None:
        return known
    v = number(s, x, name)
    if v.type.dtype.kind in "ub":
        return v
    return Expr("call", v.type, (v,), "abs")


@lowers("round")
def _round(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    (x,) = unpack(name, args, kwargs, "x")
    known = folded(name, [x])
    if known is not None:
        return known
    v = number(s, x, name)
    return Expr("call", v.type, (v,), "round") if v.type.dtype.is_float else v


@lowers("min", "max", "nan_min", "nan_max")
def _min_max(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) < 2:
        raise KernelTypeError(
            f"{name} takes two or more values",
            hint=f"write cb.{name}(a, b); an array is gone over in a loop, a line has "
            f"line.{name[-3:]}()",
        )
    known = folded(name, args)
    if known is not None:
        return known
    result = args[0]
    for other in args[1:]:
        a, b = convert.unify(result, other, s.index)
        if a.type.dtype.kind == "b":
            result = convert.binary("or_" if name.endswith("max") else "and_", a, b, s.index)
        else:
            result = Expr("call", a.type, (a, b), name)
    return result


@lowers("clamp")
def _clamp(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    x, low, high = unpack(name, args, kwargs, "x", "low", "high")
    known = folded(name, [x, low, high])
    if known is not None:
        return known
    return _min_max(s, "min", [_min_max(s, "max", [x, low], {}), high], {})


@lowers("pow")
def _pow(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    x, y = unpack(name, args, kwargs, "x", "y")
    known = folded(name, [x, y])
    if known is not None:
        return known
    return convert.binary("pow", x, y, s.index)


@lowers("fma")
def _fma(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    a, b, c = unpack(name, args, kwargs, "a", "b", "c")
    known = folded(name, [a, b, c])
    if known is not None:
        return known
    x, y = convert.unify(a, b, s.index)
    x, z = convert.unify(x, c, s.index)
    x, y = convert.unify(x, y, s.index)
    if not x.type.dtype.is_float:
        return convert.binary("add", convert.binary("mul", x, y, s.index), z, s.index)
    y, z = (convert.to(v, x.type.dtype, x.type.lanes, x.type.weak) for v in (y, z))
    return Expr("call", x.type, (x, y, z), "fma")


@lowers("select")
def _select(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    mask, a, b = unpack(name, args, kwargs, "mask", "a", "b")
    if isinstance(mask, Const):
        return a if mask.value else b
    m = convert.truth(number(s, mask, name))
    x, y = convert.unify(a, b, s.index)
    lanes = convert.common_lanes(m, x)
    x, y = (
        convert.to(x, x.type.dtype, lanes, x.type.weak),
        convert.to(y, y.type.dtype, lanes, y.type.weak),
    )
    return Expr("select", x.type, (convert.to(m, dt.bool_, lanes), x, y))


@lowers("popcount", "clz", "ctz")
def _bits(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    (v,) = unpack(name, args, kwargs, "x")
    x = number(s, v, name)
    if not x.type.dtype.is_int:
        raise DTypeError(f"cb.{name} needs an integer, not {x.type.dtype.name}")
    return Expr("call", VType(x.type.dtype, x.type.lanes), (convert.cast(x, x.type.dtype),), name)
