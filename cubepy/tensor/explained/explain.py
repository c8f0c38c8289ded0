"""`cb.explain`: what a function of tensors becomes as a program, found out without doing it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from cubepy.errors import ArgumentError
from cubepy.runtime.replay.record import Recorder
from cubepy.tensor.explained.history import kind_of
from cubepy.tensor.explained.report import Explanation, shown
from cubepy.tensor.graph import execute
from cubepy.tensor.modes import no_grad
from cubepy.tensor.program.form import leaves_of
from cubepy.tensor.program.guards import Guards
from cubepy.tensor.program.jit import FIRST, Jitted
from cubepy.tensor.program.program import CHANCES, Program, launched
from cubepy.tensor.program.trace import Tracer
from cubepy.tensor.value import Handle
from cubepy.tune.explain import choice
from cubepy.tune.explain import explain as explain_call
from cubepy.tune.routine import listening


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


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a call of a function does: as a program, if it is one of tensors.

    The function is traced, and its steps run on the side; tensors, gradients, parameters and states
    of optimizers stay what they were (what is no op of tensors, such as printing, happens). Of a
    function that `cb.jit` has, its own traces and their reasons are shown.

    Args:
        function: of tensors, with `cb.jit` or without; or a function of the library that is given
            arrays (see `cubepy.tune.explain`).
        args, kwargs: its arguments. Of what `cb.jit` has they may be left out: then all of its
            programs are shown.

    Returns:
        An `Explanation`: `print` shows graph, fused steps with their formulas, kernels, why
        neighbours are not fused, guards and memory; notebooks draw it, `.save("x.svg")` writes it.

    Example:
        >>> import cubepy as cb
        >>> found = cb.explain(lambda x: (x * 2).exp(), cb.tensor([1.0, 2.0]))
        >>> found.programs[0].ops, found.traces
        (3, 1)
    """
    if isinstance(function, Jitted):
        return explained(function, args, kwargs) if args or kwargs else Explanation.of(function)
    if not callable(function):
        raise ArgumentError(f"cb.explain takes a function, not {type(function).__name__}")
    leaves: list[Any] = []
    leaves_of((args, kwargs), leaves)
    if not any(isinstance(leaf, Handle) for leaf in leaves) and hasattr(function, "explain"):
        return explain_call(function, *args, **kwargs)
    return explained(Jitted(function), args, kwargs)


def explained(jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    """The program of one call."""
    leaves: list[Any] = []
    structure = leaves_of((args, kwargs), leaves)
    key = jitted.key(structure, leaves)
    others = [leaf for leaf in leaves if not isinstance(leaf, (Handle, float))]
    reads = Guards(jitted.function, others)
    held = Held([*reads.reads.seen, *reads.watch.objects])
    private = Jitted(jitted.function)
    recorders: list[Rehearsal] = []

    def recorder(arguments: dict[int, Any], what: str) -> Rehearsal:
        recorders.append(Rehearsal(arguments, what))
        return recorders[-1]

    try:
        for _ in range(FIRST):  # states of optimizers are made in the first call
            private.traced(structure, leaves, recorder)
            if private.programs or private.refused:
                break
    finally:
        for one in reversed(recorders):
            one.undo()
        held.restore()
    programs = []
    for program in private.programs.get(private.key(structure, leaves), ()):
        arrays = tuple(
            v.storage.dense()
            for v, name in zip(recorders[-1].were, program.writer.values, strict=True)
            if name is not None
        )
        programs.append(shown(kind_of(key), program, rehearsed(program, arrays)))
    own = jitted if jitted.traces else private
    refused = {kind_of(k): why for k, why in private.refused.items()}
    traces = sum(own.traces.values())
    return Explanation(jitted.name, tuple(own.history.traced), traces, tuple(programs), refused)


def rehearsed(program: Program, arrays: tuple[Any, ...]) -> dict[int, list[str]]:
    """Run the steps of a program on the side, until its launches are known; what chose its kernels,
    by node.
    """
    for _ in range(CHANCES):
        if program.plan is None and program.chances:
            program.compute(arrays)
    nodes: list[tuple[int, int]] = []
    asked: list[tuple[int, tuple[Any, ...]]] = []
    with no_grad(), Recorder() as recorded:

        def before(at: int) -> None:
            nodes.append((at, len(recorded.steps)))

        with listening(lambda *one: asked.append((nodes[-1][0], one))):
            execute(program.graph, program.stores(arrays), before)
    if not program.launched:
        program.launched = launched(nodes, recorded)
    found: dict[int, list[str]] = {}
    for at, one in asked:
        text = f"{one[0].name}: {choice(*one).routine} ({choice(*one).how})"
        if text not in found.setdefault(at, []):
            found[at].append(text)
    return found
