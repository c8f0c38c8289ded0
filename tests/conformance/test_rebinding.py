"""A parameter, a tuple or a struct that is given another value in a branch or loop has that value
after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors

F = np.float32


@cb.struct
class Pair:
    low: cb.f32
    high: cb.f32

    def pushed(self, v, n):
        """Rebinds `self` in a loop that may not run, under a condition."""
        for k in range(n):
            if v > self.low:
                self = Pair(self.high, self.low + v + k)
        return self

    def sum(self):
        return self.low + self.high * 10


@cb.struct
class Nested:
    pair: Pair
    at: cb.Any
    scale: cb.Comptime[int] = 2


@cb.func
def fibonacci(t, n):
    for _ in range(n):
        t = (t[1], t[0] + t[1])
    return t


@cb.func
def ordered(t):
    if t[0] > t[1]:
        t = (t[1], t[0])
    return t


@cb.func
def turned(s, n):
    while n > 0:
        s = Nested(Pair(s.pair.high, s.pair.low), (s.at[1], s.at[0] + n), s.scale)
        n -= 1
    return s


@cb.kernel
def in_funcs(x: cb.Array, n, out: cb.Array):
    i = cb.ABSOLUTE_POS
    a, b = fibonacci((x[i], x[i + 1]), n)
    low, high = ordered((x[i], x[i + 1]))
    p = Pair(x[i], x[i + 1]).pushed(0.5, n)
    s = turned(Nested(Pair(x[i], 2), (1, x[i + 1])), n)
    c, d = fibonacci((0, 1), n)
    out[i, 0] = a + b * 100
    out[i, 1] = low + high * 100
    out[i, 2] = p.sum()
    out[i, 3] = s.pair.sum() + s.at[0] * 100 + s.at[1] * 1000 + s.scale
    out[i, 4] = c + d * 100


def pushed(low: float, high: float, v: float, n: int) -> tuple[float, float]:
    for k in range(n):
        if v > low:
            low, high = high, low + v + k
    return low, high


def test_parameters_of_funcs_and_methods(device: str) -> None:
    x = np.array([3, -1, 2, 0, 5], F)
    for n in (0, 1, 2, 5):
        out = np.zeros((4, 5), F)
        in_funcs[1, 4](x, n, out, device=device)
        for i in range(4):
            u, v = float(x[i]), float(x[i + 1])
            t, low, high, at, f = (u, v), u, 2.0, (1.0, v), (0, 1)
            for k in range(n):
                t, f = (t[1], t[0] + t[1]), (f[1], f[0] + f[1])
                low, high, at = high, low, (at[1], at[0] + n - k)
            p = pushed(u, v, 0.5, n)
            want = [t[0] + t[1] * 100, min(u, v) + max(u, v) * 100, p[0] + p[1] * 10,
                    low + high * 10 + at[0] * 100 + at[1] * 1000 + 2, f[0] + f[1] * 100]  # fmt: skip
            assert out[i].tolist() == want, (n, i)


@cb.kernel
def in_a_kernel(t, s: Pair, n, flag, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if flag > i:
        t = (t[1], t[0])
        s = Pair(s.high, t[0])
        n += 1
    for k in range(n):
        t = (t[1], t[0] + k)
        if k == 1:
            s = Pair(s.high, s.low)
    out[i] = t[0] + t[1] * 100 + s.low * 1000 + s.high * 10000


def test_parameters_of_a_kernel(device: str) -> None:
    for n in (0, 1, 3):
        for given in ((4, 7), (4.0, 7.0)):
            out = np.zeros(2, F)
            in_a_kernel[1, 2](given, Pair(1.0, 2.0), n, 1, out, device=device)
            for i in range(2):
                t, s, turns = (4, 7), (1, 2), n
                if i < 1:
                    t, turns = (7, 4), n + 1
                    s = (2, 7)
                for k in range(turns):
                    t = (t[1], t[0] + k)
                    if k == 1:
                        s = (s[1], s[0])
                assert out[i] == t[0] + t[1] * 100 + s[0] * 1000 + s[1] * 10000, (n, given, i)


@cb.kernel
def exchanged(x: cb.Array, n, out: cb.Array):
    s, t = Pair(x[0], x[1]), Pair(x[2], x[3])
    s, t = t, s
    u, v = (x[0], x[1]), (x[2], x[3])
    u, v = v, u
    a, b = x[0], x[1]
    a, (b, c) = b, (a, a + b)
    d, w = x[2], (x[3], 1)
    d, w = w[0], (d, d)
    out[0] = s.sum() + t.sum() * 100
    out[1] = u[0] + u[1] * 10 + v[0] * 100 + v[1] * 1000
    out[2] = a + b * 10 + c * 100
    out[3] = d + w[0] * 10 + w[1] * 100
    for _ in range(n):
        s, t = t, s
        u, (v, a) = v, (u, v[0])
    out[4] = s.sum() + t.sum() * 100
    out[5] = u[0] + u[1] * 10 + v[0] * 100 + v[1] * 1000 + a * 10000


def test_an_exchange_reads_everything_first(device: str) -> None:
    for n in (0, 1, 2):
        out = np.zeros(6, F)
        exchanged[1, 1](np.array([1, 2, 3, 4], F), n, out, device=device)
        s, t = ((1, 2), (3, 4)) if n % 2 else ((3, 4), (1, 2))
        a = 2 if n == 0 else 1 if n % 2 else 3
        assert out.tolist() == [43 + 2100, 2143, 2 + 10 + 300, 4 + 30 + 300, s[0] + s[1] * 10 + t[0] * 100 + t[1] * 1000,
                                s[0] + s[1] * 10 + t[0] * 100 + t[1] * 1000 + a * 10000]  # fmt: skip


@cb.kernel
def held(x: cb.Array, n, out: cb.Array):
    a, b = x[0], x[1]
    for v in (a, b):
        b = b + v
    out[0] = b
    for i, v in enumerate((a, b)):
        a, b = b, a + i
        out[1 + i] = v
    m = n
    r = range(m)
    m = 1
    for k in r:
        out[3] += k + m
    s = Pair(a, b)
    total = s.sum
    s = Pair(0, 0)
    out[4] = total() + s.sum()
    p = (a, m)
    q = p
    p = (b, p[1] + 1)
    for v in cb.unroll(p):
        p = (v, v)
    out[5] = q[0] + q[1] * 10 + p[0] * 100


def test_what_was_taken_from_a_name_does_not_follow_it(device: str) -> None:
    out = np.zeros(6, F)
    held[1, 1](np.array([1, 2], F), 4, out, device=device)
    b = 2 + 1 + 2
    a, c = b, 1
    a, c = c, a + 1
    assert out.tolist() == [b, 1, b, 6 + 4, a + c * 10, a + 10 + 200]


@cb.struct
class Held:
    value: cb.Any
    size: cb.Any


@cb.func
def tripled(t, n, m=1):
    for _ in range(n):
        t = (t[1], t[0] + t[1])
        m = m * 3
    return t, m


@cb.kernel
def weak_parts(n, out: cb.Array, whole: cb.Array):
    t = (0, 1)
    h = Held(0.1, 1)
    f = (0.1, (0.3, 2))
    for _ in range(n):
        t = (t[1], t[0] + t[1])
        h = Held(h.value * 1.1, h.size * 3)
        f = (f[1][0] * 0.7 + f[0], (f[0] * 0.3, f[1][1] * 5))
    g, m = tripled((0, 1), n)
    whole[0] = t[1]
    whole[1] = h.size
    whole[2] = f[1][1]
    whole[3] = g[1]
    whole[4] = m
    out[0] = h.value
    out[1] = f[0]
    out[2] = f[1][0]


def test_parts_that_start_as_literals_have_one_dtype(device: str) -> None:
    out, whole = np.zeros(3), np.zeros(5, np.int64)
    weak_parts[1, 1](60, out, whole, device=device)

    def wrapped(n: int) -> int:
        return (n + 2**31) % 2**32 - 2**31

    t = (0, 1)
    value, f = F(0.1), (F(0.1), F(0.3))
    for _ in range(60):
        t = (t[1], t[0] + t[1])
        value, f = value * F(1.1), (f[1] * F(0.7) + f[0], f[0] * F(0.3))
    assert whole.tolist() == [
        wrapped(t[1]),
        wrapped(3**60),
        wrapped(2 * 5**60),
        wrapped(t[1]),
        wrapped(3**60),
    ]
    assert out.tolist() == [value, *f]


@cb.func
def named(v, n):
    result, returned, left = (v, 1), 2.5, 3
    if v > 0:
        result = (v * 2, 2)
        if n > 1:
            return returned + left
        returned += 1
    for k in range(n):
        if k > 1:
            return result[0] * 100
        left += 1
    for result, returned in ((result[0], left), (returned, 7)):
        if returned < 4:
            continue
        if result > 2:
            break
        left = result
    return result + returned * 10 + left * 1000


@cb.kernel
def names_of_users(x: cb.Array, n, out: cb.Array):
    out[cb.UNIT_POS] = named(x[cb.UNIT_POS], n)


def test_names_of_users_are_theirs(device: str) -> None:
    x = np.array([-2, -1, 0, 1, 2, 3], F)
    for n in (0, 1, 2, 4):
        out = np.zeros(6, F)
        names_of_users[1, 6](x, n, out, device=device)
        assert out.tolist() == [named(float(v), n) for v in x], n


@cb.kernel
def kinds_apart(out: cb.Array, n):
    """`found` is a tuple in one loop and a number in the next, assigned before it is used in both."""
    i = cb.UNIT_POS
    total = 0
    for j in range(n):
        found = (j, i)
        total = total + found[0] * found[1]
    for j in range(n):
        found = j * 2
        for _ in range(2):
            found = found + i
        total = total + found
    out[i] = total


def test_a_name_may_be_a_tuple_in_one_loop_and_a_number_in_the_next(device: str) -> None:
    out = np.zeros(4, np.int32)
    kinds_apart[1, 4](out, 3, device=device)
    assert out.tolist() == [
        sum(j * i for j in range(3)) + sum(j * 2 + 2 * i for j in range(3)) for i in range(4)
    ]


@cb.kernel
def kinds_met(out: cb.Array, n):
    """What `found` is after the loop depends on whether it ran."""
    found = (n, n + 1)
    for j in range(n):
        found = j
    out[0] = found


@cb.kernel
def kinds_carried(out: cb.Array, n):
    """The second turn reads what the first left."""
    found = (n, n + 1)
    for j in range(n):
        out[0] = found[0]
        found = j


@pytest.mark.parametrize("kernel", [kinds_met, kinds_carried], ids=str)
def test_a_name_that_is_a_tuple_or_a_number_by_a_runtime_condition_is_refused(
    kernel: Any, device: str
) -> None:
    if device == "python":
        pytest.skip("it finds out when it runs")
    with pytest.raises(errors.ComptimeError, match="another kind of value before a loop"):
        kernel[1, 1](np.zeros(1, np.int32), 3, device=device)


@cb.kernel
def variable_in_itself(x: cb.Array, out: cb.Array):
    """A loop whose variable is also that of an inner loop, or is assigned, in turns that may end
    before.
    """
    i = cb.ABSOLUTE_POS
    for k in range(1, 8, 3):
        if x[i] > k:
            continue
        for k in range(3):
            out[i, 0] += k
    out[i, 1] = k
    for j in range(5):
        if x[i] < j:
            break
        j = j * 10
    out[i, 2] = j


def test_the_variable_of_a_loop_may_be_that_of_an_inner_loop(device: str) -> None:
    x = np.arange(-1, 11, dtype=np.int32)
    out = np.zeros((12, 3), np.int32)
    variable_in_itself[3, 4](x, out, device=device)
    for v, row in zip(x.tolist(), out.tolist(), strict=True):
        total = 0
        for k in range(1, 8, 3):
            if v > k:
                continue
            for k in range(3):
                total += k
        for j in range(5):
            if v < j:
                break
            j = j * 10
        assert row == [total, k, j], v


@cb.kernel
def rebinds_and_goes_on(out: cb.Array, *, always: cb.Comptime[bool]):
    """Each turn ends with the inner loop's k."""
    k = 0
    for k in range(1, 8, 3):
        for k in cb.unroll((1, 3)):
            out[0] += k
        if always:
            continue
        out[0] += 100
    out[1] = k


@pytest.mark.parametrize("always", [True, False])
def test_a_variable_that_an_inner_loop_binds_too_leaves_the_loop_as_it_was(
    always: bool, device: str
) -> None:
    out = np.zeros(2, np.float32)
    rebinds_and_goes_on[1, 1](out, always=always, device=device)
    assert out.tolist() == [12 if always else 312, 3]
