"""The op IR: what was computed, as plain data.

A node names an op, the values that it reads and its plain attributes, and gives one value or
several; a graph is a list of nodes in an order in which they can run. Values are numbered in that
order. Nothing in it refers to memory, so that it can be stored, sent, fused or differentiated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

from cubepy.errors import DTypeError, FileFormatError, ShapeError
from cubepy.lang.dtypes import DType, dtype_named
from cubepy.runtime.replay.arguments import key_of
from cubepy.tensor.custom.names import Text, names_in, with_names
from cubepy.tensor.ops import OPS, Spec, infer

VERSION = 2
READ = (1, 2)
"""Versions that are read; in the first one each node has one result, so values are nodes."""
ABSENT = -1  # an optional input that was not given


@dataclass(frozen=True, init=False, slots=True)
class Node:
    """One op.

    Attributes:
        op: its name (a key of `cubepy.tensor.ops.OPS`).
        inputs: the values that it reads, by their numbers in a graph; -1 for none.
        attrs: (name, plain value) pairs, sorted by name.
        results: shapes and dtypes of the values that it gives.
    """

    op: str
    inputs: tuple[int, ...]
    attrs: tuple[tuple[str, Any], ...]
    results: tuple[Spec, ...]
    _exactly: Any = field(init=False, compare=False, repr=False)

    def __init__(
        self,
        op: str,
        inputs: tuple[int, ...],
        attrs: tuple[tuple[str, Any], ...],
        results: tuple[Spec, ...],
    ) -> None:
        _put_op(self, op)  # a graph has thousands of nodes, and setting attributes is slow here
        _put_inputs(self, inputs)
        _put_attrs(self, attrs)
        _put_results(self, results)

    def __reduce__(self) -> Any:
        return Node, (self.op, self.inputs, self.attrs, self.results)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the (first) result."""
        return self.results[0].shape

    @property
    def dtype(self) -> DType:
        """Of the (first) result."""
        return self.results[0].dtype

    def attr(self, name: str) -> Any:
        """The value of an attribute."""
        return dict(self.attrs)[name]

    @property
    def exactly(self) -> Any:
        """What tells its op and attributes from others: 1 is not True, and 0.0 is not -0.0."""
        try:
            return self._exactly
        except AttributeError:  # it is asked for the first time
            names = [name for name, _ in self.attrs]
            found = self.op, key_of([value for _, value in self.attrs], *names)
            _put_exactly(self, found)
            return found

    def giving(self, results: tuple[Spec, ...]) -> Node:
        """The same node with other results."""
        made = Node(self.op, self.inputs, self.attrs, results)
        _put_exactly(made, self.exactly)
        return made


_put_op, _put_inputs, _put_attrs, _put_results, _put_exactly = (
    Node.__dict__[name].__set__ for name in ("op", "inputs", "attrs", "results", "_exactly")
)


