"""What a program is, as data and as text."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cubepy.errors import ArgumentError
from cubepy.runtime.cache import write_atomically
from cubepy.tensor.explained.drawing import drawn
from cubepy.tensor.explained.history import Traced, kind_of
from cubepy.tensor.explained.lineage import Lineage, lines_of
from cubepy.tensor.explained.reasons import Unfused, unfused
from cubepy.tensor.explained.steps import StepShown, makers, steps_of
from cubepy.tensor.program.plans.arena import Lifetime

MOST_REASONS = 24
"""Reasons that the text says; the object has all."""
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".pdf", ".webp", ".html")
"""How names of pictures end that nothing is drawn as."""


@dataclass(frozen=True)
class ProgramShown:
    """A program.

    Attributes:
        kind: of its arguments.
        inputs: its inputs by what they are: argument, held (a tensor from outside), number...
        ops: how many ops were traced.
        steps: what runs.
        outputs: the nodes that give its results, and how many of them handles from outside get.
        effects: how many outputs are given to handles from outside.
        unfused: why neighbours are not one step.
        guards: what is looked at before it is used again.
        planned: why there is no plan of machine code; empty where there is one.
        launches: of a call by machine code.
        arena: bytes of memory for what is in between.
        peak: the most bytes of it that are used at the same time.
        lifetimes: what is in the arena, and when.
        memory: the bytes that it shall take at most, or None.
        repeated: how many of its steps run again because of that.
    """

    kind: str
    inputs: tuple[str, ...]
    ops: int
    steps: tuple[StepShown, ...]
    outputs: tuple[int, ...]
    effects: int
    unfused: tuple[Unfused, ...]
    guards: tuple[str, ...]
    planned: str
    launches: int = 0
    arena: int = 0
    lifetimes: tuple[Lifetime, ...] = ()
    memory: int | None = None
    repeated: int = 0

    @property
    def peak(self) -> int:
        """The most bytes of the arena that are used at the same time."""
        return peak_of(self.lifetimes)

    def text(self) -> list[str]:
        """The program in lines."""
        counted = Counter(self.inputs)
        inputs = ", ".join(f"{n} {kind}" for kind, n in counted.items()) or "none"
        steps = [s for s in self.steps if s.op != "input"]
        groups = sum(s.fused for s in steps)
        lines = [
            f"{_some(self.ops, 'op')} in {_some(len(steps), 'step')}, {groups} of them fused; "
            f"inputs: {inputs}",
            f"{_some(len(self.outputs), 'output')}, {self.effects} of handles from outside",
            f"guards: {', '.join(self.guards) or 'nothing but the arguments'}",
        ]
        if self.planned:
            lines.append(f"op by op: {self.planned}")
        else:
            lines.append(
                f"one call of machine code: {_some(self.launches, 'launch', 'launches')}, "
                f"{self.arena} bytes of arena ({self.peak} used at most, "
                f"{_some(len(self.lifetimes), 'array')})"
            )
        if self.memory is not None:
            again = f"{_some(self.repeated, 'step')} run again" if self.repeated else "it fits"
            lines.append(f"memory of at most {self.memory} bytes is wanted: {again}")
        lines.append("steps:")
        lines += [f"  {line}" for s in self.steps for line in s.text()]
        if self.unfused:
            lines.append("not fused:")
            lines += [f"  {reason}" for reason in self.unfused[:MOST_REASONS]]
            if len(self.unfused) > MOST_REASONS:
                lines.append(f"  ... {len(self.unfused) - MOST_REASONS} more")
        if self.lifetimes:
            lines.append("arena (bytes from, bytes, first and last launch):")
            lines += [
                f"  {one.offset:>10} {one.size:>10}  {one.first:>4} {one.last:>4}"
                for one in self.lifetimes[:MOST_REASONS]
            ]
            if len(self.lifetimes) > MOST_REASONS:
                lines.append(f"  ... {len(self.lifetimes) - MOST_REASONS} more")
        return lines


class Alone(NamedTuple):
    """What runs between programs, since data decide its results.

    Attributes:
        after: how many of the programs come before it.
        op: what it does.
        name: of the node.
    """

    after: int
    op: str
    name: str

    def __str__(self) -> str:
        return f"runs by itself, as data decide: node {self.name} ({self.op})"


@dataclass(frozen=True)
class Explanation:
    """What a function of tensors does as a program; printing it shows all, a notebook draws it.

    Attributes:
        function: its name.
        traced: its traces, with reasons; of the newest, the latest 64.
        traces: how many there were.
        programs: those that there are.
        refused: kinds of calls that run the function as it is, and why.
        alone: what runs between the programs of a graph that data part.
    """

    function: str
    traced: tuple[Traced, ...]
    traces: int
    programs: tuple[ProgramShown, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    alone: tuple[Alone, ...] = ()

    @staticmethod
    def of(jitted: Any) -> Explanation:
        """Of a function that `cb.jit` has: all that it did."""
        programs = tuple(
            shown(kind_of(key), program)
            for key, some in tuple(jitted.programs.items())
            for program in tuple(some)
        )
        refused = {kind_of(key): why for key, why in tuple(jitted.refused.items())}
        traces = sum(jitted.traces.values())
        return Explanation(jitted.name, tuple(jitted.history.traced), traces, programs, refused)

    def __str__(self) -> str:
        kinds = len({p.kind for p in self.programs} | set(self.refused))
        kinds_text = f"{kinds} kind{'' if kinds == 1 else 's'} of arguments"
        lines = [f"{self.function}: {kinds_text}, {_some(self.traces, 'trace')}"]
        lines += [f"  {one}" for one in self.traced]
        for kind, why in self.refused.items():
            lines += [kind, f"  runs as it is: {why}"]
        for n, program in enumerate(self.programs):
            lines += [str(one) for one in self.alone if one.after == n]
            lines += [program.kind, *[f"  {line}" for line in program.text()]]
        lines += [str(one) for one in self.alone if one.after == len(self.programs)]
        return "\n".join(lines)

    def __contains__(self, text: str) -> bool:
        """Whether the text says something."""
        return text in str(self)

    def _repr_svg_(self) -> str:
        return drawn(self.function, self.programs)

    def save(self, path: Any) -> None:
        """Write the drawing (of a name that ends in `.svg`), or the text, to a file.

        The file is whole or not there: it is written beside and renamed.

        Raises:
            ArgumentError: a name of another kind of picture.
        """
        target = Path(path)
        kind = target.suffix.lower()
        if kind in PICTURES:
            raise ArgumentError(
                f"a program is drawn as .svg, not as {kind}",
                hint=f"save it as {target.with_suffix('.svg').name!r}, or as .txt, which is text",
            )
        text = self._repr_svg_() if kind == ".svg" else f"{self}\n"
        write_atomically(target, text.encode())


def shown(kind: str, program: Any, routines: Mapping[int, Sequence[str]] | None = None) -> Any:
    """A program as data.

    Args:
        kind: of its arguments.
        program: a `Program`.
        routines: by node, what chose its kernels, where that is known.
    """
    trace, graph = program.writer.trace, program.graph
    lineage = Lineage(trace.graph, graph, lines_of(trace.graph, trace.asked))
    made = makers(graph)
    names = [_named(source, program) for source in program.sources]
    device = program.writer.home
    steps = steps_of(lineage, names, program.launched, device, routines or {}, program.within)
    operands = program.operands
    return ProgramShown(
        kind,
        tuple(source.kind for source in trace.sources),
        len([n for n in trace.graph.nodes if n.op != "input"]),
        steps,
        tuple(made[i] for i in graph.outputs),
        len(trace.effects),
        tuple(unfused(lineage)),
        tuple(program.guards.names()),
        program.why if program.plan is None else "",
        0 if program.plan is None else program.plan.steps,
        0 if operands is None else operands.arena,
        () if operands is None else tuple(operands.lifetimes),
        program.memory,
        program.repeated,
    )


def _named(source: Any, program: Any) -> str:
    """An input as the user knows it."""
    if source is None:
        return "made of weights, kept"
    if source.kind == "argument":
        path = program.writer.paths[source.of]
        names = _parameters(program.eagerly)
        found = re.match(r"args\[(\d+)\](.*)", path)
        if found is None or int(found[1]) >= len(names):
            return path
        return names[int(found[1])] + found[2]
    if source.kind == "number":
        return f"number {source.of[0]}"
    return {"held": "tensor from outside", "computed": "numbers of a step"}.get(
        source.kind, source.kind
    )


def _parameters(function: Any) -> list[str]:
    try:
        found = inspect.signature(function).parameters.values()
        return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        return []


def _some(n: int, one: str, several: str = "") -> str:
    return f"{n} {one if n == 1 else several or one + 's'}"


def peak_of(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes that are used at the same time.

    Example:
        >>> peak_of([Lifetime(0, 100, 0, 1), Lifetime(128, 64, 1, 2), Lifetime(0, 50, 2, 3)])
        164
    """
    steps = {one.first for one in lifetimes}
    return max((sum(o.size for o in lifetimes if o.first <= n <= o.last) for n in steps), default=0)
