"""Gradients by what stays the same in a loop, summed up behind it.

A weight of a layer in the body has a gradient in each iteration, G.T @ X; their sum over all is one
product of all G and all X on top of each other. So the loop gives G and X, and keeps no sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from cubepy.tensor.gradients.engine import walk_back
from cubepy.tensor.graph import execute
from cubepy.tensor.ir import Graph
from cubepy.tensor.modes import enable_grad
from cubepy.tensor.value import Value


class Use(NamedTuple):
    """What a body does with a value w that stays the same.

    Attributes:
        kind: "rows" (x @ w), "columns" (x @ w.T) or "sum" (something + w, broadcast).
        x: the value of x; None for a sum.
        out: the value of the result.
    """

    kind: str
    x: int | None
    out: int


TURNED = {"rows": "columns", "columns": "rows"}


def uses_of(graph: Graph, value: int) -> list[Use] | None:
    """All that a body does with a value, if it is products and sums alone; else None."""
    if value in graph.outputs:
        return None
    found: list[Use] = []
    shape = graph.values[value].shape
    for first, node in zip(graph.firsts, graph.nodes, strict=True):
        count, attrs = node.inputs.count(value), dict(node.attrs)
        if not count:
            continue
        at, x = node.inputs.index(value), node.inputs[0]
        out = node.results[0]
        if node.op == "linear" and at in (1, 2) and count == 1 and attrs["activation"] is None:
            found.append(Use("columns", x, first) if at == 1 else Use("sum", None, first))
        elif node.op == "matmul" and at == count == 1 and len(shape) == 2 and len(out.shape) > 1:
            found.append(Use("rows", x, first))
        elif node.op == "add" and count == 1 and math.prod(out.shape) > math.prod(shape):
            found.append(Use("sum", None, first))
        elif node.op == "permute" and attrs["axes"] == (1, 0):
            inner = uses_of(graph, first)
            if inner is None or any(use.kind not in TURNED for use in inner):
                return None
            found += [use._replace(kind=TURNED[use.kind]) for use in inner]
        else:
            return None
    return found


def by_use(use: Use, x: Any, g: Any, shape: tuple[int, ...]) -> Any:
    """A gradient by what stays the same, of x and the gradient by the result in all iterations."""
    if use.kind == "sum":
        lead = g.ndim - len(shape)
        stretched = [d + lead for d, n in enumerate(shape) if n == 1 and g.shape[d + lead] != 1]
        total = g.sum(axis=(*range(lead), *stretched), keepdims=True)
        return total.reshape(shape)
    x, g = (t.reshape(math.prod(t.shape[:-1]), t.shape[-1]) for t in (x, g))
    one, other = (x, g) if use.kind == "rows" else (g, x)
    return one.transpose(0, 1) @ other


def gradients_within(
    graph: Graph,
    inputs: Sequence[Any],
    needs: Sequence[bool],
    grads: Sequence[Any],
    values: Sequence[int],
    create_graph: bool,
) -> tuple[list[Any], list[Any], list[Any]]:
    """Gradients by those inputs of a graph that need them, and by some values in it.

    Args:
        graph: a body.
        inputs: what it is given.
        needs: of each, whether its gradient is wanted.
        grads: gradients by its outputs, None for those that have none.
        values: the numbers of the values.
        create_graph: whether gradients have gradients.

    Returns:
        Gradients by the inputs (None where there is none), the values, and gradients by them.
    """
    given = list(inputs)
    if not create_graph:
        given = [
            t.detach().requires_grad_(need and t.dtype.is_float)
            for t, need in zip(inputs, needs, strict=True)
        ]
    count = len(graph.outputs)
    with enable_grad():
        made = execute(replace(graph, outputs=(*graph.outputs, *values)), given)
    outputs, within = made[:count], made[count:]
    seeds = [
        (t.value, g)
        for t, g in zip(outputs, grads, strict=True)
        if g is not None and t.value.needs_grad
    ]
    wanted = [t.value for t, need in zip(given, needs, strict=True) if need]
    wanted += [t.value for t in within if t.value.needs_grad]
    found = walk_back(
        seeds, wanted, _like(given), create_graph=create_graph, retain_graph=create_graph
    )
    by_input = [found.get(t.value) if need else None for t, need in zip(given, needs, strict=True)]
    return by_input, within, [found.get(t.value) for t in within]


def _like(given: Sequence[Any]) -> Any:
    """What makes tensors of values."""
    kind = type(given[0])

    def tensor(value: Value) -> Any:
        made = object.__new__(kind)
        made.value = value
        return made

    return tensor
