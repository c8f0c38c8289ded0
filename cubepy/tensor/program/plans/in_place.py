"""Which states a graph may write where they are: parameters and states of optimizers that a handle
is given anew.

A state is written in place if its next value is what a step of an optimizer gives, and nothing
looks at the old one afterwards. Such steps go to the end of the graph, so that all readers of what
they write come before, and nothing that could fail comes behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from cubepy.runtime.memory.pool import POOLED
from cubepy.tensor.ir import ABSENT, Graph, Node
from cubepy.tensor.ops import OPS, Spec
from cubepy.tensor.ops.updates import WRITING


def large(spec: Spec) -> bool:
    """Whether a state is worth it: the memory of small ones costs less than asking who has it."""
    return math.prod(spec.shape) * spec.dtype.numpy.itemsize >= POOLED


class InPlace(NamedTuple):
    """A graph that writes states where they are.

    Attributes:
        graph: with the steps that write last.
        written: the inputs that are written, by the outputs that they become.
        body: the graph up to them; its outputs are those of the graph that are no states, and then
            what the steps read.
        steps: the steps, as a graph of what they read, and of the states as outputs.
    """

    graph: Graph
    written: dict[int, int]
    body: Graph
    steps: Graph

    @property
    def others(self) -> list[int]:
        """The outputs that are no states."""
        return [n for n in range(len(self.graph.outputs)) if n not in self.written]


def in_place(graph: Graph, states: Mapping[int, int]) -> InPlace | None:
    """A graph that writes states in place; None where there is none to write.

    Args:
        graph: optimised.
        states: by the numbers of inputs, those of the outputs that their handles are given.

    Example:
        >>> import cubepy as cb
        >>> from cubepy.tensor import apply
        >>> from cubepy.tensor.record import record
        >>> numbers, p, g = (cb.tensor([0.5] * n) for n in (3, 1 << 15, 1 << 15))
        >>> with record(numbers, p, g) as r:
        ...     (new,) = apply("sgd_step", numbers, p, g)
        >>> made = in_place(r.graph(new), {1: 0})
        >>> made.graph.nodes[-1].op, made.written
        ('sgd_step_in_place', {0: 1})
    """
    chosen: dict[int, dict[int, int]] = {}
    read = {i for n in graph.nodes for i in n.inputs}
    number = {value: n for n, value in enumerate(graph.inputs)}
    for at, (first, node) in enumerate(zip(graph.firsts, graph.nodes, strict=True)):
        if node.op not in WRITING or not any(large(s) for s in node.results):
            continue
        found: dict[int, int] = {}
        for k, i in enumerate(OPS[WRITING[node.op]].written({})):
            value, result = node.inputs[i], first + k
            output = states.get(number.get(value, ABSENT), ABSENT)
            fits = output != ABSENT and graph.outputs[output] == result
            if fits and result not in read and graph.outputs.count(result) == 1:
                if node.inputs.count(value) == 1:
                    found[output] = number[value]
        if len(found) == len(node.results):
            chosen[at] = found
    if not chosen:
        return None
    written = {o: n for found in chosen.values() for o, n in found.items()}
    return split(moved(graph, set(chosen)), written, len(graph.nodes) - len(chosen))


def moved(graph: Graph, last: set[int]) -> Graph:
    """The graph with some nodes behind all others, as ops that work in place."""
    order = [at for at in range(len(graph.nodes)) if at not in last] + sorted(last)
    number = {ABSENT: ABSENT}
    for at in order:
        for k in range(len(graph.nodes[at].results)):
            number[graph.firsts[at] + k] = len(number) - 1
    nodes: list[Node] = []
    for at in order:
        node = graph.nodes[at]
        op = WRITING[node.op] if at in last else node.op
        nodes.append(replace(node, op=op, inputs=tuple([number[i] for i in node.inputs])))
    inputs, outputs = ([number[i] for i in of] for of in (graph.inputs, graph.outputs))
    return Graph(tuple(nodes), tuple(inputs), tuple(outputs))


def split(graph: Graph, written: dict[int, int], first: int) -> InPlace:
    """A graph whose steps from a number on write states in place, in two."""
    body, steps = graph.nodes[:first], graph.nodes[first:]
    reads = list(dict.fromkeys(i for n in steps for i in n.inputs))
    others = [i for n, i in enumerate(graph.outputs) if n not in written]
    number = {i: n for n, i in enumerate(reads)}
    nodes = [Node("input", (), (("storage", "dense"),), (graph.values[i],)) for i in reads]
    for at, node in enumerate(steps, first):
        for k in range(len(node.results)):
            number[graph.firsts[at] + k] = len(number)
        nodes.append(replace(node, inputs=tuple([number[i] for i in node.inputs])))
    outputs = tuple([number[graph.outputs[n]] for n in written])
    return InPlace(
        graph,
        written,
        Graph(body, graph.inputs, (*others, *reads)),
        Graph(tuple(nodes), tuple(range(len(reads))), outputs),
    )
