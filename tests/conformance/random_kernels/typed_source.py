"""Sources of random kernels over every dtype: numbers and lines, arrays of any layout, shared and
local memory, atomics, structs, funcs, loops, comptime records.

`TypedSource(random.Random(seed)).case()` is a module with a kernel `random_kernel`, and what it is
to be launched with.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import cubepy as cb
from cubepy.lang.dtypes import DType
from tests.conformance.random_kernels.typed import (
    FLOATS,
    INTS,
    LANES,
    STORED,
    VALUES,
    Expressions,
    Names,
    Typed,
)
from tests.conformance.random_kernels.typed_prelude import Settings

HEAD = """
import math
import cubepy as cb
from tests.conformance.random_kernels.typed_prelude import Settings, doubled, picked

OUTSIDE = {outside}


@cb.struct
class Record:
    a: cb.{a}
    b: cb.{b}
    c: cb.{c}
    code: cb.Comptime[int] = 2

    def moved(self, v):
        return Record({moved}, self.code)

"""
MATH = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan",
        "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma")  # fmt: skip
MATH2 = ("atan2", "hypot", "fmod", "copysign", "pow")


@dataclass(frozen=True)
class Case:
    """A module's source and the launch of its kernel."""

    source: str
    shape: tuple[int | tuple[int, ...], int | tuple[int, ...]]
    inputs: tuple[tuple[str, int], ...]  # dtype and rank of each array that is read
    outputs: tuple[str, ...]  # dtypes of what variables end as
    line: tuple[str, int]  # dtype and lanes of the line that is stored
    sums: tuple[str, ...]  # dtypes of the arrays that atomics change
    scalars: tuple[str, ...]
    fields: tuple[str, ...]  # dtypes of the struct's numbers
    changing: bool  # whether a global is another one at the second launch
    settings: Settings  # the comptime record, and the struct's comptime number
    code: int
    math: str  # the dtype of results of functions, which are near and not equal


