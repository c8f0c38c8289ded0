"""Expressions of AMD's pseudo-code, as functions of what names stand for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.backends.hip.pseudo_code.values import (
    FLOATS,
    FUNCTIONS,
    Names,
    Number,
    Unknown,
    combined,
    converted,
    number,
)

TOKEN = re.compile(
    r"\s*(?:(?P<cast>\d+'[UIFB](?=\())|(?P<sized>\d+'(?:0x[0-9a-f]+|\d+(?:\.\d+)?)U?)"
    r"|(?P<hex>0x[0-9a-fA-F]+(?:ULL|LL|U|L)?)|(?P<number>\d+\.\d+F?|\d+(?:ULL|LL|U|L|F)?)"
    r"|(?P<type>\.(?:[uifb]|bf)\d+(?!\w))|(?P<name>[A-Za-z_][\w.]*)"
    r"|(?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||[-+*/%&|^~!<>?:(){}\[\],]))"
)
LEVELS = [
    ["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!=", "<>"], ["<", "<=", ">", ">="], ["<<", ">>"],
    ["+", "-"], ["*", "/", "%"],
]  # fmt: skip
CONSTANTS = {
    "INF": float("inf"),
    "NAN": float("nan"),
    "PI": 3.141592653589793,
    "UNDERFLOW_F32": 0.0,
    "UNDERFLOW_F64": 0.0,
}
Value = Callable[[Names], Any]
WIDEST = 65
TOWARD_ZERO, TO_NEAREST = Number(0, "u", 2), Number(1, "u", 2)


class Parser:
    """Expressions of pseudo-code, by their levels."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at, text = 0, text.strip()
        while at < len(text):
            found = TOKEN.match(text, at)
            if found is None:
                raise Unknown(text[at : at + 20])
            kind, word, at = str(found.lastgroup), found[str(found.lastgroup)], found.end()
            typed = re.fullmatch(r"(\w+)(\.(?:[uifb]|bf)\d+)", word) if kind == "name" else None
            self.tokens += [("name", typed[1]), ("type", typed[2])] if typed else [(kind, word)]
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
        if op not in ("-", "~", "!", "+"):
            return self.postfix(self.atom())
        self.take()
        inner = self.unary()

        def done(names: Names) -> Number:
            x = inner(names)
            if op == "+":
                return x
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

    def constant(self, kind: str, text: str) -> Number:
        """A number that is written down."""
        if kind == "sized":
            bits, digits = text.rstrip("U").split("'")
            if "." in digits:
                return Number(FLOATS[int(bits)](digits), "f", int(bits))
            return number(int(digits, 0), "u", int(bits))
        if kind == "hex" or ("." not in text and "F" not in text):
            unsigned = 64 if "ULL" in text else 32 if text.endswith("U") else 0
            value = int(text.rstrip("UL"), 0)
            return number(value, "u", unsigned) if unsigned else Number(value)
        bits = 32 if text.endswith("F") else 64
        return Number(FLOATS[bits](text.rstrip("F")), "f", bits)

    def atom(self) -> Value:
        kind, text = self.take()
        if kind == "cast":
            bits, letter = text.split("'")
            self.take("(")
            as_bits = self.peek()[0] == "hex" and letter == "F"
            (inner,) = self.arguments(")")
            if as_bits:
                return lambda names: number(inner(names).raw(), "f", int(bits))
            return lambda names: converted(inner(names), letter.lower(), int(bits))
        if kind in ("sized", "hex", "number"):
            known = self.constant(kind, text)
            return lambda _: known
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
        if kind == "name" and text in CONSTANTS:
            bits = kind_of(self.take()[1])[1] if self.peek()[0] == "type" else 64
            return lambda _: Number(FLOATS[bits](CONSTANTS[text]), "f", bits)
        if kind == "name" and self.peek()[1] == "(":
            self.take()
            given = self.arguments(")")
            return lambda names: called(text, names, [x(names) for x in given])
        if kind == "name":
            return lambda names: known_as(names, text)
        raise Unknown(text)

    def postfix(self, value: Value) -> Value:
        while True:
            kind, text = self.peek()
            before = value
            if kind == "type":
                self.take()
                letter, bits = kind_of(text)
                value = lambda names, x=before, k=letter, n=bits: x(names).read(k, n)
            elif text == "[":
                self.take()
                high = self.choice()
                low = None
                if self.peek()[1] == ":":
                    self.take()
                    low = self.choice()
                self.take("]")
                value = lambda names, x=before, h=high, m=low: part_of(x(names), names, h, m)
            else:
                return value


def kind_of(text: str) -> tuple[str, int]:
    """The kind and the bits of ".u32" or ".bf16"."""
    found = re.fullmatch(r"\.([a-z]+)(\d+)", text)
    assert found is not None
    return "u" if found[1] == "bf" else found[1], int(found[2])


def known_as(names: Names, text: str) -> Any:
    """What a name stands for."""
    if text not in names:
        raise Unknown(f"the name {text}")
    return names[text]


def called(text: str, names: Names, given: list[Number]) -> Any:
    """A function of the text, of the documents, or another instruction."""
    if text == "f32_to_f16" and names.get("ROUND_MODE") is TOWARD_ZERO:
        text = "f32_to_f16_towards_zero"
    function = names.get(text) or FUNCTIONS.get(text) or names.get("instructions", {}).get(text)
    if function is None:
        raise Unknown(f"the function {text}")
    return function(*given)


def part_of(x: Any, names: Names, high: Value, low: Value | None) -> Any:
    """Bits of a number (in reverse if the first is the lower one), or an element."""
    top = int(high(names).value)
    if not isinstance(x, Number):
        return x[top]
    bottom = top if low is None else int(low(names).value)
    if top >= bottom:
        return number(x.raw() >> bottom, "u", top - bottom + 1)
    width = bottom - top + 1
    return number(int(f"{number(x.raw() >> top, 'u', width).value:0{width}b}"[::-1], 2), "u", width)
