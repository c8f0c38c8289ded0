"""NumPy's functions of elements on tensors: tensors where tensors have the function, else arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.tensor import ufuncs
from cubepy.tensor.array import Tensor

F = np.float32
X = np.array([[0.5, 1.5, 2.0], [3.0, 0.25, 1.0]], F)
Y = np.array([[1.0, 1.5, 4.0], [0.5, 2.0, 1.0]], F)
BITS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)


@pytest.mark.parametrize("ufunc", ufuncs.UNARY, ids=lambda u: u.__name__)
def test_functions_of_one_tensor_give_a_tensor(ufunc: Any) -> None:
    got = ufunc(cb.tensor(X))
    assert isinstance(got, Tensor)
    np.testing.assert_allclose(got.numpy(), ufunc(X), rtol=1e-5)


@pytest.mark.parametrize("ufunc", ufuncs.BINARY, ids=lambda u: u.__name__)
def test_functions_of_two_give_a_tensor_whichever_side_it_stands_on(ufunc: Any) -> None:
    a, b = (X > 1, Y > 1) if ufunc in BITS else (X, Y.T if ufunc is np.matmul else Y)
    want = ufunc(a, b)
    for got in (ufunc(cb.tensor(a), cb.tensor(b)), ufunc(cb.tensor(a), b), ufunc(a, cb.tensor(b))):
        assert isinstance(got, Tensor)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)


def test_operators_with_arrays_and_numbers_of_numpy_stay_tensors() -> None:
    t = cb.tensor(X)
    for got, want in ((Y - t, Y - X), (F(2) ** t, F(2) ** X), (Y < t, Y < X), (Y @ t.T, Y @ X.T)):
        assert isinstance(got, Tensor)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)


def test_what_tensors_lack_and_calls_with_options_are_numpys_own() -> None:
    t, out = cb.tensor(X), np.zeros_like(X)
    assert type(np.arctan(t)) is np.ndarray
    np.testing.assert_allclose(np.arctan(t), np.arctan(X))
    assert np.exp(t, out=out) is out
    np.testing.assert_allclose(out, np.exp(X))
    array = Y.copy()
    array += t
    np.testing.assert_array_equal(array, Y + X)
    assert np.add.reduce(t, axis=0).tolist() == X.sum(0).tolist()


def test_a_model_records_them_as_its_own_functions() -> None:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            return np.exp(x) + np.maximum(X, Y)

    np.testing.assert_allclose(
        Model()(cb.tensor(X)).numpy(), np.exp(X) + np.maximum(X, Y), rtol=1e-5
    )
