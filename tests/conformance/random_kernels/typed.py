"""Expressions of every dtype for random kernels: each is a text together with the dtype that the
language gives it, so that what is drawn is always allowed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cubepy as cb
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType

INTS = (cb.i8, cb.i16, cb.i32, cb.i64, cb.u8, cb.u16, cb.u32, cb.u64)
FLOATS = (cb.f16, cb.bf16, cb.f32, cb.f64)
VALUES = (cb.bool_, *INTS, *FLOATS)
STORED = (*VALUES, cb.fp8_e4m3, cb.fp8_e5m2, cb.int4, cb.uint4)
LANES = (1, 2, 3, 4, 5, 7, 8, 12, 16)
FLOAT_LITERALS = (
    "0.0",
    "-0.0",
    "0.5",
    "1.5",
    "-2.25",
    "3.0",
    "math.inf",
    "-math.inf",
    "math.nan",
    "1e-3",
    "100.0",
)
EXACT = ("sqrt", "floor", "ceil", "trunc", "round", "abs", "sign")
COMPTIME_FLOATS = ("conf.steps", "conf.scale", "(conf.steps - 7) / 2", "conf.function(conf.scale)")
COMPTIME_INTS = ("OUTSIDE", "conf.steps", "conf.steps % 3", "len(conf.items)")
SAME_WIDTH = {
    8: (cb.i8, cb.u8), 16: (cb.i16, cb.u16), 32: (cb.i32, cb.u32, cb.f32), 64: (cb.i64, cb.u64, cb.f64),
}  # fmt: skip


class Typed(NamedTuple):
    """An expression, its dtype, and its lanes (0: a number)."""

    text: str
    dtype: DType
    lanes: int = 0


@dataclass
class Names:
    """What a place of a kernel may read, and which of it may be assigned."""

    values: list[Typed]
    variables: list[Typed]
    arrays: list[tuple[str, DType, int]]  # name, dtype, rank
    cells: list[Typed] = field(default_factory=list)  # elements that may be assigned
    funcs: list[tuple[str, list[Typed], DType]] = field(default_factory=list)
    lines: list[Typed] = field(default_factory=list)


class Expressions:
    """Draws expressions over the names that there are."""

    names: Names
    plain = False  # whether only `names.values` may be read: in funcs and methods

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def one(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def chance(self, p: float = 0.5) -> bool:
        return self.rng.random() < p

    def to(self, e: Typed, dtype: DType) -> Typed:
        """The expression as a value of a dtype."""
        if e.dtype is dtype:
            return e
        form = self.one("cb.cast({0}, cb.{1})", "cb.{1}({0})")
        return Typed(form.format(e.text, dtype.name), dtype, e.lanes)

    def put(self, e: Typed, dtype: DType) -> str:
        """The expression for a place of a dtype: stores convert all but floats to integers."""
        target = dtype.compute
        if e.dtype.is_float and not target.is_float:
            return self.to(e, target).text
        return e.text if self.chance(0.7) else self.to(e, target).text

    def leaf(self) -> Typed:
        """A number that is there."""
        if self.names.arrays and self.chance(0.3):
            name, dtype, rank = self.one(*self.names.arrays)
            return Typed(f"{name}[{', '.join(self.index() for _ in range(rank))}]", dtype.compute)
        if self.names.cells and self.chance(0.2):
            return self.one(*self.names.cells)
        if self.names.lines and self.chance(0.1):
            line = self.one(*self.names.lines)
            return Typed(f"{line.text}[{self.rng.randrange(line.lanes)}]", line.dtype)
        return self.one(*self.names.values)

    def index(self) -> str:
        """A place on an axis, now and then outside."""
        form = self.one(
            "i", "i", "i + 1", "t", "{} % 5", "{}", "{} - 2", "2", "0", "i * 2 % 7", "-1"
        )
        if "{}" not in form:
            return form
        inner = self.of(self.one(*INTS), 1)
        return form.format(inner.text if form != "{}" else f"({inner.text} & 7)")

    def literal(self, dtype: DType) -> str:
        """A weak number that fits the dtype."""
        if dtype.is_float:
            return self.one(*FLOAT_LITERALS, "2", *COMPTIME_FLOATS * (not self.plain))
        small = ["0", "1", "2", "3", "7", "100", *COMPTIME_INTS * (not self.plain)]
        if dtype.kind == "i":
            small += [
                "-1",
                "-3",
                "-100",
                str(-(1 << dtype.bits - 1)),
                str((1 << dtype.bits - 1) - 1),
            ]
        if dtype.kind == "u":
            small += [str((1 << dtype.bits) - 1)]
        return self.one(*small) if dtype.is_int else self.one("True", "False")

    def of(self, dtype: DType, depth: int = 2) -> Typed:
        """An expression of just this dtype."""
        return self.to(self.number(depth), dtype)

    def operand(self, a: Typed, depth: int) -> tuple[str, DType]:
        """Something that meets `a`, and the dtype in which they meet."""
        if self.chance(0.25) and a.dtype.kind != "b":
            if self.chance(0.3) and a.dtype.is_int:
                return self.one("0.5", "2.0", *("conf.scale",) * (not self.plain)), dt.float_for(
                    a.dtype
                )
            return self.literal(a.dtype), a.dtype
        b = self.number(depth)
        return b.text, cb.promote(a.dtype, b.dtype)

    def number(self, depth: int = 3) -> Typed:
        """A number of any dtype."""
        if depth <= 0 or self.chance(0.35):
            return self.leaf()
        kind = self.one(
            "arithmetic", "arithmetic", "arithmetic", "divide", "bits", "shift", "compare", "extreme",
            "conditional", "select", "cast", "unary", "exact", "integers", "logic", "fma", "bitcast", "python",
            "call", "power", "clamp", "line", "members", "product",
        )  # fmt: skip
        return getattr(self, f"_{kind}")(depth - 1)

    def _arithmetic(self, depth: int) -> Typed:
        a = self.number(depth)
        b, dtype = self.operand(a, depth)
        op = self.one("+", "-", "*", "//", "%")
        left, right = (a.text, b) if self.chance(0.7) else (b, a.text)
        return Typed(f"({left} {op} {right})", cb.i32 if dtype.kind == "b" else dtype)

    def _divide(self, depth: int) -> Typed:
        a, b = self.number(depth), self.number(depth)
        return Typed(f"({a.text} / {b.text})", dt.true_divide_dtype(a.dtype, b.dtype))

    def _bits(self, depth: int) -> Typed:
        a, b = self.of(self.one(cb.bool_, *INTS), depth), self.of(self.one(cb.bool_, *INTS), depth)
        return Typed(f"({a.text} {self.one('&', '|', '^')} {b.text})", cb.promote(a.dtype, b.dtype))

    def _shift(self, depth: int) -> Typed:
        a = self.of(self.one(*INTS), depth)
        if self.chance():
            return Typed(f"({a.text} {self.one('<<', '>>')} {self.rng.randint(0, 70)})", a.dtype)
        b = self.of(self.one(*INTS), depth)
        form = self.one("({} & 15)", "{}")
        return Typed(
            f"({a.text} {self.one('<<', '>>')} {form.format(b.text)})", cb.promote(a.dtype, b.dtype)
        )

    def _compare(self, depth: int) -> Typed:
        a, b, c = (self.number(depth).text for _ in range(3))
        ops = "<", "<=", ">", ">=", "==", "!="
        if self.chance(0.3):
            return Typed(f"({a} {self.one(*ops)} {b} {self.one(*ops)} {c})", cb.bool_)
        return Typed(f"({a} {self.one(*ops)} {b})", cb.bool_)

    def _extreme(self, depth: int) -> Typed:
        a = self.number(depth)
        b, dtype = self.operand(a, depth)
        name = self.one("cb.min", "cb.max", "cb.nan_min", "cb.nan_max", "min", "max")
        left, right = (a.text, b) if self.chance(0.7) else (b, a.text)
        return Typed(f"{name}({left}, {right})", dtype)

    def condition(self, depth: int = 2) -> str:
        """What an `if` may ask."""
        form = self.one(
            "{b}", "{b}", "not {n}", "{n}", "{b} and {b}", "{b} or {n}", "{n} in (1, {n}, 3)"
        )
        while "{" in form:
            form = form.replace("{b}", self._compare(depth - 1).text, 1) if "{b}" in form else form
            form = form.replace("{n}", self.number(depth - 1).text, 1) if "{n}" in form else form
        return form

    def _conditional(self, depth: int) -> Typed:
        a, b = self.number(depth), self.number(depth)
        return Typed(
            f"({a.text} if {self.condition(depth)} else {b.text})", cb.promote(a.dtype, b.dtype)
        )

    def _select(self, depth: int) -> Typed:
        a = self.number(depth)
        b, dtype = self.operand(a, depth)
        return Typed(f"cb.select({self._compare(depth).text}, {a.text}, {b})", dtype)

    def _logic(self, depth: int) -> Typed:
        a, b = self.number(depth), self.number(depth)
        return Typed(f"({a.text} {self.one('and', 'or')} {b.text})", cb.promote(a.dtype, b.dtype))

    def _cast(self, depth: int) -> Typed:
        a = self.number(depth)
        storage = self.one(*STORED)
        return Typed(f"cb.cast({a.text}, cb.{storage.name})", storage.compute)

    def _unary(self, depth: int) -> Typed:
        a = self.number(depth)
        op = self.one("-", "+", "abs", "~", "not ")
        if op == "~" and a.dtype.is_float:
            op = "-"
        if op == "not ":
            return Typed(f"(not {a.text})", cb.bool_)
        if op == "abs":
            return Typed(f"abs({a.text})", a.dtype)
        return Typed(f"({op}{a.text})", cb.i32 if a.dtype.kind == "b" and op != "~" else a.dtype)

    def _exact(self, depth: int) -> Typed:
        a = self.of(self.one(*FLOATS), depth)
        name = self.one(*EXACT)
        if self.chance(0.2):
            return Typed(f"cb.{self.one('isnan', 'isinf', 'isfinite')}({a.text})", cb.bool_)
        return Typed(f"cb.{name}({a.text})", a.dtype)

    def _integers(self, depth: int) -> Typed:
        a = self.of(self.one(*INTS), depth)
        if self.chance(0.2):
            b = self.of(a.dtype, depth)
            return Typed(f"cb.mulhi({a.text}, {b.text})", a.dtype)
        return Typed(f"cb.{self.one('popcount', 'clz', 'ctz', 'reverse_bits')}({a.text})", a.dtype)

    def _fma(self, depth: int) -> Typed:
        dtype = self.one(cb.f32, cb.f32, cb.f16, cb.bf16, cb.f64, cb.i32)
        a, b, c = (self.of(dtype, depth).text for _ in range(3))
        return Typed(f"cb.fma({a}, {b}, {c})", dtype)

    def _bitcast(self, depth: int) -> Typed:
        """The bits of a NaN are nobody's business, so it becomes a number first."""
        a = self.of(
            self.one(*(d for d in VALUES if d.kind != "b" and d.name not in ("f16", "bf16"))), depth
        )
        text = f"cb.select(cb.isnan({a.text}), 1.0, {a.text})" if a.dtype.is_float else a.text
        target = self.one(*SAME_WIDTH[a.dtype.bits])
        return Typed(f"cb.bitcast({text}, cb.{target.name})", target)

    def _python(self, depth: int) -> Typed:
        a = self.number(depth)
        kind = self.one("int", "bool", "sum", "max", "any", "divmod")
        if kind == "int" and a.dtype.is_int:
            return Typed(f"({a.text} + int({self.rng.randint(0, 99)}))", a.dtype)
        if kind == "bool":
            return Typed(f"bool({a.text})", cb.bool_)
        if kind in ("sum", "max"):
            dtype = self.one(*INTS, *FLOATS)
            items = ", ".join(self.of(dtype, depth).text for _ in range(self.rng.randint(2, 3)))
            return Typed(f"{kind}(({items}))", dtype)
        if kind == "any":
            return Typed(
                f"{self.one('any', 'all')}(({a.text}, {self._compare(depth).text}))", cb.bool_
            )
        b = self.of(a.dtype, depth)
        dtype = cb.i32 if a.dtype.kind == "b" else a.dtype
        return Typed(f"divmod({a.text}, {b.text})[{self.one(0, 1)}]", dtype)

    def _call(self, depth: int) -> Typed:
        if not self.names.funcs:
            return self.leaf()
        name, parameters, dtype = self.one(*self.names.funcs)
        given = []
        for p in parameters:
            value = self.of(p.dtype, depth - 1).text
            keyword = self.chance(0.3) or any("=" in g for g in given)
            given.append(f"{p.text}={value}" if keyword else value)
        if self.chance(0.3) and parameters and not any("=" in g for g in given):
            return Typed(f"{name}(*({', '.join(given)},))", dtype)
        more = [f"extra={self.rng.randint(0, 3)}"] * self.chance(0.3)
        return Typed(f"{name}({', '.join(given + more)})", dtype)

    def _power(self, depth: int) -> Typed:
        a = self.number(depth)
        dtype = cb.i32 if a.dtype.kind == "b" else a.dtype
        if dtype.is_int and self.chance():
            b = self.of(dtype, depth)
            return Typed(f"({a.text} ** {self.to(b, dtype).text})", dtype)
        return Typed(f"({a.text} ** {self.one(2, 3)})", dtype)

    def _clamp(self, depth: int) -> Typed:
        a = self.of(self.one(*INTS, *FLOATS), depth)
        low, high = self.literal(a.dtype), self.literal(a.dtype)
        return Typed(f"cb.clamp({a.text}, {low}, {high})", a.dtype)

    def _line(self, depth: int) -> Typed:
        if not self.names.lines:
            return self.leaf()
        line = self.line(depth)
        how = self.one("max", "min", "sum", "prod", "lane", "any", "all", "mask")
        if how == "lane":
            return Typed(f"{line.text}[{self.rng.randrange(line.lanes)}]", line.dtype)
        if how in ("any", "all", "mask"):
            word = how if how != "mask" else "sum"
            dtype = cb.i32 if how == "mask" else cb.bool_
            return Typed(f"({line.text} > {self.one('0', '1')}).{word}()", dtype)
        return Typed(f"{line.text}.{how}()", cb.i32 if line.dtype.kind == "b" else line.dtype)

    def _members(self, depth: int) -> Typed:
        if self.plain:
            return self.leaf()
        return self.one(
            Typed("x0.size", cb.i32), Typed("x1.shape[0]", cb.i32), Typed("i", cb.i32),
            Typed("cb.select(conf.flag, i, 3)", cb.i32), Typed("cb.cast(conf.items[1], cb.i16)", cb.i16),
            Typed("cb.CUBE_DIM_X + cb.UNIT_POS_X", cb.i32), Typed("cb.CUBE_POS_Y * 2 + cb.UNIT_POS_Y + cb.UNIT_POS_Z", cb.i32),
        )  # fmt: skip

    def _product(self, depth: int) -> Typed:
        word = self.one(0, 1, 2, 3)
        a, b = self.of(self.one(cb.i32, cb.u32), depth).text, self.of(cb.u32, depth).text
        drawn = f"cb.philox(({a}, 5), ({b},))[{word}]"
        if self.chance():
            dtype = self.one(cb.f32, cb.f32, cb.f16, cb.bf16)
            return Typed(f"cb.to_uniform({drawn}, cb.{dtype.name})", cb.f32)
        return Typed(drawn, cb.u32)

    def line(self, depth: int = 1) -> Typed:
        """A line of a dtype and lanes that some variable has."""
        base = self.one(*self.names.lines)
        if depth <= 0 or self.chance(0.3):
            return base
        lanes, dtype = base.lanes, base.dtype
        kind = self.one(
            "arithmetic",
            "load",
            "load",
            "select",
            "mask",
            "shuffle",
            "splat",
            "keep",
            "iota",
            "extreme",
            "line",
        )
        if kind == "arithmetic" and dtype.kind != "b":
            other = self.of(dtype, depth - 1).text if self.chance() else self.same(base).text
            return Typed(
                f"({base.text} {self.one('+', '-', '*', '//', '%')} {other})", dtype, lanes
            )
        if kind == "load":
            arrays = [a for a in self.names.arrays if a[1].compute is dtype]
            if not arrays:
                return Typed(f"cb.splat({self.of(dtype, depth - 1).text}, {lanes})", dtype, lanes)
            name, _, rank = self.one(*arrays)
            at = (
                self.index()
                if rank == 1 or self.chance()
                else f"({', '.join(self.index() for _ in range(rank))})"
            )
            more = (
                f", valid={self.one(str(lanes - 1), 'i % 4', '0', 'cb.cast(n0, cb.i32) % 5')}"
                * self.chance(0.5)
            )
            more += f", other={self.literal(dtype)}" * self.chance(0.5)
            return Typed(f"{name}.load({at}, {lanes}{more})", dtype, lanes)
        if kind == "select":
            mask = f"{base.text} {self.one('<', '>=', '==')} {self.of(dtype, depth - 1).text}"
            return Typed(f"cb.select({mask}, {base.text}, {self.same(base).text})", dtype, lanes)
        if kind == "mask":
            return Typed(
                f"({self.same(base).text} if {base.text} > {base.text}[0] else {base.text})",
                dtype,
                lanes,
            )
        if kind == "shuffle":
            picked = tuple(self.rng.randrange(2 * lanes) for _ in range(lanes))
            text = self.one(f"cb.shuffle({base.text}, {self.same(base).text}, {picked})",
                            f"cb.slice_line(cb.concat({base.text}, {self.same(base).text}), {self.rng.randint(0, lanes)}, {lanes})",
                            f"cb.slice_line(cb.interleave({base.text}, {self.same(base).text}), {self.rng.randint(0, lanes)}, {lanes})",
                            f"cb.partition({base.text}, {base.text} > {self.literal(dtype)})")  # fmt: skip
            return Typed(text, dtype, lanes)
        if kind == "keep":
            return Typed(
                f"cb.keep_first({base.text}, {self.one('2', 'i % 4', 't')}, {self.literal(dtype)})",
                dtype,
                lanes,
            )
        if kind == "iota" and dtype.kind != "b":
            return Typed(f"cb.iota({lanes}, cb.{dtype.name})", dtype, lanes)
        if kind == "extreme":
            return Typed(
                f"cb.{self.one('min', 'max', 'nan_min', 'nan_max')}({base.text}, {self.same(base).text})",
                dtype,
                lanes,
            )
        if kind == "line":
            parts = ", ".join(self.of(dtype, depth - 1).text for _ in range(lanes))
            return Typed(f"cb.line({parts})", dtype, lanes)
        return Typed(f"cb.splat({self.of(dtype, depth - 1).text}, {lanes})", dtype, lanes)

    def same(self, base: Typed) -> Typed:
        """A line of the same kind."""
        return self.one(*(v for v in self.names.lines if v[1:] == base[1:]))
