"""A GPU that is not here, of a known architecture: its memory is the host's, and what is launched
on it is noted, to be compiled, and does not run.

A launch goes its whole way, from the choice of a routine to the variant for the alignment of its
arrays, so that the entries of the cache are those that a real GPU of this kind asks for. What
depends on results sees what lay in memory, which is zero at first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.backends.cuda.backend import CudaBackend, CudaExecutable
from cubepy.backends.cuda.codegen.compile import Code
from cubepy.backends.llvm.processes import jobs
from cubepy.compiler.program import Program
from cubepy.compiler.signature import Spec
from cubepy.errors import LaunchError
from cubepy.lang.declare import Kernel
from cubepy.lang.grid import Dim3
from cubepy.runtime import cache
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.memory.converter import converter
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.hazards import Tracked
from cubepy.runtime.memory.pool import MemoryStats

ALIGNMENT = 256
"""What memory of a GPU begins at a multiple of."""


class Block(Tracked):
    """Memory of the host in the place of a GPU's."""

    __slots__ = ("address", "kept")

    def __init__(self, size: int) -> None:
        super().__init__()
        self.kept = np.zeros(size + ALIGNMENT, np.uint8)
        self.address = -(-self.kept.ctypes.data // ALIGNMENT) * ALIGNMENT


def elements(array: DeviceArray) -> np.ndarray:
    """The elements of such an array, as a NumPy array over the same memory."""
    low, high = array.layout.extent
    memory = (ctypes.c_uint8 * max(1, high - low)).from_address(array.address + low)
    flat = np.ctypeslib.as_array(memory)
    if not array.size:
        return np.empty(array.shape, array.dtype)
    return np.ndarray(array.shape, array.dtype, flat, -low, array.strides)


class Stream:
    """A stream on which nothing runs."""

    handle = 0
    capture = None

    def wait(self, other: Any) -> None:
        """Nothing is under way."""

    def wait_event(self, event: Any) -> None:
        """Nothing is under way."""

    def synchronize(self) -> None:
        """Nothing is under way."""

    def retire(self) -> None:
        """There is nothing to give back."""

    def idle(self) -> bool:
        """Always."""
        return True

    def done(self) -> bool:
        """Always."""
        return True


class HostMemory:
    """What the runtime asks of a GPU (`cubepy.runtime.backend.Gpu`), without one."""

    def __init__(self) -> None:
        self.stream = Stream()

    def allocate(self, ordinal: int, size: int) -> Block:
        """Memory, all zero."""
        return Block(size)

    def upload_new(self, ordinal: int, source: np.ndarray) -> Block:
        """Memory with the bytes of an array."""
        block = Block(source.nbytes)
        ctypes.memmove(block.address, source.ctypes.data, source.nbytes)
        return block

    def upload(self, target: DeviceArray, source: np.ndarray) -> None:
        """Copy into an array."""
        elements(target)[...] = source

    def download(self, target: np.ndarray, source: DeviceArray) -> None:
        """Copy from an array."""
        target[...] = elements(source)

    def fill(self, target: DeviceArray, byte: int) -> None:
        """Set every byte."""
        ctypes.memset(target.address, byte, target.nbytes)

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Copy as a GPU would: what is no plain copy is a kernel."""
        plain = target.layout.contiguous and source.layout.contiguous
        if plain and target.dtype == source.dtype:
            ctypes.memmove(target.address, source.address, source.nbytes)
        else:
            converter()(target, source)

    def stream_for(self, array: DeviceArray) -> Stream:
        """The only stream."""
        return self.stream

    def hand_over(self, array: DeviceArray, stream: Any) -> None:
        """Nothing is under way."""

    def thread_stream(self, ordinal: int) -> Stream:
        """The stream of this thread."""
        return self.stream

    def set_thread_stream(self, ordinal: int, stream: Any) -> Stream:
        """Make a stream the thread's own; gives the one that was."""
        before, self.stream = self.stream, stream
        return before

    def new_stream(self, ordinal: int, handle: int | None = None, priority: int = 0) -> Stream:
        """Another stream."""
        return Stream()

    def new_event(self, ordinal: int) -> Any:
        """Time cannot be taken.

        Raises:
            LaunchError: always.
        """
        raise LaunchError("a GPU that is not here takes no time")

    def capture(self, ordinal: int) -> Any:
        """Graphs cannot be captured.

        Raises:
            LaunchError: always.
        """
        raise LaunchError("work of a GPU that is not here cannot be captured")

    def synchronize(self, ordinal: int) -> None:
        """Nothing is under way."""

    def stats(self, ordinal: int) -> MemoryStats:
        """Nothing is counted."""
        return MemoryStats()

    def trim(self, ordinal: int | None = None) -> int:
        """There is no pool."""
        return 0


class AheadBackend(CudaBackend):
    """One GPU with the given properties."""

    def __init__(self, properties: DeviceProperties) -> None:
        self.gpu: Any = HostMemory()
        self.pretended = properties

    def count(self) -> int:
        return 1

    def missing(self) -> str:
        return ""

    def properties(self, ordinal: int = 0) -> DeviceProperties:
        return self.pretended

    def executable(
        self, kernel: Kernel, program: Program, specs: tuple[Spec, ...], in_place: bool
    ) -> AheadExecutable:
        return AheadExecutable(program, in_place)


class AheadExecutable(CudaExecutable):
    """Notes what is launched in `jobs.found`."""

    def __init__(self, program: Program, in_place: bool) -> None:
        super().__init__(program, in_place)
        self.noted: set[tuple[bool, frozenset[str]]] = set()

    def prepare(self, leaves: list[Any], values: tuple, cubes: Dim3, ordinal: int = 0) -> Any:
        """Note the code for arguments that are aligned as these are."""
        key = self.alignment(leaves)
        if key not in self.noted and jobs.found is not None:
            self.noted.add(key)
            code = Code(self.program, self.architecture, self.in_place, *key)
            if code.key not in jobs.found and cache.read(code.key) is None:
                jobs.found[code.key] = code.job
        return Nothing()


class Nothing:
    """A launch that does nothing."""

    def run(self, leaves: Sequence[Any], values: Sequence[Any], stream: Any = None) -> None:
        """Do nothing."""

    bound = run

    def quick(self, *known: Any) -> None:
        """There is no quicker way."""
