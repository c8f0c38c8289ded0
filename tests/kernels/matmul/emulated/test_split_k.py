"""Products with a long K and few results on an emulated GPU: planes and cubes share K."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.backends.cuda.backend import offline
from cubepy.kernels.matmul.gpu.mma_split_k import MmaSplitKRoutine, cost_of, quickest
from cubepy.kernels.matmul.problem import Product
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import force

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated
from tests.kernels.matmul.emulated.test_direct import on_gpu

RNG = np.random.default_rng()
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = (np.dtype(np.float16), BF16, np.dtype(np.float32))
NAMES = {DTYPES[0]: "f16", BF16: "bf16", DTYPES[2]: "f32"}
PLANS: tuple[dict[str, int], ...] = (
    {},
    {"high": 1, "wide": 1, "parts": 2},
    {"high": 2, "wide": 2, "parts": 1},
    {"high": 2, "wide": 4, "steps": 1},
)


def draw(*shape: int, dtype: Any) -> np.ndarray:
    """Small integers, whose products and sums matrix units hold."""
    return RNG.integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("changes", PLANS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_sizes_and_layouts(dtype: Any, changes: dict[str, int]) -> None:
    batch, m, n, k = (int(RNG.integers(1, most)) for most in (3, 40, 40, 400))
    n = -(-n // 8) * 8 if RNG.random() < 0.5 else n
    k = max(16, -(-k // 8) * 8 if RNG.random() < 0.5 else k)
    shared = RNG.random() < 0.5  # all batches have the same b
    a, b = draw(batch, m, k, dtype=dtype), draw(1 if shared else batch, k, n, dtype=dtype)
    want = a.astype(np.float64) @ b.astype(np.float64)
    with emulated() as gpu, force("matmul", "mma_split_k", **changes):
        got = K.matmul(on_gpu(a, gpu), on_gpu(b, gpu), precision="tf32", dtype="f32").numpy()
    np.testing.assert_array_equal(got, want)


def test_values_beyond_the_depth_are_not_multiplied() -> None:
    a, b = np.ones((3, 77), np.float16), np.ones((77, 7), np.float16)
    a[:, 76], b[76] = np.inf, np.inf
    with emulated() as gpu, force("matmul", "mma_split_k"):
        assert np.isposinf(K.matmul(upload(a, gpu), upload(b, gpu)).numpy()).all()


def test_the_end_of_a_product() -> None:
    a, b, c, d = (draw(*s, dtype=np.float16) for s in ((20, 300), (300, 19), (19,), (20, 19)))
    with emulated() as gpu, force("matmul", "mma_split_k", parts=2):
        x, y, bias, residual = (upload(v, gpu) for v in (a, b, c, d))
        got = K.matmul(x, y, bias=bias, activation="relu", residual=residual).numpy()
    whole = np.maximum(a.astype(np.float32) @ b.astype(np.float32) + c, 0) + d
    np.testing.assert_array_equal(got, whole.astype(np.float16))


def problem(m: int, n: int, k: int, dtype: str = "bf16", layout: Any = "rows", **more: Any) -> Any:
    return Product("cuda", m, k, n, 1, dtype, dtype, layout, **more)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (problem(27, 80, 1738), None),
        (problem(40, 42, 5688, "f16"), None),
        (problem(16, 3, 1678, "f32", tf32=True), None),
        (problem(416, 16, 2272, aligned=True), None),
        (problem(16, 3, 1678, "f32"), "matrix units"),
        (problem(27, 80, 1738, "f64"), "matrix units"),
        (problem(1, 80, 1738, layout="columns"), "one row"),
        (problem(2048, 2048, 2047), "too many tiles"),
        (problem(40, 4493, 200), "too many tiles"),
        (problem(24, 2192, 448, layout="columns", aligned=True), "too many tiles"),
        (problem(200, 250, 8001), "too much work"),
        (problem(64, 64, 8000, aligned=True), "too much work"),
    ],
)
def test_it_takes_what_tiles_of_all_of_k_are_slower_for(what: Product, reason: str | None) -> None:
    found = MmaSplitKRoutine().supports(what, offline("sm_90a"))
    assert (found is None) if reason is None else (found is not None and reason in found)


def test_there_are_no_more_cubes_in_a_cluster_than_have_work() -> None:
    here = offline("sm_90a")
    for m, n, k in itertools.product((1, 16, 100), (1, 40, 300), (16, 300, 3000, 20000)):
        plan = quickest(problem(m, n, k), here)
        assert plan.parts == 1 or k > (plan.parts // 2) * 256
        assert cost_of(plan, problem(m, n, k), here) > 2
    assert quickest(problem(16, 16, 20000), offline("sm_80")).parts == 1
