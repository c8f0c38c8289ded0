"""ONNX files whose functions, sequences and optionals are drawn, right and wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.models.onnx.writer import Graph, attribute, field, fields, graph, model, node, value

DOMAINS = ("", "one", "two")
NAMES = ("f", "g", "h", "Relu", "k")
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def some(rng: np.random.Generator, of: Any) -> Any:
    """One of several."""
    return of[int(rng.integers(len(of)))]


def reference(name: str, of: str, kind: int) -> bytes:
    """An attribute that a function's caller gives."""
    return field(5, field(1, name) + field(21, of) + field(20, kind))


def function(
    domain: str,
    name: str,
    ends: tuple[list[str], list[str]],
    nodes: list[bytes],
    attributes: list[str] = (),
    defaults: list[bytes] = (),
    overload: str = "",
    sets: tuple[tuple[str, int], ...] = (("", 17), ("one", 1), ("two", 1)),
) -> bytes:
    """A function of a file."""
    made = field(1, name) + fields(4, ends[0]) + fields(5, ends[1]) + fields(6, attributes)
    made += fields(7, nodes) + fields(11, defaults) + field(10, domain)
    made += b"".join(field(9, field(1, d) + field(2, v)) for d, v in sets)
    return field(25, made + (field(13, overload) if overload else b""))


def body(
    rng: np.random.Generator, known: list[str], attributes: list[str], depth: int
) -> list[bytes]:
    """Nodes that read names, call functions, and take attributes by reference."""
    nodes = []
    for n in range(int(rng.integers(1, 5))):
        reads, out = some(rng, known), f"v{depth}_{n}"
        kind = rng.random()
        if kind < 0.3:
            nodes.append(node(some(rng, ["Relu", "Neg", "Exp", "Identity"]), reads, out))
        elif kind < 0.4:
            nodes.append(node("Add", f"{reads} {some(rng, known)}", out))
        elif kind < 0.6:
            op, name, of = some(
                rng,
                [("Softmax", "axis", 2), ("LeakyRelu", "alpha", 1), ("Transpose", "perm", 7),
                 ("Cast", "to", 2), ("Constant", "value", 4), ("If", "then_branch", 5)],
            )  # fmt: skip
            of = of if rng.random() < 0.8 else int(rng.integers(0, 16))
            inputs = "" if op == "Constant" else reads
            nodes.append(
                node(op, inputs, out) + reference(name, some(rng, [*attributes, "nobody"]), of)
            )
        elif kind < 0.7 and depth < 3:
            inner = body(rng, known, attributes, depth + 1)
            sub = graph(inner, [], [f"v{depth + 1}_0"])
            nodes.append(node("If", reads, out, then_branch=sub, else_branch=sub))
        else:
            count = int(rng.choice([0, 1, 1, 1, 2, 3]))
            inputs = " ".join(some(rng, [*known, "_"]) for _ in range(count))
            how = {
                a: some(rng, [1, 0.5, [1, 0], "text", X[0]])
                for a in attributes
                if rng.random() < 0.5
            }
            outs = out if rng.random() < 0.8 else f"{out} {out}b"
            nodes.append(node(some(rng, NAMES), inputs, outs, some(rng, DOMAINS), **how))
        known = [*known, out]
    if rng.random() < 0.1:
        rng.shuffle(nodes)
    return nodes


def of_functions(rng: np.random.Generator) -> tuple[bytes, Any]:
    """Functions that call each other: nested, in circles, under names that clash."""
    kind = rng.random()
    if kind < 0.04:  # each calls the next twice
        count = int(rng.integers(8, 60))
        made = [
            function("one", f"f{k}", (["x"], ["y"]), [node(f"f{k + 1}", "x", "a", "one"), node(f"f{k + 1}", "a", "y", "one")])
            for k in range(count)
        ]  # fmt: skip
        made.append(function("one", f"f{count}", (["x"], ["y"]), [node("Relu", "x", "y")]))
        return model(
            graph([node("f0", "x", "y", "one")], ["x"], ["y"]), more=b"".join(made), one=1
        ), X
    if kind < 0.08:  # a long chain
        count = int(rng.integers(30, 600))
        made = [
            function("one", f"f{k}", (["x"], ["y"]), [node(f"f{k + 1}", "x", "y", "one")])
            for k in range(count)
        ]
        made.append(function("one", f"f{count}", (["x"], ["y"]), [node("Relu", "x", "y")]))
        return model(
            graph([node("f0", "x", "y", "one")], ["x"], ["y"]), more=b"".join(made), one=1
        ), X
    made = []
    for _ in range(int(rng.integers(1, 5))):
        attributes = ["p", "q"][: int(rng.integers(0, 3))]
        inputs = ["x", "w"][: int(rng.integers(0, 3))]
        nodes = body(rng, inputs or ["lost"], attributes, 0)
        outputs = ["v0_0", some(rng, ["x", "v0_1", "lost", "v0_0"])][: int(rng.integers(1, 3))]
        defaults = [
            attribute(a, some(rng, [1, 0.25, [1, 0], X[0], "text"]))
            for a in attributes
            if rng.random() < 0.5
        ]
        sets = (("", 17), ("one", 1), ("two", 1)) if rng.random() < 0.9 else (("", 99),)
        made.append(
            function(some(rng, DOMAINS), some(rng, NAMES), (inputs, outputs), nodes, attributes,
                     defaults, some(rng, ["", "", "", "o"]), sets)
        )  # fmt: skip
    nodes = body(rng, ["x"], [], 0)
    return model(graph(nodes, ["x"], ["v0_0"]), more=b"".join(made), one=1, two=1), X


