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
def reciprocal(a):
    """1 / a"""
    return 1 / a


@cb.func
def logaddexp(a, b):
    """log(exp(a) + exp(b)), from the larger down"""
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
    if a.dtype == cb.f64 or b.dtype == cb.f64:
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
