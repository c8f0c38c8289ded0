"""No stale program: whatever a function read may change, and the next call is right."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.tensor import Tensor

SCALE: Any = 2.0
TABLE = {"a": 1.0}


class Holder:
    factor = 3.0

    def __init__(self) -> None:
        self.shift = 1.0


HOLDER = Holder()


def helper(x: Tensor) -> Tensor:
    return x * SCALE


def right(program: Any, function: Any, *args: Any) -> None:
    for _ in range(4):
        np.testing.assert_array_equal(program(*args).numpy(), function(*args).numpy())


def test_globals_of_the_function_and_of_those_it_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor) -> Tensor:
        return helper(x) + TABLE["a"] + HOLDER.shift * HOLDER.factor

    program, x = cb.jit(function), cb.tensor([1.0, 2.0])
    module = sys.modules[__name__]
    right(program, function, x)
    for name, value in (("SCALE", 5.0), ("SCALE", cb.tensor([7.0, 8.0])), ("TABLE", {"a": 4.0})):
        monkeypatch.setattr(module, name, value)
        right(program, function, x)
    monkeypatch.setitem(module.TABLE, "a", 9.0)
    right(program, function, x)
    monkeypatch.setattr(HOLDER, "shift", 6.0)
    right(program, function, x)
    monkeypatch.setattr(Holder, "factor", 8.0)
    right(program, function, x)
    monkeypatch.setattr(module, "helper", lambda x: x - 1)
    right(program, function, x)


def test_closures_and_defaults() -> None:
    factor = 2.0

    def inner(x: Tensor, by: float = 3.0) -> Tensor:
        return x * by

    def function(x: Tensor) -> Tensor:
        return inner(x) * factor

    program, x = cb.jit(function), cb.tensor([1.0, 2.0])
    right(program, function, x)
    factor = 5.0
    right(program, function, x)
    inner.__defaults__ = (4.0,)
    right(program, function, x)


def test_what_objects_among_defaults_hold() -> None:
    """A module and an optimizer whose steps go on counting."""

    def trained(compiled: bool) -> list[float]:
        nn.init.manual_seed(1)
        net = nn.Linear(3, 2)
        optimizer = nn.optim.Adam(net.parameters(), lr=0.1)

        def step(x: Tensor, net: Any = net, *, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = (net(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        call = cb.jit(step) if compiled else step
        return [call(cb.tensor([[1.0, 2.0, 3.0]])).item() for _ in range(6)]

    np.testing.assert_allclose(trained(True), trained(False), rtol=1e-6)


def test_modules_training_parameters_and_attributes() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.drop, self.scale = nn.Linear(3, 3), nn.BatchNorm1d(3), 2.0

        def forward(self, x: Tensor) -> Tensor:
            return self.drop(self.inner(x)) * self.scale

    nn.init.manual_seed(0)
    net, other = Net(), Net()
    net.eval()
    program, x = cb.jit(net), cb.tensor(np.random.default_rng(0).random((4, 3), np.float32))

    def check() -> None:
        with cb.no_grad():
            right(program, net.forward, x)

    check()
    net.scale = 3.0
    check()
    net.inner.weight = other.inner.weight
    check()
    net.load_state_dict(other.state_dict())
    check()
    with cb.no_grad():
        net.inner.weight *= 2
    check()
    net.inner = other.inner
    check()
    net.train()
    before = net.drop.running_mean.numpy().copy()
    with cb.no_grad():
        program(x)
    assert not np.array_equal(net.drop.running_mean.numpy(), before)


def test_settings_and_devices() -> None:
    def function(x: Tensor) -> Tensor:
        return (x @ x).sum(axis=0) * SCALE

    program = cb.jit(function)
    x = cb.tensor(np.random.default_rng(0).random((40, 40), np.float32))
    right(program, function, x)
    for setting in ({"deterministic": True}, {"num_threads": 1}, {"mode": "unchecked"}):
        with cb.config.override(**setting):
            right(program, function, x)
    with cb.use("python"):
        small = cb.tensor([[1.0, 2.0], [3.0, 4.0]])
        right(program, function, small)
    right(program, function, x)


def test_an_edited_kernel_in_a_module_that_is_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
import cubepy as cb
from cubepy.tensor import empty_like

@cb.kernel
def kernel(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * 2.0

def function(x):
    out = empty_like(x)
    kernel[cb.over(out)](x, out)
    return out
"""
    file = tmp_path / "edited_kernel.py"
    file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("edited_kernel")
    program = cb.jit(lambda x: module.function(x))
    x = cb.tensor([1.0, 2.0])
    for _ in range(3):
        assert program(x).tolist() == [2.0, 4.0]
    file.write_text(text.replace("* 2.0", "* 2.0 + 100.0"))
    importlib.reload(module)
    for _ in range(3):
        assert program(x).tolist() == [102.0, 104.0]


def test_an_array_that_the_user_writes() -> None:
    array = np.ones(3, np.float32)
    x, program = cb.tensor(array), cb.jit(lambda x: x * 2)
    for n in range(5):
        array[0] = n
        assert program(x).tolist() == [2.0 * n, 2.0, 2.0]


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_the_same_bits_for_any_number_of_threads(threads: int) -> None:
    rng = np.random.default_rng(1)
    x, w = (cb.tensor(rng.standard_normal((300, 300)).astype(np.float32)) for _ in range(2))

    def function(x: Tensor, w: Tensor) -> Any:
        y = (x @ w).gelu().softmax(-1)
        return y, y.sum(axis=0), (y * y).sum(), cb.grad(lambda w: ((x @ w) ** 2).mean())(w)

    def run(count: int) -> list[np.ndarray]:
        program = cb.jit(function)
        with cb.config.override(num_threads=count, deterministic=True, serial_elements=64):
            for _ in range(3):
                found = program(x, w)
        return [t.numpy() for t in found]

    for one, other in zip(run(1), run(threads), strict=True):
        np.testing.assert_array_equal(one, other)
