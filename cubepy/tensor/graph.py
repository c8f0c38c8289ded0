"""Running a graph that was recorded, on other inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cubepy.errors import ShapeError
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.ir import ABSENT, Graph


def execute(
    graph: Graph,
    inputs: Sequence[Any],
    before: Callable[[int], Any] | None = None,
    run: Callable[..., Any] = apply,
) -> list[Tensor]:
    """Replay a graph on tensors (or arrays) and return its outputs as tensors.

    Args:
        graph: recorded by `record`, or read by `Graph.from_json`.
        inputs: one value for each of `graph.inputs`; the shapes may differ from the recorded ones
            as far as every op accepts them.
        before: is told the number of each node before it runs.
        run: gives the results of an op.

    Raises:
        ShapeError: too few or too many inputs, or shapes that an op refuses.
    """
    if len(inputs) != len(graph.inputs):
        raise ShapeError(f"the graph takes {len(graph.inputs)} inputs, {len(inputs)} were given")
    values: dict[int, Tensor | None] = {ABSENT: None}
    values.update((at, as_tensor(v)) for at, v in zip(graph.inputs, inputs, strict=True))
    last = {i: at for at, n in enumerate(graph.nodes) for i in n.inputs if i != ABSENT}
    for i in graph.outputs:
        last.pop(i, None)
    for at, (first, n) in enumerate(zip(graph.firsts, graph.nodes, strict=True)):
        if before is not None:
            before(at)
        if n.op == "detach":
            values[first] = values[n.inputs[0]].detach()  # type: ignore[union-attr]
        elif n.op != "input":
            made = run(n.op, *(values[i] for i in n.inputs), **dict(n.attrs))
            values.update(enumerate(made if type(made) is list else [made], first))
        for i in set(n.inputs):  # what no later op reads is let go, as in the run that was recorded
            if last.get(i) == at:
                del values[i]
    return [values[i] for i in graph.outputs]  # type: ignore[misc]
