"""Tracing a function without its effects: what handles, dicts and lists had is given back."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from cubepy.tensor.program.guards import Guards
from cubepy.tensor.program.trace import Tracer
from cubepy.tensor.value import Handle


class Rehearsal(Tracer):
    """A tracer that gives every handle from outside back what it had."""

    def __init__(self, arguments: dict[int, Any], what: str) -> None:
        super().__init__(arguments, what)
        self.had: dict[int, tuple[Handle, Any]] = {}
        self.gradients: dict[int, tuple[Handle, Any]] = {}

    def exchanges(self, tensor: Handle) -> None:
        self.had.setdefault(id(tensor), (tensor, tensor.value))
        super().exchanges(tensor)

    def gradient(self, tensor: Handle, changes: bool) -> None:
        if changes:
            grad = getattr(tensor, "_grad", None)
            self.gradients.setdefault(id(tensor), (tensor, grad))
        super().gradient(tensor, changes)

    def hand_over(self) -> None:
        """What was passed stays as it is."""

    def undo(self) -> None:
        """Give back what handles had."""
        for tensor, value in self.had.values():
            tensor.value = value
            if value.needs_grad and value.call is None:
                value.handle = weakref.ref(tensor)
        for tensor, grad in self.gradients.values():
            tensor._grad = grad  # type: ignore[attr-defined]


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
