"""Library kernels beside their peers: one module, the library is a parameter."""

from __future__ import annotations

from typing import Any

from benchmarks.cases import LIBRARIES, case


class Base:
    """Timing settings that all classes share; no set-up, so asv repeats calls freely."""

    param_names = ("library", "size")
    timeout = 300
    rounds = 4

    def run(self, op: str, library: str, size: int) -> Any:
        """Do the work once; the first time also builds it."""
        return case(op, library, size)()


def _suite(op: str, sizes: tuple[int, ...]) -> type:
    def time_op(self: Base, library: str, size: int) -> None:
        self.run(op, library, size)

    time_op.__name__ = f"time_{op}"
    return type(op.title().replace("_", ""), (Base,), {f"time_{op}": time_op, "params": (LIBRARIES, sizes)})


Matmul = _suite("matmul", (64, 256, 512, 1024))
Linear1 = _suite("linear1", (1024, 4096))
Axpy = _suite("axpy", (64, 2048))
Sum = _suite("sum", (64, 4096))
SumRows = _suite("sum_rows", (4096,))
SumColumns = _suite("sum_columns", (4096,))
ArgmaxRows = _suite("argmax_rows", (4096,))
Softmax = _suite("softmax", (64, 4096))
LayerNorm = _suite("layer_norm", (64, 4096))
Gelu = _suite("gelu", (64, 4096))
Transpose = _suite("transpose", (64, 4096))
MaxPool2d = _suite("max_pool2d", (128, 512))
Attention = _suite("attention", (128, 1024))
AttentionCausal = _suite("attention_causal", (1024,))
Sort = _suite("sort", (1024, 1 << 20, 1 << 24))
Argsort = _suite("argsort", (1 << 20,))
Topk = _suite("topk", (1 << 22,))
Cumsum = _suite("cumsum", (1 << 20, 1 << 24))
Normal = _suite("normal", (1 << 20, 1 << 24))
Gather = _suite("gather", (2048,))
Conv2d = _suite("conv2d", (64, 128, 256, 512))
Conv2dLast = _suite("conv2d_last", (64, 128, 256, 512))
