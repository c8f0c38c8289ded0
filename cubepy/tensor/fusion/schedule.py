"""What runs one after the other: steps over numbered values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from cubepy.compiler.signature import exact
from cubepy.tensor.array import Tensor, apply
from cubepy.tensor.ir import ABSENT, Graph, Node
from cubepy.tensor.ops import OPS, Spec


@dataclass(frozen=True)
class Step:
    """One op.

    Attributes:
        op: its name.
        inputs: the values that it reads; ABSENT for optional ones that are not there.
        attrs: by name.
        results: the values that it gives.
    """

    op: str
    inputs: tuple[int, ...]
    attrs: dict[str, Any]
    results: tuple[int, ...]

    @cached_property
    def read(self) -> tuple[int, ...]:
        """The values that are there."""
        return tuple([i for i in self.inputs if i != ABSENT])


@dataclass(frozen=True)
class Schedule:
    """Steps in an order in which they can run.

    Attributes:
        steps: the ops.
        specs: shape and dtype of every value.
        inputs: the values that are given.
        outputs: the values that are wanted.
    """

    steps: tuple[Step, ...]
    specs: dict[int, Spec]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @cached_property
    def made_by(self) -> dict[int, Step]:
        """The step that gives a value."""
        return {r: s for s in self.steps for r in s.results}

    @cached_property
    def readers(self) -> defaultdict[int, list[int]]:
        """The first results of the steps that read a value."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for step in self.steps:
            for i in step.read:
                found[i].append(step.results[0])
        return found

    def with_steps(self, steps: Sequence[Step]) -> Schedule:
        """Other steps for the same outputs; those that nobody needs are left out."""
        needed, kept = set(self.outputs), list[Step]()
        for step in reversed(steps):
            if needed.intersection(step.results):
                kept.append(step)
                needed.update(step.read)
        return replace(self, steps=tuple(reversed(kept)))

    def without_repeats(self) -> Schedule:
        """The schedule where equal ops of equal values run once, but for those that draw random
        numbers or have an effect.
        """
        same: dict[int, int] = {}
        known: dict[Any, tuple[int, ...]] = {}
        kept = []
        for step in self.steps:
            inputs = tuple(same.get(i, i) for i in step.inputs)
            new = replace(step, inputs=inputs)
            if OPS[step.op].kind in ("opaque", "effect"):
                kept.append(new)
                continue
            key = step.op, inputs, exact(tuple(sorted(_meant(step, self.specs).items())))
            before = known.setdefault(key, step.results)
            if before is step.results:
                kept.append(new)
            same.update(zip(step.results, before, strict=True))
        outputs = tuple(same.get(i, i) for i in self.outputs)
        return replace(self, steps=tuple(kept), outputs=outputs)

    def run(self, given: Sequence[Any]) -> list[Tensor]:
        """The outputs for tensors as inputs; what no later step reads is let go."""
        values: dict[int, Any] = dict(zip(self.inputs, given, strict=True))
        last = {i: n for n, step in enumerate(self.steps) for i in step.read}
        for n, step in enumerate(self.steps):
            inputs = [None if i == ABSENT else values[i] for i in step.inputs]
            found = apply(step.op, *inputs, **step.attrs)
            values.update(
                zip(step.results, found if isinstance(found, list) else [found], strict=True)
            )
            for i in step.read:
                if last[i] == n and i not in self.outputs:
                    values.pop(i, None)
        return [values[i] for i in self.outputs]


def _meant(step: Step, specs: dict[int, Spec]) -> dict[str, Any]:
    """The attributes of a step, alike for axes and slices that are written in two ways."""
    attrs = step.attrs
    if step.op == "slice":
        return {"index": _slices(attrs["index"], specs[step.read[0]].shape)}
    axis = attrs.get("axis")
    if type(axis) is int and axis < 0 and step.op == "concat":
        return attrs | {"axis": axis + len(specs[step.results[0]].shape)}
    return attrs


def _slices(index: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index without bounds that are those of the axis anyway."""
    found, d = list[Any](), 0
    for part in index:
        if type(part) is tuple:
            start, stop, step = part
            onward = step is None or step > 0
            start = None if onward and start is not None and start == 0 else start
            stop = None if onward and stop is not None and stop == shape[d] else stop
            part = start, stop, None if step is None or step == 1 else step
        found.append(part)
        d += part != "new"
    return tuple(found)


def schedule_of(graph: Graph) -> Schedule:
    """The steps of a graph."""
    steps = []
    for first, n in zip(graph.firsts, graph.nodes, strict=True):
        if n.op != "input":
            results = tuple(range(first, first + len(n.results)))
            steps.append(Step(n.op, n.inputs, dict(n.attrs), results))
    return Schedule(tuple(steps), dict(enumerate(graph.values)), graph.inputs, graph.outputs)


def graph_of(schedule: Schedule) -> Graph:
    """The graph of steps."""
    number: dict[int, int] = {ABSENT: ABSENT}
    nodes: list[Node] = []
    for i in schedule.inputs:
        number[i] = len(nodes)
        nodes.append(Node("input", (), (("storage", "dense"),), (schedule.specs[i],)))
    count = len(nodes)
    for step in schedule.steps:
        results = tuple(schedule.specs[r] for r in step.results)
        inputs = tuple(number[i] for i in step.inputs)
        nodes.append(Node(step.op, inputs, tuple(sorted(step.attrs.items())), results))
        for r in step.results:
            number[r] = count
            count += 1
    inputs, outputs = (tuple(number[i] for i in v) for v in (schedule.inputs, schedule.outputs))
    return Graph(tuple(nodes), inputs, outputs)
