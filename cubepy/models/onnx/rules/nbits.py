"""Products with matrices of few bits as linear layers of packed codes: MatMulNBits, MatMulBnb4, and
MatMul and Gemm of what DequantizeLinear makes of codes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy import nn
from cubepy.models.formats.onnx import Node
from cubepy.models.onnx.constants import Constant
from cubepy.models.onnx.ops.microsoft.quantized import BNB4
from cubepy.models.onnx.rewriting import OURS, Rewriting, host_of
from cubepy.models.packed.nbits import BlockCodes, bytes_of, int4_of
from cubepy.quant.storage import Quantized
from cubepy.runtime.device import current, gpu_of
from cubepy.tensor import Storage, Tensor, as_tensor

FLOATS = ("float32", "float16", "bfloat16")
CODES = {"int8": (8, 128), "uint8": (8, 0), "int4": (4, 8), "uint4": (4, 0)} | {
    "int2": (2, 2),
    "uint2": (2, 0),
}
"""Bits of codes, and what makes them unsigned, by dtype."""
BLOCK = 128
"""Elements of a block where a scale holds for all of them."""


def linear_of(graph: Rewriting, node: Node) -> Node | None:
    """MatMulNBits of constants: a linear layer that reads the codes as they lie, or, where columns
    have groups of their own (`g_idx`), group after group. With `accuracy_level` 4
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
    wide = by.dtype.name != "float32"
    floats = by.reshape(n, blocks).astype(np.float32, copy=False)
    found = BlockCodes(rows, floats, points, k, bits, block)
    if groups is not None:
        order = order_of(host_of(groups), k, block)
        if order is not None:
            found = BlockCodes(turned(rows, order, bits), floats, points, k, bits, block)
        else:
            filled = of_groups(found, host_of(groups))
            if filled is None:
                return None
            found, order = filled
    exact = int4_of(found) if node.attributes.get("accuracy_level", 0) == 4 else None
    module = packed_layer(graph, found if exact is None else Quantized(exact), bias, names[1])
    for name, old in zip(names[1:5], given[1:5], strict=True):
        if isinstance(old, Constant) and graph.uses[name] == 2:
            graph.scope.parameters.pop(old.key, None)
    inputs = names[:1]
    if order is not None and not np.array_equal(order, np.arange(k)):
        inputs += graph.keep(node, None, {"order": order})
    return Node("Linear", OURS, node.name, inputs, node.outputs, {"module": module, "wide": wide})


