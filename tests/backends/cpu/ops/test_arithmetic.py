"""Arithmetic, casts and narrow floats of generated CPU code, against NumPy, Python's integers and
ml_dtypes.
"""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.backends.cpu.ops.compiled_ops import (
    FLOATS,
    INTS,
    NUMPY,
    WIDTHS,
    N,
    apply,
    floats,
    int_reference,
    ints,
    same,
    wrapped,
)

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
INT_PAIRS = ("add", "sub", "mul", "and_", "or_", "xor", "minnum", "maxnum", "minimum", "maximum",
             "floordiv", "mod", "floordiv_by", "mod_by", "shl", "shr", "pow_")  # fmt: skip


@pytest.mark.parametrize("dtype", INTS)
def test_integer_arithmetic_wraps_and_never_traps(dtype: str) -> None:
    widths = WIDTHS[:-1] if dtype in ("i32", "u8") else (0, 3, 16)
    a, b = ints(dtype, 1), ints(dtype, 2)
    bits = int(dtype[1:])
    unary = {
        "neg(a)": lambda x: wrapped(-x, dtype), "inv(a)": lambda x: wrapped(~x, dtype),
        "absolute(a)": lambda x: wrapped(abs(x), dtype), "popcount(a)": lambda x: (x & (1 << bits) - 1).bit_count(),
        "clz(a)": lambda x: bits - (x & (1 << bits) - 1).bit_length(),
        "ctz(a)": lambda x: ((x & -x).bit_length() - 1) if x else bits,
    }  # fmt: skip
    exprs = [(f"{f}(a, b)", dtype) for f in INT_PAIRS] + [(e, dtype) for e in unary]
    exprs += [(f"{f}(a, b)", "bool_") for f in COMPARISONS] + [("select(lt(a, b), a, b)", dtype)]
    want = [
        [int_reference(f, int(x), int(y), dtype) for x, y in zip(a, b, strict=True)]
        for f in INT_PAIRS
    ]
    want += [[f(int(x)) for x in a] for f in unary.values()]
    want += [getattr(operator, f)(a, b) for f in COMPARISONS] + [np.minimum(a, b)]
    for width in widths:
        for (e, d), got, w in zip(exprs, apply(exprs, width, a, b), want, strict=True):
            same(got, np.array(w, NUMPY[d]), f"{e} on {dtype} x {width}")


