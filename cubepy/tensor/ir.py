"""The op IR: what was computed, as plain data.

A node names an op, the nodes that it reads and its plain attributes; a graph is a list of nodes in
an order in which they can run. Nothing in it refers to memory, so that it can be stored, sent,
fused or differentiated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cubepy.errors import DTypeError, FileFormatError, ShapeError
from cubepy.lang.dtypes import DType, dtype_named
from cubepy.tensor.ops import OPS, Spec, infer

VERSION = 1
ABSENT = -1  # an optional input that was not given


@dataclass(frozen=True)
class Node:
    """One op.

    Attributes: op: its name (a key of `cubepy.tensor.ops.OPS`). inputs: the nodes that it
        reads: positions in a graph, or identities of live tensors; -1 for none. attrs: (name, plain
        value) pairs, sorted by name. shape: of the result. dtype: of the result.
    """

    op: str
    inputs: tuple[int, ...]
    attrs: tuple[tuple[str, Any], ...]
    shape: tuple[int, ...]
    dtype: DType

    def attr(self, name: str) -> Any:
        """The value of an attribute."""
        return dict(self.attrs)[name]


@dataclass(frozen=True)
class Graph:
    """Nodes in running order; the inputs of a node are positions before its own.

    Attributes:
        nodes: the ops.
        inputs: positions of the "input" nodes, in the order in which values are given.
        outputs: positions of the results.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def to_json(self) -> str:
        """The graph as text; `from_json` gives an equal graph back."""
        nodes = [
            {
                "op": n.op,
                "inputs": n.inputs,
                "attrs": dict(n.attrs),
                "shape": n.shape,
                "dtype": n.dtype.name,
            }
            for n in self.nodes
        ]
        return json.dumps(
            {"version": VERSION, "nodes": nodes, "inputs": self.inputs, "outputs": self.outputs}
        )

    @staticmethod
    def from_json(text: str) -> Graph:
        """Read a graph and check it: known ops, order, and that every stated shape is the inferred
        one.

        Raises:
            FileFormatError: the text is no graph of this version, or is inconsistent.
        """
        try:
            raw = json.loads(text)
            version = raw["version"]
            if version != VERSION:
                raise FileFormatError(
                    f"the graph has version {version!r}, this cubepy reads {VERSION}"
                )
            nodes = tuple(_node(item) for item in raw["nodes"])
            graph = Graph(nodes, tuple(map(int, raw["inputs"])), tuple(map(int, raw["outputs"])))
        except FileFormatError:
            raise
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FileFormatError(
                f"the text is no op graph: {type(error).__name__}: {error}",
                hint="write it with Graph.to_json",
            ) from None
        check_graph(graph)
        return graph

    def __str__(self) -> str:
        lines = []
        for at, n in enumerate(self.nodes):
            args = ", ".join(f"%{i}" if i != ABSENT else "none" for i in n.inputs)
            extra = "".join(f", {k}={v!r}" for k, v in n.attrs)
            lines.append(f"%{at}: {n.dtype.name}{list(n.shape)} = {n.op}({args}{extra})")
        return "\n".join([*lines, "return " + ", ".join(f"%{i}" for i in self.outputs)])


def check_graph(graph: Graph) -> None:
    """Raise FileFormatError unless ops are known, inputs come first, and shapes are those of the
    rules.
    """
    for at, n in enumerate(graph.nodes):
        where = f"node {at} ({n.op})"
        if n.op != "input" and n.op not in OPS:
            raise FileFormatError(f"{where}: there is no such op")
        if any(i != ABSENT and not 0 <= i < at for i in n.inputs):
            raise FileFormatError(
                f"{where} reads {n.inputs}: inputs must be positions before its own"
            )
        if n.op == "input":
            continue
        given = [
            None if i == ABSENT else Spec(graph.nodes[i].shape, graph.nodes[i].dtype)
            for i in n.inputs
        ]
        try:
            found = infer(n.op, given, dict(n.attrs))
        except (ShapeError, DTypeError, TypeError, ValueError) as error:
            raise FileFormatError(f"{where} breaks the rule of its op: {error}") from None
        if found != (n.shape, n.dtype):
            given_spec, real = f"{n.dtype.name}{n.shape}", f"{found.dtype.name}{found.shape}"
            raise FileFormatError(f"{where} states {given_spec}, its op gives {real}")
    for i in (*graph.inputs, *graph.outputs):
        if not 0 <= i < len(graph.nodes):
            raise FileFormatError(f"the graph names node {i}, but has {len(graph.nodes)} nodes")
    for i in graph.inputs:
        if graph.nodes[i].op != "input":
            raise FileFormatError(f"node {i} is listed as an input, but is {graph.nodes[i].op!r}")


def _node(item: dict[str, Any]) -> Node:
    attrs = tuple(sorted((str(k), freeze(v)) for k, v in item["attrs"].items()))
    shape = tuple(int(n) for n in item["shape"])
    return Node(
        str(item["op"]),
        tuple(int(i) for i in item["inputs"]),
        attrs,
        shape,
        dtype_named(item["dtype"]),
    )


def freeze(value: Any) -> Any:
    """A plain value with its lists as tuples, as attributes hold them."""
    return tuple(freeze(v) for v in value) if isinstance(value, (list, tuple)) else value


def renumbered(
    nodes: Sequence[tuple[int, Node]], inputs: Sequence[int], outputs: Sequence[int]
) -> Graph:
    """A graph of nodes that refer to each other by identity, without those that no output needs."""
    by_id = dict(nodes)
    needed, stack = set(inputs), list(outputs)
    while stack:
        at = stack.pop()
        if at not in needed:
            needed.add(at)
            stack.extend(i for i in by_id[at].inputs if i != ABSENT)
    kept = [key for key, _ in nodes if key in needed]
    position = {key: at for at, key in enumerate(kept)} | {ABSENT: ABSENT}
    final = []
    for key in kept:
        n = by_id[key]
        final.append(Node(n.op, tuple(position[i] for i in n.inputs), n.attrs, n.shape, n.dtype))
    return Graph(
        tuple(final), tuple(position[i] for i in inputs), tuple(position[i] for i in outputs)
    )
