"""Functions, arrays and launches on a pretended GPU, for tests of what is repeated by machine code.

The driver is the one of `tests.backends.gpu.fake_driver`: it runs work late, and in any order that
is not forbidden.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.gpu.run import GpuRunner
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.runtime import memory, recording
from cubepy.runtime.memory.constants import constant_on
from cubepy.runtime.memory.device_array import DeviceArray, upload
from cubepy.runtime.replay.record import Recorder
from tests.backends.gpu.fake_driver import (
    BACKENDS,
    FakeDriver,
    fake_driver,
    here,
    kernel,
    loadable,
    runner,
    runner_class,
)


def adding() -> Any:
    """A kernel that was never launched."""

    @cb.kernel
    def add_arrays(a: cb.Array, b: cb.Array, out: cb.Array):
        """out = a + b."""
        i = cb.ABSOLUTE_POS
        if i < out.size:
            out[i] = a[i] + b[i]

    return add_arrays


add_arrays = adding()


def memory_of(words: list[int]) -> np.ndarray:
    """The array of three words of a launch: address, size, stride in elements."""
    at, size, stride = words
    low = min(0, (size - 1) * stride)
    raw = (ctypes.c_float * (1 + abs((size - 1) * stride))).from_address(at + 4 * low)
    return np.lib.stride_tricks.as_strided(
        np.frombuffer(raw, np.float32)[-low:], (size,), (4 * stride,)
    )


@kernel(9)
def added(words: list[int]) -> None:
    """What `add_arrays` does."""
    a, b, out = (memory_of(words[k : k + 3]) for k in (0, 3, 6))
    out[...] = a.copy() + b


@repeated
def plus(x: Any, y: Any, *, out: Any = None) -> Any:
    """x + y."""
    wrap, a, b = wrapper(x, y), array_of(x), array_of(y)
    result = output(out, a.shape, a.dtype)
    add_arrays[1, max(1, a.size)](a, b, result)
    return finish(result, out, wrap)


@repeated
def much(x: Any, y: Any, times: int = 3, *, out: Any = None) -> Any:
    """x + times * y + 2, through scratch, a constant, a fill and a copy."""
    a, b = array_of(x), array_of(y)
    scratch, zeros = memory.empty(a.shape, a.dtype), memory.empty(a.shape, a.dtype)
    scratch[...] = a
    zeros.fill(0)
    for _ in range(times):
        add_arrays[1, a.size](scratch, b, scratch)
    add_arrays[1, a.size](scratch, zeros, scratch)
    result = output(out, a.shape, a.dtype)
    add_arrays[1, a.size](scratch, constant_on(a.device, np.full(a.shape, 2, np.float32)), result)
    return result if out is None else out


class Executable:
    """Machine code that is a function of Python."""

    def __init__(self, program: Any) -> None:
        self.program, self.loadable, self.units = program, loadable(program.name), (1, 1, 1)
        self.shared_bytes, self.cluster, self.overlap, self.sites, self.loose, self.whole = (
            0,
            None,
            False,
            (),
            0,
            None,
        )

    def prepare(self, leaves: Any, values: Any, cubes: Any, ordinal: int = 0) -> GpuRunner:
        return runner(self, leaves, cubes, ordinal)

    def symbolic(self, leaves: Any, cubes: Any, ordinal: int = 0) -> GpuRunner:
        return runner_class().symbolic(self, leaves, cubes, ordinal)


def start(
    monkeypatch: pytest.MonkeyPatch, seed: int, devices: int = 1, vendor: str = "cuda"
) -> Iterator[FakeDriver]:
    monkeypatch.setattr(
        BACKENDS[vendor],
        "executable",
        lambda self, k, program, specs, in_place: Executable(program),
    )
    monkeypatch.setitem(globals(), "add_arrays", adding())  # another driver
    gc.freeze()  # what other tests left is not looked at
    with fake_driver(monkeypatch, seed, devices=devices, vendor=vendor) as f:
        f.kernels["add_arrays"] = added
        yield f
        recording.forget()
        gc.collect()


def new(values: Any, ordinal: int = 0) -> DeviceArray:
    return upload(np.asarray(values, np.float32), here(ordinal))


def some(n: int = 10) -> np.ndarray:
    return (
        np.random.default_rng(some.calls.append(0) or len(some.calls))
        .standard_normal(n)
        .astype(np.float32)
    )  # type: ignore[attr-defined]


some.calls = []  # type: ignore[attr-defined]


def same(found: Any, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found.numpy(), expected)


class Repetitions:
    """Counts calls that took the long way, by what was recorded of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.long = 0
        begin = Recorder.__enter__

        def count(recorder: Recorder) -> Recorder:
            self.long += 1
            return begin(recorder)

        monkeypatch.setattr(Recorder, "__enter__", count)
