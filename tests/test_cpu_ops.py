"""The functions that generated CPU code calls, against NumPy, Python's integers, float64 and ml_dtypes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

numba = pytest.importorskip("numba")

from cubepy.backends.llvm import ops
from cubepy.backends.llvm.ops.registry import literal_op
from cubepy.backends.llvm.ops.types import Ptr, memory_ir

NUMPY = {
    "bool_": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2,
    "int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4,
}  # fmt: skip
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f32", "f64")
WIDTHS = (0, 1, 3, 8, 16, 64)
N = 192  # a multiple of every width


@literal_op
def pointer_to(address: Any, dtype: Any) -> Any:
    """An integer address as a pointer."""
    name = getattr(dtype, "literal_value", None)
    if name is None:
        return None
    return (
        Ptr(name)(numba.types.int64, dtype),
        lambda b, at, _: b.inttoptr(at, memory_ir(name).as_pointer()),
    )


def name_of(array: np.ndarray) -> str:
    return next(k for k, v in NUMPY.items() if np.dtype(v) == array.dtype)


def compiled(body: str, dtypes: list[str], fastmath: bool = False) -> Callable[..., Any]:
    """Compile the body of a function of pointers p0, p1, ... and integers n0, n1, ..."""
    head = "".join(f"    p{k} = pointer_to(a{k}, {d!r})\n" for k, d in enumerate(dtypes))
    names = ", ".join([f"a{k}" for k in range(len(dtypes))] + ["n0", "n1"])
    text = f"def kernel({names}):\n" + head + "".join(f"    {line}\n" for line in body.splitlines())
    scope = {**ops.OPS, "pointer_to": pointer_to, "INF": math.inf, "NAN": math.nan}
    exec(text, scope)
    return numba.njit(error_model="numpy", fastmath=fastmath)(scope["kernel"])


def run(body: str, *arrays: np.ndarray, n0: int = 0, n1: int = 0) -> Any:
    """Compile a body and call it on arrays."""
    kernel = compiled(body, [name_of(a) for a in arrays])
    return kernel(*(a.ctypes.data for a in arrays), n0, n1)


def apply(exprs: list[tuple[str, str]], width: int, *inputs: np.ndarray) -> list[np.ndarray]:
    """Evaluate expressions of a, b, c (the inputs) on scalars (width 0) or lines; each gives an array of a dtype."""
    outs = [np.zeros(inputs[0].size, NUMPY[d]) for _, d in exprs]
    k = len(inputs)
    reads = [f"load(p{j}, i)" if width == 0 else f"load_line(p{j}, i, {width})" for j in range(k)]
    put = "store" if width == 0 else "store_line"
    body = [f"for i in range(0, n0, {width or 1}):"]
    body += [f"    {name} = {read}" for name, read in zip("abc", reads, strict=False)]
    body += [f"    {put}(p{k + j}, i, {e})" for j, (e, _) in enumerate(exprs)]
    run("\n".join(body), *inputs, *outs, n0=inputs[0].size)
    return outs


def wrapped(value: int, dtype: str) -> int:
    """A Python int in the range of a dtype."""
    width = int(dtype[1:])
    value &= (1 << width) - 1
    return value - (1 << width) if dtype[0] == "i" and value >> (width - 1) else value


def ints(dtype: str, seed: int) -> np.ndarray:
    """Edge values and random ones."""
    info = np.iinfo(NUMPY[dtype])
    rng = np.random.default_rng(seed)
    edge = [v for v in (0, 1, -1, 2, -2, 3, 7, info.bits - 1, info.bits, info.min, info.max, info.max // 2)
            if info.min <= v <= info.max]  # fmt: skip
    out = rng.integers(info.min, info.max, N, dtype=NUMPY[dtype], endpoint=True)
    out[: N // 2] = rng.choice(np.array(edge, NUMPY[dtype]), N // 2)
    return out


def floats(dtype: str, seed: int) -> np.ndarray:
    """Edge values, among them infinities, NaN and subnormal numbers, and random ones."""
    info = np.finfo(NUMPY[dtype])
    rng = np.random.default_rng(seed)
    edge = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 3.0, -3.0, 1e6, math.inf, -math.inf,
                     math.nan, info.max, -info.max, info.tiny, info.smallest_subnormal], NUMPY[dtype])  # fmt: skip
    out = (rng.standard_normal(N) * 10.0 ** rng.integers(-3, 4, N)).astype(NUMPY[dtype])
    out[: N // 2] = rng.choice(edge, N // 2)
    return out


def same(got: np.ndarray, want: np.ndarray, what: str) -> None:
    np.testing.assert_array_equal(got, want, err_msg=what)
    if got.dtype.kind == "f":
        zero = got == 0
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]), err_msg=f"{what}: sign of zero")


def int_reference(name: str, x: int, y: int, dtype: str) -> int | bool:
    width = int(dtype[1:])
    if name == "floordiv":
        return wrapped(x // y, dtype) if y else 0
    if name == "mod":
        return wrapped(x % y, dtype) if y else 0
    if name == "shl":
        return wrapped(x << y, dtype) if 0 <= y < width else 0
    if name == "shr":
        return x >> y if 0 <= y < width else (-1 if x < 0 else 0)
    if name == "pow_":
        if y < 0:
            return {1: 1, -1: -1 if y & 1 else 1}.get(x, 0)
        return wrapped(pow(x, y, 1 << width), dtype)
    python = {
        "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and_": operator.and_, "or_": operator.or_,
        "xor": operator.xor, "minnum": min, "maxnum": max, "minimum": min, "maximum": max,
    }  # fmt: skip
    return wrapped(python[name](x, y), dtype)


COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
INT_PAIRS = ("add", "sub", "mul", "and_", "or_", "xor", "minnum", "maxnum", "minimum", "maximum",
             "floordiv", "mod", "shl", "shr", "pow_")  # fmt: skip


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
    want = [[int_reference(f, int(x), int(y), dtype) for x, y in zip(a, b, strict=True)] for f in INT_PAIRS]
    want += [[f(int(x)) for x in a] for f in unary.values()]
    want += [getattr(operator, f)(a, b) for f in COMPARISONS] + [np.minimum(a, b)]
    for width in widths:
        for (e, d), got, w in zip(exprs, apply(exprs, width, a, b), want, strict=True):
            same(got, np.array(w, NUMPY[d]), f"{e} on {dtype} x {width}")


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
    exprs = [(e, dtype) for e in (*table, *unsigned_zero, "fma(a, b, c)")] + [(e, "bool_") for e in masks]
    want = [*table.values(), *unsigned_zero.values(), None, *masks.values()]
    for width in WIDTHS if dtype == "f32" else (0, 3, 16):
        for (e, _), got, w in zip(exprs, apply(exprs, width, a, b, c), want, strict=True):
            what = f"{e} on {dtype} x {width}"
            if w is None:
                finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (abs(a) < 1e9) & (abs(b) < 1e9)
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
        options = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    best = min(abs(Fraction(float(o)) - x) for o in options if np.isfinite(o))
    ties = [o for o in options if np.isfinite(o) and abs(Fraction(float(o)) - x) == best]
    return min(ties, key=lambda o: int(o.view(np.uint32)) & 1)


def test_python_operators_work_on_lines() -> None:
    a, b = floats("f32", 4), floats("f32", 5)
    i, j = ints("u32", 6), ints("u32", 7)
    with np.errstate(all="ignore"):
        for width in (3, 16):
            table = {"a + b": a + b, "a - b": a - b, "a * b": a * b, "a / b": a / b, "-a": -a}
            for (e, w), got in zip(table.items(), apply([(e, "f32") for e in table], width, a, b), strict=True):
                same(got, w, e)
            masks = {f"a {s} b": f for s, f in (("<", a < b), ("<=", a <= b), (">", a > b), (">=", a >= b),
                                                ("==", a == b), ("!=", a != b))}  # fmt: skip
            masks |= {"(a < b) & (a > b)": (a < b) & (a > b), "(a < b) | (a > b)": (a < b) | (a > b),
                      "(a < b) ^ (b == b)": (a < b) ^ ~np.isnan(b), "~(a < b)": ~(a < b),
                      "not_(a < b)": ~(a < b)}  # fmt: skip
            for (e, w), got in zip(masks.items(), apply([(e, "bool_") for e in masks], width, a, b), strict=True):
                same(got, w, e)
            whole = {"a + b": i + j, "a - b": i - j, "a * b": i * j, "a & b": i & j, "a | b": i | j,
                     "a ^ b": i ^ j, "~a": ~i, "-a": np.uint32(0) - i}  # fmt: skip
            for (e, w), got in zip(whole.items(), apply([(e, "u32") for e in whole], width, i, j), strict=True):
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
                want = [float_to_int(v, d) if source in FLOATS else wrapped(int(v), d) for v in values]
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
    codes = rng.integers(0, 1 << 8 * size, 64, dtype=np.uint64).astype(f"u{size}").view(NUMPY[dtype]).astype(np.float64)
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
    carried = {"f16": "f32", "bf16": "f32", "fp8_e4m3": "f32", "fp8_e5m2": "f32", "int4": "i8", "uint4": "u8"}
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
    np.testing.assert_array_equal(signed.view(np.uint8), (a & 15).astype(np.int8).astype(ml_dtypes.int4).view(np.uint8))
    np.testing.assert_array_equal(unsigned.view(np.uint8), (a & 15).view(np.uint8))
    np.testing.assert_array_equal(signed.astype(np.int8), ((a.astype(np.int32) + 8) % 16 - 8).astype(np.int8))


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
        bits_ = apply([('bits_of(a, "bf16")', "u16"), ('from_bits(bits_of(a, "bf16"), "bf16")', "f32")], width, a)
        want = a.astype(ml_dtypes.bfloat16)
        finite = ~np.isnan(a)
        assert (bits_[0] == want.view(np.uint16))[finite].all()
        np.testing.assert_array_equal(bits_[1], want.astype(np.float32))


# Memory


@pytest.mark.parametrize("dtype", list(NUMPY))
def test_part_lines_touch_only_their_lanes(dtype: str) -> None:
    """The arrays end where the part ends, at the edge of a page that cannot be touched."""
    import mmap

    kind = np.dtype(NUMPY[dtype])
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 3 * page)
    base = np.frombuffer(area, np.uint8)
    _protect(base.ctypes.data + 2 * page, page)
    x = np.frombuffer(area, np.uint8, page, page).view(kind)
    src = (np.arange(x.size) % 7 % (2 if dtype == "bool_" else 7)).astype(kind)
    carried = {"f64": "f64", "int4": "i8", "uint4": "u8", "bool_": "bool_", "f16": "f32", "bf16": "f32"}.get(
        dtype, "f32" if dtype[0] == "f" else dtype
    )
    widths = (3, 8, 16)
    body = []
    for w in widths:
        body += [f"for n in range(-1, {w + 2}):",
                 f"    at = n0 - min(max(n, 0), {w})",
                 f"    v = load_line_part(p0, at, {w}, n)",
                 "    store_line_part(p0, at, v, n)",
                 f"    store_line(p1, ({w} * 32 + n + 1) * 64, v)"]  # fmt: skip
    out = np.zeros(20 * 32 * 64, NUMPY[carried])
    x[:] = src
    run("\n".join(body), x, out, n0=x.size)
    np.testing.assert_array_equal(x.view(np.uint8), src.view(np.uint8))
    for w in widths:
        for n in range(-1, w + 2):
            m = min(max(n, 0), w)
            got = out[(w * 32 + n + 1) * 64 :][:w]
            want = np.zeros(w, NUMPY[carried])
            want[:m] = src[x.size - m :].astype(NUMPY[carried])
            np.testing.assert_array_equal(got, want, err_msg=f"{dtype} x {w}, {n} valid")
    _protect(base.ctypes.data + 2 * page, page, 3)


def _protect(address: int, size: int, how: int = 0) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), how):
        pytest.skip("mprotect is not available")


@pytest.mark.parametrize("dtype", list(NUMPY))
def test_gather_and_scatter(dtype: str) -> None:
    kind = NUMPY[dtype]
    src = (np.arange(64) % (2 if dtype == "bool_" else 7)).astype(kind)
    index = np.random.default_rng(15).permutation(64).astype(np.int64)
    mask = np.arange(64) % 3 != 0
    wild = np.where(mask, index, 1 << 40)
    for width in (1, 3, 16) if dtype in ("f32", "i8") else (16,):
        n = 63 if width == 3 else 64
        got, put = np.ones(64, kind), np.zeros(64, kind)
        body = f"""for i in range(0, n0, {width}):
    k = load_line(p2, i, {width})
    m = load_line(p3, i, {width})
    v = gather_line(p0, k, m)
    store_line(p1, i, v)
    scatter_line(p4, k, v, m)"""
        run(body, src, got, wild, mask, put, n0=n)
        want = np.where(mask[:n], src.astype(np.float32)[index[:n]], 0)
        np.testing.assert_array_equal(got[:n].astype(np.float32), want)
        placed = np.zeros(64, np.float32)
        placed[index[:n][mask[:n]]] = src.astype(np.float32)[index[:n][mask[:n]]]
        np.testing.assert_array_equal(put.astype(np.float32), placed)


def test_guarded_elements_do_not_touch_memory() -> None:
    x = np.arange(4, dtype=np.float16)
    out = np.full(6, 9, np.float32)
    body = """far = i64(1) << i64(45)
