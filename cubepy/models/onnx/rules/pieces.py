"""GELU and attention as exporters write them: in pieces, of several nodes."""

from __future__ import annotations

import math
from typing import Any

from cubepy.models.formats.onnx import Node
from cubepy.models.onnx.rewriting import OURS, Rewriting, pieces

ROOT = math.sqrt(0.5)
TANH = math.sqrt(2 / math.pi)
CUBIC = 0.044715
HIDDEN = -1e30
"""Scores below it are those of keys that nobody looks at."""


def near(value: float | None, wanted: float) -> bool:
    """Whether a number of a file is a number of a formula, rounded."""
    return value is not None and abs(value - wanted) <= 1e-3 * abs(wanted)


def factors(graph: Rewriting, node: Node, depth: int = 4) -> tuple[float, list[str]] | None:
    """A product as a number and the names of what is multiplied; powers are written out.

    Products inside that nobody else reads are taken apart; a division by a number is a factor.
    """
    number, names = 1.0, []
    for at, name in enumerate(node.inputs):
        value = graph.number(name)
        if value is not None:
            divides = node.op == "Div" and at == 1
            if divides and value == 0:
                return None
            number *= 1 / value if divides else value
            continue
        if node.op == "Div" and at == 1:
            return None
        inner = graph.maker(name, "Mul", "Div", "Pow")
        if inner is not None and inner.op == "Pow":
            power = graph.number(inner.inputs[1])
            if graph.uses[name] != 2 or power not in (2.0, 3.0):
                names.append(name)
            else:
                names += [inner.inputs[0]] * int(power)
            continue
        alone = inner is not None and depth and graph.only_reader(name) is not None
        below = factors(graph, inner, depth - 1) if inner is not None and alone else None
        if below is None:
            names.append(name)
        else:
            number *= below[0]
            names += below[1]
    return number, names


def summands(graph: Rewriting, name: str) -> tuple[float, str] | None:
    """A sum of a number and something that only the sum reads, or that others read, too."""
    node = graph.maker(name, "Add")
    if node is None or graph.only_reader(name) is None:
        return None
    for one, other in (node.inputs, node.inputs[::-1]):
        value = graph.number(one)
        if value is not None:
            return value, other
    return None


@pieces("Mul", "Div")
def gelu(graph: Rewriting, node: Node) -> Node | None:
    """x / 2 (1 + erf(x / sqrt 2)), or with tanh(sqrt(2 / pi) (x + 0.044715 x^3))."""
    found = factors(graph, node)
    if found is None or not near(found[0], 0.5) or len(found[1]) != 2:
        return None
    for x, grown in (found[1], found[1][::-1]):
        parts = summands(graph, grown)
        if parts is None or not near(parts[0], 1.0):
            continue
        inner = graph.maker(parts[1], "Erf", "Tanh")
        if inner is None or graph.only_reader(parts[1]) is None:
            continue
        if inner.op == "Erf" and scaled(graph, inner.inputs[0], x):
            return Node("Gelu", OURS, node.name, (x,), node.outputs, {"approximate": "none"})
        if inner.op == "Tanh" and cubic(graph, inner.inputs[0], x):
            return Node("Gelu", OURS, node.name, (x,), node.outputs, {"approximate": "tanh"})
    return None


def scaled(graph: Rewriting, name: str, x: str) -> bool:
    """Whether a value is x / sqrt 2."""
    node = graph.maker(name, "Mul", "Div")
    if node is None or graph.only_reader(name) is None:
        return False
    found = factors(graph, node)
    return found is not None and near(found[0], ROOT) and found[1] == [x]


def cubic(graph: Rewriting, name: str, x: str) -> bool:
    """Whether a value is sqrt(2 / pi) (x + 0.044715 x^3), or the same with x before the sum."""
    node = graph.maker(name, "Mul")
    found = None if node is None else factors(graph, node)
    if found is None or not near(found[0], TANH) or graph.only_reader(name) is None:
        return False
    names = found[1]
    if len(names) == 2 and x in names:
        parts = summands(graph, names[1 - names.index(x)])
        return (
            parts is not None
            and near(parts[0], 1.0)
            and powers_of(graph, parts[1], x) == 2  # x^2, since x stands before the sum
        )
    sum_node = graph.maker(names[0], "Add") if len(names) == 1 else None
    if sum_node is None or x not in sum_node.inputs or graph.only_reader(names[0]) is None:
        return False
    return powers_of(graph, sum_node.inputs[1 - sum_node.inputs.index(x)], x) == 3


