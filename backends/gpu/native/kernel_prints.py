"""Regions of a GPU's memory that kernels print to (`gpu.prints`): one for a launch."""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_void_p
from typing import Any

from cubepy.backends.gpu.native.driver import Context, until_exit
from cubepy.backends.gpu.native.memory import with_room
from cubepy.backends.gpu.prints import WORDS, lost, printed

BYTES = 8 * WORDS
COUNT = 8


@until_exit
class Regions:
    """The regions of one stream.

    Attributes:
        free: addresses of those that no launch has.
    """

    def __init__(self, where: Context, stream: Any) -> None:
        self.context, made, api = where, c_void_p(), where.driver.api()
        with where.active():
            code = with_room(where, lambda: api.allocate(byref(made), BYTES * COUNT))
            where.check(code, "allocating memory to print to")
        self.address = made.value or 0
        self.free = self.all()
        # A capture does not clear now, and its regions may be looked at before it was replayed.
        real = stream if stream.capture is None else stream.capture.side
        self._clear(self.address, BYTES * COUNT, real)
        real.synchronize()

    def all(self) -> list[int]:
        """The addresses of all regions."""
        return [self.address + k * BYTES for k in range(COUNT)]

    def take(self, stream: Any) -> int:
        """A region for a launch that follows on a stream; there must be a free one."""
        region = self.free.pop()
        self._clear(region, BYTES, stream)
        return region

    def _clear(self, address: int, size: int, stream: Any) -> None:
        where = self.context
        with where.active():
            code = where.driver.api().fill(address, 0, size, stream.handle)
            where.check(code, "clearing memory to print to")

    def show(self, executable: Any, region: int, stream: Any) -> None:
        """Print what a launch left, which has ended."""
        (count,) = self._read(region, 1, stream)
        words = self._read(region, min(1 + count, WORDS), stream)
        sys.stdout.write("".join(printed(executable.sites, words)))
        sys.stdout.flush()
        if lost(words):
            name = executable.program.name
            print(f"{name} printed more than {BYTES >> 10} KiB; the rest is lost", file=sys.stderr)

    def _read(self, region: int, count: int, stream: Any) -> Any:
        host, where, api = (ctypes.c_int64 * count)(), self.context, self.context.driver.api()
        with where.active():
            code = api.download(host, region, 8 * count, stream.handle)
            where.check(code, "reading what kernels print")
            where.check(api.synchronize_stream(stream.handle), "waiting for a stream")
        return host

    def __del__(self) -> None:
        if hasattr(self, "address") and self.context.driver.usable():
            self.context.driver.api().free(self.address)
