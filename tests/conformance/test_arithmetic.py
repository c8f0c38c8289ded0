"""Numbers: promotion, wrapping, rounding, casts and math, the same on every backend and equal to
NumPy in float64.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb

F = np.float32


@cb.kernel
def integers(a: cb.Array, b: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    x, y = a[i], b[i]
    out[i, 0] = x + y
    out[i, 1] = x - y
    out[i, 2] = x * y
    out[i, 3] = x // y
    out[i, 4] = x % y
    out[i, 5] = x & y
    out[i, 6] = x | y
    out[i, 7] = x ^ y
    out[i, 8] = x << y
    out[i, 9] = x >> y
    out[i, 10] = -x
    out[i, 11] = ~x
    out[i, 12] = cb.min(x, y)
    out[i, 13] = cb.max(x, y)
    out[i, 14] = cb.popcount(x)
    out[i, 15] = cb.clz(x)
    out[i, 16] = cb.ctz(x)
    out[i, 17] = x**2


def exact(x: int, y: int, dtype: np.dtype) -> list[int]:
    bits, signed = dtype.itemsize * 8, dtype.kind == "i"

    def wrap(v: int) -> int:
        v &= (1 << bits) - 1
        return v - (1 << bits) if signed and v >> (bits - 1) else v

    u = x & ((1 << bits) - 1)
    inside = 0 <= y < bits
    return [
        wrap(x + y), wrap(x - y), wrap(x * y), wrap(x // y) if y else 0, wrap(x % y) if y else 0, wrap(x & y),
        wrap(x | y), wrap(x ^ y), wrap(x << y) if inside else 0, wrap(x >> y) if inside else (-1 if x < 0 else 0),
        wrap(-x), wrap(~x), min(x, y), max(x, y), bin(u).count("1"), bits - u.bit_length(),
        bits if u == 0 else (u & -u).bit_length() - 1, wrap(x * x),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
)
def test_integers_wrap_in_their_own_dtype(device: str, dtype: type) -> None:
    info, d = np.iinfo(dtype), np.dtype(dtype)
    edge = [0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.min, info.min + 1] + (
        [-1, -2, -7] if info.min else []
    )
    pairs = [(x, y) for x in edge for y in edge]
    a, b = (np.array([p[k] for p in pairs], dtype) for k in (0, 1))
    out = np.zeros((len(pairs), 18), dtype)
    integers[len(pairs), 1](a, b, out, device=device)
    assert out.tolist() == [exact(int(x), int(y), d) for x, y in pairs]


@cb.kernel
def promotes(a: cb.Array, b: cb.Array, out: cb.Array):
    s = a[0] + b[0]
    q = a[0] / b[0]
    out[0] = (
        1 if s.dtype == cb.f64 else (2 if s.dtype == cb.f32 else (3 if s.dtype == cb.i64 else 0))
    )
    out[1] = s
    out[2] = q
    out[3] = 1 if q.dtype == cb.f64 else 0
    h = a[0] + 0.5
    out[4] = h


@pytest.mark.parametrize(
    ("a", "b", "kind", "wide"),
    [
        (np.int64, np.float32, 2, 0), (np.uint32, np.int32, 3, 0), (np.float16, ml_dtypes.bfloat16, 2, 0),
        (np.int32, np.int32, 0, 0), (np.int64, np.int8, 3, 1), (np.float64, np.float32, 1, 1), (np.bool_, np.int64, 3, 1),
        (np.uint64, np.int64, 3, 1), (np.float16, np.int64, 0, 0),
    ],
)  # fmt: skip
def test_promotion(device: str, a: type, b: type, kind: int, wide: int) -> None:
    out = np.zeros(5, np.float64)
    promotes[1, 1](np.array([1], a), np.array([2], b), out, device=device)
    assert out.tolist() == [kind, 3, 0.5, wide, 1.5]


@cb.kernel
def narrow(a: cb.Array, b: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    x, y = a[i], b[i]
    out[i] = x * y + x / y - y


@cb.kernel
def numbers_of_many_digits(out: cb.Array):
    out[0] = 10**30
    out[1] = -(2**1000)
    out[2] = out[0] * 10**20


def test_integers_of_many_digits_are_floats_where_floats_are_meant(device: str) -> None:
    out = np.zeros(3, np.float32)
    numbers_of_many_digits[1, 1](out, device=device)
    np.testing.assert_array_equal(out, np.array([1e30, -np.inf, np.inf], np.float32))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
def test_narrow_floats_round_after_every_operation(device: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0.5, 4, 64).astype(dtype) for _ in range(2))
    out = np.zeros(64, dtype)
    narrow[1, 64](a, b, out, device=device)

    def r(v: np.ndarray) -> np.ndarray:
        return v.astype(dtype).astype(F)

    x, y = a.astype(F), b.astype(F)
    np.testing.assert_array_equal(out.astype(F), r(r(r(x * y) + r(x / y)) - y))


@cb.kernel
def casts(x: cb.Array, i8: cb.Array, u8: cb.Array, i64: cb.Array, flags: cb.Array):
    i = cb.ABSOLUTE_POS
    i8[i] = cb.cast(x[i], cb.i8)
    u8[i] = cb.u8(x[i])
    i64[i] = cb.cast(x[i], cb.i64)
    flags[i] = cb.cast(x[i], cb.bool_)


def test_floats_truncate_and_saturate_into_integers(device: str) -> None:
    x = np.array([1.9, -1.9, 300, -300, np.nan, np.inf, -np.inf, 0, 1e30], F)
    i8, u8, i64, flags = (np.zeros(9, t) for t in (np.int8, np.uint8, np.int64, np.bool_))
    casts[1, 9](x, i8, u8, i64, flags, device=device)
    assert i8.tolist() == [1, -1, 127, -128, 0, 127, -128, 0, 127]
    assert u8.tolist() == [1, 0, 255, 0, 0, 255, 0, 0, 255]
    top = 2**63 - 1
    assert i64.tolist() == [1, -1, 300, -300, 0, top, -(2**63), 0, top]
    assert flags.tolist() == [True] * 7 + [False, True]


@cb.kernel
def mathematics(x: cb.Array, out: cb.Array, lanes: cb.Comptime[int]):
    v = x.load(0, lanes)
    n = lanes
    out.store(0, cb.exp(v))
    out.store(n, cb.log(cb.abs(v) + 0.5))
    out.store(2 * n, cb.tanh(v))
    out.store(3 * n, cb.erf(v))
    out.store(4 * n, cb.sin(v))
    out.store(5 * n, cb.cos(v))
    out.store(6 * n, cb.sqrt(cb.abs(v)))
    out.store(7 * n, cb.rsqrt(cb.abs(v) + 1))
    out.store(8 * n, cb.floor(v))
    out.store(9 * n, cb.ceil(v))
    out.store(10 * n, cb.round(v))
    out.store(11 * n, cb.exp2(v))
    out.store(12 * n, cb.log1p(cb.abs(v)))
    out.store(13 * n, cb.expm1(v))
    out.store(14 * n, cb.clamp(v, -1, 1))
    out.store(15 * n, cb.fma(v, v, v))
    out.store(16 * n, cb.pow(cb.abs(v), 1.5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_math_on_lines_is_close_to_float64(device: str, dtype: type) -> None:
    lanes = 16
    x = np.linspace(-4.3, 4.1, lanes).astype(dtype)
    out = np.zeros((17, lanes), dtype)
    mathematics[1, 1](x, out.reshape(-1), lanes, device=device)
    d = x.astype(np.float64)
    erf = np.array([math.erf(t) for t in d])
    want = [np.exp(d), np.log(abs(d) + 0.5), np.tanh(d), erf, np.sin(d), np.cos(d), np.sqrt(abs(d)),
            1 / np.sqrt(abs(d) + 1), np.floor(d), np.ceil(d), np.rint(d), np.exp2(d), np.log1p(abs(d)), np.expm1(d),
            np.clip(d, -1, 1), d * d + d, abs(d) ** 1.5]  # fmt: skip
    np.testing.assert_allclose(
        out, np.array(want), rtol=2e-6 if dtype is np.float32 else 5e-15, atol=1e-7
    )


@cb.kernel
def not_numbers(x: cb.Array, out: cb.Array):
    a, b = x[0], x[1]
    out[0] = cb.min(a, b)
    out[1] = cb.max(a, b)
    out[2] = cb.nan_min(a, b)
    out[3] = cb.nan_max(a, b)
    out[4] = 1 if a == a else 0
    out[5] = 1 if cb.isnan(a) and not cb.isinf(b) else 0
    out[6] = 1 if a != b else 0


def test_nan_is_ignored_or_propagated_as_asked(device: str) -> None:
    out = np.zeros(7, F)
    not_numbers[1, 1](np.array([np.nan, 2], F), out, device=device)
    assert out[:2].tolist() == [2, 2] and np.isnan(out[2:4]).all() and out[4:].tolist() == [0, 1, 1]


@cb.kernel
def float_powers(x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    for k in range(y.size):
        out[i, k] = x[i] ** y[k]
    out[i, y.size] = x[i] ** 0.5
    v = cb.splat(x[i], 4) ** 0.5
    out[i, y.size + 1] = v[2]
    out[i, y.size + 2] = 2.0 ** x[i]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_powers_of_special_values(device: str, dtype: type) -> None:
    x = np.array([-math.inf, -8.0, -1.0, -0.0, 0.0, 0.25, 1.0, 9.0, math.inf, math.nan], dtype)
    y = np.array([0.5, -0.5, 0.0, 1.0, -1.0, 2.0, 3.0, math.inf, -math.inf, math.nan], dtype)
    out = np.zeros((10, 13), dtype)
    float_powers[1, 10](x, y, out, device=device)
    exponents = np.concatenate([y, np.array([0.5, 0.5], dtype)])
    base, exponent = (np.array(a, np.float64) for a in np.broadcast_arrays(x[:, None], exponents))
    with np.errstate(all="ignore"):
        want = np.column_stack([np.power(base, exponent), np.exp2(x.astype(np.float64))]).astype(
            dtype
        )
    np.testing.assert_allclose(out, want, rtol=np.finfo(dtype).eps)
    np.testing.assert_array_equal(np.signbit(out)[want == 0], np.signbit(want)[want == 0])


@cb.kernel
def divides(x: cb.Array, y: cb.Array, out: cb.Array):
    """In a loop over units, in lines, and where each turn waits for the one before."""
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[i, 0] = x[i] // y[i]
        out[i, 1] = x[i] % y[i]
        u = x[i]
        v = y[i]
        while v != 0:
            u, v = v, u % v
        out[i, 2] = u
    if i < x.size // 8:
        k = 8 * i
        line = x.load(k, 8) // y.load(k, 8) - x.load(k, 8) % y.load(k, 8)
        for j in cb.unroll(range(8)):
            out[k + j, 3] = line[j]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64])
def test_quotients_beside_whole_numbers_are_exact(dtype: type, device: str) -> None:
    """Products and their neighbours, where a rounded quotient would be one too large."""
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    count = 64 if device == "python" else 4096
    y = np.exp(rng.uniform(0, np.log(float(info.max)), count)).astype(dtype)
    y[:6] = (0, 1, 2, 3, info.max, info.max - 1)
    y[6:8] = info.min, max(info.min, -1) if info.min else 7
    if info.min:
        y[8::2] = -y[8::2]
    most = float(info.max) / np.abs(y.astype(np.float64)).clip(1)
    whole = np.floor(rng.uniform(0, 1, count) * most).astype(object) * y.astype(object)
    shift = rng.integers(-1, 2, count).astype(object)
    x = np.clip(whole + shift, info.min, info.max).astype(dtype)
    x[7] = info.min
    out = np.zeros((count, 4), dtype)
    divides[cb.over(count)](x, y, out, device=device)
    bits = np.iinfo(dtype).bits

    def wrapped(v: int) -> int:
        v &= (1 << bits) - 1
        return v - (1 << bits) if info.min and v >> (bits - 1) else v

    for a, b, row in zip(x.tolist(), y.tolist(), out.tolist(), strict=True):
        q, r = (wrapped(a // b), a % b) if b else (0, 0)
        assert row[:2] == [q, r] and row[3] == wrapped(q - r), (a, b, row)
        assert b == 0 or abs(row[2]) == math.gcd(a, b) or row[2] == info.min, (a, b, row)


@cb.kernel
def extremes_of_bools(x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS * 4
    a, b = x.load(i, 4), y.load(i, 4)
    out.store((0, i), cb.max(a, b))
    out.store((1, i), cb.nan_min(a, b))
    for k in range(4):
        out[2, i + k] = cb.clamp(x[i + k], y[i + k], True)
        out[3, i + k] = cb.min(x[i + k], y[i + k])


def test_bools_have_extremes(device: str) -> None:
    x, y = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    out = np.zeros((4, 4), bool)
    extremes_of_bools[1, 1](x, y, out, device=device)
    assert out.tolist() == [(x | y).tolist(), (x & y).tolist()] * 2


@cb.kernel
def divided(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[i, 0] = x[i] / 4294967296
        out[i, 1] = 1000 / (x[i] + 1)
        out[i, 2] = -1 / (x[i] + 1)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u4", "i4", "u8", "i8", "f4"])
def test_division_takes_numbers_that_integers_cannot_hold(device: str, dtype: str) -> None:
    x, out = np.array([3, 100, 7], dtype), np.zeros((3, 3))
    with cb.use(device):
        divided[1, 4](x, out)
        cb.sync(device)
    wide = x.astype(np.float64)
    want = np.stack([wide / 4294967296, 1000 / (wide + 1), -1 / (wide + 1)], axis=1)
    np.testing.assert_allclose(out, want, rtol=1e-6)
