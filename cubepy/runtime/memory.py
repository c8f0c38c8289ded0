"""Buffers and the pool that they come from.

A large result that is allocated anew costs a page fault for every 4 KiB that is first touched. The pool keeps
buffers that were released and gives them out again; sizes are rounded up to eighths of a power of two, so at
most an eighth is wasted. A buffer goes back when the last array that uses it is collected. What the pool holds, given
out or waiting, stays within one and a half times the most that was ever given out; the sizes that were used longest ago
make room first.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cubepy.config import config
from cubepy.errors import OutOfMemoryError
from cubepy.runtime import device_array
from cubepy.runtime.device import Device, as_device, current, gpu_of

POOLED = 1 << 16  # smaller arrays are left to NumPy
ALIGNMENT = 64


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


class Buffer:
    """A piece of pooled memory; NumPy arrays made of it keep it alive."""

    __slots__ = ("__weakref__", "array", "pool", "size")

    def __init__(self, array: np.ndarray, size: int, pool: Pool) -> None:
        self.array, self.size, self.pool = array, size, pool

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.array.__array_interface__

    def __del__(self) -> None:
        self.pool.release(self.array, self.size)


class Pool:
    """Reuses buffers by size class."""

    def __init__(self) -> None:
        self.free: dict[int, list[np.ndarray]] = {}
        self.stats = MemoryStats()
        self.lock = threading.RLock()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An uninitialised C-ordered array, aligned to 64 bytes when it is large.

        Raises:
            OutOfMemoryError: the limit (CUBEPY_MEMORY_LIMIT) or the machine does not allow it.
        """
        dtype = np.dtype(dtype)
        count = 1
        for n in shape:
            count *= n
        size = count * dtype.itemsize
        if size < POOLED:
            return np.empty(shape, dtype)
        raw = np.asarray(Buffer(*self.take(size), self))
        return raw[:size].view(dtype).reshape(shape)

    def take(self, size: int) -> tuple[np.ndarray, int]:
        """A buffer of at least `size` bytes and its true size."""
        size = size_class(size)
        with self.lock:
            stats, waiting = self.stats, self.free.get(size)
            limit = config.memory_limit
            if limit and stats.in_use + size > limit:
                self.trim()
                raise OutOfMemoryError(
                    f"{size} bytes more than the {stats.in_use} in use exceed the limit of {limit}",
                    hint="raise CUBEPY_MEMORY_LIMIT, or release arrays",
                )
            if waiting:
                array = waiting.pop()
                if not waiting:
                    del self.free[size]
                stats.reserved -= size
                stats.reuses += 1
            else:
                array = self.make(size)
                stats.allocations += 1
            stats.in_use += size
            stats.peak = max(stats.peak, stats.in_use)
            self.make_room()
        return array, size

    def make(self, size: int) -> np.ndarray:
        """A new aligned buffer; when there is no memory, what the pool keeps is given back first."""
        for attempt in range(2):
            try:
                raw = np.empty(size + ALIGNMENT, np.uint8)
                shift = -raw.__array_interface__["data"][0] % ALIGNMENT
                return raw[shift : shift + size]
            except MemoryError:
                if attempt:
                    raise OutOfMemoryError(
                        f"the machine has no {size} bytes to give", hint="release arrays, or work in smaller batches"
                    ) from None
                self.trim()
        raise AssertionError("unreachable")

    def release(self, array: np.ndarray, size: int) -> None:
        """Take a buffer back."""
        with self.lock:
            stats = self.stats
            stats.in_use -= size
            waiting = self.free.pop(size, [])
            waiting.append(array)
            self.free[size] = waiting  # at the end: the size that was used last
            stats.reserved += size
            self.make_room()

    def make_room(self) -> None:
        """Keep to what may be held: let go of sizes that were used longest ago."""
        stats = self.stats
        while stats.in_use + stats.reserved > stats.peak + stats.peak // 2:
            oldest = next(iter(self.free))
            self.free[oldest].pop()
            if not self.free[oldest]:
                del self.free[oldest]
            stats.reserved -= oldest

    def trim(self) -> int:
        """Give everything that waits back to the system; the bytes that were."""
        with self.lock:
            freed, self.stats.reserved = self.stats.reserved, 0
            self.free.clear()
        return freed


def size_class(size: int) -> int:
    """The size rounded up to an eighth of a power of two."""
    step = max(4096, 1 << max(size.bit_length() - 4, 0))
    return -(-size // step) * step


pool = Pool()


def empty(shape: tuple[int, ...], dtype: Any, device: Device | None = None) -> Any:
    """An uninitialised array of a device (the current one by default): of NumPy on the host, else a `DeviceArray`.

    Example:
        >>> empty((2, 3), "float32").shape
        (2, 3)
    """
    where = current() if device is None else device
    if where.backend != "cpu" and gpu_of(where) is not None:
        return device_array.empty(shape, dtype, where)
    return pool.empty(shape, dtype)


def memory_stats(device: Any = None) -> MemoryStats:
    """A snapshot of the statistics of a device's pool (the current device by default).

    Example:
        >>> memory_stats().in_use >= 0
        True
    """
    where = current() if device is None else as_device(device)
    gpu = gpu_of(where)
    return replace(pool.stats if gpu is None else gpu.stats(where.ordinal))


def trim(device: Any = None) -> int:
    """Give the memory that a device's pool keeps for later back; the bytes that were.

    Example:
        >>> trim("cpu") >= 0
        True
    """
    where = current() if device is None else as_device(device)
    gpu = gpu_of(where)
    return int(pool.trim() if gpu is None else gpu.trim(where.ordinal))
