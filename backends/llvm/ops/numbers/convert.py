"""Conversions between dtypes, and between a carried value and its form in memory.

Floats round once, to nearest even. Where LLVM has no direct instruction the value goes to f32
rounded to odd first (the last bit is set when anything was cut off), after which rounding to a type
of at most 22 bits is exact: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums:
    proved algorithms using rounding to odd" (2008).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from cubepy.backends.llvm.ops.numbers.narrow import rounded, widened
from cubepy.backends.llvm.ops.types import F32, I8, I64, bits, carrier, ir_type, is_float, is_signed
from cubepy.backends.llvm.ops.values import (
    const,
    each_lane,
    intrinsic,
    is_nan,
    lanes_of,
    on_gpu,
    on_nvidia,
    shaped,
)

CUT = 39
"""Bits of an f64 that go before it is rounded: the 14 that stay, the last of them odd, are exact in
f32 also where numbers of bf16 are subnormal, and smaller ones round to zero.
"""
NARROW_FLOATS = ("f16", "bf16", "fp8_e4m3", "fp8_e5m2")


def convert(b: Any, v: Any, src: str, dst: str) -> Any:
    """A carried value as another carrier dtype: ints wrap, float to int truncates and saturates,
    NaN gives 0.
    """
    if src == dst or (src[0] in "iu" and dst[0] in "iu" and bits(src) == bits(dst)):
        return v
    ty = ir_type(dst, lanes_of(v.type))
    if dst == "bool_":
        zero = const(v.type, 0)
        return b.fcmp_unordered("!=", v, zero) if is_float(src) else b.icmp_unsigned("!=", v, zero)
    if is_float(src):
        if is_float(dst):
            return b.fpext(v, ty) if bits(dst) > bits(src) else b.fptrunc(v, ty)
        if on_nvidia(b):
            return each_lane(b, v, lambda x: _saturated(b, x, src, dst), ty)
        if dst == "i32" and not on_gpu(b):
            return _whole(b, v, ty)
        if bits(dst) < 32 and not on_gpu(b):
            return _clipped(b, v, dst, ty)
        name = "llvm.fptosi.sat" if is_signed(dst) else "llvm.fptoui.sat"
        return intrinsic(b, name, ty, [v], [ty, v.type])
    if is_float(dst):
        return b.sitofp(v, ty) if is_signed(src) else b.uitofp(v, ty)
    if bits(dst) < bits(src):
        return b.trunc(v, ty)
    return b.sext(v, ty) if is_signed(src) else b.zext(v, ty)


def _whole(b: Any, x: Any, ty: Any) -> Any:
    """Floats as i32, saturated: LLVM takes `fptosi.sat` of lines apart, lane by lane, not this."""
    end = const(x.type, float(1 << 31))
    inside = b.select(b.fcmp_ordered("<", x, end), x, const(x.type, 0.0))  # NaN is not less
    low = const(x.type, -float(1 << 31))
    inside = b.select(b.fcmp_ordered(">", inside, low), inside, low)
    top = b.fcmp_ordered(">=", x, end)
    return b.select(top, const(ty, (1 << 31) - 1), b.fptosi(inside, ty))


def _clipped(b: Any, x: Any, dst: str, ty: Any) -> Any:
    """Floats as integers of 8 or 16 bits, saturated before they are converted, as above."""
    top = (1 << (bits(dst) - is_signed(dst))) - 1
    low, high = (const(x.type, float(n)) for n in (-top - 1 if is_signed(dst) else 0, top))
    inside = b.select(b.fcmp_ordered(">", x, low), x, low)
    inside = b.select(b.fcmp_ordered("<", inside, high), inside, high)
    inside = b.select(is_nan(b, x), const(x.type, 0.0), inside)
    return b.trunc(b.fptosi(inside, ir_type("i32", lanes_of(x.type))), ty)


def _saturated(b: Any, x: Any, src: str, dst: str) -> Any:
    """An NVIDIA GPU's conversion saturates; NaN gives 0 there only for some types."""
    kind = dst if bits(dst) >= 32 else f"{dst[0]}32"
    kind = kind.replace("i", "s")
    word = ir.IntType(bits(kind))
    letters = f"={'l' if bits(kind) == 64 else 'r'},{'d' if src == 'f64' else 'f'}"
    text = f"cvt.rzi.{kind}.{src} $0, $1;"
    out = b.call(ir.InlineAsm(ir.FunctionType(word, [x.type]), text, letters, False), [x])
    out = b.select(is_nan(b, x), ir.Constant(word, 0), out)
    if bits(dst) >= 32:
        return out
    top = (1 << (bits(dst) - is_signed(dst))) - 1
    high = ir.Constant(word, top)
    if not is_signed(dst):
        return b.trunc(b.select(b.icmp_unsigned(">", out, high), high, out), ir.IntType(bits(dst)))
    low = ir.Constant(word, -top - 1)
    out = b.select(
        b.icmp_signed(">", out, high), high, b.select(b.icmp_signed("<", out, low), low, out)
    )
    return b.trunc(out, ir.IntType(bits(dst)))


