"""softmax and log_softmax along axes that others lie behind: lanes are columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import kernels as K

TOLERANCE = {2: 2e-3, 4: 4e-6, 8: 1e-13}


def exact(x: np.ndarray, axis: int, log: bool) -> np.ndarray:
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        moved = wide - wide.max(axis=axis, keepdims=True)
        total = np.exp(moved).sum(axis=axis, keepdims=True)
        found: np.ndarray = moved - np.log(total) if log else np.exp(moved) / total
    return found


@pytest.mark.parametrize("seed", range(40))
def test_random_shapes_axes_and_extremes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype: Any = (np.float16, np.float32, np.float64)[seed % 3]
    shape = tuple(int(n) for n in rng.integers(1, 70, int(rng.integers(2, 5))) // (1 + seed % 2))
    shape = tuple(max(1, n) for n in shape[:2]) + tuple(max(1, n // 4) for n in shape[2:])
    axis = int(rng.integers(0, len(shape)))
    x = (rng.standard_normal(shape) * rng.choice([1, 30])).astype(dtype)
    for bad in rng.choice([1.0, np.nan, np.inf, -np.inf], 2):
        x.reshape(-1)[int(rng.integers(x.size))] = bad if rng.random() < 0.4 else 0
    tolerance = TOLERANCE[x.itemsize]
    for log in (False, True):
        call = K.log_softmax if log else K.softmax
        wanted = exact(x, axis, log)
        for _ in range(3):  # the third is a repetition
            found = call(x, axis)
        np.testing.assert_allclose(found, wanted, tolerance * (10 if log else 1), tolerance)
        held = x.copy()
        assert call(held, axis, out=held) is held
        np.testing.assert_array_equal(held, found)
