"""Products with constant matrices as linear layers, of floats or of packed codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy import nn
from cubepy.models.formats.onnx import Node
from cubepy.models.onnx.constants import Constant
from cubepy.models.onnx.rewriting import OURS, Rewriting, host_of, layer
from cubepy.models.packed.nbits import BlockCodes, bytes_of, int4_of
from cubepy.quant.storage import Quantized
from cubepy.tensor import Storage, Tensor, as_tensor


def way(graph: Rewriting, node: Node, name: str) -> bool | None:
    """Whether a node is a linear layer whose constant matrix lies (outputs, inputs) under a name;
    None: it is no layer with this matrix.
    """
    weight, given = graph.constants[name].weight, node.attributes
    if node.domain or node.references or node.op not in ("MatMul", "Gemm"):
        return None
    if node.inputs[1] != name or node.inputs.count(name) > 1 or node.inputs[0] in graph.constants:
        return None
    if weight.dtype.kind != "f" or id(node) in graph.instead:
        return None
    if node.op == "MatMul":
        return False
    if given.get("transA") or given.get("alpha", 1.0) != 1.0:
        return None
    transposed = bool(given.get("transB"))
    if len(node.inputs) > 2 and node.inputs[2]:
        length = weight.shape[0 if transposed else 1]
        if graph.bias_of(node.inputs[2], length) is None or given.get("beta", 1.0) != 1.0:
            return None
    return transposed


@layer("MatMul")
def matmul(graph: Rewriting, node: Node) -> Node | None:
    """MatMul by a constant matrix, and the Add of a constant vector behind it."""
    weight = graph.matrix(node.inputs[1], way)
    if weight is None:
        return None
    output, bias = node.outputs[0], None
    following = graph.only_reader(output)
    if following is not None and following.op == "Add" and not following.domain:
        other = next((n for n in following.inputs if n != output), "")
        bias = graph.bias_of(other, weight.weight.shape[1])
        if bias is not None and bias.weight.dtype == weight.weight.dtype:
            graph.gone.add(id(following))
            output = following.outputs[0]
        else:
            bias = None
    module = graph.layer(weight, False, bias, node.shown())
    return Node("Linear", OURS, node.name, node.inputs[:1], (output,), {"module": module})


@layer("Gemm")
def gemm(graph: Rewriting, node: Node) -> Node | None:
    """Gemm of a constant matrix and vector."""
    weight = graph.matrix(node.inputs[1], way)
    if weight is None:
        return None
    transposed = bool(node.attributes.get("transB"))
    name = node.inputs[2] if len(node.inputs) > 2 else ""
    bias = graph.bias_of(name, weight.weight.shape[0 if transposed else 1]) if name else None
    module = graph.layer(weight, transposed, bias, node.shown())
    return Node("Linear", OURS, node.name, node.inputs[:1], node.outputs, {"module": module})


@layer("MatMulNBits", "com.microsoft")
def matmul_nbits(graph: Rewriting, node: Node) -> Node | None:
    """MatMulNBits of constants: a linear layer that reads the codes as they lie, or, where columns
    have groups of their own (`g_idx`), as they lie group after group. With `accuracy_level` 4
    activations become bytes, where groups are those of int4.
    """
    names = (*node.inputs, *[""] * 6)[:6]
    given = [graph.constants.get(name) if name else None for name in names]
    codes, scales, zeros, groups, bias = given[1:]
    n, k, block = (node.attributes.get(name, 0) for name in ("N", "K", "block_size"))
    bits = node.attributes.get("bits", 4)
    if not isinstance(codes, Constant) or scales is None or bits not in (2, 4, 8):
        return None
    if block < 16 or block & (block - 1) or min(n, k) < 1:
        return None
    if any(name and value is None for name, value in zip(names[1:], given[1:], strict=True)):
        return None
    blocks = -(-k // block)
    raw, by = codes.host(), host_of(scales)
    if raw.dtype != np.uint8 or by.dtype.name not in FLOATS or by.size != n * blocks:
        return None
    if raw.size != n * blocks * block * bits // 8:
        return None
    points = points_of(host_of(zeros), n, blocks, bits)
    if points is None or (bias is not None and host_of(bias).shape != (n,)):
        return None
    rows, order = raw.reshape(n, -1), None
    if groups is not None:
        order = order_of(host_of(groups), k, block)
        if order is None:
            return None
        rows = turned(rows, order, bits)
    wide = by.dtype.name != "float32"
    floats = by.reshape(n, blocks).astype(np.float32, copy=False)
    found = BlockCodes(rows, floats, points, k, bits, block)
    exact = int4_of(found) if node.attributes.get("accuracy_level", 0) == 4 else None
    module = packed_layer(graph, found if exact is None else Quantized(exact), bias, names[1])
    for name, old in zip(names[1:5], given[1:5], strict=True):
        if isinstance(old, Constant) and graph.uses[name] == 2:
            graph.scope.parameters.pop(old.key, None)
    inputs = names[:1]
    if order is not None and (order != np.arange(k)).any():
        inputs += graph.keep(node, None, {"order": order})
    return Node("Linear", OURS, node.name, inputs, node.outputs, {"module": module, "wide": wide})


FLOATS = ("float32", "float16", "bfloat16")


def order_of(groups: Any, columns: int, block: int) -> np.ndarray | None:
    """Columns group after group, of the group of each; None where groups are no whole blocks."""
    if groups.shape != (columns,) or groups.dtype.kind != "i":
        return None
    order = np.argsort(groups, kind="stable").astype(np.int64)
    whole = (groups[order] == np.arange(columns) // block).all()
    return order if whole else None


def turned(rows: np.ndarray, order: np.ndarray, bits: int) -> np.ndarray:
    """Packed codes with the first columns in another order; what is behind them stays.

    Example:
        >>> turned(np.array([[0x21, 0x43]], np.uint8), np.array([1, 0, 2]), 4)
        array([[18, 67]], dtype=uint8)
    """
    codes = bytes_of(rows, bits).copy()
    codes[:, : len(order)] = codes[:, order]
    if bits == 8:
        return codes
    each = 8 // bits
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    parts = codes.reshape(len(codes), -1, each) << shifts
    found: np.ndarray = np.bitwise_or.reduce(parts, axis=-1)
    return found


def points_of(given: Any, rows: int, blocks: int, bits: int) -> np.ndarray | None:
    """Zero points (rows, blocks) as floats, of packed ones, floats or none; None for others."""
    if given is None:
        return np.full((rows, blocks), 1 << (bits - 1), np.float32)
    if given.dtype.kind == "f":
        whole = given.size == rows * blocks
        return np.asarray(given.reshape(rows, blocks), np.float32) if whole else None
    each = -(-blocks * bits // 8)
    if given.dtype != np.uint8 or given.size != rows * each:
        return None
    found: np.ndarray = bytes_of(given.reshape(rows, each), bits)[:, :blocks]
    return found.astype(np.float32)


def packed_layer(graph: Rewriting, storage: Storage, bias: Constant | None, name: str) -> Any:
    """A linear layer whose weight is packed."""
    made = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(made)
    made.weight = nn.Parameter(Tensor(storage), False)
    added = None if bias is None else as_tensor(host_of(bias).astype(np.float32, copy=False))
    made.bias = None if added is None else nn.Parameter(added, False)
    made.out_features, made.in_features = storage.shape
    graph.scope.modules[graph.free(graph.scope.prefix + name)] = made
    return made
