"""What fusing makes of a graph, known from a graph of the same structure and other sizes.

Two graphs have one structure if their ops, what these read and their attributes are the same, up to
whole numbers. The numbers in which graphs of a structure differ become lengths, and the passes run
with these (see `sizes`): what they give is a pattern, for every further graph that answers their
questions alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from cubepy.runtime.device import Device
from cubepy.runtime.tables import room
from cubepy.tensor.fusion.structures import kept
from cubepy.tensor.fusion.structures.general import Fused, General
from cubepy.tensor.fusion.structures.sizes import Size, Sizes
from cubepy.tensor.ir import Graph, Node
from cubepy.tensor.ops import Spec

KEPT = 64
"""Structures that are known."""
SEEN, PATTERNS, CHANCES = 8, 4, 8
"""Of a structure: graphs whose numbers are compared, patterns that are kept, for sizes that lead to
other decisions, and how often one is looked for."""
LEAST = 16
"""Nodes of a graph from which on a pattern is worth its memory."""


Fuse = Callable[[Graph, Device, Collection[int]], Fused]


_known: dict[Any, Structure] = {}


def fused_alike(graph: Graph, device: Device, weights: Collection[int], anew: Fuse) -> Fused:
    """A graph fused, by what is known of graphs of its structure.

    Args:
        graph: what was recorded.
        device: where it will run.
        weights: inputs that stay as they are from call to call.
        anew: fuses a graph of which nothing is known.
    """
    numbers: list[int] = []
    key = structure_of(graph, numbers) if len(graph.nodes) >= LEAST else None
    if key is None:
        return anew(graph, device, weights)
    known = _known.get((key, device, tuple(weights)))
    if known is not None:
        found = known.fused(graph, numbers, lambda general: anew(general, device, weights))
        return anew(graph, device, weights) if found is None else found
    room(_known, KEPT)
    _known[key, device, tuple(weights)] = Structure(numbers)
    name = kept.name_of(graph, key, numbers, device, weights)
    found = None if name is None else kept.fused_before(name, graph)
    if found is None:
        found = anew(graph, device, weights)
        if name is not None:
            kept.keep(name, graph, found)
    return found


class Structure:
    """Graphs of one structure.

    Args:
        numbers: of the first one.

    Attributes:
        seen: the numbers of some.
        patterns: what is known of fusing them.
        missed: questions that others answered in another way.
        chances: how many patterns more are looked for.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.seen = [numbers]
        self.patterns: list[Pattern] = []
        self.missed: set[Any] = set()
        self.chances = CHANCES

    def fused(
        self, graph: Graph, numbers: Sequence[int], fuse: Callable[[Graph], Fused]
    ) -> Fused | None:
        """A graph fused; None where that is not known.

        Args:
            graph: of the structure.
            numbers: in it.
            fuse: fuses a graph.
        """
        missed: Any = None
        for pattern in tuple(self.patterns):
            lengths = pattern.lengths(numbers)
            if lengths is not None:
                missed = pattern.sizes.differs(lengths)
                if missed is None:
                    return pattern.fused(graph, lengths)
        if missed is not None and missed not in self.missed:  # it may be by chance
            self.missed.add(missed)
            return None
        before, self.seen = self.seen, [*self.seen, numbers][-SEEN:]
        if not self.chances or numbers in before:
            return None
        self.chances -= 1
        try:
            pattern = Pattern(graph, self.seen, fuse)
        except TypeError:  # a pass needs numbers
            return None
        self.patterns = [pattern, *self.patterns][:PATTERNS]
        return pattern.fused(graph, pattern.sizes.values(pattern.now))


def structure_of(graph: Graph, numbers: list[int]) -> Any:
    """What a graph shares with those of other sizes; None where it names objects of Python.

    Args:
        graph: what was recorded.
        numbers: gets the whole numbers in it.
    """
    found: list[Any] = [graph.inputs, graph.outputs]
    try:
        for node in graph.nodes:
            found.append((node.op, node.inputs))
            for name, value in node.attrs:
                found.append(name)
                _attribute(value, numbers, found)
            for shape, dtype in node.results:
                numbers += shape
                found += (len(shape), dtype)
    except TypeError:
        return None
    return tuple(found)


_INTS = frozenset({int})


