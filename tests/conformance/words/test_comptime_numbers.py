"""Functions of comptime numbers give what they give at run time, at special values too."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import cubepy as cb

FUNCTIONS = {
    1: ("exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "floor", "ceil", "trunc",
        "round", "abs", "tan", "asin", "acosh", "atanh", "log10", "cbrt", "erfc", "lgamma", "sign"),
    2: ("min", "max", "nan_min", "nan_max", "pow", "atan2", "hypot", "fmod", "copysign"),
    3: ("fma", "clamp"),
}  # fmt: skip
SPECIAL = (
    0.0,
    -0.0,
    1.5,
    -1.5,
    2.5,
    1e300,
    -1e-300,
    math.inf,
    -math.inf,
    math.nan,
    1 + 2**-30,
    0.1,
)


@cb.kernel
def of_comptime_numbers(out: cb.Array, *, function: cb.Comptime, cases: cb.Comptime[tuple]):
    for k, numbers in cb.unroll(tuple(enumerate(cases))):
        out[k] = function(*numbers)


@cb.kernel
def of_arrays(x: cb.Array, out: cb.Array, *, function: cb.Comptime, count: cb.Comptime[int]):
    i = cb.ABSOLUTE_POS
    out[i] = function(*tuple(x[i, k] for k in cb.unroll(count)))


def cases_of(count: int) -> list[tuple[float, ...]]:
    every = list(itertools.product(SPECIAL, repeat=count))
    return [every[k] for k in np.random.default_rng(count).permutation(len(every))[:40]]


@pytest.mark.parametrize(
    ("name", "count"), [(name, count) for count, names in FUNCTIONS.items() for name in names]
)
def test_comptime_numbers_and_arrays_give_the_same(device: str, name: str, count: int) -> None:
    cases = tuple(cases_of(count))
    known, found = np.zeros(len(cases)), np.zeros(len(cases))
    function = getattr(cb, name)
    of_comptime_numbers[1, 1](known, function=function, cases=cases, device=device)
    of_arrays[1, len(cases)](np.array(cases), found, function=function, count=count, device=device)
    np.testing.assert_allclose(known, found, rtol=1e-14)
    if name in ("floor", "ceil", "trunc", "round", "abs", "copysign", "fma"):
        np.testing.assert_array_equal(known, found)
        number = known == known  # a NaN has a sign of no meaning
        np.testing.assert_array_equal(np.signbit(known[number]), np.signbit(found[number]))


@cb.kernel
def of_comptime_integers(n: cb.Array, out: cb.Array):
    out[0] = cb.floor(7) // 2 * n[0]
    out[1] = cb.round(7) // 2 * n[0]
    out[2] = cb.max(3, 2) // 2 * n[0]
    out[3] = cb.pow(3, 2) // 2 * n[0]


def test_comptime_integers_stay_integers(device: str) -> None:
    out = np.zeros(4, np.uint8)
    of_comptime_integers[1, 1](np.array([100], np.uint8), out, device=device)
    assert out.tolist() == [300 % 256, 300 % 256, 100, 400 % 256]


@cb.kernel
def quotients_of_strong_numbers(out: cb.Array, *, n: cb.Comptime[Any]):
    out[0] = (n / 4).dtype == cb.f32
    out[1] = (n * 0.5).dtype == cb.f32
    out[2] = (n + 1).dtype == cb.i32


def test_comptime_numbers_of_numpy_have_a_dtype(device: str) -> None:
    out = np.zeros(3, np.bool_)
    quotients_of_strong_numbers[1, 1](out, n=np.int32(6), device=device)
    assert out.all()


@cb.kernel
def position_less_byte(x: cb.Array, out: cb.Array):
    out[cb.UNIT_POS, 0] = cb.UNIT_POS - x[0]
    out[cb.UNIT_POS, 1] = cb.UNIT_POS_Y * 0 + 200 + x[0]
    out[cb.UNIT_POS, 2] = (cb.UNIT_POS_PLANE - x[0]) * cb.cast(0, cb.i32)
    out[cb.UNIT_POS, 3] = (cb.UNIT_POS / 2).dtype == cb.f32


@pytest.mark.parametrize("units", [1, 2])
def test_positions_have_a_dtype_where_there_is_one(device: str, units: int) -> None:
    """A cube of one unit knows its positions when the code is made."""
    out = np.zeros((units, 4), np.int32)
    position_less_byte[1, units](np.array([100], np.uint8), out, device=device)
    assert out.tolist() == [[k - 100, 300, 0, 1] for k in range(units)]
