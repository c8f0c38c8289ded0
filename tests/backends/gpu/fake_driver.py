"""A GPU driver in Python, of either vendor, whose streams run their work late and in any order that
events allow.

It has the functions that `cubepy.backends.gpu` calls, with host memory as device memory and Python
functions as kernels. What the runtime does not order, this driver may run in the wrong order: that
is what it is for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cubepy.backends.cuda import backend as cuda
from cubepy.backends.cuda.backend import CudaBackend
from cubepy.backends.cuda.run import CudaRunner
from cubepy.backends.gpu.backend import GpuBackend
from cubepy.backends.gpu.native.functions import TAKES, Functions
from cubepy.backends.gpu.native.module import Loadable
from cubepy.backends.gpu.run import GpuRunner
from cubepy.backends.hip import backend as hip
from cubepy.runtime import recording
from cubepy.runtime.device import Device, backend_named
from cubepy.runtime.launch.launcher import Launcher
from cubepy.runtime.memory import constants, layout

INVALID_VALUE, OUT_OF_MEMORY, NOT_READY, WRONG_CONTEXT, ILLEGAL_ADDRESS = 1, 2, 600, 400, 700
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED, CAPTURED_EVENT = 900, 901, 907
LINE = 256  # memory begins at multiples of it
Kernel = Callable[[list[int]], None]
PROCESSOR = "gfx942"
ATTRIBUTES = {
    "cuda": {75: 9, 97: 232448, 1: 1024},
    "hip": {56: 1024, 63: 304, 74: 65536, 76: 65536, 19: 4 << 20},
}


class FakeDriver:
    """Devices whose kernels may not touch each other's memory; each thread's current context is
    what was set last.

    Threads may call it at once. What waits for a stream that is being captured, or for a whole
    device with one, spoils the capture. A stream that was destroyed must not be used.

    Attributes:
        kernels: by name; each gets the words of its parameters.
        limit: bytes that can be allocated.
    """

    def __init__(self, seed: int = 0, limit: int = 1 << 30, vendor: str = "cuda") -> None:
        self.vendor = vendor
        self.known: dict[str, dict[int, Any]] = {"contexts": {}, "pools": {}, "streams": {}}
        self.own_streams: dict[int, Any] = {}
        self.random, self.lock = random.Random(seed), threading.RLock()
        self.numbers = itertools.count(0x1000, 16)
        self.kernels: dict[str, Kernel] = {}
        self.functions: dict[int, Kernel] = {}
        self.blocks: dict[int, np.ndarray] = {}
        # HIP's default stream is 0; that of CUDA is used by no test.
        self.queues: dict[int, deque[tuple[str, Any]]] = {0: deque()} if vendor == "hip" else {}
        self.gone: set[int] = set()  # events that were destroyed
        self.recorded: dict[int, int] = {}  # event -> how often it was recorded
        self.reached: dict[int, int] = {}  # event -> which recording its stream has reached
        self.capturing: dict[int, list[tuple[str, Any]]] = {}
        self.forks: dict[
            int, list[tuple[str, Any]]
        ] = {}  # event -> the capture that it was recorded in
        self.graphs: dict[int, list[tuple[str, Any]]] = {}
        self.limit = limit
        self.spoiled: list[Any] = []  # captures
        self.local = threading.local()
        self.homes: dict[int, int] = {}  # stream or memory -> context
        self.pointers: dict[str, Any] = {}  # functions for machine code

    @property
    def contexts(self) -> list[int]:
        """Those of this thread."""
        first = [] if self.vendor == "cuda" else [0]  # HIP's threads have a device from the start
        return self.local.__dict__.setdefault("contexts", first)  # type: ignore[no-any-return]

    @contexts.setter
    def contexts(self, value: list[int]) -> None:
        self.local.contexts = value

    def pointer(self, name: str) -> int:
        """Where machine code finds a function of the driver."""
        if name not in self.pointers:
            types, function = _FOR_MACHINE_CODE.get(name, ([ctypes.c_int64] * 4, None))
            missing = getattr(self, name, lambda *given: 0)
            run = missing if function is None else functools.partial(function, self)
            self.pointers[name] = ctypes.CFUNCTYPE(ctypes.c_int, *types)(
                lambda *given: int(run(*given))
            )
        return ctypes.cast(self.pointers[name], ctypes.c_void_p).value or 0

    # Running

    def step(self) -> bool:
        """Run the next piece of work of some stream that may go on; False when there is none."""
        ready = [q for q in self.queues.values() if q and self._may(q[0])]
        if not ready:
            return False
        kind, what = self.random.choice(ready).popleft()
        if kind == "run":
            what()
        elif kind == "record":
            event, number = what
            self.reached[event] = max(self.reached.get(event, 0), number)
        return True

    def _may(self, task: tuple[str, Any]) -> bool:
        kind, what = task
        return kind != "wait" or self.reached.get(what[0], 0) >= what[1]

    def put(self, handle: int, kind: str, what: Any) -> int:
        """Give work to a stream, or to the capture that it is in."""
        if handle in self.capturing:
            self.capturing[handle].append((kind, what))
        else:
            self.queues[handle].append((kind, what))
            for _ in range(self.random.randrange(3)):
                self.step()
        return 0

    # Devices and memory

    def device(self, out: Any, ordinal: int) -> int:
        out._obj.value = ordinal
        return 0

    def retain_context(self, out: Any, device: int) -> int:
        out._obj.value = 0x100 + device
        return 0

    def current(self, out: Any) -> int:
        out._obj.value = self.contexts[-1] if self.contexts else None
        return 0

    def set_current(self, context: int) -> int:
        self.contexts = [context] if context or self.vendor == "hip" else []
        return 0

    def device_attribute(self, out: Any, number: int, device: int) -> int:
        out._obj.value = ATTRIBUTES[self.vendor].get(number, 1)
        return 0

    def processor(self, device: int) -> str:
        """What HIP calls a device's processor."""
        return f"{PROCESSOR}:sramecc+:xnack-"

    def properties(self, out: Any, device: int) -> int:
        """What HIP says of a device: its name, and somewhere behind that its processor."""
        text = b"A GPU".ljust(1160, b"\0") + self.processor(device).encode()
        ctypes.memmove(out, text, len(text))
        return 0

    def error_name(self, code: int, out: Any = None) -> Any:
        if out is None:
            return b"hipError"
        out._obj.value = b"CUDA_ERROR"
        return 0

    def allocate(self, out: Any, size: int) -> int:
        if sum(b.nbytes - LINE for b in self.blocks.values()) + size > self.limit:
            return OUT_OF_MEMORY
        raw = np.full(size + LINE, 0xAB, np.uint8)
        out._obj.value = address = -(-raw.ctypes.data // LINE) * LINE
        self.blocks[address], self.homes[address] = raw, self.contexts[-1]
        return 0

    def free(self, address: int) -> int:
        del self.blocks[address]
        return 0

    def upload(self, target: int, source: int, size: int, handle: int) -> int:
        data = ctypes.string_at(source, size)
        return self.put(handle, "run", lambda: ctypes.memmove(target, data, size))

    def download(self, target: Any, source: int, size: int, handle: int) -> int:
        return self.put(handle, "run", lambda: ctypes.memmove(target, source, size))

    def copy(self, target: int, source: int, size: int, handle: int) -> int:
        return self.put(handle, "run", lambda: ctypes.memmove(target, source, size))

    def fill(self, target: int, value: int, size: int, handle: int) -> int:
        return self.put(handle, "run", lambda: ctypes.memset(target, value, size))

    def copy_between(
        self, target: int, to: int, source: int, origin: int, size: int, handle: int
    ) -> int:
        assert to != origin
        return self.copy(target, source, size, handle)

    # Streams and events

    def stream(self, out: Any, flags: int, priority: int) -> int:
        out._obj.value = handle = next(self.numbers)
        self.queues[handle] = deque()
        self.homes[handle] = self.contexts[-1]
        return 0

    def destroy_stream(self, handle: int) -> int:
        while self.queues.get(handle) and self.step():
            pass
        self.queues.pop(handle, None)  # None: of another driver
        return 0

    def synchronize_stream(self, handle: int) -> int:
        if handle in self.capturing:
            return self.spoil(self.capturing[handle])
        while self.queues[handle]:
            assert self.step(), "the streams wait for each other"
        return 0

    def spoil(self, *captures: Any) -> int:
        """Something was done that no capture survives."""
        self.spoiled += captures
        return CAPTURE_UNSUPPORTED

    def synchronize(self) -> int:
        if self.capturing:
            return self.spoil(*self.capturing.values())
        while self.step():
            pass
        return 0

    def query_stream(self, handle: int) -> int:
        if handle in self.capturing:
            return self.spoil(self.capturing[handle])
        return NOT_READY if self.queues[handle] else 0

    def event(self, out: Any, flags: int) -> int:
        out._obj.value = next(self.numbers)
        return 0

    def destroy_event(self, event: int) -> int:
        self.gone.add(event)
        return 0

    def record_event(self, event: int, handle: int) -> int:
        assert event not in self.gone and handle in self.queues, "what is gone is recorded"
        if handle in self.capturing:
            self.forks[event] = self.capturing[handle]
            return 0
        self.forks.pop(event, None)
        self.recorded[event] = number = self.recorded.get(event, 0) + 1
        return self.put(handle, "record", (event, number))

    def wait_event(self, handle: int, event: int, flags: int) -> int:
        if event in self.forks and handle not in self.capturing:
            self.capturing[handle] = self.forks[event]
            return 0
        return (
            0
            if handle in self.capturing
            else self.put(handle, "wait", (event, self.recorded.get(event, 0)))
        )

    def query_event(self, event: int) -> int:
        return NOT_READY if self.reached.get(event, 0) < self.recorded.get(event, 0) else 0

    def synchronize_event(self, event: int) -> int:
        if event in self.forks:
            self.spoil(self.forks[event])
            return CAPTURED_EVENT
        while self.query_event(event):
            assert self.step(), "the streams wait for each other"
        return 0

    # Kernels

    def load_module(self, out: Any, *rest: Any) -> int:
        out._obj.value = 1
        return 0

    def function(self, out: Any, module: int, name: bytes) -> int:
        out._obj.value = handle = next(self.numbers)
        self.functions[handle] = self.kernels[name.decode()]
        return 0

    def launch(self, function: Any, *rest: Any) -> int:
        handle, parameters = rest[-3].value, rest[-2].value
        if self.homes[handle] != self.contexts[-1]:
            return WRONG_CONTEXT
        kernel = self.functions[function.value]
        words = [
            ctypes.c_int64.from_address(
                ctypes.c_void_p.from_address(parameters + 8 * n).value or 0
            ).value
            for n in range(kernel.words)  # type: ignore[attr-defined]
        ]
        others = [
            (at, at + len(b) - LINE)
            for at, b in self.blocks.items()
            if self.homes[at] != self.contexts[-1]
        ]
        if any(low <= w < high for w in words for low, high in others):
            return ILLEGAL_ADDRESS
        sizes = [getattr(size, "value", size) or 0 for size in rest[:7]]
        return self.put(handle, "run", lambda: self.run(kernel, words, sizes))

    def run(self, kernel: Kernel, words: list[int], sizes: list[int]) -> None:
        """Run a kernel: with three numbers of cubes, three of units, bytes of shared memory."""
        kernel(words)

    # Graphs

    def begin_capture(self, handle: int, mode: int) -> int:
        if handle in self.capturing:
            return self.spoil(self.capturing[handle])
        self.capturing[handle] = []
        return 0

    def end_capture(self, handle: int, out: Any) -> int:
        tasks = self.capturing[handle]
        self.capturing = {h: t for h, t in self.capturing.items() if t is not tasks}
        self.forks = {e: t for e, t in self.forks.items() if t is not tasks}
        if any(tasks is t for t in self.spoiled):
            return CAPTURE_INVALIDATED
        out._obj.value = graph = next(self.numbers)
        self.graphs[graph] = tasks
        return 0

    def instantiate(self, out: Any, graph: int, flags: int) -> int:
        out._obj.value = executable = next(self.numbers)
        self.graphs[executable] = self.graphs[graph]
        return 0

    def nodes(self, graph: int, nodes: Any, count: Any) -> int:
        if nodes is not None and not count._obj.value:
            return INVALID_VALUE
        count._obj.value = len(self.graphs[graph])
        return 0

    def launch_graph(self, executable: int, handle: int) -> int:
        for kind, what in self.graphs[executable]:
            self.put(handle, kind, what)
        return 0


def _one_at_a_time(name: str) -> None:
    function = getattr(FakeDriver, name)

    @functools.wraps(function)
    def locked(self: FakeDriver, *arguments: Any) -> Any:
        with self.lock:
            return function(self, *arguments)

    setattr(FakeDriver, name, locked)


_OF_THE_DRIVER = (*TAKES, "retain_context", "load_module", "error_name", "properties")
for _name in [n for n in vars(FakeDriver) if n in _OF_THE_DRIVER]:
    _one_at_a_time(_name)


class FakeFunctions(Functions):
    """The functions of a fake driver; those that it has not do nothing."""

    def __init__(self, fake: FakeDriver) -> None:
        super().__init__(None, {})
        self._fake = fake

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._fake, name, lambda *arguments: 0)

    def untyped(self, name: str) -> Any:
        return lambda *arguments: int(getattr(self._fake, name)(*arguments))

    def address(self, name: str) -> int:
        return self._fake.pointer(name)


