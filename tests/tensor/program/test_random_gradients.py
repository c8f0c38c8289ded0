"""Random gradients: as programs they are what they are op by op."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy import tensor as ns
from cubepy.tensor import Tensor

F = nn.functional
Step = Callable[[Any, Any], Tensor]


def rows_of(x: Tensor, count: int, seed: int) -> Tensor:
    """Indices along the last axis of a matrix."""
    found = np.random.default_rng(seed).integers(0, x.shape[1], (x.shape[0], count))
    return cb.tensor(found)


STEPS: dict[str, Step] = {
    "add": lambda x, y: x + y.mean(axis=1, keepdims=True),
    "mul": lambda x, y: x * y[:, :1],
    "tanh": lambda x, y: x.tanh(),
    "divide": lambda x, y: x / (y.max(axis=1, keepdims=True) ** 2 + 1),
    "where": lambda x, y: ns.where(x > 0.1, x, x * 0.5),
    "constant": lambda x, y: ns.full_like(x, 0.5) * x + ns.ones_like(x),
    "gather": lambda x, y: x.gather(1, rows_of(x, 5, 1)),
    "sort": lambda x, y: ns.sort(x, axis=-1),
    "take": lambda x, y: x[:, cb.tensor(np.array([0, -1, 0]))],
    "slice": lambda x, y: x[:, ::2],
    "concat": lambda x, y: ns.concat([x, y, x], axis=1),
    "flip": lambda x, y: ns.flip(x, axis=1),
    "roll": lambda x, y: ns.roll(x, 2, axis=1),
    "cumulative": lambda x, y: ns.cumulative_sum(x, axis=1) * 0.3,
    "softmax": lambda x, y: x.softmax(-1),
    "norm": lambda x, y: F.layer_norm(x, (x.shape[1],)),
    "product": lambda x, y: (x @ ns.matrix_transpose(x)) * 0.2 @ x,
    "turned": lambda x, y: ns.matrix_transpose(ns.matrix_transpose(x).tanh()),
    "window": lambda x, y: F.conv1d(
        x.reshape(1, *x.shape), cb.tensor(np.full((3, x.shape[0], 1), 0.2))
    ).reshape(3, -1).sum(axis=0, keepdims=True) + x,
    "maximum": lambda x, y: x.max(axis=1, keepdims=True) + x,
    "along": lambda x, y: x.mean(axis=1) - x if x.shape[0] == x.shape[1] else x,
    "variance": lambda x, y: x.var(axis=1, keepdims=True) + x,
}  # fmt: skip


def loss_of(names: list[str], picks: list[int]) -> Callable[..., Tensor]:
    """A scalar of the steps' values."""

    def loss(*inputs: Tensor) -> Tensor:
        values = list(inputs)
        for name, pick in zip(names, picks, strict=True):
            x, y = values[-1 - pick % len(values)], values[pick % len(values)]
            values.append(STEPS[name](x, y))
        return sum((v * v).sum() for v in values[len(inputs) :])  # type: ignore[return-value]

    return loss


@pytest.mark.parametrize("seed", range(20))
def test_gradients_of_programs_are_those_of_their_ops(seed: int) -> None:
    """In f64, called again and again: the memory of a program holds garbage before."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    names = [rng.choice(sorted(STEPS)) for _ in range(rng.randrange(1, 7))]
    loss = loss_of(names, [rng.randrange(4) for _ in names])
    rows, columns = rng.choice([(2, 33), (6, 6), (3, 7), (17, 17), (5, 64), (1, 4)])
    inputs = [cb.tensor(numbers.standard_normal((rows, columns))) for _ in range(3)]
    gradient = cb.grad(loss, argnums=(0, 1, 2))
    want = [g.numpy().copy() for g in gradient(*inputs)]
    program = cb.jit(gradient)
    for _ in range(3):
        for g, w in zip(program(*inputs), want, strict=True):
            assert np.abs(g.numpy() - w).max() <= 1e-11 * (1 + np.abs(w).max()), names
