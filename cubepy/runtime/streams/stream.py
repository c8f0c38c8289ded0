"""Streams, events, waiting. On the CPU a launch is finished when it returns, so order is trivially
kept.

On a GPU every thread has a stream of its own that its launches use; a `Stream` is another queue.
Order between streams is kept by the arrays: a launch waits for the work on other streams that it
depends on.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

from cubepy.errors import DeviceError, LaunchError
from cubepy.runtime import recording
from cubepy.runtime.device import Device, as_device, current, gpu_of
from cubepy.runtime.memory import layout


class Stream:
    """An in-order queue of launches on one device.

    Args:
        device: by default the current one.
        priority: smaller numbers run earlier where the device is contended (GPU only).
        handle: the native handle of another library's stream, such as
            `torch.cuda.current_stream().cuda_stream`. That stream must live as long as this object;
            when this object goes, its work is known by an event.

    Under `with stream:` it is the thread's own stream: launches and tensors of the block use it. In
    a capture of this thread, it is captured, too.

    Example:
        >>> s = Stream()
        >>> s.sync()
    """

    def __init__(self, device: Any = None, *, priority: int = 0, handle: int | None = None) -> None:
        self.device = current() if device is None else as_device(device)
        gpu = gpu_of(self.device)
        self.native = None if gpu is None else gpu.new_stream(self.device.ordinal, handle, priority)
        self._before: dict[int, list[Any]] = {}  # by thread
        if self.native is not None and handle is not None:
            weakref.finalize(self, self.native.retire).atexit = False

    def attach(self, device: Any) -> tuple[Device, Any]:
        """The device and the native stream for a launch.

        Raises:
            LaunchError: the launch names another device, or a capture of another thread has the
                stream.
        """
        if device is not None and as_device(device) != self.device:
            raise LaunchError(
                f"a stream of {self.device} cannot take a launch on {as_device(device)}",
                hint=f"pass device={str(self.device)!r}",
            )
        self._join()
        return self.device, self.native

    def _join(self) -> None:
        """Take part in the capture of this thread, if there is one."""
        if self.native is None:
            return
        mine = gpu_of(self.device).thread_stream(self.device.ordinal).capture
        if mine is not None:
            mine.join(self.native)
        elif self.native.capture is not None:
            raise LaunchError(
                "the stream is being captured by another thread",
                hint="give every thread a stream of its own",
            )

    def wait(self, other: Stream | Event) -> None:
        """Let later launches here come after an event, or after everything that another stream has
        been given.

        Arrays keep this order by themselves; it is needed for memory of other libraries.
        """
        if self.native is None or other.native is None:
            return
        if isinstance(other, Event):
            self.native.wait_event(other.native)
        else:
            self.native.wait(other.native)

    def sync(self) -> None:
        """Wait until every launch of the stream is finished; errors of launches surface here."""
        if self.native is not None:
            self.native.synchronize()

    @property
    def done(self) -> bool:
        """Whether every launch of the stream is finished."""
        return self.native is None or self.native.done()

    @property
    def handle(self) -> int:
        """The native handle, for other libraries.

        Raises:
            DeviceError: the device has no streams.
        """
        if self.native is None:
            raise DeviceError(f"a stream on {self.device} has no native handle")
        return int(self.native.handle)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def __enter__(self) -> Stream:
        if self.native is not None:
            self._join()
            before = gpu_of(self.device).set_thread_stream(self.device.ordinal, self.native)
            self._before.setdefault(threading.get_ident(), []).append(before)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.native is not None:
            mine = self._before[threading.get_ident()]
            gpu_of(self.device).set_thread_stream(self.device.ordinal, mine.pop())
            if not mine:
                del self._before[threading.get_ident()]


def attached(stream: Any, device: Any) -> tuple[Device, Any]:
    """`stream.attach(device)` for what a launch was given as its stream.

    Raises:
        LaunchError: it is not one of ours, or the launch names another device.
    """
    if not isinstance(stream, Stream):
        raise LaunchError(
            f"the stream of a launch is a cb.Stream, not {stream!r}",
            hint="another library's: cb.Stream(device, "
            "handle=torch.cuda.current_stream().cuda_stream)",
        )
    return stream.attach(device)


class Event:
    """A point in the work of a stream, which can be waited for and whose time is taken.

    Example:
        >>> a, b = Event(), Event()
        >>> a.record()
        >>> b.record()
        >>> b.seconds_since(a) >= 0
        True
    """

    def __init__(self, device: Any = None) -> None:
        self.device = current() if device is None else as_device(device)
        gpu = gpu_of(self.device)
        self.native = None if gpu is None else gpu.new_event(self.device.ordinal)
        self._time = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Put the event after everything that a stream (the thread's own by default) has been given
        so far.
        """
        if self.native is None:
            self._time = time.perf_counter()
            return
        gpu = gpu_of(self.device)
        recording.spoil()
        self.native.record(
            gpu.thread_stream(self.device.ordinal) if stream is None else stream.native
        )

    def sync(self) -> None:
        """Wait until the work before the event is finished."""
        if self.native is not None:
            self.native.synchronize()

    @property
    def done(self) -> bool:
        """Whether the work before the event is finished."""
        return self.native is None or self.native.done()

    def seconds_since(self, start: Event) -> float:
        """Seconds on the device from another event to this one; waits for this one."""
        self.sync()
        if self.native is None:
            return self._time - start._time
        return float(self.native.seconds_since(start.native))


def sync(device: Any = None) -> None:
    """Wait until every launch on a device is finished (the current device by default, and every GPU
    in use).

    While another thread captures a graph, the work of other libraries on streams of their own is
    not waited for.

    Launches on the CPU are finished when they return; the call is there so that code runs anywhere.
    Errors that kernels reported (out of bounds in validate mode, `debug_assert`) are raised here.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([1.0, 2.0]) * 2
        >>> cb.sync()  # on a GPU: now it is done, and its errors are known
    """
    where = current() if device is None else as_device(device)
    gpu = gpu_of(where)
    recording.spoil()
    if gpu is not None:
        gpu.synchronize(where.ordinal)
    elif device is None:
        for used in gpus_in_use():
            gpu_of(used).synchronize(used.ordinal)


def gpus_in_use() -> list[Device]:
    """GPUs that this process has used."""
    return sorted(layout.devices_seen, key=str)