def _current(fake: FakeDriver, out: int) -> int:
    handle = ctypes.c_int64 if fake.vendor == "cuda" else ctypes.c_int32
    handle.from_address(out).value = fake.contexts[-1] if fake.contexts else 0
    return 0


def _launch(fake: FakeDriver, function: int, *rest: int) -> int:
    return fake.launch(ctypes.c_void_p(function), *map(ctypes.c_void_p, rest))


_FOR_MACHINE_CODE: dict[str, tuple[list[Any], Any]] = {
    "current": ([ctypes.c_int64], _current),
    "set_current": ([ctypes.c_int64], None),
    "launch": ([ctypes.c_int64, *[ctypes.c_int32] * 7, *[ctypes.c_int64] * 3], _launch),
}


def kernel(words: int) -> Callable[[Kernel], Kernel]:
    """Say how many parameters a kernel has."""

    def mark(function: Kernel) -> Kernel:
        function.words = words  # type: ignore[attr-defined]
        return function

    return mark


@contextlib.contextmanager
def fake_driver(
    monkeypatch: pytest.MonkeyPatch,
    seed: int = 0,
    limit: int = 1 << 30,
    devices: int = 1,
    vendor: str = "cuda",
    fake: FakeDriver | None = None,
) -> Iterator[FakeDriver]:
    """Make a vendor's driver the fake one."""
    fake = fake or FakeDriver(seed, limit, vendor)
    driver = backend_named(vendor).driver
    _forget()
    with monkeypatch.context() as m:
        m.setitem(globals(), "CHOSEN", vendor)
        m.setattr(driver, "library", FakeFunctions(fake))
        m.setattr(driver, "reason", None)
        m.setattr(driver, "devices", devices)
        for name, value in fake.known.items():
            m.setattr(driver, name, value)
        m.setattr(driver.here, "streams", fake.own_streams)
        m.setattr(layout, "devices_seen", set())  # a later `cb.sync` waits for none of them
        yield fake
        fake.synchronize()
        _forget()


