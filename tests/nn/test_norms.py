"""Batch and root-mean-square normalisation layers against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from cubepy.errors import ShapeError
from cubepy.nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, RMSNorm

LAYERS = [
    (BatchNorm1d, (5, 3)),
    (BatchNorm1d, (4, 3, 6)),
    (BatchNorm2d, (2, 3, 4, 5)),
    (BatchNorm3d, (2, 3, 2, 3, 4)),
]


def random(shape):
    return np.random.default_rng(1).normal(1, 2, shape).astype(np.float32)


@pytest.mark.parametrize(("layer", "shape"), LAYERS)
def test_batch_norm_trains_and_then_uses_the_running_values(layer, shape):
    bn, x = layer(3), random(shape)
    assert list(bn.state_dict()) == [
        "weight",
        "bias",
        "running_mean",
        "running_var",
        "num_batches_tracked",
    ]
    axes, wide = (0, *range(2, x.ndim)), x.astype(np.float64)
    mean, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    np.testing.assert_allclose(
        bn(x).numpy(), (wide - mean) / np.sqrt(var + 1e-5), rtol=1e-4, atol=1e-5
    )
    running, unbiased = 0.1 * mean, 0.9 + 0.1 * wide.var(axes, ddof=1, keepdims=True)
    np.testing.assert_allclose(bn.running_mean.numpy(), running.ravel(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(bn.running_var.numpy(), unbiased.ravel(), rtol=1e-5)
    assert (
        int(bn.num_batches_tracked.numpy()) == 1
        and bn.num_batches_tracked.numpy().dtype == np.int64
    )
    y = bn.eval()(x).numpy()
    np.testing.assert_allclose(y, (wide - running) / np.sqrt(unbiased + 1e-5), rtol=1e-4, atol=1e-5)
    assert y.dtype == np.float32 and int(bn.num_batches_tracked.numpy()) == 1


def test_rms_norm():
    x = random((4, 3, 8))
    want = x / np.sqrt((x.astype(np.float64) ** 2).mean((-2, -1), keepdims=True) + 1e-6)
    np.testing.assert_allclose(RMSNorm((3, 8), eps=1e-6)(x).numpy(), want, rtol=1e-5)


def test_refused_shapes():
    with pytest.raises(ShapeError, match="cannot take"):
        BatchNorm2d(3)(random((2, 4, 5, 5)))
    with pytest.raises(ShapeError, match="more than 1 value"):
        BatchNorm1d(3)(random((1, 3)))
    with pytest.raises(ShapeError, match="cannot take"):
        RMSNorm(3)(random((2, 4)))
