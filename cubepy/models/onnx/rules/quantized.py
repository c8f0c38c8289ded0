"""Quantized files that say so by QuantizeLinear and DequantizeLinear around floats (QDQ): products
and convolutions of what is dequantized become those of the codes.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np

from cubepy.models.formats.onnx import Node
from cubepy.models.formats.onnx_tensor import of_array
from cubepy.models.onnx.constants import Constant
from cubepy.models.onnx.rewriting import OURS, Rewriting, host_of, layer, pieces, signed
from cubepy.models.onnx.rules.codes import columns_of

SHORT = 65536
"""Elements up to which dequantized constants are floats whatever reads them."""
MOST_FLOATS = 8192
"""Elements of filters up to which a convolution of floats takes less (AVX-512, 14 to 56 pixels)."""
PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")


class Codes(NamedTuple):
    """Codes with their scales.

    Attributes:
        name: of the codes.
        scale: f32, of no axes or by output.
        zero: the name of the zero point; empty without one.
        constant: the codes, where they are a constant; an array where they are few.
    """

    name: str
    scale: np.ndarray
    zero: str
    constant: Constant | np.ndarray | None


def dequantized(graph: Rewriting, name: str, axis: int | None = None) -> Codes | None:
    """The codes of 8 bits that a value is made of: scaled as a whole, or along an axis."""
    node = graph.maker(name, "DequantizeLinear")
    if node is None or node.attributes.get("block_size") or "output_dtype" in node.attributes:
        return None
    scale = host_of(graph.constants.get(node.inputs[1]))
    zero = node.inputs[2] if len(node.inputs) > 2 else ""
    if scale is None or scale.dtype != np.float32 or (zero and zero not in graph.constants):
        return None
    if scale.size == 1:
        scale = scale.reshape(())
    elif axis is None or node.attributes.get("axis", 1) != axis:
        return None
    return Codes(node.inputs[0], scale, zero, graph.constants.get(node.inputs[0]))


def of_activations(graph: Rewriting, name: str) -> Codes | None:
    """Codes of activations: those that a node rounded to 8 bits with one scale."""
    found = dequantized(graph, name)
    if found is None or found.constant is not None or found.scale.size != 1:
        return None
    rounding = graph.maker(found.name, "QuantizeLinear")
    if rounding is None or "output_dtype" in rounding.attributes:
        return None
    zero = host_of(graph.constants.get(rounding.inputs[2])) if len(rounding.inputs) > 2 else None
    if len(rounding.inputs) > 2 and (zero is None or zero.dtype not in (np.uint8, np.int8)):
        return None
    return found


def of_weights(graph: Rewriting, name: str, axis: int) -> tuple[Codes, Any, Any] | None:
    """Constant codes that one product reads, signed, and their zero points; those of a matrix may
    be turned behind DequantizeLinear.
    """
    turning = graph.maker(name, "Transpose")
    if turning is not None and turning.attributes.get("perm") in (None, [1, 0]):
        inner = of_weights(graph, turning.inputs[0], 1 - axis) if axis < 2 else None
        if inner is None or inner[1].ndim != 2 or graph.only_reader(name) is None:
            return None
        return inner[0], inner[1].T, inner[2]
    found = dequantized(graph, name, axis)
    if found is None or found.constant is None or graph.only_reader(name) is None:
        return None
    codes = host_of(found.constant)
    if codes.dtype not in (np.int8, np.uint8) or graph.uses[found.name] != 2:
        return None
    codes, points = signed(codes, host_of(graph.constants[found.zero]) if found.zero else None)
    outputs = codes.shape[axis]
    if found.scale.size not in (1, outputs) or points.size not in (1, outputs):
        return None
    points = points.reshape(()) if points.size == 1 else points.reshape(-1)
    return found, codes, points


def product(
    graph: Rewriting, node: Node, x: Codes, weight: Codes, flat: Any, points: Any, bias: str
) -> tuple[str, ...]:
    """The inputs of a node with a product of codes (..., K) by (K, N): codes and zero point of
    activations, codes of the weight, sums of their columns, factors, zero points, and the bias.
    """
    flat = np.ascontiguousarray(flat)
    sums = flat.sum(axis=0, dtype=np.int32) - flat.shape[0] * points
    factor = np.atleast_1d((x.scale * weight.scale).astype(np.float32))
    parts = {"codes": flat, "sums": sums.astype(np.int32)}
    old = weight.constant if isinstance(weight.constant, Constant) else None
    names = graph.keep(node, old, parts)
    names += graph.keep(node, None, {"factors": factor})
    added = graph.keep(node, None, {"zeros": points.astype(np.int32)}) if points.any() else ("",)
    return (x.name, x.zero, *names, *added, bias)


@pieces("MatMul", "Gemm")
def blocks(graph: Rewriting, node: Node) -> Node | None:
    """A product with a matrix of few bits, or one that is scaled by block, which stays packed."""
    name = node.inputs[1]
    turning = graph.maker(name, "Transpose")
    made = graph.maker(name if turning is None else turning.inputs[0], "DequantizeLinear")
    codes = None if made is None else graph.constants.get(made.inputs[0])
    if made is None or codes is None:
        return None
    dtype = codes.weight.dtype if isinstance(codes, Constant) else codes.dtype
    if not made.attributes.get("block_size") and dtype in (np.int8, np.uint8):
        return None
    nbits: Any = importlib.import_module("cubepy.models.onnx.rules.nbits")
    found: Node | None = nbits.dequantized_linear(graph, node)
    return found


@pieces("MatMul", "Gemm")
def matrix(graph: Rewriting, node: Node) -> Node | None:
    """A product by a constant matrix, dequantized both."""
    given, gemm = node.attributes, node.op == "Gemm"
    if gemm and (given.get("transA") or given.get("alpha", 1.0) != 1.0):
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    if bias and given.get("beta", 1.0) != 1.0:
        return None
    turned = bool(gemm and given.get("transB"))
    x = of_activations(graph, node.inputs[0])
    found = None if x is None else of_weights(graph, node.inputs[1], 0 if turned else 1)
    if x is None or found is None or found[1].ndim != 2:
        return None
    weight, codes, points = found
    inputs = product(graph, node, x, weight, codes.T if turned else codes, points, bias)
    return Node("CodesProduct", OURS, node.name, inputs, node.outputs, {})


@pieces("Conv")
def convolution(graph: Rewriting, node: Node) -> Node | None:
    """A convolution by constant filters, dequantized both. Small filters, and those of groups, are
    floats, which take less than laying out windows.
    """
    x = of_activations(graph, node.inputs[0])
    found = None if x is None else of_weights(graph, node.inputs[1], 0)
    if x is None or found is None or found[1].ndim not in (3, 4):
        return None
    weight, codes, points = found
    if node.attributes.get("group", 1) != 1 or codes.size < MOST_FLOATS:
        return None
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    inputs = product(graph, node, x, weight, columns_of(codes), points, bias)
    attributes = {**node.attributes, "kernel_shape": list(codes.shape[2:])}
    return Node("CodesWindows", OURS, node.name, inputs, node.outputs, attributes)


@pieces("Gather")
def rows(graph: Rewriting, node: Node) -> Node | None:
    """Rows of a dequantized table, scaled as a whole or by column: what is dequantized are the
    rows, not the table.
    """
    table = dequantized(graph, node.inputs[0], 1)
    if table is None or table.constant is None or node.attributes.get("axis", 0) != 0:
        return None
    if len(host_of(table.constant).shape) != 2:
        return None
    before = graph.makers[node.inputs[0]].inputs[1:]
    inputs = (table.name, node.inputs[1], *before)
    return Node("GatherCodes", OURS, node.name, inputs, node.outputs, {"axis": -1})


@layer("DequantizeLinear")
def folded(graph: Rewriting, node: Node) -> Node | None:
    """A constant that products read as floats, or a short one, is dequantized once."""
    name = node.outputs[0]
    found = dequantized(graph, name, node.attributes.get("axis", 1))
    if found is None or found.constant is None:
        return None
    codes = host_of(found.constant)
    if codes.dtype not in (np.int8, np.uint8, np.int32):
        return None
    readers = graph.readers.get(name, [])
    products = all(r.op in PRODUCTS and not r.domain for r in readers)
    if not readers or (codes.size > SHORT and not products):
        return None
    lengths = [1] * codes.ndim
    if found.scale.size > 1:
        lengths[node.attributes.get("axis", 1)] = -1
    wide = codes.astype(np.float32)
    if found.zero:
        wide = wide - host_of(graph.constants[found.zero]).astype(np.float32).reshape(lengths)
    made = of_array(name, wide * found.scale.reshape(lengths))
    if isinstance(found.constant, Constant):
        graph.keep(node, found.constant, {})
    graph.constants[name] = graph.scope.derived(name, made)
    graph.gone.add(id(node))
    return None
