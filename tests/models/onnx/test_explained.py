"""`cb.explain` of graphs that data part: all programs, and what runs between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.models.onnx import OnnxModel, load
from tests.models.onnx.writer import graph, model, node, tensor, value

PLAIN = ("Relu", "Exp", "Neg", "Abs", "Tanh", "Sigmoid")


class Drawn:
    """A random chain of operators on a matrix, some of which give lengths that data decide."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[bytes] = []
        self.parting = 0
        self.count = 0
        self.last = "x"
        for _ in range(int(self.rng.integers(3, 8))):
            self.add(str(self.rng.choice((*PLAIN, "compress", "branch"))))
        self.net: OnnxModel = load(
            model(graph(self.nodes, [value("x", shape=("n", 4))], [self.last], self.weights()))
        )

    def weights(self) -> list[bytes]:
        return [
            tensor("zero", np.array(0.0, np.float32)),
            tensor("axis", np.array([1], np.int64)),
            tensor("first", np.array(1, np.int64)),
        ]

    def put(self, op: str, inputs: str, **how: Any) -> str:
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(node(op, inputs, name, name=f"n{self.count}", **how))
        return name

    def add(self, kind: str) -> None:
        if kind == "compress":  # the rows whose sum is above zero
            self.parting += 1
            above = self.put("Greater", f"{self.put('ReduceSum', f'{self.last} axis')} zero")
            flat = self.put("Reshape", f"{above} {self.put('Shape', self.flat_shape(above))}")
            self.last = self.put("Compress", f"{self.last} {flat}", axis=0)
        elif kind == "branch":
            asked = self.put("Greater", f"{self.put('ReduceMax', self.last, keepdims=0)} zero")
            bodies = [
                graph([node(op, self.last, f"b{self.count}{op}")], [], [f"b{self.count}{op}"])
                for op in ("Neg", "Abs")
            ]
            self.last = self.put("If", asked, then_branch=bodies[0], else_branch=bodies[1])
        else:
            self.last = self.put(kind, self.last)

    def flat_shape(self, name: str) -> str:
        return self.put("Squeeze", f"{name} axis")


@pytest.mark.parametrize("seed", range(12))
def test_all_parts_of_a_graph_are_explained_and_it_stays_what_it_is(seed: int) -> None:
    drawn = Drawn(seed)
    x = drawn.rng.standard_normal((5, 4)).astype(np.float32)
    before = drawn.net(x)[drawn.last].numpy()
    found = cb.explain(drawn.net, x)

    assert len(found.alone) >= drawn.parting
    assert all(str(one) in str(found) for one in found.alone)
    assert {a.op for a in found.alone} <= {"Compress"}
    assert [a.after for a in found.alone] == sorted(a.after for a in found.alone)
    assert all(p.steps for p in found.programs)
    assert found.traces == len(found.traced) == len(found.programs) or not drawn.parting
    np.testing.assert_array_equal(drawn.net(x)[drawn.last].numpy(), before)


def test_programs_stand_in_their_order_with_the_nodes_that_they_are() -> None:
    nodes = [
        node("Exp", "x", "a", name="one"),
        node("NonZero", "a", "b", name="two"),
        node("Transpose", "b", "c", name="three"),
        node("Cast", "c", "d", name="four", to=1),
        node("Mul", "d d", "y", name="five"),
    ]
    net = load(model(graph(nodes, [value("x", shape=(2, 3))], ["y"])))
    found = cb.explain(net, np.ones((2, 3), np.float32))

    assert [(a.after, a.op) for a in found.alone] == [(1, "NonZero")]
    first, second = found.programs
    assert first.kind.startswith("node one") and second.kind.startswith("nodes three to five")
    assert [s.op for s in first.steps if s.op != "input"] == ["exp"]
    assert str(found).index("node one") < str(found).index("NonZero") < str(found).index("three")


def test_a_graph_that_is_one_program_is_explained_as_before() -> None:
    net = load(model(graph([node("Exp", "x", "y")], [value("x", shape=(2, 3))], ["y"])))
    found = cb.explain(net, np.ones((2, 3), np.float32))
    assert not found.alone and len(found.programs) == 1 and found.function == "OnnxModel"
