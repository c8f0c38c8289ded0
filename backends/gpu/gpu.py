"""What the runtime asks of GPUs besides running kernels: memory, copies, streams, events, graphs.

The floors above know it as `Backend.gpu` (`cubepy.runtime.backend.Gpu`); arrays are `DeviceArray`s.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from cubepy.backends.gpu.graphs import PlanGraphs
from cubepy.backends.gpu.native import memory, transfer
from cubepy.backends.gpu.native.driver import Driver
from cubepy.backends.gpu.native.graph import Capture
from cubepy.backends.gpu.native.stream import (
    NativeEvent,
    NativeStream,
    all_streams,
    set_thread_stream,
    thread_stream,
    use,
)
from cubepy.errors import LaunchError
from cubepy.runtime.memory.converter import converter
from cubepy.runtime.memory.device_array import empty, upload
from cubepy.runtime.memory.pool import MemoryStats

_ORDINAL = 9  # of what is known of an address


class NativeGpu:
    """The GPUs of a driver, by ordinal.

    Attributes:
        here: what has `streams` of this thread, by ordinal.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver, self.here = driver, driver.here

    def pool(self, ordinal: int) -> memory.DevicePool:
        """Where memory comes from."""
        return memory.pool(self.driver, ordinal)

    def use(self, stream: NativeStream, owner: Any, writes: bool) -> None:
        """Order the next work of a stream against the other users of memory."""
        use(stream, owner, writes)

    def layouts(self, tensors: type) -> Any:
        """How layouts of PyTorch's tensors are looked up quickly (`layouts.finder`), or None."""
        from cubepy.backends.gpu.torch_key import finder

        return finder(tensors)

    def replays(self, ordinal: int) -> Any:
        """A table of launches that machine code repeats, to be filled (`replay.GpuTable`)."""
        from cubepy.backends.gpu.replay import GpuTable

        return GpuTable(self.driver.context(ordinal))

    def symbolic_replays(self, ordinal: int) -> Any:
        """The same of lengths that are symbols (`replay.SymbolicTable`)."""
        from cubepy.backends.gpu.replay import SymbolicTable

        return SymbolicTable(self.driver.context(ordinal))

    def graphs(self, ordinal: int, run: Any, launches: int) -> PlanGraphs:
        """What runs the launches of a plan, and launches a graph of them where memory comes
        again.
        """
        return PlanGraphs(self.driver.context(ordinal), run, launches)

    def allocate(self, ordinal: int, size: int) -> memory.Block:
        """Device memory for work on the thread's stream."""
        return memory.pool(self.driver, ordinal).take(
            size, self.here.streams.get(ordinal) or thread_stream(self.driver, ordinal)
        )

    def upload_new(self, ordinal: int, source: np.ndarray) -> memory.Block:
        """New device memory with the bytes of a C-ordered NumPy array; also while a graph is being
        captured.
        """
        stream = thread_stream(self.driver, ordinal)
        capture = stream.capture
        if capture is not None:  # the copy happens now; the graph only reads what it brought
            stream = capture.side
        block = memory.pool(self.driver, ordinal).take(source.nbytes, stream)
        transfer.upload(block.address, source.ctypes.data, source.nbytes, stream)
        if capture is not None:
            stream.synchronize()
        return block

    def upload(self, target: Any, source: np.ndarray) -> None:
        """Copy a C-ordered NumPy array into a contiguous array of the same size."""
        stream = thread_stream(self.driver, target.device.ordinal)
        if stream.capture is not None:
            raise LaunchError(
                "elements cannot be copied from the host while a graph is being captured",
                hint="copy them before, or between replays",
            )
        use(stream, target.owner, writes=True)
        transfer.upload(target.address, source.ctypes.data, source.nbytes, stream)

    def download(self, target: np.ndarray, source: Any) -> None:
        """Copy a contiguous array into a C-ordered NumPy array; waits."""
        ordinal = source.device.ordinal
        stream = thread_stream(self.driver, ordinal)
        if stream.capture is not None:
            raise LaunchError(
                "elements cannot be read while a graph is being captured",
                hint="read them after g.replay()",
            )
        for other in all_streams(self.driver, ordinal):
            if other is not stream and other.has_faults and other.capture is None:
                other.check_faults()
        use(stream, source.owner, writes=False)
        transfer.download(target.ctypes.data, source.address, source.nbytes, stream)

    def fill(self, target: Any, byte: int) -> None:
        """Set every byte of a contiguous array."""
        stream = thread_stream(self.driver, target.device.ordinal)
        use(stream, target.owner, writes=True)
        transfer.fill_bytes(target.address, byte, target.nbytes, stream)

    def copy(self, target: Any, source: Any) -> None:
        """Copy an array into another one of the same shape, converting the dtype, from any device
        to any.
        """
        if source.device != target.device:
            self._between(target, source)
        elif target.dtype == source.dtype and target.layout.contiguous and source.layout.contiguous:
            stream = thread_stream(self.driver, target.device.ordinal)
            use(stream, source.owner, writes=False)
            use(stream, target.owner, writes=True)
            transfer.copy_on_device(target.address, source.address, source.nbytes, stream)
        else:
            converter()(target, source)

    def _between(self, target: Any, source: Any) -> None:
        here, there = target.device.ordinal, source.device.ordinal
        if not source.layout.contiguous:
            source = source.copy()
        if target.device.backend != source.device.backend:  # of another vendor
            self.copy(target, upload(source.numpy(), target.device))
            return
        if not target.layout.contiguous or target.dtype != source.dtype:
            middle = empty(source.shape, source.dtype, target.device)
            self._between(middle, source)
            self.copy(target, middle)
            return
        stream = thread_stream(self.driver, here)
        use(stream, source.owner, writes=False)
        use(stream, target.owner, writes=True)
        transfer.copy_between(
            target.address,
            self.driver.context(here),
            source.address,
            self.driver.context(there),
            source.nbytes,
            stream,
        )

    def stream_for(self, array: Any) -> NativeStream:
        """A stream whose later work comes after everything that makes the array."""
        stream = thread_stream(self.driver, array.device.ordinal)
        use(stream, array.owner, writes=False)
        return stream

    def hand_over(self, array: Any, stream: int | None) -> None:
        """Let the later work of a consumer's stream (as DLPack numbers them) come after what makes
        the array.
        """
        if stream == -1:
            return
        handle, mine = self.driver.consumer(stream), self.stream_for(array)
        if handle != mine.handle:
            NativeStream(mine.context, handle).wait(mine)

    def thread_stream(self, ordinal: int) -> NativeStream:
        """The stream of this thread."""
        return thread_stream(self.driver, ordinal)

    def set_thread_stream(self, ordinal: int, stream: NativeStream) -> NativeStream:
        """Make a stream the thread's own; gives the one that was."""
        return set_thread_stream(self.driver, ordinal, stream)

    def new_stream(
        self, ordinal: int, handle: int | None = None, priority: int = 0
    ) -> NativeStream:
        """A new stream, or another library's by its handle."""
        return NativeStream(self.driver.context(ordinal), handle, priority=priority)

    def new_event(self, ordinal: int) -> NativeEvent:
        """A new event that takes the time."""
        return NativeEvent(self.driver.context(ordinal))

    def capture(self, ordinal: int) -> Capture:
        """What records the thread's work."""
        return Capture(self.driver.context(ordinal))

    def ordinal_of(self, address: int) -> int:
        """The GPU that an address belongs to."""
        out = ctypes.c_int()
        code = self.driver.api().address_attribute(ctypes.byref(out), _ORDINAL, address)
        self.driver.check(code, "asking for the device of an address")
        return out.value

    def synchronize(self, ordinal: int) -> None:
        """Wait for the device; errors that kernels reported surface here.

        While another thread captures a graph, only the streams that are known here can be waited
        for.

        Raises:
            LaunchError: this thread captures a graph.
        """
        own = self.here.streams.get(ordinal)
        if own is not None and own.capture is not None:
            own.synchronize()
        if not self.driver.context(ordinal).synchronize():
            for stream in all_streams(self.driver, ordinal):
                stream.settle()
        for stream in all_streams(self.driver, ordinal):
            if stream.has_faults and stream.capture is None:
                stream.check_faults()

    def stats(self, ordinal: int) -> MemoryStats:
        """What the pool did."""
        return memory.pool(self.driver, ordinal).stats

    def trim(self, ordinal: int | None = None) -> int:
        """Give the pool's spare memory back to the device; the bytes that were."""
        return sum(
            memory.pool(self.driver, n).trim()
            for n in (range(self.driver.count()) if ordinal is None else (ordinal,))
        )
