"""Buffers and the pool that they come from.

A large result that is allocated anew costs a page fault for every 4 KiB that is first touched. The
pool keeps buffers that were released and gives them out again; sizes are rounded up to eighths of a
power of two, so at most an eighth is wasted. A buffer goes back when the last array that uses it is
collected. What the pool holds, given out or waiting, stays within one and a half times the most
that was ever given out; the sizes that were used longest ago make room first.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import addressof
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cubepy.config import config
from cubepy.errors import OutOfMemoryError
from cubepy.runtime import recording
from cubepy.runtime.device import Device, as_device, current, gpu_of
from cubepy.runtime.memory import device_array
from cubepy.runtime.memory.address import address
from cubepy.runtime.tables import room

POOLED = (
    1 << 17
)  # smaller arrays are left to NumPy, whose allocator maps no pages for them and takes 3 us less
ADDRESSABLE = 1 << 47  # bytes of a process
ALIGNMENT = 64
LARGE = 1 << 20  # bytes of buffers that are not kept while little is
KEPT = 16 << 20  # bytes; twice as many of the C library's memory stay with the process
PAGE, STAGGER = 4096, 512  # bytes: buffers begin at different places of a page
KINDS = 4096  # sizes whose class is known without a computation


@dataclass
class MemoryStats:
    """What a pool did.

    Attributes:
        in_use: bytes given out now.
        peak: the most that was given out at a time.
        reserved: bytes that the pool keeps for later.
        allocations: buffers that had to be made.
        reuses: buffers that were given out again.
    """

    in_use: int = 0
    peak: int = 0
    reserved: int = 0
    allocations: int = 0
    reuses: int = 0


Piece = tuple[int, np.ndarray]
"""Pooled memory: its address, and the array that owns it."""
Kind = tuple[int, Callable[[int], Any], "deque[int]"]


class Pool:
    """Reuses buffers by size class.

    What comes back waits where the next one of its class is taken from, which needs no lock, and
    is in the books as given out; who reads them, or needs new memory, has it entered first.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[Piece]] = {}
        self.lent: dict[int, Piece] = {}
        self.kinds: dict[int, Kind] = {}
        self.back: dict[int, deque[int]] = {}
        self._stats = MemoryStats()
        self.lock = threading.RLock()
        self.sparing = 0

    @property
    def stats(self) -> MemoryStats:
        """What the pool did until now."""
        self.enter()
        return self._stats

    @property
    def free(self) -> dict[int, list[Piece]]:
        """Buffers that wait, by size; the size that was used last at the end."""
        self.enter()
        return self._free

    def enter(self) -> None:
        """Enter what came back in the books."""
        with self.lock:
            for size, waiting in tuple(self.back.items()):
                while waiting:
                    try:
                        self.release(waiting.popleft(), size)
                    except IndexError:  # another thread took it
                        break

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised C-ordered array, aligned to 64 bytes when it is large.

        Raises:
            OutOfMemoryError: the limit (CUBEPY_MEMORY_LIMIT) or the machine does not allow it.
        """
        if type(dtype) is not np.dtype:
            dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if recording.active and (recorder := recording.current()) is not None:
            made = recorder.memory(shape, dtype, size)
            if made is not None:
                return made  # type: ignore[no-any-return]
        if size < POOLED:
            return np.empty(shape, dtype)
        if size >= ADDRESSABLE:
            raise OutOfMemoryError(
                f"no machine has {size} bytes for an array of shape {shape}",
                hint="check the shapes that were given",
            )
        size, owner, back = self.kinds.get(size) or self.kind(size)
        if back and not config.memory_limit:
            try:
                at = back.pop()
            except IndexError:  # another thread took it
                at = self.take(size)
            else:
                self._stats.reuses += 1
        else:
            at = self.take(size)
        return np.ndarray(shape, dtype, owner(at))

    def kind(self, size: int) -> Kind:
        """The size class of so many bytes, what makes their owner (arrays of it keep it alive, then
        they come back), and where they wait then.

        Every class has a type of its own: NumPy takes memory from arrays of ctypes in a tenth of
        the time that the array protocol takes.
        """
        whole = size_class(size)
        if whole != size:
            found = self.kinds.get(whole) or self.kind(whole)
        else:
            back = self.back.setdefault(size, deque())

            def release(buffer: Any, at: Any = addressof, put: Any = back.append) -> None:
                if self.sparing:
                    self.release(at(buffer), size)
                else:
                    put(at(buffer))

            made: Any = type(
                "Buffer", (ctypes.c_uint8 * size,), {"__del__": release, "__slots__": ()}
            )
            found = size, made.from_address, back
        room(self.kinds, KINDS)
        self.kinds[size] = found
        return found

    def check(self, size: int, others: int) -> None:
        """Raise OutOfMemoryError if so many bytes are too many beside what is in use, here and
        elsewhere.
        """
        limit, used = config.memory_limit, self.stats.in_use + others
        if limit and used + size > limit:
            raise OutOfMemoryError(
                f"{size} bytes more than the {used} in use exceed the limit of {limit}",
                hint="raise CUBEPY_MEMORY_LIMIT, or release arrays",
            )

    def take(self, size: int) -> int:
        """The address of `size` bytes, which is a size class."""
        with self.lock:
            limit = config.memory_limit
            if limit or not self._free.get(size):
                self.enter()
            stats, waiting = self._stats, self._free.get(size)
            if limit and stats.in_use + size > limit:
                self.trim()
                raise OutOfMemoryError(
                    f"{size} bytes more than the {stats.in_use} in use exceed the limit of {limit}",
                    hint="raise CUBEPY_MEMORY_LIMIT, or release arrays",
                )
            if waiting:
                piece = waiting.pop()
                if not waiting:
                    del self._free[size]
                stats.reserved -= size
                stats.reuses += 1
                stats.in_use += size
                if stats.in_use > stats.peak:
                    self.enter()
                    stats.peak = max(stats.peak, stats.in_use)
            else:
                piece = self.make(size)
                stats.allocations += 1
                stats.in_use += size
                stats.peak = max(stats.peak, stats.in_use)
                self.make_room()
            at = piece[0]
            self.lent[at] = piece
            return at

    def make(self, size: int) -> Piece:
        """A new aligned buffer; when there is no memory, what the pool keeps is given back first.

        Processors compare the last 12 bits of addresses first, to find out whether a load has to
        wait for a store. Large arrays of NumPy begin at byte 16 of a page; were a result to begin
        soon after, loads would wait.
        """
        start = STAGGER * (1 + self._stats.allocations % (PAGE // STAGGER - 1))
        for attempt in range(2):
            try:
                raw = np.empty(size + PAGE, np.uint8)
                at = address(raw)
                return at + (start - at) % PAGE, raw
            except MemoryError:
                if attempt:
                    raise OutOfMemoryError(
                        f"the machine has no {size} bytes to give",
                        hint="release arrays, or work in smaller batches",
                    ) from None
                self.trim()
        raise AssertionError("unreachable")

    def release(self, at: int, size: int) -> None:
        """Take the buffer at an address back."""
        with self.lock:
            stats, free = self._stats, self._free
            stats.in_use -= size
            if self.sparing and size >= LARGE:
                del self.lent[at]
                return
            stats.reserved += size
            waiting = free.pop(size, None) or []
            waiting.append(self.lent.pop(at))
            free[size] = waiting  # at the end: the size that was used last
            if stats.in_use + stats.reserved > stats.peak + stats.peak // 2:
                self.make_room()

    def make_room(self) -> None:
        """Keep to what may be held: let go of sizes that were used longest ago."""
        stats = self._stats
        while stats.in_use + stats.reserved > stats.peak + stats.peak // 2:
            oldest = next(iter(self._free))
            self._free[oldest].pop()
            if not self._free[oldest]:
                del self._free[oldest]
            stats.reserved -= oldest

    @contextmanager
    def keeping_little(self) -> Iterator[None]:
        """Within, large buffers that are released go back to the system: what happens once, such as
        the first step of a training, needs others than what comes.
        """
        with self.lock:
            self.enter()
            self.sparing += 1
        try:
            yield
        finally:
            with self.lock:
                self.sparing -= 1
            if _give_back is not None:
                _give_back(0)

    def trim(self) -> int:
        """Give everything that waits back to the system; the bytes that were."""
        with self.lock:
            freed, self._stats.reserved = self.stats.reserved, 0
            self._free.clear()
        if freed and _give_back is not None:
            _give_back(0)
        return freed


def _c_library() -> Any:
    """The C library; None where it has no functions for its memory that are used here."""
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows has no library without a name
        return None


_give_back = getattr(_c_library(), "malloc_trim", None)
"""What gives free memory back to the system; None elsewhere than with glibc."""
if hasattr(_c_library(), "gnu_get_libc_version"):
    # Small results are NumPy's. glibc gives the end of its memory back as soon as twice the largest
    # block that was ever freed is free there (128 KB before the first), so that results that live
    # for a while cost page faults again and again. This block is never touched.
    np.empty(KEPT, np.uint8)


def size_class(size: int) -> int:
    """The size rounded up to an eighth of a power of two."""
    step = max(4096, 1 << max(size.bit_length() - 4, 0))
    return -(-size // step) * step


host_pool = Pool()
"""Where arrays of NumPy come from."""


def empty(shape: tuple[int, ...], dtype: Any, device: Device | None = None) -> Any:
    """An uninitialised array of a device (the current one by default): of NumPy on the host, else a
    `DeviceArray`.

    Example:
        >>> empty((2, 3), "float32").shape
        (2, 3)
    """
    where = current() if device is None else device
    if where.backend != "cpu" and gpu_of(where) is not None:
        return device_array.empty(shape, dtype, where)
    return host_pool.empty(shape, dtype)


def memory_stats(device: Any = None) -> MemoryStats:
    """A snapshot of the statistics of a device's pool (the current device by default).

    Example:
        >>> memory_stats().in_use >= 0
        True
    """
    where = current() if device is None else as_device(device)
    gpu = gpu_of(where)
    return replace(host_pool.stats if gpu is None else gpu.stats(where.ordinal))


def trim(device: Any = None) -> int:
    """Give the memory that a device's pool keeps for later back; the bytes that were.

    Example:
        >>> trim("cpu") >= 0
        True
    """
    where = current() if device is None else as_device(device)
    gpu = gpu_of(where)
    return int(host_pool.trim() if gpu is None else gpu.trim(where.ordinal))
