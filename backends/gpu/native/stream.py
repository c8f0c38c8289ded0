"""Streams and events of one GPU: queues of work, points in them, and waiting.

Each thread has a stream of its own on every device, made at first use. It is ordered against the
legacy default stream, where PyTorch and CuPy work unless they are told otherwise, as the driver
orders any blocking stream.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Iterator
from ctypes import byref, c_float, c_void_p
from typing import Any

from cubepy.backends.gpu.native.driver import Context, Driver, until_exit
from cubepy.backends.gpu.native.driver_errors import NOT_READY
from cubepy.errors import LaunchError
from cubepy.runtime.memory.hazards import order

_BLOCKING, _NON_BLOCKING = 0, 1
_TIMED, _UNTIMED = 0, 2
SPARE = 64
"""Native streams that are kept for whoever wants one next."""


class NativeStream:
    """An in-order queue of work on one GPU.

    Attributes:
        context: of the GPU.
        handle: the native stream.
        argument: the same as ctypes passes it fastest.
        capture: what records the work instead of running it, or None.
        past: what others wait for where the stream itself cannot be asked: an event after the work
            that it was given before the capture it is in, or before its library took it back.
        kind: flags and priority of our own, None for another library's.

    Our own are held by `Context.own` until nobody else has them (`_made`). If they were garbage in
    a circle with memory, its destructor would bring them back to life, as keys of a pool, after
    their events and handles were given away.
    """

    __slots__ = (
        "__weakref__",
        "_event",
        "argument",
        "capture",
        "context",
        "faults",
        "handle",
        "kind",
        "label",
        "last_event",
        "watched",
    )

    def __init__(
        self, where: Context, handle: int | None = None, *, blocking: bool = True, priority: int = 0
    ) -> None:
        self.context = where
        self.kind: tuple[int, int] | None = None
        if handle is None:
            self.kind = kind = _BLOCKING if blocking else _NON_BLOCKING, priority
            handle = _made(where, kind)
            where.own.append(self)
        self.handle: int = handle
        self.argument = c_void_p(handle)
        self.capture: Any = None  # a `graph.Capture` while one records this stream
        self.last_event: NativeEvent | None = None
        self.faults: Any = None  # records of kernels with checks, made at the first of them
        self.watched: set[Any] = set()  # those of graphs that were launched here
        self._event: NativeEvent | None = None
        self.label = where.label
        number, known = next(_numbers), where.driver.streams
        known[number] = weakref.ref(self, lambda _: known.pop(number, None))

    def wait(self, other: NativeStream) -> None:
        """Let later work here come after everything that `other` has been given so far."""
        if other is self:
            return
        with marks:
            if other.capture is self.capture:
                self.wait_event(other.mark())
            elif (
                self.capture is None and other.last_event is not None
            ):  # replays of a capture order themselves
                self.wait_event(other.last_event)

    def mark(self) -> NativeEvent:
        """An event after everything that the stream has been given so far; the next `mark` reuses
        it.
        """
        if self.last_event is not None and self.capture is None:
            return self.last_event
        event = self._event
        if event is None:
            event = self._event = NativeEvent(self.context, timed=False)
        event.record(self)
        return event

    def retire(self) -> None:
        """The stream is about to go, as its library wishes: from here on it is known by an event
        alone.
        """
        if self.last_event is None and self.context.driver.usable():
            with marks:
                event = NativeEvent(self.context, timed=False)
                event.record(self)
                self.last_event = event

    def wait_event(self, event: NativeEvent) -> None:
        """Let later work here come after an event."""
        where = self.context
        if not event.handle:
            event.gone()
            return
        with where.active():
            code = where.driver.api().wait_event(self.handle, event.handle, 0)
            where.check(code, "making a stream wait")

    def synchronize(self) -> None:
        """Wait until everything that the stream was given is done; errors that kernels reported
        surface here.

        Raises:
            LaunchError: a graph is being captured on it.
        """
        if self.capture is not None:
            raise LaunchError(
                "nothing can be waited for while a graph is being captured: its work does "
                "not run yet",
                hint="wait after the block, or after g.replay()",
            )
        self.check_faults()
        if self.last_event is not None:
            self.last_event.synchronize()
            return
        where = self.context
        with where.active():
            code = where.driver.api().synchronize_stream(self.handle)
            where.check(code, "waiting for a stream")

    def settle(self) -> None:
        """Wait for what the stream was given outside of captures."""
        with marks:
            event = self.last_event
            if event is None and self.capture is None:
                event = NativeEvent(
                    self.context, timed=False
                )  # not that of `mark`, which a capture may take
                event.record(self)
        if event is not None:
            event.synchronize()

    @property
    def has_faults(self) -> bool:
        """Whether kernels with checks ran whose records were not looked at."""
        return bool(self.watched) or (self.faults is not None and bool(self.faults.pending))

    def check_faults(self) -> None:
        """Raise the first error that a kernel of this stream reported; waits only where kernels
        have checks.

        Raises:
            OutOfBoundsError, KernelAssertionError: what the kernel found.
        """
        while self.watched:
            self.watched.pop().check(self)
        if self.faults is not None:
            self.faults.check(self)

    def done(self) -> bool:
        """Whether everything that the stream was given is done; what a capture records is not given
        yet.
        """
        with marks:
            if self.last_event is not None or self.capture is not None:
                return self.last_event is None or self.last_event.done()
            with self.context.active():
                code = self.context.driver.api().query_stream(self.handle)
        if code != NOT_READY:
            self.context.check(code, "asking whether a stream is done")
        return bool(code == 0)

    def idle(self) -> bool:
        """Whether nobody needs to wait for the stream."""
        return self.capture is None and self.done()

    def __repr__(self) -> str:
        return f"<stream {self.handle:#x} of {self.label}>"


def _made(where: Context, kind: tuple[int, int]) -> int:
    """A native stream that nobody has any more, if its work is done, or a new one: the driver does
    not give all of a stream's memory back.
    """
    api, own, made = where.driver.api(), where.own, c_void_p()
    found, spoiled = 0, []
    with where.active():
        with marks:
            idle = [k for k in reversed(range(len(own))) if _references(own, k) == ALONE]
            for at, k in enumerate(idle):
                wanted = not found and own[k].kind == kind
                if not wanted and at < SPARE:
                    continue
                code = api.query_stream(own[k].handle)
                if code == NOT_READY or own[k].capture is not None:
                    continue
                handle = own.pop(k).handle
                if wanted and code == 0:
                    found = handle
                else:
                    spoiled.append(handle)  # one too many, or of a capture that never ended
        for handle in spoiled:
            api.destroy_stream(handle)
        if not found:
            where.check(api.stream(byref(made), *kind), "making a stream")
    return found or made.value or 0


def _references(streams: list[Any], k: int) -> int:
    """How often an element of a list is referred to."""
    one = streams[k]
    return sys.getrefcount(one)


ALONE = _references([object()], 0)
"""Of what only the list has; interpreters count differently."""


@until_exit
class NativeEvent:
    """A point in the work of a stream."""

    __slots__ = ("context", "handle", "timed")

    def __init__(self, where: Context, *, timed: bool = True) -> None:
        self.context, self.timed = where, timed
        self.handle: int = self._made()

    def _made(self) -> int:
        where, made = self.context, c_void_p()
        with where.active():
            code = where.driver.api().event(byref(made), _TIMED if self.timed else _UNTIMED)
            where.check(code, "making an event")
        return made.value or 0

    def record(self, stream: NativeStream) -> None:
        """Put the event after everything that the stream has been given so far."""
        where = stream.context
        with where.active():
            if not self.handle:  # garbage that memory in a circle with it brought back to life
                self.handle = self._made()
            code = where.driver.api().record_event(self.handle, stream.handle)
            where.check(code, "recording an event")

    def gone(self) -> None:
        """Wait for all of the device: the event was garbage, which memory in a circle with it
        brought back to life.
        """
        self.context.synchronize()

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""
        where = self.context
        if not self.handle:
            self.gone()
            return
        with where.active():
            code = where.driver.api().synchronize_event(self.handle)
            where.check(code, "waiting for an event")

    def done(self) -> bool:
        """Whether the work before the event is done."""
        where = self.context
        if not self.handle:
            return where.synchronize()
        with where.active():
            code = where.driver.api().query_event(self.handle)
        if code != NOT_READY:
            where.check(code, "asking whether an event is done")
        return bool(code == 0)

    def seconds_since(self, start: NativeEvent) -> float:
        """Seconds from `start` to this event; both must be done."""
        out, where = c_float(), self.context
        with where.active():
            code = where.driver.api().milliseconds(byref(out), start.handle, self.handle)
            where.check(code, "timing")
        return out.value / 1000

    def __del__(self) -> None:
        handle, self.handle = getattr(self, "handle", 0), 0
        if handle and self.context.driver.usable():
            self.context.driver.api().destroy_event(handle)


marks = threading.RLock()
"""Held while a stream is asked for what it was given, and while one enters or leaves a capture, or
goes.
"""
_numbers = itertools.count()


def thread_stream(driver: Driver, ordinal: int) -> NativeStream:
    """The stream of this thread on a GPU, which work uses that names no other."""
    found: NativeStream | None = driver.here.streams.get(ordinal)
    if found is None:
        where = driver.context(ordinal)
        where.ready()
        found = driver.here.streams[ordinal] = NativeStream(where)
    return found


def set_thread_stream(driver: Driver, ordinal: int, stream: NativeStream) -> NativeStream:
    """Make another stream the thread's own; gives the one that was."""
    before = thread_stream(driver, ordinal)
    driver.here.streams[ordinal] = stream
    return before


def all_streams(driver: Driver, ordinal: int) -> Iterator[NativeStream]:
    """Every stream of a GPU that still lives, in all threads: one after the other, since threads
    that wait for all of them would keep those that go meanwhile.
    """
    for known in list(driver.streams.values()):
        stream = known()
        if stream is not None and stream.context.ordinal == ordinal:
            yield stream
        del stream


def use(stream: Any, owner: Any, writes: bool) -> None:
    """Order the next work of a stream against the other users of memory."""
    if owner.last is not stream:
        if stream.capture is None:
            order(owner, stream, writes)
        else:
            stream.capture.use(owner, stream, writes)
