"""sinh, cosh and erfc: powers of e whose remainder is not rounded away."""

from __future__ import annotations

from cubepy.backends.llvm.ops.formulas.curves import ERFC_START
from cubepy.backends.llvm.ops.formulas.number import (
    Curves,
    Number,
    fma,
    formula,
    ordered_sum,
    polynomial,
    power_of_two,
    product,
    scaled,
    two_sum,
    where,
)
from cubepy.backends.llvm.ops.formulas.vectormath_tables import TABLES

OVERFLOWS = 710.5  # sinh and cosh do before
CENTRE = 4.0  # of the variable (x - 4) / (x + 4) of erfc
ERFC_ZERO = {False: 27.4, True: 10.2}  # from here on erfc is zero in f64, in f32
SWITCH = 0.5  # below, erfc is 1 - erf


def _halves(t: Curves, x: Number) -> tuple[Number, Number, Number, Number]:
    """u, v, c and s with cosh(|x|) = 2 (u + (u c + v s)) and sinh(|x|) = 2 (v + (v c + u s)).

    |x| = n log(2) + r; c = cosh(r) - 1, s = sinh(r); u and v are sum and difference of 2**n / 4 and
    2**-n / 4.
    """
    table = TABLES["f64"]
    size = abs(x)
    size = where(size < OVERFLOWS, size, OVERFLOWS)
    n = (size * table.log2_e).mapped("rint")
    high = fma(n, -table.ln2_high, size)
    z = high * high
    low = n * -table.ln2_low
    cube, even = (high * z) * polynomial(z, t.sinh), z * polynomial(z, t.cosh)
    s = high + (cube + fma(even, low, low))
    c = fma(high + cube, low, even)
    grown = power_of_two(n - 2.0)
    shrunk = where(n < 60.0, power_of_two(where(n < 60.0, -2.0 - n, 0.0)), 0.0)
    return grown + shrunk, grown - shrunk, c, s


def _sinh(t: Curves, x: Number) -> Number:
    u, v, c, s = _halves(t, x)
    y = 2.0 * (v + fma(u, s, v * c))
    y = where(abs(x) < 2.0**-28, x, y)
    return where(x.is_nan(), x, y.signed_as(x))


def _cosh(t: Curves, x: Number) -> Number:
    u, v, c, s = _halves(t, x)
    return where(x.is_nan(), x, 2.0 * (u + fma(v, s, u * c)))


def _erfc(t: Curves, x: Number) -> Number:
    """1 - erf(x) near 0; exp(-x*x) * G((x - 4) / (x + 4)) / (1 + 2 x) elsewhere, and 2 less that
    for negative x.
    """
    table = TABLES["f64"]
    square = x * x
    erf = fma(x, polynomial(square, TABLES["f32" if t.short else "f64"].erf_small), x)
    end, size = ERFC_ZERO[t.short], abs(x)
    a = where(size > SWITCH, size, SWITCH)
    a = where(a < end, a, end)
    ratio = (a - CENTRE) / (a + CENTRE)
    if t.short:
        curve = fma(ratio, polynomial(ratio, t.erfc), ERFC_START[0])
        square = a * a
        n = (square * -table.log2_e).mapped("rint")
        r = fma(n, -table.ln2_low, fma(n, -table.ln2_high, -square))
        w = curve / fma(a, 2.0, 1.0)
        y = scaled(fma(w, fma(r * r, polynomial(r, t.exp), r), w), n, True)
    else:
        y = _erfc_of_doubles(t, a, ratio)
    y = where(size < end, y, 0.0)
    y = where(x < 0.0, 2.0 - y, y)
    return where(x.is_nan(), x, where(size < SWITCH, 1.0 - erf, y))


def _erfc_of_doubles(t: Curves, a: Number, ratio: Number) -> Number:
    """exp(-a*a) * G(ratio) / (1 + 2 a), with what is rounded on the way."""
    table = TABLES["f64"]
    curve, cut = ordered_sum(a.like(ERFC_START[0]), ratio * polynomial(ratio, t.erfc))
    below, below_cut = two_sum(a + a, 1.0)
    inverse = 1.0 / below
    w = curve * inverse
    square, square_cut = product(a, a)
    n = (square * -table.log2_e).mapped("rint")
    r = fma(n, -table.ln2_high, -square) + fma(n, -table.ln2_low, -square_cut)
    p = fma(r * r, polynomial(r, t.exp), r)
    rest = (fma(-w, below, curve) + fma(-w, below_cut, cut + ERFC_START[1])) * inverse
    return scaled(w + fma(w, p, rest), n)


sinh = formula("sinh", _sinh, 1, "Hyperbolic sine.")
cosh = formula("cosh", _cosh, 1, "Hyperbolic cosine.")
erfc = formula("erfc", _erfc, 1, "1 - erf(x), exact where that is small.")
