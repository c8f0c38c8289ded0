"""Order of evaluation, variables, loops and functions mean what they mean in Python, on every
backend.
"""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb

F = np.float32


@cb.func
def bump(x):
    x[0] += 10
    return x[0]


@cb.kernel
def order(x: cb.Array, out: cb.Array):
    old = x[0]
    x[0] = 5
    out[0] = old
    out[1] = x[0] + bump(x)
    out[2] = bump(x) * 100 + x[0]
    a = x[0]
    b = a
    a += 1
    out[3] = b
    out[4] = x[0] - cb.atomic_add(x, 0, 1)
    out[5] = x[0]


def test_operands_are_evaluated_from_left_to_right(device: str) -> None:
    x, out = np.array([1], np.int32), np.zeros(6, np.int32)
    order[1, 1](x, out, device=device)
    assert out.tolist() == [1, 5 + 15, 2525, 25, 0, 26]


@cb.kernel
def loop_variables(out: cb.Array, n):
    stop = n
    turns = 0
    for _ in range(stop):
        stop = 2
        turns += 1
    out[0] = turns
    k = 100
    for k in range(n):
        if k == 3:
            break
    out[1] = k
    total = 0
    for j in range(n):
        total += j
        j = 50
        total += j
    out[2] = total
    down = 0
    step = n - 7
    for j in range(5, -5, step):
        down = down * 3 + j
    out[3] = down
    for j in range(5, 5 + n, 4):
        out[4] = j
    none = 0
    for j in range(n, 2):
        none += 1
    out[5] = none
    while True:
        none += 1
        if none > n:
            break
        if none % 2:
            continue
        out[6] += none


def test_loops_keep_their_bounds_and_their_variable(device: str) -> None:
    out = np.zeros(7, np.int32)
    loop_variables[1, 1](out, 5, device=device)
    down = 0
    for j in range(5, -5, -2):
        down = down * 3 + j
    assert out.tolist() == [5, 3, 10 + 250, down, 9, 0, 2 + 4]


@cb.kernel
def rebound_loop_variables(x: cb.Array, n, out: cb.Array):
    k = 0
    for k in range(1, 8, 3):
        if x[k] > 0.5:
            k = 12
            break
    out[0] = k
    for k in range(1, 8, 3):
        k = n
        continue
    out[1] = k
    for k in range(n):
        k = 11
        break
    out[2] = k
    for k in range(1, 8, 3):
        for k in cb.unroll(range(3)):
            out[3] += k
        if out[3] > 0:
            continue
        break
    out[4] = k
    for k in range(1, 8, 3):
        for k in range(2):
            out[3] += k
        if k == 0:
            continue
        elif n > 100:
            break
        else:
            k = 4 * k
            continue
    out[5] = k
    for k in range(1, 8, 3):
        if x[k] > 0.5:
            break
    out[6] = k


def test_a_loop_s_variable_keeps_what_the_turn_that_ends_gave_it(device: str) -> None:
    x, out = np.zeros(8, F), np.zeros(7, np.int32)
    x[4] = 1
    rebound_loop_variables[1, 1](x, 5, out, device=device)
    assert out.tolist() == [12, 5, 11, 9 + 3, 2, 4, 4]


@cb.func
def classify(v, limits):
    low, high = limits
    if v < low:
        if v < low - 10:
            return -2, v
        return -1, v * 2
    elif v > high:
        return 1, v * 3
    return 0, v * 4


@cb.func
def nested(v, limits, *, scale: cb.Comptime[int] = 2):
    """Calls another func, and changes its own parameter."""
    kind, v = classify(v * scale, limits)
    return kind * 1000 + v


@cb.func
def find(x, wanted):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] == wanted:
                return i, j
    return -1, -1


@cb.struct
class Point:
    x: cb.f32
    y: cb.f32


@cb.func
def first_point(x, limit):
    for i in range(x.size):
        if x[i] > limit:
            return Point(x[i], i)
        if x[i] < -limit:
            return Point(i, x[i])
    return Point(-1, -1)


