"""Softmax and norms beside maps are one launch with them; on their own they stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import Tensor, apply, execute, record, where
from cubepy.tensor.fusion.optimise import optimise
from tests.tensor.fusion.test_rows import numpy_norm, numpy_softmax, steps_of

RNG = np.random.default_rng(0)
SHAPES = [(1, 2), (3, 5), (4, 24), (200, 33), (2, 3, 4, 65), (16, 768), (5, 8000)]


def layer_norm(x: Any, w: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
    return apply("layer_norm", x, w, b, normalized_shape=x.shape[-1:], eps=eps)


def rms_norm(x: Any, w: Any = None, eps: float = 1e-6) -> Any:
    return apply("rms_norm", x, w, normalized_shape=x.shape[-1:], eps=eps)


Case = tuple[Callable[..., Any], Callable[..., Any]]
CASES: dict[str, Case] = {
    "residual and norm": (
        lambda x, y, w: (x + y, layer_norm(x + y, w, w)),
        lambda x, y, w: (x + y, numpy_norm(x + y, w, w)),
    ),
    "norm and residual": (
        lambda x, y, w: (layer_norm(x, w, w) + y,),
        lambda x, y, w: (numpy_norm(x, w, w) + y,),
    ),
    "rms norm": (
        lambda x, y, w: (rms_norm(x + y, w) * 0.3,),
        lambda x, y, w: (
            (x + y) / np.sqrt(((x + y) ** 2).mean(-1, keepdims=True) + 1e-6) * w * 0.3,
        ),
    ),
    "no weight": (
        lambda x, y, w: (layer_norm(x * y),),
        lambda x, y, w: (numpy_norm(x * y, 1.0, 0.0),),
    ),
    "scale, mask and softmax": (
        lambda x, y, w: (where(y > 0.2, x * 0.7, -1e4).softmax(-1),),
        lambda x, y, w: (numpy_softmax(np.where(y > 0.2, x * 0.7, -1e4)),),
    ),
    "log_softmax": (
        lambda x, y, w: (-apply("log_softmax", x * 3 + y, axis=-1),),
        lambda x, y, w: (-np.log(numpy_softmax(x * 3 + y)),),
    ),
}


@pytest.mark.turns(6)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CASES)
def test_they_are_one_step_no_less_exact(name: str, shape: tuple[int, ...], dtype: str) -> None:
    function, reference = CASES[name]
    sizes = (shape, shape, shape[-1:])
    given = [cb.tensor(RNG.uniform(0.1, 1, s)).astype(dtype) for s in sizes]
    with record(*given) as recorder:
        eager = function(*given)
    graph = optimise(recorder.graph(*eager))
    assert steps_of(graph) == ["fused_rows"]
    wanted = reference(*(t.astype("f64").numpy() for t in given))
    limit = {"f32": 4e-6, "f64": 1e-13, "f16": 1e-3, "bf16": 8e-3}[dtype]
    for found, alone, want in zip(execute(graph, recorder.inputs), eager, wanted, strict=True):
        assert found.dtype is alone.dtype and found.shape == alone.shape
        scale = np.abs(want).max()
        errors = [np.abs(t.astype("f64").numpy() - want).max() / scale for t in (found, alone)]
        assert errors[0] <= max(limit, 1.01 * errors[1])


def some(*shape: int) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32))


def test_on_their_own_they_stay_the_librarys() -> None:
    x, w = some(6, 40), some(40)
    with record(x, w) as recorder:
        outputs = x.softmax(-1), layer_norm(x, w, w), (x * 2).softmax(0)
    steps = steps_of(optimise(recorder.graph(*outputs)))
    assert sorted(steps) == ["layer_norm", "mul", "softmax", "softmax"]


def test_long_rows_of_few_elements_stay_the_librarys() -> None:
    """The first cache holds what lies between the two launches."""
    for shape, together in (((1, 8000), False), ((8, 2048), False), ((8, 1024), True)):
        x, y = some(*shape), some(*shape)
        with record(x, y) as recorder:
            outputs = layer_norm(x + y), (x * 0.5).softmax(-1)
        steps = steps_of(optimise(recorder.graph(*outputs)))
        assert ("fused_rows" in steps) == together and ("layer_norm" in steps) != together


@pytest.mark.parametrize("columns", [24, 5000])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_what_later_walks_read_again(dtype: str, columns: int) -> None:
    """Values of several rows are kept, in a result or in a buffer; results are read again."""
    given = [cb.tensor(RNG.standard_normal((9, columns)), dtype) for _ in range(3)]

    def program(x: Any, y: Any, z: Any) -> Any:
        both = x + y * z
        low = both - both.mean(axis=-1, keepdims=True)
        return (
            both,
            low * 2,
            (low * low).sum(axis=-1),
            (low / (low * low + y).max(-1, keepdims=True)),
        )

    with record(*given) as recorder:
        eager = program(*given)
    graph = optimise(recorder.graph(*eager))
    assert steps_of(graph) == ["fused_rows"]
    wide = program(*(t.astype("f64") for t in given))
    for found, alone, want in zip(execute(graph, recorder.inputs), eager, wide, strict=True):
        right = want.numpy()
        errors = [np.abs(t.astype("f64").numpy() - right).max() for t in (found, alone)]
        assert errors[0] <= max(1.1 * errors[1], 3e-5 * np.abs(right).max())
    if dtype != "bf16":
        np.testing.assert_array_equal(execute(graph, recorder.inputs)[0].numpy(), eager[0].numpy())


def test_a_small_epsilon_counts_in_16_bits() -> None:
    zeros = cb.tensor(np.zeros((4, 40))).astype("f16")
    with record(zeros) as recorder:
        y = layer_norm(zeros + zeros, eps=1e-12)
    graph = optimise(recorder.graph(y))
    assert steps_of(graph) == ["fused_rows"]
    np.testing.assert_array_equal(execute(graph, [zeros])[0].numpy(), np.zeros((4, 40)))


def test_what_is_hidden_has_no_weight_and_nan_stays() -> None:
    x = RNG.standard_normal((5, 40)).astype(np.float32)
    x[1, 3], x[2, 5], x[3] = np.nan, -np.inf, -np.inf
    t = cb.tensor(x)
    with record(t) as recorder:
        y = (t * 0.5).softmax(-1)
    graph = optimise(recorder.graph(y))
    found = execute(graph, [t])[0].numpy()
    assert steps_of(graph) == ["fused_rows"]
    np.testing.assert_array_equal(np.isnan(found), np.isnan(y.numpy()))
    assert found[2, 5] == 0 and np.isnan(found[3]).all()


def test_one_that_would_be_parted_stays_whole() -> None:
    """Its result is a way from the map to a step that the map's group has to wait for."""
    x, w = some(8, 8), some(8, 8)
    with record(x, w) as recorder:
        base = x * 0.5
        steps = [base.softmax(-1)]
        for _ in range(3):
            steps.append((steps[-1] @ w + base).softmax(-1))
        y = sum(steps[1:], steps[0])
    graph = optimise(recorder.graph(y))
    assert not {"max", "exp", "reciprocal"} & set(steps_of(graph))
    np.testing.assert_allclose(execute(graph, recorder.inputs)[0].numpy(), y.numpy(), rtol=1e-5)


def test_programs_and_their_gradients_are_those_of_the_function() -> None:
    def block(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        z = layer_norm(x + y, w, w)
        return (((z @ z.permute(1, 0)) * 0.2).softmax(-1) @ z + x).sum()

    given = [some(12, 24) for _ in range(2)] + [some(24)]
    found = []
    for call in (block, cb.jit(block)):
        for _ in range(3):
            leaves = [cb.tensor(t.numpy(), requires_grad=True) for t in given]
            value = call(*leaves)
            value.backward()
        found.append([value.numpy(), *(t.grad.numpy() for t in leaves)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)
