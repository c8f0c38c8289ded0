"""Functions and ops on a GPU for lengths that vary: what they give on the host, also by a plan for
all lengths."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
import cubepy.kernels as K
from cubepy.kernels.primitives import functions as f
from cubepy.lang.dtypes import as_dtype
from cubepy.nn import functional as F
from cubepy.runtime.stats import counters

N = "n"
"""A length that varies."""
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "gelu": (K.gelu, ((N, 37),), "f32"),
    "softmax": (K.softmax, ((N, 200),), "f32"),
    "softmax_of_n": (K.softmax, ((9, N),), "f16"),
    "layer_norm": (lambda x, w: K.layer_norm(x, 96, w, w), ((3, N, 96), (96,)), "f32"),
    "rms_norm": (lambda x, w: K.rms_norm(x, 96, w), ((N, 96), (96,)), "bf16"),
    "sum": (lambda x: K.sum(x, axis=0), ((N, 70),), "f32"),
    "sum_of_n": (lambda x: K.sum(x, axis=-1), ((5, N),), "f32"),
    "max": (K.max, ((N, 3),), "f32"),
    "cumsum": (lambda x: K.cumsum(x, axis=-1), ((3, N),), "f32"),
    "sort": (K.sort, ((3, N),), "f32"),
    "across": (lambda x: K.copy(x.T), ((N, 45),), "f32"),
    "matmul": (K.matmul, ((N, 64), (64, 48)), "f32"),
    "matmul_f16": (K.matmul, ((N, 64), (64, 96)), "f16"),
    "matmul_bias": (
        lambda a, b, c: K.matmul(a, b.T, bias=c),
        ((N, 128), (256, 128), (256,)),
        "bf16",
    ),
    "matmul_of_n": (K.matmul, ((32, N), (N, 40)), "f16"),
    "matmul_batched": (
        lambda a, b: K.matmul(a, b.transpose(0, 2, 1)),
        ((4, N, 32), (4, N, 32)),
        "f16",
    ),
    "attention": (K.attention, ((1, 4, N, 64), (1, 4, N, 64), (1, 4, N, 64)), "f16"),
    "attention_of_keys": (K.attention, ((2, 4, 1, 64), (2, 2, N, 64), (2, 2, N, 64)), "bf16"),
    "columns": (lambda x: K.softmax(x[:, :48]), ((N, 64),), "f32"),
}
WINDOWS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "conv2d": (K.conv2d, ((N, 8, 6, 6), (16, 8, 3, 3)), "f32"),
    "conv2d_last": (
        lambda x, w: K.conv2d(x, w, padding=1, layout="NHWC"),
        ((N, 7, 7, 64), (64, 64, 3, 3)),
        "f16",
    ),
    "conv1d": (K.conv1d, ((1, 16, N), (24, 16, 3)), "f16"),
    "conv2d_1x1": (K.conv2d, ((1, 64, N, 20), (64, 64, 1, 1)), "f16"),
    "depthwise": (
        lambda x, w: K.conv2d(x, w, padding=1, groups=64),
        ((N, 64, 8, 8), (64, 1, 3, 3)),
        "f16",
    ),
    "transposed": (
        lambda x, w: K.conv_transpose2d(x, w, stride=2),
        ((1, 64, N, 12), (64, 32, 2, 2)),
        "f16",
    ),
    "max_pool": (lambda x: K.max_pool2d(x, 3, 2, 1), ((2, 8, N, 30),), "f16"),
    "batch_norm": (
        lambda x, w: K.batch_norm(x, w, K.map(f.mul, w, w), w, w),
        ((2, 64, N), (64,)),
        "f32",
    ),
}
"""Code of their own for a box of pixels: fewer lengths."""
TENSORS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "layer": (
        lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2.0 + b,
        ((N, 64), (32, 64), (32,)),
        "f32",
    ),
    "heads": (lambda x: x.reshape(-1, 4, 16).permute(1, 0, 2)[:, 1:] + 1.0, ((N, 64),), "f32"),
    "norm": (lambda x, w: F.layer_norm(x, (64,), w, w).mean(0), ((N, 64), (64,)), "f32"),
    "mask": (lambda x: x.masked_fill(x > 0.5, 0.0).sum(), ((N, 21),), "f32"),
}


def drawn(shapes: tuple[Any, ...], n: int, dtype: str) -> list[np.ndarray]:
    random = np.random.default_rng(n)
    return [
        random.standard_normal([n if v == N else v for v in shape]).astype(as_dtype(dtype).numpy)
        for shape in shapes
    ]


@pytest.mark.parametrize("name", [*CASES, *WINDOWS, *TENSORS])
def test_lengths_that_vary_give_what_the_host_gives(name: str) -> None:
    function, shapes, dtype = (CASES | WINDOWS | TENSORS)[name]
    draw = np.random.default_rng(int(time.time() // 86400))
    lengths = draw.integers(16, 40, 14) if name in WINDOWS else draw.integers(2, 500, 30)
    used = counters.lengths
    for n in (20, 21, *map(int, lengths)):
        given = drawn(shapes, n, dtype)
        if name not in TENSORS:
            found = function(*[cb.tensor(x, device="cuda").storage.array for x in given]).numpy()
            with cb.use("cpu"):
                expected = function(*given)
        else:
            found = function(*[cb.tensor(x, device="cuda") for x in given]).numpy()
            with cb.use("cpu"):
                expected = function(*[cb.tensor(x, device="cpu") for x in given]).numpy()
        error = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}[dtype]
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        assert found.shape == expected.shape
        np.testing.assert_allclose(
            found, expected, rtol=error, atol=error * max(1.0, np.abs(expected).max())
        )
    assert counters.lengths > used, "some of them by a plan for all lengths"
