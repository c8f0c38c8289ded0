"""Products of codes of 8 bits with what their constants need computed once."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.models.formats.onnx import Node
from cubepy.models.onnx.constants import Constant
from cubepy.models.onnx.rewriting import OURS, Rewriting, host_of, layer, signed


@layer("MatMulInteger")
def matmul_integer(graph: Rewriting, node: Node) -> Node | None:
    """MatMulInteger by a constant matrix: signed codes, and sums of their columns.

    (A - a)(B - b) = A B - a (colsum B - K b) - rowsum A b
    """
    inputs = (*node.inputs, "", "")[:4]
    weight = graph.constants.get(inputs[1])
    zero = graph.constants.get(inputs[3])
    if not isinstance(weight, Constant) or len(weight.weight.shape) != 2:
        return None
    if (inputs[3] and zero is None) or weight.weight.dtype.name not in ("int8", "uint8"):
        return None
    points = host_of(zero)
    codes, points = signed(weight.host(), points)
    if points.ndim > 1 or points.size not in (1, codes.shape[1]):
        return None
    points = points.reshape(-1) if points.size > 1 else points.reshape(())
    sums = codes.sum(axis=0, dtype=np.int32) - codes.shape[0] * points
    names = graph.keep(node, weight, {"codes": codes, "sums": sums.astype(np.int32)})
    if points.any():
        names += graph.keep(node, None, {"zeros": points.astype(np.int32)})
    return Node("IntegerProduct", OURS, node.name, (inputs[0], inputs[2], *names), node.outputs, {})


@layer("ConvInteger")
def conv_integer(graph: Rewriting, node: Node) -> Node | None:
    """ConvInteger by constant filters: a product with the codes of the windows."""
    inputs = (*node.inputs, "", "")[:4]
    weight, zero = graph.constants.get(inputs[1]), graph.constants.get(inputs[3])
    if not isinstance(weight, Constant) or node.attributes.get("group", 1) != 1:
        return None
    if (inputs[3] and zero is None) or len(weight.weight.shape) not in (3, 4):
        return None
    points = host_of(zero)
    codes, points = signed(weight.host(), points)
    filters, window = codes.shape[0], codes.shape[2:]
    if points.size not in (1, filters):
        return None
    points = points.reshape(-1) if points.size > 1 else points.reshape(())
    flat = np.ascontiguousarray(columns_of(codes))
    sums = flat.sum(axis=0, dtype=np.int32) - flat.shape[0] * points
    names = graph.keep(node, weight, {"codes": flat, "sums": sums.astype(np.int32)})
    if points.any():
        names += graph.keep(node, None, {"zeros": points.astype(np.int32)})
    attributes = {**node.attributes, "kernel_shape": list(window)}
    inputs_now = (inputs[0], inputs[2], *names)
    return Node("IntegerWindows", OURS, node.name, inputs_now, node.outputs, attributes)


@layer("DynamicQuantizeLSTM", "com.microsoft")
def quantized_lstm(graph: Rewriting, node: Node) -> Node | None:
    """DynamicQuantizeLSTM of constant matrices without zero points: integer products."""
    if len(node.inputs) != 12:
        return None
    found: list[tuple[Constant, dict[str, Any]]] = []
    for at, scale, zero in ((1, 8, 9), (2, 10, 11)):
        codes = graph.constants.get(node.inputs[at])
        by, points = (host_of(graph.constants.get(node.inputs[k])) for k in (scale, zero))
        if not isinstance(codes, Constant) or by is None or points is None:
            return None
        array, points = signed(codes.host(), points)
        if points.any() or by.size % array.shape[0]:
            return None
        parts = {
            "codes": array,
            "sums": array.sum(axis=1, dtype=np.int32),
            "scales": by.reshape(array.shape[0], -1),
        }
        found.append((codes, parts))
    names = [name for one in found for name in graph.keep(node, *one)]
    inputs = (node.inputs[0], *node.inputs[3:8], *names)
    return Node("IntegerLSTM", OURS, node.name, inputs, node.outputs, node.attributes)


def columns_of(filters: np.ndarray) -> np.ndarray:
    """Filters (M, C, ...) as a matrix (... C, M) that meets windows whose channels lie last."""
    found: np.ndarray = np.moveaxis(filters, 1, -1).reshape(len(filters), -1).T
    return found
