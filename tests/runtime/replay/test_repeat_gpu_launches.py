"""Launches on a GPU that came before are repeated by machine code, with the stream, the addresses
and the globals of now.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.cuda.native.module import Wish, launch_config
from cubepy.backends.cuda.native.tensor_maps import encoded
from cubepy.backends.gpu.replay import GpuTable
from cubepy.errors import AliasError
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import output
from cubepy.runtime import recording
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.layout import layout_of
from cubepy.runtime.stats import counters
from cubepy.runtime.tensor_map import ArrayMap
from tests.backends.gpu.fake_driver import (
    BACKENDS,
    DRIVER,
    FakeDriver,
    fake_driver,
    here,
    kernel,
    loadable,
)
from tests.runtime.replay import gpu_calls
from tests.runtime.replay.gpu_calls import Executable, Repetitions, memory_of, new, same, some


@pytest.mark.parametrize("fake", [("cuda", order) for order in range(3)], indirect=True)
def test_clusters_and_tensor_maps_get_stream_and_addresses(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which GPUs of NVIDIA have."""
    seen: list[Any] = []

    def launch(self: Any, config: int, function: int, parameters: int, extra: int) -> int:
        words = (ctypes.c_int64 * 7).from_address(config)
        grid = (ctypes.c_uint32 * 7).from_address(config)
        at = [ctypes.c_int64.from_address(parameters + 8 * k).value for k in range(3)]
        seen.append(
            (
                list(grid),
                words[4],
                function,
                [ctypes.c_int64.from_address(a).value for a in at],
                at[2] % 64,
            )
        )
        return 0

    def move(self: Any, tensor_map: int, address: int, *rest: int) -> int:
        ctypes.c_int64.from_address(tensor_map).value = address
        return 0

    monkeypatch.setattr(FakeDriver, "launch_configured", launch, raising=False)
    monkeypatch.setattr(FakeDriver, "move_tensor_map", move, raising=False)
    array = DeviceArray(0x4000, layout_of((64, 64), None, np.dtype(np.float16), here()), None)
    runner = SimpleNamespace(
        empty=False, arrays=[(0, 0, True)], numbers=[(1, 1, 1)], maps=[(2, 2, False)], loose=0, fault_word=-1,
        block=[0] * 18, starts=[0, 1, 2], exe=SimpleNamespace(program=SimpleNamespace(name="some")),
        encoded=encoded,
        config=launch_config((5, 6, 7), (32, 2, 1), 99, Wish(cluster=(2, 1, 1))), head=(ctypes.c_void_p(0x77), *[0] * 7),
    )  # fmt: skip
    table = GpuTable(DRIVER.context(0))
    table.launch(
        runner, [array, 1.5, ArrayMap(array, array, (16, 64), 128)], [(0, 8), None, (1, 256)]
    )  # type: ignore[arg-type]
    run, at, alive = table.ready()
    for handle, one, two in ((11, 0x5000, 0x6000), (12, 0x7000, 0x8000)):
        assert run(at, handle, one, two) == 0
        grid = [5, 6, 7, 32, 2, 1, 99]
        assert seen.pop() == (
            grid,
            handle,
            0x77,
            [one + 8, np.float32(1.5).view(np.int32), two + 256],
            0,
        )
    assert alive


def test_launches_are_repeated(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [cb.Stream(here()) for _ in range(2)]
    whole = some(30)
    bound: list[Any] = []
    binder = gpu_calls.add_arrays.launches.binder
    monkeypatch.setattr(
        gpu_calls.add_arrays.launches, "binder", lambda *a, **k: bound.append(a) or binder(*a, **k)
    )  # type: ignore[func-returns-value]
    for n in range(12):
        x, y, out = (new(whole)[k : k + 10] for k in (0, 10, 20))
        before, many = counters.launches, len(bound)
        with streams[n % 2]:
            gpu_calls.add_arrays[1, 10](x, cb.tensor(y), out)
        same(out, whole[:10] + whole[10:20])
        assert counters.launches == before + 1 and (len(bound) > many) == (n < 2)
        gpu_calls.add_arrays[1, 10](x, x, x)
        same(x, 2 * whole[:10])
        with pytest.raises(AliasError):
            gpu_calls.add_arrays[1, 10](y, out, out[::-1])
        with cb.profile() as p:
            gpu_calls.add_arrays[1, 10](y, y, new(whole)[:10])
        assert p.kernels["add_arrays"].calls == 1


FACTOR: Any = 1.0


def test_a_global_that_changes_is_seen_by_repetitions(
    monkeypatch: pytest.MonkeyPatch, repetitions: Repetitions
) -> None:
    """Of launches, and of calls of a function that launches; the library's own kernels ask for
    nothing.
    """

    @cb.kernel
    def multiplied(a: cb.Array, out: cb.Array):
        i = cb.ABSOLUTE_POS
        if i < out.size:
            out[i] = a[i] * FACTOR

    def times(factor: float) -> Any:
        def run(words: list[int]) -> None:
            a, out = (memory_of(words[k : k + 3]) for k in (0, 3))
            out[...] = a * np.float32(factor)

        return run

    class Scaled(Executable):
        def __init__(self, program: Any) -> None:
            super().__init__(program)
            self.loadable = loadable(f"times_{FACTOR}")

    @repeated
    def product(x: Any, *, out: Any = None) -> Any:
        a = array_of(x)
        result = output(out, a.shape, a.dtype)
        multiplied[1, a.size](a, result)
        return result if out is None else out

    monkeypatch.setattr(
        BACKENDS["cuda"], "executable", lambda self, k, program, specs, in_place: Scaled(program)
    )
    with fake_driver(monkeypatch, 1) as fake:
        for factor in (1.0, 2.0, 3.0):
            fake.kernels[f"times_{factor}"] = kernel(6)(times(factor))
        before = counters.specialised
        for turn in range(24):
            monkeypatch.setitem(globals(), "FACTOR", [1.0, 2.0, 1.0, 3.0][turn // 6] * 1.0)
            x, out = some(), new(some())
            same(product(new(x)), x * np.float32(FACTOR))
            multiplied[1, 10](new(x), out)
            same(out, x * np.float32(FACTOR))
        assert counters.specialised == before + 3
        assert repetitions.long == 3, "one for each value"
        recording.forget()
