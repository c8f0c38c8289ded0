"""What a call does, as `recording` shows it: launches, copies and fills, memory that is taken,
flags that are looked at.

A plan is made of it afterwards (`plan`); the recorder itself judges nothing. It keeps everything
alive, so that no other object gets the identity or the address of one that was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cubepy.runtime import recording
from cubepy.runtime.memory.pool import ALIGNMENT, POOLED

BESIDE = 16
"""Bytes behind the beginning of a line: as much as elements of any dtype need."""


class Launch(NamedTuple):
    """A kernel that was launched."""

    prepared: Any
    leaves: list[Any]


class Call(NamedTuple):
    """Something else that was put on a stream: a copy, a fill."""

    function: Any
    arguments: tuple[Any, ...]


class Mark(NamedTuple):
    """Where steps begin or end that do not run once each.

    Attributes:
        kind: "fork": what follows runs where `array` is true, what follows "otherwise" where it is
            not, up to "join". "loop": what follows runs `times` times, up to "again", or until
            `array` of that is true.
        array: one byte.
        times: how often.
        moves: of "again": (the first step, one past the last, address, bytes): arrays of these
            steps that begin at the address are so many bytes further each time.
    """

    kind: str
    array: Any = None
    times: int = 1
    moves: tuple[tuple[int, int, int, int], ...] = ()


class Recorder:
    """What one call does, under `with`.

    Attributes:
        steps: launches and other work, in order.
        allocations: memory of a device that was taken, and the bytes that were asked for.
        constants: arrays that were made of numbers of the host, options of the call for instance:
            every replay may read them.
        flags: by the launch before it, what had to be zero for the call to go on.
        spoiled: whether something happened that cannot be replayed.
        marks: whether it knows of branches and loops (`Mark`).
        symbolic: whether nothing is done, but only recorded: lengths are symbols.
    """

    marks = False
    symbolic = False

    def __init__(self) -> None:
        self.steps: list[Launch | Call | Mark] = []
        self.allocations: list[tuple[Any, int]] = []
        self.constants: list[Any] = []
        self.flags: dict[int, Any] = {}
        self.spoiled = False

    def __enter__(self) -> Recorder:
        self.before = recording.begin(self)
        if self.before is not None:  # it does not see what this one records
            self.before.spoiled = True
        return self

    def __exit__(self, *exc: object) -> None:
        recording.end(self.before)

    def launch(self, prepared: Any, leaves: Sequence[Any]) -> None:
        """A kernel was launched."""
        self.steps.append(Launch(prepared, list(leaves)))

    def call(self, function: Any, *arguments: Any) -> None:
        """Something else was put on a stream."""
        self.steps.append(Call(function, arguments))

    def allocation(self, owner: Any, size: int) -> None:
        """Memory of a device was taken."""
        self.allocations.append((owner, size))

    def memory(self, shape: tuple[int, ...], dtype: Any, size: int) -> Any:
        """Memory of the host is wanted, of so many bytes; None where the pool gives it.

        Small arrays begin anywhere in every repetition, so here they never begin at a line of the
        cache: what was done to one that does may be no way for others.
        """
        if not 0 < size < POOLED:
            return None
        owner = np.empty(size + ALIGNMENT, np.uint8)
        start = (BESIDE - owner.ctypes.data) % ALIGNMENT
        return np.ndarray(shape, dtype, owner, start)

    def constant(self, array: Any) -> None:
        """An array was filled with numbers that the host made up."""
        self.constants.append(array)

    def judged(self, flag: Any) -> None:
        """The call went on because the last launch left this at zero."""
        at = len(self.steps) - 1
        self.spoiled |= at in self.flags
        self.flags[at] = flag
