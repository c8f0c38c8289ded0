"""First values that are given in place: their distributions, seeds and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cubepy import nn
from cubepy.errors import ArgumentError, LaunchError, ShapeError
from cubepy.nn import init


def weight(dtype: str = "f32") -> Any:
    return nn.Parameter(np.zeros((200, 50, 3), np.float32)).take_over_(
        np.full((200, 50, 3), 7, np.float32).astype({"f32": "f4", "f16": "f2"}[dtype])
    )


UNIFORM = {
    "uniform": (lambda w: init.uniform_(w, -0.5, 0.5), 0.5),
    "xavier": (lambda w: init.xavier_uniform_(w, 2.0), 2 * math.sqrt(6 / (150 + 600))),
    "kaiming": (lambda w: init.kaiming_uniform_(w, a=math.sqrt(5)), 1 / math.sqrt(150)),
    "kaiming_out": (
        lambda w: init.kaiming_uniform_(w, mode="fan_out", nonlinearity="relu"), math.sqrt(6 / 600)
    ),
}  # fmt: skip
NORMAL = {
    "normal": (lambda w: init.normal_(w, 1.0, 0.5), 1.0, 0.5),
    "xavier": (lambda w: init.xavier_normal_(w, 0.5), 0.0, 0.5 * math.sqrt(2 / 750)),
    "kaiming": (lambda w: init.kaiming_normal_(w, nonlinearity="tanh"), 0.0, 5 / 3 / 150**0.5),
    "truncated": (lambda w: init.trunc_normal_(w, std=0.02), 0.0, 0.02),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_flat_ones_fill_their_range(name: str) -> None:
    fill, bound = UNIFORM[name]
    w = weight()
    assert fill(w) is w and w.requires_grad
    values = w.numpy()
    assert abs(values).max() <= bound * (1 + 1e-6) and abs(values).max() > 0.99 * bound
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.03)


@pytest.mark.parametrize("name", NORMAL)
def test_normal_ones_have_their_mean_and_deviation(name: str) -> None:
    fill, mean, std = NORMAL[name]
    values = fill(weight("f16")).numpy().astype(np.float64)
    assert values.mean() == pytest.approx(mean, abs=0.05 * std)
    assert values.std() == pytest.approx(std, rel=0.03)


@pytest.mark.parametrize("ends", [(-2.0, 2.0), (0.5, 0.6), (3.0, 9.0), (-1.0, -1.0)])
def test_truncated_ones_lie_in_their_range(ends: tuple[float, float]) -> None:
    a, b = ends
    values = init.trunc_normal_(weight(), a=a, b=b).numpy().astype(np.float64)
    assert values.min() >= a - 1e-6 and values.max() <= b + 1e-6

    def phi(x: float) -> float:
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    mass = (math.erf(b / 2**0.5) - math.erf(a / 2**0.5)) / 2
    want = (phi(a) - phi(b)) / mass if mass else a
    assert values.mean() == pytest.approx(want, abs=0.02 * (b - a) + 1e-6)


def test_orthogonal_ones_and_constants() -> None:
    w = init.orthogonal_(weight(), 2.0).numpy().reshape(200, 150)
    np.testing.assert_allclose(w.T @ w, 4 * np.eye(150), atol=1e-4)
    layer = nn.Linear(3, 2)
    assert init.eye_(layer.weight).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert init.zeros_(layer.bias).tolist() == [0, 0]
    assert init.ones_(layer.bias).tolist() == [1, 1]
    assert init.constant_(layer.bias, -2).tolist() == [-2, -2]


def test_seeds_say_the_values() -> None:
    init.manual_seed(3)
    first = init.normal_(nn.Linear(4, 4).weight).numpy()
    init.manual_seed(3)
    assert np.array_equal(init.normal_(nn.Linear(4, 4).weight).numpy(), first)
    given = [
        init.uniform_(nn.Linear(4, 4).weight, generator=np.random.default_rng(1)) for _ in "ab"
    ]
    assert np.array_equal(given[0], given[1])


def test_layers_are_filled_by_apply() -> None:
    def fill(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            init.zeros_(module.bias)

    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).apply(fill)
    net(np.ones((1, 4), np.float32)).sum().backward()
    assert not net[0].bias.numpy().any() and net[0].weight.grad is not None


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: init.zeros_(5), "tensors of floats, not to 5"),
    (lambda: init.zeros_(nn.Parameter(np.arange(3), False)), "tensors of floats"),
    (lambda: init.xavier_uniform_(nn.Linear(2, 2).bias), r"at least 2 axes, not .*\(2,\)"),
    (lambda: init.eye_(weight()), "eye_ takes 2 axes"),
    (lambda: init.kaiming_normal_(weight(), mode="out"), "'fan_in' or 'fan_out', not 'out'"),
    (lambda: init.kaiming_normal_(weight(), nonlinearity="swish"), "no gain is known of 'swish'"),
    (lambda: init.uniform_(weight(), 1, 0), "from a=1.0 to b=0.0 are none"),
    (lambda: init.normal_(weight(), std=-1), "std must be at least 0"),
    (lambda: init.trunc_normal_(weight(), a=100, b=200), "no numbers from 100.0 to 200.0"),
    (lambda: init.normal_(weight(), generator=3), "generator must be NumPy's, not 3"),
]


@pytest.mark.parametrize("n", range(len(WRONG)))
def test_wrong_arguments_are_named(n: int) -> None:
    make, rule = WRONG[n]
    with pytest.raises((ArgumentError, LaunchError, ShapeError), match=rule):
        make()
