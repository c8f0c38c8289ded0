"""Which streams use a piece of device memory, and what a launch on another stream must wait for.

Work on one stream runs in order. Memory that one stream used is safe for another one only after
that work: a reader waits for the last writer, a writer for the last writer and all readers since.
Every piece of device memory therefore remembers its streams; while only one stream ever used it,
that costs one comparison a launch.
"""

from __future__ import annotations

from typing import Any

MANY = 16
"""Readers of one piece of memory from which on those are forgotten, now and then, that are done:
threads and their streams come and go, and what they all read (weights) would keep every stream."""


class Tracked:
    """Device memory that remembers which streams use it.

    Attributes:
        last: the only stream that used it so far, or None when there were several (or none).
        writer: with several, the stream that may have written it last.
        readers: with several, the streams whose later work already comes after that write.
    """

    __slots__ = ("__weakref__", "last", "readers", "writer")

    def __init__(self, stream: Any = None) -> None:
        self.last, self.writer = stream, None
        self.readers: set[Any] | None = None

    def streams(self) -> set[Any]:
        """Every stream whose work may still use the memory."""
        return {s for s in (self.last, self.writer, *(self.readers or ())) if s is not None}


def order(memory: Tracked, stream: Any, writes: bool) -> None:
    """Let the next work on `stream` come after what it must not overtake, and note that it uses the
    memory.

    Callers skip this while `memory.last is stream`. Threads that read the same memory may come here
    at once: what the memory remembers changes in one piece, before anything waits (a call of the
    driver lets other threads go on).

    Args:
        memory: what the work reads or writes.
        stream: an object with `wait(other)`, which puts everything that `other` has been given so
            far before it, and `idle()`, whether there is nothing to wait for.
        writes: whether the work writes.
    """
    last = memory.last
    if last is stream:
        return
    if last is not None:  # its work was not looked at one by one: it may have written
        memory.writer, memory.readers, memory.last = last, None, None
    writer, readers = memory.writer, memory.readers
    if writes:
        memory.last, memory.writer, memory.readers = stream, None, None
        for other in tuple(readers or ()):
            stream.wait(other)
        if writer is not None:
            stream.wait(writer)
    elif writer is None and not readers:
        memory.last = stream
    elif stream is not writer and (readers is None or stream not in readers):
        if readers is None:
            memory.readers = {stream}
        else:
            readers.add(stream)
            if len(readers) >= MANY and len(readers) & (len(readers) - 1) == 0:
                readers.difference_update(
                    [s for s in tuple(readers) if s is not stream and s.idle()]
                )
        if writer is not None:
            stream.wait(writer)
