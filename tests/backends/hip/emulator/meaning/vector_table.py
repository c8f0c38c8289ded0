"""Vector instructions that are a function of their operands: the kind of the result, the kinds of
the operands, the function of lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.backends.hip.emulator import numbers as n
from tests.backends.hip.emulator.operands import FLOATS, M32, TYPES, U32

Meaning = tuple[str, tuple[str, ...], Callable[..., Any]]
U64 = np.uint64
HALF = U32(16)
LOW24 = U32(0xFFFFFF)


def names(text: str) -> list[str]:
    """Names of instructions, without their first letters."""
    return [f"v_{name}" for name in text.split()]


def of_floats(f: str) -> dict[str, Meaning]:
    """Instructions that f16, f32 and f64 have."""
    t, two, three = TYPES[f], (f, f), (f, f, f)
    whole = "i16" if f == "f16" else "i32"
    out: dict[str, Meaning] = {}

    def define(text: str, operands: tuple[str, ...], function: Any, result: str = f) -> None:
        out.update(dict.fromkeys(names(text), (result, operands, function)))

    define(f"add_{f} add_{f}_pseudo", two, lambda a, b: a + b)
    define(f"sub_{f}", two, lambda a, b: a - b)
    define(f"subrev_{f}", two, lambda a, b: b - a)
    define(f"mul_{f} mul_{f}_pseudo", two, lambda a, b: a * b)
    define(f"fma_{f}", three, n.FMA[f])
    define(f"mad_{f}", three, n.unfused)
    define(f"min_{f}", two, n.ieee_smaller)
    define(f"max_{f}", two, n.ieee_larger)
    define(f"min_num_{f}", two, n.smaller)
    define(f"max_num_{f}", two, n.larger)
    define(f"minimum_{f}", two, np.minimum)
    define(f"maximum_{f}", two, np.maximum)
    define(f"minimum3_{f}", three, lambda a, b, c: np.minimum(np.minimum(a, b), c))
    define(f"maximum3_{f}", three, lambda a, b, c: np.maximum(np.maximum(a, b), c))
    define(f"med3_{f}", three, n.ieee_median)
    define(f"med3_num_{f}", three, n.median)
    for end, low, high in (("", n.ieee_smaller, n.ieee_larger), ("_num", n.smaller, n.larger)):
        two_of = lambda g, h: lambda a, b, c: h(g(a, b), c)
        define(f"min3{end}_{f}", three, two_of(low, low))
        define(f"max3{end}_{f}", three, two_of(high, high))
        define(f"maxmin{end}_{f}", three, two_of(high, low))
        define(f"minmax{end}_{f}", three, two_of(low, high))
    for name, g in (
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("rndne", np.rint),
    ):
        define(f"{name}_{f}", (f,), g)
    below_one = np.nextafter(t(1), t(0))
    define(f"fract_{f}", (f,), lambda a: np.minimum(a - np.floor(a), below_one))
    approximate: dict[str, Any] = {
        "rcp": lambda a: 1.0 / a, "rcp_iflag": lambda a: 1.0 / a, "rsq": lambda a: 1.0 / np.sqrt(a),
        "sqrt": np.sqrt, "log": np.log2,
    }  # fmt: skip
    for name, g in approximate.items():
        define(f"{name}_{f}", (f,), lambda a, g=g: n.rough(g(a.astype(np.float64)), f))
    exp = lambda a: n.rough(np.exp2(a.astype(np.float64)), f)
    define(f"exp_{f}", (f,), (lambda a: n.without_subnormals(exp(a))) if f == "f32" else exp)
    turn = lambda a: a.astype(np.float64) * 2 * np.pi
    define(f"sin_{f}", (f,), lambda a: np.sin(turn(a)).astype(t))
    define(f"cos_{f}", (f,), lambda a: np.cos(turn(a)).astype(t))
    define(f"ldexp_{f}", (f, whole), n.ldexp)
    define(f"frexp_mant_{f}", (f,), n.fraction)
    define(f"frexp_exp_{whole}_{f}", (f,), lambda a: n.exponent(a).astype(np.int32), whole)
    define(f"div_fixup_{f}", three, lambda q, d, a: n.division_fixup(q, d, a, f))
    for i in ("i32", "u32", "i16", "u16"):
        define(f"cvt_{i}_{f}", (f,), lambda a, i=i: n.to_int(a, i), i)
        define(f"cvt_{f}_{i}", (i,), lambda a: a.astype(t))
    for g in FLOATS - {f}:
        define(f"cvt_{g}_{f}", (f,), lambda a, g=g: a.astype(TYPES[g]), g)
    return out


def of_integers() -> dict[str, Meaning]:
    """Sums, products and extremes of integers."""
    out: dict[str, Meaning] = {}

    def define(text: str, kinds: str, function: Any) -> None:
        result, *operands = kinds.split()
        out.update(dict.fromkeys(names(text), (result, tuple(operands), function)))

    u2, u3, h2, h3 = "u32 u32 u32", "u32 u32 u32 u32", "u16 u16 u16", "u16 u16 u16 u16"
    define("add_u32 add_nc_u32 add_nc_i32 add_i32", u2, lambda a, b: a + b)
    define("sub_u32 sub_nc_u32 sub_nc_i32 sub_i32", u2, lambda a, b: a - b)
    define("subrev_u32 subrev_nc_u32", u2, lambda a, b: b - a)
    define("add_u16 add_nc_u16 add_nc_i16", h2, lambda a, b: a + b)
    define("sub_u16 sub_nc_u16 sub_nc_i16", h2, lambda a, b: a - b)
    define("subrev_u16", h2, lambda a, b: b - a)
    define("mul_lo_u16", h2, lambda a, b: a * b)
    define("mad_u16 mad_legacy_u16 mad_i16", h3, lambda a, b, c: a * b + c)
    define("mul_lo_u32", u2, lambda a, b: a * b)
    define("mul_hi_u32", u2, lambda a, b: (a.astype(U64) * b >> U64(32)).astype(U32))
    define(
        "mul_hi_i32", "i32 i32 i32", lambda a, b: (a.astype(np.int64) * b >> 32).astype(np.int32)
    )
    define("mul_u32_u24", u2, lambda a, b: (a & LOW24) * (b & LOW24))
    define("mul_i32_i24", "u32 i32 i32", lambda a, b: (n.low24(a) * n.low24(b) & M32).astype(U32))
    define("mul_hi_i32_i24", "u32 i32 i32",
           lambda a, b: (n.low24(a).astype(np.int64) * n.low24(b) >> 32 & M32).astype(U32))  # fmt: skip
    define("mul_hi_u32_u24", u2,
           lambda a, b: ((a & LOW24).astype(U64) * (b & LOW24) >> U64(32)).astype(U32))  # fmt: skip
    define("mad_u32_u24", u3, lambda a, b, c: (a & LOW24) * (b & LOW24) + c)
    define("mad_i32_i24", "u32 i32 i32 u32",
           lambda a, b, c: (n.low24(a) * n.low24(b) + c & M32).astype(U32))  # fmt: skip
    define("mad_u32_u16", "u32 u16 u16 u32", lambda a, b, c: a.astype(U32) * b + c)
    define("mad_i32_i16", "u32 i16 i16 u32",
           lambda a, b, c: (a.astype(np.int64) * b + c & M32).astype(U32))  # fmt: skip
    define("add3_u32", u3, lambda a, b, c: a + b + c)
    define("xad_u32", u3, lambda a, b, c: (a ^ b) + c)
    define("lshl_add_u32", u3, lambda a, k, c: n.shift(a, k, 32, True) + c)
    define("lshl_add_u64", "u64 u64 u32 u64", lambda a, k, c: (a << (k & U32(7)).astype(U64)) + c)
    define("add_lshl_u32", u3, lambda a, b, k: n.shift(a + b, k, 32, True))
    define("sad_u32", u3, lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c)
    define("sad_u8", u3, lambda a, b, c: c + sum(
        np.abs(n.byte(a, k) - n.byte(b, k)).astype(U32) for k in range(4)))  # fmt: skip
    define("dot4_i32_i8", u3, lambda a, b, c: n.dot4(a, b, c, (True, True)))
    define("dot4_u32_u8", u3, lambda a, b, c: n.dot4(a, b, c, (False, False)))
    for i in ("i32", "u32", "i16", "u16"):
        two, three = f"{i} {i} {i}", f"{i} {i} {i} {i}"
        define(f"min_{i}", two, np.minimum)
        define(f"max_{i}", two, np.maximum)
        define(f"min3_{i}", three, lambda a, b, c: np.minimum(np.minimum(a, b), c))
        define(f"max3_{i}", three, lambda a, b, c: np.maximum(np.maximum(a, b), c))
        define(f"med3_{i}", three, n.median)
        define(f"maxmin_{i}", three, lambda a, b, c: np.minimum(np.maximum(a, b), c))
        define(f"minmax_{i}", three, lambda a, b, c: np.maximum(np.minimum(a, b), c))
    return out


def of_bits() -> dict[str, Meaning]:
    """Logic, shifts, fields and moves."""
    out: dict[str, Meaning] = {}

    def define(text: str, kinds: str, function: Any) -> None:
        result, *operands = kinds.split()
        out.update(dict.fromkeys(names(text), (result, tuple(operands), function)))

    u1, u2, u3 = "u32 u32", "u32 u32 u32", "u32 u32 u32 u32"
    logic: dict[str, Any] = {
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
        "xnor": lambda a, b: ~(a ^ b),
    }  # fmt: skip
    for name, g in logic.items():
        define(f"{name}_b32", u2, g)
        define(f"{name}_b16", "u16 u16 u16", g)
    define("not_b32", u1, lambda a: ~a)
    define("not_b16", "u16 u16", lambda a: ~a)
    for w in (16, 32, 64):
        s = "u16" if w == 16 else "u32"
        define(f"lshlrev_b{w}", f"u{w} {s} u{w}", lambda k, a, w=w: n.shift(a, k, w, True))
        define(f"lshrrev_b{w}", f"u{w} {s} u{w}", lambda k, a, w=w: n.shift(a, k, w, False))
        define(f"ashrrev_i{w}", f"i{w} {s} i{w}", lambda k, a, w=w: n.shift(a, k, w, False))
    define("lshl_b32", u2, lambda a, k: n.shift(a, k, 32, True))
    define("lshl_or_b32", u3, lambda a, k, c: n.shift(a, k, 32, True) | c)
    define("and_or_b32", u3, lambda a, b, c: a & b | c)
    define("or3_b32", u3, lambda a, b, c: a | b | c)
    define("xor3_b32", u3, lambda a, b, c: a ^ b ^ c)
    define("bfe_u32", u3, n.field)
    define("bfe_i32", u3, lambda a, b, c: n.field(a, b, c, True))
    define("bfi_b32", u3, lambda m, a, b: m & a | ~m & b)
    define("bfm_b32", u2, lambda k, at: ((U32(1) << (k & U32(31))) - U32(1)) << (at & U32(31)))
    both = lambda a, b: a.astype(U64) << U64(32) | b.astype(U64)
    define("alignbit_b32", u3,
           lambda a, b, k: (both(a, b) >> (k & U32(31)).astype(U64)).astype(U32))  # fmt: skip
    define("alignbyte_b32", u3,
           lambda a, b, k: (both(a, b) >> ((k & U32(3)) * U32(8)).astype(U64)).astype(U32))  # fmt: skip
    define("perm_b32", u3, n.permuted)
    define("bcnt_u32_b32", u2, lambda a, b: n.count_ones(a) + b)
    define("ffbh_u32 clz_i32_u32", u1, n.leading)
    define("ffbl_b32 ctz_i32_b32", u1, n.trailing)
    same = lambda a: (a == 0) | (a == -1)
    define("ffbh_i32 cls_i32", "u32 i32",
           lambda a: np.where(same(a), U32(M32), n.leading(np.where(a < 0, ~a, a))))  # fmt: skip
    define("bfrev_b32", u1, n.reverse)
    define("mov_b32 accvgpr_read_b32 accvgpr_write_b32 accvgpr_mov_b32 accvgpr_read accvgpr_write",
           u1, lambda a: a)  # fmt: skip
    define("mov_b16", "u16 u16", lambda a: a)
    define("mov_b64", "u64 u64", lambda a: a)
    return out


def of_conversions() -> dict[str, Meaning]:
    """Conversions and packing that not every float has."""
    out: dict[str, Meaning] = {}

    def define(text: str, kinds: str, function: Any) -> None:
        result, *operands = kinds.split()
        out.update(dict.fromkeys(names(text), (result, tuple(operands), function)))

    pair = lambda low, high: low.astype(U32) | high.astype(U32) << HALF
    half = lambda x: x.astype(np.float16).view(np.uint16)
    cut = lambda x, low, high: np.clip(x.astype(np.int64), low, high) & 0xFFFF
    define("mul_legacy_f32 mul_dx9_zero_f32", "f32 f32 f32",
           lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b))  # fmt: skip
    define("cvt_flr_i32_f32 cvt_floor_i32_f32", "i32 f32", lambda a: n.to_int(np.floor(a), "i32"))
    define("cvt_rpi_i32_f32 cvt_nearest_i32_f32", "i32 f32",
           lambda a: n.to_int(np.floor(a + np.float32(0.5)), "i32"))  # fmt: skip
    for k in range(4):
        define(f"cvt_f32_ubyte{k}", "f32 u32", lambda a, k=k: n.byte(a, k).astype(np.float32))
    define("cvt_i32_i16", "i32 i16", lambda a: a.astype(np.int32))
    define("cvt_u32_u16", "u32 u16", lambda a: a.astype(U32))
    define("cvt_pkrtz_f16_f32 cvt_pk_rtz_f16_f32", "u32 f32 f32",
           lambda a, b: pair(n.to_f16_towards_zero(a), n.to_f16_towards_zero(b)))  # fmt: skip
    define("cvt_pk_f16_f32", "u32 f32 f32", lambda a, b: pair(half(a), half(b)))
    define("cvt_pk_bf16_f32", "u32 f32 f32", lambda a, b: pair(n.to_bf16(a), n.to_bf16(b)))
    define("pack_b32_f16", "u32 u16 u16", pair)
    define("cvt_pk_i16_i32", "u32 i32 i32",
           lambda a, b: pair(cut(a, -32768, 32767), cut(b, -32768, 32767)))  # fmt: skip
    define("cvt_pk_u16_u32", "u32 u32 u32", lambda a, b: pair(cut(a, 0, 65535), cut(b, 0, 65535)))

    def into_byte(x: Any, at: Any, old: Any) -> Any:
        by = (at & U32(3)) * U32(8)
        return old & ~(U32(255) << by) | n.to_int(x, "u8").astype(U32) << by

    define("cvt_pk_u8_f32", "u32 f32 u32 u32", into_byte)
    return out


TABLE: dict[str, Meaning] = {
    **of_floats("f16"),
    **of_floats("f32"),
    **of_floats("f64"),
    **of_integers(),
    **of_bits(),
    **of_conversions(),
}

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "ne": np.not_equal,
    "neq": np.not_equal,
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "nlt": lambda a, b: ~(a < b),
    "t": lambda a, b: np.ones(a.shape, bool),
    "f": lambda a, b: np.zeros(a.shape, bool),
}
COMPARISONS["tru"] = COMPARISONS["t"]


def by_truth(table: int, a: Any, b: Any, c: Any) -> Any:
    """Any function of three bits; `table` holds its value for each of the eight cases."""
    out = np.zeros_like(a)
    for k in range(8):
        if table >> k & 1:
            out |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
    return out