class TypedSource(Expressions):
    """Makes one module."""

    def __init__(self, rng: random.Random, size: int = 5) -> None:
        super().__init__(rng)
        self.size, self.serial = size, 0

    def fresh(self, word: str) -> str:
        self.serial += 1
        return f"{word}{self.serial}"

    def case(self, shape: tuple[object, object] = (2, 3)) -> Case:
        """One module and its launch."""
        fields = [self.one(*VALUES) for _ in range(3)]
        inputs = [(self.one(*STORED), self.one(1, 1, 2, 3)) for _ in range(3)]
        scalars = [self.one(*(d for d in VALUES if d.kind != "b")) for _ in range(2)]
        variables = [Typed(f"v{k}", self.one(*VALUES)) for k in range(4)]
        stored = [self.one(v.dtype, v.dtype, self.holder(v.dtype)) for v in variables]
        sums = [self.one(cb.i32, cb.u32, cb.i64, cb.u64) for _ in range(2)]
        head = HEAD.format(
            outside=self.one(-3, 0, 5), a=fields[0].name, b=fields[1].name, c=fields[2].name,
            moved=self.moved(fields),
        )  # fmt: skip
        self.funcs: list[tuple[str, list[Typed], DType]] = []
        parts = [head] + [self.func() for _ in range(self.rng.randint(1, 2))]
        parts.append(self.kernel(inputs, scalars, variables, stored, sums, fields))
        return Case(
            "".join(parts), shape, tuple((d.name, r) for d, r in inputs), tuple(d.name for d in stored),
            (self.kept.dtype.name, self.kept.lanes), tuple(d.name for d in sums), tuple(d.name for d in scalars),
            tuple(d.name for d in fields), self.chance(0.15), self.settings(), self.rng.randint(0, 3), self.math.name,
        )  # fmt: skip

    def settings(self) -> Settings:
        """A comptime record."""
        items = (1, 4, 9)[: self.rng.randint(2, 3)]
        return Settings(self.rng.randint(1, 5), self.one(0.5, -1.5, 0.1), self.chance(), items)

    def holder(self, dtype: DType) -> DType:
        """A dtype of an array that takes values of a dtype as they are."""
        return self.one(*(d for d in STORED if d.is_float or not dtype.is_float))

    def moved(self, fields: list[DType]) -> str:
        self.names = Names(
            [Typed(f"self.{n}", d) for n, d in zip("abc", fields, strict=True)], [], []
        )
        self.names.values.append(Typed("cb.cast(v, cb.f32)", cb.f32))
        return ", ".join(self.put(self.within(2), d) for d in fields)

    def within(self, depth: int) -> Typed:
        """An expression of what stands in `values` alone."""
        self.plain = True
        found = self.number(depth)
        self.plain = False
        return found

    def func(self) -> str:
        name = f"func{len(self.funcs)}"
        parameters = [
            Typed(p, self.one(*VALUES)) for p in ("p", "q", "r")[: self.rng.randint(1, 3)]
        ]
        result = self.one(*VALUES)
        local = Typed("w", self.one(*VALUES))
        self.names = Names(
            [*parameters, Typed("extra + cb.cast(1, cb.i32)", cb.i32)], [], [], funcs=[]
        )
        begin = self.to(self.within(2), local.dtype)
        self.names = Names([*parameters, local], [], [], funcs=list(self.funcs))
        given = [f"{p.text}: cb.{p.dtype.name}" if self.chance(0.3) else p.text for p in parameters]
        lines = [
            f"\n@cb.func\ndef {name}({', '.join(given)}, extra: cb.Comptime[int] = 1):",
            f"    w = {begin.text}",
        ]
        if self.chance():
            lines += [
                f"    if {self.plain_condition()}:",
                f"        return {self.to(self.within(1), result).text}",
            ]
        if self.chance():
            lines += [f"    for turn in range(extra + {self.one(0, 1)}):",
                      f"        w {self.one('+=', '-=', '*=')} {self.to(self.within(1), local.dtype).text}"
                      if local.dtype.kind != "b" else f"        w = not w or {self.plain_condition()}",
                      f"        if {self.plain_condition()}:", f"            {self.one('break', 'continue', f'return {self.to(self.leaf(), result).text}')}"]  # fmt: skip
        lines.append(f"    return {self.to(self.within(2), result).text}\n")
        self.funcs.append((name, parameters, result))
        return "\n".join(lines)

    def plain_condition(self) -> str:
        a, b = self.within(1), self.within(1)
        return f"{a.text} {self.one('<', '>=', '==', '!=')} {b.text}"

    def kernel(
        self, inputs: list[tuple[DType, int]], scalars: list[DType], variables: list[Typed], stored: list[DType],
        sums: list[DType], fields: list[DType],
    ) -> str:  # fmt: skip
        arrays = [(f"x{k}", d, r) for k, (d, r) in enumerate(inputs)]
        numbers = [Typed(f"n{k}", d) for k, d in enumerate(scalars)]
        shared = Typed("s", self.one(*VALUES))
        local = Typed("keep", self.one(*VALUES))
        self.names = Names(
            [Typed("i", cb.i32), Typed("t", cb.i32), *numbers, *(Typed(f"rec.{n}", d) for n, d in zip("abc", fields, strict=True))],
            [], arrays, funcs=self.funcs,
        )  # fmt: skip
        names = self.names
        out: list[str] = []
        annotated = [
            f"n{k}: cb.{d.name}" if self.chance(0.3) else f"n{k}" for k, d in enumerate(scalars)
        ]
        outs = [f"o{k}" for k in range(len(variables))]
        out.append(
            "\n@cb.kernel\ndef random_kernel("
            + ", ".join([*(f"{a[0]}: cb.Array" for a in arrays), *(f"{o}: cb.Array" for o in outs), "ol: cb.Array", "om: cb.Array",
                         "c0: cb.Array", "c1: cb.Array", *annotated, "rec: Record"])
            + ", *, conf: cb.Comptime[Settings]):"
        )  # fmt: skip
        out += ["    i = cb.ABSOLUTE_POS", "    t = cb.UNIT_POS"]
        out += [
            f"    s = cb.shared(cb.CUBE_DIM, cb.{shared.dtype.name})",
            f"    keep = cb.local((2, 2), cb.{local.dtype.name})",
        ]
        for v in variables:
            out.append(f"    {v.text} = {self.of(v.dtype, 1).text}")
            names.values.append(v)
        names.variables += variables
        for cell in ("keep[0, 0]", "keep[0, 1]", "keep[1, 0]", "keep[1, 1]"):
            out.append(f"    {cell} = {self.put(self.of(local.dtype, 1), local.dtype)}")
        names.cells += [
            Typed(f"keep[{a}, {b}]", local.dtype)
            for a, b in (("0", "1"), ("i % 2", "0"), ("1", "t & 1"))
        ]
        lanes, dtype = self.one(*LANES), self.one(*(d.compute for d, _ in inputs), *VALUES)
        lines = [Typed("l0", dtype, lanes), Typed("l1", dtype, lanes)]
        for v in lines:
            out.append(f"    {v.text} = cb.splat({self.of(dtype, 1).text}, {lanes})")
        names.lines += lines
        self.kept, self.math, self.shared = lines[0], self.one(*FLOATS), shared
        self.whole = True
        for _ in range(self.rng.randint(2, self.size)):
            out += self.statement(2, "    ", "")
        for k, (v, d) in enumerate(zip(variables, stored, strict=True)):
            out.append(f"    o{k}[i, 0] = {self.put(v, d)}")
        out.append(f"    ol.store(i * {lanes}, l0)")
        out += [f"    om[i, {k}] = {self.function()}" for k in range(2)]
        return "\n".join(out) + "\n"

    def function(self) -> str:
        """A function whose digits are not the same everywhere."""
        a = self.of(self.math, 2).text
        if self.chance(0.3):
            return f"cb.{self.one(*MATH2)}({a}, {self.of(self.math, 1).text})"
        return f"cb.{self.one(*MATH)}({a})"

    def statement(self, depth: int, indent: str, jump: str) -> list[str]:
        """A statement; `jump`: whether a loop is around."""
        names, inner = self.names, indent + "    "
        kinds = ["assign"] * 4 + ["augment"] * 2 + ["cell", "line", "line", "store", "atomic", "record", "swap", "lines_loop",
                 "several", "unpack", "plane", "struct_call", "weak", "weak"]  # fmt: skip
        kinds += ["if", "if", "for", "while", "unroll", "range"] * (depth > 0) + [
            "leave"
        ] * 2 * bool(jump)
        kinds += ["shared"] * 2 * (self.whole and indent == "    ")
        kind = self.one(*kinds)
        v = self.one(*names.variables)
        if kind == "assign":
            return [f"{indent}{v.text} = {self.of(v.dtype, 2).text}"]
        if kind == "augment":
            if v.dtype.kind == "b":
                return [f"{indent}{v.text} {self.one('&=', '|=', '^=')} {self.of(v.dtype, 2).text}"]
            op = self.one(
                "+=",
                "-=",
                "*=",
                "//=",
                "%=",
                *(("&=", "|=", "^=", "<<=", ">>=") if v.dtype.is_int else ("/=",)),
            )
            return [f"{indent}{v.text} {op} {self.of(v.dtype, 2).text}"]
        if kind == "cell":
            cell = self.one(*names.cells)
            if self.chance() and cell.dtype.kind != "b":
                return [
                    f"{indent}{cell.text} {self.one('+=', '-=', '*=')} {self.of(cell.dtype, 2).text}"
                ]
            return [f"{indent}{cell.text} = {self.put(self.number(2), cell.dtype)}"]
        if kind == "line":
            line = self.one(*names.lines)
            return [f"{indent}{line.text} = {self.line(3).text}"]
        if kind == "store":
            k = self.rng.randrange(len(names.variables))
            d = names.variables[k].dtype
            if self.chance(0.3):
                return [
                    f"{indent}ol.store(i * {self.kept.lanes}, {self.line(2).text}{self.one('', ', valid=2', ', valid=t % 3')})"
                ]
            return [f"{indent}o{k}[i, 1] = {self.to(self.number(2), d).text}"]
        if kind == "atomic":
            return [indent + self.atomic()]
        if kind in ("record", "struct_call"):
            return self.record(indent)
        if kind == "swap":
            w = self.one(*names.variables)
            return (
                [
                    f"{indent}{v.text}, {w.text} = {self.to(w, v.dtype).text}, {self.to(v, w.dtype).text}"
                ]
                if w != v
                else [f"{indent}pass"]
            )
        if kind == "lines_loop":
            return self.line_loop(indent)
        if kind == "several":
            name = self.fresh("tup")
            dtype = self.one(*INTS, *FLOATS)
            item = self.fresh("item")
            names.values.append(Typed(item, dtype))
            body = self.of(dtype, 1).text
            names.values.pop()
            source = ", ".join(self.of(dtype, 1).text for _ in range(3))
            text = [f"{indent}{name} = ({source})",
                    f"{indent}{name} = tuple({body} for {item} in {name}{self.one('', ' if conf.steps > 0', '[1:]', '[::-1]')})"]  # fmt: skip
            return [
                *text,
                f"{indent}{v.text} = {self.to(Typed(f'({name}[0] + max({name}))', dtype), v.dtype).text}",
            ]
        if kind == "unpack":
            a, b = self.number(1), self.of(v.dtype, 2)
            return [
                f"{indent}{v.text}, ({v.text}, spare) = {self.to(a, v.dtype).text}, ({b.text}, 1)"
            ]
        if kind == "plane":
            return [indent + self.plane(v)]
        if kind == "weak":
            return [indent + line for line in self.weak(v)]
        if kind == "shared":
            step = self.one("1", "2", "cb.CUBE_DIM - 1", "0")
            read = Typed(f"s[(t + {step}) % cb.CUBE_DIM]", self.shared.dtype)
            return [f"{indent}s[t] = {self.put(self.number(2), self.shared.dtype)}", f"{indent}cb.sync_cube()",
                    f"{indent}{v.text} = {self.to(read, v.dtype).text}", f"{indent}cb.sync_cube()"]  # fmt: skip
        if kind == "leave":
            return [f"{indent}if {self.condition(1)}:", f"{inner}{self.one('break', 'continue')}"]
        return self.nested(kind, depth, indent, jump)

    def nested(self, kind: str, depth: int, indent: str, jump: str) -> list[str]:
        inner = indent + "    "

        def body(j: str = jump, n: int = 2) -> list[str]:
            return [
                s
                for _ in range(self.rng.randint(1, n))
                for s in self.statement(depth - 1, inner, j)
            ]

        if kind == "if":
            test = (
                self.condition(2)
                if self.chance(0.8)
                else self.one("conf.flag", "conf.steps > 3", "OUTSIDE > 0")
            )
            lines = [f"{indent}if {test}:", *body()]
            if self.chance(0.3):
                lines += [f"{indent}elif {self.condition(1)}:", *body()]
            if self.chance():
                lines += [f"{indent}else:", *body()]
            return lines
        k = self.fresh("k")
        if kind == "for":
            small = self.one(*(d for d in INTS if d.bits >= 8))
            lines = [
                f"{indent}for {k} in range({self.one('3', 'i % 3', '1, 5, 2', '3, -2, -2', f'{self.of(small, 1).text} & 3', 'conf.steps % 4')}):"
            ]
            self.names.values.append(Typed(f"cb.cast({k}, cb.i32)", cb.i32))
            lines += body("loop")
        elif kind == "range":
            lines = [
                f"{indent}for {k} in {self.one('cb.range(0, 3, 1, unroll=False)', 'reversed(range(i % 3))')}:"
            ]
            self.names.values.append(Typed(f"cb.cast({k}, cb.i32)", cb.i32))
            lines += body("loop")
        elif kind == "unroll":
            lines = [
                f"{indent}for {k} in cb.unroll({self.one('range(2)', '3', 'conf.items', 'range(conf.steps % 3)')}):"
            ]
            self.names.values.append(Typed(f"cb.cast({k}, cb.i16)", cb.i16))
            lines += body("loop")
        else:
            lines = [
                f"{indent}{k} = 0",
                f"{indent}while {k} < {self.one('2', 'i % 4')} and ({self.condition(1)}):",
                f"{inner}{k} += 1",
            ]
            self.names.values.append(Typed(f"cb.cast({k}, cb.i32)", cb.i32))
            lines += body("loop")
        self.names.values.pop()
        return lines

    def weak(self, v: Typed) -> list[str]:
        """A variable that begins with a number without a dtype and meets one later, or never."""
        w, dtype = self.fresh("w"), self.one(*INTS, *FLOATS)
        begin = self.one(
            *(
                ("0.5", "2.0", "conf.scale", "3")
                if dtype.is_float
                else ("0", "1", "7", "100", "conf.steps")
            )
        )
        change = self.one(
            f"{w} + 1", f"{w} * 2", f"{w} - 1", f"{w} // 2", f"3 if {self.condition(1)} else {w}"
        )
        met = f"{w} {self.one('+', '*', '-')} {self.of(dtype, 1).text}"
        loop = self.one(
            f"if {self.condition(1)}:",
            f"for {self.fresh('k')} in range(i % 3):",
            "if conf.steps > 2:",
        )
        end = [f"{v.text} = {self.to(Typed(w, dtype), v.dtype).text}"]
        return self.one(
            [f"{w} = {begin}", loop, f"    {w} = {change}", f"{w} = {met}", *end],
            [f"{w} = {begin}", loop, f"    {w} = {met}", f"{w} = {change}", *end],
            [f"{w} = {begin}", f"{w} = {change}", loop, f"    {w} += {self.of(dtype, 1).text}", *end],
            [f"{w} = ({begin}, {begin})", loop, f"    {w} = ({w}[1], {self.of(dtype, 1).text})",
             f"{v.text} = {self.to(Typed(f'({w}[0] + {w}[1] + {self.of(dtype, 1).text})', dtype), v.dtype).text}"],
            [f"{w} = {begin} if {self.condition(1)} else {begin}", loop, f"    {w} = {change}",
             f"{v.text} = {self.to(Typed(f'({met})', dtype), v.dtype).text}"],
        )  # fmt: skip

    def atomic(self) -> str:
        """An update whose order does not matter, of what nobody reads."""
        which = self.rng.randrange(2)
        name = self.one("add", "sub", "max", "min", "and", "or", "xor")
        self.atomics: dict[int, str] = getattr(self, "atomics", {})
        name = self.atomics.setdefault(which, name if name not in ("add", "sub") else "add")
        value = self.put(self.of(self.one(*INTS), 2), cb.i64)
        return f"cb.atomic_{name}(c{which}, {self.one('0', 'i % 5', 't', 'i - 1')}, {value})"

    def record(self, indent: str) -> list[str]:
        v = self.one(*self.names.variables)
        lines = [f"{indent}rec = rec.moved({self.of(cb.f32, 2).text})"]
        if self.chance(0.3):
            lines[0] = (
                f"{indent}rec = picked(rec, {self.condition(1)}, rec.moved({self.of(cb.f32, 1).text}))"
            )
        field = self.one(*(x for x in self.names.values if x.text.startswith("rec.")))
        return [*lines, f"{indent}{v.text} = {self.to(field, v.dtype).text}"]

    def plane(self, v: Typed) -> str:
        """What is the same for a plane of any size."""
        same = self.one("x0.size", "cb.CUBE_POS", "conf.steps + cb.cast(2, cb.i32)")
        value = Typed(f"cb.plane_{self.one('max', 'min')}({same})", cb.i32)
        return f"{v.text} = {self.to(value, v.dtype).text}" if self.whole else "pass"

    def line_loop(self, indent: str) -> list[str]:
        k, n = self.fresh("k"), self.fresh("valid")
        base = self.one(*self.names.lines)
        arrays = [a for a in self.names.arrays if a[1].compute is base.dtype and a[2] == 1]
        if not arrays or base.dtype.kind == "b":
            return [f"{indent}pass"]
        name = self.one(*arrays)[0]
        return [f"{indent}for {k}, {n} in cb.lines({self.one('0', 'i % 3')}, {name}.size, {base.lanes}):",
                f"{indent}    {base.text} = {base.text} {self.one('+', '-')} {name}.load({k}, {base.lanes}, valid={n})"]  # fmt: skip
