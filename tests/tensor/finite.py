"""Gradients beside differences of values: what tests of ops compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cb

STEP = 1e-5
FIRST, SECOND = 2e-8, 2e-6
"""Relative errors of central differences of f64 that are their own."""


def check_gradients(function: Callable[..., Any], *inputs: np.ndarray, second: bool = True) -> None:
    """Compare the gradients of `function` by all inputs, and theirs, with differences in f64.

    The result is weighed with random numbers, so that no part of it goes unseen.
    """
    rng = np.random.default_rng(1)
    weights: list[Any] = []

    def weighed(*given: Any) -> Any:
        y = function(*given)
        if not weights:
            weights.append(cb.tensor(rng.uniform(0.5, 1.5, y.shape)))
        return (y * weights[0]).sum()

    numbers = tuple(range(len(inputs)))
    found = cb.grad(weighed, numbers)(*(cb.tensor(x) for x in inputs))
    _same(weighed, inputs, [g.numpy() for g in found], FIRST)
    if not second:
        return
    directions = [cb.tensor(rng.uniform(-1, 1, x.shape)) for x in inputs]

    def along(*given: Any) -> Any:
        grads = cb.grad(weighed, numbers)(*given)
        total = None
        for g, d in zip(grads, directions, strict=True):
            part = (g * d).sum()
            total = part if total is None else total + part
        return total

    found = cb.grad(along, numbers)(*(cb.tensor(x) for x in inputs))
    _same(along, inputs, [g.numpy() for g in found], SECOND)


def _same(
    function: Callable[..., Any],
    inputs: tuple[np.ndarray, ...],
    found: list[np.ndarray],
    limit: float,
) -> None:
    for n, (x, grad) in enumerate(zip(inputs, found, strict=True)):
        want = np.empty(x.shape)
        for at in np.ndindex(*x.shape):
            values = []
            for step in (STEP, -STEP):
                moved = [v.copy() for v in inputs]
                moved[n][at] += step
                values.append(function(*map(cb.tensor, moved)).item())
            want[at] = (values[0] - values[1]) / (2 * STEP)
        assert grad.shape == x.shape
        scale = max(np.abs(want).max(initial=0.0), 1.0)
        assert np.abs(grad - want).max(initial=0.0) <= limit * scale, (n, grad, want)
