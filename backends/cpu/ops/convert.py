"""Conversions between dtypes, and between a carried value and its form in memory.

Floats round once, to nearest even. Where LLVM has no direct instruction the value goes to f32 rounded to odd first
(the last bit is set when anything was cut off), after which rounding to a type of at most 22 bits is exact:
Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd" (2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cubepy.backends.cpu.ops.types import (
    F16,
    F32,
    I8,
    I32,
    bits,
    carrier,
    ir_type,
    is_float,
    is_signed,
    memory_ir,
)  # fmt: skip
from cubepy.backends.cpu.ops.values import const, intrinsic, is_nan, lanes_of, shaped
from llvmlite import ir

NARROW_FLOATS = ("f16", "bf16", "fp8_e4m3", "fp8_e5m2")


@dataclass(frozen=True)
class _Fp8:
    """Layout of an 8-bit float: mantissa bits, exponent bias, the code that overflow gives, NaN's code."""

    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int


# e4m3 has no infinity: overflow gives NaN, as ml_dtypes does
_FP8 = {"fp8_e4m3": _Fp8(3, 7, 0x7E, 0x7F, 0x7F), "fp8_e5m2": _Fp8(2, 15, 0x7B, 0x7C, 0x7E)}


def convert(b: Any, v: Any, src: str, dst: str) -> Any:
    """A carried value as another carrier dtype: ints wrap, float to int truncates and saturates, NaN gives 0."""
    if src == dst or (src[0] in "iu" and dst[0] in "iu" and bits(src) == bits(dst)):
        return v
    ty = ir_type(dst, lanes_of(v.type))
    if dst == "bool_":
        zero = const(v.type, 0)
        return b.fcmp_unordered("!=", v, zero) if is_float(src) else b.icmp_unsigned("!=", v, zero)
    if is_float(src):
        if is_float(dst):
            return b.fpext(v, ty) if bits(dst) > bits(src) else b.fptrunc(v, ty)
        name = "llvm.fptosi.sat" if is_signed(dst) else "llvm.fptoui.sat"
        return intrinsic(b, name, ty, [v], [ty, v.type])
    if is_float(dst):
        return b.sitofp(v, ty) if is_signed(src) else b.uitofp(v, ty)
    if bits(dst) < bits(src):
        return b.trunc(v, ty)
    return b.sext(v, ty) if is_signed(src) else b.zext(v, ty)


def to_f32_odd(b: Any, v: Any, src: str) -> Any:
    """A value as f32, rounded to odd where f32 cannot hold it."""
    if src == "f32" or src == "bool_" or (src != "f64" and bits(src) <= 16):
        return convert(b, v, src, "f32")
    if src != "f64":
        v = convert(b, _sticky(b, v, src) if bits(src) == 64 else v, src, "f64")
    ty, word = shaped(F32, v.type), shaped(I32, v.type)
    near = b.fptrunc(v, ty)
    error = b.fsub(v, b.fpext(near, v.type))
    zero = const(v.type, 0.0)
    code = b.bitcast(near, word)
    inexact = b.fcmp_ordered("!=", error, zero)  # false for infinities and NaN
    even = b.icmp_signed("==", b.and_(code, const(word, 1)), const(word, 0))
    # away from zero if the error points that way, else towards it: both neighbours of an even code are odd
    positive = b.icmp_signed(">=", code, const(word, 0))
    away = b.xor(b.fcmp_ordered("<", error, zero), positive)
    moved = b.select(away, b.add(code, const(word, 1)), b.sub(code, const(word, 1)))
    return b.bitcast(b.select(b.and_(inexact, even), moved, code), ty)


def _sticky(b: Any, v: Any, src: str) -> Any:
    """A 64-bit integer whose cut-off bits are gathered in bit 11, so that f64 holds it exactly."""
    c = lambda x: const(v.type, x)
    low = b.and_(v, c(0x7FF))
    cut = b.or_(b.sub(v, low), b.select(b.icmp_unsigned("==", low, c(0)), c(0), c(0x800)))
    limit = 1 << 53
    small = (
        b.icmp_unsigned("<", b.add(v, c(limit)), c(2 * limit)) if is_signed(src) else b.icmp_unsigned("<", v, c(limit))
    )
    return b.select(small, v, cut)


def narrowed(b: Any, v: Any, src: str, dst: str) -> Any:
    """A value rounded to a narrow float, carried in f32."""
    return decode(b, encode(b, v, src, dst), dst)