@cb.kernel
def points(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    p = first_point(x, i)
    best = (0, 0)
    low, high = 0, 0
    for k in range(x.size):
        if x[k] > best[0]:
            best = (x[k], k)
        if x[k] < low:
            low, high = x[k], low
    out[i, 0] = p.x
    out[i, 1] = p.y
    out[i, 2] = best[0] * 10 + best[1]
    out[i, 3] = low * 10 + high


def test_structs_and_tuples_leave_loops(device: str) -> None:
    x, out = np.array([1, -2, 3, -4], np.int32), np.zeros((5, 4), F)
    points[1, 5](x, out, device=device)
    assert out[:, :2].tolist() == [[1, 0], [1, -2], [3, 2], [3, -4], [-1, -1]]
    assert (out[:, 2:] == [32, -42]).all()


@cb.kernel
def calls(x: cb.Array, grid: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    value = x[i]
    out[i] = nested(value, (0, 10)) + nested(value, limits=(0, 20), scale=1)
    r, c = find(grid, i)
    out[i] += (r * 10 + c) * 100000
    if value != x[i]:
        out[i] = -1


def test_funcs_nest_and_return_several_values(device: str) -> None:
    x = np.array([-20, -3, 0, 4, 30], np.int32)
    grid = np.array([[9, 4], [2, 9], [0, 1]], np.int32)
    out = np.zeros(5, np.int32)
    calls[1, 5](x, grid, out, device=device)

    def kinds(v: int, high: int) -> int:
        kind, w = (
            (-2, v) if v < -10 else (-1, v * 2) if v < 0 else (1, v * 3) if v > high else (0, v * 4)
        )
        return kind * 1000 + w

    place = {0: 20, 1: 21, 2: 10, 3: -11, 4: 1}
    assert out.tolist() == [
        kinds(2 * int(v), 10) + kinds(int(v), 20) + place[i] * 100000 for i, v in enumerate(x)
    ]


@cb.struct
class Ball:
    at: Point
    speed: Point
    steps: cb.Comptime[int]
    bounce: cb.Comptime[bool] = True

    def moved(self, dt):
        p = Point(self.at.x + self.speed.x * dt, self.at.y + self.speed.y * dt)
        speed = self.speed
        if self.bounce:
            if p.y < 0:
                p = Point(p.x, -p.y)
                speed = Point(speed.x, -speed.y)
        return Ball(p, speed, self.steps, bounce=self.bounce)


@cb.kernel
def simulate(ball: Ball, out: cb.Array, dt):
    b = ball
    for i in range(b.steps):
        b = b.moved(dt)
        out[i, 0] = b.at.x
        out[i, 1] = b.at.y


@pytest.mark.parametrize("bounce", [True, False])
def test_structs_hold_structs_and_comptime_fields(device: str, bounce: bool) -> None:
    out = np.zeros((4, 2), F)
    simulate[1, 1](Ball(Point(0, 1), Point(1, -1), 4, bounce), out, 0.75, device=device)
    y = [0.25, -0.5, -1.25, -2.0] if not bounce else [0.25, 0.5, 1.25, 2.0]
    assert out[:, 0].tolist() == [0.75, 1.5, 2.25, 3.0] and out[:, 1].tolist() == y
    host = Ball(Point(0, 1), Point(1, -1), 4, bounce).moved(0.75)
    assert (host.at.x, host.at.y) == (0.75, 0.25)


@cb.struct
class Column:
    data: cb.Array
    factor: cb.f32

    def at(self, i):
        return self.data[i] * self.factor


@cb.kernel
def columns(pair, out: cb.Array, bias=0.5):
    i = cb.ABSOLUTE_POS
    left, right = pair
    out[i] = left.at(i) - right.at(i) + bias


def test_tuples_of_structs_with_arrays_and_defaults(device: str) -> None:
    x = np.arange(4, dtype=F)
    out = np.zeros(4, F)
    columns[1, 4]((Column(x, 3), Column(x[::-1], 1)), out, device=device)
    assert out.tolist() == [-2.5, 1.5, 5.5, 9.5]


@cb.kernel
def conditions(x: cb.Array, out: cb.Array, n):
    i = cb.ABSOLUTE_POS
    v = x[i]
    flag = v > 1 and v < 5 or v == 7
    out[i, 0] = flag
    out[i, 1] = 1 <= v < n <= 9
    out[i, 2] = (10 if v > 3 else 20) if not flag else 30
    out[i, 3] = (v > 2) + (v > 4)
    b = v > 2
    b = b and v != 4
    out[i, 4] = b
    out[i, 5] = not v
    k = 0
    while k < x.size and x[k] < v:
        k += 1
    out[i, 6] = k
    if v > 4:
        kind = 1
    elif v > 2:
        kind = 2
    else:
        kind = 3
    out[i, 7] = kind
    out[i, 8] = cb.select(flag, 1, 2) + (1 if b else 0)


def test_conditions(device: str) -> None:
    x, n = np.arange(8, dtype=np.int32), 6
    out = np.zeros((8, 9), np.int32)
    conditions[1, 8](x, out, n, device=device)
    for v in range(8):
        flag, b = (1 < v < 5) or v == 7, v > 2 and v != 4
        want = [flag, 1 <= v < n <= 9, 30 if flag else (10 if v > 3 else 20), (v > 2) + (v > 4), b, not v, v,
                1 if v > 4 else 2 if v > 2 else 3, (1 if flag else 2) + b]  # fmt: skip
        assert out[v].tolist() == [int(w) for w in want], v


@cb.kernel
def powers_and_roots(x: cb.Array, out: cb.Array, n: cb.i32):
    i = cb.ABSOLUTE_POS
    v: cb.f32 = x[i]
    out[i, 0] = v**3 + v**-1
    out[i, 1] = v**n
    out[i, 2] = abs(-v) + min(v, 2) + max(v, 2.5, 1)
    out[i, 3] = v // 0.75
    out[i, 4] = v % 0.75 + -v % 0.75
    out[i, 5] = int(v) + float(n) / 2
    out[i, 6] = round(v)


def test_float_operators_are_those_of_python(device: str) -> None:
    x = np.array([0.5, 1.5, 2.5, 4.25], F)
    out = np.zeros((4, 7), F)
    powers_and_roots[1, 4](x, out, 2, device=device)
    for row, v in zip(out, x.tolist(), strict=True):
        want = [
            v**3 + 1 / v,
            v * v,
            v + min(v, 2) + max(v, 2.5),
            v // 0.75,
            v % 0.75 + -v % 0.75,
            int(v) + 1,
            round(v),
        ]
        np.testing.assert_allclose(row, want, rtol=1e-6)


@cb.kernel
def fill(out: cb.Array, value):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = value


def test_empty_arrays_and_arrays_without_axes(device: str) -> None:
    empty = np.zeros(0, F)
    fill[cb.over(empty)](empty, 1.0, device=device)
    fill[1, 4](empty, 1.0, device=device)
    fill[1, 2](np.zeros((3, 0, 2), F).reshape(-1), 1.0, device=device)
    single = np.zeros((), F)
    fill[1, 4](single, 2.5, device=device)
    assert single == 2.5


@cb.kernel
def halves(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS * 2
    out.store(i, x.load(i, 2) * 0.5)
    if i == 0:
        return
    out[i] += 1


def test_work_in_place(device: str) -> None:
    x = np.arange(6, dtype=F)
    halves[1, 3](x, x, device=device)
    assert x.tolist() == [0, 0.5, 2, 1.5, 3, 2.5]


@cb.kernel
def rank_three(x: cb.Array, out: cb.Array):
    n = x.shape[1] * x.shape[2]
    for p in range(x.size):
        a, b, c = p // n, p // x.shape[2] % x.shape[1], p % x.shape[2]
        at = (a, b)
        out[at + (c,)] = x[a, b, c] + x[a - 1, b, c] * 100


def test_rank_three_with_negative_and_broadcast_strides(device: str) -> None:
    base = np.arange(1, 25, dtype=np.int64).reshape(2, 3, 4)
    for x in (
        base,
        base[::-1, :, ::-2],
        base.transpose(2, 0, 1),
        np.broadcast_to(base[:, :1, :], (2, 5, 4)),
    ):
        out = np.zeros_like(x, order="C")
        rank_three[1, 1](x, out, device=device)
        want = x.copy()
        want[1:] += x[:-1] * 100
        np.testing.assert_array_equal(out, want)


@cb.kernel
def ranges(first: cb.i32, last: cb.i32, out: cb.Array):
    count = 0
    total = 0
    for i in range(first, last):
        count += 1
        total += i & 1023
    for i in range(first, last, 3):
        count += 100
        total += i & 1023
    for i in range(last, first, -3):
        count += 10000
        total += i & 1023
    out[0] = count
    out[1] = total


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 7), (-4, 5), (3, 3), (5, -5), (2**31 - 9, 2**31 - 1), (-(2**31), -(2**31) + 8)],
)
def test_loops_go_as_far_as_their_numbers_do(device: str, first: int, last: int) -> None:
    out = np.zeros(2, np.int32)
    ranges[1, 1](first, last, out, device=device)
    steps = [range(first, last), range(first, last, 3), range(last, first, -3)]
    assert out[0] == sum(len(r) * by for r, by in zip(steps, (1, 100, 10000), strict=True))
    assert out[1] == sum(i & 1023 for r in steps for i in r)
