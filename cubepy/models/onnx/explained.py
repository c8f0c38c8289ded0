"""`cb.explain` of a graph that data part: its programs one after another, and what runs between.

What data decide shows in a call alone, so one is made. It notes the arguments of each program that
it meets (also of subgraphs, the first time of a kind), and each is explained as `cb.explain` does
any program.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import get_ident
from typing import Any

from cubepy.models.onnx.runner import watching
from cubepy.tensor.explained.explain import explained
from cubepy.tensor.explained.report import Alone, Explanation


class Met:
    """What a call met: programs with their arguments, and steps that ran by themselves."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.known: set[Any] = set()
        self.thread = get_ident()

    def program(self, segment: Any, arguments: tuple[Any, ...]) -> None:
        """A segment ran as a program."""
        tensors, hosts = arguments
        shapes = tuple([(name, t.shape, t.dtype) for name, t in tensors.items()])
        key = id(segment), shapes, hosts
        if key not in self.known and get_ident() == self.thread:
            self.known.add(key)
            self.parts.append((segment, arguments))

    def alone(self, steps: Any) -> None:
        """Steps ran one by one."""
        for step in steps:
            if id(step) not in self.known and get_ident() == self.thread:
                self.known.add(id(step))
                self.parts.append((step, None))


@contextmanager
def noted() -> Iterator[Met]:
    """What is met within."""
    met = Met()
    watching.append(met)
    try:
        yield met
    finally:
        watching.remove(met)


def in_parts(name: str, met: Met, steps: int) -> Explanation | None:
    """The programs of a call in their order; None where all steps are one.

    Args:
        name: of the graph.
        met: what the call met.
        steps: how many it has.
    """
    programs = [one for one in met.parts if one[1] is not None]
    if len(met.parts) == len(programs) == 1 and programs[0][0].last == steps:
        return None
    found, alone = list[Explanation](), list[Alone]()
    count = 0
    for part, arguments in met.parts:
        if arguments is None:
            node = part.call.node
            alone.append(Alone(count, node.op, node.shown()))
            continue
        one = explained(part.program, arguments, {})
        nodes = [step.call.node.shown() for step in part.runner.steps[part.first : part.last]]
        where = f"nodes {nodes[0]} to {nodes[-1]}" if len(nodes) > 1 else f"node {nodes[0]}"
        renamed = [replace(p, kind=f"{where}: {p.kind}") for p in one.programs]
        found.append(replace(one, programs=tuple(renamed)))
        count += len(renamed)
    return Explanation(
        name,
        tuple([t for one in found for t in one.traced]),
        sum(one.traces for one in found),
        tuple([p for one in found for p in one.programs]),
        {kind: why for one in found for kind, why in one.refused.items()},
        tuple(alone),
    )
