"""Functions of a file: how much they come to, before any is written out, and their attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from cubepy.errors import ModelError
from cubepy.models.formats.onnx import Graph, Model, Node
from cubepy.models.onnx.constants import DEEPEST

Key: TypeAlias = tuple[str, str, str]
SOME, TIMES = 2048, 64
"""Nodes that functions may come to: so many, and so many times those that the file has."""


def inside(nodes: list[Node]) -> Iterator[Node]:
    """Nodes, and those of their subgraphs."""
    for node in nodes:
        yield node
        for value in node.attributes.values():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, Graph):
                    yield from inside(one.nodes)


def check_functions(model: Model) -> None:
    """Count the nodes that calls of functions come to, without making any.

    Raises:
        ModelError: a function that calls itself, calls that are too deep, or too many nodes.
    """
    if not model.functions:
        return
    sizes: dict[Key, tuple[int, int]] = {}
    graphs = [model.graph.nodes, *(f.nodes for f in model.functions.values())]
    most = SOME + TIMES * sum(1 for nodes in graphs for _ in inside(nodes))

    def size(nodes: list[Node], above: tuple[Key, ...]) -> tuple[int, int]:
        total, depth = 0, 0
        for node in inside(nodes):
            key = node.domain, node.op, node.overload
            function = model.functions.get(key)
            total += 1
            if function is None:
                continue
            if key in above:
                raise ModelError(f"the function {function.name!r} of the model calls itself")
            if len(above) == DEEPEST:
                raise ModelError(f"functions of the model call each other more than {DEEPEST} deep")
            if key not in sizes:
                sizes[key] = size(function.nodes, (*above, key))
            total += sizes[key][0]
            depth = max(depth, 1 + sizes[key][1])
        if total > most:
            raise ModelError(
                f"functions of the model come to more than {most} nodes",
                hint="each calls others several times: is the file what its writer meant?",
            )
        if depth > DEEPEST:
            raise ModelError(f"functions of the model call each other more than {DEEPEST} deep")
        return total, depth

    size(model.graph.nodes, ())


def bound(node: Node, given: dict[str, Any]) -> Node:
    """A node of a function with the attributes that the function was given."""
    attributes = {k: _bound_value(v, given) for k, v in node.attributes.items()}
    for name, other in node.references.items():
        if other in given:
            attributes[name] = given[other]
    return Node(
        node.op, node.domain, node.name, node.inputs, node.outputs, attributes, node.overload
    )


def _bound_value(value: Any, given: dict[str, Any]) -> Any:
    if isinstance(value, Graph):
        nodes = [bound(n, given) for n in value.nodes]
        return Graph(value.name, nodes, value.inputs, value.outputs, value.weights)
    return [_bound_value(v, given) for v in value] if isinstance(value, list) else value