def _forget() -> None:
    """Nothing that was prepared for another driver is used."""
    constants._constants.clear()
    recording.forget()
    hip._properties.cache_clear()
    cuda._properties.cache_clear()


def forget_launches() -> None:
    """Nothing that was prepared for a launch, of whatever kernel, is used again."""
    gc.unfreeze()  # what is frozen is not among the objects
    for launcher in [x for x in gc.get_objects() if type(x) is Launcher]:
        launcher.local, launcher.replays = threading.local(), None
        launcher.programs.clear()
    gc.freeze()


CHOSEN = "cuda"
"""The vendor whose driver is the fake one."""
BACKENDS: dict[str, type[GpuBackend]] = {"cuda": CudaBackend, "hip": hip.HipBackend}


class _Chosen:
    """A thing of the vendor whose driver is the fake one."""

    def __init__(self, thing: str) -> None:
        self._thing = thing

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(backend_named(CHOSEN), self._thing), name)


DRIVER: Any = _Chosen("driver")
GPU: Any = _Chosen("gpu")


def here(ordinal: int = 0) -> Device:
    """A device of the vendor whose driver is the fake one."""
    return Device(CHOSEN, ordinal)


def loadable(name: str) -> Loadable:
    """A kernel of a fake driver."""
    return Loadable(backend_named(CHOSEN).driver, b"", name)


def runner_class() -> type[GpuRunner]:
    """Launches of the vendor's."""
    return CudaRunner if CHOSEN == "cuda" else GpuRunner


def runner(*given: Any) -> GpuRunner:
    """A launch of the vendor's."""
    return runner_class()(*given)


def orders(cuda: int, hip: int) -> dict[str, Any]:
    """Of a fixture: drivers of both vendors, each with another order of work."""
    both = [*(("cuda", n) for n in range(cuda)), *(("hip", n) for n in range(hip))]
    return {"params": both, "ids": [f"{name}-{n}" for name, n in both]}
