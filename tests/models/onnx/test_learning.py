"""Gradients through graphs of ONNX files: weights and inputs that ask for them get them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import nn


def test_gradients_reach_weights_and_inputs_that_ask_for_them(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).eval()
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    cb.save(net, tmp_path / "net.onnx", [x])
    found = cb.load(tmp_path / "net.onnx")
    assert not found(x)["output"].requires_grad
    asked = cb.tensor(x, requires_grad=True)
    found(asked)["output"].sum().backward()
    own = cb.tensor(x, requires_grad=True)
    net(own).sum().backward()
    np.testing.assert_allclose(asked.grad.numpy(), own.grad.numpy(), rtol=1e-4, atol=1e-6)
    found.requires_grad_()
    found(x)["output"].sum().backward()
    for name, p in net.named_parameters():
        np.testing.assert_allclose(
            dict(found.named_parameters())[name].grad.numpy(), p.grad.numpy(), rtol=1e-4, atol=1e-5
        )
    with cb.no_grad():
        assert not found(x)["output"].requires_grad


def test_a_loaded_graph_is_trained_by_a_program(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    cb.save(
        nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).eval(), tmp_path / "n.onnx", [x]
    )
    found = cb.load(tmp_path / "n.onnx")
    call = cb.jit(lambda x: found(x)["output"])
    first = call(cb.tensor(x)).numpy()
    found.requires_grad_()
    optimizer = nn.optim.Adam(found.parameters(), lr=0.05)

    @cb.jit
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (call(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(cb.tensor(x)).item() for _ in range(30)]
    assert losses[-1] < 0.2 * losses[0]
    np.testing.assert_allclose(losses[0], (first**2).mean(), rtol=1e-5)
    np.testing.assert_allclose(call(cb.tensor(x)).numpy(), found(x)["output"].numpy(), rtol=1e-5)
