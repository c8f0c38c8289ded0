"""Whole networks from library kernels, random weights: ResNet-50 (batch norm folded) and a
RoBERTa-base encoder.

A network is written once over a few operations; each library has its own. Weights are laid out
once, before the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.peers import Graph, Run, onnx_module, serialised, torch_module
from benchmarks.work import Work, draw
from cubepy import kernels as K

LAYERS, WIDTH, HEADS, LENGTH = 12, 768, 12, 128
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, channels, stride


def resnet50(ops: Any, x: Any, weights: Iterator[Any]) -> Any:
    """Images -> 1000 numbers each (He et al., 2015; the stride is in the 3x3 layers)."""
    x = ops.max_pool(ops.conv(x, next(weights), 2, 3, True))
    for blocks, _, stride in STAGES:
        for block in range(blocks):
            step = 1 if block else stride
            side = x if block else ops.conv(x, next(weights), step, 0, False)
            y = ops.conv(x, next(weights), 1, 0, True)
            y = ops.conv(y, next(weights), step, 1, True)
            x = ops.conv(y, next(weights), 1, 0, True, side)
    return ops.linear(ops.mean(x), next(weights))


def resnet50_weights() -> list[tuple[np.ndarray, np.ndarray]]:
    shapes, channels = [(64, 3, 7, 7)], 64
    for blocks, width, _ in STAGES:
        for block in range(blocks):
            shapes += [] if block else [(4 * width, channels, 1, 1)]
            shapes += [(width, channels, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            channels = 4 * width
    shapes.append((1000, channels))
    return [
        (draw(*s, scale=float(np.prod(s[1:])) ** -0.5, seed=n), draw(s[0], scale=0.1, seed=n))
        for n, s in enumerate(shapes)
    ]


def roberta(ops: Any, x: Any, weights: Iterator[Any]) -> Any:
    """Embeddings -> the same shape (Liu et al., 2019), 12 layers, norms after the sums."""
    for _ in range(LAYERS):
        q, k, v = (ops.linear(x, next(weights)) for _ in range(3))
        x = ops.norm(ops.linear(ops.attention(q, k, v), next(weights), residual=x))
        y = ops.linear(x, next(weights), gelu=True)
        x = ops.norm(ops.linear(y, next(weights), residual=x))
    return x


def roberta_weights() -> list[tuple[np.ndarray, np.ndarray]]:
    shapes = [*[(WIDTH, WIDTH)] * 4, (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)] * LAYERS
    return [
        (draw(*s, scale=s[1] ** -0.5, seed=n), draw(s[0], scale=0.1, seed=n))
        for n, s in enumerate(shapes)
    ]


class Ours:
    """cubepy: channels last, packed weights."""

    def weights(self, pairs: list[Any]) -> list[Any]:
        return [(K.prepack_filter(w) if w.ndim == 4 else K.prepack(w.T), b) for w, b in pairs]

    def conv(self, x: Any, w: Any, stride: int, padding: int, relu: bool, side: Any = None) -> Any:
        activation = "relu" if relu else None
        return K.conv2d(
            x, w[0], w[1], stride, padding, layout="NHWC", activation=activation, add=side
        )

    def max_pool(self, x: Any) -> Any:
        return K.max_pool2d(x, 3, 2, 1, layout="NHWC")

    def mean(self, x: Any) -> Any:
        return K.mean(x, (1, 2))

    def linear(self, x: Any, w: Any, gelu: bool = False, residual: Any = None) -> Any:
        flat = x.reshape(-1, x.shape[-1])
        rest = None if residual is None else residual.reshape(flat.shape[0], -1)
        y = K.matmul(flat, w[0], bias=w[1], activation="gelu" if gelu else None, residual=rest)
        return y.reshape(*x.shape[:-1], -1)

    def norm(self, x: Any) -> Any:
        return K.layer_norm(x, WIDTH)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        heads = [a.reshape(*a.shape[:2], HEADS, -1).transpose(0, 2, 1, 3) for a in (q, k, v)]
        return K.copy(K.attention(*heads).transpose(0, 2, 1, 3)).reshape(q.shape)


class Torch:
    """torch, eager."""

    def __init__(self) -> None:
        self.torch = torch_module()
        self.f = self.torch.nn.functional

    def weights(self, pairs: list[Any]) -> list[Any]:
        last = self.torch.channels_last
        return [(w.to(memory_format=last) if w.ndim == 4 else w, b) for w, b in pairs]

    def conv(self, x: Any, w: Any, stride: int, padding: int, relu: bool, side: Any = None) -> Any:
        y = self.f.conv2d(x, w[0], w[1], stride, padding)
        y = y if side is None else y.add_(side)
        return y.relu_() if relu else y

    def max_pool(self, x: Any) -> Any:
        return self.f.max_pool2d(x, 3, 2, 1)

    def mean(self, x: Any) -> Any:
        return x.mean((2, 3))

    def linear(self, x: Any, w: Any, gelu: bool = False, residual: Any = None) -> Any:
        y = self.f.linear(x, *w)
        y = self.f.gelu(y) if gelu else y
        return y if residual is None else y + residual

    def norm(self, x: Any) -> Any:
        return self.f.layer_norm(x, (WIDTH,))

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        heads = [a.reshape(*a.shape[:2], HEADS, -1).transpose(1, 2) for a in (q, k, v)]
        return self.f.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(q.shape)


class Onnx:
    """Nodes of a graph; values are names."""

    def __init__(self) -> None:
        self.helper, self.numpy = onnx_module().helper, onnx_module().numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(self.numpy.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weights(self, pairs: list[Any]) -> list[Any]:
        return pairs

    def conv(self, x: str, w: Any, stride: int, padding: int, relu: bool, side: Any = None) -> str:
        size = list(w[0].shape[2:])
        y = self.add(
            "Conv", x, self.constant(w[0]), self.constant(w[1]), kernel_shape=size, strides=[stride] * 2,
            pads=[padding] * 4,
        )  # fmt: skip
        y = y if side is None else self.add("Add", y, side)
        return self.add("Relu", y) if relu else y

    def max_pool(self, x: str) -> str:
        return self.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    def mean(self, x: str) -> str:
        return self.add("Flatten", self.add("GlobalAveragePool", x))

    def linear(self, x: str, w: Any, gelu: bool = False, residual: Any = None) -> str:
        y = self.add("Add", self.add("MatMul", x, self.constant(w[0].T)), self.constant(w[1]))
        y = self.add("Gelu", y) if gelu else y
        return y if residual is None else self.add("Add", y, residual)

    def norm(self, x: str) -> str:
        ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
        return self.add(
            "LayerNormalization", x, self.constant(ones), self.constant(zeros), epsilon=1e-5
        )

    def attention(self, q: str, k: str, v: str) -> str:
        width = WIDTH // HEADS
        split, whole = (
            self.constant(np.array([0, 0, HEADS, width])),
            self.constant(np.array([0, 0, WIDTH])),
        )
        q, k, v = (
            self.add("Transpose", self.add("Reshape", a, split), perm=perm)
            for a, perm in ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3]))
        )
        scores = self.add("Mul", self.add("MatMul", q, k), self.constant(np.float32(width**-0.5)))
        y = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        return self.add("Reshape", self.add("Transpose", y, perm=[0, 2, 1, 3]), whole)

    def graph(self, network: Any, x: np.ndarray, pairs: list[Any]) -> Graph:
        last, describe = network(self, "x", iter(pairs)), self.helper.make_tensor_value_info
        ends = [describe("x", 1, x.shape)], [describe(last, 1, None)]
        return Graph(serialised(self.nodes, *ends, self.constants), {"x": x})


def _work(network: Any, pairs: Any, shape: Any, flops: float) -> Work:
    def data(batch: int) -> tuple[np.ndarray, ...]:
        return (draw(batch, *shape), *(a for pair in pairs() for a in pair))

    def paired(flat: tuple[Any, ...]) -> list[Any]:
        return list(zip(flat[::2], flat[1::2], strict=True))

    def cubepy(x: np.ndarray, *flat: np.ndarray) -> Run:
        ops = Ours()
        weights = ops.weights(paired(flat))
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if x.ndim == 4 else x
        return lambda: network(ops, x, iter(weights))

    def torch(x: Any, *flat: Any) -> Run:
        ops = Torch()
        weights = ops.weights(paired(flat))
        x = x.to(memory_format=ops.torch.channels_last) if x.ndim == 4 else x

        def run() -> Any:
            with ops.torch.no_grad():
                return network(ops, x, iter(weights))

        return run

    def exact(x: np.ndarray, *flat: np.ndarray) -> np.ndarray:
        module = torch_module()
        return np.asarray(torch(*(module.from_numpy(a) for a in (x, *flat)))())

    return Work(
        ("1", "8"), data, cubepy, None, torch, lambda x, *flat: Onnx().graph(network, x, paired(flat)), exact,
        lambda batch: flops * batch, quick="1",
    )  # fmt: skip


WORKS = {
    "resnet50": _work(resnet50, resnet50_weights, (3, 224, 224), 8.18e9),
    "roberta": _work(
        roberta, roberta_weights, (LENGTH, WIDTH),
        LAYERS * (24.0 * LENGTH * WIDTH * WIDTH + 4.0 * LENGTH * LENGTH * WIDTH),
    ),
}  # fmt: skip
