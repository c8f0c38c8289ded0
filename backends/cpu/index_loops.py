"""Loops over ranges whose variable is an index.

Where only run time knows the ends of a loop (a row of a sparse matrix), it also knows whether an
index that goes along stays inside of arrays. So such a loop is printed twice: with checks, and
without those of which one look at the ends tells that they hold in all over.
"""

from __future__ import annotations

from dataclasses import dataclass

from cubepy.backends.cpu.fission import Units
from cubepy.backends.llvm.printing_memory import all_of
from cubepy.backends.llvm.ranges import Part, Sum, constant, single, span
from cubepy.backends.llvm.wide_text import MOST, Wide, WideText, written_by
from cubepy.compiler.ir import Expr, For, While, walk

LONGEST = 40
"""Statements of a loop that is printed twice, at most."""
FURTHEST = 1 << 20
"""By how much an index may go on in a turn."""


@dataclass(frozen=True)
class Round:
    """A loop whose variable is an index: that variable, its ends, what follows from them, and the
    text of its range.
    """

    part: Part
    start: Sum
    stop: Sum
    facts: list[Sum]
    text: str


class IndexLoops(WideText):
    """A printer of loops over ranges."""

    def counted_loop(self, s: For) -> bool:
        """A loop over a range, whose variable is wide; whether it can be."""
        step = self.exact(s.step)
        if step is None or not self._counts(s):
            return False
        low, high = step.sum.low, step.sum.high
        if low <= 0 <= high or low != high < 0:
            return False
        start, stop = self._end(s.start), self._end(s.stop)
        before = self.now
        over = self._round(s, start, stop, step)
        asked, self.missing = self.missing, []
        state = len(self.lines), len(self.sites), set(self.assumed), self.serial
        self._loop_over(s, over)
        missing, self.missing = self.missing, asked
        if asked is not None:
            asked += missing
        goals, tests = self._spared(s, over, missing, before)
        if not goals:
            return True
        del self.lines[state[0] :], self.sites[state[1] :]
        self.assumed, self.serial = state[2:]
        count = len(self.facts)
        if tests:
            self.line(f"if {all_of(tests)}:")
            self.depth += 1
        self.facts += goals
        self._loop_over(s, over)
        del self.facts[count:]
        if tests:
            self.depth -= 1
            self.line("else:")
            self.depth += 1
            self._loop_over(s, over)
            self.depth -= 1
        return True

    def _counts(self, s: For) -> bool:
        """Whether the variable of a loop is an index that its body does not change."""
        kind = self.program.variables[s.var]
        written = {n for x in walk(s.body) for n in written_by(x)}
        return not kind.lanes and kind.dtype.name == "i32" and s.var not in written

    def _end(self, e: Expr) -> Wide:
        """An end of a loop, which is looked at once."""
        known = self.wide(e)
        if known is not None:
            return known
        text = self.temporary(f"i64({self.value(e)})")
        return Wide(text, single(Part(text, *span(e, self.spans), version=self.tick())))

    def _round(self, s: For, start: Wide, stop: Wide, step: Wide) -> Round:
        """What a loop's variable goes through."""
        name = self.widened(s.var)
        up = step.sum.low > 0
        if up:
            low, high = start.sum.low, max(start.sum.low, stop.sum.high - 1)
        else:
            low, high = min(start.sum.high, stop.sum.low + 1), start.sum.high
        part = Part(name, low, high, version=self.tick())
        at = single(part)
        facts = [at - start.sum, stop.sum - at - constant(1)]
        if not up:
            facts = [start.sum - at, at - stop.sum - constant(1)]
        text = f"i64({start.text}), i64({stop.text})" + (
            f", {step.text}" if step.text != "1" else ""
        )
        first, last = start.sum, stop.sum - constant(1)
        if not up:
            first, last = stop.sum + constant(1), start.sum
        return Round(part, first, last, facts, text)

    def _loop_over(self, s: For, over: Round) -> None:
        """Print a loop."""
        name = over.part.text
        self.line(f"for {name} in range({over.text}):")
        self.depth += 1
        self.assign(s.var, f"i32({name})")
        known, count = dict(self.beside), len(self.facts)
        self.beside[s.var] = Wide(name, single(over.part))
        self.facts += over.facts
        self.block(s.body)
        self.beside, self.facts[count:] = known, []
        self.depth -= 1

    def _spared(
        self, s: For, over: Round, missing: list[Sum], before: int
    ) -> tuple[list[Sum], list[str]]:
        """What would spare checks in all turns and can be tested before the first one, and the
        tests.
        """
        body = list(walk(s.body))
        if len(body) > LONGEST or any(isinstance(x, (For, While, Units)) for x in body):
            return [], []
        goals, tests = [], []
        for goal in dict.fromkeys(missing):
            often = dict(goal.terms).get(over.part, 0)
            rest = goal - single(over.part).times(often)
            if not often or abs(often) > FURTHEST or rest.version > before:
                continue
            worst = rest + (over.start if often > 0 else over.stop).times(often)
            if not worst.terms or max(-worst.low, worst.high) > MOST * FURTHEST:
                continue
            goals.append(goal)
            test = f"0 <= {worst.text()}"
            if worst.low < 0 and test not in tests:
                tests.append(test)
        return goals, tests
