"""exp, log, tanh, erf and their kin on scalars and lines, f32 and f64, by one code path.

The code has no branches and no table lookups, so that LLVM vectorises loops of scalars and keeps
lines in registers. Methods: exp and log reduce their argument as Cody and Waite, "Software Manual
for the Elementary Functions" (1980), do, with the products by fma; the polynomials are named in
`vectormath_tables`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.formulas.scalef import scaled_by, width_of
from cubepy.backends.llvm.ops.formulas.vectormath_tables import TABLES, Table
from cubepy.backends.llvm.ops.types import F32
from cubepy.backends.llvm.ops.values import (
    KEPT,
    const,
    each_lane,
    fma,
    int_like,
    is_nan,
    math,
    negated,
    on_gpu,
    on_nvidia,
)

INF, NAN = float("inf"), float("nan")


def horner(b: Any, x: Any, coefficients: tuple[float, ...]) -> Any:
    """The polynomial with these coefficients, lowest power first."""
    out = const(x.type, coefficients[-1])
    for c in coefficients[-2::-1]:
        out = fma(b, out, x, const(x.type, c))
    return out


def polynomial(b: Any, x: Any, square: Any, coefficients: tuple[float, ...]) -> Any:
    """The same by pairs: no multiplication more, but half of the steps that wait for each other.

    A CPU looks a few hundred instructions ahead, which is few lines of such functions; a GPU has
    other work to do.
    """
    if on_gpu(b):
        return horner(b, x, coefficients)
    parts = [const(x.type, c) for c in coefficients]
    odd = parts[1::2]
    pairs = [fma(b, high, x, low) for low, high in zip(parts[::2], odd)] + parts[2 * len(odd) :]
    out = pairs[-1]
    for pair in pairs[-2::-1]:
        out = fma(b, out, square, pair)
    return out


def clamped(b: Any, x: Any, low: float, high: float) -> Any:
    """x within bounds; NaN becomes `low`, so that it can be converted to an integer."""
    x = b.select(b.fcmp_ordered(">", x, const(x.type, low)), x, const(x.type, low))
    return b.select(b.fcmp_ordered("<", x, const(x.type, high)), x, const(x.type, high))


def _nearest(b: Any, t: Table, x: Any, factor: float, less: int = 0) -> tuple[Any, Any]:
    """The integer n nearest to x * factor, as a float, and 2**(n - less), where that is normal.

    A number is added and taken away whose last bit stands for 1; the sum's bits end in n and the
    bias of exponents.
    """
    word = int_like(x.type)
    shift = const(x.type, 1.5 * 2.0**t.mantissa + t.bias - less)
    total = fma(b, x, const(x.type, factor), shift)
    power = b.bitcast(b.shl(b.bitcast(total, word), const(word, t.mantissa)), x.type)
    return b.fsub(total, shift, flags=KEPT), power


def _rest(b: Any, t: Table, x: Any, n: Any, times: float = 1.0) -> Any:
    """x - n * (times * ln 2)."""
    r = fma(b, n, const(x.type, -times * t.ln2_high), x)
    return fma(b, n, const(x.type, -times * t.ln2_low), r)


def _expm1_small(b: Any, r: Any, coefficients: tuple[float, ...]) -> Any:
    """exp(r) - 1, by the polynomial for (exp(r) - 1 - r) / r**2."""
    square = b.fmul(r, r)
    return fma(b, polynomial(b, r, square, coefficients), square, r)


def _bounded(b: Any, x: Any, low: float, high: float) -> Any:
    """x within bounds; NaN stays NaN."""
    x = b.select(b.fcmp_ordered("<", x, const(x.type, low)), const(x.type, low), x)
    return b.select(b.fcmp_ordered(">", x, const(x.type, high)), const(x.type, high), x)


def _inside(b: Any, x: Any, low: float, high: float) -> Any:
    """x within bounds. On a CPU NaN stays, whatever integer is read off it, and needs no care in
    the end.
    """
    return (clamped if on_gpu(b) else _bounded)(b, x, low, high)


def _or_nan(b: Any, x: Any, y: Any) -> Any:
    """y, or x where that is NaN."""
    return b.select(is_nan(b, x), x, y) if on_gpu(b) else y


def _parted(b: Any, t: Table, x: Any) -> tuple[Any, Any]:
    """The whole n and r with x = n * ln 2 + r, |r| <= ln 2 / 2, where one instruction multiplies
    with powers of two.
    """
    n = math(b, "rint", b.fmul(x, const(x.type, t.log2_e)))
    return n, _rest(b, t, x, n)


def _twice_scaled(b: Any, t: Table, r: Any, half: Any) -> Any:
    """exp(r) * half**2, |r| <= ln 2: as two products, so that results may overflow or be
    subnormal.
    """
    return b.fmul(fma(b, _expm1_small(b, r, t.exp_wide), half, half), half)


def exp_value(b: Any, dtype: str, x: Any) -> Any:
    """e ** x."""
    t, one = TABLES[dtype], const(x.type, 1.0)
    if width_of(b, x.type):
        n, r = _parted(b, t, _bounded(b, x, t.exp_low, t.exp_high))
        return scaled_by(b, b.fadd(_expm1_small(b, r, t.exp), one), n)
    inside = _inside(b, x, t.exp_low, t.exp_high)
    n, half = _nearest(b, t, inside, t.log2_e / 2)
    return _or_nan(b, x, _twice_scaled(b, t, _rest(b, t, inside, n, 2.0), half))


def _exp_normal(b: Any, dtype: str, x: Any) -> Any:
    """e ** x for x whose result is neither subnormal nor infinite; NaN stays."""
    if on_gpu(b):
        return exp_value(b, dtype, x)
    t = TABLES[dtype]
    n, scale = _nearest(b, t, x, t.log2_e)
    return fma(b, _expm1_small(b, _rest(b, t, x, n), t.exp), scale, scale)


def _exp2(b: Any, dtype: str, x: Any) -> Any:
    t, one, ln2 = TABLES[dtype], const(x.type, 1.0), const(x.type, TABLES[dtype].ln2)
    if width_of(b, x.type):
        inside = _bounded(b, x, t.exp2_low, t.exp2_high)
        n = math(b, "rint", inside)
        r = b.fmul(b.fsub(inside, n), ln2)
        return scaled_by(b, b.fadd(_expm1_small(b, r, t.exp), one), n)
    inside = _inside(b, x, t.exp2_low, t.exp2_high)
    n, half = _nearest(b, t, inside, 0.5)
    r = b.fmul(fma(b, n, const(x.type, -2.0), inside), ln2)
    return _or_nan(b, x, _twice_scaled(b, t, r, half))


def expm1_value(b: Any, dtype: str, x: Any) -> Any:
    """e ** x - 1 = 2 * (2**(n-1) * expm1(r) + (2**(n-1) - 1/2)): no step but the last overflows."""
    t = TABLES[dtype]
    if width_of(b, x.type):
        n, r = _parted(b, t, _bounded(b, x, t.expm1_low, t.exp_high))
        half = scaled_by(b, const(x.type, 0.5), n)
    else:
        inside = _inside(b, x, t.expm1_low, t.exp_high)
        n, half = _nearest(b, t, inside, t.log2_e, less=1)
        r = _rest(b, t, inside, n)
    y = fma(b, _expm1_small(b, r, t.exp), half, b.fsub(half, const(x.type, 0.5)))
    y = b.fadd(y, y)
    keep = b.fcmp_unordered("==", x, const(x.type, 0.0))  # -0 and NaN stay themselves
    return b.select(keep, x, y)


def _split(b: Any, t: Table, x: Any) -> tuple[Any, Any]:
    """k (a float) and f with x = 2**k * (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for x positive and
    finite.
    """
    word = int_like(x.type)
    tiny = b.fcmp_ordered("<", x, const(x.type, t.smallest_normal))
    x = b.select(tiny, b.fmul(x, const(x.type, t.subnormal_scale)), x)
    code = b.sub(b.bitcast(x, word), const(word, t.sqrt_half_code))
    k = b.ashr(code, const(word, t.mantissa))
    k = b.sub(k, b.select(tiny, const(word, t.subnormal_shift), const(word, 0)))
    m = b.add(b.and_(code, const(word, (1 << t.mantissa) - 1)), const(word, t.sqrt_half_code))
    return b.sitofp(k, x.type), b.fsub(b.bitcast(m, x.type), const(x.type, 1.0))


def _log1p_tail(b: Any, t: Table, f: Any, half_square: Any) -> Any:
    """log(1 + f) - f + f*f/2, by the series in s = f / (2 + f)."""
    s = b.fdiv(f, b.fadd(f, const(f.type, 2.0)))
    z = b.fmul(s, s)
    return b.fmul(s, fma(b, horner(b, z, t.log), z, half_square))


def _log_sum(b: Any, t: Table, k: Any, f: Any, correction: Any) -> Any:
    """k * ln 2 + log(1 + f) + correction, small terms first."""
    half_square = b.fmul(b.fmul(f, f), const(f.type, 0.5))
    small = b.fadd(_log1p_tail(b, t, f, half_square), correction)
    small = fma(b, k, const(f.type, t.log_ln2_low), small)
    small = b.fsub(small, half_square)
    return fma(b, k, const(f.type, t.log_ln2_high), b.fadd(small, f))


def _log_ends(b: Any, x: Any, y: Any) -> Any:
    """The logarithm y of x, right at 0, infinity, NaN and below 0."""
    zero, inf = const(x.type, 0.0), const(x.type, INF)
    y = b.select(b.fcmp_ordered("==", x, inf), inf, y)
    y = b.select(b.fcmp_unordered(">=", x, zero), y, const(x.type, NAN))
    y = b.select(b.fcmp_ordered("==", x, zero), const(x.type, -INF), y)
    return b.select(is_nan(b, x), x, y)


def log_value(b: Any, dtype: str, x: Any) -> Any:
    """Natural logarithm."""
    t = TABLES[dtype]
    k, f = _split(b, t, x)
    return _log_ends(b, x, _log_sum(b, t, k, f, const(x.type, 0.0)))


def _log2(b: Any, dtype: str, x: Any) -> Any:
    """log(1 + f) in two parts times 1 / ln 2 in two parts, as FreeBSD's e_log2.c."""
    t = TABLES[dtype]
    k, f = _split(b, t, x)
    half_square = b.fmul(b.fmul(f, f), const(x.type, 0.5))
    high = b.fsub(f, half_square, flags=KEPT)
    cut = b.fsub(b.fsub(f, high, flags=KEPT), half_square, flags=KEPT)
    low = b.fadd(cut, _log1p_tail(b, t, f, half_square), flags=KEPT)
    scale, scale_low = const(x.type, t.log2_e), const(x.type, t.log2_e_low)
    product = b.fmul(high, scale)
    rest = fma(b, high, scale_low, fma(b, high, scale, negated(b, product)))
    rest = fma(b, low, scale, rest)
    total = b.fadd(k, product, flags=KEPT)
    rest = b.fadd(rest, b.fadd(b.fsub(k, total, flags=KEPT), product, flags=KEPT), flags=KEPT)
    return _log_ends(b, x, b.fadd(total, rest))


def _log1p(b: Any, dtype: str, x: Any) -> Any:
    """log(u) + what rounding u = 1 + x cut off, divided by u."""
    t = TABLES[dtype]
    one = const(x.type, 1.0)
    u = b.fadd(x, one, flags=KEPT)
    k, f = _split(b, t, u)
    large = b.fcmp_ordered(">", k, const(x.type, 0.0))
    minus = lambda y, z: b.fsub(y, z, flags=KEPT)
    cut = b.select(large, minus(one, minus(u, x)), minus(x, minus(u, one)))
    y = _log_ends(b, u, _log_sum(b, t, k, f, b.fdiv(cut, u)))
    return b.select(b.fcmp_ordered("==", x, const(x.type, 0.0)), x, y)


def _tanh(b: Any, dtype: str, x: Any) -> Any:
    """(1 - e) / (1 + e) with e = exp(-2 |x|) = 2**n * (1 + p).

    Both sums are those of 1 -+ 2**n, which is exact, and p * 2**n: the first keeps its precision
    near zero. From `tanh_end` on the result is 1. What the lower part of ln 2 would add to r counts
    2**n times less than p.
    """
    t = TABLES[dtype]
    one, end = const(x.type, 1.0), const(x.type, t.tanh_end)
    size = math(b, "fabs", x)
    if on_gpu(b):
        size = b.select(b.fcmp_ordered("<", size, end), size, end)
    else:
        size = b.select(b.fcmp_ordered(">", size, end), end, size)
    if width_of(b, x.type):
        n = math(b, "rint", b.fmul(size, const(x.type, -2.0 * t.log2_e)))
        scale = scaled_by(b, one, n)
    else:
        n, scale = _nearest(b, t, size, -2.0 * t.log2_e)
    r = fma(b, n, const(x.type, -t.ln2_high), negated(b, b.fadd(size, size)))
    p = _expm1_small(b, r, t.exp)
    above = fma(b, p, negated(b, scale), b.fsub(one, scale, flags=KEPT))
    below = fma(b, p, scale, b.fadd(one, scale, flags=KEPT))
    return _or_nan(b, x, math(b, "copysign", b.fdiv(above, below), x))


def _power_by_unit(b: Any, x: Any) -> Any:
    """e ** x by an NVIDIA GPU's special function unit, for x up to 0: the error is below 1e-6 of
    what is at most 1/6 here.
    """
    unit = ir.InlineAsm(ir.FunctionType(F32, [F32]), "ex2.approx.ftz.f32 $0, $1;", "=f,f", False)
    return each_lane(b, b.fmul(x, const(x.type, TABLES["f32"].log2_e)), lambda v: b.call(unit, [v]))


def _erf(b: Any, dtype: str, x: Any) -> Any:
    """x + x * P(x*x) below 1; 1 - exp(|x| * Q(|x|)) above."""
    t = TABLES[dtype]
    size, square = math(b, "fabs", x), b.fmul(x, x)
    small = fma(b, polynomial(b, square, b.fmul(square, square), t.erf_small), x, x)
    tail = const(x.type, t.erf_end)
    tail = b.select(b.fcmp_ordered(">", size, tail), tail, size)
    power = b.fmul(tail, polynomial(b, tail, b.fmul(tail, tail), t.erf_large))
    power = (
        _power_by_unit(b, power)
        if dtype == "f32" and on_nvidia(b)
        else _exp_normal(b, dtype, power)
    )
    large = b.fsub(const(x.type, 1.0), power)
    return b.select(
        b.fcmp_ordered("<", size, const(x.type, 1.0)), small, math(b, "copysign", large, x)
    )


def _rsqrt(b: Any, dtype: str, x: Any) -> Any:
    return b.fdiv(const(x.type, 1.0), math(b, "sqrt", x))


exp = elementwise("exp", 1, exp_value, "float", doc="e ** x.")
exp2 = elementwise("exp2", 1, _exp2, "float", doc="2 ** x.")
expm1 = elementwise("expm1", 1, expm1_value, "float", doc="e ** x - 1, exact near zero.")
log = elementwise("log", 1, log_value, "float", doc="Natural logarithm.")
log2 = elementwise("log2", 1, _log2, "float", doc="Logarithm to base 2.")
log1p = elementwise("log1p", 1, _log1p, "float", doc="log(1 + x), exact near zero.")
tanh = elementwise("tanh", 1, _tanh, "float", doc="Hyperbolic tangent.")
erf = elementwise("erf", 1, _erf, "float", doc="Error function.")
rsqrt = elementwise("rsqrt", 1, _rsqrt, "float", doc="1 / sqrt(x).")
