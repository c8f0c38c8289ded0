"""Conversions and operators on values: weak numbers, promotion, folding (language reference,
"Types").
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.compiler.ir import Expr, VType
from cubepy.compiler.values import Const, Value, describe, instead
from cubepy.errors import ComptimeError, DTypeError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType

BOOL = VType(dt.bool_)

BINARY: dict[str, Callable] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "and_": operator.and_,
    "or_": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "matmul": operator.matmul,
}
COMPARE: dict[str, Callable] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
SYMBOL = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "matmul": "@",
}


def constant(value: Any, dtype: DType, lanes: int = 0, weak: bool = False) -> Expr:
    """A comptime number as a runtime value of a dtype.

    Raises:
        DTypeError: an integer that does not fit, or a float for an integer dtype.
    """
    if dtype.is_int:
        if isinstance(value, (float, np.floating)):
            raise DTypeError(
                f"the float {value!r} cannot become {dtype.name}",
                hint=f"write cb.cast({value!r}, cb.{dtype.name})",
            )
        value = int(value)
        if not dt.fits(value, dtype):
            raise DTypeError(
                f"the number {value} does not fit in {dtype.name}",
                hint="cast the other operand to a wider dtype",
            )
    elif dtype.is_float:
        value = float(value)
        if not weak and dtype is not dt.f64:
            with np.errstate(over="ignore"):
                value = float(dtype.numpy.type(value))
    else:
        value = bool(value)
    scalar = Expr("const", VType(dtype, 0, weak), (), value)
    return splat(scalar, lanes) if lanes else scalar


def default_dtype(value: Any, index: DType = dt.i32) -> DType:
    """The dtype that a comptime number takes when nothing else decides."""
    if isinstance(value, (bool, np.bool_)):
        return dt.bool_
    if hasattr(value, "dtype"):
        return dt.as_dtype(value.dtype).compute
    if isinstance(value, int):
        return index if dt.fits(value, index) else dt.scalar_dtype(value)
    return dt.f32


def is_weak(value: Value) -> bool:
    """Whether a value yields to the other operand's dtype."""
    if isinstance(value, Const):
        return isinstance(value.value, (int, float))
    return isinstance(value, Expr) and value.type.weak


