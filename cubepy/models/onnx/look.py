"""`look`: what is in an ONNX file, without running it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from cubepy.models.formats.onnx import Graph, Model, Node, ValueInfo, read
from cubepy.models.formats.onnx_schema import dtype_name
from cubepy.models.formats.onnx_tensor import Weight
from cubepy.models.onnx import ops
from cubepy.models.onnx.records import record_of
from cubepy.models.report import Look, TensorInfo

assert ops.__name__  # imported for its records


def look(source: Any) -> Look:
    """What is in an ONNX file or its bytes; operators in subgraphs and functions count, too.

    Raises:
        FileFormatError: a file that is damaged or inconsistent.
    """
    model = read(source)
    counts: Counter[str] = Counter()
    unsupported: dict[str, list[str]] = {}
    for node, opsets in _nodes(model):
        name = f"{node.domain}.{node.op}" if node.domain else node.op
        counts[name] += 1
        if (node.domain, node.op, node.overload) in model.functions or node.op == "Constant":
            continue
        version = opsets.get(node.domain)
        if version is None or record_of(node.domain, node.op, version) is None:
            unsupported.setdefault(name, []).append(node.shown())
    opsets_shown = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in model.opsets.items())
    facts = {"opsets": opsets_shown, "producer": model.producer or "not said"}
    return Look(
        os.fspath(source) if isinstance(source, (str, os.PathLike)) else "bytes",
        f"ONNX, IR version {model.ir}",
        facts | model.metadata,
        tuple(_said(i) for i in model.graph.inputs if i.name not in model.graph.weights),
        tuple(_said(o) for o in model.graph.outputs),
        tuple(TensorInfo(w.name, dtype_name(w.dtype), w.shape, w.nbytes) for w in _weights(model)),
        dict(counts.most_common()),
        {name: tuple(nodes) for name, nodes in unsupported.items()},
        () if model.ir >= 3 else ("an IR version before 3 is not specified",),
    )


def _said(info: ValueInfo) -> TensorInfo:
    kind = info.type
    name = dtype_name(kind.dtype) if kind.kind == "tensor" else kind.kind
    return TensorInfo(info.name, name, kind.shape or ())


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
