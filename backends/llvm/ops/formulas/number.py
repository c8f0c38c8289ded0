"""Floats of code that is being built, written as in a formula.

A `Number` is one float or a line of them; its operators emit instructions. No liberty that a kernel
takes with `fast_math` reaches these instructions, since many of them exist to recover what another
one rounded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.formulas.curves import CURVES, Curves
from cubepy.backends.llvm.ops.formulas.scalef import scaled_by, width_of
from cubepy.backends.llvm.ops.registry import Op
from cubepy.backends.llvm.ops.types import F32, F64
from cubepy.backends.llvm.ops.values import (
    KEPT,
    any_lane,
    const,
    int_like,
    lane,
    lanes_of,
    math,
    negated,
    on_nvidia,
    shaped,
)

INF, NAN = float("inf"), float("nan")
SMALLEST_NORMAL = 2.0**-1022


class Truth:
    """A condition, or a mask of a line."""

    __slots__ = ("b", "v")

    def __init__(self, b: Any, v: Any) -> None:
        self.b, self.v = b, v

    def __and__(self, other: Truth) -> Truth:
        return Truth(self.b, self.b.and_(self.v, other.v))

    def __or__(self, other: Truth) -> Truth:
        return Truth(self.b, self.b.or_(self.v, other.v))

    def __invert__(self) -> Truth:
        return Truth(self.b, self.b.not_(self.v))


class Number:
    """A float or a line of floats; operands that are Python floats become constants of its type."""

    __slots__ = ("b", "v")

    def __init__(self, b: Any, v: Any) -> None:
        self.b, self.v = b, v

    def like(self, x: Number | float) -> Number:
        """A constant of the same type; a number stays itself."""
        return x if isinstance(x, Number) else Number(self.b, const(self.v.type, float(x)))

    def _with(self, name: str, x: Number | float, y: Number | float) -> Number:
        emit = getattr(self.b, name)
        return Number(self.b, emit(self.like(x).v, self.like(y).v, flags=KEPT))

    def __add__(self, other: Number | float) -> Number:
        return self._with("fadd", self, other)

    def __radd__(self, other: float) -> Number:
        return self._with("fadd", other, self)

    def __sub__(self, other: Number | float) -> Number:
        return self._with("fsub", self, other)

    def __rsub__(self, other: float) -> Number:
        return self._with("fsub", other, self)

    def __mul__(self, other: Number | float) -> Number:
        return self._with("fmul", self, other)

    def __rmul__(self, other: float) -> Number:
        return self._with("fmul", other, self)

    def __truediv__(self, other: Number | float) -> Number:
        return self._with("fdiv", self, other)

    def __rtruediv__(self, other: float) -> Number:
        return self._with("fdiv", other, self)

    def __neg__(self) -> Number:
        return Number(self.b, negated(self.b, self.v))

    def __abs__(self) -> Number:
        return self.mapped("fabs")

    def _compared(self, symbol: str, other: Number | float) -> Truth:
        return Truth(self.b, self.b.fcmp_ordered(symbol, self.v, self.like(other).v))

    def __lt__(self, other: Number | float) -> Truth:
        return self._compared("<", other)

    def __le__(self, other: Number | float) -> Truth:
        return self._compared("<=", other)

    def __gt__(self, other: Number | float) -> Truth:
        return self._compared(">", other)

    def __ge__(self, other: Number | float) -> Truth:
        return self._compared(">=", other)

    def equals(self, other: Number | float) -> Truth:
        """Whether both are the same number; -0 is 0, and NaN is nothing."""
        return self._compared("==", other)

    def is_nan(self) -> Truth:
        """Whether it is NaN."""
        return Truth(self.b, self.b.fcmp_unordered("uno", self.v, self.v))

    def is_negative(self) -> Truth:
        """Whether the sign is set, of -0 too."""
        word = int_like(self.v.type)
        code = self.b.bitcast(self.v, word)
        return Truth(self.b, self.b.icmp_signed("<", code, const(word, 0)))

    def mapped(self, name: str) -> Number:
        """What an intrinsic of one value gives: "fabs", "floor", "rint", "sqrt"."""
        return Number(self.b, math(self.b, name, self.v))

    def signed_as(self, other: Number) -> Number:
        """Its size with the sign of another number."""
        return Number(self.b, math(self.b, "copysign", self.v, other.v))


def fma(x: Number, y: Number | float, z: Number | float) -> Number:
    """x * y + z, rounded once."""
    return Number(x.b, math(x.b, "fma", x.v, x.like(y).v, x.like(z).v))


def where(condition: Truth, x: Number | float, y: Number | float) -> Number:
    """x where the condition holds, else y; one of them is no constant."""
    like = x if isinstance(x, Number) else y
    assert isinstance(like, Number)
    chosen = condition.b.select(condition.v, like.like(x).v, like.like(y).v)
    return Number(condition.b, chosen)


def polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """The polynomial with these coefficients, lowest power first: by pairs, which wait less for
    each other.
    """
    odd = coefficients[1::2]
    pairs = [fma(x, c, low) for low, c in zip(coefficients[::2], odd, strict=False)]
    pairs += [x.like(c) for c in coefficients[2 * len(odd) :]]
    square, out = x * x, pairs[-1]
    for pair in pairs[-2::-1]:
        out = fma(out, square, pair)
    return out


def two_sum(x: Number, y: Number | float) -> tuple[Number, Number]:
    """x + y, and what rounding took from it (Knuth)."""
    y = x.like(y)
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def ordered_sum(x: Number, y: Number) -> tuple[Number, Number]:
    """The same where |x| >= |y| or x is 0 (Dekker)."""
    total = x + y
    return total, (x - total) + y


def product(x: Number, y: Number | float) -> tuple[Number, Number]:
    """x * y, and what rounding took from it."""
    value = x * y
    return value, fma(x, y, -value)


def power_of_two(n: Number) -> Number:
    """2**n of an integral n from -1022 to 1023."""
    b, word = n.b, int_like(n.v.type)
    shifted = n + (1.5 * 2.0**52 + 1023)  # its lowest bits are n and the bias of exponents
    code = b.shl(b.bitcast(shifted.v, word), const(word, 52))
    return Number(b, b.bitcast(code, n.v.type))


def scaled(y: Number, n: Number, normal: bool = False) -> Number:
    """y * 2**n, rounded once, for y near 1 and an integral n from -2000 to 2000; where 2**n and the
    result are `normal`, by one product.
    """
    if width_of(y.b, y.v.type):
        return Number(y.b, scaled_by(y.b, y.v, n.v))
    if normal:
        return y * power_of_two(n)
    half = (n * 0.5).mapped("floor")
    return (y * power_of_two(half)) * power_of_two(n - half)


def parted(x: Number, least: float = 1.0, normal: bool = False) -> tuple[Number, Number]:
    """k and m with x = 2**k * m, least <= m < 2 * least, for x positive, finite and perhaps
    `normal`.
    """
    b, word = x.b, int_like(x.v.type)
    base = struct.unpack("<q", struct.pack("<d", least))[0]
    tiny = None if normal else x < SMALLEST_NORMAL
    x = x if tiny is None else where(tiny, x * 2.0**54, x)
    code = b.sub(b.bitcast(x.v, word), const(word, base))
    k = Number(b, b.sitofp(b.ashr(code, const(word, 52)), x.v.type))
    m = b.add(b.and_(code, const(word, (1 << 52) - 1)), const(word, base))
    k = k if tiny is None else where(tiny, k - 54.0, k)
    return k, Number(b, b.bitcast(m, x.v.type))


def else_rarely(rare: Truth, y: Number, function: Callable[..., Any], *arguments: Number) -> Number:
    """y, but in the lanes that are rare, what a function of doubles gives; it is not called where
    there is none.
    """
    b, before = y.b, y.b.block
    with b.if_then(any_lane(b, rare.v), likely=False):
        lanes = lanes_of(y.v.type)
        slow = ir.Constant(y.v.type, ir.Undefined)
        if not lanes:
            slow = function(*(a.v for a in arguments))
        for k in range(lanes):
            one = function(*(lane(b, a.v, k) for a in arguments))
            slow = b.insert_element(slow, one, ir.Constant(ir.IntType(32), k))
        slow = b.select(rare.v, slow, y.v)
        after = b.block
    out = b.phi(y.v.type)
    out.add_incoming(y.v, before)
    out.add_incoming(slow, after)
    return Number(b, out)


def by_libm(b: Any, name: str) -> Callable[..., Any]:
    """The function of doubles that the C library has under a name."""

    def call(*values: Any) -> Any:
        kind = ir.FunctionType(F64, [F64] * len(values))
        return b.call(cgutils.get_or_insert_function(b.module, kind, name), values)

    return call


def by_libdevice(b: Any, name: str, values: Sequence[Any]) -> Any:
    """What NVIDIA's math library gives, lane by lane; its functions of f32 end in f."""
    lanes = lanes_of(values[0].type)
    if not lanes:
        ty = values[0].type
        full = f"__nv_{name}{'f' if ty == F32 else ''}"
        kind = ir.FunctionType(ty, [v.type for v in values])
        return b.call(cgutils.get_or_insert_function(b.module, kind, full), values)
    out = ir.Constant(values[0].type, ir.Undefined)
    for k in range(lanes):
        one = by_libdevice(b, name, [lane(b, v, k) for v in values])
        out = b.insert_element(out, one, ir.Constant(ir.IntType(32), k))
    return out


def formula(
    name: str, function: Callable[..., Number], arity: int, doc: str, own: Sequence[str] = ()
) -> Op:
    """An op on floats: `function(curves, *numbers)` in doubles, for f32 too; on NVIDIA GPUs that of
    their math library, but for the dtypes of `own`.

    Doubles give the f32 next to the truth but for a few results in 10000, which lie close to the
    middle of two.
    """

    def emit(b: Any, dtype: str, *values: Any) -> Any:
        if on_nvidia(b) and dtype not in own:
            return by_libdevice(b, name, values)
        ty = values[0].type
        wide = shaped(F64, ty)
        numbers = [Number(b, v if dtype == "f64" else b.fpext(v, wide)) for v in values]
        out = function(CURVES[dtype], *numbers).v
        return out if dtype == "f64" else b.fptrunc(out, ty)

    return elementwise(name, arity, emit, "float", doc=doc)


__all__ = [
    "INF",
    "NAN",
    "Curves",
    "Number",
    "Truth",
    "by_libdevice",
    "by_libm",
    "else_rarely",
    "fma",
    "formula",
    "ordered_sum",
    "parted",
    "polynomial",
    "power_of_two",
    "product",
    "scaled",
    "two_sum",
    "where",
]
