"""The table of a call that is replayed, and the machine code that reads it: what host and GPUs have
in common.

A table holds everything about the launches of a call but the addresses of its operands: of its
arrays, and of memory that it takes. The code checks the addresses, copies the blocks of arguments
onto its stack (so that threads share a table), puts the addresses in and takes the steps. Only what
an operand and a step are differs between backends. Words of a table, all int64:

    the head    words of the backend's own, then the number of rows of each kind
    alignments  operand, bits of its address, what they must be
    overlaps    operand, its first byte and one past the last, another one and its two: nothing may
        be in both
    relations   operand, another one, bytes from it to that
    words       the blocks
    operands    word of the blocks, operand, bytes from its start: there goes the address
    ...         kinds of the backend's own
    steps       the number of the step, from 1, and words of the backend's own
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from cubepy.backends.llvm.machine_code import REFUSED
from cubepy.backends.llvm.word_code import WordCode, number, word
from cubepy.runtime.backend import Unsuitable

Address = tuple[int, int]
"""An operand, and bytes from its start."""

COMMON = {"alignments": 3, "overlaps": 6, "relations": 3, "words": 1, "operands": 3}
LINE = 64  # bytes; blocks begin at a multiple of it


class ReplayCode(WordCode):
    """The function that reads a table, while it is written.

    Args:
        symbol: what it is named; the function that reads the table is inside the module.
        arguments: words that it gets; the first one is the address of the table.
        head: words of the backend's own at the beginning of a table.
        kinds: the backend's own kinds of rows, and their sizes; the last are the steps.

    Attributes:
        inside: the function.
        table: where the table is.
        block: where the copy of the blocks is.
    """

    def __init__(self, symbol: str, arguments: int, head: int, kinds: dict[str, int]) -> None:
        super().__init__(symbol)
        self.inside = self.begin(f"{symbol}_inside", arguments, "internal")
        self.table, self.head, self.kinds = self.inside.args[0], head, COMMON | kinds
        self.block = self.room(self.count("words"))

    def count(self, kind: str) -> Any:
        """The number of rows of a kind."""
        return self.load(self.table, self.head + list(self.kinds).index(kind))

    def room(self, words: Any) -> Any:
        """The address of so many words on the stack."""
        made = self.b.alloca(word, words)
        made.align = LINE
        return self.b.ptrtoint(made, word)

    def operand(self, which: Any) -> Any:
        """The address of an operand."""
        raise NotImplementedError

    def refuse(self, condition: Any) -> None:
        """Give REFUSED where a condition holds."""
        self.leave(condition, number(REFUSED))

    def alignments(self, row: Any) -> None:
        """What bits of an address must be."""
        b, load = self.b, self.load
        bits = b.and_(self.operand(load(row)), load(row, 1))
        self.refuse(b.icmp_signed("!=", bits, load(row, 2)))

    def overlaps(self, row: Any) -> None:
        """Two operands that must not share a byte."""
        b, load = self.b, self.load
        first, second = self.operand(load(row)), self.operand(load(row, 3))
        one = b.icmp_signed("<", b.add(first, load(row, 1)), b.add(second, load(row, 5)))
        two = b.icmp_signed("<", b.add(second, load(row, 4)), b.add(first, load(row, 2)))
        self.refuse(b.and_(one, two))

    def relations(self, row: Any) -> None:
        """Two operands that must lie so to each other."""
        b, load = self.b, self.load
        distance = b.sub(self.operand(load(row, 1)), self.operand(load(row)))
        self.refuse(b.icmp_signed("!=", distance, load(row, 2)))

    def operands(self, row: Any) -> None:
        """Where an address goes."""
        load = self.load
        self.store(
            self.word_at(self.block, load(row)),
            self.b.add(self.operand(load(row, 1)), load(row, 2)),
        )

    def read(self) -> None:
        """Write the function: all rows of the table, each by the method that is named as
        its kind.
        """
        at = self.b.add(self.table, number(8 * (self.head + len(self.kinds))))
        for kind, size in self.kinds.items():
            if kind == "words":
                at = self.copy(at, self.count(kind), self.block)
            else:
                at = self.rows(at, self.count(kind), size, getattr(self, kind))
        self.b.ret(number(0))


def in_memory(words: array[int]) -> Any:
    """The words as an array of ctypes, which keeps them alive."""
    return (ctypes.c_int64 * len(words)).from_buffer(words)


class Table:
    """A table while it is put together; operands are numbered (see `cubepy.runtime.replay.plan`).

    Args:
        kinds: the backend's own kinds of rows, and their sizes.
    """

    def __init__(self, kinds: dict[str, int]) -> None:
        self.rows: dict[str, list[tuple[int, ...]]] = {
            kind: [] for kind in COMMON | kinds if kind != "words"
        }
        self.kinds = [*(COMMON | kinds)]
        self.blocks: list[int] = []  # the rows of one word

    def align(self, which: int, bits: int, must: int) -> None:
        """An operand's address must have these bits so."""
        self.rows["alignments"].append((which, bits, must))

    def disjoint(self, one: int, extent: tuple[int, int], other: int, its: tuple[int, int]) -> None:
        """The spans of two operands must not meet."""
        self.rows["overlaps"].append((one, *extent, other, *its))

    def relate(self, one: int, other: int, distance: int) -> None:
        """The second operand must begin so many bytes after the first one."""
        self.rows["relations"].append((one, other, distance))

    def words(self, words: Sequence[int], multiple: int = 1) -> int:
        """Add a block; gives the number of its first word, which is a multiple."""
        mine = self.blocks
        if multiple > 1:
            mine += [0] * (-len(mine) % multiple)
        begin = len(mine)
        mine += words
        return begin

    def put(self, at: int, which: int, offset: int) -> None:
        """A word of the blocks is the address so many bytes from an operand's start."""
        self.rows["operands"].append((at, which, offset))

    def step(self, *words: int) -> None:
        """Add a step."""
        self.rows["steps"].append((len(self.rows["steps"]) + 1, *words))

    def first_word(self, head: int) -> int:
        """Where the blocks begin in what is laid out, with so many words of the backend's own."""
        before = self.kinds[: self.kinds.index("words")]
        rows = sum(len(row) for kind in before for row in self.rows[kind])
        return head + len(self.kinds) + rows

    def flat(self, head: Sequence[int]) -> list[int]:
        """The words."""
        words = [*head, *[len(self.rows.get(kind, self.blocks)) for kind in self.kinds]]
        for kind in self.kinds:
            rows = self.rows.get(kind)
            words.extend(self.blocks if rows is None else chain.from_iterable(rows))
        return words

    def laid_out(self, head: Sequence[int]) -> Any:
        """The words, as an array of ctypes."""
        return in_memory(array("q", self.flat(head)))

    def clear(self) -> None:
        """Forget what was laid out."""
        self.rows.clear()
        self.blocks.clear()

    def writes(self, prepared: Any) -> Sequence[int]:
        """The leaves that a launch writes."""
        return prepared.outputs  # type: ignore[no-any-return]

    def launch(
        self, runner: Any, leaves: Sequence[Any], addresses: Sequence[Address | None], flag: Any
    ) -> None:
        """Add a launch.

        Args:
            runner: of arrays with these layouts.
            leaves: arguments as they were in one call.
            addresses: for each of them an operand and the bytes from its start, or None where it
                stays as it is.
            flag: the leaf that must be zero after it, or None.

        Raises:
            Unsuitable: a launch that machine code cannot do.
        """
        raise NotImplementedError

    def call(
        self, function: Any, arguments: Sequence[Any], addresses: Sequence[Address | None]
    ) -> None:
        """Add a copy or a fill.

        Raises:
            Unsuitable: machine code cannot do it.
        """
        raise Unsuitable("a copy or a fill")

    def mark(self, mark: Any, address: Address | None) -> None:
        """Add where a branch or a loop begins or ends (see `cubepy.runtime.replay.record.Mark`).

        Raises:
            Unsuitable: machine code knows of none.
        """
        raise Unsuitable("a branch or a loop")

    def ready(self) -> tuple[Callable[..., int], int, Any]:
        """The machine code, the address of its table, and what keeps that alive."""
        raise NotImplementedError

    def failed(self, code: int) -> None:
        """Raise what went wrong in a step, unless the code is REFUSED."""
        raise NotImplementedError
