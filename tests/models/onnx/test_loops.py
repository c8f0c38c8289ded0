"""Loops and scans of many rounds are one program, and give what their rounds give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy.models.onnx import OnnxModel, load
from cubepy.models.onnx.ops import control
from tests.models.onnx.writer import graph, model, node, tensor, value


def made(nodes: list[bytes], inputs: Any, outputs: list[str], weights: dict[str, Any]) -> OnnxModel:
    given = [tensor(k, np.asarray(v)) for k, v in weights.items()]
    return load(model(graph(nodes, inputs, outputs, given), opset=17))


def programs(net: OnnxModel) -> list[Any]:
    return [p for s in net.runner.segments for many in s.program.programs.values() for p in many]


class Recurrent:
    """A recurrent layer as a loop whose index, weights and length are carried.

    Attributes:
        text: its nodes, one a line: operator, inputs, output.
    """

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.wide, self.batch = int(rng.integers(2, 6)), int(rng.integers(1, 4))
        self.back, self.keeps, self.counts = (bool(b) for b in rng.random(3) < 0.5)
        self.w, self.r = (
            rng.standard_normal((self.wide, self.wide)).astype(np.float32) for _ in range(2)
        )
        lines = ["Sub last i j", "Gather x j xt"] if self.back else ["Gather x i xt"]
        lines += ["MatMul xt w a", "MatMul h r b", "Add a b s", "Tanh s t"]
        if self.counts:
            lines += ["Cast k kf", "Mul t kf u", "Mul u small v"]
        lines += [f"Identity {'v' if self.counts else 't'} g", "Add i one o", "Less o n go"]
        lines += ["Identity w w_", "Identity n n_", "Mul g g kept"]
        self.text = lines

    def net(self) -> OnnxModel:
        nodes = []
        for line in self.text:
            op, *names = line.split()
            how = {"to": 1} if op == "Cast" else {}
            nodes.append(node(op, " ".join(names[:-1]), names[-1], **how))
        states = [value("i", np.int64, ()), "h", "w", value("n", np.int64, ())]
        ends = [value("o", np.int64, ()), "g", "w_", value("n_", np.int64, ())]
        body = graph(
            nodes,
            [value("k", np.int64, ()), value("c", bool, ()), *states],
            [value("go", bool, ()), *ends, *["kept"][: self.keeps]],
            [tensor("one", np.array(1)), tensor("small", np.array(0.03, np.float32))],
        )
        outputs = ["end", "y", *["all"][: self.keeps]]
        around = [
            node("Shape", "x", "shape"),
            node("Gather", "shape zero", "n0"),
            node("Sub", "n0 one", "last"),
            node(
                "Loop",
                "most yes zero h0 w n0",
                f"end y w_ n_ {'all' * self.keeps}".strip(),
                body=body,
            ),
        ]
        weights = {"zero": np.array(0), "one": np.array(1), "yes": np.array(True), "r": self.r}
        weights["most"] = np.array(2**40)
        h = np.zeros((self.batch, self.wide), np.float32)
        return made(around, ["x"], outputs, {**weights, "w": self.w, "h0": h})

    def formula(self, x: Any) -> tuple[Any, Any]:
        h, kept = np.zeros((self.batch, self.wide)), []
        for k in range(len(x)):
            h = np.tanh(x[len(x) - 1 - k if self.back else k] @ self.w + h @ self.r)
            h = h * k * 0.03 if self.counts else h
            kept.append(h * h)
        return h, np.stack(kept)


@pytest.mark.parametrize("seed", range(10))
def test_a_recurrent_layer_is_one_program_for_each_length(seed: int) -> None:
    layer = Recurrent(seed)
    net = layer.net()
    rng = np.random.default_rng(100 + seed)
    for length in (40, 33, 40):
        x = rng.standard_normal((length, layer.batch, layer.wide)).astype(np.float32)
        for _ in range(3):
            found = net(x)
        last, kept = layer.formula(x.astype(np.float64))
        assert int(found["end"].numpy()) == length
        assert np.allclose(found["y"].numpy(), last, atol=1e-5)
        assert not layer.keeps or np.allclose(found["all"].numpy(), kept, atol=1e-5)
    assert len(net.runner.segments) == 1 and len(programs(net)) == 2


def counted(
    nodes: list[bytes], condition: str, weights: dict[str, Any], kept: str = "t"
) -> OnnxModel:
    """A loop of up to 50 rounds of one state."""
    body = graph(
        [*nodes, node("Identity", kept, "u")],
        [value("k", np.int64, ()), value("c", bool, ()), "s"],
        [value(condition, bool, ()), "t", "u"],
    )
    given = {"n": np.array(50), "yes": np.array(True), **weights}
    return made([node("Loop", "n yes x", "y all", body=body)], ["x"], ["y", "all"], given)


def test_a_state_that_grows_runs_round_by_round() -> None:
    net = counted(
        [node("Concat", "s one", "t", axis=0)], "c", {"one": np.ones(1, np.float32)}, "one"
    )
    for _ in range(2):
        found = net(np.zeros(2, np.float32))
    assert found["y"].shape == (52,) and found["all"].shape == (50, 1)


@pytest.mark.parametrize("bound", [3.5, 45.5])
def test_a_condition_that_data_decide_ends_a_loop(bound: float) -> None:
    nodes = [
        node("Add", "s one", "t"),
        node("ReduceMax", "t", "m", keepdims=0),
        node("Less", "m most", "go"),
    ]
    weights = {"one": np.ones(2, np.float32), "most": np.float32(bound)}
    net = counted(nodes, "go", weights)
    for _ in range(2):
        found = net(np.float32([0, -1]))
    assert found["y"].tolist() == [np.ceil(bound), np.ceil(bound) - 1]
    assert found["all"].shape == (int(np.ceil(bound)), 2)


def test_a_number_of_rounds_decides_a_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("Add", "s one", "t"), node("Less", "k most", "go")]
    for most, scans in ((6, 0), (36, 1)):
        seen: list[Any] = []
        with monkeypatch.context() as changed:
            changed.setattr(
                control,
                "as_scan",
                lambda r, seen=seen, as_scan=control.as_scan: (seen.append(r), as_scan(r))[1],
            )
            net = counted(nodes, "go", {"one": np.ones(2, np.float32), "most": np.array(most)})
            found = net(np.zeros(2, np.float32))
        assert found["y"].tolist() == [most + 1] * 2 and found["all"].shape == (most + 1, 2)
        assert len(seen) == scans and len(net.runner.segments) == 1


@pytest.mark.parametrize("seed", range(8))
def test_a_scan_along_axes_is_one_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis, out = int(rng.choice([0, 1, -1])), int(rng.choice([0, 1, -1]))
    back, turned = (int(b) for b in rng.integers(0, 2, 2))
    body = graph([node("Add", "s x", "t"), node("Mul", "t x", "u")], ["s", "x"], ["t", "u"])
    how = {"scan_input_axes": [axis], "scan_input_directions": [back]}
    how |= {"scan_output_axes": [out], "scan_output_directions": [turned]}
    step = node("Scan", "start x", "last y", body=body, num_scan_inputs=1, **how)
    net = made([step], ["x"], ["last", "y"], {"start": np.zeros(3, np.float32)})
    x = rng.standard_normal((3, 45)).astype(np.float32)
    rows = x.T
    if axis == 0:
        x = rows
    for _ in range(2):
        found = net(x)
    rows = rows[::-1] if back else rows
    sums = np.cumsum(rows.astype(np.float64), 0)
    y = (sums * rows)[::-1] if turned else sums * rows
    assert np.allclose(found["last"].numpy(), sums[-1], atol=1e-5)
    assert np.allclose(found["y"].numpy(), y if out == 0 else y.T, atol=1e-5)
    assert len(net.runner.segments) == 1 and len(programs(net)) == 1


def test_a_program_is_parted_when_other_shapes_ask_for_elements() -> None:
    """Calls of one program go a short way; it is left where a branch reads what data decide."""
    yes = graph(
        [node("Neg", "x", "a"), node("Identity", "one", "b")], [], ["a", value("b", np.int64)]
    )
    places = [node("NonZero", "x", "b"), node("Relu", "x", "a")]
    no = graph(places, [], ["a", value("b", np.int64)])
    nodes = [
        node("Shape", "x", "s", end=1),
        node("Equal", "s first", "c"),
        node("If", "c", "z y", then_branch=yes, else_branch=no),
    ]
    kept = [tensor("one", np.ones((2, 70), np.int64)), tensor("first", np.array([1]))]
    outputs = [value("z"), value("y", np.int64)]
    net = load(model(graph(nodes, ["x"], outputs, kept)))
    for rows in (1, 1, 1, 1, 3, 1, 3, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 5)).astype(np.float32)
        found = net(x=x)
        assert list(found) == ["z", "y"]
        right = -x if rows == 1 else np.maximum(x, 0)
        np.testing.assert_array_equal(found["z"].numpy(), right)
        places_here = np.ones((2, 70)) if rows == 1 else np.stack(np.nonzero(x))
        np.testing.assert_array_equal(found["y"].numpy(), places_here)
