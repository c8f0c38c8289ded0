"""The elementwise ops of tensors as functions of the kernel language."""

from __future__ import annotations

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
