"""Bits of integers: shifts, counts, and the dot product of bytes that quantized models use."""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as ll
from llvmlite import ir
from numba.core import errors, types

from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.host import host_features
from cubepy.backends.llvm.ops.lines.lanes import picked
from cubepy.backends.llvm.ops.memory.elements import line
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import I1, I16, I32, I64, Line, bits, is_signed
from cubepy.backends.llvm.ops.values import const, constant_of, intrinsic, math, on_nvidia, shuffled


def _in_range(b: Any, dtype: str, count: Any) -> Any:
    """Whether a shift count is below the width; negative counts are large as unsigned ones."""
    return b.icmp_unsigned("<", count, const(count.type, bits(dtype)))


def _shift_left(b: Any, dtype: str, x: Any, count: Any) -> Any:
    if constant_of(b, count) in range(bits(dtype)):
        return b.shl(x, count)
    return b.select(_in_range(b, dtype, count), b.shl(x, count), const(x.type, 0))


def _shift_right(b: Any, dtype: str, x: Any, count: Any) -> Any:
    if constant_of(b, count) in range(bits(dtype)):
        return (b.ashr if is_signed(dtype) else b.lshr)(x, count)
    inside = _in_range(b, dtype, count)
    if not is_signed(dtype):
        return b.select(inside, b.lshr(x, count), const(x.type, 0))
    return b.ashr(x, b.select(inside, count, const(x.type, bits(dtype) - 1)))


def _count_zeros(name: str) -> Any:
    def emit(b: Any, dtype: str, x: Any) -> Any:
        return intrinsic(b, f"llvm.{name}", x.type, [x, ir.Constant(I1, 0)], [x.type])

    return emit


shl = elementwise(
    "shl", 2, _shift_left, "int", doc="x << y; 0 if y is negative or the width or more."
)
shr = elementwise(
    "shr", 2, _shift_right, "int", doc="x >> y, arithmetic if signed; 0 or the sign for large y."
)
popcount = elementwise(
    "popcount", 1, lambda b, d, x: math(b, "ctpop", x), "int", doc="Number of set bits."
)
clz = elementwise(
    "clz", 1, _count_zeros("ctlz"), "int", doc="Number of leading zero bits; the width for 0."
)
ctz = elementwise(
    "ctz", 1, _count_zeros("cttz"), "int", doc="Number of trailing zero bits; the width for 0."
)


@cache
def _byte_dot_lanes() -> tuple[int, ...]:
    """Lanes of the accumulators that the host's `vpdpbusd` takes, widest first; empty
    without it.
    """
    has = host_features()
    if "avx512vnni" in has:
        return (16, 8, 4) if "avx512vl" in has else (16,)
    return (8, 4) if "avxvnni" in has else ()


def _exact_dot(b: Any, acc: Any, x: Any, y: Any) -> Any:
    """The same sum without special instructions."""
    n = acc.type.count
    wide = ir.VectorType(I32, 4 * n)
    products = b.mul(b.zext(x, wide), b.sext(y, wide))
    for k in range(4):
        acc = b.add(acc, shuffled(b, products, products, list(range(k, 4 * n, 4))))
    return acc


@cache
def _pair_sum_lanes() -> tuple[int, ...]:
    """Lanes of the sums that the host's `vpmaddwd` gives, widest first; empty where there
    is none.
    """
    has = host_features()
    widths = {"avx512bw": 16, "avx2": 8, "sse2": 4}
    return tuple(width for feature, width in widths.items() if feature in has)


def _pair_sums(b: Any, x: Any, y: Any) -> Any:
    """Sums of two neighbouring products of i16, which `vpmaddwd` gives as i32."""
    n = x.type.count // 2
    name = {
        4: "llvm.x86.sse2.pmadd.wd",
        8: "llvm.x86.avx2.pmadd.wd",
        16: "llvm.x86.avx512.pmaddw.d.512",
    }[n]
    fn = b.module.globals.get(name)
    if fn is None:
        fn = ir.Function(b.module, ir.FunctionType(ir.VectorType(I32, n), [x.type, y.type]), name)
    return b.call(fn, [x, y])


def _pairs_dot(b: Any, acc: Any, x: Any, y: Any) -> Any:
    """Two vpmaddwd: the bytes of even and of odd places as i16, whose products and sums of two
    cannot overflow.
    """
    halves = ir.VectorType(I16, 2 * acc.type.count)
    x, y, eight = b.bitcast(x, halves), b.bitcast(y, halves), const(halves, 8)
    even = _pair_sums(b, b.and_(x, const(halves, 255)), b.ashr(b.shl(y, eight), eight))
    return b.add(b.add(acc, even), _pair_sums(b, b.lshr(x, eight), b.ashr(y, eight)))


