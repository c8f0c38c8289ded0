"""The steps of a program, and of the programs within, as data and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cubepy.tensor.control.body import asked, plain
from cubepy.tensor.explained.lineage import Lineage
from cubepy.tensor.fusion.optimise import optimise
from cubepy.tensor.ir import Graph, Node

Watched = Mapping[tuple[str, int], Sequence[str]]
"""The kernels that nodes of bodies launched, by text and number."""


@dataclass(frozen=True)
class StepShown:
    """A step of a program.

    Attributes:
        number: of the node.
        op: its name; `fused_map` and the like do several ops.
        results: the values that it gives, with dtypes and shapes.
        inputs: the numbers of the nodes that it reads.
        formulas: what it computes, an op a line.
        lines: where the user asked for that, as "file:line".
        kernels: the names of the kernels that it launches; None while that is not known.
        routines: what chose them, and why, where an operation has several.
        name: of an input, as the user knows it.
        bodies: the programs within, of `cb.cond` and `cb.scan`.
    """

    number: int
    op: str
    results: tuple[str, ...]
    inputs: tuple[int, ...]
    formulas: tuple[str, ...]
    lines: tuple[str, ...]
    kernels: tuple[str, ...] | None
    routines: tuple[str, ...] = ()
    name: str = ""
    bodies: tuple[BodyShown, ...] = ()

    @property
    def fused(self) -> bool:
        """Whether it does several ops."""
        return len(self.formulas) > 1

    def text(self) -> list[str]:
        """The step in lines."""
        head = f"{', '.join(self.results)} = {self.op} {self.name}".rstrip()
        if self.kernels is not None:
            counted = Counter(self.kernels).items()
            launches = ", ".join(name if n == 1 else f"{n} x {name}" for name, n in counted)
            head += f"  [{launches or 'no launch'}]"
        where = f"  # {', '.join(self.lines)}" if self.lines else ""
        return [
            f"[{self.number}] {head}{where}",
            *[f"      {formula}" for formula in self.formulas],
            *[f"      {routine}" for routine in self.routines],
            *[f"      {line}" for body in self.bodies for line in body.text()],
        ]


@dataclass(frozen=True)
class BodyShown:
    """A program within another one: a branch, or what a loop does each time.

    Attributes:
        title: which one it is.
        steps: what runs.
        gives: its results.
    """

    title: str
    steps: tuple[StepShown, ...]
    gives: tuple[str, ...]

    def text(self) -> list[str]:
        """The body in lines."""
        lines = [f"  {line}" for step in self.steps for line in step.text()]
        return [f"{self.title}:", *lines, f"  gives {', '.join(self.gives) or 'nothing'}"]


def makers(graph: Graph) -> dict[int, int]:
    """The node that gives a value, by numbers."""
    return {
        first + k: at
        for at, (first, n) in enumerate(zip(graph.firsts, graph.nodes, strict=True))
        for k in range(len(n.results))
    }


def steps_of(
    lineage: Lineage,
    names: Sequence[str],
    launched: Mapping[int, Sequence[str]],
    device: Any,
    routines: Mapping[int, Sequence[str]],
    watched: Watched,
) -> tuple[StepShown, ...]:
    """The steps of a graph.

    Args:
        lineage: the graph, and what was traced.
        names: of its inputs.
        launched: the kernels of nodes, where they are known.
        device: what the graph is optimised for.
        routines: what chose the kernels.
        watched: the kernels of nodes of the bodies within.
    """
    graph = lineage.ran
    made, order = makers(graph), iter(names)
    steps = []
    for at, node in enumerate(graph.nodes):
        is_input = node.op == "input"
        numbers = [lineage.values[graph.firsts[at] + k] for k in range(len(node.results))]
        steps.append(
            StepShown(
                at,
                node.op,
                tuple(map(_value, numbers, node.results)),
                tuple(dict.fromkeys(made[i] for i in node.inputs if i >= 0)),
                () if is_input else tuple(lineage.formulas(at)),
                tuple(f"{Path(p.file).name}:{p.line}" for p in lineage.lines(at)),
                tuple(launched[at]) if at in launched and not is_input else None,
                tuple(routines.get(at, ())),
                next(order, "") if is_input else "",
                bodies_of(node, device, watched),
            )
        )
    return tuple(steps)


def _value(number: int | None, spec: Any) -> str:
    return f"{'%new' if number is None else f'%{number}'}: {spec.dtype.name}{list(spec.shape)}"


def bodies_of(node: Node, device: Any, watched: Watched) -> tuple[BodyShown, ...]:
    """The programs within a node."""
    attrs = dict(node.attrs)
    if node.op == "cond":
        titles = ("where true", "where false")
        return tuple(
            [
                body_of(title, text, [], device, watched)
                for title, text in zip(titles, attrs["bodies"], strict=True)
            ]
        )
    if node.op != "scan":
        return ()
    names = [f"carry {n}" for n in range(attrs["carries"])]
    names += [f"slice {n}" for n in range(attrs["slices"])]
    order = ", the last slice first" if attrs["reverse"] else ""
    order += ", or until the last result is true" if attrs.get("until") else ""
    return (body_of(f"{attrs['length']} times{order}", attrs["body"], names, device, watched),)


def body_of(
    title: str, text: str, names: Sequence[str], device: Any, watched: Watched
) -> BodyShown:
    """A program within, of its text."""
    whole = Graph.from_json(text)
    traced = plain(whole)
    number = {id(spec): n for n, spec in enumerate(whole.values)}
    lines = asked.get(text, {})
    asked_at = {n: lines.get(number[id(spec)]) for n, spec in enumerate(traced.values)}
    lineage = Lineage(traced, optimise(traced, device), asked_at)
    names = [*names, *[f"read {n}" for n in range(len(traced.inputs) - len(names))]]
    ran = lineage.ran
    launched = {n: watched[text, n] for n in range(len(ran.nodes)) if (text, n) in watched}
    return BodyShown(
        title,
        steps_of(lineage, names, launched, device, {}, watched),
        tuple([_value(lineage.values[n], ran.values[n]) for n in ran.outputs]),
    )
