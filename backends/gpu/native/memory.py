"""The memory of a GPU: a pool that gives released blocks out again, in the order of the streams
that used them.

A block that is released goes to the list of the stream that used it last; the next request of that
stream may have it at once, since the stream runs in order. Another stream takes it only when that
work is done, or when the device has no memory left, and then waits for it.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from ctypes import byref, c_size_t, c_void_p
from typing import Any

from cubepy.backends.gpu.native.driver import Context, Driver, until_exit
from cubepy.backends.gpu.native.driver_errors import OUT_OF_MEMORY
from cubepy.backends.gpu.native.stream import NativeStream
from cubepy.config import config
from cubepy.errors import OutOfMemoryError
from cubepy.runtime.memory.hazards import Tracked
from cubepy.runtime.memory.pool import MemoryStats, size_class

SMALLEST = 512
SPARE = 64
"""A pool may always keep one part in so many of the GPU's memory: giving memory back waits for
the GPU.
"""
Waiting = tuple[int, tuple[NativeStream, ...]]
"""A released block: its address, and the streams that used it besides its own."""


@until_exit
class Block(Tracked):
    """A piece of device memory from a pool, which goes back to it when the last array on it is
    collected.

    Attributes:
        address: of its first byte.
        size: its true size in bytes.
    """

    __slots__ = ("address", "arena", "home", "pool", "size")

    def __init__(self, address: int, size: int, pool: DevicePool, home: NativeStream) -> None:
        self.address, self.size, self.pool, self.home = address, size, pool, home
        self.last: NativeStream | None = home
        self.writer = self.readers = None
        self.arena: Arena | None = None
        if home.capture is not None:
            self.last, self.arena = None, home.capture.arena
            self.arena.blocks.add(self)

    def __del__(self) -> None:
        pool = getattr(self, "pool", None)
        if pool is None:
            return
        home, driver = self.last, pool.driver
        if home is None or self.arena is not None or driver.library is None or driver.forked:
            pool.release(self)
            return
        stats, size = pool.stats, self.size  # what `release` does, for memory that one stream used
        stats.in_use -= size
        stats.reserved += size
        key = home, size
        waiting = pool.free.get(key)
        if waiting is None:
            waiting = pool.free.setdefault(key, [])
        waiting.append((self.address, ()))
        if pool.free.get(key) is not waiting:
            pool.stray(key, waiting)


@until_exit
class Arena:
    """The memory that was allocated while a graph was captured; it lives as long as the graph and
    its arrays.

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
    """Reuses the memory of one GPU by size class and stream; it holds twice as much as was ever in
    use, at most, or the 64th part of the GPU's memory.

    Blocks come and go without the lock: Python takes from a list, adds to one, and changes a
    counter in one piece. Whoever gives lists up or counts on what they hold has the lock, and takes
    from them one by one. Nothing that a destructor does takes a lock: garbage is collected at any
    time, also by a thread that holds another one.
    """

    def __init__(self, where: Context) -> None:
        self.context, self.driver, self.label = where, where.driver, where.label
        self.spare = self.context.memory_bytes // SPARE
        self.free: dict[tuple[NativeStream, int], list[Waiting]] = {}
        self.stats = MemoryStats()
        self.lock = threading.RLock()

    def take(self, size: int, stream: NativeStream) -> Block:
        """A block of at least `size` bytes for work on `stream`.

        Raises:
            OutOfMemoryError: the limit (CUBEPY_MEMORY_LIMIT) or the device does not allow it.
        """
        size = rounded(size) if config.memory_pool else exact(size)
        limit = config.memory_limit
        arena = None if stream.capture is None else stream.capture.arena
        if arena is not None and arena.free.get(size):
            return Block(arena.free[size].pop(), size, self, stream)
        with self.lock:
            stats = self.stats
            if limit and stats.in_use + size > limit:
                self.trim()
                raise OutOfMemoryError(
                    f"{size} bytes more than the {stats.in_use} in use on {self.label} "
                    f"exceed the limit of {limit}",
                    hint="raise CUBEPY_MEMORY_LIMIT, or release arrays",
                )
            if not config.memory_pool:
                self.trim()  # nothing is left to reuse
            found = self._reuse(size, stream, wait=False)
            address = self._make(size, stream) if found is None else found
            stats.in_use += size
            if stats.in_use > stats.peak:
                stats.peak = stats.in_use
            if found is None and stats.in_use + stats.reserved > max(2 * stats.peak, self.spare):
                self.trim()
        if arena is not None:
            arena.home = stream
            arena.all.append((address, size))
        return Block(address, size, self, stream)

    def short_way(self, size: int, name: str) -> tuple[list[str], dict[str, Any]]:
        """`take` as lines of a function that knows a `stream` without a capture, and what they need
        by name.

        Args:
            size: in bytes.
            name: of the variable for the block.
        """
        asked, size = size, rounded(size)
        scope = {
            "_take": self.take,
            "_free": self.free.get,
            "_stats": self.stats,
            "_Block": Block,
            "_pool": self,
        }
        if config.memory_limit or not config.memory_pool:
            return [f"{name} = _take(size_{name}, stream)"], {**scope, f"size_{name}": asked}
        return [
            f"w = _free((stream, size_{name}))",
            "try:",
            "    w, others = w.pop()",
            "except (AttributeError, IndexError):",
            f"    {name} = _take(size_{name}, stream)",
            "else:",
            f"    {name} = _Block(w, size_{name}, _pool, stream)",
            f"    _stats.reserved -= size_{name}",
            "    _stats.reuses += 1",
            f"    w = _stats.in_use = _stats.in_use + size_{name}",
            "    if w > _stats.peak:",
            "        _stats.peak = w",
            "    for w in others:",
            "        stream.wait(w)",
        ], {**scope, f"size_{name}": size}

    def size_of(self, asked: int) -> int:
        """The size that lines of `short_way` take where so many bytes are asked for."""
        return asked if config.memory_limit or not config.memory_pool else rounded(asked)

    def _reuse(self, size: int, stream: NativeStream, wait: bool) -> int | None:
        """The address of a block that waits. A capture gets one whose work is done: it runs at any
        time.
        """
        entry = _taken(self.free.get((stream, size)))
        if entry is None:
            for (owner, n), blocks in list(self.free.items()):
                if n != size or owner is stream:
                    continue
                if not blocks:  # its stream may be that of a thread that is gone
                    self._give_up((owner, n), blocks)
                elif (wait and stream.capture is None and owner.capture is None) or owner.done():
                    entry = _taken(blocks)
                    if (
                        entry is not None
                        and stream.capture is not None
                        and not all(o.done() for o in entry[1])
                    ):
                        self._keep((owner, n), entry)
                        entry = None
                    if not blocks:
                        self._give_up((owner, n), blocks)
                    if entry is not None:
                        stream.wait(owner)
                        break
        if entry is None:
            return None
        for other in entry[1]:
            stream.wait(other)
        self.stats.reserved -= size
        self.stats.reuses += 1
        return entry[0]

    def _give_up(self, key: tuple[NativeStream, int], waiting: list[Waiting]) -> None:
        """Forget a list that is empty."""
        self.free.pop(key, None)
        self.stray(key, waiting)

    def _keep(self, key: tuple[NativeStream, int], entry: Waiting) -> None:
        """Let a block wait."""
        waiting = self.free.get(key)
        if waiting is None:
            waiting = self.free.setdefault(key, [])
        waiting.append(entry)
        if self.free.get(key) is not waiting:
            self.stray(key, waiting)

    def _make(self, size: int, stream: NativeStream) -> int:
        """A new block; when the device has no memory, what the pool keeps is given back first."""
        made, api = c_void_p(), self.driver.api()
        with self.context.active():
            code = api.allocate(byref(made), size)
            if code == OUT_OF_MEMORY and stream.capture is None:
                found = self._reuse(size, stream, wait=True)
                if found is not None:
                    return found
                self.trim()
                code = api.allocate(byref(made), size)
            if code == OUT_OF_MEMORY:
                free, total = c_size_t(), c_size_t()
                api.memory(byref(free), byref(total))
                raise OutOfMemoryError(
                    f"{self.label} has no {size} bytes to give: {free.value} of "
                    f"{total.value} bytes are free, {self.stats.in_use} are in use by "
                    "this process's arrays",
                    hint="release arrays, or work in smaller batches",
                )
            self.context.check(code, f"allocating {size} bytes")
        self.stats.allocations += 1
        return made.value or 0

    def release(self, block: Block) -> None:
        """Take a block back."""
        if not self.driver.usable():
            return
        if block.arena is not None:
            block.arena.free.setdefault(block.size, []).append(block.address)
            return
        home = block.last
        others: tuple[NativeStream, ...] = ()
        if home is None:
            home = block.home
            others = tuple(block.streams() - {home})
        size, stats = block.size, self.stats
        stats.in_use -= size
        stats.reserved += size
        self._keep((home, size), (block.address, others))

    def put_back(self, blocks: list[tuple[int, int]], stream: NativeStream) -> None:
        """Take the memory of a graph back, whose work was on `stream`."""
        if self.driver.usable():
            stats = self.stats
            for address, size in blocks:
                stats.in_use -= size
                stats.reserved += size
                self._keep((stream, size), (address, ()))

    def trim(self) -> int:
        """Give everything that waits back to the device, after its work is done; the bytes that
        were.

        While a graph is being captured nothing can be waited for, and what is not done stays.
        """
        with self.lock, self.context.whole:  # no capture begins
            waits = self.context.captures == 0
            taken = {key: _drained(self.free.pop(key)) for key in list(self.free)}
            if waits and any(taken.values()):
                self.context.synchronize()
            freed = 0
            with self.context.active():
                for (owner, size), entries in taken.items():
                    for entry in entries:
                        if waits or all(s.done() for s in (owner, *entry[1])):
                            freed += size
                            self.stats.reserved -= size
                            code = self.driver.api().free(entry[0])
                            self.context.check(code, "giving memory back")
                        else:
                            self._keep((owner, size), entry)
        return freed

    def stray(self, key: tuple[NativeStream, int], waiting: list[Waiting]) -> None:
        """Take in what came to a list after the list was given up."""
        while (entry := _taken(waiting)) is not None:
            self._keep(key, entry)