def decode(b: Any, raw: Any, dtype: str) -> Any:
    """Elements as they lie in memory, as a carried value."""
    ty = ir_type(carrier(dtype), lanes_of(raw.type))
    if dtype == "bool_":
        return b.icmp_unsigned("!=", raw, const(raw.type, 0))
    if dtype == "f16":
        return b.fpext(raw, ty)
    word = shaped(I32, raw.type)
    if dtype == "bf16":
        return b.bitcast(b.shl(b.zext(raw, word), const(word, 16)), ty)
    if dtype == "uint4":
        return b.and_(raw, const(raw.type, 15))
    if dtype == "int4":
        return b.ashr(b.shl(raw, const(raw.type, 4)), const(raw.type, 4))
    if dtype in _FP8:
        return _decode_fp8(b, raw, dtype, ty)
    return raw


def _decode_fp8(b: Any, raw: Any, dtype: str, ty: Any) -> Any:
    half, short = shaped(F16, raw.type), shaped(ir.IntType(16), raw.type)
    wide = b.zext(raw, short)
    if dtype == "fp8_e5m2":  # the upper byte of an f16
        return b.fpext(b.bitcast(b.shl(wide, const(short, 8)), half), ty)
    magnitude = b.and_(wide, const(short, 0x7F))
    sign = b.shl(b.and_(wide, const(short, 0x80)), const(short, 8))
    # e4m3's exponent in f16's place counts from 15 instead of 7: 2**8 too small, and never special
    as_half = b.bitcast(b.or_(b.shl(magnitude, const(short, 7)), sign), half)
    value = b.fmul(b.fpext(as_half, ty), const(ty, 256.0))
    nan = b.icmp_unsigned("==", magnitude, const(short, 0x7F))
    return b.select(nan, const(ty, float("nan")), value)


def encode(b: Any, v: Any, src: str, dtype: str) -> Any:
    """A carried value of dtype `src` as it lies in memory of dtype `dtype`."""
    if dtype in NARROW_FLOATS:
        v = to_f32_odd(b, v, src)
        if dtype == "f16":
            return b.fptrunc(v, shaped(F16, v.type))
        return _encode_bf16(b, v) if dtype == "bf16" else _encode_fp8(b, v, _FP8[dtype])
    v = convert(b, v, src, carrier(dtype))
    if dtype == "bool_":
        return b.zext(v, shaped(I8, v.type))
    return b.and_(v, const(v.type, 15)) if dtype in ("int4", "uint4") else v


def _encode_bf16(b: Any, v: Any) -> Any:
    word = shaped(I32, v.type)
    c = lambda x: const(word, x)
    code = b.bitcast(v, word)
    rounded = b.add(code, b.add(c(0x7FFF), b.and_(b.lshr(code, c(16)), c(1))))
    quiet = b.or_(code, c(0x400000))
    return b.trunc(b.lshr(b.select(is_nan(b, v), quiet, rounded), c(16)), shaped(ir.IntType(16), v.type))


def _encode_fp8(b: Any, v: Any, f: _Fp8) -> Any:
    word = shaped(I32, v.type)
    c = lambda x: const(word, x)
    code = b.bitcast(v, word)
    magnitude = b.and_(code, c(0x7FFFFFFF))
    cut = 23 - f.mantissa
    odd = b.and_(b.lshr(magnitude, c(cut)), c(1))
    rounded = b.lshr(b.add(b.add(magnitude, c((1 << (cut - 1)) - 1)), odd), c(cut))
    normal = b.sub(rounded, c((127 - f.bias) << f.mantissa))
    # adding 2**k leaves the multiple of the smallest subnormal, rounded, in the lowest bits
    shift = (1 - f.bias - f.mantissa + 23 + 127) << 23
    place = b.bitcast(c(shift), v.type)
    small = b.sub(b.bitcast(b.fadd(b.bitcast(magnitude, v.type), place), word), c(shift))
    smallest_normal = (1 - f.bias + 127) << 23
    out = b.select(b.icmp_unsigned("<", magnitude, c(smallest_normal)), small, normal)
    out = b.select(b.icmp_unsigned(">", out, c(f.largest)), c(f.overflow), out)
    out = b.select(is_nan(b, v), c(f.nan), out)
    out = b.or_(out, b.and_(b.lshr(code, c(24)), c(0x80)))
    return b.trunc(out, shaped(I8, v.type))


def is_plain(dtype: str) -> bool:
    """Whether an element lies in memory just as it is carried."""
    return memory_ir(dtype) == ir_type(carrier(dtype)) and dtype not in ("int4", "uint4")
