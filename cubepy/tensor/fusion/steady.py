"""What a program computes of weights alone: done once, and kept until a weight changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from cubepy.tensor.fusion.schedule import Schedule, Step, graph_of
from cubepy.tensor.ir import Graph
from cubepy.tensor.ops import OPS


class Preparation(NamedTuple):
    """How an input of a fused graph is made of inputs of the traced one.

    Attributes:
        inputs: their numbers.
        graph: of these, to the one output.
    """

    inputs: tuple[int, ...]
    graph: Graph


def steady(schedule: Schedule, given: Iterable[int]) -> set[int]:
    """The values that depend on steady inputs, or on nothing.

    Args:
        schedule: the steps.
        given: the inputs that are steady.
    """
    found = set(given)
    for step in schedule.steps:
        if OPS[step.op].kind not in ("opaque", "effect") and found.issuperset(step.read):
            found.update(step.results)
    return found


def prepared(schedule: Schedule, given: Iterable[int]) -> tuple[Schedule, list[Preparation]]:
    """The schedule where what steady inputs alone decide are inputs, behind those that it still
    reads, and how these are made. Views of inputs stay: they are free.
    """
    inputs = set(given)
    values = steady(schedule, inputs)
    by = {r: s for s in schedule.steps for r in s.results}
    wanted: dict[int, None] = {}
    for step in schedule.steps:
        if not values.issuperset(step.results):
            wanted.update((i, None) for i in step.read if i in values and _work(i, by, inputs))
    made = [_preparation(schedule, value, by) for value in wanted]
    left = schedule.with_steps([s for s in schedule.steps if not set(s.results) & wanted.keys()])
    read = {i for s in left.steps for i in s.read} | set(left.outputs)
    kept = [i for i in schedule.inputs if i in read or i not in inputs]
    return replace(left, inputs=(*kept, *wanted)), made


def _work(value: int, by: dict[int, Step], inputs: set[int]) -> bool:
    """Whether a value is computed, and of an input."""
    stack, seen, work, weights = [value], set[int](), False, False
    while stack:
        i = stack.pop()
        weights = weights or i in inputs
        if i in by and i not in seen:
            seen.add(i)
            work = work or OPS[by[i].op].kind not in ("view", "make")
            stack += by[i].read
    return work and weights


def _preparation(schedule: Schedule, value: int, by: dict[int, Step]) -> Preparation:
    """How a value is made."""
    needed, stack = set[int](), [value]
    while stack:
        i = stack.pop()
        if i not in needed:
            needed.add(i)
            stack += by[i].read if i in by else ()
    inputs = tuple(i for i in schedule.inputs if i in needed)
    steps = tuple(s for s in schedule.steps if needed.intersection(s.results))
    part = replace(schedule, steps=steps, inputs=inputs, outputs=(value,))
    return Preparation(inputs, graph_of(part))
