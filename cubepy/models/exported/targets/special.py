"""Functions of one or two numbers that mathematics has a name for, and other rare ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cubepy import tensor as T
from cubepy.errors import ModelError
from cubepy.lang.dtypes import bool_, f32, i32
from cubepy.models.exported.promotion import category, floats, promoted, result_dtype
from cubepy.models.exported.records import target
from cubepy.models.exported.targets.elementwise import maximum, minimum
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, apply, as_tensor

NAN, INFINITY = float("nan"), float("inf")


@target("absolute")
def absolute(x: Tensor) -> Tensor:
    return x.abs()


@target("signbit")
def signbit(x: Tensor) -> Tensor:
    return x.signbit() if x.dtype.is_float else x < 0


@target("angle")
def angle(x: Tensor) -> Tensor:
    x = floats(x)
    return T.where(x < 0, T.full_like(x, math.pi), T.where(x == x, T.zeros_like(x), NAN))


target("isposinf")(lambda x: x == INFINITY if x.dtype.is_float else T.zeros_like(x).astype(bool_))
target("isneginf")(lambda x: x == -INFINITY if x.dtype.is_float else T.zeros_like(x).astype(bool_))
target("isreal")(lambda x: T.full(x.shape, True))
target("deg2rad")(lambda x: floats(x) * (math.pi / 180))
target("rad2deg")(lambda x: floats(x) * (180 / math.pi))
target("special_exp2")(lambda x: floats(x).exp2())
target("special_erfc")(lambda x: floats(x).erfc())
target("erfinv special_erfinv")(lambda x: floats(x).erfinv())
target("special_gammaln")(lambda x: floats(x).lgamma())
target("special_psi special_digamma")(lambda x: floats(x).digamma())
target("special_round")(lambda x, *, decimals=0: (x * 10.0**decimals).round() / 10.0**decimals)


@target("logit special_logit")
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    x = floats(x)
    p = x if eps is None else x.clip(eps, 1 - eps)
    return (p / (1 - p)).log()


@target("sinc special_sinc")
def sinc(x: Tensor) -> Tensor:
    z = floats(x) * math.pi
    return T.where(z == 0, 1.0, z.sin() / T.where(z == 0, 1.0, z))


def _of_log(function: Callable[[Tensor], Tensor]) -> Callable[[Any, Any], Tensor]:
    """x log y, which is 0 where x is."""

    def run(a: Any, b: Any) -> Tensor:
        dtype = result_dtype(a, b)
        dtype = dtype if dtype.is_float else f32
        a, b = (as_tensor(v).astype(dtype) for v in (a, b))
        return T.where(b != b, NAN, T.where(a == 0, 0.0, a * function(b)))

    return run


target("xlogy special_xlogy")(_of_log(lambda x: x.log()))
target("special_xlog1py")(_of_log(lambda x: x.log1p()))


@target("special_entr")
def entr(x: Tensor) -> Tensor:
    x = floats(x)
    found = T.where(x == 0, 0.0, -x * T.where(x > 0, x, 1.0).log())
    return T.where(x < 0, -INFINITY, T.where(x != x, NAN, found))


@target("special_ndtr")
def ndtr(x: Tensor) -> Tensor:
    return (floats(x) * -math.sqrt(0.5)).erfc() * 0.5


@target("special_log_ndtr")
def log_ndtr(x: Tensor) -> Tensor:
    """Far below zero log(erfcx(t) / 2) - t^2, where erfcx is a continued fraction."""
    x = floats(x)
    t = x * -math.sqrt(0.5)
    near = (T.where(t < 3, t, 0.0).erfc() * 0.5).log()
    above = (-(T.where(t < -1, t, -1.0) * -1).erfc() * 0.5).log1p()
    deep = T.where(t >= 3, t, 3.0)
    fraction = deep
    for k in range(30, 0, -1):
        fraction = deep + (k / 2) / fraction
    below = (1 / (fraction * (2 * math.sqrt(math.pi)))).log() - deep * deep
    return T.where(t != t, NAN, T.where(t < -1, above, T.where(t < 3, near, below)))


@target("polygamma special_polygamma")
def polygamma(n: int, x: Tensor) -> Tensor:
    """Derivatives of digamma.

    Raises:
        ModelError: those of an order beyond the first.
    """
    if n > 1:
        raise ModelError(f"the derivative of order {n} of digamma")
    return floats(x).digamma() if n == 0 else apply("trigamma", floats(x))  # type: ignore[no-any-return]


@target("mvlgamma special_multigammaln")
def mvlgamma(x: Tensor, p: int) -> Tensor:
    x = floats(x)
    found = (x - (p - 1) / 2).lgamma()
    for k in range(p - 1):
        found = found + (x - k / 2).lgamma()
    return found + p * (p - 1) / 4 * math.log(math.pi)


@target("heaviside")
def heaviside(x: Tensor, values: Tensor) -> Tensor:
    return T.where(x == 0, values, (x > 0).astype(x.dtype))  # NaN is no step


@target("logaddexp2")
def logaddexp2(a: Any, b: Any) -> Tensor:
    a, b = (floats(v) * math.log(2) for v in promoted(a, b))
    return a.logaddexp(b) * (1 / math.log(2))


@target("ldexp")
def ldexp(x: Tensor, other: Tensor) -> Tensor:
    """x 2^other, in x's dtype where the exponents are whole."""
    x = floats(x)
    if not other.dtype.is_float:
        wide = other.astype("f64" if x.dtype.bits == 64 else "f32").exp2()
        return (x.astype(wide.dtype) * wide).astype(x.dtype)
    x, other = promoted(x, other)
    return x * other.exp2()  # type: ignore[no-any-return]


