"""Which ops of a traced graph the nodes of the optimised one do, and what the user wrote for them.

Passes keep the specs of values that they keep: a value of the optimised graph is the value of the
traced one whose spec is the same object. What they put into another shape is found by the reshapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cubepy.errors import Location
from cubepy.tensor.fusion.schedule import Schedule, Step, schedule_of
from cubepy.tensor.ir import Graph
from cubepy.tensor.value import located

INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "pow": "**",
    "matmul": "@",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
}
WITHIN = ("body", "bodies")
"""Attributes that are programs within, which are shown as such."""
LONGEST = 64  # characters of an attribute


def lines_of(graph: Graph, asked: Mapping[int, Any]) -> dict[int, Location | None]:
    """The user's lines that asked for the values of a traced graph, by their numbers.

    Args:
        graph: the graph.
        asked: code and instructions (see `value.located`) by the identities of specs in it.
    """
    specs = enumerate(graph.values)
    return {n: located(asked[id(s)]) for n, s in specs if id(s) in asked}


class Lineage:
    """The nodes of a graph that runs beside the ops that were traced.

    Args:
        traced: what the function did.
        ran: what its program runs.
        asked_at: by values of the traced graph, where the user asked for them.

    Attributes:
        single: the traced ops, equal ones once.
        values: by values of the graph that runs, those of the traced one; None for new ones.
        node_of: by values of the traced graph, the node that gives or contains them.
        inside: by node, the traced steps that it does.
    """

    def __init__(self, traced: Graph, ran: Graph, asked_at: Mapping[int, Location | None]) -> None:
        self.traced, self.ran, self.asked_at = traced, ran, asked_at
        number = {id(spec): n for n, spec in enumerate(traced.values)}
        self.values = [number.get(id(spec)) for spec in ran.values]
        self.through_reshapes()
        self.single: Schedule = schedule_of(traced).without_repeats()
        by = {r: s for s in self.single.steps for r in s.results}
        every = {r: s for s in schedule_of(traced).steps for r in s.results}
        self.node_of: dict[int, int] = {}
        self.inside: list[list[Step]] = []
        for at, (first, node) in enumerate(zip(ran.firsts, ran.nodes, strict=True)):
            given = {self.values[i] for i in node.inputs if i >= 0}
            stack = [self.values[first + k] for k in range(len(node.results))]
            found: dict[int, Step] = {}
            while stack and node.op != "input":
                n = stack.pop()
                step = None if n is None else by.get(n, every.get(n))
                if step is None or step.results[0] in found or n in given:
                    continue
                found[step.results[0]] = step
                if step.op != node.op:
                    stack += [i for i in step.read if i not in given]
            self.inside.append([found[n] for n in sorted(found)])
            for step in self.inside[-1]:
                if step.op != "constant" or step.op == node.op:
                    self.node_of.update(dict.fromkeys(step.results, at))

    def through_reshapes(self) -> None:
        """Say of new values that are a known one in another shape which one that is."""
        made = {
            first + k: node
            for first, node in zip(self.traced.firsts, self.traced.nodes, strict=True)
            for k in range(len(node.results))
        }
        pairs = [
            (node.inputs[0], first)
            for first, node in zip(self.ran.firsts, self.ran.nodes, strict=True)
            if node.op == "reshape"
        ]
        for source, result in pairs:
            if self.values[result] is None:
                self.values[result] = self.values[source]
        for source, result in reversed(pairs):
            known = self.values[result]
            if self.values[source] is None and known is not None:
                node = made[known]
                self.values[source] = node.inputs[0] if node.op == "reshape" else known

    def fused(self, at: int) -> bool:
        """Whether a node does what several ops did."""
        return len(self.inside[at]) > 1

    def lines(self, at: int) -> list[Location]:
        """The user's lines that a node is from; of one that a pass put in, those of its readers."""
        found = [self.asked_at.get(s.results[0]) for s in self.inside[at] if s.op != "constant"]
        if not self.inside[at]:
            first = self.ran.firsts[at]
            mine = range(first, first + len(self.ran.nodes[at].results))
            after = range(at + 1, len(self.ran.nodes))
            readers = [n for n in after if set(mine) & set(self.ran.nodes[n].inputs)]
            found += [line for n in readers for line in self.lines(n)]
        return list(dict.fromkeys(line for line in found if line is not None))

    def formulas(self, at: int) -> list[str]:
        """What a node computes, an op a line."""
        numbers = {s.results[0]: s for s in self.inside[at] if s.op == "constant"}
        steps = [s for s in self.inside[at] if s.op != "constant"]
        return [formula(step, numbers) for step in steps or self.inside[at]]


def formula(step: Step, numbers: Mapping[int, Step] | None = None) -> str:
    """An op as a formula; constants as their numbers.

    Example:
        >>> formula(Step("mul", (0, 1), {}, (2,)))
        '%2 = %0 * %1'
        >>> formula(Step("sum", (2,), {"axis": -1}, (3,)))
        '%3 = sum(%2, axis=-1)'
    """
    known = numbers or {}
    given = [
        "none" if i < 0 else repr(known[i].attrs["value"]) if i in known else f"%{i}"
        for i in step.inputs
    ]
    left = ", ".join(f"%{r}" for r in step.results)
    if step.op in INFIX and len(given) == 2:
        return f"{left} = {given[0]} {INFIX[step.op]} {given[1]}"
    shown = {k: v for k, v in step.attrs.items() if v is not None and k not in WITHIN}
    attrs = [f"{k}={_short(v)}" for k, v in sorted(shown.items())]
    return f"{left} = {step.op}({', '.join([*given, *attrs])})"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