def runtime(value: Value, index: DType = dt.i32) -> Expr:
    """A value as an expression; comptime numbers become weak constants.

    Raises:
        ComptimeError: the value has no runtime form (a function, a dtype, a text).
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, Const) and value.is_number:
        weak = isinstance(value.value, (int, float)) and not isinstance(value.value, bool)
        return constant(value.value, default_dtype(value.value, index), weak=weak)
    raise ComptimeError(
        f"{describe(value)} cannot be used as a number at run time", hint=instead(value)
    )


def splat(value: Expr, lanes: int) -> Expr:
    """The scalar in every lane of a line."""
    return Expr("splat", VType(value.type.dtype, lanes, value.type.weak), (value,))


def cast(value: Expr, dtype: DType, lanes: int | None = None) -> Expr:
    """Convert to a dtype, and a scalar to a line where lanes ask for it; constants fold."""
    lanes = value.type.lanes if lanes is None else lanes
    if value.type.dtype is not dtype or value.type.weak:
        if value.op == "const" and (
            (dtype.kind != "i" and dtype.kind != "u") or not value.type.dtype.is_float
        ):
            value = constant(value.attr, dtype)
        elif value.type.dtype is dtype:
            value = Expr(value.op, VType(dtype, value.type.lanes), value.args, value.attr)
        else:
            value = Expr("cast", VType(dtype, value.type.lanes), (value,))
    if lanes and not value.type.lanes:
        return splat(value, lanes)
    if lanes != value.type.lanes:
        raise KernelTypeError(
            f"a line of {value.type.lanes} lanes stands where {lanes} lanes are needed"
        )
    return value


def common_lanes(*values: Value) -> int:
    """The lane count that operands share (0 when all are scalars); scalars go with any line.

    Raises:
        KernelTypeError: two lines of different length.
    """
    lanes = 0
    for v in values:
        if isinstance(v, Expr) and v.type.lanes:
            if lanes and v.type.lanes != lanes:
                raise KernelTypeError(
                    f"lines of {lanes} and {v.type.lanes} lanes do not go together",
                    hint="load as many lanes of both, or take a part with cb.slice_line",
                )
            lanes = v.type.lanes
    return lanes


def common_dtype(a: Value, b: Value, index: DType = dt.i32) -> tuple[DType, bool]:
    """The dtype in which two operands meet, and whether it is still weak."""
    if is_weak(a) and is_weak(b):
        da, db = _weak_dtype(a, index), _weak_dtype(b, index)
        if da.is_float != db.is_float:
            return (da if da.is_float else db), True
        return (da if da.bits >= db.bits else db), True
    if is_weak(b):
        return _meet(_strong_dtype(a), b), False
    if is_weak(a):
        return _meet(_strong_dtype(b), a), False
    return dt.promote(_strong_dtype(a), _strong_dtype(b)), False


def _weak_dtype(v: Value, index: DType) -> DType:
    return v.type.dtype if isinstance(v, Expr) else default_dtype(v.value, index)  # type: ignore[union-attr]


def _strong_dtype(v: Value) -> DType:
    if isinstance(v, Expr):
        return v.type.dtype
    if isinstance(v, Const) and v.is_number:
        return default_dtype(v.value)
    raise ComptimeError(f"{describe(v)} cannot be used as a number at run time", hint=instead(v))


def _meet(strong: DType, weak: Value) -> DType:
    """The dtype of a strong operand with a weak one."""
    weak_is_float = (
        weak.type.dtype.is_float if isinstance(weak, Expr) else isinstance(weak.value, float)  # type: ignore[union-attr]
    )
    if strong.kind == "b":
        if weak_is_float:
            return dt.f32
        return dt.bool_ if isinstance(weak, Const) and isinstance(weak.value, bool) else dt.i32
    return dt.float_for(strong) if weak_is_float else strong


def to(value: Value, dtype: DType, lanes: int = 0, weak: bool = False) -> Expr:
    """A value as an expression of a dtype and lane count."""
    if isinstance(value, Const):
        if not value.is_number:
            raise ComptimeError(
                f"{describe(value)} cannot be used as a number at run time", hint=instead(value)
            )
        return constant(value.value, dtype, lanes, weak)
    if not isinstance(value, Expr):
        raise KernelTypeError(f"{describe(value)} cannot be used as a number", hint=instead(value))
    if weak and value.type.weak and value.type.dtype is dtype:
        return splat(value, lanes) if lanes and not value.type.lanes else value
    return cast(value, dtype, lanes)


def unify(a: Value, b: Value, index: DType = dt.i32) -> tuple[Expr, Expr]:
    """Two operands as expressions of one type."""
    lanes = common_lanes(a, b)
    dtype, weak = common_dtype(a, b, index)
    return to(a, dtype, lanes, weak), to(b, dtype, lanes, weak)


def _retyped(expr: Expr, dtype: DType) -> Expr:
    return cast(expr, dtype)


def binary(op: str, a: Value, b: Value, index: DType = dt.i32) -> Value:
    """`a op b` for an arithmetic or bit operator, folded when both are comptime.

    Raises:
        DTypeError: bit operators on floats.
        KernelTypeError: operands that are not numbers.
    """
    if isinstance(a, Const) and isinstance(b, Const):
        with np.errstate(all="ignore"):  # NumPy's integers among them: what is divided by 0 is 0
            return Const(_met(BINARY[op](a.value, b.value), a.value, b.value))
    if op == "matmul":
        raise KernelTypeError(
            "a kernel has no operator @", hint="multiply with loops, or call K.matmul outside"
        )
    if op == "pow" and isinstance(b, Const) and isinstance(b.value, int) and 1 <= b.value <= 3:
        square = binary("mul", a, a, index)
        return a if b.value == 1 else (square if b.value == 2 else binary("mul", square, a, index))
    if op == "truediv":
        a, b = _divided(a, b), _divided(b, a)
    x, y = unify(a, b, index)
    dtype, weak = x.type.dtype, x.type.weak and y.type.weak
    if op in ("and_", "or_", "xor", "shl", "shr"):
        if dtype.is_float:
            raise DTypeError(
                f"the operator {SYMBOL[op]} needs integers or bools, not {dtype.name}",
                hint=_of_bits(op),
            )
        if op in ("shl", "shr") and dtype.kind == "b":
            x, y, dtype = _retyped(x, dt.i32), _retyped(y, dt.i32), dt.i32
    elif op == "truediv":
        if not dtype.is_float:
            # judged by the operands' own widths: a weak one does not widen
            own = [_strong_dtype(v).bits for v in (a, b) if not is_weak(v)]
            dtype = dt.f64 if 64 in own else dt.f32
            x, y = cast(x, dtype), cast(y, dtype)
    elif dtype.kind == "b":
        x, y, dtype = _retyped(x, dt.i32), _retyped(y, dt.i32), dt.i32
    return Expr(op, VType(dtype, x.type.lanes, weak), (x, y))


def _of_bits(op: str) -> str:
    """What was meant by an operator of bits on a float."""
    logic = {"and_": "and", "or_": "or", "inv": "not"}.get(op)
    meant = f"conditions are joined by `{logic}`; " if logic else ""
    return f"{meant}cast it with cb.cast(v, cb.i32), or take its bits with cb.bitcast(v, cb.i32)"


def _met(result: Any, a: Any, b: Any) -> Any:
    """What comptime numbers give: an integer of NumPy's with a number of Python's makes the float
    that it makes at run time, and not NumPy's f64.
    """
    if not isinstance(result, np.floating) or isinstance(a, np.floating | np.ndarray):
        return result
    ints = [v for v in (a, b) if isinstance(v, np.integer)]
    if not ints or isinstance(b, np.floating | np.ndarray):
        return result
    wide = max((dt.float_for(dt.as_dtype(v.dtype)) for v in ints), key=lambda d: d.bits)
    return wide.numpy.type(result)


def _divided(a: Value, b: Value) -> Value:
    """An operand of `/`, which makes floats of integers: one that the other's dtype cannot hold
    is a float.
    """
    if isinstance(a, Const) and type(a.value) is int and isinstance(b, Expr):
        dtype = b.type.dtype
        return a if not dtype.is_int or dt.fits(a.value, dtype) else Const(float(a.value))
    return a


def compare(op: str, a: Value, b: Value, index: DType = dt.i32) -> Value:
    """`a op b` for a comparison: a comptime bool, a bool, or a mask."""
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(COMPARE[op](a.value, b.value))
    if (isinstance(a, Const) and not a.is_number) or (isinstance(b, Const) and not b.is_number):
        if op in ("eq", "ne"):
            return Const(op == "ne")
    x, y = unify(a, b, index)
    return Expr(op, VType(dt.bool_, x.type.lanes), (x, y))


def unary(op: str, a: Value) -> Value:
    """`-a`, `+a`, `~a` or `not a`."""
    if isinstance(a, Const):
        table: dict[str, Callable] = {
            "neg": operator.neg,
            "pos": operator.pos,
            "inv": operator.invert,
            "not_": operator.not_,
        }
        return Const(table[op](a.value))
    if not isinstance(a, Expr):
        raise KernelTypeError(f"{describe(a)} has no unary operator", hint=instead(a))
    if op == "not_":
        return Expr("not_", VType(dt.bool_, a.type.lanes), (truth(a),))
    if a.type.dtype.kind == "b":
        if op == "inv":
            return Expr("not_", a.type, (a,))
        a = cast(a, dt.i32)
    if op == "pos":
        return a
    if op == "inv" and a.type.dtype.is_float:
        raise DTypeError(
            f"the operator ~ needs integers or bools, not {a.type.dtype.name}", hint=_of_bits("inv")
        )
    return Expr(op, a.type, (a,))


def truth(a: Expr) -> Expr:
    """A bool (or mask) that says whether a value is not zero."""
    if a.type.dtype.kind == "b":
        return a
    return Expr("ne", VType(dt.bool_, a.type.lanes), (a, constant(0, a.type.dtype, a.type.lanes)))


def condition(a: Value) -> Value:
    """A value as the condition of an `if`: a comptime bool or a scalar bool.

    Raises:
        KernelTypeError: a mask, or something without truth.
    """
    if isinstance(a, Const):
        return Const(bool(a.value))
    if not isinstance(a, Expr):
        raise KernelTypeError(f"{describe(a)} cannot be a condition", hint=instead(a))
    if a.type.lanes:
        raise KernelTypeError(
            "a mask cannot be a condition: its lanes may differ",
            hint="use a if mask else b, cb.select(mask, a, b), or mask.any()",
        )
    return truth(a)


def storable(value: Value, dtype: DType, lanes: int, what: str) -> Expr:
    """A value converted for a place of a dtype (a store, a field, an annotated parameter).

    Raises:
        DTypeError: a float for an integer place.
    """
    target = dtype.compute
    from_float = (
        value.type.dtype.is_float
        if isinstance(value, Expr)
        else isinstance(getattr(value, "value", None), (float, np.floating))
    )
    if from_float and not target.is_float:
        raise DTypeError(
            f"a float cannot be put into {what} of dtype {dtype.name}",
            hint=f"say how with cb.cast(value, cb.{target.name})",
        )
    return to(value, target, lanes)
