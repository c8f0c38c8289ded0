"""The libraries that ours is compared with: each is imported when it is first asked for, and left
out where it is not installed.

Every peer gets the same number of threads, takes its data as it likes it best, and prepares before
the clock what a user would prepare once: graphs are compiled, constant weights packed.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

Run = Callable[[], Any]
Make = Callable[..., Run]  # takes the data, prepares what is prepared once, and gives what is timed

SETTLE = {"numpy": 0.005, "torch": 0.02, "torch.compile": 0.02, "onnxruntime": 0.05}
"""Seconds for which threads of a library keep turning after its last call; those of the others
sleep at once.
"""


def threads() -> int:
    """How many threads each peer gets: OMP_NUM_THREADS, or one for each core."""
    return int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))


def torch_module() -> Any:
    """torch, or NotImplementedError: asv then shows a skipped cell."""
    try:
        import torch
    except ImportError:
        raise NotImplementedError("torch is not installed") from None
    return torch


def compiler() -> str | None:
    """The C++ compiler that torch.compile would call."""
    return shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")


def _dynamo() -> Any:
    torch = torch_module()
    if compiler() is None:
        raise NotImplementedError("torch.compile needs a C++ compiler")
    return torch


def compiled(make: Make) -> Make:
    """torch.compile of what eager torch would run."""

    def prepare(*tensors: Any) -> Run:
        torch = _dynamo()
        torch.compiler.reset()  # a function of an earlier shape would be compiled again for any shape
        return torch.compile(make(*tensors), dynamic=False)

    return prepare


def frozen(layer: Callable[..., Any]) -> Make:
    """torch.compile of a layer whose weights are constants, so that it packs them: takes the data,
    gives the layer and its input.
    """

    def prepare(*tensors: Any) -> Run:
        torch = _dynamo()
        torch.compiler.reset()
        module, x = layer(*tensors)
        run = torch.compile(module.eval(), dynamic=False)
        with torch.no_grad(), torch._inductor.config.patch(freezing=True):
            run(x)

        def timed() -> Any:
            with torch.no_grad():
                return run(x)

        return timed

    return prepare


@cache
def jax_module() -> Any:
    """jax on the CPU with as many threads as the others."""
    os.environ.setdefault("PJRT_NPROC", str(threads()))
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        import jax
    except ImportError:
        raise NotImplementedError("jax is not installed") from None
    return jax


def jitted(function: Callable[..., Any]) -> Make:
    """A function of JAX arrays, compiled; a call ends when its result is there."""

    def prepare(*arrays: np.ndarray) -> Run:
        jax = jax_module()
        run, inputs = jax.jit(function), [jax.device_put(x) for x in arrays]
        return lambda: run(*inputs).block_until_ready()

    return prepare


@dataclass(frozen=True)
class Graph:
    """An ONNX model and its inputs."""

    model: bytes
    feed: dict[str, np.ndarray]

    def onnxruntime(self) -> Run:
        """Run by onnxruntime on the CPU."""
        try:
            import onnxruntime
        except ImportError:
            raise NotImplementedError("onnxruntime is not installed") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads()
        session = onnxruntime.InferenceSession(
            self.model, options, providers=["CPUExecutionProvider"]
        )
        return lambda: session.run(None, self.feed)[0]

    def openvino(self) -> Run:
        """Run by OpenVINO on the CPU in float32: one request at a time, inputs and results not
        copied.
        """
        request = _openvino().compile_model(_openvino().read_model(self.model), "CPU", {
            "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads(), "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }).create_infer_request()  # fmt: skip
        inputs = list(self.feed.values())
        return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)[0]


@cache
def _openvino() -> Any:
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # reports of use would be timed too
    try:
        import openvino
    except ImportError:
        raise NotImplementedError("openvino is not installed") from None
    return openvino.Core()


def onnx_module() -> Any:
    """onnx, which writes the graphs."""
    try:
        import onnx
    except ImportError:
        raise NotImplementedError("onnx is not installed") from None
    return onnx


def serialised(
    nodes: list[Any], ends: list[Any], outputs: list[Any], constants: list[Any]
) -> bytes:
    """A model of these nodes, inputs, outputs and constants."""
    helper = onnx_module().helper
    graph = helper.make_graph(nodes, "graph", ends, outputs, constants)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return bytes(model.SerializeToString())


def node(
    kind: str, outputs: int = 1, result: Any = np.float32, constant: bool = True, **attributes: Any
) -> Callable[..., Graph]:
    """An ONNX graph of one node; the first array is its input, and so are the others unless they
    are constants.
    """

    def graph(*arrays: np.ndarray) -> Graph:
        onnx = onnx_module()
        helper, kinds = (
            onnx.helper,
            {np.float32: onnx.TensorProto.FLOAT, np.int64: onnx.TensorProto.INT64},
        )
        names = [f"x{i}" for i in range(len(arrays))]
        ends = [f"y{i}" for i in range(outputs)]
        feed = dict(zip(names[:1] if constant else names, arrays, strict=False))
        model = serialised(
            [helper.make_node(kind, names, ends, **attributes)],
            [
                helper.make_tensor_value_info(n, kinds[x.dtype.type], x.shape)
                for n, x in feed.items()
            ],
            [helper.make_tensor_value_info(e, kinds[result], None) for e in ends],
            [
                onnx.numpy_helper.from_array(x, n)
                for n, x in zip(names, arrays, strict=True)
                if n not in feed
            ],
        )
        return Graph(model, feed)

    return graph
