"""sin, cos and tan of large angles, for targets without a C library.

The angle times 2 / pi is worked out in integers, from the bits of 2 / pi that the angle's bits meet
and no others: Payne and Hanek, "Radian reduction for trigonometric functions" (1983).
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

from llvmlite import ir

from cubepy.backends.llvm.ops.formulas.number import (
    NAN,
    Number,
    Truth,
    fma,
    ordered_sum,
    polynomial,
    product,
    where,
)
from cubepy.backends.llvm.ops.formulas.vectormath_tables import TABLES
from cubepy.backends.llvm.ops.types import F64, I64
from cubepy.backends.llvm.ops.values import intrinsic

HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
WORDS, LEADING = 21, 64
"""Words of 64 bits that hold 2 / pi, behind so many zero bits: enough for every double."""
GUARD = 64
TABLE = "cubepy_two_over_pi"
CONSTANT = 4
"""The address space of memory that nobody writes, on a GPU."""
MANTISSA, BIAS = 52, 1075
_I128 = ir.IntType(128)


def _arc_tangent(inverse: int, one: int) -> int:
    """atan(1 / inverse) times `one`, by its series."""
    term = total = one // inverse
    sign, k = -1, 3
    while term:
        term //= inverse * inverse
        total += sign * (term // k)
        sign, k = -sign, k + 2
    return total


@cache
def two_over_pi() -> tuple[int, ...]:
    """The words of 2 / pi, by Machin's formula for pi."""
    bits = 64 * WORDS - LEADING
    one = 1 << (bits + GUARD)
    pi = 16 * _arc_tangent(5, one) - 4 * _arc_tangent(239, one)
    whole = (2 * one * one // pi) >> GUARD
    return tuple(whole >> (64 * (WORDS - 1 - k)) & (1 << 64) - 1 for k in range(WORDS))


def _table(module: ir.Module) -> ir.GlobalVariable:
    found = module.globals.get(TABLE)
    if found is None:
        kind = ir.ArrayType(I64, WORDS)
        found = ir.GlobalVariable(module, kind, TABLE, CONSTANT)
        found.linkage, found.global_constant = "internal", True
        found.initializer = ir.Constant(kind, list(two_over_pi()))
    return found


def _window(b: Any, exponent: Any) -> list[Any]:
    """The 192 bits of 2 / pi that count for a number of this exponent, in words, highest first."""
    first = b.add(exponent, I64(LEADING - 2))
    zero = I64(0)  # other lanes of a line may hold small numbers
    first = b.select(b.icmp_signed("<", first, zero), zero, first)
    word, shift = b.lshr(first, I64(6)), b.and_(first, I64(63))
    table = _table(b.module)
    address = lambda k: b.gep(table, [I64(0), b.add(word, I64(k))])
    words = [b.load(address(k), align=8) for k in range(4)]
    return [intrinsic(b, "llvm.fshl", I64, [x, y, shift], [I64]) for x, y in pairwise(words)]


def reduced(b: Any, x: Any) -> tuple[Any, Number, Number]:
    """q and r, in two parts, with |x| = q * pi / 2 + r modulo whole circles and |r| <= pi / 4, for
    a finite double of at least 2**17.
    """
    code = b.bitcast(x, I64)
    exponent = b.sub(b.and_(b.lshr(code, I64(MANTISSA)), I64(0x7FF)), I64(BIAS))
    mantissa = b.or_(b.and_(code, I64((1 << MANTISSA) - 1)), I64(1 << MANTISSA))
    wide = b.zext(mantissa, _I128)
    high, middle, low = (b.mul(wide, b.zext(w, _I128)) for w in _window(b, exponent))
    # 192 bits of the product, two before the point; the lowest 64 are far below what is rounded
    sum_ = b.add(middle, b.lshr(low, _I128(64)))
    sum_ = b.add(sum_, b.shl(high, _I128(64)))
    quarters = b.trunc(b.lshr(sum_, _I128(126)), I64)
    part = b.shl(sum_, _I128(2))
    negative = b.icmp_signed("<", part, _I128(0))  # from a half on: the next quarter less the rest
    quarters = b.add(quarters, b.zext(negative, I64))
    size = b.select(negative, b.sub(_I128(0), part), part)
    upper, lower = b.trunc(b.lshr(size, _I128(64)), I64), b.trunc(size, I64)
    number = lambda v, scale: Number(b, b.uitofp(v, F64)) * scale
    first = number(b.and_(upper, I64(-2048)), 2.0**-64)  # 53 bits: each part is exact
    second = number(b.and_(upper, I64(2047)), 2.0**-64) + number(lower, 2.0**-128)
    first, second = ordered_sum(first, second)
    r, cut = product(first, HALF_PI[0])
    rest = fma(second, HALF_PI[0], fma(first, HALF_PI[1], cut))
    r, rest = ordered_sum(r, rest)
    back = Truth(b, negative)
    return quarters, where(back, -r, r), where(back, -rest, rest)


def _sine(r: Number, rest: Number) -> Number:
    square = r * r
    return r + fma(r * square, polynomial(square, TABLES["f64"].sin), rest * (1.0 - square * 0.5))


def _cosine(r: Number, rest: Number) -> Number:
    square = r * r
    half = square * 0.5
    near = 1.0 - half
    tail = fma(square * square, polynomial(square, TABLES["f64"].cos), (1.0 - near) - half)
    return near + (tail - r * rest)


def sine_of_pi_times(x: Number) -> Number:
    """sin(pi * x), whose sign is that of the rest of x."""
    rest = x - x.mapped("rint")
    size = abs(rest)
    near = size <= 0.25
    part = where(near, size, 0.5 - size) * 2.0
    r, cut = product(part, HALF_PI[0])
    cut = fma(part, HALF_PI[1], cut)
    return where(near, _sine(r, cut), _cosine(r, cut)).signed_as(rest)


def large_angle(b: Any, name: str, x: Any) -> Any:
    """ "sin", "cos" or "tan" of an f32 or f64 of at least 2**17 in size; NaN of infinities."""
    single = x.type != F64
    wide = b.fpext(x, F64) if single else x
    angle = Number(b, wide)
    quarters, r, rest = reduced(b, wide)
    if name == "cos":
        quarters = b.add(quarters, I64(1))
    odd = Truth(b, b.trunc(quarters, ir.IntType(1)))
    second = b.trunc(b.lshr(quarters, I64(1)), ir.IntType(1))
    sine, cosine = _sine(r, rest), _cosine(r, rest)
    y = where(odd, cosine, sine)
    y = where(Truth(b, second), -y, y)
    if name == "tan":
        y = where(odd, -cosine, sine) / where(odd, sine, cosine)
    if name != "cos":
        y = where(angle.is_negative(), -y, y)
    y = where(abs(angle) < float("inf"), y, NAN)
    return b.fptrunc(y.v, x.type) if single else y.v
