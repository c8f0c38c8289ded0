"""Graphs of torch as JSON and arrays: written by `scripts/make_torch_fixture.py`, read by tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cubepy.lang.dtypes import DType, dtype_named
from cubepy.models.exported.program import Body, Exported, Input, Node, Ref, Tree

BY_NAME = {"bfloat16": "bf16"}
FIXTURE = Path(__file__).parents[1] / "fixtures" / "torch_graphs.npz"


def plain(value: Any) -> Any:
    """A value of a graph as JSON has it."""
    if isinstance(value, Ref):
        return {"ref": value.name}
    if isinstance(value, Body):
        return {"body": [list(value.inputs), nodes_said(value.nodes), plain(value.outputs)]}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, Tree):
        return [value.kind, [plain(p) for p in value.parts], list(value.keys), value.name]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return {"float": str(value)}
    return value


def at(node: Node) -> str:
    """The line without the folders of the machine that recorded it."""
    path, mark, rest = node.line.partition(".py:")
    return f"{path.rpartition('/')[2]}{mark}{rest}"


def value_of(given: Any) -> Any:
    """What `plain` was given."""
    if isinstance(given, list):
        return [value_of(v) for v in given]
    if isinstance(given, dict):
        ((kind, one),) = given.items()
        return {"ref": Ref, "dtype": dtype_named, "float": float, "body": body_of}[kind](one)
    return given


def nodes_said(nodes: Any) -> list[Any]:
    """Nodes as JSON has them."""
    return [
        [n.name, n.target, plain(n.args), {k: plain(v) for k, v in n.kwargs.items()}, at(n)]
        for n in nodes
    ]


def nodes_of(given: Any) -> list[Node]:
    """What `nodes_said` was given."""
    return [
        Node(name, target, tuple(value_of(args)), {k: value_of(v) for k, v in said.items()}, at)
        for name, target, args, said, at in given
    ]


def body_of(given: Any) -> Body:
    inputs, nodes, outputs = given
    return Body(tuple(inputs), tuple(nodes_of(nodes)), tuple(value_of(outputs)))


def tree(given: Any) -> Tree:
    kind, parts, keys, name = given
    return Tree(kind, tuple(tree(p) for p in parts), tuple(keys), name)


def encoded(name: str, found: Exported, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """A graph for JSON; its weights go to `arrays`."""
    same: dict[int, str] = {}
    for key, value in found.weights.items():
        if id(value) not in same:
            same[id(value)] = f"{name}/w/{key}"
            arrays[same[id(value)]] = value.numpy()
    return {
        "nodes": nodes_said(found.nodes),
        "inputs": [
            [i.name, i.kind, i.key, i.dtype and i.dtype.name, list(i.shape), i.value]
            for i in found.inputs
        ],
        "outputs": plain(found.outputs),
        "trees": [plain(found.takes), plain(found.gives)],
        "weights": {key: same[id(value)] for key, value in found.weights.items()},
        "trained": sorted(found.trained),
        "unsaved": sorted(found.unsaved),
        "ranges": found.ranges,
    }


def decoded(given: dict[str, Any], arrays: Any) -> Exported:
    """The graph of a recorded case."""
    kept = {where: arrays[where] for where in set(given["weights"].values())}
    return Exported(
        nodes_of(given["nodes"]),
        [
            Input(name, kind, key, dtype and dtype_named(dtype), tuple(shape), value)
            for name, kind, key, dtype, shape, value in given["inputs"]
        ],
        value_of(given["outputs"]),
        tree(given["trees"][0]),
        tree(given["trees"][1]),
        {key: kept[where] for key, where in given["weights"].items()},
        frozenset(given["trained"]),
        frozenset(given["unsaved"]),
        {name: tuple(bounds) for name, bounds in given["ranges"].items()},
    )


def write(graphs: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write all cases: one array of bytes has all others, one after the other."""
    index, data = {}, bytearray()
    for name, array in arrays.items():
        index[name] = [array.dtype.name, list(array.shape), len(data)]
        data += np.ascontiguousarray(array).tobytes()
    said = json.dumps({"graphs": graphs, "arrays": index}, separators=(",", ":")).encode()
    np.savez_compressed(FIXTURE, said=np.frombuffer(said, np.uint8), data=np.array(data, np.uint8))


def cases() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """All recorded cases, by name, and their arrays."""
    with np.load(FIXTURE) as file:
        said, data = json.loads(file["said"].tobytes()), file["data"].tobytes()
    arrays = {}
    for name, (kind, shape, at) in said["arrays"].items():
        dtype = dtype_named(BY_NAME.get(kind, "")).numpy if kind in BY_NAME else np.dtype(kind)
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(data, dtype, count, at).reshape(shape)
    return said["graphs"], arrays
