"""Training steps as programs: gradients inside, parameters as states."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.runtime.stats import counters
from cubepy.tensor import Tensor


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(3)
        self.first, self.second, self.third = nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(16, 3)
        with cb.no_grad():
            for p in self.parameters():
                p.assign_(rng.standard_normal(p.shape).astype(np.float32) * 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(self.first(x).relu()).tanh())


def step_of(net: Net, momentum: bool) -> Callable[..., Tensor]:
    """A step of SGD, with momentum in tensors that are there before."""
    parameters = list(net.parameters())
    speeds = [cb.tensor(np.zeros(p.shape, np.float32)) for p in parameters]

    def step(x: Tensor, y: Tensor, lr: float) -> Tensor:
        for p in parameters:
            p.grad = None
        error = net(x) - y
        loss = (error * error).mean()
        loss.backward()
        with cb.no_grad():
            for p, v in zip(parameters, speeds, strict=True):
                if momentum:
                    v *= 0.9
                    v += p.grad
                    p -= v * lr
                else:
                    p -= p.grad * lr
        return loss

    return step


def batch(seed: int, n: int = 8) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 12)).astype(np.float32)
    return cb.tensor(x), cb.tensor(x[:, :3] * 0.5)


@pytest.mark.parametrize("momentum", [False, True])
def test_twenty_steps_are_those_of_the_function(momentum: bool) -> None:
    ours, theirs = Net(), Net()
    program, function = cb.jit(step_of(ours, momentum)), step_of(theirs, momentum)
    for n in range(20):
        x, y = batch(n)
        lr = 0.1 / (1 + n)
        one, other = program(x, y, lr), function(x, y, lr)
        np.testing.assert_array_equal(one.numpy(), other.numpy())
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert p.requires_grad and p.is_leaf
            np.testing.assert_array_equal(p.numpy(), q.numpy())
            np.testing.assert_array_equal(p.grad.numpy(), q.grad.numpy())
    assert sum(program.traces.values()) == 1
    assert "one call of machine code" in program.explain()


def test_gradients_that_are_summed_up_over_calls() -> None:
    net = Net()
    parameters = list(net.parameters())

    def backward(x: Tensor, y: Tensor) -> None:
        ((net(x) - y) * (net(x) - y)).mean().backward()

    program = cb.jit(backward)
    for run in (program, backward):
        for p in parameters:
            p.grad = None
        for n in range(6):
            run(*batch(n))
        if run is program:
            found = [p.grad.numpy().copy() for p in parameters]
    for one, p in zip(found, parameters, strict=True):
        np.testing.assert_array_equal(one, p.grad.numpy())
    assert sum(program.traces.values()) == 2  # with gradients and without


def test_a_step_launches_what_its_plan_says_and_keeps_no_memory() -> None:
    net = Net()
    program = cb.jit(step_of(net, True))
    x, y = batch(0)
    for _ in range(6):
        program(x, y, 0.01)
    (made,) = next(iter(program.programs.values()))
    before = counters.launches
    program(x, y, 0.01)
    assert counters.launches - before == made.plan.launches
    gc.collect()
    alive = len(gc.get_objects())
    for _ in range(500):
        program(x, y, 0.01)
    gc.collect()
    assert len(gc.get_objects()) - alive < 50
    assert len(made.operands.frames) == 1


def test_what_was_computed_before_a_step_keeps_its_values() -> None:
    net = Net()
    program = cb.jit(step_of(net, False))
    x, y = batch(1)
    for _ in range(5):
        weight: Any = net.first.weight.detach()
        old = weight.numpy().copy()
        program(x, y, 0.1)
        np.testing.assert_array_equal(weight.numpy(), old)
        assert not np.array_equal(net.first.weight.numpy(), old)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: nn.optim.SGD(p, lr=0.05),
    "momentum": lambda p: nn.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: nn.optim.Adam(p, lr=0.01),
    "adamw": lambda p: nn.optim.AdamW(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: nn.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: nn.optim.Adagrad(p, lr=0.01, lr_decay=0.1),
    "nadam": lambda p: nn.optim.NAdam(p, lr=0.01),
    "radam": lambda p: nn.optim.RAdam(p, lr=0.01),
    "adamax": lambda p: nn.optim.Adamax(p, lr=0.01),
    "adadelta": lambda p: nn.optim.Adadelta(p, lr=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_optimizers_with_a_schedule(name: str) -> None:
    """The second call is traced, since the first one makes the states; none is traced for other
    learning rates, and steps are counted.
    """

    def training() -> tuple[Net, Any, Callable[..., Tensor]]:
        net = Net()
        optimizer = OPTIMIZERS[name](net.parameters())

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            error = net(x) - y
            loss = (error * error).mean()
            loss.backward()
            optimizer.step()
            return loss

        return net, optimizer, step

    (ours, first, step), (theirs, second, function) = training(), training()
    program = cb.jit(step)
    for n in range(20):
        for optimizer in (first, second):
            optimizer.param_groups[0]["lr"] = 0.05 / (1 + n)
        one, other = program(*batch(n)), function(*batch(n))
        np.testing.assert_array_equal(one.numpy(), other.numpy())
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            np.testing.assert_array_equal(p.numpy(), q.numpy())
    assert sum(program.traces.values()) == 2
    assert "one call of machine code" in program.explain()
    for p, q in zip(first.state.values(), second.state.values(), strict=True):
        assert p.get("step") == q.get("step")


def test_dropout_is_drawn_anew_in_every_call() -> None:
    layer = nn.Dropout(0.5)
    program = cb.jit(lambda x: layer(x) * 2)
    x = cb.tensor(np.ones((16, 16), np.float32))
    found = []
    for run in (program, lambda x: layer(x) * 2):
        nn.init.manual_seed(5)
        found.append([run(x).numpy().copy() for _ in range(6)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len({one.tobytes() for one in found[0]}) == 6
    assert "one call of machine code" in program.explain()


def test_generators_go_on_from_call_to_call() -> None:
    def function_of(generator: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: generator.dropout(x, 0.5) + generator.normal((16,))

    ours, theirs = cb.Generator(3), cb.Generator(3)
    program, function = cb.jit(function_of(ours)), function_of(theirs)
    x = cb.tensor(np.ones((16, 16), np.float32))
    for _ in range(6):
        np.testing.assert_array_equal(program(x).numpy(), function(x).numpy())
        assert ours.state.tolist() == theirs.state.tolist()
    assert sum(program.traces.values()) == 1
    assert "one call of machine code" in program.explain()


def test_codes_that_lie_apart_are_read_by_launches() -> None:
    """Rows of a longer text: what is made of them in one piece is a step of the plan."""
    table, net = nn.Embedding(11, 12), Net()
    optimizer = nn.optim.SGD([*table.parameters(), *net.parameters()], lr=0.1)

    @cb.jit
    def step(codes: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (net(table(codes)) ** 2).mean() + table.weight[codes].mean()
        loss.backward()
        optimizer.step()
        return loss

    text = np.random.default_rng(0).integers(0, 11, (6, 9))
    losses = [step(cb.tensor(text[:, :-1])).item() for _ in range(8)]
    assert losses[-1] < losses[0]
    assert "one call of machine code" in step.explain()


@pytest.mark.parametrize(
    ("make", "schedule"),
    [
        (lambda p: nn.optim.SGD(p, lr=0.05, momentum=0.9), True),
        (lambda p: nn.optim.AdamW(p, lr=0.01), True),
        (lambda p: nn.optim.RMSprop(p, lr=0.01, momentum=0.5), True),
        (lambda p: nn.optim.Adagrad(p, lr=0.01), False),
    ],
)
def test_schedules_of_momentum_dropout_and_seeds_make_no_other_program(
    make: Callable[[Any], Any], schedule: bool
) -> None:
    """100 steps with one cycle of rate and momentum, dropout, clipped gradients and other seeds:
    the program of the second step does them all, and they are those of the function.
    """

    def training() -> tuple[Any, Any, Any]:
        net = nn.Sequential(Net(), nn.Dropout(0.2))
        optimizer = make(net.parameters())
        rates = (
            nn.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=110)
            if schedule
            else nn.optim.lr_scheduler.StepLR(optimizer, 10)
        )

        def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            optimizer.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            return loss, norm

        return net, rates, step

    def run(step: Any, rates: Any, steps: range) -> list[tuple[float, float]]:
        found = []
        for n in steps:
            nn.init.manual_seed(n // 3)
            found.append(tuple(t.item() for t in step(*batch(n))))
            rates.step()
        return found

    (_, rates, step), (_, others, function) = training(), training()
    program = cb.jit(step)
    first = run(program, rates, range(5))
    before = counters.compiled, sum(program.traces.values())
    rest = run(program, rates, range(5, 105))
    assert (counters.compiled, sum(program.traces.values())) == before and before[1] == 2
    assert "one call of machine code" in program.explain()
    assert first + rest == run(function, others, range(105))


def test_states_that_are_loaded_and_groups_that_are_added_are_used() -> None:
    """No stale program: loaded states and options count from the next step on."""

    def training() -> tuple[Net, Any, Any]:
        net = Net()
        groups = [
            {"params": net.first.parameters(), "lr": 0.02},
            {"params": net.second.parameters(), "weight_decay": 0.1, "amsgrad": True},
        ]
        optimizer = nn.optim.AdamW(groups, lr=0.01)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        return net, optimizer, step

    (net, optimizer, step), (other, second, function) = training(), training()
    program = cb.jit(step)

    def both(steps: range) -> None:
        for n in steps:
            assert program(*batch(n)).item() == function(*batch(n)).item()
        for p, q in zip(net.parameters(), other.parameters(), strict=True):
            np.testing.assert_array_equal(p.numpy(), q.numpy())

    both(range(6))
    saved = [(m.state_dict(), o.state_dict()) for m, o in ((net, optimizer), (other, second))]
    copies = [({k: v.numpy().copy() for k, v in m.items()}, o) for m, o in saved]
    both(range(6, 10))
    for (model, state), m, o in zip(copies, (net, other), (optimizer, second), strict=True):
        m.load_state_dict(model)
        o.load_state_dict(state)
    both(range(10, 16))
    for o, m in ((optimizer, net), (second, other)):
        o.add_param_group({"params": m.third.parameters(), "lr": 0.03})
    both(range(16, 22))
    for o in (optimizer, second):
        o.param_groups[0]["amsgrad"] = True
        o.param_groups[1]["betas"] = (0.8, 0.9)
        o.param_groups[2]["maximize"] = True
    both(range(22, 28))
    assert "one call of machine code" in program.explain()


def test_gradients_go_before_a_call_that_gives_them_anew() -> None:
    """There is no memory for both; those that the call reads stay, as do small ones."""
    w, v = (cb.tensor(np.ones((256, 256), np.float32), requires_grad=True) for _ in range(2))
    small = cb.tensor([2.0], requires_grad=True)

    def step(x: Tensor) -> Tensor:
        w.grad = small.grad = None
        loss = ((x @ w) * small).sum() + (x * v).sum()
        loss.backward()  # adds to what v has
        return loss

    program, x = cb.jit(step), cb.tensor(np.eye(256, dtype=np.float32))
    for _ in range(5):
        program(x)
    before = [weakref.ref(t.grad) for t in (w, v, small)]
    (made, *_), *_ = program.programs.values()
    scope, seen = made.call.__globals__, list[bool]()
    go = scope["go"]

    def watched(*given: Any) -> Any:
        seen.extend(ref() is None for ref in before)
        return go(*given)

    scope["go"] = watched
    program(x)
    assert seen == [True, False, False]
    np.testing.assert_array_equal(w.grad.numpy(), np.full((256, 256), 2.0, np.float32))
    np.testing.assert_array_equal(v.grad.numpy(), np.eye(256, dtype=np.float32) * 6)
    assert small.grad.item() == 256 * 256
