"""Streams, events, waiting. On the CPU a launch is finished when it returns, so order is trivially kept.

On a GPU every thread has a stream of its own that its launches use; a `Stream` is another queue. Order between
streams is kept by the arrays: a launch waits for the work on other streams that it depends on.
"""

from __future__ import annotations

import time
from typing import Any

from cubepy.errors import DeviceError, LaunchError
from cubepy.runtime import tracing
from cubepy.runtime.device import Device, as_device, current, gpu_of


class Stream:
    """An in-order queue of launches on one device.

    Args:
        device: by default the current one.
        priority: smaller numbers run earlier where the device is contended (GPU only).
        handle: the native handle of another library's stream, such as `torch.cuda.current_stream().cuda_stream`.

    Under `with stream:` it is the thread's own stream: launches and tensors of the block use it.

    Example:
        >>> s = Stream()
        >>> s.sync()
    """

    def __init__(self, device: Any = None, *, priority: int = 0, handle: int | None = None) -> None:
        self.device = current() if device is None else as_device(device)
        gpu = gpu_of(self.device)
        self.native = None if gpu is None else gpu.new_stream(self.device.ordinal, handle, priority)
        self._before: list[Any] = []

    def attach(self, device: Any) -> tuple[Device, Any]:
        """The device and the native stream for a launch.

        Raises:
            LaunchError: the launch names another device.
        """
        if device is not None and as_device(device) != self.device:
            raise LaunchError(
                f"a stream of {self.device} cannot take a launch on {as_device(device)}",
                hint=f"pass device={str(self.device)!r}",
            )
        if self.native is not None:
            mine = gpu_of(self.device).thread_stream(self.device.ordinal)
            if mine.capture is not None:
                mine.capture.join(self.native)
        return self.device, self.native

    def wait(self, other: Stream | Event) -> None:
        """Let later launches here come after an event, or after everything that another stream has been given.

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
            self._before.append(gpu_of(self.device).set_thread_stream(self.device.ordinal, self.native))
        return self

    def __exit__(self, *exc: object) -> None:
        if self.native is not None:
            gpu_of(self.device).set_thread_stream(self.device.ordinal, self._before.pop())


def attached(stream: Any, device: Any) -> tuple[Device, Any]:
    """`stream.attach(device)` for what a launch was given as its stream.

    Raises:
        LaunchError: it is not one of ours, or the launch names another device.
    """
    if not isinstance(stream, Stream):
        raise LaunchError(
            f"the stream of a launch is a cb.Stream, not {stream!r}",
            hint="another library's: cb.Stream(device, handle=torch.cuda.current_stream().cuda_stream)",
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
        """Put the event after everything that a stream (the thread's own by default) has been given so far."""
        if self.native is None:
            self._time = time.perf_counter()
            return
        gpu = gpu_of(self.device)
        tracing.spoil()
        self.native.record(gpu.thread_stream(self.device.ordinal) if stream is None else stream.native)

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
    """Wait until every launch on a device is finished (the current device by default, and every GPU in use).

    Launches on the CPU are finished when they return; the call is there so that code runs anywhere. Errors that
    kernels reported (out of bounds in validate mode, `debug_assert`) are raised here.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([1.0, 2.0]) * 2
        >>> cb.sync()  # on a GPU: now it is done, and its errors are known
    """
    where = current() if device is None else as_device(device)
    gpu = gpu_of(where)
    tracing.spoil()
    if gpu is not None:
        gpu.synchronize(where.ordinal)
    elif device is None:
        for used in gpus_in_use():
            gpu_of(used).synchronize(used.ordinal)


def gpus_in_use() -> list[Device]:
    """GPUs that this process has used."""
    from cubepy.runtime.layout import devices_seen

    return sorted(devices_seen, key=str)
