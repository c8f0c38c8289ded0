"""L-BFGS beside what PyTorch gives for the same function, and where it must end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.nn.optim import LBFGS

START = [-1.2, 1.0, -0.5, 0.8, 1.4, -0.3]
TORCH: list[tuple[dict[str, Any], int, list[float], list[float]]] = [
    (
        {"line_search_fn": "strong_wolfe"},
        71,
        [850.4199999999998, 4.8160272348341735, 0.2790451817154554],
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    ),
    (
        {"lr": 0.05, "max_iter": 10},
        60,
        [850.4199999999998, 447.1653682096319, 227.1522464284706, 84.52860551935959,
         22.379760256447646, 9.166650460942439],
        [-0.9318417761328457, 0.8912704027828814, 0.8286116610019195, 0.7658924039205062,
         0.684842978639442, 0.478138769206706],
    ),
    (
        {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 7},
        49,
        [850.4199999999998, 6.080804285088632, 5.584615190531473, 4.907711190110483,
         3.2352204678494116, 1.8009794421658916],
        [0.9483732868317145, 0.8944181853770379, 0.801479421182498, 0.6380651406265014,
         0.3868124500578688, 0.10899389424375777],
    ),
]  # fmt: skip
"""Of Rosenbrock's chain in f64: options, calls of the closure, losses before each of six steps, and
where the last one ended (torch 2.13)."""


def rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize(("options", "calls", "losses", "last"), TORCH)
def test_losses_are_those_of_torch(
    options: Any, calls: int, losses: list[float], last: list[float], program: bool
) -> None:
    x = nn.Parameter(np.array(START))
    optimizer = LBFGS([x], **options)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        return loss

    if program:

        @cb.jit
        def gradients() -> Any:
            return cb.value_and_grad(rosenbrock)(x)

        def closure() -> Any:
            loss, x.grad = gradients()
            return loss

    found = [float(optimizer.step(closure)) for _ in range(6)]
    np.testing.assert_allclose(found[: len(losses)], losses, rtol=1e-7)
    np.testing.assert_allclose(x.detach().numpy(), last, rtol=1e-5)
    state = optimizer.state[x]
    if len(losses) == 6:
        assert state["func_evals"] == calls
    assert len(state["old_dirs"]) <= options.get("history_size", 100)


def test_a_loaded_state_goes_on_as_before() -> None:
    def closure(x: Any, optimizer: Any) -> Any:
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        return loss

    ends = []
    for stop in (None, 2):
        x = nn.Parameter(np.array(START))
        optimizer = LBFGS([x], max_iter=3, line_search_fn="strong_wolfe")
        for n in range(5):
            if n == stop:
                state = optimizer.state_dict()
                optimizer = LBFGS([x], max_iter=7)
                optimizer.load_state_dict(state)
            optimizer.step(lambda x=x, o=optimizer: closure(x, o))
        ends.append(x.detach().numpy())
    np.testing.assert_array_equal(*ends)


def test_several_parameters_without_gradients_and_a_flat_start() -> None:
    x, y, alone = nn.Parameter(np.ones((2, 3))), nn.Parameter(np.array(4.0)), nn.Parameter([7.0])
    optimizer = LBFGS([x, alone, y], line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((x - 3) ** 2).sum() + (y + 1) ** 4
        loss.backward()
        return loss

    for _ in range(3):
        last = optimizer.step(closure)
    assert last.item() < 1e-9 and alone.item() == 7.0
    np.testing.assert_allclose(x.detach().numpy(), 3.0, rtol=1e-5)
    before = optimizer.state[x]["n_iter"]
    x.assign_(np.full((2, 3), 3.0))
    y.assign_(np.array(-1.0))
    optimizer.step(closure)  # the gradient is zero: nothing is done
    assert optimizer.state[x]["n_iter"] == before
