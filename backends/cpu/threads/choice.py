"""Which threads run cubes, and how they are started.

On Linux a pool of our own waits for launches (see `pool`), and numba need not be imported.
Elsewhere, and where NUMBA_THREADING_LAYER names a layer of numba, a parallel loop of numba starts
threads (see `driver`). What each thread does is the same code (see `sharing`).
"""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any, NamedTuple

from cubepy.backends.cpu.threads import pool, sharing
from cubepy.backends.llvm.machine_code import address_of, builtin_at, load_written
from cubepy.config import config
from cubepy.runtime import recording

CHUNKS_PER_THREAD = 8
_making = threading.Lock()
_serial_layer = threading.Lock()


class Driver(NamedTuple):
    """What runs a launch on threads."""

    run: Any
    """`run(entry, cubes, pieces, threads, arguments, done)` for Python."""
    address: int
    """The same for machine code."""
    layer: str
    """Whose threads they are: "own", or numba's "omp", "tbb" or "workqueue"; "none" where there are
    none.
    """
    lock: Any
    """A lock where two threads may not run it at once, else None."""
    alone: Driver | None = None
    """One that starts no threads."""
    alive: Any = None
    """What keeps the code alive."""

    def guarded(self, replay: Any) -> Any:
        """Machine code that replays launches on these threads, one call at a time where need be."""
        lock = self.lock
        if lock is None:
            return replay

        def run(table: int, objects: tuple[Any, ...]) -> Any:
            with lock:
                return replay(table, objects)

        return run


_driver: Driver | None = None


def driver() -> Driver:
    """The driver, made at its first use."""
    global _driver
    if _driver is None:
        with _making:
            if _driver is None:
                _driver = _make_driver()
    return _driver


def _make_driver() -> Driver:
    numbas = os.environ.get("NUMBA_THREADING_LAYER", "default") != "default" or not pool.usable()
    made = _numbas() if numbas else _own()
    return made._replace(alone=_loaded(sharing.ALONE, "none"))


def _own() -> Driver:
    made = pool.Pool(threads())
    sources = sharing.__file__, pool.__file__
    load_written(
        sharing.SHARE, lambda: sharing.text(made.start, made.functions), sources, **made.known()
    )
    made.open(address_of(pool.MEMBER), address_of(pool.STOP))
    return _loaded(sharing.SHARE, "own")._replace(alive=made)


def _numbas() -> Driver:
    import numba

    from cubepy.backends.cpu.threads.numba_driver import build

    loop, alive = build(threads())
    text = lambda: sharing.text(sharing.by_numba)
    load_written(sharing.SHARE, text, (sharing.__file__,), **{sharing.LOOP: loop})
    made = _loaded(sharing.SHARE, "")
    made.run(0, 0, 0, 1, 0, 0)  # starts the threads; there is nothing to do
    layer = numba.threading_layer()
    return made._replace(
        layer=layer, lock=_serial_layer if layer == "workqueue" else None, alive=alive
    )


def _loaded(name: str, layer: str) -> Driver:
    run = builtin_at(address_of(name + sharing.BUILTIN), name)
    return Driver(run, address_of(name), layer, None)


def _after_fork() -> None:
    """A forked child has none of the threads, and would wait for those that were at work: it runs
    launches alone.

    Threads of OpenMP are waited for too. The other layers of numba begin threads anew.
    """
    global _driver, _making
    _making = threading.Lock()
    if _driver is not None and _driver.layer in ("own", "omp"):
        _driver = _driver.alone
        recording.forget()  # tables hold the driver's address


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@cache
def threads(launches: bool = True) -> int:
    """How many threads launches may use, between which plans share work; or else processes."""
    limits = [config.num_threads]
    if launches and (numbas := os.environ.get("NUMBA_NUM_THREADS", "")).isdigit():
        limits.append(int(numbas))
    try:
        available = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS or Windows
        available = os.cpu_count() or 1
    return max(1, min([available, *filter(None, limits)]))
