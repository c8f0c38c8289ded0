"""The memory of a GPU: a pool that gives released blocks out again, in the order of the streams that used them.

A block that is released goes to the list of the stream that used it last; the next request of that stream may
have it at once, since the stream runs in order. Another stream takes it only when that work is done, or when
the device has no memory left, and then waits for it.
"""

from __future__ import annotations

import functools
import threading
import weakref
from ctypes import byref, c_size_t, c_void_p

from cubepy.backends.cuda import driver
from cubepy.backends.cuda.driver import api, check, context
from cubepy.backends.cuda.failures import OUT_OF_MEMORY
from cubepy.backends.cuda.stream import NativeStream, all_streams
from cubepy.config import config
from cubepy.errors import OutOfMemoryError
from cubepy.runtime.memory import MemoryStats, size_class
from cubepy.runtime.order import Tracked

SMALLEST = 512
Waiting = tuple[int, tuple[NativeStream, ...]]
"""A released block: its address, and the streams that used it besides its own."""


class Block(Tracked):
    """A piece of device memory from a pool, which goes back to it when the last array on it is collected.

    Attributes:
        address: of its first byte.
        size: its true size in bytes.
    """

    __slots__ = ("address", "arena", "home", "pool", "size")

    def __init__(self, address: int, size: int, pool: DevicePool, home: NativeStream) -> None:
        super().__init__(home if home.capture is None else None)
        self.address, self.size, self.pool, self.home = address, size, pool, home
        self.arena: Arena | None = None if home.capture is None else home.capture.arena
        if self.arena is not None:
            self.arena.blocks.add(self)

    def __del__(self) -> None:
        pool = getattr(self, "pool", None)
        if pool is not None:
            pool.release(self)


class Arena:
    """The memory that was allocated while a graph was captured; it lives as long as the graph and its arrays.

    Attributes:
        free: released blocks by size, which later work of the same capture may have.
        blocks: those that arrays still use.
    """

    def __init__(self, pool: DevicePool) -> None:
        self.pool = pool
        self.home: NativeStream | None = None
        self.free: dict[int, list[int]] = {}
        self.all: list[tuple[int, int]] = []
        self.blocks: weakref.WeakSet[Block] = weakref.WeakSet()

    def __del__(self) -> None:
        if self.all and self.home is not None:
            self.pool.put_back(self.all, self.home)


