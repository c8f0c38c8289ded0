"""The elementwise ops of tensors as functions of the kernel language."""

from __future__ import annotations

import cubepy as cb


@cb.func
def floordiv(a, b):
    """a // b"""
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
