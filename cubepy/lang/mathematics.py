"""Functions of numbers besides those of every pocket calculator: what each is called, means and
gives.

`evaluate` computes them in double precision; the compiler folds comptime numbers by it, and the
python backend runs it. Ends and special values are those of C99 and NumPy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from cubepy.lang.examples import each

UNARY = {
    "tan": "Tangent of an angle in radians.",
    "asin": "The angle from -pi/2 to pi/2 whose sine is x; NaN beyond 1.",
    "acos": "The angle from 0 to pi whose cosine is x; NaN beyond 1.",
    "atan": "The angle from -pi/2 to pi/2 whose tangent is x.",
    "sinh": "Hyperbolic sine.",
    "cosh": "Hyperbolic cosine.",
    "asinh": "Inverse hyperbolic sine.",
    "acosh": "Inverse hyperbolic cosine; NaN below 1.",
    "atanh": "Inverse hyperbolic tangent; NaN beyond 1.",
    "log10": "Logarithm to base 10.",
    "cbrt": "Cube root, of negative numbers too.",
    "erfc": "1 - erf(x), exact where that is small.",
    "lgamma": "log(|Gamma(x)|); infinite at 0, -1, -2, ...",
}
"""Functions of a float."""

BINARY = {
    "atan2": "`atan2(y, x)`: the angle of the point (x, y), from -pi to pi.",
    "hypot": "`hypot(x, y)`: sqrt(x*x + y*y), without overflow on the way.",
    "fmod": "`fmod(x, y)`: the exact rest of x / y, with the sign of x (that of `%` is y's).",
    "copysign": "`copysign(x, y)`: the size of x with the sign of y.",
}
"""Functions of two floats."""

OTHER = {
    "sign": "-1, 0 or 1 with the dtype of x; NaN of NaN.",
    "isfinite": "Whether x is neither infinite nor NaN (a bool, or a mask of a line).",
    "ldexp": "`ldexp(x, n)`: x * 2**n of a float and an integer, rounded once.",
    "mulhi": "`mulhi(x, y)`: the upper half of the bits of the product of two integers.",
    "reverse_bits": "The bits of an integer, the lowest one first.",
}
"""Functions whose dtypes have rules of their own."""

MATHEMATICS = UNARY | BINARY | OTHER
NUMPY_NAMES = {
    f"arc{name[1:]}": name for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")
}
"""What NumPy calls some of them."""

EXAMPLES = {
    "tan": each("cb.tan(x[i])", "[0, np.pi / 4]", "[0. 1.]"),
    "asin": each("cb.asin(x[i])", "[1, 2]", "[1.5707964       nan]"),
    "acos": each("cb.acos(x[i])", "[1, -1]", "[0.        3.1415927]"),
    "atan": each("cb.atan(x[i])", "[1, np.inf]", "[0.7853982 1.5707964]"),
    "sinh": each("cb.sinh(x[i])", "[1e-10, 100]", "[1.e-10    inf]"),
    "cosh": each("cb.cosh(x[i])", "[0, 1]", "[1.        1.5430807]"),
    "asinh": each("cb.asinh(x[i])", "[1e-10, 1]", "[1.000000e-10 8.813736e-01]"),
    "acosh": each("cb.acosh(x[i])", "[1, 2]", "[0.       1.316958]"),
    "atanh": each("cb.atanh(x[i])", "[0.5, 1]", "[0.54930615        inf]"),
    "log10": each("cb.log10(x[i])", "[1000, 0.1]", "[ 3. -1.]"),
    "cbrt": each("cb.cbrt(x[i])", "[27, -8]", "[ 3. -2.]"),
    "erfc": each("cb.erfc(x[i])", "[0, 5]", "[1.0000000e+00 1.5374598e-12]"),
    "lgamma": each("cb.lgamma(x[i])  # log(4!), log(9!)", "[5, 10]", "[ 3.1780539 12.801827 ]"),
    "atan2": each("cb.atan2(x[i], -1.0)", "[1, -1]", "[ 2.3561945 -2.3561945]"),
    "hypot": each("cb.hypot(x[i], 4e30)", "[3e30, np.inf]", "[5.e+30    inf]"),
    "fmod": each("cb.fmod(x[i], 3)", "[7, -7]", "[ 1. -1.]"),
    "copysign": each("cb.copysign(2.0, x[i])", "[1, -0.0]", "[ 2. -2.]"),
    "sign": each("cb.sign(x[i])", "[-3, 0, np.nan]", "[-1.  0. nan]"),
    "isfinite": each("cb.isfinite(x[i])", "[1, np.nan, np.inf]", "[ True False False]", to="bool"),
    "ldexp": each("cb.ldexp(x[i], -3)", "[8, 1]", "[1.    0.125]"),
    "mulhi": each("cb.mulhi(x[i], x[i])", "[1 << 16, 1 << 20]", "[  1 256]", "np.uint32"),
    "reverse_bits": each("cb.reverse_bits(x[i])", "[1, 6]", "[128  96]", "np.uint8"),
}


EULER_LESS = 0.42278433509846713
"""1 less Euler's constant."""


