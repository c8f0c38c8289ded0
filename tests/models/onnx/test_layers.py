"""Products with constant matrices are linear layers, which learn and are quantized."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.models.onnx import load
from tests.models.onnx.rewritten import made
from tests.models.onnx.writer import field, fields, graph, model, node, tensor, value


def test_outputs_of_a_function_are_kept_while_its_nodes_become_layers() -> None:
    """A product that is an output, and the sum behind it, are two results."""
    written = [node("MatMul", "x w", "p"), node("Add", "p b", "s")]
    body = fields(7, written) + field(1, "F") + fields(4, ["x", "w", "b"]) + fields(5, ["p", "s"])
    body += field(9, field(2, 17)) + field(10, "ours")
    weights = {"w": np.eye(3, dtype=np.float32), "b": np.ones(3, np.float32)}
    given = [tensor(k, v) for k, v in weights.items()]
    whole = graph([node("F", "x w b", "p s", "ours")], ["x"], ["p", "s"], given)
    found = load(model(whole, more=field(25, body), ours=1))(np.zeros((1, 3), np.float32))
    assert (found["p"].numpy().max(), found["s"].numpy().max()) == (0, 1)


def test_a_matrix_that_several_products_read_is_one_weight_of_several_layers() -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 4)).astype(np.float32), "b": np.ones(4, np.float32)}
    nodes = [
        node("Identity", "w", "again"),
        node("Identity", "b", "c"),
        node("MatMul", "x w", "m"),
        node("Add", "m b", "h"),
        node("MatMul", "h again", "n"),
        node("Add", "c n", "y"),
    ]
    found = made(nodes, weights)
    assert found.rewritten == {"Linear": 2}
    (first, second) = (m for m in found.modules() if isinstance(m, nn.Linear))
    assert first.weight is second.weight and first.bias is second.bias
    x = rng.standard_normal((3, 4)).astype(np.float32)
    right = (x @ weights["w"] + 1) @ weights["w"] + 1
    np.testing.assert_allclose(found(x)["y"].numpy(), right, rtol=1e-5)
    small = cb.quant.quantize(found, "int8", measure_speed=False)
    assert len(small.report.quantized) == 2
    assert np.linalg.norm(small.model(x)["y"].numpy() - right) < 0.03 * np.linalg.norm(right)


@pytest.mark.parametrize("reader", ["Mul", "Gemm", "output"])
def test_a_matrix_that_something_else_reads_is_no_layer(reader: str) -> None:
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    x = np.ones((3, 4), np.float32)
    product = x @ w
    nodes, outputs = [node("MatMul", "x w", "m")], ["y"]
    if reader == "Mul":
        nodes += [node("Mul", "w w", "s"), node("MatMul", "m s", "y")]
        right = product @ (w * w)
    elif reader == "Gemm":  # reads it the other way round
        nodes.append(node("Gemm", "m w", "y", transB=1))
        right = product @ w.T
    else:
        nodes.append(node("Identity", "w", "out"))
        nodes.append(node("Relu", "m", "y"))
        outputs, right = ["y", "out"], np.maximum(product, 0)
    found = load(model(graph(nodes, ["x"], outputs, [tensor("w", w)]), opset=17))
    assert "Linear" not in found.rewritten
    np.testing.assert_allclose(found(x)["y"].numpy(), right, rtol=1e-5)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_a_model_is_one_of_its_own(how: Any) -> None:
    weights = {"w": np.eye(32, 4, dtype=np.float32), "n": np.arange(80)}
    nodes = [
        node("MatMul", "x w", "m"),
        node("ReduceSum", "n", "s"),
        node("Cast", "s", "f", to=1),
        node("Add", "m f", "y"),
    ]
    found = made(nodes, weights)
    x = np.ones((2, 32), np.float32)
    right = found(x)["y"].numpy()
    found.requires_grad_()
    found.train()
    for one in (found, cb.quant.quantize(found, "int8", measure_speed=False).model):
        other = how(one)
        assert np.array_equal(other(x)["y"].numpy(), one(x)["y"].numpy())
        said = [[p.requires_grad for p in m.parameters()] for m in (one, other)]
        assert said[0] == said[1] and other.training
        with cb.no_grad():
            for p in other.parameters():
                if p.requires_grad:
                    p.mul_(0.0)
    assert np.array_equal(found(x)["y"].numpy(), right)
    weight = next(m for m in found.modules() if isinstance(m, nn.Linear)).weight
    assert weight.requires_grad and found.clone().training


PRODUCTS = {
    "MatMul x w": (False, {}),
    "MatMul x t": (True, {}),
    "Gemm x w": (False, {}),
    "Gemm x t": (True, {}),
    "Gemm x w, transB": (True, {"transB": 1}),
    "Gemm x t, transB": (False, {"transB": 1}),
}
"""Whether the matrix lies (outputs, inputs) there."""


@pytest.mark.parametrize("text", PRODUCTS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_a_matrix_that_is_turned_is_a_weight(text: str, bias: bool, tied: bool) -> None:
    """Whichever way round it is read; rows of it may be the vectors of words."""
    rng = np.random.default_rng(len(text))
    by_outputs, how = PRODUCTS[text]
    w = rng.standard_normal((32, 48) if by_outputs else (48, 32)).astype(np.float32)
    right_matrix = w.T if by_outputs else w
    op, names = text.partition(",")[0].split(" ", 1)
    nodes = [node("Transpose", "w", "t", perm=[1, 0])] if " t" in names else []
    weights = {"w": w}
    x = rng.standard_normal((20, 48)).astype(np.float32)
    inputs: list[Any] = ["x"]
    if tied:
        nodes.append(node("Gather", "w at", "rows", axis=0))
        nodes += [
            node("ReduceMean", "rows", "mean", axes=[0, 1, 2], keepdims=0),
            node("Add", "x mean", "h"),
        ]
        names = names.replace("x", "h")
        inputs.append(value("at", np.int64))
    right = (x + w[[0, 3]].mean() if tied else x) @ right_matrix
    if bias:
        weights["b"] = rng.standard_normal(32).astype(np.float32)
        right = right + weights["b"]
    if op == "Gemm":
        nodes.append(node(op, f"{names} b" if bias else names, "y", **how))
    else:
        nodes.append(node(op, names, "m" if bias else "y"))
        nodes += [node("Add", "m b", "y")] if bias else []
    net = made(nodes, weights, inputs)
    layers = [m for m in net.modules() if isinstance(m, nn.Linear)]
    given = (x, np.array([[0], [3]])) if tied else (x,)

    kinds = [s.record.name for s in net.runner.steps]
    assert len(layers) == (0 if tied and not by_outputs else 1)
    assert ("Transpose" in kinds) == (" t" in names and not layers)
    for _ in range(3):
        np.testing.assert_allclose(net(*given)["y"].numpy(), right, rtol=1e-3, atol=1e-4)
    if layers:
        assert sum(p.size for p in net.parameters()) == w.size + 32 * bias
        before = net.state_dict()
        net.load_state_dict({k: p * 2 for k, p in before.items()})
        assert np.abs(net(*given)["y"].numpy()).max() > 1.5 * np.abs(right).max()
    if layers and not tied:
        small = cb.quant.quantize(made(nodes, weights, inputs), "int8", measure_speed=False)
        assert len(small.report.quantized) == 1
        found = small.model(*given)["y"].numpy()
        assert np.linalg.norm(found - right) < 0.03 * np.linalg.norm(right)


def test_a_matrix_read_both_ways_round_is_turned_by_a_program() -> None:
    w = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
    nodes = [node("Transpose", "w", "t"), node("MatMul", "x w", "h"), node("MatMul", "h t", "y")]
    net = made(nodes, {"w": w})
    x = np.ones((3, 8), np.float32)
    assert not net.rewritten
    np.testing.assert_allclose(net(x)["y"].numpy(), x @ w @ w.T, rtol=1e-5)
