"""ONNX files: a model as plain data, checked before anything is made of it.

`read` gives a `Model` whose weights are views of the mapped file. Nodes are in an order in which
each comes after those that it reads from, whatever the file's order is.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, FileFormatError
from cubepy.models.formats.onnx_schema import DTYPES, SCHEMAS
from cubepy.models.formats.onnx_tensor import Folder, Weight, of_array, sparse, weight
from cubepy.models.formats.protobuf import DAMAGED, message

NEWEST_IR = 14


@dataclass(frozen=True)
class Type:
    """What a value is.

    Attributes:
        kind: ``tensor``, ``sequence``, ``optional``, ``map``, ``sparse`` or ``unknown``.
        dtype: of a tensor's elements, or of a map's keys; None if the file does not say.
        shape: lengths; texts are lengths that are chosen when the model runs, None is unknown.
            None for a tensor of unknown rank.
        inner: of what is in a sequence or an optional, or of the values of a map.
    """

    kind: str = "unknown"
    dtype: np.dtype | None = None
    shape: tuple[int | str | None, ...] | None = None
    inner: Type | None = None


@dataclass(frozen=True)
class ValueInfo:
    """A value with its name."""

    name: str
    type: Type


@dataclass
class Node:
    """An operator with its inputs and outputs; an absent one is an empty name."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    overload: str = ""
    references: dict[str, str] = field(default_factory=dict)

    def shown(self) -> str:
        """How errors name the node."""
        return self.name or f"{self.op} -> {', '.join(self.outputs) or 'nothing'}"


@dataclass
class Graph:
    """Nodes in an order that runs, and what goes in and comes out."""

    name: str
    nodes: list[Node]
    inputs: list[ValueInfo]
    outputs: list[ValueInfo]
    weights: dict[str, Weight]


@dataclass
class Function:
    """Operators under a name of their own."""

    domain: str
    name: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    defaults: dict[str, Any]
    nodes: list[Node]
    opsets: dict[str, int]


@dataclass
class Model:
    """A file's contents.

    Attributes:
        ir: version of the format.
        opsets: versions of operator sets by domain.
        producer: who wrote the file.
        graph: what the model computes.
        functions: by domain, name and overload.
        metadata: texts by name.
    """

    ir: int
    opsets: dict[str, int]
    producer: str
    graph: Graph
    functions: dict[tuple[str, str, str], Function]
    metadata: dict[str, str]


