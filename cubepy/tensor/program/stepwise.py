"""Running a graph of a trace op by op; errors name the lines that the function asked for ops in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cubepy.errors import CubeError
from cubepy.runtime.device import Device, use
from cubepy.tensor.array import Tensor
from cubepy.tensor.explained.lineage import Lineage
from cubepy.tensor.graph import execute
from cubepy.tensor.ir import Graph
from cubepy.tensor.modes import no_grad
from cubepy.tensor.value import located, outside


def arrays_by_steps(
    graph: Graph,
    tensors: Sequence[Tensor],
    home: Device,
    lineage: Callable[[], Lineage],
    before: Callable[[int], Any] | None = None,
) -> list[Any]:
    """The arrays of the outputs.

    Args:
        graph: what runs.
        tensors: its inputs.
        home: where constants are made.
        lineage: gives which traced ops its nodes are.
        before: is told the number of each node before it runs.
    """
    at = 0

    def note(node: int) -> None:
        nonlocal at
        at = node
        if before is not None:
            before(node)

    try:
        with no_grad(), use(home):
            return [t.storage.dense() for t in execute(graph, tensors, note)]
    except CubeError as error:
        lines = lineage().lines(at)
        if lines and error.location in (None, located(outside())):
            error.location = lines[0]
        raise
