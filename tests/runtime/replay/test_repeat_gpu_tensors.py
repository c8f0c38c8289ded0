"""Calls with tensors on a GPU, ours and those of PyTorch, are repeated by machine code."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import AliasError, LaunchError
from cubepy.runtime.interop import foreign
from cubepy.runtime.interop.arrays import QUICK
from cubepy.runtime.launch.launcher import Launcher
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.tensor import Tensor
from cubepy.tensor.replay import OFTEN
from tests.backends.gpu.fake_driver import FakeDriver
from tests.runtime.replay.gpu_calls import Repetitions, adding, new, plus, same, some, start


def test_tensors_give_tensors(fake: FakeDriver) -> None:
    for _ in range(5):
        x, y = some(), some()
        found = plus(cb.tensor(new(x)), new(y))
        assert type(found) is Tensor
        same(found, x + y)
        assert type(plus(new(x), new(y))) is DeviceArray


class FakeTensor:
    """What is asked of a tensor of PyTorch."""

    is_cuda = True

    def __init__(self, array: DeviceArray, requires_grad: bool = False) -> None:
        self.array, self.requires_grad, self.dtype = array, requires_grad, "torch.float32"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(s // 4 for s in self.array.strides)

    def get_device(self) -> int:
        return self.array.device.ordinal

    def data_ptr(self) -> int:
        return self.array.address


def pretended_torch(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    """Let there be tensors of PyTorch that nobody has seen."""
    version = SimpleNamespace(hip="7.1" if fake.vendor == "hip" else None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=kind, version=version))
    monkeypatch.setattr(foreign, "_torch_layouts", {})
    monkeypatch.setitem(QUICK, kind, foreign.from_torch_or_none)


def test_launches_of_tensors_are_repeated_after_those_of_arrays_like_them(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unseen(FakeTensor):
        """A kind of tensor that no other test has shown to the launchers."""

    pretended_torch(fake, monkeypatch, Unseen)
    add = adding()
    long: list[Any] = []
    bound = Launcher.bound
    monkeypatch.setattr(Launcher, "bound", lambda *given: long.append(given) or bound(*given))  # type: ignore[func-returns-value]
    for make in (lambda a: a, Unseen):
        for n in range(8):
            x, y, out = some(), some(), new(some())
            add[1, 10](make(new(x)), make(new(y)), make(out))
            same(out, x + y)
            if n == 4:
                before = len(long)
        assert len(long) == before


def test_tensors_of_pytorch(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, repetitions: Repetitions
) -> None:
    pretended_torch(fake, monkeypatch, FakeTensor)
    whole = some(64)
    for n in range(8):
        held = new(whole)
        x, y, out = (FakeTensor(held[k : k + 16]) for k in (0, 16, 32))
        same(plus(x, y), whole[:16] + whole[16:32])
        assert plus(x, y, out=out) is out
        same(out.array, whole[:16] + whole[16:32])
        assert plus(x, y, out=y) is y
        same(y.array, whole[:16] + whole[16:32])
        with pytest.raises(AliasError):
            plus(x, y, out=FakeTensor(held[n + 3 : n + 19]))
        turned = FakeTensor(new(whole)[::-4])
        same(plus(turned, x), whole[::-4] + whole[:16])
        near = FakeTensor(new(whole)[n : n + 16])
        same(plus(near, near), 2 * whole[n : n + 16])
        with pytest.raises(LaunchError, match="gradient"):
            plus(FakeTensor(held[:16], requires_grad=True), y)
    assert repetitions.long < 40


def test_ops_of_tensors_are_repeated(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    from cubepy.tensor.ops import OPS

    monkeypatch.setattr(OPS["add"], "run", lambda dtype, a, b: plus.__wrapped__(a, b))
    long: list[Any] = []
    ops = sys.modules["cubepy.tensor.array"]
    perform = ops.perform
    monkeypatch.setattr(ops, "perform", lambda *given: long.append(given) or perform(*given))  # type: ignore[func-returns-value]
    for n in range(8):
        x, y = some(), some()
        a, b = cb.tensor(new(x)), cb.tensor(new(y))
        same((a + b).reshape(5, 2).reshape(10)[2:9:3] + b[:3], (x + y)[2:9:3] + y[:3])
        if n == OFTEN + 1:  # views are planned later than launches
            before = len(long)
    assert len(long) == before


def test_numbers_come_to_the_device_of_the_other_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    from cubepy.tensor.ops import OPS

    def add(dtype: Any, *given: DeviceArray) -> Any:
        shape = np.broadcast_shapes(*(v.shape for v in given))
        return plus.__wrapped__(*(np.broadcast_to(v, shape) for v in given))

    monkeypatch.setattr(OPS["add"], "run", add)
    for _ in start(monkeypatch, 1, devices=2):
        x = some()
        found = cb.tensor(new(x))
        for n in range(6):
            found = (1.0 + found + 2.0).to(f"cuda:{n % 2}")
            same(found, x := 1 + x + 2)
        with cb.use("cuda"):  # where a number that none has seen is made meanwhile
            same(found.to("cuda") + 0.375, x + 0.375)
