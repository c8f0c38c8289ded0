"""Images read at positions on an emulated GPU: what the CPU gives, sums in any order and in order."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.interpolate.grid_sample import grid_sample, grid_sample_grid, grid_sample_image
from cubepy.runtime.memory.device_array import upload

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated


@pytest.mark.parametrize(
    ("axes", "dtype", "how"),
    [
        (2, np.float32, ("linear", "zeros", False)),
        (2, ml_dtypes.bfloat16, ("nearest", "reflection", False)),
        (3, np.float32, ("linear", "border", True)),
    ],
)
def test_a_gpu_reads_what_the_cpu_reads(axes: int, dtype: type, how: tuple) -> None:
    rng = np.random.default_rng(axes)
    size, out = ((5, 4, 3)[-axes:], (2, 1, 3)[-axes:])
    x = rng.standard_normal((2, 9, *size)).astype(dtype)
    grid = rng.uniform(-1.4, 1.4, (2, *out, axes)).astype(np.float32)
    grid[0, 0] = np.nan
    grad = rng.standard_normal((2, 9, *out)).astype(dtype)
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype is np.float32 else {"rtol": 2e-2, "atol": 2e-2}

    def same(one: np.ndarray, other: np.ndarray) -> None:
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), **close)

    expected = [
        grid_sample(x, grid, *how),
        grid_sample_grid(x, grid, grad, *how),
        grid_sample_image(grad, grid, size, *how),
    ]
    with emulated() as gpu:
        far = [upload(a, gpu) for a in (x, grid, grad)]
        same(grid_sample(*far[:2], *how).numpy(), expected[0])
        same(grid_sample_grid(*far, *how).numpy(), expected[1])
        for ordered in (False, True):
            with cb.config.override(deterministic=ordered):
                same(grid_sample_image(far[2], far[1], size, *how).numpy(), expected[2])
