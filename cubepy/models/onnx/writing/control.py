"""Loops and branches, whose bodies are graphs that read names from around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.lang.dtypes import bool_
from cubepy.models.onnx.writing import messages
from cubepy.models.onnx.writing.graph import Op, Unwritable, Writer, form
from cubepy.tensor.control import projected
from cubepy.tensor.control.body import graph_of, traced
from cubepy.tensor.control.recurrence import formula
from cubepy.tensor.ir import ABSENT, Graph
from cubepy.tensor.namespace.creation import zeros
from cubepy.tensor.ops import Spec


def body(
    w: Writer, text: str, taken: int, held: Sequence[str], more: Sequence[bytes] = ()
) -> tuple[bytes, int]:
    """A graph of which some first inputs are given by the loop; and how many results it has.

    Args:
        w: of the graph around it.
        text: of the body.
        taken: how many inputs the loop gives.
        held: names of the others.
        more: inputs that the loop gives and the body does not read.
    """
    graph, inner = graph_of(text), w.inside()
    inputs, named = entry(w, graph, taken)
    known = around(w, graph, [*named, *held])
    inner.write(graph, known)
    outputs = []
    for value in graph.outputs:
        name = w.name("result")
        inner.result(known[value], name)
        outputs.append(w.info(name, graph.values[value]))
    pieces = messages.graph(inner.nodes, inner.weights, [*inputs, *more], outputs)
    return b"".join(pieces), len(outputs)


def entry(w: Writer, graph: Graph, taken: int) -> tuple[list[bytes], list[str]]:
    """What a loop gives to a graph as its first inputs: said in a file, and named."""
    named = [w.name("step") for _ in range(taken)]
    specs = [graph.values[at] for at in graph.inputs[:taken]]
    return [w.info(name, spec) for name, spec in zip(named, specs, strict=True)], named


def around(w: Writer, graph: Graph, names: Sequence[str]) -> dict[int, str]:
    """The names of a graph's values before it is written: of its inputs."""
    for name in names:
        w.used(name)
    return {ABSENT: "", **dict(zip(graph.inputs, names, strict=True))}


@form("scan")
def scan(w: Writer, op: Op, *names: str) -> Any:
    """A loop along first axes; one without slices goes along zeros."""
    carries, slices = op.attrs["carries"], op.attrs["slices"]
    if op.attrs.get("until"):
        raise Unwritable("scan that ends where data say so")
    given, more = list(names[: carries + slices]), []
    if not slices:
        given.append(w.constant(np.zeros(op.attrs["length"], np.bool_), np.bool_))
        more.append(messages.value_info(w.name("step"), np.dtype(np.bool_), ()))
    made, count = body(w, op.attrs["body"], carries + slices, names[carries + slices :], more)
    way, along = int(op.attrs["reverse"]), max(slices, 1)
    how: dict[str, Any] = {"body": made, "num_scan_inputs": along}
    if way:
        how["scan_input_directions"] = [way] * along
        how["scan_output_directions"] = [way] * (count - carries) or None
    return w.add("Scan", *given, count=count, **how)


@form("cond")
def cond(w: Writer, op: Op, pred: str, *names: str) -> Any:
    """A choice between two graphs."""
    held = op.attrs["held"]
    shared = len(names) - sum(held)
    parts = (names[: shared + held[0]], (*names[:shared], *names[shared + held[0] :]))
    branches = [
        body(w, text, 0, read) for text, read in zip(op.attrs["bodies"], parts, strict=True)
    ]
    (then, count), (otherwise, _) = branches
    return w.add("If", pred, count=count, then_branch=then, else_branch=otherwise)


@form("while_loop")
def while_loop(w: Writer, op: Op, *names: str) -> Any:
    """A loop that asks before its first round, and at the end of each."""
    asks, makes = (graph_of(text) for text in op.attrs["bodies"])
    first, second = op.attrs["held"]
    count = len(names) - first - second
    carried, asked, made = names[:count], names[count : count + first], names[count + first :]
    known = around(w, asks, [*carried, *asked])
    w.write(asks, known)
    begins = known[asks.outputs[0]]

    inner = w.inside()
    inputs, named = entry(w, makes, count)
    known = around(w, makes, [*named, *made])
    inner.write(makes, known)
    given = [known[value] for value in makes.outputs]
    known = around(w, asks, [*given, *asked])
    inner.write(asks, known)
    results = [(known[asks.outputs[0]], Spec((), bool_))]
    results += [(n, makes.values[v]) for n, v in zip(given, makes.outputs, strict=True)]
    outputs = []
    for value, spec in results:
        name = w.name("result")
        inner.result(value, name)
        outputs.append(w.info(name, spec))
    counter = messages.value_info(w.name("round"), np.dtype(np.int64), ())
    goes_on = messages.value_info(w.name("again"), np.dtype(np.bool_), ())
    pieces = messages.graph(inner.nodes, inner.weights, [counter, goes_on, *inputs], outputs)
    return w.add("Loop", "", begins, *carried, count=count, body=(b"".join(pieces)))


@form("recurrence")
def recurrence(w: Writer, op: Op, *names: str) -> list[str]:
    """A recurrence as the scans that it stands for."""

    def scans(gates: Any, matrix: Any, bias: Any, holes: Any, lengths: Any, h: Any, c: Any) -> Any:
        return formula(gates, matrix, bias, holes, h, c, lengths, **op.attrs)

    return _as_scans(w, op, names, scans)


@form("projected_recurrence")
def projected_recurrence(w: Writer, op: Op, *names: str) -> list[str]:
    """The same where states are projected."""
    return _as_scans(w, op, names, lambda *given: projected.formula(*given, **op.attrs))


def _as_scans(w: Writer, op: Op, names: tuple[str, ...], scans: Callable[..., Any]) -> list[str]:
    there = [k for k, name in enumerate(names) if name]

    def again(*tensors: Any) -> Any:
        given = dict(zip(there, tensors, strict=True))
        return tuple(scans(*(given.get(k) for k in range(len(names)))))

    like = tuple(zeros(op.spec(k).shape, dtype=op.spec(k).dtype) for k in there)
    graph = graph_of(traced(again, like, "cb.save").text)
    known = {ABSENT: "", **{at: names[k] for at, k in zip(graph.inputs, there, strict=True)}}
    w.write(graph, known)
    return [known[value] for value in graph.outputs]
