"""Arrays that stay from call to call, which machine code gets as one array of their addresses.

A program notes what it saw of weights and caches (see `plans.steady`), and with that where the
elements of all of them are. So a call passes one array for hundreds, and neither Python nor the
machine code looks at an object for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.runtime.memory.address import address
from cubepy.runtime.replay.plan import PART

LEAST = 4
"""So many arrays are a bundle."""


def words_of(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The addresses of the elements of arrays.

    Example:
        >>> x = np.arange(3)
        >>> words_of((x, x[1:])).tolist() == [x.ctypes.data, x.ctypes.data + 8]
        True
    """
    return np.array([address(array) for array in arrays], np.int64)


class Bundles:
    """The bundles of a program's call on the host.

    Args:
        noted: names of what is noted, and those of the arrays that are seen there.
        names: of the arrays of a call.

    Attributes:
        words: names of bundles, by names of what is noted.
        arrays: names of tuples of their arrays, in the same order.
        names: of what a call passes on.
        numbers: the numbers of operands, by those without bundles.
    """

    def __init__(self, noted: Sequence[tuple[str, Sequence[str]]], names: Sequence[str]) -> None:
        found = [(memo, seen) for memo, seen in noted if len(set(seen) & {*names}) >= LEAST]
        self.words = {memo: f"words_{memo}" for memo, _ in found}
        self.arrays = {memo: f"arrays_{memo}" for memo, _ in found}
        self.seen = {name: (memo, n) for memo, seen in found for n, name in enumerate(seen)}
        alone = [name for name in names if name not in self.seen]
        self.names = [*alone, *self.words.values()]
        items = {name: n for n, name in enumerate(self.names)}
        self.numbers = []
        for name in names:
            memo, part = self.seen.get(name, ("", -1))
            self.numbers.append(items[self.words.get(memo, name)] | (part + 1) << PART)
        self.more = len(self.names) - len(names)

    def number(self, operand: int) -> int:
        """The number of an operand: of an array, or of what comes behind all of them."""
        return self.numbers[operand] if operand < len(self.numbers) else operand + self.more

    def array(self, name: str) -> str:
        """The text of an array of a call."""
        if name not in self.seen:
            return name
        memo, n = self.seen[name]
        return f"{self.arrays[memo]}[{n}]"


def bundled(writer: Any, operands: Any, names: Sequence[str], table: Any) -> Bundles | None:
    """The bundles of a call, by which operands in the table have other numbers then; None where
    somebody else needs what is in them.

    Args:
        writer: of the calls.
        operands: of their plan.
        names: of the arrays of a call.
        table: of the plan.
    """
    trace = writer.trace
    if trace.differentiable or trace.effects or trace.gradients or writer.gpu is not None:
        return None
    if writer.updated or any(r.kind == "input" for r in operands.outputs):
        return None
    found = Bundles([(memo, seen) for _, _, (memo, _, seen, _) in writer.noted], names)
    if not found.words:
        return None
    table.renumber(found.number)
    return found
