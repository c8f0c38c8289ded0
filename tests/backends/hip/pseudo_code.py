"""AMD's pseudo-code of an instruction, as a function: what the documents of the instruction sets say,
to hold the emulator against.

It knows assignments, conditions and expressions of numbers: enough for most vector instructions.
The rest (loops, functions, memory) is refused with `Unknown`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
TOKEN = re.compile(
    r"\s*(?:(?P<cast>\d+'[UIFB](?=\())|(?P<sized>\d+'(?:0x[0-9a-f]+|\d+)U?)"
    r"|(?P<hex>0x[0-9a-fA-F]+(?:ULL|LL|U|L)?)|(?P<number>\d+\.\d+F?|\d+(?:ULL|LL|U|L|F)?)"
    r"|(?P<type>\.[uifb]\d+)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||[-+*/&|^~!<>?:(){}\[\],]))"
)
LEVELS = [
    ["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!=", "<>"], ["<", "<=", ">", ">="], ["<<", ">>"],
    ["+", "-"], ["*", "/"],
]  # fmt: skip
Names = dict[str, "Number"]
Value = Callable[[Names], "Number"]


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
        return Number(FLOATS[bits](x.value), "f", bits)
    if x.kind == "f":
        raise Unknown("a float as an integer")
    return number(int(x.value), kind, bits)


def combined(op: str, x: Number, y: Number) -> Number:
    """x op y, in the kind of the longer one."""
    a, b = x.value, y.value
    if op in ("==", "!=", "<>", "<", "<=", ">", ">=", "&&", "||"):
        table: dict[str, Callable[[], Any]] = {
            "==": lambda: a == b, "!=": lambda: a != b, "<>": lambda: a != b, "<": lambda: a < b,
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
            done = {"+": np.add, "-": np.subtract, "*": np.multiply}.get(op)
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
        "|": lambda: a | b, "^": lambda: a ^ b,
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
    if a.bits == 64:
        raise Unknown("fma of f64")
    exact = Fraction(float(a.value)) * Fraction(float(b.value)) + Fraction(float(c.value))
    if exact == 0:
        with np.errstate(all="ignore"):
            return Number(t(t(a.value) * t(b.value) + t(c.value)), "f", a.bits)
    return Number(nearest(exact, a.bits), "f", a.bits)


def nearest(exact: Fraction, bits: int) -> Any:
    """The float nearest to a fraction that is not zero, to even."""
    mantissa, least = {16: (10, -24), 32: (23, -149)}[bits]
    power = exact.numerator.bit_length() - exact.denominator.bit_length()
    power -= abs(exact) < Fraction(2) ** power
    step = max(power - mantissa, least)
    scaled = exact / Fraction(2) ** step
    with np.errstate(all="ignore"):
        return FLOATS[bits](math.ldexp(round(scaled), step))


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
    "isEven": lambda x: Number(int(math.isfinite(x.value) and x.value % 2 == 0), "u", 1),
}


class Parser:
    """Expressions of pseudo-code, by their levels."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at, text = 0, text.strip()
        while at < len(text):
            found = TOKEN.match(text, at)
            if found is None:
                raise Unknown(text[at : at + 20])
            self.tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
            at = found.end()
        self.at = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, text: str = "") -> tuple[str, str]:
        token = self.peek()
        if text and token[1] != text:
            raise Unknown(f"{token[1]!r} instead of {text!r}")
        self.at += 1
        return token

    def whole(self) -> Value:
        found = self.choice()
        if self.peek()[0] != "end":
            raise Unknown(f"{self.peek()[1]!r} after the end")
        return found

    def choice(self) -> Value:
        test = self.level(0)
        if self.peek()[1] != "?":
            return test
        self.take()
        yes = self.choice()
        self.take(":")
        no = self.choice()
        return lambda names: yes(names) if test(names).value else no(names)

    def level(self, n: int) -> Value:
        if n == len(LEVELS):
            return self.power()
        left = self.level(n + 1)
        while self.peek()[1] in LEVELS[n] and self.peek()[0] == "op":
            op, right, before = self.take()[1], self.level(n + 1), left
            left = lambda names, op=op, x=before, y=right: combined(op, x(names), y(names))
        return left

    def power(self) -> Value:
        base = self.unary()
        if self.peek()[1] != "**":
            return base
        self.take()
        exponent = self.unary()
        return lambda names: combined("**", base(names), exponent(names))

    def unary(self) -> Value:
        op = self.peek()[1]
        if op not in ("-", "~", "!"):
            return self.postfix(self.atom())
        self.take()
        inner = self.unary()

        def done(names: Names) -> Number:
            x = inner(names)
            if op == "!":
                return Number(int(not x.value), "u", 1)
            if op == "-":
                if x.kind == "f":
                    return Number(-x.value, "f", x.bits)
                return number(-x.value, x.kind, x.bits) if x.bits else Number(-x.value)
            return number(~int(x.value), x.kind, x.bits) if x.bits else Number(~x.value)

        return done

    def arguments(self, end: str) -> list[Value]:
        found = []
        while self.peek()[1] != end:
            found.append(self.choice())
            if self.peek()[1] == ",":
                self.take()
        self.take(end)
        return found

    def atom(self) -> Value:
        kind, text = self.take()
        if kind == "cast":
            bits, letter = text.split("'")
            self.take("(")
            (inner,) = self.arguments(")")
            return lambda names: converted(inner(names), letter.lower(), int(bits))
        if kind == "sized":
            bits, digits = text.rstrip("U").split("'")
            return lambda _: number(int(digits, 0), "u", int(bits))
        if kind == "hex" or (kind == "number" and "." not in text and "F" not in text):
            value = int(text.rstrip("UL"), 0)
            unsigned = 64 if "ULL" in text else 32 if text.endswith("U") else 0
            return lambda _: number(value, "u", unsigned) if unsigned else Number(value)
        if kind == "number":
            bits = 32 if text.endswith("F") else 64
            return lambda _: Number(FLOATS[bits](text.rstrip("F")), "f", bits)
        if text == "(":
            inner = self.choice()
            self.take(")")
            return inner
        if text == "{":
            parts = self.arguments("}")

            def joined(names: Names) -> Number:
                raw, bits = 0, 0
                for x in (part(names) for part in parts):
                    raw, bits = raw << x.bits | x.raw(), bits + x.bits
                return number(raw, "u", bits)

            return joined
        if kind == "name" and self.peek()[1] == "(":
            if text not in FUNCTIONS:
                raise Unknown(f"the function {text}")
            self.take()
            given = self.arguments(")")
            return lambda names: FUNCTIONS[text](*(x(names) for x in given))
        if kind == "name":
            if text not in ("S0", "S1", "S2", "tmp", "D0", "result"):
                raise Unknown(f"the name {text}")
            return lambda names: names[text]
        raise Unknown(text)

    def postfix(self, value: Value) -> Value:
        while True:
            kind, text = self.peek()
            before = value
            if kind == "type":
                self.take()
                letter, bits = text[1], int(text[2:])
                value = lambda names, x=before, k=letter, n=bits: x(names).read(k, n)
            elif text == "[":
                self.take()
                high = self.choice()
                low = high
                if self.peek()[1] == ":":
                    self.take()
                    low = self.choice()
                self.take("]")

                def part(names: Names, x: Any = before, h: Any = high, m: Any = low) -> Number:
                    top, bottom = int(h(names).value), int(m(names).value)
                    if top < bottom:
                        raise Unknown("bits in reverse")
                    return number(x(names).raw() >> bottom, "u", top - bottom + 1)

                value = part
            else:
                return value


