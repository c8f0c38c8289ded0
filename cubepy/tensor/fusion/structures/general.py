"""A fused graph without the numbers of the graph that it was made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from cubepy.tensor.fusion.steady import Preparation
from cubepy.tensor.fusion.structures.sizes import Size
from cubepy.tensor.ir import Graph, Node
from cubepy.tensor.ops import Spec
from cubepy.tensor.ops.op import spec_of


class Fused(NamedTuple):
    """A graph in fewer steps, and what it reads.

    Attributes:
        graph: the steps.
        inputs: which inputs of the traced graph are its first ones.
        preparations: how the other ones are made.
    """

    graph: Graph
    inputs: tuple[int, ...]
    preparations: tuple[Preparation, ...]

    @property
    def graphs(self) -> list[Graph]:
        """All of its graphs."""
        return [self.graph, *[way.graph for way in self.preparations]]

    @staticmethod
    def of(
        graph: Graph, inputs: tuple[int, ...], ways: Iterable[tuple[tuple[int, ...], Graph]]
    ) -> Fused:
        """A graph fused, of its parts."""
        return Fused(graph, inputs, tuple([Preparation(*way) for way in ways]))


class General:
    """A graph whose lengths get numbers.

    Args:
        general: the graph.
        kept: numbers of the values of the graph it was made of, by the identities of their specs.
        varies: which lengths do.

    Raises:
        TypeError: an attribute is no plain data.
    """

    def __init__(self, general: Graph, kept: dict[int, int], varies: Sequence[bool]) -> None:
        self.inputs, self.outputs, self.varies = general.inputs, general.outputs, varies
        self.nodes: list[tuple[Node, Any, list[Any], bool]] = []
        for node in general.nodes:
            attrs = self.settled(node.attrs)
            results = [kept[id(s)] if id(s) in kept else self.settled(s) for s in node.results]
            one, blanks = Node(node.op, node.inputs, attrs, ()), _blanks(attrs)
            if type(blanks) is not list:
                assert one.exactly  # which all graphs share from here on
            same = all(type(r) is int for r in results)
            self.nodes.append(
                (one, blanks, [r if type(r) is int else _blanks(r) for r in results], same)
            )

    def settled(self, value: Any) -> Any:
        """A value with numbers for the lengths that do not vary."""
        kind = type(value)
        if kind is Size:
            return value if self.varies[value.at] else value.number
        if kind is tuple:
            return tuple([self.settled(part) for part in value])
        if kind is Spec:
            return Spec(self.settled(value.shape), value.dtype)
        if kind not in (int, float, str, bool, type(None)):
            raise TypeError(kind)
        return value

    def graph(self, specs: Sequence[Spec], lengths: Sequence[int]) -> Graph:
        """The graph for numbers.

        Args:
            specs: of the values of the graph that is fused; what stays has the same ones.
            lengths: all numbers.
        """
        nodes = []
        for node, blanks, results, same in self.nodes:
            if same:
                found = [specs[s] for s in results]
            else:
                found = [specs[s] if type(s) is int else _filled(s, lengths) for s in results]
            if type(blanks) is list:
                attrs = _filled(blanks, lengths)
                nodes.append(Node(node.op, node.inputs, attrs, tuple(found)))
            else:
                nodes.append(node.giving(tuple(found)))
        return Graph(tuple(nodes), self.inputs, self.outputs)


def _blanks(value: Any) -> Any:
    """A value with lists for those of its tuples that lengths are in; specs are such with a
    shape.
    """
    if type(value) is Spec:
        return spec_of((_blanks(value.shape), value.dtype))
    if type(value) is tuple:
        parts = [*map(_blanks, value)]
        return parts if any(type(p) in (Size, list) for p in parts) else value
    return value


def _filled(value: Any, lengths: Sequence[int]) -> Any:
    """A value of `_blanks` with numbers for its lengths."""
    kind = type(value)
    if kind is Size:
        return lengths[value.at]
    if kind is list:
        return tuple([_filled(part, lengths) for part in value])
    return spec_of((_filled(value[0], lengths), value[1])) if kind is Spec else value
