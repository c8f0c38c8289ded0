"""Small products on an emulated GPU: units read both operands straight from memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.backends.cuda.backend import offline
from cubepy.kernels.matmul.gpu.direct import DirectRoutine
from cubepy.kernels.matmul.problem import Product
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import force

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated

RNG = np.random.default_rng()
DTYPES = (np.float32, np.dtype(ml_dtypes.bfloat16), np.int32, np.float64)
PLANS = ({}, {"across": 8, "high": 2}, {"high": 2, "wide": 2}, {"high": 4, "lanes": 4, "depth": 4})


def draw(*shape: int, dtype: Any) -> np.ndarray:
    """Small integers, whose sums every dtype holds but for the last rounding."""
    return RNG.integers(-9, 9, shape).astype(dtype)


def on_gpu(x: np.ndarray, gpu: Any) -> Any:
    """In one of the orders and places of its axes."""
    if RNG.random() < 0.3:
        whole = upload(np.pad(x, ((0, 0), (0, 1), (1, 2))), gpu)
        return whole[:, : x.shape[1], 1 : 1 + x.shape[2]]
    if RNG.random() < 0.5:
        return upload(np.ascontiguousarray(x.swapaxes(1, 2)), gpu).transpose(0, 2, 1)
    return upload(x, gpu)


@pytest.mark.parametrize("changes", PLANS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_sizes_and_layouts(dtype: Any, changes: dict[str, int]) -> None:
    batch, m, n, k = (int(RNG.integers(1, most)) for most in (4, 40, 90, 25))
    n = -(-n // 8) * 8 if RNG.random() < 0.5 else n
    shared = RNG.random() < 0.5  # all batches have the same b
    a, b = draw(batch, m, k, dtype=dtype), draw(1 if shared else batch, k, n, dtype=dtype)
    want = a.astype(np.float64) @ b.astype(np.float64)
    with emulated() as gpu, force("matmul", "direct", **changes):
        got = K.matmul(on_gpu(a, gpu), on_gpu(b, gpu)).numpy()
    np.testing.assert_array_equal(got, want.astype(dtype))


def test_values_beyond_the_depth_are_not_multiplied() -> None:
    """The last of K is read again for what lies behind it: infinities must not become NaN."""
    a, b = np.ones((3, 5), np.float32), np.ones((5, 7), np.float32)
    a[:, 4], b[4] = np.inf, np.inf
    with emulated() as gpu, force("matmul", "direct"):
        assert np.isposinf(K.matmul(upload(a, gpu), upload(b, gpu)).numpy()).all()


def test_the_end_of_a_product() -> None:
    a, b, c, d = (draw(*s, dtype=np.float32) for s in ((20, 6), (6, 37), (37,), (20, 37)))
    with emulated() as gpu, force("matmul", "direct", high=2, wide=2):
        x, y, bias, residual = (upload(v, gpu) for v in (a, b, c, d))
        got = K.matmul(x, y, bias=bias, activation="relu", residual=residual).numpy()
    np.testing.assert_array_equal(got, np.maximum(a @ b + c, 0) + d)


@pytest.mark.parametrize(
    ("m", "n", "k", "fits"),
    [(382, 2551, 1, True), (1, 27, 1, True), (2048, 1024, 2, True), (16, 513, 12, True),
     (1, 7331, 16, False), (1024, 1024, 16, False), (4, 884, 43, False)],
)  # fmt: skip
def test_it_takes_what_tiles_would_not_pay_for(m: int, n: int, k: int, fits: bool) -> None:
    problem, here = Product("cuda", m, k, n, 1, "bf16", "bf16"), offline("sm_90a")
    assert (DirectRoutine().supports(problem, here) is None) == fits
    if fits:
        plan = next(DirectRoutine().blueprints(problem, here))
        cubes = -(-m // plan.rows) * -(-n // plan.columns)
        assert cubes <= 16 * here.cores and plan.dtype is cb.f32