@pytest.mark.parametrize("width", (0, 3, 16))
@pytest.mark.parametrize("dtype", INTS)
def test_constants_are_numbers_like_any_other(dtype: str, width: int) -> None:
    """Divisors and shifts that are known to the code, whose ways are shorter: edges and random."""
    info, bits = np.iinfo(NUMPY[dtype]), int(dtype[1:])
    rng = np.random.default_rng(bits + width)
    edges = {*range(-3, 11), bits - 1, bits, info.max, info.max // 2 + 1, info.min}
    drawn = rng.integers(info.min, info.max, 3, dtype=NUMPY[dtype], endpoint=True)
    numbers = sorted({*(n for n in edges if info.min <= n <= info.max), *map(int, drawn)})
    a = ints(dtype, 3)
    functions = "floordiv", "mod", "floordiv_by", "mod_by", "shl", "shr"
    cases = [(f, n) for f in functions for n in numbers]
    exprs = []
    for f, n in cases:
        number = f"{dtype}({n})"
        exprs.append((f"{f}(a, {f'splat({number}, {width})' if width else number})", dtype))
    for (e, d), got, (f, n) in zip(exprs, apply(exprs, width, a), cases, strict=True):
        want = [int_reference(f, int(x), n, dtype) for x in a]
        same(got, np.array(want, NUMPY[d]), f"{e} on {dtype} x {width}")


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_arithmetic_equals_numpy(dtype: str) -> None:
    a, b, c = (floats(dtype, k) for k in (1, 2, 3))
    f = NUMPY[dtype]
    with np.errstate(all="ignore"):
        table = {
            "add(a, b)": a + b, "sub(a, b)": a - b, "mul(a, b)": a * b, "truediv(a, b)": a / b, "neg(a)": -a,
            "absolute(a)": abs(a), "floor(a)": np.floor(a), "ceil(a)": np.ceil(a), "trunc(a)": np.trunc(a),
            "rint(a)": np.rint(a), "sqrt(a)": np.sqrt(a), "floordiv(a, b)": a // b, "mod(a, b)": np.mod(a, b),
            "select(lt(a, b), a, b)": np.where(a < b, a, b),
        }  # fmt: skip
        unsigned_zero = {
            "minnum(a, b)": np.fmin(a, b), "maxnum(a, b)": np.fmax(a, b),
            "minimum(a, b)": np.minimum(a, b), "maximum(a, b)": np.maximum(a, b),
        }  # fmt: skip
        masks = {f"{g}(a, b)": getattr(operator, g)(a, b) for g in COMPARISONS}
        masks |= {"isnan(a)": np.isnan(a), "isinf(a)": np.isinf(a)}
    exprs = [(e, dtype) for e in (*table, *unsigned_zero, "fma(a, b, c)")] + [
        (e, "bool_") for e in masks
    ]
    want = [*table.values(), *unsigned_zero.values(), None, *masks.values()]
    for width in WIDTHS if dtype == "f32" else (0, 3, 16):
        for (e, _), got, w in zip(exprs, apply(exprs, width, a, b, c), want, strict=True):
            what = f"{e} on {dtype} x {width}"
            if w is None:
                finite = (
                    np.isfinite(a)
                    & np.isfinite(b)
                    & np.isfinite(c)
                    & (abs(a) < 1e9)
                    & (abs(b) < 1e9)
                )
                for x, y, z, r in zip(a[finite], b[finite], c[finite], got[finite], strict=True):
                    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
                    assert r == (f(float(exact)) if dtype == "f64" else _to_f32(exact)), what
            elif e in unsigned_zero:
                np.testing.assert_array_equal(got, w, err_msg=what)
            else:
                same(got, w, what)


def _to_f32(x: Fraction) -> np.float32:
    """Correctly rounded."""
    near = np.float32(float(x))
    if not np.isfinite(near):
        return near
    with np.errstate(over="ignore"):
        options = [
            near,
            np.nextafter(near, np.float32(np.inf)),
            np.nextafter(near, np.float32(-np.inf)),
        ]
    best = min(abs(Fraction(float(o)) - x) for o in options if np.isfinite(o))
    ties = [o for o in options if np.isfinite(o) and abs(Fraction(float(o)) - x) == best]
    return min(ties, key=lambda o: int(o.view(np.uint32)) & 1)


def test_python_operators_work_on_lines() -> None:
    a, b = floats("f32", 4), floats("f32", 5)
    i, j = ints("u32", 6), ints("u32", 7)
    with np.errstate(all="ignore"):
        for width in (3, 16):
            table = {"a + b": a + b, "a - b": a - b, "a * b": a * b, "a / b": a / b, "-a": -a}
            for (e, w), got in zip(
                table.items(), apply([(e, "f32") for e in table], width, a, b), strict=True
            ):
                same(got, w, e)
            masks = {f"a {s} b": f for s, f in (("<", a < b), ("<=", a <= b), (">", a > b), (">=", a >= b),
                                                ("==", a == b), ("!=", a != b))}  # fmt: skip
            masks |= {"(a < b) & (a > b)": (a < b) & (a > b), "(a < b) | (a > b)": (a < b) | (a > b),
                      "(a < b) ^ (b == b)": (a < b) ^ ~np.isnan(b), "~(a < b)": ~(a < b),
                      "not_(a < b)": ~(a < b)}  # fmt: skip
            for (e, w), got in zip(
                masks.items(), apply([(e, "bool_") for e in masks], width, a, b), strict=True
            ):
                same(got, w, e)
            whole = {"a + b": i + j, "a - b": i - j, "a * b": i * j, "a & b": i & j, "a | b": i | j,
                     "a ^ b": i ^ j, "~a": ~i, "-a": np.uint32(0) - i}  # fmt: skip
            for (e, w), got in zip(
                whole.items(), apply([(e, "u32") for e in whole], width, i, j), strict=True
            ):
                same(got, w, e)


def float_to_int(x: float, dtype: str) -> int:
    info = np.iinfo(NUMPY[dtype])
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return info.max if x > 0 else info.min
    return min(max(math.trunc(x), info.min), info.max)


CASTS = (*INTS, "f32", "f64", "bool_")


@pytest.mark.parametrize("source", [*INTS, *FLOATS, "bool_"])
def test_casts_wrap_saturate_and_round_once(source: str) -> None:
    if source == "bool_":
        a = np.arange(N) % 3 == 0
    elif source in FLOATS:
        a = floats(source, 8)
        a[-40:] = (2.0 ** np.arange(40) * 1.3).astype(NUMPY[source])
    else:
        a = ints(source, 9)
    exprs = [(f"{d}(a)", d) for d in CASTS]
    values = [v.item() for v in a]
    for width in (0, 3, 16, 64) if source in ("f32", "i32") else (0, 16):
        for (e, d), got in zip(exprs, apply(exprs, width, a), strict=True):
            if d in INTS:
                want = [
                    float_to_int(v, d) if source in FLOATS else wrapped(int(v), d) for v in values
                ]
            elif d == "bool_":
                want = [v != 0 for v in values]
            else:
                with np.errstate(all="ignore"):
                    want = a.astype(NUMPY[d])
            same(got, np.array(want, NUMPY[d]), f"{e} from {source} x {width}")


def narrow_reference(x: Any, dtype: str) -> float:
    """Rounded once, to nearest even, by exact arithmetic; as float."""
    x = float(x) if isinstance(x, np.floating) else int(x)
    kind = NUMPY[dtype]
    if isinstance(x, float) and not math.isfinite(x):
        return float(np.array(x, np.float32).astype(kind))
    mantissa, low, largest = {"f16": (10, -14, 65504), "bf16": (7, -126, float(ml_dtypes.finfo(kind).max)),
                              "fp8_e4m3": (3, -6, 448), "fp8_e5m2": (2, -14, 57344)}[dtype]  # fmt: skip
    exact = Fraction(x)
    if exact == 0:
        return float(x)
    exponent = max(_exponent(abs(exact)), low)
    step = Fraction(2) ** (exponent - mantissa)
    units = exact / step
    whole = units.__round__()  # ties to even
    rounded = abs(whole * step)
    if rounded > largest:
        return math.copysign(math.nan if dtype == "fp8_e4m3" else math.inf, exact)
    return math.copysign(float(rounded), exact)


def _exponent(x: Fraction) -> int:
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def near_ties(dtype: str, source: str) -> np.ndarray:
    """Values at and beside the midpoints of a narrow type."""
    rng = np.random.default_rng(10)
    size = np.dtype(NUMPY[dtype]).itemsize
    codes = (
        rng.integers(0, 1 << 8 * size, 64, dtype=np.uint64)
        .astype(f"u{size}")
        .view(NUMPY[dtype])
        .astype(np.float64)
    )
    codes = np.where(np.isfinite(codes), codes, 1.0)
    neighbour = np.nextafter(codes.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    mantissa = {"f16": 10, "bf16": 7, "fp8_e4m3": 3, "fp8_e5m2": 2}[dtype]
    middle = codes * (1 + 2.0 ** -(mantissa + 1))
    out = np.concatenate([codes, middle, middle * (1 + 2.0**-50) if source == "f64" else neighbour])
    return out.astype(NUMPY[source])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "fp8_e4m3", "fp8_e5m2"])
