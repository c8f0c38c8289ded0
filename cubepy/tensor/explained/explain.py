"""`cb.explain`: what a function of tensors becomes as a program, found out without doing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError
from cubepy.runtime.replay.record import Recorder
from cubepy.tensor.array import as_tensor
from cubepy.tensor.control.body import watcher
from cubepy.tensor.explained.history import kind_of
from cubepy.tensor.explained.report import Explanation, shown
from cubepy.tensor.graph import execute
from cubepy.tensor.modes import no_grad
from cubepy.tensor.program.form import leaves_of, rebuilt
from cubepy.tensor.program.jit import Jitted
from cubepy.tensor.program.program import Program, kernels_of, launched
from cubepy.tensor.value import Handle, Value
from cubepy.tune.explain import choice
from cubepy.tune.explain import explain as explain_call
from cubepy.tune.routine import listening


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a call of a function does: as a program, if it is one of tensors.

    The function is traced, and its steps run on the side; tensors, gradients, parameters and states
    of optimizers stay what they were (what is no op of tensors, such as printing, happens). Of a
    function that `cb.jit` has, its own traces and their reasons are shown.

    Args:
        function: of tensors, with `cb.jit` or without; or a function of the library that is given
            arrays (see `cubepy.tune.explain`).
        args, kwargs: its arguments. NumPy's arrays stand for tensors of them. Of what `cb.jit` has
            they may be left out: then all of its programs are shown.

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
    in_parts = getattr(type(function), "__cubepy_explain__", None)
    if in_parts is not None and (found := in_parts(function, args, kwargs)) is not None:
        return found
    leaves: list[Any] = []
    leaves_of((args, kwargs), leaves)
    if not any(isinstance(leaf, Handle) for leaf in leaves) and hasattr(function, "explain"):
        return explain_call(function, *args, **kwargs)
    args, kwargs = rebuilt(leaves_of((args, kwargs), []), map(_tensor, leaves))
    return explained(Jitted(function), args, kwargs)


def _tensor(leaf: Any) -> Any:
    """An array of numbers as a tensor; all else as it is."""
    numbers = isinstance(leaf, np.ndarray) and leaf.dtype.kind not in "OUSMm"
    return as_tensor(leaf) if numbers else leaf


def explained(jitted: Jitted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    """The program of one call."""
    leaves: list[Any] = []
    structure = leaves_of((args, kwargs), leaves)
    key = jitted.key(structure, leaves)
    private = Jitted(jitted.function, jitted.memory)
    values = private.rehearse(structure, leaves)
    programs = []
    for program in private.programs.get(private.key(structure, leaves), ()):
        programs.append(shown(kind_of(key), program, rehearsed(program, values)))
    own = jitted if jitted.traces else private
    refused = {kind_of(k): why for k, why in private.refused.items()}
    traces = sum(own.traces.values())
    return Explanation(jitted.name, tuple(own.history.traced), traces, tuple(programs), refused)


def rehearsed(program: Program, values: Sequence[Value]) -> dict[int, list[str]]:
    """Run the steps of a program on the side, until its launches are known; what chose its kernels,
    by node.
    """
    program.settle(values)
    nodes: list[tuple[int, int]] = []
    inner: list[tuple[tuple[str, int] | None, int]] = []
    asked: list[tuple[int, tuple[Any, ...]]] = []
    with no_grad():  # what is prepared once belongs to no node
        given = program.stores(program.given(values))
    with no_grad(), Recorder() as recorded:

        def before(at: int) -> None:
            nodes.append((at, len(recorded.steps)))
            inner.append((None, len(recorded.steps)))

        def within(text: str, at: int) -> None:
            inner.append(((text, at), len(recorded.steps)))

        token = watcher.set(within)
        try:
            with listening(lambda *one: asked.append((nodes[-1][0], one))):
                execute(program.graph, given, before)
        finally:
            watcher.reset(token)
    ends = [*[first for _, first in inner[1:]], len(recorded.steps)][: len(inner)]
    for (key, first), end in zip(inner, ends, strict=True):
        if key is not None and key not in program.within:  # the first time stands for all
            program.within[key] = kernels_of(recorded.steps[first:end])
    if not program.launched:
        program.launched = launched(nodes, recorded)
    found: dict[int, list[str]] = {}
    for at, one in asked:
        text = f"{one[0].name}: {choice(*one).routine} ({choice(*one).how})"
        if text not in found.setdefault(at, []):
            found[at].append(text)
    return found