@functools.cache
def _zeta_less_one(k: int) -> float:
    """zeta(k) - 1: a few terms of the sum, and Euler's and Maclaurin's formula for the others."""
    n = 100.0
    end = n**-k * (n / (k - 1) - 0.5 + k / (12 * n) - k * (k + 1) * (k + 2) / (720 * n**3))
    end += n**-k * k * (k + 1) * (k + 2) * (k + 3) * (k + 4) / (30240 * n**5)
    return math.fsum([*(m**-k for m in range(2, 101)), end])


def _log_gamma(x: float) -> float:
    """log(|Gamma(x)|): up to 8 by its series around 2, since `math.lgamma` loses digits near its
    zeros at 1 and 2.
    """
    if math.isnan(x) or math.isinf(x):
        return abs(x)
    if 0 < x < 8:
        whole = round(x)
        d = x - whole
        terms = [(-d) ** k * (_zeta_less_one(k) / k) for k in range(2, 40)]
        more = math.log(math.prod(x - k for k in range(1, whole - 1))) if whole > 2 else 0.0
        less = math.log1p(d if whole == 1 else x) if whole < 2 else 0.0
        first = math.log(x) if whole == 0 else 0.0
        return math.fsum([d * EULER_LESS, *terms, more, -less, -first])
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # a pole, or a result beyond the largest float
        return math.inf


def _lane_by_lane(function: Callable[[float], float]) -> Callable[[Any], Any]:
    called = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(called(x), np.float64)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "log10": np.log10,
    "cbrt": np.cbrt,
    "erfc": _lane_by_lane(math.erfc),
    "lgamma": _lane_by_lane(_log_gamma),
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "fmod": np.fmod,
    "copysign": np.copysign,
    "sign": np.sign,
    "isfinite": np.isfinite,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _lane_by_lane(math.erf),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "min": np.fmin,
    "max": np.fmax,
    "nan_min": np.minimum,
    "nan_max": np.maximum,
    "pow": np.power,
}


def evaluate(name: str, *values: Any) -> Any:
    """What a function of floats gives, in double precision.

    Example:
        >>> float(evaluate("hypot", 3, 4)), evaluate("sign", [-2.0, 0.0]).tolist()
        (5.0, [-1.0, 0.0])
    """
    with np.errstate(all="ignore"):
        return _FUNCTIONS[name](*(np.asarray(v, np.float64) for v in values))


def of_numbers(name: str, *values: Any) -> Any:
    """What a function gives of numbers of Python's, which a comptime expression has: integers stay
    integers where a kernel keeps them.

    Example:
        >>> of_numbers("trunc", -1.5), of_numbers("floor", 3), of_numbers("nan_max", 1, math.nan)
        (-1.0, 3, nan)
        >>> of_numbers("log", 0.0), of_numbers("clamp", 7, 0, 5)
        (-inf, 5)
    """
    if name == "clamp":
        return of_numbers("min", of_numbers("max", *values[:2]), values[2])
    if name == "abs":
        return abs(values[0])
    if all(isinstance(v, int) for v in values):
        kept: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(("floor", "ceil", "trunc", "round"), int),
            **dict.fromkeys(("min", "nan_min"), min),
            **dict.fromkeys(("max", "nan_max"), max),
            "fma": lambda a, b, c: a * b + c,
        }
        if name in kept:
            return kept[name](*values)
        if name == "pow" and values[1] >= 0:
            return values[0] ** values[1]
    if name in ("min", "max", "nan_min", "nan_max"):  # an integer that wins stays one
        found = evaluate(name, *values).item()
        return next((v for v in values if isinstance(v, int) and v == found), found)
    if name == "fma":
        return fused(*map(float, values))
    return evaluate(name, *values).item()


def fused(a: float, b: float, c: float) -> float:
    """a * b + c in double precision, rounded once.

    Example:
        >>> fused(0.1, 10.0, -1.0), 0.1 * 10.0 - 1.0
        (5.551115123125783e-17, 0.0)
    """
    if not (math.isfinite(a) and math.isfinite(b)) or a == 0 or b == 0:
        return a * b + c
    if not math.isfinite(c):
        return c  # also where the product overflows
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def times_power(x: Any, n: Any) -> Any:
    """x * 2**n, rounded once; any integers n.

    Example:
        >>> float(times_power(3.0, 4)), float(times_power(1.0, -(10**30)))
        (48.0, 0.0)
    """
    exponents = np.clip(n, -MOST_DOUBLINGS, MOST_DOUBLINGS)
    with np.errstate(all="ignore"):
        return np.ldexp(x, np.asarray(exponents).astype(np.int32))


MOST_DOUBLINGS = 4000
"""More factors of 2 than lie between the smallest and the largest float."""


def high_half(x: int, y: int, bits: int) -> int:
    """The upper `bits` bits of the product of two integers of that width.

    Example:
        >>> high_half(1 << 31, 6, 32), high_half(-1, 1, 32)
        (3, -1)
    """
    return (x * y) >> bits


def reversed_bits(x: int, bits: int, signed: bool) -> int:
    """An integer of that width with its bits in reverse.

    Example:
        >>> reversed_bits(6, 8, False), reversed_bits(1, 8, True)
        (96, -128)
    """
    code = int(format(x & ((1 << bits) - 1), f"0{bits}b")[::-1], 2)
    return code - (1 << bits) if signed and code >> (bits - 1) else code
