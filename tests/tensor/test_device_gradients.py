"""Gradients on a device with its own memory, which is pretended: nothing is computed on the host,
and calls that came before do not lose gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import GradientError
from tests.pretend import NAME, PretendBackend, pretend
from tests.tensor.library_ops import CALLS

RNG = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendBackend]:
    """The pretended device."""
    with pretend(monkeypatch) as b:
        yield b


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_those_of_the_host(name: str) -> None:
    function, shapes = CALLS[name]
    numbers = tuple(range(len(shapes)))

    def total(*given: Any) -> Any:
        y = function(*given)
        return (y * y).sum()

    def twice(*given: Any) -> Any:
        return sum((g * g).sum() for g in cb.grad(total, numbers)(*given))

    for f in (cb.grad(total, numbers), cb.grad(twice, numbers)):
        for _ in range(3):
            inputs = [RNG.standard_normal(s).astype(np.float32) for s in shapes]
            there = f(*(cb.tensor(x, device=NAME) for x in inputs))
            here = f(*(cb.tensor(x) for x in inputs))
            for a, b in zip(there, here, strict=True):
                assert str(a.device) == NAME
                scale = max(1.0, float(np.abs(b.numpy()).max()))
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=2e-4 * scale)


def test_calls_that_came_before_keep_gradients() -> None:
    x = cb.tensor(RNG.standard_normal((4, 5)).astype(np.float32), device=NAME)
    for _ in range(4):
        want = K.softmax(x, 0)
    wanted = x.detach().requires_grad_()
    for _ in range(4):
        y = K.softmax(wanted, 0)
        assert y.requires_grad and str(y.device) == NAME
        np.testing.assert_array_equal(y.numpy(), want.numpy())
        with cb.no_grad():
            assert not K.softmax(wanted, 0).requires_grad
        assert not K.softmax(x, 0).requires_grad
    with pytest.raises(GradientError, match=r"x\.detach"):
        K.softmax(wanted, 0, out=x)