@cache
def _byte_pair_lanes() -> tuple[int, ...]:
    """Lanes of the sums that the host's `vpmaddubsw` leads to, widest first."""
    has = host_features()
    widths = {"avx512bw": 16, "avx2": 8, "ssse3": 4}
    return tuple(width for feature, width in widths.items() if feature in has)


def _byte_pairs_dot(b: Any, acc: Any, x: Any, y: Any) -> Any:
    """A vpmaddubsw, whose sums of two products fit into i16 where x is 128 at most, and a
    vpmaddwd by ones, which adds them by twos.
    """
    n = acc.type.count
    name = {
        4: "llvm.x86.ssse3.pmadd.ub.sw.128",
        8: "llvm.x86.avx2.pmadd.ub.sw",
        16: "llvm.x86.avx512.pmaddubs.w.512",
    }[n]
    halves = ir.VectorType(I16, 2 * n)
    fn = b.module.globals.get(name)
    if fn is None:
        fn = ir.Function(b.module, ir.FunctionType(halves, [x.type, y.type]), name)
    return b.add(acc, _pair_sums(b, b.call(fn, [x, y]), const(halves, 1)))


def _vnni_dot(b: Any, acc: Any, x: Any, y: Any) -> Any:
    """One vpdpbusd; LLVM 22 gave its operands byte lanes."""
    n = acc.type.count
    if ll.llvm_version_info[0] < 22:
        x, y = b.bitcast(x, acc.type), b.bitcast(y, acc.type)
    fn_type = ir.FunctionType(acc.type, [acc.type, x.type, y.type])
    name = f"llvm.x86.avx512.vpdpbusd.{32 * n}"
    fn = b.module.globals.get(name) or ir.Function(b.module, fn_type, name)
    return b.call(fn, [acc, x, y])


@op
def dot_i8(acc: Any, x: Any, y: Any) -> Any:
    """`dot_i8(acc, x, y)`: acc (i32, L lanes) plus the sums of four neighbouring products x (u8) *
    y (i8); exact.
    """
    return _dot_by(acc, x, y, [(w, _pairs_dot) for w in _pair_sum_lanes()])


@op
def dot_i7(acc: Any, x: Any, y: Any) -> Any:
    """`dot_i7(acc, x, y)`: `dot_i8` of an x that is 128 at most."""
    return _dot_by(acc, x, y, [(w, _byte_pairs_dot) for w in _byte_pair_lanes()])


def _dot_by(acc: Any, x: Any, y: Any, others: list[tuple[int, Any]]) -> Any:
    """The signature of a dot product and what emits it; `others`: lanes and emitters where
    there is no `vpdpbusd`.
    """
    acc, x, y = line(acc), line(x), line(y)
    n = acc.lanes
    if (acc.dtype, x, y) != ("i32", Line("u8", 4 * n), Line("i8", 4 * n)):
        raise errors.TypingError(
            f"dot_i8 needs lines i32 x L, u8 x 4L, i8 x 4L, not {acc}, {x}, {y}"
        )
    ways = [(w, _vnni_dot) for w in _byte_dot_lanes()] or others
    width, dot = next(((w, dot) for w, dot in ways if n % w == 0), (0, _exact_dot))

    def emit(b: Any, s: Any, u: Any, v: Any) -> Any:
        if not width:
            return _exact_dot(b, s, u, v)
        out = None
        for k in range(0, n, width):
            part = shuffled(b, s, s, list(range(k, k + width)))
            bytes_ = list(range(4 * k, 4 * (k + width)))
            part = dot(b, part, shuffled(b, u, u, bytes_), shuffled(b, v, v, bytes_))
            out = part if out is None else picked(b, out, part, list(range(k + width)))
        return out

    return acc(acc, x, y), emit


@op
def opaque(x: Any) -> Any:
    """`opaque(x)`: x, a 64-bit integer that the code generator does not know.

    It takes no instruction on a CPU and a move on an NVIDIA GPU. Loops with such a step are not
    unrolled.
    """

    def emit(b: Any, x: Any) -> Any:
        text, constraints = ("mov.b64 $0, $1;", "=l,l") if on_nvidia(b) else ("", "=r,0")
        fn = ir.FunctionType(I64, [I64])
        return b.call(ir.InlineAsm(fn, text, constraints, side_effect=False), [x])

    return types.int64(types.int64), emit
