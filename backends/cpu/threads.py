"""Running cubes on threads: one parallel driver, compiled once, for all kernels.

Threads take chunks of cubes from a shared counter, so that a thread that is held up does not hold up the
launch. The driver is an ordinary `numba.njit(parallel=True)` function over `prange`.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

from cubepy.config import config

CHUNKS_PER_THREAD = 8
_serial_layers = threading.Lock()


_driver: tuple[Any, Any] | None = None


def driver() -> tuple[Any, Any]:
    """The compiled driver `run(entry, cubes, chunks, threads, arguments, counter)` and a lock, or None.

    numba's "workqueue" layer cannot be entered by two threads at once, so it gets a lock.
    """
    global _driver
    if _driver is None:
        with _serial_layers:
            if _driver is None:
                _driver = _make_driver()
    return _driver


def _make_driver() -> tuple[Any, Any]:
    import numba

    from cubepy.backends.cpu.driver import build

    run = build()
    numba.set_num_threads(min(threads(), numba.config.NUMBA_NUM_THREADS))
    counter = ctypes.c_int64(0)
    run(0, 0, 0, 1, 0, ctypes.addressof(counter))  # starts the threads; there is nothing to do
    return run, _serial_layers if numba.threading_layer() == "workqueue" else None


@cache
def entry() -> tuple[int, Any, Any]:
    """The address of the driver, for machine code that calls it, the lock, and what keeps the code alive."""
    from cubepy.backends.cpu.driver import address_of

    run, lock = driver()
    address, alive = address_of(run)
    return address, lock, alive


@cache
def threads() -> int:
    """How many threads a launch may use."""
    import os

    limit = config.num_threads
    try:
        available = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS or Windows
        available = os.cpu_count() or 1
    return max(1, min(limit or available, available))