def test_narrow_floats_round_once_to_nearest_even(dtype: str) -> None:
    big = np.array([448, 464, 465, 480, 57344, 61439, 61440, 65504, 65519, 65520, 1e30, 2.0**-24, 2.0**-25, 1e-40,
                    2.0**-10, 2.0**-17, 3.39e38, 3.4e38], np.float64)  # fmt: skip
    for source in ("f32", "f64", "i32", "u64", "i64", "u8", "bool_"):
        if source in FLOATS:
            a = np.concatenate([near_ties(dtype, source), floats(source, 11)])
            with np.errstate(over="ignore"):
                a[-big.size :] = big.astype(NUMPY[source])
        elif source == "bool_":
            a = np.arange(N) % 2 == 0
        else:
            a = ints(source, 12)
            shifts = np.arange(N // 2) % (int(source[1:]) - 1)
            a[N // 2 :] = (NUMPY[source](1) << shifts.astype(NUMPY[source])) + NUMPY[source](1)
        want = np.array([narrow_reference(v, dtype) for v in a])
        for width in (0, 16) if source != "f32" else (0, 3, 16, 64):
            carried, stored = apply([(f"{dtype}(a)", "f32"), ("a", dtype)], width, a)
            same(carried.astype(np.float64), want, f"{dtype}({source}) x {width}")
            same(stored.astype(np.float64), want, f"store of {source} to {dtype} x {width}")
            if source == "f32":
                assert (np.signbit(stored.astype(np.float32)) == np.signbit(a)).all()


@pytest.mark.parametrize("dtype", [d for d in NUMPY if np.dtype(NUMPY[d]).itemsize <= 2])
def test_every_code_of_a_short_dtype_is_read_and_written_back(dtype: str) -> None:
    size = np.dtype(NUMPY[dtype]).itemsize
    count = {"bool_": 2, "int4": 16, "uint4": 16}.get(dtype, 1 << 8 * size)
    codes = np.arange(max(count, N * 4)).astype(f"u{size}") % np.uint32(count)
    codes = codes[: codes.size // 64 * 64].astype(f"u{size}")
    a = codes.view(NUMPY[dtype])
    carried = {
        "f16": "f32",
        "bf16": "f32",
        "fp8_e4m3": "f32",
        "fp8_e5m2": "f32",
        "int4": "i8",
        "uint4": "u8",
    }
    for width in (0, 16):
        value, back = apply([("a", carried.get(dtype, dtype)), ("a", dtype)], width, a)
        want = a.astype(NUMPY[carried.get(dtype, dtype)])
        np.testing.assert_array_equal(value, want)
        nan = np.isnan(want) if want.dtype.kind == "f" else np.zeros(want.size, bool)
        np.testing.assert_array_equal(back.view(codes.dtype)[~nan], codes[~nan])
        assert np.isnan(back[nan].astype(np.float32)).all()


def test_int4_memory_keeps_the_low_bits() -> None:
    a = np.arange(-96, 96).astype(np.int8)
    signed, unsigned = apply([("a", "int4"), ("a", "uint4")], 16, a)
    np.testing.assert_array_equal(
        signed.view(np.uint8), (a & 15).astype(np.int8).astype(ml_dtypes.int4).view(np.uint8)
    )
    np.testing.assert_array_equal(unsigned.view(np.uint8), (a & 15).view(np.uint8))
    np.testing.assert_array_equal(
        signed.astype(np.int8), ((a.astype(np.int32) + 8) % 16 - 8).astype(np.int8)
    )


def test_int4_reads_ignore_high_bits() -> None:
    codes = np.arange(256, dtype=np.uint8)[:N]
    signed = apply([("a", "i8")], 16, codes.view(ml_dtypes.int4))[0]
    np.testing.assert_array_equal(signed, ((codes & 15).astype(np.int8) ^ 8) - 8)
    unsigned = apply([("a", "u8")], 0, codes.view(ml_dtypes.uint4))[0]
    np.testing.assert_array_equal(unsigned, codes & 15)


def test_bitcast_keeps_the_bits() -> None:
    a, b = floats("f32", 13), ints("i64", 14)
    for width in (0, 3, 16):
        assert (apply([('bitcast(a, "u32")', "u32")], width, a)[0] == a.view(np.uint32)).all()
        got = apply([('bitcast(a, "f64")', "f64")], width, b)[0]
        assert (got.view(np.int64) == b).all()
        bits_ = apply(
            [('bits_of(a, "bf16")', "u16"), ('from_bits(bits_of(a, "bf16"), "bf16")', "f32")],
            width,
            a,
        )
        want = a.astype(ml_dtypes.bfloat16)
        finite = ~np.isnan(a)
        assert (bits_[0] == want.view(np.uint16))[finite].all()
        np.testing.assert_array_equal(bits_[1], want.astype(np.float32))