def read(source: Any) -> Model:
    """An ONNX file, or its bytes.

    Args:
        source: a path, or an object with the buffer protocol.

    Raises:
        FileFormatError: a file that is damaged, cut off, inconsistent or newer than what is known.
        FileNotFoundError: there is no such file.
        ArgumentError: `source` is neither.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise FileFormatError(f"{path}: the file is empty", hint=DAMAGED)
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        folder, what = Folder(os.path.dirname(os.path.abspath(path))), str(path)
    elif isinstance(source, (bytes, bytearray, memoryview, mmap.mmap)):
        data, folder, what = memoryview(source).cast("B"), Folder(None), "the model"
    else:
        raise ArgumentError(f"a model is a path or bytes, not {type(source).__name__}")
    try:
        return _model(message(data, SCHEMAS, "Model"), folder)
    except FileFormatError as error:
        raise FileFormatError(f"{what}: {error.message}", hint=error.hint) from None
    except RecursionError:
        raise FileFormatError(f"{what}: it is nested too deeply", hint=DAMAGED) from None


def _model(found: dict[str, Any], folder: Folder) -> Model:
    ir = found.get("ir_version", 0)
    if "graph" not in found:
        raise FileFormatError("there is no graph in it", hint=DAMAGED)
    if not 1 <= ir <= NEWEST_IR:
        raise FileFormatError(
            f"it has the IR version {ir}; 3 to {NEWEST_IR} are read", hint="export it again"
        )
    functions = {}
    for one in found.get("functions", ()):
        made = _function(one, folder)
        key = (made.domain, made.name, made.overload)
        if key in functions:
            raise FileFormatError(f"the function {made.domain}.{made.name} is there twice")
        functions[key] = made
    producer = f"{found.get('producer_name', '')} {found.get('producer_version', '')}".strip()
    return Model(
        ir,
        _opsets(found),
        producer,
        _graph(found["graph"], folder, set()),
        functions,
        {e.get("key", ""): e.get("value", "") for e in found.get("metadata_props", ())},
    )


def _opsets(found: dict[str, Any]) -> dict[str, int]:
    given = {
        _domain(e.get("domain", "")): e.get("version", 1) for e in found.get("opset_import", ())
    }
    return given or {"": 1}


def _domain(text: str) -> str:
    return "" if text == "ai.onnx" else text


def _graph(found: dict[str, Any], folder: Folder, outer: set[str]) -> Graph:
    name = found.get("name", "")
    weights = {}
    for one in found.get("initializer", ()):
        made = weight(one, folder)
        if made.name in weights:
            raise FileFormatError(f"two initializers are named {made.name!r}", hint=DAMAGED)
        weights[made.name] = made
    for one in found.get("sparse_initializer", ()):
        made = sparse(one, folder)
        weights[made.name] = made
    inputs = [_value_info(one) for one in found.get("input", ())]
    outputs = [_value_info(one) for one in found.get("output", ())]
    names = [i.name for i in inputs]
    if len(set(names)) != len(names):
        clash = next(n for n in names if names.count(n) > 1)
        raise FileFormatError(f"graph {name!r} has two inputs named {clash!r}", hint=DAMAGED)
    known = outer | set(names) | set(weights)
    raw = found.get("node", ())
    made_inside = {o for one in raw for o in one.get("output", ()) if o}
    nodes = [_node(one, folder, known | made_inside) for one in raw]
    ordered = _ordered(nodes, known, f"graph {name!r}")
    for wanted in outputs:
        if wanted.name not in known and wanted.name not in made_inside:
            raise FileFormatError(
                f"the output {wanted.name!r} of graph {name!r} is computed by no node", hint=DAMAGED
            )
    return Graph(name, ordered, inputs, outputs, weights)


def read_of(node: Node) -> set[str]:
    """The names that a node reads: its inputs, and what its subgraphs read from around it."""
    found = {name for name in node.inputs if name}
    for value in node.attributes.values():
        for graph in value if isinstance(value, list) else [value]:
            if isinstance(graph, Graph):
                found |= outer_of(graph)
    return found


def outer_of(graph: Graph) -> set[str]:
    """The names that a subgraph reads from around it."""
    own = {i.name for i in graph.inputs} | set(graph.weights)
    own |= {o for node in graph.nodes for o in node.outputs}
    found = {o.name for o in graph.outputs}
    for node in graph.nodes:
        found |= read_of(node)
    return found - own


def _ordered(nodes: list[Node], known: set[str], where: str) -> list[Node]:
    """The nodes, each behind those that it reads from; as in the file as far as that is so."""
    maker: dict[str, int] = {}
    for n, node in enumerate(nodes):
        for output in node.outputs:
            if output in maker:
                raise FileFormatError(
                    f"two nodes of {where} compute {output!r}: {nodes[maker[output]].shown()} and "
                    f"{node.shown()}",
                    hint=DAMAGED,
                )
            if output:
                maker[output] = n
    waits: list[int] = []
    readers: dict[int, list[int]] = {}
    for n, node in enumerate(nodes):
        before = set()
        for name in read_of(node):
            if name in maker:
                before.add(maker[name])
            elif name not in known:
                raise FileFormatError(
                    f"node {node.shown()} of {where} reads {name!r}, which nothing computes",
                    hint=DAMAGED,
                )
        for b in before:
            readers.setdefault(b, []).append(n)
        waits.append(len(before))
    if all(_sorted(nodes, maker)):
        return nodes
    ready = [n for n, count in enumerate(waits) if not count]
    order = []
    for n in ready:
        order.append(n)
        for reader in readers.get(n, ()):
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    if len(order) < len(nodes):
        stuck = next(n for n, count in enumerate(waits) if count)
        raise FileFormatError(
            f"the nodes of {where} go in a circle, for one through {nodes[stuck].shown()}",
            hint=DAMAGED,
        )
    return [nodes[n] for n in order]


def _sorted(nodes: list[Node], maker: dict[str, int]) -> Any:
    for n, node in enumerate(nodes):
        yield all(maker.get(name, -1) < n for name in read_of(node))


def _node(found: dict[str, Any], folder: Folder, known: set[str]) -> Node:
    op = found.get("op_type", "")
    name = found.get("name", "")
    if not op:
        raise FileFormatError(f"node {name!r} has no operator", hint=DAMAGED)
    attributes, references = _attributes(found.get("attribute", ()), folder, known, name or op)
    return Node(
        op,
        _domain(found.get("domain", "")),
        name,
        tuple(found.get("input", ())),
        tuple(found.get("output", ())),
        attributes,
        found.get("overload", ""),
        references,
    )


def _attributes(
    given: Any, folder: Folder, known: set[str], node: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Attributes by name, and the names of a function's attributes that some of them are."""
    values: dict[str, Any] = {}
    references = {}
    for one in given:
        name = one.get("name", "")
        if name in values or name in references:
            raise FileFormatError(f"node {node} has the attribute {name!r} twice", hint=DAMAGED)
        if one.get("ref_attr_name"):
            references[name] = one["ref_attr_name"]
        else:
            values[name] = _attribute(one, folder, known)
    return values, references


