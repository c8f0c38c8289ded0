"""How long work takes: by events on a GPU, by the clock with pauses on the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from cubepy.runtime.device import as_device, gpu_of
from cubepy.runtime.memory.device_array import upload
from cubepy.runtime.streams.stream import Event, sync
from cubepy.tune.limit_kernels import multiply_add

STEP = 2e-9
"""Seconds of a step of a chain of multiply-adds, about: four cycles."""
LONGEST_PAUSE = 0.05
"""Seconds that the host may be ahead of a GPU."""


class Stopwatch(Protocol):
    """What a race needs of time; tests give one that makes it up."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def time(self, run: Callable[[int], Any], count: int) -> float:
        """Seconds of one of the runs `run(0)` to `run(count - 1)`, the work of all of them
        finished.
        """

    def rest(self, spent: float) -> None:
        """Pause after `spent` seconds of work."""


class HostStopwatch:
    """The clock of the process."""

    def now(self) -> float:
        """Seconds."""
        return time.perf_counter()

    def time(self, run: Callable[[int], Any], count: int) -> float:
        """Seconds of the quickest run: what makes others slower is other work on the machine."""
        best = float("inf")
        for i in range(count):
            start = time.perf_counter()
            run(i)
            best = min(best, time.perf_counter() - start)
        return best

    def rest(self, spent: float) -> None:
        """Pause as long as the work took, at most 20 ms: shared machines slow down those who never
        pause.
        """
        time.sleep(min(spent, 0.02))


class DeviceStopwatch:
    """The clock of a GPU: events around the runs, so that the host's part is not counted.

    From the second time on a pause on the GPU lets the host run ahead: it launches slower than
        small kernels run.
    """

    def __init__(self, device: Any) -> None:
        self.device = as_device(device)
        self.start, self.end = Event(self.device), Event(self.device)
        self.pause = upload(np.zeros(1, np.float32), self.device)
        self.launching: dict[Any, float] = {}  # seconds of the host for one of the runs

    def now(self) -> float:
        """Seconds."""
        return time.perf_counter()

    def time(self, run: Callable[[int], Any], count: int) -> float:
        """Mean seconds of a run on the device; errors of launches surface here."""
        ahead = min(LONGEST_PAUSE, 1.5 * count * self.launching.get(run, 0.0))
        multiply_add[1, 1](self.pause, 0.5, int(ahead / STEP), 1, 1, mode="unchecked")
        self.start.record()
        begin = time.perf_counter()
        for i in range(count):
            run(i)
        self.launching[run] = (time.perf_counter() - begin) / count
        self.end.record()
        seconds = self.end.seconds_since(self.start) / count
        sync(self.device)
        return seconds

    def rest(self, spent: float) -> None:
        """A GPU has its own cooling; nothing to wait for."""


def stopwatch_for(device: Any) -> Stopwatch:
    """The stopwatch that fits a device."""
    return HostStopwatch() if gpu_of(as_device(device)) is None else DeviceStopwatch(device)
