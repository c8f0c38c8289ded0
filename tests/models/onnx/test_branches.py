"""Branches that data decide: part of a program where both give the same shapes, else between two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy.models.onnx import load
from cubepy.models.onnx.ops import control
from tests.models.onnx.writer import graph, model, node, tensor, value

SIDE = 4


class Drawn:
    """A random graph with branches in branches, and what it computes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 5])
        self.count, self.alike = 0, True
        self.weights = {
            "zero": np.float32(0),
            "w": self.rng.standard_normal((SIDE, SIDE)).astype(np.float32),
            "first": np.array([0]),
            "two": np.array([2]),
        }
        nodes, last, self.run = self.part("x", 3)
        self.net = load(
            model(
                graph(
                    nodes,
                    [value("x", shape=("rows", SIDE))],
                    [last],
                    [tensor(k, v) for k, v in self.weights.items()],
                )
            )
        )
        self.last = last

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def part(self, given: str, depth: int) -> tuple[list[bytes], str, Any]:
        """Nodes from a name to another, and the same in NumPy."""
        nodes: list[bytes] = []
        steps: list[Any] = []
        for _ in range(int(self.rng.integers(1, 4))):
            kind = str(self.rng.choice(["Neg", "Abs", "MatMul", "If", "If"]))
            out = self.name()
            if kind == "If" and depth:
                found, flag = self.branch(given, out, depth)
                nodes += flag
                steps.append(found)
            elif kind == "MatMul":
                nodes.append(node("MatMul", f"{given} w", out))
                steps.append(lambda x: x @ self.weights["w"])
            else:
                nodes.append(node("Neg" if kind == "If" else kind, given, out))
                steps.append(np.abs if kind == "Abs" else np.negative)
            given = out

        def run(x: Any) -> Any:
            for step in steps:
                x = step(x)
            return x

        return nodes, given, run

    def branch(self, given: str, out: str, depth: int) -> tuple[Any, list[bytes]]:
        asked, total = self.name(), self.name()
        sides, runs = [], []
        odd = self.rng.integers(5)
        for n in range(2):
            inner, last, run = self.part(given, depth - 1)
            if n == 0 and odd == 0:  # a side with a row more
                self.alike = False
                more = self.name()
                inner.append(node("Concat", f"{last} {last}", more, axis=0))
                last, run = more, lambda x, run=run: np.concatenate([run(x)] * 2)
            if n == 0 and odd == 1:  # a side that asks for elements
                self.alike = False
                flags, kept = self.name(), self.name()
                inner.append(node("Greater", f"{last} zero", flags))
                inner.append(node("NonZero", flags, kept))
                cast, rows = self.name(), self.name()
                inner.append(node("Cast", kept, cast, to=1))
                inner.append(node("ReduceSum", cast, rows, keepdims=0))
                more = self.name()
                inner.append(node("Add", f"{last} {rows}", more))

                def added(x: Any, run: Any = run) -> Any:
                    y = run(x)
                    return y + np.float32(np.sum(np.nonzero(y > 0)))

                last, run = more, added
            sides.append(graph(inner, [], [last]))
            runs.append(run)
        nodes = [
            node("ReduceSum", given, total, keepdims=0),
            node("Greater", f"{total} zero", asked),
            node("If", asked, out, then_branch=sides[0], else_branch=sides[1]),
        ]
        return (lambda x: runs[0 if x.sum() > 0 else 1](x)), nodes


@pytest.mark.parametrize("seed", range(16))
def test_branches_of_random_graphs_are_those_of_numpy(seed: int) -> None:
    drawn = Drawn(seed)
    rng = np.random.default_rng([seed, 9])
    for n in range(6):
        x = rng.standard_normal((1 + n % 3, SIDE)).astype(np.float32)
        if abs(drawn.run(x)).max() > 1e5:
            continue
        np.testing.assert_allclose(
            drawn.net(x)[drawn.last].numpy(), drawn.run(x), rtol=1e-4, atol=1e-4
        )
    if drawn.alike:
        assert len(drawn.net.runner.segments) == 1 and not drawn.net.runner.split


def net_of(yes: Any, no: Any, more: Any = ()) -> Any:
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("Greater", "s zero", "c"),
        node("If", "c", "y", then_branch=yes, else_branch=no),
        *more,
    ]
    kept = [tensor("zero", np.float32(0)), tensor("seven", np.array([7]))]
    return load(model(graph(nodes, ["x"], ["z" if more else "y"], kept)))


def test_a_large_branch_is_not_compiled_with_the_other() -> None:
    """What no call takes costs nothing."""
    long = [
        node("Neg", f"n{k}" if k else "x", f"n{k + 1}") for k in range(control.MOST_BRANCHED + 1)
    ]
    net = net_of(graph(long, [], [f"n{len(long)}"]), graph([node("Abs", "x", "a")], [], ["a"]))
    x = np.float32([-1, -2])
    assert net(x)["y"].tolist() == [1, 2] and net(-x)["y"].tolist() == [-1, -2]
    assert net.runner.split == {2}


def test_a_branch_whose_nodes_fail_is_taken_alone() -> None:
    """A side that shapes forbid says so where a call takes it, and nowhere else."""
    wrong = graph([node("Reshape", "x seven", "a")], [], ["a"])
    net = net_of(wrong, graph([node("Abs", "x", "b")], [], ["b"]))
    x = np.float32([-1, -2])
    assert net(x)["y"].tolist() == [1, 2]
    with pytest.raises(Exception, match="Reshape"):
        net(-x)
    assert net(x)["y"].tolist() == [1, 2]


def test_a_branch_that_gives_shapes_decides_them() -> None:
    yes = graph([node("Shape", "x", "a")], [], [value("a", np.int64)])
    no = graph([node("Identity", "seven", "b")], [], [value("b", np.int64)])
    net = net_of(yes, no, [node("ConstantOfShape", "y", "z")])
    assert net(np.float32([1, 2]))["z"].shape == (2,)
    assert net(np.float32([-1, -2]))["z"].shape == (7,)
