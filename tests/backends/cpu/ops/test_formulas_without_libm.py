"""The functions of targets without a C library, compiled for this machine and compared with its
own.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("numba")

from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.formulas import large_angles
from cubepy.backends.llvm.ops.formulas.curves import CURVES
from cubepy.backends.llvm.ops.formulas.logarithms import _from_zero, _reflected
from cubepy.backends.llvm.ops.formulas.number import Number
from cubepy.backends.llvm.ops.formulas.powers import power
from tests.backends.cpu.ops import compiled_ops
from tests.backends.cpu.ops.compiled_ops import FLOATS, apply

ULPS = {"f32": 0.52, "f64": 2.0}


def _angle(name: str) -> object:
    emit = lambda b, dtype, x: large_angles.large_angle(b, name, x)
    return elementwise(f"large_{name}", 1, emit, "float", doc="For this test.")


def _negative_lgamma(b: object, dtype: str, x: object) -> object:
    number = Number(b, x)
    return _reflected(number, _from_zero(CURVES["f64"], abs(number))).v


OPS = {f"large_{name}": _angle(name) for name in ("sin", "cos", "tan")}
OPS["own_power"] = elementwise("own_power", 2, power, "float", doc="For this test.")
OPS["own_lgamma"] = elementwise("own_lgamma", 1, _negative_lgamma, "float", doc="For this test.")


@pytest.fixture(autouse=True)
def ops(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, made in OPS.items():
        monkeypatch.setitem(compiled_ops.ops.OPS, name, made)


def far(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distances in units of the last place of `got`, from references in f64."""
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    same |= np.isinf(got) & (np.sign(got) * want > np.finfo(got.dtype).max)
    with np.errstate(all="ignore"):
        step = np.spacing(np.abs(want.astype(got.dtype)))
        return np.where(same, 0, np.abs(got.astype(want.dtype) - want) / step)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_angles_are_reduced_exactly(name: str, dtype: str) -> None:
    rng = np.random.default_rng()
    top = 37.0 if dtype == "f32" else 307.0
    x = 10.0 ** rng.uniform(5.2, top, 2000) * rng.choice([-1, 1], 2000)
    x = x.astype(compiled_ops.NUMPY[dtype])
    (got,) = apply([(f"large_{name}(a)", dtype)], 0, x)
    want = np.array([getattr(math, name)(float(v)) for v in x])
    assert far(got, want).max() <= ULPS[dtype]


def test_the_double_nearest_to_a_multiple_of_a_quarter_turn() -> None:
    """6381956970095103 * 2**797, of which Muller, "Elementary Functions" (2006), has the cosine."""
    x = np.array([6381956970095103.0 * 2.0**797])
    (got,) = apply([("large_cos(a)", "f64")], 0, x)
    assert far(got, np.array([-4.68716592425462761112e-19])).max() <= 1


def test_the_bits_of_two_over_pi() -> None:
    words = large_angles.two_over_pi()
    whole = sum(w << 64 * (large_angles.WORDS - 1 - k) for k, w in enumerate(words))
    value = Fraction(whole, 1 << (64 * (large_angles.WORDS - 1)))
    assert words[0] == 0 and abs(value - Fraction(2 / math.pi)) < 2**-54
    assert words[1] == 0xA2F9836E4E441529 and words[2] == 0xFC2757D1F534DDC0  # 2 / pi = 0.a2f9...


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers(dtype: str) -> None:
    rng = np.random.default_rng()
    x = np.exp(rng.uniform(-80, 80, 4000))
    y = rng.uniform(-1, 1, 4000) * 85 / np.maximum(np.abs(np.log(x)), 0.01)
    x[:500] *= -1
    y[:500] = np.clip(np.rint(y[:500]), -30, 30)
    x[500:1000] = 1 + rng.uniform(-1e-3, 1e-3, 500)
    kind = compiled_ops.NUMPY[dtype]
    x, y = x.astype(kind), y.astype(kind)
    with np.errstate(all="ignore"):
        (got,) = apply([("own_power(a, b)", dtype)], 0, x, y)
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert far(got, want).max() <= ULPS[dtype]


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_that_are_too_large_or_too_small(dtype: str) -> None:
    rng = np.random.default_rng()
    x = np.exp(rng.uniform(0.1, 80, 4000))
    y = rng.uniform(700, 1000, 4000) / np.log(x) * rng.choice([-1, 1], 4000)
    if dtype == "f32":
        y *= rng.uniform(0.1, 1, 4000)
    kind = compiled_ops.NUMPY[dtype]
    x, y = x.astype(kind), y.astype(kind)
    with np.errstate(all="ignore"):
        (got,) = apply([("own_power(a, b)", dtype)], 0, x, y)
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert np.isinf(got).any() and (got == 0).any()
    assert far(got, want).max() <= (32 if dtype == "f64" else ULPS[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
def test_ends_of_powers_are_those_of_c(dtype: str) -> None:
    ends = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, math.inf, -math.inf, math.nan]
    x, y = (v.ravel() for v in np.meshgrid(ends, ends))
    kind = compiled_ops.NUMPY[dtype]
    (got,) = apply([("own_power(a, b)", dtype)], 0, x.astype(kind), y.astype(kind))
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    assert far(got, want).max() <= ULPS[dtype]
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[got == 0]))


def test_lgamma_of_negative_numbers() -> None:
    rng = np.random.default_rng()
    x = -np.concatenate([rng.uniform(0, 30, 2000), 10.0 ** rng.uniform(-300, 15, 500), range(9)])
    (got,) = apply([("own_lgamma(a)", "f64")], 0, x)
    integral = np.rint(x) == x
    assert np.isinf(got[integral]).all()
    want = np.array([math.lgamma(v) for v in x[~integral]])
    np.testing.assert_allclose(got[~integral], want, rtol=1e-14, atol=1e-13)
