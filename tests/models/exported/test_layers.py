"""Weights of exported graphs that products alone read are quantized, whichever way they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.lang.dtypes import f32, i64
from cubepy.models.exported.model import TorchModel
from cubepy.models.exported.program import Exported, Input, Node, Ref, Tree

LEAF = Tree("leaf")


def made(nodes: list[Node], weights: dict[str, np.ndarray], given: list[Input]) -> TorchModel:
    """A model whose last node is the result."""
    inputs = [Input(f"p_{k.replace('.', '_')}", "weight", k) for k in weights] + given
    takes = Tree("tuple", (Tree("tuple", (LEAF,) * len(given)), Tree("dict")))
    outputs = [Ref(nodes[-1].name)]
    tensors: dict[str, Any] = dict(weights)
    graph = Exported(nodes, inputs, outputs, takes, LEAF, tensors, frozenset(weights))
    return TorchModel(graph)


SWAPS: dict[str, tuple[Any, ...]] = {
    "aten.numpy_T.default": (),
    "aten.t.default": (),
    "aten.mT.default": (),
    "aten.permute.default": ([1, 0],),
    "aten.transpose.int": (-1, 0),
}


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_product_with_a_transposed_weight_is_linear(swap: str, rank: int) -> None:
    rng = np.random.default_rng(rank)
    w = rng.standard_normal((32, 64)).astype(np.float32)
    x = rng.standard_normal((2, 3, 64)[3 - rank :]).astype(np.float32)
    nodes = [
        Node("t", swap, (Ref("p_part_w"), *SWAPS[swap])),
        Node("y", "aten.matmul.default", (Ref("x"), Ref("t"))),
    ]
    net = made(nodes, {"part.w": w}, [Input("x", "tensor", dtype=f32, shape=x.shape)])

    assert [node.target for node, _ in net.steps.nodes] == ["aten.linear.default"]
    np.testing.assert_allclose(net(x).numpy(), x @ w.T, rtol=1e-4, atol=1e-4)
    small = cb.quant.quantize(net, "int8", measure_speed=False)
    assert [r.name for r in small.report.quantized] == ["part.w"]
    right = x @ w.T
    assert np.linalg.norm(small.model(x).numpy() - right) < 0.03 * np.linalg.norm(right)


def test_a_transposed_weight_that_something_else_reads_stays() -> None:
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [
        Node("t", "aten.t.default", (Ref("p_w"),)),
        Node("h", "aten.mm.default", (Ref("x"), Ref("t"))),
        Node("s", "aten.sum.default", (Ref("t"),)),
        Node("y", "aten.add.Tensor", (Ref("h"), Ref("s"))),
    ]
    x = np.ones((4, 3), np.float32)
    net = made(nodes, {"w": w}, [Input("x", "tensor", dtype=f32, shape=x.shape)])
    np.testing.assert_allclose(net(x).numpy(), x @ w.T + w.sum())


@pytest.mark.parametrize("head", ["aten.linear.default", "aten.matmul.default"])
def test_a_table_of_words_that_is_a_last_layer_too_is_no_layer(head: str) -> None:
    """Quantizing leaves it: rows are taken of it."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((50, 32)).astype(np.float32)
    inner = rng.standard_normal((32, 32)).astype(np.float32)
    nodes = [
        Node("e", "aten.embedding.default", (Ref("p_words_weight"), Ref("at"))),
        Node("h", "aten.linear.default", (Ref("e"), Ref("p_inner_weight"))),
        Node("t", "aten.t.default", (Ref("p_words_weight"),)),
        Node("y", head, (Ref("h"), Ref("p_words_weight" if "linear" in head else "t"))),
    ]
    weights = {"words.weight": table, "inner.weight": inner}
    at = np.array([[3, 7, 7]])
    net = made(nodes, weights, [Input("at", "tensor", dtype=i64, shape=at.shape)])
    layers = [name for name, m in net.named_modules() if isinstance(m, nn.Linear)]
    assert layers == ["inner"]
    right = table[at] @ inner.T @ table.T
    np.testing.assert_allclose(net(at).numpy(), right, rtol=1e-3, atol=1e-3)
    small = cb.quant.quantize(net, "int8", measure_speed=False)
    assert [r.name for r in small.report.quantized] == ["inner"]
    assert np.linalg.norm(small.model(at).numpy() - right) < 0.03 * np.linalg.norm(right)
