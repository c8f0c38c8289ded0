"""Programs on a device with its own memory, which is pretended: what they give is what the ops
give, by the launches of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import cubepy as cb
from cubepy import nn
from cubepy.nn import seeds
from cubepy.runtime.stats import counters
from cubepy.tensor import Tensor, apply
from tests.pretend import NAME, PretendBackend, pretend
from tests.tensor.program.states import DRAWN, called


@pytest.fixture(autouse=True, scope="module")
def backend() -> Iterator[PretendBackend]:
    """The pretended device."""
    with pytest.MonkeyPatch.context() as monkeypatch, pretend(monkeypatch) as b:
        monkeypatch.setattr(seeds, "_of_dropout", {})  # no other test has the device
        yield b


def there(array: Any) -> Tensor:
    """On the device."""
    return cb.tensor(np.asarray(array), device=NAME)


def planned(program: Any) -> bool:
    """Whether all programs of a function have plans; says why not."""
    made = [p for variants in program.programs.values() for p in variants]
    assert made
    why = [p.why for p in made if p.plan is None]
    assert not why, why
    return True


@settings(max_examples=25, deadline=None)
@given(**DRAWN)
def test_a_random_program_with_a_state(
    steps: list[tuple[str, int, int]], wanted: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    former: list[tuple[Tensor, np.ndarray]] = []
    for program, results, ours, theirs in called(there, steps, wanted, rng, 5):
        former += zip(results, ours, strict=False)
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
        for tensor, value in former:  # a later call writes to no result of a former one
            np.testing.assert_array_equal(tensor.numpy(), value)
            assert str(tensor.device) == NAME
    assert planned(program)


class Net(nn.Module):
    """A little of everything: indices, rows, products, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(11, 16), nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 24), nn.Linear(24, 11)
        self.dropout = nn.Dropout(0.25)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.embedding(tokens))
        return self.down(self.dropout(nn.functional.gelu(self.up(x))))


def trainer(seed: int, jitted: bool, device: str = NAME) -> tuple[Any, nn.Module]:
    """A step of AdamW with a schedule and clipping, on the device."""
    nn.init.manual_seed(seed)
    net = Net()
    rng = np.random.default_rng(seed)
    with cb.no_grad():
        for p in net.parameters():
            p.assign_(rng.standard_normal(p.shape).astype(np.float32) * 0.3)
    net.to(device)
    optimizer = nn.optim.AdamW(net.parameters(), lr=0.01)
    schedule = nn.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

    def step(tokens: Tensor, targets: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(net(tokens), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    run = cb.jit(step) if jitted else step

    def both(tokens: Tensor, targets: Tensor) -> Tensor:
        loss = run(tokens, targets)
        schedule.step()
        return loss

    both.program = run  # type: ignore[attr-defined]
    return both, net


def test_training_is_that_of_the_ops() -> None:
    found = []
    for jitted in (True, False):
        (step, net), rng = trainer(3, jitted), np.random.default_rng(5)
        losses = []
        for _ in range(12):
            tokens, targets = (there(rng.integers(0, 11, 20)) for _ in range(2))
            losses.append(step(tokens, targets))
        found.append(([x.numpy() for x in losses], [p.numpy() for p in net.parameters()]))
        if jitted:
            assert planned(step.program) and sum(step.program.traces.values()) <= 3
    (ours, mine), (theirs, other) = found
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    for p, q in zip(mine, other, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-6)


def test_tensors_of_the_host_while_the_device_is_the_current_one() -> None:
    found = []
    for here in ("cpu", NAME):
        (step, _), rng, losses = trainer(7, True, "cpu"), np.random.default_rng(5), []
        with cb.use(here):
            for _ in range(6):
                pair = (cb.tensor(rng.integers(0, 11, 20), device="cpu") for _ in range(2))
                losses.append(step(*pair))
                assert str(losses[-1].device) == "cpu"
        found.append([loss.item() for loss in losses])
        assert planned(step.program)
    assert found[0] == found[1]


def test_a_call_is_one_plan() -> None:
    ours, _ = trainer(4, True)
    tokens, targets = there(np.arange(8) % 11), there(np.arange(8) % 5)
    for _ in range(6):
        ours(tokens, targets)
    before = dict(cb.stats())
    ours(tokens, targets)
    after = dict(cb.stats())
    assert after["ops"] == before["ops"]
    (made,) = (p for v in ours.program.programs.values() for p in v if p.plan is not None)
    assert counters.launches - before["launches"] == made.plan.launches


def test_memory_that_begins_elsewhere() -> None:
    """Views that begin in the middle of a line are computed op by op, and right."""
    program = cb.jit(lambda x, y: (x * y + 1).sum(axis=0))
    whole = np.random.default_rng(1).standard_normal((12, 7)).astype(np.float32)
    x, y = there(whole), there(whole[:8] * 2)
    for n in (0, 0, 0, 1, 2, 4, 0, 3):
        want = (whole[n : n + 8] * whole[:8] * 2 + 1).sum(axis=0)
        np.testing.assert_allclose(program(x[n : n + 8], y).numpy(), want, rtol=2e-5)
    assert planned(program)


def test_results_that_are_inputs_and_constants() -> None:
    kept = there(np.arange(6, dtype=np.float32))
    program = cb.jit(
        lambda x: (x.reshape(3, 2).T, kept, kept[2:], cb.tensor(3.0, device=NAME), x + 1)
    )
    for n in range(5):
        x = np.arange(6, dtype=np.float32) + n
        a, b, c, d, e = program(there(x))
        np.testing.assert_array_equal(a.numpy(), x.reshape(3, 2).T)
        np.testing.assert_array_equal(b.numpy(), np.arange(6))
        np.testing.assert_array_equal(c.numpy(), np.arange(2, 6))
        assert d.item() == 3.0
        np.testing.assert_array_equal(e.numpy(), x + 1)


def test_the_same_memory_twice() -> None:
    program = cb.jit(lambda x, y: x * 2 + y)
    x = there(np.arange(40, dtype=np.float32))
    for _ in range(4):
        np.testing.assert_array_equal(program(x, x).numpy(), np.arange(40) * 3)
        found = program(x[:32], x[8:]).numpy()
        np.testing.assert_array_equal(found, np.arange(32) * 3 + 8)


def test_numbers_that_are_passed_and_held() -> None:
    """Numbers computed of numbers are at home everywhere, and may be others in every call."""
    held = apply("constant", value=0.0, dtype="f32") + 0

    def function(x: Tensor, y: Tensor) -> Tensor:
        return x * y + held * 2

    program = cb.jit(function)
    for n in range(5):
        y = apply("constant", value=float(n), dtype="f32") * 2
        held.assign_(apply("constant", value=float(10 * n), dtype="f32") + 0)
        found = program(there(np.ones(3, np.float32)), y)
        assert str(found.device) == NAME and found.tolist() == [2.0 * n + 20 * n] * 3
    assert planned(program)
