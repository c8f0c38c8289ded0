"""Where the arrays of a program are: its inputs, its results, and one arena for all between.

A record of the program's launches is read twice: first to find the memory that they write and when
each piece is used, then to say of every address which operand it is in. An operand is something
that the machine code is given with each call: the inputs, memory for results, the arena.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.memory.spans import ARRAYS, beginning, extent, meet
from cubepy.runtime.replay.plan import Address, Operands, Plan
from cubepy.runtime.replay.record import Recorder
from cubepy.runtime.tensor_map import ArrayMap
from cubepy.tensor.program.plans.arena import Lifetime

Span = tuple[int, int, "int | None", int]
"""First byte, past the last one, operand or None for a constant, where the operand begins."""


@dataclass
class Result:
    """An output of a program.

    Attributes:
        kind: "new" (memory of the call), "input" (a view of an input) or "constant".
        of: which memory, which input, or the array.
        array: as it was when it was recorded.
        offset: bytes from the start of the memory.
    """

    kind: str
    of: Any
    array: Any
    offset: int = 0


class ProgramOperands(Operands):
    """The arrays of a program's call: inputs, memory of results, the arena.

    Args:
        table: of the backend, to be filled.
        recorded: its launches.
        inputs: arrays that share no memory.

    Attributes:
        arena: bytes of the arena.
        lifetimes: what is in the arena, and when.
        outputs: what the outputs are.
    """

    arena = 0

    def __init__(self, table: Any, recorded: Recorder, inputs: Sequence[Any]) -> None:
        self.recorded, self.inputs = recorded, inputs
        super().__init__(table, list(enumerate(inputs)), (), recorded.constants)
        self.given, self.kept = (), [*recorded.constants]  # what is only read may overlap
        self.read_only = {s[0] for s in self.spans}
        self.lifetimes: list[Lifetime] = []
        self.outputs: list[Result] = []
        self.sort_spans()

    def write_inputs(self, inputs: Collection[int]) -> None:
        """Let launches write some of the inputs, which ops say that they write."""
        self.read_only -= {s[0] for s in self.spans if s[2] in inputs}

    def sort_spans(self) -> None:
        """Order the spans by their first bytes."""
        filled = (s for s in self.spans if s[0] < s[1])
        self.order: list[Span] = sorted(filled, key=lambda s: s[:2])
        self.starts = [s[0] for s in self.order]

    def span(self, first: int, behind: int) -> Span | None:
        """The span that bytes lie in; None where nothing is known of them."""
        n = bisect_right(self.starts, first) - 1
        if n >= 0 and first < self.order[n][1]:
            if behind <= self.order[n][1]:
                return self.order[n]
            raise Unsuitable("memory of which only a part is known")
        if n + 1 < len(self.order) and self.starts[n + 1] < behind:
            raise Unsuitable("memory of which only a part is known")
        return None

    def known(self, array: Any) -> Result | None:
        """What an output is that no launch wrote: a view of an input, or a constant."""
        for n, given in enumerate(self.inputs):
            if given is array or meet(given, array):
                return Result("input", n, array)
        if array.size == 0 or any(meet(c, array) for c in self.recorded.constants):
            return Result("constant", array, array)
        return None

    def locate(self, value: Any, writes: bool) -> Address:
        array = value.array if isinstance(value, ArrayMap) else value
        if not isinstance(array, ARRAYS):
            return super().locate(value, writes)
        start, (low, high) = beginning(array), extent(array)
        if low == high:
            return None  # nothing is read there
        found = self.span(start + low, start + high)
        if found is None:
            raise Unsuitable("memory that nobody gave")
        first, _, which, origin = found
        if writes and first in self.read_only:
            raise Unsuitable("an input that is written")
        return None if which is None else (which, start - origin)

    def forget(self) -> None:
        """Let go of the arrays of the call that was recorded."""
        self.recorded, self.inputs, self.outputs, self.spans = Recorder(), (), [], []

    def call(
        self,
        plan: Plan,
        names: Sequence[str],
        scope: dict[str, Any],
        view: Callable[[int, str], str],
        done: Sequence[str] = (),
        reused: Any = None,
    ) -> tuple[list[str], list[str]]:
        """The text of a call: lines that launch, and lines that make the outputs `r0`, `r1`, ...

        Args:
            plan: what is launched.
            names: of the arrays of the inputs.
            scope: gets the names that the text needs; `again(code, args, kwargs)`, which says what
                went wrong, and `compute(arrays)`, which runs op by op, are there.
            view: the text of an output, by its number, that is a view of an input of a name.
            done: lines for when all is written.
            reused: the results that may be those of an earlier call (`plans.reused`), or None.
        """
        raise NotImplementedError
