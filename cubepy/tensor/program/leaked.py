"""What is kept of a trace though it is no result of it: later calls would not compute it again, so
it may not be looked at.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cubepy.errors import LaunchError
from cubepy.tensor.ir import Node
from cubepy.tensor.program.plans.steady import changed
from cubepy.tensor.program.promised import is_there
from cubepy.tensor.storage import Gone, Storage
from cubepy.tensor.value import Call, Value, located


class Leaked(Gone):
    """No elements: whoever asks for them is told where they were computed."""

    __slots__ = ("line", "what")

    def __init__(self, store: Storage, what: str, line: Any) -> None:
        super().__init__(store)
        self.what, self.line = what, line

    def why(self) -> Exception:
        return LaunchError(
            f"a tensor that {self.what} computed while it was traced was kept, and is no result of "
            "it: later calls would not compute it again",
            location=located(self.line),
            hint="return it, or give it to a tensor from outside with assign_",
        )


class Made:
    """The values that the ops of a trace gave, as long as somebody has them; and others of the same
    elements.
    """

    def __init__(self) -> None:
        self.values: list[weakref.ref[Value]] = []
        self.lines: list[Any] = []

    def add(self, values: Iterable[Value], line: Any) -> None:
        """An op gave values, where the user's code asked for it."""
        for value in values:
            self.values.append(weakref.ref(value))
            self.lines.append(line)

    def close(
        self,
        moving: Callable[[], set[int]],
        legitimate: Iterable[Value],
        what: str,
        same: Mapping[int, int],
    ) -> None:
        """Take the elements of what was kept, as far as they depend on more than constants.

        Args:
            moving: gives the recorded values that depend on more than constants.
            legitimate: values that go on: what leads to them does so, too.
            what: the name of what was traced.
            same: which recorded values others have the elements of.
        """
        allowed: set[int] = set()
        stack: list[Any] = list(legitimate)
        while stack:
            value = stack.pop()
            if value.id not in allowed:
                allowed.add(value.id)
                stack += _before(value.call)
        for known, line in zip(self.values, self.lines, strict=True):
            value = known()
            if value is None or value.id in allowed:
                continue
            alias = value.id in same
            if same.get(value.id, value.id) in moving() and not (alias and is_there(value.storage)):
                value.storage = Leaked(value.storage, what, line)
                changed((value,))


def moving_in(nodes: Sequence[tuple[tuple[int, ...], Node]], fixed: set[int]) -> set[int]:
    """The values that depend on more than constants."""
    moving: set[int] = set()
    for keys, node in nodes:
        if node.op == "input":
            moving.update(set(keys) - fixed)
        elif not moving.isdisjoint(node.inputs):
            moving.update(keys)
    return moving


def _before(call: Call | None) -> list[Value]:
    """What gradients need of a call."""
    if call is None:
        return []
    given = [v for v in call.inputs or () if v is not None]
    given += [t.value for t in call.attrs.get("own", ())]  # saved by a gradient that is given
    return [*given, *call.kept, *[v for ref in call.results if (v := ref()) is not None]]
