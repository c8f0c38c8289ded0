"""The elementwise ops of tensors as functions of the kernel language."""

from __future__ import annotations

import math

import cubepy as cb


@cb.func
def floordiv(a, b):
    """a // b; of infinities the floor of the quotient, as the array API has it"""
    if a.dtype.is_float or b.dtype.is_float:
        return cb.select(cb.isfinite(a) & cb.isfinite(b), a // b, cb.floor(a / b))
    return a // b


@cb.func
def mod(a, b):
    """a % b"""
    return a % b


@cb.func
def power(a, b):
    """a ** b"""
    return cb.pow(a, b)


@cb.func
def equal(a, b):
    """a == b"""
    return a == b


@cb.func
def differs(a, b):
    """a != b"""
    return a != b


@cb.func
def less(a, b):
    """a < b"""
    return a < b


@cb.func
def less_equal(a, b):
    """a <= b"""
    return a <= b


@cb.func
def greater(a, b):
    """a > b"""
    return a > b


@cb.func
def greater_equal(a, b):
    """a >= b"""
    return a >= b


@cb.func
def both(a, b):
    """a & b"""
    return a & b


@cb.func
def either(a, b):
    """a | b"""
    return a | b


@cb.func
def exclusive(a, b):
    """a ^ b"""
    return a ^ b


@cb.func
def negative(a):
    """-a"""
    return -a


@cb.func
def zero(a):
    """a == 0: the logical not"""
    return a == 0


@cb.func
def nonzero(a):
    """a != 0"""
    return a != 0


@cb.func
def where(mask, a, b):
    """a where mask holds, else b"""
    return cb.select(mask, a, b)


@cb.func
def identity(x):
    """x; the conversion happens where the result is stored"""
    return x


@cb.func
def complement(a):
    """~a: all bits of an integer turned"""
    return ~a


@cb.func
def shifted_left(a, b):
    """a << b"""
    return a << b


@cb.func
def shifted_right(a, b):
    """a >> b"""
    return a >> b


@cb.func
def square(a):
    """a * a"""
    return a * a


@cb.func
def cube(a):
    """a * a * a"""
    return a * a * a


@cb.func
def reciprocal(a):
    """1 / a"""
    return 1 / a


@cb.func
def float_of(a):
    """a, or the float of an integer, whose differences may be beyond its dtype"""
    return a if a.dtype.is_float else 1.0 * a


@cb.func
def logaddexp(a, b):
    """log(exp(a) + exp(b)), from the larger down"""
    a, b = float_of(a), float_of(b)
    top = cb.nan_max(a, b)
    rest = cb.log1p(cb.exp(cb.nan_min(a, b) - top))
    return cb.select(a == b, top + 0.6931471805599453, top + rest)


@cb.func
def negative_sign(a):
    """Whether the sign is minus: that of -0 is, too"""
    return cb.copysign(1.0, a) < 0


@cb.func
def next_after(a, b):
    """The next number from a towards b, by the order of bits"""
    if cb.promote(a.dtype, b.dtype).bits == 64:
        a, b = cb.cast(a, cb.f64), cb.cast(b, cb.f64)
        whole, one = cb.i64, cb.cast(1, cb.i64)
    else:
        a, b = cb.cast(a, cb.f32), cb.cast(b, cb.f32)
        whole, one = cb.i32, cb.cast(1, cb.i32)
    bits = cb.bitcast(a, whole)
    outwards = (a < b) == (a > 0)
    stepped = cb.bitcast(cb.select(outwards, bits + one, bits - one), a.dtype)
    smallest = cb.copysign(cb.bitcast(bits - bits + one, a.dtype), b)
    moved = cb.select(a == 0, smallest, stepped)
    return cb.select(a == b, b, cb.select((a != a) | (b != b), a + b, moved))


@cb.func
def digamma(x):
    """The derivative of log Gamma: reflected to x > 0, moved up to y >= 10, where the asymptotic
    series of Abramowitz and Stegun (6.3.18) is exact to a rounding of f64.
    """
    x = x * 1.0
    below = x <= 0
    y = cb.select(below, 1.0 - x, x)
    total = cb.select(y < 10.0, -1.0 / y, 0.0)
    y = cb.select(y < 10.0, y + 1.0, y)
    for _ in cb.unroll(range(9)):
        small = y < 10.0
        total = cb.select(small, total - 1.0 / y, total)
        y = cb.select(small, y + 1.0, y)
    z = 1.0 / (y * y)
    series = 1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z * (1.0 / 12)))
    series = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * series)))
    total = total + cb.log(y) - 0.5 / y - series
    rest = x - cb.round(x)
    mirrored = total - math.pi * cb.cos(math.pi * rest) / cb.sin(math.pi * rest)
    pole = cb.select(x == 0, cb.copysign(math.inf, -x), math.nan)
    return cb.select(below, cb.select(rest == 0, pole, mirrored), total)


@cb.func
def trigamma(x):
    """The derivative of digamma, in the same way (6.4.12); infinite at 0, -1, -2, ..."""
    x = x * 1.0
    below = x <= 0
    y = cb.select(below, 1.0 - x, x)
    total = cb.select(y < 10.0, 1.0 / (y * y), 0.0)
    y = cb.select(y < 10.0, y + 1.0, y)
    for _ in cb.unroll(range(9)):
        small = y < 10.0
        total = cb.select(small, total + 1.0 / (y * y), total)
        y = cb.select(small, y + 1.0, y)
    z = 1.0 / (y * y)
    series = 1.0 / 30 - z * (5.0 / 66 - z * (691.0 / 2730 - z * (7.0 / 6)))
    series = 1.0 / 6 - z * (1.0 / 30 - z * (1.0 / 42 - z * series))
    total = total + (1.0 + 0.5 / y + z * series) / y
    sine = cb.sin(math.pi * (x - cb.round(x)))
    return cb.select(below, math.pi * math.pi / (sine * sine) - total, total)


