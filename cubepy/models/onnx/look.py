"""`look`: what is in an ONNX file, without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cubepy.models.formats.onnx import Graph, Model, Node, ValueInfo, read
from cubepy.models.formats.onnx_schema import dtype_name
from cubepy.models.formats.onnx_tensor import Weight
from cubepy.models.onnx import ops
from cubepy.models.onnx.records import record_of

assert ops.__name__  # imported for its records


@dataclass
class Look:
    """What is in an ONNX file.

    Attributes:
        ir: version of the format.
        opsets: versions of operator sets by domain.
        producer: who wrote the file.
        inputs: (name, dtype, shape) of what the model takes.
        outputs: the same of what it gives.
        dtypes: of weights: (how many tensors, elements, bytes).
        parameters: elements of all weights.
        nbytes: bytes of all weights.
        operators: how often each is there.
        unsupported: names of nodes by operators that are missing.
    """

    ir: int
    opsets: dict[str, int]
    producer: str
    inputs: list[tuple[str, str, Any]]
    outputs: list[tuple[str, str, Any]]
    dtypes: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    parameters: int = 0
    nbytes: int = 0
    operators: dict[str, int] = field(default_factory=dict)
    unsupported: dict[str, list[str]] = field(default_factory=dict)


def look(source: Any) -> Look:
    """What is in an ONNX file or its bytes; operators in subgraphs and functions count, too.

    Raises:
        FileFormatError: a file that is damaged or inconsistent.
    """
    model = read(source)
    found = Look(
        model.ir,
        model.opsets,
        model.producer,
        [_said(i) for i in model.graph.inputs if i.name not in model.graph.weights],
        [_said(o) for o in model.graph.outputs],
    )
    counts: Counter[str] = Counter()
    for node, opsets in _nodes(model):
        name = f"{node.domain}.{node.op}" if node.domain else node.op
        counts[name] += 1
        if (node.domain, node.op, node.overload) in model.functions or node.op == "Constant":
            continue
        version = opsets.get(node.domain)
        if version is None or record_of(node.domain, node.op, version) is None:
            found.unsupported.setdefault(name, []).append(node.shown())
    found.operators = dict(counts.most_common())
    for weight in _weights(model):
        name = dtype_name(weight.dtype)
        tensors, elements, nbytes = found.dtypes.get(name, (0, 0, 0))
        found.dtypes[name] = tensors + 1, elements + weight.size, nbytes + weight.nbytes
        found.parameters += weight.size
        found.nbytes += weight.nbytes
    return found


def _said(info: ValueInfo) -> tuple[str, str, Any]:
    return info.name, dtype_name(info.type.dtype), info.type.shape


def _graphs(node: Node) -> Iterator[Graph]:
    for value in node.attributes.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Graph):
                yield one


def _inside(nodes: list[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for graph in _graphs(node):
            yield from _inside(graph.nodes)


def _nodes(model: Model) -> Iterator[tuple[Node, dict[str, int]]]:
    for node in _inside(model.graph.nodes):
        yield node, model.opsets
    for function in model.functions.values():
        for node in _inside(function.nodes):
            yield node, function.opsets


def _weights(model: Model) -> Iterator[Weight]:
    yield from model.graph.weights.values()
    for node, _ in _nodes(model):
        for value in node.attributes.values():
            if isinstance(value, Weight):
                yield value
        for graph in _graphs(node):
            yield from graph.weights.values()
