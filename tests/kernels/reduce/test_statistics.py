"""var, norm, logsumexp, any, all and the normalisations built of them, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import errors
from cubepy import kernels as K

F = np.float32
RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=F)


def close(got: Any, want: Any, tolerance: float = 3e-6) -> None:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)], ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_statistics_over_any_axes(axis: Any, keepdims: bool) -> None:
    for x in (draw(5, 70, 37) + 3, draw(37, 5, 7).transpose(1, 2, 0), draw(3, 1, 2)):
        d = x.astype(np.float64)
        close(K.var(x, axis, 0, keepdims), d.var(axis, keepdims=keepdims))
        close(K.std(x, axis, keepdims=keepdims), d.std(axis, keepdims=keepdims))
        close(K.logsumexp(x, axis, keepdims), np.log(np.exp(d).sum(axis, keepdims=keepdims)))
        for order in (1, 2, 3, np.inf):
            want = (
                np.abs(d).max(axis, keepdims=keepdims)
                if order == np.inf
                else (np.abs(d) ** order).sum(axis, keepdims=keepdims) ** (1 / order)
            )
            close(K.norm(x, order, axis, keepdims), want, 2e-5)
        mask = (x > 1.5).astype(F)
        np.testing.assert_array_equal(
            K.any(mask, axis, keepdims), mask.any(axis, keepdims=keepdims)
        )
        np.testing.assert_array_equal(
            K.all(mask == 0, axis, keepdims), (mask == 0).all(axis, keepdims=keepdims)
        )


@pytest.mark.parametrize("seed", range(8))
def test_sums_of_exponentials_of_far_and_infinite_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for axis in (0, 1):
        shape = [int(n) for n in np.exp(rng.uniform(0, [2, 6], 2))]
        x = rng.standard_normal(shape) * np.exp(rng.uniform(-3, 7, (shape[0], 1)))
        x = (x + rng.uniform(-300, 300)).astype(F)
        x[rng.random(shape) < 0.1] = -np.inf
        x[0, :] = rng.choice([-np.inf, np.inf, np.nan, 3e38, -3e38, 88.0])
        x = x if axis else x.T.copy()
        with np.errstate(all="ignore"):
            d = x.astype(np.float64)
            top = d.max(axis, keepdims=True)
            total = np.exp(d - np.where(np.isfinite(top), top, 0)).sum(axis, keepdims=True)
            want = np.where(np.isinf(top), top, top + np.log(total))
            found, log = K.logsumexp(x, axis, True), K.log_softmax(x, axis)
            near_to = dict(rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(found, want, **near_to)
            exact = np.where(np.isinf(top), np.nan, (d - top) - np.log(total))
            np.testing.assert_allclose(log, exact, **near_to)


def test_strange_values_and_empty_arrays() -> None:
    assert (
        K.logsumexp(np.full(5, -np.inf, F)) == -np.inf
        and K.logsumexp(np.array([np.inf, 1], F)) == np.inf
    )
    assert np.isnan(K.logsumexp(np.array([np.nan, 1], F))) and K.logsumexp(
        np.array([1e30, 1], F)
    ) == F(1e30)
    assert np.isnan(K.norm(np.array([np.nan, 1], F), np.inf)) and np.isnan(K.var(np.zeros(0, F)))
    assert np.isnan(K.var(np.ones((2, 1), F), 1, ddof=1)).all() and K.norm(
        np.zeros((0, 2), F), axis=0
    ).tolist() == [0, 0]
    assert not K.any(np.zeros(0, F)) and K.all(np.zeros(0, F)) and K.any(np.array([np.nan], F))
    with pytest.raises(errors.ShapeError, match="order of a norm"):
        K.norm(draw(3), 0)


def test_log_softmax() -> None:
    for shape, axis in (((7, 100), -1), ((7, 100), 0), ((2, 3, 5), 1), ((1, 1), 1)):
        x = draw(*shape) * 5
        d = x.astype(np.float64)
        close(K.log_softmax(x, axis), d - np.log(np.exp(d).sum(axis, keepdims=True)), 1e-5)
    assert K.log_softmax(np.array([1e30, 0], F)).tolist() == [0, -F(1e30)]
    assert np.isnan(K.log_softmax(np.array([np.nan, 0], F))).all()


def test_rms_norm() -> None:
    for shape in ((5, 384), (3, 4, 33), (1, 1)):
        x, w = draw(*shape), draw(shape[-1])
        d = x.astype(np.float64)
        want = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-6)
        close(K.rms_norm(x, shape[-1], w, 1e-6), want * w)
        close(K.rms_norm(x.astype(np.float16), (shape[-1],), eps=1e-6), want, 4e-3)
    with pytest.raises(errors.ShapeError, match="rms_norm over"):
        K.rms_norm(x, 7)


def test_group_norm() -> None:
    for shape, groups in (((2, 6, 5, 7), 3), ((1, 4, 33), 1), ((3, 8), 4)):
        x, w, b = draw(*shape) * 2 + 1, draw(shape[1]), draw(shape[1])
        d = x.astype(np.float64).reshape(shape[0], groups, -1)
        want = ((d - d.mean(2, keepdims=True)) / np.sqrt(d.var(2, keepdims=True) + 1e-5)).reshape(
            shape
        )
        per = (1, -1, *(1,) * (len(shape) - 2))
        # What the mean is rounded by counts in units of the deviation: groups of two neighbours
        # have a small one.
        scale = max(1.0, float((np.abs(d).max(2) / np.sqrt(d.var(2) + 1e-5)).max()) / 10)
        close(K.group_norm(x, groups), want, 3e-6 * scale)
        close(K.group_norm(x, groups, w, b), want * w.reshape(per) + b.reshape(per), 1e-5 * scale)
    with pytest.raises(errors.ShapeError, match="groups"):
        K.group_norm(x, 3)


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_of_f64_takes_eps_and_momentum_in_f64(training: bool) -> None:
    x = np.random.default_rng(0).standard_normal((6, 3, 5))
    mean, variance = np.full(3, 0.25), np.full(3, 0.5)
    got = K.batch_norm(
        x, mean.copy(), moving := variance.copy(), None, np.ones(3), training, 0.1, 0.1
    )
    m, v = (
        (x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)) if training else (0.25, 0.5)
    )
    np.testing.assert_allclose(got, (x - m) / np.sqrt(v + 0.1) + 1, rtol=1e-13, atol=1e-13)
    if training:
        np.testing.assert_allclose(moving, 0.45 + 0.1 * x.var((0, 2), ddof=1), rtol=1e-13)


def test_batch_norm() -> None:
    x, w, b = draw(4, 6, 5, 3) * 2 + 1, draw(6), draw(6)
    mean, variance = draw(6), np.abs(draw(6)) + 0.5
    per = (1, 6, 1, 1)
    d = x.astype(np.float64)
    want = (d - mean.reshape(per)) / np.sqrt(variance.reshape(per) + 1e-5) * w.reshape(
        per
    ) + b.reshape(per)
    close(K.batch_norm(x, mean, variance, w, b), want, 1e-5)
    batch, spread = d.mean((0, 2, 3)), d.var((0, 2, 3))
    running = 0.9 * mean + 0.1 * batch, 0.9 * variance + 0.1 * spread * 60 / 59
    close(
        K.batch_norm(x, mean, variance, training=True),
        (d - batch.reshape(per)) / np.sqrt(spread.reshape(per) + 1e-5),
        1e-5,
    )
    close(mean, running[0], 1e-5)
    close(variance, running[1], 1e-5)
    with pytest.raises(errors.ShapeError, match="running_mean"):
        K.batch_norm(x, None, None)
