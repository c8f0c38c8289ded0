"""A vendor's driver: loading it, its errors, its devices and their contexts.

The library is loaded at first use; where there is none, `Driver.missing()` says why. What is known
of a driver (its contexts, streams and pools of memory) belongs to its object: two vendors' GPUs do
not mix.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from ctypes import byref, c_int, c_size_t, c_void_p
from typing import Any, ClassVar

from cubepy.backends.gpu.native.driver_errors import failure
from cubepy.backends.gpu.native.functions import Functions
from cubepy.errors import DeviceError


class PerThread(threading.local):
    """What a thread has of its own: its stream on each GPU."""

    def __init__(self) -> None:
        self.streams: dict[int, Any] = {}


class Driver(ABC):
    """One vendor's driver.

    A vendor says `name` (of the backend), `vendor` and `libraries` (names to try), `attributes`
    (the driver's numbers for what is asked of a device), `handle` (the type of ctypes by which a
    context is known) and `tools` (what names the instruction that failed).

    Attributes:
        library: its functions, when it is loaded and has a GPU.
        forked: this process is the child of one that had loaded it.
        contexts, pools: by ordinal.
        streams: all that still live; no lock, since memory is collected at any time and in any
            thread.
        here: `streams` of this thread, by ordinal.
    """

    name: str
    vendor: str
    libraries: tuple[str, ...]
    attributes: ClassVar[dict[str, int]]
    handle: Any = c_void_p
    tools: str
    most_units = 1 << 63
    """Units of a launch along an axis."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.library: Functions | None = None
        self.reason: str | None = None
        self.devices, self.process, self.forked = 0, 0, False
        self.contexts: dict[int, Context] = {}
        self.pools: dict[int, Any] = {}
        self.streams: dict[int, weakref.ref[Any]] = {}
        self.here = PerThread()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.after_fork)

    def candidates(self) -> tuple[str, ...]:
        """The libraries to try."""
        return self.libraries

    @abstractmethod
    def functions(self, library: Any) -> Functions:
        """The functions of a library that is loaded."""

    @abstractmethod
    def described(self, code: int, functions: Functions) -> tuple[str, str]:
        """The name of an error code, and what it means."""

    @abstractmethod
    def open(self, ordinal: int) -> tuple[int, int]:
        """The driver's number of a device, and its context, retained once."""

    @abstractmethod
    def load_module(self, image: bytes) -> tuple[int, int, str]:
        """Load machine code in the current context: error code, handle, what the driver says."""

    def allow_shared(self, function: int, size: int) -> int:
        """Let a kernel have so many bytes of shared memory for a cube: an error code."""
        return 0

    def reads_later(self, address: int) -> bool:
        """Whether a copy from this host memory may still read it when the call has returned: it
        may, where no vendor says otherwise.
        """
        return True

    @abstractmethod
    def consumer(self, stream: int | None) -> int:
        """The native stream that DLPack's number of a consumer's stream means, None being its
        default.

        Raises:
            BufferError: DLPack forbids the number.
        """

    @abstractmethod
    def version(self) -> tuple[int, int]:
        """The newest version that the driver knows, such as (13, 0)."""

    def after_fork(self) -> None:
        """In the child of a process that has used a GPU, nothing works."""
        if self.library is not None:
            self.forked = True
            self.here.streams.clear()

    def _load(self) -> None:
        """Load the library and initialise it, once; what goes wrong is kept as `reason`."""
        with self.lock:
            if self.library is not None or self.reason is not None:
                return
            loaded = None
            for name in self.candidates():
                with contextlib.suppress(OSError):
                    loaded = ctypes.CDLL(name)
                    break
            if loaded is None:
                self.reason = (
                    f"no {self.vendor} driver is installed ({self.libraries[0]} cannot be loaded)"
                )
                return
            functions, number = self.functions(loaded), c_int()
            code = functions.initialise(0) or functions.count(byref(number))
            if code or number.value == 0:
                self.reason = self.refused(code, functions)
                return
            self.devices, self.process = number.value, os.getpid()
            self.library = functions  # others look at it without the lock

    def refused(self, code: int, functions: Functions) -> str:
        """Why a driver that is loaded cannot be used: its error code, or 0 where it sees no GPU."""
        if code == 0:
            return f"the {self.vendor} driver sees no GPU (an environment variable may hide them)"
        return (
            f"the {self.vendor} driver cannot be used: {self.described(code, functions)[1]} "
            f"(initialising gave {code})"
        )

    def missing(self) -> str:
        """Why there is no usable GPU, or an empty text when there is one."""
        if self.library is None:
            self._load()
        if self.forked:
            return f"this process was forked from {self.process}, which had used the GPU already"
        return self.reason or ""

    def count(self) -> int:
        """How many GPUs can be used; 0 without a driver, never an error."""
        return 0 if self.missing() else self.devices

    def api(self) -> Any:
        """The driver's functions, initialised.

        Raises:
            DeviceError: no driver, no GPU, or a forked child of a process that had used it.
        """
        if self.library is None:
            self._load()
        if self.library is None:
            raise DeviceError(
                f"no GPU can be used: {self.reason}",
                hint='cb.devices() lists what there is; use device="cpu"',
            )
        if self.forked:
            raise DeviceError(
                f"no GPU can be used: {self.missing()}",
                hint='start processes with multiprocessing.get_context("spawn"), or fork before '
                "the first use of the GPU",
            )
        return self.library

    def check(self, code: int, what: str, device: str = "") -> None:
        """Raise the exception for a driver's error code; nothing when it is 0.

        Args:
            code: what a driver function returned.
            what: what was being done.
            device: where, such as "cuda:1", when known.
        """
        if code:
            raise failure(code, *self.described(code, self.api()), what, device, self.tools)

    def usable(self) -> bool:
        """Whether destructors may call the driver: it is loaded, and this is not a forked child."""
        return self.library is not None and not self.forked

    def context(self, ordinal: int = 0) -> Context:
        """The context of a GPU.

        Raises:
            DeviceError: no GPU of this number.
        """
        found = self.contexts.get(ordinal)
        if found is None or self.forked:
            with self.lock:
                self.api()
                found = self.contexts.setdefault(ordinal, Context(self, ordinal))
        return found