def of_tables(graph: Rewriting, node: Node) -> Node | None:
    """MatMulBnb4 of constants: a linear layer that reads the codes, where blocks end with rows."""
    given, names = node.attributes, node.inputs
    codes, scales = (graph.constants.get(name) for name in names[1:3])
    n, k, block = (given.get(name, 0) for name in ("N", "K", "block_size"))
    if not given.get("transB", 1) or not isinstance(codes, Constant) or scales is None:
        return None
    if min(n, k) < 1 or block < 16 or block & (block - 1) or given.get("quant_type") not in (0, 1):
        return None
    raw, by = codes.host(), host_of(scales)
    if raw.dtype != np.uint8 or by.dtype.name not in FLOATS or by.size != -(-n * k // block):
        return None
    length = math.gcd(k, block)
    if length < 16 or raw.size != n * k // 2:
        return None
    turned_codes = (raw << 4 | raw >> 4).reshape(n, -1)  # the first of two is the higher half
    spread = np.repeat(by.reshape(-1).astype(np.float32), block // length)
    floats = spread[: n * k // length].reshape(n, -1)
    found = BlockCodes(turned_codes, floats, None, k, 4, length, BNB4[given["quant_type"]])
    module = packed_layer(graph, found, None, names[1])
    for name, old in zip(names[1:3], (codes, scales), strict=True):
        if isinstance(old, Constant) and graph.uses[name] == 2:
            graph.scope.parameters.pop(old.key, None)
    said = {"module": module, "wide": True}
    return Node("Linear", OURS, node.name, names[:1], node.outputs, said)


def order_of(groups: Any, columns: int, block: int) -> np.ndarray | None:
    """Columns group after group, of the group of each; None where groups are no whole blocks."""
    if groups.shape != (columns,) or groups.dtype.kind != "i":
        return None
    order = np.argsort(groups, kind="stable").astype(np.int64)
    whole = (groups[order] == np.arange(columns) // block).all()
    return order if whole else None


def of_groups(weight: BlockCodes, groups: Any) -> tuple[BlockCodes, np.ndarray] | None:
    """A weight whose columns have groups of any size: each group is filled up to whole blocks with
    codes that are zero. Also the column of the activations that each of its columns meets; None
    where a zero point is no code, or a group is none.
    """
    block, codes = weight.block, bytes_of(weight.codes, weight.bits)
    assert weight.zeros is not None
    points = weight.zeros.astype(np.uint8)
    exact = (points == weight.zeros).all() and points.max(initial=0) < 1 << weight.bits
    whole = groups.shape == (weight.shape[1],) and groups.dtype.kind == "i"
    if not (exact and whole) or groups.min() < 0 or groups.max() >= weight.scales.shape[1]:
        return None
    kept, of_block = [], []
    for group in np.unique(groups):
        (columns,) = np.nonzero(groups == group)
        kept.append(np.pad(columns, (0, -len(columns) % block), constant_values=-1))
        of_block += [int(group)] * (len(kept[-1]) // block)
    order = np.concatenate(kept)
    zeros = np.repeat(points[:, of_block], block, axis=1)
    laid = packed(np.where(order < 0, zeros, codes[:, order]), weight.bits)
    scales, middle = (np.ascontiguousarray(a[:, of_block]) for a in (weight.scales, weight.zeros))
    made = BlockCodes(laid, scales, middle, len(order), weight.bits, block)
    return made, np.maximum(order, 0)


def turned(rows: np.ndarray, order: np.ndarray, bits: int) -> np.ndarray:
    """Packed codes with the first columns in another order; what is behind them stays.

    Example:
        >>> turned(np.array([[0x21, 0x43]], np.uint8), np.array([1, 0, 2]), 4)
        array([[18, 67]], dtype=uint8)
    """
    codes = bytes_of(rows, bits).copy()
    codes[:, : len(order)] = codes[:, order]
    return packed(codes, bits)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of a byte each (N, K) as bytes that hold several, low bits first.

    Example:
        >>> packed(np.array([[1, 2, 3, 4]], np.uint8), 4)
        array([[33, 67]], dtype=uint8)
    """
    if bits == 8:
        return codes
    each = 8 // bits
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    parts = codes.reshape(len(codes), -1, each) << shifts
    found: np.ndarray = np.bitwise_or.reduce(parts, axis=-1)
    return found


def dequantized_linear(graph: Rewriting, node: Node) -> Node | None:
    """A product of floats with a matrix that DequantizeLinear makes of constant codes: of those of
    2, 4 or 8 bits with scales by block of the axis that is summed, of less than 8 bits also with
    one scale, or one for each output. Rows of activations meet the codes.
    """
    given, gemm = node.attributes, node.op == "Gemm"
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    scaled = given.get("alpha", 1.0) != 1.0 or (bias and given.get("beta", 1.0) != 1.0)
    if gemm and (given.get("transA") or scaled):
        return None
    name, by_outputs = node.inputs[1], bool(gemm and given.get("transB"))
    turning = graph.maker(name, "Transpose")
    if turning is not None and turning.attributes.get("perm", [1, 0]) == [1, 0]:
        if graph.only_reader(name) is None:
            return None
        name, by_outputs = turning.inputs[0], not by_outputs
    made = graph.maker(name, "DequantizeLinear")
    if made is None or graph.only_reader(name) is None or "output_dtype" in made.attributes:
        return None
    stored = blocks_of(graph, made, by_outputs)
    if stored is None:
        return None
    added = graph.bias_of(bias, stored.shape[0]) if bias else None
    if bias and added is None:
        return None
    module = packed_layer(graph, stored, added, made.inputs[0])
    for old in (graph.constants.get(n) for n in made.inputs):
        if isinstance(old, Constant) and graph.uses[old.weight.name] == 2:
            graph.scope.parameters.pop(old.key, None)
    said = {"module": module, "wide": True}
    return Node("Linear", OURS, node.name, node.inputs[:1], node.outputs, said)


def blocks_of(graph: Rewriting, node: Node, by_outputs: bool) -> BlockCodes | None:
    """The codes of a DequantizeLinear as a matrix (outputs, inputs); None for others."""
    values = [host_of(graph.constants.get(n)) if n else None for n in node.inputs]
    if any(n and v is None for n, v in zip(node.inputs, values, strict=True)):
        return None
    codes: Any = values[0]
    scales: Any = values[1]
    zeros = values[2] if len(values) > 2 else None
    bits, middle = CODES.get(codes.dtype.name, (0, 0))
    block, axis = node.attributes.get("block_size", 0), node.attributes.get("axis", 1)
    if not bits or codes.ndim != 2 or 0 in codes.shape or scales.dtype.name not in FLOATS:
        return None
    along, axis = int(by_outputs), axis % 2
    outputs, inputs = codes.shape[1 - along], codes.shape[along]
    if block and (axis != along or block < 16 or block & (block - 1)):
        return None
    if not block and (bits == 8 or (scales.size > 1 and (axis == along or scales.ndim != 1))):
        return None
    length = block or BLOCK
    lengths = outputs, -(-inputs // length)

    def laid(part: Any) -> Any:
        """Scales or zero points, one for each block of each output."""
        if not block:
            return np.broadcast_to(part.reshape(-1, 1), lengths)
        return part if by_outputs else part.T

    points = np.zeros(lengths) if zeros is None else laid(zeros.astype(np.float32))
    by = laid(scales.astype(np.float32))
    if by.shape != lengths or points.shape != lengths:
        return None
    rows = np.zeros((outputs, lengths[1] * length), np.uint8)
    rows[:, :inputs] = (codes if by_outputs else codes.T).astype(np.int16) + middle
    by, points = np.ascontiguousarray(by), np.ascontiguousarray(points + middle, np.float32)
    return BlockCodes(packed(rows, bits), by, points, inputs, bits, length)


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
    weight, here = Tensor(storage), current()
    made.weight = nn.Parameter(weight.to(here) if gpu_of(here) else weight, False)
    added = None if bias is None else as_tensor(host_of(bias).astype(np.float32, copy=False))
    made.bias = None if added is None else nn.Parameter(added, False)
    made.out_features, made.in_features = storage.shape
    graph.scope.modules[graph.free(graph.scope.prefix + name)] = made
    return made
