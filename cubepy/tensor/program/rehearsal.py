"""Tracing a function without its effects: what handles, dicts and lists had is given back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cubepy.tensor.program.guards import Guards
from cubepy.tensor.program.trace import Tracer
from cubepy.tensor.value import Handle


class Rehearsal(Tracer):
    """A tracer of which nothing is computed; every handle from outside gets back what it had."""

    runs = False

    def hand_over(self) -> None:
        """What was passed stays as it is."""


class Held:
    """Dicts and lists that some objects hold, to be filled again with what was in them."""

    def __init__(self, objects: Iterable[Any]) -> None:
        self.were: list[tuple[Any, Any]] = []
        seen: set[int] = set()
        stack = [vars(o) for o in objects if hasattr(o, "__dict__")]
        while stack:
            one = stack.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            self.were.append((one, one.copy()))
            inside = one.values() if isinstance(one, dict) else one
            stack += [v for v in inside if type(v) in (dict, list)]

    def restore(self) -> None:
        """Fill them again."""
        for one, before in self.were:
            if isinstance(one, list):
                one[:] = before
            elif list(one.items()) != list(before.items()):
                one.clear()
                one.update(before)


def rehearse(
    function: Callable[..., Any],
    leaves: list[Any],
    trace: Callable[[Callable[..., Tracer]], bool],
    most: int,
) -> tuple[Any, ...]:
    """Trace a function until a trace holds; the arrays of its inputs.

    Args:
        function: what is traced.
        leaves: its arguments.
        trace: traces once, by a recorder that it makes of what it is given; says whether that was
            all.
        most: how often; states of optimizers are made in the first call.
    """
    others = [leaf for leaf in leaves if not isinstance(leaf, (Handle, float))]
    reads = Guards(function, others)
    held = Held([*reads.reads.seen, *reads.watch.objects])
    recorders: list[Rehearsal] = []

    def recorder(arguments: dict[int, Any], what: str) -> Rehearsal:
        recorders.append(Rehearsal(arguments, what))
        return recorders[-1]

    try:
        for _ in range(most):
            if trace(recorder):
                break
    finally:
        for one in reversed(recorders):
            one.undo()
        held.restore()
    return tuple(recorders[-1].were) if recorders else ()
