"""Matrix products: square, skinny, one row, batched, bfloat16; of two matrices, and of one with a
constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers import Run, jitted, node, torch_module
from benchmarks.work import Work, draw
from cubepy import kernels as K


def _data(m: int, k: int, n: int) -> tuple[np.ndarray, ...]:
    return draw(m, k), draw(k, n, seed=1)


def _flops(m: int, k: int, n: int) -> float:
    return 2.0 * m * k * n


def _bytes(m: int, k: int, n: int) -> float:
    return 4.0 * (m * k + k * n + m * n)


def _product(a: Any, b: Any) -> Run:
    return lambda: a @ b


def _packed(a: np.ndarray, b: np.ndarray) -> Run:
    packed = K.prepack(b)
    return lambda: K.matmul(a, packed)


def _packed_torch(a: Any, b: Any) -> Run:
    """oneDNN, with the weights in its own order."""
    ops = torch_module().ops.mkldnn
    packed, product = ops._reorder_linear_weight(b.T.contiguous(), len(a)), ops._linear_pointwise
    return lambda: product(a, packed, None, "none", [], "")


def _short(x: np.ndarray) -> np.ndarray:
    import ml_dtypes

    return x.astype(ml_dtypes.bfloat16)


def _bf16(a: np.ndarray, b: np.ndarray) -> Run:
    x, y = _short(a), _short(b)
    return lambda: K.matmul(x, y)


def _bf16_packed(a: np.ndarray, b: np.ndarray) -> Run:
    return _packed(_short(a), _short(b))


def _bf16_jax(a: np.ndarray, b: np.ndarray) -> Run:
    return jitted(lambda x, y: x @ y)(_short(a), _short(b))


def _bf16_torch(a: Any, b: Any) -> Run:
    x, y = a.bfloat16(), b.bfloat16()
    return lambda: x @ y


def _bf16_packed_torch(a: Any, b: Any) -> Run:
    return _packed_torch(a.bfloat16(), b.bfloat16())


def _rounded(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _short(a).astype(np.float64) @ _short(b).astype(np.float64)


def _linear(x: Any, w: Any) -> Run:
    linear = torch_module().nn.functional.linear
    return lambda: linear(x, w)


CUBES = (
    "64x64x64",
    "128x128x128",
    "256x256x256",
    "512x512x512",
    "1024x1024x1024",
    "2048x2048x2048",
    "4096x4096x4096",
)
SKINNY = ("8192x1024x64", "8192x64x1024", "64x8192x64", "32x4096x4096")
ROW = ("1x4096x4096", "1x4096x11008")

WORKS = {
    "matmul": Work(
        (*CUBES, *SKINNY), _data, lambda a, b: lambda: K.matmul(a, b), _product, _product,
        node("MatMul", constant=False), flops=_flops, jax=jitted(lambda a, b: a @ b),
    ),  # m, k, n
    "matmul_packed": Work(
        (*CUBES, *SKINNY), _data, _packed, None, _packed_torch, node("MatMul"), lambda a, b: a @ b, _flops,
    ),
    "matmul_row": Work(
        ROW, _data, lambda a, b: lambda: K.matmul(a, b), _product, _product, node("MatMul", constant=False),
        bytes=_bytes, reads=True, jax=jitted(lambda a, b: a @ b),
    ),
    "matmul_row_packed": Work(
        ROW, _data, _packed, None, _packed_torch, node("MatMul"), lambda a, b: a @ b, bytes=_bytes, reads=True,
    ),
    "linear": Work(
        ROW, lambda m, k, n: (draw(m, k), draw(n, k, seed=1)), lambda x, w: lambda: K.matmul(x, w.T),
        lambda x, w: lambda: x @ w.T, _linear, node("Gemm", transB=1), bytes=_bytes, reads=True,
        jax=jitted(lambda x, w: x @ w.T),
    ),
    "matmul_batched": Work(
        ("32x512x512x512",), lambda b, m, k, n: (draw(b, m, k), draw(b, k, n, seed=1)),
        lambda a, b: lambda: K.matmul(a, b), _product, _product, node("MatMul", constant=False),
        flops=lambda b, *n: b * _flops(*n), jax=jitted(lambda a, b: a @ b),
    ),
    "matmul_bf16": Work(
        (*CUBES, *SKINNY), _data, _bf16, torch=_bf16_torch, exact=_rounded, flops=_flops, jax=_bf16_jax,
    ),
    "matmul_bf16_packed": Work(
        (*CUBES, *SKINNY), _data, _bf16_packed, torch=_bf16_packed_torch, exact=_rounded, flops=_flops,
    ),
    "matmul_bf16_row": Work(
        ROW[:1], _data, _bf16, torch=_bf16_torch, exact=_rounded, bytes=lambda *n: _bytes(*n) / 2, reads=True,
        jax=_bf16_jax,
    ),
}  # fmt: skip
