"""Errors that kernels report (`gpu.faults`): a record for each launch, looked at when somebody
waits for the device.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_void_p
from typing import Any

from cubepy.backends.gpu.faults import launch_site, report
from cubepy.backends.gpu.native.driver import Context, until_exit
from cubepy.backends.gpu.native.memory import with_room
from cubepy.errors import LaunchError, Location

WORDS = 4
RECORD = 8 * WORDS
SLOTS = 1024


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
        self.pending: list[tuple[Any, Location | None, int]] = []  # executable, launch site, slot
        self.free = list(range(SLOTS))
        self.clean = False
        self.lock = threading.RLock()

    def take(self, executable: Any, stream: Any) -> int:
        """The address of a fresh record for a launch that follows on `stream`."""
        with self.lock:
            if not self.clean:
                self._clear(stream)
            if not self.free:
                if stream.capture is not None:
                    raise LaunchError(
                        f"a capture takes at most {SLOTS} launches of kernels with checks",
                        hint='capture without mode="validate" and CUBEPY_DEBUG',
                    )
                self.check(stream)
            slot = self.free.pop()
            self.pending.append((executable, launch_site(), slot))
            return self.address + slot * RECORD

    def _clear(self, stream: Any) -> None:
        where, size = self.context, RECORD * SLOTS
        with where.active():
            code = where.driver.api().fill(self.address, 0, size, stream.handle)
            where.check(code, "clearing fault records")
        self.clean = True

    def check(self, stream: Any) -> None:
        """Wait for the stream and raise the first error that a kernel reported.

        Raises:
            OutOfBoundsError, KernelAssertionError: what the kernel found.
        """
        with self.lock:
            if not self.pending:
                return
            pending, self.pending = self.pending, []
            self.free = list(range(SLOTS))
            where, api = self.context, self.context.driver.api()
            with where.active():
                code = api.download(self.host, self.address, RECORD * SLOTS, stream.handle)
                where.check(code, "reading fault records")
                where.check(api.synchronize_stream(stream.handle), "waiting for a stream")
            for executable, site, slot in pending:
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
