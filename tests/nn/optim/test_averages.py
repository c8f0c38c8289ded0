"""Averages of weights: means, moving means, buffers, running values anew, rates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError
from cubepy.nn.optim import swa_utils
from cubepy.nn.optim.swa_utils import (
    SWALR,
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    get_swa_multi_avg_fn,
    update_bn,
)


def trained(model: Any, average: Any, steps: int, program: bool = False) -> list[np.ndarray]:
    """Weights of a model while it is trained, each taken into the average."""
    rng, found = np.random.default_rng(0), []
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> None:
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()

    run = cb.jit(step) if program else step
    for _ in range(steps):
        run(cb.tensor(rng.standard_normal((8, 3)).astype(np.float32)))
        found.append(model[0].weight.detach().numpy().copy())
        average.update_parameters(model)
    return found


@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize(
    ("options", "ema"),
    [({}, False), ({"multi_avg_fn": get_swa_multi_avg_fn()}, False),
     ({"multi_avg_fn": get_ema_multi_avg_fn(0.75)}, True), ({"avg_fn": get_ema_avg_fn(0.75)}, True)],
)  # fmt: skip
def test_the_average_is_that_of_all_weights(options: Any, ema: bool, program: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average = AveragedModel(model, **options)
    kept = trained(model, average, 6, program)
    want = kept[0].astype(np.float64)
    for n, new in enumerate(kept[1:], 1):
        want = want + (new - want) * (0.25 if ema else 1 / (n + 1))
    np.testing.assert_allclose(average.module[0].weight.detach().numpy(), want, rtol=1e-5)
    assert int(average.n_averaged.numpy()) == 6
    np.testing.assert_array_equal(
        average.module[1].running_mean.numpy(), model[1].running_mean.numpy()
    )
    again = AveragedModel(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), **options)
    again.load_state_dict(average.state_dict())
    assert int(again.n_averaged.numpy()) == 6
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(again.eval()(x).numpy(), average.eval()(x).numpy())


@pytest.mark.parametrize("options", [{}, {"multi_avg_fn": get_ema_multi_avg_fn(0.75)}])
def test_programs_average_as_they_train(options: Any) -> None:
    made = []
    for program in (False, True):
        nn.init.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.BatchNorm1d(2))
        average = AveragedModel(model, **options)
        optimizer = nn.optim.Adam(model.parameters(), lr=0.1)

        def step(x: Any, model: Any = model, o: Any = optimizer, average: Any = average) -> None:
            o.zero_grad()
            ((model(x) - x[:, :2]) ** 2).mean().backward()
            o.step()
            average.update_parameters(model)

        run = cb.jit(step) if program else step
        for n in range(5):
            run(cb.tensor(np.random.default_rng(n).standard_normal((8, 3)).astype(np.float32)))
        assert int(average.n_averaged.numpy()) == 5
        assert not program or sum(run.traces.values()) <= 2
        made.append(average.state_dict())
    for name, value in made[0].items():
        np.testing.assert_allclose(made[1][name].numpy(), value.numpy(), rtol=1e-4, atol=1e-6)


def test_buffers_may_be_averaged() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average = AveragedModel(model, use_buffers=True)
    trained(model, average, 3)
    assert not np.array_equal(average.module[1].running_mean.numpy(), model[1].running_mean.numpy())
    assert int(average.module[1].num_batches_tracked.numpy()) == 1  # 1, 1.5, 1.67: cut


def test_running_values_are_made_anew() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
    batches = [np.random.default_rng(n).standard_normal((5, 3)).astype(np.float32) for n in (1, 2)]
    model[1].running_mean.assign_(np.full(4, 9.0, np.float32))
    update_bn([(b, "label") for b in batches], model, "cpu")
    hidden = [model[0](b).detach().numpy() for b in batches]
    np.testing.assert_allclose(
        model[1].running_mean.numpy(), np.mean([h.mean(0) for h in hidden], 0), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        model[1].running_var.numpy(), np.mean([h.var(0, ddof=1) for h in hidden], 0), rtol=1e-5
    )
    assert model[1].momentum == 0.1 and not any(m.training for m in model.modules())
    update_bn(batches, nn.Linear(3, 4))  # no norms: nothing to do


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_rates_go_to_those_of_averages(strategy: str, steps: int) -> None:
    groups = [{"params": [nn.Parameter([1.0])]}, {"params": [nn.Parameter([1.0])], "lr": 0.1}]
    optimizer = nn.optim.SGD(groups, lr=0.5)
    schedule = SWALR(optimizer, [0.2, 0.3], steps, strategy)
    for t in range(8):
        part = 1.0 if not steps else min(1.0, t / steps)
        share = part if strategy == "linear" else (1 - math.cos(math.pi * part)) / 2
        want = [0.2 * share + 0.5 * (1 - share), 0.3 * share + 0.1 * (1 - share)]
        np.testing.assert_allclose(schedule.get_last_lr(), want, rtol=1e-12)
        schedule.step()


def test_wrong_arguments_are_refused() -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(ArgumentError, match="not both"):
        AveragedModel(model, None, get_ema_avg_fn(), get_ema_multi_avg_fn())
    optimizer = nn.optim.SGD(model.parameters(), lr=0.5)
    with pytest.raises(ArgumentError, match="'cos' or 'linear', not 'step'"):
        SWALR(optimizer, 0.1, anneal_strategy="step")
    with pytest.raises(ArgumentError, match="swa_lr are 1 numbers"):
        SWALR(optimizer, [0.1, 0.2])
    assert set(swa_utils.__all__) <= set(dir(swa_utils))
