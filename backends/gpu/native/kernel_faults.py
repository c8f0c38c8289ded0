"""Errors that kernels report (`gpu.faults`): a record for each launch, looked at when somebody
waits for the device.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_void_p
from typing import Any, NamedTuple

from cubepy.backends.gpu.faults import launch_site, report
from cubepy.backends.gpu.native.driver import Context, until_exit
from cubepy.backends.gpu.native.kernel_prints import COUNT, Regions
from cubepy.backends.gpu.native.memory import with_room
from cubepy.backends.gpu.prints import prints
from cubepy.errors import LaunchError, Location

WORDS = 4
RECORD = 8 * WORDS
SLOTS = 1024


class Launched(NamedTuple):
    """A launch whose record nobody has looked at: from where, which record, where it prints to
    (0: it does not).
    """

    executable: Any
    site: Location | None
    slot: int
    region: int


@until_exit
class Faults:
    """The fault records of one stream."""

    def __init__(self, where: Context) -> None:
        self.context, made, api = where, c_void_p(), where.driver.api()
        with where.active():
            code = with_room(where, lambda: api.allocate(byref(made), RECORD * SLOTS))
            where.check(code, "allocating fault records")
        self.address = made.value or 0
        self.host = (ctypes.c_int64 * (WORDS * SLOTS))()
        self.regions: Regions | None = None  # made at the first launch that prints
        self.pending: list[Launched] = []
        self.free = list(range(SLOTS))
        self.clean = False
        self.lock = threading.RLock()

    def take(self, executable: Any, stream: Any) -> tuple[int, ...]:
        """What a launch that follows on `stream` is given: the address of a fresh record, and that
        of a region if it prints.
        """
        with self.lock:
            if not self.clean:
                self._clear(stream)
            if not self.free:
                self._make_room(stream, f"{SLOTS} launches of kernels with checks")
            region = self._region(stream) if prints(executable.sites) else 0
            slot = self.free.pop()
            self.pending.append(Launched(executable, launch_site(), slot, region))
            record = self.address + slot * RECORD
            return (record, region) if region else (record,)

    def _region(self, stream: Any) -> int:
        if self.regions is None:
            self.regions = Regions(self.context, stream)
        if not self.regions.free:
            self._make_room(stream, f"{COUNT} launches of kernels that print")
        return self.regions.take(stream)

    def _make_room(self, stream: Any, most: str) -> None:
        """Look at all records, after which they are free."""
        if stream.capture is not None:
            raise LaunchError(
                f"a capture takes at most {most}",
                hint='capture without mode="validate" and CUBEPY_DEBUG',
            )
        self.check(stream)

    def _clear(self, stream: Any) -> None:
        where, size = self.context, RECORD * SLOTS
        with where.active():
            code = where.driver.api().fill(self.address, 0, size, stream.handle)
            where.check(code, "clearing fault records")
        self.clean = True

    def prints(self) -> bool:
        """Whether somebody printed what nobody has seen."""
        with self.lock:
            return any(launch.region for launch in self.pending)

    def check(self, stream: Any) -> None:
        """Wait for the stream, show what kernels printed, and raise the first error that one
        reported.

        Raises:
            OutOfBoundsError, KernelAssertionError: what the kernel found.
        """
        with self.lock:
            if not self.pending:
                return
            pending, self.pending = self.pending, []
            self.free = list(range(SLOTS))
            if self.regions is not None:
                self.regions.free = self.regions.all()
            where, api = self.context, self.context.driver.api()
            with where.active():
                code = api.download(self.host, self.address, RECORD * SLOTS, stream.handle)
                where.check(code, "reading fault records")
                where.check(api.synchronize_stream(stream.handle), "waiting for a stream")
            for launch in pending:
                if launch.region and self.regions is not None:
                    self.regions.show(launch.executable, launch.region, stream)
            for executable, site, slot, _ in pending:
                number, index, length = self.host[slot * WORDS : slot * WORDS + 3]
                if number:
                    self.clean = False
                    raise report(executable, int(number), int(index), int(length), site)

    def __del__(self) -> None:
        if hasattr(self, "address") and self.context.driver.usable():
            self.context.driver.api().free(self.address)


def of(stream: Any) -> Faults:
    """The fault records of a stream."""
    if stream.faults is None:
        stream.faults = Faults(stream.context)
    found: Faults = stream.faults
    return found
