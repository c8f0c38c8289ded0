"""Matrix products: square, skinny, one row, batched, bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.work import Run, Work, draw, node, torch_module
from cubepy import kernels as K


def _bf16(a: np.ndarray, b: np.ndarray) -> Run:
    import ml_dtypes

    x, y = a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)
    return lambda: K.matmul(x, y)


def _bf16_torch(a: Any, b: Any) -> Run:
    x, y = a.bfloat16(), b.bfloat16()
    return lambda: x @ y


def _rounded(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    import ml_dtypes

    x, y = (v.astype(ml_dtypes.bfloat16).astype(np.float64) for v in (a, b))
    return x @ y


def _linear(x: Any, w: Any) -> Run:
    linear = torch_module().nn.functional.linear
    return lambda: linear(x, w)


CUBES = ("64x64x64", "128x128x128", "256x256x256", "512x512x512", "1024x1024x1024", "2048x2048x2048", "4096x4096x4096")
SKINNY = ("8192x1024x64", "8192x64x1024", "64x8192x64", "32x4096x4096")

WORKS = {
    "matmul": Work(
        (*CUBES, *SKINNY),  # m, k, n
        lambda m, k, n: (draw(m, k), draw(k, n, seed=1)),
        lambda a, b: lambda: K.matmul(a, b),
        numpy=lambda a, b: lambda: a @ b, torch=lambda a, b: lambda: a @ b, onnxruntime=node("MatMul"),
        flops=lambda m, k, n: 2 * m * k * n,
    ),
    "linear": Work(
        ("1x4096x4096", "1x4096x11008"),
        lambda m, k, n: (draw(m, k), draw(n, k, seed=1)),
        lambda x, w: lambda: K.matmul(x, w.T),
        numpy=lambda x, w: lambda: x @ w.T, torch=_linear, onnxruntime=node("Gemm", transB=1),
        bytes=lambda m, k, n: 4 * (m * k + k * n + m * n),
    ),
    "matmul_batched": Work(
        ("32x512x512x512",),
        lambda b, m, k, n: (draw(b, m, k), draw(b, k, n, seed=1)),
        lambda a, b: lambda: K.matmul(a, b),
        numpy=lambda a, b: lambda: a @ b, torch=lambda a, b: lambda: a @ b, onnxruntime=node("MatMul"),
        flops=lambda b, m, k, n: 2 * b * m * k * n,
    ),
    "matmul_bf16": Work(
        ("256x256x256", "512x512x512", "1024x1024x1024", "2048x2048x2048", *SKINNY),
        lambda m, k, n: (draw(m, k), draw(k, n, seed=1)),
        _bf16, torch=_bf16_torch, exact=_rounded, flops=lambda m, k, n: 2 * m * k * n,
    ),
}  # fmt: skip
