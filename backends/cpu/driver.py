"""The parallel driver's code, in a file of its own so that numba can cache its machine code."""

from __future__ import annotations

import warnings
from typing import Any

from llvmlite import ir
from numba import cfunc, njit, prange, types
from numba.core.errors import NumbaWarning
from numba.core.extending import intrinsic

from cubepy.backends.llvm.ops import call_kernel

_i64 = types.int64


@intrinsic
def take(typing_context, address):  # type: ignore[no-untyped-def]
    """The int64 at an address, which is then one more, atomically."""

    def code(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        word = ir.IntType(64)
        place = builder.inttoptr(arguments[0], word.as_pointer())
        return builder.atomic_rmw("add", place, ir.Constant(word, 1), "monotonic")

    return _i64(_i64), code


def _run(entry, cubes, chunks, threads, arguments, counter):  # type: ignore[no-untyped-def]
    for _ in prange(threads):
        while True:
            chunk = take(counter)
            if chunk >= chunks:
                break
            call_kernel(entry, chunk * cubes // chunks, (chunk + 1) * cubes // chunks, arguments)


def build() -> Any:
    """Compile `run(entry, cubes, chunks, threads, arguments, counter)`, or load it from numba's cache.

    It runs `cubes` cubes of the kernel at address `entry` in `chunks` pieces on `threads` threads; `counter` is
    the address of an int64 that starts at 0.
    """
    signature = types.void(_i64, _i64, _i64, _i64, _i64, _i64)
    options = {"parallel": True, "nogil": True, "error_model": "numpy"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumbaWarning)
            return njit(signature, cache=True, **options)(_run)
    except (RuntimeError, OSError, EOFError, ValueError):  # no place for the cache, or a damaged one
        return njit(signature, **options)(_run)


def address_of(run: Any) -> tuple[int, Any]:
    """The address of what `build` gives, for machine code that calls it, and what keeps the code alive."""
    global driver
    driver = run
    signature = types.void(_i64, _i64, _i64, _i64, _i64, _i64)
    try:
        made = cfunc(signature, cache=True)(_call)
    except (RuntimeError, OSError, EOFError, ValueError):
        made = cfunc(signature)(_call)
    return int(made.address), made


driver: Any = None


def _call(entry, cubes, chunks, threads, arguments, counter):  # type: ignore[no-untyped-def]
    driver(entry, cubes, chunks, threads, arguments, counter)
