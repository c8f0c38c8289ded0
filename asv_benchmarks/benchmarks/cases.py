"""Work to time: `case(op, library, size)` builds the data once, runs it once and gives a function without arguments.

A library that is not installed raises NotImplementedError, which asv shows as a skipped cell.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")  # idle OpenBLAS threads would slow the others down

import numpy as np

LIBRARIES = ("cubepy", "numpy", "torch", "onnxruntime")


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise NotImplementedError("torch is not installed") from None
    return torch


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _normal(x: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(out=x, dtype=np.float32)


def _layer_norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def data(op: str, size: int) -> tuple[np.ndarray, ...]:
    """The inputs of an operation (float32, seeded)."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    if op in ("matmul", "axpy"):
        return draw(size, size), draw(size, size)
    if op == "linear1":
        return draw(1, size), draw(size, size)
    if op in ("attention", "attention_causal"):
        return draw(1, 8, size, 64), draw(1, 8, size, 64), draw(1, 8, size, 64)
    if op == "max_pool2d":
        return (draw(2, size, size, 32),)
    if op in ("sort", "argsort", "topk", "cumsum", "normal"):
        return (draw(size),)
    if op == "gather":
        return draw(size, size), rng.integers(0, size, (size, size))
    if op in ("conv2d", "conv2d_last"):  # ResNet-50's 3x3 layers: size channels, 3584 / size places along each axis
        side = 3584 // size
        shape = (1, size, side, side) if op == "conv2d" else (1, side, side, size)
        return draw(*shape), draw(size, size, 3, 3) * np.float32(0.05)
    return (draw(size, size),)


def numpy_call(op: str, xs: tuple[np.ndarray, ...]) -> Callable[[], Any]:
    """The operation with NumPy."""
    x = xs[0]
    table: dict[str, Callable[[], Any]] = {
        "matmul": lambda: xs[0] @ xs[1], "linear1": lambda: xs[0] @ xs[1].T, "axpy": lambda: 2 * xs[0] + xs[1],
        "sum": lambda: x.sum(), "sum_rows": lambda: x.sum(1), "sum_columns": lambda: x.sum(0),
        "max_rows": lambda: x.max(1), "argmax_rows": lambda: x.argmax(1), "softmax": lambda: _softmax(x),
        "layer_norm": lambda: _layer_norm(x), "transpose": lambda: np.ascontiguousarray(x.T), "copy": lambda: x.copy(),
        "sort": lambda: np.sort(x), "argsort": lambda: np.argsort(x, stable=True), "cumsum": lambda: np.cumsum(x),
        "gather": lambda: np.take_along_axis(xs[0], xs[1], 1), "normal": lambda: _normal(x),
    }  # fmt: skip
    if op not in table:
        raise NotImplementedError(f"NumPy has no {op}")
    return table[op]


def torch_call(op: str, xs: tuple[np.ndarray, ...]) -> Callable[[], Any]:
    """The operation with torch, eager, on the CPU."""
    torch = _torch()
    f = torch.nn.functional
    ts = [torch.from_numpy(x) for x in xs]
    x = ts[0]
    pool = x.permute(0, 3, 1, 2) if op in ("max_pool2d", "conv2d_last") else None
    last = ts[1].to(memory_format=torch.channels_last) if op == "conv2d_last" else None
    table: dict[str, Callable[[], Any]] = {
        "matmul": lambda: ts[0] @ ts[1], "linear1": lambda: f.linear(ts[0], ts[1]),
        "axpy": lambda: torch.add(ts[1], ts[0], alpha=2), "sum": lambda: x.sum(), "sum_rows": lambda: x.sum(1),
        "sum_columns": lambda: x.sum(0), "max_rows": lambda: x.amax(1), "argmax_rows": lambda: x.argmax(1),
        "softmax": lambda: x.softmax(-1), "layer_norm": lambda: f.layer_norm(x, x.shape[-1:]),
        "gelu": lambda: f.gelu(x), "transpose": lambda: x.T.contiguous(), "copy": lambda: x.clone(),
        "attention": lambda: f.scaled_dot_product_attention(*ts),
        "attention_causal": lambda: f.scaled_dot_product_attention(*ts, is_causal=True),
        "max_pool2d": lambda: f.max_pool2d(pool, 5, 1, 2),
        "sort": lambda: x.sort(), "argsort": lambda: x.argsort(stable=True), "topk": lambda: x.topk(100),
        "cumsum": lambda: x.cumsum(0), "gather": lambda: ts[0].gather(1, ts[1]), "normal": lambda: x.normal_(),
        "conv2d": lambda: f.conv2d(ts[0], ts[1], padding=1), "conv2d_last": lambda: f.conv2d(pool, last, padding=1),
    }  # fmt: skip
    return table[op]


