"""Small states and gradients of a call, given again by a later one when nobody has them any more.

The small states that a program gives in every call (parameters of a small network) are new values
in new memory; making them takes longer than computing them. So a program keeps what it gave: of two
sets in turns the older one has been exchanged for the newer. It is given again, with other
elements, if nobody but the program has it: neither a value, nor its storage, nor its array, as
reference counts say, nor a weak reference, nor a table that speaks of memory.
"""

from __future__ import annotations

from functools import cache
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

import numpy as np

from cubepy.runtime.memory.pool import POOLED
from cubepy.tensor.exposed import exact, noted
from cubepy.tensor.program.plans.anew import nbytes_of, parts_of
from cubepy.tensor.program.plans.results import separate
from cubepy.tensor.program.trace import Given, GradientGiven, Output
from cubepy.tensor.storage import HOST, Dense
from cubepy.tensor.value import Value

LEAST = 8
"""Results for which asking who has them is worth it."""
MOST_BYTES = 4 << 20
"""Memory that a program keeps for them, at most."""
PAUSE = 255
"""Calls for which nothing is kept when somebody had what was given."""


class Reused:
    """Sets of results that a program gave.

    Args:
        states: outputs that handles from outside are given.
        gradients: outputs that become gradients when somebody looks.

    Attributes:
        names: of a set in the text of a call: value, storage and array of each state, then arrays.
        sets: what was given, the oldest first.
        left: calls for which nothing is kept.
    """

    __slots__ = ("counts", "gradients", "left", "names", "sets", "states")

    def __init__(self, states: list[int], gradients: list[int]) -> None:
        self.states, self.gradients = states, gradients
        names = [f"{kind}{n}" for n in states for kind in "udr"]
        self.names = "".join(f"{name}, " for name in (*names, *[f"r{n}" for n in gradients]))
        *state, gradient = alone()
        self.counts = state * len(states) + [gradient] * len(gradients)
        self.sets: list[tuple[Any, ...]] = []
        self.left = 0

    @property
    def outputs(self) -> set[int]:
        """All of them."""
        return {*self.states, *self.gradients}

    def take(self) -> tuple[Any, ...] | None:
        """The oldest set, which nobody has any more; None where there is none."""
        if len(self.sets) < 2:
            return None
        try:
            found = self.sets.pop(0)
        except IndexError:  # another thread was quicker
            return None
        if exact() and list(map(getrefcount, found)) == self.counts:
            spoken = noted and not noted.keys().isdisjoint(map(id, found))
            if not spoken and not any(map(getweakrefcount, found)):
                return found
        self.sets.clear()
        self.left = PAUSE
        return None

    def keep(self, given: tuple[Any, ...]) -> None:
        """What a call gave."""
        if self.left:
            self.left -= 1
        else:
            self.sets.append(given)


@cache
def alone() -> list[int]:
    """How many references there are to a value, its storage and array, and the array of a gradient,
    that only a set has.
    """
    value = Value(Dense(np.empty(1), HOST))
    found = value, value.storage, value.storage.array, np.empty(1)  # type: ignore[attr-defined]
    del value
    return list(map(getrefcount, found))


def reused(writer: Any, operands: Any) -> Reused | None:
    """What the calls of a program may give again; None where it is little, or too much.

    Args:
        writer: of the calls.
        operands: of their plan.
    """
    trace = writer.trace
    if trace.differentiable or writer.gpu is not None:
        return None
    shown = {part.number for part in parts_of(trace.result) if isinstance(part, Output)}
    others = shown | {e.to for e in trace.effects if isinstance(e, GradientGiven)}
    given = [e for e in trace.effects if isinstance(e, Given)]
    outputs = [e.output for e in given]
    states = [
        e.output
        for e in given
        if e.handle.kind == "held" and e.output not in others and outputs.count(e.output) == 1
    ]
    sizes = [nbytes_of(trace.graph.values[at]) for at in trace.graph.outputs]
    small = {n for n in separate(operands) if sizes[n] < POOLED and n not in writer.updated}
    states = [n for n in states if n in small]
    gradients = [n for n in writer.pending(shown) if n in small]
    found = [*states, *gradients]
    few = len(found) < LEAST or sum(sizes[n] for n in found) > MOST_BYTES
    return None if few else Reused(states, gradients)
