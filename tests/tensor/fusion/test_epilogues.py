"""Activations and residuals behind linear layers are done by their launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.nn import functional as F
from cubepy.tensor import execute, record
from cubepy.tensor.fusion.optimise import optimise
from tests.tensor.fusion.test_rows import steps_of

RNG = np.random.default_rng(0)
X, W, V = (
    cb.tensor(RNG.standard_normal(s).astype(np.float32)) for s in ((5, 24), (40, 24), (24, 40))
)
BIAS = cb.tensor(RNG.standard_normal(40).astype(np.float32))


def block(x: Any, w: Any, bias: Any, v: Any, activation: Any) -> Any:
    return x + F.linear(activation(F.linear(x, w, bias)), v)


@pytest.mark.parametrize(
    "activation",
    [F.relu, F.gelu, lambda x: F.gelu(x, "tanh"), lambda x: x.tanh(), lambda x: x.sigmoid()],
)
def test_blocks_are_two_launches(activation: Any) -> None:
    with record(X, W, BIAS, V) as recorder:
        y = block(X, W, BIAS, V, activation)
    graph = optimise(recorder.graph(y))
    assert steps_of(graph) == ["linear", "linear"]
    (found,) = execute(graph, recorder.inputs)
    np.testing.assert_allclose(found.numpy(), y.numpy(), rtol=2e-6, atol=2e-5)


def test_what_others_read_is_stored() -> None:
    with record(X, W, BIAS) as recorder:
        y = F.linear(X, W, BIAS)
        outputs = F.relu(y), y.sum(axis=0)
    graph = optimise(recorder.graph(*outputs))
    assert steps_of(graph) == ["linear", "fused_columns"]  # the activation beside the sum
    activated, total = execute(graph, recorder.inputs)
    np.testing.assert_array_equal(activated.numpy(), outputs[0].numpy())
    np.testing.assert_allclose(total.numpy(), outputs[1].numpy(), rtol=1e-5, atol=1e-6)


def test_a_residual_made_of_the_layer_itself() -> None:
    with record(X, W, BIAS) as recorder:
        y = F.linear(X, W, BIAS)
        z = y + y
        t = F.linear(X, W)
        u = t + t.relu()
    graph = optimise(recorder.graph(z, u))
    for found, want in zip(execute(graph, recorder.inputs), (z, u), strict=True):
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-6, atol=1e-5)


def test_two_layers_that_are_added() -> None:
    """One of them takes the other as its residual, whichever comes first."""
    with record(X, W, BIAS) as recorder:
        y = F.linear(X, W, BIAS) + F.linear(X, W * 2)
    graph = optimise(recorder.graph(y))
    assert steps_of(graph).count("linear") == 2 and "add" not in steps_of(graph)
    np.testing.assert_allclose(
        execute(graph, recorder.inputs)[0].numpy(), y.numpy(), rtol=1e-5, atol=1e-4
    )


def test_products_with_a_matrix_take_bias_activation_and_residual() -> None:
    w, v = cb.tensor(W.numpy().T.copy()), cb.tensor(V.numpy().T.copy())
    other = cb.tensor(RNG.standard_normal(24).astype(np.float32))
    with record(X, w, BIAS, v, other) as recorder:
        y = X + (F.gelu(X @ w + BIAS, "tanh") @ v + other)
        z = (BIAS + (X * 2) @ w).relu()
        t = (X * 3) @ w
    graph = optimise(recorder.graph(y, z, t))
    products = [op for op in steps_of(graph) if op not in ("permute", "mul", "fused_map")]
    assert sorted(products) == ["linear", "linear", "linear", "matmul"]
    for found, want in zip(execute(graph, recorder.inputs), (y, z, t), strict=True):
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-4)


def test_batches_of_matrices_and_other_dtypes_stay_products() -> None:
    a, b = X.reshape(5, 4, 6), cb.tensor(RNG.standard_normal((5, 6, 3)).astype(np.float32))
    bias = cb.tensor(RNG.standard_normal(3).astype(np.float32))
    wide, square = X.astype("f64"), cb.tensor(RNG.standard_normal((24, 24)))
    with record(a, b, bias, wide, square) as recorder:
        outputs = (a @ b + bias, wide @ square + wide, a[0, 0] @ b[0] + bias)
    graph = optimise(recorder.graph(*outputs))
    assert "linear" not in steps_of(graph)
    for found, want in zip(execute(graph, recorder.inputs), outputs, strict=True):
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