def until_exit(owner: type) -> type:
    """A class whose destructor stops with the interpreter, which empties modules; the driver frees
    what is left.
    """
    atexit.register(setattr, owner, "__del__", lambda _: None)
    return owner


class Context:
    """One GPU, as long as the process lives.

    Attributes:
        driver: of the vendor.
        ordinal: the number of the GPU.
        handle: the native context.
        name: of the GPU.
        memory_bytes: all of its memory.
        captures: how many graphs are being captured; it changes under `whole`, which is held, too,
            while somebody waits for all of the GPU: the driver refuses that during a capture, and
            spoils the graph.
        own: the streams that were made here, also those that nobody uses any more.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        api = driver.api()
        if not 0 <= ordinal < driver.devices:
            raise DeviceError(
                f"the device '{driver.name}:{ordinal}' does not exist: there are "
                f"{driver.devices} {driver.vendor} GPUs"
            )
        self.driver, self.ordinal, self.label = driver, ordinal, f"{driver.name}:{ordinal}"
        self.captures, self.whole = 0, threading.RLock()
        self.own: list[Any] = []
        self.device, self.handle = driver.open(ordinal)
        text, size = ctypes.create_string_buffer(256), c_size_t()
        self.check(api.device_name(text, 256, self.device), "asking for the device's name")
        self.name = text.value.decode(errors="replace")
        self.check(api.device_memory(byref(size), self.device), "asking for the device's memory")
        self.memory_bytes = size.value

    def check(self, code: int, what: str) -> None:
        """Raise the exception for a driver's error code here; nothing when it is 0."""
        if code:
            self.driver.check(code, what, self.label)

    def attribute(self, name: str | int) -> int:
        """A number of the device: a name of `Driver.attributes`, or the driver's own number."""
        value = c_int()
        number = self.driver.attributes[name] if isinstance(name, str) else name
        code = self.driver.api().device_attribute(byref(value), number, self.device)
        self.check(code, f"asking for {name}")
        return value.value

    def memory(self) -> tuple[int, int]:
        """Free bytes and all bytes of the device's memory."""
        free, total = c_size_t(), c_size_t()
        with self.active():
            code = self.driver.api().memory(byref(free), byref(total))
            self.check(code, "asking for free memory")
        return free.value, total.value

    def synchronize(self) -> bool:
        """Wait for everything that the device was given; False, with nothing done, while a graph is
        being captured.
        """
        with self.whole:
            if self.captures:
                return False
            with self.active():
                self.check(self.driver.api().synchronize(), "waiting for the device")
        return True

    def _current(self, api: Any) -> int | None:
        """The thread's context, None where it has none."""
        now = self.driver.handle()
        self.check(api.current(byref(now)), "asking for the thread's context")
        return now.value  # type: ignore[no-any-return]

    def ready(self) -> None:
        """Make this the thread's context when it has none yet (as vendors' runtimes do)."""
        api = self.driver.api()
        if self._current(api) is None:
            self.check(api.set_current(self.handle), "taking a context")

    @contextlib.contextmanager
    def active(self) -> Iterator[Context]:
        """Do the block in this context; the thread's own context is back afterwards."""
        api = self.driver.api()
        now = self._current(api)
        if now == self.handle:
            yield self
            return
        self.check(api.set_current(self.handle), "taking a context")
        if now is None:
            yield self
            return
        try:
            yield self
        finally:
            api.set_current(now)
