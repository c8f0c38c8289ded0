"""Work to time: `case(op, library, shape)` builds the data once, runs it once and gives a function
without arguments.

A library that is not installed or does not have the operation raises NotImplementedError, which asv
shows as a skipped cell. Large buffers of all libraries stay with the process when they are freed:
what is compared is the work, not the page faults of memory that is fetched anew each time.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from benchmarks import (
    work_attention,
    work_matmul,
    work_memory,
    work_models,
    work_order,
    work_windows,
)
from benchmarks.peers import torch_module
from benchmarks.work import LIBRARIES, Work, numbers

WORKS: dict[str, Work] = {
    **work_matmul.WORKS, **work_memory.WORKS, **work_windows.WORKS, **work_attention.WORKS, **work_order.WORKS,
    **work_models.WORKS,
}  # fmt: skip

WARM = 4


def keep_memory(reserve: int = 0) -> None:
    """Tell the C library to keep what is freed (glibc's M_ARENA_MAX = -8, M_MMAP_MAX = -4 and
    M_TRIM_THRESHOLD = -1).

    Threads share one arena, for which this comes before they start: a thread with an arena of its
    own gives every large buffer back to the system, and fetching new pages made JAX up to 13 times
    slower than it is.

    The reserve, in bytes, is fetched now for results that do not fit where the last one was,
    because something small has come there: seven microseconds for each page of 4 KiB made
    torch.compile 40 times slower than it is.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(-8, 1)
            libc.mallopt(-4, 0)
            libc.mallopt(-1, 2**31 - 1)
            libc.malloc.restype = ctypes.c_void_p
            place = libc.malloc(ctypes.c_size_t(reserve))
            ctypes.memset(place, 1, reserve)
            libc.free(ctypes.c_void_p(place))


@cache
def data(op: str, shape: str) -> tuple[Any, ...]:
    """The arrays of a piece of work."""
    return WORKS[op].data(*numbers(shape))


def warmed(run: Callable[[], Any]) -> Callable[[], Any]:
    """The same function, after a few runs.

    The first compile and read files; the second and third of a process learn that a call comes
    again and make the short way for it. What is measured is the call that a program makes a
    thousand times.
    """
    for _ in range(WARM):
        run()
    return run


def case(op: str, library: str, shape: str) -> Callable[[], Any]:
    """A function that does the work once, warmed."""
    make = WORKS[op].make(library)
    if make is None:
        raise NotImplementedError(f"{library} has no {op}")
    arrays = data(op, shape)
    if library.startswith("torch"):
        arrays = tuple(torch_module().from_numpy(x) for x in arrays)
    return warmed(make(*arrays))


__all__ = ["LIBRARIES", "WORKS", "case", "data", "keep_memory", "warmed"]
