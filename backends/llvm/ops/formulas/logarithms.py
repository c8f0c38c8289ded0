"""Logarithms in two parts, and the functions made of them: log10, asinh, acosh, atanh, lgamma.

The logarithm is that of `vectormath`, in the series of FreeBSD's k_log.h (Sun Microsystems, 1993);
what its last sum would round, and what the argument was rounded by before, are carried along.
"""

from __future__ import annotations

import math

from cubepy.backends.llvm.ops.formulas.curves import GAMMA_START
from cubepy.backends.llvm.ops.formulas.large_angles import sine_of_pi_times
from cubepy.backends.llvm.ops.formulas.number import (
    INF,
    NAN,
    Curves,
    Number,
    by_libm,
    else_rarely,
    fma,
    formula,
    ordered_sum,
    parted,
    polynomial,
    product,
    two_sum,
    where,
)
from cubepy.backends.llvm.ops.formulas.vectormath import log_value
from cubepy.backends.llvm.ops.formulas.vectormath_tables import TABLES
from cubepy.backends.llvm.ops.values import on_amd

ROOT_HALF = math.sqrt(0.5)
INVERSE_LN10 = (0.4342944819032518, 1.098319650216765e-17)
LOG10_2 = (
    0.30102999566383914,
    1.42050232272661e-13,
)  # products of the first with integers are exact
HALF_LOG_2PI_LESS_HALF = 0.4189385332046727
LOG_PI = 1.1447298858494002
LARGE = 2.0**28  # from here on adding 1 to a square changes nothing
STIRLING = 8.0  # from here on log(Gamma) goes by Stirling's formula


def _log_terms(t: Curves, x: Number) -> tuple[Number, Number, Number]:
    """k, f and c with log(x) = k * log(2) + f + c, for x positive and finite; c is small."""
    k, m = parted(x, ROOT_HALF, t.short)  # numbers of f32 are normal as doubles
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    half_square = (f * f) * 0.5
    series = fma(z, polynomial(z, TABLES["f32" if t.short else "f64"].log), half_square)
    return k, f, fma(s, series, -half_square)


def log_parts(
    t: Curves, x: Number, more: Number | float = 0.0, twice: Number | float = 0.0
) -> tuple[Number, Number]:
    """log(x) + more + twice * log(2) in two parts, for x positive and finite."""
    table = TABLES["f64"]
    k, f, small = _log_terms(t, x)
    k = k + twice
    if t.short:
        return fma(k, math.log(2), f), small + more
    high, cut = ordered_sum(k * table.log_ln2_high, f)
    return high, cut + (fma(k, table.log_ln2_low, small) + more)


def _log10(t: Curves, x: Number) -> Number:
    ordinary = (x > 0.0) & (x < INF)
    k, f, small = _log_terms(t, where(ordinary, x, 1.0))
    if t.short:
        y = fma(k, math.log10(2), (f + small) * INVERSE_LN10[0])
    else:
        high, cut = ordered_sum(f, small)
        part, part_cut = product(high, INVERSE_LN10[0])
        rest = fma(high, INVERSE_LN10[1], fma(cut, INVERSE_LN10[0], part_cut))
        total, total_cut = two_sum(k * LOG10_2[0], part)
        y = total + (total_cut + fma(k, LOG10_2[1], rest))
    ends = where(x.equals(0.0), -INF, where(x < 0.0, NAN, x))
    return where(ordinary, y, ends)


def _asinh(t: Curves, x: Number) -> Number:
    """log(1 + a + a*a / (1 + sqrt(1 + a*a))) of a = |x|; log(2 a) where a is large."""
    size = abs(x)
    large, end = size > LARGE, size < INF
    a = where(large, 1.0, size)
    square = a * a
    high, low = two_sum(a, square / ((square + 1.0).mapped("sqrt") + 1.0))
    total, cut = two_sum(high, 1.0)
    u = where(large & end, size, total)
    more = cut + low if t.short else (cut + low) / total  # of doubles: where the total is about 1
    y = _sum(log_parts(t, u, where(large, 0.0, more), where(large, x.like(1.0), 0.0)))
    return where(end, y, size).signed_as(x)


def _acosh(t: Curves, x: Number) -> Number:
    """log(x + sqrt(x*x - 1)); log(2 x) where x is large."""
    large = x > LARGE
    a = where((x >= 1.0) & (x <= LARGE), x, 1.0)
    below, above = a - 1.0, a + 1.0
    if t.short:
        total, more = a + (below * above).mapped("sqrt"), x.like(0.0)
    else:
        square, cut = product(below, above)
        below_cut, above_cut = two_sum(a, -1.0)[1], two_sum(a, 1.0)[1]
        cut = cut + fma(below, above_cut, above * below_cut)
        root = square.mapped("sqrt")
        root_cut = (fma(-root, root, square) + cut) / where(root.equals(0.0), 1.0, root + root)
        total, low = two_sum(a, root)
        more = (low + root_cut) / total
    u = where(large & (x < INF), x, total)
    more = where(large, 0.0, more)
    y = _sum(log_parts(t, u, more, where(large, x.like(1.0), 0.0)))
    y = where(x < INF, y, x)
    return where(x < 1.0, NAN, y)


