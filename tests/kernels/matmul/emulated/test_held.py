"""Products of many rows with a small matrix on an emulated GPU: a plane holds all of the matrix."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.backends.cuda.backend import offline
from cubepy.kernels.matmul.gpu import mma_held
from cubepy.kernels.matmul.gpu.mma_held import MmaHeldRoutine, plan_of
from cubepy.kernels.matmul.problem import Product
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import force

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated
from tests.kernels.matmul.emulated.test_direct import on_gpu

RNG = np.random.default_rng()
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = (np.dtype(np.float16), BF16, np.dtype(np.float32))


def draw(*shape: int, dtype: Any) -> np.ndarray:
    """Small integers, whose products and sums matrix units hold."""
    return RNG.integers(-3, 4, shape).astype(dtype)


@pytest.fixture(autouse=True)
def rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mma_held, "FEWEST", 1)


@pytest.mark.parametrize("high", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_sizes_and_layouts(dtype: Any, high: int) -> None:
    for _ in range(3):
        m, n, k = int(RNG.integers(2, 400)), int(RNG.integers(1, 65)), int(RNG.integers(1, 129))
        n = -(-n // 8) * 8 if RNG.random() < 0.5 else n
        k = -(-k // 8) * 8 if RNG.random() < 0.5 else k
        k = min(k, (64 if n > 48 else 256) // dtype.itemsize)
        a, b = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype)
        want = a.astype(np.float64) @ b.astype(np.float64)
        with emulated() as gpu, force("matmul", "mma_held", high=high):
            x, y = on_gpu(a[None], gpu)[0], on_gpu(b[None], gpu)[0]
            got = K.matmul(x, y, precision="tf32", dtype="f32").numpy()
        np.testing.assert_array_equal(got, want)


def test_values_beyond_the_depth_are_not_multiplied() -> None:
    a, b = np.ones((40, 13), np.float16), np.ones((13, 7), np.float16)
    a[:, 12], b[12] = np.inf, np.inf
    with emulated() as gpu, force("matmul", "mma_held"):
        assert np.isposinf(K.matmul(upload(a, gpu), upload(b, gpu)).numpy()).all()


@pytest.mark.parametrize("n", [8, 19, 48])
def test_the_end_of_a_product(n: int) -> None:
    a, b, c, d = (draw(*s, dtype=np.float16) for s in ((70, 30), (30, n), (n,), (70, n)))
    with emulated() as gpu, force("matmul", "mma_held"):
        x, y, bias, residual = (upload(v, gpu) for v in (a, b, c, d))
        got = K.matmul(x, y, bias=bias, activation="relu", residual=residual).numpy()
    whole = np.maximum(a.astype(np.float32) @ b.astype(np.float32) + c, 0) + d
    np.testing.assert_array_equal(got, whole.astype(np.float16))


def problem(m: int, n: int, k: int, dtype: str = "f16", **more: Any) -> Any:
    return Product("cuda", m, k, n, a=dtype, b=dtype, **more)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (problem(409600, 32, 32), None),
        (problem(409600, 1, 16), None),
        (problem(409600, 64, 32), None),
        (problem(409600, 48, 128, "bf16"), None),
        (problem(409600, 64, 33), "other routines"),
        (problem(20000, 17, 27, "f32", tf32=True), None),
        (problem(20000, 17, 27, "f32"), "matrix units"),
        (problem(20000, 17, 65, "f32", tf32=True), "not small"),
        (problem(20000, 72, 16), "not small"),
        (problem(20000, 16, 129), "not small"),
        (problem(20000, 16, 16, batch=2), "several"),
    ],
)
def test_it_takes_what_registers_hold(what: Product, reason: str | None) -> None:
    found = MmaHeldRoutine().supports(what, offline("sm_80"))
    assert (found is None) if reason is None else (found is not None and reason in found)


def test_there_are_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = MmaHeldRoutine().supports(problem(1000, 8, 8), offline("sm_90a"))
    assert found is not None and "few rows" in found


def test_the_tile_has_all_columns() -> None:
    for n in range(1, 65):
        for k in range(1, 129):
            plan = plan_of(problem(10000, n, k))
            assert n <= 8 * plan.wide <= n + 15 and k <= 32 * plan.steps < k + 32
