"""A plan: what a recorded call did, laid out for other arrays of the same layouts.

*Operands* are the addresses of a call, numbered: of its arrays, and of memory that it takes.
*Checks* say for which addresses the plan holds: aligned, apart, related. *Steps* are launches,
copies and fills. All of it fills a table that machine code of a backend reads; a written function
of the arguments takes memory, calls it and makes the results. It gives REFUSED, with nothing done,
where the checks do not hold, and where a launch raised a flag: the long way decides then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.generated import written
from cubepy.runtime.memory.spans import ARRAYS, beginning, extent, meet
from cubepy.runtime.replay.arguments import REFUSED
from cubepy.runtime.replay.record import Launch, Mark, Recorder
from cubepy.runtime.stats import counters
from cubepy.runtime.tensor_map import ArrayMap

Address = tuple[int, int] | None
"""An operand and the bytes from its start; None for an address that stays the same."""
PART = 32
"""Bits of an operand on the host that say which item of a call it is; above them stands, from 1 on,
which address in that item it is, or 0 where it is the item itself.
"""


class Operands:
    """Where the arrays of a recorded call are. What else differs between the host and a GPU is in
    those derived.

    Args:
        table: of the backend, to be filled.
        given: operands that are arguments, and their arrays.
        taken: operands that a repetition makes: number, address, bytes.
        constants: arrays that every repetition reads.

    Attributes:
        out: the operand that is given as the result, or None.
        written: operands that launches write.
        lines: operand, address and bits of it that must be the same again.
        kept: the constants that are read.
    """

    out: int | None = None

    def __init__(
        self,
        table: Any,
        given: Sequence[tuple[int, Any]],
        taken: Sequence[tuple[int, int, int]],
        constants: Sequence[Any],
    ) -> None:
        self.table, self.given = table, given
        self.written: set[int] = set()
        self.lines: list[tuple[int, int, int]] = []
        self.kept: list[Any] = []
        self.spans: list[tuple[int, int, int | None, int]] = []  # first byte, past the last, ...
        known: list[tuple[int | None, Any]] = sorted(given, key=lambda g: g[0] != self.out)
        for which, array in known + [(None, array) for array in constants]:
            start = beginning(array)
            low, high = extent(array)
            self.spans.append((start + low, start + high, which, start))
        self.spans += [(at, at + size, which, at) for which, at, size in taken]

    def locate(self, value: Any, writes: bool) -> Address:
        """Where a leaf of a launch is."""
        array = value.array if isinstance(value, ArrayMap) else value
        if not isinstance(array, ARRAYS):
            if not isinstance(value, (bool, int, float)):
                raise Unsuitable(f"an argument of a launch that is {type(value).__name__}")
            return None
        start = beginning(array)
        low, high = extent(array)
        first, behind = start + low, start + high
        if first == behind:
            return None  # nothing is read there
        for begin, end, which, origin in self.spans:
            if begin <= first and behind <= end:
                if which is not None:
                    if writes:
                        self.written.add(which)
                    return which, start - origin
                if writes:
                    raise Unsuitable("a constant that is written")
                self.kept.append(array)
                return None
        if any(first < end and begin < behind for begin, end, *_ in self.spans):
            raise Unsuitable("memory of which only a part is known")
        return self.unknown(array, writes)

    def addresses(self, leaves: Sequence[Any], writes: Sequence[int], flag: Any) -> list[Address]:
        """Where the leaves of a launch are, but for its flag.

        Args:
            leaves: of the launch.
            writes: those that it writes, by their numbers.
            flag: one of them, or None.
        """
        return [None if v is flag else self.locate(v, n in writes) for n, v in enumerate(leaves)]

    def unknown(self, array: Any, writes: bool) -> Address:
        """Where an array is that lies in no memory that is known."""
        raise Unsuitable("memory that nobody gave: the call may have kept it")

    def begin(self, scope: dict[str, Any], steps: int) -> list[str]:
        """Lines of the plan's function that come before the machine code of so many steps, with
        the names that they need.
        """
        raise NotImplementedError

    def passed(self) -> str:
        """What the machine code gets besides the table, as text."""
        raise NotImplementedError

    def results(self, result: Any, scope: dict[str, Any]) -> list[str]:
        """The arrays of a result as texts, with the names that they need."""
        raise NotImplementedError

    def dtypes(self) -> list[Any]:
        """The dtypes of these arrays."""
        raise NotImplementedError


class Inlined:
    """What makes a result of an array, which a plan's function does itself: a call of it would take
    as long as the rest.
    """

    def __call__(self, array: Any) -> Any:
        raise NotImplementedError

    def lines(
        self, arrays: Sequence[str], dtypes: Sequence[Any], scope: dict[str, Any]
    ) -> tuple[list[str], list[str]]:
        """Lines of text that make results, and the names of these.

        Args:
            arrays: the arrays, as text.
            dtypes: theirs.
            scope: the values of other names, to be added to.
        """
        raise NotImplementedError


class Plan:
    """The launches of a call.

    Args:
        recorded: what the call did.
        result: what it gave.
        out: which argument is the array that it wrote, if it was given one.
        operands: where its arrays are.
        wrap: what makes a result of an array.

    Attributes:
        general: whether any arrays of the same layouts fit, as long as what is written is apart.
        again: a function of a tuple of arguments that does what the call did, or gives REFUSED.

    Raises:
        Unsuitable: the call cannot be repeated.
    """

    def __init__(
        self,
        recorded: Recorder,
        result: Any,
        out: int | None,
        operands: Operands,
        wrap: Callable[[Any], Any] | None = None,
    ) -> None:
        if recorded.spoiled:
            raise Unsuitable("something that is no launch")
        self.operands, self.table, self.wrap = operands, operands.table, wrap
        launched = [step.prepared for step in recorded.steps if isinstance(step, Launch)]
        guards = {id(p.guard): p.guard for p in launched if p.guard is not None}
        self.guards, self.launches = tuple(guards.values()), len(launched)
        self.steps = len(recorded.steps)
        for n, step in enumerate(recorded.steps):
            self.add(step, recorded.flags.get(n))
        self.scope: dict[str, Any] = {}
        self.making: list[str] = []
        self.result = f"values[{out}]" if out is not None else self.fresh(result)
        if out is not None and operands.out not in operands.written:
            raise Unsuitable("a result that no launch wrote")
        self.check()
        operands.given = ()  # a plan keeps no arrays

    def add(self, step: Any, flag: Any) -> None:
        """A step of the table."""
        address = self.operands.locate
        if isinstance(step, Launch):
            writes = self.table.writes(step.prepared)
            addresses = self.operands.addresses(step.leaves, writes, flag)
            self.table.launch(step.prepared.runner, step.leaves, addresses, flag)
        elif isinstance(step, Mark):
            self.table.mark(step, None if step.array is None else address(step.array, False))
        else:
            addresses = [address(v, n == 0) for n, v in enumerate(step.arguments)]
            self.table.call(step.function, step.arguments, addresses)

    def check(self) -> None:
        """The rules that the addresses of a repetition must keep."""
        operands, table = self.operands, self.table
        self.general = not operands.lines
        for which, address, bits in operands.lines:
            table.align(which, bits, address & bits)
        for k, (n, one) in enumerate(operands.given):
            for m, other in operands.given[:k]:
                if meet(one, other):
                    table.relate(m, n, beginning(one) - beginning(other))
                    self.general = False
                elif n in operands.written or m in operands.written:
                    table.disjoint(m, extent(other), n, extent(one))

    def fresh(self, result: Any) -> str:
        """New results as text."""
        if result is None:
            return "None"
        parts = self.operands.results(result, self.scope)
        if isinstance(self.wrap, Inlined):
            self.making, parts = self.wrap.lines(parts, self.operands.dtypes(), self.scope)
        elif self.wrap is not None:
            parts = [f"wrap({part})" for part in parts]
        if type(result) is list:
            return f"[{', '.join(parts)}]"
        return f"({', '.join(parts)},)" if type(result) is tuple else parts[0]

    def text(self) -> tuple[str, dict[str, Any]]:
        """The function `again` as text, with the names that it needs."""
        scope = self.scope | {
            "REFUSED": REFUSED,
            "counters": counters,
            "launches": self.launches,
            "wrap": self.wrap,
            "failed": self.table.failed,
        }
        guards = {f"valid{n}": g.valid for n, g in enumerate(self.guards)}
        lines = ["def again(values):"]
        lines += [f"    if not {name}():\n        return REFUSED" for name in guards]
        lines += [f"    {line}" for line in self.operands.begin(scope, self.steps)]
        if self.steps:
            scope["go"], scope["table"], scope["alive"] = self.table.ready()
            lines += [
                f"    code = go(table, {self.operands.passed()})",
                "    if code:",
                "        failed(code)",
                "        return REFUSED",
                "    counters.launches += launches",
            ]
        lines += [f"    {line}" for line in self.making]
        lines.append(f"    return {self.result}")
        return "\n".join(lines), scope | guards

    @cached_property
    def again(self) -> Callable[[tuple[Any, ...]], Any]:
        text, scope = self.text()
        return written(text, "<repeated call>", scope)  # type: ignore[no-any-return]
