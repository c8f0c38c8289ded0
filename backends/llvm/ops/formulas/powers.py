"""x ** y of floats, for targets whose LLVM has no correct one, and of lines of f32 on CPUs.

exp(y * log|x|), with the logarithm in two parts: log(m) = 2 * atanh((m - 1) / (m + 1)), whose first
terms are summed in twice the precision.
"""

from __future__ import annotations

from typing import Any

from cubepy.backends.llvm.ops.formulas.number import (
    INF,
    NAN,
    Number,
    fma,
    ordered_sum,
    parted,
    polynomial,
    product,
    two_sum,
    where,
)
from cubepy.backends.llvm.ops.formulas.vectormath import exp_value, log_value
from cubepy.backends.llvm.ops.formulas.vectormath_tables import TABLES
from cubepy.backends.llvm.ops.types import F64
from cubepy.backends.llvm.ops.values import on_gpu, shaped

ROOT_HALF = 0.7071067811865476
THIRD = (0.3333333333333333, 1.850371707708594e-17)
SERIES = tuple(1.0 / k for k in range(5, 29, 2))
"""Of atanh(s) / s behind 1 and s**2 / 3, in s**2, which is at most 0.03."""
BEYOND = 800.0
"""Exponents of e from here on give 0 or infinity."""


def log_in_two(x: Number) -> tuple[Number, Number]:
    """log(x) in two parts, for x positive and finite."""
    k, m = parted(x, ROOT_HALF)
    f = m - 1.0
    below, below_cut = two_sum(f, 2.0)
    s = f / below
    s_cut = (fma(-s, below, f) - s * below_cut) / below
    z, z_cut = product(s, s)
    z_cut = fma(s + s, s_cut, z_cut)
    first, first_cut = product(z, THIRD[0])
    first_cut = first_cut + fma(z, THIRD[1], z_cut * THIRD[0])
    more, more_cut = ordered_sum(first, (z * z) * polynomial(z, SERIES))
    term, term_cut = product(s, more)
    term_cut = term_cut + fma(s, more_cut + first_cut, fma(s_cut, z, s_cut))
    high, cut = ordered_sum(s, term)
    cut = cut + term_cut
    table = TABLES["f64"]
    total, total_cut = two_sum(k * table.log_ln2_high, high + high)
    return ordered_sum(total, total_cut + fma(k, table.log_ln2_low, cut + cut))


def _power(x: Number, y: Number) -> Number:
    """In doubles, with the ends of C's pow."""
    size = abs(x)
    ordinary = (size > 0.0) & (size < INF)
    high, low = log_in_two(where(ordinary, size, 1.0))
    high = where(ordinary, high, where(size.equals(0.0), -INF, size))
    low = where(ordinary, low, 0.0)
    exponent, cut = product(y, high)
    cut = where(abs(exponent) < BEYOND, fma(y, low, cut), 0.0)
    value = Number(x.b, exp_value(x.b, "f64", exponent.v))
    value = where(value < INF, fma(value, cut, value), value)
    return _with_ends(x, y, value)


def _power_of_singles(b: Any, x: Any, y: Any) -> Any:
    """Of f32: the logarithm as one double is as good there."""
    wide = shaped(F64, x.type)
    high = Number(b, log_value(b, "f64", b.fpext(abs(Number(b, x)).v, wide)))
    value = exp_value(b, "f64", (Number(b, b.fpext(y, wide)) * high).v)
    return _with_ends(Number(b, x), Number(b, y), Number(b, b.fptrunc(value, x.type))).v


def _with_ends(x: Number, y: Number, value: Number) -> Number:
    """|x| ** y as x ** y, right for x below 0 and where a logarithm is none."""
    size = abs(x)
    half = y * 0.5
    whole, even = y.mapped("rint").equals(y), half.mapped("rint").equals(half)
    odd = whole & ~even
    value = where(x.is_negative() & odd, -value, value)
    nowhere = (x < 0.0) & ~whole & (size < INF) & (abs(y) < INF)
    value = where(nowhere, NAN, value)
    unit = x.equals(1.0) | y.equals(0.0) | (x.equals(-1.0) & abs(y).equals(INF))
    return where(unit, 1.0, value)


def power(b: Any, dtype: str, x: Any, y: Any) -> Any:
    """x ** y of floats or lines of them: half an ulp of f32, an ulp or two of f64, and more
    where y * log(x) is near 700 (15: the largest of three million draws).
    """
    if dtype == "f64":
        return _power(Number(b, x), Number(b, y)).v
    if dtype == "f32" and not on_gpu(b):
        return _power_of_singles(b, x, y)
    wide = shaped(F64, x.type)
    out = _power(Number(b, b.fpext(x, wide)), Number(b, b.fpext(y, wide)))
    return b.fptrunc(out.v, x.type)
