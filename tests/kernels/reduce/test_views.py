"""Reductions of arrays that lie in memory in any way: turned, with gaps, backwards, stretched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.kernels.reduce import reduce


def drawn(rng: np.random.Generator) -> np.ndarray:
    """A random view of random numbers."""
    shape = [int(n) for n in rng.integers(1, 9, int(rng.integers(1, 5)))]
    dtype = str(rng.choice(["f4", "f8", "i8", "u1"]))
    is_float = dtype[0] == "f"
    x: Any = rng.standard_normal(shape) * 3 if is_float else rng.integers(0, 9, shape)
    x = x.astype(dtype)
    for d in range(x.ndim):
        step = int(rng.choice([1, 1, 1, 2, -1, -2]))
        x = x[(slice(None),) * d + (slice(None, None, step),)]
    x = x.transpose(rng.permutation(x.ndim))
    if rng.random() < 0.3:
        x = np.broadcast_to(x[None], (int(rng.integers(1, 6)), *x.shape))
        x = x.transpose(rng.permutation(x.ndim))
    return x


@pytest.mark.parametrize("least", [1, 64])
@pytest.mark.parametrize("seed", range(60))
def test_views_are_reduced_as_their_elements_are(
    seed: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reduce, "LONG_STEP", least)
    rng = np.random.default_rng(seed)
    x = drawn(rng)
    count = int(rng.integers(1, x.ndim + 1))
    axes = tuple(int(d) for d in rng.permutation(x.ndim)[:count])
    for name in ("sum", "mean", "max", "min"):
        for axis in (axes, None):
            found = getattr(K, name)(x, axis)
            wanted = getattr(np, name)(x.astype("f8") if x.dtype.kind == "f" else x, axis)
            tight = 1e-11 if x.dtype == np.float64 else 2e-5 if x.dtype.kind == "f" else 0
            np.testing.assert_allclose(
                np.asarray(found, "f8"), wanted, rtol=max(tight, 1e-6), atol=tight * x.size
            )


def test_what_becomes_one_number_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "copy", lambda *given: pytest.fail("copied"))
    x = np.random.default_rng(0).standard_normal((40, 30, 70)).astype(np.float32)
    for view in (
        x.transpose(2, 0, 1),
        x[:, ::2],
        x[:, :, :65],
        np.broadcast_to(x[:, None], (40, 5, 30, 70)),
    ):
        np.testing.assert_allclose(K.sum(view), view.sum(dtype="f8"), rtol=1e-4, atol=1e-2)
        assert K.max(view) == view.max()