TARGET = re.compile(r"^(D0|tmp|result)(?:\.([uifb])(\d+))?\s*(\+?=)\s*(.+)$", re.S)


def function_of(text: str) -> Callable[..., Number]:
    """The result, D0, from the operands S0, S1 and S2.

    Raises:
        Unknown: it is not understood.
    """
    text = re.sub(r"//[^\n]*", "", text)
    steps: list[tuple[str, Any]] = []
    for line in re.split(r"[;\n]", text):
        line = line.strip()
        if not line:
            continue
        if found := re.match(r"^(if|elsif) (.+) then$", line):
            steps.append((found[1], Parser(found[2]).whole()))
        elif line in ("else", "endif"):
            steps.append((line, None))
        elif found := TARGET.match(line):
            name, letter, bits, op, right = found.groups()
            value = Parser(right).whole()
            steps.append(("set", (name, letter, int(bits or 0), op, value)))
        else:
            raise Unknown(line)

    def run(*operands: Number) -> Number:
        names: Names = {f"S{k}": x for k, x in enumerate(operands)}
        open_: list[list[bool]] = []  # of each condition: whether this branch runs, whether one did
        for kind, what in steps:
            outside = all(c[0] for c in open_[:-1])
            if kind == "if":
                here = all(c[0] for c in open_)
                yes = here and bool(what(names).value)
                open_.append([yes, yes])
            elif kind == "elsif":
                yes = outside and not open_[-1][1] and bool(what(names).value)
                open_[-1] = [yes, open_[-1][1] or yes]
            elif kind == "else":
                open_[-1] = [outside and not open_[-1][1], True]
            elif kind == "endif":
                open_.pop()
            elif all(c[0] for c in open_):
                name, letter, bits, op, value = what
                x = value(names)
                if op == "+=":
                    x = combined("+", names[name], x)
                if letter:
                    if letter != "f" and x.kind == "f":
                        x = x.read(letter, bits)
                    x = converted(x, letter, bits)
                names[name] = x
        return names["D0"]

    return run
