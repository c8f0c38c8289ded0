"""How near and how fast a quantized layer is, beside the float layer, on real kernels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from cubepy.quant.storage import Quantized
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.tensor import Dense, Tensor, apply

# Seconds spent on one pair of layers, and rounds at most and at least.
_BUDGET, _MOST, _LEAST = 0.05, 50, 5


def weight_error(weight: np.ndarray, quantized: QuantizedWeight) -> float:
    """|W - Q| / |W|, some rows at a time."""
    difference = size = 0.0
    step = max(1, (1 << 20) // weight.shape[1])
    for at in range(0, weight.shape[0], step):
        exact = weight[at : at + step].astype(np.float64)
        difference += float(((exact - quantized.dequantize(at, at + step)) ** 2).sum())
        size += float((exact**2).sum())
    return float(np.sqrt(difference / size)) if size else 0.0


def relative_error(exact: np.ndarray, near: np.ndarray) -> float:
    """|exact - near| / |exact|; 0 where both are zero."""
    wide = exact.astype(np.float64)
    size = float(np.linalg.norm(wide))
    return float(np.linalg.norm(wide - near)) / size if size else float(np.linalg.norm(near))


def mean_cosine(exact: np.ndarray, near: np.ndarray) -> float:
    """Mean cosine of the rows (last axis) of two arrays; rows of zeros do not count."""
    a, b = (v.astype(np.float64).reshape(-1, v.shape[-1]) for v in (exact, near))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    kept = norms > 0
    return float(((a * b).sum(axis=1)[kept] / norms[kept]).mean()) if kept.any() else 1.0


def layers(
    weight: np.ndarray, quantized: QuantizedWeight, x: np.ndarray
) -> tuple[Callable, Callable]:
    """The float layer and the quantized layer as calls without arguments that return arrays."""
    rows, plain, packed = Tensor(Dense(x)), Tensor(Dense(weight)), Tensor(Quantized(quantized))

    def call(w: Tensor) -> Callable[[], np.ndarray]:
        return lambda: apply("linear", rows, w, None, None, activation=None).numpy()

    return call(plain), call(packed)


def output_error(weight: np.ndarray, quantized: QuantizedWeight, x: np.ndarray) -> float:
    """Relative error of the layer's results on inputs (rows, K)."""
    exact, near = layers(weight, quantized, x)
    return relative_error(exact(), near())


def milliseconds(
    weight: np.ndarray, quantized: QuantizedWeight, x: np.ndarray
) -> tuple[float, float]:
    """Median times of the float and the quantized layer on inputs (rows, K), measured in turns."""
    pair = layers(weight, quantized, x)
    for call in pair:
        call()
    times: tuple[list[float], list[float]] = ([], [])
    start = time.perf_counter()
    while len(times[0]) < _LEAST or (
        time.perf_counter() - start < _BUDGET and len(times[0]) < _MOST
    ):
        for call, seen in zip(pair, times, strict=True):
            before = time.perf_counter()
            call()
            seen.append(time.perf_counter() - before)
    return statistics.median(times[0]) * 1e3, statistics.median(times[1]) * 1e3
