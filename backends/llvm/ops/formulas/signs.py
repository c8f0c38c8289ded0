"""Signs, exponents and remainders of floats: copysign, sign, isfinite, ldexp, fmod."""

from __future__ import annotations

from typing import Any

from numba.core import errors, types

from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.formulas.number import by_libdevice
from cubepy.backends.llvm.ops.numbers.arithmetic import less
from cubepy.backends.llvm.ops.numbers.division import float_remainder
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import F64, bits, described, is_float, value_type
from cubepy.backends.llvm.ops.values import (
    KEPT_PRODUCT,
    const,
    int_like,
    is_nan,
    math,
    on_nvidia,
    shaped,
)


def _sign(b: Any, dtype: str, x: Any) -> Any:
    number = float if is_float(dtype) else int
    zero, one, minus = (const(x.type, number(n)) for n in (0, 1, -1))
    y = b.select(less(b, dtype, x, zero), minus, zero)
    y = b.select(less(b, dtype, zero, x), one, y)
    return b.select(is_nan(b, x), x, y) if is_float(dtype) else y


def _is_finite(b: Any, dtype: str, x: Any) -> Any:
    """By its bits, since a kernel may say that nothing is infinite."""
    word = int_like(x.type)
    mantissa = {"f32": 23, "f64": 52}[dtype]
    exponents = const(word, ((1 << (bits(dtype) - 1 - mantissa)) - 1) << mantissa)
    return b.icmp_unsigned("!=", b.and_(b.bitcast(x, word), exponents), exponents)


def _fmod(b: Any, dtype: str, x: Any, y: Any) -> Any:
    return by_libdevice(b, "fmod", (x, y)) if on_nvidia(b) else float_remainder(b, dtype, x, y)


def _stepped(b: Any, x: Any, n: Any, symbol: str, limit: int, step: int) -> tuple[Any, Any]:
    """x * 2**step and n - step where n is beyond the limit, twice; then n is brought to it."""
    factor, zero = const(x.type, 2.0**step), const(n.type, 0)
    end = const(n.type, limit)
    for _ in range(2):
        beyond = b.icmp_signed(symbol, n, end)
        x = b.select(beyond, b.fmul(x, factor, flags=KEPT_PRODUCT), x)
        n = b.sub(n, b.select(beyond, const(n.type, step), zero))
    return x, b.select(b.icmp_signed(symbol, n, end), end, n)


def _times_power(b: Any, x: Any, n: Any) -> Any:
    """x * 2**n of a double and i64: no factor is subnormal, and no step but the last rounds what is
    not zero.
    """
    x, n = _stepped(b, x, n, ">", 1023, 1023)
    x, n = _stepped(b, x, n, "<", -1022, -969)
    code = b.shl(b.add(n, const(n.type, 1023)), const(n.type, 52))
    return b.fmul(x, b.bitcast(code, x.type), flags=KEPT_PRODUCT)


@op
def ldexp(x: Any, n: Any) -> Any:
    """`ldexp(x, n)`: x * 2**n, rounded once; n is i32."""
    dtype, lanes = described(x)
    if not is_float(dtype) or described(n) != ("i32", lanes):
        raise errors.TypingError(f"ldexp needs a float and an i32 of as many lanes, not {x}, {n}")
    result = value_type(dtype, lanes)

    def emit(b: Any, v: Any, n: Any) -> Any:
        if on_nvidia(b):
            return by_libdevice(b, "ldexp", (v, n))
        wide = shaped(F64, v.type)
        power = b.sext(n, int_like(wide))
        if dtype == "f64":
            return _times_power(b, v, power)
        return b.fptrunc(_times_power(b, b.fpext(v, wide), power), v.type)

    return result(types.unliteral(x), types.unliteral(n)), emit


sign = elementwise("sign", 1, _sign, doc="-1, 0 or 1; NaN of NaN.")
isfinite = elementwise(
    "isfinite", 1, _is_finite, "float", True, "Whether x is neither infinite nor NaN."
)
copysign = elementwise(
    "copysign",
    2,
    lambda b, d, x, y: math(b, "copysign", x, y),
    "float",
    doc="The size of x, the sign of y.",
)
fmod = elementwise("fmod", 2, _fmod, "float", doc="The exact rest of x / y, with the sign of x.")
