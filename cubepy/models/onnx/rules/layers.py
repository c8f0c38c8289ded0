"""Products with constant matrices as linear layers."""

from __future__ import annotations

import importlib
from typing import Any

from cubepy.models.formats.onnx import Node
from cubepy.models.onnx.rewriting import OURS, Rewriting, layer

FUSED = (("com.microsoft", "FusedMatMul"), ("com.microsoft", "TransposeMatMul"))
"""Products that may turn what they read."""


def way(graph: Rewriting, node: Node, name: str) -> bool | None:
    """Whether a node is a linear layer whose constant matrix lies (outputs, inputs) under a name;
    None: it is no layer with this matrix.
    """
    given, fused = node.attributes, (node.domain, node.op) in FUSED
    turning = graph.turning(name)
    weight = graph.constants[name if turning is None else turning.inputs[0]].weight
    lengths = weight.shape if turning is None else weight.shape[::-1]
    if node.references or not (fused or not node.domain and node.op in ("MatMul", "Gemm")):
        return None
    if node.inputs[1] != name or node.inputs.count(name) > 1 or node.inputs[0] in graph.constants:
        return None
    if weight.dtype.kind != "f" or id(node) in graph.instead:
        return None
    if node.op == "MatMul":
        return False
    if given.get("transA") or given.get("alpha", 1.0) != 1.0:
        return None
    if fused and (given.get("transBatchA") or given.get("transBatchB")):
        return None
    transposed = bool(given.get("transB"))
    if not fused and len(node.inputs) > 2 and node.inputs[2]:
        length = lengths[0 if transposed else 1]
        if graph.bias_of(node.inputs[2], length) is None or given.get("beta", 1.0) != 1.0:
            return None
    return transposed


@layer("Transpose")
def turned(graph: Rewriting, node: Node) -> None:
    """A constant matrix that is turned for layers, which read it as it lies."""
    if graph.turning(node.outputs[0]) is node and graph.matrix(node.outputs[0], way) is not None:
        graph.gone.add(id(node))


@layer("MatMul")
@layer("FusedMatMul", "com.microsoft")
@layer("TransposeMatMul", "com.microsoft")
def matmul(graph: Rewriting, node: Node) -> Node | None:
    """MatMul by a constant matrix, and the Add of a constant vector behind it."""
    weight = graph.matrix(node.inputs[1], way)
    if weight is None:
        return None
    output, bias = node.outputs[0], None
    following = graph.only_reader(output)
    if following is not None and following.op == "Add" and not following.domain:
        other = next((n for n in following.inputs if n != output), "")
        bias = graph.bias_of(other, weight.outputs)
        if bias is not None and bias.weight.dtype == weight.constant.weight.dtype:
            graph.gone.add(id(following))
            output = following.outputs[0]
        else:
            bias = None
    module = graph.layer(weight, bias, node.shown())
    return Node("Linear", OURS, node.name, node.inputs[:1], (output,), {"module": module})


@layer("Gemm")
def gemm(graph: Rewriting, node: Node) -> Node | None:
    """Gemm of a constant matrix and vector."""
    weight = graph.matrix(node.inputs[1], way)
    if weight is None:
        return None
    name = node.inputs[2] if len(node.inputs) > 2 else ""
    bias = graph.bias_of(name, weight.outputs) if name else None
    module = graph.layer(weight, bias, node.shown())
    return Node("Linear", OURS, node.name, node.inputs[:1], node.outputs, {"module": module})


@layer("MatMulNBits", "com.microsoft")
def matmul_nbits(graph: Rewriting, node: Node) -> Node | None:
    """MatMulNBits of constants; few files have codes, whose storages bring `quant` along."""
    nbits: Any = importlib.import_module("cubepy.models.onnx.rules.nbits")
    found: Node | None = nbits.linear_of(graph, node)
    return found


@layer("MatMulBnb4", "com.microsoft")
def matmul_bnb4(graph: Rewriting, node: Node) -> Node | None:
    """MatMulBnb4 of constants."""
    nbits: Any = importlib.import_module("cubepy.models.onnx.rules.nbits")
    found: Node | None = nbits.of_tables(graph, node)
    return found


@layer("QMoE", "com.microsoft")
def packed_experts(graph: Rewriting, node: Node) -> Node | None:
    """Experts of constant codes."""
    experts: Any = importlib.import_module("cubepy.models.onnx.rules.experts")
    found: Node | None = experts.experts_of(graph, node)
    return found
