"""cbrt and hypot: a start, and a last step whose error is computed exactly."""

from __future__ import annotations

from cubepy.backends.llvm.ops.formulas.number import (
    INF,
    NAN,
    Curves,
    Number,
    fma,
    formula,
    parted,
    polynomial,
    power_of_two,
    product,
    where,
)

CUBE_ROOTS = (1.0, 1.2599210498948732, 1.5874010519681996)  # of 1, 2, 4
LARGE, SMALL, FACTOR = 2.0**511, 2.0**-400, 2.0**600


def _cbrt(t: Curves, x: Number) -> Number:
    """Newton's steps for the mantissa times 1, 2 or 4, whichever leaves a multiple of 3 of the
    exponent.
    """
    size = abs(x)
    ordinary = (size > 0.0) & (size < INF)
    k, m = parted(where(ordinary, size, 1.0))
    third = fma(k, 1 / 3, 1 / 6).mapped("floor")
    left = fma(third, -3.0, k)
    one, two = left.equals(1.0), left.equals(2.0)
    start = where(one, CUBE_ROOTS[1], where(two, m.like(CUBE_ROOTS[2]), CUBE_ROOTS[0]))
    a = m * where(one, 2.0, where(two, m.like(4.0), 1.0))
    y = polynomial(m, t.cbrt) * start
    y = (y + y + a / (y * y)) * (1 / 3)
    if not t.short:
        square, cut = product(y, y)
        rest = fma(-square, y, a) - cut * y
        y = y + rest / (square * 3.0)
    return where(ordinary, (y * power_of_two(third)).signed_as(x), x)


def _hypot(t: Curves, x: Number, y: Number) -> Number:
    """sqrt(x*x + y*y), with what its square lacks (Borges, "An improved algorithm for hypot(a, b)",
    2019).
    """
    size, other = abs(x), abs(y)
    more = size > other
    a, b = where(more, size, other), where(more, other, size)
    if t.short:
        root = fma(a, a, b * b).mapped("sqrt")
    else:
        up, down = a < SMALL, a > LARGE
        factor = where(up, FACTOR, where(down, a.like(1 / FACTOR), 1.0))
        a, b = a * factor, b * factor
        root = fma(a, a, b * b).mapped("sqrt")
        square, a_square = root * root, a * a
        excess = fma(-b, b, square - a_square) + (fma(root, root, -square) - fma(a, a, -a_square))
        twice = root + root
        root = root - excess / where(twice.equals(0.0), 1.0, twice)
        root = root * where(up, 1 / FACTOR, where(down, a.like(FACTOR), 1.0))
    root = where(x.is_nan() | y.is_nan(), NAN, root)
    return where(size.equals(INF) | other.equals(INF), INF, root)


cbrt = formula("cbrt", _cbrt, 1, "Cube root, of negative numbers too.")
hypot = formula("hypot", _hypot, 2, "sqrt(x*x + y*y) without overflow between.", own=("f64",))
"""NVIDIA's of the largest double and 1 is infinite: it is rounded up."""
