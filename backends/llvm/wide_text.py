"""Printing kernels of single elements: positions and loop variables in 64 bits, and no check that
must hold.

A kernel's index arithmetic is done in 32 bits by the language. Where it cannot wrap (see `ranges`)
a variable is kept in 64 bits beside, which LLVM needs to see that neighbours in a loop are
neighbours in memory; else it does not turn the loop into one over lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from cubepy.backends.llvm.printing import Printer
from cubepy.backends.llvm.ranges import Part, Sum, constant, needs, single
from cubepy.compiler.ir import (
    Assign,
    Atomic,
    Expr,
    For,
    Hardware,
    If,
    Mem,
    Program,
    Stmt,
    Store,
    expressions,
    walk,
)

MOST = 2**31 - 1
COMPARED = {"lt": (0, 1, 1), "le": (0, 1, 0), "gt": (1, 0, 1), "ge": (1, 0, 0)}
"""By comparison: which operand is the smaller, which the larger, and by how much at least."""
OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


@dataclass(frozen=True)
class Wide:
    """An integer that is known in 64 bits: its text and what it is made of."""

    text: str
    sum: Sum


def of_elements(program: Program) -> bool:
    """Whether a program reads and writes single elements, in one stretch, by indices of 32 bits."""
    if program.index.name != "i32" or program.has_barrier or program.shared:
        return False
    for s in walk(program.body):
        if isinstance(s, Hardware) or (isinstance(s, Store) and s.value.type.lanes):
            return False
        if any(e.type.lanes for x in expressions(s) for e in x.walk()):
            return False
    return True


class WideText(Printer):
    """A printer that follows what is known of integers; `denied` are assumptions that it must not
    make.
    """

    def __init__(
        self, program: Program, reserved: frozenset[str], denied: frozenset[Sum] | None
    ) -> None:
        super().__init__(program, reserved)
        self.follows = denied is not None and of_elements(program)
        self.denied = denied or frozenset()
        self.assumed: set[Sum] = set()
        self.facts: list[Sum] = []
        self.beside: dict[str, Wide] = {}
        self.sums: dict[str, Sum] = {}
        self.written = {n for s in walk(program.body) for n in _written_by(s)}
        self.inner: set[str] = set()
        self.scalars = {
            a.path: a.scalar.dtype for a in program.arguments if a.scalar and not a.scalar.lanes
        }
        self.fixed = {self.var(n) for n in self.scalars if n not in self.written}

    # What is known

    def wide(self, e: Expr) -> Wide | None:
        """An integer expression in 64 bits, if it has the same value there."""
        if not self.follows or e.type.lanes:
            return None
        if e.op == "const":
            plain = type(e.attr) is int and abs(e.attr) <= MOST
            return Wide(str(e.attr), constant(e.attr)) if plain else None
        if e.type.dtype.name != "i32":
            return None
        method = getattr(self, f"wide_{e.op}", None)
        found = None if method is None else method(e)
        return found if found and found.sum.low > -MOST - 2 and found.sum.high <= MOST else None

    def wide_topology(self, e: Expr) -> Wide:
        text = self.position(e.attr)
        if text.isdigit():
            return Wide(text, constant(int(text)))
        most = self.units_count - 1 if e.attr.startswith("UNIT_POS") else MOST - 1
        return Wide(text, single(Part(text, 0, most)))

    def wide_shape(self, e: Expr) -> Wide:
        mem, axis = e.attr
        return self.wide_size_of(mem, axis)

    def wide_size(self, e: Expr) -> Wide:
        return self.wide_size_of(e.attr, -1)

    def wide_size_of(self, mem: Mem, axis: int) -> Wide:
        """The length of an axis of an array, or its number of elements."""
        axis = 0 if mem.ndim == 1 else axis
        text = self.size_text(mem) if axis < 0 else self.extent(mem, axis)
        if text.isdigit():
            return Wide(text, constant(int(text)))
        if mem.kind != "global":
            return Wide(text, single(Part(text, 0, MOST)))
        return Wide(text, single(Part(text, 0, MOST, (mem.name, axis))))

    def wide_var(self, e: Expr) -> Wide | None:
        known = self.beside.get(e.attr)
        if known is None and e.attr in self.scalars and e.attr not in self.written:
            text = self.var(e.attr)
            return Wide(text, single(Part(text, -MOST - 1, MOST)))
        return known

    def wide_add(self, e: Expr) -> Wide | None:
        return self._combined(e, "+", lambda a, b: a + b)

    def wide_sub(self, e: Expr) -> Wide | None:
        return self._combined(e, "-", lambda a, b: a - b)

    def _combined(self, e: Expr, sign: str, combine: object) -> Wide | None:
        a, b = (self.wide(x) for x in e.args)
        if a is None or b is None:
            return None
        total = combine(a.sum, b.sum)  # type: ignore[operator]
        if not total.terms:
            return Wide(str(total.constant), total)
        if b.text == "0":
            return a
        return Wide(f"({a.text} {sign} {b.text})", total)

    def wide_mul(self, e: Expr) -> Wide | None:
        a, b = (self.wide(x) for x in e.args)
        if a is None or b is None:
            return None
        text = f"({a.text} * {b.text})"
        for one, other in ((a, b), (b, a)):
            if not one.sum.terms:
                return Wide(text, other.sum.times(one.sum.constant))
        ends = [x * y for x in (a.sum.low, a.sum.high) for y in (b.sum.low, b.sum.high)]
        return Wide(text, single(Part(text, min(ends), max(ends))))

    def wide_min(self, e: Expr) -> Wide | None:
        return self._chosen(e, "min")

    def wide_max(self, e: Expr) -> Wide | None:
        return self._chosen(e, "max")

    def wide_call(self, e: Expr) -> Wide | None:
        return self._chosen(e, e.attr) if e.attr in ("min", "max") else None

    def _chosen(self, e: Expr, kind: str) -> Wide | None:
        a, b = (self.wide(x) for x in e.args)
        if a is None or b is None:
            return None
        choose = min if kind == "min" else max
        low, high = choose(a.sum.low, b.sum.low), choose(a.sum.high, b.sum.high)
        text = f"{kind}num({a.text}, {b.text})"
        return Wide(text, single(Part(text, low, high, None, kind, (a.sum, b.sum))))

    def wide_mod(self, e: Expr) -> Wide | None:
        a, b = (self.wide(x) for x in e.args)
        if a is None or b is None or b.sum.low < 0:
            return None
        text = f"i64({super().value(e)})"  # a division of 32 bits takes less
        return Wide(text, single(Part(text, 0, max(0, b.sum.high - 1), None, "mod", (b.sum,))))

    def wide_floordiv(self, e: Expr) -> Wide | None:
        a, b = (self.wide(x) for x in e.args)
        if a is None or b is None or a.sum.low < 0 or b.sum.low < 0:
            return None
        text = f"i64({super().value(e)})"
        return Wide(text, single(Part(text, 0, a.sum.high)))

    def wide_cast(self, e: Expr) -> Wide | None:
        return self.wide(e.args[0])

    def follow(self, cond: Expr, holds: bool = True) -> list[Sum]:
        """What follows from a condition, or from its opposite."""
        if cond.op == "and" and holds:
            return [f for part in cond.args for f in self.follow(part)]
        if cond.op == "or" and not holds:
            return [f for part in cond.args for f in self.follow(part, False)]
        if cond.op == "not_":
            return self.follow(cond.args[0], not holds)
        op = cond.op if holds else OPPOSITE.get(cond.op, "")
        if op not in COMPARED and not (op == "eq" and holds):
            return []
        a, b = (self.wide(x) for x in cond.args)
        if a is None or b is None:
            return []
        if op == "eq":
            return [a.sum - b.sum, b.sum - a.sum]
        small, large, least = COMPARED[op]
        sides = (a.sum, b.sum)
        return [sides[large] - sides[small] - constant(least)]

    def follows_that(self, goal: Sum) -> bool:
        """Whether `goal >= 0`, perhaps by assumptions on sizes, which are noted."""
        found = needs(goal, self.facts, self.denied)
        if found is None:
            return False
        self.assumed |= found
        return True

    # How it is printed

    def index(self, e: Expr) -> str:
        known = self.wide(e)
        if known is None:
            return super().index(e)
        self.sums[known.text] = known.sum
        return known.text

    def simple(self, indices: tuple[Expr, ...]) -> list[str]:
        if not self.follows:
            return super().simple(indices)
        out = []
        for e in indices:
            text = self.index(e)
            # what another unit may write is read once: what was checked is what is used
            once = len(text) >= 40 or e.touches_memory
            text = self.temporary(text) if once else text
            out.append(text)
            known = self.wide(e)
            if known is not None:
                self.sums[text] = known.sum
        return out

    def value(self, e: Expr) -> str:
        if e.op in (*COMPARED, "eq", "ne") and not e.type.lanes:
            a, b = (self.wide(x) for x in e.args)
            if a is not None and b is not None and (a.sum.terms or b.sum.terms):
                return f"({a.text} {OPERATORS[e.op]} {b.text})"
        return super().value(e)

    def inside(self, mem: Mem, indices: list[str], axes: int | None = None) -> str:
        if not self.follows:
            return super().inside(mem, indices, axes)
        tests = []
        for axis, i in enumerate(indices[:axes]):
            known = self.sums.get(i)
            n = self.extent(mem, axis)
            if known is None:
                tests.append(f"and_(0 <= {i}, {i} < {n})")
                continue
            size = self.wide_size_of(mem, axis).sum
            low, high = self.follows_that(known), self.follows_that(size - known - constant(1))
            if not (low and high) and not known.terms and not size.terms:
                return "False"
            tests += [t for t, proven in ((f"0 <= {i}", low), (f"{i} < {n}", high)) if not proven]
        text = tests[0] if tests else "True"
        for t in tests[1:]:
            text = f"and_({text}, {t})"
        return text

    def block(self, body: list[Stmt]) -> None:
        known, facts, inner = dict(self.beside), len(self.facts), self.inner
        self.inner = written_inside(body)
        super().block(body)
        self.beside, self.facts[facts:], self.inner = known, [], inner

    def statement(self, s: Stmt) -> None:
        super().statement(s)
        if not isinstance(s, Assign):
            for name in _written_by(s):
                self.beside.pop(name, None)

    def stmt_Assign(self, s: Assign) -> None:
        known = self.wide(s.value) if self._keeps(s.name) else None
        if known is None:
            super().stmt_Assign(s)
            self.beside.pop(s.name, None)
            return
        if known.text.isidentifier() or not known.sum.terms:
            super().stmt_Assign(s)
            self.beside[s.name] = known
            return
        name = self.widened(s.name)
        self.line(f"{name} = {known.text}")
        self.assign(s.name, f"i32({name})")
        self.beside[s.name] = Wide(name, known.sum)

    def _keeps(self, name: str) -> bool:
        """Whether a variable is an index that nothing inside the statements of a block changes."""
        kind = self.program.variables.get(name)
        return (
            kind is not None
            and not kind.lanes
            and kind.dtype.name == "i32"
            and name not in self.inner
        )

    def _counts(self, s: For) -> bool:
        """Whether the variable of a loop is an index that its body does not change."""
        kind = self.program.variables[s.var]
        written = {n for x in walk(s.body) for n in _written_by(x)}
        return not kind.lanes and kind.dtype.name == "i32" and s.var not in written

    def widened(self, name: str) -> str:
        """A new name for a variable in 64 bits."""
        self.serial += 1
        return f"_{self.serial}_{name}"

    def stmt_If(self, s: If) -> None:
        if not self.follows or not s.then:
            super().stmt_If(s)
            return
        self.line(f"if {self.value(s.cond)}:")
        for body, holds in ((s.then, True), (s.orelse, False)):
            if not holds:
                if not body:
                    return
                self.line("else:")
            count = len(self.facts)
            self.facts += self.follow(s.cond, holds)
            self.nested(body)
            del self.facts[count:]

    def ranged(self, s: For) -> None:
        """A loop over a range, whose variable is wide where its ends are."""
        start, stop = self.wide(s.start), self.wide(s.stop)
        step = s.step.attr if s.step.op == "const" else 0
        if start is None or stop is None or type(step) is not int or not step:
            super().ranged(s)
            return
        if not self._counts(s):
            super().ranged(s)
            return
        name = self.widened(s.var)
        if step > 0:
            part = Part(name, start.sum.low, max(start.sum.low, stop.sum.high - 1))
            facts = [single(part) - start.sum, stop.sum - single(part) - constant(1)]
        else:
            part = Part(name, min(start.sum.high, stop.sum.low + 1), start.sum.high)
            facts = [start.sum - single(part), single(part) - stop.sum - constant(1)]
        bounds = f"i64({start.text}), i64({stop.text})" + (f", {step}" if step != 1 else "")
        self.line(f"for {name} in range({bounds}):")
        self.depth += 1
        self.assign(s.var, f"i32({name})")
        known, count = dict(self.beside), len(self.facts)
        self.beside[s.var] = Wide(name, single(part))
        self.facts += facts
        self.block(s.body)
        self.beside, self.facts[count:] = known, []
        self.depth -= 1


OPERATORS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def written_inside(body: list[Stmt]) -> set[str]:
    """Variables that are written inside statements of a block, not by them."""
    found = {n for s in body for x in walk([s]) if x is not s for n in _written_by(x)}
    return found | {s.var for s in body if isinstance(s, For)}


def _written_by(s: Stmt) -> list[str]:
    if isinstance(s, Assign):
        return [s.name]
    if isinstance(s, For):
        return [s.var]
    if isinstance(s, (Atomic, Hardware)) and s.target:
        return [str(s.target)]
    return []