def _attribute(one: dict[str, Any], folder: Folder, known: set[str]) -> Any:
    """The value of an attribute: by its type, or (of old files) by what is there."""
    kind = one.get("type", 0)
    if kind == 0:
        there = [k for k, name in ATTRIBUTES.items() if name in one]
        kind = there[0] if there else 7
    field_name = ATTRIBUTES.get(kind)
    if field_name is None:
        raise FileFormatError(
            f"attribute {one.get('name', '')!r} has the type {kind}, which is none", hint=DAMAGED
        )
    value = one.get(field_name)
    if kind == 1:
        return float(value or 0.0)
    if kind == 2:
        return int(value or 0)
    if kind == 3:
        return str(bytes(value or b""), "utf-8", "replace")
    if kind in (6, 7):
        return [] if value is None else value.tolist()
    if kind == 8:
        return [str(bytes(v), "utf-8", "replace") for v in value or ()]
    many = kind in (9, 10, 12, 14)
    if value is None and not many:
        raise FileFormatError(f"attribute {one.get('name', '')!r} has no value", hint=DAMAGED)
    made = [_inside(v, field_name, folder, known) for v in (value or () if many else [value])]
    return made if many else made[0]


ATTRIBUTES = {
    1: "f",
    2: "i",
    3: "s",
    4: "t",
    5: "g",
    6: "floats",
    7: "ints",
    8: "strings",
    9: "tensors",
    10: "graphs",
    11: "sparse_tensor",
    12: "sparse_tensors",
    13: "tp",
    14: "type_protos",
}


def _inside(value: Any, name: str, folder: Folder, known: set[str]) -> Any:
    if name in ("t", "tensors"):
        return weight(value, folder)
    if name in ("g", "graphs"):
        return _graph(value, folder, known)
    if name in ("sparse_tensor", "sparse_tensors"):
        return sparse(value, folder)
    return _type(value)


def _function(found: dict[str, Any], folder: Folder) -> Function:
    inputs = tuple(found.get("input", ()))
    raw = found.get("node", ())
    made = {o for one in raw for o in one.get("output", ()) if o}
    nodes = [_node(one, folder, set(inputs) | made) for one in raw]
    name = found.get("name", "")
    defaults, _ = _attributes(found.get("attribute_proto", ()), folder, set(), name)
    return Function(
        _domain(found.get("domain", "")),
        name,
        found.get("overload", ""),
        inputs,
        tuple(found.get("output", ())),
        tuple(found.get("attribute", ())),
        defaults,
        _ordered(nodes, set(inputs), f"function {name!r}"),
        _opsets(found),
    )


def _value_info(found: dict[str, Any]) -> ValueInfo:
    return ValueInfo(found.get("name", ""), _type(found.get("type", {})))


def _type(found: dict[str, Any]) -> Type:
    for name, kind in (("tensor_type", "tensor"), ("sparse_tensor_type", "sparse")):
        if name in found:
            inner = found[name]
            shape = None
            if "shape" in inner:
                shape = tuple(_length(d) for d in inner["shape"].get("dim", ()))
            return Type(kind, DTYPES.get(inner.get("elem_type", 0)), shape)
    for name, kind in (("sequence_type", "sequence"), ("optional_type", "optional")):
        if name in found:
            return Type(kind, inner=_type(found[name].get("elem_type", {})))
    if "map_type" in found:
        inner = found["map_type"]
        return Type(
            "map", DTYPES.get(inner.get("key_type", 0)), None, _type(inner.get("value_type", {}))
        )
    return Type()


def _length(dim: dict[str, Any]) -> int | str | None:
    if "dim_value" in dim:
        return int(dim["dim_value"])
    return dim.get("dim_param") or None


__all__ = ["Function", "Graph", "Model", "Node", "Type", "ValueInfo", "of_array", "read"]
