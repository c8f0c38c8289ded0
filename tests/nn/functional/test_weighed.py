"""Weights of losses: each element counts as much as its weight says, and a mean is over the sum of
the weights, that of Huber's loss over the elements, as in torch from 2.6 on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.nn import functional as F
from tests.tensor.finite import check_gradients

LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "mse": (F.mse_loss, {}),
    "l1": (F.l1_loss, {}),
    "huber": (F.huber_loss, {"delta": 0.7}),
}


def formula(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    d = np.abs(x - y)
    if name == "mse":
        return d * d
    return d if name == "l1" else np.where(d <= 0.7, d * d / 2, 0.7 * (d - 0.35))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_weights_of_losses(name: str, reduction: str) -> None:
    loss, how = LOSSES[name]
    for seed in range(6):
        rng = np.random.default_rng(seed)
        shape = tuple(rng.integers(1, 5, rng.integers(0, 4)))
        x, y = (np.asarray(rng.normal(size=shape)) for _ in range(2))
        w = np.asarray(rng.uniform(0.1, 2, shape))
        want = formula(name, x, y) * w
        total = w.size if name == "huber" else w.sum()
        want = {"mean": want.sum() / total, "sum": want.sum(), "none": want}[reduction]
        for dtype, near in ((np.float64, 1e-12), (np.float32, 1e-5)):
            a, b, c = (cb.tensor(v.astype(dtype)) for v in (x, y, w))
            found = loss(a, b, reduction=reduction, weight=c, **how)
            assert found.dtype is a.dtype
            np.testing.assert_allclose(found.numpy(), want, near, near)
        check_gradients(lambda *t: loss(*t[:2], reduction=reduction, weight=t[2], **how), x, y, w)


def test_a_mean_of_f16_is_over_weights_in_f32() -> None:
    """Their sum is beyond f16."""
    x = cb.tensor(np.full(4096, 2.0, np.float16))
    found = F.mse_loss(x, x * 0, weight=cb.tensor(np.full(4096, 100.0, np.float16)))
    assert found.dtype is cb.f16 and found.item() == 4.0


@pytest.mark.parametrize("name", LOSSES)
def test_weights_of_another_shape_are_refused(name: str) -> None:
    x = cb.tensor(np.ones((2, 3)))
    with pytest.raises(ShapeError, match=rf"{name}_loss: an input of shape \(2, 3\) has a weight"):
        LOSSES[name][0](x, x, weight=cb.tensor([1.0, 2.0, 3.0]))
