"""Random kernels: structs and tuples, funcs and methods, early exits, unrolled loops, barriers,
cubes of any size.

`Source(random.Random(seed)).text()` is the source of a module with a kernel `random_kernel`, which
any backend may run; `check(...)` runs one and compares. `scripts/fuzz_kernels.py` does so for as
many as one likes.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FLOATS = ("({} + {})", "({} - {})", "({} * {})", "cb.max({}, {})", "cb.min({}, {})", "({} if {} > 0.5 else 1.0)",
          "cb.abs({} - {})", "cb.clamp({}, -3, 3) + {}", "cb.floor({}) * {}", "branchy({}, {})",
          "cb.select({} > 0, {}, x[i])", "({} // 0.75 - {})", "Pair({}, {}).sum()", "cb.fma({}, {}, 0.5)")  # fmt: skip
INTS = ("({} + {})", "({} * {})", "({} - {})", "({} // 2 + {})", "({} % 5 + {})", "({} ^ {})", "({} // ({} | 1))",
        "({} % ({} | 1))", "(({} + i) << ({} & 35))", "({} >> ({} & 35))", "cb.min({}, {})", "steps({}, {})",
        "(~{} & {})", "cb.popcount({}) + {}", "({} if {} & 1 else 2)")  # fmt: skip
CONDITIONS = ("{f} < {f}", "0 <= {i} < 9", "{i} % 3 == 0 and {f} > 0", "{f} > 1 or {i} & 1", "not {f} <= {f}",
              "{i} != {i}", "{i} & 3 == 1", "{f} > 0.25")  # fmt: skip
UNIFORM = ("level > 0", "x[0] > 0.5", "cb.CUBE_POS == 1", "turns % 2 == 0", "level == 2")
LITERALS = ("1.5", "0.25", "-2.0")
PRELUDE = '''
import cubepy as cb


@cb.struct
class Pair:
    low: cb.f32
    high: cb.f32

    def sum(self):
        return self.low + self.high

    def pushed(self, v, m):
        """Rebinds its own self, and leaves early."""
        for k in range(m % 4):
            if v > self.low:
                self = Pair(self.high, v * 0.5)
                if k == 2:
                    return Pair(v, self.low)
            v = v - 0.25
        return self


@cb.struct
class Box:
    pair: Pair
    at: cb.Any
    code: cb.Comptime[int] = 2


@cb.func
def branchy(u, v):
    if u > v:
        return u - v
    elif u < -v:
        return v * 0.5
    return u


@cb.func
def steps(m, limit):
    m = m % 7
    for j in range(12):
        if m == limit % 3:
            return j
        m = (m * 3 + 1) % 11
        if m > 9:
            break
    return m


@cb.func
def marked(keep, k, v):
    """Gives a value on some paths only; nobody uses it."""
    for j in range(k % 3):
        if v > 0.5 + j:
            keep[j] = v * 0.25
            return v
        if v < -1:
            return
    keep[k % 2] += 0.125


@cb.func
def met(s, t, v):
    """What a neighbour in the cube gave."""
    s[t] = v
    cb.sync_cube()
    found = s[(t + 1) % cb.CUBE_DIM]
    cb.sync_cube()
    if found > 100 or found < -100:
        return v
    return found
'''
KERNEL = """
@cb.kernel
def random_kernel(x: cb.Array, out: cb.Array, count: cb.Array, level, given, pair: Pair, box: Box):
    i = cb.ABSOLUTE_POS
    t = cb.UNIT_POS
    s = cb.shared(cb.CUBE_DIM, cb.f32)
    keep = cb.local(2, cb.f32)
    keep[0] = 0.5
    keep[1] = x[i + 2]
    a = x[i]
    b = x[i + 1]
    acc = a - b
    p, q = b, cb.cast(1, cb.i32)
    tup = (acc, n0)
    spare = Pair(a, 1)
    n = 1
    k = 0
    turns = 0
    spins = 0
    v = cb.splat(a, 4)
""".replace("n0", "cb.cast(level, cb.i32)")
END = """    out[i, 0] = acc + keep[0] - p
    out[i, 1] = tup[0] + given[0]
    out[i, 2] = pair.low - pair.high
    out[i, 3] = box.pair.low + box.pair.high
    out[i, 4] = spare.sum() + a
    out[i, 5] = b
    count[i, 0] = n * 10 + q
    count[i, 1] = k
    count[i, 2] = tup[1] - given[1]
    count[i, 3] = box.at[0] * 5 + box.at[1]
