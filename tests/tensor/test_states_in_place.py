"""Parameters and states of optimizers are written where they are; who had them does not see it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import CubeError, OutOfMemoryError
from cubepy.runtime.memory.pool import host_pool
from cubepy.tensor import Tensor, apply
from cubepy.tensor.ops import OPS
from cubepy.tensor.program.plans import repeated
from cubepy.tensor.program.plans import states as module
from cubepy.tensor.program.program import Program

WIDE = 256  # a square matrix of it is large enough to be written in place
RNG = np.random.default_rng(0)
X = [RNG.standard_normal((8, WIDE)).astype(np.float32) for _ in range(8)]
OPTIMIZERS: dict[str, Callable[[Any], nn.optim.Optimizer]] = {
    "sgd": lambda p: nn.optim.SGD(p, lr=0.1),
    "momentum": lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: nn.optim.AdamW(p, lr=0.01),
    "amsgrad": lambda p: nn.optim.Adam(p, lr=0.01, amsgrad=True),
    "adagrad": lambda p: nn.optim.Adagrad(p, lr=0.01),
    "nadam": lambda p: nn.optim.NAdam(p, lr=0.01),
    "adadelta": lambda p: nn.optim.Adadelta(p, lr=0.5),
    "rmsprop": lambda p: nn.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
}


class Training:
    """A layer, its optimizer, and a step of both as a program."""

    def __init__(self, optimizer: str = "adamw", jit: Any = cb.jit) -> None:
        self.layer = nn.Linear(WIDE, WIDE)
        rng = np.random.default_rng(1)
        with cb.no_grad():
            for p in self.layer.parameters():
                p.assign_(cb.tensor(rng.standard_normal(p.shape).astype(np.float32) / 16))
        self.optimizer = OPTIMIZERS[optimizer](self.layer.parameters())
        self.step = jit(self.one)

    def one(self, x: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = (self.layer(x).tanh() ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def warm(self, steps: int = 4) -> Training:
        for n in range(steps):
            self.step(cb.tensor(X[n]))
        return self

    @property
    def weight(self) -> Tensor:
        return self.layer.weight

    @property
    def states(self) -> list[Tensor]:
        state = self.optimizer.state.get(self.weight, {})
        return [self.weight, *(t for t in state.values() if isinstance(t, Tensor))]

    def numpy(self) -> list[np.ndarray]:
        return [t.numpy().copy() for t in self.states]

    @property
    def program(self) -> Program:
        (found,) = (p for programs in self.step.programs.values() for p in programs)
        return found


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_memory_stays_and_the_bits_are_those_of_new_memory(optimizer: str) -> None:
    ours, theirs = Training(optimizer).warm(1), Training(optimizer, lambda f: f).warm(1)
    memory = [t.storage.array.ctypes.data for t in ours.states]
    for x in X[1:]:  # the second call is traced, the third one is the plan
        assert ours.step(cb.tensor(x)).item() == theirs.step(cb.tensor(x)).item()
        assert [t.storage.array.ctypes.data for t in ours.states] == memory
    for one, other in zip(ours.numpy(), theirs.numpy(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert ours.program.plan is not None and len(ours.program.updated) == len(memory)


@pytest.mark.parametrize(
    "held",
    [
        lambda w: w.detach(),
        lambda w: w.numpy(),
        lambda w: w.detach().numpy()[3:],
        lambda w: w.detach().reshape(-1),
        lambda w: w.T,
        lambda w: w.value,
        lambda w: w.storage,
        lambda w: np.from_dlpack(w.detach()),
        lambda w: (w * w).sum(),  # its gradient reads w
    ],
)
def test_who_has_the_elements_keeps_them(held: Callable[[Tensor], Any]) -> None:
    ours, theirs = Training().warm(), Training(jit=lambda f: f).warm()
    one = held(ours.weight)
    before = ours.weight.numpy().copy()
    for n in range(3):
        assert ours.step(cb.tensor(X[n])).item() == theirs.step(cb.tensor(X[n])).item()
    kept = one
    if isinstance(one, Tensor) and not one.shape:
        ours.weight.grad = None
        one.backward()
        kept = ours.weight.grad
        before = before * 2
    if isinstance(kept, module.Value):
        kept = kept.storage
    kept = kept.numpy() if isinstance(kept, Tensor) else kept
    kept = kept.dense() if isinstance(kept, module.Dense) else kept
    want = before.T if kept.shape == before.T.shape and kept.strides[0] == 4 else before
    want = want[3:] if len(kept) == WIDE - 3 else want.reshape(kept.shape)
    np.testing.assert_array_equal(kept, want)
    for mine, other in zip(ours.numpy(), theirs.numpy(), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_results_of_the_old_elements() -> None:
    """Whatever shares memory with a parameter as it was before the step."""

    def shown(self: Training, x: Tensor) -> Any:
        before = self.weight.detach()
        self.one(x)
        with cb.no_grad():
            return before, before[2:5], before.T, (self.weight - before).abs().max()

    ours = Training()
    ours.step = cb.jit(lambda x: shown(ours, x))
    for x in X:
        before = ours.weight.numpy().copy()
        whole, part, turned, most = ours.step(cb.tensor(x))
        np.testing.assert_array_equal(whole.numpy(), before)
        np.testing.assert_array_equal(part.numpy(), before[2:5])
        np.testing.assert_array_equal(turned.numpy(), before.T)
        assert most.item() == np.abs(ours.weight.numpy() - before).max() > 0


def test_a_parameter_that_is_read_after_its_step() -> None:
    ours = Training()

    def step(x: Tensor) -> Tensor:
        ours.one(x)
        with cb.no_grad():
            return ours.layer(x)

    program = cb.jit(step)
    for x in X:
        found = program(cb.tensor(x)).numpy()
        want = x @ ours.weight.numpy().T + ours.layer.bias.numpy()
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_memory_of_the_users_is_not_written() -> None:
    ours = Training().warm()
    mine = RNG.standard_normal((WIDE, WIDE)).astype(np.float32)
    raw = np.zeros(mine.nbytes + 4, np.uint8)[4:].view(np.float32).reshape(mine.shape)
    fixed = mine.copy()
    fixed.flags.writeable = False
    for array in (mine, raw, fixed):
        before = array.copy()
        with cb.no_grad():
            ours.weight.assign_(cb.tensor(array))
        for x in X[:3]:
            ours.step(cb.tensor(x))
        np.testing.assert_array_equal(array, before)
        assert not np.array_equal(ours.weight.numpy(), before)


def test_an_error_before_the_update_leaves_all_as_it_was() -> None:
    table = nn.Embedding(WIDE, WIDE)
    optimizer = nn.optim.AdamW(table.parameters(), lr=0.1)

    @cb.jit
    def step(codes: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (table(codes) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    good, bad = cb.tensor(np.arange(9)), cb.tensor(np.arange(9) + WIDE - 4)
    for _ in range(4):
        step(good)
    before = [p.numpy().copy() for p in table.parameters()]
    with pytest.raises(CubeError):
        step(bad)
    for p, was in zip(table.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.numpy(), was)
    step(good)
    assert not np.array_equal(table.weight.numpy(), before[0])


def test_an_error_in_a_traced_call_gives_values_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = Training().warm(1), Training(jit=lambda f: f).warm(1)

    def failing(self: Program, *given: Any) -> Any:
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr(Program, "compute", failing)
    with pytest.raises(MemoryError):
        ours.step(cb.tensor(X[4]))
    for one, other in zip(ours.numpy(), theirs.numpy(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert ours.weight.requires_grad and ours.weight.is_leaf


def test_an_interrupt_in_the_midst_of_the_first_updates_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = Training().warm(1)
    plain = OPS["adam_step_in_place"].run
    ran: list[Any] = []

    def interrupted(*given: Any) -> Any:
        ran.append(plain(*given))
        raise KeyboardInterrupt

    monkeypatch.setattr(OPS["adam_step_in_place"], "run", interrupted)
    monkeypatch.setattr(repeated._tables, "nodes", {})  # no update like one that ran before
    with pytest.raises(KeyboardInterrupt) as error:
        ours.step(cb.tensor(X[4]))
    assert len(ran) == 1
    if hasattr(error.value, "add_note"):
        assert "Load a checkpoint" in error.value.__notes__[0]


@pytest.mark.parametrize("when", ["begin", "end"])
def test_an_interrupt_finds_all_old_or_all_new_states(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = Training().warm(), Training(jit=lambda f: f).warm()
    plain = getattr(module.Update, when)

    def interrupted(self: module.Update, *states: Any) -> Any:
        plain(self, *states)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Update, when, interrupted)
    with pytest.raises(KeyboardInterrupt):
        ours.step(cb.tensor(X[4]))
    if when == "end":
        theirs.step(cb.tensor(X[4]))
    for one, other in zip(ours.numpy(), theirs.numpy(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert {type(t.storage) for t in ours.states} == {module.Dense}


def test_other_threads_never_see_half_a_step() -> None:
    """All elements of the weight are one number, and the next step gives all another one."""
    weight = nn.Parameter(cb.tensor(np.ones((1024, 1024), np.float32)))
    optimizer = nn.optim.SGD([weight], lr=0.5)

    @cb.jit
    def step() -> None:
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    step(), step(), step()
    failed: list[Any] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            lowest, highest = (weight.detach() + 0).min().item(), weight.detach().max().item()
            if lowest < highest:  # the second one came later
                failed.append((lowest, highest))
            seen = weight.detach() * 1
            if seen.min().item() != seen.max().item():
                failed.append(seen)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(60):
        step()
    done.set()
    for t in threads:
        t.join()
    assert not failed
    assert weight.numpy()[0, 0] == 1 - 63 / 2


def test_two_threads_train_two_models() -> None:
    both = [Training(), Training()]
    wanted = Training(jit=lambda f: f).warm(8)

    def train(one: Training) -> None:
        one.warm(8)

    threads = [threading.Thread(target=train, args=(one,)) for one in both]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for one in both:
        for mine, other in zip(one.numpy(), wanted.numpy(), strict=True):
            np.testing.assert_array_equal(mine, other)


def test_no_memory_for_a_copy() -> None:
    ours, theirs = Training().warm(), Training(jit=lambda f: f).warm()
    held, x = ours.weight.numpy(), cb.tensor(X[4])
    with cb.config.override(memory_limit=host_pool.stats.in_use + (1 << 17)):
        with pytest.raises(OutOfMemoryError):
            ours.step(x)
    assert {type(t.storage) for t in ours.states} == {module.Dense}
    del held
    ours.optimizer.state[ours.weight]["step"] = theirs.optimizer.state[theirs.weight]["step"]
    ours.step(x), theirs.step(x)
    for one, other in zip(ours.numpy(), theirs.numpy(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_compiling_and_explaining_change_nothing() -> None:
    ours = Training().warm()
    before = ours.numpy()
    ours.step.compile(cb.tensor(X[0][:3]))
    assert "adam_step_in_place" in str(cb.explain(ours.step, cb.tensor(X[0][:3])))
    with cb.profile():
        ours.step(cb.tensor(X[0][:3]))
    theirs = Training(jit=lambda f: f).warm()
    for one, other in zip(before, theirs.numpy(), strict=True):
        np.testing.assert_array_equal(one, other)
    theirs.step(cb.tensor(X[0][:3]))
    for one, other in zip(ours.numpy(), theirs.numpy(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_gradients_through_results_see_the_old_elements() -> None:
    """The state is read again by the walk back, so it is not written in place."""
    scale = cb.tensor(np.full((WIDE, WIDE), 2.0, np.float32))
    numbers = cb.tensor(np.array([1, 0, 0.5], np.float32))

    def function(x: Tensor) -> Tensor:
        y = (x * scale).sum()
        with cb.no_grad():
            (new,) = apply("sgd_step", numbers, scale, scale)
            scale.assign_(new)
        return y

    program = cb.jit(function)
    for n in range(5):
        x = cb.tensor(np.ones((WIDE, WIDE), np.float32), requires_grad=True)
        y = program(x)
        was = 2.0 / 2**n
        y.backward()
        assert x.grad.numpy()[0, 0] == was and scale.numpy()[0, 0] == was / 2
