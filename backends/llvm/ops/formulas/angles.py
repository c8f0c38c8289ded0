"""tan and the functions that give angles.

tan reduces its argument by pi / 2 in three parts, as `trigonometry` does, and is the quotient of
sin and cos of what is left. asin and acos above 1/2 go by the half angle; atan has the four points
of FreeBSD's s_atan.c (Sun Microsystems, 1993) around which its argument is moved.
"""

from __future__ import annotations

import math
from functools import partial

from cubepy.backends.llvm.ops.formulas.large_angles import large_angle
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
    polynomial,
    product,
    two_sum,
    where,
)
from cubepy.backends.llvm.ops.formulas.vectormath_tables import TABLES
from cubepy.backends.llvm.ops.values import on_amd

PI = (math.pi, 1.2246467991473532e-16)
HALF_PI = (math.pi / 2, 6.123233995736766e-17)
ATAN_POINTS = (  # where each part begins, its point c, atan(c) and what rounding took from that
    (7 / 16, 0.5, 0.4636476090008061, 2.2698777452961687e-17),
    (11 / 16, 1.0, 0.7853981633974483, 3.061616997868383e-17),
    (19 / 16, 1.5, 0.982793723247329, 1.3903311031230998e-17),
)
ATAN_LAST = 39 / 16  # from here on it is pi / 2 - atan(1 / x)


def _tan(t: Curves, x: Number) -> Number:
    table = TABLES["f64"]
    large = abs(x) > table.trigonometric_end
    inside = where(large | x.is_nan(), 0.0, x)
    n = (inside * table.two_over_pi).mapped("rint")
    first, second, third = table.half_pi
    r = fma(n, -first, inside)
    if t.short:
        high, low = fma(n, -second, r), None
    else:
        step, step_low = product(n, second)
        total, rest = two_sum(r, -step)
        high, low = two_sum(total, fma(n, -third, rest - step_low))
    z = high * high
    cube = high * z
    more = fma(cube, polynomial(z, t.sin), 0.0 if low is None else low * (1.0 - z * 0.5))
    sine = ordered_sum(high, more)
    w = 1.0 - z * 0.5
    cut = (1.0 - w) - z * 0.5
    tail = cut if low is None else fma(high, -low, cut)
    cosine = ordered_sum(w, fma(z * z, polynomial(z, t.cos), tail))
    half = n * 0.5
    even = half.mapped("floor").equals(half)
    above, below = where(even, sine[0], -cosine[0]), where(even, cosine[0], sine[0])
    y = above / below
    if not t.short:
        above_cut, below_cut = where(even, sine[1], -cosine[1]), where(even, cosine[1], sine[1])
        y = y + (fma(-y, below, above) + fma(-y, below_cut, above_cut)) / below
    y = where(x.equals(0.0) | x.is_nan(), x, y)
    slow = partial(large_angle, x.b, "tan") if on_amd(x.b) else by_libm(x.b, "tan")
    return else_rarely(large, y, slow, x)


def _half_angle(t: Curves, x: Number) -> tuple[Number, Number, Number]:
    """s and two small terms: their sum is asin(|x|) up to 1/2, (pi / 2 - asin(|x|)) / 2 above."""
    size = abs(x)
    low = size < 0.5
    z = where(low, x * x, (1.0 - size) * 0.5)
    root = z.mapped("sqrt")
    s = where(low, size, root)
    cut = fma(-root, root, z) / where(root.equals(0.0), 1.0, root + root)
    return s, (s * z) * polynomial(z, t.asin), where(low, 0.0, cut)


def _asin(t: Curves, x: Number) -> Number:
    s, more, cut = _half_angle(t, x)
    high, low = two_sum(x.like(HALF_PI[0]), s * -2.0)
    large = high + (low + (HALF_PI[1] - 2.0 * (more + cut)))
    y = where(abs(x) < 0.5, s + more, large)
    return y.signed_as(x)


def _acos(t: Curves, x: Number) -> Number:
    s, more, cut = _half_angle(t, x)
    more = more + cut
    signed, signed_more = s.signed_as(x), more.signed_as(x)
    high, low = two_sum(x.like(HALF_PI[0]), -signed)
    middle = high + (low + (HALF_PI[1] - signed_more))
    right = 2.0 * (s + more)
    high, low = two_sum(x.like(PI[0]), s * -2.0)
    left = high + (low + (PI[1] - 2.0 * more))
    return where(abs(x) < 0.5, middle, where(x < 0.0, left, right))


def _angle(t: Curves, x: Number) -> Number:
    """atan of x >= 0."""
    above, below, high, low = x, x.like(1.0), x.like(0.0), x.like(0.0)
    for begin, c, angle, cut in ATAN_POINTS:
        inside = x >= begin
        above, below = where(inside, x - c, above), where(inside, fma(x, c, 1.0), below)
        high, low = where(inside, angle, high), where(inside, cut, low)
    last = x >= ATAN_LAST
    above, below = where(last, -1.0, above), where(last, x, below)
    high, low = where(last, HALF_PI[0], high), where(last, HALF_PI[1], low)
    r = above / below
    z = r * r
    return high + (r + fma(r * z, polynomial(z, t.atan), low))


def _atan(t: Curves, x: Number) -> Number:
    return _angle(t, abs(x)).signed_as(x)


def _atan2(t: Curves, y: Number, x: Number) -> Number:
    up, right = abs(y), abs(x)
    nothing = up.equals(0.0) & right.equals(0.0)
    diagonal = up.equals(INF) & right.equals(INF)
    ratio = where(nothing, 0.0, where(diagonal, 1.0, up / right))
    angle = _angle(t, ratio)
    angle = where(x.is_negative(), PI[0] - (angle - PI[1]), angle)
    return where(x.is_nan() | y.is_nan(), NAN, angle.signed_as(y))


tan = formula("tan", _tan, 1, "Tangent of an angle in radians.")
asin = formula("asin", _asin, 1, "The angle from -pi/2 to pi/2 whose sine is x; NaN beyond 1.")
acos = formula("acos", _acos, 1, "The angle from 0 to pi whose cosine is x; NaN beyond 1.")
atan = formula("atan", _atan, 1, "The angle from -pi/2 to pi/2 whose tangent is x.")
atan2 = formula("atan2", _atan2, 2, "The angle of the point (x, y), from -pi to pi, of y and x.")
