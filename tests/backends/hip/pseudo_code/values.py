"""Numbers of AMD's pseudo-code: bits with a kind, and the functions that the documents of the
instruction sets use without saying what they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
Names = dict[str, Any]


class Unknown(Exception):
    """Pseudo-code that is not understood."""


@dataclass(frozen=True)
class Number:
    """A number: "u", "i" or "f" of so many bits; no bits: an integer of any size."""

    value: Any
    kind: str = "i"
    bits: int = 0

    def raw(self) -> int:
        """Its bits."""
        if self.kind == "f":
            return int(np.asarray(self.value, FLOATS[self.bits]).view(f"u{self.bits // 8}"))
        return int(self.value) & ((1 << (self.bits or 64)) - 1)

    def read(self, kind: str, bits: int) -> Number:
        """Its lowest bits as another kind of number."""
        return number(self.raw() & ((1 << bits) - 1), kind, bits)


def number(raw: int, kind: str, bits: int) -> Number:
    """A number by its bits."""
    raw &= (1 << bits) - 1
    if kind == "f":
        return Number(np.array(raw, f"u{bits // 8}").view(FLOATS[bits])[()], "f", bits)
    signed = kind == "i" and raw >> (bits - 1)
    return Number(raw - (1 << bits) if signed else raw, "u" if kind == "b" else kind, bits)


def converted(x: Number, kind: str, bits: int) -> Number:
    """A number's value as another kind."""
    if kind == "f":
        if x.kind == "f" and bits != x.bits and math.isnan(x.value):
            return _nan(x, bits)
        return Number(FLOATS[bits](x.value), "f", bits)
    if x.kind == "f":
        raise Unknown("a float as an integer")
    return number(int(x.value), kind, bits)


MANTISSA = {16: 10, 32: 23, 64: 52}


def _nan(x: Number, bits: int) -> Number:
    """A NaN of another width, as quiet as it was."""
    quiet, ones = is_quiet(x).value, (1 << bits) - 1
    raw = ones & ~(1 << bits - 1)
    return number(raw if quiet else raw & ~(1 << MANTISSA[bits] - 1), "f", bits)


def is_quiet(x: Number) -> Number:
    """Whether it is a quiet NaN."""
    quiet = x.raw() >> MANTISSA[x.bits] - 1 & 1
    return Number(int(math.isnan(x.value) and quiet), "u", 1)


def is_signalling(x: Number) -> Number:
    """Whether it is a NaN that is not quiet."""
    return Number(int(math.isnan(x.value) and not is_quiet(x).value), "u", 1)


def exponent(x: Number) -> Number:
    """The bits of the exponent."""
    low = MANTISSA[x.bits]
    return Number(x.raw() >> low & (1 << x.bits - 1 - low) - 1, "i", 32)


def combined(op: str, x: Number, y: Number) -> Number:
    """x op y, in the kind of the longer one."""
    a, b = x.value, y.value
    if op in ("==", "!=", "<>", "<", "<=", ">", ">=", "&&", "||"):
        table: dict[str, Callable[[], Any]] = {
            "==": lambda: a == b, "!=": lambda: a != b,
            "<>": lambda: a < b or a > b, "<": lambda: a < b,
            "<=": lambda: a <= b, ">": lambda: a > b, ">=": lambda: a >= b,
            "&&": lambda: bool(a) and bool(b), "||": lambda: bool(a) or bool(b),
        }  # fmt: skip
        return Number(int(table[op]()), "u", 1)
    if "f" in (x.kind, y.kind):
        bits = max(n.bits for n in (x, y) if n.kind == "f")
        t = FLOATS[bits]
        with np.errstate(all="ignore"):
            if op == "**":
                return Number(t(np.ldexp(t(1), int(b))), "f", bits)
            known = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
            done = known.get(op)
            if done is None:
                raise Unknown(f"{op} of floats")
            return Number(t(done(t(a), t(b))), "f", bits)
    if op in ("<<", ">>"):
        if b < 0 or b > 200:
            raise Unknown("a shift by more")
        found = a << b if op == "<<" else a >> b
        return number(found, x.kind, x.bits) if x.bits else Number(found)
    whole: dict[str, Callable[[], int]] = {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "&": lambda: a & b,
        "|": lambda: a | b, "^": lambda: a ^ b, "/": lambda: a // b, "%": lambda: a % b,
    }  # fmt: skip
    if op not in whole:
        raise Unknown(f"{op} of integers")
    wide = x if x.bits >= y.bits else y
    return number(whole[op](), wide.kind, wide.bits) if wide.bits else Number(whole[op]())


def fused(a: Number, b: Number, c: Number) -> Number:
    """a * b + c, rounded once."""
    t = FLOATS[a.bits]
    if not all(math.isfinite(n.value) for n in (a, b, c)):
        with np.errstate(all="ignore"):
            return Number(t(t(a.value) * t(b.value) + t(c.value)), "f", a.bits)
    exact = Fraction(float(a.value)) * Fraction(float(b.value)) + Fraction(float(c.value))
    if exact == 0:
        with np.errstate(all="ignore"):
            return Number(t(t(a.value) * t(b.value) + t(c.value)), "f", a.bits)
    return Number(nearest(exact, a.bits), "f", a.bits)


def nearest(exact: Fraction, bits: int) -> Any:
    """The float nearest to a fraction that is not zero, to even."""
    mantissa, least = {16: (10, -24), 32: (23, -149), 64: (52, -1074)}[bits]
    power = exact.numerator.bit_length() - exact.denominator.bit_length()
    power -= abs(exact) < Fraction(2) ** power
    step = max(power - mantissa, least)
    scaled = exact / Fraction(2) ** step
    with np.errstate(all="ignore"):
        try:
            return FLOATS[bits](math.ldexp(round(scaled), step))
        except OverflowError:
            return FLOATS[bits](math.inf if exact > 0 else -math.inf)


