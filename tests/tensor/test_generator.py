"""Explicit generators: the numbers of the library's, states that are tensors, dropout whose mask is
never stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import ArgumentError, DTypeError
from tests.tensor.finite import check_gradients


@pytest.mark.parametrize("size", [1, 5, 1001, (7, 3)])
def test_numbers_are_the_librarys(size: Any) -> None:
    for _ in range(4):  # computed, recorded, repeated
        g, k = cb.Generator(7), K.Generator(7)
        for dtype in ("f32", "f64", "f16", "bf16"):
            want = K.uniform(-1, 2, size, generator=k, dtype=dtype)
            assert (g.uniform(size, -1, 2, dtype).numpy() == want).all()
            want = K.normal(1, 2, size, generator=k, dtype=dtype)
            assert (g.normal(size, 1, 2, dtype).numpy() == want).all()
        for low, high in ((-5, 9), (-(2**40), 2**50)):
            want = K.randint(low, high, size, generator=k)
            assert (g.integers(low, high, size).numpy() == want).all()
        assert (g.bernoulli(0.3, size).numpy() == K.bernoulli(0.3, size, generator=k)).all()
        assert g.state.tolist() == [7, 0, k.offset]


def test_states_repeat_numbers() -> None:
    g = cb.Generator(-3, stream=5)
    before = g.state
    first = g.normal((4, 5)).tolist()
    assert g.normal((4, 5)).tolist() != first
    g.state = before
    assert g.normal((4, 5)).tolist() == first
    assert repr(g) == f"Generator(seed={2**64 - 3}, stream=5, block=5, device=cpu)"


def test_the_python_backend_draws_the_same() -> None:
    with cb.use("python"):
        slow = cb.Generator(3).uniform(9)
        kept = cb.Generator(3).dropout(cb.tensor(np.ones(9, np.float32)), 0.5)
    assert slow.tolist() == cb.Generator(3).uniform(9).tolist()
    assert kept.tolist() == cb.Generator(3).dropout(cb.tensor(np.ones(9, np.float32)), 0.5).tolist()


def test_permutations() -> None:
    g = cb.Generator(1)
    order = g.permutation(1000)
    assert sorted(order.tolist()) == list(range(1000)) and order.tolist() != list(range(1000))
    x = np.arange(12).reshape(3, 4)
    mixed = g.permutation(cb.tensor(x), axis=1).numpy()
    assert (np.sort(mixed, 1) == x).all()


def test_dropout_keeps_the_mean_and_no_mask() -> None:
    g = cb.Generator(2)
    x = cb.tensor(np.ones((300, 333)), requires_grad=True)
    y = g.dropout(x, 0.25)
    kept = (y != 0).numpy()
    assert abs(kept.mean() - 0.75) < 0.01 and np.allclose(y.numpy()[kept], 4 / 3)
    (y * 3).sum().backward()
    assert x.grad is not None and np.allclose(x.grad.numpy(), y.numpy() * 3)
    again = g.dropout(x, 0.25)
    assert (again.numpy() != y.numpy()).any()
    assert (g.dropout(x, 0).numpy() == 1).all() and (g.dropout(x, 1).numpy() == 0).all()
    state = g.state
    check_gradients(
        lambda t: cb.tensor.apply("dropout", t * t, state, p=0.4),
        np.random.default_rng(0).uniform(1, 2, (5, 6)),
    )
    turned = cb.tensor(np.arange(12.0).reshape(3, 4)).T
    g.state = state
    a = g.dropout(turned, 0.5)
    g.state = state
    assert (a.numpy() == g.dropout(turned.contiguous(), 0.5).numpy()).all()


def test_what_cannot_be_drawn_is_told() -> None:
    g = cb.Generator(2)
    with pytest.raises(ArgumentError, match="low < high"):
        g.integers(3, 3)
    with pytest.raises(ArgumentError, match="does not hold"):
        g.integers(0, 300, 3, "i8")
    with pytest.raises(DTypeError, match="uniform numbers are not i32"):
        g.uniform(3, dtype="i32")
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        g.dropout(cb.tensor([1.0]), 1.5)
    with pytest.raises(DTypeError, match="dropout is of floats"):
        g.dropout(cb.tensor([1]), 0.5)
