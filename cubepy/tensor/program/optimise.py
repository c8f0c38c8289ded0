"""What happens to a graph between its trace and its launches."""

from __future__ import annotations

from collections.abc import Callable

from cubepy.tensor.ir import Graph

passes: list[Callable[[Graph], Graph]] = []
"""What changes graphs, in order: each gives a graph of the same inputs and outputs."""


def optimise(graph: Graph) -> Graph:
    """The graph that a program runs instead of the one that was traced."""
    for change in passes:
        graph = change(graph)
    return graph