ERFINV_SMALL = (
    (0.246072978, 2.26924720e-4, -1.76172517e-3, 2.03594114e-4, 5.90068476e-6)
    + (-4.34618141e-6, 3.53218809e-7, 4.53241142e-8, -8.82053008e-9)
)  # fmt: skip
ERFINV_LARGE = (
    (2.83297682, 1.00167501, 9.44532920e-3, -7.63745280e-3, 5.68658998e-3)
    + (-3.59662413e-3, 1.48613076e-3, -5.82609628e-5, -3.10426345e-4, 1.16713381e-4)
)  # fmt: skip
"""erfinv(x) / x where w = -log(1 - x * x): up to w = 5 (that - sqrt(pi) / 2) / w in w - 2.5,
beyond it in sqrt(w) - 3; fits of the least largest relative error, 6e-9 and 9e-9. The variables are
those of Giles, "Approximating the erfinv function" (2010), without w where x is small.
"""
QUANTILES = (
    (
        (3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427)
        + (13731.693765509461125, 45921.953931549871457, 67265.770927008700853)
        + (33430.575583588128105, 2509.0809287301226727),
        (1.0, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077)
        + (21213.794301586595867, 39307.895800092710610, 28729.085735721942674)
        + (5226.4952788528545610,),
    ),
    (
        (1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550)
        + (3.64784832476320460504, 1.27045825245236838258, 0.241780725177450611770)
        + (2.27238449892691845833e-2, 7.74545014278341407640e-4),
        (1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550)
        + (0.148103976427480074590, 1.51986665636164571966e-2)
        + (5.47593808499534494600e-4, 1.05075007164441684324e-9),
    ),
    (
        (6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580)
        + (0.296560571828504891230, 2.65321895265761230930e-2, 1.24266094738807843860e-3)
        + (2.71155556874348757815e-5, 2.01033439929228813265e-7),
        (1.0, 0.599832206555887937690, 0.136929880922735805310)
        + (1.48753612908506148525e-2, 7.86869131145613259100e-4)
        + (1.84631831751005468180e-5, 1.42151175831644588870e-7)
        + (2.04426310338993978564e-15,),
    ),
)
"""Quotients for quantiles of the normal distribution in the middle, outside, and far outside:
Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution" (1988).
"""


@cb.func
def polynomial(x, coefficients):
    """The sum of coefficients[k] * x**k"""
    total = x * 0.0 + coefficients[-1]
    for c in cb.unroll(coefficients[-2::-1]):
        total = cb.fma(total, x, x * 0.0 + c)
    return total


@cb.func
def quotient(x, pair):
    """Of two polynomials"""
    return polynomial(x, pair[0]) / polynomial(x, pair[1])


@cb.func
def erfinv(x):
    """The y with erf(y) = x: infinite at -1 and 1, NaN beyond. In f64 a quantile of the normal
    distribution over sqrt(2), in f32 and smaller types one of two polynomials in f32.
    """
    if x.dtype == cb.f64:
        size = cb.abs(x)
        half = x * 0.5
        middle = half * quotient(0.180625 - half * half, QUANTILES[0])
        share = cb.select(size < 1.0, 0.5 - 0.5 * size, 0.5)
        root = cb.sqrt(-cb.log(share))
        outside = quotient(root - 1.6, QUANTILES[1])
        outside = cb.select(root > 5.0, quotient(root - 5.0, QUANTILES[2]), outside)
        found = cb.select(size <= 0.85, middle, cb.copysign(outside, x)) * math.sqrt(0.5)
    else:
        x = cb.cast(x, cb.f32)
        size = cb.abs(x)
        rest = cb.select(size < 1.0, cb.fma(-x, x, x * 0.0 + 1.0), 0.5)
        w = -cb.log(rest)
        near = cb.fma(polynomial(w - 2.5, ERFINV_SMALL), w, w * 0.0 + math.sqrt(math.pi) / 2)
        found = x * cb.select(w < 5.0, near, polynomial(cb.sqrt(w) - 3.0, ERFINV_LARGE))
    edge = cb.select(size == 1.0, cb.copysign(math.inf, x), math.nan)
    return cb.select(size < 1.0, found, edge)


@cb.func
def limited(a, low, high):
    """a within [low, high]; NaN stays NaN"""
    return cb.nan_min(cb.nan_max(a, low), high)


@cb.func
def from_end(index, length):
    """An index that may count from the end as one from the front"""
    return cb.select(index < 0, index + length, index)


@cb.func
def joined_index(first, length, index):
    """The index into two axes as one, of which the second has this length"""
    return first * length + index


@cb.func
def common_divisor(a, b):
    """The greatest common divisor, by Euclid: as many rounds as the slowest lane needs"""
    x = a + (b - b)  # in the dtype of both
    y = b + (a - a)
    while (y != 0).any():
        done = y == 0
        rest = x % cb.select(done, 1, y)
        x = cb.select(done, x, y)
        y = cb.select(done, y, rest)
    return cb.abs(x)


@cb.func
def common_multiple(a, b):
    """The least common multiple; 0 where a or b is 0"""
    divisor = common_divisor(a, b)
    return cb.abs(a) // cb.select(divisor == 0, 1, divisor) * cb.abs(b)