def signed_from(x: Number, bit: Number) -> Number:
    """The bits below one of them, whose highest is the sign."""
    n = int(bit.value)
    return number(number(x.raw(), "i", n).value if n else 0, "i", x.bits)


def extreme(larger: bool) -> Callable[..., Number]:
    """The larger or the smaller of two integers."""
    pick = max if larger else min

    def found(x: Number, y: Number) -> Number:
        if x.kind == "f":
            raise Unknown("extremes of floats")
        return pick(x, y, key=lambda n: n.value)

    return found


def to_integer(kind: str, bits: int) -> Callable[[Number], Number]:
    """A float cut to an integer, or to the nearest that there is; NaN is 0."""
    low = -(1 << bits - 1) if kind == "i" else 0
    high = (1 << bits - (kind == "i")) - 1

    def found(x: Number) -> Number:
        if math.isnan(x.value):
            return Number(0, kind, bits)
        inside = min(max(float(x.value), low), high)
        return Number(max(low, min(high, int(inside))), kind, bits)

    return found


def to_bf16(x: Number) -> Number:
    """f32 rounded to the nearest bf16, to even, as bits."""
    if math.isnan(x.value):
        return Number(0x7FC0, "u", 16)
    raw = x.raw()
    return Number(raw + 0x7FFF + (raw >> 16 & 1) >> 16, "u", 16)


def cut_to_f16(x: Number) -> Number:
    """f32 as the next f16 towards zero."""
    half = np.float16(x.value)
    if not math.isnan(x.value) and abs(float(half)) > abs(float(x.value)):
        half = np.nextafter(half, np.float16(0))
    return Number(half, "f", 16)


FUNCTIONS: dict[str, Callable[..., Number]] = {
    **{
        f"v_{name}_{kind}": extreme(name == "max")
        for name in ("min", "max")
        for kind in ("i16", "u16", "i32", "u32")
    },
    **{
        f"{source}_to_{kind}{bits}": to_integer(kind, bits)
        for source, kind, bits in (
            ("f16", "i", 16),
            ("f16", "u", 16),
            ("f32", "i", 32),
            ("f32", "u", 32),
            ("f64", "i", 32),
            ("f64", "u", 32),
        )
    },
    "fma": fused,
    "signext_from_bit": signed_from,
    "abs": lambda x: Number(abs(x.value), x.kind, x.bits),
    "floor": lambda x: Number(np.floor(x.value), "f", x.bits),
    "trunc": lambda x: Number(np.trunc(x.value), "f", x.bits),
    "signext": lambda x: Number(x.value, "i", 64),
    "f32_to_f16": lambda x: Number(np.float16(x.value), "f", 16),
    "f16_to_f32": lambda x: Number(np.float32(x.value), "f", 32),
    "f32_to_f64": lambda x: Number(np.float64(x.value), "f", 64),
    "f64_to_f32": lambda x: Number(np.float32(x.value), "f", 32),
    "i32_to_f32": lambda x: Number(np.float32(x.value), "f", 32),
    "u32_to_f32": lambda x: Number(np.float32(x.value), "f", 32),
    "i32_to_f64": lambda x: Number(np.float64(x.value), "f", 64),
    "u32_to_f64": lambda x: Number(np.float64(x.value), "f", 64),
    "i16_to_f16": lambda x: Number(np.float16(x.value), "f", 16),
    "u16_to_f16": lambda x: Number(np.float16(x.value), "f", 16),
    "u8_to_u32": lambda x: Number(x.value, "u", 32),
    "i8_to_i32": lambda x: Number(x.value, "i", 32),
    "f32_to_u8": to_integer("u", 8),
    "i32_to_i16": lambda x: Number(min(max(x.value, -32768), 32767), "i", 16),
    "u32_to_u16": lambda x: Number(min(x.value, 65535), "u", 16),
    "f32_to_bf16": to_bf16,
    "f32_to_f16_towards_zero": cut_to_f16,
    "isNAN": lambda x: Number(int(math.isnan(x.value)), "u", 1),
    "isQuietNAN": is_quiet,
    "isSignalNAN": is_signalling,
    "cvtToQuietNAN": lambda x: Number(FLOATS[x.bits](math.nan), "f", x.bits),
    "sign": lambda x: Number(x.raw() >> x.bits - 1, "u", 1),
    "exponent": exponent,
    "mantissa": lambda x: Number(np.frexp(x.value)[0], "f", x.bits),
    "fract": lambda x: Number(x.value - np.floor(x.value), "f", x.bits),
    "ldexp": lambda x, k: Number(np.ldexp(x.value, int(k.value)), "f", x.bits),
    "sqrt": lambda x: Number(np.sqrt(x.value), "f", x.bits),
    "log2": lambda x: Number(FLOATS[x.bits](np.log2(np.float64(x.value))), "f", x.bits),
    "pow": lambda x, y: Number(
        FLOATS[x.bits](np.power(np.float64(x.value), np.float64(y.value))), "f", x.bits
    ),
    "sin": lambda x: Number(FLOATS[x.bits](np.sin(np.float64(x.value))), "f", x.bits),
    "cos": lambda x: Number(FLOATS[x.bits](np.cos(np.float64(x.value))), "f", x.bits),
    "isEven": lambda x: Number(int(math.isfinite(x.value) and x.value % 2 == 0), "u", 1),
}
