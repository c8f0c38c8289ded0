"""What a piece of work is: its data, how each library does it, and what it costs at least."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.peers import Graph, Make

LIBRARIES = ("cubepy", "numpy", "torch", "torch.compile", "jax", "onnxruntime", "openvino")


PAGE = 4096  # bytes


@dataclass(frozen=True)
class Work:
    """One operation on float32 unless its name says otherwise.

    Attributes:
        shapes: the shapes that are timed, such as "4096x4096".
        data: takes the numbers of a shape and gives the arrays, seeded.
        cubepy, numpy, torch, compiled, jax: take the arrays and give what is timed (torch and
            torch.compile, which is `compiled`, get tensors); None where a library does not have the
            operation.
        onnx: takes the arrays and gives the graph that onnxruntime and OpenVINO run.
        exact: takes the arrays in float64 and gives the true result; NumPy's way if left out.
        flops, bytes: take the numbers of a shape and give the least that must be computed and
            moved.
        quick: a smaller shape, for the error.
        random: the result has no true value.
        reads: what is moved is read, next to nothing is written.
    """

    shapes: tuple[str, ...]
    data: Callable[..., tuple[np.ndarray, ...]]
    cubepy: Make
    numpy: Make | None = None
    torch: Make | None = None
    onnx: Callable[..., Graph] | None = None
    exact: Callable[..., Any] | None = None
    flops: Callable[..., float] | None = None
    bytes: Callable[..., float] | None = None
    quick: str = ""
    random: bool = False
    reads: bool = False
    compiled: Make | None = None
    jax: Make | None = None

    def make(self, library: str) -> Make | None:
        """How a library prepares the work; None if it does not have the operation."""
        if library not in ("onnxruntime", "openvino"):
            return getattr(self, "compiled" if library == "torch.compile" else library)
        graph = self.onnx
        return None if graph is None else lambda *arrays: getattr(graph(*arrays), library)()

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


def placed(x: np.ndarray, byte: int) -> np.ndarray:
    """A copy that begins so many bytes past a page: 16 is where NumPy's own large arrays begin."""
    memory = np.empty(x.nbytes + 2 * PAGE, np.uint8)
    start = -memory.ctypes.data % PAGE + byte
    copy = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def draw(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Normal random float32."""
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return x if scale == 1.0 else x * np.float32(scale)
