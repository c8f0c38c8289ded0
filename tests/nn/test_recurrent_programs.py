"""Recurrent networks in programs: their steps are loops of the program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.nn.modules import recurrent

RNG = np.random.default_rng(3)


def some(*shape: int) -> Any:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32))


KINDS = {
    "RNN": lambda: nn.RNN(5, 6),
    "GRU": lambda: nn.GRU(5, 6, num_layers=2, bias=False),
    "LSTM": lambda: nn.LSTM(5, 6, bidirectional=True, batch_first=True),
    "projected": lambda: nn.LSTM(5, 6, proj_size=3),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_step_is_that_of_the_function_and_a_longer_sequence_is_no_longer_program(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent, "LONG", 2)
    nets = []
    for _ in range(2):
        nn.init.manual_seed(4)
        nets.append(KINDS[kind]())
    parameters = [list(net.parameters()) for net in nets]

    def step_of(which: int) -> Any:
        def step(x: Any) -> Any:
            for p in parameters[which]:
                p.grad = None
            y, _ = nets[which](x)
            loss = (y * y).mean()
            loss.backward()
            return loss

        return step

    program, function, steps = cb.jit(step_of(0)), step_of(1), set()
    for length in (4, 9):
        for _ in range(5):
            x = some(3, length, 5) if kind == "LSTM" else some(length, 3, 5)
            np.testing.assert_allclose(program(x).numpy(), function(x).numpy(), rtol=1e-6)
            for p, q in zip(*parameters, strict=True):
                np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-6)
    for programs in program.programs.values():
        for made in programs:
            assert made.plan is not None, made.why
            steps.add(made.plan.steps)
    assert len(steps) == 1


def test_packed_weights_are_read_in_a_loop() -> None:
    net = nn.Sequential(nn.Linear(64, 64)).eval()
    packed = cb.quant.quantize(net, "int8", measure_speed=False).model
    assert packed[0].weight.storage.kind != "dense"
    step = lambda h, x: (packed(h).tanh() + x, h.sum())
    function = lambda h, x: cb.scan(step, h, x)
    program = cb.jit(function)
    with cb.no_grad():
        for _ in range(4):
            h, x = some(2, 64), some(3, 2, 64)
            for one, other in zip(program(h, x), function(h, x), strict=True):
                np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)
