"""Ops that work element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.lang.dtypes import DType, bool_, i64, promote
from cubepy.models.onnx.writing.graph import Op, Unwritable, Writer, form

UNARY = {
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
    "tanh": "Tanh",
    "erf": "Erf",
    "sigmoid": "Sigmoid",
    "reciprocal": "Reciprocal",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "neg": "Neg",
    "abs": "Abs",
    "relu": "Relu",
    "sign": "Sign",
    "not": "Not",
    "isnan": "IsNaN",
    "isinf": "IsInf",
}
BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow"}
COMPARED = {
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
}


def operand(w: Writer, op: Op, k: int, name: str, dtype: DType) -> str:
    """An input in a dtype."""
    return w.cast(name, op.spec(k).dtype, dtype)


@form(" ".join(UNARY))
def unary(w: Writer, op: Op, x: str) -> Any:
    kind = op.spec(0).dtype
    if op.node.op in ("floor", "ceil", "round") and not kind.is_float:
        return w.cast(x, kind, op.dtype)
    given = operand(w, op, 0, x, kind if op.dtype is bool_ else op.dtype)
    return w.add(UNARY[op.node.op], given)


@form("detach contiguous clone alias")
def same(w: Writer, op: Op, x: str) -> Any:
    return x


@form("after")
def after(w: Writer, op: Op, x: str, other: str) -> Any:
    return x


@form("log1p expm1 log2 log10 exp2 rsqrt square cube silu trunc cbrt signbit isfinite invert")
def of_pieces(w: Writer, op: Op, x: str) -> Any:
    """Functions that ONNX has in pieces only."""
    kind, name = op.spec(0).dtype, op.node.op
    if name == "signbit":
        return negative(w, x, kind)
    if name == "isfinite":
        return w.add("Not", w.add("Or", w.add("IsNaN", x), w.add("IsInf", x)))
    if name == "invert":
        return w.add("Not" if kind is bool_ else "BitwiseNot", x)
    x, dtype = w.cast(x, kind, op.dtype), op.dtype
    if name == "trunc":
        whole = not dtype.is_float
        return x if whole else w.add("Mul", w.add("Sign", x), w.add("Floor", w.add("Abs", x)))
    if name in ("square", "cube"):
        squared = w.add("Mul", x, x)
        return squared if name == "square" else w.add("Mul", squared, x)
    if name == "silu":
        return w.add("Mul", x, w.add("Sigmoid", x))
    if name == "rsqrt":
        return w.add("Reciprocal", w.add("Sqrt", x))
    if name in ("log2", "log10"):
        base = math.log(2) if name == "log2" else math.log(10)
        return w.add("Div", w.add("Log", x), w.constant(base, dtype))
    if name == "exp2":
        return w.add("Exp", w.add("Mul", x, w.constant(math.log(2), dtype)))
    if name == "cbrt":
        root = w.add("Pow", w.add("Abs", x), w.constant(1 / 3, dtype))
        return w.add("Mul", w.add("Sign", x), root)
    return near_zero(w, name, x, dtype)


def negative(w: Writer, x: str, dtype: DType) -> str:
    """Whether numbers are below zero, or -0.0, of which the reciprocal is."""
    zero = w.constant(0, dtype)
    below: str = w.add("Less", x, zero)
    if not dtype.is_float:
        return below
    return w.add("Or", below, w.add("Less", w.add("Reciprocal", x), zero))  # type: ignore[no-any-return]


def near_zero(w: Writer, name: str, x: str, dtype: DType) -> str:
    """log1p and expm1 without cancellation (Higham, Accuracy and Stability, 1.14.1):
    log1p(x) = log(u) x / (u - 1) of u = 1 + x; expm1(x) = tanh(x / 2) (exp(x) + 1).
    """
    one = w.constant(1, dtype)
    if name == "expm1":
        half = w.add("Tanh", w.add("Mul", x, w.constant(0.5, dtype)))
        big = w.add("Sub", w.add("Exp", x), one)
        exact = w.add("Mul", half, w.add("Add", w.add("Exp", x), one))
        near = w.add("Less", w.add("Abs", x), one)
        return w.add("Where", near, exact, big)  # type: ignore[no-any-return]
    u = w.add("Add", x, one)
    less = w.add("Sub", u, one)
    zero = w.constant(0, dtype)
    flat = w.add("Equal", less, zero)
    quotient = w.add("Div", x, w.add("Where", flat, one, less))
    found = w.add("Where", flat, x, w.add("Mul", w.add("Log", u), quotient))
    endless = w.add("IsInf", x)
    return w.add("Where", endless, w.add("Log", u), found)  # type: ignore[no-any-return]


@form("gelu")
def gelu(w: Writer, op: Op, x: str) -> Any:
    given = operand(w, op, 0, x, op.dtype)
    return w.add("Gelu", given, approximate=op.attrs["approximate"])


def activation(w: Writer, name: str | None, x: str) -> str:
    """What follows a linear layer."""
    if name is None:
        return x
    if name in ("gelu", "gelu_tanh"):
        how = "tanh" if name == "gelu_tanh" else "none"
        return w.add("Gelu", x, approximate=how)  # type: ignore[no-any-return]
    if name == "silu":
        return w.add("Mul", x, w.add("Sigmoid", x))  # type: ignore[no-any-return]
    if name not in ("relu", "sigmoid", "tanh"):
        raise Unwritable(f"linear: the activation {name!r}")
    return w.add(name.capitalize(), x)  # type: ignore[no-any-return]


@form(" ".join(BINARY))
def binary(w: Writer, op: Op, a: str, b: str) -> Any:
    a, b = (operand(w, op, k, name, op.dtype) for k, name in enumerate((a, b)))
    if op.dtype is bool_:
        raise Unwritable(f"{op.node.op}: arithmetic of truth values")
    return w.add(BINARY[op.node.op], a, b)


@form("maximum minimum")
def extreme(w: Writer, op: Op, a: str, b: str) -> Any:
    a, b = (operand(w, op, k, name, op.dtype) for k, name in enumerate((a, b)))
    return w.add("Max" if op.node.op == "maximum" else "Min", a, b)


@form("floordiv mod fmod")
def whole(w: Writer, op: Op, a: str, b: str) -> Any:
    """Quotients that are rounded down, and their rests."""
    a, b = (operand(w, op, k, name, op.dtype) for k, name in enumerate((a, b)))
    if op.node.op == "fmod":
        return w.add("Mod", a, b, fmod=1)
    if not op.dtype.is_float:
        rest = w.add("Mod", a, b)
        return rest if op.node.op == "mod" else w.add("Div", w.add("Sub", a, rest), b)
    quotient = w.add("Floor", w.add("Div", a, b))
    return quotient if op.node.op == "floordiv" else w.add("Sub", a, w.add("Mul", quotient, b))


@form("atan2 hypot logaddexp copysign")
def binary_pieces(w: Writer, op: Op, a: str, b: str) -> Any:
    a, b = (operand(w, op, k, name, op.dtype) for k, name in enumerate((a, b)))
    zero, name = w.constant(0, op.dtype), op.node.op
    if name == "hypot":
        return w.add("Sqrt", w.add("Add", w.add("Mul", a, a), w.add("Mul", b, b)))
    if name == "logaddexp":
        distance = w.add("Neg", w.add("Abs", w.add("Sub", a, b)))
        return w.add(
            "Add", w.add("Max", a, b), near_zero(w, "log1p", w.add("Exp", distance), op.dtype)
        )
    if name == "copysign":
        size = w.add("Abs", a)
        return w.add("Where", negative(w, b, op.dtype), w.add("Neg", size), size)
    pi = w.constant(math.pi, op.dtype)
    origin = w.add("And", w.add("Equal", a, zero), w.add("Equal", b, zero))
    angle = w.add("Where", origin, a, w.add("Atan", w.add("Div", a, b)))
    below, left = negative(w, a, op.dtype), negative(w, b, op.dtype)
    moved = w.add("Where", below, w.add("Sub", angle, pi), w.add("Add", angle, pi))
    return w.add("Where", left, moved, angle)


@form(f"{' '.join(COMPARED)} ne")
def compared(w: Writer, op: Op, a: str, b: str) -> Any:
    dtype = promote(op.spec(0).dtype, op.spec(1).dtype)
    a, b = (operand(w, op, k, name, dtype) for k, name in enumerate((a, b)))
    if op.node.op == "ne":
        return w.add("Not", w.add("Equal", a, b))
    return w.add(COMPARED[op.node.op], a, b)


@form("and or xor")
def logical(w: Writer, op: Op, a: str, b: str) -> Any:
    if op.dtype is bool_:
        return w.add(op.node.op.capitalize(), a, b)
    a, b = (operand(w, op, k, name, op.dtype) for k, name in enumerate((a, b)))
    return w.add(f"Bitwise{op.node.op.capitalize()}", a, b)


@form("lshift rshift")
def shifted(w: Writer, op: Op, a: str, b: str) -> Any:
    if op.dtype.kind != "u":
        raise Unwritable(f"{op.node.op}: ONNX shifts unsigned integers only")
    a, b = (operand(w, op, k, name, op.dtype) for k, name in enumerate((a, b)))
    return w.add("BitShift", a, b, direction="LEFT" if op.node.op == "lshift" else "RIGHT")


@form("where")
def where(w: Writer, op: Op, mask: str, a: str, b: str) -> Any:
    a, b = (operand(w, op, k, name, op.dtype) for k, name in ((1, a), (2, b)))
    return w.add("Where", mask, a, b)


@form("clip")
def clip(w: Writer, op: Op, x: str, low: str, high: str) -> Any:
    x = operand(w, op, 0, x, op.dtype)
    for k, name, bound in ((1, "Max", low), (2, "Min", high)):
        if bound:
            x = w.add(name, x, operand(w, op, k, bound, op.dtype))
    return x


@form("cast")
def cast(w: Writer, op: Op, x: str) -> Any:
    return w.cast(x, op.spec(0).dtype, op.dtype)


# Numbers out of nothing


@form("constant")
def constant(w: Writer, op: Op) -> Any:
    return w.constant(op.attrs["value"], op.dtype)


@form("full")
def full(w: Writer, op: Op) -> Any:
    value = np.asarray([op.attrs["value"]], op.dtype.numpy)
    return w.add("ConstantOfShape", w.integers(op.shape), value=value)


@form("empty")
def empty(w: Writer, op: Op) -> Any:
    return w.add("ConstantOfShape", w.integers(op.shape), value=np.zeros(1, op.dtype.numpy))


@form("arange")
def arange(w: Writer, op: Op) -> Any:
    start, step, count = (op.attrs[k] for k in ("start", "step", "count"))
    if op.dtype is i64:
        bounds = (start, start + count * step, step)
        return w.add("Range", *[w.constant(int(b), np.int64) for b in bounds])
    numbers = np.float64(start) + np.arange(count) * np.float64(step)
    return w.constant(numbers.astype(op.dtype.numpy), op.dtype)
