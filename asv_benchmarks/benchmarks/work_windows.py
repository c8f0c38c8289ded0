"""Windows over images: convolutions of ResNet-50 and of Burn's suite, pooling; NCHW unless the name says otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.work import Run, Work, draw, node, torch_module
from cubepy import kernels as K

CONVOLUTIONS = (  # window, stride, channels, filters, batch, side
    "3x1x64x64x1x56", "3x1x64x64x8x56", "1x1x64x256x1x56", "1x1x256x64x1x56", "1x1x64x256x8x56", "7x2x3x64x1x224",
    "7x2x3x64x8x224", "3x1x128x128x1x28", "3x1x256x256x1x14", "3x1x512x512x1x7", "3x2x128x128x1x56",
    "3x1x256x512x16x12", "5x1x96x256x16x24",
)  # fmt: skip
POOLS = ("5x2x2x2x2x128x512", "5x1x2x1x2x32x512", "3x2x1x1x2x128x512", "3x1x1x1x2x32x512", "3x2x1x1x8x64x112")
# window, stride, padding, dilation, batch, channels, side


def _data(k: int, s: int, c: int, filters: int, n: int, side: int) -> tuple[np.ndarray, ...]:
    return draw(n, c, side, side), draw(filters, c, k, k, scale=(c * k * k) ** -0.5, seed=1), np.array([s, k // 2])


def _flops(k: int, s: int, c: int, filters: int, n: int, side: int) -> float:
    out = (side + 2 * (k // 2) - k) // s + 1
    return 2.0 * n * out * out * filters * c * k * k


def _ours(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> Run:
    filters, (s, p) = K.prepack_filter(w), how.tolist()
    return lambda: K.conv2d(x, filters, stride=s, padding=p)


def _ours_last(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> Run:
    filters, (s, p) = K.prepack_filter(w), how.tolist()
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    return lambda: K.conv2d(last, filters, stride=s, padding=p, layout="NHWC").transpose(0, 3, 1, 2)


def _torch(x: Any, w: Any, how: Any) -> Run:
    conv2d, (s, p) = torch_module().nn.functional.conv2d, how.tolist()
    return lambda: conv2d(x, w, stride=s, padding=p)


def _torch_last(x: Any, w: Any, how: Any) -> Run:
    last = torch_module().channels_last
    return _torch(x.to(memory_format=last), w.to(memory_format=last), how)


def _onnx(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> Run:
    (s, p), k = how.tolist(), w.shape[-1]
    return node("Conv", kernel_shape=[k, k], strides=[s, s], pads=[p] * 4)(x, w)


def _exact(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> np.ndarray:
    (s, p), k = how.tolist(), w.shape[-1]
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))[:, :, ::s, ::s]
    return np.einsum("nchwij,fcij->nfhw", windows, w, optimize=True)


def _pool_data(k: int, s: int, p: int, d: int, n: int, c: int, side: int) -> tuple[np.ndarray, ...]:
    return draw(n, c, side, side), np.array([k, s, p, d])


def _pool_bytes(k: int, s: int, p: int, d: int, n: int, c: int, side: int) -> float:
    out = (side + 2 * p - d * (k - 1) - 1) // s + 1
    return 4.0 * n * c * (side * side + out * out)


def _pool(x: np.ndarray, how: np.ndarray) -> Run:
    k, s, p, d = how.tolist()
    return lambda: K.max_pool2d(x, k, s, p, d)


def _pool_last(x: np.ndarray, how: np.ndarray) -> Run:
    last, (k, s, p, d) = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), how.tolist()
    return lambda: K.max_pool2d(last, k, s, p, d, layout="NHWC").transpose(0, 3, 1, 2)


def _torch_pool(x: Any, how: Any) -> Run:
    pool, (k, s, p, d) = torch_module().nn.functional.max_pool2d, how.tolist()
    return lambda: pool(x, k, s, p, d)


def _torch_pool_last(x: Any, how: Any) -> Run:
    return _torch_pool(x.to(memory_format=torch_module().channels_last), how)


def _onnx_pool(x: np.ndarray, how: np.ndarray) -> Run:
    k, s, p, d = how.tolist()
    return node("MaxPool", kernel_shape=[k, k], strides=[s, s], pads=[p] * 4, dilations=[d, d])(x)


def _exact_pool(x: np.ndarray, how: np.ndarray) -> np.ndarray:
    k, s, p, d = how.tolist()
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=-np.inf)
    span = d * (k - 1) + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (span, span), axis=(2, 3))
    return windows[:, :, ::s, ::s, ::d, ::d].max((4, 5))


WORKS = {
    "conv2d": Work(CONVOLUTIONS, _data, _ours, None, _torch, _onnx, _exact, _flops),
    "conv2d_channels_last": Work(CONVOLUTIONS, _data, _ours_last, None, _torch_last, _onnx, _exact, _flops),
    "max_pool2d": Work(
        POOLS, _pool_data, _pool, None, _torch_pool, _onnx_pool, _exact_pool, None, _pool_bytes, "5x2x2x2x1x8x64"
    ),
    "max_pool2d_channels_last": Work(
        POOLS, _pool_data, _pool_last, None, _torch_pool_last, _onnx_pool, _exact_pool, None, _pool_bytes,
        "5x2x2x2x1x8x64",
    ),
}  # fmt: skip
