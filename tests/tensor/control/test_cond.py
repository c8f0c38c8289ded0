"""`cb.cond`: a branch that is chosen in every call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, LaunchError, OutOfBoundsError, ShapeError
from cubepy.tensor import Tensor

RNG = np.random.default_rng(6)


def some(*shape: int, dtype: Any = np.float32) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(dtype))


def function(x: Tensor, w: Tensor) -> Any:
    return cb.cond(
        (x * w).sum() > 0,
        lambda x: {"y": (x @ w).exp(), "z": [x.sum(axis=0)]},
        lambda x: {"y": (x - w).sin(), "z": [w[0] * 3]},
        x,
    )


def test_calls_take_either_branch_without_another_trace() -> None:
    program, taken = cb.jit(function), set()
    for n in range(12):
        x, w = some(3, 3), some(3, 3)
        found, wanted = program(x, w), function(x, w)
        taken.add(bool((x * w).sum() > 0))
        np.testing.assert_array_equal(found["y"].numpy(), wanted["y"].numpy())
        np.testing.assert_array_equal(found["z"][0].numpy(), wanted["z"][0].numpy())
    assert taken == {True, False}
    assert sum(program.traces.values()) == 1
    assert "one call of machine code" in program.explain()


@pytest.mark.parametrize("inside", [True, False])
def test_gradients_are_those_of_the_branch_that_was_taken(inside: bool) -> None:
    def loss(x: Tensor, w: Tensor) -> Tensor:
        tree = function(x, w)
        return (tree["y"] * tree["y"]).sum() + tree["z"][0].sum()

    def both(x: Tensor, w: Tensor) -> Any:
        return cb.grad(loss, (0, 1))(x, w)

    program = cb.jit(both if inside else loss)
    for _ in range(8):
        x, w = some(3, 3, dtype=np.float64), some(3, 3, dtype=np.float64)
        found = program(x, w) if inside else cb.grad(program, (0, 1))(x, w)
        for one, other in zip(found, both(x, w), strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)
    assert sum(program.traces.values()) == 1


def test_gradients_have_gradients() -> None:
    loss = lambda x: cb.cond(x.sum() > 0, lambda x: (x**3).sum(), lambda x: (x**4).sum(), x)
    second = lambda x: cb.grad(lambda x: cb.grad(loss)(x).sum())(x)
    program = cb.jit(second)
    for _ in range(6):
        x = some(4, dtype=np.float64)
        np.testing.assert_allclose(program(x).numpy(), second(x).numpy(), rtol=1e-12)


def test_a_gradient_does_not_come_from_the_branch_that_was_not_taken() -> None:
    loss = lambda x: cb.cond(x > 0, lambda x: x.log(), lambda x: x * 2, x)
    program = cb.jit(cb.grad(loss))
    for value, wanted in ((2.0, 0.5), (0.0, 2.0), (-1.0, 2.0), (4.0, 0.25)):
        assert program(cb.tensor(value)).item() == wanted  # where() would give 0 * inf


def test_an_index_that_is_outside_where_it_is_not_read() -> None:
    table = some(4, 2)
    program = cb.jit(
        lambda i: cb.cond(
            i.max() < 4, lambda i: nn.functional.embedding(i, table), lambda i: table[:2] * 0, i
        )
    )
    for i in ([0, 3], [9, 1], [1, 1], [7, 7]):
        wanted = table.numpy()[i] if max(i) < 4 else np.zeros((2, 2))
        np.testing.assert_array_equal(program(cb.tensor(i)).numpy(), wanted)
    assert sum(program.traces.values()) == 1
    inside = cb.jit(
        lambda i: cb.cond(
            i.max() < 9, lambda i: nn.functional.embedding(i, table), lambda i: table[:2] * 0, i
        )
    )
    for _ in range(4):
        inside(cb.tensor([0, 3]))
    with pytest.raises(OutOfBoundsError):
        inside(cb.tensor([0, 8]))
    np.testing.assert_array_equal(inside(cb.tensor([0, 3])).numpy(), table.numpy()[[0, 3]])


def test_numbers_parameters_and_branches_within_branches() -> None:
    layer = nn.Linear(3, 3)

    def choose(x: Tensor, gain: float) -> Tensor:
        inner = lambda x: cb.cond(x.max() > 1, lambda x: x / gain, lambda x: layer(x) * gain, x)
        return cb.cond(x.sum() > 0, inner, lambda x: layer(x.relu()), x)

    program = cb.jit(choose)
    with cb.no_grad():
        for n in range(12):
            x = some(2, 3)
            if n == 6:
                layer.weight.assign_(some(3, 3))
            np.testing.assert_array_equal(program(x, n + 1.0).numpy(), choose(x, n + 1.0).numpy())
    assert sum(program.traces.values()) == 1


def test_outside_of_programs_it_is_an_if_of_python() -> None:
    seen = []
    assert cb.cond(True, lambda: seen.append(1), lambda: seen.append(2)) is None
    assert cb.cond(cb.tensor([0]), lambda x: x, lambda x: x * 2, 4) == 8
    assert seen == [1]


def test_what_is_refused() -> None:
    x, total = some(3), some(3)
    with pytest.raises(
        ShapeError, match=r"chooses by one element, not by a tensor of shape \(3,\)"
    ):
        cb.cond(x > 0, lambda: 1, lambda: 2)
    with pytest.raises(ArgumentError, match="cb.cond takes two functions, not int"):
        cb.cond(True, 1, lambda: 2)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"\(float32\[3\]\), the other one \(float32\[\]\)|f32"):
        cb.jit(lambda x: cb.cond(x[0] > 0, lambda x: x, lambda x: x.sum(), x))(x)

    def assigns(x: Tensor) -> Tensor:
        total.assign_(x)  # here
        return x

    with pytest.raises(LaunchError, match="a tensor from outside gets another value") as raised:
        cb.jit(lambda x: cb.cond(x[0] > 0, assigns, lambda x: x, x))(x)
    assert "total.assign_(x)  # here" in str(raised.value)
    with pytest.raises(LaunchError, match="an element of a tensor is asked for"):
        cb.jit(lambda x: cb.cond(x[0] > 0, lambda x: x * x[0].item(), lambda x: x, x))(x)
