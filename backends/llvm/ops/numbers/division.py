"""`//`, `%` and powers with Python's meaning: rounding to minus infinity, and no trap for any
operand.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.formulas.powers import power
from cubepy.backends.llvm.ops.numbers.long_remainder import long_remainder
from cubepy.backends.llvm.ops.types import F64, I1, bits, is_float, is_signed
from cubepy.backends.llvm.ops.values import (
    any_lane,
    const,
    constant_of,
    each_lane,
    fma,
    is_nan,
    lanes_of,
    math,
    negated,
    on_amd,
    on_amd_of_old,
    on_gpu,
    shaped,
)

_EXACT_QUOTIENT = {"f32": 2.0**22, "f64": 2.0**51}
"""Below this quotient the remainder by fma is exact."""


def _int_divmod(b: Any, dtype: str, x: Any, y: Any) -> tuple[Any, Any]:
    zero, one = const(x.type, 0), const(x.type, 1)
    n = constant_of(b, y)
    if n is not None and 0 < n < 1 << (bits(dtype) - is_signed(dtype)):  # nothing has to be asked
        if n & (n - 1) == 0:
            power = const(x.type, n.bit_length() - 1)
            shifted = (b.ashr if is_signed(dtype) else b.lshr)(x, power)
            return shifted, b.and_(x, const(x.type, n - 1))
        if is_signed(dtype):
            q = b.sdiv(x, y)
            r = b.sub(x, b.mul(q, y))
            below = b.icmp_signed("<", r, zero)
            return b.select(below, b.sub(q, one), q), b.select(below, b.add(r, y), r)
        q = b.udiv(x, y)
        return q, b.sub(x, b.mul(q, y))
    by_zero = b.icmp_unsigned("==", y, zero)
    if not is_signed(dtype):
        y = b.select(by_zero, one, y)
        q = b.udiv(x, y)
        return b.select(by_zero, zero, q), b.select(by_zero, zero, b.sub(x, b.mul(q, y)))
    lowest = const(x.type, -1 << (bits(dtype) - 1))
    overflows = b.and_(b.icmp_signed("==", x, lowest), b.icmp_signed("==", y, const(x.type, -1)))
    y = b.select(b.or_(by_zero, overflows), one, y)  # lowest // 1 is what lowest // -1 wraps to
    q, r = _rounded_down(b, x, y, b.sdiv(x, y))
    return b.select(by_zero, zero, q), b.select(by_zero, zero, r)


def _int_divmod_by_f64(b: Any, dtype: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Integers of up to 32 bits divided as f64, which processors do for several at once.

    The quotient is exact: one that is no integer is at least 1 / y away from the next, and rounding
    moves it by less.
    """
    zero, one = const(x.type, 0), const(x.type, 1)
    by_zero = b.icmp_unsigned("==", y, zero)
    wide = shaped(F64, x.type)
    if not is_signed(dtype):
        y = b.select(by_zero, one, y)
        q = b.fptoui(b.fdiv(b.uitofp(x, wide), b.uitofp(y, wide)), x.type)
        return b.select(by_zero, zero, q), b.select(by_zero, zero, b.sub(x, b.mul(q, y)))
    lowest = const(x.type, -1 << (bits(dtype) - 1))
    overflows = b.and_(b.icmp_signed("==", x, lowest), b.icmp_signed("==", y, const(x.type, -1)))
    y = b.select(b.or_(by_zero, overflows), one, y)
    q = b.fptosi(b.fdiv(b.sitofp(x, wide), b.sitofp(y, wide)), x.type)
    q, r = _rounded_down(b, x, y, q)
    return b.select(by_zero, zero, q), b.select(by_zero, zero, r)


def _rounded_down(b: Any, x: Any, y: Any, q: Any) -> tuple[Any, Any]:
    """Quotient and remainder to minus infinity, from a quotient to zero."""
    zero, one = const(x.type, 0), const(x.type, 1)
    r = b.sub(x, b.mul(q, y))
    down = b.and_(b.icmp_signed("!=", r, zero), b.icmp_signed("<", b.xor(r, y), zero))
    return b.select(down, b.sub(q, one), q), b.select(down, b.add(r, y), r)


def float_remainder(b: Any, dtype: str, x: Any, y: Any) -> Any:
    """C's fmod, with the sign of x: exact by fma for small quotients, by libm (or a loop) for the
    others.
    """
    size = math(b, "fabs", y)
    whole = math(b, "fabs", x)
    ratio = b.fdiv(whole, size)
    zero = const(x.type, 0.0)
    r = fma(b, negated(b, math(b, "trunc", ratio)), size, whole)
    r = b.select(
        b.fcmp_ordered("<", ratio, const(x.type, 1.0)), whole, r
    )  # the divisor may be infinite
    # the quotient was rounded: it may be one too large or too small
    r = b.select(b.fcmp_ordered("<", r, zero), b.fadd(r, size), r)
    r = b.select(b.fcmp_ordered(">=", r, size), b.fsub(r, size), r)
    r = math(b, "copysign", r, x)
    unsure = b.not_(b.fcmp_ordered("<", ratio, const(x.type, _EXACT_QUOTIENT[dtype])))
    before, approximate = b.block, on_amd_of_old(b)
    with b.if_then(any_lane(b, unsure), likely=False):
        pairs = iter(range(x.type.count if isinstance(x.type, ir.VectorType) else 1))

        def one(u: Any) -> Any:
            k = next(pairs)
            v = (
                b.extract_element(y, ir.Constant(ir.IntType(32), k))
                if isinstance(x.type, ir.VectorType)
                else y
            )
            return long_remainder(b, u, v) if approximate else b.frem(u, v)

        slow = each_lane(b, x, one)
        inside = b.block
    out = b.phi(x.type)
    out.add_incoming(r, before)
    out.add_incoming(slow, inside)
    return out


