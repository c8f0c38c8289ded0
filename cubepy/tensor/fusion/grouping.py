"""Which ops go together: maps over the same elements, as long as the groups stay in an order.

Groups are sets of nodes of a graph, and run as one. Two groups may join if no way leads from one to
the other through a node outside: with all that a node comes after as bits of a number (its group's
fellows come after the same), that is one `and` for each input.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from cubepy.runtime.tables import room

KEPT = 64
"""Graphs whose groups are remembered."""
MOST_STEPS, MOST_ARRAYS, MOST_LONG = 64, 24, 8
"""Of a group: what still fits into registers, and compiles at once."""


_known: dict[Any, list[list[int]]] = {}


class Item(NamedTuple):
    """A node, as grouping sees it.

    Attributes:
        inputs: the nodes that it reads.
        space: what it is computed over (its shape), or None for what joins no group.
        long: whether it takes many instructions.
    """

    inputs: tuple[int, ...]
    space: object | None
    long: bool = False


def grouped(items: Sequence[Item], outputs: Sequence[int]) -> list[list[int]]:
    """Groups of two nodes and more, each in running order.

    Which spaces are equal decides, not what they are: a graph of other shapes and the same
    structure has the groups that were found before.
    """
    number: dict[object | None, int] = {None: -1}
    spaces = tuple([number.setdefault(item.space, len(number)) for item in items])
    key = spaces, tuple([(item.inputs, item.long) for item in items]), tuple(outputs)
    found = _known.get(key)
    if found is None:
        room(_known, KEPT)
        found = _known[key] = _Groups(items, outputs).found()
    return found


class _Groups:
    def __init__(self, items: Sequence[Item], outputs: Sequence[int]) -> None:
        self.items = items
        self.above: list[int] = []  # by node, what comes before it as bits
        self.readers: list[set[int]] = [set() for _ in items]
        self.wanted = set(outputs)
        for n, item in enumerate(items):
            bits = 0
            for i in item.inputs:
                bits |= self.above[i] | 1 << i
                self.readers[i].add(n)
            self.above.append(bits)
        self.group = list(range(len(items)))
        self.members: dict[int, list[int]] = {n: [n] for n in range(len(items))}

    def found(self) -> list[list[int]]:
        """Join what reads each other, then what reads the same."""
        for n, item in enumerate(self.items):
            if item.space is not None:
                for i in item.inputs:
                    self.join(i, n)
        for readers in self.readers:
            maps = sorted(r for r in readers if self.items[r].space is not None)
            for a, b in itertools.pairwise(maps):
                self.join(a, b)
        return [m for m in self.members.values() if len(m) > 1]

    def join(self, a: int, b: int) -> None:
        """Make the groups of two nodes one, if they may be."""
        first, second = self.group[a], self.group[b]
        if first == second or self.items[a].space != self.items[b].space:
            return
        nodes = sorted(self.members[first] + self.members[second])
        inside = sum(1 << n for n in nodes)
        if not self.small(nodes, inside) or self.through_others(nodes, inside):
            return
        for n in self.members.pop(second):
            self.group[n] = first
        self.members[first] = nodes
        before = 0
        for n in nodes:
            before |= self.above[n]
        before &= ~inside
        for n in nodes:
            self.above[n] = before
        for n in range(nodes[0], len(self.items)):
            if self.above[n] & inside:
                self.above[n] |= before | inside

    def small(self, nodes: Sequence[int], inside: int) -> bool:
        """Whether a group is small enough."""
        if len(nodes) > MOST_STEPS or sum(self.items[n].long for n in nodes) > MOST_LONG:
            return False
        read = {i for n in nodes for i in self.items[n].inputs if not inside >> i & 1}
        return len(read) + len(self.results(nodes)) <= MOST_ARRAYS

    def results(self, nodes: Sequence[int]) -> list[int]:
        """The nodes of a group that others read, or that are outputs."""
        fellows = set(nodes)
        return [n for n in nodes if n in self.wanted or not self.readers[n] <= fellows]

    def through_others(self, nodes: Sequence[int], inside: int) -> bool:
        """Whether one of these reads what comes after another one of them."""
        return any(
            not inside >> i & 1 and self.above[i] & inside
            for n in nodes
            for i in self.items[n].inputs
        )
