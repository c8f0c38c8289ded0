"""Averages over 1 and 3 axes; gradients are the transposed maps."""

from __future__ import annotations

import numpy as np
import pytest

from cubepy.kernels import pool_average as K

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("axes", [1, 3])
def test_windows_and_their_gradient(axes: int) -> None:
    x = RNG.standard_normal((2, 3, *(9, 8, 7)[:axes]), np.float32)
    over = tuple(range(2, 2 + axes))
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *((1, 1),) * axes))
    want = np.lib.stride_tricks.sliding_window_view(wide, (3,) * axes, over)
    want = want[(slice(None), slice(None), *(slice(None, None, 2),) * axes)].mean(tuple(range(-axes, 0)))
    got = getattr(K, f"avg_pool{axes}d")(x, 3, 2, 1)
    np.testing.assert_allclose(got, want, atol=1e-6)
    grad = RNG.standard_normal(want.shape, np.float32)
    back = getattr(K, f"avg_pool{axes}d_input")(x.shape, grad, 3, 2, 1)
    assert back.shape == x.shape and abs(float((back * x).sum() - (grad * want).sum())) < 1e-4


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_parts_and_their_gradient(axes: int) -> None:
    x = RNG.standard_normal((2, 3, *(9, 8, 7)[:axes]), np.float32)
    if axes != 2:
        got = getattr(K, f"adaptive_avg_pool{axes}d")(x, 1)
        np.testing.assert_allclose(got, x.mean(tuple(range(2, 2 + axes)), keepdims=True), atol=1e-6)
    grad = RNG.standard_normal((2, 3, *(4, 4, 4)[:axes]), np.float32)
    back = getattr(K, f"adaptive_avg_pool{axes}d_input")(x.shape, grad)
    assert back.shape == x.shape
    np.testing.assert_allclose(back.sum(), grad.sum(), atol=1e-4)
