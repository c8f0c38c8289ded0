"""Reductions of axes that do not lie beside each other: of one group after the other, where that
needs no copy.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.kernels.reduce import reduce

LIMITS: dict[Any, float] = {
    np.float64: 1e-12,
    np.float32: 1e-5,
    np.float16: 2e-3,
    ml_dtypes.bfloat16: 2e-2,
    np.int32: 0.0,
    np.int8: 0.0,
    np.bool_: 0.0,
}


def drawn(rng: np.random.Generator, dtype: Any) -> tuple[np.ndarray, tuple[int, ...]]:
    """An array of any order of memory, and some of its axes."""
    rank = int(rng.integers(2, 6))
    x = (rng.standard_normal(tuple(rng.integers(1, 7, rank))) * 3).astype(dtype)
    x = np.ascontiguousarray(x.transpose(rng.permutation(rank)))
    if rng.random() < 0.5:
        x = x.transpose(rng.permutation(rank))
    if rng.random() < 0.2:
        x = x[::-1]
    return x, tuple(int(a) for a in np.flatnonzero(rng.random(rank) < 0.6))


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_any_axes_are_those_of_float64(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    for _ in range(80):
        x, axes = drawn(rng, dtype)
        wide = x if dtype is np.bool_ else x.astype(np.float64)
        want = np.asarray(getattr(np, name)(wide, axis=axes), np.float64)
        size = getattr(np, name)(np.abs(wide * 1.0), axis=axes)
        got = np.asarray(getattr(K, name)(x, axis=axes), np.float64)
        assert got.shape == want.shape
        limit = 3e-7 if name == "mean" and np.dtype(dtype).kind in "ib" else LIMITS[dtype]
        assert np.all(np.abs(got - want) <= limit * np.maximum(size, 1)), (x.shape, x.strides, axes)


def test_products_of_any_axes() -> None:
    rng = np.random.default_rng(5)
    for _ in range(80):
        x, axes = drawn(rng, np.float64)
        np.testing.assert_allclose(K.prod(x, axis=axes), np.prod(x, axis=axes), rtol=1e-11)


@pytest.mark.parametrize("axes", [(0, 2, 3), (0, 2), (1, 3)])
def test_nothing_is_turned(axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(4).standard_normal((3, 5, 7, 9)).astype(np.float32)
    monkeypatch.setattr(reduce, "copy", None)
    for name in ("sum", "mean", "max"):
        np.testing.assert_allclose(
            getattr(K, name)(x, axis=axes), getattr(np, name)(x, axis=axes), rtol=1e-4, atol=1e-5
        )
