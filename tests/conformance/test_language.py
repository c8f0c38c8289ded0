"""Control flow, comptime, functions and structs mean the same on every backend."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

import cubepy as cb
from cubepy.runtime.device import backend_named

F = np.float32


@cb.func
def sign(v):
    if v > 0:
        return 1
    if v < 0:
        return -1
    return 0


@cb.func
def first_above(x, limit):
    for i in range(x.size):
        if x[i] > limit:
            return i
    return -1


@cb.func
def both_ways(a, b):
    return a + b, a - b


@cb.kernel
def functions(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        s, d = both_ways(x[i], 2.0)
        out[i] = sign(x[i]) * 100 + s * d + first_above(x, 2.5)


def test_funcs_return_early_from_loops_and_with_tuples(device: str) -> None:
    x = np.array([-1, 0, 1, 2, 3, 4], F)
    out = np.zeros(6, F)
    functions[cb.over(out)](x, out, device=device)
    np.testing.assert_allclose(out, np.sign(x) * 100 + (x + 2) * (x - 2) + 4)


@cb.kernel
def loops(x: cb.Array, out: cb.Array, n):
    total = 0
    for i in range(n):
        if i % 2 == 0:
            continue
        if i > 10:
            break
        total += i
    count = 0
    while count * count < n:
        count += 1
    back = 0
    for j in range(n, 0, -3):
        back = back * 2 + j
    a, b = 0, 1
    for _ in range(10):
        a, b = b, a + b
    out[0] = total
    out[1] = count
    out[2] = back
    out[3] = a
    out[4] = 1 if 3 < n <= 20 else 0
    out[5] = x.size


def test_loops_break_continue_count_down_and_swap(device: str) -> None:
    out = np.zeros(6, np.int32)
    loops[1, 1](np.zeros(7, F), out, 17, device=device)
    back = 0
    for j in range(17, 0, -3):
        back = back * 2 + j
    assert out.tolist() == [1 + 3 + 5 + 7 + 9, 5, back, 55, 1, 7]


@dataclass(frozen=True)
class Plan:
    width: int
    square: bool


@cb.func
def twice(v):
    return v * 2


@cb.kernel
def comptime(
    x: cb.Array, out: cb.Array, plan: cb.Comptime, step: cb.Comptime, *, times: cb.Comptime[int] = 3
):
    i = cb.ABSOLUTE_POS
    if plan.square:
        value = x[i] * x[i]
    else:
        value = x.no_such_thing
    for k in cb.unroll(range(times)):
        if k == plan.width:
            value += 100
        value = step(value) + k
    if x.dtype == cb.f32 and x.ndim == 1 and cb.comptime(cb.CUBE_DIM) == 4:
        out[i] = value
    else:
        undefined_function()  # noqa: F821


def test_comptime_values_fold_prune_and_unroll(device: str) -> None:
    x = np.arange(4, dtype=F)
    out = np.zeros(4, F)
    comptime[1, 4](x, out, Plan(1, True), twice, device=device)
    expected = x * x
    for k in range(3):
        expected = (expected + (100 if k == 1 else 0)) * 2 + k
    np.testing.assert_allclose(out, expected)


@cb.struct
class Complex:
    re: cb.f32
    im: cb.f32

    def times(self, other):
        return Complex(
            self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re
        )

    def norm2(self):
        return self.re * self.re + self.im * self.im


@cb.kernel
def powers(z: Complex, out: cb.Array, n):
    w = Complex(1, 0)
    for i in range(n):
        w = w.times(z)
        out[i] = w.norm2()


def test_structs_are_passed_and_changed_in_loops(device: str) -> None:
    out = np.zeros(5, F)
    powers[1, 1](Complex(0.5, 0.5), out, 5, device=device)
    np.testing.assert_allclose(out, 0.5 ** np.arange(1, 6), rtol=1e-6)


@cb.kernel
def topology(out: cb.Array):
    p = cb.ABSOLUTE_POS
    out[p, 0] = cb.CUBE_POS_X
    out[p, 1] = cb.CUBE_POS_Y
    out[p, 2] = cb.CUBE_POS_Z
    out[p, 3] = cb.UNIT_POS_X
    out[p, 4] = cb.UNIT_POS_Y
    out[p, 5] = cb.UNIT_POS_Z
    out[p, 6] = cb.ABSOLUTE_POS_Y
    out[p, 7] = cb.CUBE_COUNT * 1000 + cb.CUBE_DIM
    out[p, 8] = cb.PLANE_DIM * 10 + cb.UNIT_POS_PLANE
    out[p, 9] = cb.PLANE_POS


def test_topology_in_three_axes(device: str) -> None:
    cubes, units = (2, 3, 2), (3, 2, 2)
    out = np.zeros((144, 10), np.int32)
    topology[cubes, units](out, device=device)
    plane = backend_named(device).properties(0).plane_size
    row = 0
    for cz in range(2):
        for cy in range(3):
            for cx in range(2):
                for uz in range(2):
                    for uy in range(2):
                        for ux in range(3):
                            unit = ux + 3 * uy + 6 * uz
                            want = [
                                cx,
                                cy,
                                cz,
                                ux,
                                uy,
                                uz,
                                cy * 2 + uy,
                                12012,
                                plane * 10 + unit % plane,
                                unit // plane,
                            ]
                            assert out[row].tolist() == want
                            row += 1


@cb.kernel
def guarded(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size and x[i] > 0 or i == 3:
        out[i] = 1
    out[i] = out[i] + (x[i] if i < 2 else -x[i])
    if not (x[i] > 1):
        return
    out[i] += 10


def test_conditions_short_circuit_and_units_return_early(device: str) -> None:
    x = np.array([1, -1, 2, -2], F)
    out = np.zeros(4, F)
    guarded[1, 4](x, out, device=device)
    assert out.tolist() == [2, -1, 9, 3]


@cb.kernel
def checked(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = x[i - 2] + x[i + 2]
    out[i + 100] = 7.0
    out[-1] = 7.0


def test_out_of_range_reads_give_zero_and_writes_are_dropped(device: str) -> None:
    x, buffer = np.arange(1, 9, dtype=F), np.full(24, -1, F)
    out = buffer[8:16]
    checked[1, 8](x, out, device=device)
    padded = np.concatenate([[0, 0], x, [0, 0]])
    np.testing.assert_array_equal(out, padded[:8] + padded[4:])
    assert (buffer[:8] == -1).all() and (buffer[16:] == -1).all()


@cb.kernel
def scalars(out: cb.Array, a, b: cb.f32, c, d: cb.u8, e):
    out[0] = a * 2
    out[1] = b
    out[2] = c
    out[3] = d
    out[4] = e


def test_scalar_arguments_of_every_kind(device: str) -> None:
    out = np.zeros(5, np.float64)
    scalars[1, 1](out, 0.1, 0.1, True, 255, np.float64(1e-20), device=device)
    assert out.tolist() == [0.2, float(F(0.1)), 1.0, 255.0, 1e-20]
    scalars[1, 1](out, 2**40, 3, np.int8(-3), 0, 2**63, device=device)
    assert out.tolist() == [2.0**41, 3.0, -3.0, 0.0, 2.0**63]


@cb.kernel
def weak(x: cb.Array, out: cb.Array):
    acc = 0.0
    n = 0
    for i in range(x.size):
        acc += x[i]
        n += 1
    out[0] = acc / n


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_literals_take_the_dtype_that_they_meet(device: str, dtype: type) -> None:
    x = (np.arange(100) / 7).astype(dtype)
    out = np.zeros(1, np.float64)
    weak[1, 1](x, out, device=device)
    tolerance = 1e-6 if dtype is np.float32 else 1e-15
    assert math.isclose(out[0], x.astype(np.float64).mean(), rel_tol=tolerance)


@cb.kernel
def strided(x: cb.Array, out: cb.Array):
    i, j = cb.ABSOLUTE_POS_X, cb.ABSOLUTE_POS_Y
    if i < x.shape[0] and j < x.shape[1]:
        out[i, j] = x[i, j] * 10 + x.stride[1]


def test_arrays_of_any_strides(device: str) -> None:
    base = np.arange(24, dtype=F).reshape(4, 6)
    for x in (base, base.T, base[::-1, ::2], np.broadcast_to(base[0], (3, 6))):
        out = np.zeros(x.shape[::-1], F).T
        strided[(3, 3), (2, 2)](x, out, device=device)
        np.testing.assert_array_equal(out, x * 10 + x.strides[1] // 4)


@cb.kernel
def four_axes(x: cb.Array, out: cb.Array):
    for a in range(x.shape[0]):
        for b in range(x.shape[1]):
            for c in range(x.shape[2]):
                for d in range(x.shape[3]):
                    out[d, c, b, a] = x[a, b, c, d]


def test_rank_four(device: str) -> None:
    x = np.arange(24).reshape(2, 3, 1, 4)
    out = np.zeros((4, 1, 3, 2), np.int64)
    four_axes[1, 1](x, out, device=device)
    np.testing.assert_array_equal(out, x.transpose())


@cb.kernel
def says(x: cb.Array):
    cb.debug_assert(x[0] > 0, "x starts above zero")


def test_debug_assertions_name_their_message(device: str) -> None:
    says[1, 1](np.ones(1, F), device=device, mode="validate")
    with pytest.raises(cb.errors.KernelAssertionError, match="x starts above zero"):
        says[1, 1](np.zeros(1, F), device=device, mode="validate")


@cb.kernel
def chosen_places(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[i * 3 + ((0 if i & 1 else 1) if x[i] > 0 else (1 if i % 3 else 2))] = x[i]
        out[i * 3 + ((0 if i & 1 else 1) if x[i] > 0 else (1 if i % 3 else 2))] += 0.5


def test_conditions_within_the_index_of_a_target(device: str) -> None:
    x = np.array([1.0, 2.0, -3.0, -4.0, -5.0, 6.0], np.float32)
    want, out = np.zeros((6, 3), np.float32), np.zeros(18, np.float32)
    for i, v in enumerate(x):
        want[i, (0 if i & 1 else 1) if v > 0 else (1 if i % 3 else 2)] = v + 0.5
    chosen_places[cb.over(x.size)](x, out)
    assert (out.reshape(6, 3) == want).all()


@cb.kernel
def by_names_of_numpy(x: cb.Array, out: cb.Array):
    tile = cb.shared((2, 2), np.float64)
    own = cb.local(2, np.dtype("int32"))
    tile[1, 1] = x[0]
    own[1] = cb.cast(x[1], np.int32)
    out[0] = tile[1, 1]
    out[1] = own[1]
    out[2] = x.dtype == np.float32
    out[3] = np.float32(2.5) * x[1]


def test_dtypes_are_named_as_numpy_names_them(device: str) -> None:
    out = np.zeros(4, np.float64)
    by_names_of_numpy[1, 1](np.array([0.5, 1.5], np.float32), out, device=device)
    assert out.tolist() == [0.5, 1, 1, 3.75]


def test_a_dtype_equals_what_names_it() -> None:
    made = cb.tensor([1.0]).dtype
    assert made == np.float32 and made == np.dtype("f4") and np.float32 == made and made == "f32"
    assert made != np.float64 and made != cb.f64 and made != "f33" and made is not None
    assert cb.bf16 in (np.float16, "bf16") and {cb.f32: 1}[made] == 1