def _taken(waiting: list[Waiting] | None) -> Waiting | None:
    """A block of a list from which others may take, too."""
    try:
        return waiting.pop()  # type: ignore[union-attr]
    except (AttributeError, IndexError):
        return None


def _drained(waiting: list[Waiting]) -> list[Waiting]:
    """The blocks of a list, which is empty then."""
    entries = []
    while (entry := _taken(waiting)) is not None:
        entries.append(entry)
    return entries


@functools.lru_cache(4096)
def rounded(size: int) -> int:
    """The size of the block that serves a request."""
    if size <= SMALLEST:
        return SMALLEST
    if size <= 4096:
        return 1 << (size - 1).bit_length()
    return size_class(size)


def exact(size: int) -> int:
    """The size of a block that ends where its array ends, so that a memory checker sees what goes
    beyond.

    Atomics of narrow elements read the whole word, which is theirs.
    """
    return max(4, size + -size % 4)


def with_room(where: Context, call: Callable[[], int]) -> int:
    """The code of a call of the driver that may need memory; made again when the pool had some to
    give back.
    """
    code = call()
    return call() if code == OUT_OF_MEMORY and pool(where.driver, where.ordinal).trim() else code


def pool(driver: Driver, ordinal: int = 0) -> DevicePool:
    """The pool of a GPU."""
    found: DevicePool | None = driver.pools.get(ordinal)
    if found is None:
        with driver.lock:
            found = driver.pools.get(ordinal)
            if found is None:
                found = driver.pools[ordinal] = DevicePool(driver.context(ordinal))
    return found
