"""Arithmetic, comparisons and logic, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.records import Call, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply

UNARY: dict[str, tuple[str, Any]] = {
    "Abs": ("abs", np.abs),
    "Acos": ("acos", np.arccos),
    "Acosh": ("acosh", np.arccosh),
    "Asin": ("asin", np.arcsin),
    "Asinh": ("asinh", np.arcsinh),
    "Atan": ("atan", np.arctan),
    "Atanh": ("atanh", np.arctanh),
    "Ceil": ("ceil", np.ceil),
    "Cos": ("cos", np.cos),
    "Cosh": ("cosh", np.cosh),
    "Exp": ("exp", np.exp),
    "Floor": ("floor", np.floor),
    "Log": ("log", np.log),
    "Neg": ("neg", np.negative),
    "Round": ("round", np.round),
    "Sign": ("sign", np.sign),
    "Sin": ("sin", np.sin),
    "Sinh": ("sinh", np.sinh),
    "Sqrt": ("sqrt", np.sqrt),
    "Tan": ("tan", np.tan),
    "Tanh": ("tanh", np.tanh),
    "Reciprocal": ("reciprocal", np.reciprocal),
    "Erf": ("erf", None),
}
"""Operators of one operand: the op of tensors, and what computes host arrays."""


def _unary(op: str) -> Callable[..., Any]:
    return lambda call, x: apply(op, x)


def _unary_host(function: Any) -> Any:
    return None if function is None else lambda call, x: np.asarray(function(x)).astype(x.dtype)


for _name, (_op, _function) in UNARY.items():
    operator(_name, host=_unary_host(_function))(_unary(_op))


def truncated(a: Tensor, b: Tensor) -> Tensor:
    """The quotient of integers, towards zero."""
    if a.dtype.kind == "u":
        return apply("floordiv", a, b)
    quotient = apply("floordiv", a, b)
    return quotient + ((quotient * b != a) & (quotient < 0)).astype(a.dtype)


@operator(
    "Div",
    host=lambda call, a, b: (
        a / b
        if a.dtype.kind == "f"
        else (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)
    ),
)
def div(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """a / b; integers towards zero."""
    a, b = aligned(call, a, b)
    return a / b if a.dtype.is_float else truncated(a, b)


def aligned(call: Call, a: Any, b: Any) -> tuple[Any, Any]:
    """Operands as they broadcast: before opset 7 the second one began at an axis."""
    if call.version < 7 and call.get("broadcast", 0) and len(b.shape) < len(a.shape):
        axis = call.get("axis", len(a.shape) - len(b.shape))
        axis = axis + len(a.shape) if axis < 0 else axis
        b = b.reshape((*b.shape, *(1,) * (len(a.shape) - axis - len(b.shape))))
    return a, b


def _binary(op: str) -> Callable[..., Any]:
    def run(call: Call, a: Tensor, b: Tensor) -> Tensor:
        return apply(op, *aligned(call, a, b))

    return run


def _binary_host(function: Any) -> Callable[..., Any]:
    return lambda call, a, b: function(*aligned(call, a, b))


BINARY: dict[str, tuple[str, Any]] = {
    "Add": ("add", np.add),
    "Sub": ("sub", np.subtract),
    "Mul": ("mul", np.multiply),
    "Equal": ("eq", np.equal),
    "Greater": ("gt", np.greater),
    "GreaterOrEqual": ("ge", np.greater_equal),
    "Less": ("lt", np.less),
    "LessOrEqual": ("le", np.less_equal),
    "And": ("and", np.logical_and),
    "Or": ("or", np.logical_or),
    "Xor": ("xor", np.logical_xor),
    "BitwiseAnd": ("and", np.bitwise_and),
    "BitwiseOr": ("or", np.bitwise_or),
    "BitwiseXor": ("xor", np.bitwise_xor),
}
for _name, (_op, _function) in BINARY.items():
    operator(_name, host=_binary_host(_function))(_binary(_op))

operator("Not", host=lambda call, x: np.logical_not(x))(lambda call, x: apply("not", x))
operator("BitwiseNot", host=lambda call, x: np.invert(x))(lambda call, x: apply("invert", x))


@operator("BitShift", host=lambda call, a, b: a << b if call["direction"] == "LEFT" else a >> b)
def bit_shift(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Bits moved to the left or right; by more than there are gives zero."""
    moved = apply("lshift" if call["direction"] == "LEFT" else "rshift", a, b)
    empty = T.zeros_like(moved)
    if a.dtype.kind == "i" and call["direction"] != "LEFT":
        empty = T.where(a < 0, empty - 1, empty)
    return T.where((b < a.dtype.bits) & (b >= 0), moved, empty)


