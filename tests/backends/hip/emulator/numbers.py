"""Arithmetic of the instructions, on arrays of lanes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tests.backends.hip.emulator.fused import Fused
from tests.backends.hip.emulator.operands import TYPES, U32

Lanes = Any


def all_of(flags: Lanes) -> bool:
    """Whether all are true; quicker than NumPy's method."""
    return int(np.count_nonzero(flags)) == flags.size


def _fma16(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """Rounded once: the sum in f64 is rounded to odd, after which rounding to f16 is right."""
    product, c = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + c
    moved = total - product
    rest = (product - (total - moved)) + (c - moved)
    code = total.view(np.int64)
    inexact = np.isfinite(total) & (rest != 0) & (code & 1 == 0) & np.isfinite(rest)
    odd = code + np.where((rest > 0) == (total > 0), 1, -1)
    return np.where(inexact, odd, code).view(np.float64).astype(np.float16)


def unfused(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """a * b + c, rounded twice."""
    return a * b + c


QUIET = {2: 1 << 9, 4: 1 << 22, 8: 1 << 51}
"""The bit by which a NaN is quiet, by the bytes of a float."""
FMA: dict[str, Any] = {
    "f16": _fma16,
    "f32": Fused("f32", np.float32),
    "f64": Fused("f64", np.float64),
}


def smaller(a: Lanes, b: Lanes) -> Lanes:
    """The smaller of two floats; of two zeros the negative one; a NaN is ignored."""
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, np.where(np.signbit(a), a, b), np.fmin(a, b))


def larger(a: Lanes, b: Lanes) -> Lanes:
    """The larger of two floats; of two zeros the positive one; a NaN is ignored."""
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, np.where(np.signbit(a), b, a), np.fmax(a, b))


def signalling(x: Lanes) -> Lanes:
    """Which are NaN that are not quiet."""
    return np.isnan(x) & (x.view(f"u{x.itemsize}") & QUIET[x.itemsize] == 0)


def ieee_smaller(a: Lanes, b: Lanes) -> Lanes:
    """The smaller of two floats by IEEE's rules: a NaN that is not quiet is not ignored."""
    return np.where(signalling(a) | signalling(b), a.dtype.type(np.nan), smaller(a, b))


def ieee_larger(a: Lanes, b: Lanes) -> Lanes:
    """The larger of two floats by IEEE's rules: a NaN that is not quiet is not ignored."""
    return np.where(signalling(a) | signalling(b), a.dtype.type(np.nan), larger(a, b))