def _atanh(t: Curves, x: Number) -> Number:
    """log(1 + 2 a / (1 - a)) / 2 of a = |x|."""
    size = abs(x)
    a = where(size < 1.0, size, 0.0)
    twice = a + a
    below = 1.0 - a
    ratio = twice / below
    total, cut = two_sum(ratio, 1.0)
    if not t.short:
        below_cut = two_sum(x.like(1.0), -a)[1]
        cut = (cut + (fma(-ratio, below, twice) - ratio * below_cut) / below) / total
    y = 0.5 * _sum(log_parts(t, total, cut))
    y = where(size.equals(1.0), INF, where(size > 1.0, NAN, y))
    return where(x.is_nan(), x, y.signed_as(x))


def _sum(parts: tuple[Number, Number]) -> Number:
    return parts[0] + parts[1]


def _near(t: Curves, x: Number) -> Number:
    """log(Gamma(x)) for 0 < x < STIRLING.

    With k the integer next to x and d = x - k it is log(Gamma(2 + d)), and for k > 2 the logarithm
    of the product (x - 1) ... (x - k + 2) more, for k = 1 that of x less, for k = 0 that of
    x (x + 1) less.
    """
    k = x.mapped("rint")
    d = x - k
    slope, slope_cut = ordered_sum(d.like(GAMMA_START[0]), d * polynomial(d, t.gamma))
    near_two, near_two_cut = product(d, slope)
    near_two_cut = fma(d, slope_cut + GAMMA_START[1], near_two_cut)
    square, square_cut = product(x, x)
    both, cut = two_sum(x, square)
    none = k < 1.0
    factor = where(none, both, where(k < 2.0, x, 1.0))
    more = where(none, (cut + square_cut) / both, 0.0)
    for step in range(1, 7):
        factor = where(k > step + 1.5, factor * (x - float(step)), factor)
    below = k < 2.0
    log, log_cut = log_parts(t, factor, more)
    y, cut = two_sum(near_two, where(below, -log, log))
    return y + (cut + (near_two_cut + where(below, -log_cut, log_cut)))


def _stirling(t: Curves, x: Number) -> Number:
    """(x - 1/2) (log(x) - 1) + (log(2 pi) - 1) / 2 + W(1 / x) for x >= STIRLING."""
    y = 1.0 / x
    rest = fma(y, polynomial(y * y, t.stirling), HALF_LOG_2PI_LESS_HALF)
    log, log_cut = log_parts(t, x)
    less, less_cut = two_sum(log, -1.0)
    factor = x - 0.5
    total, cut = product(factor, less)
    sum_, sum_cut = two_sum(total, rest)
    found = sum_ + (sum_cut + fma(factor, less_cut + log_cut, cut))
    return where(total < INF, found, INF)


def _lgamma(t: Curves, x: Number) -> Number:
    """Of negative numbers by the C library, or by Euler's reflection where there is none."""
    if on_amd(x.b):
        return _reflected(x, _from_zero(t, abs(x)))
    below = (x < 0.0) & (x > -INF)
    return else_rarely(below, _from_zero(t, x), by_libm(x.b, "lgamma"), x)


def _reflected(x: Number, y: Number) -> Number:
    """log(|Gamma(x)|) from that of |x|: log(pi / |x sin(pi x)|) - y where x is negative."""
    below, size = (x < 0.0) & (x > -INF), abs(x)
    sine = abs(sine_of_pi_times(where(below, size, 0.5)))
    pole = sine.equals(0.0)
    logs = [Number(x.b, log_value(x.b, "f64", v.v)) for v in (where(pole, 1.0, sine), size)]
    found = where(pole, INF, LOG_PI - logs[0] - logs[1] - y)
    return where(below, found, y)


def _from_zero(t: Curves, x: Number) -> Number:
    large = x >= STIRLING
    y = where(
        large,
        _stirling(t, where(large & (x < INF), x, STIRLING)),
        _near(t, where((x > 0.0) & (x < STIRLING), x, 1.0)),
    )
    return where(x.equals(0.0) | abs(x).equals(INF), INF, where(x.is_nan(), x, y))


log10 = formula("log10", _log10, 1, "Logarithm to base 10.")
asinh = formula("asinh", _asinh, 1, "Inverse hyperbolic sine.")
acosh = formula("acosh", _acosh, 1, "Inverse hyperbolic cosine; NaN below 1.")
atanh = formula("atanh", _atanh, 1, "Inverse hyperbolic tangent; NaN beyond 1.")
lgamma = formula("lgamma", _lgamma, 1, "log(|Gamma(x)|); infinite at 0, -1, -2, ...")
