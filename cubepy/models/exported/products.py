"""Products with weights that a graph turns first, `x @ w.T`, as linear ones: layers, which are
quantized.
"""

from __future__ import annotations

from typing import Any

from cubepy.models.exported.program import Exported, Node, Ref, read_of, refs

WEIGHTS = ("weight", "constant")
"""Kinds of inputs that a module brings."""
PRODUCTS = ("aten.matmul.default", "aten.mm.default")
SWAPS = {
    "aten.numpy_T.default": ((),),
    "aten.t.default": ((),),
    "aten.mT.default": ((),),
    "aten.permute.default": (([1, 0],), ([-1, -2],), ([-1, 0],), ([1, -2],)),
    "aten.transpose.int": ((0, 1), (1, 0), (-1, -2), (-2, -1), (0, -1), (-1, 0)),
}
"""Operators that turn a matrix, with the arguments with which they do."""


def linear_products(exported: Exported, nodes: list[Node]) -> list[Node]:
    """The nodes where products with transposed weights read these as they lie.

    Args:
        exported: the graph.
        nodes: those that run.
    """
    keys = {i.name: i.key for i in exported.inputs if i.kind in WEIGHTS}
    transposed: dict[str, Ref] = {}
    found = []
    for node in nodes:
        if node.target in SWAPS and _is_weight(node.args[0], keys, exported):
            if any(list(node.args[1:]) == list(args) for args in SWAPS[node.target]):
                transposed[node.name] = node.args[0]
        elif node.target in PRODUCTS and not node.kwargs:
            a, b = node.args
            plain = isinstance(a, Ref) and a.name not in keys
            if plain and isinstance(b, Ref) and b.name in transposed:
                node = Node(
                    node.name, "aten.linear.default", (a, transposed[b.name]), {}, node.line
                )
        found.append(node)
    read = {name for node in found for name in read_of(node)} | {*refs(exported.outputs)}
    return [node for node in found if node.name not in transposed or node.name in read]


def _is_weight(value: Any, keys: dict[str, str], exported: Exported) -> bool:
    """Whether an argument is a weight of two axes."""
    if not isinstance(value, Ref) or value.name not in keys:
        return False
    return len(exported.weights[keys[value.name]].shape) == 2
