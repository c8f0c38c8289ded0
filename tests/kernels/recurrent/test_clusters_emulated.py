"""Recurrences by clusters of cubes, or a product for each step, ahead and back, run by the emulator,
against a loop in NumPy and the gradients of a CPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.recurrent import clusters_back_gpu, clusters_gpu
from cubepy.kernels.recurrent.problem import GATES
from cubepy.kernels.recurrent.recurrence import packed, recurrence, recurrence_back
from cubepy.runtime.device import use
from cubepy.runtime.memory.device_array import upload
from tests.kernels.recurrent.test_recurrence import drawn, expected

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated

BF16 = np.dtype(ml_dtypes.bfloat16)


def small_plans(way: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cubes of few units and states, some of which read the matrix from memory; or none."""
    no = None if way == "clusters" else "for a test"
    monkeypatch.setattr(clusters_gpu, "unfit", lambda *_: no)
    monkeypatch.setattr(clusters_back_gpu, "unfit", lambda *_: no)
    monkeypatch.setattr(clusters_gpu, "UNITS", 64)
    monkeypatch.setattr(clusters_gpu, "SHARE", int(rng.choice([3, 5, 8])))
    monkeypatch.setattr(clusters_gpu, "CUBES", int(rng.choice([1, 2, 4])))
    held, rows, made = bool(rng.integers(2)), int(rng.choice([1, 2, 4])), clusters_gpu.cluster_plan

    def plan(*how: Any) -> Any:
        found = made(*how)
        return found and replace(found, held=held, rows=min(rows, 64 // found.share))

    monkeypatch.setattr(clusters_gpu, "cluster_plan", plan)
    monkeypatch.setattr(clusters_back_gpu, "cluster_plan", plan)


@pytest.mark.turns(8)
@pytest.mark.parametrize("way", ["clusters", "products"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BF16])
@pytest.mark.parametrize("cell", GATES)
def test_steps_of_clusters(
    cell: str, dtype: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng()
    small_plans(way, rng, monkeypatch)
    steps, batch, directions, width = (int(rng.integers(1, n)) for n in (4, 6, 3, 14))
    options = {name: bool(rng.integers(2)) for name in ("bias", "lengths")}
    options["peepholes"] = cell == "lstm" and bool(rng.integers(2))
    given = drawn(cell, (steps, batch, directions, width), dtype, **options)
    reverse = bool(rng.integers(2))
    want = expected(cell, *given, reverse)
    with emulated() as gpu:
        there = [None if x is None else upload(x, gpu) for x in given[:5]]
        first = tuple(upload(s, gpu) for s in given[5])
        assert clusters_gpu.cluster_plan(
            cell, (steps, batch, directions, width), cb.f32, cb.device_properties_of(gpu)
        )
        panels = packed(there[1], cell)
        found = recurrence(cell, there[0], panels, *there[2:], first, reverse)
        limit = 1e-12 if dtype is np.float64 else 2e-5 if dtype is np.float32 else 2e-2
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(
                a.numpy().astype(np.float64), b, limit, limit, err_msg=str(given[0].shape)
            )


@pytest.mark.turns(8)
@pytest.mark.parametrize("way", ["clusters", "products"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cell", GATES)
def test_gradients_of_clusters(
    cell: str, dtype: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng()
    small_plans(way, rng, monkeypatch)
    steps, batch, directions, width = (int(rng.integers(1, n)) for n in (4, 6, 3, 14))
    options = {name: bool(rng.integers(2)) for name in ("bias", "lengths")}
    gates, matrix, bias, _, lengths, first = drawn(
        cell, (steps, batch, directions, width), dtype, **options
    )
    reverse = bool(rng.integers(2))
    y, *last = (
        a.astype(dtype) for a in expected(cell, gates, matrix, bias, None, lengths, first, reverse)
    )
    by = [
        rng.standard_normal(a.shape).astype(dtype) if rng.random() < 0.7 else None
        for a in (y, *last)
    ]
    given = (gates, matrix, bias, lengths, first, y, tuple(by))
    with use("cpu"):
        want = recurrence_back(cell, *given, reverse)
    with emulated() as gpu:

        def there(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(there, value))
            return None if value is None else upload(value, gpu)

        found = recurrence_back(cell, *map(there, given), reverse)
        limit = 1e-11 if dtype is np.float64 else 1e-4
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(
                a.numpy(), b, limit, limit * max(1, np.abs(b).max(initial=0))
            )
