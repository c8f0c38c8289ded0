"""Small states and gradients are given again when nobody has them, and only then."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.tensor.exposed import exact, untouched
from cubepy.tensor.program.plans import reused
from cubepy.tensor.program.plans.reused import Reused

pytestmark = pytest.mark.skipif(not exact(), reason="reference counts do not say who has what")
WIDTH = 6


class Training:
    """A small model that learns, as a program or op by op."""

    def __init__(self, program: bool, optimizer: Any = nn.optim.SGD, **options: Any) -> None:
        rng = np.random.default_rng(3)
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(5)]
        self.net = nn.Sequential(*layers)
        for p in self.net.parameters():
            p.assign_(cb.tensor(rng.standard_normal(p.shape).astype(np.float32) * 0.5))
        self.optimizer = optimizer(self.net.parameters(), lr=0.05, **options)
        self.rng = np.random.default_rng(4)

        def step(x: Any, y: Any) -> Any:
            loss = nn.functional.mse_loss(self.net(x).tanh(), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return loss

        self.step = cb.jit(step) if program else step

    @property
    def parameters(self) -> list[Any]:
        return list(self.net.parameters())

    def run(self) -> float:
        x, y = (self.rng.standard_normal((3, WIDTH)).astype(np.float32) for _ in range(2))
        return float(self.step(cb.tensor(x), cb.tensor(y)).item())

    @property
    def sets(self) -> Reused:
        """What its last program keeps."""
        (programs,) = self.step.programs.values()
        found = programs[-1].writer.scope["reused"]
        assert isinstance(found, Reused)
        return found


HOLD: dict[str, Callable[[Any], tuple[Any, Callable[[], np.ndarray]]]] = {
    "tensor": lambda p: (q := p.detach(), lambda: q.numpy().copy()),
    "array": lambda p: (a := p.numpy(), a.copy),
    "view": lambda p: (a := p.numpy().reshape(-1)[1:], a.copy),
    "memory": lambda p: (m := memoryview(p.numpy()), lambda: np.array(m)),
    "value": lambda p: (v := p.value, lambda: v.storage.array.copy()),
    "gradient": lambda p: (g := p.grad, lambda: g.numpy().copy()),
    "recorded": lambda p: (q := p * 2, lambda: q.numpy().copy()),
}


def counted(training: Training, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each call from now on, whether it gave a set again."""
    found: list[bool] = []
    take = Reused.take

    def counting(self: Reused) -> Any:
        taken = take(self)
        found.append(taken is not None)
        return taken

    monkeypatch.setattr(Reused, "take", counting)
    return found


@pytest.mark.parametrize("optimizer", [nn.optim.SGD, nn.optim.AdamW, nn.optim.RMSprop])
def test_sets_take_turns_and_losses_are_those_of_ops(
    optimizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, ops = Training(True, optimizer), Training(False, optimizer)
    losses = [ops.run() for _ in range(30)]
    taken = counted(program, monkeypatch)
    for loss in losses:
        assert program.run() == pytest.approx(loss, rel=1e-5)
    assert all(taken[5:]) and len(program.sets.sets) == 2
    for p, q in zip(program.parameters, ops.parameters, strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("how", HOLD)
def test_what_somebody_has_stays_as_it_is(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reused, "PAUSE", 3)
    rng, training, other = np.random.default_rng(), Training(True), Training(False)
    taken = counted(training, monkeypatch)
    held: list[tuple[Any, Callable[[], np.ndarray], np.ndarray]] = []
    for _ in range(60):
        assert training.run() == pytest.approx(other.run(), rel=1e-4)
        if rng.random() < 0.15:
            p = training.parameters[int(rng.integers(len(training.parameters)))]
            thing, look = HOLD[how](p)
            held.append((thing, look, look()))
        if rng.random() < 0.1 and held:
            held.pop(int(rng.integers(len(held))))
        for _, look, before in held:
            np.testing.assert_array_equal(look(), before)
    assert any(taken)


def test_a_weak_reference_is_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(True)
    for _ in range(8):
        training.run()
    taken = counted(training, monkeypatch)
    ref = weakref.ref(training.parameters[2].value)
    training.run()
    assert ref() is not None  # until the call after the next one asks who has it
    training.run()
    assert ref() is None and taken == [True, False]


class Everything(dict[int, Any]):
    """A table that speaks of all memory."""

    def keys(self) -> Any:
        return self

    def isdisjoint(self, others: Any) -> bool:
        return not list(others)


def test_memory_of_others_that_is_spoken_of_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight = cb.tensor([1.0, 2.0]) * 2
    spoken = untouched(weight.value.storage)  # type: ignore[arg-type]
    training = Training(True)
    for _ in range(6):
        training.run()
    taken = counted(training, monkeypatch)
    for _ in range(4):
        training.run()
    assert reused.noted and spoken is not None and taken == [True] * 4


def test_memory_that_is_spoken_of_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(True)
    for _ in range(8):
        training.run()
    taken = counted(training, monkeypatch)
    monkeypatch.setattr(reused, "noted", Everything({0: None}))
    monkeypatch.setattr(reused, "PAUSE", 2)
    sets = training.sets.sets
    for _ in range(20):
        training.run()
        assert len(sets) <= 2
    assert not any(taken)


def test_what_was_switched_off_needs_gradients_again() -> None:
    training, other = Training(True), Training(False)
    for n in range(24):
        for one in (training, other):
            if n % 6 == 4:
                one.parameters[1].requires_grad_(False)
            if n % 6 == 5:
                one.parameters[1].requires_grad_(True)
        assert training.run() == pytest.approx(other.run(), rel=1e-5)


def test_threads_that_call_one_program() -> None:
    """Each call has a set of its own; what is read between is never half written."""
    training, wrong = Training(True), list[str]()
    for _ in range(6):
        training.run()
    x, y = (cb.tensor(np.ones((3, WIDTH), np.float32)) for _ in range(2))

    def steps() -> None:
        for _ in range(150):
            if not np.isfinite(training.step(x, y).item()):
                wrong.append("loss")

    def reads() -> None:
        for _ in range(400):
            for p in training.parameters:
                array = p.numpy()
                before = array.copy()
                if not np.array_equal(array, before):
                    wrong.append("read")

    threads = [threading.Thread(target=f) for f in (steps, steps, reads)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_large_results_and_few_are_made_anew() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    net = Large()
    optimizer = nn.optim.SGD(net.parameters(), lr=0.1)

    @cb.jit
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        step(cb.tensor(np.ones((2, 4), np.float32)))
    (programs,) = step.programs.values()
    assert "reused" not in programs[-1].writer.scope


def test_a_model_that_goes_takes_its_sets_along() -> None:
    training = Training(True)
    for _ in range(6):
        training.run()
    ref = weakref.ref(training.parameters[0].value)
    del training
    gc.collect()
    assert ref() is None
