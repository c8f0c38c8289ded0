"""AMD's pseudo-code of an instruction, as a function: what the documents of the instruction sets say,
to hold the emulator against.

It knows assignments (also of parts of numbers), conditions, loops, functions within the text, and
what is indexed: registers of lanes, masks, memory. The rest is refused with `Unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tests.backends.hip.pseudo_code.expression import (
    TO_NEAREST,
    TOWARD_ZERO,
    WIDEST,
    Parser,
    Value,
    kind_of,
    known_as,
    part_of,
)
from tests.backends.hip.pseudo_code.values import (
    Names,
    Number,
    Unknown,
    combined,
    converted,
    number,
)


class Target:
    """What an assignment sets: a name, and which part of it."""

    def __init__(self, text: str) -> None:
        parser = Parser(text)
        self.name = parser.take()[1]
        self.type: tuple[str, int] | None = None
        self.parts: list[tuple[Value, Value | None]] = []
        while parser.peek()[0] != "end":
            kind, word = parser.take()
            if kind == "type":
                self.type = kind_of(word)
            elif word == "[":
                high, low = parser.choice(), None
                if parser.peek()[1] == ":":
                    parser.take()
                    low = parser.choice()
                parser.take("]")
                self.parts.append((high, low))
            else:
                raise Unknown(text)

    def now(self, names: Names) -> Any:
        """Its value before."""
        x = known_as(names, self.name)
        for high, low in self.parts:
            x = part_of(x, names, high, low)
        return x.read(*self.type) if self.type and x.bits else x

    def put(self, names: Names, x: Number) -> None:
        """Give it a value, as its own kind."""
        if self.type:
            letter, bits = self.type
            if letter != "f" and x.kind == "f":
                x = x.read(letter, bits)
            x = converted(x, letter, bits)
        holder, parts = names.get(self.name), list(self.parts)
        if not parts:
            names[self.name] = x
            return
        index: int | None = None
        while parts and holder is not None and not isinstance(holder, Number):
            within, index = holder, int(parts.pop(0)[0](names).value)
            if parts and not isinstance(within[index], Number):
                holder = within[index]
                continue
            if not parts:
                within[index] = x
                return
            holder = within[index]
        (high, low), *rest = parts
        if rest:
            raise Unknown(f"parts of parts of {self.name}")
        old = holder if isinstance(holder, Number) else number(0, "u", WIDEST)
        top = int(high(names).value)
        bottom = top if low is None else int(low(names).value)
        if bottom > top:
            x, top, bottom = (
                part_of(x, names, lambda _: Number(0), lambda _: Number(bottom - top)),
                bottom,
                top,
            )
        mask = (1 << top - bottom + 1) - 1
        raw = old.raw() & ~(mask << bottom) | (x.raw() & mask) << bottom
        bits = max(old.bits or WIDEST, top + 1)
        found = number(raw, old.kind if old.bits and old.kind != "f" else "u", bits)
        if index is None:
            names[self.name] = found
        else:
            within[index] = found


class Leave(Exception):
    """A loop or a function ends here, with a value."""

    def __init__(self, value: Any = None) -> None:
        self.value = value


def lines_of(text: str) -> list[str]:
    """Statements: what ends with a line or a semicolon outside of brackets."""
    found, depth, now = [], 0, ""
    for line in re.sub(r"//[^\n]*", "", text).split("\n"):
        for c in line:
            depth += (c in "([{") - (c in ")]}")
            if c == ";" and depth == 0:
                found.append(now)
                now = ""
            else:
                now += c
        now += "\n"
        unfinished = re.search(r"(\|\||&&|[-+*,=])\s*$", now)
        if depth == 0 and not unfinished:
            found.append(now)
            now = ""
    return [line.strip() for line in [*found, now] if line.strip()]


Block = Callable[[Names], None]
_SET = re.compile(r"^(.+?)\s*(?<![=!<>])([-+|&^]?=)(?!=)\s*(.+)$", re.S)


def block_of(lines: list[str], ends: Sequence[str] = ()) -> Block:
    """Statements up to one of the words that end them; takes them off the lines."""
    steps: list[Block] = []
    while lines and not (ends and lines[0].split()[0] in ends):
        steps.append(_statement(lines))
    if ends and not lines:
        raise Unknown(f"no {ends[0]}")

    def run(names: Names) -> None:
        for step in steps:
            step(names)

    return run


def _statement(lines: list[str]) -> Block:
    line = lines.pop(0)
    if found := re.match(r"^if (.+) then$", line, re.S):
        return _condition(found[1], lines)
    if found := re.match(r"^for (\w+) in (.+) do$", line, re.S):
        return _loop(found[1], found[2], lines)
    if line == "break":
        return _leave(None)
    if line.startswith("return "):
        return _leave(Parser(line[7:]).whole())
    if found := re.match(r"^declare (\w+) : (\d+)'(\w)(?:\[(\d+)\])?$", line):
        name, bits, letter, count = found[1], int(found[2]), found[3].lower(), int(found[4] or 0)
        zero = number(0, letter, bits)

        def declare(names: Names) -> None:
            if count:
                names[name] = [zero] * count
            else:
                names.setdefault(name, zero)

        return declare
    if found := re.match(r"^(\w+) = lambda\(([\w, ]+)\) \((.*)\)$", line, re.S):
        return _function(found[1], found[2].split(", "), found[3])
    if found := _SET.match(line):
        return _assignment(*found.groups())
    raise Unknown(line)


def _leave(value: Value | None) -> Block:
    def leave(names: Names) -> None:
        raise Leave(value(names) if value else None)

    return leave


def _condition(test: str, lines: list[str]) -> Block:
    cases = []
    while True:
        condition = Parser(test).whole() if test else lambda _: Number(1)
        cases.append((condition, block_of(lines, ("elsif", "else", "endif"))))
        line = lines.pop(0)
        if line == "endif":
            break
        found = re.match(r"^elsif (.+) then$", line, re.S)
        test = found[1] if found else ""

    def run(names: Names) -> None:
        for condition, body in cases:
            if condition(names).value:
                body(names)
                return

    return run


def _loop(name: str, bounds: str, lines: list[str]) -> Block:
    parser = Parser(bounds)
    first = parser.choice()
    parser.take(":")
    last = parser.choice()
    body = block_of(lines, ("endfor",))
    lines.pop(0)

    def run(names: Names) -> None:
        for k in range(int(first(names).value), int(last(names).value) + 1):
            names[name] = Number(k, "u", 32)
            try:
                body(names)
            except Leave as left:
                if left.value is not None:
                    raise
                return

    return run


def _function(name: str, parameters: list[str], text: str) -> Block:
    """A function within the text: an expression, or statements that return."""
    if "return" in text:
        body = block_of(lines_of(text))
    else:
        body = _leave(Parser(text).whole())

    def define(names: Names) -> None:
        def call(*given: Any) -> Any:
            try:
                body({**names, **dict(zip(parameters, given, strict=True))})
            except Leave as left:
                return left.value
            raise Unknown(f"{name} returns nothing")

        names[name] = call

    return define


def _assignment(left: str, op: str, right: str) -> Block:
    value = Parser(right).whole()
    if left.startswith("{"):
        parts = [Target(part) for part in left.strip("{} ").split(",")]

        def spread(names: Names) -> None:
            raw = value(names).raw()
            for target in reversed(parts):
                if target.type is None:
                    raise Unknown(left)
                target.put(names, number(raw, "u", target.type[1]))
                raw >>= target.type[1]

        return spread
    target = Target(left)

    def run(names: Names) -> None:
        x = value(names)
        target.put(names, x if op == "=" else combined(op[0], target.now(names), x))

    return run


MODES: Names = {
    "ROUND_MODE": TO_NEAREST,
    "ROUND_TOWARD_ZERO": TOWARD_ZERO,
    "ROUND_NEAREST_EVEN": TO_NEAREST,
    "WAVE_MODE.IEEE": Number(1, "u", 1),
    "OPSEL": Number(0, "u", 4),
}
"""How a kernel of ours begins: its descriptor asks for IEEE's rules for NaN."""


def program_of(text: str) -> Block:
    """What the text of an instruction does to what its names stand for.

    Raises:
        Unknown: it is not understood.
    """
    return block_of(lines_of(text))


def function_of(text: str, instructions: dict[str, Any] | None = None) -> Callable[..., Number]:
    """The result, D0, from the operands S0, S1 and S2.

    `instructions`: functions of others that it may call.

    Raises:
        Unknown: it is not understood.
    """
    body = program_of(text)

    def run(*operands: Number) -> Number:
        names: Names = {f"S{k}": x for k, x in enumerate(operands)}
        names |= MODES | {"instructions": instructions or {}}
        body(names)
        found: Number = names["D0"]
        return found

    return run
