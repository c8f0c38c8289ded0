"""Gradients through a program: its results remember it as one call.

The walk back runs another program, which computes what the first one computed again, and the
gradients by its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.errors import ShapeError
from cubepy.tensor.array import Tensor
from cubepy.tensor.gradients.engine import walk_back
from cubepy.tensor.gradients.rules import Backward
from cubepy.tensor.graph import execute
from cubepy.tensor.ir import Graph
from cubepy.tensor.modes import enable_grad, mode
from cubepy.tensor.ops import OPS
from cubepy.tensor.ops.op import Op, Spec
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Call, Number, Value

PROGRAM = "program"
"""An op that only calls have, none that tensors run: a whole program."""


def gradients(
    graph: Graph,
    inputs: Sequence[Tensor | None],
    needs: Sequence[bool],
    grads: Sequence[Tensor | None],
    create_graph: bool = False,
) -> list[Tensor | None]:
    """Gradients by those inputs of a graph that need them, of gradients by its outputs (those that
    need any).
    """
    given: list[Any] = list(inputs)
    if not create_graph:
        given = [
            t if t is None else t.detach().requires_grad_(need)
            for t, need in zip(inputs, needs, strict=True)
        ]
    with enable_grad():
        outputs = execute(graph, given)
    seeds = [
        (t.value, g)
        for t, g in zip(outputs, grads, strict=True)
        if g is not None and t.value.needs_grad
    ]
    wanted = [t.value for t, need in zip(given, needs, strict=True) if need]
    found = walk_back(seeds, wanted, _tensor, create_graph=create_graph, retain_graph=create_graph)
    return [found.get(t.value) if need else None for t, need in zip(given, needs, strict=True)]


def _tensor(value: Value) -> Tensor:
    made: Tensor = object.__new__(Tensor)
    made.value = value
    return made


def _through_program(seen: Backward, *grads: Any) -> list[Any]:
    if mode.enabled:
        return gradients(seen.attrs["graph"], seen.inputs, seen.needs, grads, True)
    inputs = [None if t is None else t.detach() for t in seen.inputs]
    return seen.attrs["backward"](inputs, list(seen.needs), list(grads))  # type: ignore[no-any-return]


def _no_rule(*specs: Spec, **attrs: Any) -> Spec:
    raise ShapeError("only calls that gradients remember are programs")


OPS[PROGRAM] = Op(PROGRAM, "opaque", _no_rule, _no_rule, vjp=_through_program)


def remember(attrs: dict[str, Any], inputs: tuple[Any, ...], results: list[Value]) -> None:
    """Let the results of a program remember it; inputs are values, and arrays of numbers."""
    values = tuple([v if isinstance(v, Value) else Number(Dense(v)) for v in inputs])
    call = Call(PROGRAM, values, attrs, results)
    for value in results:
        value.call, value.needs_grad = call, True
