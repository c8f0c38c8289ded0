"""Ops on the library's larger kernels on a GPU: gradients, and theirs, like those on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from tests.tensor.library_ops import CALLS

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_those_of_a_cpu(name: str, dtype: str) -> None:
    function, shapes = CALLS[name]
    if name == "attention" and dtype == "f64":
        pytest.skip("attention is computed in f32 at most")
    numbers = tuple(range(len(shapes)))

    def total(*given: Any) -> Any:
        y = function(*given)
        return (y * y).sum()

    def twice(*given: Any) -> Any:
        return sum((g * g).sum() for g in cb.grad(total, numbers)(*given))

    limit = 5e-4 if dtype == "f32" else 1e-11
    for f in (cb.grad(total, numbers), cb.grad(twice, numbers)):
        for _ in range(3):
            inputs = [RNG.standard_normal(s) for s in shapes]
            there = f(*(cb.tensor(x, dtype, device="cuda") for x in inputs))
            here = f(*(cb.tensor(x, dtype) for x in inputs))
            for a, b in zip(there, here, strict=True):
                scale = max(1.0, float(np.abs(b.numpy()).max()))
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=limit * scale)
