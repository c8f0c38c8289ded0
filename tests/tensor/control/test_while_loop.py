"""Loops as long as data say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, GradientError, ShapeError
from cubepy.tensor import while_loop


def collatz(n: Any) -> Any:
    """How many steps a number takes to 1 (each is a round)."""

    def step(n: Any, count: Any) -> Any:
        return cb.tensor.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return while_loop(lambda n, count: n != 1, step, (n, cb.tensor(0)))[1]


@pytest.mark.parametrize("traced", [False, True])
def test_a_loop_runs_as_long_as_its_data_say(traced: bool) -> None:
    run = cb.jit(collatz) if traced else collatz
    for start, steps in ((1, 0), (6, 8), (27, 111), (6, 8)):
        assert run(cb.tensor(start)).item() == steps
    if traced:
        assert sum(run.traces.values()) == 1


def test_what_a_loop_reads_from_outside_is_that_of_the_call() -> None:
    @cb.jit
    def grown(x: Any, factor: Any, most: Any) -> Any:
        (found,) = while_loop(lambda y: y.sum() < most, lambda y: (y * factor,), (x,))
        return found + 1

    x = np.array([1.0, 2.0], np.float32)
    for factor, most in ((2.0, 10.0), (3.0, 100.0), (2.0, 1.0)):
        right = x.copy()
        while right.sum() < most:
            right *= np.float32(factor)
        found = grown(cb.tensor(x), cb.tensor(factor, dtype="f32"), cb.tensor(most, dtype="f32"))
        np.testing.assert_array_equal(found.numpy(), right + 1)


def test_loops_inside_of_loops() -> None:
    def rows(n: Any, total: Any) -> Any:
        _, inner = while_loop(lambda k, s: k < n, lambda k, s: (k + 1, s + k), (n * 0, n * 0))
        return n + 1, total + inner

    @cb.jit
    def run(most: Any) -> Any:
        return while_loop(lambda n, total: n < most, rows, (most * 0, most * 0))[1]

    for most in (0, 1, 5):
        assert run(cb.tensor(most)).item() == sum(sum(range(n)) for n in range(most))


@pytest.mark.parametrize("traced", [False, True])
def test_what_is_carried_stays_what_it_is(traced: bool) -> None:
    def run(function: Any) -> Any:
        return cb.jit(function) if traced else function

    x = cb.tensor([1.0, 2.0])
    grows = run(lambda x: while_loop(lambda y: y.sum() < 9, lambda y: (y[:1],), (x,)))
    with pytest.raises(ShapeError, match="carries the same tree, shapes and dtypes"):
        grows(x)
    chooses = run(lambda x: while_loop(lambda y: y < 9, lambda y: (y * 2,), (x,)))
    with pytest.raises(ShapeError):
        chooses(x)
    with pytest.raises(ArgumentError, match="takes two functions, not int"):
        while_loop(3, lambda y: y, (x,))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="carries a tuple"):
        while_loop(lambda y: y < 9, lambda y: y, x)  # type: ignore[arg-type]


def test_no_gradient_passes_through_a_traced_loop() -> None:
    @cb.jit
    def loss(x: Any) -> Any:
        return while_loop(lambda y: y < 9, lambda y: (y * 2,), (x,))[0]

    with pytest.raises(GradientError):
        cb.grad(loss)(cb.tensor(1.0))
