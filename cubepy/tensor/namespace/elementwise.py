"""Functions of elements, as the array API names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.lang.dtypes import bool_
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.namespace.choice import pair
from cubepy.tensor.namespace.creation import zeros_like


def _of_one(name: str, text: str, op: str | None = None) -> Callable[[Any], Tensor]:
    used = op or name

    def function(x: Any, /) -> Tensor:
        return apply(used, as_tensor(x))  # type: ignore[no-any-return]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def _of_two(name: str, text: str, op: str | None = None) -> Callable[[Any, Any], Tensor]:
    used = op or name

    def function(x1: Any, x2: Any, /) -> Tensor:
        return apply(used, *pair(x1, x2))  # type: ignore[no-any-return]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def _test(name: str, text: str, integers: str) -> Callable[[Any], Tensor]:
    """A test of floats, with the comparison of an integer to itself that says the same."""

    def function(x: Any, /) -> Tensor:
        x = as_tensor(x)
        return apply(name, x) if x.dtype.is_float else apply(integers, x, x)  # type: ignore[no-any-return]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


abs = _of_one("abs", "Absolute values.")
acos = _of_one("acos", "Angles from 0 to pi with these cosines.")
acosh = _of_one("acosh", "Inverse hyperbolic cosines.")
asin = _of_one("asin", "Angles from -pi/2 to pi/2 with these sines.")
asinh = _of_one("asinh", "Inverse hyperbolic sines.")
atan = _of_one("atan", "Angles from -pi/2 to pi/2 with these tangents.")
atanh = _of_one("atanh", "Inverse hyperbolic tangents.")
ceil = _of_one("ceil", "Smallest integral values not below.")
cos = _of_one("cos", "Cosines of angles in radians.")
cosh = _of_one("cosh", "Hyperbolic cosines.")
exp = _of_one("exp", "e ** x.")
expm1 = _of_one("expm1", "exp(x) - 1, exact near zero.")
floor = _of_one("floor", "Largest integral values not above.")
isfinite = _test("isfinite", "Whether elements are neither infinite nor NaN.", "eq")
isinf = _test("isinf", "Whether elements are infinite.", "ne")
isnan = _test("isnan", "Whether elements are NaN.", "ne")
log = _of_one("log", "Natural logarithms.")
log10 = _of_one("log10", "Logarithms to base 10.")
log1p = _of_one("log1p", "log(1 + x), exact near zero.")
log2 = _of_one("log2", "Logarithms to base 2.")
negative = _of_one("negative", "-x.", "neg")
reciprocal = _of_one("reciprocal", "1 / x.")
round = _of_one("round", "Nearest integral values, ties to even.")
sign = _of_one("sign", "-1, 0 or 1; NaN of NaN.")
signbit = _of_one("signbit", "Whether elements have a minus, that of -0 too.")
sin = _of_one("sin", "Sines of angles in radians.")
sinh = _of_one("sinh", "Hyperbolic sines.")
sqrt = _of_one("sqrt", "Square roots.")
square = _of_one("square", "x * x.")
tan = _of_one("tan", "Tangents of angles in radians.")
tanh = _of_one("tanh", "Hyperbolic tangents.")
trunc = _of_one("trunc", "Integral parts.")

add = _of_two("add", "x1 + x2.")
atan2 = _of_two("atan2", "Angles of the points (x2, x1), from -pi to pi.")
bitwise_and = _of_two("bitwise_and", "x1 & x2.", "and")
bitwise_left_shift = _of_two("bitwise_left_shift", "x1 << x2.", "lshift")
bitwise_or = _of_two("bitwise_or", "x1 | x2.", "or")
bitwise_right_shift = _of_two("bitwise_right_shift", "x1 >> x2.", "rshift")
bitwise_xor = _of_two("bitwise_xor", "x1 ^ x2.", "xor")
copysign = _of_two("copysign", "The sizes of x1 with the signs of x2.")
divide = _of_two("divide", "x1 / x2.", "div")
equal = _of_two("equal", "x1 == x2.", "eq")
floor_divide = _of_two("floor_divide", "x1 // x2.", "floordiv")
greater = _of_two("greater", "x1 > x2.", "gt")
greater_equal = _of_two("greater_equal", "x1 >= x2.", "ge")
hypot = _of_two("hypot", "sqrt(x1 * x1 + x2 * x2), without overflow on the way.")
less = _of_two("less", "x1 < x2.", "lt")
less_equal = _of_two("less_equal", "x1 <= x2.", "le")
logaddexp = _of_two("logaddexp", "log(exp(x1) + exp(x2)), without overflow on the way.")
maximum = _of_two("maximum", "The larger; NaN if either is.")
minimum = _of_two("minimum", "The smaller; NaN if either is.")
multiply = _of_two("multiply", "x1 * x2.", "mul")
nextafter = _of_two("nextafter", "The next numbers from x1 towards x2.")
not_equal = _of_two("not_equal", "x1 != x2.", "ne")
pow = _of_two("pow", "x1 ** x2.")
remainder = _of_two("remainder", "x1 % x2.", "mod")
subtract = _of_two("subtract", "x1 - x2.", "sub")


def bitwise_invert(x: Any, /) -> Tensor:
    """~x."""
    return ~as_tensor(x)


def positive(x: Any, /) -> Tensor:
    """+x."""
    return +as_tensor(x)


def conj(x: Any, /) -> Tensor:
    """The complex conjugate: of real numbers they themselves."""
    return as_tensor(x)


def real(x: Any, /) -> Tensor:
    """The real part: of real numbers they themselves."""
    return as_tensor(x)


def imag(x: Any, /) -> Tensor:
    """The imaginary part: of real numbers zeros."""
    return zeros_like(x)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """Limited to [min, max], in the dtype of x; None leaves a side open."""
    given = as_tensor(x)
    return given.clip(min, max).astype(given.dtype)


def _truth(x: Tensor) -> Tensor:
    return x if x.dtype is bool_ else x != 0


def _logical(name: str, text: str, op: str) -> Callable[[Any, Any], Tensor]:
    def function(x1: Any, x2: Any, /) -> Tensor:
        return apply(op, *map(_truth, pair(x1, x2)))  # type: ignore[no-any-return]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


logical_and = _logical("logical_and", "Whether both are true.", "and")
logical_or = _logical("logical_or", "Whether one is true.", "or")
logical_xor = _logical("logical_xor", "Whether just one is true.", "xor")


def logical_not(x: Any, /) -> Tensor:
    """Whether elements are false."""
    return ~_truth(as_tensor(x))


__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]
