"""`compile` of jitted functions: everything is done before the first call, and nothing is changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.runtime.stats import counters
from cubepy.tensor import Tensor

RNG = np.random.default_rng(2)


def some(*shape: int) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32)) * 1


def planned(program: Any) -> bool:
    return "one call of machine code" in str(program.explain())


def test_a_function_is_compiled_for_a_spec() -> None:
    program = cb.jit(lambda x, w, scale: ((x @ w).tanh() * scale).sum(axis=-1))
    program.compile(cb.TensorSpec((7, 24)), cb.TensorSpec((24, 5)), 2.0)
    assert planned(program)
    before = counters.compiled, counters.traces
    x, w = some(7, 24), some(24, 5)
    for scale in (2.0, 3.0):
        want = np.tanh(x.numpy() @ w.numpy()).sum(-1) * scale
        np.testing.assert_allclose(program(x, w, scale).numpy(), want, rtol=1e-5, atol=1e-5)
    assert (counters.compiled, counters.traces) == before


def test_a_training_step_is_compiled_without_training() -> None:
    def made() -> tuple[nn.Module, Any]:
        nn.init.manual_seed(3)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2))

        def step(x: Tensor, lr: float) -> Tensor:
            net.zero_grad()
            loss = (net(x) ** 2).mean()
            loss.backward()
            with cb.no_grad():
                for p in net.parameters():
                    p -= p.grad * lr
            return loss

        return net, step

    net, step = made()
    other, function = made()
    program = cb.jit(step)
    given = [p.numpy().copy() for p in net.parameters()]
    program.compile(cb.TensorSpec((4, 6)), 0.1)
    for p, was in zip(net.parameters(), given, strict=True):
        np.testing.assert_array_equal(p.numpy(), was)
        assert p.grad is None
    assert planned(program)
    losses = []
    for run in (program, function):
        nn.init.manual_seed(5)
        rng = np.random.default_rng(0)
        found = []
        for _ in range(4):
            found.append(run(cb.tensor(rng.random((4, 6), np.float32)), 0.1).item())
        losses.append(found)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-5, atol=1e-6)


def test_states_that_a_first_call_makes_are_not_kept() -> None:
    layer = nn.Linear(3, 3)
    optimizer = nn.optim.Adam(layer.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    program = cb.jit(step)
    program.compile(cb.TensorSpec((2, 3)))
    assert not optimizer.state
    before = counters.compiled
    for _ in range(6):
        program(some(2, 3))
    assert counters.compiled == before and planned(program)
    assert all(s["step"] == 6 for s in optimizer.state.values())


def test_compiling_again_does_nothing() -> None:
    program = cb.jit(lambda x: x + 1)
    for _ in range(3):
        program.compile(cb.TensorSpec((3,), cb.i32))
    assert sum(program.traces.values()) == 1
    program.compile(cb.TensorSpec((4,), cb.i32, "cpu"))
    assert sum(program.traces.values()) == 2


def test_what_is_wrong_is_said_at_once() -> None:
    program = cb.jit(lambda x, y: x @ y)
    for _ in range(2):
        with pytest.raises(ShapeError, match=r"\(3, 4\)"):
            program.compile(cb.TensorSpec((3, 4)), cb.TensorSpec((5, 6)))
    assert not program.programs


@pytest.mark.parametrize("shape", [(-1, 2), (2.0,), "ab", None, (2, None)])
def test_specs_have_whole_shapes(shape: Any) -> None:
    with pytest.raises(ArgumentError, match="shape of a TensorSpec"):
        cb.TensorSpec(shape)


def test_specs_take_names_of_dtypes_and_devices() -> None:
    spec = cb.TensorSpec([np.int64(2), 3], "f16", "cpu")
    assert (spec.shape, spec.dtype, str(spec.device)) == ((2, 3), cb.f16, "cpu")
    assert cb.TensorSpec(5).shape == (5,)
    with pytest.raises(DTypeError):
        cb.TensorSpec((2,), "f17")
