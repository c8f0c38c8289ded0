"""`cb.jit(f, memory=...)`: what does not fit is computed again, and gives the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError
from cubepy.nn import functional as F
from cubepy.tensor import Tensor
from cubepy.tensor.control.bounded import Bounded, in_memory
from cubepy.tensor.fusion.schedule import graph_of
from cubepy.tensor.graph import execute
from tests.tensor.control.test_checkpoint import GPT, step_of
from tests.tensor.fusion.random_programs import program as random_program

RNG = np.random.default_rng(4)


def the_program(program: Any) -> Any:
    ((found,),) = program.programs.values()
    return found


def test_activations_of_a_gpt_shrink_and_gradients_are_the_same_bits() -> None:
    tokens = cb.tensor(RNG.integers(0, 50, (4, 32)))
    arenas, grads = [], []
    for memory in (None, 2_400_000, 1_200_000, 1):
        net = GPT(64, 2, 6, keep=True)
        program = cb.jit(step_of(net), memory=memory)
        for _ in range(12):
            loss = program(tokens)
        made = the_program(program)
        assert made.plan is not None, made.why
        arenas.append(made.operands.arena)
        grads.append([loss.numpy(), *[p.grad.numpy() for p in net.parameters()]])
    assert arenas[0] > 3_200_000
    assert arenas[1] < 1.05 * 2_400_000
    assert arenas[2] < 1.05 * 1_200_000
    assert arenas[3] < 0.4 * arenas[0]  # as little as is possible
    for other in grads[1:]:
        for one, same in zip(grads[0], other, strict=True):
            np.testing.assert_array_equal(one, same)


def test_steps_that_run_again_are_few_where_the_bound_is_near() -> None:
    tokens = cb.tensor(RNG.integers(0, 50, (2, 16)))
    program = cb.jit(step_of(GPT(32, 2, 4, keep=True)))
    program(tokens)
    graph = the_program(program).graph
    whole = Bounded(graph, 1 << 40)
    assert whole.fits and not whole.again
    assert in_memory(graph, whole.peak)[0] is graph
    last = 0
    for share in (0.9, 0.6, 0.3):
        some = Bounded(graph, int(share * whole.peak))
        assert some.fits and some.peak <= share * whole.peak
        assert last < some.again < len(graph.nodes)
        last = some.again


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_give_the_same_bits(seed: int) -> None:
    given, schedule, outputs = random_program(seed, reductions=True)
    graph = graph_of(schedule)
    for memory in (1, 200, 5000):
        bounded, again = in_memory(graph, memory)
        assert len(bounded.nodes) <= len(graph.nodes) + again
        for one, other in zip(execute(bounded, given), outputs, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_gradients_outside_of_the_program_are_bounded_too() -> None:
    def function(x: Tensor, weights: list[Tensor]) -> Tensor:
        for w in weights:
            x = (x @ w).tanh()
        return (x * x).sum()

    wanted, found = [], []
    for memory, into in ((None, wanted), (30_000, found)):
        rng = np.random.default_rng(1)
        x, *weights = (
            cb.tensor(rng.standard_normal((32, 32)).astype(np.float32)) for _ in range(9)
        )
        for w in weights:
            w.requires_grad_()
        program = cb.jit(function, memory=memory)
        for _ in range(6):
            for w in weights:
                w.grad = None
            program(x, weights).backward()
            into += [w.grad.numpy() for w in weights]
        back = the_program(the_program(program).writer.scope["attrs"]["backward"])
        into.append(back.operands.arena)
    assert found.pop() <= 36_000 < wanted.pop()
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_runs_again_is_explained() -> None:
    @cb.jit(memory=2000)
    def bounded(x: Tensor) -> Tensor:
        parts = [(x * n).sin() @ x for n in range(12)]
        total = x
        for part in reversed(parts):
            total = (total @ part).sin()
        return total

    x = cb.tensor(RNG.standard_normal((8, 8)).astype(np.float32))
    wanted = bounded.function(x).numpy()
    for _ in range(5):
        np.testing.assert_allclose(bounded(x).numpy(), wanted, rtol=1e-5)
    found = cb.explain(bounded, x)
    (shown,) = found.programs
    assert shown.memory == 2000 and shown.repeated > 0
    assert f"memory of at most 2000 bytes is wanted: {shown.repeated} steps run again" in found
    assert "is wanted: it fits" in str(cb.explain(cb.jit(lambda x: x + 1, memory=1 << 20), x))


@pytest.mark.parametrize("memory", [0, -1, 1.5, True, "1 MB"])
def test_what_is_no_number_of_bytes_is_refused(memory: Any) -> None:
    with pytest.raises(ArgumentError, match="memory is a number of bytes"):
        cb.jit(lambda x: x, memory=memory)


def test_dropout_drops_the_same_elements_again() -> None:
    def run(memory: int | None) -> list[Any]:
        nn.init.manual_seed(3)
        w = cb.tensor(np.eye(16, dtype=np.float32), requires_grad=True)

        def step(x: Tensor) -> Tensor:
            w.grad = None
            for _ in range(6):
                x = F.dropout((x @ w).tanh(), 0.5)
            x.sum().backward()
            return x

        program = cb.jit(step, memory=memory)
        x = cb.tensor(np.random.default_rng(0).standard_normal((64, 16)).astype(np.float32))
        found = [(program(x).numpy(), w.grad.numpy()) for _ in range(5)]
        assert (the_program(program).repeated > 0) is (memory is not None)
        return found

    for one, other in zip(run(None), run(10_000), strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