def _float_divmod(b: Any, dtype: str, x: Any, y: Any) -> tuple[Any, Any]:
    """As CPython's float_divmod and NumPy's npy_divmod: the quotient follows from an exact
    remainder.
    """
    zero, one = const(x.type, 0.0), const(x.type, 1.0)
    r = float_remainder(b, dtype, x, y)
    q = b.fdiv(b.fsub(x, r), y)
    inexact = b.fcmp_unordered("!=", r, zero)
    down = b.and_(inexact, b.xor(b.fcmp_ordered("<", r, zero), b.fcmp_ordered("<", y, zero)))
    down = b.and_(down, b.not_(is_nan(b, r)))
    q = b.select(down, b.fsub(q, one), q)
    r = b.select(down, b.fadd(r, y), r)
    r = b.select(inexact, r, math(b, "copysign", zero, y))
    low = math(b, "floor", q)
    low = b.select(b.fcmp_ordered(">", b.fsub(q, low), const(x.type, 0.5)), b.fadd(low, one), low)
    is_zero = b.fcmp_ordered("==", q, zero)
    exact = b.fdiv(x, y)
    low = b.select(is_zero, math(b, "copysign", zero, exact), low)
    return b.select(b.fcmp_ordered("==", y, zero), exact, low), r


def _part(which: int, varying: bool = False) -> Any:
    def emit(b: Any, dtype: str, x: Any, y: Any) -> Any:
        divmod_of = _float_divmod if is_float(dtype) else _int_divmod
        varies = varying and constant_of(b, y) is None
        if varies and not is_float(dtype) and bits(dtype) <= 32:
            divmod_of = _int_divmod_by_f64
        return divmod_of(b, dtype, x, y)[which]

    return emit


def _int_power(b: Any, dtype: str, x: Any, y: Any) -> Any:
    """Repeated squaring until no lane has exponent bits left."""
    zero, one = const(x.type, 0), const(x.type, 1)
    negative = b.icmp_signed("<", y, zero) if is_signed(dtype) else const(shaped(I1, x.type), 0)
    start = b.block
    loop, done = b.append_basic_block("pow.loop"), b.append_basic_block("pow.done")
    exponent = b.select(negative, zero, y)
    b.branch(loop)
    b.position_at_end(loop)
    result, base, rest = (b.phi(x.type) for _ in range(3))
    odd = b.icmp_unsigned("!=", b.and_(rest, one), zero)
    next_result = b.select(odd, b.mul(result, base), result)
    next_base, next_rest = b.mul(base, base), b.lshr(rest, one)
    for phi, first, then in (
        (result, one, next_result),
        (base, x, next_base),
        (rest, exponent, next_rest),
    ):
        phi.add_incoming(first, start)
        phi.add_incoming(then, loop)
    b.cbranch(any_lane(b, b.icmp_unsigned("!=", next_rest, zero)), loop, done)
    b.position_at_end(done)
    if not is_signed(dtype):
        return next_result
    minus = const(x.type, -1)
    sign = b.select(b.icmp_unsigned("!=", b.and_(y, one), zero), minus, one)
    unit = b.select(b.icmp_signed("==", x, minus), sign, zero)
    unit = b.select(b.icmp_signed("==", x, one), one, unit)
    return b.select(negative, unit, next_result)


LINES = 4
"""Lanes from which on powers are computed side by side on a CPU: twice as fast as one by one."""


def _power(b: Any, dtype: str, x: Any, y: Any) -> Any:
    if not is_float(dtype):
        return _int_power(b, dtype, x, y)
    in_lines = dtype == "f32" and lanes_of(x.type) >= LINES and not on_gpu(b)
    return power(b, dtype, x, y) if on_amd(b) or in_lines else math(b, "pow", x, y)


floordiv = elementwise(
    "floordiv", 2, _part(0), doc="x // y; integers: 0 where y is 0, lowest // -1 wraps."
)
mod = elementwise("mod", 2, _part(1), doc="x % y, with the sign of y; integers: 0 where y is 0.")
floordiv_by = elementwise(
    "floordiv_by", 2, _part(0, varying=True), doc="x // y of a y that is known at run time only."
)
mod_by = elementwise(
    "mod_by", 2, _part(1, varying=True), doc="x % y of a y that is known at run time only."
)
pow_ = elementwise(
    "pow_", 2, _power, doc="x ** y; integers wrap, negative exponents give 0 but for 1 and -1."
)
