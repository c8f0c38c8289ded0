"""Every optimizer, averaged weights and CTC on a GPU give what they give on a CPU, op by op and as
programs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.nn import optim
from cubepy.nn.functional import ctc_loss, log_softmax
from cubepy.tensor import Tensor

HERE = "cuda"
STEPS = 8
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "ASGD": {"lr": 0.05}, "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True}, "Adadelta": {},
    "Adafactor": {}, "Adagrad": {}, "Adam": {"amsgrad": True}, "AdamW": {}, "Adamax": {}, "NAdam": {},
    "RAdam": {}, "RMSprop": {"momentum": 0.5, "centered": True}, "Rprop": {},
}  # fmt: skip


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def trained(name: str, device: str, program: bool) -> list[np.ndarray]:
    """Parameters of a small network after some steps, and their moving averages."""
    net = nn.Sequential(nn.Linear(12, 33), nn.GELU(), nn.Linear(33, 5))
    for k, p in enumerate(net.parameters()):
        p.data = cb.tensor(values(*p.shape, seed=k) * 0.3)
    net.to(device)
    averaged = optim.swa_utils.AveragedModel(net)
    optimizer = getattr(optim, name)(net.parameters(), **OPTIMIZERS[name])

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = cb.jit(step) if program else step
    for k in range(STEPS):
        x, y = (cb.tensor(values(20, n, seed=9 + k), device=device) for n in (12, 5))
        run(x, y)
        averaged.update_parameters(net)
    return [p.detach().numpy() for p in (*net.parameters(), *averaged.module.parameters())]


@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_a_cpu(name: str, program: bool) -> None:
    for got, want in zip(trained(name, HERE, program), trained(name, "cpu", False), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("shape", [(8, 20), (20, 8)])
def test_steps_of_muon_are_orthogonal(shape: tuple[int, int]) -> None:
    p = nn.Parameter(cb.tensor(values(*shape), device=HERE))
    optimizer, before = optim.Muon([p], lr=0.1, momentum=0.0, weight_decay=0.0), p.detach().numpy()
    p.grad = cb.tensor(values(*shape, seed=3), device=HERE)
    optimizer.step()
    sizes = np.linalg.svd(p.detach().numpy() - before, compute_uv=False)
    assert sizes.max() < 2.6 * sizes.min()


def test_steps_of_lbfgs_are_those_of_a_cpu() -> None:
    found = []
    for device in (HERE, "cpu"):
        p = nn.Parameter(cb.tensor(values(7), device=device))
        scale = cb.tensor(np.arange(1, 8, dtype=np.float32), device=device)
        optimizer = optim.LBFGS([p], line_search_fn="strong_wolfe")

        def closure(p: Any = p, scale: Tensor = scale, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = ((p - 1) * (p - 1) * scale).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        found.append(p.detach().numpy())
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found[0], 1, rtol=1e-3)


@pytest.mark.parametrize("seed", range(12))
def test_ctc_is_that_of_a_cpu(seed: int) -> None:
    """Loss and gradient of random lengths, labels that repeat and sequences that are too short."""
    rng = np.random.default_rng(seed)
    steps, n, classes, most = (int(rng.integers(1, m)) for m in (70, 9, 40, 30))
    logits = rng.standard_normal((steps, n, classes + 1)).astype(np.float32)
    labels = rng.integers(1, classes + 1, (n, most))
    long, counts = rng.integers(0, steps + 1, n), rng.integers(0, most + 1, n)
    found = []
    for device in (HERE, "cpu"):
        x = cb.tensor(logits, device=device).requires_grad_()
        given = (cb.tensor(a, device=device) for a in (labels, long, counts))
        loss = ctc_loss(log_softmax(x, -1), *given, reduction="none", zero_infinity=True)
        (loss * cb.tensor(values(n), device=device)).sum().backward()
        assert x.grad is not None
        found.append((loss.detach().numpy(), x.grad.numpy()))
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
