"""A device whose memory is its own in name only: arrays on it are `DeviceArray`s over the host's
memory, kernels run on the CPU. It lets everything above a GPU backend be tested without a GPU:
whatever touches an element on the host without asking fails here as it would there.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from cubepy.backends.cpu.backend import CpuBackend
from cubepy.backends.cuda.ahead import ALIGNMENT, HostMemory, Stream, elements
from cubepy.backends.llvm.machine_code import REFUSED
from cubepy.backends.llvm.replay_table import Table
from cubepy.errors import OutOfMemoryError
from cubepy.lang.annotations import TensorMap
from cubepy.runtime import device as devices
from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.hazards import Tracked, order
from cubepy.runtime.memory.pool import MemoryStats

NAME = "pretend"


class Memory(Tracked):
    """Host memory that plays device memory."""

    __slots__ = ("address", "gpu", "raw")

    def __init__(self, size: int, gpu: PretendGpu) -> None:
        super().__init__()
        self.gpu = gpu
        gpu.live += 1
        try:
            self.raw = (ctypes.c_uint8 * (size + ALIGNMENT))()
        except MemoryError:
            raise OutOfMemoryError(f"there are no {size} bytes to give") from None
        self.address = -(-ctypes.addressof(self.raw) // ALIGNMENT) * ALIGNMENT

    def __del__(self) -> None:
        self.gpu.live -= 1


def look(array: DeviceArray) -> np.ndarray:
    """The elements of an array on the device, as a NumPy array over the same memory."""
    view = elements(array)
    view.flags.writeable = array.writeable
    return view


class Queue(Stream):
    """A stream that is always done."""

    handle = 7

    def __init__(self) -> None:
        self.waits: list[Queue] = []

    def wait(self, other: Queue) -> None:
        """Note whom it waits for."""
        self.waits.append(other)


class PretendTable(Table):
    """The table of a plan, which Python reads."""

    def __init__(self) -> None:
        super().__init__({"steps": 1})
        self.todo: list[tuple[Callable[[list[Any]], None], list[Any], Sequence[Any]]] = []

    def launch(self, runner: Any, leaves: Any, places: Any, flag: Any) -> None:
        if not isinstance(runner, Runner):
            raise Unsuitable("another runner, which notes what is launched")
        self.todo.append((runner.inner.run, list(map(without_memory, leaves)), places))

    def call(self, function: Any, arguments: Any, places: Any) -> None:
        if function.__name__ == "copy" and arguments[0].device != arguments[1].device:
            raise Unsuitable("a copy between devices")
        self.todo.append((function, list(map(without_memory, arguments)), places))

    def ready(self) -> tuple[Any, int, Any]:
        return self.go, 0, None

    def failed(self, code: int) -> None:
        """REFUSED is all that there is."""
        assert code == REFUSED

    def go(self, table: int, stream: int, *at: int) -> int:
        """What the machine code does."""
        rows = self.rows
        if any(at[n] & bits != must for n, bits, must in rows["alignments"]):
            return REFUSED
        if any(at[m] - at[n] != distance for n, m, distance in rows["relations"]):
            return REFUSED
        for n, low, high, m, first, last in rows["overlaps"]:
            if at[n] + low < at[m] + last and at[m] + first < at[n] + high:
                return REFUSED
        for function, leaves, places in self.todo:
            given = [
                v if place is None else DeviceArray(at[place[0]] + place[1], v.layout, None)
                for v, place in zip(leaves, places, strict=True)
            ]
            if function.__name__ == "run":
                function(opened(given), ())
            else:
                function(*given)
        return 0


def without_memory(leaf: Any) -> Any:
    """A leaf of a launch; of an array that is found anew in every repetition, the layout alone."""
    return DeviceArray(leaf.address, leaf.layout, None) if isinstance(leaf, DeviceArray) else leaf


class PretendGpu(HostMemory):
    """The memory and streams of the device."""

    def replays(self, ordinal: int) -> PretendTable:
        return PretendTable()

    @property
    def here(self) -> Any:
        return self

    @property
    def streams(self) -> dict[int, Queue]:
        """Of this thread, by ordinal."""
        return {0: self.stream, 1: self.stream}

    def use(self, stream: Queue, owner: Any, writes: bool) -> None:
        order(owner, stream, writes)

    def pool(self, ordinal: int) -> Any:
        return self

    def short_way(self, size: int, name: str) -> tuple[list[str], dict[str, Any]]:
        return [f"{name} = take(ordinal, size_{name})"], {
            "take": self.allocate,
            f"size_{name}": size,
        }

    def __init__(self) -> None:
        self.stream = Queue()
        self.live = 0
        self.uploads = self.downloads = 0

    def allocate(self, ordinal: int, size: int) -> Memory:
        return Memory(size, self)

    def upload_new(self, ordinal: int, source: np.ndarray) -> Memory:
        self.uploads += 1
        memory = Memory(source.nbytes, self)
        ctypes.memmove(memory.address, source.ctypes.data, source.nbytes)
        return memory

    def upload(self, target: DeviceArray, source: np.ndarray) -> None:
        self.uploads += 1
        super().upload(target, source)

    def download(self, target: np.ndarray, source: DeviceArray) -> None:
        self.downloads += 1
        super().download(target, source)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        if target.device != source.device:
            look(target)[...] = look(source).astype(target.dtype)
        else:
            super().copy(target, source)

    def new_stream(self, ordinal: int, handle: int | None = None, priority: int = 0) -> Queue:
        return Queue()

    def stats(self, ordinal: int) -> MemoryStats:
        return MemoryStats(in_use=self.live)


class PretendBackend(CpuBackend):
    """The CPU's kernels on the device's memory; two devices."""

    name = NAME

    def __init__(self) -> None:
        self.gpu = PretendGpu()

    def count(self) -> int:
        return 2

    def executable(self, *arguments: Any) -> Any:
        exe = super().executable(*arguments)
        prepare = exe.prepare
        exe.prepare = lambda leaves, values, cubes, ordinal=0: Runner(
            prepare(*map(opened, (leaves, values)), cubes)
        )
        return exe


def opened(leaves: Any) -> Any:
    """Leaves with device arrays as NumPy arrays."""
    return [look(v) if isinstance(v, DeviceArray) else v for v in leaves]


class Runner:
    """A CPU launch whose arrays are on the device."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def run(self, leaves: Any, values: Any, stream: Any = None) -> None:
        for leaf in leaves:
            assert not isinstance(leaf, (np.ndarray, TensorMap)), "a host array reached the device"
            if isinstance(leaf, DeviceArray):
                order(leaf.owner, stream or devices.backend_named(NAME).gpu.stream, True)
        self.inner.run(opened(leaves), values)

    def quick(self, places: Any, outputs: Any, extents: Any) -> Any:
        """A function of values and a stream, as a GPU's."""

        def run(values: Any, stream: Any) -> bool:
            leaves = [values[i] if j < 0 else values[i][j] for i, j in places]
            owners = [id(v.owner) for v in leaves if isinstance(v, DeviceArray)]
            if len(set(owners)) < len(owners) or not all(leaves[n].writeable for n in outputs):
                return False
            self.run(leaves, (), stream)
            return True

        return run

    def bound(self, leaves: Any, values: Any, stream: Any = None) -> Any:
        return self.inner.bound(opened(leaves), values)


@contextlib.contextmanager
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendBackend]:
    """Make the device exist."""
    backend = PretendBackend()
    known = devices.backend_named

    def backend_named(name: str) -> Any:
        return backend if name == NAME else known(name)

    with monkeypatch.context() as m:
        m.setattr(devices, "BACKENDS", (*devices.BACKENDS, NAME))
        m.setattr(devices, "backend_named", backend_named)
        yield backend
