"""Products of few rows with matrices along their columns, and of few columns, on an emulated Hopper
GPU.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.kernels.matmul.gpu import gemv_rows
from cubepy.kernels.matmul.gpu.gemv_rows import UNITS, Across, few_across
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import force

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated
from tests.backends.cuda.emulator.launch import emulate

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng()


def draw(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def near(got: np.ndarray, want: np.ndarray, unit: float) -> None:
    assert got.shape == want.shape
    assert np.linalg.norm(got.astype(np.float64) - want) <= unit * np.linalg.norm(want)


@pytest.mark.parametrize(
    "plan", [Across(rows=1), Across(rows=2, parts=2), Across(rows=4, lanes=4, groups=1), Across(rows=8, lanes=2, parts=4)],
    ids=str,
)  # fmt: skip
def test_every_way_of_sharing_the_depth(plan: Across) -> None:
    m, n, k = plan.rows - plan.rows // 4, int(RNG.integers(1, 150)), int(RNG.integers(1, 900))
    n = -(-n // plan.lanes) * plan.lanes
    x, y, out = draw(m, k), draw(k, n), np.full((1, m, n), np.nan, np.float32)
    emulate(few_across, UNITS, -(-n // plan.columns) * plan.parts, x, y, out, None, None, 1.0, plan)
    near(out[0], x.astype(np.float64) @ y, 1e-6)


def test_what_lies_behind_the_depth_counts_for_nothing() -> None:
    y = draw(33, 5)
    y[32] = np.inf
    with emulated() as gpu, force("matmul", "across"):
        got = K.matmul(upload(np.ones((2, 33), np.float32), gpu), upload(y, gpu)).numpy()
    assert np.isposinf(got).all()


@pytest.mark.parametrize("dtype", [BF16, np.dtype(np.float32)], ids=str)
def test_functions_of_few_rows_and_few_columns(dtype: Any) -> None:
    unit = 6e-3 if dtype == BF16 else 2e-6
    m, n, k = (
        int(RNG.integers(low, high)) for low, high in ((1, 9), (2, 120), (2, 400))
    )  # one column lies along K
    n += dtype == BF16 and n % 8 == 0  # matrix units take those
    x, y, bias, residual = (draw(*s, dtype=dtype) for s in ((m, k), (k, n), (n,), (m, n)))
    wide = x.astype(np.float64) @ y.astype(np.float64)
    with emulated() as gpu:
        with force("matmul", "across"):
            near(K.matmul(upload(x, gpu), upload(y, gpu)).numpy(), wide, unit)
            ends = {
                "bias": upload(bias, gpu),
                "residual": upload(residual, gpu),
                "activation": "relu",
            }
            got = K.matmul(upload(x, gpu), upload(y, gpu), **ends).numpy()
            near(got, np.maximum(wide + bias, 0) + residual, 2 * unit)
            other = ends.pop("residual")
            got = K.matmul(upload(x, gpu), upload(y, gpu), add=other, **ends).numpy()
            near(got, np.maximum(wide + bias + residual, 0), 2 * unit)
            got = K.matmul(upload(x, gpu), upload(y, gpu), gate=other, **ends).numpy()
            near(got, np.maximum(wide + bias, 0) * residual, 2 * unit)


@pytest.mark.parametrize(
    ("dtype", "most", "k"), [(BF16, 4, 37), (BF16, 16, 72), (np.dtype(np.float32), 4, 44)], ids=str
)
def test_few_columns_are_rows_of_the_transposed_product(
    dtype: Any, most: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By dot products; by matrix units where rows can be read 16 bytes at a time, wherever they
    begin.
    """
    monkeypatch.setattr(gemv_rows, "LEAST_TURNED", 1)
    start = int(RNG.integers(0, 2))
    whole = draw(41 * k + start, dtype=dtype)
    x = whole[start:].reshape(41, k)
    for n in (1, int(RNG.integers(2, most + 1))):
        y = draw(k, n, dtype=dtype)
        with emulated() as gpu, force("matmul", "turned"):
            got = K.matmul(upload(whole, gpu)[start:].reshape(41, k), upload(y, gpu)).numpy()
        near(got, x.astype(np.float64) @ y.astype(np.float64), 6e-3 if dtype == BF16 else 2e-6)


@pytest.mark.parametrize(
    ("dtype", "k"), [(np.dtype(np.float32), 2052), (np.dtype(np.float32), 3100)], ids=str
)
def test_few_tiles_whose_depth_a_cluster_shares(dtype: Any, k: int) -> None:
    """Of four and eight cubes."""
    x, y = draw(20, k, dtype=dtype), draw(40, k, dtype=dtype)
    with emulated() as gpu:
        got = K.matmul(
            upload(x, gpu), upload(y, gpu).T, precision="tf32" if dtype == np.float32 else None
        ).numpy()
    near(got, x.astype(np.float64) @ y.T.astype(np.float64), 6e-3 if dtype == BF16 else 6e-4)