store(p1, 0, load_if(p0, far, n0 > 5))
store(p1, 1, load_if(p0, 3, n0 < 5))
store_if(p1, far, f32(1), n0 > 5)
store_if(p1, 2, f32(5), n0 < 5)
store(p1, 3, load(offset(p0, 1), 1))
prefetch(p0, far)"""
    run(body, x, out, n0=1)
    np.testing.assert_array_equal(out, [0, 3, 5, 2, 9, 9])


def test_stack_memory_of_elements_and_lines() -> None:
    out = np.zeros(64, np.float32)
    body = """e = stack("bf16", 0, 4)
l = stack("f32", 3, 5)
m = stack("bool_", 16, 2)
w = stack("f64", 64, 2)
for k in range(4):
    store(e, k, f32(k + 1) + f32(0.001))
for k in range(5):
    store(l, k, splat(f32(k), 3) + f32(iota("i32", 3)))
store(m, n0, iota("i32", 16) < splat(i32(5), 16))
store(w, n0, splat(f64(7), 64))
for k in range(4):
    store(p0, k, load(e, k))
for k in range(5):
    store_line(p0, 4 + 3 * k, load(l, k))
store_line(p0, 20, select(load(m, n0), splat(f32(1), 16), splat(f32(0), 16)))
store(p0, 40, extract(load(w, n0), 63))"""
    run(body, out, n0=1)
    np.testing.assert_array_equal(out[:4], [1, 2, 3, 4])
    np.testing.assert_array_equal(out[4:19], [k + j for k in range(5) for j in range(3)])
    np.testing.assert_array_equal(out[20:36], [1] * 5 + [0] * 11)
    assert out[40] == 7


def test_streamed_lines_and_argument_blocks() -> None:
    raw = np.zeros(64 + 16, np.float32)
    start = (-raw.ctypes.data % 64) // 4
    x = raw[start : start + 64]
    half = np.zeros(160, np.float16)
    block = np.array([x.ctypes.data, half.ctypes.data], np.int64)
    body = """x = ptr_at(p0, 0, "f32")
