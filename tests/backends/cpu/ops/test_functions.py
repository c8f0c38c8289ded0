"""Functions of lines (exp, sin, powers) in generated CPU code, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.backends.cpu.ops.compiled_ops import FLOATS, NUMPY, N, apply, compiled, floats


def spread(dtype: str, low: float, high: float) -> np.ndarray:
    """Values in a range: evenly spread, and with evenly spread exponents, of both signs where the
    range has them.
    """
    rng = np.random.default_rng(17)
    even = rng.uniform(low, high, 1500)
    exponents = 10.0 ** rng.uniform(-40 if dtype == "f32" else -300, math.log10(high), 1500)
    exponents[:700] *= -1 if low < 0 else 1
    both = np.concatenate([even, exponents[(exponents >= low) & (exponents <= high)]])
    with np.errstate(all="ignore"):
        out = both.astype(NUMPY[dtype])
    return out[: out.size // N * N]


ULP = 4.0
RANGES = {
    "exp": {"f32": (-104, 89), "f64": (-746, 710)},
    "exp2": {"f32": (-151, 128.5), "f64": (-1076, 1024.5)},
    "expm1": {"f32": (-20, 89), "f64": (-40, 710)},
    "log": {"f32": (0, 3e38), "f64": (0, 1e308)},
    "log2": {"f32": (0, 3e38), "f64": (0, 1e308)},
    "log1p": {"f32": (-1, 3e38), "f64": (-1, 1e308)},
    "tanh": {"f32": (-12, 12), "f64": (-22, 22)},
    "erf": {"f32": (-6, 6), "f64": (-7, 7)},
    "rsqrt": {"f32": (0, 3e38), "f64": (0, 1e308)},
    "sin": {"f32": (-1e5, 1e5), "f64": (-1e8, 1e8)},
    "cos": {"f32": (-1e5, 1e5), "f64": (-1e8, 1e8)},
}


def reference(name: str, x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)
    with np.errstate(all="ignore"):
        if name == "erf":
            return np.array([math.erf(float(v)) for v in x])
        if name == "rsqrt":
            return 1 / np.sqrt(wide)
        return getattr(np, name)(wide)


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of the wanted value."""
    kind = got.dtype.type
    info = np.finfo(kind)
    with np.errstate(all="ignore"):
        near = want.astype(kind)
        size = np.maximum(
            np.abs(np.spacing(np.where(np.isfinite(near), near, info.max))), info.smallest_subnormal
        )
        away = np.abs(got.astype(want.dtype) - want) / size.astype(want.dtype)
    equal = (got == near) | (np.isnan(got) & np.isnan(near))
    return np.where(equal, 0, np.where(np.isfinite(got) & np.isfinite(near), away, np.inf))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", RANGES)
def test_vector_math_is_accurate(name: str, dtype: str) -> None:
    x = spread(dtype, *RANGES[name][dtype])
    if name in ("log", "log2", "log1p"):
        near_one = 1 + np.linspace(-0.4, 0.6, x.size // 4) - (name == "log1p")
        x[: near_one.size] = near_one
    for width in (0, 16):
        got = apply([(f"{name}(a)", dtype)], width, x)[0]
        worst = ulps(got, reference(name, x))
        assert worst.max() <= ULP, (
            f"{name} {dtype} x {width}: {worst.max()} ulp at {x[worst.argmax()]!r}"
        )


@pytest.mark.parametrize("dtype", FLOATS)
def test_vector_math_at_the_edges(dtype: str) -> None:
    info = np.finfo(NUMPY[dtype])
    edge = [0.0, -0.0, 1, -1, math.inf, -math.inf, math.nan, info.max, -info.max, info.tiny, -info.tiny,
            info.smallest_subnormal, -info.smallest_subnormal, 1000, -1000, 1e30, -1e30, 2, -2, 0.5]  # fmt: skip
    x = np.resize(np.array(edge, NUMPY[dtype]), N)
    names = [n for n in RANGES if n not in ("sin", "cos")]
    wants = {n: reference(n, x) for n in names}
    for width in (0, 3, 16):
        for n, got in zip(names, apply([(f"{n}(a)", dtype) for n in names], width, x), strict=True):
            bad = ulps(got, wants[n]) > ULP
            assert not bad.any(), f"{n} {dtype} x {width}: {x[bad][:3]} gives {got[bad][:3]}"
            zero = (got == 0) & (wants[n] == 0)
            assert (np.signbit(got[zero]) == np.signbit(wants[n][zero])).all(), f"{n}: sign of zero"


@pytest.mark.parametrize("dtype", FLOATS)
def test_vector_math_survives_fast_math(dtype: str) -> None:
    """Corrections of rounding errors must not be optimised away."""
    rng = np.random.default_rng(21)
    x = np.concatenate([10.0 ** rng.uniform(-20, 1.5, 2 * N), rng.uniform(0.6, 1.6, N)]).astype(
        NUMPY[dtype]
    )
    outs = [np.zeros_like(x) for _ in RANGES]
    body = [f"for i in range(0, {x.size}, 16):", "    a = load_line(p0, i, 16)"]
    body += [f"    store_line(p{k + 1}, i, {name}(a))" for k, name in enumerate(RANGES)]
    kernel = compiled("\n".join(body), [dtype] * (len(RANGES) + 1), fastmath=True)
    kernel(x.ctypes.data, *(o.ctypes.data for o in outs), 0, 0)
    for name, got in zip(RANGES, outs, strict=True):
        assert ulps(got, reference(name, x)).max() <= 2 * ULP, name


@pytest.mark.parametrize("dtype", FLOATS)
def test_sine_of_huge_and_special_arguments(dtype: str) -> None:
    values = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        1e6,
        1e10,
        1e22,
        -3e30,
        22.0,
        355.0,
        math.pi,
        1e-30,
        5e8,
    ]
    x = np.resize(np.array(values, NUMPY[dtype]), N)
    for width in (0, 3, 16):
        for name, got in zip(
            ("sin", "cos"), apply([("sin(a)", dtype), ("cos(a)", dtype)], width, x), strict=True
        ):
            want = np.array(
                [
                    getattr(math, name)(v) if math.isfinite(v) else math.nan
                    for v in x.astype(np.float64)
                ]
            )
            assert ulps(got, want).max() <= ULP, f"{name} {dtype} x {width}"
            if name == "sin":
                assert (np.signbit(got[x == 0]) == np.signbit(x[x == 0])).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_of_floats(dtype: str) -> None:
    a, b = np.abs(floats(dtype, 18)), floats(dtype, 19)
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64 if dtype == "f32" else np.longdouble), b)
    for width in (0, 3, 16):
        assert ulps(apply([("pow_(a, b)", dtype)], width, a, b)[0], want).max() <= ULP
