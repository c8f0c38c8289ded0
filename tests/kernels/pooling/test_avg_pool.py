"""Averages over 1 and 3 axes; gradients are the transposed maps."""

from __future__ import annotations

import numpy as np
import pytest

from cubepy import errors
from cubepy.kernels import interpolate
from cubepy.kernels.pooling import avg_pool as K

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("axes", [1, 3])
def test_windows_and_their_gradient(axes: int) -> None:
    x = RNG.standard_normal((2, 3, *(9, 8, 7)[:axes]), np.float32)
    over = tuple(range(2, 2 + axes))
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *((1, 1),) * axes))
    want = np.lib.stride_tricks.sliding_window_view(wide, (3,) * axes, over)
    want = want[(slice(None), slice(None), *(slice(None, None, 2),) * axes)].mean(
        tuple(range(-axes, 0))
    )
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


def last(x: np.ndarray) -> np.ndarray:
    """Channels last."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_layouts_signals_without_batch_and_divisors_agree(axes: int) -> None:
    x = RNG.standard_normal((2, 20, *(6, 9, 21)[-axes:]), np.float32)
    layout = ("NLC", "NHWC", "NDHWC")[axes - 1]
    pool, back = getattr(K, f"avg_pool{axes}d"), getattr(K, f"avg_pool{axes}d_input")
    want = pool(x.astype(np.float64), 3, 2, 1)
    np.testing.assert_allclose(pool(x, 3, 2, 1), want, atol=1e-6)
    np.testing.assert_allclose(pool(last(x), 3, 2, 1, layout=layout), last(want), atol=1e-6)
    np.testing.assert_allclose(pool(x[0], 3, 2, 1), want[0], atol=1e-6)
    np.testing.assert_allclose(pool(x, 3, 2, 1, divisor_override=2), want * 3**axes / 2, atol=1e-5)
    grad = RNG.standard_normal(want.shape, np.float32)
    wide = back(x.shape, grad.astype(np.float64), 3, 2, 1, divisor_override=4)
    np.testing.assert_allclose((wide * x).sum(), (grad * want).sum() * 3**axes / 4, rtol=1e-6)
    got = back(last(x).shape, last(grad), 3, 2, 1, divisor_override=4, layout=layout)
    np.testing.assert_allclose(got, last(wide), atol=1e-5)
    np.testing.assert_allclose(
        back(x.shape[1:], grad[0], 3, 2, 1, divisor_override=4), wide[0], atol=1e-5
    )
    parts, parts_back = (
        getattr(K, f"adaptive_avg_pool{axes}d"),
        getattr(K, f"adaptive_avg_pool{axes}d_input"),
    )
    np.testing.assert_allclose(parts(last(x), 4, layout=layout), last(parts(x, 4)), atol=1e-6)
    some = RNG.standard_normal((2, 20, *(4,) * axes), np.float32)
    got = parts_back(last(x).shape, last(some), layout=layout)
    np.testing.assert_allclose(got, last(parts_back(x.shape, some)), atol=1e-6)


def test_sums_of_half_precision_round_once_and_nan_stays_in_its_windows() -> None:
    x = RNG.standard_normal((1, 1, 8, 40)).astype(np.float16)
    want = K.avg_pool2d(x.astype(np.float64), (2, 3), 1)
    half = np.spacing(np.abs(want).astype(np.float16)).astype(np.float64) / 2
    assert (
        np.abs(K.avg_pool2d(x, (2, 3), 1) - want) <= 1.001 * half
    ).all()  # ties are not exact: a third is not
    x[0, 0, 3, 17] = np.nan
    wrong = np.isnan(K.avg_pool2d(x, (2, 3), 1))
    assert wrong.sum() == 6 and wrong[0, 0, 2:4, 15:18].all()
    assert np.isnan(K.adaptive_avg_pool2d(x, (3, 7))).sum() == 2  # two parts share the column


def test_views_of_channels_last_memory_and_outputs() -> None:
    x = RNG.standard_normal((2, 5, 9, 33), np.float32)
    want = K.avg_pool2d(x, 2)
    seen = last(x).transpose(0, 3, 1, 2)
    got = K.avg_pool2d(seen, 2)
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert got.transpose(0, 2, 3, 1).flags.c_contiguous
    out = np.zeros(want.shape, np.float32)
    assert K.avg_pool2d(seen, 2, out=out) is out
    np.testing.assert_allclose(out, want, atol=1e-6)


def test_a_divisor_of_zero_is_refused() -> None:
    with pytest.raises(errors.ShapeError, match="zero"):
        K.avg_pool2d(np.ones((1, 1, 4, 4), np.float32), 2, divisor_override=0)


def test_long_signals_need_no_matrix_of_their_places() -> None:
    n = 1 << 20  # squared, no machine has the memory
    x = RNG.standard_normal((1, 1, n), np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(K.avg_pool1d(x, 2), wide.reshape(1, 1, -1, 2).mean(-1), atol=1e-6)
    np.testing.assert_allclose(
        K.adaptive_avg_pool1d(x, 1024), wide.reshape(1, 1, 1024, -1).mean(-1), atol=1e-6
    )
    grad = np.ones((1, 1, n // 2), np.float32)
    np.testing.assert_array_equal(
        K.avg_pool1d_input(x.shape, grad, 2), np.full(x.shape, 0.5, np.float32)
    )
    twice = interpolate(x, scale_factor=2, mode="nearest", layout="NCL")
    np.testing.assert_array_equal(twice, np.repeat(x, 2, -1))