def to_f32_odd(b: Any, v: Any, src: str) -> Any:
    """A value as f32; what would be rounded is rounded to odd, of f64 to 14 bits."""
    if src == "f32" or src == "bool_" or (src != "f64" and bits(src) <= 16):
        return convert(b, v, src, "f32")
    if src[0] in "iu":
        v = _sticky(b, v, src)
        if bits(src) == 32:
            return convert(b, v, src, "f32")
        v = convert(b, v, src, "f64")
    word = shaped(I64, v.type)
    cut = const(word, (1 << CUT) - 1)
    code = b.bitcast(v, word)
    # a sum of what is cut off and of ones carries into the last bit that stays
    found = b.or_(code, b.add(b.and_(code, cut), cut))
    kept = b.bitcast(b.and_(found, const(word, -1 << CUT)), v.type)
    return b.fptrunc(kept, shaped(F32, v.type))


def _sticky(b: Any, v: Any, src: str) -> Any:
    """An integer of 32 or 64 bits whose last bits are gathered in one, so that f32 or f64 holds it
    exactly, if it is too long for that.
    """
    c = lambda x: const(v.type, x)
    length, cut = (24, 8) if bits(src) == 32 else (53, 11)
    ones, limit = c((1 << cut) - 1), 1 << length
    long = b.and_(b.or_(v, b.add(b.and_(v, ones), ones)), c(-1 << cut))
    small = (
        b.icmp_unsigned("<", b.add(v, c(limit)), c(2 * limit))
        if is_signed(src)
        else b.icmp_unsigned("<", v, c(limit))
    )
    return b.select(small, v, long)


def narrowed(b: Any, v: Any, src: str, dst: str) -> Any:
    """A value rounded to a narrow float, carried in f32."""
    return decode(b, encode(b, v, src, dst), dst)


def decode(b: Any, raw: Any, dtype: str) -> Any:
    """Elements as they lie in memory, as a carried value."""
    if dtype in NARROW_FLOATS:
        return widened(b, raw, dtype)
    if dtype == "bool_":
        return b.icmp_unsigned("!=", raw, const(raw.type, 0))
    if dtype == "uint4":
        return b.and_(raw, const(raw.type, 15))
    if dtype == "int4":
        return b.ashr(b.shl(raw, const(raw.type, 4)), const(raw.type, 4))
    return raw


def encode(b: Any, v: Any, src: str, dtype: str) -> Any:
    """A carried value of dtype `src` as it lies in memory of dtype `dtype`."""
    if dtype in NARROW_FLOATS:
        return rounded(b, to_f32_odd(b, v, src), dtype)
    v = convert(b, v, src, carrier(dtype))
    if dtype == "bool_":
        return b.zext(v, shaped(I8, v.type))
    return b.and_(v, const(v.type, 15)) if dtype in ("int4", "uint4") else v