def _pow_host(call: Call, a: Any, b: Any) -> Any:
    return np.power(a.astype(np.promote_types(a.dtype, b.dtype)), b).astype(a.dtype)


@operator("Pow", host=_pow_host)
def power(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """a ** b in the dtype of a."""
    if a.dtype.is_float or b.dtype.is_float:
        wide = a.dtype if a.dtype.is_float else b.dtype
        return apply("pow", a.astype(wide), b.astype(wide)).astype(a.dtype)
    return apply("pow", a, b.astype(a.dtype))


def _mod_host(call: Call, a: Any, b: Any) -> Any:
    return np.fmod(a, b) if call.get("fmod", 0) else np.mod(a, b)


@operator("Mod", host=_mod_host)
def mod(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The remainder, with the sign of b; with `fmod` that of a."""
    if not call.get("fmod", 0):
        return apply("mod", a, b)
    return apply("fmod", a, b) if a.dtype.is_float else a - truncated(a, b) * b


def _folded(op: str) -> Callable[..., Any]:
    def run(call: Call, *xs: Tensor) -> Tensor:
        result = xs[0]
        for x in xs[1:]:
            result = apply(op, result, x)
        return result

    return run


def _folded_host(function: Any) -> Callable[..., Any]:
    def run(call: Call, *xs: Any) -> Any:
        result = xs[0]
        for x in xs[1:]:
            result = function(result, x)
        return result

    return run


operator("Sum", host=_folded_host(np.add))(_folded("add"))
operator("Max", host=_folded_host(np.maximum))(_folded("maximum"))
operator("Min", host=_folded_host(np.minimum))(_folded("minimum"))


@operator("Mean")
def mean(call: Call, *xs: Tensor) -> Tensor:
    """The mean of several tensors."""
    return _folded("add")(call, *xs) / len(xs)


@operator("Where", host=lambda call, mask, a, b: np.where(mask, a, b))
def where(call: Call, mask: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a where the mask is true, b elsewhere."""
    return T.where(mask, a, b)


def _clip_host(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    low = call.get("min") if low is None else low
    high = call.get("max") if high is None else high
    x = x if low is None else np.maximum(x, np.asarray(low, x.dtype))
    return x if high is None else np.minimum(x, np.asarray(high, x.dtype))


@operator("Clip", host=_clip_host)
def clip(call: Call, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """Between two limits."""
    low, high = call.get("min", low), call.get("max", high)
    result = x if low is None else x.maximum(low)
    return result if high is None else result.minimum(high)


@operator("IsNaN", host=lambda call, x: np.isnan(x))
def is_nan(call: Call, x: Tensor) -> Tensor:
    """Whether an element is no number."""
    return x.isnan()


@operator("IsInf")
def is_inf(call: Call, x: Tensor) -> Tensor:
    """Whether an element is infinite, of the signs that count."""
    up, down = call.get("detect_positive", 1), call.get("detect_negative", 1)
    found = x.isinf()
    if not up:
        found = found & (x < 0)
    return found if down else found & (x > 0)


@operator("Shrink")
def shrink(call: Call, x: Tensor) -> Tensor:
    """Zero around zero, moved towards it elsewhere."""
    bias, edge = call.get("bias", 0.0), call.get("lambd", 0.5)
    zero = T.zeros_like(x)
    wide = x.astype("f32") if not x.dtype.is_float else x
    low = T.where(wide < -edge, (wide + bias).astype(x.dtype), zero)
    return T.where(wide > edge, (wide - bias).astype(x.dtype), low)


@operator("CumSum", reads=(1,))
def cumsum(call: Call, x: Tensor, axis: Any) -> Tensor:
    """Running sums along an axis."""
    return _running("cumsum", call, x, axis)


@operator("CumProd", reads=(1,))
def cumprod(call: Call, x: Tensor, axis: Any) -> Tensor:
    """Running products along an axis."""
    return _running("cumprod", call, x, axis)


def _running(op: str, call: Call, x: Tensor, axis: Any) -> Tensor:
    axis = int(axis.reshape(-1)[0]) % len(x.shape)
    back = bool(call.get("reverse", 0))
    x = x.flip(axis) if back else x
    dtype = x.dtype
    result = apply(op, x, axis=axis, exclusive=bool(call.get("exclusive", 0))).astype(dtype)
    return result.flip(axis) if back else result
