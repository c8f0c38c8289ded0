"""Devices whose kernels are machine code for AMD GPUs, which the emulator runs; their memory is the
host's.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from cubepy.backends.gpu.faults import launch_site, report
from cubepy.backends.gpu.prints import WORDS, printed, prints
from cubepy.backends.hip.backend import HipExecutable, offline
from cubepy.backends.hip.codegen.compile import Code
from cubepy.runtime import device as devices
from cubepy.runtime.memory import layout
from cubepy.runtime.memory.device_array import DeviceArray
from tests.backends.hip.emulator.assembly import assembly_of
from tests.backends.hip.emulator.gpu import Gpu
from tests.pretend import Memory, PretendGpu

GARBAGE = 0xA5
"""What fresh memory holds."""
FAULT_WORDS = 4


class EmulatedMemory(PretendGpu):
    """Memory of the host that the emulator lets kernels touch, and nothing beside it."""

    def __init__(self, chip: Gpu) -> None:
        super().__init__()
        self.chip = chip

    def allocate(self, ordinal: int, size: int) -> Memory:
        memory = super().allocate(ordinal, size)
        self.chip.memory.add(memory.address, max(4, -(-size // 4) * 4))
        weakref.finalize(memory, self.chip.memory.remove, memory.address)
        ctypes.memset(memory.address, GARBAGE, size)
        return memory

    def upload_new(self, ordinal: int, source: np.ndarray) -> Memory:
        memory = self.allocate(ordinal, source.nbytes)
        self.uploads += 1
        ctypes.memmove(memory.address, source.ctypes.data, source.nbytes)
        return memory


class EmulatedBackend:
    """One device of a processor, by whose name it is known."""

    def __init__(self, name: str) -> None:
        self.name, self.chip = name, Gpu(name)
        self.gpu = EmulatedMemory(self.chip)

    def count(self) -> int:
        return 1

    def missing(self) -> str:
        return ""

    def properties(self, ordinal: int = 0) -> devices.DeviceProperties:
        return offline(self.name)

    def units(self, axes: tuple[int, ...]) -> Any:
        return devices.backend_named("cuda").units(axes)

    def executable(self, kernel: Any, program: Any, specs: Any, in_place: bool) -> Any:
        return Executable(self.chip, program, in_place)


class Executable(HipExecutable):
    """Machine code that the emulator runs."""

    def __init__(self, chip: Gpu, program: Any, in_place: bool) -> None:
        super().__init__(program, in_place)
        self.chip = chip

    def made(self, aligned: bool, rows: frozenset[str]) -> Any:
        """Code that no driver loads."""
        return self.code(aligned, rows)

    def prepare(self, leaves: Any, values: Any, cubes: Any, ordinal: int = 0) -> Runner:
        return Runner(self, tuple(cubes))


class Runner:
    """A launch that is done when it returns."""

    def __init__(self, exe: Executable, cubes: tuple[int, ...]) -> None:
        self.exe, self.cubes = exe, cubes

    def run(self, leaves: Sequence[Any], values: Any, stream: Any = None) -> None:
        if math.prod(self.cubes) == 0:
            return
        code, chip = self.exe.variant(leaves), self.exe.chip
        words = block(code, leaves)
        record = (ctypes.c_int64 * FAULT_WORDS)()
        if code.text.sites:
            chip.memory.add(ctypes.addressof(record), 8 * FAULT_WORDS)
            words.append(ctypes.addressof(record))
        said = (ctypes.c_int64 * (WORDS if prints(code.text.sites) else 0))()
        if said:
            chip.memory.add(ctypes.addressof(said), 8 * WORDS)
            words.append(ctypes.addressof(said))
        shared = code.text.shared_bytes
        try:
            chip.launch(assembly_of(code), words, self.cubes, code.units, shared)
        finally:
            chip.memory.remove(ctypes.addressof(record))
            if said:
                chip.memory.remove(ctypes.addressof(said))
        if said:
            sys.stdout.write("".join(printed(code.text.sites, said)))
        if record[0]:
            self.exe.sites = code.text.sites
            raise report(self.exe, record[0], record[1], record[2], launch_site())

    def bound(self, leaves: Sequence[Any], values: Any, stream: Any = None) -> Any:
        return lambda: self.run(leaves, values, stream)

    def quick(self, *_: Any) -> None:
        """There is no quick launch."""


def block(code: Code, leaves: Sequence[Any]) -> list[int]:
    """The words of a launch: pointer, lengths and strides of arrays, the bits of numbers."""
    words: list[int] = []
    for value, argument in zip(leaves, code.program.arguments, strict=True):
        if argument.mem is not None:
            assert isinstance(value, DeviceArray), "a host array reached the device"
            steps = (s // value.itemsize for s in value.strides)
            words += [value.address, *value.shape, *steps]
        elif not argument.scalar.dtype.is_float:
            words.append(int(value))
        elif argument.scalar.dtype.itemsize == 8:
            words.append(int(np.float64(value).view(np.uint64)))
        else:
            words.append(int(np.float32(value).view(np.uint32)))
    return words


_backends: dict[str, EmulatedBackend] = {}


@contextlib.contextmanager
def emulated(name: str) -> Iterator[EmulatedBackend]:
    """Make a device of a processor exist, such as "gfx942", which is also its name."""
    backend = _backends.setdefault(name, EmulatedBackend(name))
    known = devices.backend_named

    def backend_named(wanted: str) -> Any:
        return backend if wanted == name else known(wanted)

    with pytest.MonkeyPatch.context() as m:
        m.setattr(devices, "BACKENDS", (*devices.BACKENDS, name))
        for module in list(sys.modules.values()):
            if vars(module).get("backend_named") is known:
                m.setattr(module, "backend_named", backend_named)
        m.setattr(layout, "devices_seen", set())  # a later `cb.sync` waits for none of them
        yield backend
