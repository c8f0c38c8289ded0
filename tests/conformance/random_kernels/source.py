"""Sources of random kernels: structs and tuples, funcs and methods, early exits, unrolled loops,
barriers, cubes of any size.

`Source(random.Random(seed)).text()` is the source of a module with a kernel `random_kernel`, which
any backend may run.
"""

from __future__ import annotations

import random
from typing import Any

from tests.conformance.random_kernels.grammar import (
    CONDITIONS,
    END,
    FLOATS,
    IN_FUNC,
    IN_KERNEL,
    INTS,
    KERNEL,
    LITERALS,
    PRELUDE,
    UNIFORM,
    Scope,
)


class Source:
    """Makes one module."""

    def __init__(self, rng: random.Random, size: int = 4) -> None:
        self.rng, self.size = rng, size
        self.scope = IN_KERNEL
        self.funcs: list[str] = []
        self.together = True  # whether all units of a cube are still in the kernel
        self.names = 0
        self.meetings = 0  # loops around that may hold barriers

    def text(self) -> str:
        """The source."""
        parts = [PRELUDE]
        for _ in range(self.rng.randint(1, 2)):
            parts.append(self.func())
        self.scope = IN_KERNEL
        body = [self.block(3, True, "    ")]
        return "".join(parts) + KERNEL + "\n".join(body) + "\n" + END

    def one(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def chance(self, p: float = 0.5) -> bool:
        return self.rng.random() < p

    def float(self, depth: int = 3) -> str:
        if depth == 0 or self.chance(0.4):
            return str(self.one(*self.scope.floats, *LITERALS[: 1 + self.chance(0.3)]))
        # one operand is no literal: comptime arithmetic has other digits
        left = self.float(depth - 1) if depth > 1 else str(self.one(*self.scope.floats))
        return str(self.one(*FLOATS)).format(left, self.float(depth - 1))

    def runtime_float(self, depth: int = 2) -> str:
        return (
            f"({self.one(*self.scope.floats)} {self.one('+', '-', '*')} {self.float(depth)}) * 0.5"
        )

    def int(self, depth: int = 2) -> str:
        if depth == 0 or self.chance(0.4):
            return str(self.one(*self.scope.ints, *self.scope.extra_ints))
        return str(self.one(*INTS)).format(self.int(depth - 1), self.int(depth - 1))

    def condition(self) -> str:
        form = str(self.one(*CONDITIONS))
        while "{f}" in form or "{i}" in form:
            form = form.replace("{f}", self.float(2), 1) if "{f}" in form else form
            form = form.replace("{i}", self.int(1), 1) if "{i}" in form else form
        return form

    def pair(self) -> str:
        return str(self.one(
            *self.scope.pairs, f"Pair({self.runtime_float(1)}, {self.one(*self.scope.floats)})",
            f"{self.one(*self.scope.pairs)}.pushed({self.runtime_float(1)}, {self.int(1)})",
            f"{self.one(*self.scope.pairs)} + {self.one(*self.scope.pairs)} * ({self.float(1)})",
            f"{self.runtime_float(1)} - -{self.one(*self.scope.pairs)}",
        ))  # fmt: skip

    def tuple(self) -> str:
        a, b = self.one(*self.scope.tuples), self.one(*self.scope.tuples)
        return str(self.one(a, f"({self.runtime_float(1)}, {self.int(1)} % 9)", f"({b}[0], {a}[1])",
                            f"({a}[0] + {b}[0] * 0.5, {b}[1] % 7)"))  # fmt: skip

    def box(self) -> str:
        a = self.one(*self.scope.boxes)
        at = self.one(f"{a}.at", f"({self.int(1)} % 7, {a}.at[0])", f"({a}.at[1], {a}.at[0])")
        return f"Box({self.pair()}, {at}, {a}.code)"

    def func(self) -> str:
        """A func of (x, i, u, m, tu, pr, bo, *, c)."""
        name = f"func{len(self.funcs)}"
        returns = str(self.one("float", "pair", "tuple", "several"))
        self.scope = Scope(**{**IN_FUNC.__dict__, "returns": returns, "extra_ints": []})
        head = f"\n\n@cb.func\ndef {name}(x, i, u, m, tu, pr, bo, *, c: cb.Comptime[int] = 2):\n"
        body = "    w = u * 0.5\n    h = m % 4\n    k = c\n" + self.block(2, False, "    ")
        self.funcs.append(f"{name}:{returns}")
        return head + body + f"\n    return {self.returned()}\n"

    def returned(self) -> str:
        kind = self.scope.returns
        if kind == "float":
            return self.runtime_float()
        if kind == "pair":
            return (
                f"Pair({self.runtime_float(1)}, {self.one(*self.scope.floats)})"
                if self.chance(0.3)
                else self.pair()
            )
        if kind == "tuple":
            return (
                f"({self.runtime_float(1)}, {self.int(1)} % 11)" if self.chance() else self.tuple()
            )
        return f"{self.runtime_float(1)}, {self.pair()}, {self.int(1)} % 8"

    def called(self) -> list[str]:
        """A call of a func, and where its result goes."""
        sc = self.scope
        name, returns = str(self.one(*self.funcs)).split(":")
        code = f", c={self.one(0, 1, 3)}" if self.chance() else ""
        tup, pair, box = self.one(*sc.tuples), self.one(*sc.pairs), self.one(*sc.boxes)
        call = f"{name}(x, i, {self.runtime_float(1)}, {self.int(1)}, {tup}, {pair}, {box}{code})"
        number, whole = self.one(*sc.float_names), self.one(*sc.int_names)
        holder = self.one(*(p for p in sc.pairs if "." not in p))
        return {
            "float": [f"{number} = {call}"],
            "pair": [f"{holder} = {call}"],
            "tuple": [f"{self.one(*sc.tuples)} = {call}"],
            "several": [f"{number}, {holder}, {whole} = {call}"],
        }[returns]

    def block(self, depth: int, barriers: bool, indent: str, jump: str = "", loops: int = 0) -> str:
        """Statements; `barriers`: all units come here together; `jump`: how the loop around may be
        left, if it may.
        """
        lines: list[str] = []
        for _ in range(self.rng.randint(1, self.size)):
            lines += self.statement(depth, barriers and self.together, indent, jump, loops)
        return "\n".join(lines)

    def statement(
        self, depth: int, barriers: bool, indent: str, jump: str, loops: int
    ) -> list[str]:
        sc, inner = self.scope, indent + "    "
        kinds = [
            "float",
            "float",
            "int",
            "swap",
            "tuple",
            "tuple",
            "pair",
            "pair",
            "box",
            "exchange",
            "held",
            "maybe",
            "various",
        ]
        kinds += [
            "if",
            "if",
            "if",
            "for",
            "while",
            "unroll",
            "unroll",
            "items",
            "endless",
            "return",
            "return",
        ] * bool(depth)
        kinds += ["line", "local", "marked"] * sc.kernel + [
            "shared",
            "shared",
            "uniform",
            "met",
        ] * barriers
        kinds += ["leave", "leave"] * bool(jump) + ["call", "call"] * bool(self.funcs and loops < 3)
        kind = str(self.one(*kinds))
        if kind == "float":
            return [f"{indent}{self.one(*sc.float_names)} = {self.runtime_float()}"]
        if kind == "int":
            return [f"{indent}{self.one('k', *sc.int_names, *sc.int_names)} = {self.int()} % 17"]
        if kind == "swap":
            f, g = self.rng.sample(sc.float_names, 2)
            m, h = self.rng.sample(sc.int_names, 2)
            return [f"{indent}{f}, {m}, ({g}, {h}) = {g}, {self.int()} % 5, ({f} + {g}, {m})"]
        if kind == "tuple":
            return [f"{indent}{self.one(*sc.tuples)} = {self.tuple()}"]
        if kind == "pair":
            holder = self.one(*(p for p in sc.pairs if "." not in p))
            return [f"{indent}{holder} {self.one('=', '=', '+=')} {self.pair()}"]
        if kind == "box":
            return [f"{indent}{self.one(*sc.boxes)} = {self.box()}"]
        if kind == "exchange":
            names = [p for p in sc.pairs if "." not in p]
            if len(names) > 1:
                return [f"{indent}{names[0]}, {names[1]} = {names[1]}, {names[0]}",
                        f"{indent}{sc.tuples[0]}, {sc.tuples[1]} = {sc.tuples[1]}, {sc.tuples[0]}"]  # fmt: skip
            return [f"{indent}pr, tu = Pair(tu[0], pr.low), (pr.high, tu[1])"]
        if kind == "held":
            return self.held(indent)
        if kind == "maybe":
            return self.maybe(indent)
        if kind == "various":
            return [indent + line for line in self.various()]
        if kind == "call":
            return [indent + line for line in self.called()]
        if kind == "line":
            return [f"{indent}v = cb.fma(v, cb.splat(a, 4), x.load(i, 4))",
                    f"{indent}acc += cb.select(v > b, v, v * 0.5).max() + v[{self.rng.randint(0, 3)}]"]  # fmt: skip
        if kind == "local":
            more = [f"{indent}count[i, 0] += {self.int()} % 3"] if self.chance() else []
            return [f"{indent}keep[{self.int()} % 2] += {self.float()} * 0.25", *more]
        if kind == "marked":
            bound = self.one("", "nothing = ")
            return [f"{indent}{bound}marked(keep, {self.int()}, {self.runtime_float()})"]
        if kind == "shared":
            step = self.one("1", "2", "cb.CUBE_DIM - 1")
            return [f"{indent}s[t] = {self.float()}", f"{indent}cb.sync_cube()",
                    f"{indent}acc += s[(t + {step}) % cb.CUBE_DIM]", f"{indent}cb.sync_cube()"]  # fmt: skip
        if kind == "met":
            return [f"{indent}{self.one('acc', 'p')} = met(s, t, {self.runtime_float()})"]
        if kind == "return":
            return self.leaving(barriers, indent, loops)
        if kind == "leave":
            test = self.one(*UNIFORM) if barriers else self.condition()
            more = [f"{indent}{self.one(*sc.int_names)} += 1"]
            last = [f"{inner}k = {self.int(1)} % 9"] * self.chance(0.4)  # the loop's own, or any
            return [f"{indent}if {test}:", *last, f"{inner}{self.one('break', 'continue')}", *more]
        if kind in ("if", "uniform"):
            return self.branches(kind == "uniform", depth, indent, jump, loops)
        return self.loop(kind, depth, barriers, indent, loops)

    def held(self, indent: str) -> list[str]:
        """What is taken from a name keeps its value when the name gets another."""
        sc = self.scope
        number, whole = self.one(*sc.float_names), self.one(*sc.int_names)
        self.names += 1
        r = f"held{self.names}"
        return list(self.one(
            [f"{indent}{r} = range({whole} % 4)", f"{indent}{whole} = {self.int()} % 9",
             f"{indent}for k in {r}:", f"{indent}    {number} = {number} * 0.5 + k", f"{indent}    {whole} += 1"],
            [f"{indent}for {r} in ({number}, x[i], {number} * 0.5):",
             f"{indent}    {number} = {number} * 0.25 + {r}"],
            [f"{indent}{r} = {sc.pairs[0]}.sum", f"{indent}{sc.pairs[0]} = {self.pair()}",
             f"{indent}{number} = {r}() * 0.5 + {sc.pairs[0]}.low"],
        ))  # fmt: skip

    def maybe(self, indent: str) -> list[str]:
        """Variables that only one side of a branch, or a loop that may not run, gives a value; they
        are read where they have one.
        """
        sc, inner = self.scope, indent + "    "
        self.names += 1
        had, value, whole = (f"{name}{self.names}" for name in ("had", "value", "whole"))
        number, index = self.one(*sc.float_names), self.one(*sc.int_names)
        given = [f"{value} = {self.runtime_float(1)}", f"{whole} = {self.int(1)} % 7", f"{had} = 1"]
        pair = self.one(f"Pair({value}, {number})", f"{value}, {whole}")
        held = f"held_{value} = {pair}"
        part = f"held_{value}.low" if "Pair" in pair else f"held_{value}[0]"
        begin = self.one(  # what is known to be false gives no value on any path
            f"if x[i] > {self.float(1)}:", f"for k in range(({self.int(1)} + i) % 3):"
        )
        read = self.one(
            [f"{indent}if {had} == 1:", f"{inner}{number} = {value} * 0.5", f"{inner}{index} = {whole}"],
            [f"{indent}{number} = {value} if {had} == 1 else {number} * 0.5"],
            [f"{indent}if {had} == 1 and {value} > 0.25:", f"{inner}{index} += {whole}"],
            [f"{indent}if {had} == 0 or {whole} % 2 == 1:", f"{inner}{number} = {number} * 0.5"],
            [f"{indent}if {had} == 1:", f"{inner}{number} = {part} * 0.5"],
        )  # fmt: skip
        between = self.held(indent) if self.chance(0.3) else []
        return [f"{indent}{had} = 0", indent + begin,
                *(inner + line for line in [*given, held]), *between, *read]  # fmt: skip

    def various(self) -> list[str]:
        """What fits in a line or two: flags, wrapping integers, tuples by comprehension, steps that
        are known at run time.
        """
        sc = self.scope
        number, whole = self.one(*sc.float_names), self.one(*sc.int_names)
        self.names += 1
        flag, turn = f"flag{self.names}", f"turn{self.names}"
        step = self.one(
            *[f"({self.int(1)}) {end}" for end in ("% 3 + 1", "% 3 - 3", "% 2 * 2 - 1")]
        )
        return list(self.one(
            [f"{flag} = {self.condition()} and {number} < 4", f"{flag} = {self.one('not ', '')}{flag}",
             f"{number} = {number} * 0.5 if {flag} else {self.runtime_float(1)}"],
            [f"{flag} = ({self.int(1)} < {self.int(1)}) {self.one('&', '|', '^')} ({number} > 0.25)",
             f"{whole} = {whole} + 1 if {flag} else {self.int(1)} % 5"],
            [f"for {turn} in range({self.int(1)} % 4, {self.int(1)} % 9, {step}):",
             f"    {number} = {number} * 0.5 + {turn}", f"    {whole} = ({whole} + {turn}) % 13"],
            [f"{whole} = cb.cast(cb.cast({self.int()}, cb.{self.one('u8', 'i8', 'u16', 'i16')}) * 3 + 100, cb.i32) % 19"],
            [f"{whole} = cb.cast((cb.cast({self.int()}, cb.{self.one('i64', 'u32')}) * 5 + 7) % 23, cb.i32)"],
            [f"{number} = sum(tuple(x[i + {turn}] * {turn} for {turn} in cb.unroll(3))) * 0.25"],
            [f"{number} = max(({number}, {self.float(1)}, x[i])) - min({number}, x[i + 1])"],
            [f"{whole} = {whole} + 2 if {self.int(1)} {self.one('in', 'not in')} (1, {whole}, 3) else {whole} - 1"],
            [f"{number} = cb.cast(cb.cast({self.float(1)}, cb.f64) * 0.5, cb.f32)"],
            [f"{flag} = {self.one('any', 'all')}(({self.int(1)} < 3, {number} > 0.25, {self.condition()}))",
             f"{number} = {number} * 0.5 if {flag} else {number} + 0.25"],
            [f"{whole} = {whole} + 1 if ({whole}, {self.int(1)} % 3, 1) {self.one('==', '!=')} ({self.int(1)} % 4, 1, {self.int(1)} % 2) else {whole} - 2"],
            [f"{flag}, {turn} = divmod({self.int()}, {self.int(1)} | 1)", f"{whole} = ({flag} * 2 + {turn}) % 13"],
            [f"for {turn} in reversed(range({self.int(1)} % 4, {self.int(1)} % 7)):",
             f"    {number} = {number} * 0.5 + {turn}"],
            [f"for {turn} in reversed(({number}, x[i], 0.5)):", f"    {number} = {number} * 0.5 - {turn}"],
            [f"{whole} = cb.cast(cb.clamp({self.float(1)}, -50, 50), cb.i32) % 11"],
        ))  # fmt: skip

    def leaving(self, barriers: bool, indent: str, loops: int) -> list[str]:
        """An early return; in a kernel it ends barriers, unless all units take it."""
        inner = indent + "    "
        if not self.scope.kernel:
            return [f"{indent}if {self.condition()}:", f"{inner}return {self.returned()}"]
        uniform = barriers and (loops > 0 or self.chance())
        if self.meetings and not uniform:
            return [f"{indent}acc += 1"]  # some units would not reach the barriers again
        test = self.one(*UNIFORM) if uniform else self.condition()
        self.together = self.together and uniform
        return [f"{indent}if {test}:", f"{inner}out[i, 0] = {self.int(1)}", f"{inner}return"]

    def branches(self, together: bool, depth: int, indent: str, jump: str, loops: int) -> list[str]:
        inner = indent + "    "
        lines = []
        for word in ("if", "elif", "else"):
            if word != "if" and self.chance(0.4):
                continue
            test = (
                "" if word == "else" else f" {self.one(*UNIFORM) if together else self.condition()}"
            )
            lines.append(f"{indent}{word}{test}:")
            lines.append(
                self.block(
                    max(depth - 1, 0),
                    together,
                    inner,
                    jump if together or jump == "apart" else "",
                    loops,
                )
            )
        return lines

    def loop(self, kind: str, depth: int, barriers: bool, indent: str, loops: int) -> list[str]:
        inner = indent + "    "
        barriers = barriers and self.chance()
        jump = "together" if barriers else "apart"
        together = self.together
        if kind == "for":
            bounds = self.one(
                "3",
                "level",
                "1, 8, 3",
                "5, level, -2",
                "0",
                *(() if barriers else ("n % 4", "k, k + 2")),
            )
            if not self.scope.kernel:
                bounds = self.one("3", "m % 4", "1, 8, 3", "h, 5", "c", "2, -1, -1")
            lines = [f"{indent}for k in range({bounds}):"]
        elif kind == "endless":
            self.names += 1
            turns = "turns" if barriers else f"spins{self.names}"
            lines = [
                f"{indent}{turns} = 0",
                f"{indent}while True:",
                f"{inner}{turns} += 1",
                f"{inner}if {turns} > {self.one('1', '2', 'level' if self.scope.kernel else 'c')}:",
                f"{inner}    break",
            ]
        elif kind == "unroll":
            lines = [f"{indent}for k in cb.unroll(range({self.rng.randint(1, 3)})):"]
        elif kind == "items":
            self.names += 1
            name = f"item{self.names}"
            lines = [f"{indent}for k, {name} in cb.unroll(((1, 0.5), (3, 2.0))):",
                     f"{inner}{self.one(*self.scope.float_names)} += {name}"]  # fmt: skip
        else:
            self.names += 1
            turns = "turns" if barriers else f"spins{self.names}"
            limit = "m % 3" if not self.scope.kernel else self.one("2", "level", "3")
            lines = [
                f"{indent}{turns} = 0",
                f"{indent}while {turns} < {limit}:",
                f"{inner}{turns} += 1",
            ]
        if not barriers:
            self.together = False  # what stands in it is reached by some units only
        self.meetings += barriers
        lines.append(self.block(depth - 1, barriers, inner, jump, loops + 1))
        self.meetings -= barriers
        if not barriers:
            self.together = together and not any(
                "return" in line for line in lines[-1].splitlines()
            )
        if kind in ("while", "endless") and barriers:
            lines.append(f"{indent}turns = 7")
        return lines
