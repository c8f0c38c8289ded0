"""Printing kernels of single elements: positions and loop variables in 64 bits, and no check that
must hold.

A kernel's index arithmetic is done in 32 bits by the language. Where it cannot wrap (see `ranges`)
a variable is kept in 64 bits beside, which LLVM needs to see that neighbours in a loop are
neighbours in memory; else it does not turn the loop into one over lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from cubepy.backends.llvm.printing import Printer
from cubepy.backends.llvm.printing_memory import all_of
from cubepy.backends.llvm.ranges import Part, Sum, constant, needs, single, span
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
    While,
    expressions,
    walk,
)

MOST = 2**31 - 1
COMPARED = {"lt": (0, 1, 1), "le": (0, 1, 0), "gt": (1, 0, 1), "ge": (1, 0, 0)}
"""By comparison: which operand is the smaller, which the larger, and by how much at least."""
OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True)
class Wide:
    """An integer that is known in 64 bits: its text and what it is made of."""

    text: str
    sum: Sum


def of_elements(program: Program) -> bool:
    """Whether a program reads and writes single elements, by indices of 32 bits."""
    if program.index.name != "i32":
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
        self.now = 0
        self.versions: dict[str, int] = {}
        self.spans: dict[str, tuple[int, int]] = {}
        self.missing: list[Sum] | None = None  # what would have spared checks, if that is asked
        self.sums: dict[str, Sum] = {}
        self.written = {n for s in walk(program.body) for n in written_by(s)}
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
        return found if found and self._fits(found.sum) else None

    def _fits(self, total: Sum) -> bool:
        """Whether an integer is the same in 32 bits."""
        low = total.low > -MOST - 2 or self.follows_that(total + constant(MOST + 1))
        return low and (total.high <= MOST or self.follows_that(constant(MOST) - total))

    def exact(self, e: Expr) -> Wide | None:
        """An index in 64 bits, where it cannot wrap, whether or not it would in 32."""
        known = self.wide(e)
        if known is not None or not self.follows or e.type.lanes or e.type.dtype.name != "i32":
            return known
        if e.op not in ("add", "sub", "mul"):
            return None
        a, b = (self.exact(x) for x in e.args)
        if a is None or b is None:
            return None
        found = getattr(self, f"both_{e.op}")(a, b)
        return found if max(-found.sum.low, found.sum.high) < 1 << 60 else None

    def wide_topology(self, e: Expr) -> Wide:
        text = self.position(e.attr)
        if text.isdigit():
            return Wide(text, constant(int(text)))
        most = self.units_count - 1 if e.attr.startswith("UNIT_POS") else MOST - 1
        if e.attr.startswith("CUBE"):  # a launch has fewer than 2**31 units
            most = MOST // self.units_count
        least = 1 if e.attr.startswith("CUBE_COUNT") else 0
        return Wide(text, single(Part(text, least, most)))

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
        if known is not None or e.attr in self.per_unit:
            return known
        text = self.var(e.attr)
        if e.attr in self.scalars and e.attr not in self.written:
            return Wide(text, single(Part(text, -MOST - 1, MOST)))
        low, high = self.spans.get(e.attr, (-MOST - 1, MOST))
        version = self.versions.get(e.attr, 0)
        return Wide(text, single(Part(text, low, high, version=version, changes=True)))

    def wide_add(self, e: Expr) -> Wide | None:
        return self._of_both(e)

    def wide_sub(self, e: Expr) -> Wide | None:
        return self._of_both(e)

    def wide_mul(self, e: Expr) -> Wide | None:
        return self._of_both(e)

    def _of_both(self, e: Expr) -> Wide | None:
        a, b = (self.wide(x) for x in e.args)
        if a is None or b is None:
            return None
        found: Wide = getattr(self, f"both_{e.op}")(a, b)
        return found

    def both_add(self, a: Wide, b: Wide) -> Wide:
        """Their sum."""
        return _combined(a, b, "+", a.sum + b.sum)

    def both_sub(self, a: Wide, b: Wide) -> Wide:
        """Their difference."""
        return _combined(a, b, "-", a.sum - b.sum)

    def both_mul(self, a: Wide, b: Wide) -> Wide:
        """Their product."""
        text = f"({a.text} * {b.text})"
        for one, other in ((a, b), (b, a)):
            if not one.sum.terms:
                return Wide(text, other.sum.times(one.sum.constant))
        ends = [x * y for x in (a.sum.low, a.sum.high) for y in (b.sum.low, b.sum.high)]
        return Wide(text, _joint(text, min(ends), max(ends), a, b))

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
        text = f"{kind}num(i64({a.text}), i64({b.text}))"
        return Wide(text, _joint(text, low, high, a, b, kind, (a.sum, b.sum)))

    def wide_mod(self, e: Expr) -> Wide | None:
        a, b = (self.wide(x) for x in e.args)
        if a is None or b is None or b.sum.low < 0:
            return None
        text = f"i64({super().value(e)})"  # a division of 32 bits takes less
        return Wide(text, _joint(text, 0, max(0, b.sum.high - 1), a, b, "mod", (b.sum,)))

    def wide_floordiv(self, e: Expr) -> Wide | None:
        a, b = (self.wide(x) for x in e.args)
        if a is None or b is None or a.sum.low < 0 or b.sum.low < 0:
            return None
        text = f"i64({super().value(e)})"
        return Wide(text, _joint(text, 0, a.sum.high, a, b))

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
        if op not in OPPOSITE:
            return []
        a, b = (self.wide(x) for x in cond.args)
        if a is None or b is None:
            return []
        if op == "eq":
            return [a.sum - b.sum, b.sum - a.sum]
        if op == "ne":  # at an end of what it can be, it is beyond
            one = constant(1)
            return [d - one for d in (a.sum - b.sum, b.sum - a.sum) if d.low == 0]
        small, large, least = COMPARED[op]
        sides = (a.sum, b.sum)
        return [sides[large] - sides[small] - constant(least)]

    def follows_that(self, goal: Sum) -> bool:
        """Whether `goal >= 0`, perhaps by assumptions on sizes, which are noted."""
        found = needs(goal, self.facts, self.denied)
        if found is None:
            if self.missing is not None:
                self.missing.append(goal)
            return False
        self.assumed |= found
        return True

    # How it is printed

    def index(self, e: Expr) -> str:
        known = self.exact(e) if self.follows else None
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
            known = self.exact(e)
            if known is not None:
                self.sums[text] = known.sum
            elif text.isidentifier():
                self.sums[text] = single(Part(text, *span(e, self.spans), version=self.tick()))
            else:
                self.sums.pop(text, None)
        return out

    def value(self, e: Expr) -> str:
        if e.op in (*COMPARED, "eq", "ne") and not e.type.lanes:
            a, b = (self.wide(x) for x in e.args)
            if a is None or b is None or a.sum.changes or b.sum.changes:
                return super().value(e)
            if a.sum.terms or b.sum.terms:
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
                tests.append(f"below({i}, {n})")
                continue
            size = self.wide_size_of(mem, axis).sum
            low, high = self.follows_that(known), self.follows_that(size - known - constant(1))
            if not (low and high) and not known.terms and not size.terms:
                return "False"
            one, other = [f"0 <= {i}"] * (not low), [f"{i} < {n}"] * (not high)
            tests += [f"below({i}, {n})"] if one and other else one + other
        return all_of(tests)

    def block(self, body: list[Stmt]) -> None:
        known, facts, inner = dict(self.beside), len(self.facts), self.inner
        self.inner = written_inside(body)
        super().block(body)
        self.beside, self.facts[facts:], self.inner = known, [], inner
        if self.follows:
            self.renew(body)

    def tick(self) -> int:
        """The next moment of the walk."""
        self.now += 1
        return self.now

    def renew(self, body: list[Stmt]) -> None:
        """Forget what is known of variables that statements write."""
        for name in {n for s in walk(body) for n in written_by(s)}:
            self.versions[name] = self.tick()
            self.spans.pop(name, None)

    def statement(self, s: Stmt) -> None:
        super().statement(s)
        if not isinstance(s, Assign):
            for name in written_by(s):
                self.beside.pop(name, None)
            if self.follows:
                self.renew([s])

    def ranged(self, s: For) -> None:
        if self.follows:
            self.renew(s.body)
        if not self.follows or not self.counted_loop(s):
            super().ranged(s)

    def counted_loop(self, s: For) -> bool:
        """A loop whose variable is an index; whether it was printed."""
        return False

    def stmt_While(self, s: While) -> None:
        count = len(self.facts)
        if self.follows:
            self.renew(s.body)
            self.facts += self.follow(s.cond)
        super().stmt_While(s)
        del self.facts[count:]

    def stmt_Assign(self, s: Assign) -> None:
        known = self.wide(s.value) if self.follows and self._keeps(s.name) else None
        if known is None or known.sum.changes:
            super().stmt_Assign(s)
            self.beside.pop(s.name, None)
            within = span(s.value, self.spans) if self.follows else None
            if within is not None:
                self.renew([s])
                self.spans[s.name] = within
            if known is not None and s.name not in self.per_unit:
                self.beside[s.name] = Wide(self.var(s.name), known.sum)
            return
        self.renew([s])
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
        written = {n for x in walk(s.body) for n in written_by(x)}
        return not kind.lanes and kind.dtype.name == "i32" and s.var not in written

    def widened(self, name: str) -> str:
        """A new name for a variable in 64 bits."""
        self.serial += 1
        return f"_{self.serial}_{name}"

    def stmt_If(self, s: If) -> None:
        if not self.follows or not (s.then or s.orelse):
            super().stmt_If(s)
            return
        if not s.then:
            s = If(Expr("not_", s.cond.type, (s.cond,)), s.orelse, [], loc=s.loc)
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


OPERATORS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def _joint(
    text: str, low: int, high: int, a: Wide, b: Wide, kind: str = "", of: tuple[Sum, ...] = ()
) -> Sum:
    """A part that is made of two integers."""
    version, changes = max(a.sum.version, b.sum.version), a.sum.changes or b.sum.changes
    return single(Part(text, low, high, None, kind, of, version, changes))


def _combined(a: Wide, b: Wide, sign: str, total: Sum) -> Wide:
    """A sum or difference."""
    if not total.terms:
        return Wide(str(total.constant), total)
    return a if b.text == "0" else Wide(f"({a.text} {sign} {b.text})", total)


def written_inside(body: list[Stmt]) -> set[str]:
    """Variables that are written inside statements of a block, not by them."""
    found = {n for s in body for x in walk([s]) if x is not s for n in written_by(x)}
    return found | {s.var for s in body if isinstance(s, For)}


def written_by(s: Stmt) -> list[str]:
    if isinstance(s, Assign):
        return [s.name]
    if isinstance(s, For):
        return [s.var]
    if isinstance(s, (Atomic, Hardware)) and s.target:
        return [str(s.target)]
    return []