def ieee_median(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """The middle one of three floats; with a NaN among them the smallest by IEEE's rules."""
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(nan, ieee_smaller(ieee_smaller(a, b), c), median(a, b, c))


def median(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """The middle one of three; with a NaN among them the smallest."""
    if a.dtype.kind != "f":
        return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
    middle = np.fmax(np.fmin(a, b), np.fmin(np.fmax(a, b), c))
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(nan, np.fmin(np.fmin(a, b), c), middle)


def to_int(x: Lanes, kind: str) -> Lanes:
    """Floats as integers: towards zero, saturated; NaN gives 0."""
    t, info = TYPES[kind], np.iinfo(TYPES[kind])
    cut = x.astype(np.int64)  # what is too large for it is its smallest or largest number
    small = cut.astype(t)
    if all_of(cut == small):
        return small
    whole = np.nan_to_num(
        np.trunc(x.astype(np.float64)), nan=0.0, posinf=2.0**80, neginf=-(2.0**80)
    )
    out = np.zeros(x.shape, t)
    inside = (whole > info.min) & (whole < float(info.max))
    out[inside] = whole[inside].astype(t)
    out[whole >= float(info.max)] = info.max
    out[whole <= info.min] = info.min
    return out


def ldexp(x: Lanes, k: Lanes) -> Lanes:
    """x * 2**k, rounded once."""
    most = 4000 if x.dtype == np.float64 else 900
    k = np.minimum(np.maximum(k.astype(np.int64), -most), most)
    if x.dtype != np.float64:
        return np.ldexp(x.astype(np.float64), k).astype(x.dtype)
    if all_of(np.abs(k) <= 1000):
        return np.ldexp(x, k)
    half = k // 2  # the first step is exact, or beyond already
    return np.ldexp(np.ldexp(x, half), k - half)


def exponent(x: Lanes) -> Lanes:
    """The exponent of a fraction in [0.5, 1); 0 of what is not finite."""
    wide = x.astype(np.float64)
    return np.where(np.isfinite(wide) & (wide != 0), np.frexp(wide)[1], 0)


def fraction(x: Lanes) -> Lanes:
    """What is left of x without its exponent."""
    return np.where(np.isfinite(x), np.frexp(x)[0], x)


def shift(a: Lanes, n: Lanes, width: int, left: bool) -> Lanes:
    """a shifted by the low bits of n."""
    n = (n & (width - 1)).astype(a.dtype)
    return a << n if left else a >> n


def field(a: Lanes, at: Lanes, n: Lanes, signed: bool = False) -> Lanes:
    """The n bits of a from bit `at` on."""
    at, n = (at & 31).astype(np.int64), (n & 31).astype(np.int64)
    wide = a.astype(np.uint32).view(np.int32).astype(np.int64) if signed else a.astype(np.int64)
    mask = (np.int64(1) << n) - np.int64(1)
    out = wide >> at & mask
    if signed:
        negative = np.where(n > 0, out >> np.maximum(n - 1, 0) & 1, 0) == 1
        out = np.where(negative, out | ~mask, out)
    return out.astype(np.uint32)


def leading(x: Lanes) -> Lanes:
    """Zeros before the first one; -1 of zero."""
    return np.array([32 - v.bit_length() if v else -1 for v in x.tolist()], np.int64).astype(U32)


def trailing(x: Lanes) -> Lanes:
    """Zeros behind the last one; -1 of zero."""
    return np.array([(v & -v).bit_length() - 1 for v in x.tolist()], np.int64).astype(U32)


def reverse(x: Lanes) -> Lanes:
    """The bits, the lowest one first."""
    return np.array([int(f"{v:032b}"[::-1], 2) for v in x.tolist()], U32)


def count_ones(x: Lanes) -> Lanes:
    """How many bits are set."""
    return np.array([v.bit_count() for v in x.tolist()], U32)


def permuted(a: Lanes, b: Lanes, choice: Lanes) -> Lanes:
    """Four bytes of a and b, chosen by the bytes of `choice`: 0 to 3 of b, 4 to 7 of a, 8 to 11 a
    sign in every bit, 12 zeros, others ones.
    """
    first = choice[0]
    if all_of(choice == first):  # mostly a number of the kernel's
        return _permuted_alike(a, b, int(first))
    both = a.astype(np.uint64) << np.uint64(32) | b.astype(np.uint64)
    out = np.zeros(a.shape, U32)
    for k in range(4):
        s = choice >> U32(8 * k) & U32(255)
        byte = both >> (np.minimum(s, 7).astype(np.uint64) * np.uint64(8)) & np.uint64(255)
        for code, at in ((8, 15), (9, 31), (10, 47), (11, 63)):
            byte = np.where(
                s == code, (both >> np.uint64(at) & np.uint64(1)) * np.uint64(255), byte
            )
        byte = np.where(s == 12, np.uint64(0), np.where(s >= 13, np.uint64(255), byte))
        out |= byte.astype(U32) << U32(8 * k)
    return out


def _permuted_alike(a: Lanes, b: Lanes, choice: int) -> Lanes:
    """The same, with one choice in all lanes."""
    out = np.zeros(a.shape, U32)
    for k in range(4):
        code = choice >> 8 * k & 255
        if code < 8:
            byte = (b if code < 4 else a) >> U32(8 * (code & 3)) & U32(255)
        elif code < 12:
            byte = ((b if code < 10 else a) >> U32(31 if code & 1 else 15) & U32(1)) * U32(255)
        else:
            byte = U32(0 if code == 12 else 255)
        out |= byte << U32(8 * k)
    return out


def classed(x: Lanes, mask: Lanes) -> Lanes:
    """Whether x is of one of the ten classes of floats whose bits are set."""
    tiny, negative = np.finfo(x.dtype).tiny, np.signbit(x)
    subnormal, normal = (np.abs(x) < tiny) & (x != 0), np.isfinite(x) & (np.abs(x) >= tiny)
    quiet, nan, zero = (x.view(f"u{x.itemsize}") & QUIET[x.itemsize]) != 0, np.isnan(x), x == 0
    classes = [
        nan & ~quiet, nan & quiet, np.isneginf(x), normal & negative, subnormal & negative,
        zero & negative, zero & ~negative, subnormal & ~negative, normal & ~negative, np.isposinf(x),
    ]  # fmt: skip
    out = np.zeros(x.shape, bool)
    for k, found in enumerate(classes):
        out |= found & (mask >> U32(k) & U32(1) == 1)
    return out


_DIVISION = {
    "f32": (96, 64, 23, 127, np.finfo(np.float32).tiny),
    "f64": (768, 128, 53, 1023, np.finfo(np.float64).tiny),
}
"""Difference of exponents that is large, the step of rescaling, mantissa bits, bias, the smallest
normal number.
"""
_UNDERFLOW = {"f32": (23, -150), "f64": (52, -1075)}
"""Mantissa bits, and the difference of exponents below which a quotient is zero."""
SMALLEST = np.finfo(np.float64).tiny


def division_scale(x: Lanes, below: Lanes, above: Lanes, kind: str) -> tuple[Lanes, Lanes]:
    """An operand of above / below, brought to where the steps of a division neither overflow nor
    lose bits; and whether the quotient has to be scaled back.
    """
    large, step, low, bias, tiny = _DIVISION[kind]
    d, n = (
        np.where(np.abs(v) >= tiny, np.frexp(v.astype(np.float64))[1] - 1 + bias, 0)
        for v in (below, above)
    )
    inside = (np.minimum(n, d) > low) & (d < 2 * bias - 8) & (np.abs(n - d) < large)
    if all_of(inside) and all_of(np.isfinite(below)):  # far from every edge
        return x, np.zeros(x.shape, bool)
    up, down = (ldexp(x, np.full(x.shape, k)) for k in (step, -step))
    size, inverse = np.abs(below), np.abs(1.0 / below.astype(np.float64))
    small, lost = np.abs(above / below) < tiny, (inverse > 0) & (inverse < SMALLEST)
    cases = [
        ((above == 0) | (below == 0), np.full_like(x, np.nan), False),
        (n - d >= large, np.where(x == below, up, x), True),
        (size < tiny, up, False),
        # the documents say up, which would overflow
        (lost & small, np.where(x == below, down, x), True),
        (lost, down, False),
        (small, np.where(x == above, up, x), True),
        (n <= low, up, False),
    ]
    conditions = [case[0] for case in cases]
    out = np.select(conditions, [case[1] for case in cases], x)
    return out, np.select(conditions, [case[2] for case in cases], False)


def division_fixup(q: Lanes, below: Lanes, above: Lanes, kind: str) -> Lanes:
    """The quotient q of above / below, right for zeros, infinities and NaN."""
    t = TYPES[kind]
    d, n, inf = np.abs(below), np.abs(above), t(np.inf)
    out = np.where(np.isnan(q), inf, np.abs(q))
    out = np.where((n == 0) | np.isinf(d), t(0), out)
    low, least = _UNDERFLOW.get(kind, (0, 0))
    if least:  # less than half of the smallest float
        e1, e2 = (x.view(f"i{x.itemsize}") >> low for x in (d, n))
        out = np.where(e2 - e1 < least, t(0), out)
    out = np.where((d == 0) | np.isinf(n), inf, out)
    out = np.where(((n == 0) & (d == 0)) | (np.isinf(n) & np.isinf(d)), t(np.nan), out)
    out = np.where(np.signbit(below) != np.signbit(above), -out, out)
    return np.where(np.isnan(above) | np.isnan(below), t(np.nan), out).astype(t)


INF = np.float32(np.inf)
NOISE = 1 << 14
_coins = np.random.default_rng(1).random(NOISE) < 0.3
_begin = itertools.count()


def rough(exact: Lanes, kind: str) -> Lanes:
    """An approximate instruction: the float below or above the exact result, less than an ulp
    away.
    """
    out = exact.astype(TYPES[kind])
    if kind != "f32":
        return out
    other = np.nextafter(out, np.where(exact > out, INF, -INF))
    first = 97 * next(_begin) % (NOISE - len(out))
    chosen = _coins[first : first + len(out)]
    inexact = np.isfinite(out) & (exact != out) & np.isfinite(other) & (np.abs(out) > 1e-37)
    return np.where(chosen & inexact, other, out)


def without_subnormals(x: Lanes) -> Lanes:
    """Subnormal f32 as zeros of the same sign."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def byte(x: Lanes, k: int, signed: bool = False) -> Lanes:
    """Byte k of words, as i64."""
    part = (x >> U32(8 * k) & U32(255)).astype(np.uint8)
    return (part.view(np.int8) if signed else part).astype(np.int64)


def dot4(a: Lanes, b: Lanes, c: Lanes, signs: tuple[bool, bool]) -> Lanes:
    """c plus four products of bytes."""
    total = c.astype(np.int64)
    for k in range(4):
        total = total + byte(a, k, signs[0]) * byte(b, k, signs[1])
    return total.astype(np.uint32)


def low24(x: Lanes) -> Lanes:
    """The low 24 bits, signed, as i64."""
    return (x.astype(np.int32) << 8 >> 8).astype(np.int64)


def to_bf16(x: Lanes) -> Lanes:
    """The bits of f32 rounded to bf16, in words."""
    u = x.view(U32)
    near = u + U32(0x7FFF) + (u >> U32(16) & U32(1))
    return np.where(np.isnan(x), u | U32(0x400000), near) >> U32(16)


def to_f16_towards_zero(x: Lanes) -> Lanes:
    """The bits of f32 cut off to f16, in words."""
    half = x.astype(np.float16)
    large = (np.abs(half.astype(np.float32)) > np.abs(x)) & ~np.isnan(x)
    return (half.view(np.uint16) - large).astype(U32)