@target("frexp")
def frexp(x: Tensor) -> list[Tensor]:
    """A mantissa from 1/2 to 1, and the exponent (i32)."""
    fine = (x != 0) & x.isfinite()
    size = T.where(fine, x.abs(), 1.0)
    exponent = size.log2().floor() + 1
    half = (exponent * 0.5).floor()
    part = size * (-half).exp2() * (half - exponent).exp2()
    for _ in range(2):  # the logarithm may be off by a rounding
        exponent = T.where(part >= 1, exponent + 1, T.where(part < 0.5, exponent - 1, exponent))
        part = T.where(part >= 1, part * 0.5, T.where(part < 0.5, part * 2, part))
    return [T.where(fine, part.copysign(x), x), T.where(fine, exponent, 0).astype(i32)]


@target("nextafter")
def nextafter(a: Tensor, b: Tensor) -> Tensor:
    return apply("nextafter", *promoted(a, b))  # type: ignore[no-any-return]


def _skipping_nan(name: str) -> Callable[..., Tensor]:
    def run(a: Any, b: Any) -> Tensor:
        a, b = promoted(a, b)
        found = (maximum if name == "maximum" else minimum)(a, b)
        if not found.dtype.is_float:
            return found  # type: ignore[no-any-return]
        return T.where(a != a, b, T.where(b != b, a, found))

    return run


target("fmax")(_skipping_nan("maximum"))
target("fmin")(_skipping_nan("minimum"))


@target("float_power")
def float_power(a: Any, b: Any) -> Tensor:
    a, b = (v.astype("f64") if isinstance(v, Tensor) else float(v) for v in (a, b))
    return a**b  # type: ignore[no-any-return]


@target("isclose")
def isclose(
    a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    same = a == b
    if equal_nan and a.dtype.is_float:
        same = same | ((a != a) & (b != b))
    if category(result_dtype(a, b)) == 0 or (rtol == 0 and atol == 0):
        return same
    a, b = floats(a), floats(b)
    return same | ((a - b).abs().isfinite() & ((a - b).abs() <= b.abs() * rtol + atol))


def _common_divisor(a: Any, b: Any) -> Tensor:
    """Euclid's algorithm, as many steps as the longest pair of a width takes."""
    dtype = result_dtype(a, b)
    a, b = (as_tensor(v).astype(dtype).abs() for v in promoted(a, b))
    a, b = T.broadcast_arrays(a, b)

    def step(carry: Any, _: Any) -> Any:
        x, y = carry
        return (T.where(y == 0, x, y), T.where(y == 0, 0, x % T.where(y == 0, 1, y))), None

    steps = math.ceil(dtype.bits * 1.4404) + 2  # 1 / log2 of the golden ratio
    (found, _), _ = T.scan(step, (a, b.astype(dtype)), None, length=steps)
    return found  # type: ignore[no-any-return]


target("gcd")(_common_divisor)


@target("lcm")
def lcm(a: Tensor, b: Tensor) -> Tensor:
    divisor = _common_divisor(a, b)
    a, b = promoted(a, b)
    return (a // T.where(divisor == 0, 1, divisor) * b).abs()  # type: ignore[no-any-return]


@target("rrelu")
def rrelu(
    x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *rest: Any
) -> Tensor:
    if training:
        raise ModelError("rrelu of a module that learns: call module.eval() before the export")
    return F.leaky_relu(x, (lower + upper) / 2)
