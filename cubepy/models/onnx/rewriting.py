"""Rewriting a graph before it runs: products with constant matrices as layers, and integer products
with what their constants need computed once.

`rewritten` takes nodes and gives nodes; new ones are of the domain `cubepy`. The file's graph stays
what it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from cubepy import nn
from cubepy.models.formats.onnx import Graph, Node, read_of
from cubepy.models.formats.onnx_tensor import of_array
from cubepy.models.onnx.constants import Constant, Scope, constant_node
from cubepy.models.packed.nbits import BlockCodes, bytes_of, int4_of
from cubepy.quant.storage import Quantized
from cubepy.tensor import Storage, Tensor, as_tensor

OURS = "cubepy"


class Rewriting:
    """The nodes of a graph on their way.

    Attributes:
        scope: where weights go.
        constants: weights of the graph, by name.
        uses: how often each name is read.
    """

    def __init__(self, graph: Graph, scope: Scope, constants: dict[str, Any]) -> None:
        self.scope, self.constants, self.graph = scope, constants, graph
        self.uses = Counter(name for node in graph.nodes for name in read_of(node))
        self.uses.update(n for node in graph.nodes for n in node.inputs if n)
        self.uses.update({o.name: 2 for o in graph.outputs})
        self.readers = {name: node for node in graph.nodes for name in node.inputs}
        self.gone: set[int] = set()

    def nodes(self) -> Iterator[Node]:
        """The nodes that run."""
        for node in self.graph.nodes:
            if node.op == "Constant" and not node.domain and not node.references:
                self.constants[node.outputs[0]] = constant_node(node, self.scope)
        for node in self.graph.nodes:
            if id(node) in self.gone or node.outputs and node.outputs[0] in self.constants:
                continue
            rule = RULES.get((node.domain, node.op))
            made = None if rule is None or node.references else rule(self, node)
            yield node if made is None else made

    def matrix(self, name: str) -> Constant | None:
        """A constant matrix that only one node reads."""
        found = self.constants.get(name)
        alone = self.uses[name] == 2  # as an input, and as something read
        if isinstance(found, Constant) and len(found.weight.shape) == 2 and alone:
            return found
        return None

    def only_reader(self, name: str) -> Node | None:
        """The one node that reads a value; None where several do, or it is an output."""
        return self.readers.get(name) if self.uses[name] == 2 else None

    def layer(self, weight: Constant, transposed: bool, bias: Constant | None, name: str) -> Any:
        """A linear layer that takes over the parameters."""
        made = nn.Linear.__new__(nn.Linear)
        nn.Module.__init__(made)
        given = self.scope.parameters.pop(weight.key)
        made.weight = nn.Parameter(given if transposed else given.T, False)
        made.bias = None
        if bias is not None:
            made.bias = nn.Parameter(self.scope.parameters.pop(bias.key), False)
        made.out_features, made.in_features = made.weight.shape
        plain = weight.key.removesuffix(".weight")
        if "::" in plain:
            plain = self.scope.prefix + name
        self.scope.modules[self.free(plain)] = made
        return made

    def free(self, plain: str) -> str:
        """A name for a module that none has."""
        key = base = re.sub(r"\W+", "_", plain).strip("_") or "linear"
        n = 1
        while key in self.scope.modules:
            n += 1
            key = f"{base}_{n}"
        return key

    def keep(self, node: Node, old: Constant | None, arrays: dict[str, Any]) -> tuple[str, ...]:
        """New constants instead of an old one; their names."""
        names = []
        base = node.outputs[0] if old is None else old.weight.name
        if old is not None and self.uses[old.weight.name] == 2:
            self.scope.parameters.pop(old.key, None)
        for kind, array in arrays.items():
            name = f"{base}.{kind}"
            if name not in self.constants:
                self.constants[name] = self.scope.derived(name, of_array(name, array))
            names.append(name)
        return tuple(names)

    def bias_of(self, name: str, length: int) -> Constant | None:
        """A constant vector of a length that only one node reads."""
        found = self.constants.get(name)
        if isinstance(found, Constant) and found.weight.shape == (length,):
            return found if self.uses[name] == 2 else None
        return None


def matmul(graph: Rewriting, node: Node) -> Node | None:
    """MatMul by a constant matrix, and the Add of a constant vector behind it."""
    weight = graph.matrix(node.inputs[1])
    if weight is None or weight.weight.dtype.kind != "f" or node.inputs[0] in graph.constants:
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


def gemm(graph: Rewriting, node: Node) -> Node | None:
    """Gemm of a constant matrix and vector."""
    given = node.attributes
    weight = graph.matrix(node.inputs[1])
    if weight is None or given.get("transA") or given.get("alpha", 1.0) != 1.0:
        return None
    if weight.weight.dtype.kind != "f" or node.inputs[0] in graph.constants:
        return None
    transposed = bool(given.get("transB"))
    bias = None
    if len(node.inputs) > 2 and node.inputs[2]:
        length = weight.weight.shape[0 if transposed else 1]
        bias = graph.bias_of(node.inputs[2], length)
        if bias is None or given.get("beta", 1.0) != 1.0:
            return None
    module = graph.layer(weight, transposed, bias, node.shown())
    return Node("Linear", OURS, node.name, node.inputs[:1], node.outputs, {"module": module})


def host_of(value: Any) -> Any:
    """The elements of a constant; None for what is none."""
    return value.host() if isinstance(value, Constant) else value


def signed(codes: Any, zero: Any) -> tuple[Any, Any]:
    """Codes and zero points of 8 bits as signed ones that mean the same."""
    zero = np.zeros((), np.int32) if zero is None else zero.astype(np.int32)
    if codes.dtype == np.uint8:
        return (codes ^ np.uint8(128)).view(np.int8), zero - 128
    return codes, zero


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
    flat = np.ascontiguousarray(codes.reshape(filters, -1).T)
    sums = flat.sum(axis=0, dtype=np.int32) - flat.shape[0] * points
    names = graph.keep(node, weight, {"codes": flat, "sums": sums.astype(np.int32)})
    if points.any():
        names += graph.keep(node, None, {"zeros": points.astype(np.int32)})
    attributes = {**node.attributes, "kernel_shape": list(window)}
    inputs_now = (inputs[0], inputs[2], *names)
    return Node("IntegerWindows", OURS, node.name, inputs_now, node.outputs, attributes)


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


def matmul_nbits(graph: Rewriting, node: Node) -> Node | None:
    """MatMulNBits of constants in f32: a linear layer that reads the codes as they lie. With
    `accuracy_level` 4 activations become bytes, where groups are those of int4.
    """
    names = (*node.inputs, *[""] * 6)[:6]
    given = [graph.constants.get(name) if name else None for name in names]
    codes, scales, zeros, order, bias = given[1:]
    n, k, block = (node.attributes.get(name, 0) for name in ("N", "K", "block_size"))
    bits = node.attributes.get("bits", 4)
    if not isinstance(codes, Constant) or not isinstance(scales, Constant) or bits not in (4, 8):
        return None
    if block < 16 or block & (block - 1) or min(n, k) < 1 or names[4] or order is not None:
        return None
    if any(name and value is None for name, value in zip(names[1:], given[1:], strict=True)):
        return None
    blocks = -(-k // block)
    raw, by = codes.host(), host_of(scales)
    if raw.dtype != np.uint8 or by.dtype != np.float32 or by.size != n * blocks:
        return None
    if raw.size != n * blocks * block * bits // 8:
        return None
    points = points_of(host_of(zeros), n, blocks, bits)
    if points is None or (bias is not None and host_of(bias).shape != (n,)):
        return None
    found = BlockCodes(raw.reshape(n, -1), by.reshape(n, blocks), points, k, bits, block)
    exact = int4_of(found) if node.attributes.get("accuracy_level", 0) == 4 else None
    module = packed_layer(graph, found if exact is None else Quantized(exact), bias, names[1])
    for name, old in zip(names[1:4], given[1:4], strict=True):
        if isinstance(old, Constant) and graph.uses[name] == 2:
            graph.scope.parameters.pop(old.key, None)
    return Node("Linear", OURS, node.name, names[:1], node.outputs, {"module": module})


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
    made.bias = None if bias is None else nn.Parameter(as_tensor(host_of(bias)), False)
    made.out_features, made.in_features = storage.shape
    graph.scope.modules[graph.free(graph.scope.prefix + name)] = made
    return made


RULES: dict[tuple[str, str], Any] = {
    ("", "MatMul"): matmul,
    ("", "Gemm"): gemm,
    ("", "MatMulInteger"): matmul_integer,
    ("", "ConvInteger"): conv_integer,
    ("com.microsoft", "DynamicQuantizeLSTM"): quantized_lstm,
    ("com.microsoft", "MatMulNBits"): matmul_nbits,
}
