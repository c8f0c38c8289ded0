"""The high half of a product of integers, and bits in reverse."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.formulas.number import by_libdevice
from cubepy.backends.llvm.ops.types import I32, bits, is_signed
from cubepy.backends.llvm.ops.values import const, lanes_of, math, on_nvidia, shaped

_ON_NVIDIA = {32: "mulhi", 64: "mul64hi"}
"""The functions of NVIDIA's math library for signed integers; the others begin with u."""


def _high_of_long(b: Any, x: Any, y: Any) -> Any:
    """The high half of a product of u64, by four products of their halves."""
    half, mask = const(x.type, 32), const(x.type, 0xFFFFFFFF)
    x0, x1, y0, y1 = b.and_(x, mask), b.lshr(x, half), b.and_(y, mask), b.lshr(y, half)
    middle = b.add(b.mul(x1, y0), b.lshr(b.mul(x0, y0), half))
    other = b.add(b.mul(x0, y1), b.and_(middle, mask))
    return b.add(b.add(b.mul(x1, y1), b.lshr(middle, half)), b.lshr(other, half))


def _high_of_lines(b: Any, dtype: str, x: Any, y: Any) -> Any:
    """Of lines of 64 bits: processors have no such product of vectors."""
    high = _high_of_long(b, x, y)
    if not is_signed(dtype):
        return high
    last = const(x.type, 63)
    less = b.add(b.and_(b.ashr(x, last), y), b.and_(b.ashr(y, last), x))
    return b.sub(high, less)


def _mulhi(b: Any, dtype: str, x: Any, y: Any) -> Any:
    width = bits(dtype)
    if width in _ON_NVIDIA and on_nvidia(b):
        return by_libdevice(b, ("" if is_signed(dtype) else "u") + _ON_NVIDIA[width], (x, y))
    if width == 64 and lanes_of(x.type):
        return _high_of_lines(b, dtype, x, y)
    wide = shaped(ir.IntType(2 * width), x.type)
    extended = b.sext if is_signed(dtype) else b.zext
    whole = b.mul(extended(x, wide), extended(y, wide))
    return b.trunc(b.lshr(whole, const(wide, width)), x.type)


def _reversed(b: Any, dtype: str, x: Any) -> Any:
    width = bits(dtype)
    if not on_nvidia(b):
        return math(b, "bitreverse", x)
    if width == 64:
        return by_libdevice(b, "brevll", (x,))
    wide = shaped(I32, x.type)
    whole = by_libdevice(b, "brev", (x if width == 32 else b.zext(x, wide),))
    return whole if width == 32 else b.trunc(b.lshr(whole, const(wide, 32 - width)), x.type)


mulhi = elementwise(
    "mulhi", 2, _mulhi, "int", doc="The upper half of the bits of the product x * y."
)
reverse_bits = elementwise(
    "reverse_bits", 1, _reversed, "int", doc="The bits of x, the lowest one first."
)
