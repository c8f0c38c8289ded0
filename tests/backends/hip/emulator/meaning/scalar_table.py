"""Scalar instructions that are a function of two numbers and of the bit SCC: what they give, and
what SCC becomes (None: it stays).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.backends.hip.emulator.operands import M32, M64

Result = tuple[int, "int | None"]
Function = Callable[[int, int, int], Result]


def signed(x: int, width: int = 32) -> int:
    """Bits as a number with a sign."""
    return x - (1 << width) if x >> (width - 1) & 1 else x


def _or_zero(x: int) -> Result:
    """A result, and whether it is anything but 0."""
    return x, int(x != 0)


def _within(x: int) -> Result:
    """A sum of signed numbers, and whether it overflows."""
    return x & M32, int(not -(1 << 31) <= x < 1 << 31)


def _field(a: int, at: int, n: int) -> int:
    part = a >> at & ((1 << n) - 1)
    return signed(part, n) if n else 0


def of_width(w: int) -> dict[str, Function]:
    """Instructions on 32 or 64 bits."""
    mask, out = M32 if w == 32 else M64, {}

    def define(text: str, function: Any) -> None:
        out.update(dict.fromkeys((f"s_{name}{w}" for name in text.split()), function))

    logic: dict[str, Any] = {
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    }  # fmt: skip
    for name, g in logic.items():
        inverse = {"and": "nand", "or": "nor", "xor": "xnor"}[name]
        define(f"{name}_b", lambda a, b, c, g=g: _or_zero(g(a, b)))
        define(f"{inverse}_b", lambda a, b, c, g=g: _or_zero(~g(a, b) & mask))
    define("andn2_b and_not1_b", lambda a, b, c: _or_zero(a & ~b & mask))
    define("orn2_b or_not1_b", lambda a, b, c: _or_zero((a | ~b) & mask))
    define("lshl_b", lambda a, b, c: _or_zero(a << (b & w - 1) & mask))
    define("lshr_b", lambda a, b, c: _or_zero(a >> (b & w - 1)))
    define("ashr_i", lambda a, b, c: _or_zero(signed(a, w) >> (b & w - 1) & mask))
    define("bfm_b", lambda a, b, c: (((1 << (a & w - 1)) - 1) << (b & w - 1) & mask, None))
    define("cselect_b", lambda a, b, c: (a if c else b, None))
    define("mov_b", lambda a, b, c: (a, None))
    define("not_b", lambda a, b, c: _or_zero(~a & mask))
    define("brev_b", lambda a, b, c: (int(f"{a:0{w}b}"[::-1], 2), None))
    define("ff1_i32_b ctz_i32_b", lambda a, b, c: ((a & -a).bit_length() - 1 & M32, None))
    define("flbit_i32_b clz_i32_u", lambda a, b, c: (w - a.bit_length() if a else M32, None))
    define("bcnt1_i32_b", lambda a, b, c: _or_zero(a.bit_count()))
    define("bcnt0_i32_b", lambda a, b, c: _or_zero(w - a.bit_count()))
    define("bfe_u", lambda a, b, c: _or_zero(a >> (b & w - 1) & (1 << (b >> 16 & 127)) - 1))
    define("bfe_i", lambda a, b, c: _or_zero(_field(signed(a, w), b & w - 1, b >> 16 & 127) & mask))
    return out


def of_integers() -> dict[str, Function]:
    """Sums, products and extremes."""
    out: dict[str, Function] = {}

    def define(text: str, function: Any) -> None:
        out.update(dict.fromkeys((f"s_{name}" for name in text.split()), function))

    define("add_u32 add_co_u32", lambda a, b, c: (a + b & M32, int(a + b > M32)))
    define("addc_u32 add_co_ci_u32", lambda a, b, c: (a + b + c & M32, int(a + b + c > M32)))
    define("sub_u32 sub_co_u32", lambda a, b, c: (a - b & M32, int(b > a)))
    define("subb_u32 sub_co_ci_u32", lambda a, b, c: (a - b - c & M32, int(b + c > a)))
    define("add_i32 add_co_i32", lambda a, b, c: _within(signed(a) + signed(b)))
    define("sub_i32 sub_co_i32", lambda a, b, c: _within(signed(a) - signed(b)))
    define("add_u64 add_nc_u64", lambda a, b, c: (a + b & M64, None))
    define("sub_u64 sub_nc_u64", lambda a, b, c: (a - b & M64, None))
    define("mul_u64", lambda a, b, c: (a * b & M64, None))
    define("mul_i32", lambda a, b, c: (a * b & M32, None))
    define("mul_hi_u32", lambda a, b, c: (a * b >> 32, None))
    define("mul_hi_i32", lambda a, b, c: (signed(a) * signed(b) >> 32 & M32, None))
    define("min_i32", lambda a, b, c: (a, 1) if signed(a) < signed(b) else (b, 0))
    define("max_i32", lambda a, b, c: (a, 1) if signed(a) >= signed(b) else (b, 0))
    define("min_u32", lambda a, b, c: (a, 1) if a < b else (b, 0))
    define("max_u32", lambda a, b, c: (a, 1) if a >= b else (b, 0))
    for k in (1, 2, 3, 4):
        define(f"lshl{k}_add_u32",
               lambda a, b, c, k=k: ((a << k) + b & M32, int((a << k) + b > M32)))  # fmt: skip
    define("abs_i32", lambda a, b, c: _or_zero(abs(signed(a)) & M32))
    define("absdiff_i32", lambda a, b, c: _or_zero(abs(signed(a - b & M32)) & M32))
    define("sext_i32_i8", lambda a, b, c: (signed(a & 0xFF, 8) & M32, None))
    define("sext_i32_i16", lambda a, b, c: (signed(a & 0xFFFF, 16) & M32, None))
    define("pack_ll_b32_b16", lambda a, b, c: (a & 0xFFFF | b << 16 & M32, None))
    define("pack_lh_b32_b16", lambda a, b, c: (a & 0xFFFF | b & 0xFFFF0000, None))
    define("pack_hl_b32_b16", lambda a, b, c: (a >> 16 | b << 16 & M32, None))
    define("pack_hh_b32_b16", lambda a, b, c: (a >> 16 | b & 0xFFFF0000, None))
    define("flbit_i32 cls_i32", lambda a, b, c: (_like_sign(signed(a)), None))
    return out


def _like_sign(a: int) -> int:
    """Bits before the first that differs from the sign; -1 where all are alike."""
    return M32 if a in (0, -1) else 32 - (~a if a < 0 else a).bit_length()


TABLE: dict[str, Function] = {**of_width(32), **of_width(64), **of_integers()}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
MASKS: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, e: a & e,
    "or": lambda a, e: a | e,
    "xor": lambda a, e: a ^ e,
    "andn2": lambda a, e: a & ~e,
    "and_not1": lambda a, e: a & ~e,
    "orn2": lambda a, e: a | ~e,
    "or_not1": lambda a, e: a | ~e,
    "andn1": lambda a, e: ~a & e,
    "and_not0": lambda a, e: ~a & e,
    "nand": lambda a, e: ~(a & e),
    "nor": lambda a, e: ~(a | e),
    "xnor": lambda a, e: ~(a ^ e),
    "orn1": lambda a, e: ~a | e,
    "or_not0": lambda a, e: ~a | e,
}
"""Of a number and the mask of lanes that run."""
