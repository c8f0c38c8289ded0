"""Operators that are methods of structs: in kernels what they are outside, and what NumPy says of
the same formulas.
"""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import BarrierError, CompileError


@cb.struct
class Complex:
    re: cb.f64
    im: cb.f64

    def __add__(self, other):
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other):
        return Complex(self.re - other.re, self.im - other.im)

    def __mul__(self, other):
        re = self.re * other.re - self.im * other.im
        return Complex(re, self.re * other.im + self.im * other.re)

    def __rmul__(self, k):
        return Complex(k * self.re, k * self.im)

    def __truediv__(self, k):
        return Complex(self.re / k, self.im / k)

    def __rtruediv__(self, k):
        size = self.re * self.re + self.im * self.im
        return Complex(k * self.re / size, -k * self.im / size)

    def __floordiv__(self, k):
        return Complex(self.re // k, self.im // k)

    def __mod__(self, k):
        return Complex(self.re % k, self.im % k)

    def __pow__(self, n):
        power = Complex(1.0, 0.0)
        for _ in range(n):
            power *= self
        return power

    def __matmul__(self, other):
        return self.re * other.re + self.im * other.im

    def __and__(self, other):
        return Complex(self.re, other.re)

    def __or__(self, other):
        return Complex(self.im, other.im)

    def __xor__(self, other):
        return Complex(self.im, other.re)

    def __lshift__(self, n):
        return Complex(self.re * 2**n, self.im)

    def __rshift__(self, n):
        return Complex(self.re, self.im * 2**n)

    def __neg__(self):
        return Complex(-self.re, -self.im)

    def __pos__(self):
        return self

    def __invert__(self):
        return Complex(self.re, -self.im)

    def __lt__(self, other):
        if self.re == other.re:
            return self.im < other.im
        return self.re < other.re

    def __le__(self, other):
        return not other < self

    def __eq__(self, other):
        return self.re == other.re and self.im == other.im

    def __getitem__(self, k):
        return self.re if k == 0 else self.im


UNIT = Complex(1.0, 1.0)


@cb.func
def structs(a, b, k):
    return (a + b, a - b, a * b, k * a, a / k, k / a, a // k, a % k, a**3, a & b, a | b, a ^ b,
            a << 2, a >> 1, -a, +a, ~a, a + UNIT, UNIT * b - a)  # fmt: skip


@cb.func
def numbers(a, b, k):
    return (a @ b, a < b, a <= b, a > b, a >= b, a == b, a != b, a[k], a[1], UNIT < a < b)


@cb.kernel
def operate(x: cb.Array, out: cb.Array, found: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.shape[0]:
        a, b = Complex(x[i, 0], x[i, 1]), Complex(x[i, 2], x[i, 3])
        for k, v in enumerate(structs(a, b, 1 + i % 3)):
            out[i, k, 0] = v.re
            out[i, k, 1] = v.im
        for k, n in enumerate(cb.unroll(numbers(a, b, i % 2))):
            found[i, k] = n
        a += b
        a *= a
        found[i, 10] = a.re


def test_operators_of_structs_are_their_methods(device: str) -> None:
    x = np.random.default_rng().integers(-2, 3, (12, 4)).astype(np.float64)
    x[:, :2][(x[:, :2] == 0).all(axis=1)] = 3.0  # k / a
    out, found = np.zeros((12, 19, 2)), np.zeros((12, 11))
    with cb.use(device):
        operate[2, 8](x, out, found)
        cb.sync(device)
    for i, (p, q, r, s) in enumerate(x.tolist()):
        a, b, k = Complex(p, q), Complex(r, s), 1 + i % 3
        want = [(v.re, v.im) for v in structs(a, b, k)]  # outside they are ordinary Python
        np.testing.assert_allclose(out[i], want, rtol=1e-14)
        u, v = complex(p, q), complex(r, s)
        by_python = (u + v, u - v, u * v, k * u, u / k, k / u)
        np.testing.assert_allclose(out[i, :6] @ (1, 1j), by_python, rtol=1e-14)
        np.testing.assert_array_equal(found[i, :10], numbers(a, b, i % 2))
        assert found[i, 10] == ((u + v) * (u + v)).real


@cb.struct
class Bare:
    value: cb.f32


@cb.struct
class Waits:
    value: cb.f32

    def __add__(self, other):
        cb.sync_cube()
        return Waits(self.value + other)


def test_an_operator_without_a_method_says_how_to_write_one() -> None:
    @cb.kernel
    def subtracted(x: cb.Array):
        x[0] = (Bare(x[0]) - Bare(x[1])).value

    @cb.kernel
    def negated(x: cb.Array):
        x[0] = (-Bare(x[0])).value

    @cb.kernel
    def compared(x: cb.Array):
        x[0] = Bare(x[0]) < Bare(x[1])

    for kernel in (subtracted, negated, compared):
        with pytest.raises(CompileError, match=r"struct Bare(.|\n)*\^(.|\n)*def __add__"):
            kernel[1, 1](np.zeros(2, np.float32))
    for wrong in (lambda: Bare(1.0) - Bare(2.0), lambda: -Bare(1.0), lambda: Bare(1.0)[0]):
        with pytest.raises(TypeError, match=r"Struct|struct Bare"):
            wrong()
    assert Bare(1.0) != Bare(1.0)  # without a method an instance is equal to itself alone


def test_an_operator_that_waits_is_refused_where_it_cannot() -> None:
    @cb.kernel
    def waits(x: cb.Array):
        x[cb.UNIT_POS] = (Waits(x[cb.UNIT_POS]) + 1.0).value

    x = np.zeros(4, np.float32)
    waits[1, 4](x)
    assert x.tolist() == [1.0] * 4
    with pytest.raises(BarrierError, match="__add__ comes to a barrier"):
        waits[1, 4](x, device="python")


@cb.struct
class Odd:
    type: cb.f32
    values: cb.f32
    run: cb.f32
    methods: cb.f32

    def fields(self, k):
        return self.type + k * self.values + self.run - self.methods


@cb.kernel
def ask(odd: Odd, out: cb.Array):
    made = Odd(odd.values, odd.type, 1.0, odd.run)
    out[0], out[1], out[2] = odd.fields(3), made.fields(3), made.type + made.values


def test_fields_may_have_any_name(device: str) -> None:
    odd, out = Odd(2.0, 3.0, 5.0, 7.0), np.zeros(3, np.float32)
    with cb.use(device):
        ask[1, 1](odd, out)
        cb.sync(device)
    assert out.tolist() == [odd.fields(3), 3 + 6 + 1 - 5, 5.0] == [9.0, 5.0, 5.0]
    assert (odd.type, odd.values, odd.run, odd.methods) == (2.0, 3.0, 5.0, 7.0)
