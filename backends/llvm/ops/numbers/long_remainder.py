"""Remainders of floats whose quotient is too large for one multiplication, by long division.

LLVM before 22 has one multiplication for them on AMD GPUs, which is wrong by up to the divisor.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from cubepy.backends.llvm.ops.types import F32, F64
from cubepy.backends.llvm.ops.values import fma, math, negated

STEP = {F32: 20, F64: 48}
"""Bits of the quotient that a step takes off: their product with the divisor, taken from the rest,
is exact.
"""
_SHIFT = {F32: 120, F64: 1000}
"""Powers of two by which a divisor is scaled where the quotient might overflow, twice at most."""
_WORDS = {F32: (ir.IntType(32), 23, 127), F64: (ir.IntType(64), 52, 1023)}
"""Integers as wide, bits of the mantissa, bias of the exponent."""


def long_remainder(b: Any, x: Any, y: Any) -> Any:
    """C's fmod of two scalars: as long as the rest is not below the divisor, the divisor times the
    largest power of two with a quotient of a few bits is taken away.
    """
    kind = x.type
    word, mantissa, bias = _WORDS[kind]
    size, whole = math(b, "fabs", y), math(b, "fabs", x)
    before, loop = b.block, b.append_basic_block("remainder.loop")
    done = b.append_basic_block("remainder.done")
    b.branch(loop)
    b.position_at_end(loop)
    rest = b.phi(kind)
    scaled = size
    for _ in range(2):
        smaller = b.fmul(rest, ir.Constant(kind, 2.0 ** -_SHIFT[kind]))
        larger = b.fmul(scaled, ir.Constant(kind, 2.0 ** _SHIFT[kind]))
        scaled = b.select(b.fcmp_ordered(">", smaller, scaled), larger, scaled)
    exponent = b.lshr(b.bitcast(b.fdiv(rest, scaled), word), word(mantissa))
    lowest, surplus = word(bias), b.sub(exponent, word(STEP[kind]))
    power = b.select(b.icmp_signed(">", surplus, lowest), surplus, lowest)
    scaled = b.fmul(scaled, b.bitcast(b.shl(power, word(mantissa)), kind))
    quotient = math(b, "trunc", b.fdiv(rest, scaled))
    less = fma(b, negated(b, quotient), scaled, rest)
    less = b.select(b.fcmp_ordered("<", less, ir.Constant(kind, 0.0)), b.fadd(less, scaled), less)
    ended = b.fcmp_ordered("<", rest, size)
    less = b.select(ended, rest, less)  # x below y has no quotient; NaN ends the loop, too
    again = b.fcmp_ordered(">=", less, size)
    b.cbranch(again, loop, done)
    rest.add_incoming(whole, before)
    rest.add_incoming(less, loop)
    b.position_at_end(done)
    either = b.fcmp_unordered("uno", x, y)
    return b.select(either, b.fadd(x, y), math(b, "copysign", less, x))
