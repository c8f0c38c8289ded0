"""The memory of a program's intermediate arrays: one block, planned by when each is used."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

LINE = 64  # bytes; every array begins at a multiple of it


@dataclass
class Buffer:
    """Memory that launches write.

    Attributes:
        start: its address when it was recorded.
        size: in bytes.
        first: the step that writes it first.
        last: the last step that uses it.
    """

    start: int
    size: int
    first: int
    last: int


class Lifetime(NamedTuple):
    """A piece of the arena: so many bytes from an offset, from a step of the plan to another."""

    offset: int
    size: int
    first: int
    last: int


class Spare(NamedTuple):
    """Memory that somebody needs later: so many bytes until a step writes it."""

    size: int
    until: int


def planned(buffers: Sequence[Buffer], line: int = LINE) -> tuple[list[int], int]:
    """Offsets of buffers, multiples of a line, so that those that are used at the same time are
    apart, and the bytes of all: the largest first, each where it fits lowest.

    Example:
        >>> planned([Buffer(0, 100, 0, 1), Buffer(0, 64, 1, 2), Buffer(0, 50, 2, 3)])
        ([0, 128, 0], 192)
    """
    block = Block()
    for n in largest(buffers):
        block.put(buffers[n], line)
    return [block.offsets[id(b)] for b in buffers], block.size


def lodged(buffers: Sequence[Buffer], spare: Sequence[Spare]) -> dict[int, tuple[int, int]]:
    """Which buffers fit into memory that is needed later, and where: by their numbers, the number
    of the memory and an offset. The largest first, each into the smallest that it fits into.

    Example:
        >>> lodged([Buffer(0, 64, 0, 3), Buffer(0, 64, 2, 9)], [Spare(100, 5)])
        {0: (0, 0)}
    """
    found: dict[int, tuple[int, int]] = {}
    blocks = [Block() for _ in spare]
    order = sorted(range(len(spare)), key=lambda k: spare[k].size)
    for n in largest(buffers):
        b = buffers[n]
        for k in order:
            if b.size <= spare[k].size and b.last < spare[k].until:
                at = blocks[k].lowest(b, LINE)
                if at + b.size <= spare[k].size:
                    blocks[k].put(b, LINE, at)
                    found[n] = k, at
                    break
    return found


def largest(buffers: Sequence[Buffer]) -> list[int]:
    """The numbers of buffers, the largest first."""
    return sorted(range(len(buffers)), key=lambda n: (-buffers[n].size, n))


class Block:
    """Memory in which buffers have their offsets.

    Attributes:
        size: bytes up to the end of the last one.
        offsets: of buffers, by identity.
        taken: start, end, first and last step of each, in the order of their starts.
    """

    def __init__(self) -> None:
        self.size, self.offsets = 0, dict[int, int]()
        self.taken: list[tuple[int, int, int, int]] = []

    def lowest(self, b: Buffer, line: int) -> int:
        """The lowest offset at which a buffer is apart from those that are used with it."""
        at, size, begun, done = 0, rounded(b.size, line), b.first, b.last
        for start, end, first, last in self.taken:
            if end > at and first <= done and begun <= last:
                if at + size <= start:
                    break
                at = end
        return at

    def put(self, b: Buffer, line: int, at: int | None = None) -> None:
        """Give a buffer its offset."""
        at = self.lowest(b, line) if at is None else at
        end = at + rounded(b.size, line)
        insort(self.taken, (at, end, b.first, b.last))
        self.offsets[id(b)] = at
        self.size = max(self.size, end)


def rounded(size: int, line: int) -> int:
    """The next multiple of a line."""
    return -(-size // line) * line
