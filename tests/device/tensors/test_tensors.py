"""Tensors on a GPU: gradients like those on a CPU, and fused programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import Tensor, apply, execute, record, where
from cubepy.tensor.fusion.optimise import optimise
from tests.tensor.fusion.test_rows import cross_entropy, norm, softmax
from tests.tensor.gradients.test_gradients import BINARY, UNARY

HERE = "cuda"
RNG = np.random.default_rng(3)


def both(
    function: Callable[..., Any], *inputs: np.ndarray, order: int = 1
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Gradients by all inputs, on a GPU and on a CPU; of the second order their sum's gradients."""
    numbers = tuple(range(len(inputs)))

    def total(*given: Any) -> Any:
        y = function(*given)
        return (y * y).sum()

    def twice(*given: Any) -> Any:
        parts = [(g * g).sum() for g in cb.grad(total, numbers)(*given)]
        return sum(parts[1:], parts[0])

    f = cb.grad(total if order == 1 else twice, numbers)
    found = [
        [g.numpy() for g in f(*(cb.tensor(x, device=d) for x in inputs))] for d in (HERE, "cpu")
    ]
    return list(zip(*found, strict=True))


def near(pairs: list[tuple[np.ndarray, np.ndarray]], tolerance: float) -> None:
    for a, b in pairs:
        assert a.shape == b.shape and a.dtype == b.dtype
        assert np.abs(a - b).max(initial=0) <= tolerance * max(1.0, np.abs(b).max(initial=0))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", UNARY)
def test_gradients_of_one(name: str, order: int) -> None:
    function, low, high = UNARY[name]
    near(both(function, RNG.uniform(low, high, (5, 12)), order=order), 1e-11)


@pytest.mark.parametrize("shapes", [((33, 4), (33, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1))])
@pytest.mark.parametrize("name", BINARY)
def test_gradients_of_two(name: str, shapes: Any) -> None:
    a, b = (RNG.uniform(0.4, 2.0, s) for s in shapes)
    near(both(BINARY[name], a, b), 1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_of_layers(dtype: Any) -> None:
    def layer(x: Any, w: Any, bias: Any) -> Any:
        y = apply("linear", x, w, bias, None, activation="gelu")
        return apply("layer_norm", y, None, None, normalized_shape=(24,), eps=1e-5).softmax(-1)

    inputs = [RNG.standard_normal(s).astype(dtype) for s in ((40, 16), (24, 16), (24,))]
    near(both(layer, *inputs), 2e-5 if dtype is np.float32 else 1e-12)


def test_training_in_place() -> None:
    found = []
    for device in (HERE, "cpu"):
        rng = np.random.default_rng(0)
        x, w = (
            cb.tensor(rng.standard_normal(s).astype(np.float32), device=device)
            for s in ((64, 8), (8, 1))
        )
        y = x @ w
        p = cb.tensor(np.zeros((8, 1), np.float32), device=device, requires_grad=True)
        for _ in range(60):
            loss = ((x @ p - y) ** 2).mean()
            loss.backward()
            with cb.no_grad():
                p -= 0.1 * p.grad
            p.grad = None
        found.append((loss.item(), p.numpy()))
        np.testing.assert_allclose(p.numpy(), w.numpy(), atol=2e-2)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("shape", [(7, 33), (3, 5, 1000), (513, 64), (2, 40000), (1, 1025)])
def test_fused_rows(shape: tuple[int, ...], dtype: str) -> None:
    w, b, x = (
        cb.tensor(RNG.standard_normal(s), device=HERE).astype(dtype)
        for s in (shape[-1:], shape[-1:], shape)
    )
    with record(x, w, b) as recorder:
        y = norm(x, w, b)
        outputs = [softmax(y), y.max(axis=-1), cross_entropy(y, softmax(x))]
    graph = optimise(recorder.graph(*outputs), x.device)
    assert len(graph.nodes) < 10
    limit = {"f32": 2e-5, "f64": 1e-12, "f16": 2e-2, "bf16": 1e-1}[dtype]
    for found, want in zip(execute(graph, recorder.inputs), outputs, strict=True):
        near([(found.astype("f64").numpy(), want.astype("f64").numpy())], limit)


@pytest.mark.parametrize("shape", [(1,), (7, 33), (257, 130), (3, 1, 70)])
def test_fused_maps_keep_their_bits(shape: tuple[int, ...]) -> None:
    x, y = (cb.tensor(RNG.standard_normal(shape).astype(np.float32), device=HERE) for _ in range(2))
    row = y[(0,) * (len(shape) - 1)]
    with record(x, y, row) as recorder:
        z = (x * y + 0.3).tanh() - row
        outputs: list[Tensor] = [z, where(z > x, z, x).astype("f16"), z <= y, z.astype("i32") * 2]
    graph = optimise(recorder.graph(*outputs), x.device)
    assert [n.op for n in graph.nodes if n.op not in ("input", "constant")] == ["fused_map"]
    for found, want in zip(execute(graph, recorder.inputs), outputs, strict=True):
        np.testing.assert_array_equal(found.numpy(), want.numpy())