@dataclass(frozen=True)
class Graph:
    """Nodes in running order; the inputs of a node are values of nodes before it.

    Attributes:
        nodes: the ops.
        inputs: values of the "input" nodes, in the order in which they are given.
        outputs: values that are the results.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """The number of the first value of each node."""
        return tuple(accumulate((len(n.results) for n in self.nodes), initial=0))[:-1]

    @cached_property
    def values(self) -> tuple[Spec, ...]:
        """Shape and dtype of each value."""
        return tuple(spec for n in self.nodes for spec in n.results)

    def to_json(self) -> str:
        """The graph as text; `from_json` gives an equal graph back.

        Kernels and functions of users are in it by name: another process finds those of modules
        that it has imported.
        """
        nodes = [
            {
                "op": n.op,
                "inputs": n.inputs,
                "attrs": dict(n.attrs),
                "results": [(r.shape, r.dtype.name) for r in n.results],
            }
            for n in self.nodes
        ]
        text = json.dumps(
            {"version": VERSION, "nodes": nodes, "inputs": self.inputs, "outputs": self.outputs}
        )
        kept = tuple([name for n in self.nodes for _, v in n.attrs for name in names_in(v)])
        return Text(text, kept) if kept else text

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
            if version not in READ:
                raise FileFormatError(
                    f"the graph has version {version!r}, this cubepy reads "
                    f"{' and '.join(map(str, READ))}"
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
        for first, n in zip(self.firsts, self.nodes, strict=True):
            args = ", ".join(f"%{i}" if i != ABSENT else "none" for i in n.inputs)
            extra = "".join(f", {k}={v!r}" for k, v in n.attrs)
            given = ", ".join(
                f"%{at}: {r.dtype.name}{list(r.shape)}" for at, r in enumerate(n.results, first)
            )
            lines.append(f"{given} = {n.op}({args}{extra})")
        return "\n".join([*lines, "return " + ", ".join(f"%{i}" for i in self.outputs)])


def check_graph(graph: Graph) -> None:
    """Raise FileFormatError unless ops are known, inputs come first, and shapes are those of the
    rules.
    """
    values = graph.values
    for at, (first, n) in enumerate(zip(graph.firsts, graph.nodes, strict=True)):
        where = f"node {at} ({n.op})"
        if n.op != "input" and n.op not in OPS:
            raise FileFormatError(f"{where}: there is no such op")
        if any(i != ABSENT and not 0 <= i < first for i in n.inputs):
            raise FileFormatError(
                f"{where} reads {n.inputs}: inputs must be values of nodes before its own"
            )
        if n.op == "input":
            if len(n.results) != 1:
                raise FileFormatError(f"{where} is one value, not {len(n.results)}")
            continue
        given = [None if i == ABSENT else values[i] for i in n.inputs]
        try:
            inferred = infer(n.op, given, dict(n.attrs))
        except (ShapeError, DTypeError, TypeError, ValueError) as error:
            raise FileFormatError(f"{where} breaks the rule of its op: {error}") from None
        found = tuple(inferred) if type(inferred) is list else (inferred,)
        if found != n.results:
            raise FileFormatError(f"{where} states {_said(n.results)}, its op gives {_said(found)}")
    for i in (*graph.inputs, *graph.outputs):
        if not 0 <= i < len(values):
            raise FileFormatError(f"the graph names value {i}, but has {len(values)} values")
    of_inputs = {
        first for first, n in zip(graph.firsts, graph.nodes, strict=True) if n.op == "input"
    }
    for i in graph.inputs:
        if i not in of_inputs:
            raise FileFormatError(f"value {i} is listed as an input, but an op gives it")


def _said(results: tuple[Spec, ...]) -> str:
    return ", ".join(f"{r.dtype.name}{r.shape}" for r in results)


def _node(item: dict[str, Any]) -> Node:
    attrs = tuple(sorted((str(k), with_names(freeze(v))) for k, v in item["attrs"].items()))
    stated = item["results"] if "results" in item else [(item["shape"], item["dtype"])]
    return Node(
        str(item["op"]),
        tuple(int(i) for i in item["inputs"]),
        attrs,
        tuple([Spec(tuple(int(n) for n in shape), dtype_named(dtype)) for shape, dtype in stated]),
    )


def freeze(value: Any) -> Any:
    """A plain value with its lists as tuples, as attributes hold them."""
    return tuple(freeze(v) for v in value) if isinstance(value, (list, tuple)) else value


def renumbered(
    nodes: Sequence[tuple[tuple[int, ...], Node]], inputs: Sequence[int], outputs: Sequence[int]
) -> Graph:
    """A graph of nodes that refer to values by identities, without those that no output needs.

    Args:
        nodes: each with the identities of its results, in running order.
        inputs: identities of values that are given.
        outputs: identities of values that are wanted.
    """
    kept, wanted = [], {*inputs, *outputs}
    for one in reversed(nodes):
        if not wanted.isdisjoint(one[0]):
            kept.append(one)
            wanted.update(one[1].inputs)
    kept.reverse()
    number = {key: n for n, key in enumerate([key for keys, _ in kept for key in keys])}
    number[ABSENT] = ABSENT
    return Graph(
        tuple(
            [Node(n.op, tuple([number[i] for i in n.inputs]), n.attrs, n.results) for _, n in kept]
        ),
        tuple([number[i] for i in inputs]),
        tuple([number[i] for i in outputs]),
    )
