"""The memory of a program's intermediate arrays: one block, planned by when each is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

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


def planned(buffers: Sequence[Buffer], line: int = LINE) -> tuple[list[int], int]:
    """Offsets of buffers, multiples of a line, so that those that are used at the same time are
    apart, and the bytes of all: the largest first, each where it fits lowest.

    Example:
        >>> planned([Buffer(0, 100, 0, 1), Buffer(0, 64, 1, 2), Buffer(0, 50, 2, 3)])
        ([0, 128, 0], 192)
    """
    offsets = np.zeros(len(buffers), np.int64)
    ends = np.zeros(len(buffers), np.int64)
    first = np.array([b.first for b in buffers], np.int64)
    last = np.array([b.last for b in buffers], np.int64)
    placed = np.zeros(len(buffers), bool)
    for n in sorted(range(len(buffers)), key=lambda n: (-buffers[n].size, n)):
        size = -(-buffers[n].size // line) * line
        beside = np.flatnonzero(placed & (first <= last[n]) & (first[n] <= last))
        at = 0
        for other in beside[np.argsort(offsets[beside], kind="stable")]:
            if at + size <= offsets[other]:
                break
            at = max(at, int(ends[other]))
        offsets[n], ends[n], placed[n] = at, at + size, True
    return [int(o) for o in offsets], int(ends.max(initial=0))
