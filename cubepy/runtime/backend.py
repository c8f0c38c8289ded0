"""What a backend must offer. The floors above know nothing else of it.

A compiled backend prints a `Program` as Python of ops, which is lowered to LLVM IR with numba's
signatures, on a GPU as on a CPU. The python backend runs the user's own function instead, after the
same front end has checked it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from cubepy.compiler.program import Program
from cubepy.compiler.signature import Spec
from cubepy.lang.declare import Kernel
from cubepy.lang.grid import Dim3
from cubepy.runtime.device import DeviceProperties


class Unsuitable(Exception):
    """A call that only the long way can do again."""


class HostReplay(Protocol):
    """Machine code of a backend that works in the memory of the host, which replays launches."""

    def entry(self) -> Any:
        """`replay(address of a table, tuple of arrays)`, or None where there is none (see
        `backends.cpu.replay`).
        """
        ...

    def key(self) -> Any:
        """What writes a short key for a tuple of arguments, or None (see
        `backends.cpu.argument_key`).
        """
        ...

    def table(self) -> Any:
        """What the machine code reads, to be filled (see `backends.llvm.replay_table.Table`)."""
        ...


class Executable(Protocol):
    """A specialised kernel that can run."""

    program: Program

    def prepare(self, leaves: list[Any], values: tuple, cubes: Dim3, ordinal: int = 0) -> Runner:
        """Lay out a launch: everything that stays the same when only data pointers and scalars
        change.
        """
        ...

    def inspect(self) -> Any:
        """The generated code, as an `Inspection`."""
        ...


class Runner(Protocol):
    """A launch that is laid out."""

    def run(self, leaves: list[Any], values: tuple, stream: Any = None) -> None:
        """Run it with these leaves (arrays and numbers, in the order of `Program.arguments`) on a
        native stream.
        """
        ...

    def bound(self, leaves: list[Any], values: tuple, stream: Any = None) -> Callable[..., None]:
        """A function without arguments that runs it with these leaves, as fast as the backend can.

        A runner may also have `quick(places, outputs, extents)`, which gives a function of the
        bound values and a stream that checks, fills and launches in one go (False: the general path
        must), `numbers`, empty where all leaves are arrays, so that machine code may repeat the
        launch, and `seconds(run, stream)`, the time that the device takes for it.
        """
        ...


class Gpu(Protocol):
    """The memory and the streams of devices that have their own; arrays there are `DeviceArray`s.

    A native stream has `wait(other)`, `wait_event(event)`, `synchronize()`, `done()`, `handle`, and
    `capture` (None, or what records its work). Everything that reads or writes memory is ordered by
    `cubepy.runtime.memory.hazards`.
    """

    def allocate(self, ordinal: int, size: int) -> Any:
        """Memory for work on the thread's stream: a `Tracked` with an `address`."""
        ...

    def upload_new(self, ordinal: int, source: np.ndarray) -> Any:
        """New memory with the bytes of a C-ordered array."""
        ...

    def upload(self, target: Any, source: np.ndarray) -> None:
        """Copy a C-ordered array into a contiguous device array."""
        ...

    def download(self, target: np.ndarray, source: Any) -> None:
        """Copy a contiguous device array to the host; waits, and raises what went wrong before."""
        ...

    def fill(self, target: Any, byte: int) -> None:
        """Set every byte of a contiguous array."""
        ...

    def copy(self, target: Any, source: Any) -> None:
        """Copy between arrays of one shape, converting the dtype, from any device to any."""
        ...

    def stream_for(self, array: Any) -> Any:
        """A native stream whose later work comes after everything that makes the array."""
        ...

    def hand_over(self, array: Any, stream: Any) -> None:
        """Order the later work of a DLPack consumer's stream after what makes the array."""
        ...

    def thread_stream(self, ordinal: int) -> Any:
        """The native stream of this thread."""
        ...

    def set_thread_stream(self, ordinal: int, stream: Any) -> Any:
        """Make a native stream the thread's own; gives the one that was."""
        ...

    def new_stream(self, ordinal: int, handle: int | None = None, priority: int = 0) -> Any:
        """A new native stream, or another library's by its handle, which has `retire()` for the
        time when that goes.
        """
        ...

    def new_event(self, ordinal: int) -> Any:
        """A new native event."""
        ...

    def capture(self, ordinal: int) -> Any:
        """What records the thread's work: `begin()`, `join(stream)`, `end(failed)` -> a graph with
        `launch(stream)`.
        """
        ...

    def synchronize(self, ordinal: int) -> None:
        """Wait for the device; errors that kernels reported surface here."""
        ...

    def stats(self, ordinal: int) -> Any:
        """The pool's `MemoryStats`."""
        ...

    def trim(self, ordinal: int | None = None) -> int:
        """Give the pool's spare memory back; the bytes that were."""
        ...


class Backend(Protocol):
    """A way to run kernels.

    Attributes:
        name: such as "cpu".
        gpu: memory and streams, for a backend whose devices have their own; the attribute is left
            out otherwise.
        replay: machine code that replays launches on arrays of the host (`HostReplay`); left out
            where there is none.
    """

    name: str

    def count(self) -> int:
        """How many devices there are."""
        ...

    def properties(self, ordinal: int) -> DeviceProperties:
        """What a device can do."""
        ...

    def executable(
        self, kernel: Kernel, program: Program, specs: tuple[Spec, ...], in_place: bool
    ) -> Executable:
        """Code for a program. `in_place`: an output is also an input, so pointers may be equal."""
        ...

    def units(self, axes: tuple[int, ...]) -> tuple[Dim3, Dim3]:
        """Cubes and units for `cb.over` with so many units of work along X, Y and Z: one axis, two
        or three.

        Units are part of the code: how many axes there are may decide about them, how long they are
            must not.
        """
        ...