def onnxruntime_call(op: str, xs: tuple[np.ndarray, ...]) -> Callable[[], Any]:
    """The operation as a graph of one node, on onnxruntime's CPU provider."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError:
        raise NotImplementedError("onnxruntime and onnx are not installed") from None
    nodes: dict[str, tuple[str, dict[str, Any]]] = {
        "matmul": ("MatMul", {}), "softmax": ("Softmax", {"axis": -1}), "transpose": ("Transpose", {"perm": [1, 0]}),
        "argmax_rows": ("ArgMax", {"axis": 1, "keepdims": 0}), "gelu": ("Gelu", {}),
        "conv2d": ("Conv", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    }  # fmt: skip
    if op not in nodes:
        raise NotImplementedError(f"{op} is not a single ONNX node here")
    kind, attributes = nodes[op]
    names = [f"x{i}" for i in range(len(xs))]
    result = TensorProto.INT64 if kind == "ArgMax" else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(kind, names, ["y"], **attributes)],
        op,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in zip(names, xs, strict=True)],
        [helper.make_tensor_value_info("y", result, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = dict(zip(names, xs, strict=True))
    return lambda: session.run(None, feed)


def cubepy_call(op: str, xs: tuple[np.ndarray, ...]) -> Callable[[], Any]:
    """The operation with cubepy."""
    from cubepy import kernels as K

    x = xs[0]
    filters = K.prepack_filter(xs[1]) if op.startswith("conv2d") else None
    table: dict[str, Callable[[], Any]] = {
        "matmul": lambda: K.matmul(xs[0], xs[1]), "linear1": lambda: K.matmul(xs[0], xs[1].T),
        "axpy": lambda: K.map(_axpy(), xs[0], xs[1]), "sum": lambda: K.sum(x), "sum_rows": lambda: K.sum(x, 1),
        "sum_columns": lambda: K.sum(x, 0), "max_rows": lambda: K.max(x, 1), "argmax_rows": lambda: K.argmax(x, 1),
        "softmax": lambda: K.softmax(x), "layer_norm": lambda: K.layer_norm(x, x.shape[-1]), "gelu": lambda: K.gelu(x),
        "transpose": lambda: K.transpose(x), "copy": lambda: K.copy(x), "attention": lambda: K.attention(*xs),
        "attention_causal": lambda: K.attention(*xs, is_causal=True),
        "max_pool2d": lambda: K.max_pool2d(x, 5, 1, 2, layout="NHWC"),
        "sort": lambda: K.sort(x), "argsort": lambda: K.argsort(x), "topk": lambda: K.topk(x, 100),
        "cumsum": lambda: K.cumsum(x), "gather": lambda: K.gather(xs[0], 1, xs[1]), "normal": lambda: K.normal(out=x),
        "conv2d": lambda: K.conv2d(x, filters, padding=1),
        "conv2d_last": lambda: K.conv2d(x, filters, padding=1, layout="NHWC"),
    }  # fmt: skip
    return table[op]


@cache
def _axpy() -> Any:
    from benchmarks.kernels import axpy_of

    return axpy_of


@cache
def case(op: str, library: str, size: int) -> Callable[[], Any]:
    """A function that does the work once; the first run has happened."""
    make = {
        "cubepy": cubepy_call, "numpy": numpy_call, "torch": torch_call, "onnxruntime": onnxruntime_call,
    }[library]  # fmt: skip
    run = make(op, data(op, size))
    run()
    return run
