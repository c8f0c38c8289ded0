"""Products of any alignment on an emulated Hopper GPU: operands that are copied into aligned rows,
results that are not.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.kernels.matmul.gpu.mma_multistage import Mma
from cubepy.kernels.matmul.gpu.padded_operands import padded
from cubepy.kernels.matmul.sm90.persistent import Hopper
from cubepy.kernels.matmul.sm90.tma_simt_split_k import FmaPlanes
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import force

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng()
UNITS = {BF16: 6e-3, np.dtype(np.float16): 1e-3, np.dtype(np.float32): 6e-4}


def draw(*shape: int, dtype: Any) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2))


def near(got: Any, want: np.ndarray, unit: float) -> None:
    found = got.numpy().astype(np.float64)
    assert found.shape == want.shape
    assert np.linalg.norm(found - want) <= unit * np.linalg.norm(want)


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_random_sizes_and_layouts(dtype: Any, weight: bool) -> None:
    m, n, k = (int(RNG.integers(*bounds)) for bounds in ((5, 90), (5, 90), (136, 160)))
    start = int(RNG.integers(0, 4))
    whole, y = draw(m * k + start, dtype=dtype), draw(n, k, dtype=dtype)
    bias, residual = draw(n, dtype=dtype), draw(m, n, dtype=dtype)
    with emulated() as gpu, force("matmul", "padded"):
        x = upload(whole, gpu)[start:].reshape(m, k)
        w = upload(y, gpu).T if weight else upload(np.ascontiguousarray(y.T), gpu)
        precision = "tf32" if dtype == np.float32 else None
        wide = whole[start:].reshape(m, k).astype(np.float64) @ y.astype(np.float64).T
        near(K.matmul(x, w, precision=precision), wide, UNITS[dtype])
        ends = {"bias": upload(bias, gpu), "residual": upload(residual, gpu), "activation": "gelu"}
        near(
            K.matmul(x, w, precision=precision, **ends),
            gelu(wide + bias) + residual,
            2 * UNITS[dtype],
        )


@pytest.mark.parametrize("tile", [(64, 64, 4), (128, 128, 3)], ids=str)
def test_rows_that_are_not_aligned_meet_in_shared_memory(tile: tuple[int, int, int]) -> None:
    """Of matrix units that planes drive; also where stages behind a short K are still filled."""
    for k in (int(RNG.integers(1, 30)), int(RNG.integers(100, 160))):
        m, n = (int(RNG.integers(60, 140)) for _ in range(2))
        n += n % 8 == 0
        a, b, c, d = (draw(*s, dtype=BF16) for s in ((m, k), (k, n), (n,), (m, n)))
        with emulated() as gpu, force("matmul", "mma", Mma(*tile)):
            x = upload(np.ascontiguousarray(a.T), gpu).T if RNG.random() < 0.5 else upload(a, gpu)
            y = upload(np.ascontiguousarray(b.T), gpu).T if RNG.random() < 0.5 else upload(b, gpu)
            out = upload(np.full((m + 2, n), 7, BF16), gpu)
            got = K.matmul(x, y, out=out[1:-1])
            wide = a.astype(np.float64) @ b.astype(np.float64)
            near(got, wide, 6e-3)
            assert (out.numpy()[[0, -1]] == 7).all()
            ends = {"bias": upload(c, gpu), "residual": upload(d, gpu), "activation": "gelu"}
            near(K.matmul(x, y, **ends), gelu(wide + c) + d, 1.2e-2)


@pytest.mark.parametrize("flips", [(True, False), (False, True), (True, True)], ids=str)
def test_operands_across_the_depth_in_several_tiles(flips: tuple[bool, bool]) -> None:
    """The last tiles begin at any row and column, boxes of operands at multiples of 16 bytes."""
    m, n = (low + 8 * int(RNG.integers(2)) + int(RNG.integers(1, 8)) for low in (64, 128))
    a, b = draw(m, 136, dtype=BF16), draw(136, n, dtype=BF16)
    with emulated() as gpu, force("matmul", "padded", Hopper(64, 64, 4)):
        x, y = (
            upload(np.ascontiguousarray(v.T), gpu).T if flip else upload(v, gpu)
            for v, flip in zip((a, b), flips, strict=True)
        )
        near(K.matmul(x, y), a.astype(np.float64) @ b.astype(np.float64), 6e-3)


def test_batches_and_parts_of_arrays() -> None:
    a, b = draw(3, 40, 150, dtype=BF16), draw(3, 150, 70, dtype=BF16)
    with emulated() as gpu, force("matmul", "padded"):
        far, other, out = upload(a, gpu), upload(b, gpu), upload(np.zeros((3, 33, 80), BF16), gpu)
        got = K.matmul(far[:, 3:36, 1:146], other[:, 2:147, :67], out=out[:, :, 5:72])
        near(got, a[:, 3:36, 1:146].astype(np.float64) @ b[:, 2:147, :67].astype(np.float64), 6e-3)
        rest = out.numpy()
        assert not rest[:, :, :5].any() and not rest[:, :, 72:].any()


@pytest.mark.parametrize("dtype", [np.uint16, np.float32], ids=str)
def test_rows_are_copied_with_zeros_behind_their_ends(dtype: Any) -> None:
    for _ in range(4):
        rows, n, start = (int(RNG.integers(low, high)) for low, high in ((1, 9), (1, 700), (0, 3)))
        x = RNG.integers(1, 60000, (2, rows, n + start)).astype(dtype)
        with emulated() as gpu:
            given = upload(x, gpu)[:, :, start:]
            got = padded(given, cb.device_properties_of()).numpy()
        np.testing.assert_array_equal(got[:, :, :n], x[:, :, start:])
        assert got.shape[2] * got.itemsize % 16 == 0 and not got[:, :, n:].any()


@pytest.mark.parametrize("flips", [(0, 0), (1, 0), (1, 1)], ids=str)
def test_exact_f32_of_any_order(flips: tuple[int, int]) -> None:
    """Both operands are copied along K, those of rows that begin anywhere, too."""
    m, n, k = int(RNG.integers(180, 200)), int(RNG.integers(180, 200)), int(RNG.integers(9, 24))
    a, b, bias = (draw(*s, dtype=np.float32) for s in ((m, k), (k, n), (n,)))
    with emulated() as gpu, force("matmul", "fma_copied", FmaPlanes()):
        x, y = (
            upload(np.ascontiguousarray(v.T), gpu).T if flip else upload(v, gpu)
            for v, flip in zip((a, b), flips, strict=True)
        )
        wide = a.astype(np.float64) @ b.astype(np.float64)
        near(K.matmul(x, y, bias=upload(bias, gpu)), wide + bias, 2e-6)
