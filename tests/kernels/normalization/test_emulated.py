"""Normalisations of rows by the emulator: every way of sharing a row, and whole functions of random
shapes.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.kernels.normalization import moments_gpu as nm
from cubepy.kernels.normalization import softmax_gpu as nc
from cubepy.kernels.reduce.held_rows_gpu import HeldPlan, _row_plan
from cubepy.runtime.memory.device_array import upload

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated
from tests.backends.cuda.emulator.launch import emulate

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng()
UNITS = {np.dtype(np.float32): 2e-6, np.dtype(np.float16): 2e-3, BF16: 1e-2, np.dtype(float): 1e-14}
EPS = 1e-5

# elements of a row, and the plan
PLANS = [
    (100, HeldPlan(1, 32, 2, 4, False, False, 1)), (128, HeldPlan(4, 32, 2, 1, True, True)),
    (380, HeldPlan(4, 32, 2, 3, False, True)), (333, HeldPlan(1, 32, 1, 12, False, False, 2)),
    (768, HeldPlan(4, 96, 1, 2, True, True)), (515, HeldPlan(2, 32, 1, 3, False, False, 1, 4)),
    (776, HeldPlan(4, 32, 1, 4, False, True, 1, 2)), (3, HeldPlan(1, 4, 8, 1)),
]  # fmt: skip


def draw(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return (
        RNG.standard_normal(shape) * 3 + RNG.standard_normal((shape[0], *(1,) * (len(shape) - 1)))
    ).astype(dtype)


def close(got: np.ndarray, want: np.ndarray, unit: float) -> None:
    found = got.astype(np.float64)
    assert found.shape == want.shape
    assert np.abs(found - want).max() <= unit * max(1.0, np.abs(want).max())


def softmax(x: np.ndarray, log: bool = False) -> np.ndarray:
    d = x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True)
    total = np.exp(d).sum(1, keepdims=True)
    return d - np.log(total) if log else np.exp(d) / total


def normalised(x: np.ndarray, centred: bool = True, eps: float = EPS) -> np.ndarray:
    x = x.astype(np.float64)
    d = x - x.mean(-1, keepdims=True) if centred else x
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + eps)


@pytest.mark.parametrize(("n", "plan"), PLANS, ids=str)
def test_every_way_of_sharing_a_row(n: int, plan: HeldPlan) -> None:
    """Lines that are whole, end in the row or lie behind it; some units, a cube, a cluster; rows
    that do not exist.
    """
    m = plan.rows + 1
    cubes, units = -(-m // plan.rows) * plan.parts, plan.units * plan.rows
    for dtype, acc in ((np.dtype(np.float32), cb.f32), (np.dtype(np.float64), cb.f64)):
        x, w, b = draw(m, n, dtype=dtype), draw(n, dtype=dtype), draw(n, dtype=dtype)
        for log in (False, True):
            out = np.full((m, n), np.nan, dtype)
            emulate(nc.softmax_held, units, cubes, x, out, acc, plan, log)
            close(out, softmax(x, log), UNITS[dtype])
        for centred in (True, False):
            out = np.full((m, n), np.nan, dtype)
            emulate(nm.layer_norm_held, units, cubes, x, w, b, out, EPS, acc, plan, centred)
            close(out, normalised(x, centred) * w.astype(np.float64) + b, 2 * UNITS[dtype])


@pytest.mark.parametrize(
    ("channels", "length", "plan"),
    [(3, 40, HeldPlan(4, 32, 2, 1, False, True)), (5, 17, HeldPlan(1, 32, 2, 3)), (6, 22, HeldPlan(4, 32, 1, 2, False, True)),
     (4, 50, HeldPlan(2, 32, 1, 2, False, True, 1, 2))], ids=str,
)  # fmt: skip
def test_groups_whose_channels_end_inside_lines(channels: int, length: int, plan: HeldPlan) -> None:
    images, groups = 2, 2
    x = draw(images * groups, channels * length)
    w, b = draw(groups * channels), draw(groups * channels)
    out = np.full(x.shape, np.nan, np.float32)
    runs = length % plan.lanes == 0
    cubes = -(-len(x) // plan.rows) * plan.parts
    emulate(
        nm.group_norm_held, plan.units * plan.rows, cubes, x, w, b, out, EPS, groups, length, runs, cb.f32, plan
    )  # fmt: skip
    each = (np.tile(v.reshape(groups, channels), (images, 1)).repeat(length, 1) for v in (w, b))
    close(out, normalised(x) * next(each) + next(each), 4e-6)


def test_functions_of_random_shapes() -> None:
    """What the host chooses, whatever the dtype, the length of rows and where they begin."""
    with emulated() as gpu:
        for dtype in UNITS:
            n, m, start = (
                int(RNG.integers(1, 700)),
                int(RNG.integers(1, 5)),
                int(RNG.integers(0, 3)),
            )
            whole, w = draw(m * n + start, dtype=dtype), draw(n, dtype=dtype)
            x, far = whole[start:].reshape(m, n), upload(whole, gpu)[start:].reshape(m, n)
            scale, unit = w.astype(np.float64), UNITS[dtype]
            close(K.softmax(far, 1).numpy(), softmax(x), unit)
            close(K.log_softmax(far, 1).numpy(), softmax(x, True), unit)
            close(K.layer_norm(far, n, upload(w, gpu)).numpy(), normalised(x) * scale, 2 * unit)
            close(
                K.rms_norm(far, n, upload(w, gpu), EPS).numpy(),
                normalised(x, False) * scale,
                2 * unit,
            )
            groups, per, side = (int(RNG.integers(1, k)) for k in (4, 4, 9))
            image, c = (
                draw(2, groups * per, side, side, dtype=dtype),
                draw(groups * per, dtype=dtype),
            )
            got = K.group_norm(upload(image, gpu), groups, upload(c, gpu), upload(c, gpu)).numpy()
            scale = c.astype(np.float64)[:, None, None]
            right = normalised(image.reshape(2, groups, -1)).reshape(image.shape) * scale + scale
            close(got, right, 4 * unit)


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64)], ids=str)
def test_rows_that_a_cube_cannot_hold_are_shared_by_a_cluster(dtype: Any) -> None:
    x = draw(1, 8240 * 8 // dtype.itemsize, dtype=dtype)
    with emulated() as gpu:
        close(K.log_softmax(upload(x, gpu), 1).numpy(), softmax(x, True), 2 * UNITS[dtype])


@pytest.mark.parametrize("room", [80, 128])
@pytest.mark.parametrize("clusters", [False, True])
def test_plans_cover_every_row_and_little_more(clusters: bool, room: int) -> None:
    for lanes, size in ((1, 4), (4, 4), (8, 4), (2, 8), (1, 8)):
        for n in (*range(1, 600, 7), *RNG.integers(600, 100_000, 200).tolist()):
            n -= n % lanes if n % 3 and n > lanes else 0
            plan = _row_plan(n, lanes, size, clusters, room)
            if not plan.held:
                assert n * size > 512 * 0.8 * (8 * room if clusters else 128)
                continue
            covered = plan.hop * plan.held
            assert covered >= n and plan.units * plan.rows <= 512
            assert plan.held * lanes * size <= 128
            assert plan.whole == (covered == n)
            assert plan.hop * (plan.held - plan.ragged) <= n, "the other lines are in the row"
            if n > 1024:
                assert covered <= 1.5 * n
