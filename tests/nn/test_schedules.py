"""Schedules of learning rates against their closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from cubepy import nn
from cubepy.errors import ArgumentError, FileFormatError, LaunchError
from cubepy.nn.optim import SGD, Adam, lr_scheduler
from cubepy.nn.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

BASE = 0.3


def optimizer(**options: Any) -> SGD:
    return SGD([nn.Parameter([1.0])], **{"lr": BASE, **options})


def rates(schedule: Any, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        found.append(schedule.optimizer.param_groups[0]["lr"])
        assert schedule.get_last_lr() == [found[-1]]
        schedule.optimizer.step()
        schedule.step()
    return found


FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[int], float]]] = {
    "step": (lambda o: StepLR(o, 3, gamma=0.5), lambda t: BASE * 0.5 ** (t // 3)),
    "milestones": (
        lambda o: MultiStepLR(o, [2, 5, 5]),
        lambda t: BASE * 0.1 ** sum(t >= m for m in (2, 5, 5)),
    ),
    "exponential": (lambda o: ExponentialLR(o, 0.9), lambda t: BASE * 0.9**t),
    "lambda": (lambda o: LambdaLR(o, lambda t: 1 / (t + 1)), lambda t: BASE / (t + 1)),
    "linear": (lambda o: LinearLR(o, 0.25, 0.75, 4), lambda t: BASE * (0.25 + 0.5 * min(t, 4) / 4)),
    "linear_defaults": (lambda o: LinearLR(o), lambda t: BASE * (1 / 3 + 2 / 3 * min(t, 5) / 5)),
    "constant": (lambda o: ConstantLR(o, 0.25, 3), lambda t: BASE * (0.25 if t < 3 else 1)),
    "polynomial": (lambda o: PolynomialLR(o, 6, 2.0), lambda t: BASE * max(0, 1 - t / 6) ** 2),
    "multiplicative": (
        lambda o: MultiplicativeLR(o, lambda t: t / (t + 1)),
        lambda t: BASE / (t + 1),
    ),
    "restarts": (
        lambda o: CosineAnnealingWarmRestarts(o, 2, 2, eta_min=0.1),
        lambda t: (
            0.1
            + (BASE - 0.1)
            * (
                1
                + math.cos(
                    math.pi
                    * (
                        t / 2
                        if t < 2
                        else (t - 2) / 4
                        if t < 6
                        else (t - 6) / 8
                        if t < 14
                        else (t - 14) / 16
                    )
                )
            )
            / 2
        ),
    ),
    "cyclic": (
        lambda o: CyclicLR(o, 0.1, 0.5, 2, 4, mode="triangular2", cycle_momentum=False),
        lambda t: 0.1 + 0.4 * (t % 6 / 2 if t % 6 < 2 else (6 - t % 6) / 4) / 2 ** (t // 6),
    ),
    "sequential": (
        lambda o: SequentialLR(
            o, [LinearLR(o, 0.5, total_iters=4), StepLR(o, 2, 0.5), ConstantLR(o, 0.1, 2)], [4, 9]
        ),
        lambda t: (
            BASE
            * (
                0.5 + 0.125 * t
                if t < 4
                else 0.5 ** ((t - 4) // 2)
                if t < 9
                else 0.1
                if t < 11
                else 1
            )
        ),
    ),
    "chained": (
        lambda o: ChainedScheduler([ConstantLR(o, 0.5, 3), ExponentialLR(o, 0.9)]),
        lambda t: BASE * 0.9**t * (0.5 if t < 3 else 1),
    ),
    "cosine": (
        lambda o: CosineAnnealingLR(o, 4, eta_min=0.1),
        lambda t: 0.1 + (BASE - 0.1) * (1 + math.cos(math.pi * t / 4)) / 2,
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_rates_are_those_of_the_closed_form(name: str) -> None:
    make, form = FORMS[name]
    assert rates(make(optimizer()), 15) == pytest.approx([form(t) for t in range(15)], abs=1e-12)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_one_cycle_rises_and_falls(strategy: str) -> None:
    n, up = 20, 0.3 * 20 - 1

    def between(start: float, end: float, share: float) -> float:
        share = (1 - math.cos(math.pi * share)) / 2 if strategy == "cos" else share
        return start + (end - start) * share

    low, top = 1.0 / 25, 1.0
    schedule = OneCycleLR(optimizer(momentum=0.9), top, total_steps=n, anneal_strategy=strategy)
    momentum = []
    found = []
    for _ in range(n):
        found.append(schedule.get_last_lr()[0])
        momentum.append(schedule.optimizer.param_groups[0]["momentum"])
        schedule.step()
    want = [
        between(low, top, t / up) if t <= up
        else between(top, low / 1e4, (t - up) / (n - 1 - up))
        for t in range(n)
    ]  # fmt: skip
    assert found == pytest.approx(want, abs=1e-12)
    assert max(momentum) == pytest.approx(0.95) and min(momentum) == pytest.approx(0.85)
    assert momentum[5] == pytest.approx(0.85)
    with pytest.raises(LaunchError, match="a cycle of 20 steps"):
        schedule.step()


def test_one_cycle_of_three_phases_moves_beta1() -> None:
    adam = Adam([nn.Parameter([1.0])])
    schedule = OneCycleLR(
        adam, 1.0, epochs=2, steps_per_epoch=5, three_phase=True, anneal_strategy="linear"
    )
    found, betas = [], []
    for _ in range(10):
        found.append(schedule.get_last_lr()[0])
        betas.append(adam.param_groups[0]["betas"][0])
        schedule.step()
    assert found[2] == pytest.approx(1.0) and found[4] == pytest.approx(0.04)
    assert found[9] == pytest.approx(0.04 / 1e4)
    assert betas[2] == pytest.approx(0.85) and betas[5:] == pytest.approx([0.95] * 5)


def test_schedules_of_one_optimizer_multiply() -> None:
    o = optimizer()
    first, second = ExponentialLR(o, 0.5), StepLR(o, 2, 0.1)
    found = []
    for _ in range(5):
        found.append(o.param_groups[0]["lr"])
        first.step()
        second.step()
    assert found == pytest.approx([BASE * 0.5**t * 0.1 ** (t // 2) for t in range(5)])


def test_every_group_has_its_rate() -> None:
    o = SGD([{"params": [nn.Parameter([1.0])]}, {"params": [nn.Parameter([1.0])], "lr": 2.0}], lr=1)
    schedule = LambdaLR(o, [lambda t: 0.5**t, lambda t: 1.0])
    schedule.step()
    assert schedule.get_last_lr() == [0.5, 2.0]
    with pytest.raises(ArgumentError, match="2 groups need as many functions, not 1"):
        LambdaLR(o, [lambda t: 1.0])


@pytest.mark.parametrize("name", FORMS)
def test_a_loaded_schedule_goes_on(name: str) -> None:
    make, form = FORMS[name]
    o = optimizer()
    first = make(o)
    rates(first, 3)
    again = optimizer()
    second = make(again)
    second.load_state_dict(first.state_dict())
    again.load_state_dict(o.state_dict())
    assert rates(second, 8) == pytest.approx([form(t) for t in range(3, 11)], abs=1e-12)


def test_a_plateau_lowers_the_rate() -> None:
    o = optimizer(lr=1.0)
    schedule = ReduceLROnPlateau(o, factor=0.5, patience=2, cooldown=2, min_lr=0.2)
    found = []
    for loss in [5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]:
        schedule.step(loss)
        found.append(o.param_groups[0]["lr"])
    # 3 bad ones, then 2 of cooldown and 3 bad ones
    assert found == [1.0] * 4 + [0.5] * 5 + [0.25] * 5 + [0.2] * 4


def test_progress_is_more_than_the_threshold() -> None:
    up = ReduceLROnPlateau(optimizer(lr=1.0), "max", patience=0, threshold=0.5)
    for value, rate in ((1.0, 1.0), (1.6, 1.0), (2.3, 0.1), (3.6, 0.1)):
        up.step(value)
        assert up.get_last_lr() == [pytest.approx(rate)]
    down = ReduceLROnPlateau(
        optimizer(lr=1.0), patience=0, threshold=0.5, threshold_mode="abs", factor=0.5
    )
    for value, rate in ((3.0, 1.0), (2.6, 0.5), (2.4, 0.5)):
        down.step(value)
        assert down.get_last_lr() == [rate]
    again = ReduceLROnPlateau(optimizer(lr=1.0))
    again.load_state_dict(down.state_dict())
    assert again.best == 2.4


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda o: StepLR(o, 0), "step_size must be at least 1, not 0"),
        (lambda o: OneCycleLR(o, 1.0, total_steps=5), "no momentum"),
        (lambda o: OneCycleLR(o, 1.0, total_steps=5, anneal_strategy="up"), "anneal_strategy"),
        (lambda o: ReduceLROnPlateau(o, "down"), "mode is"),
        (lambda o: ReduceLROnPlateau(o, factor=1.0), "factor"),
    ],
)
def test_wrong_options_are_refused(make: Any, text: str) -> None:
    from cubepy.nn.optim import Adagrad

    with pytest.raises((LaunchError, ValueError), match=text):
        make(Adagrad([nn.Parameter([1.0])]))


def test_a_schedule_needs_an_optimizer() -> None:
    with pytest.raises(ArgumentError, match="a schedule is of an optimizer"):
        lr_scheduler.ExponentialLR([1.0], 0.5)  # type: ignore[arg-type]


def test_momentum_goes_against_the_rate_in_cycles() -> None:
    schedule = CyclicLR(optimizer(momentum=0.9), 0.1, 0.5, 2)
    found = []
    for _ in range(5):
        found.append(schedule.optimizer.param_groups[0]["momentum"])
        schedule.step()
    assert found == pytest.approx([0.9, 0.85, 0.8, 0.85, 0.9])
    with pytest.raises(LaunchError, match="no momentum to move"):
        CyclicLR(nn.optim.Adagrad([nn.Parameter([1.0])]), 0.1, 0.5)


def test_groups_that_are_added_later_stay_as_they_are() -> None:
    for make in (
        lambda o: LambdaLR(o, lambda t: 0.5**t),
        lambda o: OneCycleLR(o, 1.0, 9),
        lambda o: CyclicLR(o, 0.1, 0.5, 4),
    ):
        o = optimizer(momentum=0.9)
        schedule = make(o)
        before = schedule.get_last_lr()[0]
        o.add_param_group({"params": nn.Parameter([1.0]), "lr": 2.0})
        schedule.step()
        assert schedule.get_last_lr()[1] == 2.0 and schedule.get_last_lr()[0] != before


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda o: MultiStepLR(o, 3), "milestones must be several steps, not 3"),
        (lambda o: LambdaLR(o, 3), "lr_lambda must be a function of the step"),
        (lambda o: SequentialLR(o, [StepLR(o, 2)], [3]), "1 schedulers need 0 milestones, not 1"),
        (lambda o: SequentialLR(o, [], []), r"must be schedules, not \[\]"),
        (lambda o: ChainedScheduler([StepLR(o, 2), StepLR(optimizer(), 2)]), "of one optimizer"),
        (lambda o: CyclicLR(o, 0.1, 0.5, mode="saw"), "mode is 'triangular'.*not 'saw'"),
        (lambda o: StepLR(o, 2).load_state_dict({}), "the state is none of StepLR: .*gamma"),
        (lambda o: StepLR(o, 2).load_state_dict(None), "what state_dict.. gives, not None"),
        (lambda o: ReduceLROnPlateau(o).load_state_dict({}), "none of a ReduceLROnPlateau"),
        (lambda o: o.load_state_dict({}), "state of an optimizer is what"),
        (lambda o: o.step(5), "closure is a function that gives a loss, not 5"),
        (lambda o: Adam([nn.Parameter([1.0])], betas=0.9), r"betas are 2 numbers, not 0\.9"),
        (lambda o: nn.utils.clip_grad_norm_([1], 1.0), "parameters are tensors, not 1"),
        (lambda o: nn.utils.clip_grad_norm_(nn.Parameter([1.0]), -1), "max_norm must be at least"),
    ],
)
def test_wrong_arguments_of_training_are_named(make: Any, rule: str) -> None:
    with pytest.raises((ArgumentError, LaunchError, FileFormatError), match=rule):
        make(optimizer())