"""


@dataclass
class Scope:
    """What a body may use: numbers, what may be assigned, and how it returns."""

    floats: tuple[str, ...]
    ints: tuple[str, ...]
    tuples: tuple[str, ...]
    pairs: tuple[str, ...]
    boxes: tuple[str, ...]
    float_names: tuple[str, ...]
    int_names: tuple[str, ...]
    kernel: bool
    returns: str = ""
    extra_ints: list[str] = field(default_factory=list)


IN_KERNEL = Scope(
    floats=("a", "b", "x[i]", "x[n]", "acc", "keep[k % 2]", "p", "tup[0]", "given[0]", "pair.low", "pair.high",
            "box.pair.low", "box.pair.high", "spare.low", "out[i, 0]"),
    ints=("i", "k", "n", "3", "t", "q", "-2", "count[i, 0]", "tup[1]", "given[1]", "box.at[0]", "box.at[1]", "level",
          "box.code"),
    tuples=("tup", "given"), pairs=("pair", "spare", "box.pair"), boxes=("box",),
    float_names=("acc", "a", "b", "p"), int_names=("n", "q"), kernel=True,
)  # fmt: skip
IN_FUNC = Scope(
    floats=("u", "x[i]", "x[m]", "w", "pr.low", "pr.high", "tu[0]", "bo.pair.high"),
    ints=("m", "i", "h", "2", "-3", "tu[1]", "bo.at[1]", "bo.code", "c"),
    tuples=("tu",), pairs=("pr", "bo.pair"), boxes=("bo",), float_names=("u", "w"), int_names=("m", "h"), kernel=False,
)  # fmt: skip


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
            return [f"{indent}{self.one(*(p for p in sc.pairs if '.' not in p))} = {self.pair()}"]
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
        if kind == "while" and barriers:
            lines.append(f"{indent}turns = 7")
        return lines


def load(source: str, folder: Path, name: str) -> Any:
    """The kernel of a source."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


SHAPES: tuple[tuple[int, Any], ...] = (
    (3, 4), (2, 1), (4, 1), (2, 2), (2, 3), (2, 5), (2, 7), (2, 8), (1, 16), (2, (2, 3)), (1, (2, 2, 2)), (1, 31), (1, 33),
    (2, 13), (3, 2), (1, 64),
)  # fmt: skip
RARE_SHAPES: tuple[tuple[int, Any], ...] = ((1, 300), (1, 100), (2, 128), (1, 257), (1, (16, 16)))


def draw_shape(rng: random.Random) -> tuple[int, Any]:
    """Cubes of a launch, and their units: 1 to 300, mostly few, because the python backend takes
    them one by one.
    """
    return rng.choice(RARE_SHAPES if rng.random() < 0.02 else SHAPES)


def check(
    module: Any, device: str, shape: tuple[int, Any], levels: tuple[int, ...] = (2, 0, 5)
) -> str:
    """Launch a kernel on a compiled backend and on the python backend, with several inputs; gives
    how they differ.
    """
    cubes, units = shape
    count = cubes * int(np.prod(units))
    for seed, level in enumerate(levels):
        x = np.random.default_rng(seed).standard_normal(count + 4).astype(np.float32)
        pair = module.Pair(float(x[0]), 0.5)
        arguments = (
            level,
            (x[1], np.int32(seed + 2)),
            pair,
            module.Box(pair, (np.int32(3), np.int32(level)), code=seed),
        )
        results = []
        for where in (device, "python"):
            out, whole = np.zeros((count, 6), np.float32), np.zeros((count, 4), np.int32)
            module.random_kernel[cubes, units](x, out, whole, *arguments, device=where)
            results.append((out, whole))
        (out, whole), (out_python, whole_python) = results
        for name, have, want in (("count", whole, whole_python), ("out", out, out_python)):
            wrong = np.argwhere(~((have == want) | ((have != have) & (want != want))))
            if len(wrong):
                at = tuple(map(int, wrong[0]))
                return f"level {level}: {len(wrong)} of {name} differ, {name}{list(at)} is {have[at]}, not {want[at]}"
    return ""


def random_case(seed: int, size: int = 4) -> tuple[str, tuple[int, Any]]:
    """The source of a module and the shape of its launch."""
    rng = random.Random(seed)
    source = Source(rng, size).text()
    return source, draw_shape(rng)
