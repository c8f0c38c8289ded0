"""Layer and RMS norms as exporters write them: in pieces, of up to nine nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

from cubepy.models.formats.onnx import Node
from cubepy.models.onnx.constants import Constant
from cubepy.models.onnx.rewriting import OURS, Rewriting, host_of, pieces


class Norm(NamedTuple):
    """What is normalized.

    Attributes:
        x: the name of it.
        axes: over which, as the file says.
        eps: what is added to the mean of squares.
        centered: whether means are subtracted.
    """

    x: str
    axes: tuple[int, ...]
    eps: float
    centered: bool


@pieces("Add")
def shifted(graph: Rewriting, node: Node) -> Node | None:
    """A norm times a constant and with another one added."""
    for bias, name in _with_constant(graph, node):
        product = _maker(graph, name, "Mul")
        if product is None or graph.only_reader(name) is None:
            continue
        for weight, normal in _with_constant(graph, product):
            found = norm_of(graph, _maker(graph, normal, "Div", "Mul"))
            if found is not None and graph.only_reader(normal) is not None:
                return _made(node, found, weight, bias)
    return None


@pieces("Mul")
def weighed(graph: Rewriting, node: Node) -> Node | None:
    """A norm times a constant, if no constant is added to it."""
    for weight, normal in _with_constant(graph, node):
        if _goes_on(graph, node.outputs[0], "Add"):
            return None
        found = norm_of(graph, _maker(graph, normal, "Div", "Mul"))
        if found is not None and graph.only_reader(normal) is not None:
            return _made(node, found, weight)
    return None


@pieces("Div", "Mul")
def plain(graph: Rewriting, node: Node) -> Node | None:
    """A norm alone."""
    if _goes_on(graph, node.outputs[0], "Mul"):
        return None
    found = norm_of(graph, node)
    return None if found is None else _made(node, found)


def norm_of(graph: Rewriting, node: Node | None) -> Norm | None:
    """What a quotient or product normalizes: x / sqrt(mean(x^2) + eps), or x times 1 / that root; x
    may be what is left of others without their mean.
    """
    if node is None or len(node.inputs) != 2:
        return None
    (one, other), inverse = node.inputs, node.op == "Mul"
    for x, root in ((one, other), (other, one))[: 1 + inverse]:
        power = root_of(graph, root, inverse)
        found = None if power is None else _squares(graph, *power)
        if found is None:
            continue
        same, axes, eps = found
        before = _centered(graph, x, axes)
        if same == x:
            return Norm(x if before is None else before, axes, eps, before is not None)
        if before is not None and before == _centered(graph, same, axes):  # subtracted twice
            return Norm(before, axes, eps, True)
    return None


def root_of(graph: Rewriting, name: str, inverse: bool) -> tuple[str, float] | None:
    """What a value is the root of, or 1 / the root, and the number that is added to it before."""
    node = _maker(graph, name, "Sqrt", "Pow", "Reciprocal", "Div")
    if node is None:
        return None
    if node.op == "Reciprocal":
        return root_of(graph, node.inputs[0], False) if inverse else None
    if node.op == "Div":
        one = graph.number(node.inputs[0])
        return root_of(graph, node.inputs[1], False) if inverse and one == 1.0 else None
    if node.op == "Pow":
        if graph.number(node.inputs[1]) != (-0.5 if inverse else 0.5):
            return None
    elif inverse:
        return None
    inner = node.inputs[0]
    added = _maker(graph, inner, "Add")
    if added is not None:
        for eps, other in (added.inputs, added.inputs[::-1]):
            value = graph.number(eps)
            if value is not None:
                return other, value
    return inner, 0.0


def _squares(graph: Rewriting, name: str, eps: float) -> tuple[str, tuple[int, ...], float] | None:
    """What a value is the mean of the squares of, over which axes."""
    mean = _maker(graph, name, "ReduceMean")
    axes = None if mean is None else _axes(graph, mean)
    if mean is None or axes is None:
        return None
    square = _maker(graph, mean.inputs[0], "Pow", "Mul")
    if square is None:
        return None
    x, other = square.inputs
    if square.op == "Pow" and graph.number(other) == 2.0 or square.op == "Mul" and x == other:
        return x, axes, eps
    return None


def _centered(graph: Rewriting, name: str, axes: tuple[int, ...]) -> str | None:
    """What a value is, less its mean over axes."""
    node = _maker(graph, name, "Sub")
    mean = None if node is None else _maker(graph, node.inputs[1], "ReduceMean")
    if node is None or mean is None or mean.inputs[0] != node.inputs[0]:
        return None
    return node.inputs[0] if _axes(graph, mean) == axes else None


def _axes(graph: Rewriting, mean: Node) -> tuple[int, ...] | None:
    """The axes of a mean that keeps them; None where they are not known."""
    if not mean.attributes.get("keepdims", 1):
        return None
    axes: Any = mean.attributes.get("axes")
    if axes is None and len(mean.inputs) > 1:
        axes = host_of(graph.constants.get(mean.inputs[1]))
    return None if axes is None or not len(axes) else tuple(int(a) for a in axes)


def _maker(graph: Rewriting, name: str, *ops: str) -> Node | None:
    """The node that computes a name, if it is of these operators and has their inputs."""
    node = graph.maker(name, *ops)
    if node is None:
        return None
    counts = {"Sqrt": (1,), "Reciprocal": (1,), "ReduceMean": (1, 2)}.get(node.op, (2,))
    return node if len(node.inputs) in counts else None


def _with_constant(graph: Rewriting, node: Node) -> list[tuple[str, str]]:
    """The ways to see a node's inputs as a constant of floats and something that is none."""
    if len(node.inputs) != 2:
        return []
    one, other = node.inputs
    return [
        (a, b)
        for a, b in ((one, other), (other, one))
        if _is_constant(graph, a) and not _is_constant(graph, b)
    ]


def _is_constant(graph: Rewriting, name: str) -> bool:
    return isinstance(graph.constants.get(name), Constant)


def _goes_on(graph: Rewriting, name: str, op: str) -> bool:
    """Whether the one reader of a value is such a node, with a constant: its rule sees both."""
    reader = graph.only_reader(name)
    if reader is None or reader.op != op or reader.domain:
        return False
    return bool(_with_constant(graph, reader))


def _made(node: Node, norm: Norm, *weights: str) -> Node:
    attributes = {"axes": norm.axes, "epsilon": norm.eps}
    op = "LayerNorm" if norm.centered else "RMSNorm"
    return Node(op, OURS, node.name, (norm.x, *weights), node.outputs, attributes)
