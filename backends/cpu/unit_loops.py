"""Loops over the units of cubes: where they begin and end, and what is decided before them.

Where a kernel asks for positions in the launch alone, cubes of units along X are no loops of their
own: one loop goes over all units of neighbouring cubes, as a loop over elements would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cubepy.backends.cpu.fission import Split, Units
from cubepy.backends.cpu.index_loops import IndexLoops
from cubepy.backends.cpu.strides import COUNTS, is_line
from cubepy.backends.llvm.printing_memory import all_of
from cubepy.backends.llvm.ranges import Part, Sum, constant
from cubepy.backends.llvm.wide_text import OPPOSITE, written_inside
from cubepy.compiler.ir import Assign, Barrier, Expr, If, Stmt, expressions, walk

IN_ROWS = frozenset(
    {"ABSOLUTE_POS_X", "ABSOLUTE_POS_Y", "ABSOLUTE_POS_Z", "CUBE_POS_Y", "CUBE_POS_Z"}
)
LEAST = 32
"""Units that a thread takes at once, at least, where units of cubes are one loop."""
OF_CUBES = ("cube", "cube_x", "cube_y", "cube_z")


@dataclass
class Guarded:
    """What a loop over units runs.

    Attributes:
        body: the statements, without guards that became ends of loops.
        least: where loops begin at least, by their names.
        most: where they end at most.
        before: conditions that are the same for all units.
        facts: what holds in the body, each `>= 0`.
    """

    body: list[Stmt]
    least: dict[str, list[str]] = field(default_factory=dict)
    most: dict[str, list[str]] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    facts: list[Sum] = field(default_factory=list)


class UnitLoops(IndexLoops):
    """A printer of what all units of cubes do."""

    split: Split
    together = False  # whether loops that stride over the grid are over all cubes at once
    merged = ""  # see `how_merged`
    parts = 1  # of a cube, that threads take
    before_units = 0  # the moment when the loop over units was begun

    def merge(self, ordered: bool) -> None:
        """Make units of neighbouring cubes one loop, where that can be done.

        Args:
            ordered: whether it may be seen in which order the units of a cube run: one thread runs
                them.
        """
        self.together = self.program.has_barrier and is_line(self.program)
        self.merged = self.how_merged()
        units = self.program.units[0]
        if self.merged and units % LEAST == 0 and not ordered:
            self.parts = units // LEAST

    def how_merged(self) -> str:
        """Whether units of neighbouring cubes are one loop: along a "line" of all, or along "rows";
        else "".
        """
        x, y, z = self.program.units
        if x == 1 or y * z > 1 or self.program.shared:
            return ""
        if self.program.has_barrier:
            return "line" if self.together else ""
        asked = {
            e.attr
            for s in walk(self.program.body)
            for root in expressions(s)
            for e in root.walk()
            if e.op == "topology"
        } - COUNTS
        if asked <= {"ABSOLUTE_POS"}:
            return "line"
        return "rows" if asked <= IN_ROWS else ""

    @contextmanager
    def rows(self, uses: set[str]) -> Iterator[None]:
        """A loop over rows, which counts along the other axes: a row may be too short to divide."""
        row = self._in_row
        self.line(f"row_first = i64(u64(first) // u64({row}))")
        if "Y" in uses or "Z" in uses:
            self.line("cube_y = i64(u64(row_first) % u64(cubes_y))")
        if "Z" in uses:
            self.line("cube_z = i64(u64(row_first) // u64(cubes_y))")
        end = f"i64(u64(last + {row} - 1) // u64({row}))"
        self.line(f"for cube_row in range(row_first, {end}):")
        self.depth += 1
        yield
        if "Y" in uses or "Z" in uses:
            self.line("cube_y = cube_y + 1")
            self.line("if cube_y == cubes_y:")
            self.line("    cube_y = 0")
        if "Z" in uses:
            self.line("    cube_z = cube_z + 1")

    @property
    def _in_row(self) -> str:
        """Parts of cubes in a row."""
        return f"(cubes_x * {self.parts})" if self.parts > 1 else "cubes_x"

    def stmt_Units(self, s: Units) -> None:
        """A loop over units."""
        depth, self.before_units = self.depth, self.now
        guarded = self.guarded(s.body)
        if guarded.before:
            self.line(f"if {all_of(guarded.before)}:")
            self.depth += 1
        x, y, z = self.program.units
        if self.merged:
            self._loop_over_all(guarded)
        else:
            loops = [(n, c) for n, c in (("unit_z", z), ("unit_y", y), ("unit_x", x)) if c > 1]
            for name, count in loops:
                self._loop(name, "0", str(count), guarded)
            if len(loops) > 1:
                parts = [
                    f"unit_{a} * {m}" if m > 1 else f"unit_{a}"
                    for a, m, c in (("x", 1, x), ("y", x, y), ("z", x * y, z))
                    if c > 1
                ]
                self.line(f"unit = {' + '.join(parts)}")
            else:
                self.line(f"unit = {loops[0][0]}")
        count = len(self.facts)
        self.facts += guarded.facts
        self.block(guarded.body)
        del self.facts[count:]
        self.depth = depth

    def _loop_over_all(self, guarded: Guarded) -> None:
        """The loop over the units of all cubes, or of those in a row."""
        x = self.program.units[0] // self.parts
        if self.merged == "line":
            self._loop("position", f"first * {x}", f"last * {x}", guarded)
            return
        row = self._in_row
        begin = f"maxnum(i64(0), i64(first - cube_row * {row}))"
        end = f"minnum(i64({row}), i64(last - cube_row * {row}))"
        self._loop("position_x", f"{begin} * {x}", f"{end} * {x}", guarded)

    def _loop(self, name: str, begin: str, end: str, guarded: Guarded) -> None:
        """Begin a loop between these ends and those that guards set."""
        least = [begin, *guarded.least.get(name, ())]
        most = [end, *guarded.most.get(name, ())]
        ends = [_joined(f, list(dict.fromkeys(texts)))
                for f, texts in (("maxnum", least), ("minnum", most))]  # fmt: skip
        self.line(f"for {name} in range({', '.join(ends[ends[0] == '0' :])}):")
        self.depth += 1

    def guarded(self, body: list[Stmt]) -> Guarded:
        """A body under guards of positions: their ends of loops, and what they leave.

        A loop whose turns all work is one that LLVM moves things out of, and turns into lines.
        """
        found = Guarded(body)
        while self.follows and self._take_guard(found):
            pass
        return found

    def _take_guard(self, found: Guarded) -> bool:
        """Take what is possible of the guard at the end of a body; whether a whole one was."""
        *given, last = found.body or [Barrier()]
        cond = _guard(last)
        if cond is None or not all(map(self._can_be_left_out, given)):
            return False
        known, inner = dict(self.beside), self.inner
        self.inner = written_inside(found.body)
        for s in given:
            assert isinstance(s, Assign)
            wide = self.wide(s.value) if self._keeps(s.name) else None
            self.beside.pop(s.name, None)
            if wide is not None:
                self.beside[s.name] = wide
            else:  # it may differ from unit to unit
                self.renew([s])
        left = [test for test in _conjuncts(cond) if not self._settled(test, found)]
        self.beside, self.inner = known, inner
        assert isinstance(last, If)
        rest = last.then or last.orelse
        if left:
            both = left[0]
            for test in left[1:]:
                both = Expr("and", both.type, (both, test))
            rest = [If(both, rest, [], loc=last.loc)]
        found.body = [*given, *rest]
        return not left

    def _can_be_left_out(self, s: Stmt) -> bool:
        """Whether nobody sees that units without work do not run a statement."""
        if not isinstance(s, Assign) or s.name in self.per_unit:
            return False
        return self.program.mode != "validate" or not s.value.touches_memory

    def _settled(self, test: Expr, found: Guarded) -> bool:
        """Whether loops need not look at a condition, since they end where it does not hold, or
        begin only if it does.
        """
        facts = self.follow(test)
        if not facts or not all(f.terms for f in facts):
            return False
        if all(self._same_for_all(p) for f in facts for p, _ in f.terms):
            found.before += [f"0 <= {f.text()}" for f in facts]
        else:
            ends = [self._end_of(f) for f in facts]
            if None in ends:
                return False
            for name, upper, text in filter(None, ends):
                (found.most if upper else found.least).setdefault(name, []).append(text)
        found.facts += facts
        return True

    def _same_for_all(self, p: Part) -> bool:
        """Whether a part of an index is the same for all units of a cube, or of a row of cubes."""
        if p.size is not None or p.text in self.fixed or p.text in OF_CUBES:
            return True
        # a variable or temporary that was made where there are no units
        return p.text.isidentifier() and 0 < p.version <= self.before_units

    def _end_of(self, fact: Sum) -> tuple[str, bool, str] | None:
        """The loop that a fact bounds, whether from above, and the bound: a position and what is
        the same for all units.
        """
        positions = self._positions()
        found = [(p, n) for p, n in fact.terms if p.text in positions]
        if len(found) != 1 or abs(found[0][1]) != 1:
            return None
        ((position, sign),) = found
        rest = fact - Sum(((position, sign),), 0)
        if not all(self._same_for_all(p) for p, _ in rest.terms):
            return None
        bound = rest + constant(1) if sign < 0 else constant(0) - rest
        name, base = positions[position.text]
        return name, sign < 0, bound.text() if base is None else f"{bound.text()} - {base}"

    def _positions(self) -> dict[str, tuple[str, str | None]]:
        """The loops over units by the text of the position in the launch, and what a cube adds."""
        if self.merged:
            name = "position" if self.merged == "line" else "position_x"
            return {name: (name, None)}
        loops = [(a, f"unit_{a.lower()}") for a, n in zip("XYZ", self.program.units, strict=True)
                 if n > 1]  # fmt: skip
        found = {self.position(f"ABSOLUTE_POS_{a}"): name for a, name in loops}
        own: dict[str, tuple[str, str | None]] = {name: (name, None) for _, name in loops}
        if len(loops) == 1:
            found[self.position("ABSOLUTE_POS")] = loops[0][1]
            own["unit"] = loops[0][1], None
        bases = {text: (name, text[1:-1].rpartition(" + ")[0]) for text, name in found.items()}
        return bases | own


def _joined(function: str, texts: list[str]) -> str:
    """Integers joined by a function of two."""
    text = texts[0] if len(texts) == 1 else f"i64({texts[0]})"
    for t in texts[1:]:
        text = f"{function}({text}, i64({t}))"
    return text


def _guard(s: Stmt) -> Expr | None:
    """The condition under which a statement does anything."""
    if not isinstance(s, If) or bool(s.then) == bool(s.orelse):
        return None
    return s.cond if s.then else Expr("not_", s.cond.type, (s.cond,))


def _conjuncts(cond: Expr, holds: bool = True) -> list[Expr]:
    """The conditions that must all hold for this one, or for its opposite."""
    if cond.type.lanes:
        return [cond]
    if cond.op == "not_":
        return _conjuncts(cond.args[0], not holds)
    if cond.op == ("and" if holds else "or"):
        return [c for part in cond.args for c in _conjuncts(part, holds)]
    if holds:
        return [cond]
    compares = (
        cond.op in OPPOSITE and cond.args[0].type.dtype.is_int
    )  # NaN is not less and not more
    return [replace(cond, op=OPPOSITE[cond.op]) if compares else Expr("not_", cond.type, (cond,))]
