"""What a piece of work is: its data, how each library does it, and what it costs at least."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")  # idle OpenBLAS threads would slow the others down

import numpy as np

LIBRARIES = ("cubepy", "numpy", "torch", "onnxruntime")

Run = Callable[[], Any]
Make = Callable[..., Run]  # takes the data, prepares what is prepared once, and gives what is timed


@dataclass(frozen=True)
class Work:
    """One operation on float32 unless its name says otherwise.

    Attributes:
        shapes: the shapes that are timed, such as "4096x4096".
        data: takes the numbers of a shape and gives the arrays, seeded.
        cubepy, numpy, torch, onnxruntime: take the arrays and give what is timed (torch gets tensors); None where a
            library does not have the operation.
        exact: takes the arrays in float64 and gives the true result; NumPy's way if left out.
        flops, bytes: take the numbers of a shape and give the least that must be computed and moved.
        quick: a smaller shape, for the error.
        random: the result has no true value.
    """

    shapes: tuple[str, ...]
    data: Callable[..., tuple[np.ndarray, ...]]
    cubepy: Make
    numpy: Make | None = None
    torch: Make | None = None
    onnxruntime: Make | None = None
    exact: Callable[..., Any] | None = None
    flops: Callable[..., float] | None = None
    bytes: Callable[..., float] | None = None
    quick: str = ""
    random: bool = False

    def truth(self, *arrays: np.ndarray) -> np.ndarray | None:
        """The result in float64, or None."""
        if self.random:
            return None
        wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in arrays]
        if self.exact is not None:
            return np.asarray(self.exact(*wide))
        return None if self.numpy is None else np.asarray(self.numpy(*wide)())


def numbers(shape: str) -> tuple[int, ...]:
    """The numbers of a shape such as "8192x64"."""
    return tuple(int(n) for n in shape.split("x"))


def draw(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Normal random float32."""
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return x if scale == 1.0 else x * np.float32(scale)


def torch_module() -> Any:
    """torch, or NotImplementedError: asv then shows a skipped cell."""
    try:
        import torch
    except ImportError:
        raise NotImplementedError("torch is not installed") from None
    return torch


def session_of(model: bytes) -> Any:
    """A session of onnxruntime on the CPU, with the threads that OMP_NUM_THREADS says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "0"))  # 0: one for each core
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def node(kind: str, outputs: int = 1, result: Any = np.float32, **attributes: Any) -> Make:
    """An ONNX graph of one node on onnxruntime's CPU provider; the data are its inputs."""

    def make(*arrays: np.ndarray) -> Run:
        try:
            import onnxruntime  # noqa: F401
            from onnx import TensorProto, helper, numpy_helper
        except ImportError:
            raise NotImplementedError("onnxruntime and onnx are not installed") from None
        kinds = {np.float32: TensorProto.FLOAT, np.int64: TensorProto.INT64}
        names = [f"x{i}" for i in range(len(arrays))]
        ends = [f"y{i}" for i in range(outputs)]
        constant = [numpy_helper.from_array(x, n) for n, x in zip(names[1:], arrays[1:], strict=True)]
        graph = helper.make_graph(
            [helper.make_node(kind, names, ends, **attributes)], kind,
            [helper.make_tensor_value_info(names[0], kinds[arrays[0].dtype.type], arrays[0].shape)],
            [helper.make_tensor_value_info(e, kinds[result], None) for e in ends], constant,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        session = session_of(model.SerializeToString())
        feed = {names[0]: arrays[0]}
        return lambda: session.run(None, feed)[0]

    return make
