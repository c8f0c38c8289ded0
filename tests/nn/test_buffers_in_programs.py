"""Modules whose buffers move while they train, inside programs: the buffers are states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.tensor import Tensor

LAST_BITS: dict[str, Any] = {"rtol": 2e-6, "atol": 2e-7}
"""A norm that trains is one op outside of programs, which fuse its formula."""


def network(momentum: float | None) -> nn.Module:
    rng = np.random.default_rng(5)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4, momentum=momentum), nn.ReLU(), nn.Flatten(),
        nn.Linear(64, 5), nn.BatchNorm1d(5, momentum=momentum),
    )  # fmt: skip
    with cb.no_grad():
        for p in net.parameters():
            p.assign_(rng.standard_normal(p.shape).astype(np.float32) * 0.3)
    return net


def step_of(net: nn.Module) -> Callable[[Tensor], Tensor]:
    parameters = list(net.parameters())

    def step(x: Tensor) -> Tensor:
        for p in parameters:
            p.grad = None
        y = net(x)
        loss = (y * y * y).mean()
        loss.backward()
        with cb.no_grad():
            for p in parameters:
                p -= p.grad * 0.05
        return loss

    return step


def images(n: int) -> Tensor:
    return cb.tensor(np.random.default_rng(n).standard_normal((6, 2, 6, 6)).astype(np.float32))


def equal(one: nn.Module, other: nn.Module) -> None:
    others = other.state_dict()
    for name, value in one.state_dict().items():
        np.testing.assert_allclose(value.numpy(), others[name].numpy(), **LAST_BITS, err_msg=name)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_ten_training_steps_are_those_of_the_function_with_one_trace(
    momentum: float | None,
) -> None:
    ours, theirs = network(momentum), network(momentum)
    program, function = cb.jit(step_of(ours)), step_of(theirs)
    for n in range(10):
        found, wanted = program(images(n)).numpy(), function(images(n)).numpy()
        np.testing.assert_allclose(found, wanted, **LAST_BITS)
        equal(ours, theirs)
    assert ours[1].num_batches_tracked.item() == 10
    assert sum(program.traces.values()) == 1
    assert "one call of machine code" in program.explain()


def test_gradients_may_go_through_a_program_whose_running_values_move() -> None:
    ours, theirs = network(0.1), network(0.1)
    program = cb.jit(ours)
    for n in range(5):
        for net, run in ((ours, program), (theirs, theirs)):
            for p in net.parameters():
                p.grad = None
            (run(images(n)) ** 3).mean().backward()
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5, atol=1e-6)
        equal(ours, theirs)


def test_train_and_eval_are_traced_once_each_and_only_training_moves_the_values() -> None:
    ours, theirs = network(0.1), network(0.1)
    with cb.no_grad():
        program = cb.jit(ours)
        for n in range(12):
            for net in (ours, theirs):
                net.train(n % 4 < 2)
            found, wanted = program(images(n)).numpy(), theirs(images(n)).numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)  # norms in filters
            equal(ours, theirs)
    assert ours[1].num_batches_tracked.item() == 6
    assert sum(program.traces.values()) == 2


def test_running_values_that_are_loaded_are_those_that_move_on() -> None:
    net, other = network(0.1), network(0.1)
    with cb.no_grad():
        program = cb.jit(net)
        for n in range(4):
            program(images(n))
        net.load_state_dict(other.state_dict())
        for n in range(4):
            program(images(n)), other(images(n))
    equal(net, other)
    assert other[1].num_batches_tracked.item() == 4


def test_a_clone_has_running_values_of_its_own() -> None:
    net = network(0.1)
    copy = net.clone()
    with cb.no_grad():
        net(images(0))
    assert (net[1].num_batches_tracked.item(), copy[1].num_batches_tracked.item()) == (1, 0)
    np.testing.assert_array_equal(copy[1].running_mean.numpy(), np.zeros(4))


class Averaged(nn.Module):
    """A module of a user, whose buffer is given another value."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place
        self.register_buffer("mean", np.zeros(3, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        if self.place == "assign":
            self.mean.assign_(self.mean * 0.9 + x * 0.1)
        elif self.place == "augmented":
            self.mean *= 0.9
        else:
            self.mean = self.mean * 0.9 + x * 0.1
        return x - self.mean


@pytest.mark.parametrize("place", ["assign", "augmented", "rebound"])
def test_buffers_of_users_move_on_however_they_are_changed(place: str) -> None:
    ours, theirs = Averaged(place), Averaged(place)
    program: Any = cb.jit(ours)
    for n in range(8):
        x = cb.tensor(np.full(3, n, np.float32))
        np.testing.assert_array_equal(program(x).numpy(), theirs(x).numpy())
        np.testing.assert_array_equal(ours.mean.numpy(), theirs.mean.numpy())
    assert ("one call of machine code" in program.explain()) == (place != "rebound")
