"""What of the NVIDIA runtime can be checked without a GPU: order, errors, layouts, sizes, DLPack's
structs.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy.backends.cuda.native.driver import DRIVER
from cubepy.backends.cuda.native.module import Wish, launch_config
from cubepy.backends.gpu.native import driver_errors as failures
from cubepy.backends.gpu.native import kernel_faults as faults
from cubepy.backends.gpu.native import memory
from cubepy.backends.gpu.native.module import check_grid
from cubepy.errors import (
    BackendCompileError,
    DeviceError,
    DTypeError,
    LaunchError,
    OutOfMemoryError,
)
from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.device import Device
from cubepy.runtime.memory import dlpack
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.hazards import Tracked, order
from cubepy.runtime.memory.layout import layout_of
from cubepy.runtime.replay.plan import Operands
from cubepy.runtime.tensor_map import ArrayMap


class Queue:
    """A stream that notes whom it waits for."""

    def __init__(self) -> None:
        self.waits: list[Queue] = []

    def wait(self, other: Queue) -> None:
        """Note it, unless it is the queue itself."""
        if other is not self:
            self.waits.append(other)


def test_one_stream_waits_for_nothing() -> None:
    x, a = Tracked(), Queue()
    for writes in (True, False, True, True):
        order(x, a, writes)
    assert a.waits == [] and x.last is a


def test_a_reader_waits_for_the_writer_once() -> None:
    x, a, b = Tracked(), Queue(), Queue()
    order(x, a, writes=True)
    order(x, b, writes=False)
    order(x, b, writes=False)
    assert b.waits == [a]


def test_readers_do_not_wait_for_each_other() -> None:
    x, a, b, c = Tracked(), Queue(), Queue(), Queue()
    order(x, a, writes=True)
    order(x, b, writes=False)
    order(x, c, writes=False)
    assert b.waits == [a] and c.waits == [a]


def test_a_writer_waits_for_all_that_use_the_memory() -> None:
    x, a, b, c = Tracked(), Queue(), Queue(), Queue()
    order(x, a, writes=True)
    order(x, b, writes=False)
    order(x, c, writes=True)
    assert set(c.waits) == {a, b} and x.last is c and x.streams() == {c}


def test_a_writer_that_read_before_waits_for_the_others() -> None:
    x, a, b = Tracked(), Queue(), Queue()
    order(x, a, writes=True)
    order(x, b, writes=False)
    order(x, b, writes=True)
    assert b.waits == [a, a] and x.last is b
    order(x, a, writes=False)
    assert a.waits == [b]


def test_a_write_that_nobody_noted_is_waited_for() -> None:
    """While one stream alone uses memory its launches are not looked at: they count as writes."""
    x, a, b = Tracked(), Queue(), Queue()
    order(x, a, writes=False)
    order(x, b, writes=False)
    assert b.waits == [a]


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (2, OutOfMemoryError, "release arrays"),
        (700, DeviceError, "start a new process"),
        (716, DeviceError, "misaligned"),
        (719, DeviceError, "start a new process"),
        (701, LaunchError, "fewer units"),
        (901, LaunchError, "capture"),
        (209, BackendCompileError, "architecture"),
        (999, DeviceError, "while testing"),
    ],
)
def test_error_codes_are_typed_and_say_what_to_do(
    code: int, kind: type[Exception], says: str
) -> None:
    error = failures.failure(code, "CUDA_ERROR_X", "something", "while testing", "cuda:1")
    assert type(error) is kind
    assert says in str(error) and "CUDA_ERROR_X" in str(error) and "cuda:1" in str(error)


def test_a_forked_child_gets_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DRIVER, "library", object())
    monkeypatch.setattr(DRIVER, "forked", False)
    DRIVER.after_fork()
    assert DRIVER.count() == 0 and "forked" in DRIVER.missing() and not DRIVER.usable()
    with pytest.raises(DeviceError, match="spawn"):
        DRIVER.api()
    monkeypatch.setattr(DRIVER, "forked", False)


def test_grids_beyond_the_hardware_are_refused() -> None:
    check_grid((2**31 - 1, 65535, 65535), "k")
    with pytest.raises(LaunchError, match="65536 cubes along y"):
        check_grid((1, 65536, 1), "k")
    with pytest.raises(LaunchError, match="at most 64 along z"):
        check_grid((1, 1, 1), "k", (1, 1, 128))


def test_a_launch_site_is_no_line_of_generated_code() -> None:
    scope = {"launch_site": faults.launch_site}
    exec(compile("def front():\n    return launch_site()", "<front of a function>", "exec"), scope)
    assert scope["front"]().function == "test_a_launch_site_is_no_line_of_generated_code"  # type: ignore[attr-defined]


def test_block_sizes_grow_by_an_eighth_at_most() -> None:
    assert memory.rounded(0) == 512 and memory.rounded(513) == 1024 and memory.rounded(4096) == 4096
    for size in (5000, 100_000, 3 << 20, (1 << 30) + 1):
        assert size <= memory.rounded(size) <= size * 1.125 + 4096


def test_the_launch_description_has_the_drivers_layout() -> None:
    config = launch_config((1, 2, 3), (32, 1, 1), 100, Wish(cluster=(2, 1, 1), overlap=True))
    assert ctypes.sizeof(config) == 56 and ctypes.sizeof(config.attributes[0]) == 72
    assert list(config.grid) == [1, 2, 3] and config.count == 2
    assert config.attributes[0].id == 4 and list(config.attributes[0].value.dims) == [2, 1, 1]


def unreal(dtype: Any = np.float32) -> DeviceArray:
    """An array at an address that nobody may touch."""
    layout = layout_of((4, 6), None, np.dtype(dtype), Device("cuda"))
    return DeviceArray(0x10000, layout, Tracked())


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    "dtype", [np.float32, np.int8, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_dlpack_capsules_hold_what_was_put_in(dtype: Any, versioned: bool) -> None:
    array = unreal(dtype)[1:, ::2]
    address, layout, _, writeable = dlpack.take(dlpack.export(array, versioned))
    assert (address, layout, writeable) == (array.address, array.layout, True)


def test_a_capsule_keeps_the_memory_until_it_is_let_go() -> None:
    for versioned in (False, True):
        array = unreal()
        dlpack._let_go()
        before = len(dlpack._alive)
        capsule = dlpack.export(array, versioned)
        dlpack._let_go()
        assert len(dlpack._alive) == before + 1
        del capsule
        dlpack._let_go()  # as the next export does
        assert len(dlpack._alive) == before
        taken = dlpack.take(dlpack.export(array, versioned))
        dlpack._let_go()
        assert len(dlpack._alive) == before + 1
        del taken
        assert len(dlpack._alive) == before


def test_who_refuses_a_capsule_says_why_and_keeps_nothing() -> None:
    """NumPy has no GPU memory; its error is there while the capsule goes."""

    class Given:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **options: Any) -> Any:
            return dlpack.export(unreal(), versioned=True)

    dlpack._let_go()
    before = len(dlpack._alive)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="Unsupported device"):
            np.from_dlpack(Given())
    dlpack._let_go()
    assert len(dlpack._alive) == before


def test_read_only_memory_needs_version_1() -> None:
    array = unreal()
    array.writeable = False
    assert dlpack.take(dlpack.export(array, versioned=True))[3] is False
    with pytest.raises(BufferError):
        dlpack.export(array, versioned=False)
    with pytest.raises(DTypeError):
        dlpack.export(unreal(ml_dtypes.int4), versioned=True)


def test_a_plan_finds_arrays_and_tensor_maps_in_what_was_given() -> None:
    layout = layout_of((64, 64), None, np.dtype(np.float16), Device("cuda"))
    given = DeviceArray(0x10000, layout, Tracked())
    operands = Operands(None, [(0, given)], [(1, 0x40000, 2 * given.nbytes)], [])
    assert operands.locate(ArrayMap(given, given[32:], (16, 64), 128), False) == (0, 32 * 128)
    assert operands.locate(given, False) == (0, 0) and operands.locate(3, False) is None
    assert not operands.written
    assert operands.locate(DeviceArray(0x40100, layout, Tracked()), True) == (1, 0x100)
    assert operands.written == {1}


def test_memory_that_nobody_gave_is_in_no_plan() -> None:
    mine, number = unreal(), DeviceArray(0x20000, unreal().layout, Tracked())
    operands = Operands(None, [(0, mine)], [], [number])
    for at in (0x30000, 0x10004, 0x10000 - 4):
        with pytest.raises(Unsuitable):
            operands.locate(DeviceArray(at, mine.layout, Tracked()), False)
    assert operands.locate(number, False) is None and operands.kept == [number]
    with pytest.raises(Unsuitable, match="constant"):
        operands.locate(number, True)


def test_destructors_end_before_modules_are_emptied() -> None:
    code = """
import sys
from cubepy.backends.cuda.native.driver import DRIVER
from cubepy.backends.gpu.native.driver import until_exit
@until_exit
class Owner:
    def __del__(self):
        print("gone", DRIVER.usable())
Owner()
sys.kept = Owner()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "gone False\n", "")