def powers_of(graph: Rewriting, name: str, x: str) -> int:
    """n where a value is 0.044715 x^n; 0 for others."""
    node = graph.maker(name, "Mul")
    found = None if node is None else factors(graph, node)
    if found is None or not near(found[0], CUBIC) or graph.only_reader(name) is None:
        return 0
    return len(found[1]) if set(found[1]) == {x} else 0


@pieces("MatMul")
def attention(graph: Rewriting, node: Node) -> Node | None:
    """softmax(scale q k^T + mask) v, whose scores nobody else reads.

    A mask is added, or takes the place of scores by `Where`. Queries and keys may be scaled before
    they meet, and what is NaN behind the softmax may be 0.
    """
    if graph.only_reader(node.inputs[0]) is None:
        return None
    guarded = without_nan(graph, node.inputs[0])
    soft = graph.maker(guarded or node.inputs[0], "Softmax")
    if soft is None:
        return None
    axis = soft.attributes.get("axis", -1)
    name, facts = soft.inputs[0], {"axis": axis, "zeros": guarded is not None}
    mask: tuple[str, ...] = ("", "")
    step = graph.maker(name, "Add", "Where")
    if step is not None and graph.only_reader(name) is not None:
        found = masked(graph, step)
        if found is None:
            return None
        name, mask = found[0], found[1]
        facts |= found[2]
        facts["zeros"] &= facts.pop("infinite", True)
    scale: tuple[str, ...] = ("",)
    step = graph.maker(name, "Mul", "Div")
    if step is not None and graph.only_reader(name) is not None:
        at = next((k for k, n in enumerate(step.inputs) if scores(graph, n) is not None), None)
        if at is None or (step.op == "Div" and at == 1):
            return None
        scale, name = (step.inputs[1 - at],), step.inputs[at]
        facts["divides"] = step.op == "Div"
    product = scores(graph, name)
    if product is None:
        return None
    (q, by_q), (k, by_k) = (before_scale(graph, name) for name in product.inputs)
    facts["factor"] = by_q * by_k
    inputs = (q, k, node.inputs[1], *scale, *mask)
    return Node("Attention", OURS, node.name, inputs, node.outputs, facts)


def without_nan(graph: Rewriting, name: str) -> str | None:
    """x where a value is `Where(IsNaN(x), 0, x)` and nothing else reads x: what exporters write of
    attention, so that rows that see nothing are zero.
    """
    chosen = graph.maker(name, "Where")
    asks = None if chosen is None else graph.maker(chosen.inputs[0], "IsNaN")
    if chosen is None or asks is None or graph.only_reader(chosen.inputs[0]) is None:
        return None
    x = asks.inputs[0]
    alone = graph.uses[x] == 4 and len(graph.readers.get(x, ())) == 2
    return x if alone and chosen.inputs[2] == x and graph.number(chosen.inputs[1]) == 0 else None


def before_scale(graph: Rewriting, name: str) -> tuple[str, float]:
    """What is multiplied by a number that is no other node's, and the number."""
    node = graph.maker(name, "Mul", "Div")
    if node is not None and graph.only_reader(name) is not None:
        for at in (1, 0) if node.op == "Mul" else (1,):
            value = graph.number(node.inputs[at])
            if value:
                return node.inputs[1 - at], value if node.op == "Mul" else 1 / value
    return name, 1.0


def scores(graph: Rewriting, name: str) -> Node | None:
    """The product that computes scores which one node reads."""
    made = graph.maker(name, "MatMul")
    return made if made is not None and graph.only_reader(name) is not None else None


def masked(graph: Rewriting, step: Node) -> tuple[str, tuple[str, str], dict[str, Any]] | None:
    """Scores before a mask, what is added or the condition, and what `Where` puts there."""

    def leads(name: str) -> bool:
        made = graph.maker(name, "MatMul", "Mul", "Div")
        if made is None or graph.only_reader(name) is None:
            return False
        return made.op == "MatMul" or any(scores(graph, n) for n in made.inputs)

    if step.op == "Add":
        at = next((k for k, n in enumerate(step.inputs) if leads(n)), None)
        return None if at is None else (step.inputs[at], (step.inputs[1 - at], ""), {})
    condition, one, other = step.inputs
    for name, fill, turned in ((other, one, False), (one, other, True)):
        value = graph.number(fill)
        if leads(name) and value is not None and value <= HIDDEN:
            return name, ("", condition), {"hidden": not turned, "infinite": value == -math.inf}
    return None
