"""What measuring a product needs: arguments, a reference, tolerance and work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.device import as_device, gpu_of
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import TunedOp, Work

CHECKED_ROWS = 16


class Matmul(TunedOp):
    """Products of matrices, as they are measured."""

    problem = Product
    exact = frozenset({"packed"})

    def outputs(self, args: tuple[Any, ...]) -> Sequence[Any]:
        """The result."""
        return args[2:3]

    def make(self, problem: Product, seed: int) -> tuple[Any, ...]:
        """x, y, out, bias, residual, function, alpha, as the routines take them."""
        rng = np.random.default_rng(seed)
        p = problem
        y: Any
        x: Any = _random(rng, (p.batch, p.m, p.k), p.a)
        if p.packed:
            count = -(-p.n // p.packed)
            if p.b in ("i8", "u8"):
                y = _random(rng, (1, count, -(-p.k // 4), 4 * p.packed), p.b)
            elif p.b == "bf16":
                y = _random(rng, (1, count, -(-p.k // 2), 2 * p.packed), "bf16").view(np.uint32)
            else:
                y = _random(rng, (1, count, p.k, p.packed), "f32")
                y[:, -1, :, p.n - (count - 1) * p.packed :] = 0
        elif p.layout == "columns":
            y = _random(rng, (p.batch, p.n, p.k), p.b).transpose(0, 2, 1)
        else:
            step = 2 if p.layout == "strided" else 1
            y = _random(rng, (p.batch, p.k, p.n * step), p.b)[:, :, ::step]
        out: Any = np.zeros((p.batch, p.m, p.n), result_dtype(p).numpy)
        device = as_device(p.device)
        if gpu_of(device) is not None:
            x, out = upload(x, device), upload(out, device)
            if p.layout == "columns" and not p.packed:
                y = upload(y.transpose(0, 2, 1), device).transpose(0, 2, 1)
            else:
                y = upload(y.base if p.layout == "strided" else y, device)[
                    :, :, :: 2 if p.layout == "strided" else 1
                ]
        return x, y, out, None, None, None, 1.0

    def reference(self, problem: Product, args: tuple[Any, ...]) -> Sequence[np.ndarray]:
        """Some rows of the product, the first and the last among them, in float64 (integers:
        exactly, wrapping).
        """
        batches, rows = _rows(problem)
        wide = np.float64 if result_dtype(problem).is_float else result_dtype(problem).numpy
        x, y = (a if isinstance(a, np.ndarray) else a.numpy() for a in args[:2])
        if problem.packed:
            y = unpacked(y, problem.k, problem.n)
        found = [x[i, rows].astype(wide) @ y[min(i, y.shape[0] - 1)].astype(wide) for i in batches]
        return [np.stack(found)]

    def results(self, problem: Product, args: tuple[Any, ...]) -> Sequence[np.ndarray]:
        """The same rows of what a routine wrote."""
        batches, rows = _rows(problem)
        out = args[2] if isinstance(args[2], np.ndarray) else args[2].numpy()
        return [out[batches][:, rows]]

    def tolerance(self, problem: Product) -> tuple[float, float]:
        """Relative and absolute: rounding of k sums of products of numbers around one."""
        unit = {16: 1e-2 if "bf16" in (problem.a, problem.b) else 2e-3, 32: 1e-5}.get(
            result_dtype(problem).bits, 1e-12
        )
        return unit, unit * max(problem.k, 1) ** 0.5

    def work(self, problem: Product) -> Work:
        """Both matrices are read once, the result is written once."""
        p, out = problem, result_dtype(problem)
        size_a, size_b = as_dtype(p.a).itemsize, as_dtype(p.b).itemsize
        size = p.batch * (p.m * p.k * size_a + p.k * p.n * size_b + p.m * p.n * out.itemsize)
        computed = (
            out.name
            if out.bits > 32 or not out.is_float or not p.device.startswith("cpu")
            else "f32"
        )
        return Work(size, 2 * p.batch * p.m * p.k * p.n, computed)

    def linear(self, device: str, rows: int, inputs: int, outputs: int) -> Product:
        """The product of a linear layer whose weight is (outputs, inputs)."""
        return Product(device, rows, inputs, outputs, layout="columns")

    def typical(self, device: str) -> Sequence[Product]:
        """Square products, and the few-row products of linear layers."""
        squares = [Product(device, n, n, n) for n in (128, 256, 512, 1024, 2048)]
        return squares + [
            self.linear(device, m, k, n)
            for m in (1, 32, 128)
            for k, n in ((768, 768), (768, 3072), (4096, 4096))
        ]


def _random(rng: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    kind = as_dtype(dtype)
    if kind.is_float:
        return rng.standard_normal(shape, np.float32).astype(kind.numpy)
    return rng.integers(0, 100, shape).astype(kind.numpy)


def _rows(problem: Product) -> tuple[np.ndarray, np.ndarray]:
    batches = np.unique([0, problem.batch - 1])
    return batches, np.unique(np.linspace(0, problem.m - 1, CHECKED_ROWS).astype(int))


def unpacked(panels: Any, k: int, n: int) -> Any:
    """The matrix (1, K, N) of panels, in f32 or of the words that `pack_pairs` and `pack_codes`
    make.
    """
    if panels.itemsize == 1:
        codes = panels if panels.dtype == np.int8 else (panels ^ 128).view(np.int8)
        words = codes.reshape(*panels.shape[:3], -1, 4).transpose(0, 2, 4, 1, 3)
        return words.reshape(1, 4 * panels.shape[2], -1)[:, :k, :n]
    if panels.dtype == np.uint32:
        panels = (
            panels.view(as_dtype("bf16").numpy).reshape(*panels.shape, 2).transpose(0, 1, 2, 4, 3)
        )
        panels = panels.reshape(*panels.shape[:2], -1, panels.shape[4])
    return panels.transpose(0, 2, 1, 3).reshape(1, panels.shape[2], -1)[:, :k, :n]