h = ptr_at(p0, 1, "f16")
store_line_stream(x, 16, splat(f32(3), 16))
store_line(h, 5, splat(f32(2.5), 16))"""
    run(body, block)
    np.testing.assert_array_equal(x, [0] * 16 + [3] * 16 + [0] * 32)
    np.testing.assert_array_equal(half[5:21], 2.5)


# Lanes


def test_shuffles() -> None:
    a = np.arange(16, dtype=np.int32)
    out = np.zeros(512, np.int32)
    body = """a = load_line(p0, 0, 8)
b = load_line(p0, 8, 8)
s = load_line(p0, 0, 3)
store_line(p1, 0, shuffle(a, b, "0 15 3 3 8"))
store_line(p1, 16, concat(a, s))
store_line(p1, 32, slice_line(a, 2, 5))
store_line(p1, 48, interleave(a, b))
store_line(p1, 64, insert(s, 1, i32(77)))
store(p1, 80, extract(b, 7))
store_line(p1, 96, iota("i32", 64))
store_line(p1, 192, splat(i32(n0), 7))
store_line(p1, 208, concat(s, a))
store_line(p1, 224, shuffle(s, a, "2 10"))"""
    run(body, a, out, n0=-4)
    checks = {0: [0, 15, 3, 3, 8], 16: [*range(8), 0, 1, 2], 32: [2, 3, 4, 5, 6], 64: [0, 77, 2], 80: [15],
              48: [v for k in range(8) for v in (k, k + 8)], 96: list(range(64)), 192: [-4] * 7,
              208: [0, 1, 2, *range(8)], 224: [2, 7]}  # fmt: skip
    for at, want in checks.items():
        np.testing.assert_array_equal(out[at : at + len(want)], want)


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
def test_reductions(dtype: str) -> None:
    a = (np.random.default_rng(16).standard_normal(64) * 20).astype(NUMPY[dtype])
    a[3] = 1
    widths = (1, 2, 3, 7, 8, 16, 64)
    body = []
    for k, w in enumerate(widths):
        body += [f"v = load_line(p0, 0, {w})"]
        body += [f"store(p1, {k * 4 + j}, line_{r}(v))" for j, r in enumerate(("sum", "prod", "max", "min"))]
    out = np.zeros(28, NUMPY[dtype])
    run("\n".join(body), a, out)
    for k, w in enumerate(widths):
        with np.errstate(all="ignore"):
            want = [np.add.reduce(a[:w]), np.multiply.reduce(a[:w]), a[:w].max(), a[:w].min()]
        if dtype in FLOATS:
            np.testing.assert_allclose(out[4 * k : 4 * k + 4], want, rtol=3e-6 if dtype == "f32" else 1e-14)
        else:
            np.testing.assert_array_equal(out[4 * k : 4 * k + 4], np.array(want).astype(NUMPY[dtype]))


def test_reductions_of_masks_and_nan() -> None:
    out = np.zeros(32, np.bool_)
    body = []
    for k, w in enumerate((1, 3, 8, 16, 64)):
        body += [f'i = iota("i32", {w})', f"store(p0, {4 * k}, line_any(i == splat(i32({w - 1}), {w})))",
                 f"store(p0, {4 * k + 1}, line_any(i < splat(i32(0), {w})))",
                 f"store(p0, {4 * k + 2}, line_all(i >= splat(i32(0), {w})))",
                 f"store(p0, {4 * k + 3}, line_all(i < splat(i32({w - 1}), {w})))"]  # fmt: skip
    run("\n".join(body), out)
    np.testing.assert_array_equal(out[:20].reshape(5, 4), [[True, False, True, False]] * 5)
    a = np.array([np.nan, 3, 1, np.nan, 2], np.float32)
    got = np.zeros(2, np.float32)
    run("store(p1, 0, line_max(load_line(p0, 0, 5)))\nstore(p1, 1, line_min(load_line(p0, 0, 5)))", a, got)
    np.testing.assert_array_equal(got, [3, 1])


# Vector math


def spread(dtype: str, low: float, high: float) -> np.ndarray:
    """Values in a range: evenly spread, and with evenly spread exponents, of both signs where the range has them."""
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
        size = np.maximum(np.abs(np.spacing(np.where(np.isfinite(near), near, info.max))), info.smallest_subnormal)
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
        assert worst.max() <= ULP, f"{name} {dtype} x {width}: {worst.max()} ulp at {x[worst.argmax()]!r}"


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
    x = np.concatenate([10.0 ** rng.uniform(-20, 1.5, 2 * N), rng.uniform(0.6, 1.6, N)]).astype(NUMPY[dtype])
    outs = [np.zeros_like(x) for _ in RANGES]
    body = [f"for i in range(0, {x.size}, 16):", "    a = load_line(p0, i, 16)"]
    body += [f"    store_line(p{k + 1}, i, {name}(a))" for k, name in enumerate(RANGES)]
    kernel = compiled("\n".join(body), [dtype] * (len(RANGES) + 1), fastmath=True)
    kernel(x.ctypes.data, *(o.ctypes.data for o in outs), 0, 0)
    for name, got in zip(RANGES, outs, strict=True):
        assert ulps(got, reference(name, x)).max() <= 2 * ULP, name


@pytest.mark.parametrize("dtype", FLOATS)
def test_sine_of_huge_and_special_arguments(dtype: str) -> None:
    values = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e6, 1e10, 1e22, -3e30, 22.0, 355.0, math.pi, 1e-30, 5e8]
    x = np.resize(np.array(values, NUMPY[dtype]), N)
    for width in (0, 3, 16):
        for name, got in zip(("sin", "cos"), apply([("sin(a)", dtype), ("cos(a)", dtype)], width, x), strict=True):
            want = np.array([getattr(math, name)(v) if math.isfinite(v) else math.nan for v in x.astype(np.float64)])
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


# Atomics, integer dot products, reports


@pytest.mark.parametrize("dtype", [d for d in NUMPY if d != "bool_"])
def test_atomics_return_the_old_value(dtype: str) -> None:
    kind = NUMPY[dtype]
    is_float = dtype in ("f16", "bf16", "f32", "f64", "fp8_e4m3", "fp8_e5m2")
    table = {"add": lambda x, v: x + v, "sub": lambda x, v: x - v, "max": max, "min": min, "xchg": lambda x, v: v}
    if not is_float:
        table |= {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
    cells = np.full(len(table) + 2, 5).astype(kind)
    old = np.zeros(len(table) + 2, kind)
    cast = dtype if dtype not in ("int4", "uint4") else ("i8" if dtype == "int4" else "u8")
    body = [f'store(p1, {k}, atomic_rmw(p0, {k}, {cast}(2), "{name}"))' for k, name in enumerate(table)]
    k = len(table)
    body += [f"store(p1, {k}, atomic_cas(p0, {k}, {cast}(5), {cast}(3)))",
             f"store(p1, {k + 1}, atomic_cas(p0, {k + 1}, {cast}(4), {cast}(3)))"]  # fmt: skip
    run("\n".join(body), cells, old)
    np.testing.assert_array_equal(old.astype(np.float32), 5)
    want = [f(5, 2) for f in table.values()] + [3, 5]
    np.testing.assert_array_equal(cells.astype(np.float32), np.array(want).astype(kind).astype(np.float32))


def test_atomics_on_booleans_and_nan() -> None:
    cells, old = np.array([True, True, False, True]), np.zeros(4, np.bool_)
    body = [f'store(p1, {k}, atomic_rmw(p0, {k}, {v}, "{name}"))'
            for k, (name, v) in enumerate((("and", False), ("xor", True), ("or", True), ("xchg", False)))]  # fmt: skip
    run("\n".join(body), cells, old)
    np.testing.assert_array_equal(old, [True, True, False, True])
    np.testing.assert_array_equal(cells, [False, False, True, False])
    x = np.array([np.nan, 1], np.float32)
    run('atomic_rmw(p0, 0, f32(2), "max")\natomic_rmw(p0, 1, f32(NAN), "min")', x)
    np.testing.assert_array_equal(x, [2, 1])


def test_atomics_lose_no_update_between_threads() -> None:
    import threading

    body = """for k in range(n0):
    atomic_rmw(p0, 0, f32(1), "add")
    atomic_rmw(p1, 1, f32(1), "add")
    atomic_rmw(p2, 0, i32(1), "add")
    take(a3)"""
    scope = compiled(body, ["f32", "f16", "i32", "i64"])
    cells = (np.zeros(2, np.float32), np.zeros(2, np.float16), np.zeros(1, np.int32), np.zeros(1, np.int64))
    addresses = [c.ctypes.data for c in cells]
    scope(*addresses, 0, 0)
    released = numba.njit(nogil=True, error_model="numpy")(scope.py_func)
    released(*addresses, 0, 0)
    threads = [threading.Thread(target=released, args=(*addresses, 500, 0)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [float(c.astype(np.float64).max()) for c in cells] == [2000, 2000, 2000, 2000]


@pytest.mark.parametrize("wide", [True, False])
def test_byte_dot_products_are_exact(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from cubepy.backends.llvm.ops import integer

    if not wide:
        monkeypatch.setattr(integer, "_byte_dot_lanes", lambda: ())
        monkeypatch.setattr(integer.dot_i8, "_signatures", {})
    rng = np.random.default_rng(20)
    x = rng.integers(0, 256, 256, dtype=np.uint8)
    y = rng.integers(-128, 128, 256, dtype=np.int64).astype(np.int8)
    x[:8], y[:8] = 255, -128
    acc = rng.integers(-(2**30), 2**30, 64, dtype=np.int64).astype(np.int32)
    widths = (1, 3, 4, 8, 16, 12) if not wide else (3, 4, 8, 12, 16)
    out = np.zeros(64 * len(widths), np.int32)
    body = [f"store_line(p3, {64 * k}, dot_i8(load_line(p2, 0, {w}), load_line(p0, 0, {4 * w}), load_line(p1, 0, {4 * w})))"
            for k, w in enumerate(widths)]  # fmt: skip
    run("\n".join(body), x, y, acc, out)
    products = (x.astype(np.int64) * y).reshape(64, 4).sum(1) + acc
    for k, w in enumerate(widths):
        np.testing.assert_array_equal(out[64 * k : 64 * k + w], products[:w])


@pytest.mark.parametrize("wide", [True, False])
def test_pair_dot_products_round_each_sum(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from cubepy.backends.llvm.ops import pairs

    if not wide:
        monkeypatch.setattr(pairs, "_pair_dot_lanes", lambda: ())
        monkeypatch.setattr(pairs.dot_bf16, "_signatures", {})
    rng = np.random.default_rng(21)
    values = rng.standard_normal((2, 128)).astype(np.float32).view(np.uint32) & 0xFFFF0000
    x, y = (np.ascontiguousarray((v >> 16).astype(np.uint16)).view(np.uint32) for v in values)
    acc = rng.standard_normal(64).astype(np.float32)
    widths = (1, 3, 4, 8, 16, 12, 32) if not wide else (3, 4, 8, 12, 16)
    out = np.zeros(64 * len(widths), np.float32)
    body = [f"store_line(p3, {64 * k}, dot_bf16(load_line(p2, 0, {w}), load_line(p0, 0, {w}), load_line(p1, 0, {w})))"
            for k, w in enumerate(widths)]  # fmt: skip
    run("\n".join(body), x, y, acc, out)
    a, b = (v.view(np.float32).astype(np.float64).reshape(64, 2) for v in values)
    total = (a[:, 0] * b[:, 0] + (a[:, 1] * b[:, 1] + acc).astype(np.float32)).astype(np.float32)
    for k, w in enumerate(widths):
        np.testing.assert_array_equal(out[64 * k : 64 * k + w], total[:w])


def test_first_report_wins() -> None:
    err = np.zeros(3, np.int64)
    run("report(p0, 7, 10, 20)\nreport(p0, 8, 30, 40)", err)
    np.testing.assert_array_equal(err, [7, 10, 20])


def test_print_values_goes_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    run(r'print_values("%lld %g %llu 100%%\n", i32(-3), f32(1.5), u8(200))', np.zeros(1, np.int64))
    assert capfd.readouterr().out == "-3 1.5 200 100%\n"


def test_call_kernel_by_address() -> None:
    import ctypes

    seen = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(lambda *a: seen.append(a))
    address = ctypes.cast(callback, ctypes.c_void_p).value
    run("call_kernel(n0, 3, 9, n1)", np.zeros(1), n0=address, n1=64)
    assert seen == [(3, 9, 64)]


def test_ops_refuse_operands_that_do_not_go_together() -> None:
    for body, text in (("add(i32(1), i64(1))", "one type"), ("splat(f32(1), 65)", "1 to 64 lanes"),
                       ("truediv(i32(1), i32(2))", "not defined for i32"), ("load(1, 2)", "not a pointer"),
                       ('bitcast(f32(1), "i64")', "widths differ"),
                       ('extract(iota("i32", 4), 4)', "no lane 4")):  # fmt: skip
        with pytest.raises(numba.core.errors.TypingError, match=text):
            run(body, np.zeros(1))


def assembly(body: str, *dtypes: str) -> str:
    kernel = compiled(body, list(dtypes))
    kernel.compile((numba.types.int64,) * (len(dtypes) + 2))
    return next(iter(kernel.inspect_asm().values()))


def _has_avx512() -> bool:
    from numba.core.registry import cpu_target

    return "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2]


@pytest.mark.skipif(not _has_avx512(), reason="needs AVX-512")
def test_lines_use_whole_registers_and_tiles_stay_in_them() -> None:
    body = """c = stack("f32", 16, 8)
for j in range(8):
    store(c, j, splat(f32(0), 16))
for k in range(n0):
    v = load_line(p1, k * 16, 16)
    for j in range(8):
        store(c, j, fma(splat(load(p0, k * 8 + j), 16), v, load(c, j)))
for j in range(8):
    store_line(p2, j * 16, load(c, j))"""
    text = assembly(body, "f32", "f32", "f32")
    assert sum("vfmadd" in line and "zmm" in line for line in text.splitlines()) >= 8
    assert not [line for line in text.splitlines() if "zmm" in line and ("(%rsp" in line or "(%rbp" in line)]


@pytest.mark.skipif(not _has_avx512(), reason="needs AVX-512")
def test_loops_of_scalar_math_are_vectorised() -> None:
    body = "for i in range(n0):\n    store(p1, i, tanh(load(p0, i)) * exp(load(p0, i)))"
    text = assembly(body, "f32", "f32")
    assert any("vfmadd" in line and ("zmm" in line or "ymm" in line) for line in text.splitlines())
