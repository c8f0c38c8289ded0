"""Gradients that nobody has looked at yet: as if a tensor had been made of each at once."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.tensor.value import Pending

RNG = np.random.default_rng(0)


def parameter(*shape: int) -> Any:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32), requires_grad=True)


def step_of(w: Any, b: Any) -> Callable[[Any], Any]:
    @cb.jit
    def step(x: Any) -> Any:
        w.grad = b.grad = None
        loss = ((x @ w + b).tanh() ** 2).sum()
        loss.backward()
        return loss

    return step


@pytest.fixture
def trained() -> tuple[Any, Any, Any, Callable[[Any], Any]]:
    """Two parameters with gradients that are pending, an input, and what gave them."""
    w, b, x = parameter(6, 4), parameter(4), cb.tensor(RNG.standard_normal((3, 6)), "f32")
    step = step_of(w, b)
    for _ in range(4):
        step(x)
    assert type(w._grad) is type(b._grad) is Pending
    return w, b, x, step


def by_hand(w: Any, b: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    w, b, x = (t.detach().numpy().astype(np.float64) for t in (w, b, x))
    t = np.tanh(x @ w + b)
    inner = 2 * t * (1 - t * t)
    return x.T @ inner, inner.sum(0)


def test_whoever_looks_gets_the_same_tensor(trained: Any) -> None:
    w, b, x, _ = trained
    for handle, want in zip((w, b), by_hand(w, b, x), strict=True):
        assert handle.grad is handle.grad
        np.testing.assert_allclose(handle.grad.numpy(), want, rtol=1e-5, atol=1e-6)
        assert handle.grad.dtype == cb.f32 and handle.grad.shape == handle.shape
        assert not handle.grad.requires_grad


def test_the_next_call_gives_others(trained: Any) -> None:
    w, b, x, step = trained
    before = w.grad
    had = before.numpy().copy()
    step(x * 2)
    np.testing.assert_array_equal(before.numpy(), had)
    np.testing.assert_allclose(w.grad.numpy(), by_hand(w, b, x * 2)[0], rtol=1e-5, atol=1e-6)


def test_steps_of_optimizers_clipping_and_sums_read_them(trained: Any) -> None:
    w, b, x, step = trained
    want = by_hand(w, b, x)
    norm = nn.utils.clip_grad_norm_([w, b], 1e9)
    np.testing.assert_allclose(float(norm), np.sqrt(sum((g**2).sum() for g in want)), rtol=1e-5)
    step(x)
    ((x @ w + b).tanh() ** 2).sum().backward()  # adds to what is there
    np.testing.assert_allclose(w.grad.numpy(), 2 * want[0], rtol=1e-5, atol=1e-6)
    step(x)
    before = w.numpy().copy()
    nn.optim.SGD([w, b], lr=0.5).step()
    np.testing.assert_allclose(w.numpy(), before - 0.5 * want[0], rtol=1e-5, atol=1e-5)


def test_programs_read_them(trained: Any) -> None:
    w, b, x, step = trained
    optimizer = nn.optim.SGD([w, b], lr=0.1)
    update = cb.jit(optimizer.step)
    other, beside = (cb.tensor(t.numpy(), requires_grad=True) for t in (w, b))
    alone, plain = step_of(other, beside), nn.optim.SGD([other, beside], lr=0.1)
    for _ in range(4):
        step(x), update()
        alone(x), plain.step()
    np.testing.assert_array_equal(w.numpy(), other.numpy())
    np.testing.assert_array_equal(b.numpy(), beside.numpy())


def test_programs_that_add_to_them() -> None:
    w, x = parameter(5, 3), cb.tensor(RNG.standard_normal((2, 5)), "f32")

    @cb.jit
    def add() -> Any:
        (x @ w).sum().backward()

    for n in range(1, 5):
        add()
        want = n * np.repeat(x.numpy().astype(np.float64).sum(0)[:, None], 3, 1)
        np.testing.assert_allclose(w.grad.numpy() if n % 2 else gradient(w), want, rtol=1e-5)


def gradient(w: Any) -> np.ndarray:
    return np.asarray(w.grad)


def test_copies_and_pickles_have_them(trained: Any) -> None:
    w, b, x, step = trained
    want = by_hand(w, b, x)[0]
    for made in (copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))):
        step(x)
        np.testing.assert_allclose(made(w).grad.numpy(), want, rtol=1e-5, atol=1e-6)


def test_given_and_cleared_by_hand(trained: Any) -> None:
    w, b, x, step = trained
    w.grad = cb.tensor(np.zeros((6, 4), np.float32))
    assert not w.grad.numpy().any() and b.grad is not None
    step(x)
    w.grad = None
    assert w.grad is None and b.grad is not None


def test_a_tensor_that_has_two_handles_gradient() -> None:
    """The gradient of a sum is one tensor for both of its terms, or two of the same elements."""
    w, b = parameter(7), parameter(7)

    @cb.jit
    def step() -> Any:
        w.grad = b.grad = None
        ((w + b) ** 2).sum().backward()

    for _ in range(4):
        step()
    want = 2 * (w.detach() + b.detach()).numpy()
    np.testing.assert_allclose(w.grad.numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(b.grad.numpy(), want, rtol=1e-6)


def test_results_are_tensors_at_once(trained: Any) -> None:
    w, x = parameter(4, 2), cb.tensor(RNG.standard_normal((3, 4)), "f32")

    @cb.jit
    def step() -> Any:
        w.grad = None
        (x @ w).sum().backward()
        return w.grad

    for _ in range(4):
        assert step() is w.grad


def test_memory_goes_with_the_last_handle(trained: Any) -> None:
    w, b, x, step = trained
    step(x)
    held = [weakref.ref(a) for a in w._grad.arrays]
    w.grad = None
    b.grad = None
    gc.collect()
    assert [r() for r in held] == [None] * len(held)


def test_large_ones_are_not_kept_by_small_ones() -> None:
    w, b, x = parameter(256, 300), parameter(300), cb.tensor(RNG.standard_normal((2, 256)), "f32")
    step = step_of(w, b)
    for _ in range(4):
        step(x)
    assert type(b._grad) is Pending and type(w._grad) is cb.Tensor
