"""Groups of reductions along rows and maps: errors like those of the ops alone, fewer steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import execute, record
from cubepy.tensor.fusion.optimise import optimise
from cubepy.tensor.fusion.reductions.rows import fuse_rows
from cubepy.tensor.ir import Graph
from tests.tensor.fusion.random_programs import keeps_results

RNG = np.random.default_rng(0)


def softmax(x: Any) -> Any:
    e = (x - x.max(axis=-1, keepdims=True)).exp()
    return e / e.sum(axis=-1, keepdims=True)


def norm(x: Any, w: Any, b: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred * (variance + 1e-5).rsqrt() * w + b


def cross_entropy(x: Any, target: Any) -> Any:
    top = x.max(axis=-1, keepdims=True)
    total = (x - top).exp().sum(axis=-1, keepdims=True).log() + top
    return ((total - x) * target).sum(axis=-1)


def numpy_norm(x: Any, w: Any, b: Any) -> Any:
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) * w + b


def numpy_softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def numpy_cross_entropy(x: Any, target: Any) -> Any:
    return ((np.log(np.exp(x).sum(-1, keepdims=True)) - x) * target).sum(-1)


def steps_of(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op not in ("input", "constant")]


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "softmax": (softmax, numpy_softmax, 0),
    "norm": (norm, numpy_norm, 2),
    "cross_entropy": (cross_entropy, numpy_cross_entropy, 1),
}


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("shape", [(5, 7), (1, 1000), (3, 4, 65), (200, 33), (2, 9000)])
@pytest.mark.parametrize("name", CASES)
def test_known_rows_are_one_step(name: str, shape: Any, dtype: str) -> None:
    function, reference, more = CASES[name]
    others = [RNG.uniform(0.1, 1, shape[-1:]) for _ in range(more)]
    given = [cb.tensor(v).astype(dtype) for v in (RNG.standard_normal(shape), *others)]
    with record(*given) as recorder:
        eager = function(*given)
    graph = optimise(recorder.graph(eager))
    assert steps_of(graph) == ["fused_rows"]
    (found,) = execute(graph, recorder.inputs)
    assert found.dtype is eager.dtype and found.shape == eager.shape
    want = reference(*(t.astype("f64").numpy() for t in given))
    scale = np.abs(want).max()
    errors = [np.abs(t.astype("f64").numpy() - want).max() / scale for t in (found, eager)]
    limit = {"f32": 2e-6, "f64": 1e-14, "f16": 1e-3, "bf16": 8e-3}[dtype]
    assert errors[0] <= max(limit, errors[1])


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    keeps_results(fuse_rows, 1000 + seed)


def test_nan_and_infinities_pass_through_extremes() -> None:
    x = RNG.standard_normal((6, 70)).astype(np.float32)
    x[1, 3], x[2, 69], x[3, 0] = np.nan, np.inf, -np.inf
    t = cb.tensor(x)
    with record(t) as recorder:
        y = (t * 2).max(axis=-1, keepdims=True) + (t * 3).min(axis=-1, keepdims=True)
    graph = optimise(recorder.graph(y))
    assert steps_of(graph) == ["fused_rows"]
    np.testing.assert_array_equal(execute(graph, [t])[0].numpy(), y.numpy())


def test_gradients_of_rows_fuse() -> None:
    """The gradient of a norm, as derived, in few steps."""
    x = cb.tensor(RNG.standard_normal((8, 64)), requires_grad=True)
    w, b = (cb.tensor(RNG.standard_normal(64), requires_grad=True) for _ in range(2))
    with record(x, w, b) as recorder:
        (norm(x, w, b) * 2).sum().backward()
        assert x.grad is not None and w.grad is not None
    graph = recorder.graph(x.grad, w.grad)
    fused = optimise(graph)
    assert len(steps_of(fused)) <= len(steps_of(graph)) // 3
    for found, want in zip(execute(fused, recorder.inputs), (x.grad, w.grad), strict=True):
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_what_is_one_number_for_a_row_fills_it(dtype: str) -> None:
    """Stored, summed, and kept for the next walk."""
    x, rows = (cb.tensor(RNG.standard_normal(shape)).astype(dtype) for shape in ((7, 40), (7, 1)))
    with record(x, rows) as recorder:
        wide = (rows * -0.7).expand((7, 40))
        total = (wide * 3 + x).sum(axis=-1, keepdims=True)
        outputs = wide * 2, wide > 0, wide.exp() * total, wide.sum(axis=-1), total
    fused = optimise(recorder.graph(*outputs))
    assert steps_of(fused).count("fused_rows") == 1
    close = {"rtol": 2e-3, "atol": 2e-2} if dtype == "f16" else {"rtol": 1e-5, "atol": 1e-5}
    for found, want in zip(execute(fused, [x, rows]), outputs, strict=True):
        np.testing.assert_allclose(
            found.numpy().astype(np.float64), want.numpy().astype(np.float64), **close
        )