class DevicePool:
    """Reuses the memory of one GPU by size class and stream."""

    def __init__(self, ordinal: int) -> None:
        self.context = context(ordinal)
        self.label = self.context.label
        self.free: dict[tuple[NativeStream, int], list[Waiting]] = {}
        self.stats = MemoryStats()
        self.lock = threading.RLock()

    def take(self, size: int, stream: NativeStream) -> Block:
        """A block of at least `size` bytes for work on `stream`.

        Raises:
            OutOfMemoryError: the limit (CUBEPY_MEMORY_LIMIT) or the device does not allow it.
        """
        size = rounded(size)
        arena = None if stream.capture is None else stream.capture.arena
        if arena is not None and arena.free.get(size):
            return Block(arena.free[size].pop(), size, self, stream)
        with self.lock:
            stats, limit = self.stats, config.memory_limit
            if limit and stats.in_use + size > limit:
                self.trim()
                raise OutOfMemoryError(
                    f"{size} bytes more than the {stats.in_use} in use on {self.label} exceed the limit of {limit}",
                    hint="raise CUBEPY_MEMORY_LIMIT, or release arrays",
                )
            address = self._reuse(size, stream, wait=False)
            if address is None:
                address = self._make(size, stream)
            stats.in_use += size
            if stats.in_use > stats.peak:
                stats.peak = stats.in_use
        if arena is not None:
            arena.home = stream
            arena.all.append((address, size))
        return Block(address, size, self, stream)

    def _reuse(self, size: int, stream: NativeStream, wait: bool) -> int | None:
        waiting = self.free.get((stream, size))
        if not waiting and stream.capture is None:  # what was captured runs at any time
            for (owner, n), blocks in list(self.free.items()):
                if n == size and blocks and owner is not stream and owner.capture is None and (wait or owner.done()):
                    stream.wait(owner)
                    waiting = blocks
                    if len(blocks) == 1:  # its stream may be that of a thread that is gone
                        del self.free[owner, n]
                    break
        if not waiting:
            return None
        address, others = waiting.pop()
        for other in others:
            stream.wait(other)
        self.stats.reserved -= size
        self.stats.reuses += 1
        return address

    def _make(self, size: int, stream: NativeStream) -> int:
        """A new block; when the device has no memory, what the pool keeps is given back first."""
        made = c_void_p()
        with self.context.active():
            code = api().cuMemAlloc_v2(byref(made), size)
            if code == OUT_OF_MEMORY and stream.capture is None:
                found = self._reuse(size, stream, wait=True)
                if found is not None:
                    return found
                self.trim()
                code = api().cuMemAlloc_v2(byref(made), size)
            if code == OUT_OF_MEMORY:
                free, total = c_size_t(), c_size_t()
                api().cuMemGetInfo_v2(byref(free), byref(total))
                raise OutOfMemoryError(
                    f"{self.label} has no {size} bytes to give: {free.value} of {total.value} bytes are free, "
                    f"{self.stats.in_use} are in use by this process's arrays",
                    hint="release arrays, or work in smaller batches",
                )
            check(code, f"allocating {size} bytes", self.label)
        self.stats.allocations += 1
        return made.value or 0

    def release(self, block: Block) -> None:
        """Take a block back; about as much is kept as was ever in use."""
        if not driver.usable():
            return
        if block.arena is not None:
            block.arena.free.setdefault(block.size, []).append(block.address)
            return
        home = block.last
        others: tuple[NativeStream, ...] = ()
        if home is None:
            home = block.home
            others = tuple(block.streams() - {home})
        size = block.size
        with self.lock:
            stats = self.stats
            stats.in_use -= size
            waiting = self.free.get((home, size))
            if waiting is None:
                waiting = self.free[home, size] = []
            waiting.append((block.address, others))
            stats.reserved += size
            if stats.in_use + stats.reserved > max(stats.peak, SMALLEST) * 2:
                self.trim()

    def put_back(self, blocks: list[tuple[int, int]], stream: NativeStream) -> None:
        """Take the memory of a graph back, whose work was on `stream`."""
        if driver.usable():
            with self.lock:
                for address, size in blocks:
                    self.stats.in_use -= size
                    self.stats.reserved += size
                    self.free.setdefault((stream, size), []).append((address, ()))

    def trim(self) -> int:
        """Give everything that waits back to the device, after its work is done; the bytes that were.

        Nothing is given back while a graph is being captured.
        """
        with self.lock:
            if any(stream.capture is not None for stream in all_streams(self.context.ordinal)):
                return 0
            free, self.free = self.free, {}
            freed, self.stats.reserved = self.stats.reserved, 0
            if freed:
                self.context.synchronize()
                with self.context.active():
                    for blocks in free.values():
                        for address, _ in blocks:
                            check(api().cuMemFree_v2(address), "giving memory back", self.label)
        return freed


@functools.lru_cache(4096)
def rounded(size: int) -> int:
    """The size of the block that serves a request."""
    if size <= SMALLEST:
        return SMALLEST
    if size <= 4096:
        return 1 << (size - 1).bit_length()
    return size_class(size)


_pools: dict[int, DevicePool] = {}
_pools_lock = threading.Lock()


def pool(ordinal: int = 0) -> DevicePool:
    """The pool of a GPU."""
    found = _pools.get(ordinal)
    if found is None:
        with _pools_lock:
            found = _pools.get(ordinal)
            if found is None:
                found = _pools[ordinal] = DevicePool(ordinal)
    return found
