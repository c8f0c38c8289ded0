"""The parallel loop of numba, in a file of its own so that numba can cache its machine code.

It starts threads where there is no pool of our own (see `threads`).
"""

from __future__ import annotations

import warnings
from typing import Any

from numba import cfunc, config, njit, prange, set_num_threads, types
from numba.core.errors import NumbaWarning

from cubepy.backends.llvm.ops.debug import call_kernel

_SIGNATURE = types.void(types.int64, types.int64, types.int64)
_FAILS = (RuntimeError, OSError, EOFError, ValueError)  # no place for the cache, or a damaged one


def _loop(work, job, threads):  # type: ignore[no-untyped-def]
    for thread in prange(threads):
        call_kernel(work, thread, job, 0)


def _loop_at(work, job, threads):  # type: ignore[no-untyped-def]
    _compiled(work, job, threads)


_compiled: Any = None


def build(threads: int) -> tuple[int, Any]:
    """Compile `loop(work, job, threads)`, or load it from numba's cache, and start the threads.

    It calls the function `work(thread, job)` of int64 at an address, with each number of a thread
    once.

    Args:
        threads: how many threads launches use at most.

    Returns:
        The address, and what keeps the code alive.
    """
    global _compiled
    options = {"parallel": True, "nogil": True, "error_model": "numpy"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumbaWarning)
        try:
            _compiled = njit(_SIGNATURE, cache=True, **options)(_loop)
            made = cfunc(_SIGNATURE, cache=True)(_loop_at)
        except _FAILS:
            _compiled = njit(_SIGNATURE, **options)(_loop)
            made = cfunc(_SIGNATURE)(_loop_at)
    set_num_threads(min(threads, config.NUMBA_NUM_THREADS))
    return int(made.address), made
