"""Steps and clips that come often outside of `cb.jit` are programs: with the same numbers as the
first ones, whatever is changed in between.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.nn.optim.optimizer import Optimizer
from cubepy.tensor.control import repeated

OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "SGD": lambda p: nn.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: nn.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: nn.optim.AdamW(p, lr=0.01, amsgrad=True),
    "RMSprop": lambda p: nn.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "NAdam": lambda p: nn.optim.NAdam(p),
    "RAdam": lambda p: nn.optim.RAdam(p),
    "Adamax": lambda p: nn.optim.Adamax(p),
    "Adagrad": lambda p: nn.optim.Adagrad(p, lr_decay=0.1),
    "Adadelta": lambda p: nn.optim.Adadelta(p),
    "Rprop": lambda p: nn.optim.Rprop(p),
    "ASGD": lambda p: nn.optim.ASGD(p),
    "Adafactor": lambda p: nn.optim.Adafactor(p),
    "Muon": lambda p: nn.optim.Muon(p),
}


def run(make: Callable[[Any], Optimizer], seed: int, changes: bool) -> list[np.ndarray]:
    """Parameters after steps with changes that are drawn."""
    rng = np.random.default_rng(seed)
    shapes = [(3, 4), (2, 5)] if make is OPTIMIZERS["Muon"] else [(3, 4), (4,), (2, 2, 2), ()]
    params = [nn.Parameter(cb.tensor(rng.normal(size=s).astype(np.float32))) for s in shapes]
    optimizer = make(params)
    kept = [p.detach() for p in params]
    before = [k.numpy().copy() for k in kept]
    for n in range(14):
        for p in params:
            p.grad = cb.tensor(rng.normal(size=p.shape).astype(np.float32))
        what = rng.integers(7) if changes else 9
        group = optimizer.param_groups[0]
        if what == 0:
            group["lr"] *= 0.5
        elif what == 1:
            params[rng.integers(len(params))].grad = None
        elif what == 2:
            group["weight_decay"] = 0.01
        elif what == 3 and n < 5:
            more = nn.Parameter(cb.tensor(rng.normal(size=(2, 3)).astype(np.float32)))
            more.grad = cb.tensor(rng.normal(size=(2, 3)).astype(np.float32))
            optimizer.add_param_group({"params": [more], "lr": 0.02})
            params.append(more)
        elif what == 4:
            optimizer.load_state_dict(optimizer.state_dict())
        elif what == 5:
            held = optimizer.state_dict()  # what it holds stays
            texts = repr(held)
            optimizer.step()
            assert repr(held) == texts
        optimizer.step()
    for k, b in zip(kept, before, strict=True):
        np.testing.assert_array_equal(k.numpy(), b)
    return [p.detach().numpy() for p in params]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_ops(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(OPTIMIZERS[name], seed, seed > 0)
    monkeypatch.setattr(repeated, "AFTER", 2)
    found = run(OPTIMIZERS[name], seed, seed > 0)
    for one, other in zip(found, expected, strict=True):
        bound = 0.02 if name == "Muon" else 2e-6  # its products are of bf16
        np.testing.assert_allclose(one, other, rtol=bound, atol=bound / 20)


def test_copies_of_an_optimizer_step_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "AFTER", 1)
    p = nn.Parameter(cb.tensor([1.0, 2.0]))
    optimizer = nn.optim.SGD([p], lr=0.5)
    p.grad = cb.tensor([1.0, 1.0])
    for _ in range(4):
        optimizer.step()
    assert p.tolist() == [-1, 0]
    other = copy.deepcopy(optimizer)
    own = other.param_groups[0]["params"][0]
    own.grad = cb.tensor([2.0, 2.0])
    for _ in range(4):
        other.step()
    assert own.tolist() == [-5, -4] and p.tolist() == [-1, 0]


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, float("inf")])
def test_clips_are_those_of_ops(norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "AFTER", 2)
    rng = np.random.default_rng(5)
    params = [nn.Parameter(cb.tensor(rng.normal(size=s))) for s in [(3, 4), (4,), ()]]
    for n in range(8):
        grads = [rng.normal(size=p.shape) * 10.0 ** rng.integers(-2, 2) for p in params]
        for p, g in zip(params, grads, strict=True):
            p.grad = cb.tensor(g)
        given = [p.grad for p in params]
        limit = float(rng.uniform(0.1, 3))
        found = nn.utils.clip_grad_norm_(params, limit, norm)
        flat = np.concatenate([g.reshape(-1) for g in grads])
        expected = np.linalg.norm(flat, norm)
        np.testing.assert_allclose(found.item(), expected, rtol=1e-6)
        scale = min(1.0, limit / (expected + 1e-6))
        for p, g, handle in zip(params, grads, given, strict=True):
            assert p.grad is handle
            np.testing.assert_allclose(p.grad.numpy(), g * scale, rtol=1e-6)
        nn.utils.clip_grad_value_(params, 0.01 * (n + 1))
        for p, g in zip(params, grads, strict=True):
            limited = np.clip(g * scale, -0.01 * (n + 1), 0.01 * (n + 1))
            np.testing.assert_allclose(p.grad.numpy(), limited, rtol=1e-6)


def test_an_optimizer_that_stepped_often_is_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "AFTER", 1)
    p = nn.Parameter(cb.tensor([1.0]))
    optimizer = nn.optim.SGD([p], lr=0.5)
    for _ in range(4):
        p.grad = cb.tensor([1.0])
        optimizer.step()
    try:
        other = pickle.loads(pickle.dumps(optimizer))
    except TypeError:
        pytest.skip("optimizers are not pickled")
    assert other.param_groups[0]["params"][0].tolist() == [-1]
