"""Operators that work element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cubepy import tensor as T
from cubepy.errors import ModelError
from cubepy.lang.dtypes import bool_
from cubepy.models.exported.promotion import category, converted, floats, promoted, result_dtype
from cubepy.models.exported.records import target
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, as_tensor

FLOATS = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan sinh cosh tanh erf erfc sigmoid "
    "lgamma digamma reciprocal asin acos atan asinh acosh atanh"
)
SAME = "abs floor ceil trunc relu"
NAMES = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "special_erf": "erf",
    "special_expit": "sigmoid",
    "special_expm1": "expm1",
    "special_log1p": "log1p",
    "fix": "trunc",
}


def _float_method(name: str) -> Callable[..., Any]:
    return lambda x: getattr(floats(x), name)()


def _same_method(name: str) -> Callable[..., Any]:
    return lambda x: getattr(x, name)()


for _name in FLOATS.split():
    target(_name)(_float_method(_name))
for _name in SAME.split():
    target(_name)(_same_method(_name))
for _alias, _name in NAMES.items():
    target(_alias)((_float_method if _name in FLOATS else _same_method)(_name))


def _activation(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: function(floats(x), *rest)


ACTIVATIONS: dict[str, Any] = {
    "silu": F.silu,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "leaky_relu": F.leaky_relu,
    "selu": F.selu,
    "celu": F.celu,
    "softplus": F.softplus,
    "mish": F.mish,
    "log_sigmoid": F.logsigmoid,
    "glu": F.glu,
    "threshold": F.threshold,
}
for _name, _function in ACTIVATIONS.items():
    target(_name)(_activation(_function))


@target("prelu")
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    return F.prelu(x, weight if x.ndim else weight.reshape(()))


@target("gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return F.gelu(floats(x), approximate)


@target("elu")
def elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    if scale != 1 or input_scale != 1:
        return T.where(x > 0, x * scale, (x.minimum(0) * input_scale).expm1() * (alpha * scale))
    return F.elu(floats(x), alpha)


@target("neg negative")
def neg(x: Tensor) -> Tensor:
    return -x


@target("sign sgn")
def sign(x: Tensor) -> Tensor:
    """Of NaN it is 0 for torch."""
    if x.dtype is bool_:
        return x
    return T.where(x == x, x.sign(), 0) if x.dtype.is_float else x.sign()


@target("round")
def rounded(x: Tensor, *, decimals: int = 0) -> Tensor:
    if not decimals:
        return x.round()
    return (x * 10.0**decimals).round() / 10.0**decimals


@target("logical_not")
def logical_not(x: Tensor) -> Tensor:
    return x == 0 if x.dtype is not bool_ else ~x


@target("bitwise_not")
def bitwise_not(x: Tensor) -> Tensor:
    return ~x


for _name in ("isnan", "isinf", "isfinite"):
    target(_name)(_same_method(_name))


@target("nan_to_num")
def nan_to_num(
    x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    if not x.dtype.is_float:
        return x
    most = float(T.finfo(x.dtype).max)
    x = T.where(x.isnan(), 0.0 if nan is None else nan, x)
    x = T.where(x == math.inf, most if posinf is None else posinf, x)
    return T.where(x == -math.inf, -most if neginf is None else neginf, x)


@target("frac")
def frac(x: Tensor) -> Tensor:
    return x - x.trunc()


# Of two


def _scaled(other: Any, alpha: Any) -> Any:
    return other if alpha == 1 else other * alpha


@target("add __add__")
def add(a: Any, b: Any, *, alpha: Any = 1) -> Tensor:
    a, b = promoted(a, b)
    if category(result_dtype(a, b)) == 0:
        return a | b
    return a + _scaled(b, alpha)


@target("sub __sub__ subtract")
def sub(a: Any, b: Any, *, alpha: Any = 1) -> Tensor:
    a, b = promoted(a, b)
    return a - _scaled(b, alpha)


@target("rsub")
def rsub(a: Any, b: Any, alpha: Any = 1) -> Tensor:
    return sub(b, a, alpha=alpha)


@target("mul __mul__ multiply")
def mul(a: Any, b: Any) -> Tensor:
    a, b = promoted(a, b)
    return a & b if category(result_dtype(a, b)) == 0 else a * b


@target("div true_divide divide __truediv__")
def div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor:
    dtype = result_dtype(a, b)
    a, b = promoted(a, b)
    if rounding_mode == "floor":
        return a // b
    if rounding_mode == "trunc" and category(dtype) < 2:
        a, b = (as_tensor(v).astype(dtype) for v in (a, b))
        quotient = abs(a) // abs(b)
        return T.where((a < 0) != (b < 0), -quotient, quotient)
    quotient = floats(a) / b if isinstance(a, Tensor) else a / floats(b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        quotient = floats(a) / floats(b)
    return quotient.trunc() if rounding_mode == "trunc" else quotient


@target("floor_divide __floordiv__")
def floor_divide(a: Any, b: Any) -> Tensor:
    return div(a, b, rounding_mode="floor")


@target("remainder __mod__")
def remainder(a: Any, b: Any) -> Tensor:
    a, b = promoted(a, b)
    return a % b


@target("fmod")
def fmod(a: Any, b: Any) -> Tensor:
    dtype = result_dtype(a, b)
    a, b = promoted(a, b)
    if category(dtype) < 2:
        a, b = (as_tensor(v).astype(dtype) for v in (a, b))
        return a - div(a, b, rounding_mode="trunc") * b  # type: ignore[no-any-return]
    return as_tensor(a).fmod(b)


@target("pow __pow__")
def power(a: Any, b: Any) -> Tensor:
    dtype = result_dtype(a, b)
    if isinstance(b, float) and b == int(b) and abs(b) < 64 and category(dtype) == 2:
        b = int(b)  # x ** 2.0 is x * x
    a = converted(a, dtype)
    if isinstance(b, Tensor):
        b = converted(b, dtype)
    return a**b  # type: ignore[no-any-return]


target("square")(lambda x: power(x, 2))


def _of_two(name: str, floating: bool = False) -> Callable[..., Any]:
    def run(a: Any, b: Any) -> Any:
        a, b = promoted(a, b)
        a = as_tensor(a)
        if a.dtype is bool_ and not floating:
            return a | b if name == "maximum" else a & b
        return getattr(floats(a) if floating else a, name)(b)

    return run


maximum = target("maximum max.other")(_of_two("maximum"))
minimum = target("minimum min.other")(_of_two("minimum"))
for _name in ("atan2", "hypot", "copysign", "logaddexp"):
    target(_name)(_of_two(_name, floating=True))
target("arctan2")(_of_two("atan2", floating=True))


def _compared(operator: str) -> Callable[..., Any]:
    def run(a: Any, b: Any) -> Any:
        a, b = promoted(a, b)
        return getattr(as_tensor(a), operator)(b)

    return run


for _name, _operator in {
    "eq": "__eq__",
    "ne": "__ne__",
    "lt": "__lt__",
    "le": "__le__",
    "gt": "__gt__",
    "ge": "__ge__",
    "not_equal": "__ne__",
    "less": "__lt__",
    "less_equal": "__le__",
    "greater": "__gt__",
    "greater_equal": "__ge__",
}.items():
    target(_name)(_compared(_operator))


def truth(x: Any) -> Any:
    """Whether elements are not 0."""
    x = as_tensor(x)
    return x if x.dtype is bool_ else x != 0


@target("logical_and")
def logical_and(a: Any, b: Any) -> Tensor:
    return truth(a) & truth(b)  # type: ignore[no-any-return]


@target("logical_or")
def logical_or(a: Any, b: Any) -> Tensor:
    return truth(a) | truth(b)  # type: ignore[no-any-return]


@target("logical_xor")
def logical_xor(a: Any, b: Any) -> Tensor:
    return truth(a) ^ truth(b)  # type: ignore[no-any-return]


@target("bitwise_and __and__")
def bitwise_and(a: Any, b: Any) -> Tensor:
    a, b = promoted(a, b)
    return a & b  # type: ignore[no-any-return]


@target("bitwise_or __or__")
def bitwise_or(a: Any, b: Any) -> Tensor:
    a, b = promoted(a, b)
    return a | b  # type: ignore[no-any-return]


@target("bitwise_xor __xor__")
def bitwise_xor(a: Any, b: Any) -> Tensor:
    a, b = promoted(a, b)
    return a ^ b  # type: ignore[no-any-return]


@target("bitwise_left_shift __lshift__")
def shift_left(a: Any, b: Any) -> Tensor:
    a, b = promoted(a, b)
    return a << b  # type: ignore[no-any-return]


@target("bitwise_right_shift __rshift__")
def shift_right(a: Any, b: Any) -> Tensor:
    a, b = promoted(a, b)
    return a >> b  # type: ignore[no-any-return]


# Of three


@target("where")
def where(mask: Tensor, a: Any = None, b: Any = None) -> Tensor:
    if a is None:
        raise ModelError("where of a mask alone gives positions whose number data decide")
    dtype = result_dtype(a, b)
    a, b = (as_tensor(converted(v, dtype)) for v in (a, b))
    return T.where(truth(mask), a.astype(dtype), b.astype(dtype))


@target("masked_fill")
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return x.masked_fill(mask, converted(value, x.dtype))


@target("clamp clip")
def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    x, low, high = promoted(x, min, max)
    return x.clip(low, high)  # type: ignore[no-any-return]


@target("clamp_min")
def clamp_min(x: Tensor, min: Any) -> Tensor:
    return clamp(x, min)


@target("clamp_max")
def clamp_max(x: Tensor, max: Any) -> Tensor:
    return clamp(x, None, max)


@target("lerp")
def lerp(a: Tensor, b: Tensor, weight: Any) -> Tensor:
    return a + (b - a) * weight


@target("addcmul")
def addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    return add(x, _scaled(mul(a, b), value))


@target("addcdiv")
def addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: Any = 1) -> Tensor:
    return add(x, _scaled(div(a, b), value))
