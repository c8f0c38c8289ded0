"""Training steps of modules and losses as programs on a pretended GPU whose launches do nothing:
each becomes a plan of launches, which is repeated.
"""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.nn import optim
from cubepy.runtime import recording
from cubepy.runtime.replay.calls import Calls
from cubepy.tensor import Tensor
from tests.backends.gpu import fake_driver as fakes
from tests.device.tensors.test_training import OPTIMIZERS
from tests.nn.modules.test_on_a_gpu import MODULES, numbers_of, step_of
from tests.runtime.replay.gpu_calls import Executable

GPU = "cuda"
H200 = {1: 1024, 10: 32, 16: 132, 38: 50 << 20, 39: 2048, 75: 9, 76: 0, 81: 233472, 82: 65536, 97: 232448}  # fmt: skip
"""Attributes of a device, by the driver's numbers."""


class Idle(fakes.FakeDriver):
    """Its kernels do nothing."""

    def launch(self, *_: Any) -> int:
        return 0

    launch_configured = launch


@fakes.kernel(1)
def nothing(words: list[int]) -> None:
    """A kernel of any name."""


pytestmark = pytest.mark.skipif(
    os.environ.get("CUBEPY_BACKEND") == "cuda",
    reason="what both would use, a real GPU does not know of a pretended one",
)


@contextmanager
def idle_h200(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pretended H200 whose launches do nothing."""
    monkeypatch.setitem(fakes.ATTRIBUTES, GPU, {**fakes.ATTRIBUTES[GPU], **H200})
    monkeypatch.setattr(
        fakes.BACKENDS[GPU], "executable", lambda self, kernel, program, *_: Executable(program)
    )
    with fakes.fake_driver(monkeypatch, vendor=GPU, fake=Idle(vendor=GPU)) as driver:
        driver.kernels = defaultdict(lambda: nothing, driver.kernels)
        yield
        recording.forget()
        gc.collect()


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with idle_h200(monkeypatch):
        yield


def planned(step: Callable[..., Any], given: tuple[np.ndarray, ...]) -> None:
    """Some calls of a step are one plan, whose results are on the GPU."""
    program = cb.jit(step)
    for _ in range(5):
        found = program(*[cb.tensor(x, device=GPU) for x in given])
    assert all(t.device.backend == GPU for t in numbers_of(found))
    ((made,),) = program.programs.values()
    assert made.plan is not None, made.why


@pytest.mark.parametrize("name", MODULES)
def test_steps_of_modules_are_plans(name: str) -> None:
    made, given = MODULES[name]
    net = made()
    parameters = [*net.to(GPU).parameters()] if isinstance(net, nn.Module) else []

    planned(step_of(net, parameters), given)


@pytest.mark.parametrize("loss", ["mean", "sum"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_optimizers_are_plans(name: str, loss: str) -> None:
    net = nn.Sequential(nn.Linear(12, 33), nn.GELU(), nn.Linear(33, 5)).to(GPU)
    optimizer = getattr(optim, name)(net.parameters(), **OPTIMIZERS[name])

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        value = nn.functional.mse_loss(net(x), y, reduction=loss)
        value.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return value

    program = cb.jit(step)
    for _ in range(6):
        program(*[cb.tensor(np.ones((20, n), np.float32), device=GPU) for n in (12, 5)])
    plans = [made.plan for variants in program.programs.values() for made in variants]
    assert any(plan is not None for plan in plans)


def test_slices_that_begin_anywhere_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six alignments of 4 bytes and more, whatever the slice."""
    recorded: list[Any] = []
    long_way = Calls.long_way

    def counted(self: Calls, key: Any, *rest: Any) -> Any:
        recorded.append(key)
        return long_way(self, key, *rest)

    monkeypatch.setattr(Calls, "long_way", counted)
    x = cb.tensor(np.zeros((40, 100), np.float32), device=GPU)
    for n in range(4):
        if n == 3:
            recorded.clear()
        for k in range(40):
            part = x[:, k : k + 40]
            assert part.reshape(-1).shape == (1600,)
            assert (part * part).shape == (40, 40)
    assert not recorded