def _attribute(value: Any, numbers: list[int], found: list[Any]) -> None:
    """Note an attribute.

    Raises:
        TypeError: it is none of plain data.
    """
    kind = type(value)
    if kind is int:
        numbers.append(value)
        found.append(int)
    elif kind is tuple:
        found.append(len(value))
        if {*map(type, value)} == _INTS:
            numbers += value
            found.append(_INTS)
            return
        for part in value:
            _attribute(part, numbers, found)
    elif kind is float:
        found.append((float, value.hex()))
    elif kind in (str, bool, type(None)):
        found.append((kind, value))
    else:
        raise TypeError(kind)


class Pattern:
    """What fusing gives for graphs of one structure.

    Args:
        graph: one of them.
        seen: the numbers of some of them, the last ones its own.
        fuse: fuses a graph.

    Attributes:
        kinds: of each number of a graph, which length it is.
        now: the numbers of the lengths in this graph.
        fixed: the lengths that are the same in all graphs.
        sizes: the lengths.

    Raises:
        TypeError: the passes cannot do with lengths.
    """

    def __init__(
        self, graph: Graph, seen: Sequence[Sequence[int]], fuse: Callable[[Graph], Fused]
    ) -> None:
        kinds: dict[tuple[int, ...], int] = {}
        self.kinds = [kinds.setdefault(of, len(kinds)) for of in zip(*seen, strict=True)]
        self.now = [of[-1] for of in kinds]
        self.fixed = [n for of, n in kinds.items() if len(set(of)) == 1]
        self.sizes = Sizes(self.now)
        general = self.general(graph)
        found = fuse(general)
        self.inputs, self.preparations = found.inputs, found.preparations
        varies = self.sizes.varying(self.fixed)
        of_graph = {id(spec): n for n, spec in enumerate(general.values)}
        graphs = found.graphs
        for number in {n for one in graphs for s in one.values for n in s.shape if type(n) is int}:
            if number != 1 and any(s == number for s in tuple(self.sizes.all) if varies[s.at]):
                raise TypeError(f"a length and {number}, which a pass gave")
        self.graph, *self.ways = [General(one, of_graph, varies) for one in graphs]

    def general(self, graph: Graph) -> Graph:
        """A graph with lengths for numbers; in attributes, for those whose names have some that
        vary.
        """
        given: list[Any] = self.sizes.given
        fixed, kinds = set(self.fixed), iter(self.kinds)
        read = [
            (
                node,
                [(name, _numbers(v, kinds)) for name, v in node.attrs],
                [[next(kinds) for _ in shape] for shape, _ in node.results],
            )
            for node in graph.nodes
        ]
        vary = {name for _, attrs, _ in read for name, of in attrs if not fixed.issuperset(of)}
        nodes = []
        for node, attrs, shapes in read:
            lengths = [
                (name, _with(v, iter([given[n] for n in of])) if name in vary else v)
                for (name, v), (_, of) in zip(node.attrs, attrs, strict=True)
            ]
            results = [
                Spec(tuple([given[n] for n in of]), spec.dtype)
                for of, spec in zip(shapes, node.results, strict=True)
            ]
            nodes.append(Node(node.op, node.inputs, tuple(lengths), tuple(results)))
        return Graph(tuple(nodes), graph.inputs, graph.outputs)

    def lengths(self, numbers: Sequence[int]) -> list[int] | None:
        """The numbers of all lengths for those of a graph; None where other ones are equal."""
        given = self.now.copy()
        for kind, number in zip(self.kinds, numbers, strict=True):
            given[kind] = number
        if [given[kind] for kind in self.kinds] != numbers:
            return None
        if any(given[kind] != self.now[kind] for kind in self.fixed):
            return None
        try:
            return self.sizes.values(given)
        except ZeroDivisionError:
            return None

    def fused(self, graph: Graph, lengths: Sequence[int]) -> Fused:
        """A graph fused.

        Args:
            graph: of the structure.
            lengths: the numbers of all lengths.
        """
        specs = graph.values
        ways = [
            (way.inputs, general.graph(specs, lengths))
            for way, general in zip(self.preparations, self.ways, strict=True)
        ]
        return Fused.of(self.graph.graph(specs, lengths), self.inputs, ways)


def _numbers(value: Any, kinds: Iterator[int]) -> list[int]:
    """The lengths that the numbers of an attribute are, of those that come."""
    if type(value) is tuple:
        return [n for part in value for n in _numbers(part, kinds)]
    return [next(kinds)] if type(value) is int else []


def _with(value: Any, lengths: Iterator[Size]) -> Any:
    """An attribute with lengths for its numbers."""
    if type(value) is tuple:
        return tuple([_with(part, lengths) for part in value])
    return next(lengths) if type(value) is int else value
