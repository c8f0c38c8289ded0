"""The bits of f16, bf16 and the 8-bit floats, from and to f32, rounding to nearest even.

f16 uses the machine's conversion where it has one; without it LLVM would call a function of its
runtime library, which is not there in a process that compiles at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core.registry import cpu_target

from cubepy.backends.llvm.ops.types import F32, I16, I32
from cubepy.backends.llvm.ops.values import (
    const,
    each_lane,
    is_nan,
    lane,
    lanes_of,
    on_amd,
    on_nvidia,
    shaped,
)

_HALF = ir.HalfType()


@dataclass(frozen=True)
class _Format:
    """Layout of a float: width, mantissa bits, exponent bias; the largest code, what overflow
    gives, NaN's code.
    """

    width: int
    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int


# e4m3 has no infinity: overflow gives NaN, as ml_dtypes does
_FORMATS = {
    "f16": _Format(16, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "fp8_e4m3": _Format(8, 3, 7, 0x7E, 0x7F, 0x7F),
    "fp8_e5m2": _Format(8, 2, 15, 0x7B, 0x7C, 0x7E),
}


@cache
def converts_f16() -> bool:
    """Whether the machine has instructions between f16 and f32."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    is_x86 = str(triple).startswith(("x86", "i386", "i686"))
    return not is_x86 or "+f16c" in str(features).split(",")


def widened(b: Any, raw: Any, dtype: str) -> Any:
    """The bits of a narrow float as f32."""
    if dtype == "bf16":
        word = shaped(I32, raw.type)
        return b.bitcast(b.shl(b.zext(raw, word), const(word, 16)), shaped(F32, raw.type))
    if dtype == "f16":
        return _from_half(b, raw)
    short = shaped(I16, raw.type)
    wide = b.zext(raw, short)
    if dtype == "fp8_e5m2":  # the upper byte of an f16
        return _from_half(b, b.shl(wide, const(short, 8)))
    magnitude = b.and_(wide, const(short, 0x7F))
    sign = b.shl(b.and_(wide, const(short, 0x80)), const(short, 8))
    # e4m3's exponent in f16's place counts from 15 instead of 7: 2**8 too small, and never special
    value = _from_half(b, b.or_(b.shl(magnitude, const(short, 7)), sign))
    value = b.fmul(value, const(value.type, 256.0))
    nan = b.icmp_unsigned("==", magnitude, const(short, 0x7F))
    return b.select(nan, const(value.type, float("nan")), value)


def _from_half(b: Any, raw: Any) -> Any:
    ty, word = shaped(F32, raw.type), shaped(I32, raw.type)
    if on_nvidia(b):
        widen = ir.InlineAsm(ir.FunctionType(F32, [I16]), "cvt.f32.f16 $0, $1;", "=f,h", False)
        return each_lane(b, raw, lambda x: b.call(widen, [x]), ty)
    if on_amd(b) or converts_f16():
        return b.fpext(b.bitcast(raw, shaped(_HALF, raw.type)), ty)
    c = lambda x: const(word, x)
    code = b.zext(raw, word)
    magnitude = b.shl(b.and_(code, c(0x7FFF)), c(13))
    # f16's exponent in f32's place counts from 127 instead of 15: 2**112 too small
    value = b.bitcast(b.fmul(b.bitcast(magnitude, ty), const(ty, 2.0**112)), word)
    special = b.icmp_unsigned(">=", magnitude, c(0x7C00 << 13))
    value = b.select(special, b.or_(magnitude, c(0x7F800000)), value)
    return b.bitcast(b.or_(value, b.shl(b.and_(code, c(0x8000)), c(16))), ty)


def rounded(b: Any, v: Any, dtype: str) -> Any:
    """f32 as the bits of a narrow float."""
    if dtype in ("f16", "bf16") and on_nvidia(b):
        return _rounded_by_two(b, v, dtype)
    if dtype == "bf16":
        return _to_bf16(b, v)
    if dtype == "f16" and (on_amd(b) or converts_f16()):
        return b.bitcast(b.fptrunc(v, shaped(_HALF, v.type)), shaped(I16, v.type))
    return _to_format(b, v, _FORMATS[dtype])


def _rounded_by_two(b: Any, v: Any, dtype: str) -> Any:
    """One instruction for two lanes, on NVIDIA GPUs."""
    short = shaped(I16, v.type)
    n = lanes_of(v.type)
    if n % 2 or not n:
        one = ir.InlineAsm(
            ir.FunctionType(I16, [F32]), f"cvt.rn.{dtype}.f32 $0, $1;", "=h,f", False
        )
        return each_lane(b, v, lambda x: b.call(one, [x]), short)
    two = ir.InlineAsm(
        ir.FunctionType(I32, [F32, F32]), f"cvt.rn.{dtype}x2.f32 $0, $1, $2;", "=r,f,f", False
    )
    words = ir.Constant(ir.VectorType(I32, n // 2), ir.Undefined)
    for k in range(n // 2):
        pair = b.call(two, [lane(b, v, 2 * k + 1), lane(b, v, 2 * k)])
        words = b.insert_element(words, pair, ir.Constant(I32, k))
    return b.bitcast(words, short)


def _to_bf16(b: Any, v: Any) -> Any:
    word = shaped(I32, v.type)
    c = lambda x: const(word, x)
    code = b.bitcast(v, word)
    near = b.add(code, b.add(c(0x7FFF), b.and_(b.lshr(code, c(16)), c(1))))
    quiet = b.or_(code, c(0x400000))
    return b.trunc(b.lshr(b.select(is_nan(b, v), quiet, near), c(16)), shaped(I16, v.type))


def _to_format(b: Any, v: Any, f: _Format) -> Any:
    word = shaped(I32, v.type)
    c = lambda x: const(word, x)
    code = b.bitcast(v, word)
    magnitude = b.and_(code, c(0x7FFFFFFF))
    cut = 23 - f.mantissa
    odd = b.and_(b.lshr(magnitude, c(cut)), c(1))
    near = b.lshr(b.add(b.add(magnitude, c((1 << (cut - 1)) - 1)), odd), c(cut))
    normal = b.sub(near, c((127 - f.bias) << f.mantissa))
    # adding 2**k leaves the multiple of the smallest subnormal, rounded, in the lowest bits
    shift = (1 - f.bias - f.mantissa + 23 + 127) << 23
    scale = b.bitcast(c(shift), v.type)
    small = b.sub(b.bitcast(b.fadd(b.bitcast(magnitude, v.type), scale), word), c(shift))
    smallest_normal = (1 - f.bias + 127) << 23
    out = b.select(b.icmp_unsigned("<", magnitude, c(smallest_normal)), small, normal)
    out = b.select(b.icmp_unsigned(">", out, c(f.largest)), c(f.overflow), out)
    out = b.select(is_nan(b, v), c(f.nan), out)
    out = b.or_(out, b.and_(b.lshr(code, c(32 - f.width)), c(1 << (f.width - 1))))
    return b.trunc(out, shaped(ir.IntType(f.width), v.type))
