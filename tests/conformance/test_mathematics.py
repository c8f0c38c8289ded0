"""Functions of numbers on scalars and lines: accuracy over the whole range, ends, integers,
folding, errors.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from tests.accuracy import BINARY, FORMATS, UNARY, bound, draws, pairs, reference, special, ulps

COUNT = {"cpu": 4000, "cuda": 4000, "python": 600}
EMULATED = 64
"""Numbers on an emulated GPU."""


@cb.kernel
def apply(
    x: cb.Array,
    y: cb.Array,
    z: cb.Array,
    out: cb.Array,
    lanes: cb.Comptime[int],
    unary: cb.Comptime[tuple],
    binary: cb.Comptime[tuple],
):
    i = cb.ABSOLUTE_POS * cb.max(lanes, 1)
    if lanes > 0:
        for k in cb.unroll(range(len(unary))):
            out.store((k, i), unary[k](x.load(i, lanes)))
        for k in cb.unroll(range(len(binary))):
            out.store((len(unary) + k, i), binary[k](y.load(i, lanes), z.load(i, lanes)))
    else:
        for k in cb.unroll(range(len(unary))):
            out[k, i] = unary[k](x[i])
        for k in cb.unroll(range(len(binary))):
            out[len(unary) + k, i] = binary[k](y[i], z[i])


def check(
    device: str, dtype: str, lanes: int, unary: tuple[str, ...], binary: tuple[str, ...]
) -> None:
    """Compare functions of random numbers with their references."""
    rng = np.random.default_rng()
    if device not in COUNT:
        lanes = min(lanes, 2)  # each lane brings all functions once more
    y, z = pairs(dtype, COUNT.get(device, EMULATED), rng)
    size = y.size // 16 * 16
    x, y, z = np.resize(draws(dtype, COUNT.get(device, EMULATED), rng), size), y[:size], z[:size]
    out = np.zeros((len(unary) + len(binary), size), x.dtype)
    functions = [tuple(getattr(cb, n) for n in names) for names in (unary, binary)]
    width = max(lanes, 1)
    apply[size // (16 // width * width), 16 // width](
        x, y, z, out, lanes, *functions, device=device
    )
    for name, got in zip((*unary, *binary), out, strict=True):
        values = (x,) if name in unary else (y, z)
        far = ulps(got, reference(name, *values), dtype)
        if name == "lgamma" and (dtype == "f64" or device != "cpu"):
            far = np.where(
                x < 0, 0, far
            )  # near a zero between two poles only the absolute error is small
        worst = int(far.argmax())
        assert far[worst] <= bound(name, dtype, device), (
            f"{name} {dtype} x {lanes}: {far[worst]} ulp, "
            f"{[v[worst] for v in values]!r} gives {got[worst]!r}"
        )


@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_functions_are_accurate_over_the_whole_range(device: str, dtype: str, lanes: int) -> None:
    check(device, dtype, lanes, tuple(UNARY), tuple(BINARY))


@pytest.mark.parametrize(("dtype", "lanes"), [("f16", 4), ("bf16", 0)])
def test_functions_of_narrow_floats_are_rounded_once_more(
    device: str, dtype: str, lanes: int
) -> None:
    check(device, dtype, lanes, ("tan", "acosh", "erfc"), ("hypot", "fmod"))


@cb.kernel
def signs(x: cb.Array, out: cb.Array, finite: cb.Array, lanes: cb.Comptime[int]):
    i = cb.ABSOLUTE_POS * lanes
    out.store((0, i), cb.sign(x.load(i, lanes)))
    finite.store((0, i), cb.isfinite(x.load(i, lanes)))
    for k in range(lanes):
        out[1, i + k] = cb.sign(x[i + k])
        finite[1, i + k] = cb.isfinite(x[i + k])


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint32, np.int64]
)
def test_signs_and_what_is_finite(device: str, dtype: Any) -> None:
    name = next((n for n, f in FORMATS.items() if f[0] == dtype), "")
    x = (
        special(name)
        if name
        else np.array([0, 1, 5, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    )
    x = np.resize(x, 20)
    out, finite = np.zeros((2, 20), dtype), np.zeros((2, 20), np.bool_)
    signs[5, 1](x, out, finite, 4, device=device)
    for row in (0, 1):
        np.testing.assert_array_equal(out[row].astype(float), np.sign(x.astype(float)))
        np.testing.assert_array_equal(finite[row], np.isfinite(x.astype(float)))


@cb.kernel
def powers(x: cb.Array, n: cb.Array, out: cb.Array, lanes: cb.Comptime[int]):
    i = cb.ABSOLUTE_POS * lanes
    out.store((0, i), cb.ldexp(x.load(i, lanes), n.load(i, lanes)))
    for k in range(lanes):
        out[1, i + k] = cb.ldexp(x[i + k], n[i + k])
        out[2, i + k] = cb.ldexp(x[i + k], -140)


@pytest.mark.parametrize(
    ("dtype", "counts"),
    [
        ("f32", np.int32),
        ("f64", np.int64),
        ("f64", np.int16),
        ("f32", np.uint64),
        ("f16", np.int32),
    ],
)
def test_ldexp_rounds_once(device: str, dtype: str, counts: type) -> None:
    rng, info = np.random.default_rng(), np.iinfo(counts)
    x = np.resize(draws(dtype, 480, rng), 480)
    n = rng.integers(-2200 if info.min else 0, 2200, x.size).astype(counts)
    n[::3] = rng.integers(-300 if info.min else 0, 300, n[::3].size)
    n[::11], n[5::11] = info.min, info.max
    out = np.zeros((3, x.size), x.dtype)
    powers[x.size // 8, 1](x, n, out, 8, device=device)
    with np.errstate(all="ignore"):
        counted = np.array([max(-9999, min(9999, int(v))) for v in n])
        wide = x.astype(np.float64 if x.dtype != np.float64 else np.longdouble)
        want = [np.ldexp(wide, counted).astype(x.dtype)] * 2 + [
            np.ldexp(wide, -140).astype(x.dtype)
        ]
    np.testing.assert_array_equal(out, np.array(want))
    np.testing.assert_array_equal(np.signbit(out)[out == 0], np.signbit(np.array(want))[out == 0])


@cb.kernel
def halves(a: cb.Array, b: cb.Array, out: cb.Array, lanes: cb.Comptime[int]):
    i = cb.ABSOLUTE_POS * lanes
    x, y = a.load(i, lanes), b.load(i, lanes)
    out.store((0, i), cb.mulhi(x, y))
    out.store((1, i), cb.reverse_bits(x))
    for k in range(lanes):
        out[2, i + k] = cb.mulhi(a[i + k], b[i + k])
        out[3, i + k] = cb.reverse_bits(a[i + k])


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_high_halves_of_products_and_bits_in_reverse(device: str, dtype: type) -> None:
    info, rng = np.iinfo(dtype), np.random.default_rng()
    bits = info.bits
    edge = [0, 1, 2, info.max, info.max - 1, info.min, info.min + 1, info.max >> 1]
    a = np.array([x for x in edge for _ in edge], dtype)
    b = np.array(edge * len(edge), dtype)
    a[-24:], b[-24:] = (
        rng.integers(info.min, info.max, 24, dtype, endpoint=True) for _ in range(2)
    )
    out = np.zeros((4, a.size), dtype)
    halves[a.size // 8, 1](a, b, out, 8, device=device)

    def turned(x: int) -> int:
        code = sum((x >> k & 1) << (bits - 1 - k) for k in range(bits))
        return code - (1 << bits) if code > info.max else code

    want = [
        [int(x) * int(y) >> bits for x, y in zip(a, b, strict=True)],
        [turned(int(x)) for x in a],
    ]
    assert out.tolist() == want * 2


@cb.kernel
def folded(out: cb.Array, *, x: cb.Comptime[float], n: cb.Comptime[int]):
    known = (
        cb.tan(x),
        cb.atan2(x, -1.0),
        cb.hypot(3, 4),
        cb.lgamma(0),
        cb.acosh(x),
        cb.erfc(x),
        cb.fmod(-7, 4),
        cb.copysign(x, -0.0),
        cb.sign(-x),
        cb.ldexp(x, n),
        cb.mulhi(1 << 30, n),
        cb.reverse_bits(n),
        1 if cb.isfinite(x) else 0,
        math.atan(x),
        math.cosh(x),
    )
    for k in cb.unroll(range(len(known))):
        out[k] = cb.comptime(known[k])


def test_functions_of_comptime_numbers_are_comptime(device: str) -> None:
    out = np.zeros(15)
    folded[1, 1](out, x=0.5, n=12, device=device)
    want = [
        math.tan(0.5),
        math.atan2(0.5, -1),
        5,
        math.inf,
        math.nan,
        math.erfc(0.5),
        -3,
        -0.5,
        -1,
        2048,
        (12 << 30) >> 32,
        0b11 << 28,
        1,
        math.atan(0.5),
        math.cosh(0.5),
    ]
    np.testing.assert_allclose(out, want, rtol=1e-15)


@cb.kernel
def of_integers(n: cb.Array, out: cb.Array):
    out[0] = cb.atan(n[0])
    out[1] = cb.hypot(n[0], 2)
    out[2] = cb.fmod(n[0], 2.0)
    out[3] = math.copysign(n[0], -1)
    out[4] = cb.ldexp(n[0], 1)
    wide = cb.atan(n[0])
    out[5] = 1 if wide.dtype == cb.f64 else 0


@pytest.mark.parametrize(("dtype", "is_wide"), [(np.int32, 0), (np.int64, 1), (np.bool_, 0)])
def test_functions_of_integers_give_floats(device: str, dtype: type, is_wide: int) -> None:
    out = np.zeros(6)
    of_integers[1, 1](np.array([1], dtype), out, device=device)
    want = [math.atan(1), math.sqrt(5), 1, -1, 2, is_wide]
    np.testing.assert_allclose(out, want, rtol=1e-15 if is_wide else 1e-7)


@cb.kernel
def half_of_floats(x: cb.Array):
    x[0] = cb.mulhi(x[0], x[0])


@cb.kernel
def bits_of_floats(x: cb.Array):
    x[0] = cb.reverse_bits(x[0])


@cb.kernel
def float_exponent(x: cb.Array):
    x[0] = cb.ldexp(x[0], x[0])


@cb.kernel
def sign_of_bool(x: cb.Array):
    x[0] = cb.sign(x[0] > 0)


@pytest.mark.parametrize(
    ("kernel", "rule"),
    [
        (half_of_floats, "cb.mulhi needs integers, not f32"),
        (bits_of_floats, "cb.reverse_bits needs integers, not f32"),
        (float_exponent, "cb.ldexp needs an integer exponent, not f32"),
        (sign_of_bool, "cb.sign needs a number, not bool_"),
    ],
)
def test_wrong_dtypes_are_named(device: str, kernel: Any, rule: str) -> None:
    with pytest.raises(errors.DTypeError, match=rule):
        kernel[1, 1](np.ones(1, np.float32), device=device)
