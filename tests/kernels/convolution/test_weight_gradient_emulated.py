"""The Hopper gradient by filters, run by the emulator: right whatever the order of units and
copies.
"""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.convolution.gpu import fold
from cubepy.kernels.convolution.gpu.fold import folded
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.sm90.operand_layout import in_boxes
from cubepy.kernels.convolution.sm90.weight_gradient import hopper_weight, prepared, tile
from cubepy.kernels.matmul.sm90.persistent import UNITS

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")

from tests.backends.cuda.emulator.launch import emulate

Three = tuple[int, int, int]


def gradient(
    chosen: Any, shape: tuple[int, ...], filters: int, window: Three, stride: Three = (1, 1, 1),
    pad: Three = (0, 0, 0), dilation: Three = (1, 1, 1), cores: int = 2, dtype: Any = np.float16, seed: int = 0,
) -> float:  # fmt: skip
    """The relative error of one emulated gradient; the input is (N, D, H, W, C), of rank 4 without
    D where that is 1.
    """
    rng = np.random.default_rng(seed)
    reach = [d * (k - 1) for d, k in zip(dilation, window)]
    out_size = tuple(
        (n + 2 * p - r - 1) // s + 1 for n, p, r, s in zip(shape[1:4], pad, reach, stride)
    )
    x = rng.standard_normal(shape).astype(dtype)
    grad = rng.standard_normal((shape[0], *out_size, filters)).astype(dtype)
    flat = shape[1] == 1 and window[0] == 1
    problem = Problem(shape[1:4], window, stride, pad, dilation, out_size)  # type: ignore[arg-type]
    seen = (x[:, 0], grad[:, 0]) if flat else (x, grad)
    cubes, arguments, sums = prepared(*map(in_boxes, seen), problem, cores, chosen)
    emulate(hopper_weight, UNITS, cubes, *arguments, late=1 - seed % 2 / 2, seed=seed)
    taps = window[0] * window[1] * window[2]
    out = np.full((filters, shape[4], taps), np.nan, np.float32)
    with cb.use("cpu"):
        folded(sums, out, len(out))
    wide = np.pad(x.astype(np.float64), [(0, 0), *((p, p) for p in pad), (0, 0)])
    right = np.zeros(out.shape)
    for k, tap in enumerate(itertools.product(*map(range, window))):
        at = [
            slice(t * d, t * d + (m - 1) * s + 1, s)
            for t, d, m, s in zip(tap, dilation, out_size, stride)
        ]
        right[:, :, k] = np.tensordot(
            grad.astype(np.float64), wide[(slice(None), *at)], ((0, 1, 2, 3),) * 2
        )
    return float(np.linalg.norm(out - right) / np.linalg.norm(right))


SAME: dict[str, Any] = {"window": (1, 3, 3), "pad": (0, 1, 1)}
CASES: dict[str, tuple[Any, tuple[int, ...], int, dict[str, Any]]] = {
    "several ranges and rounds": ((tile(64, 192, 3), 1), (1, 1, 9, 12, 64), 64, SAME),
    "filters and channels that fill no tile": ((tile(128, 128, 2), 2), (2, 1, 5, 7, 72), 136, {**SAME, "dtype": ml_dtypes.bfloat16}),
    "both consumers share a tile": ((tile(128, 256, 2, False), 2), (3, 1, 7, 7, 64), 128, {**SAME, "cores": 3}),
    "stride": ((tile(64, 64, 3), 1), (2, 1, 8, 9, 16), 40, {**SAME, "stride": (1, 2, 2), "seed": 1}),
    "volumes": ((tile(64, 128, 2), 4), (1, 4, 5, 6, 8), 72, {"window": (3, 2, 1), "pad": (2, 0, 1), "dilation": (1, 2, 1)}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_results(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if case in ("stride", "volumes"):
        monkeypatch.setattr(fold, "MANY", 1)  # so that a unit adds all taps
    chosen, shape, filters, options = CASES[case]
    assert gradient(chosen, shape, filters, **options) < 2e-6
