"""Activations against their formulas in NumPy, their gradients against differences."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ShapeError
from cubepy.nn import functional as F
from tests.tensor.finite import check_gradients

X = np.array([-7.3, -3.1, -2.9, -1.2, -0.6, -0.3, 0.2, 0.4, 0.9, 2.8, 3.2, 5.8, 6.3, 25.0])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x)


def hard(x: np.ndarray) -> np.ndarray:
    return np.clip(x / 6 + 0.5, 0, 1)


def elu(x: np.ndarray, a: float) -> np.ndarray:
    return np.where(x > 0, x, a * np.expm1(np.minimum(x, 0)))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


FORMS: dict[str, tuple[nn.Module, Any]] = {
    "relu6": (nn.ReLU6(), lambda x: np.clip(x, 0, 6)),
    "leaky": (nn.LeakyReLU(), lambda x: np.where(x > 0, x, 0.01 * x)),
    "leaky_more": (nn.LeakyReLU(0.3), lambda x: np.where(x > 0, x, 0.3 * x)),
    "elu": (nn.ELU(1.5), lambda x: elu(x, 1.5)),
    "celu": (nn.CELU(1.5), lambda x: np.where(x > 0, x, 1.5 * np.expm1(np.minimum(x, 0) / 1.5))),
    "selu": (nn.SELU(), lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772)),
    "softplus": (nn.Softplus(), softplus),
    "softplus_beta": (nn.Softplus(2.0, 5.0), lambda x: np.where(2 * x > 5, x, softplus(2 * x) / 2)),
    "softsign": (nn.Softsign(), lambda x: x / (1 + abs(x))),
    "hardswish": (nn.Hardswish(), lambda x: x * hard(x)),
    "hardsigmoid": (nn.Hardsigmoid(), hard),
    "hardtanh": (nn.Hardtanh(-0.5, 3.0), lambda x: np.clip(x, -0.5, 3)),
    "mish": (nn.Mish(), lambda x: x * np.tanh(softplus(x))),
    "sigmoid": (nn.Sigmoid(), sigmoid),
    "logsigmoid": (nn.LogSigmoid(), lambda x: -softplus(-x)),
    "tanhshrink": (nn.Tanhshrink(), lambda x: x - np.tanh(x)),
    "softshrink": (nn.Softshrink(), lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0)),
    "hardshrink": (nn.Hardshrink(), lambda x: np.where(abs(x) > 0.5, x, 0)),
    "threshold": (nn.Threshold(0.3, -2.0), lambda x: np.where(x > 0.3, x, -2)),
    "softmax": (nn.Softmax(), softmax),
    "log_softmax": (
        nn.LogSoftmax(dim=0),
        lambda x: x - x.max() - np.log(np.exp(x - x.max()).sum()),
    ),
    "softmin": (nn.Softmin(), lambda x: softmax(-x)),
    "glu": (nn.GLU(), lambda x: x[:7] * sigmoid(x[7:])),
}


@pytest.mark.parametrize("name", FORMS)
def test_values_and_gradients_are_those_of_the_formula(name: str) -> None:
    module, formula = FORMS[name]
    np.testing.assert_allclose(module(X).numpy(), formula(X), rtol=1e-12, atol=1e-15)
    check_gradients(module, X)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", FORMS)
def test_narrow_floats_are_rounded_once(name: str, dtype: Any) -> None:
    module, formula = FORMS[name]
    x = X.astype(dtype)
    got = module(x)
    assert got.dtype == cb.tensor(x).dtype
    eps = float(ml_dtypes.finfo(dtype).eps)
    want = formula(x.astype(np.float64))
    np.testing.assert_allclose(got.numpy().astype(np.float64), want, rtol=2 * eps, atol=2e-3 * eps)


@pytest.mark.parametrize("name", FORMS)
def test_nan_stays_nan(name: str) -> None:
    """And does not become what lies within a threshold."""
    x = X.copy()
    x[3] = np.nan
    got, rest = FORMS[name][0](x).numpy(), FORMS[name][0](X).numpy()
    assert np.isnan(got[3])
    if "soft" not in name or name in ("softplus", "softsign", "softshrink"):
        np.testing.assert_array_equal(np.delete(got, 3), np.delete(rest, 3))


def test_prelu_learns_a_slope_for_each_channel() -> None:
    x, w = np.linspace(-2, 2, 24).reshape(2, 3, 4) + 0.01, np.array([0.1, 0.2, 0.3])
    want = np.where(x > 0, x, x * w[:, None])
    np.testing.assert_allclose(F.prelu(x, w).numpy(), want)
    check_gradients(F.prelu, x, w)
    assert nn.PReLU(3)(x.astype(np.float32)).shape == x.shape
    with pytest.raises(ShapeError, match="4 weights"):
        F.prelu(x, np.ones(4))
    for shape in ((2, 0, 3), (4, 0)):  # no channels
        assert F.prelu(np.zeros(shape), np.zeros(0)).shape == shape


def test_slopes_at_zero_are_torchs() -> None:
    want = {"elu": 1.5, "celu": 1, "softplus": 0.5, "logsigmoid": 0.5, "mish": 0.6, "relu6": 0,
            "leaky": 0.01, "softsign": 1, "hardswish": 0.5}  # fmt: skip
    for name, slope in want.items():
        x = cb.tensor(np.zeros(1), requires_grad=True)
        FORMS[name][0](x).sum().backward()
        assert x.grad.item() == pytest.approx(slope, rel=1e-6), name


@pytest.mark.parametrize("name", [n for n in FORMS if n not in ("softmax", "softmin", "glu")])
def test_huge_numbers_have_finite_gradients(name: str) -> None:
    x = cb.tensor(np.array([-1e30, -200.0, 200.0, 1e30], np.float32), requires_grad=True)
    FORMS[name][0](x).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_glu_needs_two_halves() -> None:
    with pytest.raises(ShapeError, match="odd length"):
        F.glu([1.0, 2.0, 3.0])


def test_dropout_keeps_the_mean_and_is_off_in_eval() -> None:
    nn.init.manual_seed(0)
    x = np.ones((200, 50, 4), np.float32)
    for drop in (nn.Dropout(0.25), nn.Dropout1d(0.25)):
        y = drop(x).numpy()
        assert set(np.unique(y).tolist()) == {0.0, float(np.float32(1) * np.float32(1 / 0.75))}
        assert abs(y.mean() - 1) < 0.02
        np.testing.assert_array_equal(drop.eval()(x).numpy(), x)
    rows = nn.Dropout1d(0.25)(x).numpy()
    assert (rows.min(axis=2) == rows.max(axis=2)).all()


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    nn.init.manual_seed(0)
    y = nn.AlphaDropout(0.3)(np.random.default_rng(0).standard_normal(200_000)).numpy()
    assert abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.02


def test_a_softmax_of_log_probabilities_is_exact() -> None:
    x = np.array([[0.0, 1000.0, -1000.0]], np.float32)
    assert F.log_softmax(x).tolist() == [[-1000.0, 0.0, -2000.0]]
    assert F.logsigmoid([-1000.0, 1000.0]).tolist() == [-1000.0, 0.0]
    assert math.isclose(F.softplus([30.0]).item(), 30.0)