OPS: dict[str, tuple[str, str]] = {
    "SequenceConstruct": ("tt", "s"),
    "SequenceEmpty": ("", "s"),
    "SequenceInsert": ("sti", "s"),
    "SequenceErase": ("si", "s"),
    "SequenceAt": ("si", "t"),
    "SequenceLength": ("s", "i"),
    "ConcatFromSequence": ("s", "t"),
    "SplitToSequence": ("ti", "s"),
    "Optional": ("t", "o"),
    "OptionalGetElement": ("o", "t"),
    "OptionalHasElement": ("o", "b"),
    "Relu": ("t", "t"),
    "Identity": ("s", "s"),
    "Add": ("tt", "t"),
    "SequenceMap": ("s", "s"),
    "If": ("b", "t"),
    "Loop": ("ibs", "s"),
    "Shape": ("t", "i"),
    "Cast": ("i", "t"),
}
"""What operators take and give: tensors, sequences, optionals, integers, bools."""


def typed(name: str, kind: str) -> bytes:
    """An input of a kind."""
    if kind in "tib":
        return value(name, {"t": np.float32, "i": np.int64, "b": bool}[kind])
    inner = field(1, field(1, 1))
    return field(1, name) + field(2, field({"s": 4, "o": 9}[kind], field(1, inner)))


def of_sequences(rng: np.random.Generator) -> tuple[bytes, Any]:
    """Graphs of sequences and optionals; now and then a value is of another kind."""
    given = {"x": X, "n": np.array(int(rng.integers(-4, 5))), "c": np.array(bool(rng.integers(2)))}
    kinds = {"x": "t", "n": "i", "c": "b"}
    inputs = [typed(k, v) for k, v in kinds.items()]
    if rng.random() < 0.6:
        inputs.append(typed("s", "s"))
        kinds["s"] = "s"
        given["s"] = some(rng, [[X, X], [], [X], [X, X[0]], X, None, [[X]], "text", [None]])
    if rng.random() < 0.6:
        inputs.append(typed("o", "o"))
        kinds["o"] = "o"
        given["o"] = some(rng, [X, None, [X], 3])
    nodes = []
    for k in range(int(rng.integers(1, 9))):
        op = some(rng, list(OPS))
        takes, gives = OPS[op]
        names = []
        for place, kind in enumerate(takes):
            if op == "Loop" and place == 0:  # without a number of rounds it has no end
                names.append("n")
                continue
            fitting = [n for n, one in kinds.items() if one == kind]
            wrong = not fitting or rng.random() < 0.08
            names.append(some(rng, [*kinds, "_"]) if wrong else some(rng, fitting))
        how: dict[str, Any] = {}
        if op in ("ConcatFromSequence", "SplitToSequence"):
            how = {
                "axis": int(rng.integers(-3, 4)),
                "new_axis": 1,
                "keepdims": int(rng.integers(2)),
            }
            how.pop("new_axis" if op[0] == "S" or rng.random() < 0.5 else "keepdims")
        elif op == "Cast":
            how = {"to": int(rng.integers(0, 30)) if rng.random() < 0.3 else 1}
        elif op == "If":
            branches = [graph([node("Relu", some(rng, list(kinds)), "z")], [], ["z"]) for _ in "ab"]
            how = {"then_branch": branches[0], "else_branch": branches[1]}
        elif op == "SequenceMap":
            how = {"body": Graph(graph([node("Neg", "e", "z")], [value("e")], ["z"]))}
        elif op == "Loop":
            steps = [node("Identity", "ok", "go"), node("SequenceInsert", "q x", "r")]
            ins = [typed("i", "i"), typed("ok", "b"), typed("q", "s")]
            how = {
                "body": graph(
                    steps[rng.random() < 0.05 :], ins, [typed("go", "b"), typed("r", "s")]
                )
            }
        nodes.append(node(op, " ".join(names), f"v{k}", **how))
        kinds[f"v{k}"] = gives
    outputs = [typed(n, kinds[n]) for n in list(kinds)[-2:]]
    return model(graph(nodes, inputs, outputs), opset=int(rng.choice([17, 21]))), given
