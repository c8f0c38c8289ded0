"""The short way of a call of a graph that is one program."""

from __future__ import annotations

from typing import Any

from cubepy.tensor import Tensor


class Whole:
    """A graph that is one program of tensors, and nothing else.

    Attributes:
        reads: the inputs that it reads, in the order of the program's.
        program: it.
        outputs: names of the graph's outputs.
    """

    __slots__ = ("outputs", "program", "reads")

    def __init__(self, reads: list[str], program: Any, outputs: list[str]) -> None:
        self.reads, self.program, self.outputs = tuple(reads), program, tuple(outputs)

    @classmethod
    def of(cls, runner: Any) -> Whole | None:
        """What calls a graph so; None for one that is no single program."""
        first = runner.stages.get(0)
        segment = None if first is None else first.segment
        if first is None or segment is None or first.end < len(runner.steps) or runner.captured:
            return None
        if not {*runner.outputs} <= {*segment.gives}:
            return None
        return cls(segment.reads, segment.program, runner.outputs)

    def __call__(self, env: dict[str, Any]) -> dict[str, Any] | None:
        """The outputs by name; None where an input is no tensor.

        Raises:
            NeedsElements: what was one program is several for such inputs.
        """
        given = {}
        for name in self.reads:
            value = env.get(name)
            if type(value) is not Tensor:
                return None
            given[name] = value
        found = self.program(given, None)
        if len(found) == 1:
            return found  # type: ignore[no-any-return]
        return {name: found[name] for name in self.outputs}
