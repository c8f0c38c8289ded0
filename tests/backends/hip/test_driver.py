"""AMD's driver: its names, what it says when it cannot be used, and what is refused."""

from __future__ import annotations

import ctypes
import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.cuda.codegen import job as cuda_job
from cubepy.backends.gpu import versions
from cubepy.backends.hip.native.driver import DRIVER, NAMES, HipDriver
from cubepy.errors import BackendCompileError, DeviceError, LaunchError, SharedMemoryError
from cubepy.runtime.device import Device
from cubepy.runtime.memory import dlpack
from cubepy.runtime.memory.device_array import DeviceArray, upload
from tests.backends.gpu.fake_driver import FakeDriver, fake_driver

EITHER = {"properties", "properties_before_6"}
"""Functions of which ROCm has one or the other, by its version."""


def real_library() -> Any:
    """AMD's library, or a skipped test."""
    for name in HipDriver().candidates():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    pytest.skip("libamdhip64 is not installed (Debian and Ubuntu have it)")


def test_a_real_library_has_every_function() -> None:
    library = real_library()
    absent = {name for name, native in NAMES.items() if not hasattr(library, native)}
    assert absent < EITHER or not absent


def test_without_a_library_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DRIVER, "library", None)
    monkeypatch.setattr(DRIVER, "reason", None)
    monkeypatch.setattr(HipDriver, "candidates", lambda self: ("libnothing.so",))
    assert "no AMD driver" in cb.devices().missing["hip"]
    with pytest.raises(DeviceError, match="no AMD driver"):
        cb.use("hip")
    monkeypatch.setattr(DRIVER, "reason", None)


@pytest.mark.parametrize("code", [0, 100, 101])
def test_without_a_gpu_it_says_what_may_hide_it(code: int) -> None:
    functions = SimpleNamespace(error_name=lambda code: b"hipErrorNoDevice", error_text=bytes)
    assert "HIP_VISIBLE_DEVICES" in HipDriver().refused(code, functions)


def test_a_function_that_an_old_driver_lacks_is_named() -> None:
    functions = HipDriver().functions(FakeLibrary())
    with pytest.raises(DeviceError, match="no function hipGraphLaunch"):
        functions.launch_graph(1, 2)


class FakeLibrary:
    """A library with two functions."""

    class Text:
        restype: Any = None

    hipGetErrorName = hipGetErrorString = Text()


@pytest.mark.parametrize(
    ("said", "processor"),
    [("gfx942:sramecc+:xnack-", "gfx942"), ("gfx1100", "gfx1100"), ("gfx90a", "gfx90a")],
)
def test_the_processor_is_found_in_the_properties(
    said: str, processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeDriver, "processor", lambda self, device: said)
    with fake_driver(monkeypatch, vendor="hip"):
        assert cb.device_properties_of("hip").architecture == processor
        assert "hip" in [d.backend for d in cb.devices()]


def test_a_device_that_does_not_say_its_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeDriver, "processor", lambda self, device: "")
    with fake_driver(monkeypatch, vendor="hip"), pytest.raises(DeviceError, match="update ROCm"):
        cb.device_properties_of("hip")


def doubling() -> Any:
    """A kernel that was never launched."""

    @cb.kernel
    def double(x: cb.Array, out: cb.Array):
        out[cb.UNIT_POS] = 2 * x[cb.UNIT_POS]

    return double


def test_an_unknown_processor_is_refused_with_the_known_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeDriver, "processor", lambda self, device: "gfx1030")
    with fake_driver(monkeypatch, vendor="hip"):
        x = upload(np.ones(4, np.float32), Device("hip"))
        with pytest.raises(BackendCompileError, match=r"gfx1030'(.|\n)*gfx90a, gfx942"):
            doubling()[1, 4](x, x)
        del x
        gc.collect()


def test_too_large_cubes_and_shared_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @cb.kernel
    def held(x: cb.Array):
        shared = cb.shared(20_000, cb.f32)
        shared[cb.UNIT_POS] = x[cb.UNIT_POS]
        cb.sync_cube()
        x[cb.UNIT_POS] = shared[cb.UNIT_POS + 1]

    with fake_driver(monkeypatch, vendor="hip"):
        x = upload(np.ones(64, np.float32), Device("hip"))
        with pytest.raises(LaunchError, match="2048"):
            doubling()[1, 2048](x, x)
        with pytest.raises(SharedMemoryError, match="65536"):
            held[1, 32](x)
        with pytest.raises(LaunchError, match="units along x"):
            doubling()[(1 << 23, 1, 1), 1024](x, x)
        del x
        gc.collect()


def test_dlpack_knows_amds_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_driver(monkeypatch, vendor="hip") as fake:
        x = upload(np.arange(6, dtype=np.float32), Device("hip"))
        assert x.__dlpack_device__() == (dlpack.ROCM, 0)
        address, layout, _, _ = dlpack.take(x.__dlpack__(stream=0))
        assert (address, layout.device) == (x.address, Device("hip"))
        for forbidden in (1, 2):
            with pytest.raises(BufferError, match="forbids"):
                x.__dlpack__(stream=forbidden)
        with pytest.raises(AttributeError):
            x.__cuda_array_interface__
        assert fake.queues
        taken = cb.tensor(Producer(x))
        assert str(taken.device) == "hip"
        np.testing.assert_array_equal(taken.numpy(), np.arange(6))
        del x, taken
        gc.collect()


class Producer:
    """An array of a library that calls AMD's GPUs "cuda", as PyTorch does."""

    device = "cuda:0"

    def __init__(self, array: DeviceArray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.ROCM, 0

    def __dlpack__(self, **options: Any) -> Any:
        assert options["stream"] > 2, "a stream of its own, not one of the numbers for defaults"
        return self.array.__dlpack__(**options)


def test_arrays_go_from_one_vendors_gpu_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_driver(monkeypatch, vendor="cuda"), fake_driver(monkeypatch, vendor="hip"):
        x = upload(np.arange(5, dtype=np.int32), Device("hip"))
        there = cb.tensor(x).to("cuda").storage.array
        assert there.device == Device("cuda")
        np.testing.assert_array_equal(there.numpy(), np.arange(5))
        del x, there
        gc.collect()


def test_an_environment_of_both_vendors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cuda_job, "version_of", lambda name: "7.1" if name == cuda_job.REPLACES else versions.ABSENT
    )
    with pytest.raises(BackendCompileError, match="an environment for each vendor"):
        cuda_job._needs_compiler()
