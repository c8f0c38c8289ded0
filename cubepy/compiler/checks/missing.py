"""Validate mode: a maximum or minimum of a line must not take lanes that a load left at zero.

Lanes past `valid=` or the end of an array are zero unless `other=` says otherwise. A sum does not
mind; the largest of negative numbers does. So the program counts, for every line that may lack
lanes, how many are there: in a variable beside each variable that holds such a line, with an
assertion before each maximum or minimum. Arithmetic hands the lack on; `cb.select`, shuffles and
memory end what can be followed, and nothing is said of them.
"""

from __future__ import annotations

from dataclasses import replace

from cubepy.compiler import convert
from cubepy.compiler.ir import (
    Assign,
    DebugAssert,
    Expr,
    For,
    If,
    Mem,
    Program,
    Stmt,
    VType,
    While,
    expressions,
    walk,
)
from cubepy.lang import dtypes as dt
from cubepy.lang.builtins import FLOAT_MATH
from cubepy.lang.words import took_missing

REDUCED = {"line_max": "max", "line_min": "min"}
ARITHMETIC = frozenset("add sub mul truediv floordiv mod pow and_ or_ xor shl shr neg cast".split())
CALLS = {*FLOAT_MATH, "abs", "round", "min", "max", "nan_min", "nan_max", "fma", "pow"}


def check_reductions(program: Program) -> None:
    """Let a program fail where a maximum or minimum takes lanes that are zero by default."""
    used = {e.op for s in walk(program.body) for x in expressions(s) for e in x.walk()}
    for op, how in REDUCED.items():
        if op in used:
            _Followed(program, op, how).check()


class _Followed:
    """The lines of a program that may lack lanes, for maxima or for minima."""

    def __init__(self, program: Program, op: str, how: str) -> None:
        self.program, self.op, self.how = program, op, how
        self.lacking: dict[str, str] = {}  # variables, and which array their lanes are missing from
        self.counts: dict[str, str] = {}  # the variables beside them
        self.index = VType(program.index)

    def check(self) -> None:
        """Add the variables and the assertions."""
        assigned = [s for s in walk(self.program.body) if isinstance(s, Assign)]
        found = True
        while found:
            found = False
            for s in assigned:
                array = self.lacks(s.value)
                if array and s.name not in self.lacking:
                    self.lacking[s.name], found = array, True
        self.program.body = self.block(self.program.body)

    def passed(self, e: Expr) -> tuple[Expr, ...]:
        """The operands whose missing lanes are missing from the result, too."""
        if not e.type.lanes or e.op not in ARITHMETIC and (e.op != "call" or e.attr not in CALLS):
            return ()
        if self.how == "max" and (
            (e.op == "call" and e.attr == "abs") or (e.op == "mul" and e.args[0] == e.args[1])
        ):
            return ()  # zero is the least there
        return e.args

    def lacks(self, e: Expr) -> str:
        """The array from which lanes of a line may be missing; empty if none are."""
        if e.op == "var":
            return self.lacking.get(str(e.attr), "")
        if e.op == "line_load":
            mem, _, _, filled = e.attr
            harmless = mem.dtype.kind == "b" or (mem.dtype.kind == "u" and self.how == "max")
            return "" if filled or harmless else str(mem.argument or mem.name)
        return next(filter(None, map(self.lacks, self.passed(e))), "")

    def there(self, e: Expr) -> Expr | None:
        """How many lanes of a line are there; None for all."""
        if not self.lacks(e):
            return None
        if e.op == "var":
            return Expr("var", self.index, (), self.beside(str(e.attr)))
        if e.op == "line_load":
            return self.loaded(e)
        counts = [n for n in map(self.there, self.passed(e)) if n is not None]
        least = counts[0]
        for n in counts[1:]:
            least = least if n == least else Expr("call", self.index, (least, n), "min")
        return least

    def loaded(self, e: Expr) -> Expr:
        """How many lanes of a load are there."""
        mem, linear, has_valid, _ = e.attr
        args = e.args[:-1] if has_valid else e.args
        extent = self.size(mem) if linear else self.extent(mem)
        room = self.typed(convert.binary("sub", extent, args[-1], self.program.index))
        if not has_valid:
            return room
        return Expr("call", self.index, (room, self.typed(e.args[-1])), "min")

    def size(self, mem: Mem) -> Expr:
        """How many elements a memory has."""
        if mem.shape is None:
            return Expr("size", self.index, (), mem)
        count = 1
        for n in mem.shape:
            count *= n
        return convert.constant(count, self.program.index)

    def extent(self, mem: Mem) -> Expr:
        """The length of a memory's last axis."""
        if mem.shape is None:
            return Expr("shape", self.index, (), (mem, mem.ndim - 1))
        return convert.constant(mem.shape[-1], self.program.index)

    def typed(self, value: object) -> Expr:
        """A number in the dtype of indices."""
        return convert.to(value, self.program.index)  # type: ignore[arg-type]

    def beside(self, name: str) -> str:
        """The variable that says how many lanes of another one are there."""
        if name not in self.counts:
            count = f"{name}_there_{self.how}"
            while count in self.program.variables:
                count += "_"
            self.counts[name] = count
            self.program.variables[count] = self.index
        return self.counts[name]

    def block(self, body: list[Stmt]) -> list[Stmt]:
        """Statements with what they need beside them."""
        out: list[Stmt] = []
        for s in body:
            for e in expressions(s):
                out += [self.assertion(x, s) for x in e.walk() if self.reduces(x)]
            if isinstance(s, Assign) and s.name in self.lacking:
                all_lanes = convert.constant(s.value.type.lanes, self.program.index)
                count = self.there(s.value) or all_lanes
                out.append(Assign(self.beside(s.name), count, loc=s.loc))
            out.append(self.inner(s))
        return out

    def inner(self, s: Stmt) -> Stmt:
        """A statement with what it holds treated alike."""
        if isinstance(s, If):
            return replace(s, then=self.block(s.then), orelse=self.block(s.orelse))
        return replace(s, body=self.block(s.body)) if isinstance(s, (For, While)) else s

    def reduces(self, e: Expr) -> bool:
        """Whether an expression reduces a line that may lack lanes."""
        return e.op == self.op and bool(self.lacks(e.args[0]))

    def assertion(self, e: Expr, s: Stmt) -> Stmt:
        """That all lanes of a reduction are there."""
        line = e.args[0]
        lanes = convert.constant(line.type.lanes, self.program.index)
        enough = Expr("ge", VType(dt.bool_), (self.there(line) or lanes, lanes))
        return DebugAssert(enough, took_missing(self.how, self.lacks(line)), loc=s.loc)
