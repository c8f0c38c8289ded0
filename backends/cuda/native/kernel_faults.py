"""Errors that kernels report (`gpu.faults`): a record for each launch, looked at when somebody
waits for the device.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_void_p
from typing import Any

from cubepy.backends.cuda.native import driver
from cubepy.backends.cuda.native.driver import Context, api, check
from cubepy.backends.cuda.native.memory import with_room
from cubepy.backends.gpu.faults import launch_site, report
from cubepy.errors import LaunchError, Location

WORDS = 4
RECORD = 8 * WORDS
SLOTS = 1024


@driver.until_exit
class Faults:
    """The fault records of one stream."""

    def __init__(self, where: Context) -> None:
        self.context, made = where, c_void_p()
        with where.active():
            code = with_room(
                where.ordinal, lambda: api().cuMemAlloc_v2(byref(made), RECORD * SLOTS)
            )
            check(code, "allocating fault records", where.label)
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
        size = RECORD * SLOTS
        with self.context.active():
            check(
                api().cuMemsetD8Async(self.address, 0, size, stream.handle),
                "clearing fault records",
            )
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
            with self.context.active():
                code = api().cuMemcpyDtoHAsync_v2(
                    self.host, self.address, RECORD * SLOTS, stream.handle
                )
                check(code, "reading fault records", stream.label)
                check(
                    api().cuStreamSynchronize(stream.handle), "waiting for a stream", stream.label
                )
            for executable, site, slot in pending:
                number, index, length = self.host[slot * WORDS : slot * WORDS + 3]
                if number:
                    self.clean = False
                    raise report(executable, int(number), int(index), int(length), site)

    def __del__(self) -> None:
        if hasattr(self, "address") and driver.usable():
            driver.api().cuMemFree_v2(self.address)


def of(stream: Any) -> Faults:
    """The fault records of a stream."""
    if stream.faults is None:
        stream.faults = Faults(stream.context)
    found: Faults = stream.faults
    return found
