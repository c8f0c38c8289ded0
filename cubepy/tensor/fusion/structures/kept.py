"""What fusing made of a graph, kept on disk for the next process.

The name of a record is a hash of all that the passes depend on: the graph, the processor, and the
state of cubepy's own files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from cubepy.config import config
from cubepy.runtime import cache
from cubepy.runtime.ahead.described import Unknown, described, sources
from cubepy.runtime.ahead.walked import read, write
from cubepy.runtime.device import Device, device_properties
from cubepy.tensor.fusion.structures.general import Fused, General
from cubepy.tensor.ir import Graph

LEAST = 64
"""Nodes of a graph from which on fusing takes longer than reading what it gave."""


class Record(NamedTuple):
    """A graph fused.

    Attributes:
        graph: the steps.
        inputs: which inputs of the traced graph are its first ones.
        ways: how the other ones are made: of which inputs, and the steps.
    """

    graph: General
    inputs: tuple[int, ...]
    ways: tuple[tuple[tuple[int, ...], General], ...]


def name_of(
    graph: Graph, structure: Any, numbers: Sequence[int], device: Device, weights: Collection[int]
) -> str | None:
    """The name of the record of a graph; None where none is kept."""
    if len(graph.nodes) < LEAST or device.backend != "cpu" or not config.cache:
        return None
    state = sources()
    if state is None:
        return None
    try:
        properties = described(device_properties(device))
    except Unknown:
        return None
    return cache.digest(
        "fused", state, repr(structure), repr((numbers, tuple(weights))), properties
    )


def fused_before(name: str, graph: Graph) -> Fused | None:
    """What another process has made of a graph; None where none has."""
    found = read(name)
    if type(found) is not Record:
        return None
    specs = graph.values
    ways = [(inputs, general.graph(specs, ())) for inputs, general in found.ways]
    return Fused.of(found.graph.graph(specs, ()), found.inputs, ways)


def keep(name: str, graph: Graph, fused: Fused) -> None:
    """Let other processes know what a graph becomes."""
    kept = {id(spec): n for n, spec in enumerate(graph.values)}
    try:
        first, *others = [General(one, kept, ()) for one in fused.graphs]
    except TypeError:  # attributes that are no plain data
        return
    ways = [(way.inputs, one) for way, one in zip(fused.preparations, others, strict=True)]
    write(name, Record(first, fused.inputs, tuple(ways)))
