"""Normalisations as ops: values by NumPy's formulas, first and second derivatives, running
statistics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import ShapeError
from cubepy.nn import functional as F
from cubepy.tensor import apply
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(14)
EPS = 1e-3


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape)


def normalised(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    var = x.var(axis=axes, keepdims=True)
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(var + EPS)


def same(got: Any, want: np.ndarray) -> None:
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_rms_norm(shape: tuple[int, ...]) -> None:
    x, w = some(2, 3, 4), some(*shape)
    axes = tuple(range(3 - len(shape), 3))

    def norm(x: Any, w: Any) -> Any:
        return apply("rms_norm", x, w, normalized_shape=shape, eps=EPS)

    mean = (x * x).mean(axis=axes, keepdims=True)
    same(norm(cb.tensor(x), cb.tensor(w)), x / np.sqrt(mean + EPS) * w)
    check_gradients(norm, x, w)
    check_gradients(lambda x: norm(x, None), x)


def test_layer_norm_without_weights() -> None:
    x = some(3, 5)
    check_gradients(lambda x: apply("layer_norm", x, None, None, normalized_shape=(5,), eps=EPS), x)


@pytest.mark.parametrize("shape", [(2, 4, 3), (1, 6, 2, 2), (3, 2)])
def test_group_norm(shape: tuple[int, ...]) -> None:
    x, w, b = some(*shape), some(shape[1]), some(shape[1])

    def norm(x: Any, w: Any, b: Any) -> Any:
        return apply("group_norm", x, w, b, groups=2, eps=EPS)

    along = (-1, *(1,) * (len(shape) - 2))
    rows = normalised(x.reshape(shape[0] * 2, -1), (1,)).reshape(shape)
    want = rows * w.reshape(along) + b.reshape(along)
    same(norm(cb.tensor(x), cb.tensor(w), cb.tensor(b)), want)
    check_gradients(norm, x, w, b)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (2, 2, 2, 3)])
def test_batch_norm_of_a_batch(shape: tuple[int, ...]) -> None:
    x, w, b = some(*shape), some(shape[1]), some(shape[1])
    axes = (0, *range(2, len(shape)))

    def norm(x: Any, w: Any, b: Any) -> Any:
        return apply("batch_norm", x, w, b, eps=EPS)

    along = (-1, *(1,) * (len(shape) - 2))
    y, mean, var = norm(cb.tensor(x), cb.tensor(w), cb.tensor(b))
    same(y, normalised(x, axes) * w.reshape(along) + b.reshape(along))
    same(mean, x.mean(axis=axes))
    same(var, x.var(axis=axes))
    check_gradients(lambda *given: norm(*given)[0], x, w, b)
    check_gradients(lambda x: norm(x, None, None)[0], x)

    def all_results(x: Any, w: Any, b: Any) -> Any:
        y, mean, var = norm(x, w, b)
        return y.sin().sum(axis=axes) + mean.exp() * var

    check_gradients(all_results, x, w, b)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 2)])
def test_batch_norm_by_given_statistics(shape: tuple[int, ...]) -> None:
    x, mean, var = some(*shape), some(shape[1]), some(shape[1]) ** 2 + 0.3
    w, b = some(shape[1]), some(shape[1])

    def norm(*given: Any) -> Any:
        return apply("channel_norm", *given, eps=EPS)

    along = (-1, *(1,) * (len(shape) - 2))
    m, v, ww, bb = (a.reshape(along) for a in (mean, var, w, b))
    want = (x - m) / np.sqrt(v + EPS) * ww + bb
    same(norm(*map(cb.tensor, (x, mean, var, w, b))), want)
    check_gradients(norm, x, mean, var, w, b)


def test_repetitions_normalise_what_they_are_given() -> None:
    w, b = cb.tensor(some(3)), cb.tensor(some(3))
    for _ in range(5):
        x = some(4, 3, 2)
        y = apply("batch_norm", cb.tensor(x), w, b, eps=EPS)[0]
        want = normalised(x, (0, 2)) * w.numpy()[:, None] + b.numpy()[:, None]
        same(y, want)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_running_statistics_move_as_the_librarys(dtype: str) -> None:
    mean, var = np.zeros(3, np.float32), np.ones(3, np.float32)
    tensors, plain = (cb.tensor(mean.copy()), cb.tensor(var.copy())), (mean.copy(), var.copy())
    given = [mean.copy(), var.copy()]
    for _ in range(3):
        x = some(8, 3, 2).astype(np.float32)
        want = K.batch_norm(cb.tensor(x, dtype).numpy(), *plain, training=True)
        a = cb.tensor(x, dtype, requires_grad=True)
        y = K.batch_norm(a, *tensors, training=True)
        K.batch_norm(a, *given, training=True)
        assert y.requires_grad and not tensors[0].requires_grad
        np.testing.assert_allclose(
            y.numpy(), want, rtol=2e-3 if dtype == "f16" else 1e-5, atol=1e-3
        )
    for got, other, right in zip(tensors, given, plain, strict=True):
        np.testing.assert_allclose(got.numpy(), right, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other, right, rtol=1e-5, atol=1e-6)
    a = K.batch_norm(cb.tensor(x, requires_grad=True), *tensors)
    np.testing.assert_allclose(a.numpy(), K.batch_norm(x, *plain), rtol=1e-4, atol=1e-4)


def test_what_is_refused() -> None:
    x = cb.tensor(some(2, 3), requires_grad=True)
    with pytest.raises(ShapeError, match="in 2 groups"):
        K.group_norm(x, 2)
    with pytest.raises(ShapeError, match="needs running_mean"):
        K.batch_norm(x, None, None)
    with pytest.raises(ShapeError, match="expected a weight of shape"):
        K.batch_norm(x, None, None, cb.tensor(some(2)), training=True)
    with pytest.raises(ShapeError, match="ends with"):
        K.rms_norm(x, 4)


NARROW = {"f16": 1e-3, "bf16": 8e-3}
NORMS: dict[str, Any] = {
    "layer": lambda x, w, b: F.layer_norm(x.movedim(1, -1), (x.shape[1],), w, b),
    "rms": lambda x, w, b: F.rms_norm(x.movedim(1, -1), (x.shape[1],), w) + b,
    "group": lambda x, w, b: F.group_norm(x, 4, w, b),
    "batch": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
}


@pytest.mark.parametrize("spread", [1, 100, 400])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", NORMS)
def test_gradients_of_narrow_floats_round_only_what_they_give(
    name: str, dtype: str, spread: float
) -> None:
    """Squares of 300 are more than f16 has."""
    rng = np.random.default_rng(7)
    drawn = [rng.standard_normal(s) for s in ((3, 16, 9, 9), (16,), (16,))]
    given = [cb.tensor(v).astype(dtype).detach() for v in (drawn[0] * spread, *drawn[1:])]
    seed = cb.tensor(rng.standard_normal(NORMS[name](*given).shape)).astype(dtype)

    def step(*leaves: Any) -> Any:
        y = NORMS[name](*leaves)
        y.backward(seed.astype(y.dtype))
        return tuple(leaf.grad for leaf in leaves)

    def gradients(run: Any, kind: str) -> list[np.ndarray]:
        leaves = [cb.tensor(v.numpy().astype(np.float64)).astype(kind) for v in given]
        found = run(*[leaf.detach().requires_grad_() for leaf in leaves])
        return [g.numpy().astype(np.float64) for g in found]

    want = gradients(step, "f64")
    for run in (step, cb.jit(step)):
        for got, wanted in zip(gradients(run, dtype), want, strict=True):
            off = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
            assert off <= NARROW[dtype], off
